"""Python environments with pinned packages, built once and kept.

    python environments.py PINS.txt FOLDER             # builds one before the tests need it
"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from recipes import PYTHON

NO_NETWORK = ("Failed to fetch", "error sending request", "dns error", "Could not connect", "timed out")


def environment(pins, place):
    """The interpreter of an environment below `place` with the packages of the file `pins`; built when it is missing or the file has
    changed. The test is skipped where it cannot be installed."""
    if sys.version_info < (3, 10):
        pytest.skip("its packages need Python 3.10")
    place.mkdir(parents=True, exist_ok=True)
    with open(place / f"{pins.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side build it once
        return built(pins, place)


def built(pins, place):
    wanted, folder = pins.read_text(), place / pins.stem
    python, mark = folder / "bin" / "python", folder / "wanted"
    if mark.exists() and mark.read_text() == wanted and subprocess.run([str(python), "-c", ""]).returncode == 0:
        return python
    uv = pathlib.Path(sys.executable).parent / "uv"
    if not uv.exists():
        pytest.skip(f"no uv here: pip install -r {pins.parent / 'requirements.txt'}")
    env = {**os.environ, "UV_CACHE_DIR": str(place / "cache"), "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    shutil.rmtree(folder, ignore_errors=True)
    for command in (["venv", "--quiet", "--python", PYTHON, str(folder)],
                    ["pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "-r", str(pins)]):
        done = subprocess.run([str(uv), *command], env=env, stdin=subprocess.DEVNULL, text=True, capture_output=True, timeout=600)
        if done.returncode:
            output = (done.stderr or done.stdout).strip()
            if any(words in output for words in NO_NETWORK):
                pytest.skip(f"PyPI is out of reach: {output.splitlines()[0]}")
            pytest.fail(f"uv {command[0]} fails for {pins.name}\n{output}")
    mark.write_text(wanted)
    return python


if __name__ == "__main__":
    environment(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve())
