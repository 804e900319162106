"""What callers do after a fault, over HTTP: look for their answers, and ask again where they got none."""

from callers import Caller, each

# Tools without an effect: an interrupted one may run again.
READS = ("peek", "look")


def settle(trial, service, journal, calls, again=(), died=True):
    """Every answer is found as it was given; every call without one is asked for again by its key. Those in `again` are asked for
    again although they have an answer. `died`: the service did, so a write may have become unknown. Gives the calls that have an
    answer now, without their bodies."""
    trial.zero("altered", "rerun", "unsettled")
    callers, again = [Caller(service) for _ in range(8)], set(map(id, again))

    def look(call, index):
        if call.status == 200:
            found(trial, callers[index], call)
            if id(call) in again:
                replayed(trial, callers[index], call)
        elif unanswered(call):
            retried(trial, callers[index], journal, call, died)
        call.body = None

    each(calls, look)
    return [call for call in calls if call.status == 200]


def unanswered(call):
    """Whether its caller does not know what became of it: no answer, or one that says the ledger failed."""
    return call.status is None or (call.status == 503 and call.kind == "ledger_unavailable")


def found(trial, caller, call):
    """Asks the service for the row of an answer: it is there, and says what the caller was told."""
    reply = caller.get(f"/invocations/{call.id}")
    if reply.status != 200:
        trial.wrong("lost", f"GET by id answers {reply.status}: {call}")
    elif reply.json["result"] != call.said:
        trial.wrong("altered", f"the ledger says {reply.json['result']}, the caller was told {call}")


def by_key(caller, call):
    """The rows of a key, refusals aside: those keep no key busy."""
    rows = caller.get(f"/invocations?idempotency_key={call.key}").json["invocations"]
    return [row for row in rows if row["state"] != "refused"]


def replayed(trial, caller, call):
    """The same key again: the same bytes, and the ledger finds the call by it."""
    ids = [row["invocation_id"] for row in by_key(caller, call)]
    if ids != [call.id]:
        trial.wrong("lost", f"GET by key finds {ids}: {call}")
    retry = caller.again(call)
    if (retry.status, retry.body, retry.replayed) != (call.status, call.body, True):
        trial.wrong("altered", f"the replay is {retry}, replayed={retry.replayed}; the caller was told {call}")


def retried(trial, caller, journal, call, died):
    """A call whose answer was cut off: its result, `outcome_unknown`, or a first run. Never a second one."""
    rows = by_key(caller, call)
    retry = caller.again(call)
    trial.add("retried")
    if retry.status == 200:
        if rows and call.tool not in READS and not retry.replayed:
            trial.wrong("rerun", f"{rows[0]['state']} before, and run again: {retry}")
        call.status, call.id, call.body = retry.status, retry.id, retry.body
        journal.answered(call)
    elif retry.status == 409 and retry.kind == "outcome_unknown":
        trial.add("unknown")
        if [row["state"] for row in rows] != ["unknown"]:
            trial.wrong("surprises", f"outcome_unknown, but the rows are {rows}: {retry}")
        if not died:
            trial.wrong("unsettled", f"the service knew the end of this call, and lost it: {rows} {retry}")
    elif retry.status != 429:
        trial.wrong("surprises", f"retried: {retry}")
