"""SIGTERM at a random moment under load: exit 0 in under 28 s, every accepted call gets its answer, no call is left open (reliability: goal 18)."""

import os
import signal
import subprocess
import time

from aftermath import check_row
from audit import check_invariants
from callers import Caller, CallerPool, Disconnected, Journal, for_each
from tools import PLENTY, poster, reader, writer

ROUNDS = (30, 1000)
PATIENCE = (180, 3 * 3600)
CALLERS = 12
WITHIN = 28
# A `stuck` call outlasts this drain, and is cut short with an answer. Every so many rounds have one.
DRAIN, STUCK_EVERY = "1s", 6
MIX = ["pay"] * 4 + ["post"] * 3 + ["slow"] * 2 + ["look"] * 2


def run(trial):
    trial.require_zero("reset", "bad_exit", "altered", "unrecorded", "uncharged", "left_open", "surprises")
    upstream = trial.upstream()
    service = trial.service({"server": {"drain": DRAIN}, "tools": {
        "pay": writer(trial, "pay", limit=(PLENTY, "day")),
        "post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime")),
        "slow": writer(trial, "slow", seconds=0.4),
        "stuck": writer(trial, "stuck", seconds=300),
        "look": reader(trial)}})
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("moments")
    for round_ in range(trial.rounds):
        crowd = CallerPool(CALLERS, load(trial, service, journal, round_))
        time.sleep(chance.uniform(0.05, 0.5))  # the fault's own moment
        end(trial, service)
        crowd.stop_callers()
        service.start()
        calls = journal.take()
        kept += check(trial, service, calls)
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    check_invariants(trial, service.ledger, kept, {"pay": (PLENTY, "day"), "post": (PLENTY, "lifetime")})


def load(trial, service, journal, round_):
    callers = [(Caller(service, journal), trial.random(round_, index)) for index in range(CALLERS)]
    counts = [0] * CALLERS

    def work(index):
        caller, chance = callers[index]
        counts[index] += 1
        key = f"t{round_}-{index}-{counts[index]}"
        stuck = index == 0 and round_ % STUCK_EVERY == 0
        call = caller.invoke("stuck" if stuck else chance.choice(MIX), {"key": key}, run_id=key)
        if call.status in (499, 503) and call.kind in ("draining", "cancelled"):
            trial.add("drained")
            raise Disconnected("it drains")
        elif call.status not in (None, 200):
            trial.record_fault("surprises", f"{call}")

    return work


def end(trial, service):
    """SIGTERM, and how it ends."""
    process, service.process = service.process, None
    began = time.monotonic()
    process.terminate()
    try:
        code = process.wait(WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = f"still running after {WITHIN} s"
        process.wait()
    trial.record_max("slowest_end", time.monotonic() - began)
    if code != 0:
        trial.record_fault("bad_exit", f"{code}")


def check(trial, service, calls):
    """Every call with a row has had an answer; every answer is recorded unchanged. Returns the calls that promised a row."""
    callers = [Caller(service) for _ in range(8)]

    def look(call, index):
        if call.status is None:
            trial.add("not_accepted")
            rows = callers[index].get(f"/invocations?run_id={call.key}").json["invocations"]
            if rows:
                trial.record_fault("reset", f"{rows[0]['state']} in the ledger, and its caller got {call}")
        elif call.status == 200:
            check_row(trial, callers[index], call)
        call.body = None

    for_each(calls, look)
    unknown = [row for row in callers[0].get("/invocations?state=unknown&limit=100").json["invocations"] if row["tool"] != "stuck"]
    for row in unknown:
        trial.record_fault("left_open", f"{row}")
    return [call for call in calls if call.status == 200]
