"""Clients made by real generators from the document that a running service hands out.

    tests/run                                          # installs the generators under target/clients

by hand: target/clients/venv/bin/python -m pytest tests/clients, with TOOLCRIB_BIN=/path/to/toolcrib for another binary than
target/release/toolcrib, and CLIENTS_DIR for another folder than target/clients. Without node_modules there the TypeScript
half skips itself.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness import TARGET, Crib
from upstream import Upstream

pytest_plugins = "service_fixtures"

HERE = pathlib.Path(__file__).resolve().parent
PLACE = TARGET / "clients"


def run(*command, cwd, ok=True):
    """Runs a program to its end and returns its output."""
    done = subprocess.run([str(part) for part in command], cwd=str(cwd), stdin=subprocess.DEVNULL, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert not ok or done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{done.stdout}"
    return done


@pytest.fixture(scope="session")
def crib(tmp_path_factory):
    """A service with the tools of tools.yaml."""
    up = Upstream()
    days = [{"high": 21.5, "note": None}, {"high": 19, "note": "rain"}]
    up.script("/weather/Oslo", lambda handler: handler.reply(200, {"city": "Oslo", "sky": "cloudy", "days": days}))
    crib = Crib(tmp_path_factory.mktemp("crib"), (HERE / "tools.yaml").read_text(), env={"UPSTREAM": up.base})
    yield crib
    crib.stop()
    up.close()


@pytest.fixture(scope="session")
def work():
    """An empty folder below the generators' packages."""
    folder = PLACE / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="session")
def document(crib, work):
    """The document, as a file."""
    reply = crib.get("/openapi.json")
    assert reply.status == 200, reply
    file = work / "openapi.json"
    file.write_bytes(reply.body)
    return file
