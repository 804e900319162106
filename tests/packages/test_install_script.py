"""install.sh against a local server: good, damaged, for another platform, offline, interrupted."""

import http.server
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import file_server, first_call, only_the_ledger, run
from harness import REPO, poll

SCRIPT = REPO / "install.sh"


@pytest.fixture
def releases(artefacts, tmp_path):
    """A release as the website has it."""
    latest = tmp_path / "releases/latest/download"
    latest.mkdir(parents=True)
    for path in [*artefacts.glob("toolcrib-*-linux.tar.gz"), artefacts / "SHA256SUMS"]:
        shutil.copy(path, latest)
    version = next(latest.glob("*.tar.gz")).name.split("-")[1]
    (tmp_path / "releases/download").mkdir()
    (tmp_path / f"releases/download/v{version}").symlink_to(latest)
    return tmp_path / "releases"


class Home:
    """A home folder, in which the script is run."""

    def __init__(self, folder):
        self.folder = folder / "home"
        self.temporary = folder / "temporary"
        for path in (self.folder, self.temporary):
            path.mkdir()
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "TMPDIR": str(self.temporary)}

    def command(self, url, **variables):
        return {"args": ["sh", SCRIPT], "env": {**self.environment, "TOOLCRIB_RELEASES": url, **variables}, "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    def install(self, url, **variables):
        return subprocess.run(**self.command(url, **variables), timeout=60)

    def is_clean(self):
        """Whether nothing is left, also no temporary file."""
        return not [path for path in [*self.folder.rglob("*"), *self.temporary.rglob("*")] if path.is_file()] and not list(self.temporary.iterdir())


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def refused(home, done, word):
    assert done.returncode == 1 and word in done.stdout, done
    assert home.is_clean()


def test_program_is_installed_used_and_removed(home, releases, binary, tmp_path):
    with file_server(releases) as url:
        done = home.install(url)
    assert done.returncode == 0 and "Put" in done.stdout, done
    installed = home.folder / ".local/bin/toolcrib"
    assert [path for path in home.folder.rglob("*") if path.is_file()] == [installed] and not list(home.temporary.iterdir())
    assert run(installed, "--version") == run(binary, "--version")
    work = tmp_path / "work"
    work.mkdir()
    first_call([installed], cwd=work)
    installed.unlink()
    assert home.is_clean() and only_the_ledger(work)


def test_running_program_is_replaced(home, releases, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy("/bin/sleep", folder / "toolcrib")
    with subprocess.Popen([folder / "toolcrib", "60"]) as running, file_server(releases) as url:
        version = next((releases / "latest/download").glob("*.tar.gz")).name.split("-")[1]
        done = home.install(url, TOOLCRIB_BIN_DIR=str(folder), TOOLCRIB_VERSION=version, PATH=f"{folder}:/usr/bin:/bin")
        assert done.returncode == 0 and "Put" not in done.stdout, done
        assert running.poll() is None
        running.kill()
    assert [path.name for path in folder.iterdir()] == ["toolcrib"]


def test_wrong_sum_is_refused(home, releases):
    tarball = next((releases / "latest/download").glob("*.tar.gz"))
    content = bytearray(tarball.read_bytes())
    content[len(content) // 2] ^= 1
    tarball.write_bytes(content)
    with file_server(releases) as url:
        refused(home, home.install(url), "is not what SHA256SUMS says")


@pytest.mark.parametrize("system, machine, word", [("Darwin", "arm64", "for Linux only"), ("Linux", "riscv64", "this is riscv64"),
                                                   ("Linux", "OTHER", "has no program for")])
def test_wrong_platform_is_refused(home, releases, tmp_path, system, machine, word):
    machine = machine.replace("OTHER", "aarch64" if os.uname().machine == "x86_64" else "x86_64")
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/uname").write_text(f'#!/bin/sh\n[ "$1" = -s ] && echo {system} || echo {machine}\n')
    (tmp_path / "fake/uname").chmod(0o755)
    with file_server(releases) as url:
        refused(home, home.install(url, PATH=f"{tmp_path}/fake:/usr/bin:/bin"), word)


def test_offline_is_said(home):
    refused(home, home.install("http://127.0.0.1:1"), "cannot be fetched")


def test_version_that_does_not_exist_is_said(home, releases):
    with file_server(releases) as url:
        refused(home, home.install(url, TOOLCRIB_VERSION="99.0.0"), "v99.0.0/SHA256SUMS cannot be fetched")


class Stalling(http.server.BaseHTTPRequestHandler):
    """Sends the sums, then half of the program, and then nothing or the end of the connection."""

    def do_GET(self):
        content = Path(self.server.folder, self.path.rpartition("/")[2]).read_bytes()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.path.endswith("SHA256SUMS"):
            self.wfile.write(content)
            return
        self.wfile.write(content[:len(content) // 2])
        self.wfile.flush()
        self.server.is_half_sent.set()
        if self.server.waits:
            self.server.may_end.wait(60)

    def log_message(self, *_):
        pass


@pytest.fixture
def stalling(releases):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    server.folder, server.waits, server.is_half_sent, server.may_end = releases / "latest/download", False, threading.Event(), threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.may_end.set()
    server.shutdown()
    server.server_close()


def test_broken_connection_installs_nothing(home, stalling):
    refused(home, home.install(f"http://127.0.0.1:{stalling.server_port}"), "cannot be fetched")


def test_interrupt_leaves_nothing(home, stalling):
    stalling.waits = True
    with subprocess.Popen(**home.command(f"http://127.0.0.1:{stalling.server_port}"), start_new_session=True) as script:
        assert stalling.is_half_sent.wait(30)
        os.killpg(script.pid, signal.SIGINT)
        assert script.wait(30) == 130
    poll(home.is_clean, 10, "no temporary files")


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9, 0.995])
def test_half_a_script_does_nothing(home, releases, part):
    text = SCRIPT.read_text()
    with file_server(releases) as url:
        options = {**home.command(url), "args": ["sh"]}
        del options["stdin"]
        subprocess.run(**options, input=text[:int(len(text) * part)], timeout=60)
    assert home.is_clean()
