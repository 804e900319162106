"""Tools of frameworks: what a model gets equals what the framework itself gives it, under its oldest and its newest version."""

import json
import subprocess

import jsonschema
import pytest
from worker_process import error_text, ok, text_of

SHAPE = """{
    city: z.string().describe("The city."),
    days: z.number().int().min(1).max(14).default(2),
    unit: z.enum(["km", "mi"]),
    place: z.object({ lat: z.number(), lon: z.number() }).describe("Where."),
    tags: z.array(z.string()).max(5),
    when: z.union([z.string(), z.number()]),
    note: z.string().nullable(),
  }"""
LOOSE = """{ text: z.string(), limit: z.number().optional(), scores: z.record(z.string(), z.number()), mode: z.literal("fast") }"""
PLACE = {"city": "Oslo", "days": 3, "unit": "km", "place": {"lat": 59.9, "lon": 10.7}, "tags": ["a"], "when": 5, "note": None}
CALLS = {
    "weather": PLACE,
    "search": {"text": "a", "scores": {"b": 1}, "mode": "fast"},
    "nothing": {},
    "fail": {"city": "Oslo"},
}

AI = """
    import { tool } from "ai";
    import * as z from "zod";
    export const weather = tool({ description: "Tells the weather.", inputSchema: z.object(%s), execute: async ({ city, days }) => ({ city, days, at: new Date(0) }) });
    export const search = tool({ description: "Searches.", inputSchema: z.object(%s), execute: async ({ text }) => `found ${text}` });
    export const nothing = tool({ description: "Gives nothing.", inputSchema: z.object({}), execute: async () => undefined });
    export const fail = tool({ description: "Fails.", inputSchema: z.object({ city: z.string() }), execute: async () => { throw new TypeError("it is closed") } });
""" % (SHAPE, LOOSE)  # fmt: skip
AI_REFERENCE = """
    import { generateText, stepCountIs } from "ai";
    import * as mocks from "ai/test";
    import * as tools from "./tools.ts";
    const calls = JSON.parse(process.argv[2]), specs = {}, results = {};
    const Mock = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3 ?? mocks.MockLanguageModelV2;
    const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 }, totalTokens: 2 };
    for (const [toolName, input] of Object.entries(calls)) {
      let step = 0;
      const model = new Mock({ doGenerate: async ({ tools, prompt }) => {
        for (const { name, description, inputSchema } of tools) specs[name] = { description, inputSchema };
        if (step++ === 0) return { content: [{ type: "tool-call", toolCallId: "c1", toolName, input: JSON.stringify(input) }], finishReason: mocks.MockLanguageModelV3 ? { unified: "tool-calls", raw: "x" } : "tool-calls", usage, warnings: [] };
        results[toolName] = prompt.at(-1).content[0].output;
        return { content: [{ type: "text", text: "ok" }], finishReason: mocks.MockLanguageModelV3 ? { unified: "stop", raw: "x" } : "stop", usage, warnings: [] };
      } });
      await generateText({ model, tools: { ...tools }, prompt: "hi", stopWhen: stepCountIs(2) });
    }
    const text = ({ type, value }) => ({ text: /text$/.test(type) ? value : JSON.stringify(value), isError: type.startsWith("error") });
    console.log(JSON.stringify({ specs, results: Object.fromEntries(Object.entries(results).map(([name, output]) => [name, text(output)])) }));
"""

OPENAI = """
    import { tool } from "@openai/agents";
    import * as z from "zod";
    export const weatherTool = tool({ name: "weather", description: "Tells the weather.", parameters: z.object(%s), execute: async ({ city, days }) => ({ city, days }) });
    export const searchTool = tool({ name: "search", description: "Searches.", strict: false, parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: true }, execute: async ({ text }) => `found ${text}` });
    export const nothingTool = tool({ name: "nothing", description: "Gives nothing.", parameters: z.object({}), execute: async () => "" });
    export const failTool = tool({ name: "fail", description: "Fails.", parameters: z.object({ city: z.string() }), execute: async () => { throw new TypeError("it is closed") } });
""" % SHAPE  # fmt: skip
OPENAI_REFERENCE = """
    import * as sdk from "@openai/agents";
    import * as tools from "./tools.ts";
    sdk.setTracingDisabled(true);
    const calls = JSON.parse(process.argv[2]), specs = {}, results = {};
    const usage = { requests: 1, inputTokens: 0, outputTokens: 0, totalTokens: 0, inputTokensDetails: [], outputTokensDetails: [], add() {} };
    for (const [name, input] of Object.entries(calls)) {
      let step = 0;
      const model = { async getResponse(request) {
        for (const { name, description, parameters } of request.tools) specs[name] = { description, inputSchema: parameters };
        if (step++ === 0) return { usage, output: [{ type: "function_call", callId: "c1", name, arguments: JSON.stringify(input), status: "completed" }] };
        const { text } = request.input.at(-1).output;
        results[name] = { text, isError: text.startsWith("An error occurred") };
        return { usage, output: [{ type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: "ok" }] }] };
      } };
      await sdk.run(new sdk.Agent({ name: "a", model, tools: Object.values(tools) }), "hi");
    }
    console.log(JSON.stringify({ specs, results }));
"""

LANGCHAIN = """
    import { tool, DynamicStructuredTool, StructuredTool } from "@langchain/core/tools";
    import * as z from "zod";
    export const weather = tool(async ({ city, days }) => ({ city, days }), { name: "weather", description: "Tells the weather.", schema: z.object(%s) });
    export const search = new DynamicStructuredTool({ name: "search", description: "Searches.", schema: z.object(%s), func: async ({ text }) => `found ${text}` });
    class Nothing extends StructuredTool { name = "nothing"; description = "Gives nothing."; schema = z.object({}); async _call() { return "" } }
    export const nothing = new Nothing();
    export const fail = tool(async () => { throw new TypeError("it is closed") }, { name: "fail", description: "Fails.", schema: z.object({ city: z.string() }) });
    export const blocks = tool(async () => [[{ type: "text", text: "one" }, { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }], null], { name: "blocks", description: "Blocks.", schema: z.object({}), responseFormat: "content_and_artifact" });
""" % (SHAPE, LOOSE)  # fmt: skip
LANGCHAIN_REFERENCE = """
    import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
    import * as tools from "./tools.ts";
    const calls = JSON.parse(process.argv[2]), specs = {}, results = {};
    for (const tool of Object.values(tools)) specs[tool.name] = { description: convertToOpenAITool(tool).function.description, inputSchema: convertToOpenAITool(tool).function.parameters };
    for (const [name, args] of Object.entries(calls)) {
      try {
        const { content } = await tools[name].invoke({ type: "tool_call", id: "c1", name, args });
        results[name] = { text: content, isError: false };
      } catch (error) {
        results[name] = { text: `Error: ${error.message}\\n Please fix your mistakes.`, isError: true }; // as ToolNode of LangGraph
      }
    }
    console.log(JSON.stringify({ specs, results }));
"""

MASTRA = """
    import { createTool } from "@mastra/core/tools";
    import * as z from "zod";
    const inputOf = (first) => first.context ?? first; // version 0 has it inside of `context`
    export const weather = createTool({ id: "weather", description: "Tells the weather.", inputSchema: z.object(%s), execute: async (first) => { const { city, days } = inputOf(first); return { city, days } } });
    export const search = createTool({ id: "search", description: "Searches.", inputSchema: z.object(%s), execute: async (first) => `found ${inputOf(first).text}` });
    export const nothing = createTool({ id: "nothing", description: "Gives nothing.", inputSchema: z.object({}), execute: async () => "" });
    export const fail = createTool({ id: "fail", description: "Fails.", inputSchema: z.object({ city: z.string() }), execute: async () => { throw new TypeError("it is closed") } });
""" % (SHAPE, LOOSE)  # fmt: skip
MASTRA_REFERENCE = """
    import { makeCoreTool } from "@mastra/core/utils";
    import * as tools from "./tools.ts";
    const calls = JSON.parse(process.argv[2]), specs = {}, results = {}, quiet = new Proxy({}, { get: () => () => undefined });
    for (const [name, tool] of Object.entries(tools)) {
      const core = await makeCoreTool(tool, { name: tool.id, description: tool.description, logger: quiet, requestContext: new Map(), runtimeContext: new Map() });
      specs[tool.id] = { description: core.description, inputSchema: await core.parameters.jsonSchema };
      try {
        const result = await core.execute(calls[name], { toolCallId: "c1", messages: [] });
        if (result instanceof Error) throw result; // version 0 gives errors as data
        results[name] = { text: typeof result === "string" ? result : JSON.stringify(result), isError: false };
      } catch (error) {
        results[name] = { text: `Error: ${error.message}`, isError: true };
      }
    }
    console.log(JSON.stringify({ specs, results }));
"""

STRANDS = """
    import { tool, Tool } from "@strands-agents/sdk";
    import * as z from "zod";
    export const weather = tool({ name: "weather", description: "Tells the weather.", inputSchema: z.object(%s), callback: async ({ city, days }) => ({ city, days }) });
    export const search = tool({ name: "search", description: "Searches.", inputSchema: z.object(%s), callback: async function* ({ text }) { yield "searching"; return `found ${text}` } });
    export const nothing = tool({ name: "nothing", description: "Gives nothing.", inputSchema: z.object({}), callback: async () => "" });
    export const fail = tool({ name: "fail", description: "Fails.", inputSchema: z.object({ city: z.string() }), callback: async () => { throw new TypeError("it is closed") } });
""" % (SHAPE, LOOSE)  # fmt: skip
STRANDS_REFERENCE = """
    import * as tools from "./tools.ts";
    const calls = JSON.parse(process.argv[2]), specs = {}, results = {};
    for (const [name, tool] of Object.entries(tools)) {
      specs[tool.name] = { description: tool.toolSpec.description, inputSchema: tool.toolSpec.inputSchema };
      const stream = tool.stream({ toolUse: { name, toolUseId: "c1", input: calls[name] }, agent: {}, invocationState: {} });
      let step = await stream.next();
      while (!step.done) step = await stream.next();
      const block = step.value.content[0];
      results[name] = { text: block.text ?? JSON.stringify(block.json), isError: step.value.status === "error" };
    }
    console.log(JSON.stringify({ specs, results }));
"""

MCP = """
    import { McpServer } from "%s";
    import * as z from "zod";
    const wrap = (shape) => (%s ? z.object(shape) : shape);
    export const server = new McpServer({ name: "shop", version: "1.0.0" });
    server.registerTool("weather", { description: "Tells the weather.", inputSchema: wrap(%s), outputSchema: wrap({ city: z.string(), days: z.number() }) }, async ({ city, days }, extra) => {
      return { content: [{ type: "text", text: JSON.stringify({ city, days }) }], structuredContent: { city, days } };
    });
    server.registerTool("search", { description: "Searches.", inputSchema: wrap(%s) }, async ({ text }) => ({ content: [{ type: "text", text: `found ${text}` }] }));
    server.registerTool("nothing", { description: "Gives nothing.", inputSchema: wrap({}) }, async () => ({ content: [{ type: "text", text: "" }] }));
    server.registerTool("fail", { description: "Fails.", inputSchema: wrap({ city: z.string() }) }, async () => { throw new TypeError("it is closed") });
"""  # fmt: skip
MCP_REFERENCE = """
    import { Client, %s } from "%s";
    %s
    import { server } from "./tools.ts";
    const calls = JSON.parse(process.argv[2]), specs = {}, results = {};
    const [one, two] = InMemoryTransport.createLinkedPair();
    const client = new Client({ name: "test", version: "1" });
    await Promise.all([server.connect(one), client.connect(two)]);
    for (const { name, description, inputSchema } of (await client.listTools()).tools) specs[name] = { description, inputSchema };
    for (const [name, args] of Object.entries(calls)) {
      const { content, isError } = await client.callTool({ name, arguments: args });
      results[name] = { text: content[0].text, isError: isError === true };
    }
    console.log(JSON.stringify({ specs, results }));
    process.exit(0);
"""
ONE_CLIENT = MCP_REFERENCE % ("", "@modelcontextprotocol/sdk/client/index.js", 'import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";')
TWO_CLIENT = MCP_REFERENCE % ("InMemoryTransport", "@modelcontextprotocol/client", "")

CLAUDE = """
    import { tool } from "@anthropic-ai/claude-agent-sdk";
    import * as z from "zod";
    export const weatherTool = tool("weather", "Tells the weather.", %s, async ({ city, days }) => ({ content: [{ type: "text", text: JSON.stringify({ city, days }) }] }));
    export const searchTool = tool("search", "Searches.", %s, async ({ text }) => ({ content: [{ type: "text", text: `found ${text}` }] }));
    export const nothingTool = tool("nothing", "Gives nothing.", {}, async () => ({ content: [{ type: "text", text: "" }] }));
    export const failTool = tool("fail", "Fails.", { city: z.string() }, async () => { throw new TypeError("it is closed") });
""" % (SHAPE, LOOSE)  # fmt: skip
CLAUDE_REFERENCE = ONE_CLIENT.replace(
    'import { server } from "./tools.ts";',
    """import { createSdkMcpServer } from "@anthropic-ai/claude-agent-sdk";
    import * as tools from "./tools.ts";
    const server = createSdkMcpServer({ name: "x", version: "1.0.0", tools: Object.values(tools) }).instance;""",
)

FRAMEWORKS = {
    "ai-5": ("oldest", AI, AI_REFERENCE),
    "ai-6": ("schemas", AI, AI_REFERENCE),
    "ai-7": ("newest", AI, AI_REFERENCE),
    "mastra-0": ("oldest", MASTRA, MASTRA_REFERENCE),
    "mastra-1": ("newest", MASTRA, MASTRA_REFERENCE),
    "langchain-0.3": ("oldest", LANGCHAIN, LANGCHAIN_REFERENCE),
    "langchain-1": ("newest", LANGCHAIN, LANGCHAIN_REFERENCE),
    "openai-0.1": ("oldest", OPENAI, OPENAI_REFERENCE),
    "openai-0.20": ("newest", OPENAI, OPENAI_REFERENCE),
    "claude-0.1": ("oldest", CLAUDE, CLAUDE_REFERENCE),
    "claude-0.3": ("newest", CLAUDE, CLAUDE_REFERENCE),
    "strands-0.1": ("strands-oldest", STRANDS, STRANDS_REFERENCE),
    "strands-1": ("newest", STRANDS, STRANDS_REFERENCE),
    "mcp-1": ("oldest", MCP % ("@modelcontextprotocol/sdk/server/mcp.js", "false", SHAPE, LOOSE), ONE_CLIENT),
    "mcp-2": ("newest", MCP % ("@modelcontextprotocol/server", "true", SHAPE, LOOSE), TWO_CLIENT),
}


def without_dialect(schema):
    return {word: value for word, value in schema.items() if word != "$schema"}


def reference_of(workshop, program):
    """What the framework itself gives to a model."""
    path = workshop.write(program, "reference.mjs")
    done = subprocess.run([workshop.node, path, json.dumps(CALLS)], cwd=workshop.folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_specs_and_results_equal_those_of_the_framework(framework, newest_node, make_workshop):
    packages, text, program = FRAMEWORKS[framework]
    workshop = make_workshop(newest_node, packages)
    worker, tools = workshop.load(text, "tools.ts")
    reference = reference_of(workshop, program)
    assert worker.ready["warnings"] == []
    assert set(tools) == set(reference["specs"])
    for name, spec in reference["specs"].items():
        assert tools[name]["description"] == spec["description"]
        assert tools[name]["input_schema"] == without_dialect(spec["inputSchema"]), name
        assert tools[name]["schema_owner"] == "foreign"
        jsonschema.Draft202012Validator.check_schema(tools[name]["input_schema"])
    for name, arguments in CALLS.items():
        answer = worker.call(name, arguments)
        assert answer["op"] == "result", answer
        assert {"text": text_of(answer), "isError": answer["is_error"]} == reference["results"][name], name


def test_arguments_that_the_library_refuses(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, _ = workshop.load(
        """
        import { tool } from "ai";
        import * as z from "zod";
        const inputSchema = z.object({ list: z.array(z.object({ n: z.number() })), even: z.number().refine((n) => n % 2 === 0, "must be even").optional() });
        export const count = tool({ description: "Counts.", inputSchema, execute: async ({ list }) => list.length });
        """,
        "tools.ts",
    )
    assert worker.call("count", {"list": [{"n": 1}, {"n": "x"}]})["violations"][0]["pointer"] == "/list/1/n"
    assert worker.call("count", {"list": [], "even": 3})["violations"] == [{"pointer": "/even", "message": "must be even"}]
    answer = worker.call("count", {"list": [], "even": 12345678901234567890})
    assert (answer["op"], answer["violations"][0]["pointer"]) == ("invalid", "/even")


def test_transforms_and_defaults_of_a_schema_are_applied(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, _ = workshop.load(
        """
        import { tool } from "ai";
        import * as z from "zod";
        export const show = tool({ description: "Shows.", inputSchema: z.object({ text: z.string().trim().transform((text) => text.toUpperCase()), n: z.number().default(7) }), execute: async (input) => input });
        """,
        "tools.ts",
    )
    assert ok(worker.call("show", {"text": " a "}))["structured_content"] == {"text": "A", "n": 7}


def test_tools_of_the_ai_sdk_in_an_object(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, tools = workshop.load(
        """
        import { tool, jsonSchema } from "ai";
        import * as z from "zod";
        const weatherTool = tool({ description: "Weather.", inputSchema: z.object({ city: z.string() }), execute: async function* ({ city }, { toolCallId, abortSignal }) { yield "asking"; yield { city, toolCallId, isSignal: abortSignal instanceof AbortSignal } } });
        const remote = tool({ description: "Runs elsewhere.", inputSchema: z.object({}) });
        const picture = tool({ description: "Draws.", inputSchema: jsonSchema({ type: "object", properties: { size: { type: "integer" } } }), execute: async () => "AAAA",
          toModelOutput: ({ output }) => ({ type: "content", value: [{ type: "text", text: "a picture" }, { type: "file", data: { type: "data", data: output }, mediaType: "image/png" }] }) });
        export { weatherTool };
        export const tools = { weather: weatherTool, picture };
        export const client = { remote };
        """,
        "tools.ts",
    )
    assert set(tools) == {"weather", "picture"}
    assert tools["picture"]["input_schema"] == {"type": "object", "properties": {"size": {"type": "integer"}}}
    assert "'client.remote' cannot be offered: it has no `execute`" in worker.ready["warnings"][0]
    seen, answer = worker.watch("weather", {"city": "Oslo"})
    assert seen[0] == "asking"
    assert answer["structured_content"] == {"city": "Oslo", "toolCallId": "inv-1", "isSignal": True}
    assert ok(worker.call("picture"))["content"] == [{"type": "text", "text": "a picture"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]


SCHEMAS = {
    "zod": ('import * as z from "zod"', 'z.object({ city: z.string(), days: z.number().optional() })'),
    "valibot": ('import * as v from "valibot"', "v.object({ city: v.string(), days: v.optional(v.number()) })"),
    "arktype": ('import { type } from "arktype"', 'type({ city: "string", "days?": "number" })'),
    "json": ("", '({ type: "object", properties: { city: { type: "string" }, days: { type: "number" } }, required: ["city"] })'),
}


@pytest.mark.parametrize("library", SCHEMAS)
def test_any_object_with_a_schema_is_a_tool(library, newest_node, make_workshop):
    line, schema = SCHEMAS[library]
    workshop = make_workshop(newest_node, "schemas")
    worker, tools = workshop.load(
        f"{line};\nexport const find = {{ name: 'find_it', description: 'Finds.', parameters: {schema}, run: ({{ city }}, context) => city + context.runId }};",
    )
    found = tools["find_it"]["input_schema"]
    assert found["type"] == "object"
    assert found["properties"] == {"city": {"type": "string"}, "days": {"type": "number"}}
    assert found["required"] == ["city"]
    assert tools["find_it"]["takes_context"] is True
    assert text_of(worker.call("find_it", {"city": "Oslo"}, {"run_id": "r"})) == "Oslor"
    if library != "json":
        answer = worker.call("find_it", {"city": 5})
        assert (answer["op"], answer["violations"][0]["pointer"]) == ("invalid", "/city")


@pytest.mark.parametrize("vendor", ["valibot", "arktype", "zod"])
@pytest.mark.parametrize("packages", ["schemas", "newest"])
def test_schemas_of_the_ai_sdk(vendor, packages, newest_node, make_workshop):
    workshop = make_workshop(newest_node, packages)
    line, schema = SCHEMAS[vendor]
    wrap = {"valibot": 'import { jsonSchema } from "ai"; import { toJsonSchema } from "@valibot/to-json-schema";'}.get(vendor, "")
    worker, tools = workshop.load(
        f"import {{ tool }} from 'ai'; {wrap}\n{line};\nexport const find = tool({{ description: 'Finds.', inputSchema: {f'jsonSchema(toJsonSchema({schema}))' if vendor == 'valibot' else schema}, execute: async ({{ city }}) => city }});",
    )
    assert tools["find"]["input_schema"]["properties"]["city"] == {"type": "string"}
    assert text_of(worker.call("find", {"city": "Oslo"})) == "Oslo"


def test_a_schema_whose_converter_is_missing(newest_node, make_workshop):
    workshop = make_workshop(newest_node)
    failed = workshop.fail(
        """
        const schema = { "~standard": { version: 1, vendor: "valibot", validate: (value) => ({ value }) } };
        export const find = { name: "find", description: "Finds.", parameters: schema, execute: () => 1 };
        """
    )
    assert "npm install @valibot/to-json-schema" in failed["message"]


def test_a_server_that_is_already_connected(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "oldest")
    text = MCP % ("@modelcontextprotocol/sdk/server/mcp.js", "false", SHAPE, LOOSE)
    text += """
    import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
    await server.connect(new StdioServerTransport());
    """
    worker, tools = workshop.load(text, "tools.ts")
    assert set(tools) == {"weather", "search", "nothing", "fail"}
    assert tools["weather"]["output_schema"]["properties"]["city"] == {"type": "string"}
    assert ok(worker.call("weather", PLACE))["structured_content"] == {"city": "Oslo", "days": 3}


def test_a_function_that_makes_a_server(newest_node, make_workshop):
    """The MCP SDK 2 shows such a function, which it also serves itself."""
    workshop = make_workshop(newest_node, "newest")
    text = """
        import { McpServer } from "@modelcontextprotocol/server";
        import { serveStdio } from "@modelcontextprotocol/server/stdio";
        export function createServer(): McpServer {
          const server = new McpServer({ name: "shop", version: "1.0.0" });
          server.registerTool("give", { description: "Gives." }, async () => ({ content: [{ type: "text", text: "1" }] }));
          return server;
        }
        void serveStdio(createServer);
        """
    worker, tools = workshop.load(text, "tools.ts", object="createServer")
    assert set(tools) == {"give"} and worker.ready["warnings"] == []
    assert text_of(worker.call("give")) == "1"


def test_progress_and_cancellation_of_an_mcp_server(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, _ = workshop.load(
        """
        import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
        export const server = new McpServer({ name: "shop", version: "1.0.0" });
        let aborted = false;
        server.registerTool("slow", { description: "Slow." }, async (extra) => {
          await extra.sendNotification({ method: "notifications/progress", params: { progressToken: extra._meta.progressToken, progress: 1, total: 2 } });
          return new Promise((_, reject) => extra.signal.addEventListener("abort", () => { aborted = true; reject(new Error("aborted")) }));
        });
        server.registerTool("was_aborted", { description: "Asks." }, async () => ({ content: [{ type: "text", text: String(aborted) }] }));
        """,
        "tools.ts",
    )
    number = worker.start_call("slow", {}, watched=True)
    progress = worker.receive()
    assert (progress["op"], progress["data"]["progress"], progress["data"]["total"]) == ("progress", 1, 2)
    worker.send({"op": "cancel", "id": number})
    assert worker.receive() == {"op": "cancelled", "id": number}
    assert text_of(worker.call("was_aborted")) == "true"


def test_blocks_of_langchain(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, _ = workshop.load(LANGCHAIN, "tools.ts")
    assert ok(worker.call("blocks"))["content"] == [{"type": "text", "text": "one"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]


SDKS = """
    import { zodFunction } from "openai/helpers/zod";
    import { z } from "zod";
    const schema = z.object({ city: z.string() }), parameters = z.toJSONSchema(schema);

    export const openai = [
      zodFunction({ name: "helper", description: "Gives.", parameters: schema, function: ({ city }) => city }),
      { type: "function", function: { function: function plain(text) { return text }, description: "Gives.", parameters } },
      { type: "function", function: { name: "reads", function: ({ city }) => city, parse: JSON.parse, description: "Gives.", parameters } },
    ];
    const more = schema.extend({ unit: z.string().default("km") });
    export const anthropic = { type: "custom", name: "anthropic", description: "Gives.", input_schema: z.toJSONSchema(more), run: ({ city, unit }) => city + unit, parse: (value) => more.parse(value) };
    export const genkit = Object.assign(async ({ city }) => city, { __action: { name: "genkit", description: "Gives.", inputSchema: schema, outputSchema: z.string() } });
    class FunctionTool { metadata = { name: "llamaindex", description: "Gives.", parameters }; call({ city }) { return city } }
    export const llamaindex = new FunctionTool();
    class VoltTool { id = "v"; name = "voltagent"; description = "Gives."; parameters = schema; execute({ city }) { return city } }
    export const voltagent = new VoltTool();
"""


def test_tools_of_other_sdks(newest_node, make_workshop):
    """Those of the SDKs of OpenAI and Anthropic, Genkit, LlamaIndex and VoltAgent, in the forms that their helpers make."""
    worker, tools = make_workshop(newest_node, "newest").load(SDKS, "tools.mjs")
    results = {name: text_of(ok(worker.call(name, {"city": "Oslo"}))) for name in tools}
    assert results == {
        **{"helper": "Oslo", "plain": '{"city":"Oslo"}', "reads": "Oslo", "anthropic": "Oslokm"},
        **{"genkit": "Oslo", "llamaindex": "Oslo", "voltagent": "Oslo"},
    }
    for name, tool in tools.items():
        assert tool["input_schema"]["properties"]["city"] == {"type": "string"} and tool["description"] == "Gives.", name
    refused = worker.call("anthropic", {"city": 5})
    assert (refused["op"], refused["violations"][0]["pointer"]) == ("invalid", "/city")


CONTEXTS = {
    "langchain": """import { tool } from "@langchain/core/tools";
        export const tell = tool((_, config) => config.configurable.customer + NEW, { name: "tell", description: "Tells.", schema: z.object({}) });""",
    "mastra": """import { createTool } from "@mastra/core/tools";
        export const tell = createTool({ id: "tell", description: "Tells.", inputSchema: z.object({}), execute: async (input, context) => (context?.requestContext ?? input.runtimeContext).get("customer") + NEW });""",
    "openai": """import { tool } from "@openai/agents";
        export const tell = tool({ name: "tell", description: "Tells.", parameters: z.object({}), execute: async (_, run) => run.context.customer + run.context.caller + NEW });""",
}


@pytest.mark.parametrize("packages", ["oldest", "newest"])
@pytest.mark.parametrize("framework", CONTEXTS)
def test_context_as_the_framework_gives_it(framework, packages, newest_node, make_workshop):
    text = 'import { z } from "zod"; ' + CONTEXTS[framework]
    text = text.replace("NEW", "config.context.customer" if (framework, packages) == ("langchain", "newest") else "''")
    worker, tools = make_workshop(newest_node, packages).load(text, "tools.mjs")
    assert tools["tell"]["takes_context"]
    expected = {"langchain": "c-17" * (1 + (packages == "newest")), "mastra": "c-17", "openai": "c-17tester"}[framework]
    assert text_of(ok(worker.call("tell", {}, {"state": {"customer": "c-17"}}))) == expected


def test_a_tool_whose_file_reads_no_context_takes_none(newest_node, make_workshop):
    """Its results may stay in the cache."""
    _, tools = make_workshop(newest_node, "newest").load(LANGCHAIN, "tools.ts")
    assert not any(tool["takes_context"] for tool in tools.values())


def test_progress_of_strands(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, _ = workshop.load(STRANDS, "tools.ts")
    seen, answer = worker.watch("search", CALLS["search"])
    assert (seen, text_of(answer)) == (["searching"], "found a")
    assert "it is closed" in error_text(worker.call("fail", {"city": "a"}))
    assert "tools.ts:" in worker.tracebacks[-1]


UNION = """z.discriminatedUnion("kind", [z.object({ kind: z.literal("one"), a: z.string() }), z.object({ kind: z.literal("two"), b: z.number() })])"""
PAIR = "z.object({ pair: z.tuple([z.string(), z.number()]) })"
ROOTS = {
    "ai": """import { tool } from "ai"; import * as z from "zod"; import * as z3 from "zod/v3";
        export const pair = tool({ description: "Pairs.", inputSchema: %s, execute: async (input) => input });
        export const old_pair = tool({ description: "Pairs.", inputSchema: %s, execute: async (input) => input });
        export const union = tool({ description: "Unites.", inputSchema: %s, execute: async (input) => input });
        const Tree = z.object({ name: z.string(), parts: z.array(z.lazy(() => Tree)).optional() });
        export const tree = tool({ description: "Grows.", inputSchema: Tree.default({ name: "a" }), execute: async (input) => input });
        export const text = tool({ description: "A text.", inputSchema: z.string(), execute: async (input) => input });"""
    % (PAIR, PAIR.replace("z.", "z3."), UNION),
    "mastra": """import { createTool } from "@mastra/core/tools"; import * as z from "zod";
        export const pair = createTool({ id: "pair", description: "Pairs.", inputSchema: %s, execute: async (input) => input });
        export const union = createTool({ id: "union", description: "Unites.", inputSchema: %s, execute: async (input) => input });"""
    % (PAIR, UNION),
    "langchain": """import { tool } from "@langchain/core/tools"; import * as z from "zod"; import * as z3 from "zod/v3";
        export const pair = tool(async (input) => JSON.stringify(input), { name: "pair", description: "Pairs.", schema: %s });
        export const old_pair = tool(async (input) => JSON.stringify(input), { name: "old_pair", description: "Pairs.", schema: %s });
        export const union = tool(async (input) => JSON.stringify(input), { name: "union", description: "Unites.", schema: %s });"""
    % (PAIR, PAIR.replace("z.", "z3."), UNION),
    "openai": """import { tool } from "@openai/agents"; import * as z from "zod";
        export const pair = tool({ name: "pair", description: "Pairs.", parameters: %s, execute: async (input) => input });"""
    % PAIR,
    "mcp": """import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js"; import * as z from "zod";
        export const server = new McpServer({ name: "s", version: "1.0.0" });
        server.registerTool("pair", { description: "Pairs.", inputSchema: %s }, async (input) => ({ content: [], structuredContent: input }));"""
    % PAIR,
}


@pytest.mark.parametrize("framework", ROOTS)
def test_tuples_and_unions_in_a_schema(framework, newest_node, make_workshop):
    """Frameworks write tuples as in older drafts, and unions without a type at the root. One such tool must not spoil its module."""
    workshop = make_workshop(newest_node, "newest")
    worker, tools = workshop.load(ROOTS[framework], "tools.ts")
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool["input_schema"])
        assert tool["input_schema"]["type"] == "object"
    for name in {"pair", "old_pair"} & set(tools):
        schema = jsonschema.Draft202012Validator(tools[name]["input_schema"])
        assert schema.is_valid({"pair": ["a", 1]}) and not schema.is_valid({"pair": [1, "a"]})
        assert ok(worker.call(name, {"pair": ["a", 1]}))["structured_content"] == {"pair": ["a", 1]}
    if "union" in tools:
        schema = jsonschema.Draft202012Validator(tools["union"]["input_schema"])
        assert schema.is_valid({"kind": "two", "b": 1}) and not schema.is_valid({"kind": "two", "a": "x"})
        assert ok(worker.call("union", {"kind": "two", "b": 1}))["structured_content"] == {"kind": "two", "b": 1}
    if framework == "ai":
        assert set(tools) == {"pair", "old_pair", "union", "tree"}
        assert ok(worker.call("tree", {"name": "b", "parts": [{"name": "c"}]}))["structured_content"]["parts"] == [{"name": "c"}]
        assert "'text' cannot be offered: the type at the root of its schema is \"string\"" in worker.ready["warnings"][0]


def test_a_tool_that_needs_an_approval_has_a_warning(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    texts = [
        """import { tool } from "ai"; import * as z from "zod";
        export const pay = tool({ description: "Pays.", inputSchema: z.object({}), needsApproval: true, execute: async () => 1 });
        export const look = tool({ description: "Looks.", inputSchema: z.object({}), execute: async () => 1 });""",
        """import { createTool } from "@mastra/core/tools"; import * as z from "zod";
        export const pay = createTool({ id: "pay", description: "Pays.", inputSchema: z.object({}), requireApproval: true, execute: async () => 1 });
        export const look = createTool({ id: "look", description: "Looks.", inputSchema: z.object({}), execute: async () => 1 });""",
        """import { tool } from "@openai/agents"; import * as z from "zod";
        export const pay = tool({ name: "pay", description: "Pays.", parameters: z.object({}), needsApproval: true, execute: async () => 1 });
        export const look = tool({ name: "look", description: "Looks.", parameters: z.object({}), execute: async () => 1 });""",
    ]
    for at, text in enumerate(texts):
        worker, _ = workshop.load(text, f"tools{at}.ts")
        [warning] = worker.ready["warnings"]
        assert f"tools{at}.ts:2: 'pay' is marked as needing an approval" in warning


def test_a_result_that_mastra_refuses_is_an_error_of_the_tool(newest_node, make_workshop):
    workshop = make_workshop(newest_node, "newest")
    worker, tools = workshop.load(
        """
        import { createTool } from "@mastra/core/tools";
        import * as z from "zod";
        export const wrong = createTool({ id: "wrong", description: "Gives a number.", inputSchema: z.object({}), outputSchema: z.object({ text: z.string() }), execute: async () => ({ text: 5 }) });
        """,
        "tools.ts",
    )
    assert tools["wrong"]["output_schema"]["properties"] == {"text": {"type": "string"}}
    text = error_text(worker.call("wrong"))
    assert "output validation failed" in text and "expected string" in text and "Returned output" not in text
