"""The clock jumps hours and days, forward and back, while the service is stopped: no window of a limit allows more than its units
(reliability: goal 12; jumps while it runs are in the Rust tests). Played with libfaketime."""

import shutil
import time

from audit import check_invariants
from burst import Burst
from tools import writer
from trial import Skip

ROUNDS = (40, 1000)
PATIENCE = (120, 3 * 3600)
CALLS = 12  # of a round and a tool, at once
MINUTE, HOUR, DAY = 60, 3600, 86400
# Each tool is named after its window: length in seconds, units in it.
WINDOWS = {"minute": (MINUTE, 5), "hour": (HOUR, 20), "day": (DAY, 50)}
JUMPS = [HOUR, -HOUR, DAY, -DAY, MINUTE, -MINUTE, 0]


def run(trial):
    if not shutil.which("faketime"):
        raise Skip("faketime is missing")
    binary = next(filter(is_dynamic, [trial.binary, trial.dynamic]), None)
    if binary is None:
        raise Skip("the binary is static, so libfaketime cannot reach it; --dynamic-bin names another")
    trial.require_zero("refused_early", "unrecorded", "uncharged", "left_open", "surprises")
    tools = {per: writer(trial, per, limit=(units, per)) for per, (_, units) in WINDOWS.items()}
    # The time of day alone: durations stay true.
    service = trial.service({"tools": tools}, binary=binary, within=faketime_command(0), env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    chance, offset = trial.random("jumps"), 0
    for round_ in range(trial.rounds):
        offset += seconds_to_next_hour(offset) if chance.random() < 0.25 else chance.choice(JUMPS)
        service.stop()
        service.start(within=faketime_command(offset))
        burst = Burst([service], CALLS * len(tools))
        for answer in burst.volley([(per, {"key": f"c{round_}-{number}"}, None) for number in range(CALLS) for per in tools]):
            if answer.status not in (200, 429):
                trial.record_fault("surprises", f"{answer}")
        burst.close()
        trial.add("rounds")
        trial.add("calls", CALLS * len(tools))
    service.stop()
    found = check_invariants(trial, service.ledger)
    for per, (length, units) in WINDOWS.items():
        count(trial, per, found.of(per), length * 1000, units)


def is_dynamic(binary):
    """Whether its head names an interpreter."""
    if binary is None:
        return False
    with open(binary, "rb") as file:
        return b"/ld-" in file.read(4096)


def faketime_command(offset):
    return ["faketime", "-f", f"{offset:+.1f}s"]


def seconds_to_next_hour(offset):
    """Forward to a moment before the next hour, so that the calls of the round fall on both sides."""
    return HOUR - (time.time() + offset) % HOUR - 0.15


def count(trial, tool, rows, length, units):
    """Row by row in the order of the commits. A window never goes back: after a backward jump the later window continues."""
    window, used = 0, 0
    for row in rows:
        if row.started_at // length > window:
            window, used = row.started_at // length, 0
            trial.add("windows")
        if row.charged:
            used += 1
            if used > units:
                trial.record_fault("over_limit", f"unit {used} of {units} in a window: {row}")
        # Refusals are written with a delay: one from just before the edge may follow the first call of the new window.
        elif row.kind == "usage_limit_reached" and used < units and not 0 < window * length - row.started_at < 500:
            trial.record_fault("refused_early", f"after {used} of {units} in a window: {row}")
