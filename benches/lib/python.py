"""The cost of HTTP for a Python function: its calls through Toolcrib compared with the bare pipe to the same worker and with a FastMCP server."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from lib import load, parts, service
from lib.programs import ROOT, TARGET
from lib.service import fail, print_status

FASTMCP = "fastmcp==4.1.2"
FUNCTION = '''\
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b
'''
MANIFEST = """\
defaults: {{concurrency: {{max: 512, queue: 512, wait: 10s}}}}
server: {{max_in_flight: 512}}
python_modules:
  bench: {{module: ./add.py, interpreter: {python}, functions: [add], workers: {workers}, tools: {{add: {{effect: read}}}}}}
"""
ARGUMENTS = {"a": 40, "b": 2}
WORKER = ROOT / "src" / "tools" / "python" / "worker"
DRIVER = pathlib.Path(__file__).with_name("pipe.py")
# Stateless, answers in JSON, no banner and no access log: the fastest that it offers.
FASTMCP_SERVER = FUNCTION + '''

import sys
from fastmcp import FastMCP
server = FastMCP("bench")
server.tool(add)
port = int(sys.argv[1])
server.run(transport="http", host="127.0.0.1", port=port, stateless_http=True, json_response=True, show_banner=False,
           log_level="ERROR", uvicorn_config={"access_log": False})
'''
FASTMCP_CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": ARGUMENTS}})
ACCEPT = 'wrk.headers["Accept"] = "application/json, text/event-stream"\n'
CONNECTIONS = 16


def python(options, programs, folder):
    """A warm synchronous function, uncached, with one worker and with one for each core. The goal is half the requests of the bare
    pipe, and three times those of FastMCP."""
    samples = {}
    counts = [1] if options.smoke else sorted({1, len(os.sched_getaffinity(0))})
    fastmcp = environment(options)
    with parts.in_folder(folder / "python") as own, contextlib.ExitStack() as stack:
        (own / "add.py").write_text(FUNCTION)
        servers = {}
        for workers in counts:
            manifest = MANIFEST.format(workers=workers, python=os.path.realpath(sys.executable))
            server = stack.enter_context(service.toolcrib(programs.toolcrib, f"toolcrib-{workers}", own, manifest))
            await_tools(server)
            servers[workers] = server
        other = stack.enter_context(FastMcp(fastmcp, own)) if fastmcp else None
        for number in range(options.pairs):
            for workers in counts:
                cases = [("pipe", lambda: Pipes(own / "add.py", workers).measure(seconds(options))),
                         ("toolcrib", lambda: of_toolcrib(servers[workers], options, own))]
                if other and workers == 1:
                    cases.append(("fastmcp", lambda: of_fastmcp(other, options, own)))
                for case, measure in parts.rotated(cases, number):
                    sample = measure()
                    samples.setdefault((case, workers), []).append(sample)
                    parts.print_sample(f"python {number + 1}/{options.pairs}", f"{case}, {workers} worker(s)", CONNECTIONS, sample)
    rows = []
    for workers in counts:
        word = "1 worker" if workers == 1 else f"{workers} workers"
        rows.append(parts.comparison(f"bare pipe, {word}", workers, samples["pipe", workers], samples["pipe", workers]))
        rows.append(parts.comparison(f"invoke, {word}", CONNECTIONS, samples["toolcrib", workers], samples["pipe", workers]))
    if other:
        rows.append(parts.comparison("FastMCP", CONNECTIONS, samples["fastmcp", 1], samples["fastmcp", 1]))
        rows.append(parts.comparison("invoke, beside FastMCP", CONNECTIONS, samples["toolcrib", 1], samples["fastmcp", 1]))
    return rows


def seconds(options):
    return max(1, options.seconds - 1)


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


# ---- the bare pipe -------------------------------------------------------------------------------------------------------

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


# ---- FastMCP -------------------------------------------------------------------------------------------------------------

def environment(options):
    """The interpreter of an environment with FastMCP, kept under target/; `None` when it cannot be installed and this is only a smoke test."""
    folder = TARGET / "venv-fastmcp"
    python, mark = folder / "bin" / "python", folder / "wanted"
    if mark.exists() and mark.read_text() == FASTMCP and subprocess.run([python, "-c", "import fastmcp"]).returncode == 0:
        return python
    print_status(f"installing {FASTMCP} under {folder}")
    quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    base = os.path.realpath(sys.executable) if sys.prefix != sys.base_prefix else sys.executable
    for command in ([base, "-m", "venv", "--clear", folder], [python, "-m", "pip", "install", "--quiet", FASTMCP]):
        try:
            done = subprocess.run(command, **quiet, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            done = subprocess.CompletedProcess(command, 1, "", str(error))
        if done.returncode:
            output = (done.stderr or done.stdout).strip().splitlines()[-1:]
            if options.smoke:
                print_status(f"without FastMCP, which cannot be installed: {output}")
                return None
            fail(f"{FASTMCP} cannot be installed: {output}")
    mark.write_text(FASTMCP)
    return python


class FastMcp(service.Server):
    """It has no /readyz: it is there when a call is answered."""

    def __init__(self, interpreter, folder):
        file, port = folder / "fastmcp_server.py", service.free_port()
        file.write_text(FASTMCP_SERVER)
        super().__init__("fastmcp", [interpreter, file, str(port)], folder, port=port)

    def is_ready(self):
        self.url = f"http://127.0.0.1:{self.port}"
        with contextlib.suppress(OSError), self.connect() as connection:
            answer = mcp_call(connection)
            if answer["result"]["structuredContent"] == {"result": 42}:
                return True
            fail(f"FastMCP should say 42: {answer}")
        return False


def mcp_call(connection):
    connection.request("POST", "/mcp", FASTMCP_CALL, {"content-type": "application/json", "accept": "application/json, text/event-stream"})
    return json.loads(connection.getresponse().read())


def of_fastmcp(server, options, folder):
    cpu = server.cpu_seconds()
    done = subprocess.run(load.command(server, "/mcp", CONNECTIONS, seconds(options), folder, ACCEPT, FASTMCP_CALL), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=seconds(options) + 60)
    sample = load.result_of(done.stdout, done.stderr, done.returncode, "/mcp")
    sample["cpu_us"] = (server.cpu_seconds() - cpu) * 1e6 / sample["requests"]
    with server.connect() as connection:
        mcp_call(connection)
    return sample

