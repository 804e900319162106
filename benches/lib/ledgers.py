"""Filled ledgers on SQLite and on PostgreSQL, and what is asked about them."""

import contextlib
import pathlib
import shutil
import sqlite3

from lib import filled, filled_shared, service, shared
from lib.service import fail, print_status


class SqliteLedger:
    """A file."""

    slow_ms = 50

    def __init__(self, place):
        self.place = place

    @classmethod
    @contextlib.contextmanager
    def opened(cls, binary, options, folder, manifest):
        if options.ledger:
            yield cls(options.ledger.resolve())
            return
        place = options.keep.resolve() if options.keep else pathlib.Path(folder) / "ledger.db"
        if place.exists():
            fail(f"{place} is there already; use it with --ledger, or name another")
        need_room(place.parent, options.rows * 1000)
        with service.toolcrib(binary, "maker", folder, manifest, place):
            pass
        print_status(f"filling a ledger with {options.rows:,} rows")
        filled.fill(place, options.rows, say=print_status)
        yield cls(place)

    def rows(self):
        with contextlib.closing(sqlite3.connect(self.place)) as db:
            return db.execute("select max(seq) from invocation").fetchone()[0]

    def examples(self):
        """A run, a cursor in the middle, and ids from everywhere."""
        rows = self.rows()
        with contextlib.closing(sqlite3.connect(self.place)) as db:
            one = lambda sql, *values: db.execute(sql, values).fetchone()[0]
            run = one("select run_id from invocation where seq > ? and run_id != ? limit 1", rows * 3 // 4, filled.LONG_RUN)
            deep = text_id(one("select id from invocation where seq = ?", rows // 2))
            return run, deep, [text_id(one("select id from invocation where seq = ?", rows * part // 20)) for part in range(1, 20)]


class SharedLedger:
    """A database, which is filled if it is empty."""

    slow_ms = 100

    def __init__(self, place):
        self.place = place

    @classmethod
    @contextlib.contextmanager
    def opened(cls, binary, options, folder, manifest):
        with contextlib.ExitStack() as stack:
            database = None
            if options.postgres == "private":
                need_room(folder, options.rows * 700)
                database = shared.server(pathlib.Path(folder) / "database", shared.FILLING)
                stack.callback(database.stop)
            ledger = cls(database.url() if database else options.postgres)
            with service.toolcrib(binary, "maker", folder, manifest, ledger.place):
                pass
            if not ledger.rows():
                print_status(f"filling a database with {options.rows:,} rows")
                filled_shared.fill(ledger.place, options.rows, options.replicas, options.minutes, print_status)
            if database:
                shared.restart(database, shared.SERVING)
            yield ledger

    def rows(self):
        return int(shared.run(self.place, "select coalesce(sum(calls), 0) from toolcrib.usage_total"))

    def examples(self):
        """A run, a cursor in the middle, and ids from everywhere. Ids are in the order of time."""
        ends = "select started_at from toolcrib.invocation order by id {} limit 1"
        first, last = (int(shared.run(self.place, ends.format(order))) for order in ("asc", "desc"))

        def at(part, column="id"):
            ms = first + int((last - first) * part)
            return shared.run(self.place, f"select {column} from toolcrib.invocation where id >= '{ms:012x}{'0' * 20}' and run_id <> '{filled.LONG_RUN}' "
                                          "order by id limit 1")

        return at(3 / 4, "run_id"), at(1 / 2), [at(part / 20) for part in range(1, 20)]


def need_room(folder, needed):
    room = shutil.disk_usage(folder).free
    if room < needed:
        fail(f"the rows need {needed >> 30} GiB in {folder}; {room >> 30} are free")


def text_id(blob):
    text = blob.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
