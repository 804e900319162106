"""`toolcrib types`: its files, checked by real compilers together with the packages that they extend, and used."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import run
from harness import REPO, cli, token

pytestmark = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")

SHOP = """
tools:
  get_weather:
    kind: command
    description: Current weather of a city.
    effect: read
    parameters: {city: {type: string, description: The city}, days: {type: integer, description: How many days, required: false}}
    output_schema: {type: object, required: [temperature], additionalProperties: false, properties: {temperature: {type: number}}}
    command: [/bin/echo, '{"temperature": 21.5}']
  clock: {kind: command, description: Tells the time., effect: read, parameters: {}, command: [/bin/echo, noon]}
  shop.find-it: {kind: command, description: Finds., effect: read, parameters: {words: {type: string, description: Words}}, command: [/bin/echo, found]}
  sad: {kind: command, description: Fails., effect: read, parameters: {}, command: [/bin/sh, -c, "echo sorry >&2; exit 1"]}
  picture: {kind: native, use: add_image, with: {root: .}}
"""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# Each line that follows a comment `wrong` has to be refused.
TYPESCRIPT = """
import { Client, type Answer, type ToolArguments } from "toolcrib";
import type {} from "./tools.js";

const toolcrib = new Client("http://localhost:7411");
declare const name: string, json: Record<string, unknown>;

const weather = await toolcrib.invoke("get_weather", { city: "Oslo" }, { runId: "r" });
if (!weather.is_error) weather.structured_content.temperature.toFixed();
const clock: Answer = await toolcrib.invoke("clock");
await toolcrib.invoke("get_weather", '{"city": "Oslo"}');
await toolcrib.invoke(name, json);
const getWeather = toolcrib.tool("get_weather");
(await getWeather({ city: "Oslo", days: 2 })).temperature.toFixed();
for await (const event of toolcrib.stream("get_weather", { city: "Oslo" })) {
  if (event.type === "result" && !event.data.is_error) event.data.structured_content.temperature.toFixed();
}
const kept: ToolArguments<"get_weather"> = { city: clock.tool };
await getWeather(kept);
const tools = await toolcrib.tools({ format: "ai-sdk", runId: "r" });
await tools["shop_find-it"].execute({ words: "a" }, { toolCallId: "c", messages: [] });
// wrong
await toolcrib.invoke("get_weather");
// wrong
await toolcrib.invoke("get_weather", {});
// wrong
await toolcrib.invoke("get_weather", { city: 5 });
// wrong
await toolcrib.invoke("get_weather", { city: "Oslo", day: 5 });
// wrong
await toolcrib.invoke("get_wether", { city: "Oslo" });
// wrong
await toolcrib.invoke("clock", {}, { runid: "r" });
// wrong
await getWeather({ town: "Oslo" });
// wrong
(await getWeather({ city: "Oslo" })).temperatur;
// wrong
weather.structured_content.temperature;
// wrong
toolcrib.tool("wether");
""".replace("// wrong", "// @ts-expect-error")

PYTHON = """
from tools import AsyncClient, Client, GetWeatherArguments

toolcrib = Client("http://localhost:7411")
answer = toolcrib.invoke("get_weather", {"city": "Oslo"}, run_id="r")
temperature: float = answer["structured_content"]["temperature"]
toolcrib.invoke("clock")
toolcrib.invoke("get_weather", '{"city": "Oslo"}')
kept: GetWeatherArguments = {"city": "Oslo", "days": 2}
toolcrib.invoke("get_weather", kept)
toolcrib.cancel(answer["invocation_id"])

async def call(client: AsyncClient) -> float:
    return (await client.invoke("get_weather", {"city": "Oslo"}))["structured_content"]["temperature"]

toolcrib.invoke("get_weather")  # wrong
toolcrib.invoke("get_weather", {})  # wrong
toolcrib.invoke("get_weather", {"city": 5})  # wrong
toolcrib.invoke("get_weather", {"city": "Oslo", "day": 5})  # wrong
toolcrib.invoke("get_wether", {"city": "Oslo"})  # wrong
toolcrib.invoke("clock", {}, runid="r")  # wrong
text: str = answer["structured_content"]["temperature"]  # wrong
answer["structured_content"]["temperatur"]  # wrong
"""

# What schemas of other parties have in them.
ODD = {
    "type": "object", "required": ["class", "both", "missing"],
    "properties": {
        "class": {"type": "string", "description": "type: ignore */ \"quoted\" \\\\ \\u0000 \n@ts-ignore"}, "a-b.c d": {"type": ["string", "null"]},
        "__private": {"const": {"a": [1, "x", None, 1.5]}}, "": {"enum": ["\\", "\"", "'", "\n", "é", 10**30, -0.0, 1e300]}, "constructor": True, "never": False,
        "tree": {"$ref": "#/$defs/tree"}, "self": {"$ref": "#"}, "loop": {"$ref": "#/$defs/loop"}, "pair": {"$ref": "#/$defs/pair"},
        "both": {"allOf": [{"$ref": "#/$defs/tree"}, {"type": "object", "properties": {"more": {"type": "integer"}}, "required": ["more"]}]},
        "either": {"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}}, {"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "number"}]}}]},
        "map": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"$ref": "#/$defs/pair"}},
        "names": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        "untyped": {"properties": {"a": {"minimum": 3}}, "required": ["a"]},
    },
    "anyOf": [{"required": ["tree"]}, {"required": ["pair"]}, {"properties": {"tree": {"type": "object"}}}],
    "$defs": {
        "tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}, "any": {"$ref": "#/$defs/any"}}},
        "any": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/any"}}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}}]},
        "loop": {"anyOf": [{"$ref": "#/$defs/knot"}, {"type": "string"}]}, "knot": {"allOf": [{"$ref": "#/$defs/loop"}]},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 1, "items": {"$ref": "#/$defs/pair"}},
    },
}
PLAIN = {"type": "object", "properties": {"a": {"type": "string"}}}
# Names that become the same word, and words of the languages.
NAMES = ["get-it", "GetIt", "class", "import", "1st", "_", "list.all", "client", "Any", "x" * 120]


@pytest.fixture(scope="module")
def project(artefacts, tmp_path_factory):
    """A project with the client, the oldest and the newest TypeScript, and the AI SDK."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "package.json").write_text('{"name": "project", "private": true, "type": "module"}')
    others = ("oldest@npm:typescript@5.0", "newest@npm:typescript@latest", "ai5@npm:ai@5", "ai6@npm:ai@6", "ai7@npm:ai@7", "@types/node@22")
    run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts", *artefacts.glob("*.tgz"), *others, cwd=folder)
    return folder


def write_types(folder, *arguments, name="tools"):
    """Both files, of what `arguments` names."""
    for language, file in (("typescript", f"{name}.d.ts"), ("python", f"{name}.py")):
        done = cli("types", "--language", language, *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout == cli("types", "--language", language, *arguments, cwd=folder).stdout
        (folder / file).write_text(done.stdout, encoding="utf-8")


def tsc(project, version, *files):
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "--types", "node", "--skipLibCheck", "true"]
    return run("node", f"node_modules/{version}/bin/tsc", *options, *files, cwd=project)


def mypy(installed, folder, *files):
    command = [installed.python, "-m", "mypy", "--strict", "--python-version", "3.10", "--no-error-summary", "--cache-dir", folder / "cache", *files]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True)


@pytest.fixture(scope="module")
def shop(project):
    (project / "toolcrib.yaml").write_text(SHOP)
    write_types(project)
    return project


@pytest.mark.parametrize("version", ["oldest", "newest"])
def test_typescript_checks_names_arguments_and_results(shop, version):
    (shop / "use.ts").write_text(TYPESCRIPT)
    tsc(shop, version, "use.ts")


def test_a_program_with_the_types_runs(shop):
    """The file of types has no code: an import that stays in the program fails."""
    (shop / "runs.ts").write_text('import { Client } from "toolcrib";\nimport type {} from "./tools.js";\nconsole.log(typeof new Client().tool("clock"));\n')
    run("node", "node_modules/oldest/bin/tsc", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node", "--skipLibCheck", "--outDir", "out", "runs.ts", cwd=shop)
    assert run("node", "out/runs.js", cwd=shop) == "function\n"


def test_mypy_checks_names_arguments_and_results(shop, installed):
    (shop / "use.py").write_text(PYTHON)
    found = mypy(installed, shop, "use.py").stdout
    wrong = {at for at, line in enumerate(PYTHON.splitlines(), 1) if line.endswith("# wrong")}
    refused = {int(line.split(":")[1]) for line in found.splitlines() if ": error:" in line}
    assert refused == wrong, found


def test_module_of_one_tool_and_of_none(installed, project, tmp_path):
    for name, manifest in (("one", "tools: {calculator: {kind: native}}"), ("none", "tools: {}")):
        (tmp_path / "toolcrib.yaml").write_text(manifest)
        write_types(tmp_path, name=name)
        shutil.copy(tmp_path / f"{name}.d.ts", project)
        tsc(project, "newest", f"{name}.d.ts")
    (tmp_path / "use.py").write_text('import none\nfrom one import Client\nClient().invoke("calculator", {"expression": "1"})\nClient().invoke("calculater", {})\n')
    found = mypy(installed, tmp_path, "use.py").stdout
    assert {line.split(":")[0:2][1] for line in found.splitlines() if ": error:" in line} == {"4"}, found


def test_every_schema_gives_files_that_compile(start, project, installed):
    """Schemas of a foreign server, and of the example manifests."""
    tools = [{"name": name, "description": ODD["properties"]["class"]["description"], "inputSchema": ODD if at % 2 else PLAIN,
              "outputSchema": PLAIN if at % 2 else ODD} for at, name in enumerate(NAMES)]
    (project / "odd.py").write_text(SERVER.replace("TOOLS", repr(json.dumps(tools))))
    crib = start({"mcp_servers": {"odd": {"command": ["python3", str(project / "odd.py")]}}, "tools": {"calculator": {"kind": "native"}}})
    (project / "odd.py").unlink()
    assert len(crib.get("/tools").json["tools"]) == len(NAMES) + 1
    write_types(project, "--server", crib.base, name="odd")
    secrets = {name: token() for name in ("WEATHER_KEY", "RESEARCH_KEY", "OPERATOR_KEY")}
    for name, manifest in (("examples", "examples/toolcrib.yaml"), ("trips", "examples/python/toolcrib.yaml")):
        for language, file in (("typescript", f"{name}.d.ts"), ("python", f"{name}.py")):
            done = cli("types", "--language", language, "--manifest", str(REPO / manifest), cwd=project, env=secrets)
            assert done.returncode == 0, done.stderr
            (project / file).write_text(done.stdout, encoding="utf-8")
    names = ("odd", "examples", "trips")
    for version in ("oldest", "newest"):
        for name in names:
            shutil.copy(project / f"{name}.d.ts", project / f"{name}_types.ts")
            tsc(project, version, f"{name}_types.ts")
    done = mypy(installed, project, *(f"{name}.py" for name in names))
    assert done.returncode == 0, done.stdout
    for name in names:
        installed.run("-c", f"import {name}; {name}.Client", cwd=project)


SERVER = '''
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        version = asked.get("params", {}).get("protocolVersion", "2025-06-18")
        answers = {"initialize": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}},
                   "tools/list": {"tools": json.loads(TOOLS)}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}), flush=True)
'''


AGENT = """
import { generateText, stepCountIs } from "aiVERSION";
import * as mock from "aiVERSION/test";
import { Client } from "toolcrib";

const calls = [["get_weather", { city: "Oslo" }], ["get_weather", {}], ["shop_find-it", { words: "a" }], ["sad", {}], ["picture", { source: "data:image/png;base64,PIXEL" }]];
const Model = mock.MockLanguageModelV4 ?? mock.MockLanguageModelV3 ?? mock.MockLanguageModelV2;
const isOld = Model === mock.MockLanguageModelV2;
const usage = isOld ? { inputTokens: 1, outputTokens: 1, totalTokens: 2 } : { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const finish = (reason) => ({ finishReason: isOld ? reason : { unified: reason, raw: reason }, usage, warnings: [] });
const prompts = [];
const model = new Model({
  doGenerate: async ({ prompt, tools }) => {
    prompts.push({ prompt, tools });
    if (prompts.length > 1) return { content: [{ type: "text", text: "done" }], ...finish("stop") };
    const content = calls.map(([toolName, input], at) => ({ type: "tool-call", toolCallId: `c${at}`, toolName, input: JSON.stringify(input) }));
    return { content, ...finish("tool-calls") };
  },
});
const tools = await new Client(process.env.TOOLCRIB_URL).tools({ format: "ai-sdk", runId: "agent-VERSION" });
const { text } = await generateText({ model, tools, stopWhen: stepCountIs(3), prompt: "x" });
const results = prompts[1].prompt.filter((message) => message.role === "tool").flatMap((message) => message.content);
const offered = Object.fromEntries(prompts[0].tools.map((tool) => [tool.name, tool]));
console.log(JSON.stringify({ text, results, offered }));
"""


@pytest.mark.parametrize("version", ["5", "6", "7"])
def test_agent_of_the_ai_sdk_runs_tools(shop, start, version):
    crib = start(SHOP)
    (shop / f"agent{version}.mjs").write_text(AGENT.replace("VERSION", version).replace("PIXEL", PIXEL))
    done = json.loads(run("node", "--no-warnings", f"agent{version}.mjs", cwd=shop, env={**os.environ, "TOOLCRIB_URL": crib.base}).splitlines()[-1])
    assert done["text"] == "done" and done["offered"]["get_weather"]["inputSchema"]["required"] == ["city"], done
    weather, refused, found, sad, picture = (result["output"] for result in done["results"])
    assert (weather["type"], json.loads(weather["value"])) == ("text", {"temperature": 21.5})
    assert refused["type"] == "error-text" and "city" in refused["value"], refused
    assert found == {"type": "text", "value": "found"}
    assert sad["type"] == "error-text" and "sorry" in sad["value"], sad
    assert picture["type"] == "content" and picture["value"][0]["mediaType"] == "image/png", picture
    rows = crib.get(f"/invocations?run_id=agent-{version}").json["invocations"]
    assert sorted(row["tool"] for row in rows) == ["get_weather", "get_weather", "picture", "sad", "shop.find-it"]


@pytest.mark.parametrize("version", ["5", "6", "7"])
def test_tools_fit_the_types_of_the_ai_sdk(shop, version):
    (shop / f"agent{version}.ts").write_text(f"""
import {{ generateText, stepCountIs, type ToolSet }} from "ai{version}";
import {{ Client }} from "toolcrib";
import type {{}} from "./tools.js";

const tools = await new Client().tools({{ format: "ai-sdk" }});
const set: ToolSet = tools;
const done = await generateText({{ model: "openai/gpt-5", tools, stopWhen: stepCountIs(5), prompt: "x" }});
for (const call of done.toolCalls) if (!call.dynamic && call.toolName === "get_weather") call.input.city.trim();
for (const result of done.toolResults) {{
  if (!result.dynamic && result.toolName === "get_weather" && !result.output.is_error) result.output.structured_content.temperature.toFixed();
}}
""")
    tsc(shop, "newest", f"agent{version}.ts")


def test_tool_is_a_function(shop, start):
    (shop / "function.mjs").write_text("""
import { Client, ToolError } from "toolcrib";
const toolcrib = new Client(process.env.TOOLCRIB_URL);
const thrown = await toolcrib.tool("sad")().catch((error) => error);
const definition = await toolcrib.definition("sad");
const unknown = await toolcrib.tools({ format: "ai-sdk", runid: "r" }).catch((error) => error.message);
console.log(JSON.stringify([await toolcrib.tool("get_weather")({ city: "Oslo" }), await toolcrib.tool("clock")(),
  thrown instanceof ToolError, thrown.message, thrown.answer.is_error, definition.effect, unknown]));
""")
    found = json.loads(run("node", "function.mjs", cwd=shop, env={**os.environ, "TOOLCRIB_URL": start(SHOP).base}))
    assert found[:6] == [{"temperature": 21.5}, "noon", True, "exit status 1: sorry", True, "read"] and "there is no option runid" in found[6]


def test_server_that_refuses_is_an_error(start, tmp_path):
    crib = start({"callers": [{"name": "a", "key": "a-long-enough-key-0123"}], "tools": {"calculator": {"kind": "native"}}})
    assert cli("types", "--server", crib.base, cwd=tmp_path).returncode == 1
    assert "calculator:" in cli("types", "--server", crib.base, "--key", "a-long-enough-key-0123", cwd=tmp_path).stdout
    assert cli("types", "--language", "cobol", cwd=tmp_path).returncode == 64
