"""The history of a run: a call that repeats the last one is refused. What counts as a repetition is in tests/it/repeats.rs."""

import json
import socket

from harness import lines_in, ok, poll, problem, text_of
from recipes import sh


def counter_tool(path, **policy):
    """A tool that writes a line for each run."""
    return sh(f"echo ran >> {path}; echo done", **dict({"effect": "read"}, **policy))


def assert_repeated(reply):
    error = problem(reply, 409, "repeated_call")
    assert error["source"] == "service" and error["retryable"] is False and not error.get("retry_after_ms"), error
    assert reply.headers.get("retry-after") is None
    assert "something else" in text_of(error), error
    return error


def test_repeated_call_is_refused(start, tmp_path):
    crib = start({"tools": {"x": counter_tool(tmp_path / "ran", limits=[{"calls": 5, "per": "run"}])}})
    first = ok(crib.invoke("x", {"n": 1}, run_id="r"))
    for repeated in ({"n": 1}, {"n": "1"}, '{"n": 1}'):
        output = assert_repeated(crib.invoke("x", repeated, run_id="r"))
        assert first["invocation_id"] in output["detail"], "whose answer it is"
        row = crib.row(output["invocation_id"])
        assert (row["state"], row["kind"], row["attempts"]) == ("refused", "repeated_call", 0)
    assert lines_in(tmp_path / "ran") == 1
    ok(crib.invoke("x", {"n": 2}, run_id="r"))
    last = ok(crib.invoke("x", {"n": 1}, run_id="r"))
    assert last["meta"]["usage"][0]["used"] == 3, "refused ones cost nothing"
    usage = poll(lambda: next((one for one in crib.get("/usage").json["tools"] if one["calls"] == 6), None), what="usage")
    assert (usage["succeeded"], usage["refused"]) == (3, 3)
    assert any(line.startswith("toolcrib_calls_total{") and 'outcome="repeated_call"' in line
               for line in crib.get("/metrics").body.decode().splitlines())


def test_alias_and_spelling_are_the_same_tool(start, tmp_path):
    crib = start({"tools": {"get_x": counter_tool(tmp_path / "ran", aliases=["x"])}})
    ok(crib.invoke("get_x", run_id="r"))
    for name in ("x", "Get-X", "functions.get_x"):
        assert_repeated(crib.invoke(name, run_id="r"))


def test_disconnected_caller_may_repeat(start, tmp_path):
    """The first answer was not delivered."""
    crib = start({"tools": {"x": sh(f"echo began >> {tmp_path / 'began'}; sleep 0.5; echo done", effect="read",
                                    on_disconnect="finish")}})
    body = json.dumps({"arguments": {}, "run_id": "r"}).encode()
    sock = socket.create_connection((crib.host, crib.port))
    sock.sendall(b"POST /tools/x/invoke HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                 b"content-length: %d\r\n\r\n%s" % (crib.port, len(body), body))
    poll(lambda: lines_in(tmp_path / "began") == 1, what="the tool runs")
    sock.close()
    crib.wait_row("tool=x&state=succeeded")
    ok(crib.invoke("x", run_id="r"))
    assert_repeated(crib.invoke("x", run_id="r"))


def test_many_runs_take_little_memory(start):
    """Ids of runs are the callers' own: making them up must not fill the service."""
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    session, before = crib.session(), None
    for n in range(6000):
        ok(session.invoke("calculator", {"expression": "1"}, run_id=f"run-{n}"))
        if n == 999:
            before = crib.rss()
    session.close()
    grown = crib.rss() - before
    print(f"5,000 more runs: {grown >> 10} KiB")
    assert grown < 24 << 20, grown


def test_runs_are_forgotten_on_restart(start):
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    ok(crib.invoke("calculator", {"expression": "1"}, run_id="r"))
    assert_repeated(crib.invoke("calculator", {"expression": "1"}, run_id="r"))
    crib.stop()
    crib.start()
    ok(crib.invoke("calculator", {"expression": "1"}, run_id="r"))
