"""Fixtures of all suites that start the binary: `pytest_plugins = "service_fixtures"` in a conftest.py takes them.

Imports only pytest and the standard library: each suite has a virtual environment of its own.
"""

import os
import pathlib

import pytest

import harness
from harness import Starter
from upstream import Upstream


def pytest_sessionstart(session):
    if not session.config.option.collectonly and not os.access(harness.BIN, os.X_OK):
        pytest.exit(f"no binary at {harness.BIN}: build it, or name one in TOOLCRIB_BIN", returncode=2)


@pytest.fixture
def start(tmp_path):
    """start(manifest, ...) starts a service, which must stop with exit code 0 after the test."""
    starter = Starter(tmp_path)
    yield starter
    starter.close()


@pytest.fixture
def start_plain(start):
    """As `start`, without sandboxes: for tests that know programs by their process ids, which differ in a namespace."""
    def start_without_sandboxes(manifest, **options):
        defaults = {"sandbox": "none", **manifest.get("defaults", {})}
        return start({**manifest, "defaults": defaults}, **options)
    return start_without_sandboxes


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory):
    """For modules whose tests leave nothing behind: one service for all of them."""
    starter = Starter(tmp_path_factory.mktemp("shared"))
    yield starter
    starter.close()


@pytest.fixture
def upstream():
    """A scripted HTTP upstream."""
    upstream = Upstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def upstream_shared():
    upstream = Upstream()
    yield upstream
    upstream.close()


@pytest.fixture
def mark():
    """A token for command lines. The fixture ends processes that still carry it after the test."""
    if not pathlib.Path("/proc/self/cmdline").exists():
        pytest.skip("needs /proc to look for surviving processes")
    value = harness.token()
    yield value
    harness.reap(value)
