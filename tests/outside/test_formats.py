"""Schemas in the formats of model APIs, exactly; names that a provider refuses; what `check` reports about the rest."""

import json

import pytest

from harness import cli, problem
from recipes import CALLERS, KEYS, params, sh, to_yaml

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "City, e.g. Oslo"}}, "required": ["city"],
          "additionalProperties": False}
OUTPUT = {"type": "object", "properties": {"sky": {"type": "string"}}}
WORDS = "Weather of a city now. Not for forecasts: 天気 ☂"
MANIFEST = {"tools": {
    "weather.get": sh("echo '{\"sky\": \"clear\"}'", description=WORDS, input_schema=SCHEMA, output_schema=OUTPUT, effect="read",
                      annotations={"title": "Weather"}, tags=["weather"]),
    "hello": sh("echo hello", parameters={}, effect="idempotent"),
    "asleep": sh("echo no", enabled=False)}}
HELLO = {"name": "hello", "description": MANIFEST["tools"]["hello"]["description"]}
NONE = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

# By name, as each API has them: hello first.
EXPECTED = {
    "openai": [{"type": "function", "function": {**HELLO, "parameters": NONE}},
               {"type": "function", "function": {"name": "weather_get", "description": WORDS, "parameters": SCHEMA}}],
    "openai-responses": [{"type": "function", **HELLO, "parameters": NONE, "strict": False},
                         {"type": "function", "name": "weather_get", "description": WORDS, "parameters": SCHEMA, "strict": False}],
    "anthropic": [{**HELLO, "input_schema": NONE}, {"name": "weather_get", "description": WORDS, "input_schema": SCHEMA}],
    "gemini": [{"functionDeclarations": [HELLO, {"name": "weather.get", "description": WORDS, "parametersJsonSchema": SCHEMA}]}],
    "bedrock": {"tools": [{"toolSpec": {**HELLO, "inputSchema": {"json": NONE}}},
                          {"toolSpec": {"name": "weather_get", "description": WORDS, "inputSchema": {"json": SCHEMA}}}]},
    "mcp": {"tools": [
        {**HELLO, "inputSchema": NONE, "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True}},
        {"name": "weather.get", "title": "Weather", "description": WORDS, "inputSchema": SCHEMA, "outputSchema": OUTPUT,
         "annotations": {"title": "Weather", "readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}}]},
}


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared(MANIFEST)


@pytest.mark.parametrize("form", EXPECTED)
def test_format_is_printed_and_served_alike(crib, tmp_path, form):
    """The route and the command line print the same; `?tag=` selects; an empty list has the form that the API accepts."""
    reply = crib.get(f"/tools?format={form}")
    assert reply.status == 200 and reply.json == EXPECTED[form], reply
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(MANIFEST), encoding="utf-8")
    done = cli("tools", "--format", form, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout) == EXPECTED[form], done
    tagged = crib.get(f"/tools?format={form}&tag=weather").json
    assert json.dumps(tagged).count("Weather of a city now") == 1 and "hello" not in json.dumps(tagged)
    for query in ("tag=none", "origin=registered"):
        assert crib.get(f"/tools?format={form}&{query}").json == ({"tools": []} if form in ("bedrock", "mcp") else [])
    assert crib.get(f"/tools?format={form}&origin=manifest").json == EXPECTED[form]
    tag = reply.headers["etag"]
    assert crib.get(f"/tools?format={form}", headers={"if-none-match": tag}).status == 304
    for switch, same in (("disable", False), ("enable", True)):
        crib.post(f"/tools/hello/{switch}")
        assert (crib.get(f"/tools?format={form}").headers["etag"] == tag) == same
    assert tag not in [crib.get(f"/tools?format={other}").headers["etag"] for other in EXPECTED if other != form]


def test_names_of_callers_do_not_depend_on_their_grants(start):
    callers = [dict(CALLERS[0], allow=["weather.*"]), *CALLERS[1:]]
    crib = start({"callers": callers, "tools": {name: sh("echo yes", effect="read") for name in ("weather.get", "weather.set", "weather_set")}}, env=KEYS)
    names = lambda key, form="openai": [tool["function"]["name"] for tool in crib.get(f"/tools?format={form}", key=KEYS[key]).json]  # noqa: E731
    assert names("ANN") == ["weather_get", "weather.set"], "`weather_set` is another tool, though this caller may not use it"
    assert names("BOB") == ["weather_get", "weather.set", "weather_set"]
    assert crib.invoke("weather_get", key=KEYS["ANN"]).json["tool"] == "weather.get", "the name leads back"


def test_unknown_format_is_refused(crib, tmp_path):
    assert all(form in problem(crib.get("/tools?format=morse"), 400)["detail"] for form in [*EXPECTED, "native"])
    done = cli("tools", "--format", "morse", cwd=tmp_path)
    assert done.returncode == 64 and all(form in done.stderr for form in EXPECTED), done


@pytest.mark.parametrize("tools, severity, says", [
    ({"rows.count": {}}, "hint", "refused by OpenAI, Anthropic and Bedrock: their models know the tool as rows_count"),
    ({"rows.count": {}, "rows_count": {}}, "warning", "rows_count could be another tool"),
    ({"2_rows": {}}, "warning", "refused by Gemini, and all tools of the request with it; write _2_rows, or give it an alias"),
    ({"2_rows": {"aliases": ["rows_2"]}}, "hint", "refused by Gemini: their models know the tool as rows_2"),
    ({"x" * 65: {}}, "warning", "refused by OpenAI, Gemini and Bedrock")])
def test_refused_name_is_a_finding(tmp_path, tools, severity, says):
    """A hint where the formats have another name for the tool, a warning where they have none; the format uses that name."""
    made = {name: sh("echo", effect="read", parameters=params(a="string"), **more) for name, more in tools.items()}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": made}), encoding="utf-8")
    found = json.loads(cli("check", "--format", "json", cwd=tmp_path).stdout)["findings"]
    refused = [finding for finding in found if finding["rule"] == "refused-name"]
    assert [finding["severity"] for finding in refused] == [severity] and says in refused[0]["message"], refused
    form = "gemini" if "2_rows" in tools else "openai"
    listed = json.loads(cli("tools", "--format", form, cwd=tmp_path).stdout)
    reported = {tool["name"] for tool in (listed[0]["functionDeclarations"] if form == "gemini" else [one["function"] for one in listed])}
    assert reported == (({says.rsplit(" ", 1)[1]}) if severity == "hint" else set(tools)), "no tool is left out"


@pytest.mark.parametrize("schema, rule, path", [
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "refused-schema", "input_schema.anyOf"),
    ({"properties": {"a b": {"type": "string", "description": "Two words"}}}, "refused-parameter", "input_schema.properties.a b")])
def test_unconvertible_schema_is_a_finding(tmp_path, schema, rule, path):
    complete = {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "string", "description": "First name"},
             "b": {"type": "string", "description": "Last name"}}, **schema}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"x": sh("echo", input_schema=complete)}}), encoding="utf-8")
    found = json.loads(cli("check", "--format", "json", cwd=tmp_path).stdout)["findings"]
    assert [(finding["severity"], finding["path"]) for finding in found if finding["rule"] == rule] == [("warning", f"tools.x.{path}")]
