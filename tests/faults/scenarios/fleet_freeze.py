"""A replica is frozen (SIGSTOP) under load for longer than its lease, and resumed. Another replica has settled its calls by then: they
are `unknown`. The frozen one settles nothing again, starts no further attempt of these calls, and goes on under a new id."""

import os
import signal
import time

from aftermath import check_outcome, rows_of_key
from audit import check_invariants, effects
from callers import Call, Caller, CallerPool, Journal
from fleet import LEASE, Database, Fleet, mixed_load
from harness import in_background, poll
from shared_audit import audit_shared
from tools import PLENTY, poster, reader, writer

ROUNDS = (1, 30)
PATIENCE = (180, 2 * 3600)
REPLICAS, CALLERS = 3, 9
# A replica is settled after its lease and the next look of another one.
SETTLED_WITHIN = LEASE + 10
# The one write that runs at the freeze, and the call whose first attempt fails while its replica is frozen.
HELD, RETRIED = "held", "retried"
MIX = ["pay"] * 4 + ["post"] * 2 + ["slow"] * 3 + ["look"] * 2 + ["look-"]
LIMITS = {"pay": (PLENTY, "day"), "post": (PLENTY, "lifetime"), HELD: (PLENTY, "lifetime"), RETRIED: (PLENTY, "lifetime")}
# `invalid_request` is a request whose body came during the freeze: at the thaw, its time is over.
EXPECTED = {("*", "ledger_unavailable"), ("*", "outcome_unknown"), ("*", "invalid_request")}
# How long a caller waits: a frozen replica answers after its thaw.
PATIENT = 90


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "unsettled", "not_unknown", "ran_after_the_lease", "surprises")
    upstream, database = trial.upstream(), Database.of(trial)
    failing = FailingFirst(trial, upstream)
    fleet = Fleet(trial, database, {"tools": {
        "pay": writer(trial, "pay", limit=LIMITS["pay"]),
        "post": poster(trial, upstream, "post", limit=LIMITS["post"]),
        "slow": writer(trial, "slow", seconds=0.3),
        "look": reader(trial),
        HELD: writer(trial, HELD, seconds=2, limit=LIMITS[HELD]),
        RETRIED: failing.tool}}, REPLICAS)
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("moments")
    for round_ in range(trial.rounds):
        name = f"f{round_}"
        load = mixed_load(trial, fleet, journal, MIX, name, CALLERS, EXPECTED, timeout=PATIENT)
        crowd = CallerPool(CALLERS, load)
        time.sleep(chance.uniform(0.2, 1.0))  # the fault's own moment
        freeze(trial, fleet, chance.choice(fleet.replicas), journal, name, failing.seen)
        crowd.stop_callers(PATIENT + 5)
        fleet.wait_until_settled()
        calls = journal.take()
        kept += check_outcome(trial, fleet, journal, calls, again=calls)
        trial.add("rounds")
        trial.add("calls", len(calls))
    fleet.check_drift()
    fleet.stop()
    found = audit_shared(trial, database)
    check_invariants(trial, found, kept, LIMITS)


class FailingFirst:
    """An idempotent tool whose first attempt of each call is answered late, and with an error that may be retried."""

    def __init__(self, trial, upstream):
        self.trial, self.seen = trial, set()
        self.tool = poster(trial, upstream, RETRIED, limit=LIMITS[RETRIED], effect="idempotent", retry={"attempts": 3})
        upstream.script(f"/{RETRIED}", self.answer)

    def answer(self, handler):
        key = handler.headers.get("x-nonce", "")
        if key not in self.seen:
            self.seen.add(key)
            handler.server.owner.over.wait(1)
            handler.reply(503, {"try": "again"})
            return
        with open(self.trial.effects, "ab", buffering=0) as file:
            file.write(f"{RETRIED} {key}\n".encode())
        handler.reply(200, {"done": key})


def freeze(trial, fleet, replica, journal, name, failed):
    """Freezes one replica while two calls of this function run there, and looks at them at another replica."""
    def begin(tool):
        key = f"{name}-{tool}"
        return in_background(lambda: Caller(replica, journal, PATIENT).invoke(tool, {"key": key}, key=key))

    answers = {tool: begin(tool) for tool in (HELD, RETRIED)}
    poll(lambda: (HELD, f"{name}-{HELD}") in effects(trial.effects) and f"{name}-{RETRIED}" in failed, 5, "both calls run")
    pid, other = replica.pid, Caller(fleet.other_than(replica))
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        for tool in answers:
            await_unknown(trial, other, tool, f"{name}-{tool}", began)
        retry = other.invoke(HELD, {"key": f"{name}-{HELD}"}, key=f"{name}-{HELD}")
        if retry.kind != "outcome_unknown":
            trial.record_fault("not_unknown", f"the key of the frozen replica's write, at another replica: {retry}")
        ran = effects(trial.effects)
    finally:
        os.kill(pid, signal.SIGCONT)
    for tool, answer in answers.items():
        call = answer(PATIENT)
        # The ledger says `unknown`, and so must the service.
        if call.status == 200:
            trial.record_fault("not_unknown", f"settled as unknown, and answered after the thaw: {call}")
    late = [effect for effect in effects(trial.effects)[len(ran):] if effect == (RETRIED, f"{name}-{RETRIED}")]
    if late:
        trial.record_fault("ran_after_the_lease", f"an attempt of the settled call {late[0]}")
    poll(replica.ready, 10, "ready after the thaw")
    call = Caller(replica, journal).invoke("pay", {"key": f"{name}-after"}, key=f"{name}-after")
    if call.status != 200:
        trial.record_fault("surprises", f"a call after the thaw: {call}")


def await_unknown(trial, other, tool, key, began):
    """Another replica shows the call as `unknown` when its lease has ended, and not before."""
    def state():
        rows = rows_of_key(other, Call(tool, key, {}))
        return rows and rows[0]["state"]

    try:
        poll(lambda: state() == "unknown", SETTLED_WITHIN, f"{tool} {key} is unknown")
    except AssertionError as late:
        trial.record_fault("not_unknown", str(late))
        return
    settled = time.monotonic() - began
    trial.record_max("slowest_settled", settled)
    if settled < LEASE - 3:
        trial.record_fault("not_unknown", f"{tool} {key} was settled {settled:.1f} s after the freeze, within the lease")

