"""kill -9 of random replicas under load, and restarts, while the callers go on at the other replicas. Interrupted writes become
`unknown` and stay charged; no call is lost or runs twice, and no limit allows more than its units."""

import time

from aftermath import check_outcome
from audit import check_invariants, check_limited_reads, effects
from callers import CallerPool, Journal
from fleet import Database, Fleet, mixed_load
from harness import poll, processes
from shared_audit import audit_shared
from tools import PLENTY, poster, reader, writer

ROUNDS = (6, 500)
PATIENCE = (240, 3 * 3600)
REPLICAS = (3, 4)
CALLERS = 12
MOMENT = (0.1, 1.0)  # between two kills
# Kills before the callers stop and all of their calls are looked at.
KILLS = 10
ASKED_AGAIN = 200
FEW, TALLY = 300, 900
# With a `-` without a key.
MIX = ["pay"] * 5 + ["post"] * 3 + ["few"] + ["slow"] * 2 + ["peek"] * 2 + ["look"] * 2 + ["look-"] + ["tally-"] * 3
LIMITS = {"pay": (PLENTY, "day"), "few": (FEW, "lifetime"), "post": (PLENTY, "lifetime")}


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "unsettled", "surprises")
    database = Database.of(trial)
    fleet = Fleet(trial, database, manifest(trial), REPLICAS[trial.long])
    journal, kept, chance, number = Journal(trial.folder / "journal"), [], trial.random("moments"), 0
    while number < trial.rounds:
        load = mixed_load(trial, fleet, journal, MIX, f"k{number}", CALLERS, {("few", "usage_limit_reached"), ("tally", "usage_limit_reached")})
        crowd = CallerPool(CALLERS, load)
        for _ in range(min(KILLS, trial.rounds - number)):
            time.sleep(chance.uniform(*MOMENT))  # the fault's own moment
            replica = chance.choice(fleet.replicas)
            replica.kill9()
            replica.start(seconds=15)
            trial.record_max("slowest_start", replica.ready_after)
            number += 1
            trial.add("rounds")
        crowd.stop_callers()
        kept += look(trial, fleet, journal, chance)
    poll(lambda: not processes(trial.mark), 10, "tools of killed services end")
    fleet.stop()
    check(trial, database, kept)


def manifest(trial):
    upstream = trial.upstream()
    return {"tools": {
        "pay": writer(trial, "pay", limit=LIMITS["pay"]),
        "few": writer(trial, "few", limit=LIMITS["few"]),
        "tally": writer(trial, "tally", limit=(TALLY, "lifetime"), effect="read"),
        "slow": writer(trial, "slow", seconds=0.3),
        "post": poster(trial, upstream, "post", limit=LIMITS["post"]),
        "peek": reader(trial, limit=(PLENTY, "lifetime")),
        "look": reader(trial)}}


def look(trial, fleet, journal, chance, died=True):
    """After the callers have stopped: what they were told is true at every replica, and what they were not told is settled."""
    fleet.wait_until_settled()
    calls = journal.take()
    trial.add("calls", len(calls))
    kept = check_outcome(trial, fleet, journal, calls, again=chance.sample(calls, min(len(calls), ASKED_AGAIN)), died=died)
    fleet.check_drift()
    return kept


def check(trial, database, kept):
    found = audit_shared(trial, database)
    check_invariants(trial, found, kept, LIMITS, ran=[effect for effect in effects(trial.effects) if effect[0] != "tally"])
    check_limited_reads(trial, found, "tally", (TALLY, "lifetime"))
    return found
