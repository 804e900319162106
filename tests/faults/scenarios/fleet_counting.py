"""No fault of the services at all, but of the evidence: each broken promise is forged once in a copy of a good ledger on PostgreSQL or of
the effects, and the audit that the other scenarios of the fleet trust has to see it."""

import shutil

from audit import check_invariants
from callers import Caller
from fleet import Database, Fleet
from shared_audit import audit_shared
from tools import writer

ROUNDS = (1, 1)
PATIENCE = (90, 90)
LIMIT = 20
LIMITS = {"pay": (LIMIT, "lifetime")}
ONE = "id = (select id from invocation order by id limit 1)"
COLUMNS = "tool, caller, state, effect, cache, attempts, started_at, arguments, idempotency_key, reserved, replica"
# (figure that must notice, SQL done to the ledger or a line added to the effects).
FORGERIES = [
    ("lost", f"delete from invocation where {ONE}"),
    ("drift", "update quota set used = used - 1"),
    ("over_limit", "update quota set calls = null, used = used + 1"),
    ("uncharged", f"update invocation set charged = null where {ONE}"),
    ("left_open", f"update invocation set state = 'reserved' where {ONE}"),
    ("left_open", "insert into unit_block select boot, 0, 0, 1, false from replica limit 1"),
    ("bad_state", f"alter table invocation drop constraint invocation_state_check; update invocation set state = 'lost' where {ONE}"),
    ("miscounted", "update usage_total set calls = calls + 1"),
    ("doubled", f"insert into invocation (id, {COLUMNS}) select gen_random_uuid(), {COLUMNS} from invocation where {ONE}"),
    ("surprises", f"update key_holder set invocation = gen_random_uuid() where invocation = (select id from invocation where {ONE})"),
    ("doubled", ("pay", "a0")),
    ("unrecorded", ("pay", "nobody")),
]


def run(trial):
    trial.require_zero("unseen", "imagined")
    database = Database.of(trial)
    fleet = Fleet(trial, database, {"tools": {"pay": writer(trial, "pay", limit=LIMITS["pay"])}}, 2)
    callers = [Caller(replica) for replica in fleet.replicas]
    calls = [callers[number % 2].invoke("pay", {"key": f"a{number}"}, key=f"a{number}") for number in range(LIMIT)]
    fleet.stop()
    honest = Copy(trial, database, "honest", None)
    honest.check(calls)
    if honest.names:
        trial.record_fault("imagined", f"{honest.names} in a good ledger")
    for number, (figure, forgery) in enumerate(FORGERIES):
        forged = Copy(trial, database, f"forged{number}", forgery)
        forged.check(calls)
        if figure not in forged.names:
            trial.record_fault("unseen", f"{figure}: {forgery} was seen as {forged.names or 'nothing'}")
        trial.add("forgeries")
    trial.add("rounds")
    trial.add("calls", LIMIT)


class Copy:
    """A copy of the evidence with one forgery, and the faults that the audit finds in it."""

    def __init__(self, trial, database, name, forgery):
        self.database, self.name, self.effects, self.names = database, name, trial.folder / name, set()
        database.run(f"create database {name} template postgres")
        shutil.copyfile(trial.effects, self.effects)
        if isinstance(forgery, tuple):
            with open(self.effects, "a") as file:
                file.write(" ".join(forgery) + "\n")
        elif forgery:
            database.run(f"set search_path to toolcrib; {forgery}", name)

    def check(self, calls):
        check_invariants(self, audit_shared(self, self.database, self.name), calls, LIMITS)

    def require_zero(self, *names):
        pass

    def record_fault(self, name, what, count=1):
        self.names.add(name)
