"""The circuit of a tool opens when its upstream is unavailable, and few calls reach the upstream."""

import time

import pytest

from harness import in_background, now, ok, parallel, poll, problem, error_result, elapsed, text_of
from recipes import CALLERS, KEYS, sh, web
from test_metrics import scrape, value
from upstream import busy, redirect_to, reply_with


def open_circuit(crib, tool="x"):
    for _ in range(5):
        problem(crib.invoke(tool), {502, 504})


def test_five_failures_open_circuit_until_probe(start, upstream):
    """Refused without asking the upstream or spending a unit; after five seconds one of many callers asks, and all go on."""
    url = upstream.script("/down", 503, 502, 504, 503, 503, 503, reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", limits=[{"calls": 100, "per": "day"}]), "fine": web(upstream.base + "/json", effect="read")}})
    assert crib.get("/tools/x").json["breaker"] == "closed"
    open_circuit(crib)
    opened = time.monotonic()
    reply = crib.invoke("x")
    error = problem(reply, 503, "tool_unavailable")
    assert error["retryable"] is True and error["source"] == "tool" and "did not run" in text_of(error)
    assert 0 < error["retry_after_ms"] <= 5000 and 1 <= int(reply.headers["retry-after"]) <= 5
    row = crib.row(error["invocation_id"])
    assert (row["state"], row["kind"], row["attempts"]) == ("refused", "tool_unavailable", 0), row
    assert crib.get("/tools/x").json["breaker"] == "open" and crib.get("/tools/fine").json["breaker"] == "closed", "each tool has its own"
    assert upstream.hits() == 5 and crib.usage("x")[0]["used"] == 5
    samples, _ = scrape(crib)
    assert value(samples, "toolcrib_circuit_breaker_state", tool="x") == 2
    for query in ("", "?verbose=false", "?probe=kubelet"):
        assert crib.get("/readyz" + query).json["status"] == "ready" and "breakers" not in crib.get("/readyz" + query).json
    for query in ("?verbose", "?verbose=true", "?verbose=1"):
        verbose = crib.get("/readyz" + query).json
        assert (verbose["status"], verbose["ledger"]) == ("ready", "up"), verbose
        assert [(one["tool"], one["state"], one["failures"]) for one in verbose["breakers"]] == [("x", "open", 5)], verbose
    problem(crib.get("/readyz?verbose=much"), 400, "invalid_request")

    def until_asked(hits):
        """Many callers at once, until one has reached the upstream."""
        replies = []
        while upstream.hits() < hits:
            replies += parallel(8, lambda _: crib.invoke("x"))
        return replies

    replies = until_asked(6)
    assert time.monotonic() - opened >= 4.9 and upstream.hits() == 6, "one probe"
    assert [reply.status for reply in replies].count(502) == 1 and {reply.status for reply in replies} == {502, 503}
    reopened = time.monotonic()
    replies = until_asked(7)
    assert time.monotonic() - reopened >= 4.9
    ok(crib.invoke("x"))
    samples, _ = scrape(crib)
    assert value(samples, "toolcrib_circuit_breaker_state", tool="x") == 0
    assert value(samples, "toolcrib_circuit_breaker_openings_total", tool="x") == 2
    assert crib.get("/readyz?verbose").json["breakers"] == []
    poll(lambda: "the circuit of a tool closed" in crib.stderr, 5, "the log says that it is up again")
    assert crib.stderr.count("the circuit of a tool opened") == 1, "a warning, not a flood"


@pytest.mark.parametrize("answer, statuses", [(404, {200}), (422, {200}), (500, {502}), (501, {502}), (busy(0), {502}),
                                              (redirect_to("/elsewhere"), {502}), ("half", {502})],
                         ids=["404", "422", "500", "501", "429", "302", "half-json"])
def test_answering_upstream_does_not_open_the_circuit(start, upstream, answer, statuses):
    """Each answer five times in a row, which would open the breaker if one of them counted."""
    crib = start({"tools": {"x": web(upstream.script("/odd", *[answer] * 6, reply_with({"fine": True})), effect="read")}})
    for _ in range(6):
        assert crib.invoke("x").status in statuses
    ok(crib.invoke("x"))
    assert upstream.hits("/odd") == 7 and upstream.hits("/elsewhere") == 0 and crib.get("/readyz?verbose").json["breakers"] == []


def test_failing_program_does_not_open_the_circuit(start):
    crib = start({"tools": {"sad": sh("exit 1", effect="read")}})
    for _ in range(6):
        error_result(crib.invoke("sad"))
    assert crib.get("/readyz?verbose").json["breakers"] == []


def test_timeouts_and_refused_connections_count(start, upstream):
    crib = start({"tools": {"hangs": web(upstream.base + "/hang", effect="read", timeout="100ms"),
                            "gone": web("http://127.0.0.1:9/", effect="write")}})
    for tool in ("hangs", "gone"):
        open_circuit(crib, tool)
        problem(crib.invoke(tool), 503, "tool_unavailable")
    assert upstream.hits() == 5


def test_stored_result_is_served_while_open(start, upstream):
    url = upstream.script("/once", reply_with({"fine": True}), 503)
    crib = start({"tools": {"x": web(url, effect="read", cache={"ttl": "1h"})}})
    ok(crib.invoke("x", {"n": 1}))
    for n in range(2, 7):
        problem(crib.invoke("x", {"n": n}), 502, "upstream_failed")
    problem(crib.invoke("x", {"n": 7}), 503, "tool_unavailable")
    assert ok(crib.invoke("x", {"n": 1}))["meta"]["cache"] == "hit"


def test_cancelled_probe_frees_its_slot(start, upstream):
    url = upstream.script("/down", 503, 503, 503, 503, 503, "hang", reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", timeout="60s")}})
    open_circuit(crib)
    time.sleep(5.1)
    probe = in_background(lambda: crib.invoke("x"))
    poll(lambda: upstream.hits() == 6, 5, "the probe is on its way")
    assert problem(crib.invoke("x"), 503, "tool_unavailable")["retry_after_ms"] == 1000
    assert crib.get("/readyz?verbose").json["breakers"][0]["state"] == "half_open"
    assert crib.delete("/invocations/" + crib.rows("state=running")[0]["invocation_id"]).status == 200
    problem(probe(), 499, "cancelled")
    ok(crib.invoke("x"))


def test_verbose_readyz_needs_admin_rights(start):
    scraper = {"name": "prometheus", "key": "scrape-key-0123456789", "metrics": True, "allow": []}
    crib = start({"callers": [*CALLERS, scraper], "tools": {"t": sh("echo t", effect="read")}}, env=KEYS)
    assert crib.get("/readyz").status == crib.get("/readyz", key="no-such-key").status == 200, "a probe is never asked for a key"
    problem(crib.get("/readyz?verbose", key="no-such-key"), 401, "unauthenticated")
    assert crib.get("/readyz?verbose", key=scraper["key"]).json["breakers"] == []
    problem(crib.get("/readyz?verbose"), 401, "unauthenticated")
    problem(crib.get("/readyz?verbose", key=KEYS["ANN"]), 403, "forbidden")
    assert crib.get("/readyz?verbose=true", key=KEYS["ROOT"]).json["breakers"] == []


def test_retry_after_date_is_honoured(start, upstream):
    """An HTTP date, compared with the server's own clock; any length, if it fits the deadline."""
    def dated(handler):
        handler.send_response_only(503)
        handler.send_header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        handler.send_header("retry-after", "Sun, 06 Nov 1994 08:49:39 GMT")
        handler.send_header("content-length", "0")
        handler.end_headers()

    crib = start({"tools": {"x": web(upstream.script("/dated", dated, reply_with({"fine": True})), effect="read", retry={"attempts": 2}),
                            "long": web(upstream.script("/long", busy(12), reply_with({"fine": True})), effect="read", retry={"attempts": 2})}})
    started = now()
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2
    assert 1.9 <= time.monotonic() - started and elapsed(started) < 4
    started = now()
    problem(crib.invoke("long"), 502, "upstream_failed")
    assert elapsed(started) < 3, "without a deadline twelve seconds are not waited for"
