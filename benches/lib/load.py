"""Load by wrk, and what it did to the server."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from lib.service import fail, print_status

TURN_S, END_S = 0.03, 30
UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits: wrk is missing. tests/run distinguishes this from a failure.
BODY = '{"arguments": {"expression": "2 + 3 * 4"}}'

# wrk counts a status above 399 as an error and reports its latencies in microseconds.
SCRIPT = """\
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [[%s]]
%s
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\\nRESULT {"requests": %%d, "us": %%d, "p50_us": %%d, "p99_us": %%d, "failed": %%d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status + e.connect + e.read + e.write + e.timeout))
end
"""


def need_wrk():
    if shutil.which("wrk"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print_status("installing wrk with apt-get")
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        quiet["env"] = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], check=False, **quiet)
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "wrk"], check=False, **quiet)
    if not shutil.which("wrk"):
        print_status("wrk is missing: install the package `wrk` (apt, dnf, brew) and run this again")
        sys.exit(UNAVAILABLE)


def command(server, path, connections, seconds, folder, lua="", body=BODY, headers=None):
    script = pathlib.Path(folder) / f"{server.name}.lua"
    lua = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in (headers or {}).items()) + lua
    key = f'wrk.headers["Authorization"] = "Bearer {server.key}"\n' if server.key else ""
    script.write_text(SCRIPT % (body, key + lua))
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script, server.url + path]


def measure(server, path, connections, seconds, folder, cache=None, lua="", body=BODY, headers=None, is_right=None):
    """One load: requests per second, latencies, CPU of the server, its rows included. `cache` is the value that meta.cache must have
    before and after: a tool that returns error results would still be a fast 200. `is_right` checks another answer, as JSON. `lua` may
    define each request."""
    check(server, path, cache, body, headers, is_right)
    cpu = server.cpu_seconds()
    done = subprocess.run(command(server, path, connections, seconds, folder, lua, body, headers),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + 60)
    sample = result_of(done.stdout, done.stderr, done.returncode, path)
    server.wait_until_idle()
    sample["cpu_us"] = (server.cpu_seconds() - cpu) * 1e6 / sample["requests"]
    check(server, path, cache, body, headers, is_right)
    return sample


def measure_in_turns(servers, path, connections, seconds, folder, cache=None, body=BODY, headers=None):
    """{name: sample} of equal loads on servers of these names. Only one of them works at a time, for TURN_S: a machine that is slower
    for a while is slower for all of them. There are no latencies, since a load that waits for its turn would count that, too."""
    for server in servers.values():
        check(server, path, cache, body, headers)
    cpu = {name: server.cpu_seconds() for name, server in servers.items()}
    worked = dict.fromkeys(servers, 0)
    with contextlib.ExitStack() as stack:
        loads = {name: stack.enter_context(running(server, path, connections, folder, body, headers)) for name, server in servers.items()}
        for load in loads.values():
            load.child.send_signal(signal.SIGSTOP)
        for turn in range(round(seconds / TURN_S)):
            for name in list(loads)[:: 1 if turn % 2 else -1]:
                began = time.perf_counter()
                loads[name].child.send_signal(signal.SIGCONT)
                time.sleep(TURN_S)
                loads[name].child.send_signal(signal.SIGSTOP)
                worked[name] += time.perf_counter() - began
    samples = {}
    for name, server in servers.items():
        sample = loads[name].result()
        server.wait_until_idle()
        used = server.cpu_seconds() - cpu[name]
        samples[name] = sample | {"requests_per_s": sample["requests"] / worked[name], "cpu_us": used * 1e6 / sample["requests"]}
        check(server, path, cache, body, headers)
    return samples


@contextlib.contextmanager
def running(server, path, connections, folder, body=BODY, headers=None):
    """Load for the length of a `with`; `.result()` of what it gives is known behind it."""
    child = subprocess.Popen(command(server, path, connections, 3600, folder, body=body, headers=headers), stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    load = Background(path, child)
    try:
        yield load
    finally:
        child.send_signal(signal.SIGCONT)
        # wrk then reports as at its end. Each of its threads may get the signal, and only one of them waits for it.
        until = time.monotonic() + END_S
        while child.poll() is None and time.monotonic() < until:
            child.send_signal(signal.SIGINT)
            time.sleep(0.02)
        child.kill()
        load.output = child.communicate()[0]


class Background:
    def __init__(self, path, child):
        self.path, self.child, self.output = path, child, ""

    def result(self):
        return result_of(self.output, "", 0, self.path)


def result_of(output, errors, status, path):
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    if status or not lines:
        fail(f"wrk failed on {path}:\n{output}{errors}")
    result = json.loads(lines[0].removeprefix("RESULT "))
    if not result["requests"]:
        fail(f"{path} answered nothing")
    return result | {"requests_per_s": result["requests"] * 1e6 / result["us"]}


def check(server, path, cache, body=BODY, headers=None, is_right=None):
    answer = last_json(server.ask("POST", path, body, headers=headers))
    if is_right and not is_right(answer):
        fail(f"{path} at {server.name} gives a wrong answer: {json.dumps(answer)}")
    if not cache:
        return
    if "results" in answer:
        answer = answer["results"][0]
    elif "jsonrpc" in answer:
        answer = answer.get("result") or fail(f"{path} answered {answer}")
        answer = {"is_error": answer.get("isError", False), "meta": {"cache": answer["_meta"].get("toolcrib/cache")}}
    if answer["is_error"] or answer["meta"]["cache"] != cache:
        fail(f"{path} should answer with meta.cache {cache}, not: {json.dumps(answer)}")


def last_json(answered):
    """The JSON of an answer, or of the last event of a stream."""
    events = [line.removeprefix(b"data:") for line in answered.splitlines() if line.startswith(b"data:") and line[5:].strip()]
    return json.loads(events[-1] if events else answered)
