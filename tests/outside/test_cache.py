"""The cache: opt-in, keyed by tool and canonical arguments (and caller unless shared), one flight, and it survives a restart."""

import pytest

from harness import ok, parallel, poll, problem, error_result
from recipes import CALLERS, KEYS, params, sh, to_yaml, web
from upstream import reply_with

ANY = {"type": "object"}


def cached_tool(upstream, path="/counter", **policy):
    """A read whose answer is the number of its runs."""
    return web(upstream.base + path, effect="read", **dict({"cache": {"ttl": "5m"}, "input_schema": ANY}, **policy))


def invoke_cached(crib, arguments=None, tool="x", **top_level):
    """(meta.cache, the number)"""
    answer = ok(crib.invoke(tool, arguments or {}, **top_level))
    return answer["meta"]["cache"], answer["structured_content"]["number"]


def test_miss_then_hit(start, upstream):
    crib = start({"tools": {"x": cached_tool(upstream), "plain": web(upstream.base + "/counter", effect="read")}})
    assert invoke_cached(crib, {"city": "Oslo"}) == ("miss", 1)
    assert invoke_cached(crib, {"city": "Oslo"}) == ("hit", 1)
    assert invoke_cached(crib, {"city": "Bergen"}) == ("miss", 2)
    assert invoke_cached(crib, {}, "plain") == ("off", 3), "no cache unless the manifest says so"


def test_approved_call_runs(start, upstream):
    """A stored result that another caller may read answers no call that a person has approved."""
    crib = start({"callers": CALLERS, "tools": {"x": cached_tool(upstream, cache={"ttl": "1h", "scope": "shared"}, approval={
        "when": "caller == 'bob'", "wait": "50ms"})}}, env=KEYS)
    assert invoke_cached(crib, key=KEYS["ANN"]) == ("miss", 1)
    assert invoke_cached(crib, key=KEYS["ANN"]) == ("hit", 1)
    waiting = crib.invoke("x", {}, key=KEYS["BOB"])
    assert waiting.status == 202, waiting
    call = f"/invocations/{waiting.json['invocation_id']}"
    assert crib.post(f"{call}/approve", key=KEYS["ROOT"]).status == 200
    row = poll(lambda: (shown := crib.get(call, key=KEYS["BOB"]).json)["state"] == "succeeded" and shown, what="the call has run")
    assert (row["cache"], row["result"]["structured_content"]["number"]) == ("refresh", 2)
    assert invoke_cached(crib, key=KEYS["ANN"]) == ("hit", 2)


def test_hit_is_call_with_own_row(start, upstream):
    """Its own invocation id, its own tool_use_id, its own row."""
    crib = start({"tools": {"x": cached_tool(upstream)}})
    first = ok(crib.invoke("x", {"a": 1}, tool_use_id="t1"))
    second = ok(crib.invoke("x", {"a": 1}, tool_use_id="t2"))
    assert second["meta"]["cache"] == "hit" and second["tool_use_id"] == "t2"
    assert first["invocation_id"] != second["invocation_id"]
    row = crib.row(second["invocation_id"])
    assert (row["cache"], row["attempts"], row["result"]["content"]) == ("hit", 0, first["content"])
    assert row["result"]["invocation_id"] == second["invocation_id"]
    usage = poll(lambda: next((one for one in crib.get("/usage").json["tools"] if one["tool"] == "x" and one["calls"] == 2), None), what="usage")
    assert usage["cache_hits"] == 1


def test_cache_modes_bypass_and_refresh(start, upstream):
    """bypass goes past the cache, refresh runs and stores anew, use is the default."""
    crib = start({"tools": {"x": cached_tool(upstream)}})
    assert invoke_cached(crib, cache="use") == ("miss", 1)
    assert invoke_cached(crib, cache="bypass") == ("bypass", 2)
    assert invoke_cached(crib) == ("hit", 1), "a bypass stores nothing over what is there"
    assert invoke_cached(crib, cache="refresh") == ("refresh", 3)
    assert invoke_cached(crib) == ("hit", 3)


def test_key_order_is_irrelevant(start, upstream):
    crib = start({"tools": {"x": cached_tool(upstream)}})
    assert invoke_cached(crib, {"a": 1, "b": {"c": 2, "d": 3}}) == ("miss", 1)
    assert invoke_cached(crib, {"b": {"d": 3, "c": 2}, "a": 1}) == ("hit", 1)
    assert invoke_cached(crib, '{ "b": {"d": 3, "c": 2}, "a": 1 }') == ("hit", 1)


@pytest.mark.parametrize("one, other", [
    (2 ** 53, 2 ** 53 + 1), (1, "1"), (1, True), (None, 0), ([1, 2], [2, 1]), ({"b": None}, {}), ("é", "e\u0301"), ("a", "A"), (0.1, 0.10000000000000002)])
def test_different_arguments_are_different_keys(start, upstream, one, other):
    """Numbers are exact beyond 2^53, types matter, no text is normalised."""
    crib = start({"tools": {"x": cached_tool(upstream)}})
    assert invoke_cached(crib, {"a": one}) == ("miss", 1)
    assert invoke_cached(crib, {"a": other}) == ("miss", 2)
    assert invoke_cached(crib, {"a": one}) == ("hit", 1)


def test_defaults_and_coercions_precede_the_key(start, upstream):
    """The arguments after defaults and coercions are the key."""
    crib = start({"tools": {"x": web(upstream.base + "/counter", effect="read", cache={"ttl": "5m"}, parameters=params(
        n={"type": "integer", "default": 3}))}})
    assert invoke_cached(crib, {}) == ("miss", 1)
    assert invoke_cached(crib, {"n": 3}) == ("hit", 1)
    assert invoke_cached(crib, {"n": "3"}) == ("hit", 1)


def test_scope_caller_is_the_default(start, upstream):
    crib = start({"callers": CALLERS, "tools": {"x": cached_tool(upstream), "s": cached_tool(upstream, cache={"ttl": "5m", "scope": "shared"})}}, env=KEYS)
    assert invoke_cached(crib, key=KEYS["ANN"]) == ("miss", 1)
    assert invoke_cached(crib, key=KEYS["BOB"]) == ("miss", 2)
    assert invoke_cached(crib, key=KEYS["ANN"]) == ("hit", 1)
    assert invoke_cached(crib, tool="s", key=KEYS["ANN"]) == ("miss", 3)
    assert invoke_cached(crib, tool="s", key=KEYS["BOB"]) == ("hit", 3)


def test_stored_results_survive_a_restart(start, upstream):
    """Results are read from the ledger with their remaining time; also after kill -9 once the row is written."""
    crib = start({"tools": {"x": cached_tool(upstream)}})
    assert invoke_cached(crib, {"a": 1}) == ("miss", 1)
    crib.restart()
    assert invoke_cached(crib, {"a": 1}) == ("hit", 1)
    crib.kill9()
    crib.start()
    assert invoke_cached(crib, {"a": 1}) == ("hit", 1)


def test_changed_definition_changes_the_key(start, upstream, tmp_path):
    """A new definition does not serve the answers of an older one."""
    crib = start({"tools": {"x": cached_tool(upstream)}})
    assert invoke_cached(crib) == ("miss", 1)
    crib.stop()
    text = crib.manifest.read_text()
    crib.manifest.write_text(text.replace("An upstream for the tests", "Another upstream for the tests"))
    crib.start()
    assert invoke_cached(crib) == ("miss", 2)


def test_single_flight_runs_the_tool_once(start, upstream):
    """Twenty equal calls at once run the tool once; later ones join it or hit the stored result."""
    crib = start({"tools": {"x": cached_tool(upstream, "/wait")}})
    got = parallel(20, lambda index: invoke_cached(crib, {"a": 1}))
    assert upstream.hits() == 1 and {number for _, number in got} == {1}
    kinds = [kind for kind, _ in got]
    assert kinds.count("miss") == 1 and set(kinds) <= {"miss", "joined", "hit"} and "joined" in kinds, kinds


def test_single_flight_is_per_caller(start, upstream):
    """Unless shared, a caller never joins another caller's flight."""
    crib = start({"callers": CALLERS, "tools": {"x": cached_tool(upstream, "/wait")}}, env=KEYS)
    parallel(8, lambda index: invoke_cached(crib, key=KEYS["ANN" if index % 2 else "BOB"]))
    assert upstream.hits() == 2


def test_errors_are_not_cached(start, upstream):
    """Neither failures nor error results are stored."""
    upstream.script("/x", 503, 404, reply_with({"number": 3}))
    crib = start({"tools": {"x": cached_tool(upstream, "/x", limits=[{"calls": 3, "per": "lifetime"}])}})
    problem(crib.invoke("x"), 502, "upstream_failed")
    assert error_result(crib.invoke("x"))["meta"]["cache"] == "miss"
    assert invoke_cached(crib) == ("miss", 3)
    problem(crib.invoke("x", {"n": 1}), 429, "usage_limit_reached")
    assert invoke_cached(crib) == ("hit", 3), "a hit costs nothing"


def test_purge_of_one_tool_and_of_all(start, upstream):
    """A purge holds for the stored result behind the cache too, also over a restart."""
    crib = start({"tools": {"x": cached_tool(upstream, "/counter"), "y": cached_tool(upstream, "/counter")}})
    assert (invoke_cached(crib, tool="x"), invoke_cached(crib, tool="y")) == (("miss", 1), ("miss", 2))
    assert crib.delete("/tools/x/cache").status in (200, 204)
    assert (invoke_cached(crib, tool="x"), invoke_cached(crib, tool="y")) == (("miss", 3), ("hit", 2))
    assert crib.delete("/cache").status in (200, 204)
    crib.restart()
    assert (invoke_cached(crib, tool="x"), invoke_cached(crib, tool="y")) == (("miss", 4), ("miss", 5))
    problem(crib.delete("/tools/none/cache"), 404, "unknown_tool")


def test_only_reads_are_cached(start, tmp_path):
    """A write with a cache cannot be: the manifest is refused, or the policy is idle and the tool runs each time."""
    from harness import cli, lines_in, to_yaml
    ran = tmp_path / "ran"
    manifest = {"tools": {"w": sh(f"echo ran >> {ran}", effect="write", cache={"ttl": "5m"})}}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
    checked = cli("check", "--manifest", tmp_path / "toolcrib.yaml", cwd=tmp_path)
    assert checked.returncode in (0, 64) and "cache" in checked.stdout + checked.stderr, checked
    if checked.returncode == 0:
        crib = start(manifest)
        for _ in range(2):
            assert ok(crib.invoke("w"))["meta"]["cache"] == "off"
        assert lines_in(ran) == 2


def test_images_and_text_are_restored_unchanged(start, upstream):
    crib = start({"tools": {"png": cached_tool(upstream, "/png"), "text": cached_tool(upstream, "/text")}})
    for tool in ("png", "text"):
        first = ok(crib.invoke(tool))
        crib.restart()
        second = ok(crib.invoke(tool))
        assert second["meta"]["cache"] == "hit" and second["content"] == first["content"]


def test_when_decides_what_is_stored(start, upstream):
    """cache.when: only results for which the expression holds are stored; the policy shows it; another expression starts anew."""
    upstream.script("/x", reply_with({"number": 1}), reply_with({"number": 2, "temperature": 0}), reply_with({"number": 3, "temperature": 5}), reply_with({"number": 4, "temperature": 9}))
    when = "result.temperature is defined"
    manifest = {"tools": {"x": cached_tool(upstream, "/x", cache={"ttl": "5m", "when": when})}}
    crib = start(manifest)
    assert crib.get("/tools/x").json["policy"]["cache"]["when"] == when
    assert invoke_cached(crib) == ("miss", 1)
    assert invoke_cached(crib) == ("miss", 2)
    assert invoke_cached(crib) == ("hit", 2)
    crib.restart()
    assert invoke_cached(crib) == ("hit", 2), "the same expression, the same results"
    crib.stop()
    manifest["tools"]["x"]["cache"]["when"] = "result.temperature > 0 and args.n != 7"
    crib.manifest.write_text(to_yaml(manifest))
    crib.start()
    assert invoke_cached(crib) == ("miss", 3), "what another expression let in is not served"
    assert invoke_cached(crib) == ("hit", 3)
    assert invoke_cached(crib, {"n": 7}) == ("miss", 4)


def test_failing_when_only_skips_storing(start, upstream):
    crib = start({"tools": {"x": cached_tool(upstream, cache={"ttl": "5m", "when": "result|abs > 1"})}})
    assert [invoke_cached(crib)[0] for _ in range(3)] == ["miss"] * 3
    poll(lambda: "cache.when failed" in crib.stderr, what="a warning")
    assert crib.stderr.count("cache.when failed") == 1, "told once"
