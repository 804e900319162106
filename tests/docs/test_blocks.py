"""Runs the blocks of README and the book as a reader would: from top to bottom, in one folder for each page.

The first word of a block's info string is its language; options follow after commas. CONTRIBUTING.md has the table of options.
A block that is not run has `norun=REASON`.
"""

import ast
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import pytest
import yaml

from answers import differences, short, text_matches
from environments import environment
from harness import TARGET
from pages import BINARY, REPO, blocks, markdown_pages

PAGES = [page for page in markdown_pages() if any(blocks(page))]
HERE = pathlib.Path(__file__).resolve().parent
PORT = "7411"
# Whether pages install their packages as a reader does, and with the versions that are new today. By default these are pinned.
INSTALL = os.environ.get("TOOLCRIB_INSTALL") == "1"
# The ports of other programs that a page starts.
OTHER_PORTS = ("8000", "9000")
# For text only: error messages, diagrams, and files that other programs read.
TEXT = {"", "text", "sql", "toml", "html", "dockerfile", "http", "ini"}


@functools.lru_cache(maxsize=None)
def node_with_types():
    """The folder of a Node.js that runs TypeScript: that of the PATH, or the one that the suite `typescript` installs; else None."""
    for program in (shutil.which("node"), TARGET / "typescript" / "core" / "node_modules" / "node-24" / "bin" / "node"):
        if program and pathlib.Path(program).exists():
            done = subprocess.run([program, "-p", "Boolean(process.features.typescript)"], capture_output=True, text=True)
            if done.stdout.strip() == "true":
                return pathlib.Path(program).parent
    return None


class Page:
    """A page's folder, its service and what its last command printed."""

    def __init__(self, folder, scratch):
        self.folder, self.scratch = folder, scratch
        self.service, self.port, self.printed = None, PORT, None
        self.others, self.other_ports = [], {port: free_port() for port in OTHER_PORTS}
        programs = scratch / "bin"
        programs.mkdir()
        (programs / "toolcrib").symlink_to(BINARY)
        (programs / "python").symlink_to(sys.executable)
        stored = {name: value for name, value in os.environ.items() if not name.startswith("TOOLCRIB_")}
        self.environment = {**stored, "PATH": ":".join(map(str, filter(None, (programs, node_with_types(), os.environ["PATH"])))), "HOME": str(scratch), "PYTHONDONTWRITEBYTECODE": "1",
                            "TOOLCRIB_LISTEN": "127.0.0.1:0", "RUST_BACKTRACE": "0"}

    def localized(self, text):
        """The text with this page's own ports, and with the program for the command that builds it first."""
        text = re.sub(rf"\b({'|'.join(OTHER_PORTS)})\b", lambda found: self.other_ports[found[0]], text)
        return text.replace(f":{PORT}", f":{self.port}").replace("cargo run --release -- ", "toolcrib ")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, block, command):
        done = subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=240)
        expected = int(block.options.get("exit", 0))
        assert done.returncode == expected, f"{block.where}: exit {done.returncode}, expected {expected}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout.replace(f":{self.port}", f":{PORT}")

    def serve(self, block):
        self.stop()
        text = block.text.replace(f":{PORT}", ":0").replace("cargo run --release -- ", "toolcrib ")
        with open(self.scratch / "service.log", "ab") as log:
            self.service = subprocess.Popen(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=self.environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        for line in self.service.stdout:
            if found := re.search(r"listening on http://\S+:(\d+)", line):
                self.port = found.group(1)
                self.await_sources()
                return
        pytest.fail(f"{block.where}: the service did not start\n{(self.scratch / 'service.log').read_text()}")

    def await_sources(self):
        """The service listens after five seconds at the latest, but a source may need longer on a busy machine."""
        end = time.monotonic() + 90
        while time.monotonic() < end:
            with contextlib.suppress(OSError):  # also the 503 of a service that is not ready
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5).close()
                return
            time.sleep(0.2)

    def start_other(self, block):
        """Another program, such as the one that a page compares. It runs until the page ends."""
        port = int(self.other_ports[block.options["background"]])
        with open(self.scratch / "other.log", "ab") as log:
            other = subprocess.Popen(["bash", "-euo", "pipefail", "-c", self.localized(block.text)], cwd=self.folder, env=self.environment,
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.others.append(other)
        end = time.monotonic() + 90
        while not listens(port):
            if other.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{block.where}: it does not listen\n{(self.scratch / 'other.log').read_text()}")
            time.sleep(0.1)

    def end(self):
        self.stop()
        for other in self.others:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(other.pid, signal.SIGKILL)
            other.wait(10)

    def link_environment(self, block):
        """`.venv` with the packages that the block installs: an environment that is built once, from a file with every version."""
        if sys.version_info < (3, 11):
            pytest.skip("its packages need Python 3.11")
        name = f"{block.options['venv']}.txt"
        pins = HERE / name if (HERE / name).exists() else next((REPO / "tests").glob(f"*/{name}"))
        named = re.findall(r"[\w.-]+==[\w.]+", block.text)
        missing = set(named) - set(re.findall(r"^[\w.-]+==[\w.]+", pins.read_text(), re.M))
        assert named and not missing, f"{block.where}: {pins.name} has other versions than {missing or 'the block'}"
        (self.folder / ".venv").symlink_to(environment(pins, TARGET / pins.parent.name).parent.parent)

    def stop(self):
        if self.service:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.service.pid, signal.SIGTERM)
            self.service.wait(40)
            self.service.stdout.close()
            self.service, self.port = None, PORT

    # ---- manifests ----

    def check(self, block, text):
        """`toolcrib check` of a manifest, in a copy of the page's folder."""
        references = set(re.findall(r"\$\{env:([A-Za-z_]\w*)", text))
        environment = {**self.environment, **{name: example_value(name) for name in references}}
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            folder = pathlib.Path(folder) / "page"
            shutil.copytree(self.folder, folder, symlinks=True, ignore=shutil.ignore_patterns("*.db*"))
            for at, path in enumerate(sorted(set(re.findall(r"\$\{file:(/[^}]+)\}", text)))):
                (folder / f"secret-{at}").write_text(f"a-secret-of-the-test-{at}\n")
                text = text.replace(f"${{file:{path}}}", f"${{file:{folder}/secret-{at}}}")
            (folder / "checked.yaml").write_text(text, encoding="utf-8")
            done = subprocess.run([BINARY, "check", "--manifest", "checked.yaml"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{block.where}: toolcrib check: exit {done.returncode}\n{done.stdout}{done.stderr}"

    # ---- answers ----

    def compare_json(self, block):
        try:
            shown = json.loads(block.text)
        except ValueError as error:
            pytest.fail(f"{block.where}: not JSON: {error}")
        if self.printed is None:
            return
        try:
            seen = json.loads(self.printed)
        except ValueError:
            pytest.fail(f"{block.where}: the command before it printed no JSON: {short(self.printed)}")
        found = list(differences(shown, seen))
        assert not found, f"{block.where}: differs from the answer:\n" + "\n".join(found) + f"\n{self.printed}"

    def compare_text(self, block):
        assert self.printed is not None, f"{block.where}: no command before it"
        assert text_matches(block.text, self.printed), f"{block.where}: the page shows\n{block.text}\nthe command printed\n{self.printed}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def example_value(name):
    """A value that `check` takes for a variable of this name."""
    if re.search(r"DATABASE|POSTGRES|PG", name):
        return "postgres://reader:example@127.0.0.1/example"
    if name == "HOOK_SECRET":
        return "whsec_" + "QUFB" * 10
    return "http://127.0.0.1:9/example" if name.endswith("URL") else f"example-value-of-{name.lower()}"


def play(page, block):
    language, options = block.language, dict(block.options)
    if options.get("norun") == "needs-nodejs-22.18" and node_with_types():
        del options["norun"]
    printed, page.printed = page.printed, None  # an answer follows its command directly
    if "norun" in options:
        assert re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)*", options["norun"]), f"{block.where}: norun needs a reason, such as norun=needs-docker"
        if language == "yaml":
            list(yaml.safe_load_all(block.text))
    elif language == "yaml":
        text = block.text
        if "tool" in options:
            text = "tools:\n  example:\n" + "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
        page.check(block, text)
        if "file" in options:
            page.write(options["file"], page.localized(block.text))
    elif language == "json":
        page.printed = printed
        page.compare_json(block)
        if "file" in options:
            page.write(options["file"], block.text)
    elif language == "sh":
        if "serve" in options:
            page.serve(block)
        elif "background" in options:
            page.start_other(block)
        elif "venv" in options:
            page.run(block, ["bash", "-euo", "pipefail", "-c", block.text]) if INSTALL else page.link_environment(block)
        else:
            page.run(block, ["bash", "-euo", "pipefail", "-c", page.localized(block.text)])
    elif language == "python":
        compile(block.text, block.where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if "file" in options:
            page.write(options["file"], page.localized(block.text))
        if "run" in options:
            page.run(block, [sys.executable, "-c", page.localized(block.text)])
    elif language == "javascript":
        name = options.get("file") or "block.mjs"
        page.write(name, page.localized(block.text))
        if shutil.which("node"):
            page.run(block, ["node", "--check", name])
            page.printed = None
    elif language == "typescript":
        name = options.get("file") or "block.mts"
        page.write(name, page.localized(block.text))
        if node_with_types():
            strip = "require('node:module').stripTypeScriptTypes(require('node:fs').readFileSync(process.argv[1], 'utf8'))"
            page.run(block, ["node", "-e", strip, name])  # its syntax
            page.printed = None
    elif language == "text" and "output" in options:
        page.printed = printed
        page.compare_text(block)
    elif language in TEXT:
        if "file" in options:
            page.write(options["file"], page.localized(block.text))
    elif language != "rust":  # rustdoc compiles these: see test_pages.py
        pytest.fail(f"{block.where}: no test knows the language {language!r}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPO)))
def test_blocks_run_as_shown(path, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    page = Page(folder, tmp_path)
    try:
        for block in blocks(path):
            play(page, block)
    finally:
        page.end()
