"""The same work by Toolcrib and by the closest peers, which come from npm and PyPI: MCP Toolbox for SQL and HTTP, FastMCP for Python,
and gateways for tools of MCP servers (gateways.py).
Each is set up as the fastest that it offers: MCP Toolbox logs no calls, FastMCP keeps no sessions and answers in JSON."""

import contextlib
import json
import shutil
import typing

from lib import calls, gateways, load, mcp, parts, programs, python, service
from lib.programs import TARGET

# npm's @toolbox-sdk/server is a launcher of this program in Node.js. The launcher would count as memory of the peer.
TOOLBOX, TOOLBOX_PACKAGE = "MCP Toolbox 1.12.0", "@toolbox-sdk/server-linux-x64@1.12.0"
FASTMCP, FASTMCP_PACKAGE = "FastMCP 4.1.2", "fastmcp==4.1.2"

NUMBERS, TEXT = {"a": 40, "b": 2}, {"text": "How warm is it in Oslo?"}

MANIFEST = calls.ADD_SQL + """\
  echo:
    kind: http
    description: Answers with the text.
    parameters: {text: {type: string, description: The text.}}
    request: {url: "UPSTREAM/echo", query: {text: "{{ text }}"}, allow_private: true}
    effect: read
"""
TOOLBOX_CONFIG = """\
kind: source
name: database
type: sqlite
database: work.db
---
kind: source
name: upstream
type: http
baseUrl: UPSTREAM
allowPrivateNetworks: true
---
kind: tool
name: add_sql
type: sqlite-sql
source: database
description: Adds two numbers.
statement: select ? + ? as sum
parameters:
  - {name: a, type: integer, description: One.}
  - {name: b, type: integer, description: Other.}
---
kind: tool
name: echo
type: http
source: upstream
method: GET
path: /echo
description: Answers with the text.
queryParams:
  - {name: text, type: string, description: The text.}
"""
FASTMCP_SERVER = python.FUNCTION + '''

import sys
from fastmcp import FastMCP
server = FastMCP("bench")
server.tool(add)
server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), stateless_http=True, json_response=True, show_banner=False,
           log_level="ERROR", uvicorn_config={"access_log": False})
'''
UPSTREAM = """\
const http = require("node:http");
const server = http.createServer((request, response) => {
  const text = new URL(request.url, "http://upstream").searchParams.get("text");
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify({ text }));
});
server.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
"""


class Side(typing.NamedTuple):
    """One way to ask for a piece of work."""
    name: str
    server: service.Server
    path: str
    body: str
    headers: dict
    is_right: typing.Callable
    most_connections: int = 1000


class Peer(service.Server):
    """A peer has no /readyz: it is ready when it answers this request with a 200."""

    def __init__(self, name, command, folder, port, probe):
        super().__init__(name, command, folder, port=port)
        self.probe = probe

    def is_ready(self):
        self.url = f"http://127.0.0.1:{self.port}"
        method, path, body, headers = self.probe
        with contextlib.suppress(OSError), self.connect() as connection:
            connection.request(method, path, body, {"content-type": "application/json"} | headers)
            return connection.getresponse().status == 200
        return False


def peers(options, programs, folder):
    """A SQL tool by REST and by MCP, an HTTP tool, a Python function, and a tool of an MCP server, compared with the peer that does the same work."""
    samples, memory = {}, {}
    with parts.in_folder(folder / "peers") as own, contextlib.ExitStack() as stack:
        pairs = started_pairs(options, programs, own, stack)
        for number in range(options.pairs):
            for connections in options.connections:
                for pair in bearable(pairs, connections):
                    for side in parts.rotated(pair, number):
                        sample = load.measure(side.server, side.path, connections, python.seconds(options), own, body=side.body,
                                              headers=side.headers, is_right=side.is_right)
                        samples.setdefault((connections, side.name), []).append(sample)
                        parts.print_sample(f"peers {number + 1}/{options.pairs}", side.name, connections, sample)
        for side in (side for pair in pairs for side in pair):
            memory[side.name] = round(side.server.memory_mib()[0], 1)
    rows = []
    for connections in options.connections:
        for theirs, ours in bearable(pairs, connections):
            for side in (theirs, ours):
                row = parts.comparison(side.name, connections, samples[connections, side.name], samples[connections, theirs.name])
                rows.append(row | {"memory_mib": memory[side.name]})
    return rows


def bearable(pairs, connections):
    """The pairs whose peer still answers with so many connections."""
    return [pair for pair in pairs if all(connections <= side.most_connections for side in pair)]


def started_pairs(options, programs, folder, stack):
    """Starts Toolcrib and the peers that can be installed. Returns what to compare: pairs of peer and Toolcrib."""
    toolbox, fastmcp = installed_toolbox(options), installed_fastmcp(options)
    calls.make_database(folder)
    url = "http://127.0.0.1:9"  # no call reaches it
    if toolbox:
        (folder / "upstream.js").write_text(UPSTREAM)
        url = stack.enter_context(service.Server("upstream", [need_node(), "upstream.js"], folder)).url
    manifest = python.DEFAULTS + "tools:\n" + MANIFEST.replace("UPSTREAM", url) + python.module_of(folder)
    toolcrib = stack.enter_context(service.toolcrib(programs.toolcrib, "toolcrib", folder, manifest))
    python.await_tools(toolcrib)
    pairs = []
    if toolbox:
        (folder / "toolbox.yaml").write_text(TOOLBOX_CONFIG.replace("UPSTREAM", url))
        peer = stack.enter_context(started_toolbox(toolbox, folder))
        pairs += toolbox_pairs(toolcrib, peer)
    if fastmcp:
        peer = stack.enter_context(started_fastmcp(fastmcp, folder))
        ours = Side("Toolcrib, Python by REST", toolcrib, *rest("/tools/add/invoke", {"arguments": NUMBERS}), is_42)
        pairs.append((Side(f"{FASTMCP}, MCP {mcp.NEW}", peer, *mcp.stateless("add", NUMBERS), is_42_by_mcp), ours))
    pairs += [(Side(*theirs), Side(*ours))
              for theirs, ours in gateways.started_pairs(options, programs, folder, stack, Peer, fastmcp)]
    return pairs


def toolbox_pairs(toolcrib, toolbox):
    by_mcp = mcp.stateless("add_sql", NUMBERS)
    return [
        (Side(f"{TOOLBOX}, SQL by REST", toolbox, *rest("/api/tool/add_sql/invoke", NUMBERS),
              lambda answer: json.loads(answer["result"]) == [{"sum": 42}]),
         Side("Toolcrib, SQL by REST", toolcrib, *rest("/tools/add_sql/invoke", {"arguments": NUMBERS}),
              lambda answer: answer["structured_content"] == [{"sum": 42}] and answer["meta"]["cache"] == "off")),
        (Side(f"{TOOLBOX}, SQL by MCP {mcp.NEW}", toolbox, *by_mcp,
              lambda answer: json.loads(answer["result"]["content"][0]["text"]) == {"sum": 42}),
         Side(f"Toolcrib, SQL by MCP {mcp.NEW}", toolcrib, *by_mcp,
              lambda answer: json.loads(answer["result"]["content"][0]["text"]) == [{"sum": 42}])),
        (Side(f"{TOOLBOX}, HTTP by REST", toolbox, *rest("/api/tool/echo/invoke", TEXT),
              lambda answer: json.loads(answer["result"]) == TEXT),
         Side("Toolcrib, HTTP by REST", toolcrib, *rest("/tools/echo/invoke", {"arguments": TEXT}),
              lambda answer: answer["structured_content"] == TEXT and answer["meta"]["cache"] == "off")),
    ]


def rest(path, body):
    return path, json.dumps(body), {}


def is_42(answer):
    return not answer["is_error"] and answer["content"][0]["text"] == "42" and answer["meta"]["cache"] == "off"


def is_42_by_mcp(answer):
    return answer["result"]["structuredContent"] == {"result": 42}


def installed_toolbox(options):
    """Its program, or None if it cannot be installed and this is only a smoke test."""
    folder = TARGET / "npm-toolbox"
    command = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", TOOLBOX_PACKAGE]
    if not programs.is_installed(TOOLBOX_PACKAGE, folder, [command], options):
        return None
    return folder / "node_modules" / "@toolbox-sdk" / "server-linux-x64" / "bin" / "toolbox"


def started_toolbox(program, folder):
    port = service.free_port()
    command = [program, "--config", "toolbox.yaml", "--address", "127.0.0.1", "--port", str(port), "--enable-api", "--disable-reload",
               "--disable-version-check", "--log-level", "ERROR"]
    return Peer("toolbox", command, folder, port, ("GET", "/", None, {}))


def installed_fastmcp(options):
    """The interpreter of its environment, or None if it cannot be installed and this is only a smoke test."""
    folder = TARGET / "venv-fastmcp"
    interpreter = folder / "bin" / "python"
    commands = [[python.base_interpreter(), "-m", "venv", "--clear", folder],
                [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FASTMCP_PACKAGE]]
    return interpreter if programs.is_installed(FASTMCP_PACKAGE, folder, commands, options) else None


def started_fastmcp(interpreter, folder):
    (folder / "fastmcp_server.py").write_text(FASTMCP_SERVER)
    port = service.free_port()
    path, body, headers = mcp.stateless("add", NUMBERS)
    return Peer("fastmcp", [interpreter, "fastmcp_server.py", str(port)], folder, port, ("POST", path, body, headers))


def need_node():
    return shutil.which("node") or service.fail("Node.js is missing: the upstream of the HTTP tools is written for it")
