"""Replicas under measurement: processes on one database, and load that is spread over them."""

import contextlib
import pathlib
import subprocess
import sys
import time

from lib import load, service
from lib.programs import ROOT
from lib.service import fail

sys.path.append(str(ROOT / "tests" / "faults"))

from proxy import Proxy  # noqa: E402: behind the path

__all__ = ["IN_RUNS", "Fleet", "Proxy"]

SETTLE_S = 0.5  # rows of reads are written behind their answers
ANSWER_S = 30  # for results of 10 MB on a slow disk
# Each thread of wrk has one of the addresses.
SPREAD = """\
local ports, at = {%s}, 0
function setup(thread)
  thread.addr = wrk.lookup("127.0.0.1", ports[at %% #ports + 1])[1]
  thread:set("number", at)
  at = at + 1
end
"""
# Each call has a run of its own.
IN_RUNS = """local calls, began = 0, os.time()
function request()
  calls = calls + 1
  local run = string.format("run-%d-%d-%d", began, number, calls)
  return wrk.format(nil, nil, nil, '{"run_id": "' .. run .. '", "arguments": {"expression": "2 + 3 * 4"}}')
end
"""


class Fleet:
    """`count` replicas on the ledger at `url`, for the length of a `with`."""

    def __init__(self, name, binary, folder, manifest, url, count=1, key=None):
        self.name, self.folder, self.key = name, pathlib.Path(folder), key
        names = [f"{name}-{number}" for number in range(count)]
        self.replicas = [service.Server(one, service.serve_command(binary, one, folder, manifest, url), folder, key) for one in names]
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        """All start at the same time. `started` is the time until the last one listens."""
        began = time.monotonic()
        with self.stack:
            for replica in self.replicas:
                with open(self.folder / f"{replica.name}.log", "wb") as log:
                    replica.child = subprocess.Popen(replica.command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                     **replica.start_options())
                self.stack.callback(kill, replica.child)
            for replica in self.replicas:
                replica.await_start()
            self.stack = self.stack.pop_all()
        self.started = time.monotonic() - began
        self.url = self.replicas[0].url
        return self

    def __exit__(self, *_):
        for replica in self.replicas:
            replica.child.terminate()
        for replica in self.replicas:
            with contextlib.suppress(subprocess.TimeoutExpired):
                replica.child.wait(30)
        self.stack.close()

    def measure(self, path, connections, seconds, lua="", body=load.BODY):
        """One load, spread evenly over the replicas. `lua` may define each request."""
        threads = min(len(self.replicas), connections)
        ports = ", ".join(f'"{replica.url.rpartition(":")[2]}"' for replica in self.replicas)
        self.replicas[0].ask("POST", path, body)
        lua = SPREAD % ports + lua
        command = load.command(self, path, connections // threads * threads, seconds, self.folder, lua=lua, headers={"Host": "localhost"})
        command[1:2] = [f"-t{threads}", "--timeout", f"{ANSWER_S}s"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + 60, check=False)
        sample = load.result_of(done.stdout, done.stderr, done.returncode, path)
        if sample["failed"]:
            fail(f"{sample['failed']} calls failed at {self.name}")
        time.sleep(SETTLE_S)
        return sample

    def wait_until_idle(self):
        for replica in self.replicas:
            replica.wait_until_idle()

    def cpu_seconds(self):
        return sum(replica.cpu_seconds() for replica in self.replicas)

    def forget_peak(self):
        """The next peak of memory starts here (proc(5), clear_refs)."""
        for replica in self.replicas:
            pathlib.Path(f"/proc/{replica.child.pid}/clear_refs").write_text("5")

    def peak_mib(self):
        return sum(replica.peak_mib() for replica in self.replicas)


def kill(child):
    child.kill()
    child.wait()
