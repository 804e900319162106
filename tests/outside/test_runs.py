"""The history of a run: a call that repeats the last one is refused."""

import json
import socket

from harness import lines_in, ok, parallel, poll, problem, error_result, text_of
from recipes import CALLERS, KEYS, params, sh, web
from upstream import reply_with

ANN, BOB = KEYS["ANN"], KEYS["BOB"]


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


def test_repeat_guard_is_per_run_and_caller(start, tmp_path):
    crib = start({"callers": CALLERS, "tools": {"x": counter_tool(tmp_path / "ran"), "y": counter_tool(tmp_path / "ran")}}, env=KEYS)
    for key, tool, run in [(ANN, "x", "a"), (ANN, "x", "b"), (BOB, "x", "a"), (ANN, "y", "a"), (ANN, "x", "a")]:
        ok(crib.invoke(tool, run_id=run, key=key))
    for _ in range(3):
        ok(crib.invoke("x", key=ANN))
    assert_repeated(crib.invoke("x", run_id="a", key=ANN))
    assert_repeated(crib.invoke("x", run_id="b", key=ANN))
    assert_repeated(crib.invoke("x", run_id="a", key=BOB))


def test_alias_and_spelling_are_the_same_tool(start, tmp_path):
    crib = start({"tools": {"get_x": counter_tool(tmp_path / "ran", aliases=["x"])}})
    ok(crib.invoke("get_x", run_id="r"))
    for name in ("x", "Get-X", "functions.get_x"):
        assert_repeated(crib.invoke(name, run_id="r"))


def test_page_and_cache_mode_make_another_call(start, upstream):
    crib = start({"tools": {"x": web(upstream.base + "/counter", effect="read", cache={"ttl": "5m"}, input_schema={"type": "object"})}})
    for more in ({}, {"cache": "refresh"}, {"cache": "bypass"}, {"page": {"detail": "full"}}, {}):
        ok(crib.invoke("x", run_id="r", **more))
        assert_repeated(crib.invoke("x", run_id="r", **more))
    assert_repeated(crib.invoke("x", run_id="r", context={"a": 1}, timeout="5s", tool_use_id="u"))


def test_stored_result_counts_as_an_answer(start, upstream):
    """The check precedes the cache: the answer would be the same."""
    crib = start({"tools": {"x": web(upstream.base + "/counter", effect="read", cache={"ttl": "5m"}, input_schema={"type": "object"})}})
    ok(crib.invoke("x"))
    assert ok(crib.invoke("x", run_id="r"))["meta"]["cache"] == "hit"
    assert_repeated(crib.invoke("x", run_id="r"))


def test_failed_calls_may_be_repeated(start, upstream):
    """Only an answer counts: an error result does, a failure and a refusal do not, and they do not change the last answer."""
    upstream.script("/turns", reply_with("down", 500), reply_with("down", 500), reply_with({"n": 1}), reply_with("gone", 404), reply_with("gone", 404))
    crib = start({"tools": {"x": web(upstream.base + "/turns", effect="read"),
                            "y": web(upstream.base + "/counter", effect="read", parameters=params(n="integer"))}})
    for _ in range(2):
        problem(crib.invoke("x", run_id="r"), 502, "upstream_failed")
    ok(crib.invoke("x", run_id="r"))
    problem(crib.invoke("y", {"n": "many"}, run_id="r"), 422, "invalid_arguments")
    assert_repeated(crib.invoke("x", run_id="r"))
    ok(crib.invoke("y", {"n": 1}, run_id="r"))
    error_result(crib.invoke("x", run_id="r"))
    assert_repeated(crib.invoke("x", run_id="r"))


def test_parallel_equal_calls_all_run(start, upstream):
    crib = start({"tools": {"x": web(upstream.base + "/wait", effect="read")}})
    replies = parallel(4, lambda _: crib.invoke("x", run_id="r"))
    assert [reply.status for reply in replies] == [200] * 4, replies
    assert_repeated(crib.invoke("x", run_id="r"))


def test_repeatable_tool_may_be_repeated(start, tmp_path):
    crib = start({"tools": {"poll": counter_tool(tmp_path / "ran", repeatable=True), "x": counter_tool(tmp_path / "ran"),
                            "current_time": {"kind": "native"}}})
    for tool in ("poll", "current_time"):
        for _ in range(3):
            ok(crib.invoke(tool, run_id="r"))
        assert crib.get("/tools/" + tool).json["policy"]["repeatable"] is True
    assert crib.get("/tools/x").json["policy"]["repeatable"] is False
    for tool in ("x", "current_time", "x"):
        ok(crib.invoke(tool, run_id="between"))
    assert_repeated(crib.invoke("x", run_id="between"))
    assert lines_in(tmp_path / "ran") == 3 + 2


def test_idempotency_key_replays_the_answer(start, tmp_path):
    crib = start({"tools": {"x": counter_tool(tmp_path / "ran", effect="write")}})
    send = lambda key: crib.invoke("x", run_id="r", headers={"idempotency-key": key})
    first = send("k-1")
    ok(first)
    repeated = send("k-1")
    assert (repeated.status, repeated.body, repeated.headers["idempotent-replayed"]) == (200, first.body, "true")
    assert_repeated(send("k-2"))
    ok(crib.invoke("x", {"n": 1}, run_id="r"))
    ok(send("k-2"))
    assert lines_in(tmp_path / "ran") == 3, "what was refused left its key free"


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
