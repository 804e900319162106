"""Callers that leave at any moment, in half of all calls, while an operator cancels others: no unit, row or process is left behind
(reliability: goal 11)."""

import json
import re
import socket
import struct
import time

from aftermath import found
from audit import hold
from burst import encode
from callers import CLIENT_TIMEOUT, Call, Caller, Crowd, each
from harness import poll, processes
from tools import PLENTY, poster, reader, writer

ROUNDS = (8, 420)
PATIENCE = (180, 3 * 3600)
CALLERS, CALLS = 12, 20  # of a round
LEAVING = 0.5
MOMENTS = ["connect", "head", "body", "run", "answer"]
# Time that a tool takes, so that there is something to leave.
SECONDS = 0.06
TOOLS = ["cancel", "finish", "post_cancel", "post_finish", "free"]


def run(trial):
    trial.zero("altered", "unrecorded", "uncharged", "left_open", "left_running", "surprises")
    upstream, limit = trial.upstream(), (PLENTY, "lifetime")
    service = trial.service({"tools": {
        "cancel": writer(trial, "cancel", SECONDS, on_disconnect="cancel", limit=limit),
        "finish": writer(trial, "finish", SECONDS, on_disconnect="finish", limit=limit),
        "post_cancel": poster(trial, upstream, "post_cancel", SECONDS, on_disconnect="cancel", limit=limit),
        "post_finish": poster(trial, upstream, "post_finish", SECONDS, on_disconnect="finish", limit=limit),
        "free": reader(trial)}})
    stayed = []
    for round_ in range(trial.rounds):
        operator = Crowd(1, canceller(trial, service, round_))
        calls = []
        each(range(CALLERS), lambda index, _: calls.extend(visit(trial, service, round_, index)), threads=CALLERS)
        operator.dismiss()
        quiet(trial, service)
        answered = [call for call in calls if call.status == 200]
        lookers = [Caller(service) for _ in range(8)]
        each([call for call in answered if call.tool != "free"], lambda call, index: found(trial, lookers[index], call))
        stayed += answered
        trial.add("rounds")
        trial.add("calls", len(calls))
        trial.add("left", sum(call.trouble is not None for call in calls))
    service.stop()
    hold(trial, service.ledger, stayed, {name: limit for name in TOOLS if name != "free"})


def visit(trial, service, round_, index):
    """The calls of one caller, each on a connection of its own; it leaves in half of them."""
    chance, calls = trial.random(round_, index), []
    for number in range(CALLS):
        call = Call(chance.choice(TOOLS), f"d{round_}-{index}-{number}", None)
        request = encode(service.port, call.tool, {"key": call.key})
        with socket.create_connection(("127.0.0.1", service.port), timeout=CLIENT_TIMEOUT) as sock:
            if chance.random() < LEAVING:
                call.trouble = leave(sock, request, chance)
            else:
                sock.sendall(request)
                stay(trial, sock, call)
        calls.append(call)
    return calls


def leave(sock, request, chance):
    """Sends some or all of it, waits or does not, and closes; half of the time as a crash would, with a reset."""
    moment, head = chance.choice(MOMENTS), request.index(b"\r\n\r\n") + 4
    end = {"connect": 0, "head": chance.randrange(1, head), "body": chance.randrange(head, len(request))}.get(moment, len(request))
    sock.sendall(request[:end])
    if moment == "run":
        time.sleep(chance.uniform(0, 2 * SECONDS))
    elif moment == "answer":
        sock.recv(chance.choice([1, 20, 200]))
    if chance.random() < 0.5:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return f"left: {moment}"


def stay(trial, sock, call):
    """Reads the answer. 499 is what a caller hears whose call the operator cancelled."""
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < length(data):
        part = sock.recv(65536)
        if not part:
            return trial.wrong("surprises", f"the service closed: {call} {data!r}")
        data += part
    call.status, call.body = int(data.split(b" ", 2)[1]), data.partition(b"\r\n\r\n")[2]
    call.id = call.said.get("invocation_id")
    if (call.status, call.kind) == (499, "cancelled"):
        trial.add("cancelled")
    elif call.status != 200:
        trial.wrong("surprises", f"{call}")


def length(data):
    return int(re.search(rb"(?i)content-length: (\d+)", data).group(1))


def canceller(trial, service, round_):
    """An operator who cancels a running call now and then."""
    caller, chance = Caller(service), trial.random("operator", round_)

    def work(_):
        running = caller.get("/invocations?state=running&limit=50").json["invocations"]
        if running:
            reply = service.delete(f"/invocations/{chance.choice(running)['invocation_id']}")
            if reply.status not in (200, 202, 204, 404, 409):  # it may have ended meanwhile
                trial.wrong("surprises", f"DELETE: {reply}")
            else:
                trial.add("deletes")
        time.sleep(chance.uniform(0.01, 0.05))

    return work


def quiet(trial, service):
    """After the last caller has left, every call ends, and so does everything that it started."""
    try:
        poll(lambda: service.metric("toolcrib_open_calls") == 0, 30, "toolcrib_open_calls 0")
    except AssertionError as failure:
        trial.wrong("left_open", f"{failure}")
    try:
        poll(lambda: not processes(trial.mark), 5, "no process of a tool")
    except AssertionError:
        trial.wrong("left_running", f"{len(processes(trial.mark))} processes of tools after all calls have ended")
    for state in ("reserved", "running"):
        for row in service.get(f"/invocations?state={state}&limit=100").json["invocations"]:
            trial.wrong("left_open", json.dumps(row))
