"""The overhead of `POST /calls`: a model's message with one cached call compared with the invoke route, and the time of parallel calls."""

import contextlib
import json
import statistics
import time

from lib import load, parts, service

MESSAGE = json.dumps({"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_DdmO9pD3xa9XTPNJ32zg2hcA", "type": "function",
     "function": {"name": "sum_cached", "arguments": json.dumps(json.loads(load.BODY)["arguments"])}}]})
CASES = {"invoke": ("/tools/sum_cached/invoke", load.BODY), "calls": ("/calls", MESSAGE)}
NAPS = json.dumps([{"type": "tool_use", "id": f"toolu_{number}", "name": f"nap_{number}", "input": {}} for number in range(5)])
MANIFEST = parts.MANIFEST + "".join(
    f'  nap_{number}: {{kind: command, description: Sleeps for 100 ms., parameters: {{}}, command: [/bin/sleep, "0.1"], effect: read}}\n'
    for number in range(5))


def calls(options, programs, folder):
    """A message with one cached call compared with the same call by the invoke route. The goal is at most 1.3 times its cost. The two
    differ by little, so the rounds are short and many."""
    samples = {}
    with parts.in_folder(folder / "calls") as own, contextlib.ExitStack() as stack:
        server = stack.enter_context(service.toolcrib(programs.toolcrib, "toolcrib", own, MANIFEST))
        server.ask("POST", *CASES["invoke"])
        rounds = options.pairs * 3
        for number in range(rounds):
            for connections in options.connections:
                for case in parts.rotated(list(CASES), number):
                    path, body = CASES[case]
                    sample = load.measure(server, path, connections, 1, own, "hit", body=body)
                    samples.setdefault((connections, case), []).append(sample)
                    parts.print_sample(f"calls {number + 1}/{rounds}", case, connections, sample)
    return [parts.comparison(case, connections, samples[connections, case], samples[connections, "invoke"])
            for connections in options.connections for case in CASES]


def naps(options, programs, folder):
    """Five tools that take 100 ms each, in one message."""
    took = []
    with parts.in_folder(folder / "naps") as own:
        with service.toolcrib(programs.toolcrib, "toolcrib", own, MANIFEST) as server, server.connect() as connection:
            for _ in range(options.starts * 2):
                began = time.perf_counter()
                answer = service.parsed(server.ask("POST", "/calls", NAPS, connection))
                took.append((time.perf_counter() - began) * 1000)
                if [one.get("is_error") for one in answer["results"]] != [False] * 5:
                    service.fail(f"five naps should end well: {json.dumps(answer)}")
    return {"five_100_ms_tools_ms": round(statistics.median(took), 1), "five_100_ms_tools_worst_ms": round(max(took), 1)}
