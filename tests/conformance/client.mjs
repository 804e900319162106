// What a client of the official TypeScript SDK sees of a server, as JSON.
//
//   node client.mjs sdk|client legacy|2026-07-28 URL|"" TRIGGER [COMMAND ARGUMENT...]
//
// `sdk` is @modelcontextprotocol/sdk (1.x, with sessions), `client` is @modelcontextprotocol/client (2.x, both eras). TRIGGER is a file
// to write so that the list of tools changes; "" calls the tool that changes it.
import { writeFileSync } from "node:fs";

const [release, era, url, trigger, command, ...args] = process.argv.slice(2);
const [core, http, stdio] = release === "sdk"
  ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/streamableHttp.js", "@modelcontextprotocol/sdk/client/stdio.js"]
  : ["@modelcontextprotocol/client", "@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"];
const { Client } = await import(core);
const { StreamableHTTPClientTransport } = await import(http);
const { StdioClientTransport } = await import(stdio);

let changed;
const hasChanged = new Promise((resolve) => { changed = resolve; });
const client = new Client({ name: "conformance", version: "1" }, {
  capabilities: { elicitation: { form: {} } },
  versionNegotiation: { mode: era === "legacy" ? "legacy" : { pin: era } },
  listChanged: { tools: { debounceMs: 0, onChanged: (error, tools) => changed(error ? String(error) : tools.map((tool) => tool.name)) } },
});
const asked = [];
const answer = ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: params.message.includes("name") ? { name: "Ada" } : { color: "blue" } };
};
client.setRequestHandler(release === "sdk" ? (await import("@modelcontextprotocol/sdk/types.js")).ElicitRequestSchema : "elicitation/create", answer);
const transport = url
  ? new StreamableHTTPClientTransport(new URL(url))
  : new StdioClientTransport({ command, args, env: JSON.parse(process.env.SERVER_ENV), stderr: "ignore" });
await client.connect(transport);

const call = (name, given = {}, options) => release === "sdk"
  ? client.callTool({ name, arguments: given }, undefined, options)
  : client.callTool({ name, arguments: given }, options);
const refused = (promise) => promise.then((result) => ({ result }), (error) => ({ code: error.code, message: error.message }));
const seen = {
  version: release === "sdk" ? transport.protocolVersion ?? null : client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion(),
  tools: (await client.listTools()).tools,
  text: await call("test_simple_text"),
  image: await call("test_image_content"),
  audio: await call("test_audio_content"),
  resource: await call("test_embedded_resource"),
  structured: await call("structured", { city: "Oslo" }),
  error: await call("test_error_handling"),
  invalid: await call("structured", {}),
  unknown: await refused(call("no_such_tool")),
};
seen.answered = await call("test_input_required_result_multi_round");
seen.asked = asked;
const progress = [];
const steps = await call("test_tool_with_progress", {}, { onprogress: (step) => progress.push(step) });
Object.assign(seen, { steps, progress });
trigger ? writeFileSync(trigger, process.env.TRIGGER_TEXT) : await call("test_trigger_tool_change");
seen.changed = await Promise.race([hasChanged, new Promise((resolve) => setTimeout(resolve, 8000, "nothing was told"))]);
await client.close();
console.log(JSON.stringify(seen));
process.exit(0);
