"""A thousand callers at once against a limit of a hundred, in one service and in two on one ledger: exactly a hundred run. Reads take units
that the ledger has set aside, writes reserve their rows."""

from collections import Counter

from audit import effects, check_invariants
from burst import Burst
from tools import writer

ROUNDS = (5, 50)
PATIENCE = (120, 3600)
CALLERS, LIMIT = 1000, 100
# Room for all callers in the service, so that each call reaches the limit.
SERVER = {"max_in_flight": 2 * CALLERS}


def run(trial):
    trial.require_zero("short", "unrecorded", "uncharged", "left_open", "turned_away", "surprises")
    for processes in (1, 2):
        for effect in ("write", "read"):
            volleys(trial, processes, effect)


def volleys(trial, processes, effect):
    """Each round has a tool of its own, so that each limit is new and all are audited together at the end."""
    names = [f"{effect}{processes}_{round_}" for round_ in range(trial.rounds)]
    tools = {name: writer(trial, name, limit=(LIMIT, "lifetime"), effect=effect) for name in names}
    first = trial.service({"server": SERVER, "tools": tools}, name=f"{effect}-{processes}-first")
    services = [first] + [trial.service({"server": SERVER, "tools": tools}, name=f"{effect}-{processes}-more{number}", ledger=first.ledger)
                          for number in range(1, processes)]
    burst, answered = Burst(services, CALLERS), []
    for name in names:
        answers = burst.volley([(name, {"key": f"{name}-{caller}"}, None) for caller in range(CALLERS)])
        statuses = Counter(answer.status for answer in answers)
        for answer in answers:
            if answer.status not in (200, 429):
                trial.record_fault("surprises", f"{name}: {answer}")
        answered += [answer for answer in answers if answer.status == 200]
        if statuses[200] > LIMIT:
            trial.record_fault("over_limit", f"{name}: {statuses[200]} of {CALLERS} ran over {processes} services")
        if statuses[200] < LIMIT:
            trial.record_fault("short", f"{name}: only {statuses[200]} of {LIMIT} ran, refused were {statuses[429]}")
        trial.add("calls", CALLERS)
        trial.add("ran", statuses[200])
        trial.add("refused", statuses[429])
        trial.add("rounds")
    if burst.turned_away:
        trial.record_fault("turned_away", f"of {CALLERS} callers at once; their connections were closed without an answer", burst.turned_away)
    burst.close()
    for service in services:
        if service.metric("toolcrib_quota_drift"):
            trial.record_fault("drift", "toolcrib_quota_drift says so")
        service.stop()
    effective = [effect for effect in effects(trial.effects) if effect[0] in tools]
    found = check_invariants(trial, first.ledger, limits={name: (LIMIT, "lifetime") for name in names}, ran=effective)
    per_tool = Counter(tool for tool, _ in effective)
    for name in names:
        counter = found.used.get((name, "lifetime"), 0)
        if (per_tool[name], counter) != (LIMIT, LIMIT):
            trial.record_fault("short", f"{name}: {per_tool[name]} effects, counter {counter}")
    for answer in answered:
        if answer.json_body["invocation_id"] not in found.by_id:
            trial.record_fault("lost", f"{answer}")
