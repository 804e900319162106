"""The cost of MCP: `tools/call` of a cached tool compared with the invoke route."""

import contextlib
import json

from lib import load, parts, service

NEW, OLD = "2026-07-28", "2025-11-25"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sum_cached", **json.loads(load.BODY)}}
META = {f"io.modelcontextprotocol/{key}": value for key, value in
        {"protocolVersion": NEW, "clientInfo": {"name": "bench", "version": "1"}, "clientCapabilities": {}}.items()}
# One session may not have two running requests with the same id.
IDS = """\
local number = 1
function request()
  number = number + 1
  return wrk.format(nil, nil, nil, (wrk.body:gsub('"id": 1,', '"id": ' .. number .. ',', 1)))
end
"""
ACCEPT = {"accept": "application/json, text/event-stream"}


def mcp(options, programs, folder):
    """A cached tool by `tools/call` compared with the same call by the invoke route. The goal is at least 0.6 of its requests per
    second, by the newest protocol version. The last version with sessions is measured for comparison."""
    samples = {}
    with parts.in_folder(folder / "mcp") as own, contextlib.ExitStack() as stack:
        server = stack.enter_context(service.toolcrib(programs.toolcrib, "toolcrib", own, parts.MANIFEST))
        server.ask("POST", "/tools/sum_cached/invoke", load.BODY)
        cases = {"invoke": ("/tools/sum_cached/invoke", load.BODY, {}), NEW: stateless(), OLD: session(server)}
        rounds = options.pairs * 2
        for number in range(rounds):
            for connections in options.connections:
                for case in parts.rotated(list(cases), number):
                    path, body, headers = cases[case]
                    lua = IDS if case == OLD else ""
                    sample = load.measure(server, path, connections, 1, own, "hit", lua, body, headers)
                    samples.setdefault((connections, case), []).append(sample)
                    parts.print_sample(f"mcp {number + 1}/{rounds}", case, connections, sample)
    return [parts.comparison(case, connections, samples[connections, case], samples[connections, "invoke"])
            for connections in options.connections for case in cases]


def stateless(tool="sum_cached", arguments=CALL["params"]["arguments"]):
    """Path, body and headers of a call by the newest version. Every request is complete in itself."""
    body = json.dumps(CALL | {"params": {"name": tool, "arguments": arguments, "_meta": META}})
    return "/mcp", body, ACCEPT | {"mcp-protocol-version": NEW, "mcp-method": "tools/call", "mcp-name": tool}


def session(server):
    """A session that was initialized, as far as the server keeps one."""
    client = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
    headers = dict(ACCEPT)
    for message in (begin, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
        with server.connect() as connection:
            connection.request("POST", "/mcp", json.dumps(message), {"content-type": "application/json"} | headers)
            answer = connection.getresponse()
            answer.read()
        if answer.status not in (200, 202):
            service.fail(f"{message} is answered {answer.status}")
        kept = answer.headers["mcp-session-id"]
        headers |= {"mcp-protocol-version": OLD} | ({"mcp-session-id": kept} if kept else {})
    return "/mcp", json.dumps(CALL), headers
