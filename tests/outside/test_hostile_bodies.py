"""Large hostile requests, several at once: other callers wait a moment at most, and the memory is returned. The measurements are those
of other callers: `/livez` and the call of another tool, each repeated constantly from its own process."""

import json
import pathlib
import queue
import random
import re
import resource
import subprocess
import sys
import threading
import time

import pytest

import hostile
from harness import ok, poll, processor_seconds
from recipes import sh

# How many hostile requests run at once, and how long the whole attack may take.
AT_ONCE, ATTACK_SECONDS = 4, 40
# A wait below this is no fault: two cores share four hostile requests, the probes, this test and whatever else the machine does, so the
# scheduler alone can take some of its time slices. Without the attack the wait is about a millisecond, and ten times that is less.
FLOOR = 0.75
MOST_MEMORY = 250 << 20
MOST_KEPT = 60 << 20
# A fault of memory ends the service, not the machine.
MOST_ADDRESSES = 5 << 30

# Calls both constantly until its input ends, then prints the waits. A process: threads would wait for the attackers' lock.
PROBE = """
import http.client, json, sys, threading, time
port, seconds = int(sys.argv[1]), {"livez": [], "call": []}
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
body = json.dumps({"arguments": {"expression": "6*7"}})
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
while not ended.is_set():
    for name, ask in (("livez", ("GET", "/livez", None)), ("call", ("POST", "/tools/other/invoke", body))):
        began = time.monotonic()
        connection.request(*ask, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, (name, answer.status, said)
        seconds[name].append(time.monotonic() - began)
    time.sleep(0.005)
print(json.dumps(seconds))
"""


def memory(crib, field):
    """VmRSS or VmHWM in bytes."""
    status = pathlib.Path(f"/proc/{crib.pid}/status")
    if not status.exists():
        pytest.skip("needs /proc to measure memory")
    return int(re.search(field + r":\s+(\d+)", status.read_text()).group(1)) * 1024


class Probe:
    """Other callers, for as long as the block takes."""

    def __init__(self, crib):
        self.command = [sys.executable, "-I", "-c", PROBE, str(crib.port)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        output, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, "another caller was not answered"
        self.waits = {name: sorted(waits) for name, waits in json.loads(output).items()}

    def percentile(self, name, share):
        waits = self.waits[name]
        return waits[min(len(waits) - 1, int(len(waits) * share))]

    def summary(self):
        return ", ".join(f"{name} p50 {self.percentile(name, .5) * 1000:.1f} p99 {self.percentile(name, .99) * 1000:.1f} max {self.waits[name][-1] * 1000:.1f} ms"
                         f" of {len(self.waits[name])}" for name in self.waits)


def send_all(crib, requests, at_once=AT_ONCE, seconds=ATTACK_SECONDS):
    """Sends them, so many at once; how many were answered in time, and the slowest."""
    waiting, answered, deadline = queue.Queue(), [], time.monotonic() + seconds
    for request in requests:
        waiting.put(request)

    def send():
        while time.monotonic() < deadline:
            try:
                name, (method, path, headers, body) = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            reply = crib.request(method, hostile.target(path), body.encode(), headers=headers, timeout=120)
            answered.append((time.monotonic() - began, name, reply.status))

    threads = [threading.Thread(target=send) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answered) + waiting.qsize() == len(requests), "a request was not answered"
    assert all(status < 500 or status in (502, 503, 504) for _, _, status in answered), answered
    return sorted(answered, reverse=True)


def serve(start, manifest=None):
    manifest = manifest or hostile.manifest()
    manifest["tools"]["other"] = {"kind": "native", "use": "calculator"}
    crib = start(manifest)
    resource.prlimit(crib.pid, resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    ok(crib.invoke("other", {"expression": "6*7"}))
    return crib


def is_violations(name):
    """Lists with many wrong items."""
    return "anyOf" in name


@pytest.mark.parametrize("part", ["parsers", "violations", "texts"])
def test_hostile_requests_do_not_delay_others(start, part):
    if part == "texts":
        crib = serve(start, hostile.text_manifest())
        requests = list(hostile.texts(900_000))
    else:
        crib = serve(start)
        requests = [item for item in hostile.largest().items() if is_violations(item[0]) == (part == "violations")]
    random.Random(7).shuffle(requests)
    with Probe(crib) as quiet:
        time.sleep(4)
    before = memory(crib, "VmRSS")
    with Probe(crib) as busy:
        answered = send_all(crib, requests)
    peak = memory(crib, "VmHWM")
    used = processor_seconds(crib.pid)
    time.sleep(8)
    # The work of an answered call has ended, also on threads that may block.
    rest = processor_seconds(crib.pid) - used
    after = memory(crib, "VmRSS")
    print(f"\n{part}: {len(answered)} of {len(requests)} requests; slowest {[(round(s, 2), n) for s, n, _ in answered[:5]]}")
    print(f"without: {quiet.summary()}\nduring: {busy.summary()}")
    print(f"RSS {before >> 20} MiB before, {peak >> 20} at most, {after >> 20} 8 s later")
    for name in busy.waits:
        p99 = busy.percentile(name, .99)
        assert p99 < 1 and p99 <= max(10 * quiet.percentile(name, .99), FLOOR), (name, p99, answered[:5])
    assert peak < MOST_MEMORY
    assert rest < 1, rest
    assert part != "texts" or len(answered) == len(requests)


def dense(unit):
    """A body's worth of lists and objects: parsed, it takes up to a hundred times its length."""
    return "[" + ",".join([unit] * (950_000 // (len(unit) + 1))) + "]"


def test_parallel_large_requests_share_the_memory(start):
    """Each of many parallel requests is answered or told to retry, and other callers do not notice."""
    crib = serve(start)
    requests = []
    for name, unit in {"objects": '{"a":0}', "lists": "[1]", "numbers": "1", "depth": "[" * 90 + "]" * 90}.items():
        items = '{"set":' + dense(unit) + "}"
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "formats", "arguments": "@", "_meta": dict(hostile.META, progressToken=1)}})
        requests += [(f"invoke {name}", ("POST", "/tools/formats/invoke", hostile.JSON, '{"arguments":' + items + "}")),
                     (f"validate {name}", ("POST", "/tools/formats/validate", hostile.JSON, '{"arguments":' + items + "}")),
                     (f"text {name}", ("POST", "/tools/formats/invoke", hostile.JSON, json.dumps({"arguments": items}))),
                     (f"message {name}", ("POST", "/calls", hostile.JSON, '{"tool_name":"formats","arguments":' + items + "}")),
                     (f"mcp {name}", ("POST", "/mcp", hostile.mcp("tools/call", "formats"), message.replace('"@"', items))),
                     (f"definition {name}", ("PUT", "/tools/some", hostile.JSON, '{"kind":"http","x":' + items[7:200_000] + "}"))]
    requests *= 3
    random.Random(7).shuffle(requests)
    with Probe(crib) as quiet:
        time.sleep(2)
    before = memory(crib, "VmRSS")
    with Probe(crib) as busy:
        answered = send_all(crib, requests, at_once=40)
    peak = memory(crib, "VmHWM")
    print(f"\n{len(answered)} of {len(requests)} requests, {sum(status == 503 for _, _, status in answered)} told to come again;"
          f" slowest {answered[0][0]:.1f} s; RSS {before >> 20} MiB before, {peak >> 20} at most")
    print(f"without: {quiet.summary()}\nduring: {busy.summary()}")
    assert {status for _, _, status in answered} <= {200, 400, 413, 422, 503}
    for name in busy.waits:
        assert busy.percentile(name, .99) <= max(10 * quiet.percentile(name, .99), FLOOR), name
    assert peak < MOST_MEMORY
    poll(lambda: memory(crib, "VmRSS") <= before + MOST_KEPT, 8, "memory is back")


MANY = 900_000
BURSTS = {
    "large answers": ("POST", "/tools/long/invoke", hostile.JSON, '{"arguments":{}}'),
    "wrong lists": ("POST", "/tools/lists/validate", hostile.JSON, '{"arguments":{"items":[' + ",".join(["{}"] * (MANY // 5)) + "]}}"),
    "many keys": ("POST", "/tools/wide/invoke", hostile.JSON, '{"arguments":{' + ",".join(f'"k{n}":1' for n in range(MANY // 12)) + "}}"),
    "many values": ("POST", "/tools/formats/validate", hostile.JSON, '{"arguments":{"set":[' + ",".join(map(str, range(MANY // 8))) + "]}}"),
    "broken calls": ("POST", "/calls", hostile.TEXT, '[TOOL_CALL]{"tool_name":"calculator","arguments":{"a":[' + "1," * (MANY // 2)),
}


@pytest.mark.parametrize("kind", BURSTS)
def test_memory_is_returned_after_a_burst(start, kind):
    """Large requests, large answers, refused arguments: afterwards the idle service returns the memory by itself."""
    manifest = hostile.manifest()
    manifest["tools"]["long"] = sh("head -c 4000000 /dev/zero | tr '\\0' x", effect="read", max_output="4MiB")
    manifest["tools"]["other"] = {"kind": "native", "use": "calculator"}
    crib = start(manifest)
    for _ in range(20):
        ok(crib.invoke("other", {"expression": "6*7"}))
    before = memory(crib, "VmRSS")
    send_all(crib, [(kind, BURSTS[kind])] * 12, at_once=12)
    ended, full = time.monotonic(), memory(crib, "VmRSS")
    poll(lambda: memory(crib, "VmRSS") <= before + MOST_KEPT, 8, "memory is back")
    print(f"\n{kind}: RSS {before >> 20} MiB before, {full >> 20} at the end, {memory(crib, 'VmRSS') >> 20} after"
          f" {time.monotonic() - ended:.1f} s, at most {memory(crib, 'VmHWM') >> 20}")
