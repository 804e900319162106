"""One call over HTTP: the answer's shape, arguments in both forms, coercion, defaults, validation, the caller's timeout."""

import json

import pytest

from harness import now, ok, poll, problem, error_result, elapsed, text_of
from recipes import params, sh, web

FIVE = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "description": "Days ahead"},
        "units": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit"},
        "city": {"type": "string", "minLength": 3, "description": "City"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags"},
        "options": {"type": "object", "properties": {"depth": {"type": "integer", "maximum": 9}},
                    "description": "Options", "additionalProperties": False},
        "when": {"type": "string", "description": "Date"},
    },
    "required": ["when"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def crib(start_shared, upstream_shared, tmp_path_factory):
    echo = upstream_shared.base + "/echo"
    trace = tmp_path_factory.mktemp("trace") / "ran"
    crib = start_shared({"tools": {
        "calculator": {"kind": "native"},
        "current_time": {"kind": "native"},
        "five": sh("echo never", input_schema=FIVE, effect="read"),
        "trace": sh(f"echo ran >> {trace}", effect="write"),
        "typed": web(echo, "POST", {"json": {"days": "{{ days }}", "units": "{{ units }}", "tags": "{{ tags }}",
                                             "opts": "{{ opts }}", "on": "{{ on }}"}}, effect="read",
                     parameters=params(days={"type": "integer", "minimum": 1, "default": 3},
                                       units={"type": "string", "default": "celsius"},
                                       tags={"type": "array", "items": {"type": "integer"}, "default": []},
                                       opts={"type": "object", "default": {}},
                                       on={"type": "boolean", "default": False})),
        "exact": web(echo, "POST", {"json": {"days": "{{ days }}"}}, effect="read", strict=True,
                     parameters=params(days="integer")),
        "final": sh("echo done", effect="read", result_as_answer=True),
        "sleeper": sh("exec /bin/sleep 20", effect="read"),
    }})
    crib.trace = trace
    return crib


def body_of(answer):
    return answer["structured_content"]["body"]


def test_answer_has_its_shape(crib):
    """Ids are returned unchanged; a tool without policies has empty lists in meta."""
    answer = ok(crib.invoke("calculator", {"expression": "2+3*4"}, tool_use_id="call_1", run_id="r-7"))
    assert answer["tool_use_id"] == "call_1" and "14" in text_of(answer)
    meta = answer["meta"]
    assert (meta["cache"], meta["attempts"], meta["usage"], meta["coercions"]) == ("off", 1, [], [])
    assert crib.row(answer["invocation_id"])["run_id"] == "r-7"


def test_invocation_ids_are_unique(crib):
    ids = {ok(crib.invoke("calculator", {"expression": "1"}))["invocation_id"] for _ in range(20)}
    assert len(ids) == 20


def test_arguments_may_be_a_json_string(crib):
    """OpenAI-style callers hold the arguments as a string of JSON."""
    assert "42" in text_of(ok(crib.invoke("calculator", json.dumps({"expression": "6*7"}))))


def test_result_as_answer(crib):
    assert ok(crib.invoke("final"))["result_as_answer"] is True


def test_context_is_separate_from_arguments(crib):
    answer = ok(crib.invoke("typed", {"days": 1}, context={"tenant": "acme"}))
    assert "acme" not in json.dumps(body_of(answer))


def test_defaults_are_applied(crib):
    """A default makes a parameter optional and reaches the tool."""
    body = body_of(ok(crib.invoke("typed", {})))
    assert body == {"days": 3, "units": "celsius", "tags": [], "opts": {}, "on": False}


@pytest.mark.parametrize("name, said, meant", [
    ("days", "3", 3), ("tags", "[1, 2]", [1, 2]), ("opts", '{"a": 1}', {"a": 1}), ("on", "true", True)])
def test_coercion_is_done_and_reported(crib, name, said, meant):
    """A string that holds JSON where the schema requires another type is converted, and the change is listed."""
    answer = ok(crib.invoke("typed", {name: said}))
    assert body_of(answer)[name] == meant
    assert len(answer["meta"]["coercions"]) == 1, answer["meta"]
    assert name in json.dumps(answer["meta"]["coercions"]), answer["meta"]


def test_strings_stay_strings(crib):
    """Where the schema requires a string nothing is converted, whatever it looks like."""
    answer = ok(crib.invoke("typed", {"units": "12"}))
    assert body_of(answer)["units"] == "12" and answer["meta"]["coercions"] == []


@pytest.mark.parametrize("days", ["0", "three", "3.5", "", "[3]"])
def test_coercion_must_yield_a_valid_value(crib, days):
    error = problem(crib.invoke("typed", {"days": days}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/days"


def test_strict_refuses_coercion(crib):
    error = problem(crib.invoke("exact", {"days": "3"}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/days"
    assert body_of(ok(crib.invoke("exact", {"days": 3}))) == {"days": 3}


def test_every_violation_is_reported(crib):
    """Five invalid values and a missing key are all reported, each with its JSON Pointer and a sentence."""
    error = problem(crib.invoke("five", {"days": 0, "units": "kelvin", "city": "x", "tags": ["a", {"b": 1}],
                                        "options": {"depth": 10}}), 422, "invalid_arguments")
    assert error["source"] == "service"
    found = {(violation["pointer"], violation["keyword"]) for violation in error["violations"]}
    expected = {("/days", "minimum"), ("/units", "enum"), ("/city", "minLength"), ("/tags/1", "type"),
                ("/options/depth", "maximum")}
    assert expected <= found, found
    assert any(keyword == "required" for _, keyword in found), found
    for violation in error["violations"]:
        assert len(violation["message"]) > 10 and isinstance(violation["schema_pointer"], str), violation
    words = text_of(error)
    assert all(name in words for name in ("days", "units", "city")), words
    row = crib.row(error["invocation_id"]) if error.get("invocation_id") else crib.wait_row(
        "tool=five", lambda row: row["state"] == "refused")
    assert row["state"] == "refused" and row["kind"] == "invalid_arguments"


def test_additional_properties_are_reported(crib):
    error = problem(crib.invoke("five", {"when": "today", "cty": "Oslo"}), 422, "invalid_arguments")
    assert "cty" in json.dumps(error["violations"]), error


def test_validate_runs_nothing(crib):
    """POST /validate answers valid with defaults and coercions, or the same 422, and no tool runs."""
    reply = crib.post("/tools/typed/validate", json.dumps({"arguments": {"days": "5"}}))
    assert reply.status == 200 and reply.json["valid"] is True, reply
    assert reply.json["arguments"]["days"] == 5 and len(reply.json["coercions"]) == 1, reply
    assert reply.json["arguments"]["units"] == "celsius", reply
    problem(crib.post("/tools/five/validate", json.dumps({"arguments": {}})), 422, "invalid_arguments")
    assert crib.post("/tools/trace/validate", json.dumps({"arguments": {}})).status == 200
    ok(crib.invoke("trace"))
    assert len(crib.trace.read_text().splitlines()) == 1, "only the invoke ran the tool"


def test_caller_may_shorten_the_timeout(crib):
    """`timeout` of a call is a bound on it: 504, long before the tool's own 30 s."""
    started = now()
    error = problem(crib.invoke("sleeper", timeout="300ms"), 504, {"deadline_exceeded", "attempt_timed_out"})
    assert elapsed(started) < 5
    row = crib.row(error["invocation_id"])
    assert row["state"] == "timed_out" and row["kind"] == error["kind"]


def test_caller_cannot_extend_the_timeout(start):
    crib = start({"tools": {"slow": sh("exec /bin/sleep 20", effect="read", timeout="300ms", deadline="600ms")}})
    started = now()
    problem(crib.invoke("slow", timeout="20s"), 504, {"deadline_exceeded", "attempt_timed_out"})
    assert elapsed(started) < 5


@pytest.mark.parametrize("value", ["5", "soon", 5, "-1s", ""])
def test_timeout_needs_a_unit(crib, value):
    """Durations are strings with units."""
    problem(crib.invoke("calculator", {"expression": "1"}, timeout=value), 400, "invalid_request")


def test_unknown_cache_mode_is_refused(crib):
    problem(crib.invoke("calculator", {"expression": "1"}, cache="sometimes"), 400, "invalid_request")


@pytest.mark.parametrize("expression", ["1/0", "2+", "__import__('os').system('id')", "", "foo(1)"])
def test_calculator_errors_are_error_results(crib, expression):
    """A native tool's failure is content (200, is_error); an argument it refuses may be a 422."""
    reply = crib.invoke("calculator", {"expression": expression})
    if reply.status == 422:
        problem(reply, 422, "invalid_arguments")
    else:
        error_result(reply)


@pytest.mark.parametrize("expression", ["9^9^9^9^9", "(" * 5000 + "1" + ")" * 5000, "1+" * 100_000 + "1", "-" * 50_000 + "1"])
def test_calculator_input_is_bounded(crib, expression):
    """Huge powers, deep nesting and long input are answered fast, with any answer, and affect no other call."""
    started = now()
    reply = crib.invoke("calculator", {"expression": expression})
    assert reply.status in (200, 422), reply
    assert elapsed(started) < 5
    assert "2" in text_of(ok(crib.invoke("calculator", {"expression": "1+1"})))


def test_current_time_takes_a_timezone(crib):
    assert any(char.isdigit() for char in text_of(ok(crib.invoke("current_time"))))
    ok(crib.invoke("current_time", {"timezone": "Europe/Oslo"}))
    reply = crib.invoke("current_time", {"timezone": "Mars/Base"})
    assert reply.status == 422 or error_result(reply)


def test_refusal_leaves_a_row(crib):
    """Refusals are observed calls: written behind, but written."""
    problem(crib.invoke("calculator", {}), 422, "invalid_arguments")
    poll(lambda: [row for row in crib.rows("tool=calculator&state=refused") if row["kind"] == "invalid_arguments"],
         what="the refused call in the ledger")
