"""The primary of a synchronous pair dies under load and its standby takes over; then the pair is made new. Nothing that was
acknowledged is lost: answers, keys and units are those of the old primary. Some replicas know both servers by their URL, and take the
one that accepts writes. The others see one address, behind which the primary changes."""

import time

from callers import CallerPool, Journal
from fleet import Database, Fleet, mixed_load
from harness import free_port, poll
from outage import EXPECTED, MIX, PROMISES, await_return, finish, look, manifest, pids
from proxy import Proxy

ROUNDS = (1, 50)
PATIENCE = (240, 2 * 3600)
REPLICAS, CALLERS = 3, 9
MOMENT = (0.3, 1.5)
# Seconds from the death of the primary to the promotion.
NOTICED = (0.0, 2.0)
ASKED_AGAIN = 1_000_000
IN_SYNC = "select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')"


class Standby(Database):
    """A copy of a primary that follows it. The primary acknowledges a commit when its standby has it on the disk."""

    def __init__(self, folder, primary, port):
        super().__init__(folder, init=False)
        self.port = port
        self.program("pg_basebackup", "-D", self.folder / "data", "-d", primary.url(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self.start()
        primary.run("alter system set synchronous_standby_names = '*'")
        primary.run("select pg_reload_conf()")
        poll(lambda: primary.run(IN_SYNC) == "1", 20, "the standby is in sync")

    def promote(self):
        """The standby becomes a primary without a standby, which would wait for one for ever with the old one's setting."""
        self.program("pg_ctl", "promote", "-D", self.folder / "data", "-w")


def list_url(primary, ports):
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return primary.url().replace(f"127.0.0.1:{primary.port}", hosts) + "?target_session_attrs=read-write"


def run(trial):
    trial.require_zero(*PROMISES)
    primary = Database.of(trial, "database-0")
    ports = [primary.port, free_port()]  # of the primary and its standby, by turns
    proxy = Proxy(primary.port)
    trial.stack.callback(proxy.close)
    moving = primary.url().replace(str(primary.port), str(proxy.port))
    fleet = Fleet(trial, primary, manifest(trial), REPLICAS, url=[moving] + [list_url(primary, ports)] * (REPLICAS - 1))
    journal, kept, chance, before = Journal(trial.folder / "journal"), [], trial.random("moments"), pids(fleet)
    for round_ in range(trial.rounds):
        standby = Standby.of(trial, f"database-{round_ + 1}", primary=primary, port=ports[(round_ + 1) % 2])
        crowd = CallerPool(CALLERS, mixed_load(trial, fleet, journal, MIX, f"o{round_}", CALLERS, EXPECTED, timeout=60))
        time.sleep(chance.uniform(*MOMENT))  # the fault's own moment
        primary.kill()
        time.sleep(chance.uniform(*NOTICED))
        standby.promote()
        fleet.database = primary = standby
        proxy.target = primary.port
        await_return(trial, fleet, journal, f"o{round_}")
        crowd.stop_callers(65)
        kept += look(trial, fleet, journal, chance, ASKED_AGAIN)
        trial.add("rounds")
    finish(trial, fleet, kept, before)
