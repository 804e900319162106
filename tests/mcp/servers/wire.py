"""A small MCP server over standard input and output, without any package, so that each fault is exactly where it belongs. It speaks the
session era (`initialize`); with `modern=True` only 2026-07-28 (`server/discover`). Each call runs on a thread of its own. The messages
that it receives go, one a line, to the file that HEARD names; the process id of every start goes to the file that STARTED names."""

import json
import os
import sys
import threading

MODERN = "2026-07-28"
OBJECT = {"type": "object", "properties": {}}


def text(words, **more):
    """A result that is one text."""
    return dict({"content": [{"type": "text", "text": words}]}, **more)


def tool(name, description="A tool of a test server.", schema=None, **more):
    """A definition."""
    return dict({"name": name, "description": description, "inputSchema": OBJECT if schema is None else schema}, **more)


class Server:
    """`tools` are definitions; `calls` answers by name: a function of (server, message) returns a result, raises Refused, or returns
    None to send nothing."""

    def __init__(self, tools=(), calls=None, modern=False):
        self.tools, self.calls, self.modern = list(tools), dict(calls or {}), modern
        self.lock, self.waiting, self.asked = threading.Lock(), {}, 0
        self.out = sys.stdout.buffer
        append_line("STARTED", str(os.getpid()))

    # sending

    def raw(self, data):
        with self.lock:
            self.out.write(data if isinstance(data, bytes) else data.encode())
            self.out.flush()

    def send(self, message):
        self.raw(json.dumps(dict({"jsonrpc": "2.0"}, **message)) + "\n")

    def answer(self, number, result):
        if self.modern:
            result = dict({"resultType": "complete"}, **result)
        self.send({"id": number, "result": result})

    def refuse(self, number, code, message, data=None):
        self.send({"id": number, "error": dict({"code": code, "message": message}, **({} if data is None else {"data": data}))})

    def notify(self, method, **params):
        self.send({"method": method, "params": params})

    def ask(self, method, params=None, seconds=10):
        """A request of its own to the client. Returns the answer, or None without one."""
        with self.lock:
            self.asked += 1
            number, came = f"own-{self.asked}", threading.Event()
            self.waiting[number] = [came, None]
        self.send(dict({"id": number, "method": method}, **({} if params is None else {"params": params})))
        came.wait(seconds)
        return self.waiting.pop(number)[1]

    # receiving

    def run(self):
        for line in sys.stdin.buffer:
            append_line("HEARD", line.decode().strip())
            message = json.loads(line)
            if "method" not in message:
                self.handle_answer(message)
            elif message["method"] == "tools/call":
                threading.Thread(target=self.call, args=(message,), daemon=True).start()
            else:
                self.handle_message(message)
        self.closed()

    def handle_answer(self, message):
        came = self.waiting.get(message.get("id"))
        if came:
            came[1] = message
            came[0].set()

    def handle_message(self, message):
        method, number = message["method"], message.get("id")
        if number is None:
            return
        handler = getattr(self, "on_" + method.replace("/", "_"), None)
        if handler is None or self.modern and method in ("initialize", "ping"):
            self.refuse(number, -32601, f"Method not found: {method}")
        else:
            handler(number, message.get("params") or {})

    def closed(self):
        """Standard input has ended."""

    def on_initialize(self, number, params):
        self.answer(number, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}},
                             "serverInfo": {"name": "test", "version": "1"}})

    def on_server_discover(self, number, params):
        if not self.modern:
            return self.refuse(number, -32601, "Method not found: server/discover")
        self.answer(number, {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}, "ttlMs": 0, "cacheScope": "private",
                             "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1"}}})

    def on_subscriptions_listen(self, number, params):
        if not self.modern:
            return self.refuse(number, -32601, "Method not found: subscriptions/listen")
        self.subscription = number
        self.notify("notifications/subscriptions/acknowledged", notifications=params.get("notifications", {}),
                    _meta={"io.modelcontextprotocol/subscriptionId": number})

    def on_ping(self, number, params):
        self.answer(number, {})

    def on_tools_list(self, number, params):
        more = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        self.answer(number, dict({"tools": self.tools}, **more))

    def call(self, message):
        number, params = message["id"], message["params"]
        called = self.calls.get(params["name"])
        if called is None:
            return self.refuse(number, -32602, f"Unknown tool: {params['name']}")
        try:
            result = called(self, message)
        except Refused as refused:
            return self.refuse(number, *refused.args)
        if result is not None:
            self.answer(number, result)


class Refused(Exception):
    """A JSON-RPC error: code, message."""


def append_line(variable, line):
    """Appends a line to the file that a variable names, if the variable is set."""
    name = os.environ.get(variable)
    if name:
        with open(name, "a", encoding="utf-8") as file:
            file.write(line + "\n")
