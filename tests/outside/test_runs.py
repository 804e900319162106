"""What is remembered of a run: the same call twice in a row is told so instead of run."""

import json
import socket

from harness import lines_in, ok, parallel, poll, problem, said_no, text_of
from recipes import CALLERS, KEYS, params, sh, web
from upstream import says

ANN, BOB = KEYS["ANN"], KEYS["BOB"]


def counter(path, **policy):
    """A tool that leaves a line for each time it really ran."""
    return sh(f"echo ran >> {path}; echo done", **dict({"effect": "read"}, **policy))


def repeated(reply):
    said = problem(reply, 409, "repeated_call")
    assert said["source"] == "service" and said["retryable"] is False and not said.get("retry_after_ms"), said
    assert reply.headers.get("retry-after") is None
    assert "something else" in text_of(said), said
    return said


def test_twice_in_a_row(start, tmp_path):
    crib = start({"tools": {"x": counter(tmp_path / "ran", limits=[{"calls": 5, "per": "run"}])}})
    first = ok(crib.invoke("x", {"n": 1}, run_id="r"))
    for again in ({"n": 1}, {"n": "1"}, '{"n": 1}'):
        said = repeated(crib.invoke("x", again, run_id="r"))
        assert first["invocation_id"] in said["detail"], "whose answer it is"
        row = crib.row(said["invocation_id"])
        assert (row["state"], row["kind"], row["attempts"]) == ("refused", "repeated_call", 0)
    assert lines_in(tmp_path / "ran") == 1
    ok(crib.invoke("x", {"n": 2}, run_id="r"))
    last = ok(crib.invoke("x", {"n": 1}, run_id="r"))
    assert last["meta"]["usage"][0]["used"] == 3, "refused ones cost nothing"
    usage = poll(lambda: next((one for one in crib.get("/usage").json["tools"] if one["calls"] == 6), None), what="usage")
    assert (usage["succeeded"], usage["refused"]) == (3, 3)
    assert any(line.startswith("toolcrib_calls_total{") and 'outcome="repeated_call"' in line
               for line in crib.get("/metrics").body.decode().splitlines())


def test_only_within_a_run_and_of_one_caller(start, tmp_path):
    crib = start({"callers": CALLERS, "tools": {"x": counter(tmp_path / "ran"), "y": counter(tmp_path / "ran")}}, env=KEYS)
    for key, tool, run in [(ANN, "x", "a"), (ANN, "x", "b"), (BOB, "x", "a"), (ANN, "y", "a"), (ANN, "x", "a")]:
        ok(crib.invoke(tool, run_id=run, key=key))
    for _ in range(3):
        ok(crib.invoke("x", key=ANN))
    repeated(crib.invoke("x", run_id="a", key=ANN))
    repeated(crib.invoke("x", run_id="b", key=ANN))
    repeated(crib.invoke("x", run_id="a", key=BOB))


def test_an_alias_or_another_spelling_is_the_same_tool(start, tmp_path):
    crib = start({"tools": {"get_x": counter(tmp_path / "ran", aliases=["x"])}})
    ok(crib.invoke("get_x", run_id="r"))
    for name in ("x", "Get-X", "functions.get_x"):
        repeated(crib.invoke(name, run_id="r"))


def test_page_and_cache_mode_make_another_call(start, up):
    crib = start({"tools": {"x": web(up.base + "/counter", effect="read", cache={"ttl": "5m"}, input_schema={"type": "object"})}})
    for more in ({}, {"cache": "refresh"}, {"cache": "bypass"}, {"page": {"detail": "full"}}, {}):
        ok(crib.invoke("x", run_id="r", **more))
        repeated(crib.invoke("x", run_id="r", **more))
    repeated(crib.invoke("x", run_id="r", context={"a": 1}, timeout="5s", tool_use_id="u"))


def test_a_stored_answer_counts(start, up):
    """It comes before the cache: the answer would be the same."""
    crib = start({"tools": {"x": web(up.base + "/counter", effect="read", cache={"ttl": "5m"}, input_schema={"type": "object"})}})
    ok(crib.invoke("x"))
    assert ok(crib.invoke("x", run_id="r"))["meta"]["cache"] == "hit"
    repeated(crib.invoke("x", run_id="r"))


def test_failures_may_be_tried_again(start, up):
    """Only what was answered counts: a no does, a failure and a refusal do not, and they do not change what was last."""
    up.script("/turns", says("down", 500), says("down", 500), says({"n": 1}), says("gone", 404), says("gone", 404))
    crib = start({"tools": {"x": web(up.base + "/turns", effect="read"),
                            "y": web(up.base + "/counter", effect="read", parameters=params(n="integer"))}})
    for _ in range(2):
        problem(crib.invoke("x", run_id="r"), 502, "upstream_failed")
    ok(crib.invoke("x", run_id="r"))
    problem(crib.invoke("y", {"n": "many"}, run_id="r"), 422, "invalid_arguments")
    repeated(crib.invoke("x", run_id="r"))
    ok(crib.invoke("y", {"n": 1}, run_id="r"))
    said_no(crib.invoke("x", run_id="r"))
    repeated(crib.invoke("x", run_id="r"))


def test_equal_calls_at_once_all_run(start, up):
    crib = start({"tools": {"x": web(up.base + "/wait", effect="read")}})
    replies = parallel(4, lambda _: crib.invoke("x", run_id="r"))
    assert [reply.status for reply in replies] == [200] * 4, replies
    repeated(crib.invoke("x", run_id="r"))


def test_a_repeatable_tool_is_left_alone(start, tmp_path):
    crib = start({"tools": {"poll": counter(tmp_path / "ran", repeatable=True), "x": counter(tmp_path / "ran"),
                            "current_time": {"kind": "native"}}})
    for tool in ("poll", "current_time"):
        for _ in range(3):
            ok(crib.invoke(tool, run_id="r"))
        assert crib.get("/tools/" + tool).json["policy"]["repeatable"] is True
    assert crib.get("/tools/x").json["policy"]["repeatable"] is False
    for tool in ("x", "current_time", "x"):
        ok(crib.invoke(tool, run_id="between"))
    repeated(crib.invoke("x", run_id="between"))
    assert lines_in(tmp_path / "ran") == 3 + 2


def test_an_idempotency_key_asks_for_the_same_answer(start, tmp_path):
    crib = start({"tools": {"x": counter(tmp_path / "ran", effect="write")}})
    send = lambda key: crib.invoke("x", run_id="r", headers={"idempotency-key": key})
    first = send("k-1")
    ok(first)
    again = send("k-1")
    assert (again.status, again.body, again.headers["idempotent-replayed"]) == (200, first.body, "true")
    repeated(send("k-2"))
    ok(crib.invoke("x", {"n": 1}, run_id="r"))
    ok(send("k-2"))
    assert lines_in(tmp_path / "ran") == 3, "what was refused left its key free"


def test_who_left_may_ask_again(start, tmp_path):
    """The first answer reached nobody."""
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
    repeated(crib.invoke("x", run_id="r"))


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


def test_forgotten_with_the_process(start):
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    ok(crib.invoke("calculator", {"expression": "1"}, run_id="r"))
    repeated(crib.invoke("calculator", {"expression": "1"}, run_id="r"))
    crib.stop()
    crib.start()
    ok(crib.invoke("calculator", {"expression": "1"}, run_id="r"))
