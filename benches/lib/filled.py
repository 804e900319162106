"""A ledger as it looks after long use: many callers, tools, runs and outcomes, in order of time. The service makes the file and its
schema. The rows are inserted in bulk, and the indexes of the calls are rebuilt afterwards. Everything that a row leaves behind is
there: failed attempts, totals, latencies. The same seed gives the same ledger, up to the time at which it ends."""

import collections
import contextlib
import itertools
import json
import math
import os
import random
import sqlite3
import time

SPAN_MS = 30 * 24 * 3600 * 1000  # the rows lie evenly over 30 days
CALLERS, TOOLS, TOOLS_OF_A_CALLER = 50, 100, 30
ENDS = {  # state -> share of the calls. No row is `reserved`: a state that no row has is a query of its own.
    "succeeded": 0.93, "failed": 0.03, "refused": 0.025, "timed_out": 0.009, "cancelled": 0.00599, "unknown": 0.00001,
}
CACHED, WITH_RUN = 0.2, 0.9  # shares of the calls
IN_LONG_RUN, LONG_RUN = 0.02, "nightly"  # one run that never ends, as of a program that never changes its run_id
OPEN_RUNS, CALLS_OF_A_RUN = 400, 20
BATCH = 20_000
GROWTH = 1.02 / 0.98  # of the latency buckets: src/ledger/latency.rs

KINDS = {"failed": ["upstream_failed", "bad_output", None], "refused": ["invalid_arguments", "usage_limit_reached"],
         "timed_out": ["attempt_timed_out"], "cancelled": ["cancelled"], "succeeded": [None], "unknown": [None]}
WORDS = ("account balance city contract customer date detail forecast hour invoice item limit list message north note "
         "number offer order page payment price query range region report result street summary table total user "
         "weather week").split()


def fill(file, rows, also=(), say=lambda line: None):
    """Puts `rows` calls into a ledger that the service has made and closed. `also` are (caller, tool) pairs that must be among the
    calls, as often as the busiest pair."""
    chance = random.Random(2718)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("pragma synchronous = off")
        db.execute("pragma cache_size = -500000")
        named = "select name, sql from sqlite_schema where type = 'index' and tbl_name = 'invocation' and sql not null"
        indexes = db.execute(named).fetchall()
        db.execute("begin immediate")
        for name, _ in indexes:
            db.execute(f"drop index {name}")
        calls = Calls(chance, rows, list(also))
        insert = ("insert into invocation (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, "
                  "attempts, started_at, duration_us, arguments, result, origin, meta) "
                  "values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
        for first in range(0, rows, BATCH):
            db.executemany(insert, calls.batch(first, min(BATCH, rows - first)))
            if first // BATCH % 50 == 49:
                say(f"{first + BATCH:,} of {rows:,} rows")
        db.executemany("insert into attempt values (?,?,?,?,?)", calls.tries)
        db.executemany("insert into usage_total values (?,?,?,?,?,?,?)", calls.totals())
        db.executemany("insert into usage_latency values (?,?,?,?)", calls.latency())
        for _, sql in indexes:
            db.execute(sql)
        db.execute("commit")
        db.execute("pragma wal_checkpoint(truncate)")
    # On the disk before anything is measured, or the measured commits wait behind it.
    with open(file, "rb+") as written:
        os.fsync(written.fileno())


def caller(c):
    return f"agent-{c:02}"


def tool(c, t):
    """The `t`th tool of caller `c`: each uses some, and they overlap."""
    return f"tool_{(c * 7 + t) % TOOLS:02}"


class Calls:
    """Makes rows, and counts them as the service would."""

    def __init__(self, chance, rows, also):
        self.chance, self.rows = chance, rows
        self.end_ms = int(time.time() * 1000) - 60_000
        pairs = [(caller(c), tool(c, t)) for c in range(CALLERS) for t in range(TOOLS_OF_A_CALLER)]
        # Few callers and tools make most of the calls (Zipf).
        weights = [1 / ((c + 1) * (t + 1)) for c in range(CALLERS) for t in range(TOOLS_OF_A_CALLER)]
        self.pairs = also + pairs
        self.weights = list(itertools.accumulate([max(weights)] * len(also) + weights))
        self.arguments = [json.dumps(sample_arguments(chance), separators=(",", ":")) for _ in range(2000)]
        self.results = [sample_result(chance) for _ in range(2000)]
        self.durations = [max(20, int(chance.lognormvariate(math.log(40_000), 1.5))) for _ in range(4000)]
        self.runs = {}  # caller -> open runs
        self.newest = {}  # (caller, tool) -> newest call that a later one may be answered from
        self.tries = []
        self.ends = collections.Counter()
        self.hits = collections.Counter()
        self.buckets = collections.Counter()

    def batch(self, first, count):
        chance = self.chance
        pairs = chance.choices(self.pairs, cum_weights=self.weights, k=count)
        states = chance.choices(list(ENDS), list(ENDS.values()), k=count)
        durations = chance.choices(self.durations, k=count)
        arguments = chance.choices(self.arguments, k=count)
        results = chance.choices(self.results, k=count)
        for at, (pair, state, us) in enumerate(zip(pairs, states, durations)):
            started = self.end_ms - SPAN_MS + (first + at) * SPAN_MS // self.rows
            id = uuid7(started, chance)
            kind = chance.choice(KINDS[state])
            origin = self.newest.get(pair) if state == "succeeded" and chance.random() < CACHED else None
            if origin:
                cache, result, attempts, us = "hit", None, 0, 20 + us % 100
            elif state == "refused":
                cache, result, attempts, us = "off", problem(kind, "The arguments are invalid."), 0, 20 + us % 100
            else:
                cache, attempts = "off", 1
                result = problem(kind, "The tool did not answer.") if kind else results[at]
                if state == "succeeded":
                    self.newest[pair] = id
                elif kind:
                    self.tries.append((id, 1, kind, "status 503", us))
            self.count(pair, state, us, origin)
            yield (id, pair[1], pair[0], self.run(pair[0]), None, state, kind, "read", cache, attempts, started, us,
                   arguments[at], result, origin, meta(cache, attempts, us))

    def run(self, caller):
        drawn = self.chance.random()
        if drawn > WITH_RUN:
            return None
        if drawn < IN_LONG_RUN:
            return LONG_RUN
        runs = self.runs.setdefault(caller, [])
        if not runs or (drawn < 1 / CALLS_OF_A_RUN + IN_LONG_RUN and len(runs) < OPEN_RUNS // CALLERS):
            runs.append(f"run-{self.chance.getrandbits(48):012x}")
        elif drawn < 1 / CALLS_OF_A_RUN + IN_LONG_RUN:
            runs[self.chance.randrange(len(runs))] = f"run-{self.chance.getrandbits(48):012x}"
        return runs[int(drawn * 1000) % len(runs)]

    def count(self, pair, state, us, origin):
        self.ends[pair, state] += 1
        self.hits[pair] += origin is not None
        if state != "refused":
            self.buckets[pair, math.ceil(math.log(us) / math.log(GROWTH))] += 1

    def totals(self):
        for pair in {pair for pair, _ in self.ends}:
            ends = {state: self.ends[pair, state] for state in ENDS}
            failed = sum(ends.values()) - ends["succeeded"] - ends["refused"]
            yield (*pair, sum(ends.values()), ends["succeeded"], failed, ends["refused"], self.hits[pair])

    def latency(self):
        for (pair, bucket), calls in self.buckets.items():
            yield (*pair, bucket, calls)


def uuid7(ms, chance):
    """RFC 9562: 48 bits of milliseconds, then chance with the version and the variant in it."""
    drawn = chance.getrandbits(74)
    return (ms << 80 | 7 << 76 | drawn >> 62 << 64 | 2 << 62 | drawn & (1 << 62) - 1).to_bytes(16, "big")


def sample_arguments(chance):
    return {word: chance.choice([chance.randrange(1000), " ".join(chance.choices(WORDS, k=4))])
            for word in chance.sample(WORDS, chance.randint(1, 5))}


def sample_result(chance):
    text = " ".join(chance.choices(WORDS, k=chance.randint(2, 100)))
    return json.dumps({"content": [{"type": "text", "text": text}], "is_error": False}, separators=(",", ":"))


def problem(kind, words):
    return json.dumps({"kind": kind, "detail": words, "retryable": False, "retry_after_ms": None, "violations": [],
                       "for_model": words, "started": False}, separators=(",", ":"))


def meta(cache, attempts, us):
    return (f'{{"cache":"{cache}","attempts":{attempts},"duration_ms":{us / 1000},"usage":[],"coercions":[],'
            '"overflow":null,"warnings":[]}')
