"""Usage limits: exact under concurrency, across restarts and kill -9; and the bounded queue in front of every tool."""

import threading
import time

import pytest

from harness import in_background, lines_in, now, ok, parallel, poll, problem, processes, elapsed, text_of
from recipes import CALLERS, KEYS, params, sh, web


def appender(path, limits, **policy):
    """A write that writes one line for each run."""
    return sh(f"echo ran >> {path}", effect="write", limits=limits, **policy)


def burst(crib, tool, calls, threads=32):
    """`calls` calls over `threads` keep-alive connections; the statuses."""
    def work(index):
        session, got = crib.session(), []
        for number in range(index, calls, threads):
            got.append(session.invoke(tool, {"n": number}))
        session.close()
        return got
    return [reply for part in parallel(threads, work) for reply in part]


def test_thousand_calls_against_limit_of_hundred(start, tmp_path):
    """Exactly 100 run, 900 are refused; the count survives a restart and a kill -9; a reset frees it."""
    ran = tmp_path / "ran"
    crib = start({"tools": {"once": appender(ran, [{"calls": 100, "per": "lifetime"}])}})
    replies = burst(crib, "once", 1000)
    statuses = [reply.status for reply in replies]
    assert (statuses.count(200), statuses.count(429)) == (100, 900), {code: statuses.count(code) for code in set(statuses)}
    assert lines_in(ran) == 100
    used = sorted(reply.json["meta"]["usage"][0]["used"] for reply in replies if reply.status == 200)
    assert used == list(range(1, 101)), "every answer says a count of its own"
    one = crib.usage("once")[0]
    assert [one[key] for key in ("calls", "per", "scope", "used", "remaining")] == [100, "lifetime", "tool", 100, 0], one

    for repeated in (crib.restart, lambda: (crib.kill9(), crib.start())):
        repeated()
        problem(crib.invoke("once"), 429, "usage_limit_reached")
        assert crib.usage("once")[0]["used"] == 100
    assert lines_in(ran) == 100

    assert crib.post("/tools/once/usage/reset").status in (200, 204)
    assert crib.usage("once")[0]["used"] == 0
    ok(crib.invoke("once"))
    assert lines_in(ran) == 101


def test_kill_nine_under_load_keeps_counts(start, tmp_path):
    """Ten kills in mid flight: what ran was counted before (lines <= used), and never more than the limit."""
    ran, limit = tmp_path / "ran", 400
    crib = start({"tools": {"once": appender(ran, [{"calls": limit, "per": "lifetime"}])}})
    acknowledged = []

    def hammer(stop):
        session = None
        while not stop.is_set():
            try:
                session = session or crib.session()
                if session.invoke("once").status == 200:
                    acknowledged.append(1)
            except Exception:  # the kill cuts the connection at any point
                session = None
                time.sleep(0.005)

    for round_ in range(10):
        stop = threading.Event()
        before = lines_in(ran)
        threads = [threading.Thread(target=hammer, args=(stop,), daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        if before < limit:
            poll(lambda: lines_in(ran) >= min(limit, before + 12), 15, "calls in flight")
        crib.kill9()
        stop.set()
        for thread in threads:
            thread.join(35)
        crib.start()
        used = crib.usage("once")[0]["used"]
        assert lines_in(ran) <= used <= limit, (round_, lines_in(ran), used)
        assert len(acknowledged) <= used, (round_, len(acknowledged), used)
    burst(crib, "once", 500, 16)
    assert crib.usage("once")[0]["used"] == limit and lines_in(ran) <= limit
    states = {row["state"] for row in crib.all_rows("tool=once")}
    assert not states & {"reserved", "running"}, f"nothing is left open after a restart: {states}"


def test_interrupted_write_is_unknown(start, mark):
    """kill -9 while a write runs: the next start marks it unknown, keeps its unit charged and does not run it again."""
    crib = start({"tools": {"slow": sh(f"exec /bin/sleep 300 0.{mark}", effect="write", timeout="60s",
                                       limits=[{"calls": 5, "per": "lifetime"}])}})
    answer = in_background(lambda: crib.invoke("slow"))
    poll(lambda: processes(mark), 10, "the write runs")
    invocation = crib.wait_row("tool=slow&state=running")["invocation_id"]
    crib.kill9()
    with pytest.raises(Exception):
        answer(10)
    before = len(processes(mark))
    crib.start()
    assert crib.row(invocation)["state"] == "unknown"
    assert crib.usage("slow")[0]["used"] == 1
    assert len(processes(mark)) <= before, "never run again"


@pytest.mark.parametrize("per", ["minute", "hour", "day", "month", "lifetime"])
def test_refusal_has_retry_after(start, tmp_path, per):
    """429 with Retry-After when the window ends by itself; none for a lifetime."""
    crib = start({"tools": {"once": appender(tmp_path / "ran", [{"calls": 1, "per": per}])}})
    meta = ok(crib.invoke("once"))["meta"]["usage"][0]
    assert (meta["limit"], meta["used"], meta["remaining"]) == (1, 1, 0)
    reply = crib.invoke("once")
    if per == "minute" and reply.status == 200:
        pytest.skip("the minute turned over between two calls")
    error = problem(reply, 429, "usage_limit_reached")
    after = reply.headers.get("retry-after")
    if per == "lifetime":
        assert after is None and not error.get("retry_after_ms") and not meta["resets_at"]
    else:
        longest = {"minute": 60, "hour": 3600, "day": 86400, "month": 31 * 86400}[per]
        assert 1 <= int(after) <= longest and 0 < error["retry_after_ms"] <= longest * 1000 and meta["resets_at"]
    assert lines_in(tmp_path / "ran") == 1
    assert crib.wait_row("tool=once&state=refused")["kind"] == "usage_limit_reached"


def test_run_limits_count_per_run(start, tmp_path):
    """Each run has its own count; calls without a run share the unnamed one; no Retry-After, no reset time."""
    crib = start({"tools": {"once": appender(tmp_path / "ran", [{"calls": 1, "per": "run"}], repeatable=True)}})
    for run in ({"run_id": "a"}, {"run_id": "b"}, {}):
        ok(crib.invoke("once", **run))
        reply = crib.invoke("once", **run)
        problem(reply, 429, "usage_limit_reached")
        assert reply.headers.get("retry-after") is None
    assert lines_in(tmp_path / "ran") == 3


def test_caller_and_tool_scopes_count_separately(start, tmp_path):
    crib = start({"callers": CALLERS, "tools": {
        "each": appender(tmp_path / "each", [{"calls": 1, "per": "day", "scope": "caller"}]),
        "all": appender(tmp_path / "all", [{"calls": 2, "per": "day", "scope": "tool"}])}}, env=KEYS)
    for name in ("ANN", "BOB"):
        ok(crib.invoke("each", key=KEYS[name]))
        problem(crib.invoke("each", key=KEYS[name]), 429, "usage_limit_reached")
        ok(crib.invoke("all", key=KEYS[name]))
    problem(crib.invoke("all", key=KEYS["ANN"]), 429, "usage_limit_reached")
    assert lines_in(tmp_path / "each") == 2 and lines_in(tmp_path / "all") == 2
    limits = {row["tool"]: row["limits"] for row in crib.get("/usage", key=KEYS["ANN"]).json["tools"]}
    assert [(one["of"], one["calls"], one["used"]) for one in limits["each"]] == [("tool", 1, 1)]
    assert crib.usage("each", key=KEYS["ANN"])[0]["used"] == 1
    problem(crib.post("/tools/each/usage/reset", key=KEYS["BOB"]), 403, "forbidden")
    assert crib.post("/tools/each/usage/reset?caller=ann", key=KEYS["ROOT"]).status == 200
    ok(crib.invoke("each", key=KEYS["ANN"]))
    problem(crib.invoke("each", key=KEYS["BOB"]), 429, "usage_limit_reached")


def test_caller_limits_count_over_tools(start, tmp_path):
    """A caller's own limits count over its tools, and only its own calls."""
    callers = [dict(CALLERS[0], limits=[{"calls": 2, "per": "day"}]), CALLERS[1]]
    crib = start({"callers": callers, "tools": {"a": appender(tmp_path / "a", []), "b": appender(tmp_path / "b", [])}}, env=KEYS)
    ok(crib.invoke("a", key=KEYS["ANN"]))
    ok(crib.invoke("b", key=KEYS["ANN"]))
    reached = problem(crib.invoke("a", key=KEYS["ANN"]), 429, "usage_limit_reached")
    assert [(one["of"], one["calls"], one["used"]) for one in reached["usage"]] == [("caller", 2, 2)]
    assert reached["detail"] == "the limit of 2 calls per day of caller ann, over all tools, is reached"
    assert "Your limit of 2 calls per day over all tools is reached." in text_of(reached)
    ok(crib.invoke("a", key=KEYS["BOB"]))
    usage = crib.get("/usage", key=KEYS["ANN"]).json
    assert all(row["limits"] == [] for row in usage["tools"]), "once, not for each tool"
    [own] = usage["callers"]
    assert own["caller"] == "ann" and [(one["of"], one["used"]) for one in own["limits"]] == [("caller", 2)]
    assert crib.get("/usage", key=KEYS["BOB"]).json["callers"] == []


def test_several_limits_must_all_hold(start, tmp_path):
    """All must hold; a refusal by one takes no unit of another."""
    limits = [{"calls": 10, "per": "lifetime"}, {"calls": 1, "per": "run"}]
    crib = start({"tools": {"x": appender(tmp_path / "ran", limits, repeatable=True)}})
    ok(crib.invoke("x", run_id="a"))
    for _ in range(3):
        problem(crib.invoke("x", run_id="a"), 429, "usage_limit_reached")
    assert all(limit["per"] != "run" for row in crib.get("/usage").json["tools"] for limit in row["limits"])
    lifetime = next(one for one in crib.usage("x") if one["per"] == "lifetime")
    assert lifetime["used"] == 1


def test_refused_and_cached_calls_cost_nothing(start, upstream):
    """Refused arguments and cached answers are free; failures after the start are not."""
    url = upstream.script("/x", 500)
    crib = start({"tools": {
        "cached": web(upstream.base + "/counter", effect="read", parameters=params(city="string"), cache={"ttl": "5m"},
                      limits=[{"calls": 5, "per": "day"}]),
        "fails": web(url, effect="read", limits=[{"calls": 5, "per": "day"}])}})
    problem(crib.invoke("cached", {}), 422, "invalid_arguments")
    for _ in range(3):
        ok(crib.invoke("cached", {"city": "Oslo"}))
    assert crib.usage("cached")[0]["used"] == 1 and upstream.hits("/counter") == 1
    problem(crib.invoke("fails"), 502)
    assert crib.usage("fails")[0]["used"] == 1, "one invocation, one unit, whatever came of it"


# ---- the queue ---------------------------------------------------------------------------------------------------------

def test_concurrency_queue_and_wait(start, mark, tmp_path):
    """max 1, queue 1: one runs, one waits its 300 ms, the third is refused at once; all refusals are 503 before any unit is charged."""
    crib = start({"tools": {"one": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="4s",
                                      limits=[{"calls": 100, "per": "day"}], concurrency={"max": 1, "queue": 1, "wait": "300ms"})}})
    first = in_background(lambda: crib.invoke("one"))
    poll(lambda: processes(mark), 5, "the first runs")
    started = now()
    for reply in parallel(4, lambda index: crib.invoke("one")):
        error = problem(reply, 503, "overloaded")
        assert int(reply.headers["retry-after"]) >= 1 and error["retryable"] is True
        assert error["retry_after_ms"] > 0
    assert elapsed(started) < 3
    assert crib.usage("one")[0]["used"] == 1, "the refused cost nothing"
    problem(first(), 504)


def test_queued_calls_all_run(start_plain, tmp_path):
    """Calls within queue and wait all run, never more than `max` at a time."""
    place = tmp_path / "at"
    place.mkdir()
    script = f"touch {place}/$$; ls {place} | wc -l; sleep 0.1; rm {place}/$$"
    crib = start_plain({"tools": {"two": sh(script, effect="read", environment={"PATH": "/usr/bin:/bin"}, output="text",
                                      concurrency={"max": 2, "queue": 20, "wait": "10s"})}})
    seen = [int(text_of(ok(reply))) for reply in parallel(10, lambda index: crib.invoke("two", {"n": index}))]
    assert max(seen) <= 2, seen
