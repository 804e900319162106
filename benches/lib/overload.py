"""What the service does when clients ask for ten times as much as it can do."""

import asyncio
import contextlib
import math
import multiprocessing
import statistics
import time
import urllib.parse

from lib import parts, service
from lib.service import fail, print_status

# A tool with a known capacity: 8 calls at once, each of 20 ms, and a queue that doubles the time of a call. The generator needs the
# processor too, so a tool that keeps it busy would measure the generator.
MANIFEST = """\
tools:
  nap:
    kind: http
    description: Waits for 20 ms.
    parameters: {}
    request: {url: "http://127.0.0.1:%d/", allow_private: true}
    effect: read
    concurrency: {max: 8, queue: 8, wait: 5s}
"""
TOOL_S, AT_ONCE, QUEUE, FACTOR = 0.02, 8, 8, 10
BODY = b'{"arguments": {}}'


def overload(options, programs, folder):
    """Goodput and latency of the accepted calls at ten times the peak, compared with the peak. The peak is a closed load that fills the
    places and the queue. The overload is an open one: the generator sends at fixed times, whatever was answered."""
    goodput, latency, refused = [], [], 0
    with parts.in_folder(folder / "overload") as own, upstream() as port:
        with service.toolcrib(programs.toolcrib, "toolcrib", own, MANIFEST % port) as server:
            address = urllib.parse.urlsplit(server.url)
            for number in range(options.rounds):
                peak = asyncio.run(closed_load(address, options.seconds))
                flood = asyncio.run(open_load(address, options.seconds, FACTOR * peak.per_s))
                goodput.append(flood.per_s / peak.per_s)
                latency.append(flood.p99_s / peak.p99_s)
                refused += flood.refused
                print_status(f"overload {number + 1}/{options.rounds}: peak {peak.per_s:.0f}/s, p99 {peak.p99_s * 1000:.0f} ms; of "
                             f"{flood.sent_per_s:.0f}/s {flood.per_s:.0f}/s are done, p99 {flood.p99_s * 1000:.0f} ms")
    if not refused:
        fail("no call was refused, so the load was no overload")
    return {"goodput_of_peak": round(statistics.median(goodput), 3), "accepted_p99_of_peak": round(statistics.median(latency), 2)}


@contextlib.contextmanager
def upstream():
    """The port of an HTTP server that answers each request after TOOL_S. It is a process of its own: the generator would delay it."""
    ours, its = multiprocessing.Pipe()
    child = multiprocessing.Process(target=run_naps, args=(its,), daemon=True)
    child.start()
    try:
        yield ours.recv()
    finally:
        child.terminate()


def run_naps(pipe):
    asyncio.run(serve_naps(pipe))


async def serve_naps(pipe):
    server = await asyncio.start_server(nap, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def nap(reader, writer):
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(TOOL_S)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
    writer.close()


class Outcome:
    """The calls of one load."""

    def __init__(self):
        self.times, self.refused, self.unexpected, self.sent = [], 0, None, 0
        self.began = time.perf_counter()

    def add(self, status, took):
        if status == 200:
            self.times.append(took)
        elif status == 503:
            self.refused += 1
        else:
            self.unexpected = status

    def end(self):
        if self.unexpected:
            fail(f"a call was answered with {self.unexpected}")
        if not self.times:
            fail("no call was accepted")
        took = time.perf_counter() - self.began
        self.per_s, self.sent_per_s = len(self.times) / took, self.sent / took
        self.p99_s = sorted(self.times)[math.ceil(len(self.times) * 0.99) - 1]
        return self


async def closed_load(address, seconds):
    """As many clients as there are places and waiting places; each calls again as soon as it is answered."""
    outcome = Outcome()

    async def client():
        connection = await Connection.open(address)
        while time.perf_counter() - outcome.began < seconds:
            outcome.sent += 1
            outcome.add(*await connection.call())
        connection.close()

    await asyncio.gather(*(client() for _ in range(AT_ONCE + QUEUE)))
    return outcome.end()


async def open_load(address, seconds, rate):
    """Calls at fixed times. A call takes a connection that is free, or opens one more."""
    outcome, free, running = Outcome(), [], set()

    async def call():
        began = time.perf_counter()
        try:
            connection = free.pop() if free else await Connection.open(address)
            status, _ = await connection.call()
            outcome.add(status, time.perf_counter() - began)
            free.append(connection)
        except (OSError, asyncio.IncompleteReadError):  # with too many connections, the service closes some
            outcome.refused += 1

    while (now := time.perf_counter() - outcome.began) < seconds:
        while outcome.sent < now * rate:
            outcome.sent += 1
            task = asyncio.ensure_future(call())
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(0.001)
    await asyncio.gather(*running)
    for connection in free:
        connection.close()
    return outcome.end()


class Connection:
    """A kept connection with one call at a time."""

    @classmethod
    async def open(cls, address):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(address.hostname, address.port)
        self.request = (f"POST /tools/nap/invoke HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
                        f"content-length: {len(BODY)}\r\n\r\n").encode() + BODY
        return self

    async def call(self):
        """The status, and the seconds from the request to the whole answer."""
        began = time.perf_counter()
        self.writer.write(self.request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        await self.reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        return int(head.split()[1]), time.perf_counter() - began

    def close(self):
        self.writer.close()
