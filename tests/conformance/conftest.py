"""The official conformance suite of MCP, and the official clients, against the binary.

    tests/run conformance                            # installs what it needs under target/conformance

by hand: target/venv-conformance/bin/python -m pytest tests/conformance, with TOOLCRIB_BIN=/path/to/toolcrib for another binary than
target/release/toolcrib. Without node_modules in target/conformance only Python's tests run.
"""

import os
import pathlib
import subprocess

import pytest

import harness
from harness import TARGET, free_port

pytest_plugins = "service_fixtures"

HERE = pathlib.Path(__file__).resolve().parent
PLACE = TARGET / "conformance"
MANIFEST = HERE / "toolcrib.yaml"


class Service(harness.Crib):
    """`toolcrib serve` with the suite's tools, in a folder of its own."""

    def __init__(self, folder):
        port = free_port()  # the tool that changes the list of tools must know where the service will be
        self.url = f"http://localhost:{port}/mcp"
        env = {"SERVICE": f"http://127.0.0.1:{port}"}
        super().__init__(folder, env=env, args=["--manifest", str(MANIFEST)], listen=f"127.0.0.1:{port}")


@pytest.fixture(scope="session")
def crib(tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("conformance"))
    service.ready()
    yield service
    print(f"--- stderr of the service\n{service.stderr[-6000:]}")
    service.stop()


@pytest.fixture
def stdio(tmp_path):
    """The arguments that serve the suite's tools on standard input and output, and the environment for them."""
    arguments = ["serve", "--stdio", "--manifest", str(MANIFEST), "--ledger", f"sqlite://{tmp_path}/toolcrib.db"]
    return arguments, harness.clean_env({"SERVICE": "http://127.0.0.1:9"}, tmp_path)


def node(program, *arguments, ok=True, env=None, seconds=120, cwd=None):
    """A program of Node 22, which the npm package `node` brings, to its end."""
    if not (PLACE / "node_modules" / ".bin" / "node").exists():
        pytest.skip(f"no packages of package.json in {PLACE}")
    path = f"{PLACE / 'node_modules' / '.bin'}:{os.environ['PATH']}"
    done = subprocess.run(["node", str(program), *map(str, arguments)], cwd=str(cwd or PLACE), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds,
                          env={**os.environ, "PATH": path, **(env or {})})
    assert not ok or done.returncode == 0, f"{program} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def package(name, file):
    """A file of an npm package."""
    return PLACE / "node_modules" / name / file


SCORES = []


@pytest.fixture(scope="session")
def scores():
    """(transport, run) of all runs of the suite."""
    return SCORES


@pytest.fixture(scope="session")
def score(scores):
    """score(transport, run) stores the result of a run of the suite, for the summary at the end."""
    return lambda transport, run: scores.append((transport, run))


def pytest_terminal_summary(terminalreporter):
    for transport, run in SCORES:
        met, scenarios, passed, checks = run.score()
        terminalreporter.write_line(f"conformance {run.suite}, {run.version}, {transport}: {met} of {scenarios} scenarios, {passed} of {checks} checks")
