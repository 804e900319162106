"""`GET /tools?format=`: each provider's own SDK takes it, sends it on unchanged, and its types let nothing pass that is not theirs."""

import json
import re
import shutil
import typing

import jsonschema
import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from conftest import HERE, PLACE, run
from harness import BIN, Crib
from upstream import Upstream

JSON = {"content-type": "application/json"}
FORMATS = ["openai", "openai-responses", "anthropic", "gemini", "bedrock", "mcp"]

# Arguments, and whether they are valid; the schema of each format must agree.
ARGUMENTS = {
    "weather.get": [({"city": "Oslo"}, True), ({"city": "Oslo", "units": "kelvin"}, False), ({"city": "Oslo", "day": 1}, False)],
    "book-flight": [
        ({"from": "OSL", "to": "TOS", "travellers": [{"name": "A", "age": None}], "payment": {"invoice": True}, "extras": {"bag": 1}}, True),
        ({"from": "OSL", "to": "tos", "travellers": [{"name": "A"}]}, False),
        ({"from": "OSL", "to": "TOS", "travellers": [{"name": "A", "age": -1}]}, False),
        ({"from": "OSL", "to": "TOS", "travellers": [{"name": "A"}], "payment": {"card": "1234", "invoice": True}}, False)],
    "ping": [({}, True), ({"a": 1}, False)],
    "anything": [({"a": [1, {"b": None}]}, True)],
    "older": [({"pair": [1, "ab"], "word": "cd", "list": [1, "a"], "free": {}}, True), ({"pair": [1, "ab"]}, False),
              ({"pair": [1, "a"], "word": "cd"}, False), ({"pair": [1, "ab", 2], "word": "cd"}, False), ({"never": 1}, False)],
    "tree": [({"root": {"name": "a", "kids": [{"name": "b", "kids": []}]}}, True), ({"root": {"name": "a", "kids": [{}]}}, False)],
    "3d_render": [({"scene": "s"}, True), ({}, False)],
}
# The names under which they go out: as they are where the provider takes them.
NAMES = {form: {name: name for name in ARGUMENTS} for form in FORMATS}
for form in ("openai", "openai-responses", "anthropic", "bedrock"):
    NAMES[form]["weather.get"] = "weather_get"
NAMES["gemini"]["3d_render"] = "render_3d"
# The name rules of the providers: the SDKs' documentation of each type.
TAKEN = {"openai": r"[a-zA-Z0-9_-]{1,64}", "openai-responses": r"[a-zA-Z0-9_-]{1,64}", "anthropic": r"[a-zA-Z0-9_-]{1,128}",
         "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", "bedrock": r"[a-zA-Z0-9_-]{1,64}", "mcp": r"[A-Za-z0-9_.-]{1,128}"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    crib = Crib(tmp_path_factory.mktemp("formats"), (HERE / "formats.yaml").read_text())
    yield crib
    crib.stop()


@pytest.fixture(scope="module")
def tools(shop):
    """The tool list in each format."""
    return {form: shop.get(f"/tools?format={form}").json for form in FORMATS}


@pytest.fixture(scope="module")
def api():
    """A model's API that answers little, and remembers what it was sent."""
    up = Upstream()
    yield up
    up.close()


def last_request(api):
    return json.loads(api.requests[-1][3])


def script(api, path, answer):
    api.script(path, lambda handler: handler.reply(200, answer))


def names_and_schemas(form, tools):
    """`(name, input schema)` of every tool."""
    took = {"openai": lambda all: [(tool["function"]["name"], tool["function"]["parameters"]) for tool in all],
            "openai-responses": lambda all: [(tool["name"], tool["parameters"]) for tool in all],
            "anthropic": lambda all: [(tool["name"], tool["input_schema"]) for tool in all],
            "gemini": lambda all: [(tool["name"], tool.get("parametersJsonSchema")) for tool in all[0]["functionDeclarations"]],
            "bedrock": lambda all: [(tool["toolSpec"]["name"], tool["toolSpec"]["inputSchema"]["json"]) for tool in all["tools"]],
            "mcp": lambda all: [(tool["name"], tool["inputSchema"]) for tool in all["tools"]]}
    return took[form](tools)


def strict(kind):
    """A validator for a TypedDict that refuses keys which are not its own, also within."""
    seen = set()

    def close(kind):
        if kind in seen:
            return
        seen.add(kind)
        if is_typeddict(kind):
            if "__pydantic_config__" not in kind.__dict__:
                kind.__pydantic_config__ = ConfigDict(extra="forbid")
            for inner in typing.get_type_hints(kind).values():
                close(inner)
        for inner in typing.get_args(kind):
            close(inner)

    close(kind)
    return TypeAdapter(list[kind])


# ---- what holds for all -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("form", FORMATS)
def test_enabled_tools_have_names_the_provider_accepts(tools, form):
    found = [name for name, _ in names_and_schemas(form, tools[form])]
    assert sorted(found) == sorted(NAMES[form].values())
    assert all(re.fullmatch(TAKEN[form], name) for name in found), found


@pytest.mark.parametrize("form", FORMATS)
def test_schemas_are_plain_and_equivalent(shop, tools, form):
    """The schemas are of 2020-12, have no external references, and have properties. They accept the same arguments as the service."""
    schemas = dict(names_and_schemas(form, tools[form]))
    for tool, samples in ARGUMENTS.items():
        schema = schemas[NAMES[form][tool]]
        if schema is None:
            assert (form, tool) in [("gemini", "ping"), ("gemini", "anything")], "only what has no parameters goes without a schema"
            continue
        assert schema["type"] == "object" and isinstance(schema["properties"], dict)
        assert all(isinstance(one, dict) for one in schema["properties"].values())
        assert "$schema" not in schema and "$id" not in schema
        assert all(target == "#" or target.startswith("#/$defs/") for target in re.findall(r'"\$ref": "(.*?)"', json.dumps(schema)))
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for arguments, fits in samples:
            assert validator.is_valid(arguments) == fits, (tool, arguments)
            reported = shop.post(f"/tools/{tool}/validate", json.dumps({"arguments": arguments}), headers=JSON).status
            assert reported == (200 if fits else 422), (tool, arguments)


@pytest.mark.parametrize("form", FORMATS)
def test_command_line_prints_the_same_formats(tools, form, work):
    text = run(BIN, "tools", "--manifest", HERE / "formats.yaml", "--format", form, cwd=work).stdout
    assert json.loads(text) == tools[form]


def test_check_reports_changed_names(work):
    text = run(BIN, "check", "--manifest", HERE / "formats.yaml", cwd=work).stdout
    assert "hint: tools.weather.get: this name is refused by OpenAI, Anthropic and Bedrock: their models know the tool as weather_get" in text
    assert "hint: tools.3d_render: this name is refused by Gemini: their models know the tool as render_3d" in text


# ---- the official Python SDKs -------------------------------------------------------------------------------------------

def test_openai(tools, api):
    from openai import OpenAI
    from openai.types.chat import ChatCompletionFunctionToolParam

    kind = strict(ChatCompletionFunctionToolParam)
    assert kind.validate_python(tools["openai"], strict=True) == tools["openai"]
    with pytest.raises(ValidationError, match="descripton"):
        kind.validate_python([{"type": "function", "function": {"name": "x", "descripton": "y"}}])
    script(api, "/v1/chat/completions", {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": []})
    client = OpenAI(base_url=api.base + "/v1", api_key="k", max_retries=0)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], tools=tools["openai"])
    assert last_request(api)["tools"] == tools["openai"]


def test_openai_responses(tools, api):
    from openai import OpenAI
    from openai.types.responses import FunctionToolParam

    kind = strict(FunctionToolParam)
    assert kind.validate_python(tools["openai-responses"], strict=True) == tools["openai-responses"]
    with pytest.raises(ValidationError, match="strict"):
        kind.validate_python([{"type": "function", "name": "x", "parameters": {}}])
    assert all(tool["strict"] is False for tool in tools["openai-responses"]), "or parameters that may be left out would not be"
    script(api, "/v1/responses", {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": []})
    client = OpenAI(base_url=api.base + "/v1", api_key="k", max_retries=0)
    client.responses.create(model="m", input="?", tools=tools["openai-responses"])
    assert last_request(api)["tools"] == tools["openai-responses"]


def test_anthropic(tools, api):
    from anthropic import Anthropic
    from anthropic.types import ToolParam

    kind = strict(ToolParam)
    assert kind.validate_python(tools["anthropic"], strict=True) == tools["anthropic"]
    with pytest.raises(ValidationError, match="parameters"):
        kind.validate_python([{"name": "x", "input_schema": {"type": "object"}, "parameters": {}}])
    script(api, "/v1/messages", {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
                                 "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}})
    client = Anthropic(base_url=api.base, api_key="k", max_retries=0)
    client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "?"}], tools=tools["anthropic"])
    assert last_request(api)["tools"] == tools["anthropic"]


def test_anthropic_defers_and_refers(tmp_path):
    from anthropic.types import ToolParam, ToolReferenceBlockParam

    ping = {"kind": "command", "description": "Rings a bell.", "command": ["true"], "effect": "read"}
    crib = Crib(tmp_path, json.dumps({"tools": {f"ring_{at}": ping for at in range(3)}, "discovery": {"above": "2 tools", "defer_loading": True}}))
    try:
        listed = crib.get("/tools?format=anthropic").json
        call = {"type": "tool_use", "id": "toolu_1", "name": "search_tools", "input": {"query": "ring a bell"}}
        answer = crib.post("/calls", json.dumps({"role": "assistant", "content": [call]}), headers=JSON).json["messages"]
    finally:
        crib.stop()
    assert strict(ToolParam).validate_python(listed, strict=True) == listed
    assert [tool["name"] for tool in listed if not tool.get("defer_loading")] == ["search_tools"]
    (result,) = answer[0]["content"]
    assert result["type"] == "tool_result" and result["tool_use_id"] == "toolu_1"
    assert {block["tool_name"] for block in result["content"]} == {f"ring_{at}" for at in range(3)}
    assert strict(ToolReferenceBlockParam).validate_python(result["content"], strict=True) == result["content"]


def test_gemini(tools, api):
    from google import genai
    from google.genai import types

    # The SDK's models refuse keys that they do not know.
    with pytest.raises(ValidationError, match="Extra inputs"):
        types.Tool.model_validate({"functionDeclarations": [{"name": "x", "parametersSchema": {}}]})
    # `parameters`, the older field, has no place for what tools say: the reason for parametersJsonSchema.
    with pytest.raises(ValidationError, match="oneOf"):
        types.FunctionDeclaration.model_validate({"name": "x", "parameters": {"type": "object", "properties": {"a": {"oneOf": []}}}})
    script(api, "/v1/models/m:generateContent", {"candidates": []})
    client = genai.Client(api_key="k", vertexai=False, http_options=types.HttpOptions(base_url=api.base))
    client.models.generate_content(model="m", contents="?", config=types.GenerateContentConfig(tools=tools["gemini"]))
    # This client writes the one field in protobuf's spelling, which the API reads as well.
    arrived = json.dumps(last_request(api)["tools"]).replace('"parameters_json_schema":', '"parametersJsonSchema":')
    assert json.loads(arrived) == tools["gemini"]


def test_bedrock(tools, api):
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ParamValidationError

    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=api.base, aws_access_key_id="a",
                          aws_secret_access_key="s", config=Config(retries={"max_attempts": 1}))
    script(api, "/model/m/converse", {"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "end_turn",
                                      "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}})

    def converse(config):
        return client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "?"}]}], toolConfig=config)

    converse(tools["bedrock"])
    assert last_request(api)["toolConfig"] == tools["bedrock"]
    with pytest.raises(ParamValidationError, match="inputschema"):
        converse({"tools": [{"toolSpec": {"name": "x", "inputschema": {}}}]})
    # Patterns are in AWS's model of the service; its client leaves them to the service.
    spec = client.meta.service_model.shape_for("ToolSpecification").members
    for tool in tools["bedrock"]["tools"]:
        for field in ("name", "description"):
            limits, text = spec[field].metadata, tool["toolSpec"][field]
            assert limits.get("min", 0) <= len(text) <= limits.get("max", len(text))
            assert re.fullmatch(limits.get("pattern", "(?s:.*)"), text)


def test_mcp(tools):
    from mcp_types import _v2025_11_25, _v2026_07_28

    newer = {**tools["mcp"], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    for version, listed in ((_v2025_11_25, tools["mcp"]), (_v2026_07_28, newer)):
        read = version.ListToolsResult.model_validate(listed)
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == listed, "nothing in it is ignored"
    with pytest.raises(ValidationError):
        _v2025_11_25.ListToolsResult.model_validate({"tools": [{"name": "x", "inputSchema": {"type": "array"}}]})
    by_name = {tool["name"]: tool for tool in tools["mcp"]["tools"]}
    assert by_name["weather.get"]["title"] == "Weather"
    assert by_name["weather.get"]["annotations"] == {"title": "Weather", "openWorldHint": True, "readOnlyHint": True,
                                                     "destructiveHint": False, "idempotentHint": True}
    assert by_name["book-flight"]["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}
    assert by_name["older"]["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True}
    assert by_name["tree"]["outputSchema"]["type"] == "object", "what the root refers to"
    assert "outputSchema" not in by_name["3d_render"], "structured content is an object in MCP before 2026-07-28"


# ---- the official JavaScript SDKs ---------------------------------------------------------------------------------------

TSC = ["--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "--types", "node"]


@pytest.fixture(scope="module")
def program(tools, work):
    """A folder with use_formats.ts, the tools written into it as literals: types are held against those to the last key."""
    if not (PLACE / "node_modules/openai").exists() or not shutil.which("node"):
        pytest.skip(f"no packages of package.json in {PLACE}, or no node")
    folder = work / "formats"
    folder.mkdir()
    (folder / "package.json").write_text('{"type": "module"}')
    text = (HERE / "use_formats.ts").read_text()
    for form in FORMATS:
        hole = f"/* {form} */ []"
        assert text.count(hole) == 1
        text = text.replace(hole, json.dumps(tools[form], indent=2, ensure_ascii=False))
    (folder / "use_formats.ts").write_text(text)
    return folder


def test_javascript(program, tools, api):
    """`tsc --strict` takes each list as the SDK's type, and a misspelt one not; what the clients send is what was given."""
    text = (program / "use_formats.ts").read_text()
    misuses = {
        "openai": ("parameters", "arguments"), "strict": ("strict", "strct"), "anthropic": ("input_schema", "inputSchema"),
        "gemini": ("parametersJsonSchema", "parametersSchema"), "bedrock": ("toolSpec", "toolspec"), "mcp": ("readOnlyHint", "readonlyHint"),
    }
    for file, (right, unknown) in misuses.items():
        assert f'"{right}":' in text
        (program / f"{file}.ts").write_text(text.replace(f'"{right}":', f'"{unknown}":', 1))
    output = run(PLACE / "node_modules/.bin/tsc", *TSC, "use_formats.ts", *(f"{file}.ts" for file in misuses), cwd=program, ok=False)
    complaints = [line for line in output.stdout.splitlines() if re.match(r"\w+\.ts\(", line)]
    for file, (_, unknown) in misuses.items():
        assert any(line.startswith(f"{file}.ts") and f"'\"{unknown}\"' does not exist in type" in line for line in complaints), output.stdout
    assert not any(line.startswith("use_formats.ts") for line in complaints), output.stdout

    before = len(api.requests)
    script(api, "/js/chat/completions", {"choices": []})
    script(api, "/js/responses", {"output": []})
    script(api, "/js/v1/messages", {"content": []})
    script(api, "/js/v1beta/models/m:generateContent", {"candidates": []})
    script(api, "/js/model/m/converse", {"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "end_turn"})
    assert run("node", "use_formats.js", api.base + "/js", cwd=program).stdout.endswith("done\n")
    bodies = [json.loads(body) for _, _, _, body in api.requests[before:]]
    assert [body.get("tools") or body.get("toolConfig") for body in bodies] == [tools[form] for form in FORMATS if form != "mcp"]
