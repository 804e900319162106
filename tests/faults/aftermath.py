"""What callers do after a fault, over HTTP: look up their answers, and repeat calls without one."""

from callers import Caller, for_each
from harness import poll, processes, reap

# Tools that are not of effect `write`: an interrupted one may run again.
REPEATABLE = ("peek", "look", "retried")


def check_outcome(trial, service, journal, calls, again=(), died=True):
    """Every answer is found unchanged. Every call without an answer is repeated by its key, and so are the calls in `again`, although
    they have an answer. `died`: the service did, so a write may have become unknown. Returns the calls that have an answer now, without
    their bodies."""
    trial.require_zero("altered", "rerun", "unsettled")
    callers, again = [Caller(service) for _ in range(8)], set(map(id, again))

    def look(call, index):
        if call.status == 200:
            check_row(trial, callers[index], call)
            if id(call) in again:
                check_replay(trial, callers[index], call)
        elif is_unanswered(call):
            check_retry(trial, callers[index], journal, call, died)
        call.body = None

    for_each(calls, look)
    return [call for call in calls if call.status == 200]


def is_unanswered(call):
    """Whether the caller does not know the outcome: no answer, or one that reports a ledger failure."""
    return call.status is None or (call.status == 503 and call.kind == "ledger_unavailable")


def check_row(trial, caller, call):
    """Fetches the row of an answer and compares it with the answer that the caller received."""
    reply = caller.get(f"/invocations/{call.id}")
    if reply.status != 200:
        trial.record_fault("lost", f"GET by id answers {reply.status}: {call}")
    elif reply.json["result"] != call.json_body:
        trial.record_fault("altered", f"the ledger says {reply.json['result']}, the caller was told {call}")


def rows_of_key(caller, call):
    """The rows of a key, refusals aside: those keep no key busy."""
    rows = caller.get(f"/invocations?idempotency_key={call.key}").json["invocations"]
    return [row for row in rows if row["state"] != "refused"]


def check_replay(trial, caller, call):
    """The same key again gives the same bytes, and the ledger finds the call by the key."""
    ids = [row["invocation_id"] for row in rows_of_key(caller, call)]
    if ids != [call.id]:
        trial.record_fault("lost", f"GET by key finds {ids}: {call}")
    retry = caller.resend(call)
    if (retry.status, retry.body, retry.replayed) != (call.status, call.body, True):
        trial.record_fault("altered", f"the replay is {retry}, replayed={retry.replayed}; the caller was told {call}")


def check_retry(trial, caller, journal, call, died):
    """A call whose answer was cut off gets its result, `outcome_unknown`, or a first run. It never runs twice."""
    rows = rows_of_key(caller, call)
    retry = caller.resend(call)
    trial.add("retried")
    if retry.status == 200:
        if rows and call.tool not in REPEATABLE and not retry.replayed:
            trial.record_fault("rerun", f"{rows[0]['state']} before, and run again: {retry}")
        call.status, call.id, call.body = retry.status, retry.id, retry.body
        journal.answered(call)
    elif retry.status == 409 and retry.kind == "outcome_unknown":
        trial.add("unknown")
        if [row["state"] for row in rows] != ["unknown"]:
            trial.record_fault("surprises", f"outcome_unknown, but the rows are {rows}: {retry}")
        if not died:
            trial.record_fault("unsettled", f"the service knew the end of this call, and lost it: {rows} {retry}")
    elif retry.status != 429:
        trial.record_fault("surprises", f"retried: {retry}")


def check_no_process(trial):
    """After all calls have ended, so has every process that they started."""
    trial.require_zero("left_running")
    try:
        poll(lambda: not processes(trial.mark), 5, "no process of a tool")
    except AssertionError:
        left = processes(trial.mark)
        trial.record_fault("left_running", f"{len(left)} processes of tools after all calls have ended")
        reap(trial.mark)  # so that the next round counts its own
