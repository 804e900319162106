"""One Python worker and a loop that asks it and does nothing else: a program of its own, so that its loop holds no other up.

    pipe.py WORKER add.py SECONDS

WORKER is the folder with the worker's sources.
"""

import json
import os
import pathlib
import subprocess
import sys
import time


def drive(folder, file, seconds):
    """Prints `warm`, waits for a line, calls for so many seconds, and prints the result."""
    environment = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    boot = (folder / "boot.py").read_text()
    worker = subprocess.Popen([os.path.realpath(sys.executable), "-X", "utf8", "-c", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env=environment, bufsize=0)
    into, out_of = worker.stdin.fileno(), worker.stdout.fileno()

    def ask(line):
        os.write(into, line)
        answer = os.read(out_of, 65536)
        while not answer.endswith(b"\n"):
            answer += os.read(out_of, 65536)
        return answer

    first = {"op": "load", "module": file, "is_file": True, "object": None, "init": {}, "functions": ["add"], "role": "sync", "max_result": 4194304}
    os.write(into, source_message(folder))
    ready = json.loads(ask(json.dumps(first).encode() + b"\n"))
    if ready["op"] != "ready":
        sys.exit(f"the worker does not start: {ready}")
    call = {"op": "call", "id": 7, "deadline_ms": 29990, "tool": "add", "arguments": {"a": 40, "b": 2},
            "context": {"invocation_id": "01990000-0000-7000-8000-000000000000", "caller": "anonymous", "attempt": 1}}
    line = json.dumps(call, separators=(",", ":")).encode() + b"\n"
    answer = json.loads(ask(line))
    if answer["op"] != "result" or answer["content"][0]["text"] != "42":
        sys.exit(f"the worker should say 42: {answer}")
    for _ in range(500):
        ask(line)
    print("warm", flush=True)
    sys.stdin.readline()
    before, latencies, clock = cpu_seconds(worker.pid), [], time.perf_counter
    began = last = clock()
    until = began + seconds
    while last < until:
        ask(line)
        now = clock()
        latencies.append(now - last)
        last = now
    used = cpu_seconds(worker.pid) - before
    worker.stdin.close()
    worker.wait(10)
    step = max(1, len(latencies) // 20_000)
    print(json.dumps({"requests": len(latencies), "seconds": last - began, "worker_cpu_s": used,
                      "latencies_us": [round(latency * 1e6) for latency in latencies[::step]]}))


def source_message(folder):
    """What boot.py reads first: a line with a number, and so many bytes of JSON."""
    files = (path for path in folder.rglob("*.py") if path.name != "boot.py")
    message = json.dumps({path.relative_to(folder).as_posix(): path.read_text() for path in files}).encode()
    return b"%d\n" % len(message) + message


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


drive(pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
