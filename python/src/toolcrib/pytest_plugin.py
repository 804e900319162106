"""A pytest plugin: the fixture `toolcrib` starts a service for a test, and is a client of that service.

Name the manifest with the marker `@pytest.mark.toolcrib(manifest="tools.yaml")` or the ini option `toolcrib_manifest`.
Without a manifest the service has its demo tools.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from . import _binary
from ._client import Client

LISTENING = re.compile(rb"listening on (http://\S+)")
START_TIMEOUT = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("toolcrib_manifest", "the manifest of the service that the fixture `toolcrib` starts", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "toolcrib(manifest): the manifest of the service that the fixture `toolcrib` starts")


@pytest.fixture
def toolcrib_manifest(request: pytest.FixtureRequest) -> Path | None:
    """The manifest of the service. Override this fixture to write one for each test."""
    marker = request.node.get_closest_marker("toolcrib")
    named = marker.kwargs.get("manifest") or next(iter(marker.args), None) if marker else None
    if named:
        return request.path.parent / str(named)
    configured = str(request.config.getini("toolcrib_manifest"))
    return request.config.rootpath / configured if configured else None


@pytest.fixture
def toolcrib(toolcrib_manifest: Path | None) -> Iterator[Client]:
    """A client of a service of its own, with an empty ledger."""
    program = _binary.find()
    if program is None:
        pytest.fail(_binary.MISSING, pytrace=False)
    with tempfile.TemporaryDirectory(prefix="toolcrib-") as folder:
        manifest = [] if toolcrib_manifest is None else ["--manifest", str(toolcrib_manifest)]
        command = [program, "serve", "--listen", "127.0.0.1:0", "--ledger", f"sqlite://{folder}/ledger.db", *manifest]
        log = Path(folder) / "log"
        with log.open("wb") as output:
            service = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        try:
            with Client(_address(service, log)) as client:
                yield client
        finally:
            service.terminate()
            service.wait(30)


def _address(service: subprocess.Popen[bytes], log: Path) -> str:
    """The URL of the service, when it is ready."""
    ends = time.monotonic() + START_TIMEOUT
    while time.monotonic() < ends and service.poll() is None:
        found = LISTENING.search(log.read_bytes())
        if found:
            url = found[1].decode()
            _wait_until_ready(url, ends)
            return url
        time.sleep(0.02)
    service.kill()
    pytest.fail(f"the service did not start:\n{log.read_text(errors='replace')}", pytrace=False)


def _wait_until_ready(url: str, ends: float) -> None:
    """Waits until modules and servers are listed."""
    while time.monotonic() < ends:
        if httpx.get(f"{url}/readyz").is_success:
            return
        time.sleep(0.05)
