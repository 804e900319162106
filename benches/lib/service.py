"""A server under measurement: a child process with its log, its memory and its CPU time."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.parse

START_S, PAUSE_S = 60, 0.001  # a ledger that a killed process left is recovered first
SETTLE_S, REST_S = 10, 0.05
IDLE_CPU_S = 0.0005  # of REST_S: timers of a server at rest stay below 1 %


class Server:
    """A child process for the length of a `with`. It prints its address (`listening on http://ADDR`), unless its port is given: then
    its /readyz is polled. Its output goes to a file: a pipe that is not read would block it."""

    def __init__(self, name, command, folder, key=None, port=None):
        self.name, self.command, self.folder, self.key, self.port = name, command, pathlib.Path(folder), key, port

    def __enter__(self):
        with open(self.folder / f"{self.name}.log", "wb") as log:
            self.child = subprocess.Popen(self.command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          **self.start_options())
        try:
            self.await_start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_options(self):
        # The defaults are measured, whatever the shell has set.
        return {"env": {k: v for k, v in os.environ.items() if not k.startswith(("TOOLCRIB_", "RUST_LOG"))}}

    def await_start(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.child.poll() is None:
            if self.is_ready() if self.port else self.has_printed_address():
                self.ready_at = time.perf_counter()
                return
            time.sleep(PAUSE_S)
        fail(f"{self.name} did not start (exit status {self.child.poll()}):\n{self.log()}")

    def has_printed_address(self):
        for line in self.log().splitlines():
            _, found, url = line.partition("listening on http://")
            if found:
                self.url = "http://" + url.split()[0].strip('"')
                return True
        return False

    def is_ready(self):
        self.url = f"http://127.0.0.1:{self.port}"
        with contextlib.suppress(OSError), self.connect() as connection:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            print_status(f"{self.name} was still there 30 s after SIGTERM and was killed")

    def log(self):
        with open(self.folder / f"{self.name}.log", errors="replace") as log:
            return log.read(64 * 1024)

    def connect(self):
        """A connection that stays open over several questions, without any proxy."""
        return contextlib.closing(http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc, timeout=120))

    def ask(self, method, path, body=None, connection=None, key=None, headers=None):
        """The answer's bytes. Anything but a 200 ends the run: a refusal would be measured as a fast answer."""
        if connection is None:
            with self.connect() as connection:
                return self.ask(method, path, body, connection, key, headers)
        headers = ({"content-type": "application/json"} if body else {}) | (headers or {})
        if key or self.key:
            headers["authorization"] = f"Bearer {key or self.key}"
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answered = answer.read()
        except (OSError, http.client.HTTPException) as error:
            fail(f"{method} {path} at {self.name}: {error!r}\n{self.log()}")
        if answer.status != 200:
            fail(f"{method} {path} at {self.name}: {answer.status}\n{answered.decode(errors='replace')}\n{self.log()}")
        return answered

    def wait_until_idle(self):
        """Waits until the server is idle: rows are written behind their answers, and belong to the cost of the calls."""
        until, before = time.monotonic() + SETTLE_S, self.cpu_seconds()
        while time.monotonic() < until:
            time.sleep(REST_S)
            now = self.cpu_seconds()
            if now - before < IDLE_CPU_S:
                return
            before = now

    def cpu_seconds(self):
        return cpu_seconds(self.child.pid)

    def memory_mib(self):
        """Resident memory of all its processes: all, and the part that is its own (no file behind it)."""
        return tuple(sum(size_mib(pid, name) for pid in processes(self.child.pid)) for name in ("VmRSS", "RssAnon"))

    def peak_mib(self):
        """The most resident memory that the process had, without those below it."""
        return size_mib(self.child.pid, "VmHWM")


def processes(pid):
    """The process and all below it, such as Python workers."""
    found = [pid]
    for pid in found:  # grows while it is read
        for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended
                found += map(int, thread.read_text().split())
    return found


def size_mib(pid, name):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(dict(line.split(":", 1) for line in status.splitlines())[name].split()[0]) / 1024


def cpu_seconds(pid):
    """User and system time of the process and all below it. The kernel counts it in nanoseconds; /proc shows hundredths of a second."""
    return sum(map(process_cpu_seconds, processes(pid)))


def process_cpu_seconds(pid):
    # The number of a process's CPU clock, as clock_getcpuclockid(3) computes it.
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:  # it has ended
        return 0


def toolcrib(binary, name, folder, manifest, ledger=None, key=None, port=None):
    """`toolcrib serve` with this manifest (text) and a ledger, a file or a URL: a new file, unless it is named."""
    return Server(name, serve_command(binary, name, folder, manifest, ledger, port), folder, key, port)


def serve_command(binary, name, folder, manifest, ledger=None, port=None):
    folder = pathlib.Path(folder)
    file = folder / f"{name}.yaml"
    file.write_text(manifest)
    ledger = str(ledger or folder / f"{name}.db")
    url = ledger if "://" in ledger else f"sqlite://{ledger}"
    return [binary, "serve", "--manifest", file, "--listen", f"127.0.0.1:{port or 0}", "--ledger", url]


def free_port():
    with contextlib.closing(socket.socket()) as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def parsed(answer):
    return json.loads(answer)


def print_status(line):
    print(f"{pathlib.Path(sys.argv[0]).name}: {line}", file=sys.stderr, flush=True)


def fail(line):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {line}")
