"""What one replica changes holds at all replicas within a second: switches, registered tools, purges and cancellations. Many changes are
made at the same time at different replicas, and sometimes the connections that listen for them are killed first."""

import itertools
import json
import time

from callers import Caller
from fleet import Database, Fleet
from harness import elapsed, in_background, now, parallel, poll
from tools import poster, writer

ROUNDS = (4, 300)
PATIENCE = (180, 2 * 3600)
REPLICAS, TOOLS = (3, 5), 9
# Seconds: with a notification, and without, when a replica connects again and looks itself.
WITHIN, WITHOUT = 1.0, 4.0
# A running call without a row is shown once a second, when it is half a second old.
SHOWN_WITHIN = 3.0
# The last answered call of a run.
TOLD_WITHIN = 0.2
# The connection that listens also reads the changes.
LISTENERS = ("select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid() "
             "and (query ilike 'listen%' or query like '%from announcement where seq >%')")
STORED = "select count(*) from toolcrib.stored_result"
CHANGED = {True: (200, None), False: (403, "tool_disabled")}


def run(trial):
    trial.require_zero("late", "not_cancelled", "not_listed", "not_shared", "not_guarded")
    upstream, database, chance = trial.upstream(), Database.of(trial), trial.random("changes")
    switched = {f"switched{number}": poster(trial, upstream, f"switched{number}", effect="read") for number in range(TOOLS)}
    cached = {"cached": poster(trial, upstream, "cached", effect="read", cache={"ttl": "1h", "scope": "shared"})}
    fleet = Fleet(trial, database, {"tools": {**switched, **cached, "slow": writer(trial, "slow", seconds=60, effect="read")}}, REPLICAS[trial.long])
    runs, enabled = itertools.count(), dict.fromkeys(switched, True)
    upstream.script("/cached", lambda handler: handler.reply(200, {"run": next(runs)}))
    check_replicas(trial, fleet)
    check_running(trial, fleet, chance)
    for round_ in range(trial.rounds):
        lost = round_ % 4 == 3
        if lost:
            trial.add("listeners_killed", int(database.run(LISTENERS)))
        within = WITHOUT if lost else WITHIN
        check_switches(trial, fleet, chance, enabled, within)
        check_registered(trial, fleet, chance, f"registered{round_}", within)
        check_purge(trial, fleet, chance, within)
        check_cancel(trial, fleet, chance, within)
        if not lost:
            check_repeats(trial, fleet, chance, f"repeats-{round_}", enabled)
        trial.add("rounds")
    fleet.stop()


def await_everywhere(trial, fleet, what, holds, within):
    """Until `holds(replica)` at every replica."""
    began = now()

    def wait(number):
        poll(lambda: holds(fleet.replicas[number]), within + 10, f"{what} at {fleet.replicas[number].folder.name}")
        return elapsed(began)

    try:
        took = max(parallel(len(fleet.replicas), wait))
    except AssertionError as failure:
        trial.record_fault("late", str(failure))
        return
    trial.record_max("slowest_change" if within == WITHIN else "slowest_without_notification", took)
    if took > within:
        trial.record_fault("late", f"{what}: {took:.2f} s")


def outcome(replica, tool):
    call = Caller(replica).invoke(tool, {"key": "x"})
    return call.status, call.kind if call.status != 200 else None


def check_switches(trial, fleet, chance, enabled, within):
    """Half of the tools are switched, each at a replica of its own, all at the same time."""
    names = chance.sample(sorted(enabled), TOOLS // 2)
    places = [chance.choice(fleet.replicas) for _ in names]

    def switch(number):
        reply = places[number].post(f"/tools/{names[number]}/{'disable' if enabled[names[number]] else 'enable'}")
        assert reply.status in (200, 204), reply

    parallel(len(names), switch)
    for name in names:
        enabled[name] = not enabled[name]
    await_everywhere(trial, fleet, f"the switches of {names}",
                     lambda replica: all(outcome(replica, name) == CHANGED[enabled[name]] for name in names), within)
    trial.add("calls", len(names))


def check_registered(trial, fleet, chance, name, within):
    definition = {"kind": "http", "description": "Registered at one replica.", "effect": "read",
                  "parameters": {"key": {"type": "string", "description": "A key"}}, "request": {"url": "https://api.example.com/"}}
    place = chance.choice(fleet.replicas)
    reply = place.request("PUT", f"/tools/{name}", json.dumps(definition))
    assert reply.status == 201, reply
    await_everywhere(trial, fleet, f"{name} is registered", lambda replica: replica.get(f"/tools/{name}").status == 200, within)
    other = chance.choice(fleet.replicas)
    reply = other.delete(f"/tools/{name}")
    assert reply.status in (200, 204), reply
    await_everywhere(trial, fleet, f"{name} is removed", lambda replica: replica.get(f"/tools/{name}").status == 404, within)


def check_purge(trial, fleet, chance, within):
    """A result that is in the memory of every replica is nowhere after a purge at one of them."""
    key = f"purged-{chance.random()}"
    stored = int(fleet.database.run(STORED))
    before = {answer(fleet.replicas[0], key)}
    # The answer of a read does not wait until its result is stored.
    poll(lambda: int(fleet.database.run(STORED)) > stored, 5, "the result is stored")
    before |= {answer(replica, key) for replica in fleet.replicas}
    if len(before) != 1:
        trial.record_fault("not_shared", f"the results of one call at the replicas: {before}")
    reply = chance.choice(fleet.replicas).delete("/tools/cached/cache")
    assert reply.status in (200, 204), reply
    await_everywhere(trial, fleet, "the purge", lambda replica: answer(replica, key) not in before, within)


def answer(replica, key):
    """The number of the run whose result a replica answers."""
    return Caller(replica).invoke("cached", {"key": key}).json_body["structured_content"]["run"]


def check_cancel(trial, fleet, chance, within):
    """A call is seen running, and cancelled, at another replica."""
    place = chance.choice(fleet.replicas)
    other, key = fleet.other_than(place), f"cancelled-{chance.random()}"
    ended = in_background(lambda: Caller(place).invoke("slow", {"key": key}, key=key))
    rows = poll(lambda: other.get(f"/invocations?idempotency_key={key}").json["invocations"], 5, "the call is listed at another replica")
    if rows[0]["state"] not in ("reserved", "running"):
        trial.record_fault("not_listed", f"{rows}")
    began = now()
    reply = other.delete(f"/invocations/{rows[0]['invocation_id']}")
    call = ended(30)
    took = elapsed(began)
    trial.record_max("slowest_cancel", took)
    if reply.status != 200 or (call.status, call.kind) != (499, "cancelled") or took > within:
        trial.record_fault("not_cancelled", f"after {took:.2f} s: {reply} {call}")


def check_repeats(trial, fleet, chance, run, enabled):
    """A run is guarded against repeated calls at whatever replica they arrive."""
    places = [chance.choice(fleet.replicas)]
    places.append(fleet.other_than(places[0]))
    tool = next(name for name in sorted(enabled) if enabled[name])

    def kind(at, key, told=True):
        call = Caller(places[at]).invoke(tool, {"key": key}, run_id=run)
        if told:
            time.sleep(TOLD_WITHIN)  # what is promised
        return call.kind if call.status != 200 else "ok"

    # Here, there, and here again: the call between makes it none in a row. Last without time to tell of it.
    found = [kind(0, "x"), kind(1, "x"), kind(0, "x"), kind(1, "y"), kind(0, "x"), kind(1, "x"), kind(1, "y", told=False), kind(0, "x")]
    trial.add("repeats", found.count("repeated_call"))
    if found != ["ok", "repeated_call", "repeated_call", "ok", "ok", "repeated_call", "ok", "ok"]:
        trial.record_fault("not_guarded", f"{run}: {found}")


def check_running(trial, fleet, chance):
    """A read that no limit counts has no row before its end. It is seen, and cancelled, at another replica all the same."""
    place = chance.choice(fleet.replicas)
    other, run = fleet.other_than(place), f"r-{chance.random()}"
    ended = in_background(lambda: Caller(place).invoke("slow", {"key": "x"}, run_id=run))
    began = now()
    rows = poll(lambda: other.get(f"/invocations?run_id={run}&state=running").json["invocations"], 10, "the call is listed at another replica")
    took = elapsed(began)
    trial.record_max("slowest_shown", took)
    one = other.get(f"/invocations/{rows[0]['invocation_id']}")
    if len(rows) != 1 or rows[0]["replica"] != own_id(place) or one.json.get("state") != "running" or took > SHOWN_WITHIN:
        trial.record_fault("not_listed", f"after {took:.2f} s: {rows} {one}")
    reply = other.delete(f"/invocations/{rows[0]['invocation_id']}")
    call = ended(30)
    if reply.status != 200 or (call.status, call.kind) != (499, "cancelled"):
        trial.record_fault("not_cancelled", f"{reply} {call}")
    left = other.get(f"/invocations?run_id={run}").json["invocations"]
    if [row["state"] for row in left] != ["cancelled"]:
        trial.record_fault("not_listed", f"after its end: {left}")


def own_id(replica):
    return next(row["replica"] for row in replica.get("/replicas").json["replicas"] if row["self"])


def check_replicas(trial, fleet):
    """Each replica lists all, and knows itself."""
    listed = [replica.get("/replicas").json["replicas"] for replica in fleet.replicas]
    if any(len(rows) != len(fleet.replicas) or sum(row["self"] for row in rows) != 1 for rows in listed):
        trial.record_fault("not_listed", f"{listed}")
    if len({row["replica"] for rows in listed for row in rows if row["self"]}) != len(fleet.replicas):
        trial.record_fault("not_listed", f"two replicas are one: {listed}")
