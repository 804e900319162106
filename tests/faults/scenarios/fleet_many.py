"""Very many replicas on one database, with as many connections as the pages tell: one limit and the same keys asked at all of them, some
of them killed or frozen at the same moment, and at the end a rolling stop under load. What they cost the database is printed: commits and
transactions a second, connections, and the time of the lists."""

import os
import signal
import time

from aftermath import check_outcome
from audit import check_invariants, check_limited_reads, effects
from callers import CallerPool, Journal
from fleet import LEASE, Database, Fleet, mixed_load
from harness import in_background, parallel, poll
from scenarios import fleet_kill, fleet_limit
from scenarios.fleet_changes import check_replicas
from scenarios.fleet_keys import ask_same_keys
from scenarios.fleet_upgrade import LINGER, ask, load
from shared_audit import audit_shared
from tools import poster

ROUNDS = (1, 3)
PATIENCE = (300, 3600)
REPLICAS = (8, 50)
AT_ONCE = 10  # replicas that start together: here, one machine has to start all of them
CONNECTIONS = 6  # of one replica, with 10 for the operator: docs/operate/scale.md
# The one limit that all replicas share: callers at the same moment, and units.
CALLERS, LIMIT = (400, 1_000), (100, 1_000)
# Replicas that are killed together, and those that are frozen. A short freeze ends before the lease, so it settles nothing.
KILLED, FROZEN, FROZEN_FOR = (2, 10), (1, 5), (2.0, LEASE + 5.0)
CROWD = (12, 24)
IDLE = (2.0, 10.0)  # seconds in which nothing is asked
ASKED_AGAIN = 100
STEPS = 8  # of the rolling stop
EXPECTED = {("few", "usage_limit_reached"), ("tally", "usage_limit_reached"), ("*", "ledger_unavailable"), ("*", "outcome_unknown")}
# All that the replicas have committed, and all transactions of the server.
COMMITS = "select sum(last_batch) from toolcrib.replica"
TRANSACTIONS = "select xact_commit from pg_stat_database where datname = current_database()"
CONNECTED = "select count(*) from pg_stat_activity where application_name = 'toolcrib'"
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


def run(trial):
    trial.require_zero("under_limit", "failed", "altered", "not_once", "unrecorded", "uncharged", "left_open", "unsettled", "not_listed",
                       "turned_away", "surprises")
    count = trial.replicas or REPLICAS[trial.long]
    database = Database.of(trial, settings=(f"max_connections={CONNECTIONS * count + 10}",))
    limits = {f"{effect}{round_}": (LIMIT[trial.long], "lifetime") for round_ in range(trial.rounds) for effect in ("write", "read")}
    began = time.monotonic()
    fleet = Fleet(trial, database, manifest(trial, limits), count, at_once=AT_ONCE)
    trial.add("replicas", count)
    trial.record_max("all_started", time.monotonic() - began)
    trial.record_max("slowest_start", max(replica.ready_after for replica in fleet.replicas))
    check_replicas(trial, fleet)
    rest(trial, fleet)
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("moments")
    for round_ in range(trial.rounds):
        for effect in ("write", "read"):
            fleet_limit.volleys(trial, fleet, f"{effect}{round_}", CALLERS[trial.long], LIMIT[trial.long])
        ask_same_keys(trial, fleet, f"k{round_}", chance, {})
        kept += break_some(trial, fleet, journal, chance, f"b{round_}")
        time_lists(trial, fleet, chance)
    kept += stop_in_turn(trial, fleet, journal, chance)
    trial.add("deadlocks", int(database.run(DEADLOCKS)))
    check(trial, audit_shared(trial, database), kept, limits)


def check(trial, found, kept, limits):
    """A killed replica leaves no rows of its limited reads, but their units."""
    reads = {name: limit for name, limit in limits.items() if name.startswith("read")} | {"tally": (fleet_kill.TALLY, "lifetime")}
    others = {name: limit for name, limit in (fleet_kill.LIMITS | limits).items() if name not in reads}
    check_invariants(trial, found, kept, others, ran=[effect for effect in effects(trial.effects) if effect[0] not in reads])
    for name, limit in reads.items():
        check_limited_reads(trial, found, name, limit)


def manifest(trial, limits):
    upstream = trial.upstream()
    room = {"max": 64, "queue": 2 * CALLERS[trial.long], "wait": "120s"}
    shared = {name: poster(trial, upstream, name, limit=limit, effect=name.rstrip("0123456789"), concurrency=room, timeout="120s")
              for name, limit in limits.items()}
    return {"server": {"linger": f"{LINGER:.0f}s"}, "tools": {**fleet_kill.manifest(trial)["tools"], **shared}}


def rate(database, sql, work):
    """How often a second something happens while `work()` runs."""
    before, began = int(database.run(sql)), time.monotonic()
    work()
    return (int(database.run(sql)) - before) / (time.monotonic() - began)


def rest(trial, fleet):
    database, seconds = fleet.database, IDLE[trial.long]
    trial.figures["idle_commits_per_s"] = rate(database, COMMITS, lambda: time.sleep(seconds))
    trial.figures["idle_transactions_per_s"] = rate(database, TRANSACTIONS, lambda: time.sleep(seconds))
    trial.record_max("connections", int(database.run(CONNECTED)))


def break_some(trial, fleet, journal, chance, name):
    """Some replicas are killed at the same moment and start again, others are frozen, while the callers go on at the rest."""
    crowd_size, long = CROWD[trial.long], trial.long
    mix = mixed_load(trial, fleet, journal, fleet_kill.MIX, name, crowd_size, EXPECTED, timeout=90)
    crowd = CallerPool(crowd_size, mix)
    time.sleep(chance.uniform(0.5, 1.0))  # the fault's own moment
    chosen = chance.sample(fleet.replicas, KILLED[long] + FROZEN[long])
    killed, frozen = chosen[:KILLED[long]], chosen[KILLED[long]:]
    for replica in frozen:
        # The load balancer notices; calls in flight hang.
        fleet.replicas.remove(replica)
        os.kill(replica.pid, signal.SIGSTOP)
    began = time.monotonic()
    for replica in killed:
        replica.kill9()
    trial.record_max("busy_commits_per_s", rate(fleet.database, COMMITS, lambda: time.sleep(1)))
    parallel(len(killed), lambda number: killed[number].start(seconds=30))
    trial.record_max("slowest_restart", max(replica.ready_after for replica in killed))
    time.sleep(max(0.0, FROZEN_FOR[long] - (time.monotonic() - began)))
    for replica in frozen:
        os.kill(replica.pid, signal.SIGCONT)
        poll(replica.ready, 15, "ready after the thaw")
    fleet.replicas += frozen
    crowd.stop_callers(95)
    trial.record_max("connections", int(fleet.database.run(CONNECTED)))
    kept = look(trial, fleet, journal, chance, died=True)
    trial.add("killed", len(killed))
    trial.add("frozen", len(frozen))
    return kept


def look(trial, fleet, journal, chance, died):
    fleet.wait_until_settled()
    calls = journal.take()
    trial.add("calls", len(calls))
    kept = check_outcome(trial, fleet, journal, calls, again=chance.sample(calls, min(len(calls), ASKED_AGAIN)), died=died)
    fleet.check_drift()
    return kept


def time_lists(trial, fleet, chance):
    for path in ("/replicas", "/invocations", "/usage"):
        for replica in chance.sample(fleet.replicas, 5):
            began = time.monotonic()
            reply = replica.get(path)
            trial.record_max(f"slowest_{path[1:]}_ms", (time.monotonic() - began) * 1000)
            if reply.status != 200:
                trial.record_fault("surprises", f"GET {path}: {reply}")


def stop_in_turn(trial, fleet, journal, chance):
    """A few replicas at a time get SIGTERM, until one is left. No call fails."""
    everyone = list(fleet.replicas)
    crowd = CallerPool(CROWD[False], load(trial, fleet, journal, "last"))
    stopping = []
    for step in range(STEPS):
        chosen = fleet.replicas[:-(-(len(everyone) - 1) // STEPS)] if step < STEPS - 1 else fleet.replicas[:-1]
        for replica in chosen:
            fleet.replicas.remove(replica)
            stopping.append(in_background(replica.stop))
        time.sleep(chance.uniform(0.2, 0.6))  # the fault's own moment
    for stopped in stopping:
        stopped(60)
    ask(trial, fleet, journal, "pay", "after-all")
    crowd.stop_callers()
    kept = look(trial, fleet, journal, chance, died=False)
    fleet.stop()
    return kept
