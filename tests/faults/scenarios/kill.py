"""kill -9 of the whole group at a random moment under load, then a restart. Nothing that was answered may be lost, nothing that was
asked for once may happen twice, no limit may give more than it has (reliability: R-KILL)."""

import time

from audit import found, hold
from callers import Caller, Crowd, Journal, each
from harness import poll, processes
from tools import PLENTY, poster, reader, writer

ROUNDS = (200, 1000)
PATIENCE = (400, 3 * 3600)
MOMENT = (0.5, 2.0)  # the kill comes after 50 ms and before this
CALLERS = 12
# Answers of a round that are also asked for again by their key; every one is looked up by its id.
ASKED_AGAIN = (15, 1_000_000)
# So small that it is used up while the kills go on.
FEW = 300
# `glance` is `look` without a key: nothing is promised to such a call, it is part of the load.
MIX = ["pay"] * 5 + ["post"] * 3 + ["few"] + ["slow"] * 2 + ["peek"] * 2 + ["look"] * 2 + ["glance"]


def run(trial):
    trial.zero("altered", "unrecorded", "uncharged", "left_open", "rerun", "surprises")
    upstream = trial.upstream()
    service = trial.service({"tools": {
        "pay": writer(trial, "pay", limit=(PLENTY, "day")),
        "few": writer(trial, "few", limit=(FEW, "lifetime")),
        "slow": writer(trial, "slow", seconds=0.3),
        "post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime")),
        "peek": reader(trial, limit=(PLENTY, "lifetime")),
        "look": reader(trial)}})
    keys = trial.needs_keys(service)
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("moments")
    for round_ in range(trial.rounds):
        crowd = Crowd(CALLERS, load(trial, service, journal, round_))
        time.sleep(chance.uniform(0.05, MOMENT[trial.long]))  # the fault's own moment
        if chance.random() < 0.2:  # while it drains
            service.terminate()
            time.sleep(chance.uniform(0, 0.05))
        service.kill9()
        crowd.dismiss()
        service.start()
        trial.most("slowest_start", service.ready_after)
        calls = journal.take()
        kept += check(trial, service, journal, calls, chance, keys)
        drift = service.metric("toolcrib_quota_drift")
        if drift:
            trial.wrong("drift", f"round {round_}: toolcrib_quota_drift says {drift}")
        trial.add("rounds")
        trial.add("calls", len(calls))
    poll(lambda: not processes(trial.mark), 10, "tools of killed services end")
    service.stop()
    hold(trial, service.ledger, kept, {"pay": (PLENTY, "day"), "few": (FEW, "lifetime"), "post": (PLENTY, "lifetime")})


def load(trial, service, journal, round_):
    """What each caller of a round does, call after call, until nobody is there."""
    callers = [(Caller(service, journal), Caller(service), trial.random(round_, index)) for index in range(CALLERS)]
    counts = [0] * CALLERS

    def work(index):
        caller, unjournaled, chance = callers[index]
        counts[index] += 1
        key, tool = f"k{round_}-{index}-{counts[index]}", chance.choice(MIX)
        if tool == "glance":
            call = unjournaled.invoke("look", {"key": key})
        else:
            call = caller.invoke(tool, {"key": key}, key=key)
        expected = (None, 200, 503) if call.status == 503 and call.kind == "draining" else (None, 200)
        if call.status not in expected and (call.tool, call.status) != ("few", 429):
            trial.wrong("surprises", f"{call}")

    return work


def check(trial, service, journal, calls, chance, keys):
    """Every answer is found as it was given; every call without one is asked for again. Gives the calls that promised a row."""
    answered = [call for call in calls if call.status == 200]
    open_ = [call for call in calls if call.status is None]
    again = set(map(id, chance.sample(answered, min(len(answered), ASKED_AGAIN[trial.long])))) if keys else ()
    callers = [Caller(service) for _ in range(8)]

    def look(call, index):
        caller = callers[index]
        found(trial, caller, call)
        if id(call) in again:
            replayed(trial, caller, call)
        call.body = None

    each(answered, look)
    if keys:
        each(open_, lambda call, index: retried(trial, callers[index], journal, call))
    return answered + [call for call in open_ if call.status == 200]


def by_key(caller, call):
    """The rows of a key."""
    return caller.get(f"/invocations?idempotency_key={call.key}").json["invocations"]


def replayed(trial, caller, call):
    """The same key again: the same bytes, and the ledger finds the call by it."""
    ids = [row["invocation_id"] for row in by_key(caller, call)]
    if ids != [call.id]:
        trial.wrong("lost", f"GET by key finds {ids}: {call}")
    retry = caller.again(call)
    if (retry.status, retry.body, retry.replayed) != (call.status, call.body, True):
        trial.wrong("altered", f"the replay is {retry}, replayed={retry.replayed}; the caller was told {call}")


def retried(trial, caller, journal, call):
    """A call whose answer the kill cut off: its result, `outcome_unknown`, or a first run. Never a second one."""
    rows = by_key(caller, call)
    retry = caller.again(call)
    trial.add("retried")
    if retry.status == 200:
        if rows and call.tool not in ("peek", "look") and not retry.replayed:
            trial.wrong("rerun", f"{rows[0]['state']} before, and run again: {retry}")
        call.status, call.id, call.body = retry.status, retry.id, retry.body
        journal.answered(call)
        call.body = None
    elif retry.status == 409 and retry.kind == "outcome_unknown":
        trial.add("unknown")
        if [row["state"] for row in rows] != ["unknown"]:
            trial.wrong("surprises", f"outcome_unknown, but the rows are {rows}: {retry}")
    elif (call.tool, retry.status) != ("few", 429):
        trial.wrong("surprises", f"retried: {retry}")
