"""Standard input and output behind HTTP, for the suite, which knows no other transport. Messages pass unchanged, so that the suite
tests the messages of the process. One process serves each session, and one more serves all messages without a session. Statuses and
headers come from this bridge: scenarios about those do not test the process."""

import contextlib
import http.server
import json
import queue
import subprocess
import threading
import uuid


class Process:
    """A `toolcrib serve --stdio`, and the requests that wait for its messages."""

    def __init__(self, command, env):
        self.child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.lock, self.waiting = threading.Lock(), {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in iter(self.child.stdout.readline, b""):
            message = json.loads(line)
            for token in self.recipients(message):
                self.waiting[token].put(message)

    def recipients(self, message):
        """The request that a message belongs to: its answer, its progress, its subscription, its question; otherwise all requests."""
        if "id" in message and "method" in message:
            return list(self.waiting)[-1:]  # The suite has one open call when the server asks.
        meta = message.get("params", {}).get("_meta", {})
        for token in (message.get("id"), message.get("params", {}).get("progressToken"), meta.get("io.modelcontextprotocol/subscriptionId")):
            if token is not None and token in self.waiting:
                return [token]
        return list(self.waiting) if "id" not in message else []

    def send(self, message):
        with self.lock:
            self.child.stdin.write(json.dumps(message).encode() + b"\n")
            self.child.stdin.flush()

    def exchange(self, message):
        """Yields the messages until the request is answered."""
        heard, tokens = queue.Queue(), [message["id"]]
        progress = message.get("params", {}).get("_meta", {}).get("progressToken")
        tokens += [progress] if progress is not None else []
        for token in tokens:
            self.waiting[token] = heard
        answered = False
        try:
            self.send(message)
            while not answered:
                reply = heard.get(timeout=20)
                answered = reply.get("id") == message["id"] and "method" not in reply
                if answered:
                    # Before the client reads the answer: the suite uses the id again at once.
                    self.forget(tokens)
                yield reply
        finally:
            if not answered:
                self.forget(tokens)

    def forget(self, tokens):
        for token in tokens:
            self.waiting.pop(token, None)

    def end(self):
        self.child.stdin.close()
        return self.child.wait(20)


class Bridge:
    """Serves `url` until it is closed; then `codes` has the exit codes of its processes."""

    def __init__(self, command, env):
        self.command, self.env, self.sessions, self.lock = command, env, {}, threading.Lock()
        self.spare = Process(command, env)  # Started early, since a start takes a moment.
        bridge = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle(self):
                with contextlib.suppress(ConnectionError):
                    super().handle()

            def do_POST(self):
                bridge.post(self)

            def do_GET(self):
                self.answer(405)

            def do_DELETE(self):
                self.answer(405)

            def answer(self, status, body=b"", headers=()):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://localhost:{self.server.server_port}/mcp"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def process(self, session):
        with self.lock:
            if session not in self.sessions:
                self.sessions[session], self.spare = self.spare, Process(self.command, self.env)
            return self.sessions[session]

    def post(self, handler):
        message = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        session = uuid.uuid4().hex if message.get("method") == "initialize" else handler.headers.get("mcp-session-id")
        process = self.process(session)
        if "id" not in message or "method" not in message:
            process.send(message)
            return handler.answer(202)
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        if session:
            handler.send_header("mcp-session-id", session)
        handler.send_header("connection", "close")
        handler.end_headers()
        try:
            for output in process.exchange(message):
                handler.wfile.write(b"event: message\ndata: " + json.dumps(output).encode() + b"\n\n")
        except (OSError, queue.Empty):
            process.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}})
        handler.close_connection = True

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        return [process.end() for process in [self.spare, *self.sessions.values()]]
