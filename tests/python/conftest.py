"""Every test runs under the oldest and the newest installed Python from 3.9 to 3.14; those of the frameworks under one that has them."""

import functools
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import Worker, interpreters  # noqa: E402

FRAMEWORKS = "TOOLCRIB_FRAMEWORKS_PYTHON"  # interpreters with the frameworks, separated like PATH


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        found = interpreters()
        metafunc.parametrize("python", found, ids=[pathlib.Path(program).name for program in found])


class Workshop:
    """Writes tool files and starts workers for them; ends them all."""

    def __init__(self, python, folder):
        self.python, self.folder, self.workers = python, folder, []
        self.version = tuple(map(int, version_of(python).split(".")))

    def write(self, text, name="tools_here.py"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def worker(self, environment=None):
        worker = Worker(self.python, self.folder, environment)
        self.workers.append(worker)
        return worker

    def load(self, text, name="tools_here.py", **more):
        """(worker, {tool name: tool}) of a module with this source."""
        return self.load_named(self.write(text, name), **more)

    def load_named(self, module, environment=None, **more):
        """(worker, {tool name: tool}) of a file, or of a module by its name."""
        worker = self.worker(environment)
        ready = worker.load(module, **more)
        assert ready["op"] == "ready", ready
        worker.ready = ready
        return worker, {tool["name"]: tool for tool in ready["tools"]}

    def fail(self, text, name="tools_here.py", **more):
        """The refusal of a module that cannot be loaded; the worker has then ended."""
        return self.fail_named(self.write(text, name), **more)

    def fail_named(self, module, **more):
        worker = self.worker()
        failed = worker.load(module, **more)
        assert failed["op"] == "failed", failed
        assert worker.process.wait(timeout=10) == 1
        return failed

    def end(self):
        for worker in self.workers:
            worker.close()


@functools.lru_cache(maxsize=None)
def version_of(python):
    return subprocess.check_output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True).strip()


@functools.lru_cache(maxsize=None)
def python_with(package):
    """The first interpreter named in the environment that can import the package."""
    for python in os.environ.get(FRAMEWORKS, "").split(os.pathsep):
        if python and subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0:
            return python
    return None


@functools.lru_cache(maxsize=None)
def pydantic_pythons():
    """One interpreter for each version of pydantic that the frameworks have, the oldest version first."""
    found = {}
    for python in filter(None, os.environ.get(FRAMEWORKS, "").split(os.pathsep)):
        done = subprocess.run([python, "-c", "import pydantic; print(pydantic.VERSION)"], capture_output=True, text=True)
        if done.returncode == 0:
            found.setdefault(tuple(map(int, done.stdout.strip().split(".")[:3])), python)
    return [found[version] for version in sorted(found)]


@pytest.fixture(params=["oldest", "newest"])
def with_pydantic(request, tmp_path):
    """As `workshop`, under the oldest and the newest pydantic of the frameworks. Their schemas differ."""
    pythons = pydantic_pythons()
    if not pythons:
        pytest.skip(f"no interpreter in {FRAMEWORKS} has pydantic (tests/frameworks)")
    if request.param == "newest" and len(pythons) == 1:
        pytest.skip("there is one version of pydantic")
    workshop = Workshop(pythons[-1 if request.param == "newest" else 0], tmp_path)
    yield workshop
    workshop.end()


@pytest.fixture
def workshop(python, tmp_path):
    workshop = Workshop(python, tmp_path)
    yield workshop
    workshop.end()


@pytest.fixture
def with_package(tmp_path):
    """`with_package("strands")`: as `workshop`, under an interpreter that has the package; otherwise the test is skipped."""
    workshops = []

    def make(package):
        python = python_with(package)
        if python is None:
            pytest.skip(f"no interpreter in {FRAMEWORKS} has {package} (tests/frameworks)")
        workshops.append(Workshop(python, tmp_path))
        return workshops[-1]

    yield make
    for workshop in workshops:
        workshop.end()
