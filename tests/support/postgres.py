"""A private PostgreSQL for the tests: no password, its own folder, removed after the test run."""

import glob
import os
import pathlib
import shutil
import signal
import subprocess

from harness import free_port, poll


def programs():
    """The folder of PostgreSQL's programs; None where it is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if found:
        return pathlib.Path(found[-1]).parent
    initdb = shutil.which("initdb")
    folder = pathlib.Path(os.path.realpath(initdb)).parent if initdb else None
    return folder if folder and (folder / "postgres").exists() else None


class Postgres:
    """One server. `run` is a script for psql."""

    # What a test of the service needs. A test that crashes the server needs DURABLE.
    FAST = ("fsync=off", "full_page_writes=off")
    DURABLE = ("fsync=on", "full_page_writes=on")

    def __init__(self, folder, settings=FAST, init=True):
        """`init` makes an empty cluster; otherwise `folder`/data is there already, or a subclass makes it."""
        self.bin, self.folder = programs(), pathlib.Path(folder).resolve()
        self.settings = ["listen_addresses=127.0.0.1", "shared_buffers=16MB", *settings]
        self.folder.mkdir(parents=True)
        self.port, self.process = free_port(), None
        self.prefix = []
        if os.getuid() == 0:
            # PostgreSQL refuses root; what is above its folder must let it pass.
            self.prefix = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            shutil.chown(self.folder, "nobody", "nogroup")
            for above in self.folder.parents:
                if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
                    above.chmod(above.stat().st_mode | 0o011)
        self.folder.chmod(0o700)
        if init:
            self.program("initdb", "-D", self.folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync",
                         "--no-instructions")
            self.start()

    def program(self, name, *args):
        """Runs one of PostgreSQL's programs as the server's user."""
        return subprocess.run([*self.prefix, self.bin / name, *args], check=True, cwd="/", capture_output=True)

    def start(self):
        """Starts the server and waits until it accepts connections."""
        self.spawn()
        poll(self.accepts, 20, "the server accepts connections")

    def spawn(self):
        self.process = subprocess.Popen(
            [*self.prefix, self.bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", self.folder,
             *[part for setting in self.settings for part in ("-c", setting)]],
            cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def accepts(self):
        ready = [self.bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self):
        """As `pg_ctl stop -m fast`: it disconnects all clients."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)

    def url(self, database="postgres", user="postgres"):
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, script, database="postgres"):
        done = subprocess.run([self.bin / "psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", self.url(database)], input=script,
                              text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
