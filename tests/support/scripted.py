"""An HTTP server on loopback, on threads of its own, for the upstreams that tests script."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ScriptedHandler(BaseHTTPRequestHandler):
    """Answers one request. `self.server.owner` is the object that started the server."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def read_body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def reply(self, status, body=b"", kind="application/json", **headers):
        """A whole answer. A body that is not bytes is sent as JSON."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class ScriptedServer(ThreadingHTTPServer):
    """Serves until `close`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler, owner=None, host="127.0.0.1", port=0):
        super().__init__((host, port), handler)
        self.owner, self.port = owner, self.server_address[1]
        self.base = f"http://{host}:{self.port}"
        # `close` waits for the next poll.
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that disconnects is no fault of the test

    def close(self):
        self.shutdown()
        self.server_close()
