"""Servers in threads of this program, for calls of an HTTP tool and of tools of MCP servers: they cost little beside what is measured."""

import contextlib
import http.server
import json
import socket
import threading

BODY = b'{"text":"How warm is it in Oslo?"}'
UNCACHED = {"ttlMs": 0, "cacheScope": "private"}
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


@contextlib.contextmanager
def upstream():
    """Gives its URL. Every request gets the same answer, and connections stay open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends accept


def accept(listener):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    """Answers the requests of a connection, which have no body."""
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""
        while received := connection.recv(1 << 16):
            *requests, pending = (pending + received).split(b"\r\n\r\n")
            connection.sendall(ANSWER * len(requests))


class McpServer(http.server.BaseHTTPRequestHandler):
    """An MCP server with the tool `sum`. At /mcp it has the newest version, at /session the last one with sessions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        modern = self.path == "/mcp"
        results = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **UNCACHED} if modern else None,
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "bench", "version": "1"}},
            "tools/list": {"tools": [{"name": "sum", "inputSchema": {"type": "object"}}], **(UNCACHED if modern else {})},
            "tools/call": {"content": [{"type": "text", "text": "42"}]},
        }
        result = results.get(message["method"])
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode() if "id" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if not modern and message["method"] == "initialize":
            self.send_header("mcp-session-id", "one")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_):
        """The calls are counted elsewhere."""


@contextlib.contextmanager
def mcp_server():
    """Gives the URL of an MCP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), McpServer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
