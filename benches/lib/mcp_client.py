"""The overhead of Toolcrib for a tool of an MCP server: calls over HTTP compared with calls made directly over the server's pipes."""

import json
import os
import statistics
import subprocess
import sys
import time

from lib import load, parts, python, service
from lib.service import fail, print_status

# As little as a server can be, so that what is added is seen.
SERVER = '''\
import json, sys

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOL = {"name": "add", "description": "Adds two numbers.", "inputSchema": OBJECT}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "bench", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        given = params["arguments"]
        return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        reply = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
'''
MANIFEST = "mcp_servers: {bench: {command: %s, tools: {add: {effect: read}}}}\n"
ARGUMENTS = {"a": 40, "b": 2}


def mcp_client(options, programs, folder):
    """One caller and a tool of a persistent server, uncached. The goal is at most one millisecond more at p50."""
    with parts.in_folder(folder / "mcp-client") as own:
        file = own / "server.py"
        file.write_text(SERVER)
        command = [os.path.realpath(sys.executable), "-I", "-S", str(file)]
        with service.toolcrib(programs.toolcrib, "toolcrib", own, MANIFEST % json.dumps(command)) as server:
            python.await_tools(server, "bench_add")
            rounds = []
            for number in range(options.pairs):
                cases = [("pipe", lambda: of_pipe(command, options)), ("invoke", lambda: of_toolcrib(server, options, own))]
                found = {case: measure() for case, measure in parts.rotated(cases, number)}
                print_status(f"mcp_client {number + 1}/{options.pairs}: pipe p50 {found['pipe']} µs, invoke {found['invoke']} µs")
                rounds.append(found)
    median = lambda figures: round(statistics.median(figures))  # noqa: E731
    return {"pipe_p50_us": median(one["pipe"] for one in rounds), "invoke_p50_us": median(one["invoke"] for one in rounds),
            "mcp_client_adds_p50_ms": round(statistics.median(one["invoke"] - one["pipe"] for one in rounds) / 1000, 3)}


def of_toolcrib(server, options, folder):
    body = json.dumps({"arguments": ARGUMENTS})
    answer = service.parsed(server.ask("POST", "/tools/bench_add/invoke", body))
    if answer["is_error"] or answer["content"][0]["text"] != "42":
        fail(f"bench_add should say 42: {answer}")
    sample = load.measure(server, "/tools/bench_add/invoke", 1, python.seconds(options), folder, "off", body=body)
    if sample["failed"]:
        fail(f"{sample['failed']} requests failed; the figures would mean nothing")
    return sample["p50_us"]


def of_pipe(command, options):
    """A loop that does nothing else: a line out, a line in."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    into, out_of = child.stdin.fileno(), child.stdout.fileno()

    def ask(method, params):
        os.write(into, json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        line = os.read(out_of, 65536)
        while not line.endswith(b"\n"):
            line += os.read(out_of, 65536)
        return line

    ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}})
    call, latencies, clock = {"name": "add", "arguments": ARGUMENTS}, [], time.perf_counter
    if json.loads(ask("tools/call", call))["result"]["content"][0]["text"] != "42":
        fail("the server should say 42")
    for _ in range(500):
        ask("tools/call", call)
    last = clock()
    until = last + python.seconds(options)
    while last < until:
        ask("tools/call", call)
        now = clock()
        latencies.append(now - last)
        last = now
    child.stdin.close()
    child.wait(10)
    return round(statistics.median(latencies) * 1e6)
