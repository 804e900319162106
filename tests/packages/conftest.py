"""Everything that ships, made by `dist/build`, then installed and used as its users do."""

import contextlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from harness import BIN, REPO, TARGET, poll

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
def artefacts(binary, tmp_path_factory):
    """A folder with all artefacts of the program under test, which may be a dynamic one."""
    return build(binary, tmp_path_factory.mktemp("dist"))


def build(binary, out, repository=REPO, **options):
    """What takes little time of `dist/build`."""
    run(sys.executable, repository / "dist/build", "--binary", binary, "--allow-dynamic", "--out", out,
        "--only", "tarball,deb,wheels,npm,licenses,sbom", **options)
    return out


def is_static(binary):
    return b"/ld-linux" not in binary.read_bytes()


def without_program():
    """The environment, without what would lead to the program under test."""
    return {name: value for name, value in os.environ.items() if name not in ("TOOLCRIB_BIN", "PYTHONPATH")}


def first_call(command, stop=lambda service: service.terminate(), **options):
    """Starts the service, makes the first call of the README, and stops it."""
    service = subprocess.Popen([*map(str, command), "serve", "--listen", "127.0.0.1:0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True, **options)
    lines = []
    try:
        for line in service.stdout:
            lines.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                break
        assert found, "".join(lines)
        request = urllib.request.Request(f"{found[1]}/tools/calculator/invoke", b'{"arguments": {"expression": "6*7"}}', {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["content"] == [{"type": "text", "text": "42"}]
        stop(service)
        lines += service.stdout.read()
        status = service.wait(30)
        assert status == 0 or (stop is interrupt and status in (-signal.SIGINT, 128 + signal.SIGINT)), "".join(lines)
        assert '"stopped"' in "".join(lines) and "second stop signal" not in "".join(lines), "".join(lines)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        service.stdout.close()


def interrupt(service):
    """As Ctrl-C in a terminal: all programs in the foreground get the signal, and some, such as npx, end of it."""
    os.killpg(service.pid, signal.SIGINT)


def only_the_ledger(folder):
    """Whether a folder has a ledger in it and nothing else: what is left when the program is gone."""
    names = {path.name for path in Path(folder).iterdir()}
    return "toolcrib.db" in names and all(name.startswith("toolcrib.db") for name in names)


@contextlib.contextmanager
def file_server(folder):
    """The files of a folder over HTTP. Gives the address."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def npm_registry(artefacts, tmp_path_factory):
    """A registry of npm packages with ours in it. It asks the real one for all others."""
    program = TARGET / "packages/node_modules/.bin/verdaccio"
    if not program.exists():
        pytest.skip("verdaccio is not installed")
    folder = tmp_path_factory.mktemp("registry")
    (folder / "config.yaml").write_text("""
storage: ./storage
auth: {htpasswd: {file: ./htpasswd}}
packages:
  "@toolcrib/*": {access: $all, publish: $all}
  toolcrib: {access: $all, publish: $all}
max_body_size: 200mb
log: {type: stdout, level: warn}
""")
    with open(folder / "log", "w") as log:
        service = subprocess.Popen([program, "--config", folder / "config.yaml", "--listen", "127.0.0.1:0"], cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        url = poll(lambda: own_address(service.pid), 60, f"verdaccio listens: {(folder / 'log').read_text()}")
        settings = folder / "npmrc"
        settings.write_text(f"registry={url}/\n//{url.partition('//')[2]}/:_authToken=none\n")
        environment = {**without_program(), "NPM_CONFIG_USERCONFIG": str(settings), "NPM_CONFIG_REGISTRY": f"{url}/",
                       "NPM_CONFIG_CACHE": str(folder / "cache"), "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
        for path in sorted(artefacts.glob("*.tgz")):
            run("npm", "publish", path, "--access", "public", cwd=folder, env=environment)
        yield environment
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.pid, signal.SIGKILL)
        service.wait()


def own_address(pid):
    """Where a process listens on 127.0.0.1, if it does."""
    sockets = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(descriptor))
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                return f"http://127.0.0.1:{int(fields[1].partition(':')[2], 16)}"
    return None


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
def installed(tmp_path_factory, artefacts):
    """A virtual environment with the pure wheel, pytest and mypy."""
    venv = Venv(tmp_path_factory.mktemp("pure") / "venv")
    venv.install(next(artefacts.glob("*-py3-none-any.whl")), "pytest", "mypy")
    return venv
