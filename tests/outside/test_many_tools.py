"""Lists that shorten themselves: what callers find, keep and never see, also after a new manifest and with many sessions at once."""

import json
import signal

import pytest

from harness import cli, ok, parallel, poll, problem, text_of
from recipes import KEYS, command, params, to_yaml

FINDERS = ["call_tool", "search_tools"]
CALLERS = [{"name": "ann", "key": "${env:ANN}"}, {"name": "bob", "key": "${env:BOB}", "deny": ["vault_*"]}, {"name": "root", "key": "${env:ROOT}", "admin": True}]
COLORS = [f"{tone}{color}" for tone in ("dark", "light", "pale") for color in ("red", "green", "blue", "gray", "brown", "violet", "orange", "pink")]


def manifest(**more):
    paint = {f"paint_{color}": command(["/bin/echo", color], effect="read", description=f"Paints a wall {color}.") for color in COLORS}
    vault = {"vault_open": command(["/bin/echo", "open"], effect="read", description="Opens the vault of the bank.")}
    nested = {"area": command(["/bin/echo", "area"], effect="read", description="Measures.", parameters=params(
        squareMeters="integer", room={"type": "object", "properties": {"ceilingHeight": {"type": "number", "description": "In meters"}}}))}
    return {"tools": {**paint, **vault, **nested, **more}, "callers": CALLERS, "discovery": {"above": "10 tools"}}


@pytest.fixture
def crib(start):
    return start(manifest(), env=KEYS)


def listed(crib, query="", key=KEYS["ANN"]):
    return [tool["name"] for tool in crib.get(f"/tools?{query}", key=key).json["tools"]]


def found(crib, query, key=KEYS["ANN"], run=None, limit=5):
    answer = ok(crib.invoke("search_tools", {"query": query, "limit": limit}, key=key, **({"run_id": run} if run else {})))
    return [tool["name"] for tool in answer["structured_content"]["tools"]]


def called(crib, name, key):
    answer = crib.invoke("call_tool", {"name": name}, key=key).json
    return answer["is_error"], text_of(answer).strip()


class McpSession:
    def __init__(self, crib, key):
        self.crib, self.key, self.id = crib, key, None
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.ask("initialize", client)
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25", **({"mcp-session-id": self.id} if self.id else {})}
        reply = self.crib.post("/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers=headers, key=self.key)
        self.id = self.id or reply.headers["mcp-session-id"]
        return reply

    def ask(self, method, params):
        body = self.send({"id": 1, "method": method, "params": params}).body.decode()
        lines = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:")]
        return json.loads(([line for line in lines if line.strip()] or [body])[-1])["result"]

    def names(self):
        return [tool["name"] for tool in self.ask("tools/list", {})["tools"]]

    def call(self, name, **arguments):
        return self.ask("tools/call", {"name": name, "arguments": arguments})


def test_denied_tool_does_not_appear(crib):
    bob = KEYS["BOB"]
    assert found(crib, "open the vault") == ["vault_open"] and called(crib, "vault_open", KEYS["ANN"]) == (False, "open")
    assert found(crib, "open the vault", key=bob) == [] and listed(crib, "query=vault", key=bob) == []
    assert listed(crib, "discovery=off", key=bob) == sorted({*listed(crib, "discovery=off")} - {"vault_open"})
    assert called(crib, "vault_open", bob) == (True, "You are not allowed to use `vault_open`. Try another tool.")
    for near in ("vault_opn", "vault", "Vault-Open"):
        is_error, text = called(crib, near, bob)
        assert is_error and text == f"There is no tool `{near}`. Search for it."
    # Found by another caller in a run of the same name.
    assert found(crib, "vault", run="r-1") == ["vault_open"]
    assert listed(crib, "run_id=r-1", key=bob) == FINDERS


def test_queries_of_any_kind_are_answered(crib):
    assert found(crib, "paintDarkred")[0] == "paint_darkred" and found(crib, "painting walls")[0].startswith("paint_")
    assert found(crib, "square meter") == ["area"], "only a parameter has these words"
    assert found(crib, "ceiling") == ["area"], "a parameter within a parameter"
    assert found(crib, "paint a wal palegren", limit=1) == ["paint_palegreen"], "two words are misspelt"
    for nothing in ("", "  ", "the of", "\u0000", "\U0001f389", "塗る", "x" * 5000):
        answer = ok(crib.invoke("search_tools", {"query": nothing}, key=KEYS["ANN"]))["structured_content"]
        assert answer["tools"] == [] and answer["hint"].startswith("No tool matches."), answer
    assert found(crib, "vault " + "nonsense " * 1200)[0] == "vault_open", "10 KB"


def test_new_manifest_changes_what_is_found(crib):
    assert found(crib, "darkred darkblue vault", run="r-1")
    before = listed(crib, "run_id=r-1")
    assert {"paint_darkred", "paint_darkblue", "vault_open"} <= {*before}
    session = McpSession(crib, KEYS["ANN"])
    session.call("search_tools", query="vault", limit=1)
    changed = manifest(paint_gold=command(["/bin/echo", "gold"], effect="read", description="Paints a wall gold."))
    del changed["tools"]["paint_darkred"]
    changed["callers"] = [{**CALLERS[0], "deny": ["vault_*"]}, *CALLERS[1:]]
    crib.manifest.write_text(to_yaml(changed), encoding="utf-8")
    crib.process.send_signal(signal.SIGHUP)
    poll(lambda: crib.get("/readyz").json["reloads"]["taken"] == 1, 8, "the new manifest")
    assert listed(crib, "run_id=r-1") == [name for name in before if name not in ("paint_darkred", "vault_open")]
    assert session.names() == FINDERS
    assert found(crib, "gold") == ["paint_gold"] and found(crib, "vault") == []
    assert called(crib, "vault_open", KEYS["ANN"])[0] and problem(crib.invoke("vault_open", key=KEYS["ANN"]), 403, "forbidden")


def test_sessions_find_side_by_side(crib):
    def session(number):
        color = COLORS[number]
        mcp = McpSession(crib, KEYS["ANN" if number % 2 else "BOB"])
        assert mcp.names() == FINDERS
        mcp.call("search_tools", query=f"paint {color}", limit=1)
        assert mcp.names() == sorted([*FINDERS, f"paint_{color}"])
        assert mcp.call(f"paint_{color}")["content"][0]["text"].strip() == color
        mcp.call("search_tools", query="open the vault")
        return "vault_open" in mcp.names()

    assert parallel(8, session) == [False, True] * 4


def test_check_names_entries_that_match_no_tool(tmp_path):
    operation = {"operationId": "orders_get", "summary": "Shows orders.", "tags": ["shop"], "responses": {"200": {"description": "Them."}}}
    document = {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "https://shop.example"}],
                "paths": {"/orders": {"get": operation}}}
    (tmp_path / "shop.json").write_text(json.dumps(document))
    shop = {"openapi": {"shop": {"document": "./shop.json"}}, "callers": [{"name": "ann", "key_sha256": "ab" * 32, "deny": ["search_tools"]}],
            "discovery": {"keep": ["orders_*", "order_*"]},
            "toolsets": {"shop": {"tools": ["ordrs_get"], "tags": ["shop"]}, "empty": {"tools": ["shop_*"], "tags": ["shp"]}}}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(shop))
    rules = lambda *args: {found["path"]: found["message"] for found in json.loads(cli("check", "--format", "json", *args, cwd=tmp_path).stdout)["findings"]
                           if found["rule"] == "idle-pattern"}
    assert list(rules()) == ["toolsets.shop.tools.0"], "patterns and tags of sources are not known yet"
    live = rules("--live")
    assert {*live} == {"discovery.keep.1", "toolsets.shop.tools.0", "toolsets.empty.tools.0", "toolsets.empty.tags.0"}, live
    assert "keeps nothing in the lists; did you mean orders_get?" in live["discovery.keep.1"]
    assert "`shp` is a tag of no tool" in live["toolsets.empty.tags.0"] and "did you mean shop?" in live["toolsets.empty.tags.0"]
