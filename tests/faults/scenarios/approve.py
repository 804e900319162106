"""Calls are approved while the ledger's disk is full: an approved call runs once, sooner or later, and no caller is told something else
(reliability: R-ENOSPC)."""

import time

from audit import check_invariants
from approvals import Approvals
from callers import Journal
from harness import in_background, poll
from scenarios.enospc import START_SIZE, Disk, fill
from tools import PLENTY, writer

ROUNDS = (3, 40)
PATIENCE = (240, 2 * 3600)
CALLS = 24
LIMITS = {"pay": (PLENTY, "lifetime"), "wire": (PLENTY, "lifetime")}


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "late", "surprises", "told_wrong")
    disk = Disk(trial.tmpfs(START_SIZE), START_SIZE)
    service = trial.service({"ledger": {"when_down": "serve_reads"}, "tools": {
        "pay": writer(trial, "pay", limit=LIMITS["pay"]),
        "wire": writer(trial, "wire", limit=LIMITS["wire"], approval={"wait": "3s", "expires": "1h"})}},
        ledger=disk.place / "toolcrib.db")
    journal, chance = Journal(trial.folder / "journal"), trial.random("rounds")
    for round_ in range(trial.rounds):
        approvals = Approvals(trial, service, "wire", f"a{round_}", CALLS)
        # Some decisions come before the disk is full, and the reservations of their calls after that.
        disk.leave(chance.randrange(200 << 10, 1500 << 10))
        filled = in_background(lambda: fill(trial, service, journal, round_))
        approvals.decide(chance, within=2)
        filled(60)
        time.sleep(chance.uniform(0, 3))
        killed = chance.random() < 0.3
        if killed:
            service.kill9()
        disk.grow()
        if killed:
            service.start()
        poll(service.ready, 20, "ready again")
        approvals.check(may_die=killed)
        trial.add("rounds")
        trial.add("calls", len(journal.take()) + CALLS)
    service.stop()
    check_invariants(trial, service.ledger, (), LIMITS)
