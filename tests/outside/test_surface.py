"""The reading side: health, OpenAPI, docs, the listing with its ETag, one tool, usage."""

import re

import pytest

from harness import ok, poll, problem
from recipes import params, sh


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared({"tools": {
        "calculator": {"kind": "native"},
        "tagged": sh("echo t", effect="read", tags=["demo"], annotations={"title": "T"}, parameters=params(a="string")),
        "limited": sh("echo l", effect="write", limits=[{"calls": 10, "per": "day", "scope": "caller"}]),
        "counted": sh("echo c", effect="read", parameters=params(a="integer")), "sad": sh("exit 1", effect="read")}})


def test_openapi_document_has_every_route(crib):
    """An OpenAPI 3.1 document in JSON, with the routes of the contract and operations that can be told apart."""
    reply = crib.get("/openapi.json")
    assert reply.status == 200 and "json" in reply.headers["content-type"]
    document = reply.json
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"]) and document["info"]["title"]
    for path, method in (("/tools", "get"), ("/tools/{name}", "get"), ("/tools/{name}/invoke", "post"), ("/tools/{name}/validate", "post"),
                         ("/invocations", "get"), ("/usage", "get"), ("/livez", "get"), ("/readyz", "get"), ("/cache", "delete")):
        assert method in document["paths"].get(path, {}), (method, path)
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
           if isinstance(operation, dict) and "operationId" in operation]
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'"\$ref": ?"(#[^"]+)"', reply.body.decode()))
    for target in targets:
        node = document
        for part in target[2:].split("/"):
            node = node[part.replace("~1", "/").replace("~0", "~")]


def test_docs_work_offline(crib):
    """/docs answers 200 itself, and its page asks no other host for anything."""
    reply = crib.get("/docs")
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/html"), reply
    seen, pages = set(), [("/docs", reply.body.decode())]
    while pages:
        base, text = pages.pop()
        links = re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]+)""", text) if base == "/docs" else []
        links += re.findall(r"""(?:url\(|@import\s+|fetch\(\s*)["']?([^"')\s;]+)""", text) if base.endswith(("/docs", ".css")) else []
        for link in links:
            if link.startswith(("#", "data:", "mailto:", "javascript:")):
                continue
            assert not re.match(r"(?:[a-z]+:)?//", link), f"{base} refers to {link}"
            path = link if link.startswith("/") else "/" + link.lstrip("./")
            if path not in seen and re.search(r"\.(js|css)$", path):
                seen.add(path)
                part = crib.get(path)
                assert part.status == 200, (path, part.status)
                pages.append((path, part.body.decode("utf-8", "replace")))


def test_etag_of_the_tool_list(crib):
    """GET /tools has an ETag; the same one back is a 304 without a body; a foreign one is not."""
    first = crib.get("/tools")
    tag = first.headers["etag"]
    repeated = crib.get("/tools", headers={"if-none-match": tag})
    assert repeated.status == 304 and repeated.body == b"" and repeated.headers["etag"] == tag
    assert crib.get("/tools", headers={"if-none-match": f'"x", {tag}'}).status == 304
    other = crib.get("/tools", headers={"if-none-match": '"something-else"'})
    assert other.status == 200 and other.json == first.json
    crib.post("/tools/sad/disable")
    try:
        changed = crib.get("/tools")
        assert (changed.headers["etag"] != tag) == (changed.json != first.json), "the tag changes with the listing"
    finally:
        crib.post("/tools/sad/enable")


def test_tool_list_has_its_fields(crib):
    tools = {tool["name"]: tool for tool in crib.get("/tools").json["tools"]}
    assert set(tools) == {"calculator", "tagged", "limited", "counted", "sad"}
    assert [tool["name"] for tool in crib.get("/tools?tag=demo").json["tools"]] == ["tagged"]
    assert crib.get("/tools?tag=none").json["tools"] == []
    assert tools["calculator"]["effect"] == "read" and tools["limited"]["effect"] == "write"
    problem(crib.get("/tools?format=morse"), 400, "invalid_request")


def test_tool_route_has_policy_usage_and_env(crib):
    """The listed object, and its policy, usage and env."""
    listed = {tool["name"]: tool for tool in crib.get("/tools").json["tools"]}["limited"]
    one = crib.get("/tools/limited").json
    assert {key: one[key] for key in listed} == listed
    usage = one["usage"]
    assert len(usage) == 1 and set(usage[0]) >= {"calls", "per", "scope", "used", "remaining", "resets_at"}
    assert usage[0]["used"] + usage[0]["remaining"] == usage[0]["calls"] == 10
    assert isinstance(one["policy"], dict) and one["env"] == []


def test_default_effect_is_write(start):
    crib = start({"tools": {"x": sh("echo x")}})
    assert crib.get("/tools/x").json["effect"] == "write"


def test_definition_hash_changes_with_the_description(start):
    """The same definition has the same hash in another process; another description has another."""
    def digest(words, **more):
        return start({"tools": {"x": sh("echo x", description=words, **more)}}).get("/tools/x").json["definition_hash"]

    assert digest("Says x to everyone.") != digest("Says x to everyone.", context=["tenant"])
    assert digest("Says x to everyone.") == digest("Says x to everyone.") != digest("Says y to everyone.")


def test_usage_counts_per_tool_and_caller(crib):
    """Per tool and caller: calls, outcomes, latency."""
    for number in range(3):
        ok(crib.invoke("counted", {"a": number}))
    problem(crib.invoke("counted", {}), 422)
    crib.invoke("sad")

    def counted():
        rows = {row["tool"]: row for row in crib.get("/usage").json["tools"]}
        return rows if rows.get("counted", {}).get("refused") == 1 and "sad" in rows else None

    row = poll(counted, 5, "the calls in GET /usage")["counted"]
    assert row["caller"] == "anonymous" and row["succeeded"] == 3 and row["failed"] == 0 and row["cache_hits"] == 0
    assert row["calls"] in (3, 4), "with or without the refused one: the contract leaves it open"
    assert 0 < row["p50_ms"] <= row["p99_ms"] and row["limits"] == []
