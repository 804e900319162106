"""Starts the embedded worker as the service does: through pipes, with its sources on standard input."""

import json
import os
import pathlib
import queue
import subprocess
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
WORKER = REPO / "src" / "sources" / "typescript" / "worker"
BOOT = (WORKER / "boot.cjs").read_text()

ARGUMENTS = {"bun": ["--no-install", "-e"], "deno": ["eval", "--quiet", "--no-lock"]}  # of the runtimes beside Node.js
TIMEOUT = 120  # seconds; no test waits this long unless it fails


def worker_files():
    """The files of the worker, beside the one that starts it."""
    return sorted(path for path in WORKER.glob("*.cjs") if path.name != "boot.cjs")


def source_message():
    """What `boot.cjs` reads: a line with a number, and so many bytes of JSON."""
    message = json.dumps({path.name: path.read_text() for path in worker_files()}).encode()
    return b"%d\n" % len(message) + message


class Worker:
    """One worker process. `send` and `receive` speak the protocol; `log` is the output on descriptor 2."""

    def __init__(self, node, folder, environment=None, options=(), pass_fds=()):
        self.process = subprocess.Popen(
            [node, *options, *ARGUMENTS.get(pathlib.Path(node).name, ["-e"]), BOOT],
            pass_fds=pass_fds,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TOOLCRIB_WORKER": "test", **(environment or {})},
        )  # fmt: skip
        self.process.stdin.write(source_message())
        self.process.stdin.flush()
        self.lines, self.log_parts, self.tracebacks, self.count = queue.Queue(), [], [], 0
        self.readers = [threading.Thread(target=self._read_lines, daemon=True), threading.Thread(target=self._read_log, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_lines(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _read_log(self):
        while True:
            piece = os.read(self.process.stderr.fileno(), 1 << 16)
            if not piece:
                return
            self.log_parts.append(piece)

    @property
    def log(self):
        return b"".join(self.log_parts).decode("utf-8", "replace")

    def wait_for_log(self, *texts):
        """Waits until the log has all of them."""
        ends_at = time.monotonic() + TIMEOUT
        while missing := [text for text in texts if text not in self.log]:
            assert time.monotonic() < ends_at, (missing, self.log)
            time.sleep(0.01)

    def send(self, message):
        self.send_raw(json.dumps(message).encode())

    def send_raw(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self):
        """The next message. Tracebacks are kept apart."""
        while True:
            line = self.lines.get(timeout=TIMEOUT)
            assert line is not None, f"the worker ended: {self.process.wait()}; its log: {self.log}"
            message = json.loads(line)
            if message["op"] != "traceback":
                return message
            self.tracebacks.append(message["message"])

    def load(self, module, **more):
        """The worker's answer to `load`."""
        request = {
            "op": "load",
            "module": str(module),
            "is_file": "/" in str(module),
            "source": None,
            "object": None,
            "init": {},
            "functions": None,
            "role": "async",
            "max_result": 4194304,
        }
        self.send({**request, **more})
        return self.receive()

    def start_call(self, tool, arguments, context=None, watched=False, asks=False, deadline_ms=30000):
        self.count += 1
        base = {"invocation_id": f"inv-{self.count}", "caller": "tester", "attempt": 1}
        self.send(
            {
                "op": "call",
                "id": self.count,
                "deadline_ms": deadline_ms,
                "tool": tool,
                "arguments": arguments,
                "context": {**base, **(context or {})},
                "watched": watched,
                "asks": asks,
            }
        )
        return self.count

    def call(self, tool, arguments=None, context=None, **more):
        """The end of a call. `warnings`: the warnings before it."""
        number = self.start_call(tool, arguments or {}, context, **more)
        warnings = []
        while (answer := self.receive())["op"] == "warning":
            warnings.append(answer["message"])
        assert answer["id"] == number, answer
        return {**answer, "warnings": warnings}

    def watch(self, tool, arguments=None):
        """(progress, end) of a watched call."""
        self.start_call(tool, arguments or {}, watched=True)
        seen = []
        while True:
            answer = self.receive()
            if answer["op"] != "progress":
                return seen, answer
            seen.append(answer["data"])

    def wait_for_end(self):
        """The exit status of a worker that ends by itself."""
        status = self.process.wait(timeout=TIMEOUT)
        for reader in self.readers:
            reader.join(timeout=5)
        return status

    def close(self):
        """Ends the worker's input, as the service does; its exit status."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self.process.wait(timeout=10)
        finally:
            self.process.kill()
        for reader in self.readers:
            reader.join(timeout=5)
        return status


def text_of(answer):
    """The text of a result that is one text block or empty."""
    assert answer["op"] == "result", answer
    assert all(block["type"] == "text" for block in answer["content"]), answer
    return "".join(block["text"] for block in answer["content"])


def ok(answer):
    assert answer["op"] == "result" and answer["is_error"] is False, answer
    return answer


def error_text(answer):
    assert answer["op"] == "result" and answer["is_error"] is True, answer
    return text_of(answer)
