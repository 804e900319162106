"""Calls are approved while reservations on a shared database fail: the table of calls is locked for longer than a call may take, the
database is killed, restarted and frozen. An approved call runs once, on whatever replica, and no caller is told something else."""

import time

from approvals import Approvals
from audit import check_invariants
from fleet import Database, Fleet
from harness import in_background, poll
from shared_audit import audit_shared
from tools import PLENTY, writer

ROUNDS = (5, 60)
PATIENCE = (420, 3 * 3600)
REPLICAS, CALLS = 3, 24
LIMITS = {"wire": (PLENTY, "lifetime")}
FAULTS = ["lock", "kill", "lock", "backend", "freeze"]
# Seconds. A lock lasts longer than a call may take, and shorter than a commit may take.
DEADLINE, LOCKED, FROZEN, DOWN = 2, 4, (1.0, 12.0), (0.0, 2.0)


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "unsettled", "surprises", "told_wrong")
    database = Database.of(trial)
    fleet = Fleet(trial, database, {"tools": {"wire": writer(
        trial, "wire", limit=LIMITS["wire"], deadline=f"{DEADLINE}s", timeout=f"{DEADLINE}s",
        approval={"wait": "5s", "expires": "1h"})}}, REPLICAS)
    chance, faults = trial.random("rounds"), []
    for round_ in range(trial.rounds):
        faults = faults or chance.sample(FAULTS, len(FAULTS))
        fault = faults.pop()
        trial.add(fault)
        approvals = Approvals(trial, fleet, "wire", f"a{round_}", CALLS)
        if fault == "lock":
            locked = in_background(lambda: database.run(
                f"begin; lock table toolcrib.invocation in exclusive mode; select pg_sleep({LOCKED}); commit"))
            poll(lambda: database.run("select count(*) from pg_locks where mode = 'ExclusiveLock' and relation = "
                                      "'toolcrib.invocation'::regclass") != "0", 10, "the table is locked")
            approvals.decide(chance)
            locked(LOCKED + 20)
        else:
            decided = in_background(lambda: approvals.decide(chance))
            time.sleep(chance.uniform(0, 0.2))
            play(database, fault, chance)
            decided(90)
        poll(lambda: all(replica.ready() for replica in fleet.replicas), 30, "all replicas are ready again")
        # A freeze may last longer than a lease. Then another replica has settled what ran.
        approvals.check(may_die=fault == "freeze")
        trial.add("rounds")
        trial.add("calls", CALLS)
    fleet.wait_until_settled()
    fleet.check_drift()
    fleet.stop()
    check_invariants(trial, audit_shared(trial, database), (), LIMITS)


def play(database, fault, chance):
    if fault == "freeze":
        database.freeze()
        time.sleep(chance.uniform(*FROZEN))
        database.thaw()
    elif fault == "backend":
        database.crash_backend(chance)
    else:
        database.kill()
        time.sleep(chance.uniform(*DOWN))
        database.start()
