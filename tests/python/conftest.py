"""Every test runs under every Python from 3.9 to 3.14 that is here; those of the frameworks under one that has them."""

import os
import pathlib
import sys
import textwrap

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import Worker, interpreters  # noqa: E402


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        found = interpreters()
        metafunc.parametrize("python", found, ids=[pathlib.Path(program).name for program in found])


class Workshop:
    """Writes tool files and starts workers for them; ends them all."""

    def __init__(self, python, folder):
        self.python, self.folder, self.workers = python, folder, []

    def write(self, text, name="tools_here.py"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def worker(self):
        worker = Worker(self.python, self.folder)
        self.workers.append(worker)
        return worker

    def load(self, text, name="tools_here.py", **more):
        """(worker, {tool name: tool}) of a module with this source."""
        worker = self.worker()
        ready = worker.load(self.write(text, name), **more)
        assert ready["op"] == "ready", ready
        worker.ready = ready
        return worker, {tool["name"]: tool for tool in ready["tools"]}

    def fail(self, text, name="tools_here.py", **more):
        """The refusal of a module that cannot be loaded; the worker has then ended."""
        worker = self.worker()
        failed = worker.load(self.write(text, name), **more)
        assert failed["op"] == "failed", failed
        assert worker.process.wait(timeout=10) == 1
        return failed

    def load_named(self, module, **more):
        worker = self.worker()
        ready = worker.load(module, **more)
        assert ready["op"] == "ready", ready
        return worker, {tool["name"]: tool for tool in ready["tools"]}

    def end(self):
        for worker in self.workers:
            worker.close()


@pytest.fixture
def here(python, tmp_path):
    workshop = Workshop(python, tmp_path)
    yield workshop
    workshop.end()


@pytest.fixture
def framework_here(tmp_path):
    """As `here`, with the interpreter that TOOLCRIB_FRAMEWORKS_PYTHON names."""
    python = os.environ.get("TOOLCRIB_FRAMEWORKS_PYTHON")
    if not python:
        pytest.skip("TOOLCRIB_FRAMEWORKS_PYTHON names no interpreter with the frameworks (requirements-*.txt)")
    workshop = Workshop(python, tmp_path)
    yield workshop
    workshop.end()
