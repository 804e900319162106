"""The database is killed, restarted and frozen under load. Charged calls get 503 `ledger_unavailable` within their time; afterwards the
rows of all ended calls are there, and no replica was restarted. Reads that need no ledger go on."""

import time

from callers import CallerPool, Journal
from fleet import Database, Fleet, mixed_load
from outage import EXPECTED, MIX, PROMISES, Reads, await_return, finish, look, manifest, pids

ROUNDS = (4, 50)
PATIENCE = (240, 2 * 3600)
REPLICAS, CALLERS = 3, 9
MOMENT = (0.3, 1.0)
# Seconds for which the server is down, or frozen. In the long form a freeze may last longer than the lease of a replica.
DOWN, FROZEN = (0.0, 2.0), ((1.0, 6.0), (1.0, 25.0))
ASKED_AGAIN = 200
FAULTS = ["kill", "quit", "backend", "freeze"]


def run(trial):
    trial.require_zero(*PROMISES)
    database = Database.of(trial)
    fleet = Fleet(trial, database, {**manifest(trial), **Reads.MANIFEST}, REPLICAS)
    reads = Reads(trial, fleet)
    journal, kept, chance, before = Journal(trial.folder / "journal"), [], trial.random("moments"), pids(fleet)
    faults = []
    for round_ in range(trial.rounds):
        faults = faults or chance.sample(FAULTS, len(FAULTS))
        crowd = CallerPool(CALLERS, mixed_load(trial, fleet, journal, MIX, f"d{round_}", CALLERS, EXPECTED, timeout=60))
        time.sleep(chance.uniform(*MOMENT))  # the fault's own moment
        play(trial, database, faults.pop(), chance, reads)
        await_return(trial, fleet, journal, f"d{round_}")
        reads.check_rows()
        time.sleep(chance.uniform(*MOMENT))
        crowd.stop_callers(65)
        kept += look(trial, fleet, journal, chance, ASKED_AGAIN)
        trial.add("rounds")
    finish(trial, fleet, kept, before)


def play(trial, database, fault, chance, reads):
    trial.add(fault)
    if fault == "freeze":
        database.freeze()
        reads.check()
        time.sleep(chance.uniform(*FROZEN[trial.long]))
        database.thaw()
    elif fault == "backend":
        database.crash_backend(chance)
    else:
        getattr(database, fault)()
        reads.check()
        time.sleep(chance.uniform(*DOWN))
        database.start()
