"""A rolling upgrade under load, on a database that the old version has made: the first new replica migrates it while the old ones go on,
and then each old one is replaced (a new one starts, the old one gets SIGTERM and drains). No call fails, is lost or runs twice, and limits
are exact to the unit. The old version is `--old-bin`, or TOOLCRIB_OLD_BIN. Without it, the rounds are rolling restarts of one version."""

import time

from aftermath import check_outcome
from audit import check_invariants, check_limited_reads, effects
from callers import Caller, CallerPool, Disconnected, Journal
from fleet import Database, Fleet
from harness import in_background
from service import Service
from shared_audit import audit_shared
from tools import PLENTY, poster, reader, writer

ROUNDS = (1, 20)
PATIENCE = (120, 3600)
REPLICAS, CALLERS = 3, 12
BETWEEN = (0.2, 0.8)  # seconds between two steps
# The load balancer learns of a stop while the replica still serves.
LINGER = 1.0
FEW, TALLY = 150, 400
LIMITS = {"pay": (PLENTY, "day"), "few": (FEW, "lifetime"), "post": (PLENTY, "lifetime")}
# With a `-` without a key.
MIX = ["pay"] * 5 + ["post"] * 3 + ["few"] + ["slow"] * 2 + ["peek"] * 2 + ["look"] * 2 + ["look-"] * 2 + ["tally-"] * 3


def run(trial):
    trial.require_zero("failed", "under_limit", "unrecorded", "uncharged", "left_open", "unsettled", "surprises")
    old = trial.old_binary or trial.binary
    trial.add("versions", 2 if trial.old_binary else 1)
    for round_ in range(trial.rounds):
        open(trial.effects, "wb").close()  # of this round
        upgrade(trial, old, round_)
        trial.add("rounds")


def upgrade(trial, old, round_):
    database, chance = Database.of(trial, name=f"database-{round_}"), trial.random("moments", round_)
    tools, journal = manifest(trial), Journal(trial.folder / f"journal-{round_}")
    fleet = Fleet(trial, database, tools, REPLICAS, binary=old, folder=f"old-{round_}")
    before = schema(database)
    crowd = CallerPool(CALLERS, load(trial, fleet, journal, f"u{round_}"))
    time.sleep(chance.uniform(*BETWEEN))
    stopping = []
    for number, replica in enumerate(list(fleet.replicas)):
        successor = Service(trial.binary, trial.folder / f"new-{round_}-{number}", tools, ledger=database.url())
        trial.services.append(successor)
        successor.start(seconds=30)
        trial.record_max("slowest_start", successor.ready_after)
        fleet.replicas.append(successor)
        time.sleep(chance.uniform(*BETWEEN))  # both versions work
        fleet.replicas.remove(replica)
        stopping.append(in_background(replica.stop))
    for stopped in stopping:
        stopped(30)
    time.sleep(chance.uniform(*BETWEEN))
    crowd.stop_callers()
    use_up(trial, fleet, journal, f"u{round_}")
    trial.add("migrated", schema(database) > before)
    fleet.wait_until_settled()
    calls = journal.take()
    trial.add("calls", len(calls))
    kept = check_outcome(trial, fleet, journal, calls, again=chance.sample(calls, min(len(calls), 200)), died=False)
    fleet.check_drift()
    fleet.stop()
    check(trial, database, kept)


def schema(database):
    return int(database.run("select max(version) from toolcrib._sqlx_migrations"))


def manifest(trial):
    upstream = trial.upstream()
    return {"server": {"linger": f"{LINGER:.0f}s"}, "tools": {
        "pay": writer(trial, "pay", limit=LIMITS["pay"]),
        "few": writer(trial, "few", limit=LIMITS["few"]),
        "tally": writer(trial, "tally", limit=(TALLY, "lifetime"), effect="read"),
        "slow": writer(trial, "slow", seconds=0.3),
        "post": poster(trial, upstream, "post", limit=LIMITS["post"]),
        "peek": reader(trial, limit=(PLENTY, "lifetime")),
        "look": reader(trial)}}


def load(trial, fleet, journal, name):
    """Each call is a connection of its own, as a load balancer would choose a replica for each."""
    counts = [0] * CALLERS
    chances = [trial.random(name, index) for index in range(CALLERS)]

    def work(index):
        counts[index] += 1
        tool = chances[index].choice(MIX)
        ask(trial, fleet, journal, tool, f"{name}-{index}-{counts[index]}")

    return work


def ask(trial, fleet, journal, tool, key):
    keyed = not tool.endswith("-")
    caller = Caller(fleet, journal if keyed else None)
    try:
        call = caller.invoke(tool.rstrip("-"), {"key": key}, key=key if keyed else None)
    except Disconnected as failure:
        trial.record_fault("failed", f"no connection: {failure}")
        return None
    finally:
        caller.close()
    if call.status != 200 and (call.tool, call.kind) not in (("few", "usage_limit_reached"), ("tally", "usage_limit_reached")):
        trial.record_fault("failed", f"{call}")
    return call


def use_up(trial, fleet, journal, name):
    """The units that the load has left: all of them run."""
    for tool, (count, _) in {"few": LIMITS["few"], "tally-": (TALLY, "lifetime")}.items():
        for number in range(count + 1):
            call = ask(trial, fleet, journal, tool, f"{name}-last-{tool}{number}")
            if call is None or call.status != 200:
                break


def check(trial, database, kept):
    found, ran = audit_shared(trial, database), effects(trial.effects)
    check_invariants(trial, found, kept, LIMITS, ran=[effect for effect in ran if effect[0] != "tally"])
    check_limited_reads(trial, found, "tally", (TALLY, "lifetime"))
    for tool, limit in (("few", FEW), ("tally", TALLY)):
        count = sum(name == tool for name, _ in ran)
        if count < limit:
            trial.record_fault("under_limit", f"{tool}: {count} of {limit} ran", limit - count)
