"""Callers disconnect at any moment, in half of all calls, while an operator cancels others: no unit, row or process is left behind
(reliability: goal 11)."""

import json
import re
import socket
import struct
import time

from aftermath import check_no_process, check_row
from audit import check_invariants
from burst import encode
from callers import CLIENT_TIMEOUT, Call, Caller, CallerPool, for_each
from harness import poll
from tools import PLENTY, parent, poster, reader, writer

ROUNDS, ROUNDS_AT_LEVEL = (8, 420), 2
PATIENCE = (180, 3 * 3600)
CALLERS, CALLS = 12, 20  # of a round
LEAVING = 0.5
MOMENTS = ["connect", "head", "body", "run", "answer"]
# Time that a tool takes, so that a caller can disconnect while it runs.
SECONDS = 0.06
TOOLS = ["cancel", "finish", "parent", "post_cancel", "post_finish", "free"]


def run(trial):
    trial.require_zero("altered", "unrecorded", "uncharged", "left_open", "surprises")
    upstream, limit = trial.upstream(), (PLENTY, "lifetime")
    service = trial.service({"tools": {
        "cancel": writer(trial, "cancel", SECONDS, on_disconnect="cancel", limit=limit),
        "parent": parent(trial, "parent", SECONDS, on_disconnect="cancel", limit=limit),
        "finish": writer(trial, "finish", SECONDS, on_disconnect="finish", limit=limit),
        "post_cancel": poster(trial, upstream, "post_cancel", SECONDS, on_disconnect="cancel", limit=limit),
        "post_finish": poster(trial, upstream, "post_finish", SECONDS, on_disconnect="finish", limit=limit),
        "free": reader(trial)}})
    stayed = []
    for round_ in range(trial.rounds):
        operator = CallerPool(1, canceller(trial, service, round_))
        calls = []
        for_each(range(CALLERS), lambda index, _: calls.extend(run_caller(trial, service, round_, index)), threads=CALLERS)
        operator.stop_callers()
        check_idle(trial, service)
        answered = [call for call in calls if call.status == 200]
        lookers = [Caller(service) for _ in range(8)]
        for_each([call for call in answered if call.tool != "free"], lambda call, index: check_row(trial, lookers[index], call))
        stayed += answered
        trial.add("rounds")
        trial.add("calls", len(calls))
        trial.add("left", sum(call.trouble is not None for call in calls))
    service.stop()
    check_invariants(trial, service.ledger, stayed, {name: limit for name in TOOLS if name != "free"})


def run_caller(trial, service, round_, index):
    """The calls of one caller, each on its own connection; it disconnects in half of them."""
    chance, calls = trial.random(round_, index), []
    for number in range(CALLS):
        call = Call(chance.choice(TOOLS), f"d{round_}-{index}-{number}", None)
        request = encode(service.port, call.tool, {"key": call.key})
        with socket.create_connection(("127.0.0.1", service.port), timeout=CLIENT_TIMEOUT) as sock:
            if chance.random() < LEAVING:
                call.trouble = disconnect(sock, request, chance)
            else:
                sock.sendall(request)
                read_answer(trial, sock, call)
        calls.append(call)
    return calls


def disconnect(sock, request, chance):
    """Sends some or all of the request, waits or does not, and closes; half of the time with a reset, as a crash would."""
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


def read_answer(trial, sock, call):
    """Reads the answer. A caller gets 499 if the operator cancelled its call."""
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < length(data):
        part = sock.recv(65536)
        if not part:
            return trial.record_fault("surprises", f"the service closed: {call} {data!r}")
        data += part
    call.status, call.body = int(data.split(b" ", 2)[1]), data.partition(b"\r\n\r\n")[2]
    call.id = call.json_body.get("invocation_id")
    if (call.status, call.kind) == (499, "cancelled"):
        trial.add("cancelled")
    elif call.status != 200:
        trial.record_fault("surprises", f"{call}")


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
                trial.record_fault("surprises", f"DELETE: {reply}")
            else:
                trial.add("deletes")
        time.sleep(chance.uniform(0.01, 0.05))

    return work


def check_idle(trial, service):
    """After the last caller has disconnected, every call ends, and so does every process that it started."""
    try:
        poll(lambda: service.metric("toolcrib_open_calls") == 0, 30, "toolcrib_open_calls 0")
    except AssertionError as failure:
        trial.record_fault("left_open", f"{failure}")
    check_no_process(trial)
    for state in ("reserved", "running"):
        for row in service.get(f"/invocations?state={state}&limit=100").json["invocations"]:
            trial.record_fault("left_open", json.dumps(row))
