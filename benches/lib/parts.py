"""The parts of benches/run: each measures one promise, in rounds, and returns its rows. Compared loads run one after the other within a
round. The order changes from round to round, and every ratio is taken within its round. So a machine that slows down slows both sides."""

import contextlib
import os
import shutil
import statistics
import time

from lib import filled, load, service
from lib.service import print_status

# One tool under three policies. `read` is calculator's own effect; it stands here because the figures depend on it.
# As many running at once as there are connections: the default bulkhead of 16 would bound the limited call, which
# holds its place over a commit.
MANIFEST = """\
defaults: {concurrency: {max: 512}}
server: {max_in_flight: 512}
tools:
  sum_cached: {kind: native, use: calculator, effect: read, cache: {ttl: 1h}}
  sum_uncached: {kind: native, use: calculator, effect: read}
  sum_limited: {kind: native, use: calculator, effect: read, limits: [{calls: 1000000000, per: day}]}
"""

# case -> (path, value of meta.cache once warm). No run_id, so the repeat guard does not apply.
CASES = {
    "bare": ("/bare", None),
    "cached": ("/tools/sum_cached/invoke", "hit"),
    "uncached": ("/tools/sum_uncached/invoke", "off"),
    "limited": ("/tools/sum_limited/invoke", "off"),
}
FIGURES = ("requests_per_s", "p50_us", "p99_us", "cpu_us")

MANY_TOOLS, OF_THEM_HTTP = 1000, 200


def policies(options, programs, folder):
    """A call that is cached, runs, or counts against a limit, compared with the bare handler."""
    samples = {}
    for number in range(options.rounds):
        # Servers and ledger of the round's own: one that grew over the whole run would slow the later rounds.
        with in_folder(folder / f"policies-{number}") as own, contextlib.ExitStack() as stack:
            served = stack.enter_context(service.toolcrib(programs.toolcrib, "toolcrib", own, MANIFEST))
            # The bare handler answers what Toolcrib answers to a cached call: equal bytes on both sides.
            answer = own / "answer.json"
            served.ask("POST", CASES["cached"][0], load.BODY)
            answer.write_bytes(served.ask("POST", CASES["cached"][0], load.BODY))
            bare = stack.enter_context(service.Server("bare", [programs.bare, "--body", answer], own))
            for connections in options.connections:
                for case in rotated(list(CASES), number):
                    server = bare if case == "bare" else served
                    sample = measure(server, case, connections, options.seconds, own)
                    samples.setdefault((connections, case), []).append(sample)
                    print_sample(f"policies {number + 1}/{options.rounds}", case, connections, sample)
    rows = []
    for connections in options.connections:
        for case in CASES:
            rows.append(comparison(case, connections, samples[connections, case], samples[connections, "bare"]))
    return rows


def tools(options, programs, folder):
    """The cached call of a service with 1,000 tools compared with that of one with three."""
    with in_folder(folder / "tools") as own, contextlib.ExitStack() as stack:
        few = stack.enter_context(service.toolcrib(programs.toolcrib, "few", own, MANIFEST))
        many = stack.enter_context(service.toolcrib(programs.toolcrib, "many", own, MANIFEST + more_tools()))
        registered = len(service.parsed(many.ask("GET", "/tools"))["tools"])
        if registered != MANY_TOOLS:
            service.fail(f"{registered} tools are there instead of {MANY_TOOLS}")
        return measure_alternately(options, own, ["cached"], ("3 tools", few), ("1,000 tools", many))


def more_tools():
    """Calculators under many names, cached and limited so that each has its layers, and tools with an HTTP client."""
    lines = []
    for number in range(MANY_TOOLS - 3 - OF_THEM_HTTP):
        policy = ["cache: {ttl: 1h}", "limits: [{calls: 1000000, per: day}]", "timeout: 5s"][number % 3]
        lines.append(f"  sum_{number:03}: {{kind: native, use: calculator, effect: read, {policy}}}\n")
    for number in range(OF_THEM_HTTP):
        lines.append(
            f"  api_{number:03}:\n    kind: http\n    description: Looks up a record of register {number}.\n"
            "    parameters: {id: {type: integer, description: Number of the record},"
            " view: {type: string, enum: [short, long], default: short, description: How much of it}}\n"
            f"    request: {{url: 'https://register-{number}.example.com/records/{{{{ id }}}}',"
            " query: {view: '{{ view }}'}}\n    effect: read\n    cache: {ttl: 5m}\n")
    return "".join(lines)


def ledger(options, programs, folder):
    """Calls over a ledger of 1,000,000 rows compared with calls over an empty one, rows and commits included."""
    manifest, key = manifest_of_many(), key_of("bench")
    with in_folder(folder / "ledger") as own, contextlib.ExitStack() as stack:
        file = own / "full.db"
        with service.toolcrib(programs.toolcrib, "maker", own, manifest, file, key):
            pass
        print_status(f"filling a ledger with {options.rows:,} rows")
        filled.fill(file, options.rows, [("bench", "sum_cached"), ("bench", "sum_limited")])
        empty = stack.enter_context(service.toolcrib(programs.toolcrib, "empty", own, manifest, key=key))
        full = stack.enter_context(service.toolcrib(programs.toolcrib, "full", own, manifest, file, key))
        cases = ["limited of many"] if options.smoke else ["limited", "limited of many", "cached"]
        return measure_alternately(options, own, cases, ("empty", empty), (f"{options.rows:,} rows", full))


def manifest_of_many():
    """The callers and tools whose calls the filled ledger holds, so that new ones go between them."""
    callers = [f"  - {{name: {name}, key: {key_of(name)}}}\n"
               for name in ["bench", *map(filled.caller, range(filled.CALLERS))]]
    limited = "{kind: native, use: calculator, effect: read, limits: [{calls: 1000000000, per: day}]}"
    tools = [f"  tool_{t:02}: {limited}\n" for t in range(filled.TOOLS)]
    return "callers:\n" + "".join(callers) + MANIFEST + "".join(tools)


def key_of(caller):
    return f"key-of-{caller}-0123456789"


# Every call by another caller, of another tool, in another run. Each load has other calls: the repeat guard refuses a call that
# equals the last one of its run.
MANY_LUA = f"""\
math.randomseed(os.time())
local headers = {{["Content-Type"] = "application/json"}}
function request()
  local c = math.random(0, {filled.CALLERS - 1})
  local t = (c * 7 + math.random(0, {filled.TOOLS_OF_A_CALLER - 1})) % {filled.TOOLS}
  headers["Authorization"] = string.format("Bearer {key_of("agent-%02d")}", c)
  return wrk.format("POST", string.format("/tools/tool_%02d/invoke", t), headers, string.format(
    '{{"arguments": {{"expression": "2 + 3 * %d"}}, "run_id": "run-%d"}}',
    math.random(1, 1000000), math.random(1, {filled.OPEN_RUNS})))
end
"""


def measure_alternately(options, folder, cases, before, after):
    samples = {}
    for _, server in (before, after):
        server.ask("POST", CASES["cached"][0], load.BODY)
    for number in range(options.pairs):
        for case in cases:
            for name, server in rotated([before, after], number):
                sample = measure(server, case, 16, max(1, options.seconds - 1), folder)
                samples.setdefault((case, name), []).append(sample)
                print_sample(f"{after[0]} {number + 1}/{options.pairs}", f"{case}, {name}", 16, sample)
    rows = []
    for case in cases:
        for name, _ in (before, after):
            rows.append(comparison(f"{case}, {name}", 16, samples[case, name], samples[case, before[0]]))
    return rows


def idle(options, programs, folder):
    """Time from start to ready with a new ledger, idle memory, size of the program."""
    starts, fresh, used = [], [], []
    with in_folder(folder / "idle") as own:
        for number in range(options.starts):
            server = service.toolcrib(programs.toolcrib, f"idle-{number}", own, MANIFEST, port=service.free_port())
            began = time.perf_counter()
            with server:
                starts.append((server.ready_at - began) * 1000)
                time.sleep(0.2)
                fresh.append(server.memory_mib())
                server.ask("POST", CASES["limited"][0], load.BODY)
                time.sleep(0.2)
                used.append(server.memory_mib())
    median = statistics.median
    return {
        "start_to_ready_ms": round(median(starts), 1),
        "start_to_ready_worst_ms": round(max(starts), 1),
        "memory_mib": round(median(rss for rss, _ in fresh), 1),
        "memory_own_mib": round(median(anon for _, anon in fresh), 1),
        "memory_after_a_call_mib": round(median(rss for rss, _ in used), 1),
        "binary_mib": round(os.path.getsize(programs.toolcrib) / (1 << 20), 1),
    }


def measure(server, case, connections, seconds, folder):
    case, of_many, _ = case.partition(" of many")
    path, cache = CASES[case]
    return load.measure(server, path, connections, seconds, folder, cache, MANY_LUA if of_many else "")


def comparison(name, connections, mine, base):
    """Medians of the figures, and of the ratios to the base in the same round."""
    row = {"case": name, "connections": connections}
    for figure in FIGURES:
        if figure not in mine[0]:  # latencies of a load that waits for its turn mean nothing
            row[figure] = row[f"{figure}_ratio"] = None
            continue
        row[figure] = round(statistics.median(sample[figure] for sample in mine), 1)
        ratios = [round(m[figure] / b[figure], 3) for m, b in zip(mine, base) if b[figure]]
        row[f"{figure}_ratio"] = round(statistics.median(ratios), 3) if ratios else None
        row[f"{figure}_ratios"] = ratios  # one a round: how far they lie apart is the noise
    row["failed"] = sum(sample["failed"] for sample in mine)
    return row


@contextlib.contextmanager
def in_folder(folder):
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a ledger holds a row for every call


def rotated(things, number):
    """Rotates the order, so that no side always runs first."""
    at = number % len(things)
    return things[at:] + things[:at]


def print_sample(where, case, connections, sample):
    print_status(f"{where}: {case}, {connections} connections: {sample['requests_per_s']:.0f} req/s")
