"""Cancellation: DELETE /invocations/{id}, a deadline or a disconnect ends the call, and the row records it."""

import random
import threading
import time

import pytest

from harness import in_background, ok, parallel, poll, problem, processes, text_of
from recipes import CALLERS, KEYS, py, sh, web
from test_command import FAMILY
from test_lifecycle import connect, invoke_bytes

ENDED = {"succeeded", "failed", "timed_out", "cancelled", "refused", "unknown"}


def family_script(mark):
    """A program with four kinds of descendants, each deaf to SIGTERM: child, session, orphan, orphan without pipes."""
    return FAMILY.replace("MARK", mark).replace("END", "signal.pause()")


def running_invocation(crib, query="", key=None):
    rows = poll(lambda: crib.rows("state=running" + query, key=key), 10, "a running call")
    return rows[0]["invocation_id"]


def cancel(crib, invocation, key=None):
    reply = crib.delete(f"/invocations/{invocation}", key=key)
    assert reply.status == 200, reply
    return reply.json


def wait_for_processes(crib, mark, count=5):
    return poll(lambda: len(processes(mark)) >= count, 10, f"{count} processes of the call")


@pytest.mark.parametrize("effect, override, state", [
    ("read", None, "cancelled"), ("write", None, "unknown"), ("read", "finish", "cancelled"), ("idempotent", None, "cancelled")])
def test_delete_ends_a_program_and_its_descendants(start, mark, effect, override, state):
    """New sessions, orphans, closed pipes, SIGTERM ignored: all dead within a second, whatever on_disconnect is."""
    tool = py(family_script(mark), effect=effect, timeout="60s", **({"on_disconnect": override} if override else {}))
    crib = start({"tools": {"family": tool}})
    answer = in_background(lambda: crib.invoke("family"))
    wait_for_processes(crib, mark)
    invocation = running_invocation(crib)
    started = time.monotonic()
    row = cancel(crib, invocation)
    poll(lambda: not processes(mark), 1 - (time.monotonic() - started), "the whole family dead within a second")
    assert (row["state"], row["kind"], row["attempts"]) == (state, "cancelled", 1), row
    error = problem(answer(), 499, "cancelled")
    assert error["invocation_id"] == invocation and error["retryable"] is False
    assert ("may have had an effect" in text_of(error)) == (effect == "write"), error
    assert row == crib.row(invocation) and row["result"] == error
    assert [(one["attempt"], one["kind"]) for one in row["attempt_errors"]] == [(1, "cancelled")]
    assert cancel(crib, invocation) == row, "twice is as good as once"


def test_deadline_ends_a_program_and_its_descendants(start, mark):
    crib = start({"tools": {"family": py(family_script(mark), effect="read", timeout="60s")}})
    answer = in_background(lambda: crib.invoke("family", timeout="2s"))
    wait_for_processes(crib, mark)
    error = problem(answer(), 504, "deadline_exceeded")
    poll(lambda: not processes(mark), 1, "the whole family dead within a second")
    row = crib.row(error["invocation_id"])
    assert row["state"] == "timed_out" and [one["kind"] for one in row["attempt_errors"]] == ["deadline_exceeded"], row
    assert 1000 < row["attempt_errors"][0]["duration_ms"] < 3000, row


def test_disconnect_ends_a_program_and_its_descendants(start, mark):
    crib = start({"tools": {"family": py(family_script(mark), effect="read", timeout="60s")}})
    with connect(crib) as sock:
        sock.sendall(invoke_bytes(crib, "family"))
        wait_for_processes(crib, mark)
        invocation = running_invocation(crib)
    poll(lambda: not processes(mark), 1, "the whole family dead within a second")
    row = poll(lambda: (lambda r: r if r["state"] in ENDED else None)(crib.row(invocation)), 5, "its end")
    assert (row["state"], row["kind"]) == ("cancelled", "cancelled"), row


def test_delete_closes_the_upstream_request(start, upstream):
    """The upstream sees its connection closed; there is no retry, although retries were allowed."""
    closed = threading.Event()

    def step(handler):
        handler.connection.settimeout(20)
        if handler.connection.recv(1) == b"":
            closed.set()
        handler.close_connection = True

    crib = start({"tools": {"x": web(upstream.script("/held", step), effect="read", timeout="60s", retry={"attempts": 3})}})
    answer = in_background(lambda: crib.invoke("x"))
    poll(lambda: upstream.hits() == 1, 10, "the upstream was asked")
    row = cancel(crib, running_invocation(crib))
    assert closed.wait(1), "the connection was kept"
    problem(answer(), 499, "cancelled")
    assert row["state"] == "cancelled" and upstream.hits() == 1


def test_delete_ends_a_retry_pause(start, upstream):
    url = upstream.script("/busy", lambda handler: handler.reply(503, b"later", "text/plain", Retry_After="30"))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 3}, deadline="60s")}})
    answer = in_background(lambda: crib.invoke("x"))
    poll(lambda: upstream.hits() == 1, 10, "the first try")
    poll(lambda: crib.rows("state=running"), 5, "it waits as it was asked to")
    time.sleep(0.2)
    row = cancel(crib, running_invocation(crib))
    problem(answer(), 499, "cancelled")
    assert [one["kind"] for one in row["attempt_errors"]] == ["upstream_failed"] and upstream.hits() == 1


def test_cancelled_queued_call_never_starts_or_costs(start, tmp_path, mark):
    ran = tmp_path / "ran"
    tool = sh(f"echo begun >> {ran}; exec /bin/sleep 300 0.{mark}", effect="write", timeout="60s",
              limits=[{"calls": 5, "per": "day"}], concurrency={"max": 1, "queue": 4, "wait": "30s"})
    crib = start({"tools": {"x": tool}})
    first = in_background(lambda: crib.invoke("x"))
    wait_for_processes(crib, mark, 1)
    running = running_invocation(crib)
    second = in_background(lambda: crib.invoke("x"))
    queued = poll(lambda: [row["invocation_id"] for row in crib.rows("state=running") if row["invocation_id"] != running], 10, "one waits")[0]
    row = cancel(crib, queued)
    assert (row["state"], row["attempts"], row["attempt_errors"]) == ("cancelled", 0, []), row
    assert "did not run" in text_of(problem(second(), 499, "cancelled"))
    assert crib.usage("x")[0]["used"] == 1 and ran.read_text() == "begun\n"
    cancel(crib, running)
    problem(first(), 499, "cancelled")


def test_callers_cancel_their_own_calls(start, mark):
    """A caller cancels its own calls, an admin all; another caller's call is as unknown as one that does not exist."""
    ann, bob, root = KEYS["ANN"], KEYS["BOB"], KEYS["ROOT"]
    crib = start({"callers": CALLERS, "tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}}, env=KEYS)
    for by in (ann, root):
        answer = in_background(lambda: crib.invoke("x", key=ann))
        invocation = running_invocation(crib, key=ann)
        path = f"/invocations/{invocation}"
        foreign = problem(crib.delete(path, key=bob), 404, "invalid_request")
        unknown = problem(crib.delete("/invocations/01990000-0000-7000-8000-000000000000", key=bob), 404, "invalid_request")
        assert foreign == unknown
        problem(crib.delete(path), 401, "unauthenticated")
        assert crib.row(invocation, key=ann)["state"] == "running"
        assert cancel(crib, invocation, key=by)["state"] == "cancelled"
        problem(answer(), 499, "cancelled")
        problem(crib.delete(path, key=bob), 404, "invalid_request")


def test_cancel_of_ended_call_reports_state(start):
    crib = start({"tools": {"fine": sh("echo fine", effect="read"), "sad": sh("exit 3", effect="read"),
                            "late": sh("exec /bin/sleep 5", effect="read", timeout="100ms")}})
    for tool, state in (("fine", "succeeded"), ("sad", "failed"), ("late", "timed_out")):
        invocation = crib.invoke(tool).json["invocation_id"]
        crib.row(invocation)
        error = problem(crib.delete(f"/invocations/{invocation}"), 409, "invalid_request")
        assert state in error["detail"], error
    for nonsense in ("nonsense", "0199", "%00"):
        problem(crib.delete(f"/invocations/{nonsense}"), {400, 404}, "invalid_request")


@pytest.mark.parametrize("effect, state", [("read", "cancelled"), ("write", "unknown")])
def test_cancelled_row_survives_kill_nine(start, mark, effect, state):
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect=effect, timeout="60s", limits=[{"calls": 5, "per": "day"}])}})
    answer = in_background(lambda: crib.post("/tools/x/invoke", '{"arguments": {}}'))
    wait_for_processes(crib, mark, 1)
    row = cancel(crib, running_invocation(crib))
    crib.kill9()
    try:
        answer()
    except OSError:
        pass  # its answer may have been on the way
    crib.start()
    repeated = crib.row(row["invocation_id"])
    assert (repeated["state"], repeated["kind"]) == (state, "cancelled") and repeated["result"] == row["result"]
    # For a limited read, the service has counted one more unit ahead. A kill leaves that unit used.
    assert crib.usage("x")[0]["used"] in ({1, 2} if effect == "read" else {1})


def test_many_cancellations_leave_exact_counts(start, tmp_path):
    """Two hundred writes, each cancelled at some moment (queued, reserving, running, done): one ended row each, units equal to runs, no
    process and no permit lost."""
    ran = tmp_path / "ran"
    tool = sh(f"echo x >> {ran}; exec /bin/sleep 0.05", effect="write", limits=[{"calls": 10_000, "per": "day"}],
              concurrency={"max": 4, "queue": 64, "wait": "30s"})
    crib = start({"tools": {"x": tool}})
    chance, stop = random.Random(7), threading.Event()
    cancelled = []

    def canceller():
        while not stop.is_set():
            for row in crib.rows("state=running&limit=50"):
                if chance.random() < 0.4:
                    reply = crib.delete("/invocations/" + row["invocation_id"])
                    assert reply.status in (200, 409), reply
                    if reply.status == 200:
                        cancelled.append(reply.json)

    cancelling = in_background(canceller)

    def caller(_):
        session = crib.session()
        replies = [session.invoke("x") for _ in range(10)]
        session.close()
        return replies

    replies = [reply for some in parallel(20, caller) for reply in some]
    stop.set()
    cancelling()
    assert {reply.status for reply in replies} == {200, 499}, {reply.status for reply in replies}
    rows = crib.all_rows()
    assert len(rows) == 200 and all(row["state"] in ENDED for row in rows)
    by_id = {row["invocation_id"]: row for row in rows}
    for reply in replies:
        row = by_id[reply.json["invocation_id"]]
        expected = "succeeded" if reply.status == 200 else "unknown" if row["attempts"] else "cancelled"
        assert row["state"] == expected, (row, reply)
    assert {row["state"] for row in cancelled} <= {"unknown", "cancelled"}
    tried = sum(row["attempts"] for row in rows)
    assert crib.usage("x")[0]["used"] == tried >= len(ran.read_text().splitlines())
    assert {row["state"] for row in rows} == {"succeeded", "unknown", "cancelled"}, "the storm met every moment"
    for _ in range(8):
        ok(crib.invoke("x"))  # all permits are free again


def test_cancellation_is_quick_under_load(start, mark):
    """A hundred running calls are cancelled at once, each long before its end, and another tool answers meanwhile."""
    tools = {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s", concurrency={"max": 100, "queue": 0, "wait": "1s"}),
             "calculator": {"kind": "native"}}
    crib = start({"tools": tools})
    answers = [in_background(lambda: crib.invoke("x")) for _ in range(100)]
    wait_for_processes(crib, mark, 100)
    ids = [row["invocation_id"] for row in crib.rows("state=running&limit=200")]
    assert len(ids) == 100
    times = parallel(100, lambda n: (time.monotonic(), cancel(crib, ids[n]), time.monotonic()))
    assert max(end - begin for begin, _, end in times) < 30
    ok(crib.invoke("calculator", {"expression": "1"}))
    poll(lambda: not processes(mark), 30, "no process left")
    for answer in answers:
        problem(answer(), 499, "cancelled")
