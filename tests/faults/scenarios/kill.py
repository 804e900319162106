"""kill -9 of the whole group at a random moment under load, then a restart. No answered call may be lost, no call may have two effects,
no limit may allow more than its units (reliability: R-KILL)."""

import time

from aftermath import check_no_process, check_outcome
from audit import check_invariants, check_limited_reads, effects
from callers import Caller, CallerPool, Journal
from tools import PLENTY, poster, reader, writer

ROUNDS, ROUNDS_AT_LEVEL = (200, 1000), 10
PATIENCE = (400, 3 * 3600)
MOMENT = (0.5, 2.0)  # the kill comes after 50 ms and before this
CALLERS = 12
# Calls of a round whose answer is also requested again by its key; every one is looked up by its id.
ASKED_AGAIN = (20, 1_000_000)
# So small that it is used up while the kills go on.
FEW = 300
# Units for the limited reads without a key. A kill loses some of them.
TALLY = 900
# `glance` is `look` without a key: it has no guarantee and is part of the load.
MIX = ["pay"] * 5 + ["post"] * 3 + ["few"] + ["slow"] * 2 + ["peek"] * 2 + ["look"] * 2 + ["glance"] + ["tally"] * 3


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "surprises")
    upstream = trial.upstream()
    service = trial.service({"tools": {
        "pay": writer(trial, "pay", limit=(PLENTY, "day")),
        "few": writer(trial, "few", limit=(FEW, "lifetime")),
        "tally": writer(trial, "tally", limit=(TALLY, "lifetime"), effect="read"),
        "slow": writer(trial, "slow", seconds=0.3),
        "post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime")),
        "peek": reader(trial, limit=(PLENTY, "lifetime")),
        "look": reader(trial)}})
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("moments")
    for round_ in range(trial.rounds):
        crowd = CallerPool(CALLERS, load(trial, service, journal, round_))
        time.sleep(chance.uniform(0.05, MOMENT[trial.long]))  # the fault's own moment
        if chance.random() < 0.2:  # while it drains
            service.terminate()
            time.sleep(chance.uniform(0, 0.05))
        service.kill9()
        crowd.stop_callers()
        service.start()
        trial.record_max("slowest_start", service.ready_after)
        calls = journal.take()
        kept += check_outcome(trial, service, journal, calls, again=chance.sample(calls, min(len(calls), ASKED_AGAIN[trial.long])))
        drift = service.metric("toolcrib_quota_drift")
        if drift:
            trial.record_fault("drift", f"round {round_}: toolcrib_quota_drift says {drift}")
        check_no_process(trial)
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    ran = [effect for effect in effects(trial.effects) if effect[0] != "tally"]
    limits = {"pay": (PLENTY, "day"), "few": (FEW, "lifetime"), "post": (PLENTY, "lifetime")}
    found = check_invariants(trial, service.ledger, kept, limits, ran=ran)
    check_limited_reads(trial, found, "tally", (TALLY, "lifetime"))


def load(trial, service, journal, round_):
    """Each caller of a round makes these calls, until the service accepts no connection."""
    callers = [(Caller(service, journal), Caller(service), trial.random(round_, index)) for index in range(CALLERS)]
    counts = [0] * CALLERS

    def work(index):
        caller, unjournaled, chance = callers[index]
        counts[index] += 1
        key, tool = f"k{round_}-{index}-{counts[index]}", chance.choice(MIX)
        if tool == "glance":
            call = unjournaled.invoke("look", {"key": key})
        elif tool == "tally":
            call = unjournaled.invoke(tool, {"key": key})
        else:
            call = caller.invoke(tool, {"key": key}, key=key)
        expected = (None, 200, 503) if call.status == 503 and call.kind == "draining" else (None, 200)
        if call.status not in expected and (call.tool, call.status) not in (("few", 429), ("tally", 429)):
            trial.record_fault("surprises", f"{call}")

    return work
