"""The cache: opt-in, keyed by tool and canonical arguments (and caller unless shared), one flight, and it survives a restart."""

import pytest

from harness import later, ok, parallel, poll, problem, said_no
from recipes import CALLERS, KEYS, params, sh, to_yaml, web
from upstream import says

ANY = {"type": "object"}


def cached(up, path="/counter", **policy):
    """A read whose answer is the number of times it really ran."""
    return web(up.base + path, effect="read", **dict({"cache": {"ttl": "5m"}, "input_schema": ANY}, **policy))


def call(crib, arguments=None, tool="x", **top_level):
    """(meta.cache, the number)"""
    answer = ok(crib.invoke(tool, arguments or {}, **top_level))
    return answer["meta"]["cache"], answer["structured_content"]["number"]


def test_miss_then_hit(start, up):
    crib = start({"tools": {"x": cached(up), "plain": web(up.base + "/counter", effect="read")}})
    assert call(crib, {"city": "Oslo"}) == ("miss", 1)
    assert call(crib, {"city": "Oslo"}) == ("hit", 1)
    assert call(crib, {"city": "Bergen"}) == ("miss", 2)
    assert call(crib, {}, "plain") == ("off", 3), "no cache unless the manifest says so"


def test_a_hit_is_a_call_of_its_own(start, up):
    """Its own invocation id, its own tool_use_id, its own row."""
    crib = start({"tools": {"x": cached(up)}})
    first = ok(crib.invoke("x", {"a": 1}, tool_use_id="t1"))
    second = ok(crib.invoke("x", {"a": 1}, tool_use_id="t2"))
    assert second["meta"]["cache"] == "hit" and second["tool_use_id"] == "t2"
    assert first["invocation_id"] != second["invocation_id"]
    assert crib.row(second["invocation_id"])["cache"] == "hit"
    usage = poll(lambda: next((one for one in crib.get("/usage").json["tools"] if one["tool"] == "x" and one["calls"] == 2), None), what="usage")
    assert usage["cache_hits"] == 1


def test_modes(start, up):
    """bypass goes past the cache, refresh runs and stores anew, use is the default."""
    crib = start({"tools": {"x": cached(up)}})
    assert call(crib, cache="use") == ("miss", 1)
    assert call(crib, cache="bypass") == ("bypass", 2)
    assert call(crib) == ("hit", 1), "a bypass stores nothing over what is there"
    assert call(crib, cache="refresh") == ("refresh", 3)
    assert call(crib) == ("hit", 3)


def test_key_order_is_irrelevant(start, up):
    crib = start({"tools": {"x": cached(up)}})
    assert call(crib, {"a": 1, "b": {"c": 2, "d": 3}}) == ("miss", 1)
    assert call(crib, {"b": {"d": 3, "c": 2}, "a": 1}) == ("hit", 1)
    assert call(crib, '{ "b": {"d": 3, "c": 2}, "a": 1 }') == ("hit", 1)


@pytest.mark.parametrize("one, other", [
    (2 ** 53, 2 ** 53 + 1), (1, "1"), (1, True), (None, 0), ([1, 2], [2, 1]), ({"b": None}, {}), ("é", "e\u0301"), ("a", "A"), (0.1, 0.10000000000000002)])
def test_different_arguments_are_different_keys(start, up, one, other):
    """Numbers are exact beyond 2^53, types matter, no text is normalised."""
    crib = start({"tools": {"x": cached(up)}})
    assert call(crib, {"a": one}) == ("miss", 1)
    assert call(crib, {"a": other}) == ("miss", 2)
    assert call(crib, {"a": one}) == ("hit", 1)


def test_defaults_and_coercions_come_before_the_key(start, up):
    """The arguments that the tool would be given are the key: said, defaulted or coerced."""
    crib = start({"tools": {"x": web(up.base + "/counter", effect="read", cache={"ttl": "5m"}, parameters=params(
        n={"type": "integer", "default": 3}))}})
    assert call(crib, {}) == ("miss", 1)
    assert call(crib, {"n": 3}) == ("hit", 1)
    assert call(crib, {"n": "3"}) == ("hit", 1)


def test_scope_caller_is_the_default(start, up):
    crib = start({"callers": CALLERS, "tools": {"x": cached(up), "s": cached(up, cache={"ttl": "5m", "scope": "shared"})}}, env=KEYS)
    assert call(crib, key=KEYS["ANN"]) == ("miss", 1)
    assert call(crib, key=KEYS["BOB"]) == ("miss", 2)
    assert call(crib, key=KEYS["ANN"]) == ("hit", 1)
    assert call(crib, tool="s", key=KEYS["ANN"]) == ("miss", 3)
    assert call(crib, tool="s", key=KEYS["BOB"]) == ("hit", 3)


def test_context_fields_that_are_named_are_part_of_the_key(start, up):
    crib = start({"tools": {"x": cached(up, cache={"ttl": "5m", "context": ["tenant"]})}})
    assert call(crib, context={"tenant": "a", "trace": "1"}) == ("miss", 1)
    assert call(crib, context={"tenant": "b", "trace": "1"}) == ("miss", 2)
    assert call(crib, context={"tenant": "a", "trace": "2"}) == ("hit", 1)


def test_survives_a_restart(start, up):
    """Read through to the ledger, with what is left of its time; also after kill -9 once the row is there."""
    crib = start({"tools": {"x": cached(up)}})
    assert call(crib, {"a": 1}) == ("miss", 1)
    crib.restart()
    assert call(crib, {"a": 1}) == ("hit", 1)
    crib.kill9()
    crib.start()
    assert call(crib, {"a": 1}) == ("hit", 1)


def test_a_changed_definition_is_another_key(start, up, tmp_path):
    """What an older definition answered is not what the new one says."""
    crib = start({"tools": {"x": cached(up)}})
    assert call(crib) == ("miss", 1)
    crib.stop()
    text = crib.manifest.read_text()
    crib.manifest.write_text(text.replace("An upstream for the tests", "Another upstream for the tests"))
    crib.start()
    assert call(crib) == ("miss", 2)


def test_ttl(start, up):
    crib = start({"tools": {"x": cached(up, cache={"ttl": "1s"})}})
    assert call(crib) == ("miss", 1)
    poll(lambda: call(crib) == ("miss", 2), 5, "a miss after a second")


def test_single_flight(start, up):
    """Twenty equal calls at once run the tool once; who came later joined, or hit what was stored."""
    crib = start({"tools": {"x": cached(up, "/wait")}})
    got = parallel(20, lambda index: call(crib, {"a": 1}))
    assert up.hits() == 1 and {number for _, number in got} == {1}
    kinds = [kind for kind, _ in got]
    assert kinds.count("miss") == 1 and set(kinds) <= {"miss", "joined", "hit"} and "joined" in kinds, kinds


def test_a_flight_is_per_caller(start, up):
    """Unless shared, nobody joins another caller's flight."""
    crib = start({"callers": CALLERS, "tools": {"x": cached(up, "/wait")}}, env=KEYS)
    parallel(8, lambda index: call(crib, key=KEYS["ANN" if index % 2 else "BOB"]))
    assert up.hits() == 2


def test_a_leader_that_leaves_does_not_fail_the_joined(start, up):
    """The first caller's short time is its own: the joined still get an answer."""
    crib = start({"tools": {"x": cached(up, "/wait")}})
    leader = later(lambda: crib.invoke("x", {}, timeout="100ms"))
    poll(lambda: up.hits() == 1, 5, "the flight")
    joined = later(lambda: crib.invoke("x", {}))
    assert leader().status in (200, 504)
    ok(joined())


def test_errors_are_not_cached(start, up):
    """Neither failures nor a tool's no are stored."""
    up.script("/x", 503, 404, says({"number": 3}))
    crib = start({"tools": {"x": cached(up, "/x")}})
    problem(crib.invoke("x"), 502, "upstream_failed")
    said_no(crib.invoke("x"))
    assert call(crib) == ("miss", 3)
    assert call(crib) == ("hit", 3)


def test_purge_of_a_tool_and_of_all(start, up):
    """A purge holds for the stored result behind the cache too, also over a restart."""
    crib = start({"tools": {"x": cached(up, "/counter"), "y": cached(up, "/counter")}})
    assert (call(crib, tool="x"), call(crib, tool="y")) == (("miss", 1), ("miss", 2))
    assert crib.delete("/tools/x/cache").status in (200, 204)
    assert (call(crib, tool="x"), call(crib, tool="y")) == (("miss", 3), ("hit", 2))
    assert crib.delete("/cache").status in (200, 204)
    crib.restart()
    assert (call(crib, tool="x"), call(crib, tool="y")) == (("miss", 4), ("miss", 5))
    problem(crib.delete("/tools/none/cache"), 404, "unknown_tool")


def test_only_a_read_is_cached(start, tmp_path):
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


def test_images_and_text_come_back_as_they_were(start, up):
    crib = start({"tools": {"png": cached(up, "/png"), "text": cached(up, "/text")}})
    for tool in ("png", "text"):
        first = ok(crib.invoke(tool))
        crib.restart()
        second = ok(crib.invoke(tool))
        assert second["meta"]["cache"] == "hit" and second["content"] == first["content"]


def test_when(start, up):
    """cache.when: only results for which the expression holds are stored; seen in the policy; another expression begins anew."""
    up.script("/x", says({"number": 1}), says({"number": 2, "temperature": 0}), says({"number": 3, "temperature": 5}), says({"number": 4, "temperature": 9}))
    when = "result.temperature is defined"
    manifest = {"tools": {"x": cached(up, "/x", cache={"ttl": "5m", "when": when})}}
    crib = start(manifest)
    assert crib.get("/tools/x").json["policy"]["cache"]["when"] == when
    assert call(crib) == ("miss", 1)
    assert call(crib) == ("miss", 2)
    assert call(crib) == ("hit", 2)
    crib.restart()
    assert call(crib) == ("hit", 2), "the same expression, the same results"
    crib.stop()
    manifest["tools"]["x"]["cache"]["when"] = "result.temperature > 0 and args.n != 7"
    crib.manifest.write_text(to_yaml(manifest))
    crib.start()
    assert call(crib) == ("miss", 3), "what another expression let in is not served"
    assert call(crib) == ("hit", 3)
    assert call(crib, {"n": 7}) == ("miss", 4)


def test_a_when_that_fails_keeps_nothing_and_harms_no_call(start, up):
    crib = start({"tools": {"x": cached(up, cache={"ttl": "5m", "when": "result|abs > 1"})}})
    assert [call(crib)[0] for _ in range(3)] == ["miss"] * 3
    poll(lambda: "cache.when failed" in crib.stderr, what="a warning")
    assert crib.stderr.count("cache.when failed") == 1, "told once"
