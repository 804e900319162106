"""Python functions as tools: loading, definitions, arguments and results. The files are in modules/."""

import base64
import json
import pathlib

import pytest

from harness import in_background, ok, parallel, poll, problem, error_result, text_of
from recipes import CALLERS, KEYS, module
from streams import open_stream

FILES = pathlib.Path(__file__).resolve().parent / "modules"
PLAIN = ["weather", "numpy_style", "sphinx_style", "no_words", "shapes", "answers", "raises", "echo", "deep", "huge"]
TOKEN = "token-4711-of-the-tests"
READ = {"effect": "read"}


@pytest.fixture(scope="module")
def crib(start_shared):
    """One service with every file, each under its own entry."""
    manifest = {"defaults": {"concurrency": {"max": 64, "queue": 64, "wait": "5s"}}, "python_modules": {
        "plain": module(FILES / "plain.py", functions=PLAIN, workers=2),
        "decorated": module(FILES / "decorated.py", environment={"TOKEN": "${env:TOKEN}", "PLACE": "here"}, tools={
            "counter": {"effect": "read", "cache": {"ttl": "5m"}, "limits": [{"calls": 3, "per": "day"}]},
            "counter_of": {"effect": "read", "cache": {"ttl": "5m", "context": ["tenant"]}},
            "who": {"effect": "read"}, "fails_once": {"effect": "read", "retry": {"attempts": 3}}, "charge": {"effect": "write"},
            "nap": {"effect": "read", "timeout": "700ms"}}),
        "strands": module(FILES / "strands_style.py", prefix="s_"),
        "forecast": module(FILES / "weather_forecast.py", tools={"weather_forecast": READ}),
        "noisy": module(FILES / "noisy.py", environment={"TOKEN": "${env:TOKEN}"}),
        "database": module(FILES / "database.py", object="DatabaseTools", prefix="db_", workers=1,
                           functions=["insert", "select", "connection", "plain"],
                           init={"connection_string": "db://${env:TOKEN}", "rows": ["first"]}),
    }}
    return start_shared(manifest, env={"TOKEN": TOKEN, "UNDECLARED": "nobody-may-see-this"}).ready()


def tool(crib, name):
    reply = crib.get(f"/tools/{name}")
    assert reply.status == 200, reply
    return reply.json


def schema(crib, name):
    return tool(crib, name)["input_schema"]


# ---- loading and definitions -------------------------------------------------------------------------------------------

def test_every_file_has_its_tools(crib):
    listed = {one["name"]: one for one in crib.get("/tools").json["tools"]}
    wanted = {*PLAIN, "add", "renamed", "who", "who_async", "counter", "counter_of", "steps", "steps_async", "steps_then_trouble", "nap",
              "nap_async", "environment", "fails_once", "charge", "s_word_count", "s_tenant", "weather_forecast", "noisy", "flood", "reads",
              "closes", "says", "db_insert", "db_select", "db_connection", "db_plain"}
    assert set(listed) == wanted
    assert all(one["kind"] == "python" and one["available"] is True for one in listed.values())
    assert {name for name, one in listed.items() if one["effect"] != "write"} == {"counter", "counter_of", "who", "fails_once", "nap", "weather_forecast"}


def test_docstring_and_hints_become_the_definition(crib):
    weather = tool(crib, "weather")
    assert "Forecasts the weather of a city." in weather["description"] and "Looks at the next days only." in weather["description"]
    assert "Where to look" not in weather["description"], "parameters are told in the schema"
    properties = weather["input_schema"]["properties"]
    assert weather["input_schema"]["type"] == "object" and weather["input_schema"]["required"] == ["city"]
    assert set(properties) == {"city", "days", "units", "note"}
    assert properties["city"]["type"] == "string" and properties["city"]["description"] == "Where to look, e.g. Oslo."
    assert properties["days"]["type"] == "integer" and properties["days"]["default"] == 3
    assert properties["days"]["description"].split() == "How many days, at most ten.".split()
    assert properties["units"]["enum"] == ["celsius", "fahrenheit"] and properties["units"]["default"] == "celsius"
    assert properties["note"]["default"] is None and "string" in json.dumps(properties["note"])
    assert not any("title" in one for one in properties.values())


@pytest.mark.parametrize("name", ["numpy_style", "sphinx_style"])
def test_numpy_and_sphinx_docstrings_are_read(crib, name):
    reported = tool(crib, name)
    assert reported["description"].startswith("Repeats a text.")
    properties = reported["input_schema"]["properties"]
    assert (properties["text"]["description"], properties["times"]["description"]) == ("What is repeated.", "How often.")
    assert properties["times"]["default"] == 2 and reported["input_schema"]["required"] == ["text"]


def test_hints_of_every_kind(crib):
    reported = schema(crib, "shapes")
    properties, definitions = reported["properties"], reported.get("$defs", {})

    def resolved(one):
        return definitions[one["$ref"].rpartition("/")[2]] if "$ref" in one else one

    assert sorted(reported["required"]) == ["box", "colour", "points", "weights"]
    assert resolved(properties["colour"])["enum"] == ["red", "blue"]
    point = resolved(properties["points"]["items"])
    assert properties["points"]["type"] == "array" and sorted(point["required"]) == ["x", "y"] and point["properties"]["x"]["type"] == "integer"
    box = resolved(properties["box"])
    assert box["required"] == ["width"] and box["properties"]["height"]["default"] == 2
    assert properties["weights"]["type"] == "object" and properties["flag"] == {"type": "boolean", "default": False, **{
        key: value for key, value in properties["flag"].items() if key == "description"}}
    assert {one["type"] for one in properties["either"]["anyOf"]} == {"integer", "string"}
    complete = {"colour": "red", "points": [{"x": 1, "y": 2}], "box": {"width": 3}, "weights": {"a": 1.5}, "flag": True, "either": "one"}
    assert ok(crib.invoke("shapes", complete))["structured_content"] == dict(complete, box={"width": 3, "height": 2, "label": None})


def test_decorator_overrides_the_function(crib):
    reported = tool(crib, "renamed")
    assert reported["description"] == "Has another name and description."
    assert reported["input_schema"]["properties"]["x"]["minimum"] == 1
    assert text_of(ok(crib.invoke("renamed", {"x": 21}))) == "42"
    error = problem(crib.invoke("renamed", {"x": 0}), 422, "invalid_arguments")
    assert (error["violations"][0]["pointer"], error["violations"][0]["keyword"]) == ("/x", "minimum")


def test_strands_decorator_works_without_strands(crib):
    assert tool(crib, "s_word_count")["description"] == "Counts words."
    assert schema(crib, "s_word_count")["properties"]["text"]["description"] == "What is counted."
    assert text_of(ok(crib.invoke("s_word_count", {"text": "one two three"}))) == "3"
    assert schema(crib, "s_tenant")["properties"] == {}, "the context is no parameter"
    assert text_of(ok(crib.invoke("s_tenant", context={"tenant": "acme"}))) == "acme"


def test_tool_spec_module_is_a_tool(crib):
    assert schema(crib, "weather_forecast")["properties"]["days"]["maximum"] == 10
    answer = ok(crib.invoke("weather_forecast", {"city": "Oslo"}, context={"tenant": "acme"}))
    assert text_of(answer) == "Oslo: 3 days of sun for acme"
    assert text_of(error_result(crib.invoke("weather_forecast", {"city": "Atlantis"}))) == "Atlantis has no weather"
    assert problem(crib.invoke("weather_forecast", {"city": "Oslo", "days": 11}), 422)["violations"][0]["pointer"] == "/days"


def test_methods_share_their_object(crib):
    assert "self" not in schema(crib, "db_insert")["properties"]
    assert text_of(ok(crib.invoke("db_insert", {"row": "second"}))) == "2"
    assert ok(crib.invoke("db_select"))["structured_content"] == ["first", "second"]
    assert text_of(ok(crib.invoke("db_plain", {"text": "one"}))) == "one of 2"
    assert TOKEN not in crib.invoke("db_connection").body.decode()


@pytest.mark.parametrize("format", ["native", "openai", "openai-responses", "anthropic", "gemini", "bedrock", "mcp"])
def test_every_format_lists_the_tools(crib, format):
    reply = crib.get(f"/tools?format={format}")
    assert reply.status == 200 and "How many days,\\n" not in reply.body.decode()
    assert '"weather"' in reply.body.decode() and "Where to look, e.g. Oslo." in reply.body.decode()


# ---- arguments ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, arguments, pointer", [
    ("weather", {}, "/city"), ("weather", {"city": 5}, "/city"), ("weather", {"city": "Oslo", "days": "many"}, "/days"),
    ("weather", {"city": "Oslo", "units": "kelvin"}, "/units"), ("add", {"a": 1, "b": 2.5}, "/b"),
    ("shapes", {"colour": "red", "points": [{"x": 1}], "box": {"width": 1}, "weights": {}}, "/points/0/y"),
    ("shapes", {"colour": "green", "points": [], "box": {"width": 1}, "weights": {}}, "/colour"),
])
def test_invalid_arguments_point_at_the_violation(crib, name, arguments, pointer):
    error = problem(crib.invoke(name, arguments), 422, "invalid_arguments")
    assert pointer in [one["pointer"] for one in error["violations"]], error
    assert all(one["message"] for one in error["violations"])
    assert problem(crib.post(f"/tools/{name}/validate", json.dumps({"arguments": arguments})), 422)["violations"] == error["violations"]


def test_json_strings_are_coerced_and_defaults_applied(crib):
    answer = ok(crib.invoke("weather", {"city": "Oslo", "days": "4"}))
    assert answer["structured_content"] == {"city": "Oslo", "days": 4, "units": "celsius", "note": None, "type": "int"}
    assert answer["meta"]["coercions"]


@pytest.mark.parametrize("value", [
    "", "ünïcödé 漢字 🦀 \u2028", "a\x00b", 'quotes " and \\ and \n', 0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 0.1, 1e300, -0.5, True, None,
    [], {}, {"": {"": []}}, [[[[[["deep"]]]]]], {"ключ": ["värde"]}, "x" * 100,
])
def test_values_arrive_unchanged(crib, value):
    answer = ok(crib.invoke("echo", {"value": value}))
    assert answer["structured_content"] == {"value": value}
    assert json.loads(text_of(answer)) == {"value": value} or "\x00" in str(value)


def test_big_numbers_are_exact_or_refused(crib):
    for digits in (15, 16, 18, 19, 25, 40):
        reply = crib.invoke("huge", {"digits": digits})
        if reply.status == 200:
            assert str(10 ** digits + 1) in text_of(ok(reply)), reply
        else:
            problem(reply, 502, "bad_output")


def test_large_arguments_and_results_are_complete(crib):
    value = "aß漢🦀" * 90_000
    body = json.dumps({"arguments": {"value": value}}, ensure_ascii=False).encode()
    assert 850_000 < len(body) < 1_048_576
    answer = ok(crib.post("/tools/echo/invoke", body))
    stored = poll(lambda: (lambda r: r.json if r.status == 200 else None)(crib.get(f"/invocations/{answer['invocation_id']}/result")), 5, "the result")
    assert stored["structured_content"] == {"value": value}
    answer = ok(crib.invoke("answers", {"what": "list of long"}))
    assert answer["meta"]["overflow"]["total"] == 900


def test_deep_nesting_is_bounded(crib):
    """What JSON readers accept is accepted; beyond that the answer is a problem, and the worker continues."""
    value = "x"
    for _ in range(50):
        value = [value]
    assert ok(crib.invoke("echo", {"value": value}))["structured_content"] == {"value": value}
    assert ok(crib.invoke("deep", {"levels": 50}))["structured_content"] is not None
    for levels in (200, 900, 5_000, 100_000):
        reply = crib.invoke("deep", {"levels": levels})
        assert reply.status == 200 or problem(reply, 502, "bad_output"), reply
        assert reply.status == 502 or levels < 1000, reply
        assert ok(crib.invoke("add", {"a": 1, "b": 2}))
        assert ok(crib.invoke("echo", {"value": 1}))


# ---- results -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("what, text, structured", [
    ("text", "plain words", None), ("empty", "", None), ("int", "42", None), ("float", "2.5", None), ("true", "true", None), ("none", "", None),
    ("enum", "red", None),
    ("dict", None, {"a": 1, "b": [True, None, "ü"]}), ("list", None, [{"n": 1}, {"n": 2}]), ("tuple", None, [1, 2]),
    ("dataclass", None, {"width": 1, "height": 2, "label": None}), ("int keys", None, {"1": "one"}),
])
def test_results_have_text_and_structure(crib, what, text, structured):
    answer = ok(crib.invoke("answers", {"what": what}))
    assert answer["structured_content"] == structured, answer
    if structured is None:
        assert text_of(answer) == text, answer
    else:
        assert json.loads(text_of(answer)) == structured, answer
        assert what != "dict" or "ü" in text_of(answer), "not escaped: a model reads it"


@pytest.mark.parametrize("what", ["decimal", "set", "object", "nan", "infinity", "surrogate", "nul", "bytes"])
def test_unusual_results_never_break_the_protocol(crib, what):
    """As text or data, or as output that is not what it should be; never invalid JSON, and the next call is well."""
    reply = crib.invoke("answers", {"what": what})
    json.loads(reply.body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    if reply.status == 200:
        assert ok(reply)["content"], reply
    else:
        problem(reply, 502, "bad_output")
    assert text_of(ok(crib.invoke("answers", {"what": "text"}))) == "plain words"


def test_strands_results_are_converted(crib):
    answer = ok(crib.invoke("answers", {"what": "success"}))
    assert answer["content"][0] == {"type": "text", "text": "one"}
    assert '"two"' in json.dumps(answer["content"][1:]).replace("\\", "") or answer["structured_content"] == {"two": 2}, answer
    assert text_of(error_result(crib.invoke("answers", {"what": "error"}))) == "no such city"
    picture = ok(crib.invoke("answers", {"what": "png"}))["content"]
    assert picture[0]["text"] == "a picture" and picture[1] == {"type": "image", "mimeType": "image/png",
                                                               "data": base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()}, picture
    paper, = ok(crib.invoke("answers", {"what": "pdf"}))["content"]
    assert paper["type"] == "resource" and paper["resource"]["mimeType"] == "application/pdf", paper
    assert base64.b64decode(paper["resource"]["blob"]) == b"%PDF-1.4"


def test_too_long_result_is_bad_output(crib):
    reply = crib.invoke("answers", {"what": "long"})
    assert len(reply.body) < 400_000
    if reply.status != 200:
        assert "bytes" in text_of(problem(reply, 502, "bad_output")) or "MiB" in reply.json["detail"], reply
    assert text_of(ok(crib.invoke("answers", {"what": "text"}))) == "plain words"


@pytest.mark.parametrize("kind, words", [
    ("value", "Error: the city is not known"), ("key", "city"), ("own", "deep trouble"), ("empty", "RuntimeError"), ("unprintable", "Unprintable"),
    ("recursion", "too deep"), ("json", "bad"),
])
def test_exception_is_an_error_result_and_logged(crib, kind, words):
    answer = error_result(crib.invoke("raises", {"kind": kind}))
    assert words in text_of(answer), answer
    assert "Traceback" not in json.dumps(answer) and "plain.py" not in json.dumps(answer), answer
    if kind in ("value", "own"):
        crib.wait_for_log("plain.py")
        crib.wait_for_log(words.removeprefix("Error: "))


@pytest.mark.parametrize("kind", ["exit", "interrupt"])
def test_exit_in_a_tool_is_harmless(crib, kind):
    """SystemExit and KeyboardInterrupt end the call, as an error result or as the end of the worker; the next call succeeds."""
    reply = crib.invoke("raises", {"kind": kind})
    assert reply.status == 200 and reply.json["is_error"] or problem(reply, 502, "tool_unavailable"), reply
    assert text_of(ok(crib.invoke("answers", {"what": "text"}))) == "plain words"


def test_generators_report_progress(crib):
    for name, steps, last in (("steps", [{"step": 1}, {"step": 2}, {"step": 3}], "3 steps"), ("steps_async", ["step 1", "step 2", "step 3"], {"steps": 3})):
        stream = open_stream(crib, name, arguments={"count": 3})
        result, reported = stream.result()
        assert [one["data"] for one in reported][:3] == steps and len(reported) <= 4, reported
        assert reported[0]["tool"] == name and reported[0]["invocation_id"] == result["invocation_id"]
        assert (result["structured_content"] or text_of(result)) == last and result["is_error"] is False, result
        plain = ok(crib.invoke(name, {"count": 3}))
        assert (plain["structured_content"] or text_of(plain)) == last
        stream.close()
    stream = open_stream(crib, "steps_then_trouble")
    result, reported = stream.result()
    assert [one["data"] for one in reported] == ["one"] and result["is_error"] is True and "the second step is missing" in text_of(result)


def test_empty_generator_is_answered(crib):
    reply = crib.invoke("steps_async", {"count": -1})
    assert reply.status == 200, reply


# ---- context -----------------------------------------------------------------------------------------------------------

def test_context_reaches_the_tool_not_the_schema(crib):
    assert list(schema(crib, "who")["properties"]) == ["question"] and schema(crib, "who_async")["properties"] == {}
    context = {"tenant": "acme", "nested": {"list": [1, "ü"]}}
    answer = ok(crib.invoke("who", {"question": "?"}, context=context, tool_use_id="call_7"))["structured_content"]
    assert answer == {"id": "call_7", "name": "who", "input": {"question": "?"}, "agent": "anonymous", "state": context}
    answer = ok(crib.invoke("who", {"question": "?"}))["structured_content"]
    assert answer["state"] == {} and answer["id"], "there is always an id"
    reply = crib.invoke("who", {"question": "?", "tool_context": {"agent": "boss"}})
    assert reply.status == 422 or ok(reply)["structured_content"]["agent"] == "anonymous", "nobody can bring their own"


def test_async_contexts_stay_separate(crib):
    def one(number):
        answer = ok(crib.invoke("who_async", context={"n": number}, tool_use_id=f"call_{number}"))["structured_content"]
        assert answer["state"] == {"n": number} and answer["id"] == f"call_{number}", answer

    parallel(20, one)


def test_agent_is_the_caller(start):
    crib = start({"callers": CALLERS, "python_modules": {"m": module(FILES / "decorated.py", functions=["who", "counter_of"], tools={
        "counter_of": {"effect": "read", "cache": {"ttl": "5m", "context": []}}})}}, env=KEYS).ready()
    for name in ("ANN", "BOB"):
        assert ok(crib.invoke("who", {"question": "?"}, key=KEYS[name]))["structured_content"]["agent"] == name.lower()
    # With an empty list no field separates results, but callers still do.
    numbers = [text_of(ok(crib.invoke("counter_of", key=KEYS[name], context={"tenant": str(n)}))) for n, name in enumerate(["ANN", "ANN", "BOB"])]
    assert numbers[0] == numbers[1] != numbers[2]
    problem(crib.invoke("who", {"question": "?"}), 401, "unauthenticated")


def test_cache_depends_on_named_context_fields(crib):
    """A tool without context is cached as any; one with it by the named fields only."""
    first = ok(crib.invoke("counter", {"key": "c"}, context={"tenant": "a"}))
    assert first["meta"]["cache"] == "miss"
    repeated = ok(crib.invoke("counter", {"key": "c"}, context={"tenant": "b"}))
    assert repeated["meta"]["cache"] == "hit" and text_of(repeated) == text_of(first)
    assert crib.usage("counter")[0]["used"] == 1, "what is cached costs nothing"
    own = ok(crib.invoke("counter_of", {"key": "c"}, context={"tenant": "a", "trace": 1}))
    assert ok(crib.invoke("counter_of", {"key": "c"}, context={"tenant": "a", "trace": 2}))["meta"]["cache"] == "hit"
    other = ok(crib.invoke("counter_of", {"key": "c"}, context={"tenant": "b"}))
    assert other["meta"]["cache"] == "miss" and text_of(other) != text_of(own)


def test_context_tool_needs_cache_context(start):
    crib = start({"python_modules": {"m": module(FILES / "decorated.py", functions=["counter_of"], tools={
        "counter_of": {"effect": "read", "cache": {"ttl": "5m"}}})}}).ready()
    seen = {text_of(ok(crib.invoke("counter_of", context={"tenant": "a"}))) for _ in range(3)}
    assert len(seen) == 3, "what another tenant was told is not told to this one"
    crib.wait_for_log("counter_of")


# ---- policy ------------------------------------------------------------------------------------------------------------

def test_limits_count_calls(start):
    crib = start({"python_modules": {"m": module(FILES / "decorated.py", functions=["charge"], tools={
        "charge": {"limits": [{"calls": 3, "per": "day"}]}})}}).ready()
    replies = parallel(8, lambda n: crib.invoke("charge", {"amount": n}))
    assert sorted(reply.status for reply in replies) == [200] * 3 + [429] * 5
    problem(crib.invoke("charge", {"amount": "x"}), 422)
    assert crib.usage("charge")[0]["used"] == 3


def test_timeout_of_a_tool_applies(crib):
    assert ok(crib.invoke("nap", {"seconds": 0.01}))["structured_content"]["main"] is True
    problem(crib.invoke("nap", {"seconds": 20}), 504, "attempt_timed_out")
    assert crib.get("/tools/nap").json["policy"]["timeout"] in ("700ms", 0.7, 700), crib.get("/tools/nap").json["policy"]


def test_idempotent_call_is_retried_after_a_crash(crib, tmp_path):
    answer = ok(crib.invoke("fails_once", {"flag": str(tmp_path / "flag")}))
    assert text_of(answer) == "second time lucky" and answer["meta"]["attempts"] == 2, answer
    row = crib.row(answer["invocation_id"])
    assert [one["kind"] for one in row["attempt_errors"]] == ["tool_unavailable"], row


def test_idempotency_key_runs_the_call_once(crib):
    headers = {"idempotency-key": "order-1"}
    first = crib.invoke("charge", {"amount": 5}, headers=headers)
    ok(first)
    repeated = crib.invoke("charge", {"amount": 5}, headers=headers)
    assert repeated.body == first.body and repeated.headers["idempotent-replayed"] == "true"
    problem(crib.invoke("charge", {"amount": 6}, headers=headers), 422, "idempotency_mismatch")
    assert ok(crib.invoke("charge", {"amount": 5}))["structured_content"]["number"] == ok(first)["structured_content"]["number"] + 1


def test_model_calls_run_python_tools(crib):
    """A message with a Python call and a crash in the same message: each has its own result."""
    message = [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}},
               {"type": "tool_use", "id": "toolu_2", "name": "raises", "input": {"kind": "value"}},
               {"type": "tool_use", "id": "toolu_3", "name": "who_async", "input": {}}]
    output = crib.post("/calls", json.dumps({"message": message, "context": {"tenant": "acme"}})).json
    blocks = output["messages"][0]["content"]
    assert [block["tool_use_id"] for block in blocks] == ["toolu_1", "toolu_2", "toolu_3"]
    assert [bool(block.get("is_error")) for block in blocks] == [False, True, False]
    assert output["results"][2]["structured_content"] == {"state": {"tenant": "acme"}, "agent": "anonymous", "id": "toolu_3"}


# ---- environment, secrets, output --------------------------------------------------------------------------------------

def test_environment_is_what_the_module_declares(crib):
    seen = ok(crib.invoke("environment"))["structured_content"]
    assert seen["PLACE"] == "here" and "UNDECLARED" not in seen
    assert set(seen) - {"TOKEN", "PLACE", "TOOLCRIB_WORKER", "PATH", "HOME", "LANG"} <= {"LC_CTYPE", "PWD", "TZ", "TMPDIR", "VIRTUAL_ENV"}, seen


def test_secrets_are_redacted_everywhere(crib):
    """They reach the tool, and no answer, log line, event or ledger row: not by a result, a print, an exception."""
    answer = ok(crib.invoke("environment"))
    assert answer["structured_content"]["TOKEN"] != TOKEN, answer
    result, reported = open_stream(crib, "says", arguments={"text": "calm"}).result()
    assert "told calm" in reported[0]["data"] and "raised calm" in text_of(result), (reported, result)
    crib.wait_for_log("printed calm")
    crib.wait_for_log("raised calm")
    connection = ok(crib.invoke("db_connection"))
    for place in (answer, result, reported, connection):
        assert TOKEN not in json.dumps(place), place
    assert TOKEN not in crib.get("/tools").body.decode() + crib.get("/readyz?verbose").body.decode()
    assert TOKEN not in crib.stderr + crib.stdout
    crib.row(result["invocation_id"])
    for file in crib.folder.glob("toolcrib.db*"):
        assert TOKEN.encode() not in file.read_bytes(), file


def test_tool_output_goes_to_the_log(crib):
    crib.wait_for_log("said while it was loaded")
    for word in ("alpha", "beta"):
        assert text_of(ok(crib.invoke("noisy", {"word": word}))) == f"{word} was said"
        for way in ("print", "stderr", "the descriptor", "C", "a program"):
            crib.wait_for_log(f"{word} by {way}")
    crib.wait_for_log("nothing was to be read")
    assert "was not understood" not in crib.stderr


def test_output_flood_and_closed_outputs_are_harmless(crib):
    assert text_of(ok(crib.invoke("flood"))) == "all written"
    assert text_of(ok(crib.invoke("reads"))) == "nobody there"
    assert text_of(ok(crib.invoke("closes"))) == "closed"
    # A tool that closes its worker's outputs may need another worker.
    poll(lambda: (lambda reply: reply.status == 200 and text_of(reply) == "nobody there")(crib.invoke("reads")), 5, "well again")


# ---- cancelling --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["nap", "nap_async"])
def test_delete_cancels_sync_and_async_calls(start, name):
    crib = start({"python_modules": {"m": module(FILES / "decorated.py", functions=["nap", "nap_async"], tools={name: READ})}}).ready()
    answer = in_background(lambda: crib.invoke(name, {"seconds": 60}))
    row = crib.wait_row("state=running")
    reply = crib.delete(f"/invocations/{row['invocation_id']}")
    assert reply.status == 200 and reply.json["state"] == "cancelled", reply
    problem(answer(5), 499, "cancelled")
    assert ok(crib.invoke(name, {"seconds": 0.01}))["structured_content"]["pid"]
