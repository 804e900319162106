"""Several services that share a ledger on a private PostgreSQL, and the load on all of them."""

import itertools
import json
import os
import signal
import time

from callers import Caller, Disconnected
from harness import alive, descendants, parallel, poll
from postgres import Postgres, programs
from service import Service
from trial import Skip

# A replica that is gone is settled after the grace (lock free) or after the lease (lock held), and the next look of another replica.
GRACE, LEASE, SETTLED_WITHIN = 10, 15, 25
# Rows and units that no end has settled.
OPEN_CALLS = ("select (select count(*) from toolcrib.invocation where state = 'reserved') + (select coalesce(sum(units), 0) from toolcrib.unit_block)")


class Database(Postgres):
    """A server that keeps what it has acknowledged, and that is broken."""

    def __init__(self, folder, settings=(), **options):
        super().__init__(folder, settings=(*self.DURABLE, "max_connections=200", *settings), **options)

    @classmethod
    def of(cls, trial, name="database", **options):
        """A running server that ends with the trial."""
        if programs() is None:
            raise Skip("PostgreSQL is not installed")
        database = cls(trial.folder / name, **options)
        trial.stack.callback(database.end)
        return database

    def processes(self):
        return [self.process.pid, *descendants(self.process.pid)] if self.process else []

    def kill(self):
        """All processes at once, as when the machine loses power."""
        # A stopped server starts no further processes.
        os.kill(self.process.pid, signal.SIGSTOP)
        pids = self.processes()
        self.signal(signal.SIGKILL, pids)
        self.process.wait()
        poll(lambda: not alive(pids), 10, "the processes of the server have ended")
        self.process = None

    def quit(self):
        """As `pg_ctl stop -m immediate`: without a checkpoint."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)
        self.process = None

    def crash_backend(self, chance):
        """Kills the process of one connection. The server then disconnects all clients and recovers."""
        ids = [int(line) for line in self.run("select pid from pg_stat_activity where application_name = 'toolcrib'").splitlines()]
        if ids:
            self.signal(signal.SIGKILL, [chance.choice(ids)])

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        self.signal(signal.SIGSTOP, self.processes())

    def thaw(self):
        self.signal(signal.SIGCONT, self.processes())

    @staticmethod
    def signal(number, pids):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def end(self):
        if self.process is not None:
            self.kill()

    def records(self, sql):
        """The rows of one query, as dicts."""
        text = self.run(f"select coalesce(json_agg(one), '[]') from ({sql}) as one")
        return json.loads(text)


class Fleet:
    """Replicas on one ledger. Each new connection to `port` goes to the next replica that runs, as behind a load balancer.
    `url` is that of the ledger, or a list with one for each replica."""

    def __init__(self, trial, database, manifest, count, url=None, binary=None, folder="replica", at_once=None, **options):
        """`at_once` replicas start at the same time, else all of them."""
        self.trial, self.database, self.at_once = trial, database, at_once or count
        urls = url if isinstance(url, list) else [url or database.url()] * count
        self.replicas = [Service(binary or trial.binary, trial.folder / f"{folder}-{number}", manifest, ledger=urls[number], **options)
                         for number in range(count)]
        trial.services += self.replicas
        self.turns = itertools.count()
        self.start()

    def start(self, within=None):
        """Many at once, so that one of them migrates an empty database while the others wait. `within` is a command for each replica."""
        for first in range(0, len(self.replicas), self.at_once):
            count = min(self.at_once, len(self.replicas) - first)
            parallel(count, lambda number: self.replicas[first + number].start(seconds=30, within=within and within[first + number]))

    @property
    def port(self):
        running = [replica for replica in self.replicas if replica.process is not None]
        if not running:
            raise Disconnected("all replicas are down")
        return running[next(self.turns) % len(running)].port

    def other_than(self, replica):
        return next(other for other in self.replicas if other is not replica and other.process is not None)

    def wait_until_settled(self, seconds=SETTLED_WITHIN):
        """After the callers have stopped: each call has ended, or another replica has settled it."""
        self.trial.require_zero("unsettled")
        try:
            poll(lambda: self.database.run(OPEN_CALLS) == "0", seconds, "no call is open")
        except AssertionError:
            rows = self.database.records("select id, tool, arguments, replica from toolcrib.invocation where state = 'reserved'")
            units = self.database.records("select counter, replica, units from toolcrib.unit_block")
            self.trial.record_fault("unsettled", f"after {seconds} s: rows {rows[:3]}, units {units[:3]}", max(1, len(rows) + len(units)))

    def check_drift(self):
        """What the replicas themselves report."""
        for replica in self.replicas:
            drift = replica.metric("toolcrib_quota_drift")
            if drift:
                self.trial.record_fault("drift", f"toolcrib_quota_drift of {replica.folder.name} is {drift}")

    def stop(self):
        """All at once, in good order."""
        self.trial.require_zero("not_stopped")
        parallel(len(self.replicas), self.stop_one)

    def stop_one(self, number):
        try:
            self.replicas[number].stop()
        except AssertionError as failure:
            self.trial.record_fault("not_stopped", f"{self.replicas[number].folder.name}: {str(failure).splitlines()[0]}")


def mixed_load(trial, fleet, journal, mix, name, count, problems=(), timeout=30):
    """Work of `count` callers: tools of `mix` with a key of its own for each call, or without one when the entry ends with `-`. A caller
    keeps its connection for some calls. `problems` are (tool, kind) that are expected, with `*` for every tool."""
    callers = [(Caller(fleet, journal, timeout), Caller(fleet, None, timeout), trial.random(name, index)) for index in range(count)]
    counts = [0] * count

    def work(index):
        caller, unkeyed, chance = callers[index]
        counts[index] += 1
        key, tool = f"{name}-{index}-{counts[index]}", chance.choice(mix)
        chosen = unkeyed if tool.endswith("-") else caller
        try:
            call = chosen.invoke(tool.rstrip("-"), {"key": key}, key=None if tool.endswith("-") else key)
        except Disconnected:
            return  # the next call goes to another replica
        if chance.random() < 0.1:
            chosen.close()
        if call.status == 503:
            time.sleep(0.3)  # less than Retry-After; a caller that does not wait would only add refusals
        if call.status in (None, 200) or {(call.tool, call.kind), ("*", call.kind)} & set(problems):
            return
        trial.record_fault("surprises", f"{call}")

    return work
