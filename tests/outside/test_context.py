"""A request's context, kind by kind: only declared fields reach their tool; and the variables that tools declare."""

import json
import sqlite3

import pytest

from harness import cli, ok, problem, text_of
from recipes import sh, web
from test_pin import call_over_mcp

MODULE = '''
import os
from toolcrib import tool

@tool(context=True)
def whole(tool_context) -> dict:
    """Shows the state."""
    return tool_context.invocation_state

@tool(context=True)
def tenant(tool_context) -> dict:
    """Shows the state."""
    return tool_context.invocation_state

@tool
def variables() -> dict:
    """Shows the environment."""
    return dict(os.environ)
'''


@pytest.fixture(scope="module")
def crib(start_shared, upstream_shared, tmp_path_factory):
    tmp_path, upstream = tmp_path_factory.mktemp("context"), upstream_shared
    (tmp_path / "m.py").write_text(MODULE)
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("create table orders (id integer, tenant text)")
        shop.executemany("insert into orders values (?, ?)", [(1, "acme"), (2, "other"), (3, "acme")])
    shop.close()
    many = {"many": {"kind": "command", "description": "Takes many fields.", "command": ["/bin/true"], "context": [f"f{n}" for n in range(30)]},
            "words": {"kind": "command", "description": "Takes many words.", "command": ["/bin/true", *(f"{{{{ f{n} }}}}" for n in range(30))],
                      "parameters": {f"f{n}": {"type": "string"} for n in range(30)}}}
    return start_shared({
        "server": {"max_body": "8MiB"},
        "tools": {
            **many,
            "placed": web(upstream.base + "/echo/{{ context.tenant }}", "POST", {
                "query": {"t": "{{ context.trace }}"}, "headers": {"x-trace": "{{ context.trace }}", "x-user": "Bearer {{ user }} {{ context.trace }}"},
                "json": {"all": ["{{ context.trace }}"]}},
                effect="read", context=["tenant", "trace"], parameters={"user": {"type": "string", "required": False}}),
            "listed": {"kind": "command", "description": "Shows the tenant.", "context": ["tenant"], "output": "text",
                       "command": ["/usr/bin/printf", "%s", "{{ context.tenant }}"]},
            "far": web(upstream.base + "/echo", "POST", {"json": {"of": "{{ context.tenant }}"}, "query": {"t": "{{ context.tenant }}"}},
                       effect="read", context=["tenant"], cache={"ttl": "1m"}),
            "shell": sh('echo "$TOOLCRIB_CONTEXT_TENANT:${TOOLCRIB_CONTEXT_USER_ID-unset}"', effect="read", context=["tenant", "user-id"]),
            "orders": {"kind": "sql", "description": "Orders of the tenant.", "context": ["tenant"],
                       "database": f"sqlite://{tmp_path / 'shop.db'}",
                       "statement": "select id from orders where tenant = :context.tenant order by id"},
            "calculator": {"kind": "native"}},
        "python_modules": {"m": {"module": str(tmp_path / "m.py"),
                                 "env": [{"name": "GIVEN"}, {"name": "UNITS", "default": "km"}, {"name": "NONE", "required": False}],
                                 "tools": {"tenant": {"context": ["tenant"]}, "variables": {"context": ["tenant"]},
                                           "whole": {"effect": "read", "cache": {"ttl": "1m"}}}}},
    }, env={"GIVEN": "given-by-the-test"}).ready(30)


def test_every_kind_gets_its_fields(crib):
    acme = {"tenant": "acme", "user": "ann"}
    assert ok(crib.invoke("far", context=acme))["structured_content"]["body"] == {"of": "acme"}
    assert text_of(ok(crib.invoke("shell", context={"tenant": "a;`id` $(id)", "user-id": 7}))).strip() == "a;`id` $(id):7"
    assert text_of(ok(crib.invoke("shell", context=acme))).strip() == "acme:unset"
    assert ok(crib.invoke("orders", context=acme))["structured_content"] == [{"id": 1}, {"id": 3}]
    assert ok(crib.invoke("orders", context={"tenant": "x' or '1'='1"}))["structured_content"] == []
    assert ok(crib.invoke("orders"))["structured_content"] == [], "NULL is nobody's"
    assert ok(crib.invoke("whole", context=acme))["structured_content"] == acme
    assert ok(crib.invoke("tenant", context=acme))["structured_content"] == {"tenant": "acme"}
    assert text_of(ok(crib.invoke("listed", context={"tenant": "a b; $(id)"}))) == "a b; $(id)"
    warnings = "".join(crib.get("/sources").json["sources"][0]["warnings"])
    assert "tool `variables`: context has no effect: the function has no parameter for it" in warnings
    assert "tool `whole`: cache has no effect" in warnings


def test_fields_are_encoded_by_position(crib):
    echo = ok(crib.invoke("placed", {"user": "ann"}, context={"tenant": "a/b?c", "trace": 7}))["structured_content"]
    assert (echo["path"], echo["query"], echo["body"]) == ("/echo/a%2Fb%3Fc", "t=7", {"all": [7]})
    assert (echo["headers"]["x-trace"], echo["headers"]["x-user"]) == ("7", "Bearer ann 7")
    for arguments, context in (({"user": "ann"}, {}), ({}, {"trace": None})):
        echo = ok(crib.invoke("placed", arguments, context={"tenant": "acme", **context}))["structured_content"]
        assert (echo["path"], echo["query"], echo["body"]) == ("/echo/acme", "", {"all": [None]})
        assert not {"x-trace", "x-user"} & set(echo["headers"]), "a header of which a part is absent is left out"
    assert crib.invoke("placed", {"context.tenant": "x", "tenant": "x"}).status == 422, "an argument is no context"


@pytest.mark.parametrize("rules, is_reported", [
    ({"defaults": {"effect": "read", "cache": "1m"}}, True), ({"tools": {"who*": {"effect": "read", "cache": "1m"}}}, True), ({}, False)])
def test_shared_cache_without_effect_is_a_warning(start, tmp_path, rules, is_reported):
    (tmp_path / "m.py").write_text(MODULE)
    crib = start({"defaults": {"effect": "read", "cache": {"ttl": "1m"}}, "python_modules": {"m": {"module": str(tmp_path / "m.py"), **rules}}},
                 ).ready(30)
    warnings = "".join(crib.get("/sources").json["sources"][0]["warnings"])
    assert ("tool `whole`: cache has no effect" in warnings) == is_reported, warnings


@pytest.mark.parametrize("policy", [
    {"context": ["tenant"], "cache": {"ttl": "1m"}}, {"context": ["tenant"]},
    {"context": ["tenant", "trace"], "cache": {"ttl": "1m", "context": ["tenant"]}}, {"cache": {"ttl": "1m", "context": ["tenant"]}}])
def test_cache_keys_have_the_declared_fields(start, policy):
    crib = start({"defaults": {"cache": {"ttl": "1m", "context": []}}, "tools": {"x": sh("echo x", effect="read", **policy)}})
    for tenant, cache in (("acme", "miss"), ("other", "miss"), ("acme", "hit"), (None, "miss")):
        answer = ok(crib.invoke("x", context={"tenant": tenant} if tenant else {}))
        assert (answer["meta"]["cache"], answer["meta"]["warnings"]) == (cache, [])
    assert ok(crib.invoke("x", context={"tenant": "acme", "trace": 2}))["meta"]["cache"] == "hit"
    assert crib.get("/tools/x").json["policy"]["cache"]["context"] == ["tenant"]


def test_cached_answers_are_separate_per_tenant(crib):
    calls = [ok(crib.invoke("far", context={"tenant": tenant})) for tenant in ("one", "other", "one")]
    assert [call["meta"]["cache"] for call in calls] == ["miss", "miss", "hit"]
    assert [call["structured_content"]["body"]["of"] for call in calls] == ["one", "other", "one"]


def test_undeclared_fields_are_reported(crib):
    answer = ok(crib.invoke("calculator", {"expression": "1+1"}, context={"tenant": "acme"}))
    assert answer["meta"]["warnings"] == ["this tool takes no context; not passed on: `tenant`"]
    assert ok(crib.invoke("shell", context={"tenant": "acme"}))["meta"]["warnings"] == []
    answer = ok(crib.invoke("shell", context={"tenant": "acme", "user": "ann"}))
    assert answer["meta"]["warnings"] == ["of the context this tool takes tenant, user-id; not passed on: `user`"]
    message = {"tool_name": "calculator", "arguments": {"expression": "1+1"}}
    turn = crib.post("/calls", json.dumps({"message": message, "context": {"tenant": "acme"}})).json
    over_mcp = call_over_mcp(crib, "calculator", {"expression": "1+1"}, **{"toolcrib/context": {"tenant": "acme"}})
    for reported in (turn["results"][0]["meta"]["warnings"], over_mcp):
        assert "this tool takes no context; not passed on: `tenant`" in json.dumps(reported)
    shown = {tool["name"]: tool["context"] for tool in crib.get("/tools").json["tools"]}
    assert (shown["far"], shown["calculator"], shown["whole"], shown["tenant"]) == (["tenant"], [], None, ["tenant"])


@pytest.mark.parametrize("tool, context, says", [
    ("shell", {"tenant": "a\0b"}, "`context.tenant` is the variable TOOLCRIB_CONTEXT_TENANT and must not contain a NUL"),
    ("shell", {"tenant": "x" * 131_072}, "a variable has at most 131071 bytes with its name"),
    ("many", {f"f{n}": "x" * 120_000 for n in range(30)}, "The fields of `context` that this tool takes have 36"),
    ("listed", {"tenant": "--help"}, "`context.tenant` must not begin with `-`"),
    ("listed", {"tenant": None}, "`context.tenant` stands in the command line, so `context` must have `tenant`."),
    ("orders", {"tenant": 2 ** 64 - 1}, "`context.tenant`: an integer up to"),
    ("placed", {}, "`context.tenant` stands in the path of a URL, so `context` must have `tenant`."),
    ("placed", {"tenant": None}, "`context.tenant` stands in the path of a URL, so `context` must have `tenant`."),
    ("placed", {"tenant": ""}, "`context.tenant` stands in the path of a URL and must not be empty."),
    ("placed", {"tenant": ".."}, "where `.` and `..` lead elsewhere"),
    ("placed", {"tenant": "x" * 10_000}, "at most 8192 bytes"),
    ("placed", {"tenant": "a", "trace": "b\r\nx: y"}, "`context.trace` stands in the header `x-trace`")])
def test_unusable_values_are_refused(crib, tool, context, says):
    body = json.dumps({"arguments": {}, "context": context})
    for route in ("invoke", "validate") if tool != "orders" else ("invoke",):
        error = problem(crib.post(f"/tools/{tool}/{route}", body), 400, "invalid_request")
        assert says in error["detail"] and error["retryable"] is False and "a\0b" not in error["detail"], error
    if len(body) < 20_000:
        error = call_over_mcp(crib, tool, **{"toolcrib/context": context})["error"]
        assert error["code"] == -32602 and error["message"].startswith("_meta, toolcrib/context: ") and says in error["message"], error


def test_long_fields_and_arguments_have_a_bound(crib):
    """A program's whole command line and variables: the system would refuse to start it."""
    for length, status in ((120_000, 422), (2000, 200)):
        values = {f"f{n}": "x" * length for n in range(30)}
        reply = crib.invoke("words", values)
        assert reply.status == status, reply
        if status == 422:
            assert "is too long" in reply.json["violations"][0]["message"]
        else:
            ok(crib.invoke("many", context=values))


def test_context_values_are_not_recorded(crib):
    answer = ok(crib.invoke("orders", context={"tenant": "private-tenant-name"}))
    row = crib.row(answer["invocation_id"])
    assert row["state"] == "succeeded" and "private-tenant-name" not in json.dumps([answer, row])


def test_modules_get_their_declared_variables(crib):
    seen = ok(crib.invoke("variables"))["structured_content"]
    assert seen["UNITS"] == "km" and seen["GIVEN"] == "[redacted]" and "NONE" not in seen, seen
    env = {var["name"]: var for var in crib.get("/tools/variables").json["env"]}
    assert {name: (var["required"], var["default"]) for name, var in env.items()} == {
        "GIVEN": (True, None), "UNITS": (False, "km"), "NONE": (False, None)}


MANIFEST = """\
tools:
  show:
    kind: command
    description: Shows the variables that it has, for whoever looks for one of them.
    command: [/usr/bin/env]
    output: text
    effect: read
    cache: {ttl: 1m}
    env: [{name: GIVEN}, {name: UNITS, default: metric-units}, {name: NONE, required: false}]
    environment: {A: "${env:GIVEN}", B: "${env:UNITS}", C: "x${env:NONE}"}
mcp_servers:
  far: {url: "https://mcp.example.com/mcp", env: [{name: FAR, required: false}], headers: {x-key: "${env:FAR}"}}
"""


def test_check_reports_set_default_and_unset(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(MANIFEST)
    env = {"GIVEN": "value-of-given"}
    done = cli("check", cwd=tmp_path, env=env)
    assert done.returncode == 0, done
    for line in ("show: environment variable GIVEN: set", "show: environment variable UNITS: not set, has a default",
                 "show: environment variable NONE: not set, optional", "far: environment variable FAR: not set, optional"):
        assert line in done.stdout.splitlines(), done.stdout
    output = json.loads(cli("check", "--format", "json", cwd=tmp_path, env=env).stdout)
    states = {var["name"]: (var["tool"], var["source"], var["state"], var["set"]) for var in output["environment"]}
    assert states == {"GIVEN": ("show", None, "set", True), "UNITS": ("show", None, "default", False),
                      "NONE": ("show", None, "unset", False), "FAR": (None, "far", "unset", False)}
    done = cli("check", cwd=tmp_path, env={})
    assert done.returncode == 64 and "tools.show.env.0: environment variable GIVEN is not set" in done.stderr, done
    assert done.stderr.count("environment variable GIVEN is not set") == 1, done.stderr
    for line in ("show: environment variable GIVEN: not set, required", "show: environment variable UNITS: not set, has a default",
                 "show: environment variable NONE: not set, optional", "far: environment variable FAR: not set, optional"):
        assert line in done.stderr, done.stderr
    output = json.loads(cli("check", "--format", "json", cwd=tmp_path, env={}).stdout)
    assert {var["name"]: var["state"] for var in output["environment"]} == {
        "GIVEN": "missing", "UNITS": "default", "NONE": "unset", "FAR": "unset"}


def test_setting_with_absent_variable_is_omitted(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(MANIFEST.split("mcp_servers")[0])
    env = {"GIVEN": "value-of-given"}
    answer = json.loads(cli("call", "show", "{}", cwd=tmp_path, env=env).stdout)
    lines = [line for line in answer["content"][0]["text"].splitlines() if not line.startswith(("TOOLCRIB", "PWD="))]
    assert lines == ["A=[redacted]", "B=metric-units", "PATH=/usr/local/bin:/usr/bin:/bin"]
    shown = json.loads(cli("tools", cwd=tmp_path, env=env).stdout)["tools"][0]["env"]
    assert [(var["name"], var["required"], var["default"]) for var in shown] == [
        ("GIVEN", True, None), ("UNITS", False, "metric-units"), ("NONE", False, None)]


@pytest.mark.parametrize("keys, place, says", [
    ("command: [x, '{{ context.tenant }}']", "command.1", "write `context: [tenant]`"),
    ("command: [x], context: [user_id, user-id]", "context.1", "would both be the variable TOOLCRIB_CONTEXT_USER_ID"),
    ("command: [x], context: [user], environment: {TOOLCRIB_CONTEXT_USER: x}", "environment.TOOLCRIB_CONTEXT_USER", "another name"),
    ("command: [x], context: [a.b]", "context.0", "the name of a context field"),
    ("command: [x], context: [a], parameters: {context.a: {type: string}}", "context", "rename one of them")])
def test_invalid_declarations_stop_the_start(tmp_path, keys, place, says):
    (tmp_path / "toolcrib.yaml").write_text(f"tools:\n  t: {{kind: command, description: d, {keys}}}\n")
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 64 and f"tools.t.{place}: " in done.stderr and says in done.stderr, done
