"""An MCP server whose tools are what tools.json in its working folder says; when that changes, so do they, and it says so.

A call of a tool answers the tool's name and the arguments as JSON, one of `pid` the process."""

import json
import os
import sys
import threading
import time

LOCK = threading.Lock()


def write(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def tools():
    with open("tools.json") as file:
        return json.load(file)


def watch(before):
    while True:
        time.sleep(0.02)
        try:
            now = tools()
        except (OSError, ValueError):
            continue
        if now != before:
            before = now
            write({"method": "notifications/tools/list_changed"})


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "changing", "version": "1"}}
    if method == "tools/list":
        return {"tools": tools()}
    if method == "tools/call":
        name = params["name"]
        said = str(os.getpid()) if name == "pid" else f"{name} {json.dumps(params.get('arguments', {}), sort_keys=True)}"
        return {"content": [{"type": "text", "text": said}]}
    return {} if method == "ping" else None


def main():
    threading.Thread(target=watch, args=(tools(),), daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        write({"id": message["id"], **said})


main()
