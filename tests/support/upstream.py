"""A scripted HTTP upstream on loopback, threaded, that counts what it is asked.

Every path answers by its first segment: /echo/..., /json, /text, /png, /notfound, /hang, /reset, /endless, /chunks,
/slow (slow body), /wait (late answer), /half (broken JSON), /list. A path set by `script(path, *steps)` plays the steps in
turn and repeats the last; a step is a status, a word of the list above, or a function that takes the handler.
"""

import json
import socket
import struct
import threading

from scripted import ScriptedHandler, ScriptedServer

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63606060"
                    "f80f0001040100"  "5fe5c34b0000000049454e44ae426082")


class Handler(ScriptedHandler):
    def do(self):
        up, path = self.server.owner, self.path.split("?")[0]
        self.body = self.read_body()
        step = up.count(path, self)
        try:
            if callable(step):
                step(self)
            elif isinstance(step, int):
                self.reply(step, f"status {step}".encode(), "text/plain")
            else:
                getattr(self, "at_" + step)()
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do

    def at_echo(self):
        path, _, query = self.path.partition("?")
        try:
            body = json.loads(self.body) if self.body else None
        except ValueError:
            body = self.body.decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.reply(200, {"method": self.command, "path": path, "query": query, "headers": headers, "body": body})

    def at_json(self):
        self.reply(200, {"current": {"temperature": 22.5}, "number": self.server.owner.hits()})

    def at_counter(self):
        self.reply(200, {"number": self.server.owner.hits(self.path.split("?")[0])})

    def at_list(self):
        self.reply(200, [1, 2, 3])

    def at_half(self):
        self.reply(200, b'{"current": {"temp')

    def at_text(self):
        self.reply(200, "plain words, ÆØÅ".encode(), "text/plain; charset=utf-8")

    def at_png(self):
        self.reply(200, PNG, "image/png")

    def at_notfound(self):
        self.reply(404, b"no such city: Atlantis", "text/plain")

    def at_hang(self):
        self.server.owner.over.wait()
        self.close_connection = True

    def at_wait(self):
        """Answers after 0.4 s, so that equal calls meet in flight."""
        self.server.owner.over.wait(0.4)
        self.reply(200, {"number": self.server.owner.hits(self.path.split("?")[0])})

    def at_reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def at_cut(self):
        """A body shorter than it claims."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"a": ')
        self.close_connection = True

    def at_endless(self):
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(10 << 30))
        self.end_headers()
        self.pour(lambda part: part)

    def at_chunks(self):
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.pour(lambda part: b"%x\r\n%s\r\n" % (len(part), part))

    def pour(self, frame):
        part = frame(b"a" * 65536)
        while not self.server.owner.over.is_set() and self.server.owner.poured < 10 << 30:
            self.wfile.write(part)
            self.server.owner.poured += len(part)
        self.close_connection = True

    def at_slow(self):
        """A byte every 50 ms, for ever."""
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", "1000000")
        self.end_headers()
        while not self.server.owner.over.wait(0.05):
            self.wfile.write(b"s")
            self.wfile.flush()
        self.close_connection = True


class Upstream:
    def __init__(self, host="127.0.0.1"):
        self.over, self.lock, self.poured = threading.Event(), threading.Lock(), 0
        self.seen, self.scripts, self.requests = {}, {}, []
        self.server = ScriptedServer(Handler, self, host)
        self.port, self.base = self.server.port, self.server.base

    def script(self, path, *steps):
        """Plays `steps` for requests of `path`, then repeats the last one; returns the URL."""
        self.scripts[path] = list(steps)
        return self.base + path

    def count(self, path, handler):
        with self.lock:
            number = self.seen[path] = self.seen.get(path, 0) + 1
            self.requests.append((handler.command, handler.path, dict(handler.headers.items()), handler.body))
            steps = self.scripts.get(path)
            if steps:
                return steps[min(number, len(steps)) - 1]
        word = path.strip("/").split("/")[0]
        return word if hasattr(handler, "at_" + word) else 404

    def hits(self, path=None):
        """Requests of one path, or all of them."""
        with self.lock:
            return self.seen.get(path, 0) if path else sum(self.seen.values())

    def close(self):
        self.over.set()
        self.server.close()


def busy(seconds):
    """A step: 429 with Retry-After."""
    return lambda handler: handler.reply(429, b"slow down", "text/plain", Retry_After=str(seconds))


def redirect_to(target, status=302):
    """A step: a redirect."""
    return lambda handler: handler.reply(status, b"moved", "text/plain", Location=target)


def reply_with(value, status=200, kind="application/json"):
    """A step: a fixed answer."""
    return lambda handler: handler.reply(status, value, kind)
