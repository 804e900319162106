"""No fault of the service at all, but of the evidence: each broken promise is forged once in a copy of a good ledger or of the effects,
and the audit that every other scenario trusts has to see it."""

import shutil
import sqlite3

from audit import check_invariants
from callers import Caller
from tools import writer

ROUNDS = (1, 1)
PATIENCE = (60, 60)
LIMIT = 20
LIMITS = {"pay": (LIMIT, "lifetime")}
# Figure that must notice -> SQL done to the ledger, or a line added to the effects.
FORGERIES = {
    "lost": "delete from invocation where seq = 3",
    "drift": "update quota set used = used - 1",
    "over_limit": "update quota set calls = null, used = used + 1",
    "uncharged": "update invocation set charged = null where seq = 3",
    "left_open": "update invocation set state = 'reserved' where seq = 3",
    "bad_state": "update invocation set state = 'lost' where seq = 3",
    "doubled": ("pay", "a0"),
    "unrecorded": ("pay", "nobody"),
}


def run(trial):
    trial.require_zero("unseen", "imagined")
    service = trial.service({"tools": {"pay": writer(trial, "pay", limit=LIMITS["pay"])}})
    caller = Caller(service)
    calls = [caller.invoke("pay", {"key": f"a{number}"}, key=f"a{number}") for number in range(LIMIT)]
    service.stop()
    honest = AuditCopy(trial, service, "honest")
    check_invariants(honest, honest.ledger, calls, LIMITS)
    if honest.names:
        trial.record_fault("imagined", f"{honest.names} in a good ledger")
    for name, forgery in FORGERIES.items():
        forged = AuditCopy(trial, service, name)
        forged.forge(forgery)
        check_invariants(forged, forged.ledger, calls, LIMITS)
        if name not in forged.names:
            trial.record_fault("unseen", f"{name}: {forgery} was seen as {forged.names or 'nothing'}")
        trial.add("forgeries")
    trial.add("rounds")
    trial.add("calls", LIMIT)


class AuditCopy:
    """A copy of the evidence, and the faults that the audit finds in it."""

    def __init__(self, trial, service, name):
        folder = trial.folder / name
        folder.mkdir()
        self.ledger, self.effects, self.names = folder / "copy.db", folder / "effects", set()
        shutil.copyfile(service.ledger, self.ledger)
        shutil.copyfile(trial.effects, self.effects)

    def record_fault(self, name, what, count=1):
        self.names.add(name)

    def forge(self, forgery):
        if isinstance(forgery, tuple):
            with open(self.effects, "a") as file:
                file.write(" ".join(forgery) + "\n")
            return
        database = sqlite3.connect(self.ledger)
        for (trigger,) in database.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
            database.execute(f"drop trigger {trigger}")
        database.execute("pragma ignore_check_constraints = on")
        assert database.execute(forgery).rowcount == 1, forgery
        database.commit()
        database.close()
