"""Replicas whose clocks are minutes apart, against limits per minute, hour and day: no window allows more than its units, whichever clock
began it. The window of a limit never goes back, so the fastest clock decides. Played with libfaketime."""

import shutil
from collections import Counter

from audit import check_invariants, effects
from burst import Burst
from fleet import Database, Fleet
from scenarios.clock import WINDOWS, faketime_command, is_dynamic, seconds_to_next_hour
from shared_audit import audit_shared
from tools import poster
from trial import Skip

ROUNDS = (3, 100)
PATIENCE = (120, 2 * 3600)
REPLICAS = 3
CALLS = 24  # of a round and a tool, at once
MINUTES = 10  # by which clocks may be wrong


def run(trial):
    if not shutil.which("faketime"):
        raise Skip("faketime is missing")
    binary = next(filter(is_dynamic, [trial.binary, trial.dynamic]), None)
    if binary is None:
        raise Skip("the binary is static, so libfaketime cannot reach it; --dynamic-bin names another")
    trial.require_zero("under_limit", "unrecorded", "uncharged", "left_open", "unsettled", "surprises")
    trial.binary = binary
    upstream, database, chance = trial.upstream(), Database.of(trial), trial.random("offsets")
    tools = {per: poster(trial, upstream, per, limit=(units, per)) for per, (_, units) in WINDOWS.items()}
    # The time of day alone: durations stay true.
    fleet = Fleet(trial, database, {"tools": tools}, REPLICAS, within=faketime_command(0), env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    for round_ in range(trial.rounds):
        offsets = [chance.uniform(-60 * MINUTES, 60 * MINUTES) for _ in fleet.replicas]
        if chance.random() < 0.3:  # an hour ends for one of them during the round
            offsets[0] = seconds_to_next_hour(0)
        fleet.stop()
        fleet.start(within=[faketime_command(offset) for offset in offsets])
        burst = Burst(fleet.replicas, CALLS * len(tools))
        for answer in burst.volley([(per, {"key": f"c{round_}-{number}"}, None) for number in range(CALLS) for per in tools]):
            if answer.status not in (200, 429):
                trial.record_fault("surprises", f"{answer}")
        burst.close()
        trial.add("rounds")
        trial.add("calls", CALLS * len(tools))
    fleet.wait_until_settled()
    fleet.stop()
    found, ran = audit_shared(trial, database), Counter(tool for tool, _ in effects(trial.effects))
    check_invariants(trial, found)
    for per, (length, units) in WINDOWS.items():
        count(trial, per, found.of(per), length * 1000, units)
        # There were more calls than the first window has units.
        if ran[per] < min(units, CALLS * trial.rounds):
            trial.record_fault("under_limit", f"{ran[per]} calls per {per} ran")


def count(trial, tool, rows, length, units):
    """Charged rows in the order in which the database counted them."""
    window, used = 0, 0
    for row in sorted((row for row in rows if row.charged), key=lambda row: row.seq):
        if row.started_at // length > window:
            window, used = row.started_at // length, 0
            trial.add("windows")
        used += 1
        if used > units:
            trial.record_fault("over_limit", f"unit {used} of {units} in a window: {row}")
