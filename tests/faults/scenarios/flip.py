"""One random bit of the ledger is flipped while the service is down: the next start refuses the file, or every answer that was given is
found as it was, or asking for it says that it is damaged. Never silently gone or different (reliability: R-FLIP, goal 9)."""

import shutil
from urllib.parse import quote

from audit import effects
from callers import Caller, each
from harness import poll
from tools import PLENTY, writer

ROUNDS = (40, 1000)
PATIENCE = (240, 3 * 3600)
CALLS = 300  # acknowledged before the damage
# Of these, asked for again by their key on each damaged ledger.
ASKED_AGAIN = 20


def run(trial):
    trial.zero("altered", "bad_exit", "surprises")
    manifest = {"tools": {"pay": writer(trial, "pay", limit=(PLENTY, "lifetime"))}}
    service = trial.service(manifest)
    calls = []
    callers = [Caller(service) for _ in range(8)]
    each(range(CALLS), lambda number, index: calls.append(callers[index].invoke("pay", {"key": f"f{number}"}, key=f"f{number}")))
    originals = {"killed": left(trial, service, "killed", service.kill9)}
    service.start()
    originals["closed"] = left(trial, service, "closed", service.stop)

    ran, chance = len(effects(trial.effects)), trial.random("bits")
    for round_ in range(trial.rounds):
        after = ("killed", "closed")[round_ % 2]
        restore(originals[after], service.ledger)
        where = f"round {round_}, {after}: {flip(service.ledger, chance)}"
        service.spawn()
        poll(lambda: service.listens() or service.process.poll() is not None, 10, f"it serves or ends: {where}")
        if service.process.poll() is None:
            judge(trial, service, calls, chance, where)
            service.kill9()
        else:
            refused(trial, service, where)
        for tool, key in effects(trial.effects)[ran:]:
            trial.wrong("doubled", f"{where}: {tool} key={key} ran again")
            ran += 1
        trial.add("rounds")
    trial.figures["calls"] = CALLS


def left(trial, service, name, end):
    """Ends the service and keeps what it leaves."""
    end()
    kept = trial.folder / name
    restore(service.ledger.parent, kept / service.ledger.name)
    return kept


def restore(source, ledger):
    """The ledger with all that lies beside it, the shared memory aside, which is made anew."""
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


def refused(trial, service, where):
    """It did not start: it says that the ledger is why."""
    trial.add("refused")
    code, words = service.process.returncode, service.stderr[-600:]
    if code <= 0 or service.ledger.name not in words:
        trial.wrong("bad_exit", f"{where}: exit {code}, {words}")


def judge(trial, service, calls, chance, where):
    """It did start: each answer is there, or its damage is said."""
    caller, damaged = Caller(service), set()
    for call in calls:
        reply = caller.get(f"/invocations/{call.id}")
        if says_damaged(trial, reply, where):
            damaged.add(call.id)
        elif reply.status != 200:
            trial.wrong("lost", f"{where}: GET by id answers {reply.status} for {call}")
        elif reply.json["state"] != "succeeded" or reply.json["result"] != call.said:
            trial.wrong("altered", f"{where}: {reply.json} for {call}")
    unlisted = {call.id for call in calls} - damaged - listed(trial, caller, where, damaged)
    if unlisted and "the list" not in damaged:
        trial.wrong("lost", f"{where}: {len(unlisted)} calls are in no list, {sorted(unlisted)[0]}")
    counter(trial, service, where, damaged)
    for call in chance.sample(calls, ASKED_AGAIN):
        again = caller.again(call)
        if again.replayed and again.body != call.body:
            trial.wrong("altered", f"{where}: the replay is {again}, the first answer was {call}")
        elif again.status != 200 and again.status < 500 and again.kind != "outcome_unknown":
            trial.wrong("surprises", f"{where}: {again}")
    trial.add("said" if damaged else "harmless")


def says_damaged(trial, reply, where):
    """Whether an answer says that the ledger is damaged."""
    if reply.status >= 500 and reply.headers.get("content-type") != "application/problem+json":
        trial.wrong("surprises", f"{where}: {reply}")
    return reply.status >= 500


def listed(trial, caller, where, damaged):
    """Ids in the list, as far as it can be read."""
    ids, cursor = set(), ""
    while cursor is not None:
        reply = caller.get(f"/invocations?tool=pay&limit=100{cursor}")
        if says_damaged(trial, reply, where):
            damaged.add("the list")
            return ids
        ids.update(row["invocation_id"] for row in reply.json["invocations"])
        cursor = f"&cursor={quote(reply.json['next_cursor'], safe='')}" if reply.json["next_cursor"] else None
    return ids


def counter(trial, service, where, damaged):
    """The limit's counter is right, or /metrics says that it is not, or asking says that it is damaged."""
    reply = service.get("/tools/pay")
    if says_damaged(trial, reply, where):
        damaged.add("the counter")
    elif reply.json["usage"][0]["used"] != CALLS and not service.metric("toolcrib_quota_drift"):
        trial.wrong("drift", f"{where}: {reply.json['usage']} after {CALLS} calls")
