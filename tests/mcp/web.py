"""A scripted MCP server over streamable HTTP, on a thread, that records its requests. `era`: "session" (2025-11-25, with session ids),
"sessionless" (the same without) or "modern" (2026-07-28). A test puts functions of (exchange, message) into `on`, by JSON-RPC method;
`exchange` answers with `json`, `sse`, `status` or by hand."""

import json
import threading
import uuid

from scripted import ScriptedHandler, ScriptedServer

OBJECT = {"type": "object", "properties": {}}
ECHO = {"name": "echo", "description": "Its arguments, again.", "inputSchema": OBJECT}


class Exchange(ScriptedHandler):
    """One request and what is answered."""

    def do(self):
        web = self.server.owner
        self.body = self.read_body()
        with web.lock:
            web.requests.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, self.body))
        try:
            if web.over.is_set():
                return self.cut()
            web.answer(self)
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_DELETE = do_PUT = do

    # ways to answer

    def status(self, status, body=b"", kind="text/plain", **headers):
        self.reply(status, body, kind, **headers)

    def json(self, message, status=200, **headers):
        self.status(status, json.dumps(message).encode(), "application/json", **headers)

    def result(self, message, result, **headers):
        if self.server.owner.era == "modern":
            result = dict({"resultType": "complete"}, **result)
        self.json({"jsonrpc": "2.0", "id": message["id"], "result": result}, **headers)

    def error(self, message, code, words, status=200):
        self.json({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": words}}, status)

    def sse(self):
        """Begins a stream of events; `event` follows, then `end`."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, message, **fields):
        lines = [f"{name}: {value}" for name, value in fields.items()] + [f"data: {json.dumps(message)}"]
        self.chunk(("\n".join(lines) + "\n\n").encode())

    def end(self):
        self.chunk(b"")

    def cut(self):
        """The connection breaks off without an end."""
        self.close_connection = True
        self.connection.close()


class Web:
    def __init__(self, era="session", tools=(ECHO,), port=0, **on):
        self.era, self.tools, self.on = era, list(tools), on
        self.lost_status = 404
        self.sessions, self.requests, self.lock, self.over = set(), [], threading.Lock(), threading.Event()
        self.server = ScriptedServer(Exchange, self, port=port)
        self.port, self.url = self.server.port, f"{self.server.base}/mcp"

    def answer(self, exchange):
        custom = self.on.get(exchange.command)
        if custom:
            return custom(exchange, None)
        if exchange.command != "POST":
            return exchange.status(200 if exchange.command == "DELETE" else 405)
        message = json.loads(exchange.body)
        method = message.get("method", "answer")
        custom = self.on.get(method.replace("/", "_"))
        if custom:
            return custom(exchange, message)
        self.answer_normally(exchange, message, method)

    def answer_normally(self, exchange, message, method):
        """The answer of a correct server."""
        session = exchange.headers.get("mcp-session-id")
        if self.era == "session" and method != "initialize" and session not in self.sessions:
            return exchange.error(message, -32000, "no session", 400 if session is None else self.lost_status)
        if "id" not in message or method == "answer":
            return exchange.status(202)
        capabilities = {"tools": {"listChanged": True}}
        if method == "server/discover" and self.era == "modern":
            return exchange.result(message, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"})
        if method == "initialize" and self.era != "modern":
            headers = {}
            if self.era == "session":
                session = uuid.uuid4().hex
                self.sessions.add(session)
                headers = {"mcp_session_id": session}
            return exchange.result(message, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "web", "version": "1"}},
                                   **headers)
        if method == "tools/list":
            more = {"ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}
            return exchange.result(message, dict({"tools": self.tools}, **more))
        if method == "tools/call":
            words = json.dumps(message["params"].get("arguments", {}))
            return exchange.result(message, {"content": [{"type": "text", "text": words}]})
        exchange.error(message, -32601, f"Method not found: {method}", 404 if self.era == "modern" else 200)

    def requests_for(self, method):
        """Headers and message of each request of a JSON-RPC method."""
        with self.lock:
            requests = list(self.requests)
        found = [(headers, json.loads(body)) for verb, _, headers, body in requests if verb == "POST"]
        return [(headers, message) for headers, message in found if message.get("method") == method]

    def close(self):
        self.over.set()
        self.server.close()
