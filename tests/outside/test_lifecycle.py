"""The socket and the shutdown: slow clients, disconnects, SIGTERM while a call runs, health."""

import json
import socket
import time

import pytest

from harness import in_background, lines_in, now, ok, parallel, poll, problem, processes, read_all, elapsed, status_of, text_of
from recipes import sh


def connect(crib):
    return socket.create_connection(("127.0.0.1", crib.port), timeout=45)


def invoke_bytes(crib, tool, arguments=None):
    body = json.dumps({"arguments": arguments or {}}).encode()
    return (f"POST /tools/{tool}/invoke HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def test_sigterm_waits_for_a_running_call(start, tmp_path):
    """The running call gets its answer, the process ends with 0, the row is finished."""
    ran = tmp_path / "ran"
    crib = start({"tools": {"slow": sh(f"echo begun >> {ran}; /bin/sleep 1.2; echo done", effect="write"),
                            "slow_read": sh(f"echo begun >> {ran}; /bin/sleep 1.2; echo done", effect="read")}})
    answers = [in_background(lambda tool=tool: crib.invoke(tool)) for tool in ("slow", "slow_read")]
    poll(lambda: lines_in(ran) == 2, 10, "both run")
    started = now()
    crib.stop(within=28)
    assert elapsed(started) < 15
    ids = []
    for answer in answers:
        result = ok(answer())
        assert "done" in text_of(result)
        ids.append(result["invocation_id"])
    crib.start()
    assert [crib.row(one)["state"] for one in ids] == ["succeeded"] * 2


def test_sigterm_ends_calls_after_the_drain(start, mark):
    """A call longer than the drain is ended, answered and settled: exit 0, and no process stays."""
    crib = start({"server": {"drain": "1s"}, "tools": {
        "stuck": sh(f"exec /bin/sleep 300 0.{mark}", effect="write", timeout="5m")}})
    answer = in_background(lambda: crib.raw(invoke_bytes(crib, "stuck")))
    poll(lambda: processes(mark), 10, "it runs")
    invocation = crib.wait_row("tool=stuck&state=running")["invocation_id"]
    crib.stop(within=28)
    assert status_of(answer()) in (None, 503, 504, 499, 502)
    poll(lambda: not processes(mark), 5, "no process left")
    crib.start()
    assert crib.row(invocation)["state"] == "unknown"


def test_second_sigterm_ends_the_drain(start, mark):
    """With a long drain and a call that does not end, the second signal ends it soon; exit 0."""
    crib = start({"tools": {"stuck": sh(f"exec /bin/sleep 300 0.{mark}", effect="write", timeout="5m")}})
    answer = in_background(lambda: crib.raw(invoke_bytes(crib, "stuck")))
    poll(lambda: processes(mark), 10, "it runs")
    crib.terminate()
    until = time.monotonic() + 0.5
    poll(lambda: time.monotonic() > until, 2, "half a second")  # the first signal must have arrived as one signal
    assert crib.running, "it waits for the call"
    crib.stop(within=10)
    answer()
    poll(lambda: not processes(mark), 5, "no process left")


def test_sigterm_when_idle_is_quick(start):
    """An idle service with open keep-alive connections ends at once (under 10 s, if it lingers for its load balancer)."""
    crib = start()
    sessions = [crib.session() for _ in range(5)]
    for session in sessions:
        ok(session.invoke("calculator", {"expression": "1"}))
    started = now()
    crib.stop()
    assert elapsed(started) < 10


@pytest.mark.parametrize("linger, status", [("0s", 503), ("4s", 200)])
def test_new_call_while_draining(start, tmp_path, linger, status):
    """After SIGTERM the service is not ready. A new call is served during `linger`, and refused after it."""
    ran = tmp_path / "ran"
    crib = start({"server": {"linger": linger}, "tools": {"slow": sh(f"echo begun >> {ran}; /bin/sleep 2; echo done", effect="write"), "calculator": {"kind": "native"}}})
    answer = in_background(lambda: crib.invoke("slow"))
    poll(lambda: lines_in(ran), 10, "it runs")
    crib.terminate()

    poll(lambda: crib.get("/readyz").status == 503, 2, "not ready after SIGTERM")
    reply = crib.invoke("calculator", {"expression": "1"})
    ok(reply) if status == 200 else problem(reply, status, "draining")
    ok(answer())
    crib.stop()


@pytest.mark.parametrize("effect, override, state, runs_on", [
    ("read", None, "cancelled", False), ("write", None, "succeeded", True),
    ("read", "finish", "succeeded", True), ("write", "cancel", "unknown", False)])
def test_disconnect_cancels_or_finishes_the_call(start, tmp_path, mark, effect, override, state, runs_on):
    """A read is killed and its row is cancelled; a write finishes and its row records it; on_disconnect inverts both."""
    ran = tmp_path / "ran"
    script = f"echo begun >> {ran}; /bin/sleep 1.5 0.{mark}; echo ended >> {ran}"
    tool = sh(script, effect=effect, **({"on_disconnect": override} if override else {}))
    crib = start({"tools": {"x": tool, "calculator": {"kind": "native"}}})
    with connect(crib) as sock:
        sock.sendall(invoke_bytes(crib, "x"))
        poll(lambda: lines_in(ran) == 1 and processes(mark), 10, "it runs")
        invocation = crib.wait_row("tool=x&state=running")["invocation_id"]
    row = poll(lambda: (lambda r: r if r["state"] not in ("running", "reserved") else None)(crib.row(invocation)), 10, "the row's end")
    assert row["state"] == state, row
    poll(lambda: not processes(mark), 5, "no process left")
    assert lines_in(ran) == (2 if runs_on else 1)
    ok(crib.invoke("calculator", {"expression": "1"}))


def test_running_calls_are_listed(start, mark):
    """GET /invocations shows a call of either tier while it runs, with no result yet."""
    crib = start({"tools": {name: sh(f"exec /bin/sleep 300 0.{mark}", effect=name, timeout="3s") for name in ("read", "write")}})
    answers = [in_background(lambda name=name: crib.invoke(name)) for name in ("read", "write")]
    for name in ("read", "write"):
        row = crib.wait_row(f"tool={name}&state=running", seconds=3)
        one = crib.get("/invocations/" + row["invocation_id"])
        assert one.status == 200 and one.json["result"] is None and row["duration_ms"] is None, one
    for answer in answers:
        problem(answer(), 504)


def test_slow_clients_are_disconnected(start):
    """A header that drips is cut after about 10 s, a body that stalls in the end too; others are served meanwhile."""
    crib = start()

    def drip():
        with connect(crib) as sock:
            started = now()
            sock.sendall(b"GET /tools HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            sock.settimeout(0.5)
            while time.monotonic() - started < 30:
                try:
                    sock.sendall(b"X-A: b\r\n")
                    got = sock.recv(4096)
                    if not got or status_of(got) is not None:
                        return status_of(got), time.monotonic() - started
                except socket.timeout:
                    continue
                except OSError:
                    return None, time.monotonic() - started
        return "open", 30

    def stall():
        with connect(crib) as sock:
            started = now()
            sock.sendall(invoke_bytes(crib, "calculator", {"expression": "6*7"})[:-5])
            return status_of(read_all(sock)), time.monotonic() - started

    def silent():
        with connect(crib) as sock:
            started = now()
            return status_of(read_all(sock)), time.monotonic() - started

    waiting = [in_background(work) for work in (drip, stall, silent)]
    until = time.monotonic() + 3
    while time.monotonic() < until:
        ok(crib.invoke("calculator", {"expression": "6*7"}))
    dripped, stalled, said_nothing = (answer(60) for answer in waiting)
    assert dripped[0] in (None, 400, 408) and 5 < dripped[1] < 20, dripped
    assert stalled[0] in (None, 400, 408) and stalled[1] < 40, stalled
    assert said_nothing[0] in (None, 408) and said_nothing[1] < 40, said_nothing


def test_oversized_header_block_is_refused(start):
    """40 KiB of headers, in one or in many: refused (431, 400) or closed; 8 KiB are fine."""
    crib = start()
    for block in (f"X-Big: {'a' * 40_000}\r\n", "".join(f"X-{n}: {'a' * 400}\r\n" for n in range(100))):
        head = f"GET /tools HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\nConnection: close\r\n{block}\r\n"
        assert status_of(crib.raw(head.encode())) in (None, 400, 431)
    assert crib.get("/tools", headers={"x-fair": "a" * 8_000}).status == 200


def test_idle_connections_do_not_block_callers(start):
    """Three hundred half-open requests do not keep a caller out."""
    crib = start()
    socks = []
    try:
        for _ in range(300):
            sock = connect(crib)
            sock.sendall(b"POST /tools/calculator/invoke HTTP/1.1\r\nHost:")
            socks.append(sock)
        for _ in range(20):
            started = now()
            ok(crib.invoke("calculator", {"expression": "6*7"}))
            assert elapsed(started) < 2
    finally:
        for sock in socks:
            sock.close()


def test_pipelined_requests_are_answered_in_order(start):
    """Several requests on one connection are answered in order."""
    crib = start()
    with connect(crib) as sock:
        sock.sendall(invoke_bytes(crib, "calculator", {"expression": "1000+1"}) + invoke_bytes(crib, "calculator", {"expression": "1000+2"}))
        data = b""
        while b"1002" not in data:
            part = sock.recv(65536)
            assert part, data
            data += part
    assert data.index(b"1001") < data.rindex(b"1002") and data.count(b"HTTP/1.1 200") == 2


def test_idle_connection_serves_the_next_request(start):
    """A connection that was idle for long enough to lose its buffers serves the next request, also when a part of that
    request came before."""
    crib = start()
    first, second = (invoke_bytes(crib, "calculator", {"expression": f"1000+{number}"}) for number in (1, 2))
    for early in (0, 40):
        with connect(crib) as sock:
            for _ in range(2):
                sock.sendall(first + second[:early])
                assert b"1001" in received(sock, b"1001")
                time.sleep(2)
                sock.sendall(second[early:])
                assert b"1002" in received(sock, b"1002")
                time.sleep(2)


def received(sock, last):
    """What the service sends, up to the piece with `last` in it."""
    data = b""
    while last not in data:
        part = sock.recv(65536)
        assert part, data
        data += part
    return data


def test_max_in_flight_bounds_all_calls(start_plain, mark):
    """More calls than `max_in_flight` are shed with 503 and Retry-After; health is never behind it."""
    crib = start_plain({"server": {"max_in_flight": 2}, "tools": {
        "stuck": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="3s", concurrency={"max": 16, "queue": 64, "wait": "1s"})}})
    holding = [in_background(lambda: crib.invoke("stuck")) for _ in range(2)]
    poll(lambda: len(processes(mark)) == 2, 5, "two run")
    for reply in parallel(3, lambda index: crib.invoke("stuck")):
        error = problem(reply, 503, "overloaded")
        assert error["retryable"] is True and int(reply.headers["retry-after"]) >= 1
    assert crib.get("/livez").status == 200
    for answer in holding:
        problem(answer(), 504)


def test_disabled_tool_refuses_until_enabled(start):
    """A disabled tool answers tool_disabled until it is enabled again; `enabled: false` is the initial state."""
    crib = start({"tools": {"a": sh("echo a", effect="read"), "off": sh("echo off", effect="read", enabled=False)}})
    problem(crib.invoke("off"), 403, "tool_disabled")
    assert crib.post("/tools/a/disable").status in (200, 204)
    error = problem(crib.invoke("a"), 403, "tool_disabled")
    assert error["source"] == "service"
    assert crib.post("/tools/a/enable").status in (200, 204)
    ok(crib.invoke("a"))
    problem(crib.post("/tools/none/disable"), 404, "unknown_tool")
