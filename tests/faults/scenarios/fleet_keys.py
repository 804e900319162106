"""Ten callers at different replicas with the same key at the same moment, over and over: one effect for each key, one answer for all."""

from collections import Counter

from audit import check_invariants, effects
from burst import Burst
from fleet import Database, Fleet
from scenarios.idempotency import check_concurrent, check_replays, mismatched
from shared_audit import audit_shared
from tools import PLENTY, poster, writer

ROUNDS = (3, 100)
PATIENCE = (180, 2 * 3600)
REPLICAS = (3, 8)
KEYS, DUPLICATES = 40, 10  # in one round, in flight together
ROOM = {"max": 64, "queue": KEYS * DUPLICATES, "wait": "60s"}
TOOLS = ["pay", "post", "slow", "look"]


def run(trial):
    trial.require_zero("altered", "not_once", "unrecorded", "uncharged", "left_open", "unsettled", "surprises")
    upstream, database = trial.upstream(), Database.of(trial)
    tools = {
        "pay": writer(trial, "pay", limit=(PLENTY, "day")),
        "post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime")),
        "slow": poster(trial, upstream, "slow", seconds=0.2),
        "look": poster(trial, upstream, "look", effect="read", limit=(PLENTY, "lifetime"))}
    manifest = {"server": {"max_in_flight": KEYS * DUPLICATES}, "tools": {name: {**tool, "concurrency": ROOM} for name, tool in tools.items()}}
    fleet = Fleet(trial, database, manifest, REPLICAS[trial.long])
    chance, first = trial.random("tools"), {}
    for round_ in range(trial.rounds):
        ask_same_keys(trial, fleet, f"i{round_}", chance, first)
        trial.add("rounds")
    fleet.wait_until_settled()
    fleet.check_drift()
    fleet.stop()
    found = audit_shared(trial, database)
    check_invariants(trial, found, limits={"pay": (PLENTY, "day"), "post": (PLENTY, "lifetime")})
    ran, rows = Counter(effects(trial.effects)), Counter(row.key for row in found.rows if row.state != "refused")
    for tool, key in first:
        if (ran[tool, key], rows[key]) != (1, 1):
            trial.record_fault("not_once", f"{tool} key={key}: {ran[tool, key]} effects, {rows[key]} rows")


def ask_same_keys(trial, fleet, name, chance, first):
    """Each key at different replicas at the same moment, then again, and with other arguments. `first` gets the answers of all keys."""
    named = [(chance.choice(TOOLS), f"{name}-{number}") for number in range(KEYS)]
    # Neighbours go to different replicas, so the calls of one key stand together.
    requests = [(tool, {"key": key}, key) for tool, key in named for _ in range(DUPLICATES)]
    burst = Burst(fleet.replicas, len(requests))
    check_concurrent(trial, requests, burst.volley(requests), first)
    check_replays(trial, requests, burst.volley(requests), first)
    mismatched(trial, named, burst)
    burst.close()
    trial.add("keys", KEYS)
    trial.add("calls", 2 * len(requests) + KEYS)
