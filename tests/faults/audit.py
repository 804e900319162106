"""An audit afterwards, from a copy of the ledger's file, with SQLite alone and none of the service's code."""

import json
import pathlib
import shutil
import sqlite3
import tempfile
import uuid

STATES = {"reserved", "running", "succeeded", "failed", "timed_out", "cancelled", "refused", "unknown"}


class Row:
    """`started_at` is Unix milliseconds, `charged` the numbers of the counters it counts in."""

    __slots__ = ("seq", "id", "tool", "state", "kind", "started_at", "key", "charged")

    def __init__(self, seq, id_, tool, state, kind, started_at, arguments, charged):
        self.seq, self.id, self.tool, self.state, self.kind = seq, str(uuid.UUID(bytes=id_)), tool, state, kind
        self.started_at = started_at
        output = json.loads(arguments)
        self.key = output.get("key") if isinstance(output, dict) else None
        self.charged = [int(one) for one in (charged or "").strip(",").split(",") if one]

    def __repr__(self):
        return f"row {self.id} {self.tool} key={self.key} {self.state}"


class Audit:
    """The contents of a ledger's file. It reads a copy with its write-ahead log, so the service must be stopped or killed."""

    def __init__(self, ledger):
        with tempfile.TemporaryDirectory(prefix="toolcrib-audit-") as folder:
            copy = pathlib.Path(folder) / "copy.db"
            for end in ("", "-wal"):
                if pathlib.Path(f"{ledger}{end}").exists():
                    shutil.copyfile(f"{ledger}{end}", f"{copy}{end}")
            database = sqlite3.connect(f"file:{copy}?mode=ro", uri=True)
            try:
                self.integrity = [line for line, in database.execute("pragma integrity_check")]
                rows = database.execute("select seq, id, tool, state, kind, started_at, arguments, charged from invocation order by seq")
                self.rows = [Row(*row) for row in rows]
                counters = database.execute("select id, tool, per, used, carried, from_seq, set_aside, lost_units from quota "
                                            "where id is not null").fetchall()
            finally:
                database.close()
        self.count(counters)

    def count(self, counters):
        """Compares the counters with the rows. A counter is (id, tool, per, used, carried, from_seq, set_aside, lost)."""
        self.by_id = {row.id: row for row in self.rows}
        self.used = {}  # (tool, per) -> units
        self.set_aside = 0  # units that no call uses
        self.lost = {}  # (tool, per) -> units that killed services had set aside
        self.drift = 0
        charged = {}  # counter -> seqs of the rows that are charged to it
        for row in self.rows:
            for counter in row.charged:
                charged.setdefault(counter, []).append(row.seq)
        for counter, tool, per, used, carried, from_seq, set_aside, lost in counters:
            counted = carried + set_aside + lost + sum(seq >= from_seq for seq in charged.get(counter, []))
            self.drift += abs(used - counted)
            self.used[tool, per] = self.used.get((tool, per), 0) + used
            self.lost[tool, per] = self.lost.get((tool, per), 0) + lost
            self.set_aside += set_aside

    def of(self, tool):
        return [row for row in self.rows if row.tool == tool]


def effects(path):
    """(tool, key) of every effect, in order."""
    path = pathlib.Path(path)
    return [tuple(line.split(" ", 1)) for line in path.read_text().splitlines()] if path.exists() else []


def check_invariants(trial, ledger, answered=(), limits=None, stopped=True, ran=None):
    """Holds the ledger (a file, or an Audit) against the journal and the effects, and tells `trial` every broken promise.

    `answered` are calls with an answer that promised a row; `limits` is {tool: (calls, per)}; `stopped`: the service ended in
    good order, so nothing may be left open; `ran` are the effects, if not all. Gives the Audit.
    """
    found = ledger if isinstance(ledger, Audit) else Audit(ledger)
    if found.integrity != ["ok"]:
        trial.record_fault("damaged", f"integrity_check: {found.integrity[:3]}")
    if found.drift:
        trial.record_fault("drift", f"counters differ from rows by {found.drift} units in {ledger}", found.drift)
    if stopped and found.set_aside:
        trial.record_fault("left_open", f"{found.set_aside} units of limits are still set aside")
    for row in found.rows:
        if row.state not in STATES:
            trial.record_fault("bad_state", f"{row}")
        if stopped and row.state in ("reserved", "running"):
            trial.record_fault("left_open", f"{row}")
    for call in answered:
        row = found.by_id.get(call.id)
        if row is None:
            trial.record_fault("lost", f"no row: {call}")
        elif call.status == 200 and row.state not in ("succeeded", "failed"):
            trial.record_fault("lost", f"{row}, but its caller was told {call}")

    ran = effects(trial.effects) if ran is None else ran
    seen, rows = set(), {(row.tool, row.key): row for row in found.rows if row.state != "refused"}
    for effect in ran:
        if effect in seen:
            trial.record_fault("doubled", f"{effect[0]} key={effect[1]} ran twice")
        seen.add(effect)
        if effect not in rows:
            trial.record_fault("unrecorded", f"{effect[0]} key={effect[1]} ran and has no row")
    for tool, (limit, per) in (limits or {}).items():
        effective = sum(name == tool for name, _ in ran)
        charged = sum(bool(row.charged) for row in found.of(tool))
        used = found.used.get((tool, per), 0)
        if used > limit or effective > limit or charged > limit:
            trial.record_fault("over_limit", f"{tool}: limit {limit}, counter {used}, charged rows {charged}, effects {effective}")
        if effective > charged:
            trial.record_fault("uncharged", f"{tool}: {effective} effects, {charged} charged rows")
    return found


def check_limited_reads(trial, found, tool, limit):
    """A limited read without a key has no row before it ends. So a kill leaves effects without a row, but never more than the limit, and
    each has its unit."""
    calls, per = limit
    ran = sum(name == tool for name, _ in effects(trial.effects))
    charged, lost = sum(bool(row.charged) for row in found.of(tool)), found.lost.get((tool, per), 0)
    if ran > calls or charged + lost > calls:
        trial.record_fault("over_limit", f"{tool}: limit {calls}, effects {ran}, charged rows {charged}, lost units {lost}")
    if ran > charged + lost:
        trial.record_fault("uncharged", f"{tool}: {ran} effects, {charged} charged rows, {lost} lost units")
    unknown = [row for row in found.of(tool) if row.state == "unknown"]
    if unknown:
        trial.record_fault("surprises", f"{tool} is a read without a key, and has the row {unknown[0]}")
    trial.add("lost_units", lost)
