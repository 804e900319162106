"""A TCP proxy between the replicas and the database, on one thread of its own: it delays, cuts and half-opens connections."""

import asyncio
import selectors
import threading
import time


class Proxy:
    """Listens at `port` and forwards to `target`, which may change. `delay` is added to each round trip, in seconds."""

    def __init__(self, target):
        self.target, self.delay, self.silent = target, 0.0, False
        # With epoll, Python rounds each wait up to a whole millisecond.
        self.links, self.loop = set(), asyncio.SelectorEventLoop(selectors.SelectSelector())
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = self.wait(asyncio.start_server(self.accept, "127.0.0.1", 0))
        self.port = self.server.sockets[0].getsockname()[1]

    def wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    async def accept(self, reader, writer):
        """One connection. A silent proxy accepts it and forwards nothing, as a network that drops packets without notice."""
        link = Link(self, writer)
        self.links.add(link)
        try:
            while self.silent:
                await asyncio.sleep(0.05)
            back_reader, link.back = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(link.pump(reader, link.back), link.pump(back_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            link.cut()
            self.links.discard(link)

    def cut(self, chance=None, share=1.0):
        """Resets connections in both directions: all of them, or a share."""
        async def work():
            for link in self.chosen(chance, share):
                link.cut()
        self.wait(work())

    def half_open(self, chance=None, share=1.0):
        """These connections stay open, and nothing passes any more. New ones work."""
        async def work():
            for link in self.chosen(chance, share):
                link.dead = True
        self.wait(work())

    def chosen(self, chance, share):
        links = sorted(self.links, key=lambda link: link.number)
        return [link for link in links if chance is None or chance.random() < share]

    def close(self):
        async def work():
            self.server.close()
            for link in list(self.links):
                link.cut()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        self.wait(work())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


class Link:
    """One connection of a replica, and the one behind it."""

    count = 0

    def __init__(self, proxy, front):
        Link.count += 1
        self.proxy, self.number, self.front, self.back, self.dead = proxy, Link.count, front, None, False

    async def pump(self, reader, writer):
        """One direction. Pieces that follow each other closely are all under way at the same time."""
        pieces = asyncio.Queue()
        sending = asyncio.ensure_future(self.send(pieces, writer))
        try:
            while piece := await reader.read(1 << 16):
                pieces.put_nowait((time.monotonic() + self.proxy.delay / 2, piece))
            pieces.put_nowait((time.monotonic() + self.proxy.delay / 2, None))
            await sending
        finally:
            sending.cancel()
            if not self.dead:
                self.cut()

    async def send(self, pieces, writer):
        while True:
            due, piece = await pieces.get()
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            while self.dead or self.proxy.silent:
                await asyncio.sleep(0.05)
            if piece is None:
                return
            writer.write(piece)
            await writer.drain()

    def cut(self):
        for writer in filter(None, (self.front, self.back)):
            writer.transport.abort()
