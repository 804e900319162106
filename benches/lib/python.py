"""The cost of HTTP for a Python function: its calls through Toolcrib compared with the bare pipe to the same worker."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from lib import load, parts, service
from lib.programs import ROOT
from lib.service import fail

FUNCTION = '''\
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b
'''
DEFAULTS = """\
defaults: {concurrency: {max: 512, queue: 512, wait: 10s}}
server: {max_in_flight: 512}
"""
ARGUMENTS = {"a": 40, "b": 2}
WORKER = ROOT / "src" / "sources" / "python" / "worker"
DRIVER = pathlib.Path(__file__).with_name("pipe.py")
CONNECTIONS = 16


def python(options, programs, folder):
    """A warm synchronous function, uncached, with one worker and with one for each core. The goal is half the requests of the bare
    pipe. A server in Python is one of the peers (peers.py)."""
    samples = {}
    counts = [1] if options.smoke else sorted({1, len(os.sched_getaffinity(0))})
    with parts.in_folder(folder / "python") as own, contextlib.ExitStack() as stack:
        servers = {}
        for workers in counts:
            server = stack.enter_context(service.toolcrib(programs.toolcrib, f"toolcrib-{workers}", own, DEFAULTS + module_of(own, workers)))
            await_tools(server)
            servers[workers] = server
        for number in range(options.pairs):
            for workers in counts:
                cases = [("pipe", lambda: Pipes(own / "add.py", workers).measure(seconds(options))),
                         ("toolcrib", lambda: of_toolcrib(servers[workers], options, own))]
                for case, measure in parts.rotated(cases, number):
                    sample = measure()
                    samples.setdefault((case, workers), []).append(sample)
                    parts.print_sample(f"python {number + 1}/{options.pairs}", f"{case}, {workers} worker(s)", CONNECTIONS, sample)
    rows = []
    for workers in counts:
        word = "1 worker" if workers == 1 else f"{workers} workers"
        rows.append(parts.comparison(f"bare pipe, {word}", workers, samples["pipe", workers], samples["pipe", workers]))
        rows.append(parts.comparison(f"invoke, {word}", CONNECTIONS, samples["toolcrib", workers], samples["pipe", workers]))
    return rows


def module_of(folder, workers=1):
    """Writes the function, and returns the part of a manifest that serves it."""
    (folder / "add.py").write_text(FUNCTION)
    return ("python_modules:\n"
            f"  bench: {{module: ./add.py, interpreter: {os.path.realpath(sys.executable)}, functions: [add], workers: {workers},"
            " tools: {add: {effect: read}}}\n")


def seconds(options):
    return max(1, options.seconds - 1)


def base_interpreter():
    """The interpreter that makes environments, also if this one belongs to an environment."""
    return os.path.realpath(sys.executable) if sys.prefix != sys.base_prefix else sys.executable


def await_tools(server, name="add"):
    """Sources are listed while it is up already."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if any(tool["name"] == name and tool["available"] for tool in service.parsed(server.ask("GET", "/tools"))["tools"]):
            return
        time.sleep(0.05)
    fail(f"the tool {name} is not there\n{server.log()}")


def of_toolcrib(server, options, folder):
    body = json.dumps({"arguments": ARGUMENTS})
    answer = service.parsed(server.ask("POST", "/tools/add/invoke", body))
    if answer["is_error"] or answer["content"][0]["text"] != "42":
        fail(f"add should say 42: {answer}")
    return load.measure(server, "/tools/add/invoke", CONNECTIONS, seconds(options), folder, "off", body=body)


class Pipes:
    """Workers as Toolcrib starts them, each called by its own loop: a line out, a line in."""

    def __init__(self, file, workers):
        self.file, self.workers = file, workers

    def measure(self, seconds):
        drivers = [subprocess.Popen([sys.executable, "-I", DRIVER, WORKER, self.file, str(seconds)], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True) for _ in range(self.workers)]
        for driver in drivers:
            driver.stdout.readline()  # it is warm
        for driver in drivers:
            driver.stdin.write("go\n")
            driver.stdin.flush()
        found = [json.loads(driver.communicate(timeout=seconds + 60)[0]) for driver in drivers]
        count = sum(one["requests"] for one in found)
        latencies = sorted(latency for one in found for latency in one["latencies_us"])
        return {"requests": count, "requests_per_s": sum(one["requests"] / one["seconds"] for one in found), "failed": 0,
                "p50_us": latencies[len(latencies) // 2], "p99_us": latencies[len(latencies) * 99 // 100],
                "cpu_us": sum(one["worker_cpu_s"] for one in found) * 1e6 / count}
