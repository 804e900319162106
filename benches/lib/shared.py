"""A ledger on PostgreSQL for the benchmarks: a private server, or one that is named by its URL."""

import pathlib
import subprocess
import sys

from lib.programs import ROOT
from lib.service import fail

sys.path.append(str(ROOT / "tests" / "support"))

from postgres import Postgres, programs  # noqa: E402: behind the path

# As a server is set up for much data, on a machine that it shares.
SERVING = ("shared_buffers=2GB", "effective_cache_size=8GB", "work_mem=16MB", "max_wal_size=4GB", "random_page_cost=1.1")
# Nothing is kept of a fill that fails, so it needs no log. New tables are written without one at this level.
FILLING = ("shared_buffers=1GB", "work_mem=128MB", "maintenance_work_mem=512MB", "wal_level=minimal", "max_wal_senders=0", "fsync=off",
           "full_page_writes=off", "synchronous_commit=off", "autovacuum=off", "max_wal_size=8GB", "checkpoint_timeout=30min")


def need_postgres():
    if programs() is None:
        fail("PostgreSQL is not installed (Debian: the package `postgresql`)")


def server(folder, settings=Postgres.DURABLE):
    """A new, empty server that is running. Its end is up to the caller (`stop`)."""
    need_postgres()
    return Postgres(pathlib.Path(folder), settings=settings)


def restart(database, settings):
    """The same data with other settings."""
    database.stop()
    database.settings = ["listen_addresses=127.0.0.1", *settings]
    database.start()


def run(url, script):
    """Runs a script with psql, and returns its output."""
    need_postgres()
    done = subprocess.run([programs() / "psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", url], input=script, text=True,
                          capture_output=True, check=False)
    if done.returncode:
        fail(f"psql: {done.stderr.strip()}")
    return done.stdout.strip()
