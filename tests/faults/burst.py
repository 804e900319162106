"""Very many callers at the same moment: plain sockets on one thread, each with a connection that is kept alive."""

import asyncio
import json


class Answer:
    __slots__ = ("status", "headers", "body")

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def said(self):
        return json.loads(self.body)

    @property
    def kind(self):
        return self.said.get("kind")

    @property
    def replayed(self):
        return self.headers.get("idempotent-replayed") == "true"

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


class Burst:
    """`count` connections, spread evenly over the services; `volley` sends on all of them before it reads from any."""

    def __init__(self, services, count):
        self.loop = asyncio.new_event_loop()
        self.ports = [services[index % len(services)].port for index in range(count)]
        self.streams = self.loop.run_until_complete(self._open())

    async def _open(self):
        return await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for port in self.ports))

    def volley(self, requests, seconds=60):
        """`requests` are (tool, arguments, key), one for each connection; their answers in order."""
        return self.loop.run_until_complete(asyncio.wait_for(self._volley(requests), seconds))

    async def _volley(self, requests):
        for (_, writer), port, request in zip(self.streams, self.ports, requests):
            writer.write(encode(port, *request))
        return await asyncio.gather(*(self._answer(reader) for (reader, _), _ in zip(self.streams, requests)))

    async def _answer(self, reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return Answer(int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"])))

    def close(self):
        async def close():
            for _, writer in self.streams:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for _, writer in self.streams), return_exceptions=True)

        self.loop.run_until_complete(close())
        self.loop.close()


def encode(port, tool, arguments, key=None):
    """An invoke request as it goes over the wire."""
    body = json.dumps({"arguments": arguments}).encode()
    named = f"Idempotency-Key: {key}\r\n" if key else ""
    return (f"POST /tools/{tool}/invoke HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{named}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body
