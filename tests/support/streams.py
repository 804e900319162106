"""A call as a stream of events, read as it arrives."""

import json
import re
import socket

from harness import status_of

EVENTS = {"accept": "text/event-stream"}


class Stream:
    """An open event stream, read from a raw socket as it arrives."""

    def __init__(self, crib, tool, headers=None, buffer=None, **top_level):
        body = json.dumps(dict({"arguments": {}}, **top_level)).encode()
        fields = {"host": f"127.0.0.1:{crib.port}", "content-type": "application/json", "content-length": len(body), **EVENTS,
                  **(headers or {})}
        self.sock = socket.socket()
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.settimeout(60)
        self.sock.connect(("127.0.0.1", crib.port))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.sock.sendall(f"POST /tools/{tool}/invoke HTTP/1.1\r\n{head}\r\n".encode() + body)
        self.data, self.text = b"", ""

    def head(self):
        while b"\r\n\r\n" not in self.data:
            self._more()
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head.lower(), head
        return status_of(head), dict(re.findall(r"^([\w-]+): (.*?)\r?$", head.decode().lower(), re.M))

    def _more(self):
        part = self.sock.recv(65536)
        if not part:
            raise EOFError("closed in the middle")
        self.data += part

    def next_block(self):
        """The next (event, data); a comment is (None, its text); None at the end of the body."""
        while "\n\n" not in self.text:
            while b"\r\n" not in self.data:
                self._more()
            size, _, rest = self.data.partition(b"\r\n")
            length = int(size, 16)
            while len(self.data) < len(size) + length + 4:
                self._more()
            chunk = self.data[len(size) + 2:len(size) + 2 + length]
            self.data = self.data[len(size) + length + 4:]
            if not length:
                return None
            self.text += chunk.decode()
        block, _, self.text = self.text.partition("\n\n")
        if block.startswith(":"):
            return None, block[1:].strip()
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        return lines["event"], json.loads(lines["data"])

    def result(self):
        """The result and the progress before it."""
        reported = []
        while True:
            event, data = self.next_block()
            if event == "result":
                assert self.next_block() is None, "the result is the last"
                return data, reported
            if event:
                reported.append(data)

    def close(self):
        self.sock.close()


def open_stream(crib, tool, **more):
    stream = Stream(crib, tool, **more)
    status, headers = stream.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream"), headers
    assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no", headers
    return stream
