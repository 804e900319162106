"""Toolcrib from outside: the release binary, over real sockets, against the contract only.

    python3 -m pytest tests/outside                    # target/release/toolcrib, or TOOLCRIB_BIN=/path/to/toolcrib

Fixtures: `start` makes services, `upstream` is a scripted upstream, `mark` finds processes that a tool left behind, `tmpfs` a small disk.
Tests that need root, mounts or /proc skip themselves and say why.
"""

import os
import pathlib
import subprocess

import pytest

import harness
from harness import Starter
from upstream import Upstream


def pytest_sessionstart(session):
    if not session.config.option.collectonly and not os.access(harness.BIN, os.X_OK):
        pytest.exit(f"no binary at {harness.BIN}: build it, or name one in TOOLCRIB_BIN", returncode=2)


@pytest.fixture
def start(tmp_path):
    starter = Starter(tmp_path)
    yield starter
    starter.close()


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory):
    """For modules whose tests leave nothing behind: one service for all of them."""
    starter = Starter(tmp_path_factory.mktemp("shared"))
    yield starter
    starter.close()


@pytest.fixture
def upstream():
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
    """A token for command lines; whatever still carries it after the test is ended."""
    if not pathlib.Path("/proc/self/cmdline").exists():
        pytest.skip("needs /proc to look for surviving processes")
    value = harness.token()
    yield value
    harness.reap(value)


@pytest.fixture
def tmpfs(tmp_path):
    """mount(size) -> a small file system of its own (root on Linux only)."""
    mounted = []

    def mount(size):
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if made.returncode:
            pytest.skip(f"cannot mount a tmpfs: {made.stdout.strip()}")
        mounted.append(place)
        return place

    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=False)
