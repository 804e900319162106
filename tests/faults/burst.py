"""Very many callers at the same moment: plain sockets on one thread, each with a connection that is kept alive."""

import asyncio
import json


class Answer:
    __slots__ = ("status", "headers", "body")

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json_body(self):
        return json.loads(self.body)

    @property
    def kind(self):
        return self.json_body.get("kind")

    @property
    def replayed(self):
        return self.headers.get("idempotent-replayed") == "true"

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


class Burst:
    """`count` callers on one thread, spread evenly over the services. Each opens its connection when it has something to send, as an idle
    one may be closed at any time, and keeps it for the next volley."""

    # Connections that a caller may lose before it has any of its answer.
    TRIES = 10
    # Connections that are opened at the same time. With more of them, so much time may pass between the opening and the request that the
    # service closes the idle connection.
    OPENING = 500

    def __init__(self, services, count):
        self.loop = asyncio.new_event_loop()
        self.ports = [services[index % len(services)].port for index in range(count)]
        self.streams = [None] * count
        self.turned_away = 0

    def volley(self, requests, seconds=60):
        """`requests` are (tool, arguments, key), one for each caller, all sent together. Returns their answers in order."""
        return self.loop.run_until_complete(asyncio.wait_for(self._volley(requests), seconds))

    async def _volley(self, requests):
        self.opening = asyncio.Semaphore(self.OPENING)
        return await asyncio.gather(*(self._ask(index, request) for index, request in enumerate(requests)))

    async def _ask(self, index, request):
        """A caller whose connection closes before the answer begins sends its request again; if the service ran the first call after
        all, the audit finds two effects. An idle connection may be closed at any time; one that was opened for this request may not.
        The final status is 0 without an answer."""
        for _ in range(self.TRIES):
            fresh = self.streams[index] is None
            try:
                async with self.opening:
                    if fresh:
                        self.streams[index] = await asyncio.open_connection("127.0.0.1", self.ports[index])
                    reader, writer = self.streams[index]
                    writer.write(encode(self.ports[index], *request))
                return await self._answer(reader)
            except (ConnectionError, asyncio.IncompleteReadError) as failure:
                if getattr(failure, "partial", b""):
                    raise
                self.turned_away += fresh
                self.streams[index] = None
        return Answer(0, {}, b"{}")

    async def _answer(self, reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return Answer(int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"])))

    def close(self):
        for _, writer in filter(None, self.streams):
            writer.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


def encode(port, tool, arguments, key=None):
    """An invoke request as it goes over the wire."""
    body = json.dumps({"arguments": arguments}).encode()
    named = f"Idempotency-Key: {key}\r\n" if key else ""
    return (f"POST /tools/{tool}/invoke HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{named}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body
