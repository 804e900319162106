"""One random bit of the ledger is flipped while the service is stopped. The next start refuses the file, or every answer is found
unchanged, or the request for it reports the damage. An answer is never silently missing or different (reliability: R-FLIP, goal 9)."""

import shutil
from urllib.parse import quote

from audit import effects
from callers import Caller, for_each
from harness import poll
from tools import PLENTY, writer

ROUNDS = (40, 1000)
PATIENCE = (240, 3 * 3600)
CALLS = 300  # acknowledged before the damage
# Of these, repeated by their key on each damaged ledger.
ASKED_AGAIN = 20


def run(trial):
    trial.require_zero("altered", "bad_exit", "surprises")
    manifest = {"tools": {"pay": writer(trial, "pay", limit=(PLENTY, "lifetime"))}}
    service = trial.service(manifest)
    calls = []
    callers = [Caller(service) for _ in range(8)]
    for_each(range(CALLS), lambda number, index: calls.append(callers[index].invoke("pay", {"key": f"f{number}"}, key=f"f{number}")))
    originals = {"killed": keep_ledger(trial, service, "killed", service.kill9)}
    service.start()
    originals["closed"] = keep_ledger(trial, service, "closed", service.stop)

    ran, chance = len(effects(trial.effects)), trial.random("bits")
    for round_ in range(trial.rounds):
        after = ("killed", "closed")[round_ % 2]
        restore(originals[after], service.ledger)
        where = f"round {round_}, {after}: {flip(service.ledger, chance)}"
        service.spawn()
        poll(lambda: service.is_listening() or service.process.poll() is not None, 10, f"it serves or ends: {where}")
        if service.process.poll() is None:
            check_answers(trial, service, calls, chance, where)
            service.kill9()
        else:
            check_refusal(trial, service, where)
        for tool, key in effects(trial.effects)[ran:]:
            trial.record_fault("doubled", f"{where}: {tool} key={key} ran again")
            ran += 1
        trial.add("rounds")
    trial.figures["calls"] = CALLS


def keep_ledger(trial, service, name, end):
    """Ends the service and keeps its files."""
    end()
    stored = trial.folder / name
    restore(service.ledger.parent, stored / service.ledger.name)
    return stored


def restore(source, ledger):
    """Copies the ledger with all files beside it, except the shared memory, which is recreated."""
    ledger.parent.mkdir(exist_ok=True)
    for file in ledger.parent.glob("toolcrib.db*"):
        file.unlink()
    for file in source.glob("toolcrib.db*"):
        if not file.name.endswith("-shm"):
            shutil.copyfile(file, ledger.parent / file.name)


def flip(ledger, chance):
    """Flips a bit of the database or, where there is one, of its write-ahead log."""
    files = [file for file in (ledger, ledger.with_name(f"{ledger.name}-wal")) if file.exists() and file.stat().st_size]
    file = chance.choice(files)
    place, bit = chance.randrange(file.stat().st_size), chance.randrange(8)
    with open(file, "r+b") as opened:
        opened.seek(place)
        byte = opened.read(1)[0]
        opened.seek(place)
        opened.write(bytes([byte ^ 1 << bit]))
    return f"bit {bit} of byte {place} of {file.name}"


def check_refusal(trial, service, where):
    """The service did not start, and names the ledger as the reason."""
    trial.add("refused")
    code, words = service.process.returncode, service.stderr[-600:]
    if code <= 0 or service.ledger.name not in words:
        trial.record_fault("bad_exit", f"{where}: exit {code}, {words}")


def check_answers(trial, service, calls, chance, where):
    """The service started: each answer is found, or its damage is reported."""
    caller, damaged = Caller(service), set()
    for call in calls:
        reply = caller.get(f"/invocations/{call.id}")
        if reports_damage(trial, reply, where):
            damaged.add(call.id)
        elif reply.status != 200:
            trial.record_fault("lost", f"{where}: GET by id answers {reply.status} for {call}")
        elif reply.json["state"] != "succeeded" or reply.json["result"] != call.json_body:
            trial.record_fault("altered", f"{where}: {reply.json} for {call}")
    unlisted = {call.id for call in calls} - damaged - list_ids(trial, caller, where, damaged)
    if unlisted and "the list" not in damaged:
        trial.record_fault("lost", f"{where}: {len(unlisted)} calls are in no list, {sorted(unlisted)[0]}")
    check_counter(trial, service, where, damaged)
    for call in chance.sample(calls, ASKED_AGAIN):
        repeated = caller.resend(call)
        if repeated.replayed and repeated.body != call.body:
            trial.record_fault("altered", f"{where}: the replay is {repeated}, the first answer was {call}")
        elif repeated.status != 200 and repeated.status < 500 and repeated.kind != "outcome_unknown":
            trial.record_fault("surprises", f"{where}: {repeated}")
    trial.add("said" if damaged else "harmless")


def reports_damage(trial, reply, where):
    """Whether an answer reports a damaged ledger."""
    if reply.status >= 500 and reply.headers.get("content-type") != "application/problem+json":
        trial.record_fault("surprises", f"{where}: {reply}")
    return reply.status >= 500


def list_ids(trial, caller, where, damaged):
    """Ids in the list, as far as it can be read."""
    ids, cursor = set(), ""
    while cursor is not None:
        reply = caller.get(f"/invocations?tool=pay&limit=100{cursor}")
        if reports_damage(trial, reply, where):
            damaged.add("the list")
            return ids
        ids.update(row["invocation_id"] for row in reply.json["invocations"])
        cursor = f"&cursor={quote(reply.json['next_cursor'], safe='')}" if reply.json["next_cursor"] else None
    return ids


def check_counter(trial, service, where, damaged):
    """The limit's counter is right, or /metrics reports the drift, or the request reports the damage."""
    reply = service.get("/tools/pay")
    if reports_damage(trial, reply, where):
        damaged.add("the counter")
    elif reply.json["usage"][0]["used"] != CALLS and not service.metric("toolcrib_quota_drift"):
        trial.record_fault("drift", f"{where}: {reply.json['usage']} after {CALLS} calls")
