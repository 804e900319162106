"""What callers and replicas must do while the database is away, and when it is back."""

import time

from aftermath import check_outcome
from audit import check_invariants, check_limited_reads, effects
from callers import Caller, Disconnected
from harness import elapsed, now, poll
from shared_audit import audit_shared
from tools import PLENTY, poster, reader, writer

# Time of each call, and what the answer may take in addition on a busy machine.
DEADLINE, SLACK = 10, 3
# A replica connects again every half a second, and a connection may take 3 s.
BACK_WITHIN = 15
# With a `-` without a key.
MIX = ["pay"] * 5 + ["post"] * 3 + ["few"] + ["slow"] * 2 + ["peek"] * 2 + ["look"] + ["look-"] + ["tally-"] * 2
FEW, TALLY = 400, 900
LIMITS = {"pay": (PLENTY, "day"), "few": (FEW, "lifetime"), "post": (PLENTY, "lifetime"), "tally": (TALLY, "lifetime")}
EXPECTED = {("*", "ledger_unavailable"), ("few", "usage_limit_reached"), ("tally", "usage_limit_reached")}
# Figures that must be 0 in addition to those of every scenario.
PROMISES = ("unrecorded", "uncharged", "left_open", "unsettled", "unanswered", "late", "not_back", "restarted", "surprises")


def manifest(trial):
    upstream, times = trial.upstream(), {"timeout": f"{DEADLINE}s", "deadline": f"{DEADLINE}s"}
    return {"tools": {
        "pay": writer(trial, "pay", limit=LIMITS["pay"], **times),
        "few": writer(trial, "few", limit=LIMITS["few"], **times),
        "tally": writer(trial, "tally", limit=LIMITS["tally"], effect="read", **times),
        "slow": writer(trial, "slow", seconds=0.3, **times),
        "post": poster(trial, upstream, "post", limit=LIMITS["post"], **times),
        "peek": reader(trial, limit=(PLENTY, "lifetime"), **times),
        "look": reader(trial, **times),
        "cached": reader(trial, cache={"ttl": "1h", "scope": "shared"}, **times)}}


def pids(fleet):
    return [replica.pid for replica in fleet.replicas]


class Reads:
    """Reads that need no ledger go on with `ledger.when_down: serve_reads`: results in memory, and reads that no limit counts. Their rows
    are written later."""

    MANIFEST = {"ledger": {"when_down": "serve_reads"}}
    WITHIN = 3

    def __init__(self, trial, fleet):
        trial.require_zero("not_served")
        self.trial, self.fleet, self.ids = trial, fleet, []
        # In the memory of each replica.
        for replica in fleet.replicas:
            Caller(replica).invoke("cached", {"key": "kept"})

    def check(self):
        """While the database is away."""
        for replica in self.fleet.replicas:
            for tool in ("look", "cached"):
                began = now()
                call = Caller(replica).invoke(tool, {"key": "kept"})
                took = elapsed(began)
                self.trial.add("reads_served")
                self.trial.record_max("slowest_read", took)
                if call.status != 200 or took > self.WITHIN:
                    self.trial.record_fault("not_served", f"{replica.folder.name}, {took:.1f} s: {call}")
                else:
                    self.ids.append(call.id)

    def check_rows(self):
        """When the database is back."""
        for id_ in self.ids:
            try:
                poll(lambda: self.fleet.replicas[0].get(f"/invocations/{id_}").status == 200, 10, "the row of a read during the outage")
            except AssertionError as late:
                self.trial.record_fault("lost", f"{id_}: {late}")
        self.ids.clear()


def await_return(trial, fleet, journal, name):
    """Each replica runs a charged call again, without a restart."""
    began = time.monotonic()
    for number, replica in enumerate(fleet.replicas):
        attempts, caller = iter(range(1_000_000)), Caller(replica, journal)

        def answers():
            key = f"{name}-back{number}-{next(attempts)}"
            try:
                return caller.invoke("pay", {"key": key}, key=key).status == 200
            except Disconnected:
                return False

        try:
            poll(answers, BACK_WITHIN, f"{replica.folder.name} runs a charged call")
        except AssertionError as late:
            trial.record_fault("not_back", str(late))
    trial.record_max("slowest_back", time.monotonic() - began)


def look(trial, fleet, journal, chance, again):
    """After the callers have stopped. No replica died, so each of them knows how its calls ended."""
    fleet.wait_until_settled()
    calls = journal.take()
    trial.add("calls", len(calls))
    for call in calls:
        if call.status is None:
            trial.record_fault("unanswered", f"no replica died, and there is no answer: {call}")
            continue
        took = call.ended_at - call.sent_at
        trial.record_max("slowest_answer", took)
        trial.add("refused", call.status == 503)
        if took > DEADLINE + SLACK:
            trial.record_fault("late", f"{took:.1f} s: {call}")
    kept = check_outcome(trial, fleet, journal, calls, again=chance.sample(calls, min(len(calls), again)), died=False)
    fleet.check_drift()
    return kept


def finish(trial, fleet, kept, before):
    """The end of the scenario: the same processes still run, stop in good order, and leave a right ledger."""
    if pids(fleet) != before:
        trial.record_fault("restarted", f"{before} before, {pids(fleet)} after")
    fleet.stop()
    found, ran = audit_shared(trial, fleet.database), effects(trial.effects)
    limits = {name: limit for name, limit in LIMITS.items() if name != "tally"}
    check_invariants(trial, found, kept, limits, ran=[effect for effect in ran if effect[0] != "tally"])
    check_limited_reads(trial, found, "tally", LIMITS["tally"])
