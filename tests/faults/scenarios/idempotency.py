"""Ten callers at once with the same key, over and over: one effect for each key, one answer for all (reliability: goals 1 and 2)."""

from collections import Counter

from audit import effects, check_invariants
from burst import Burst
from callers import Caller, for_each
from tools import PLENTY, poster, writer

ROUNDS = (15, 1000)
PATIENCE = (180, 3 * 3600)
KEYS, DUPLICATES = 10, 10  # in one round, in flight together
# Keys of earlier rounds whose replay is compared after each of the two restarts at the end.
REMEMBERED = 200
TOOLS = ["pay", "post", "slow"]


def run(trial):
    trial.require_zero("altered", "not_once", "unrecorded", "uncharged", "left_open", "surprises")
    upstream = trial.upstream()
    service = trial.service({"tools": {
        "pay": writer(trial, "pay", limit=(PLENTY, "day")),
        "post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime")),
        "slow": writer(trial, "slow", seconds=0.1)}})
    burst, chance, first = Burst([service], KEYS * DUPLICATES), trial.random("tools"), {}
    for round_ in range(trial.rounds):
        named = [(chance.choice(TOOLS), f"i{round_}-{number}") for number in range(KEYS)]
        requests = [(tool, {"key": key}, key) for _ in range(DUPLICATES) for tool, key in named]
        check_concurrent(trial, requests, burst.volley(requests), first)
        check_replays(trial, requests, burst.volley(requests), first)
        mismatched(trial, named, burst)
        trial.add("rounds")
        trial.add("keys", KEYS)
        trial.add("calls", 2 * KEYS * DUPLICATES + KEYS)
    burst.close()
    remembered = [key for key in first if first[key]]
    remembered = chance.sample(remembered, min(REMEMBERED, len(remembered)))
    service.restart()
    check_after_restart(trial, service, remembered, first)
    service.kill9()
    service.start()
    check_after_restart(trial, service, remembered, first)
    service.stop()

    found = check_invariants(trial, service.ledger, limits={"pay": (PLENTY, "day"), "post": (PLENTY, "lifetime")})
    ran, rows = Counter(effects(trial.effects)), Counter(row.key for row in found.rows if row.state != "refused")
    for tool, key in first:
        if (ran[tool, key], rows[key]) != (1, 1):
            trial.record_fault("not_once", f"{tool} key={key}: {ran[tool, key]} effects, {rows[key]} rows")


def check_concurrent(trial, requests, answers, first):
    """Concurrent requests: one runs; the others get 409 while it runs, and its answer afterwards."""
    for (tool, _, key), answer in zip(requests, answers):
        known = first.setdefault((tool, key), None)
        if answer.status == 409 and answer.kind == "idempotency_in_progress":
            trial.add("in_progress")
            if int(answer.headers.get("retry-after", 0)) < 1 or not answer.json_body.get("invocation_id"):
                trial.record_fault("surprises", f"409 without Retry-After or invocation_id, key={key}: {answer}")
        elif answer.status != 200:
            trial.record_fault("surprises", f"key={key}: {answer}")
        elif known is None:
            first[tool, key] = answer.body
        elif answer.body != known:
            trial.record_fault("altered", f"key={key}: two answers, {known[:200]} and {answer}")
    fresh = [key for (_, _, key), answer in zip(requests, answers) if answer.status == 200 and not answer.replayed]
    for key in {key for key in fresh if fresh.count(key) > 1}:
        trial.record_fault("not_once", f"{fresh.count(key)} answers for key={key} do not say that they are replays")


def check_replays(trial, requests, answers, first):
    """After all calls have ended every request gets the same bytes, marked as a replay."""
    for (tool, _, key), answer in zip(requests, answers):
        if (answer.status, answer.body, answer.replayed) != (200, first[tool, key], True):
            trial.record_fault("altered", f"key={key}: first {first[tool, key]}, later {answer}")


def mismatched(trial, named, burst):
    """The same key with other arguments is refused, and nothing runs."""
    answers = burst.volley([(tool, {"key": f"{key}-other"}, key) for tool, key in named])
    for (tool, key), answer in zip(named, answers):
        if (answer.status, answer.kind) != (422, "idempotency_mismatch"):
            trial.record_fault("surprises", f"key={key} with other arguments: {answer}")


def check_after_restart(trial, service, remembered, first):
    """After a restart: still the same bytes."""
    callers = [Caller(service) for _ in range(8)]

    def look(named, index):
        tool, key = named
        call = callers[index].invoke(tool, {"key": key}, key=key)
        if (call.status, call.body, call.replayed) != (200, first[named], True):
            trial.record_fault("altered", f"after a restart: first {first[named]}, now {call} replayed={call.replayed}")

    for_each(remembered, look)
    trial.add("replayed_after_restart", len(remembered))
