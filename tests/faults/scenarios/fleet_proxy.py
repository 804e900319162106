"""The network between replicas and database: delayed by 1 and 5 ms, cut, half-open and silent at random, under load. A replica whose
connection is gone connects again; the outcome of a commit without an answer is found out, and no call is lost or runs twice."""

import time

from callers import CallerPool, Journal
from fleet import Database, Fleet, mixed_load
from outage import EXPECTED, MIX, PROMISES, await_return, finish, look, manifest, pids
from proxy import Proxy

ROUNDS = (2, 50)
PATIENCE = (240, 2 * 3600)
REPLICAS, CALLERS = 3, 9
DELAYS = [0.001, 0.005, 0.0]  # of a round trip, in seconds
MOMENT = (0.1, 0.6)  # between two faults
FAULTS = 4  # of a round
# Seconds in which nothing passes. Shorter than the grace, after which another replica settles one whose connection is gone.
SILENT = (0.2, 2.0)
ASKED_AGAIN = 200


def run(trial):
    trial.require_zero(*PROMISES)
    database = Database.of(trial)
    proxy = Proxy(database.port)
    trial.stack.callback(proxy.close)
    url = database.url().replace(str(database.port), str(proxy.port))
    fleet = Fleet(trial, database, manifest(trial), REPLICAS, url=url)
    journal, kept, chance, before = Journal(trial.folder / "journal"), [], trial.random("moments"), pids(fleet)
    for round_ in range(trial.rounds):
        proxy.delay = DELAYS[round_ % len(DELAYS)]
        crowd = CallerPool(CALLERS, mixed_load(trial, fleet, journal, MIX, f"p{round_}", CALLERS, EXPECTED, timeout=60))
        for _ in range(FAULTS):
            time.sleep(chance.uniform(*MOMENT))  # the fault's own moment
            play(trial, proxy, chance)
        await_return(trial, fleet, journal, f"p{round_}")
        crowd.stop_callers(65)
        kept += look(trial, fleet, journal, chance, ASKED_AGAIN)
        trial.add("rounds")
    finish(trial, fleet, kept, before)


def play(trial, proxy, chance):
    fault = chance.choice(["cut", "cut_some", "half_open", "silent"])
    trial.add(fault)
    if fault == "cut":
        proxy.cut()
    elif fault == "cut_some":
        proxy.cut(chance, 0.3)
    elif fault == "half_open":
        proxy.half_open(chance, 0.3)
    else:
        proxy.silent = True
        time.sleep(chance.uniform(*SILENT))
        proxy.silent = False
