"""A tool whose upstream is down is given a rest, and what is down is asked as little as was promised."""

import time

import pytest

from harness import later, now, ok, parallel, poll, problem, said_no, spent
from recipes import CALLERS, KEYS, sh, web
from test_metrics import scrape, value
from upstream import busy, moved, says


def open_it(crib, tool="x"):
    for _ in range(5):
        problem(crib.invoke(tool), {502, 504})


def test_five_failures_a_rest_one_probe(start, up):
    """Refused without asking the upstream or spending a unit; after five seconds one of many callers asks, and all go on."""
    url = up.script("/down", 503, 502, 504, 503, 503, 503, says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", limits=[{"calls": 100, "per": "day"}])}})
    open_it(crib)
    opened = time.monotonic()
    reply = crib.invoke("x")
    said = problem(reply, 503, "tool_unavailable")
    assert said["retryable"] is True and 0 < said["retry_after_ms"] <= 5000 and 1 <= int(reply.headers["retry-after"]) <= 5
    row = crib.row(said["invocation_id"])
    assert (row["state"], row["attempts"]) == ("refused", 0), row
    assert up.hits() == 5 and crib.usage("x")[0]["used"] == 5
    samples, _ = scrape(crib)
    assert value(samples, "toolcrib_circuit_breaker_state", tool="x") == 2
    verbose = crib.get("/readyz?verbose").json
    assert verbose["status"] == "ready" and [one["tool"] for one in verbose["breakers"]] == ["x"], verbose

    def until_asked(hits):
        """Many callers at once, until one has reached the upstream."""
        replies = []
        while up.hits() < hits:
            replies += parallel(8, lambda _: crib.invoke("x"))
        return replies

    replies = until_asked(6)
    assert time.monotonic() - opened >= 4.9 and up.hits() == 6, "one probe"
    assert [reply.status for reply in replies].count(502) == 1 and {reply.status for reply in replies} == {502, 503}
    reopened = time.monotonic()
    replies = until_asked(7)
    assert time.monotonic() - reopened >= 4.9
    ok(crib.invoke("x"))
    samples, _ = scrape(crib)
    assert value(samples, "toolcrib_circuit_breaker_state", tool="x") == 0
    assert value(samples, "toolcrib_circuit_breaker_openings_total", tool="x") == 2
    assert crib.get("/readyz?verbose").json["breakers"] == []
    poll(lambda: "what runs a tool is up again" in crib.stderr, 5, "the log says that it is up again")
    assert crib.stderr.count("what runs a tool is down") == 1, "a warning, not a flood"


@pytest.mark.parametrize("answer, statuses", [(404, {200}), (422, {200}), (500, {502}), (501, {502}), (busy(0), {502}),
                                              (moved("/elsewhere"), {502}), ("half", {502})],
                         ids=["404", "422", "500", "501", "429", "302", "half-json"])
def test_an_upstream_that_answers_is_not_down(start, up, answer, statuses):
    """Each answer five times in a row, which would open the breaker if one of them counted."""
    crib = start({"tools": {"x": web(up.script("/odd", *[answer] * 6, says({"fine": True})), effect="read")}})
    for _ in range(6):
        assert crib.invoke("x").status in statuses
    ok(crib.invoke("x"))
    assert up.hits("/odd") == 7 and up.hits("/elsewhere") == 0 and crib.get("/readyz?verbose").json["breakers"] == []


def test_a_program_that_refuses_is_not_down(start):
    crib = start({"tools": {"sad": sh("exit 1", effect="read")}})
    for _ in range(6):
        said_no(crib.invoke("sad"))
    assert crib.get("/readyz?verbose").json["breakers"] == []


def test_timeouts_and_nobody_there_count(start, up):
    crib = start({"tools": {"hangs": web(up.base + "/hang", effect="read", timeout="100ms"),
                            "gone": web("http://127.0.0.1:9/", effect="write")}})
    for tool in ("hangs", "gone"):
        open_it(crib, tool)
        problem(crib.invoke(tool), 503, "tool_unavailable")
    assert up.hits() == 5


def test_a_stored_answer_is_served_while_it_is_open(start, up):
    url = up.script("/once", says({"fine": True}), 503)
    crib = start({"tools": {"x": web(url, effect="read", cache={"ttl": "1h"})}})
    ok(crib.invoke("x", {"n": 1}))
    for n in range(2, 7):
        problem(crib.invoke("x", {"n": n}), 502, "upstream_failed")
    problem(crib.invoke("x", {"n": 7}), 503, "tool_unavailable")
    assert ok(crib.invoke("x", {"n": 1}))["meta"]["cache"] == "hit"


def test_a_cancelled_probe_leaves_its_place(start, up):
    url = up.script("/down", 503, 503, 503, 503, 503, "hang", says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", timeout="60s")}})
    open_it(crib)
    time.sleep(5.1)
    probe = later(lambda: crib.invoke("x"))
    poll(lambda: up.hits() == 6, 5, "the probe is on its way")
    assert problem(crib.invoke("x"), 503, "tool_unavailable")["retry_after_ms"] == 1000
    assert crib.get("/readyz?verbose").json["breakers"][0]["state"] == "half_open"
    assert crib.delete("/invocations/" + crib.rows("state=running")[0]["invocation_id"]).status == 200
    problem(probe(), 499, "cancelled")
    ok(crib.invoke("x"))


def test_verbose_is_for_those_who_may_read_metrics(start):
    crib = start({"callers": CALLERS, "tools": {"t": sh("echo t", effect="read")}}, env=KEYS)
    assert crib.get("/readyz").status == 200
    problem(crib.get("/readyz?verbose"), 401, "unauthenticated")
    problem(crib.get("/readyz?verbose", key=KEYS["ANN"]), 403, "forbidden")
    assert crib.get("/readyz?verbose=true", key=KEYS["ROOT"]).json["breakers"] == []


def test_a_retry_after_date_is_honoured(start, up):
    """An HTTP date, held against the server's own clock; and any length, if it fits the deadline."""
    def dated(handler):
        handler.send_response_only(503)
        handler.send_header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        handler.send_header("retry-after", "Sun, 06 Nov 1994 08:49:39 GMT")
        handler.send_header("content-length", "0")
        handler.end_headers()

    crib = start({"tools": {"x": web(up.script("/dated", dated, says({"fine": True})), effect="read", retry={"attempts": 2}),
                            "long": web(up.script("/long", busy(12), says({"fine": True})), effect="read", retry={"attempts": 2})}})
    started = now()
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2
    assert 1.9 <= time.monotonic() - started and spent(started) < 4
    started = now()
    problem(crib.invoke("long"), 502, "upstream_failed")
    assert spent(started) < 3, "without a deadline twelve seconds are not waited for"
