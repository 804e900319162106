"""Drives the toolcrib binary from outside: a service in a temp dir, plain HTTP, and the checks every test shares.

Imports only the standard library: each suite has a virtual environment of its own, and tests/faults has none.
"""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid

from recipes import to_yaml

REPO = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or REPO / "target").resolve()
BIN = str(pathlib.Path(os.environ.get("TOOLCRIB_BIN") or TARGET / "release" / "toolcrib").resolve())

# The contract's closed vocabulary, as far as this suite can meet it.
KINDS = {
    "invalid_request", "unauthenticated", "forbidden", "unknown_tool", "tool_disabled", "definition_changed",
    "invalid_arguments", "idempotency_in_progress", "idempotency_mismatch", "repeated_call", "usage_limit_reached",
    "overloaded", "draining", "ledger_unavailable", "tool_unavailable", "deadline_exceeded", "attempt_timed_out",
    "cancelled", "upstream_failed", "bad_output", "outcome_unknown", "internal",
}


# ---- time --------------------------------------------------------------------------------------------------------------

PRESSURE = pathlib.Path("/proc/pressure/cpu")  # Linux 4.20 and later; docs.kernel.org/accounting/psi.html


class Moment(float):
    """A reading of time.monotonic(). It also knows how long this machine had been short of CPU by then."""

    def __new__(cls):
        moment = super().__new__(cls, time.monotonic())
        moment.starved = starved_seconds()
        return moment


def starved_seconds():
    """How long some process on this machine has waited for a CPU; 0 where the kernel does not count it."""
    try:
        found = re.search(r"^some .*total=(\d+)", PRESSURE.read_text(), re.M)
    except OSError:
        return 0.0
    return int(found.group(1)) / 1e6 if found else 0.0


def now():
    """The beginning of a measurement that ends with `elapsed`."""
    return Moment()


def elapsed(began):
    """Seconds since `now()`, without the time in which the machine was short of CPU, but at least a fifth of them.

    Tests run side by side, beside builds. A bound of two seconds holds as written on an idle machine, and is ten at most on a busy one."""
    end = now()
    elapsed = end - began
    return elapsed - min(end.starved - began.starved, 0.8 * elapsed)


def poll(probe, seconds=10.0, what="condition"):
    """Calls `probe` until it answers something truthy; fails after the deadline, naming what was awaited."""
    began = now()
    while True:
        value = probe()
        if value:
            return value
        if elapsed(began) > seconds:
            raise AssertionError(f"not within {seconds} s: {what}; last value {value!r}")
        time.sleep(0.02)


# ---- replies -----------------------------------------------------------------------------------------------------------

class Reply:
    """One HTTP answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {dict(self.headers)} {self.body[:1500]!r}>"


def text_of(answer):
    """All text blocks of an answer or problem, joined."""
    answer = answer.json if isinstance(answer, Reply) else answer
    return "\n".join(block.get("text", "") for block in answer["content"] if block["type"] == "text")


def ok(reply):
    """The tool succeeded: the whole answer shape of the contract."""
    assert reply.status == 200, reply
    answer = reply.json
    assert answer["is_error"] is False, reply
    return assert_answer_shape(answer)


def error_result(reply):
    """The tool returned an error result: 200 with is_error."""
    assert reply.status == 200, reply
    answer = reply.json
    assert answer["is_error"] is True, reply
    assert text_of(answer).strip(), "a refusal has words"
    return assert_answer_shape(answer)


def assert_answer_shape(answer):
    assert isinstance(answer["invocation_id"], str) and answer["invocation_id"]
    assert isinstance(answer["tool"], str) and isinstance(answer["content"], list)
    assert all(isinstance(block["type"], str) for block in answer["content"]), answer
    assert isinstance(answer["result_as_answer"], bool)
    meta = answer["meta"]
    assert meta["cache"] in {"hit", "miss", "joined", "bypass", "refresh", "off"}, meta
    assert isinstance(meta["attempts"], int) and meta["duration_ms"] >= 0, meta
    for name in ("usage", "coercions", "warnings"):
        assert isinstance(meta[name], list), (name, meta)
    assert "overflow" in meta and "structured_content" in answer and "tool_use_id" in answer, answer
    return answer


def problem(reply, status=None, kind=None):
    """A refusal or failure in the contract's problem shape; `status` and `kind` may be a value or a set."""
    if status is not None:
        assert reply.status in (status if isinstance(status, (set, tuple)) else {status}), reply
    assert reply.status >= 400, reply
    assert reply.headers.get("content-type", "").split(";")[0] == "application/problem+json", reply
    output = reply.json
    assert output["status"] == reply.status, output
    assert output["kind"] in KINDS, output
    if kind is not None:
        assert output["kind"] in (kind if isinstance(kind, (set, tuple)) else {kind}), output
    assert output["source"] in ("service", "tool"), output
    assert isinstance(output["retryable"], bool), output
    for name in ("type", "title", "detail"):
        assert isinstance(output[name], str) and output[name], (name, output)
    assert text_of(output).strip(), f"content speaks to a model: {output}"
    return output


# ---- the service -------------------------------------------------------------------------------------------------------

LEVELS = ("namespaces", "landlock", "seccomp")  # of the sandbox, as docs/operate/sandbox.md explains them


def at_level(level, folder, user=0):
    """A command that becomes a service at this level of the sandbox. It needs root."""
    return [sys.executable, str(REPO / "tests" / "sandbox" / "launch.py"), level, str(user), str(folder)]



def clean_env(extra=None, home="/nonexistent"):
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    env.update(extra or {})
    return env


def cli(*args, cwd, env=None, stdin="", timeout=20):
    """One run of the command line to its end; text in, text out."""
    try:
        return subprocess.run([BIN, *map(str, args)], cwd=str(cwd), env=clean_env(env, cwd), input=stdin, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"still running after {timeout} s: {args}\n{late.stdout}\n{late.stderr}") from None


class Crib:
    """One `toolcrib serve` in its own folder. Start, call, stop (exit 0), kill -9, restart on the same ledger."""

    def __init__(self, folder, manifest=None, env=None, args=(), ledger=None, listen="127.0.0.1:0", within=(), program=BIN):
        self.folder, self.env, self.extra, self.program = pathlib.Path(folder), env, list(args), str(program)
        self.within = list(within)  # a command that becomes the service, or runs it as its only child
        self.folder.mkdir(parents=True, exist_ok=True)
        self.args = ["serve", "--listen", listen]
        if manifest is not None:
            self.manifest = self.folder / "toolcrib.yaml"
            self.manifest.write_text(manifest if isinstance(manifest, str) else to_yaml(manifest), encoding="utf-8")
            # A file, or the URL of a ledger that several services share.
            shared = "://" in str(ledger)
            self.ledger = ledger if shared else pathlib.Path(ledger or self.folder / "toolcrib.db")
            self.args += ["--manifest", str(self.manifest), "--ledger", ledger if shared else f"sqlite://{self.ledger}"]
        else:
            self.ledger = self.folder / "toolcrib.db"
        self.process = None
        self.start()

    def start(self, seconds=20):
        self.out, self.err = [], []
        self.process = subprocess.Popen([*self.within, self.program, *self.args, *self.extra], cwd=str(self.folder),
                                        env=clean_env(self.env, self.folder), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                        for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))]
        for reader in self.readers:
            reader.start()

        def listening():
            if self.process.poll() is not None:
                for reader in self.readers:
                    reader.join(5)  # its last words
                raise AssertionError(f"serve ended with {self.process.returncode}\n{self.stdout}\n{self.stderr}")
            return re.search(r"^listening on http://(\S+):(\d+)/?\s*$", self.stdout, re.M)

        try:
            found = poll(listening, seconds, "the line `listening on http://ADDR`")
        except AssertionError:
            self.kill9()
            raise
        self.host, self.port = found.group(1), int(found.group(2))
        self.base = f"http://{self.host}:{self.port}"
        return self

    @staticmethod
    def _read(stream, lines):
        for line in iter(stream.readline, b""):
            lines.append(line.decode("utf-8", "replace"))

    @property
    def stdout(self):
        return "".join(self.out)

    @property
    def stderr(self):
        return "".join(self.err)

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        """The service's own process, also behind a command that runs it as a child."""
        own = pathlib.Path(f"/proc/{self.process.pid}/exe")
        is_child = self.within and own.resolve() != pathlib.Path(self.program).resolve()
        return children(self.process.pid)[0] if is_child else self.process.pid

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

    def stop(self, within=28):
        """SIGTERM; the contract: exit 0 in under 28 s."""
        if self.process is None:
            return
        if self.running:
            self.terminate()
        process, self.process = self.process, None
        try:
            code = process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"still running {within} s after SIGTERM\n{self.stderr}")
        self._join()
        assert code == 0, f"exit code {code} after SIGTERM\n{self.stdout}\n{self.stderr}"

    def kill9(self):
        process, self.process = self.process, None
        process.kill()
        process.wait()
        self._join()

    def restart(self):
        self.stop()
        return self.start()

    def _join(self):
        for reader in self.readers:
            reader.join(2)

    # asking

    def request(self, method, path, body=None, headers=None, timeout=60, key=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            return ask(connection, method, path, body, headers, key)
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body=b"", **more):
        return self.request("POST", path, body=body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", path, **more)

    def invoke(self, tool, arguments=None, key=None, headers=None, **top_level):
        body = {"arguments": {} if arguments is None else arguments}
        body.update(top_level)
        return self.post(f"/tools/{tool}/invoke", json.dumps(body), key=key, headers=headers)

    def session(self):
        return Session(self)

    def raw(self, data, timeout=30, half_close=False):
        """Bytes in, all bytes until the service closes (or falls silent) out."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as sock:
            try:
                sock.sendall(data)
                if half_close:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return read_all(sock)

    # looking

    def usage(self, tool, key=None):
        reply = self.get(f"/tools/{tool}", key=key)
        assert reply.status == 200, reply
        return reply.json["usage"]

    def rows(self, query="", key=None):
        reply = self.get(f"/invocations?{query}" if query else "/invocations", key=key)
        assert reply.status == 200, reply
        return reply.json["invocations"]

    def all_rows(self, query=""):
        rows, cursor = [], None
        while True:
            page = self.get("/invocations?limit=100" + (f"&{query}" if query else "")
                            + (f"&cursor={urllib.parse.quote(cursor, safe='')}" if cursor else "")).json
            rows += page["invocations"]
            cursor = page["next_cursor"]
            if not cursor:
                return rows
            assert page["invocations"] and len(rows) < 100_000, "a cursor must come to an end"

    def row(self, invocation_id, key=None, seconds=5):
        """One row; a row of the observed tier may appear a moment after its answer."""
        path = f"/invocations/{invocation_id}"
        return poll(lambda: (lambda r: r.json if r.status == 200 else None)(self.get(path, key=key)), seconds, path)

    def wait_row(self, query, test=lambda row: True, seconds=10):
        return poll(lambda: next((row for row in self.rows(query) if test(row)), None), seconds, f"a row {query}")

    def ready(self, seconds=30):
        """Waits until every source was listed once or failed once."""
        poll(lambda: self.get("/readyz").status == 200, seconds, "ready")
        return self

    def wait_for_log(self, words, seconds=5):
        """Log lines are written a moment after the event."""
        poll(lambda: words in self.stderr, seconds, f"{words!r} in the log")

    def rss(self):
        """Resident bytes of the service; 0 where there is no /proc."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status")
        return int(re.search(r"VmRSS:\s+(\d+)", status.read_text()).group(1)) * 1024 if status.exists() else 0


class Starter:
    """start(manifest, ...) -> Crib; at the end of the test every one still running must stop with exit code 0."""

    def __init__(self, root):
        self.root, self.cribs = pathlib.Path(root), []

    def __call__(self, manifest=None, folder=None, **options):
        folder = folder or self.root / f"crib{len(self.cribs)}"
        crib = Crib(folder, manifest, **options)
        self.cribs.append(crib)
        return crib

    def close(self):
        failures = []
        for crib in self.cribs:
            try:
                crib.stop()
            except AssertionError as failure:
                failures.append(str(failure))
            print(f"--- stderr of {crib.folder}\n{crib.stderr[-6000:]}")
        assert not failures, "\n".join(failures)


class Session:
    """One keep-alive connection, for one thread."""

    def __init__(self, crib):
        self.crib, self.connection = crib, http.client.HTTPConnection("127.0.0.1", crib.port, timeout=30)

    def invoke(self, tool, arguments=None, key=None, **top_level):
        body = json.dumps(dict({"arguments": arguments or {}}, **top_level))
        return ask(self.connection, "POST", f"/tools/{tool}/invoke", body, None, key)

    def close(self):
        self.connection.close()


def ask(connection, method, path, body=None, headers=None, key=None):
    sent = {"content-type": "application/json"} if body is not None else {}
    if key:
        sent["authorization"] = f"Bearer {key}"
    sent.update(headers or {})
    sent = {name: value for name, value in sent.items() if value is not None}
    connection.request(method, path, body=body.encode() if isinstance(body, str) else body, headers=sent)
    response = connection.getresponse()
    return Reply(response.status, response.headers, response.read())


def read_all(sock):
    data = b""
    try:
        while True:
            part = sock.recv(65536)
            if not part:
                return data
            data += part
    except (ConnectionError, socket.timeout):
        return data


def status_of(data):
    """The status of a raw answer; None when the service closed without an answer."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", data)
    return int(found.group(1)) if found else None


def parallel(count, work):
    """Runs work(0..count-1) on as many threads at the same time; their results in order, the first failure raised."""
    results, failures, gate = [None] * count, [], threading.Barrier(count)

    def one(index):
        try:
            gate.wait(30)
            results[index] = work(index)
        except BaseException as failure:  # noqa: B902: told to the test below
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return results


def in_background(work):
    """Starts work() on a thread; the returned function waits for its result."""
    box = {}

    def run():
        try:
            box["value"] = work()
        except BaseException as failure:  # noqa: B902: raised again where it is awaited
            box["failure"] = failure

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result(seconds=60):
        began = now()
        while thread.is_alive() and elapsed(began) < seconds:
            thread.join(0.05)
        assert not thread.is_alive(), "no answer in time"
        if "failure" in box:
            raise box["failure"]
        return box["value"]

    return result


# ---- processes and files -----------------------------------------------------------------------------------------------

def token():
    """A number no other process has in its command line: `sleep 300 0.<token>` is a sleep that can be found."""
    return str(uuid.uuid4().int)[:18]


def processes(mark):
    """Ids of live processes with `mark` in their command line (Linux)."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            # Bubblewrap has the command line of the program that it runs.
            if mark.encode() in line and int(entry.name) != os.getpid() and not line.startswith(b"/usr/bin/bwrap"):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def reap(mark):
    """Ends what a test started and the service should have ended."""
    for pid in processes(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def wait_until_gone(mark, seconds=10):
    """Waits until no process has `mark` in its command line."""
    poll(lambda: not processes(mark), seconds, f"no process with {mark}")


def lines_in(path):
    path = pathlib.Path(path)
    return len(path.read_text().splitlines()) if path.exists() else 0


def free_port():
    """A port that nothing listens at, for programs that must know their port before they start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def process_status(pid):
    """The fields of /proc/PID/stat from the state on; None if there is no such process (Linux; proc_pid_stat(5))."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def parents():
    """The parent of each process, by process id."""
    ids = [int(entry.name) for entry in pathlib.Path("/proc").glob("[0-9]*")]
    return {pid: int(status[1]) for pid in ids if (status := process_status(pid))}


def children(pid):
    """Ids of a process's children, dead ones that it has not collected included."""
    return [child for child, parent in parents().items() if parent == pid]


def descendants(pid):
    """Processes whose chain of parents leads to `pid`, zombies included."""
    parent_of, found, layer = parents(), set(), {pid}
    while layer:
        layer = {child for child, parent in parent_of.items() if parent in layer} - found
        found |= layer
    return found


def is_zombie(pid):
    status = process_status(pid)
    return status is not None and status[0] == "Z"


def is_alive(pid):
    """Whether the process still runs. A zombie does not."""
    status = process_status(pid)
    return status is not None and status[0] != "Z"


def alive(pids):
    """Those of these processes that still run."""
    return {pid for pid in pids if is_alive(pid)}


def processor_seconds(pid):
    """Processor time that a process has taken so far, without its children."""
    status = process_status(pid)
    return (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK")
