"""A request's context, kind by kind: only declared fields reach their tool; and the variables that tools declare."""

import json
import sqlite3

import pytest

from harness import cli, ok, problem, text_of
from recipes import sh, web

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


@pytest.fixture
def crib(start, upstream, tmp_path):
    (tmp_path / "m.py").write_text(MODULE)
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("create table orders (id integer, tenant text)")
        shop.executemany("insert into orders values (?, ?)", [(1, "acme"), (2, "other"), (3, "acme")])
    shop.close()
    return start({
        "tools": {
            "far": web(upstream.base + "/echo", "POST", {"json": {"of": "{{ context.tenant }}"}, "query": {"t": "{{ context.tenant }}"}},
                       effect="read", context=["tenant"], cache={"ttl": "1m"}),
            "shell": sh('echo "$TOOLCRIB_CONTEXT_TENANT:${TOOLCRIB_CONTEXT_USER_ID-unset}"', effect="read", context=["tenant", "user-id"]),
            "orders": {"kind": "sql", "description": "Orders of the tenant.", "context": ["tenant"],
                       "database": f"sqlite://{tmp_path / 'shop.db'}",
                       "statement": "select id from orders where tenant = :context.tenant order by id"},
            "calculator": {"kind": "native"}},
        "python_modules": {"m": {"module": str(tmp_path / "m.py"),
                                 "env": [{"name": "GIVEN"}, {"name": "UNITS", "default": "km"}, {"name": "NONE", "required": False}],
                                 "tools": {"tenant": {"context": ["tenant"]}}}},
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


def test_cached_answers_are_separate_per_tenant(crib):
    calls = [ok(crib.invoke("far", context={"tenant": tenant})) for tenant in ("acme", "other", "acme")]
    assert [call["meta"]["cache"] for call in calls] == ["miss", "miss", "hit"]
    assert [call["structured_content"]["body"]["of"] for call in calls] == ["acme", "other", "acme"]


def test_undeclared_fields_are_reported(crib):
    answer = ok(crib.invoke("calculator", {"expression": "1+1"}, context={"tenant": "acme"}))
    assert answer["meta"]["warnings"] == ["this tool takes no context; not passed on: `tenant`"]
    assert ok(crib.invoke("shell", context={"tenant": "acme"}))["meta"]["warnings"] == []
    shown = {tool["name"]: tool["context"] for tool in crib.get("/tools").json["tools"]}
    assert (shown["far"], shown["calculator"], shown["whole"], shown["tenant"]) == (["tenant"], [], None, ["tenant"])


def test_invalid_variable_value_is_refused(crib):
    error = problem(crib.invoke("shell", context={"tenant": "a\0b"}), 400, "invalid_request")
    assert "`context.tenant` is the variable TOOLCRIB_CONTEXT_TENANT" in error["detail"] and "a\0b" not in error["detail"]


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
    lines = [line for line in answer["content"][0]["text"].splitlines() if not line.startswith("TOOLCRIB")]
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
