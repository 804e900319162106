"""More connections than the service may have file handles: it does not spin, a caller it already has goes on (at most on a new
connection: an idle one may be closed to make room), and everybody is served right after (reliability: R-FD, goal 17)."""

import shutil
import socket
import time

from audit import hold
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
    trial.zero("spun", "late", "unrecorded", "uncharged", "left_open", "surprises")
    service = trial.service({"tools": {
        "sum": {"kind": "native", "use": "calculator", "limits": [{"calls": PLENTY, "per": "lifetime"}]},
        "pay": writer(trial, "pay", limit=(PLENTY, "lifetime"))}}, within=["prlimit", f"--nofile={HANDLES}:{HANDLES}"])
    journal, kept = Journal(trial.folder / "journal"), []
    for round_ in range(trial.rounds):
        caller, floods = Caller(service, journal), []
        charged(trial, caller, 0)
        try:
            for number in range(CONNECTIONS):
                floods.append(flood(service, number))
            before, began = service.processor_seconds(), time.monotonic()
            while time.monotonic() - began < FLOOD[trial.long]:
                charged(trial, caller, round_)
                time.sleep(PAUSE)  # the pace of this caller
            share = (service.processor_seconds() - before) / (time.monotonic() - began)
            trial.most("processor", share)
            if share > PROCESSOR:
                trial.wrong("spun", f"{share:.0%} of a processor while {CONNECTIONS} connections wait")
        finally:
            for sock in floods:
                sock.close()
        afterwards(trial, service, journal, round_)
        calls = journal.take()
        kept += [call for call in calls if call.status == 200]
        trial.add("rounds")
        trial.add("calls", len(calls))
    service.stop()
    hold(trial, service.ledger, kept, {"sum": (PLENTY, "lifetime"), "pay": (PLENTY, "lifetime")})


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


def charged(trial, caller, round_):
    """A call on a connection that was there before, with two commits: the ledger has its handles."""
    call = caller.invoke("sum", {"expression": f"{round_}+1"})
    if not call.status:
        trial.add("reconnected")
        call = poll(lambda: again(caller, round_), 10, "an answer on a new connection")
    told(trial, call, call.ended_at - call.sent_at if call.status else 0)


def again(caller, round_):
    call = caller.invoke("sum", {"expression": f"{round_}+1"})
    return call if call.status else None


def afterwards(trial, service, journal, round_):
    """The flood is over: a new caller has its program run within a second."""
    began = time.monotonic()
    caller, key = Caller(service, journal), f"f{round_}"
    call = poll(lambda: attempt(caller, key), 10, "an answer after the flood")
    told(trial, call, time.monotonic() - began)


def attempt(caller, key):
    """None when the connection was turned away."""
    call = caller.invoke("pay", {"key": key}, key=key)
    return call if call.status else None


def told(trial, call, took):
    trial.most("slowest_answer", took)
    if call.status != 200:
        trial.wrong("surprises", f"{call}")
    elif took > ANSWER_WITHIN:
        trial.wrong("late", f"{took:.2f} s: {call}")
