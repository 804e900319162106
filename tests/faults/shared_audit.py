"""The audit of a ledger on PostgreSQL: one snapshot, read with psql and without the service's code."""

import json
import uuid

from audit import Audit, Row

SNAPSHOT = """select json_build_object(
    'rows', (select json_agg(json_build_array(coalesce(seq, 0), id, tool, state, kind, started_at, arguments, charged, caller, effect,
        idempotency_key, count) order by id) from toolcrib.invocation),
    'counters', (select json_agg(json_build_array(id, tool, per, used, carried, from_seq, (select coalesce(sum(units), 0) from
        toolcrib.unit_block b where b.counter = q.id and b.window_start = q.window_start), lost_units))
        from toolcrib.quota q),
    'holders', (select coalesce(sum(units), 0) from toolcrib.unit_block),
    'keys', (select json_agg(json_build_array(idempotency_key, caller, tool, invocation)) from toolcrib.key_holder),
    'totals', (select json_agg(json_build_array(caller, tool, calls, succeeded, failed, refused)) from (select caller, tool, sum(calls) as
        calls, sum(succeeded) as succeeded, sum(failed) as failed, sum(refused) as refused from toolcrib.usage_total group by 1, 2) as one))"""
ENDED_BADLY = ("failed", "timed_out", "cancelled", "unknown")


class SharedAudit(Audit):
    def __init__(self, database, name="postgres"):
        found = json.loads(database.run(SNAPSHOT, name))
        self.integrity, self.rows, self.keys, self.expected = ["ok"], [], {}, {}
        for seq, id_, tool, state, kind, started_at, arguments, charged, caller, effect, key, count in found["rows"] or []:
            row = Row(seq, uuid.UUID(id_).bytes, tool, state, kind, started_at, arguments, ",".join(map(str, charged or [])))
            self.rows.append(row)
            if key is not None and state != "refused":
                self.keys.setdefault((key, caller, tool), []).append((row, effect))
            totals = self.expected.setdefault((caller, tool), [0, 0, 0, 0])
            totals[0] += count
            totals[1] += state == "succeeded"
            totals[2] += state in ENDED_BADLY
            totals[3] += count if state == "refused" else 0
        self.key_holders = {tuple(holder[:3]): holder[3] for holder in found["keys"] or []}
        self.totals = {(caller, tool): totals for caller, tool, *totals in found["totals"] or []}
        # Units of running calls, also in windows that are over.
        self.holders = found["holders"]
        self.count(found["counters"] or [])

    def check_keys(self, trial):
        """A write with a key has one row, which holds the key."""
        trial.require_zero("doubled", "surprises")
        for named, rows in self.keys.items():
            if len(rows) > 1 and rows[0][1] == "write":
                trial.record_fault("doubled", f"{named} has {[row for row, _ in rows]}")
        for named, holder in self.key_holders.items():
            if holder not in self.by_id:
                trial.record_fault("surprises", f"the key {named} is held by {holder}, which has no row")

    def check_totals(self, trial):
        """`GET /usage` adds up what the rows say."""
        trial.require_zero("miscounted")
        for named in self.expected.keys() | self.totals.keys():
            rows, totals = self.expected.get(named, [0] * 4), self.totals.get(named, [0] * 4)
            if rows != totals:
                trial.record_fault("miscounted", f"{named}: calls, succeeded, failed, refused of the rows {rows}, of the totals {totals}")


def audit_shared(trial, database, name="postgres"):
    """The audit of a fleet that has stopped. `name` is that of the database in the server."""
    found = SharedAudit(database, name)
    found.check_keys(trial)
    found.check_totals(trial)
    if found.holders:
        trial.record_fault("left_open", f"{found.holders} units are still set aside")
    return found
