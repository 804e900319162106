"""Toolcrib from outside: the release binary, over real sockets, against the contract only.

    python3 -m pytest tests/outside                    # target/release/toolcrib, or TOOLCRIB_BIN=/path/to/toolcrib

Fixtures: those of tests/support/service_fixtures.py, and `tmpfs`, a small disk.
Tests that need root, mounts or /proc skip themselves and say why.
"""

import os
import subprocess

import pytest

pytest_plugins = "service_fixtures"


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
