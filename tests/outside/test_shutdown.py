"""SIGTERM under load: every accepted call is answered, refused calls get a clear answer, and the process ends in time."""

import collections
import json
import os
import select
import socket
import threading
import time
import uuid

from harness import in_background, lines_in, now, ok, poll, problem, processes, elapsed, status_of
from recipes import py, sh

CALCULATOR = {"kind": "native"}


def request_head(crib, tool, body, *fields):
    lines = [f"POST /tools/{tool}/invoke HTTP/1.1", f"Host: 127.0.0.1:{crib.port}", "Content-Type: application/json",
             f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def call_bytes(crib, tool, run_id, arguments):
    body = json.dumps({"arguments": arguments, "run_id": run_id}).encode()
    return request_head(crib, tool, body) + body


def read_answer(sock):
    """One whole answer from the socket; (status, header text), or an error that says how it ended."""
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
    """Calls one tool repeatedly, on one kept connection or on a new one each time, until the service accepts no connection."""

    def __init__(self, crib, tool, arguments, keep):
        super().__init__(daemon=True)
        self.crib, self.tool, self.arguments, self.keep = crib, tool, arguments, keep
        self.seen, self.lost = collections.Counter(), []

    def run(self):
        sock = None
        while True:
            # As every connection pool does: a connection that the server has closed is not used again.
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


def test_sigterm_under_load_answers_every_call(start, tmp_path):
    """Thirty times: callers on kept and on new connections get an answer to every started call, most of the others a 503; no row stays
    unfinished; exit 0."""
    rounds = int(os.environ.get("SHUTDOWN_ROUNDS", "30"))
    crib = start({"tools": {"calculator": CALCULATOR,
                            "count": py(f"import time; time.sleep(0.1); open('{tmp_path}/ran', 'a').write('x\\n')", effect="write",
                                        concurrency={"max": 4, "queue": 64, "wait": "5s"})}})
    seen, lost, longest = collections.Counter(), [], 0
    for turn in range(rounds):
        clients = [Client(crib, "calculator", {"expression": "6*7"}, keep) for keep in [True] * 8 + [False] * 8]
        clients += [Client(crib, "count", {}, keep) for keep in (True, True, False, False)]
        for client in clients:
            client.start()
        time.sleep(0.3 + 0.2 * (turn % 3))
        began = now()
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


def test_draining_is_reported_on_every_connection(start, tmp_path):
    """While a call runs, kept and new connections alike get 503 draining, Retry-After and Connection: close; not ready at once."""
    ran = tmp_path / "ran"
    crib = start({"tools": {"slow": sh(f"echo begun >> {ran}; /bin/sleep 2; echo done", effect="write"), "calculator": CALCULATOR}})
    stored = [crib.session() for _ in range(3)]
    for session in stored:
        ok(session.invoke("calculator", {"expression": "1"}))
    answer = in_background(lambda: crib.invoke("slow"))
    poll(lambda: lines_in(ran), 10, "it runs")
    crib.terminate()
    poll(lambda: crib.get("/readyz").status == 503, 1, "not ready")
    assert crib.get("/readyz").json["kind"] == "draining"
    assert crib.get("/livez").status == 200
    for session in [*stored, *(crib.session() for _ in range(3))]:
        reply = session.invoke("calculator", {"expression": "1"})
        assert problem(reply, 503, "draining")["retryable"] is True
        assert int(reply.headers["retry-after"]) >= 1 and reply.headers["connection"] == "close"
    ok(answer())
    crib.stop()


def test_linger_continues_to_serve(start):
    """With `server.linger` it is not ready at once and serves calls for that long, each answer the last of its connection."""
    crib = start({"server": {"linger": "2s"}, "tools": {"calculator": CALCULATOR}})
    session = crib.session()
    ok(session.invoke("calculator", {"expression": "1"}))
    began = now()
    crib.terminate()
    poll(lambda: crib.get("/readyz").status == 503, 1, "not ready")
    reply = session.invoke("calculator", {"expression": "1"})
    ok(reply)
    assert reply.headers["connection"] == "close"
    while time.monotonic() - began < 1.5:
        ok(crib.invoke("calculator", {"expression": "1"}))
    assert crib.process.wait(10) == 0
    assert 1.9 < time.monotonic() - began and elapsed(began) < 4


def test_second_signal_ends_the_linger(start):
    crib = start({"server": {"linger": "60s"}, "tools": {"calculator": CALCULATOR}})
    crib.terminate()
    poll(lambda: crib.get("/readyz").status == 503, 1, "not ready")
    began = now()
    crib.stop(within=5)
    assert elapsed(began) < 2


def test_idle_service_stops_at_once(start):
    """Without connections, or with idle ones only: well under half a second. (Half a second more here, for a busy machine.)"""
    crib = start({"tools": {"calculator": CALCULATOR}})
    began = now()
    crib.stop()
    alone = time.monotonic() - began
    crib.start()
    stored = [crib.session() for _ in range(5)]
    for session in stored:
        ok(session.invoke("calculator", {"expression": "1"}))
    began = now()
    crib.stop()
    idle = time.monotonic() - began
    print(f"stopped after {alone * 1e3:.0f} ms, with idle connections after {idle * 1e3:.0f} ms")
    assert alone < 0.8 and idle < 1


def test_worst_case_shutdown_ends_in_time(start_plain, mark):
    """Default times; calls that hang in programs that ignore SIGTERM, clients that read nothing, slow bodies: under 28 s, exit 0, no
    process or reserved row left."""
    stubborn = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300 + 0.{mark})"
    tools = {effect: py(stubborn, effect=effect, timeout="5m") for effect in ("read", "write")}
    crib = start_plain({"tools": dict(tools, calculator=CALCULATOR, big=sh("head -c 200000 /dev/zero | tr '\\0' x", effect="read", max_output="512KiB"))})
    held, stop = [], threading.Event()

    def send(data):
        held.append(socket.create_connection(("127.0.0.1", crib.port)))
        held[-1].sendall(data)
        return held[-1]

    for tool in ("read", "write"):
        for _ in range(3):
            send(call_bytes(crib, tool, "worst", {}))
    poll(lambda: len(processes(mark)) == 6, 10, "six hang")
    for _ in range(3):
        send(call_bytes(crib, "big", "worst", {}) * 40)
    dripping = [send(request_head(crib, "calculator", b"x" * 500)) for _ in range(3)]

    def drip():
        while not stop.wait(0.5):
            for sock in dripping:
                try:
                    sock.sendall(b" ")
                except OSError:
                    return

    threading.Thread(target=drip, daemon=True).start()
    began = now()
    crib.stop(within=28)
    took = time.monotonic() - began
    stop.set()
    print(f"the worst stop took {took:.1f} s")
    assert 19 < took < 28
    poll(lambda: not processes(mark), 5, "no process left")
    crib.start()
    states = {row["tool"]: row["state"] for row in crib.all_rows("run_id=worst")}
    assert states["read"] == "cancelled" and states["write"] == "unknown", states
    assert not crib.rows("state=reserved") and not crib.rows("state=running")
    for sock in held:
        sock.close()
