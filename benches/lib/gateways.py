"""A tool of an MCP server through Toolcrib and through the gateways that PyPI has, by URL and by stdio: mcpo, which answers by REST, and
FastMCP's proxy, which answers by MCP. The server is another Toolcrib with a native tool, which is much faster than any gateway.

agentgateway is the nearest opponent, and has no package in a registry. Where its program is, this gives its figures for the same call:
    toolcrib serve --manifest fast.yaml --listen 127.0.0.1:7501    # fast.yaml: MANIFEST of this file
    agentgateway -f gateway.yaml                                   # gateway.yaml: AGENTGATEWAY of this file
    wrk -t1 -c16 -d5s --latency -s call.lua http://127.0.0.1:7502/mcp    # call.lua: a POST with the body and headers of mcp.stateless("sum")
"""

import json

from lib import mcp, programs, python, service
from lib.programs import TARGET

MCPO, MCPO_PACKAGES = "mcpo 0.0.20", ("mcpo==0.0.20", "mcp<2", "fastapi==0.115.12", "sse-starlette<3")

MANIFEST = """\
defaults: {concurrency: {max: 512}}
server: {max_in_flight: 512}
tools:
  sum: {kind: native, use: calculator, effect: read}
"""
OURS = """\
defaults: {concurrency: {max: 512}}
server: {max_in_flight: 512}
mcp_servers:
  url: {url: "URL/mcp", tools: {sum: {effect: read}}}
  stdio: {command: COMMAND, tools: {sum: {effect: read}}}
"""
PROXY = '''\
import sys
from fastmcp.server import create_proxy
create_proxy(sys.argv[1]).run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), stateless_http=True, json_response=True,
                              show_banner=False, log_level="ERROR", uvicorn_config={"access_log": False})
'''
AGENTGATEWAY = """\
binds:
- port: 7502
  listeners:
  - routes:
    - backends:
      - mcp: {targets: [{name: fast, mcp: {host: "http://127.0.0.1:7501/mcp"}}]}
"""
SUM = {"expression": "40 + 2"}


def started_pairs(options, tools, folder, stack, peer, fastmcp):
    """Pairs of the fields of a `peers.Side`, the gateway first. `peer` makes a server without /readyz, `fastmcp` is the
    interpreter of FastMCP's environment."""
    fast = stack.enter_context(service.toolcrib(tools.toolcrib, "fast", folder, MANIFEST))
    piped = [str(part) for part in (tools.toolcrib, "serve", "--stdio", "--manifest", folder / "fast.yaml", "--ledger")]
    ours = OURS.replace("URL", fast.url).replace("COMMAND", json.dumps([*piped, f"sqlite://{folder}/piped.db"]))
    ours = stack.enter_context(service.toolcrib(tools.toolcrib, "gateway", folder, ours))
    for tool in ("url_sum", "stdio_sum"):
        python.await_tools(ours, tool)
    pairs, mcpo = [], installed_mcpo(options)
    reaches = {"URL": ["--server-type", "streamable-http", "--", f"{fast.url}/mcp"],
               "stdio": ["--", *piped, f"sqlite://{folder}/of-mcpo.db"]}
    for way, reach in reaches.items() if mcpo else ():
        path, body, port = "/sum", json.dumps(SUM), service.free_port()
        command = [mcpo, "--host", "127.0.0.1", "--port", str(port), "--log-level", "ERROR", *reach]
        server = stack.enter_context(peer(f"mcpo-{way}", command, folder, port, ("POST", path, body, {})))
        pairs.append(((f"{MCPO}, MCP server by {way}", server, path, body, {}, lambda answer: answer == 42),
                      (f"Toolcrib, MCP server by {way}, REST", ours, f"/tools/{way.lower()}_sum/invoke", json.dumps({"arguments": SUM}), {},
                       lambda answer: answer["content"][0]["text"] == "42" and answer["meta"]["cache"] == "off")))
    if fastmcp:
        (folder / "proxy.py").write_text(PROXY)
        port, call = service.free_port(), mcp.stateless("sum", SUM)
        command = [fastmcp, "proxy.py", f"{fast.url}/mcp", str(port)]
        server = stack.enter_context(peer("fastmcp-proxy", command, folder, port, ("POST", *call)))
        # With 16 connections it answers nothing for seconds.
        pairs.append((("FastMCP's proxy, MCP server by URL", server, *call, is_42, 1),
                      ("Toolcrib, MCP server by URL, MCP", ours, *mcp.stateless("url_sum", SUM), is_42)))
    return pairs


def is_42(answer):
    return answer["result"]["content"][0]["text"] == "42"


def installed_mcpo(options):
    """Its program, or None if it cannot be installed and this is only a smoke test."""
    folder = TARGET / "venv-mcpo"
    interpreter = folder / "bin" / "python"
    commands = [[python.base_interpreter(), "-m", "venv", "--clear", folder],
                [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *MCPO_PACKAGES]]
    return folder / "bin" / "mcpo" if programs.is_installed(" ".join(MCPO_PACKAGES), folder, commands, options) else None
