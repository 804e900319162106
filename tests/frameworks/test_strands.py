"""Strands: its decorator, its context, its ready-made tools."""

import json

import pytest

from conftest import TOOLS, compare
from harness import in_background, ok, parallel, problem, error_result, text_of
from streams import open_stream

FRAMEWORK = "strands"
# Those that load and need no model, key or terminal: `think` loads and reports what it lacks.
READY_MADE = {
    "calculator": [{"expression": "6*7"}, {"expression": "x**2 - 4", "mode": "solve", "wrt": "x"}, {"expression": "sin(x)", "mode": "derive", "wrt": "x"},
                   {"expression": "1/0*"}],
    "current_time": [{"timezone": "No/Where"}],
    "file_read": [{"path": str(TOOLS / "strands_module.py"), "mode": "view"}, {"path": "/no/such/file", "mode": "view"},
                  {"path": str(TOOLS / "strands_module.py"), "mode": "lines", "start_line": 1, "end_line": 3}],
    "sleep": [{"seconds": -1}],
    "environment": [{"action": "get", "name": "TZ"}],
    "stop": [{"reason": "enough"}],
    "editor": [{"command": "view", "path": str(TOOLS / "strands_module.py")}],
    "think": [],
    "python_repl": [],
    "http_request": [],
    "journal": [],
    "shell": [],
}


def modules(framework):
    # With the oldest pydantic only the schemas and conversions of tools of one's own are tested.
    ready_made = READY_MADE if framework.pydantic == "newest" else ()
    found = {name: {"module": f"strands_tools.{name}", "tools": {name: {"effect": "read", "timeout": "60s"}}} for name in ready_made}
    return dict(found, own={"module": str(TOOLS / "strands_own.py")}, spec={"module": str(TOOLS / "strands_module.py")},
                counter={"module": str(TOOLS / "strands_object.py"), "object": "Counter", "init": {"start": 40}, "workers": 1})


@pytest.mark.parametrize("name", READY_MADE)
def test_ready_made_tools_match_the_framework(framework, name):
    compare(framework, f"strands_tools.{name}", [(name, arguments) for arguments in READY_MADE[name]])


def test_ready_made_tools_work(framework, tmp_path):
    crib = framework.crib
    assert "42" in text_of(ok(crib.invoke("calculator", {"expression": "6*7"})))
    assert text_of(ok(crib.invoke("current_time", {"timezone": "UTC"}))).startswith("20")
    assert "TOOL_SPEC" in text_of(ok(crib.invoke("file_read", {"path": str(TOOLS / "strands_module.py"), "mode": "view"})))
    assert ok(crib.invoke("sleep", {"seconds": 0.1}))
    reply = crib.invoke("think", {"thought": "why", "cycle_count": 1, "system_prompt": "Think."})
    assert reply.status == 200, "without an agent it says no, or whatever it says itself; the worker lives"
    assert "42" in text_of(ok(crib.invoke("python_repl", {"code": "print(6*7)", "interactive": False})))
    assert "hello" in text_of(ok(crib.invoke("shell", {"command": "echo hello", "non_interactive": True})))
    assert framework.crib.get("/livez").status == 200


def test_own_tools_match_the_framework(each_pydantic):
    compare(each_pydantic, TOOLS / "strands_own.py", [
        ("forecast", {"city": "Oslo"}), ("forecast", {"city": "Oslo", "days": 5, "unit": "K", "tags": ["a"], "note": "ü"}),
        ("report", {"place": {"city": "Oslo", "country": "NO"}, "unit": "kelvin", "limits": {"a": 1.5}}), ("report", {"place": {"city": "Oslo"}}),
        ("either", {"value": 5}), ("either", {"value": "five", "weight": 1}), ("either", {"value": None}),
        ("other_name", {"x": 1}), ("number", {"x": 2**62}), ("parts", {}), ("refuses", {"why": "late"}), ("value_error", {"why": "too late"}),
        ("other_error", {"why": "key"}), ("later", {"x": 1}), ("steps", {"count": 2}), ("numpy", {"text": "ab"}), ("nothing", {}),
    ])


def test_pydantic_results_are_structured(each_pydantic):
    answer = ok(each_pydantic.crib.invoke("report", {"place": {"city": "Oslo"}}))
    assert answer["structured_content"]["degrees"] == 21.5 and answer["structured_content"]["days"] == [1, 2], answer


def test_tool_spec_module_matches_the_framework(each_pydantic):
    output = each_pydantic.framework_output(TOOLS / "strands_module.py", [("strands_module", {"x": 21})])
    answer = ok(each_pydantic.crib.invoke("strands_module", {"x": 21}))
    assert output["results"][0]["texts"] == ["42"] and text_of(answer).startswith("42")
    assert answer["structured_content"] == {"x": 21} or '"x"' in json.dumps(answer["content"])


def test_methods_share_their_object(framework):
    assert text_of(ok(framework.crib.invoke("count", {"by": 2}))) == "42"
    listed = framework.crib.get("/tools/count").json
    assert listed["description"] == "Counts." and listed["input_schema"]["properties"]["by"]["description"] == "How far."
    assert "self" not in listed["input_schema"]["properties"]
    assert ok(framework.crib.invoke("value_now"))


def test_context_reaches_the_tool(framework):
    crib = framework.crib
    assert list(crib.get("/tools/who").json["input_schema"]["properties"]) == ["question"]
    answer = ok(crib.invoke("who", {"question": "?"}, context={"tenant": "acme"}, tool_use_id="call_7"))
    assert answer["structured_content"] == {"question": "?", "id": "call_7", "agent": "anonymous", "state": {"tenant": "acme"}}, answer


def test_progress_reaches_the_caller(framework):
    result, reported = open_stream(framework.crib, "steps", arguments={"count": 3}).result()
    assert [one["data"] for one in reported][:3] == [{"step": 0}, {"step": 1}, {"step": 2}] and text_of(result) == "3 steps"


def test_invalid_arguments_never_reach_the_framework(framework):
    for name, arguments, pointer in (("forecast", {"days": 1}, "/city"), ("forecast", {"city": "Oslo", "unit": "F"}, "/unit"),
                                     ("report", {"place": {"country": "NO"}}, "/place/city"), ("calculator", {"expression": 5}, "/expression")):
        error = problem(framework.crib.invoke(name, arguments), 422, "invalid_arguments")
        assert pointer in [one["pointer"] for one in error["violations"]], error


def test_calls_run_in_parallel(framework):
    parallel(16, lambda n: ok(framework.crib.invoke("later", {"x": n})))
    slow = in_background(lambda: framework.crib.invoke("sleep", {"seconds": 5}))
    framework.crib.wait_row("tool=sleep&state=running")
    ok(framework.crib.invoke("calculator", {"expression": "1+1"}))
    assert framework.crib.rows("tool=sleep&state=running"), "the one did not wait for the other"
    ok(slow())
    error_result(framework.crib.invoke("value_error", {"why": "x"}))
