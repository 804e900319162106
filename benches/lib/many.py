"""Much of everything at once: open connections, MCP streams that only listen, and tools."""

import contextlib
import json
import resource
import socket
import statistics
import time
import urllib.parse

from lib import mcp, parts, service
from lib.service import fail

CALLERS = 5
LISTEN = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
          "params": {"_meta": mcp.META, "notifications": {"toolsListChanged": True}}}


def many(options, programs, folder):
    """Memory with open connections and streams, and the start and the list of many tools."""
    idle, streams, tools = (200, 100, 500) if options.smoke else (5000, 2000, 10_000)
    with parts.in_folder(folder / "many") as own:
        return connections(programs, own, idle, streams) | many_tools(options, programs, own, tools)


def connections(programs, folder, idle, streams):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = max(2 * (idle + streams + 1), 8 * streams)  # half of them for connections, an eighth for streams
    if limit != resource.RLIM_INFINITY and limit < needed:
        fail(f"{needed} open files are needed, and the limit is {limit}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    callers = "".join(f"  - {{name: c{number}, key: {key(number)}}}\n" for number in range(CALLERS))
    manifest = f"callers:\n{callers}" + parts.MANIFEST.replace("server: {", "server: {max_connections: 8192, ")
    with service.toolcrib(programs.toolcrib, "toolcrib", folder, manifest, key=key(0)) as server, contextlib.ExitStack() as stack:
        address = urllib.parse.urlsplit(server.url)
        for number in range(idle):
            opened(stack, address, f"GET /readyz HTTP/1.1\r\nhost: {address.netloc}\r\n\r\n", b" 200 ")
            if number % 256 == 0:
                server.ask("GET", "/readyz")
        body = json.dumps(LISTEN)
        for number in range(streams):
            opened(stack, address, f"POST /mcp HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {key(number % CALLERS)}\r\n"
                   f"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
                   f"mcp-protocol-version: 2026-07-28\r\nmcp-method: subscriptions/listen\r\n"
                   f"content-length: {len(body)}\r\n\r\n{body}", b"text/event-stream")
        server.ask("POST", parts.CASES["cached"][0], '{"arguments": {"expression": "1 + 1"}}')
        return {"idle_connections": idle, "streams": streams, "memory_of_them_mib": round(server.memory_mib()[0], 1)}


def opened(stack, address, request, wanted):
    """Opens a connection that stays open, sends a request and reads the beginning of its answer."""
    connection = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=30))
    connection.sendall(request.encode())
    answer = connection.recv(4096)
    if wanted not in answer:
        fail(f"{request.split(' HTTP')[0]}: {answer.decode(errors='replace')}")


def key(number):
    return f"key-of-c{number}-0123456789abcdef"


def many_tools(options, programs, folder, count):
    manifest = "tools:\n" + "".join(
        f"  lookup_{number:05}: {{kind: http, description: Looks up a record of register {number}., effect: read,"
        f" parameters: {{id: {{type: integer, description: Number of the record.}}}},"
        f" request: {{url: 'https://register-{number}.example.com/{{{{ id }}}}'}}}}\n" for number in range(count))
    starts, lists = [], []
    for number in range(max(1, options.starts // 3)):
        server = service.toolcrib(programs.toolcrib, f"tools-{number}", folder, manifest, port=service.free_port())
        began = time.perf_counter()
        with server, server.connect() as connection:
            starts.append((server.ready_at - began) * 1000)
            for _ in range(5):
                began = time.perf_counter()
                listed = server.ask("GET", "/tools", connection=connection)
                lists.append((time.perf_counter() - began) * 1000)
            if len(service.parsed(listed)["tools"]) != count:
                fail(f"GET /tools does not list {count} tools")
            memory = server.memory_mib()[0]
    return {"tools": count, "start_with_them_ms": round(statistics.median(starts)), "list_of_them_ms": round(statistics.median(lists), 1),
            "memory_with_them_mib": round(memory, 1)}
