"""A private Redis server on a port of its own."""

import shutil
import socket
import subprocess
import time

import pytest

from harness import poll


class RedisServer:
    """`redis-server` without files. The test is skipped where it is not installed."""

    def __init__(self, folder, *options):
        if not shutil.which("redis-server"):
            pytest.skip("redis-server is not installed here")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.options, self.process = folder, options, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no", *self.options],
                                        cwd=str(self.folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        poll(self.answers, what="redis-server")

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            time.sleep(0.02)
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()
