// The same tools under each release of the TypeScript SDK: `typescript.mjs RELEASE stdio`, or `typescript.mjs RELEASE PORT` for
// streamable HTTP. RELEASE is old (1.10, of the session era), sdk (1.x) or server (2.x, both eras).

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

const [release, way] = process.argv.slice(2);
const from = (path) => import(release === "old" ? `sdk-old/${path}` : `@modelcontextprotocol/sdk/${path}`);
const { McpServer } = await (release === "server" ? import("@modelcontextprotocol/server") : from("server/mcp.js"));
const { z } = await import(release === "old" ? "zod/v3" : "zod");

function makeServer() {
  const server = new McpServer({ name: `typescript ${release}`, version: "1" });
  // Each release takes schemas in another way; the oldest has no output schemas.
  const tool = (name, description, input, output, run) => {
    if (release === "old") return server.tool(name, description, input, run);
    const shape = release === "server" ? z.object(input) : input;
    return server.registerTool(name, { description, inputSchema: shape, ...(output && { outputSchema: release === "server" ? z.object(output) : output }) }, run);
  };
  const text = (words) => ({ content: [{ type: "text", text: words }] });
  tool("add", "Adds two numbers.", { a: z.number().int(), b: z.number().int() }, null, ({ a, b }) => text(`${a + b}`));
  tool("greet", "Greets a person.", { name: z.string().min(1), title: z.string().optional(), mail: z.string().email().nullable().default(null) }, null,
    ({ name, title, mail }) => text(`Hi, ${title ?? "dear"} ${name}${mail ? ` <${mail}>` : ""}`));
  tool("forecast", "Tells the weather to come.", { city: z.string(), unit: z.enum(["C", "F"]).default("C") },
    { city: z.string(), degrees: z.number() }, ({ city }) => {
      const data = { city, degrees: 21.5 };
      return release === "old" ? text(JSON.stringify(data)) : { ...text(JSON.stringify(data)), structuredContent: data };
    });
  tool("fails", "Throws.", { reason: z.string() }, null, ({ reason }) => { throw new Error(reason); });
  return server;
}

async function listen(port) {
  if (release === "server") {
    const { createMcpHandler } = await import("@modelcontextprotocol/server");
    const { toNodeHandler } = await import("@modelcontextprotocol/node");
    return createServer(toNodeHandler(createMcpHandler(() => makeServer()))).listen(port, "127.0.0.1");
  }
  // With sessions, as in the samples of these releases.
  const { StreamableHTTPServerTransport } = await from("server/streamableHttp.js");
  const sessions = new Map();
  return createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport && request.headers["mcp-session-id"]) {
      response.writeHead(400, { "content-type": "application/json" });
      return response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32000, message: "Bad Request: No valid session ID provided" }, id: null }));
    }
    if (!transport) {
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport) });
      await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(port, "127.0.0.1");
}

if (way !== "stdio") {
  await listen(Number(way));
} else if (release === "server") {
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  serveStdio(() => makeServer());
} else {
  const { StdioServerTransport } = await from("server/stdio.js");
  await makeServer().connect(new StdioServerTransport());
}
