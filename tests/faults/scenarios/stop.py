"""The service is frozen (SIGSTOP) under load and resumed: no call runs twice, deadlines that passed meanwhile end their calls at once,
and a second service on the same ledger does not treat the frozen one as dead (reliability: R-STOP, goal 19)."""

import os
import signal
import time

from aftermath import check_outcome, is_unanswered
from audit import effects, check_invariants
from callers import Caller, CallerPool, Journal
from harness import in_background, poll
from tools import PLENTY, poster, reader, writer

ROUNDS = (4, 30)
PATIENCE = (180, 3 * 3600)
FROZEN = (3.0, 60.0)  # seconds
CALLERS = 8
# The one call whose time runs out while the service is frozen, and how long after the resume it may take to answer.
TIMEOUT, HONOURED_WITHIN = 1.0, 1.0
MIX = ["pay"] * 4 + ["post"] * 2 + ["slow"] * 3 + ["look"]


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "late", "taken_over", "surprises")
    upstream = trial.upstream()
    manifest = {"tools": {
        "pay": writer(trial, "pay", limit=(PLENTY, "day")),
        "post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime")),
        "slow": writer(trial, "slow", seconds=0.3),
        "hung": writer(trial, "hung", seconds=300, timeout=f"{TIMEOUT:.0f}s"),
        "look": reader(trial)}}
    service = trial.service(manifest)
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("moments")
    for round_ in range(trial.rounds):
        crowd = CallerPool(CALLERS, load(trial, service, journal, round_))
        time.sleep(chance.uniform(0.1, 0.5))  # the fault's own moment
        hung, hung_key = Caller(service, journal, timeout=FROZEN[trial.long] + 30), f"s{round_}-hung"
        answer = in_background(lambda: hung.invoke("hung", {"key": hung_key}, key=hung_key, run_id=hung_key))
        poll(lambda: ("hung", hung_key) in effects(trial.effects), 5, "the hung call runs")
        row = service.rows(f"run_id={hung_key}")[0]
        thawed = freeze(trial, service, manifest, row, hung_key, round_)
        check_deadline(trial, answer(FROZEN[trial.long] + 30), thawed)
        poll(service.ready, 5, "ready after the thaw")
        crowd.stop_callers(FROZEN[trial.long] + 35)
        calls = journal.take()
        for call in calls:
            if is_unanswered(call):
                trial.record_fault("surprises", f"nobody died, and there is no answer: {call}")
        kept += check_outcome(trial, service, journal, calls, again=calls, died=False)
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    check_invariants(trial, service.ledger, kept, {"pay": (PLENTY, "day"), "post": (PLENTY, "lifetime")})


def load(trial, service, journal, round_):
    callers = [(Caller(service, journal, timeout=FROZEN[trial.long] + 30), trial.random(round_, index)) for index in range(CALLERS)]
    counts = [0] * CALLERS

    def work(index):
        caller, chance = callers[index]
        counts[index] += 1
        key = f"s{round_}-{index}-{counts[index]}"
        call = caller.invoke(chance.choice(MIX), {"key": key}, key=key)
        if call.status not in (None, 200):
            trial.record_fault("surprises", f"{call}")

    return work


def freeze(trial, service, manifest, row, hung_key, round_):
    """Freezes the service, lets a second one start on its ledger meanwhile, and resumes; returns the moment of the resume."""
    pid, began = service.pid, time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        check_second(trial, service, manifest, row, hung_key, round_)
        time.sleep(max(0.0, FROZEN[trial.long] - (time.monotonic() - began)))  # the fault itself
    finally:
        os.kill(pid, signal.SIGCONT)
    return time.monotonic()


def check_second(trial, service, manifest, row, hung_key, round_):
    """The second service serves, or reports that the ledger is locked (the freeze may have come in the middle of a commit). The frozen
    service's running call is not declared interrupted, and its key does not run again."""
    other = trial.start_second(manifest, name=f"second-{round_}", ledger=service.ledger)
    if other is None:
        trial.add("locked_out")
        return
    seen = other.get(f"/invocations/{row['invocation_id']}").json["state"]
    if seen not in ("reserved", "running"):
        trial.record_fault("taken_over", f"the frozen service's call {hung_key} is {seen} for the second one")
    call = Caller(other).invoke("hung", {"key": hung_key}, key=hung_key)
    if call.kind not in ("idempotency_in_progress", "ledger_unavailable"):
        trial.record_fault("taken_over", f"the second service answers for the frozen one's key: {call}")
    other.end()


def check_deadline(trial, call, thawed):
    """The call whose time ran out while the service was frozen."""
    if (call.status, call.kind) != (504, "attempt_timed_out"):
        trial.record_fault("surprises", f"a call whose time is up answers {call}")
    took = call.ended_at - thawed
    trial.record_max("slowest_deadline", took)
    if took > HONOURED_WITHIN:
        trial.record_fault("late", f"{took:.2f} s after the thaw: {call}")
