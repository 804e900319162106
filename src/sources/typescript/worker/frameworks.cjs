// Tools of frameworks: each has the schema and the results that the framework itself gives to a model.
"use strict";
const { parseJson } = require("./json.cjs");
const { InvalidArguments, NotOffered, makeTool } = require("./tools.cjs");
const { readSchema, isSchema, tidy, violationsOf } = require("./schemas.cjs");
const { BadOutput, render, renderMcp, isRecord, partBlock, partBlocks, textBlock, messageOf, isMcpResult } = require("./results.cjs");

const MCP_VERSION = "2025-06-18";
const SCHEMA_KEYS = ["inputSchema", "parameters", "schema", "input", "args"];
const FUNCTION_KEYS = ["execute", "handler", "run", "func", "callback", "call", "invoke"];

const has = (value, ...names) => names.every((name) => name in value);
const isCallable = (value, ...names) => names.every((name) => typeof value[name] === "function");

/** A function (value, name in the module, project) that makes the tool; "mcp" for a server; undefined for other values. */
function frameworkOf(value) {
  if (value === null || value instanceof Promise) return undefined;
  try {
    const plain = plainTool(value);
    if (plain) return (_, name, project) => objectTool(plain, name, project);
    if (typeof value === "function") return isSchema(value.inputSchema) && isCallable(value, "execute") ? objectTool : undefined; // a tool that can be called, too
    if (typeof value !== "object") return undefined;
    if (isCallable(value, "connect") && (isCallable(value, "registerTool") || isCallable(value, "setRequestHandler"))) return "mcp";
    if (isCallable(value.instance ?? {}, "connect") && value.type === "sdk") return "mcp"; // createSdkMcpServer of Claude
    if (value.lc_runnable === true && isCallable(value, "invoke") && has(value, "name", "description", "schema")) return langchainTool;
    if (value.type === "function" && isCallable(value, "invoke") && has(value, "name", "parameters")) return openaiTool;
    if (isCallable(value, "stream") && isRecord(value.toolSpec)) return strandsTool;
    if (typeof value.id === "string" && isCallable(value, "execute") && has(value, "description", "inputSchema") && value.constructor !== Object) return mastraTool;
    if (isCallable(value, "handler") && isRecord(value.inputSchema) && typeof value.name === "string") return claudeTool;
    if (SCHEMA_KEYS.some((key) => isSchema(value[key])) && (FUNCTION_KEYS.some((key) => isCallable(value, key)) || typeof value.description === "string")) return objectTool;
    if (typeof value.inputSchema === "function" && isCallable(value, "execute")) return objectTool; // a schema of the AI SDK that is made late
  } catch {} // a getter that throws
}

/** A tool of an SDK of a model, of Genkit or of LlamaIndex, as an object with a schema and a function; undefined for other values. */
function plainTool(value) {
  const { function: inner, input_schema: inputSchema, metadata, __action: action } = value;
  if (isRecord(inputSchema) && isCallable(value, "run")) { // of Anthropic
    const { name, description } = value;
    return { name, description, inputSchema, execute: async (input, options) => value.run(await parsed(value.parse, input), options) };
  }
  if (value.type === "function" && isRecord(inner)) { // of OpenAI: a function without \`parse\` gets a text
    const run = value.execute ?? value.$callback ?? inner.function, isText = run === inner.function && !inner.parse;
    return typeof run === "function" ? { name: inner.name || run.name, description: inner.description, inputSchema: inner.parameters, execute: (input, options) => run(isText ? JSON.stringify(input) : input, options) } : undefined;
  }
  if (typeof value === "function" && isRecord(action) && "inputSchema" in action) return { name: action.name, description: action.description, inputSchema: action.inputJsonSchema ?? action.inputSchema, outputSchema: action.outputJsonSchema ?? action.outputSchema, execute: (input) => value(input) };
  if (isCallable(value, "call") && isRecord(metadata) && isRecord(metadata.parameters)) return { ...metadata, execute: (input) => value.call(input) };
}

/** What \`parse\` of a tool makes of its arguments. */
async function parsed(parse, input) {
  try { return parse ? await parse(input) : input; } catch (error) { throw new InvalidArguments(violationsOf(error?.issues ?? [{ message: messageOf(error) }])); }
}

/** Whether the author of a tool wants a person to approve its calls. The OpenAI Agents SDK makes a function of every answer. */
async function wantsApproval({ needsApproval, requireApproval, type }) {
  if (type !== "function" || typeof needsApproval !== "function") return Boolean(needsApproval || requireApproval);
  try { return Boolean(await needsApproval({ context: {} }, {}, "")); } catch { return true; }
}

/** Whether a function reads more of its second parameter than the signal. */
const readsContext = (run) => run.length > 1 && /context/i.test(Function.prototype.toString.call(run));

/** `tool()` of the AI SDK; and any other object with a schema and a function. */
async function objectTool(value, name, project) {
  const key = FUNCTION_KEYS.find((one) => isCallable(value, one));
  if (!key) throw new NotOffered("it has no `execute`: such a tool of the AI SDK runs where the model is called");
  const given = value[SCHEMA_KEYS.find((one) => isSchema(value[one]) || typeof value[one] === "function")];
  const ownName = typeof value === "function" ? undefined : value.name;
  const ai = typeof ownName === "string" ? undefined : await project.import("ai");
  const asSchema = ai?.asSchema, schema = await readSchema(asSchema && key === "execute" ? asSchema(given) : given, project);
  const version = ai && Number.parseInt(project.version("ai"));
  async function start(given, call) {
    call.input = await schema.check(given);
    const options = { toolCallId: call.toolUseId, messages: [], abortSignal: call.signal, context: call.context, experimental_context: call.context, signal: call.signal, onProgress: call.context.progress };
    return value[key](call.input, ai || key === "execute" ? options : call.context);
  }
  async function renderOutput(result, writer, call) {
    if (typeof value.toModelOutput !== "function") return ai && result === undefined ? { content: [textBlock("null")] } : render(result, writer);
    const output = await value.toModelOutput(version < 6 ? result : { toolCallId: call.toolUseId, input: call.input, output: result });
    return renderModelOutput(output, writer);
  }
  return makeTool({
    name: ownName ?? name, description: value.description ?? "", inputSchema: tidy(schema.json), outputSchema: await outputSchema(value, project),
    framework: ai ? "ai" : "object", takesContext: readsContext(value[key]), start, render: renderOutput, ...(ai && { formatError: (error) => aiErrorText(error, version) }),
  });
}

/** The schema of a tool's results, if they are objects that no model sees in another form. */
async function outputSchema(value, project) {
  const output = value.outputSchema && !value.toModelOutput && (await readSchema(value.outputSchema, project).catch(() => undefined));
  return output?.json.type === "object" ? tidy(output.json) : undefined;
}

/** The text of an exception as the AI SDK gives it to a model. */
const aiErrorText = (error, version) => (version >= 7 && error instanceof Error ? String(error) : messageOf(error)) || "unknown error";

/** What `toModelOutput` of the AI SDK gives: {type: "text" | "json" | "error-text" | "error-json" | "content", value}. */
async function renderModelOutput(output, writer) {
  const isError = /^error/.test(output?.type);
  if (/text$/.test(output?.type)) return { content: [textBlock(String(output.value))], isError };
  if (/json$/.test(output?.type)) return { ...(await render(output.value === null ? "null" : output.value, writer)), isError };
  const content = partBlocks(output?.value ?? output);
  if (!content) throw new BadOutput("toModelOutput gave a content that is neither text, nor a file, nor an image");
  return { content };
}

/** `createTool` of Mastra. Its own conversion makes the schema and checks the arguments. */
async function mastraTool(value, _, project) {
  const { makeCoreTool } = (await project.import("@mastra/core/utils")) ?? {};
  if (!makeCoreTool) throw new NotOffered("it looks like a tool of Mastra, but `@mastra/core` is not in the project");
  const quiet = new Proxy({}, { get: () => () => undefined });
  const { RuntimeContext = Map, RequestContext = RuntimeContext } = (await project.import("@mastra/core/di")) ?? {}; // of 0.24, of 1
  function make(state) {
    const fields = new RequestContext(Object.entries(state));
    return makeCoreTool(value, { name: value.id, description: value.description, logger: quiet, requestContext: fields, runtimeContext: fields });
  }
  const core = await make({});
  const schema = core.parameters ?? core.inputSchema, json = schema?.jsonSchema ? await schema.jsonSchema : (await readSchema(schema, project)).json;
  const start = async (input, call) => {
    const { state } = call.context, { execute } = Object.keys(state).length ? await make(state) : core;
    const result = await execute(input, { toolCallId: call.toolUseId, messages: [], abortSignal: call.signal });
    if (!isRecord(result) || result.error !== true || !has(result, "message", "validationErrors")) return result;
    if (/^Tool output/.test(result.message)) throw new Error(result.message.split("\n\nReturned output")[0]); // its own text has the whole result
    throw new InvalidArguments([{ pointer: "", message: result.message }]);
  };
  const show = core.toModelOutput ?? value.toModelOutput;
  const renderOutput = async (result, writer) => (show ? renderModelOutput(await show(result), writer) : render(result, writer));
  return makeTool({ name: value.id, description: value.description, inputSchema: tidy(json), outputSchema: await outputSchema({ ...value, toModelOutput: show }, project), framework: "mastra", start, render: renderOutput, takesContext: undefined });
}

/** `tool`, `DynamicStructuredTool` and subclasses of `StructuredTool` of LangChain.js. */
async function langchainTool(value, _, project) {
  const { convertToOpenAITool } = (await project.import("@langchain/core/utils/function_calling")) ?? {};
  if (!convertToOpenAITool) throw new NotOffered("it is a tool of LangChain, but `@langchain/core` is not in the project");
  const start = async (args, call) => {
    try {
      return await value.invoke({ type: "tool_call", id: call.toolUseId, name: value.name, args }, { signal: call.signal, configurable: call.context.state, context: call.context.state });
    } catch (error) {
      if (error?.constructor?.name === "ToolInputParsingException") throw new InvalidArguments([{ pointer: "", message: messageOf(error) }]);
      throw error;
    }
  };
  const renderMessage = (message, writer) => {
    const content = message?.content;
    if (content === undefined || !has(message, "tool_call_id")) return render(message, writer);
    const isError = message.status === "error", parts = typeof content === "string" ? undefined : partBlocks(content);
    if (parts) return { content: parts, isError };
    return { content: [textBlock(typeof content === "string" ? content : JSON.stringify(content))], structured: isError ? undefined : jsonText(content, writer), isError };
  };
  return makeTool({
    name: value.name, description: value.description, inputSchema: tidy(convertToOpenAITool(value).function.parameters), framework: "langchain", start, render: renderMessage,
    resultAsAnswer: value.returnDirect === true, takesContext: undefined,
    formatError: (error) => `Error: ${messageOf(error)}\n Please fix your mistakes.`,
  });
}

/** A text that is a JSON object or list, as JSON. Some frameworks write objects as such a text. */
function jsonText(text, writer) {
  if (typeof text !== "string" || !/^\s*[[{]/.test(text)) return undefined;
  try { return writer.write(parseJson(text)); } catch {}
}

/** `tool` of the OpenAI Agents SDK. It checks the arguments itself, and writes errors as texts. */
async function openaiTool(value, _, project) {
  const { RunContext } = (await project.import("@openai/agents")) ?? (await project.import("@openai/agents-core")) ?? {};
  const contextOf = (call) => Object.assign(Object.create(call.context), call.context.state); // the fields stand as in an agent's own context
  const start = (args, call) => value.invoke(RunContext ? new RunContext(contextOf(call)) : { context: contextOf(call) }, JSON.stringify(args), {
    toolCall: { type: "function_call", callId: call.toolUseId, name: value.name, arguments: JSON.stringify(args) }, signal: call.signal,
  });
  const renderOutput = async (result, writer) => {
    const parts = Array.isArray(result) ? partBlocks(result) : isRecord(result) && partBlock(result) && [partBlock(result)];
    if (parts) return { content: parts };
    return { ...(await render(result, writer)), ...(typeof result === "string" && result.startsWith("An error occurred while running the tool") && { isError: true }) };
  };
  return makeTool({ name: value.name, description: value.description, inputSchema: tidy(value.parameters), framework: "openai-agents", start, render: renderOutput, takesContext: undefined });
}

/** `tool` of Strands. Its stream is progress and the result. */
async function strandsTool(value) {
  const { name, description, inputSchema } = value.toolSpec;
  async function* start(input, call) {
    const use = { name, toolUseId: call.toolUseId, input }, { state, signal, agent } = call.context;
    const stream = value.stream({ toolUse: use, agent: { name: agent, appState: new Map(), messages: [], cancelSignal: signal }, invocationState: state, cancelSignal: signal, interrupt: () => { throw new Error("interrupts are not available here: use ask() of Toolcrib"); } });
    for (;;) {
      const { done, value: event } = await stream.next();
      if (done) return event;
      yield event?.data ?? event;
    }
  }
  const renderBlocks = async (result, writer, call) => {
    if (!Array.isArray(result?.content)) return render(result, writer);
    if (result.error instanceof Error) call.noteError(result.error);
    const content = [], data = [];
    for (const block of result.content) {
      if (typeof block.text === "string") content.push(textBlock(block.text));
      else if ("json" in block) {
        data.push(writer.write(block.json));
        content.push(textBlock(data.at(-1)));
      } else {
        const { format, source, name: title } = block;
        content.push(partBlock({ type: "file", data: source?.bytes ?? source?.url ?? "", mediaType: mediaType(format), filename: title }) ?? textBlock(writer.write(block)));
      }
    }
    return { content, structured: data.length === 1 && /^[[{]/.test(data[0]) ? data[0] : undefined, isError: result.status === "error" };
  };
  return makeTool({ name, description, inputSchema: tidy(inputSchema ?? { type: "object", properties: {} }), framework: "strands", start, render: renderBlocks, takesContext: readsContext(value._callback ?? (() => undefined)) });
}

const mediaType = (format) => (/^(png|jpe?g|gif|webp)$/.test(format) ? `image/${format === "jpg" ? "jpeg" : format}` : { pdf: "application/pdf", csv: "text/csv", html: "text/html", txt: "text/plain", md: "text/markdown" }[format]);

/** `tool` of the Claude Agent SDK: its own server inside of the process offers it. */
async function claudeTool(value, _, project) {
  const { createSdkMcpServer } = (await project.import("@anthropic-ai/claude-agent-sdk")) ?? {};
  if (!createSdkMcpServer) throw new NotOffered("it looks like a tool of the Claude Agent SDK, but `@anthropic-ai/claude-agent-sdk` is not in the project");
  const [tool] = await serverTools(createSdkMcpServer({ name: "toolcrib", version: "1.0.0", tools: [value] }));
  return { ...tool, framework: "claude-agent-sdk" };
}

/** The tools of a server of the MCP SDK, 1 or 2, which is asked over its own protocol. */
async function serverTools(given) {
  const server = given.type === "sdk" ? given.instance : given, waiting = new Map();
  let lastId = 0;
  const transport = {
    start: async () => {}, close: async () => {},
    async send(message) {
      if (message.method === "notifications/progress") waiting.get(message.params.progressToken)?.call?.progress(message.params);
      else if (message.method && message.id !== undefined) transport.onmessage({ jsonrpc: "2.0", id: message.id, error: { code: -32601, message: "the client has no such method" } });
      else if (!message.method) {
        const open = waiting.get(message.id);
        waiting.delete(message.id);
        if (message.error) open?.reject(Object.assign(new Error(message.error.message), { code: message.error.code }));
        else open?.resolve(message.result);
      }
    },
  };
  const request = (method, params, call) => new Promise((resolve, reject) => {
    const id = ++lastId;
    waiting.set(id, { resolve, reject, call });
    call?.signal.addEventListener("abort", () => { // the server answers no cancelled request
      transport.onmessage({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id, reason: "the call was cancelled" } });
      if (waiting.delete(id)) reject(call.signal.reason);
    });
    transport.onmessage({ jsonrpc: "2.0", id, method, params: call ? { ...params, _meta: { progressToken: id } } : params });
  });
  const inner = server.server ?? server;
  if (inner.transport) await server.close(); // the file has connected it, for example to its standard input
  await server.connect(transport);
  await request("initialize", { protocolVersion: MCP_VERSION, capabilities: {}, clientInfo: { name: "toolcrib", version: "1" } });
  transport.onmessage({ jsonrpc: "2.0", method: "notifications/initialized" });
  const tools = [];
  for (let cursor; ; ) {
    const page = await request("tools/list", cursor ? { cursor } : {});
    tools.push(...page.tools);
    cursor = page.nextCursor;
    if (!cursor) break;
  }
  return tools.map(({ name, title, description, inputSchema, outputSchema }) => makeTool({
    name, description: description ?? title ?? "", inputSchema: tidy(inputSchema), outputSchema: outputSchema && tidy(outputSchema), framework: "mcp",
    start: (input, call) => request("tools/call", { name, arguments: input }, call), render: (result, writer) => (isMcpResult(result) ? renderMcp(result, writer) : render(result, writer)),
    formatError: (error) => messageOf(error),
  }));
}

module.exports = { frameworkOf, serverTools, wantsApproval };
