"""GET /metrics, read as Prometheus reads it, after traffic that is known to the call."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import in_background, ok, parallel, poll, problem, error_result
from recipes import CALLERS, KEYS, params, sh, web
from test_ledger import fill_disk

# Names as the parser gives them: a counter's without `_total`.
FAMILIES = {
    "toolcrib_calls": "counter", "toolcrib_call_duration_seconds": "histogram", "toolcrib_retries": "counter",
    "toolcrib_replays": "counter", "toolcrib_clock_jumps": "counter",
    "toolcrib_in_flight": "gauge", "toolcrib_queued": "gauge", "toolcrib_open_calls": "gauge",
    "toolcrib_circuit_breaker_state": "gauge", "toolcrib_circuit_breaker_openings": "counter",
    "toolcrib_cache_entries": "gauge", "toolcrib_cache_bytes": "gauge", "toolcrib_ledger_up": "gauge",
    "toolcrib_ledger_bytes": "gauge", "toolcrib_ledger_used_bytes": "gauge", "toolcrib_ledger_max_bytes": "gauge", "toolcrib_ledger_trimmed": "counter",
    "toolcrib_ledger_backlog_rows": "gauge", "toolcrib_quota_drift": "gauge", "toolcrib_ledger_commits": "counter", "toolcrib_ledger_batch_rows": "histogram",
    "toolcrib_ledger_commit_seconds": "histogram", "toolcrib_http_requests": "counter", "toolcrib_log_dropped": "counter",
    "toolcrib_source_up": "gauge", "toolcrib_source_stopped_tools": "gauge", "toolcrib_sandboxed_tools": "gauge", "toolcrib_source_replaced": "counter",
    "toolcrib_build_info": "gauge", "process_cpu_seconds": "counter", "process_resident_memory_bytes": "gauge",
    "process_open_fds": "gauge", "process_max_fds": "gauge", "process_start_time_seconds": "gauge",
}


def scrape(crib, key=None):
    """{name of a sample: [sample]} and {family: its type}; fails where a scraper would."""
    reply = crib.get("/metrics", key=key)
    assert reply.status == 200 and reply.headers["content-type"] == "text/plain; version=0.0.4", reply
    samples, types = {}, {}
    for family in text_string_to_metric_families(reply.body.decode()):
        assert family.name not in types and family.documentation, family
        types[family.name] = family.type
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    for name, those in samples.items():
        sets = [tuple(sorted(sample.labels.items())) for sample in those]
        assert len(sets) == len(set(sets)), f"{name} has a series twice"
    return samples, types


def value(samples, name, **labels):
    found = [sample.value for sample in samples.get(name, []) if sample.labels == labels]
    return found[0] if found else 0


def calls(samples, tool):
    """{(outcome, cache): how many} of one tool, without zeros."""
    return {(sample.labels["outcome"], sample.labels["cache"]): sample.value
            for sample in samples["toolcrib_calls_total"] if sample.labels["tool"] == tool and sample.value}


def test_every_family_has_its_type(start):
    crib = start({"tools": {"t": sh("echo t", effect="read")}, "python_modules": {"m": {"module": "json"}}})
    ok(crib.invoke("t"))
    poll(lambda: value(scrape(crib)[0], "toolcrib_ledger_commit_seconds_count"), what="the call's row committed")
    samples, types = scrape(crib)
    assert types == FAMILIES
    assert samples["toolcrib_build_info"][0].labels["version"] and value(samples, "toolcrib_ledger_up") == 1
    assert value(samples, "process_cpu_seconds_total") > 0 and value(samples, "process_open_fds") > 3
    assert abs(value(samples, "process_resident_memory_bytes") - crib.rss()) < 32 << 20


def test_counts_are_exact(start, upstream):
    """Hits, misses, refusals, error results, failures and retries are exact, and agree with the ledger."""
    upstream.script("/flaky", 503, "json", 503, "json")
    upstream.script("/down", 503)
    crib = start({"tools": {
        "cached": sh("echo c", effect="read", cache={"ttl": "1h"}), "sad": sh("exit 1", effect="read"),
        "flaky": web(upstream.base + "/flaky", effect="read", retry={"attempts": 3}), "down": web(upstream.base + "/down", effect="read"),
        "limited": sh("echo l", effect="write", limits=[{"calls": 2, "per": "day"}]),
        "off": sh("echo o", effect="read", enabled=False)}})
    for n in (1, 1, 2, 1):
        ok(crib.invoke("cached", {"n": n}))
    ok(crib.invoke("cached", {"n": 1}, cache="bypass"))
    ok(crib.invoke("cached", {"n": 1}, cache="refresh"))
    error_result(crib.invoke("sad"))
    for _ in range(2):
        assert ok(crib.invoke("flaky"))["meta"]["attempts"] == 2
    problem(crib.invoke("down"), 502, "upstream_failed")
    for status in (200, 200, 429):
        assert crib.invoke("limited").status == status
    problem(crib.invoke("limited", {"n": "many"}), 422)
    problem(crib.invoke("off"), 403, "tool_disabled")
    samples, _ = scrape(crib)
    assert calls(samples, "cached") == {("ok", "hit"): 2, ("ok", "miss"): 2, ("ok", "bypass"): 1, ("ok", "refresh"): 1}
    assert calls(samples, "sad") == {("tool_error", "off"): 1}
    assert calls(samples, "flaky") == {("ok", "off"): 2}
    assert calls(samples, "down") == {("upstream_failed", "off"): 1}
    assert calls(samples, "limited") == {("ok", "off"): 2, ("usage_limit_reached", "off"): 1, ("invalid_arguments", "off"): 1}
    assert calls(samples, "off") == {("tool_disabled", "off"): 1}
    assert value(samples, "toolcrib_retries_total", tool="flaky") == 2
    assert value(samples, "toolcrib_retries_total", tool="down") == 0
    assert value(samples, "toolcrib_call_duration_seconds_count", tool="limited") == 2, "refused calls have no duration"
    assert value(samples, "toolcrib_cache_entries") == 2 and value(samples, "toolcrib_cache_bytes") > 0
    assert value(samples, "toolcrib_http_requests_total", route="/tools/{name}/invoke", status="429") == 1
    assert sum(sample.value for sample in samples["toolcrib_calls_total"]) == len(crib.all_rows())


def test_parallel_calls_are_all_counted(start):
    crib = start({"defaults": {"concurrency": {"max": 64, "queue": 512, "wait": "20s"}},
                  "tools": {"calculator": {"kind": "native", "cache": {"ttl": "1h"}}}})

    def work(_):
        session = crib.session()
        for _ in range(50):
            ok(session.invoke("calculator", {"expression": "6*7"}))
        session.close()

    parallel(16, work)
    samples, _ = scrape(crib)
    counts = calls(samples, "calculator")
    assert sum(counts.values()) == 800 and set(counts) <= {("ok", "hit"), ("ok", "miss"), ("ok", "joined")}, counts
    assert counts[("ok", "miss")] == 1
    assert value(samples, "toolcrib_call_duration_seconds_count", tool="calculator") == 800
    assert value(samples, "toolcrib_log_dropped_total") == 0


def test_unknown_names_never_become_labels(start):
    """A thousand unknown tools, routes, runs and callers' keys create no series."""
    crib = start({"tools": {"t": sh("echo t", effect="read")}})
    ok(crib.invoke("t"))
    for path in ("/tools/nobody/invoke", "/nowhere"):
        crib.post(path, '{"arguments": {}}', headers={"content-type": "application/json"})
    before = scrape(crib)[0]
    before = scrape(crib)[0]  # now the series of /metrics itself is there
    session = crib.session()
    for n in range(1000):
        assert session.invoke(f"made-up-{n}", run_id=f"made-up-{n}").status == 404
    for n in range(20):
        crib.get(f"/made-up-{n}", headers={"x-request-id": f"made-up-{n}", "x-api-key": f"made-up-{n}"})
    session.close()
    after = scrape(crib)[0]
    series = lambda samples: {(name, tuple(sorted(s.labels.items()))) for name, those in samples.items() for s in those}  # noqa: E731
    assert series(after) == series(before)
    assert value(after, "toolcrib_http_requests_total", route="/tools/{name}/invoke", status="404") == 1001
    assert value(after, "toolcrib_http_requests_total", route="none", status="404") == 21


def test_metrics_answer_under_overload(start, upstream):
    """A full concurrency and a full queue neither block /metrics nor falsify it."""
    crib = start({"server": {"max_in_flight": 1, "drain": "1s"}, "tools": {
        "slow": web(upstream.base + "/hang", effect="read", timeout="20s", on_disconnect="cancel",
                    concurrency={"max": 1, "queue": 1, "wait": "10s"})}})
    hanging = [in_background(lambda: crib.invoke("slow", {"n": n})) for n in range(2)]
    poll(lambda: (lambda s: value(s, "toolcrib_in_flight", tool="slow") == 1 and value(s, "toolcrib_queued", tool="slow") == 1)(
        scrape(crib)[0]), what="one call in flight and one queued")
    for _ in range(20):
        problem(crib.invoke("slow"), 503, "overloaded")
        samples, _ = scrape(crib)
    assert calls(samples, "slow") == {("overloaded", "off"): 20}
    poll(lambda: value(scrape(crib)[0], "toolcrib_open_calls") == 2, what="nothing open but the two, once the rows are written")
    crib.stop()
    assert [result().status for result in hanging]


def test_full_disk_is_visible(start, tmpfs):
    """A ledger that cannot write is reported as unavailable, its failed commits are counted, and refused calls have that outcome."""
    disk = tmpfs("16m")
    crib = start({"tools": {"t": sh("echo t", effect="write", parameters=params(text="string"))}}, ledger=disk / "toolcrib.db")
    ok(crib.invoke("t", {"text": "x"}))
    filler = fill_disk(disk)
    poll(lambda: crib.invoke("t", {"text": "x" * 4000}).status == 503, 30, "a call refused for the full disk")
    problem(crib.invoke("t", {"text": "x" * 4000}), 503, "ledger_unavailable")
    samples, _ = scrape(crib)
    assert value(samples, "toolcrib_ledger_up") == 0 and value(samples, "toolcrib_ledger_commits_total", outcome="failed") >= 1
    assert calls(samples, "t")[("ledger_unavailable", "off")] >= 1
    filler.unlink()
    poll(lambda: value(scrape(crib)[0], "toolcrib_ledger_up") == 1, what="the ledger up again")
    ok(crib.invoke("t", {"text": "x"}))


@pytest.mark.parametrize("key, status", [(None, 401), ("ANN", 403), ("ROOT", 200), ("SCRAPE", 200)])
def test_metrics_need_a_key_that_may_read_them(start, key, status):
    """An admin's, or as docs/operate/metrics.md advises: one that reads metrics and runs nothing."""
    keys = {**KEYS, "SCRAPE": "scrape-key-0123456789"}
    scraper = {"name": "prometheus", "key": "${env:SCRAPE}", "metrics": True, "allow": []}
    crib = start({"callers": [*CALLERS, scraper], "tools": {"t": sh("echo t", effect="read", parameters=params(a="string"))}}, env=keys)
    problem(crib.invoke("t", {"a": "x"}, key=keys["SCRAPE"]), 403, "forbidden")
    problem(crib.post("/tools/t/disable", key=keys["SCRAPE"]), 403, "forbidden")
    reply = crib.get("/metrics", key=key and keys[key])
    assert reply.status == status, reply
    for probe in ("/livez", "/readyz"):
        assert crib.get(probe).status == 200
    if status == 200:
        assert b"ann" not in reply.body and b"prometheus" not in reply.body, "callers are no labels"
        samples, _ = scrape(crib, keys[key])
        assert calls(samples, "t") == {("forbidden", "off"): 1}
        assert value(samples, "toolcrib_http_requests_total", route="/livez", status="200") == 1
    else:
        problem(reply, status)
