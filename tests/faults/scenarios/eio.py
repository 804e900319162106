"""Disk errors under load, injected by strace into the syncs and writes of the running service. After a failed sync the contents of the
disk are uncertain, so the service ends at once, and the next start finds every answered call (reliability: R-EIO, goal 7)."""

import pathlib
import re
import shutil
import subprocess
import time

from aftermath import check_outcome
from audit import check_invariants
from callers import Caller, CallerPool, Disconnected, Journal
from harness import poll
from tools import PLENTY, poster
from trial import Skip

ROUNDS = (12, 300)
PATIENCE = (240, 2 * 3600)
CALLERS = 6
# The service ends within this time after the first failed sync, by strace's own clock; seconds.
GONE_WITHIN = 1.0
# What was answered before the failing sync may take so long to reach the thread that notes it.
ON_THE_WAY = 0.25
# System calls and the affected file: the syncs of commits, the sync of a checkpoint, any write.
SYNC, WRITE = "fsync,fdatasync", "pwrite64"
KINDS = [(SYNC, "-wal")] * 3 + [(SYNC, ""), (WRITE, "-wal")]


def run(trial):
    if not shutil.which("strace"):
        raise Skip("strace is missing")
    trial.require_zero("went_on", "acknowledged_after", "bad_exit", "unrecorded", "uncharged", "left_open", "surprises")
    upstream = trial.upstream()
    service = trial.service({"tools": {"post": poster(trial, upstream, "post", limit=(PLENTY, "lifetime"))}})
    journal, kept, chance = Journal(trial.folder / "journal"), [], trial.random("rounds")
    for round_ in range(trial.rounds):
        calls_of, file = chance.choice(KINDS)
        first = chance.randrange(1, 60) if file else 1
        fault = f"{calls_of}:error=EIO:when={first}{chance.choice(['', '+'])}"
        with Injected(trial, service, fault, f"{service.ledger}{file}", round_) as injected:
            crowd = CallerPool(CALLERS, load(service, journal, round_))
            poll(lambda: injected.at() or crowd.failures, 30, f"the fault {fault}")
            check_exit(trial, service, injected, calls_of)
            crowd.stop_callers()
        calls = journal.take()
        for call in calls:
            if calls_of == SYNC and call.status == 200 and call.ended_at > injected.at() + ON_THE_WAY:
                trial.record_fault("acknowledged_after", f"{call.ended_at - injected.at():.3f} s after {injected}: {call}")
        service.start()
        kept += check_outcome(trial, service, journal, calls)
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    check_invariants(trial, service.ledger, kept, {"post": (PLENTY, "lifetime")})


def load(service, journal, round_):
    callers, counts = [Caller(service, journal) for _ in range(CALLERS)], [0] * CALLERS

    def work(index):
        counts[index] += 1
        key = f"e{round_}-{index}-{counts[index]}"
        call = callers[index].invoke("post", {"key": key}, key=key)
        if call.status not in (None, 200):
            raise Disconnected("it refuses")

    return work


def check_exit(trial, service, injected, calls_of):
    """After a failed sync the service has to end with an exit code that reports it. After a failed write it may also continue to refuse
    calls, since SQLite then knows that nothing was committed."""
    try:
        code = service.process.wait(4 * GONE_WITHIN)
    except subprocess.TimeoutExpired:
        if calls_of == SYNC:
            trial.record_fault("went_on", f"still running {4 * GONE_WITHIN} s after {injected}")
        service.kill9()
        return
    service.process = None
    trial.add("stopped_itself")
    if code == 0:
        trial.record_fault("bad_exit", f"exit code 0 after {injected}")
    took = injected.end() - injected.at()
    trial.record_max("slowest_stop", took)
    if took > GONE_WITHIN:
        trial.record_fault("went_on", f"ended {took:.2f} s after {injected}")


class Injected:
    """strace at a running service, failing the system calls that `fault` names when they are about `file`."""

    def __init__(self, trial, service, fault, file, round_):
        self.fault, self.log = fault, pathlib.Path(trial.folder / f"strace-{round_}")
        text = trial.folder / "strace-said"
        with open(text, "wb") as words:
            self.process = subprocess.Popen(
                ["strace", "-f", "-ttt", "-y", "-o", str(self.log), "-p", str(service.pid), "-e", f"trace={fault.partition(':')[0]}",
                 "-P", file, "-e", f"inject={fault}"], stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        try:
            poll(lambda: "attached" in text.read_text() or self.process.poll() is not None, 10, "strace attaches")
            if self.process.poll() is not None:
                raise Skip(f"strace cannot attach: {text.read_text().strip()[-200:]}")
        except BaseException:
            self.close()
            raise
        # strace prints the time of day.
        self.offset = time.time() - time.monotonic()

    def at(self):
        """When the first call failed, on the monotonic clock; None before."""
        found = re.search(r"^\d+\s+(\d+\.\d+) .*\(INJECTED\)$", self.log.read_text(errors="replace"), re.M)
        return float(found.group(1)) - self.offset if found else None

    def end(self):
        """When the last thread of the service ended."""
        return max(map(float, re.findall(r"^\d+\s+(\d+\.\d+) \+\+\+ ", self.log.read_text(errors="replace"), re.M))) - self.offset

    def __str__(self):
        hit = re.search(r"^.* (\w+\(.*\(INJECTED\))$", self.log.read_text(errors="replace"), re.M)
        return f"{self.fault} [{hit.group(1) if hit else 'not met'}]"

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
