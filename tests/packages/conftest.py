"""The Python and Node packages, built and installed from their artefacts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import BIN, REPO

pytest_plugins = "service_fixtures"


def run(*command, **options):
    """The output of a program. A failure shows all of the output."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def binary():
    """The program under test."""
    return Path(BIN).resolve()


@pytest.fixture(scope="session")
def python_artefacts(tmp_path_factory):
    """The wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "python"
    shutil.copytree(REPO / "python", source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source)
    return folder


class Venv:
    def __init__(self, folder):
        self.folder = folder
        run(sys.executable, "-m", "venv", folder)
        self.python = folder / "bin" / "python"

    def install(self, *packages):
        run(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)

    def run(self, *arguments, **options):
        return run(self.python, *arguments, **options)


@pytest.fixture(scope="session")
def installed(tmp_path_factory, python_artefacts):
    """A virtual environment with the pure wheel, pytest and mypy."""
    venv = Venv(tmp_path_factory.mktemp("pure") / "venv")
    venv.install(next(python_artefacts.glob("*-py3-none-any.whl")), "pytest", "mypy")
    return venv
