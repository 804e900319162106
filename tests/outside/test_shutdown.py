"""SIGTERM under load: every call that was taken is answered, what is refused is told so, and the process ends in time."""

import collections
import json
import os
import select
import socket
import threading
import time
import uuid

from harness import later, ok, parallel, poll, problem, processes, read_all, status_of
from recipes import py, sh

CALCULATOR = {"kind": "native"}


def head(crib, tool, body, *fields):
    lines = [f"POST /tools/{tool}/invoke HTTP/1.1", f"Host: 127.0.0.1:{crib.port}", "Content-Type: application/json",
             f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def call_bytes(crib, tool, run_id, arguments):
    body = json.dumps({"arguments": arguments, "run_id": run_id}).encode()
    return head(crib, tool, body) + body


def read_answer(sock):
    """One whole answer off the socket; (status, header text), or an error that says how it ended."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            raise EOFError(f"closed after {len(data)} bytes")
        data += part
    top, _, body = data.partition(b"\r\n\r\n")
    text = top.decode("latin-1").lower()
    length = int(text.partition("content-length:")[2].split("\r\n")[0])
    while len(body) < length:
        part = sock.recv(65536)
        if not part:
            raise EOFError("closed in the middle of a body")
        body += part
    return status_of(top), text


class Client(threading.Thread):
    """Calls one tool over and over, on one kept connection or on a new one each time, until nobody listens any more."""

    def __init__(self, crib, tool, arguments, keep):
        super().__init__(daemon=True)
        self.crib, self.tool, self.arguments, self.keep = crib, tool, arguments, keep
        self.seen, self.lost = collections.Counter(), []

    def run(self):
        sock = None
        while True:
            # As every pool of connections does: one that the server has closed is not used again.
            if sock and select.select([sock], [], [], 0)[0]:
                sock = sock.close()
            try:
                sock = sock or socket.create_connection(("127.0.0.1", self.crib.port), timeout=35)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except ConnectionRefusedError:
                self.seen["nobody listens"] += 1
                return
            except OSError as error:
                self.seen[f"connect: {type(error).__name__}"] += 1
                return
            run_id = uuid.uuid4().hex
            try:
                sock.sendall(call_bytes(self.crib, self.tool, run_id, self.arguments))
                status, text = read_answer(sock)
            except (OSError, EOFError) as error:
                self.seen[f"lost: {type(error).__name__}"] += 1
                self.lost.append((run_id, repr(error)))
                sock = sock.close()
                continue
            self.seen[status] += 1
            if status == 503:
                assert "retry-after: " in text and "connection: close" in text, text
            if not self.keep or "connection: close" in text:
                sock = sock.close()
            if status == 503:
                time.sleep(0.02)


def test_sigterm_under_load(start, tmp_path):
    """Thirty times: callers on kept and on new connections get an answer to every call that was begun, most of the others
    a 503; no row stays unfinished; exit 0."""
    rounds = int(os.environ.get("SHUTDOWN_ROUNDS", "30"))
    crib = start({"tools": {"calculator": CALCULATOR,
                            "count": py(f"import time; time.sleep(0.1); open('{tmp_path}/ran', 'a').write('x\\n')", effect="write",
                                        concurrency={"max": 4, "queue": 64, "wait": "5s"})}})
    seen, lost, longest = collections.Counter(), [], 0
    for _ in range(rounds):
        clients = [Client(crib, "calculator", {"expression": "6*7"}, keep) for keep in [True] * 8 + [False] * 8]
        clients += [Client(crib, "count", {}, keep) for keep in (True, True, False, False)]
        for client in clients:
            client.start()
        time.sleep(0.3 + 0.2 * (_ % 3))
        began = time.monotonic()
        crib.stop(within=28)
        longest = max(longest, time.monotonic() - began)
        for client in clients:
            client.join(40)
            assert not client.is_alive(), "a caller hangs"
            seen += client.seen
            lost += client.lost
        crib.start()
        assert not crib.rows("state=unknown") and not crib.rows("state=reserved"), "a row was left behind"
    with_row = [why for run_id, why in lost if crib.rows(f"run_id={run_id}")]
    print(f"{rounds} stops, longest {longest:.2f} s: {dict(seen)}; lost calls {len(lost)}, of these with a row {len(with_row)}")
    assert not with_row, with_row
    assert not lost, collections.Counter(why for _, why in lost)
    assert set(seen) <= {200, 503, "nobody listens"}, seen
    assert seen[503], "some calls came while it drained"
