"""More connections than the service may have file handles: it does not spin, an existing caller continues (at most on a new connection:
an idle one may be closed to make room), and all callers are served right after (reliability: R-FD, goal 17)."""

import shutil
import socket
import time

from audit import check_invariants
from callers import Caller, Journal
from harness import poll
from tools import PLENTY, writer
from trial import Skip

ROUNDS = (2, 30)
PATIENCE = (120, 3600)
HANDLES, CONNECTIONS = 64, 400
FLOOD = (4.0, 30.0)  # seconds
# Part of one processor that the service may take while it is flooded, and what its one caller may wait; seconds.
PROCESSOR, ANSWER_WITHIN = 0.10, 1.0
# Nothing, half a head, half a body.
BEGINNINGS = [b"", b"POST /tools/sum/invoke HTTP/1.1\r\nHost:", b"POST /tools/sum/invoke HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
# The caller's own share of that processor time is small at this pace.
PAUSE = 0.1


def run(trial):
    if not shutil.which("prlimit"):
        raise Skip("prlimit is missing")
    trial.require_zero("spun", "late", "unrecorded", "uncharged", "left_open", "surprises")
    service = trial.service({"tools": {
        "sum": {"kind": "native", "use": "calculator", "limits": [{"calls": PLENTY, "per": "lifetime"}]},
        "pay": writer(trial, "pay", limit=(PLENTY, "lifetime"))}}, within=["prlimit", f"--nofile={HANDLES}:{HANDLES}"])
    journal, kept = Journal(trial.folder / "journal"), []
    for round_ in range(trial.rounds):
        caller, floods = Caller(service, journal), []
        charged_call(trial, caller, 0)
        try:
            for number in range(CONNECTIONS):
                floods.append(flood(service, number))
            before, began = service.processor_seconds(), time.monotonic()
            while time.monotonic() - began < FLOOD[trial.long]:
                charged_call(trial, caller, round_)
                time.sleep(PAUSE)  # the pace of this caller
            share = (service.processor_seconds() - before) / (time.monotonic() - began)
            trial.record_max("processor", share)
            if share > PROCESSOR:
                trial.record_fault("spun", f"{share:.0%} of a processor while {CONNECTIONS} connections wait")
        finally:
            for sock in floods:
                sock.close()
        check_recovery(trial, service, journal, round_)
        calls = journal.take()
        kept += [call for call in calls if call.status == 200]
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    check_invariants(trial, service.ledger, kept, {"sum": (PLENTY, "lifetime"), "pay": (PLENTY, "lifetime")})


def flood(service, number):
    """A connection that sends the beginning of a request, or nothing."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", service.port))
    try:
        sock.send(BEGINNINGS[number % len(BEGINNINGS)])
    except OSError:
        pass  # it waits in the kernel's queue, or was turned away
    return sock


def charged_call(trial, caller, round_):
    """A call on a connection that was there before, with two commits: the ledger has its handles."""
    call = caller.invoke("sum", {"expression": f"{round_}+1"})
    if not call.status:
        trial.add("reconnected")
        call = poll(lambda: repeat_call(caller, round_), 10, "an answer on a new connection")
    check_answer(trial, call, call.ended_at - call.sent_at if call.status else 0)


def repeat_call(caller, round_):
    call = caller.invoke("sum", {"expression": f"{round_}+1"})
    return call if call.status else None


def check_recovery(trial, service, journal, round_):
    """The flood is over: a new caller has its program run within a second."""
    began = time.monotonic()
    caller, key = Caller(service, journal), f"f{round_}"
    call = poll(lambda: attempt_call(caller, key), 10, "an answer after the flood")
    check_answer(trial, call, time.monotonic() - began)


def attempt_call(caller, key):
    """None when the connection was refused."""
    call = caller.invoke("pay", {"key": key}, key=key)
    return call if call.status else None


def check_answer(trial, call, took):
    trial.record_max("slowest_answer", took)
    if call.status != 200:
        trial.record_fault("surprises", f"{call}")
    elif took > ANSWER_WITHIN:
        trial.record_fault("late", f"{took:.2f} s: {call}")
