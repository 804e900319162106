"""Callers, and the driver's own journal of what they sent and received."""

import http.client
import json
import os
import threading
import time

from harness import ask

# How long a caller waits for any answer. Longer than every timeout of the tools used here.
CLIENT_TIMEOUT = 30


class Call:
    """One call as its caller saw it. `status` is None without an answer; `trouble` then says how the connection broke."""

    __slots__ = ("tool", "key", "arguments", "sent_at", "ended_at", "status", "id", "body", "replayed", "trouble")

    def __init__(self, tool, key, arguments):
        self.tool, self.key, self.arguments = tool, key, arguments
        self.sent_at = self.ended_at = self.status = self.id = self.body = self.trouble = None
        self.replayed = False

    @property
    def json_body(self):
        return json.loads(self.body)

    @property
    def kind(self):
        return self.json_body.get("kind")

    def __repr__(self):
        return f"{self.tool} key={self.key} -> {self.status or self.trouble} {(self.body or b'')[:300]!r}"


class Journal:
    """What was sent (`S key tool`) and what was answered (`R key status body`), on the disk before the next call of that caller."""

    def __init__(self, path):
        self.file, self.calls = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), []

    def sent(self, call):
        call.sent_at = time.monotonic()
        self.calls.append(call)
        os.write(self.file, f"S {call.key} {call.tool}\n".encode())

    def answered(self, call):
        call.ended_at = time.monotonic()
        os.write(self.file, f"R {call.key} {call.status} ".encode() + call.body.replace(b"\n", b" ") + b"\n")
        os.fdatasync(self.file)

    def take(self):
        """The calls since the last `take`."""
        taken, self.calls = self.calls, []
        return taken


class Disconnected(Exception):
    """The service accepts no connection."""


class Caller:
    """One connection that is kept alive, used by one thread."""

    def __init__(self, service, journal=None, timeout=CLIENT_TIMEOUT):
        self.service, self.journal, self.timeout, self.connection = service, journal, timeout, None

    def connect(self):
        if self.connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=self.timeout)
            try:
                connection.connect()
            except OSError as failure:
                raise Disconnected(str(failure)) from None
            self.connection = connection
        return self.connection

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def invoke(self, tool, arguments, key=None, **top_level):
        """Makes one call, with its key in the header if it has one. Raises Disconnected if it was never sent; otherwise returns a Call,
        with or without an answer."""
        call = Call(tool, key, arguments)
        self.connect()
        if self.journal:
            self.journal.sent(call)
        self.send(call, **top_level)
        if self.journal and call.status:
            self.journal.answered(call)
        return call

    def send(self, call, **top_level):
        headers = {"idempotency-key": call.key} if call.key else {}
        body = json.dumps({"arguments": call.arguments, **top_level})
        try:
            reply = ask(self.connect(), "POST", f"/tools/{call.tool}/invoke", body, headers)
        except (OSError, http.client.HTTPException) as failure:
            call.trouble = f"{type(failure).__name__}: {failure}"
            self.close()
            return
        call.status, call.body = reply.status, reply.body
        call.id = call.json_body.get("invocation_id")
        call.replayed = reply.headers.get("idempotent-replayed") == "true"
        if reply.headers.get("connection", "").lower() == "close":
            self.close()

    def resend(self, call):
        """A retry of a call: same tool, key and arguments."""
        retry = Call(call.tool, call.key, call.arguments)
        self.send(retry)
        return retry

    def get(self, path):
        try:
            return ask(self.connect(), "GET", path)
        except (OSError, http.client.HTTPException):
            self.close()
            raise


class CallerPool:
    """Threads that call `work(index)` repeatedly until `stop_callers` or until the service accepts no connection."""

    def __init__(self, count, work):
        self.over, self.failures = threading.Event(), []
        self.threads = [threading.Thread(target=self._run, args=(work, index), daemon=True) for index in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, work, index):
        try:
            while not self.over.is_set():
                work(index)
        except Disconnected:
            pass
        except Exception as failure:  # set by stop_callers
            self.failures.append(failure)

    def stop_callers(self, seconds=CLIENT_TIMEOUT + 5):
        self.over.set()
        until = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self.failures:
            raise self.failures[0]
        assert not any(thread.is_alive() for thread in self.threads), f"a caller hangs: no answer within {seconds} s"


def for_each(items, work, threads=8):
    """work(item, index of its thread) for every item, over a few threads; the first failure is raised."""
    items, lock = iter(items), threading.Lock()
    failures = []

    def run(index):
        try:
            while not failures:
                with lock:
                    item = next(items, None)
                if item is None:
                    return
                work(item, index)
        except BaseException as failure:  # noqa: B902: raised below
            failures.append(failure)

    pool = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    if failures:
        raise failures[0]
