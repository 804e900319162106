"""Every test runs under the oldest and the newest Node.js; those of the frameworks with packages from npm (`projects/`)."""

import fcntl
import filecmp
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from worker_process import REPO, Worker  # noqa: E402

PROJECTS = pathlib.Path(__file__).parent / "projects"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPO / "target")) / "typescript"


@functools.lru_cache(maxsize=None)
def project(name):
    """The folder of the installed packages of a project. Its test is skipped if they cannot be installed."""
    source, folder = PROJECTS / name, TARGET / name
    folder.mkdir(parents=True, exist_ok=True)
    mark, lock = folder / "installed", source / "package-lock.json"
    with open(folder / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (mark.exists() and filecmp.cmp(mark, lock, shallow=False)):
            shutil.copy(source / "package.json", folder)
            shutil.copy(lock, folder)
            omit = [] if name == "core" else ["--omit=optional"]
            command = ["npm", "ci", *omit, "--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps", "--loglevel=error"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"the packages of {name} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
            shutil.copy(lock, mark)
    return folder


@functools.lru_cache(maxsize=None)
def nodes():
    """Programs of Node.js by name: that of the PATH, which may be old, and the newest one of the project `core`."""
    found = {"node": shutil.which("node")} if shutil.which("node") else {}
    for major in (22, 24):
        program = project("core") / "node_modules" / f"node-{major}" / "bin" / "node"
        if program.exists():
            found[f"node-{major}"] = str(program)
    return found


@functools.lru_cache(maxsize=None)
def version(node):
    return tuple(map(int, subprocess.check_output([node, "-p", "process.versions.node"], text=True).strip().split(".")))


def pytest_generate_tests(metafunc):
    if "node" in metafunc.fixturenames:
        names = list(nodes())
        chosen = names if os.environ.get("TOOLCRIB_NODES") == "all" else sorted({names[0], names[-1]}) if names else []
        metafunc.parametrize("node", [nodes()[name] for name in chosen], ids=chosen)


class Workshop:
    """Writes tool files and starts workers for them; ends them all."""

    def __init__(self, node, folder, packages=None):
        self.node, self.folder, self.workers = node, folder, []
        if packages:
            (folder / "node_modules").symlink_to(packages / "node_modules")

    def write(self, text, name="tools_here.mjs"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def worker(self, environment=None, options=(), pass_fds=()):
        worker = Worker(self.node, self.folder, environment, options, pass_fds)
        self.workers.append(worker)
        return worker

    def load(self, text, name="tools_here.mjs", **more):
        """(worker, {tool name: tool}) of a module with this source."""
        return self.load_named(self.write(text, name), **more)

    def load_named(self, module, environment=None, options=(), **more):
        """(worker, {tool name: tool}) of a file, or of a package by its name."""
        worker = self.worker(environment, options)
        ready = worker.load(module, **more)
        assert ready["op"] == "ready", (ready, worker.log)
        worker.ready = ready
        return worker, {tool["name"]: tool for tool in ready["tools"]}

    def fail(self, text, name="tools_here.mjs", **more):
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


@pytest.fixture
def make_workshop(tmp_path):
    """`make_workshop(node, "core")`: a workshop with the packages of a project."""
    made = []

    def make(node, packages=None):
        folder = tmp_path / f"w{len(made)}"
        folder.mkdir()
        made.append(Workshop(node, folder, project(packages) if packages else None))
        return made[-1]

    yield make
    for workshop in made:
        workshop.end()


@pytest.fixture
def workshop(node, make_workshop):
    """Without any package."""
    return make_workshop(node)


@pytest.fixture
def with_compiler(node, make_workshop):
    """With `typescript` and `esbuild`."""
    return make_workshop(node, "core")


@pytest.fixture
def newest_node():
    """The newest Node.js, which runs types by itself and has what the frameworks need."""
    found = list(nodes().values())
    if not found or version(found[-1]) < (22, 18):
        pytest.skip("no Node.js from 22.18 on: the project `core` has none for this machine")
    return found[-1]
