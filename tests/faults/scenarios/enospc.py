"""The ledger's disk fills up under load, several times: calls are refused soon and run nothing, answered calls are kept, and the
service recovers when there is room (reliability: R-ENOSPC, goal 8)."""

import errno
import os
import subprocess
import time

from aftermath import check_outcome
from audit import check_invariants
from callers import Caller, CallerPool, Journal
from harness import poll
from tools import PLENTY, writer

ROUNDS = (6, 100)
PATIENCE = (240, 2 * 3600)
CALLERS = 8
START_SIZE = 4 << 20
# A refusal takes no longer, and service is back in this time after there is room; seconds.
REFUSED_WITHIN, READY_WITHIN = 1.0, 5.0
# A round has seen enough of the full disk after so many refusals.
REFUSALS = 60


def run(trial):
    trial.require_zero("unrecorded", "uncharged", "left_open", "late", "surprises")
    disk = Disk(trial.tmpfs(START_SIZE), START_SIZE)
    service = trial.service({"tools": {"pay": writer(trial, "pay", limit=(PLENTY, "lifetime"))}}, ledger=disk.place / "toolcrib.db")
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("rounds")
    for round_ in range(trial.rounds):
        disk.leave(chance.randrange(50 << 10, 1500 << 10))
        fill(trial, service, journal, round_)
        killed = chance.random() < 0.4
        if killed:
            killed_while_full(trial, service, disk)
        else:
            disk.grow()
            check_recovery(trial, service)
        calls = journal.take()
        kept += check_outcome(trial, service, journal, calls, died=killed)
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    check_invariants(trial, service.ledger, kept, {"pay": (PLENTY, "lifetime")})


class Disk:
    """A small file system, and the ballast that decides how much free space it has."""

    def __init__(self, place, size):
        self.place, self.size, self.ballast = place, size, place / "ballast"

    def leave(self, room):
        with open(self.ballast, "wb") as file:
            poll(lambda: self.claim_all_but(room, file), 10, "a ballast that fits")

    def claim_all_but(self, room, file):
        free = os.statvfs(self.place)
        taken = free.f_bavail * free.f_frsize - room
        try:
            if taken > 0:
                os.posix_fallocate(file.fileno(), 0, taken)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False  # The service wrote between the look and the claim.
        return True

    def grow(self):
        """Frees space: the ballast is removed, and the disk grows by what the repeated calls may need: the fewer calls share a commit,
        the longer the log before its next checkpoint."""
        self.ballast.unlink()
        self.size += 8 << 20
        subprocess.run(["mount", "-o", f"remount,size={self.size}", str(self.place)], check=True)


def fill(trial, service, journal, round_):
    """Calls with some text each, until the disk is full and many were refused."""
    callers = [(Caller(service, journal), trial.random(round_, index)) for index in range(CALLERS)]
    counts, refused = [0] * CALLERS, []

    def work(index):
        caller, chance = callers[index]
        counts[index] += 1
        key = f"n{round_}-{index}-{counts[index]}"
        call = caller.invoke("pay", {"key": key, "text": "x" * chance.randrange(0, 8000)}, key=key)
        if call.status == 503 and call.kind == "ledger_unavailable":
            refused.append(call)
            took = call.ended_at - call.sent_at
            trial.record_max("slowest_refusal", took)
            if took > REFUSED_WITHIN:
                trial.record_fault("late", f"refused after {took:.1f} s: {call}")
        elif call.status != 200:
            trial.record_fault("surprises", f"{call}")

    crowd = CallerPool(CALLERS, work)
    poll(lambda: len(refused) >= REFUSALS or crowd.failures, 30, "the disk is full and calls are refused")
    crowd.stop_callers()
    trial.add("refused", len(refused))
    if service.ready():
        # A small row may still have fitted; the test is that the next large one makes the service not ready.
        trial.add("ready_while_full")


def check_recovery(trial, service):
    """Ready, and a charged call runs."""
    began = time.monotonic()
    poll(service.ready, 4 * READY_WITHIN, "ready again")
    poll(lambda: service.invoke("pay", {"key": f"back-{time.monotonic_ns()}"}).status == 200, 4 * READY_WITHIN, "a call runs again")
    took = time.monotonic() - began
    trial.record_max("slowest_recovery", took)
    if took > READY_WITHIN:
        trial.record_fault("late", f"in service {took:.1f} s after there was room")


def killed_while_full(trial, service, disk):
    """A start on the full disk serves or reports the reason; with free space it serves."""
    service.kill9()
    service.spawn()
    ended = poll(lambda: service.is_listening() or service.process.poll() is not None, 10, "a start on a full disk ends or serves")
    if service.process.poll() is None:
        trial.add("started_while_full")
        service.kill9()
    elif service.process.returncode == 0 or "toolcrib.db" not in service.stderr.splitlines()[-1]:
        trial.record_fault("surprises", f"ended with {service.process.returncode} on a full disk ({ended}): {service.stderr[-300:]}")
    disk.grow()
    service.start()
    trial.record_max("slowest_start", service.ready_after)
