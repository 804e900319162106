"""Very many concurrent calls at several replicas against one limit: exactly the limit runs. The effects are counted in the tools' own file.
Reads take units without a row, writes reserve their rows."""

from collections import Counter

from audit import check_invariants, effects
from burst import Burst
from fleet import Database, Fleet
from shared_audit import audit_shared
from tools import poster

ROUNDS = (2, 100)
PATIENCE = (180, 4 * 3600)
REPLICAS = (3, 8)
# Callers at the same moment, and calls of each, one after the other.
CALLERS, CALLS = (1_000, 10_000), (1, 8)
LIMIT = (100, 1_000)


def run(trial):
    trial.require_zero("under_limit", "unrecorded", "uncharged", "left_open", "unsettled", "turned_away", "surprises")
    callers, limit, count = CALLERS[trial.long], LIMIT[trial.long], REPLICAS[trial.long]
    upstream, database = trial.upstream(), Database.of(trial)
    names = [f"{effect}{round_}" for round_ in range(trial.rounds) for effect in ("write", "read")]
    room = {"max": 64, "queue": 2 * callers, "wait": "120s"}
    tools = {name: poster(trial, upstream, name, limit=(limit, "lifetime"), effect=name.rstrip("0123456789"), concurrency=room,
                          timeout="120s") for name in names}
    fleet = Fleet(trial, database, {"server": {"max_in_flight": 2 * callers, "max_connections": 2 * callers}, "tools": tools}, count)
    for name in names:
        volleys(trial, fleet, name, callers, limit)
    fleet.wait_until_settled()
    fleet.check_drift()
    fleet.stop()
    check(trial, audit_shared(trial, database), names, limit)


def volleys(trial, fleet, name, callers, limit):
    burst, statuses = Burst(fleet.replicas, callers), Counter()
    for number in range(CALLS[trial.long]):
        requests = [(name, {"key": f"{name}-{caller}-{number}"}, None) for caller in range(callers)]
        for answer in burst.volley(requests, seconds=300):
            statuses[answer.status] += 1
            if answer.status not in (200, 429):
                trial.record_fault("surprises", f"{name}: {answer}")
    if burst.turned_away:
        trial.record_fault("turned_away", f"of {callers} callers at once; their connections were closed without an answer", burst.turned_away)
    burst.close()
    if statuses[200] > limit:
        trial.record_fault("over_limit", f"{name}: {statuses[200]} answers of a run", statuses[200] - limit)
    if statuses[200] < limit:
        trial.record_fault("under_limit", f"{name}: {statuses[200]} of {limit} ran, {statuses}", limit - statuses[200])
    trial.add("rounds", name.startswith("write"))
    trial.add("calls", callers * CALLS[trial.long])
    trial.add("ran", statuses[200])
    trial.add("refused", statuses[429])


def check(trial, found, names, limit):
    ran = effects(trial.effects)
    check_invariants(trial, found, limits={name: (limit, "lifetime") for name in names}, ran=ran)
    per_tool = Counter(tool for tool, _ in ran)
    for name in names:
        counter = found.used.get((name, "lifetime"), 0)
        if per_tool[name] < limit or counter < limit:
            trial.record_fault("under_limit", f"{name}: {per_tool[name]} effects, counter {counter}")
