"""A `toolcrib serve` that the scenarios break: in its own process group, its output in files that are kept."""

import os
import pathlib
import re
import signal
import subprocess
import time

from harness import Crib, clean_env, poll, processor_seconds


class Service(Crib):
    """As `Crib` of tests/support, but started by `start()`, killed with its whole group, and with its log in a file. `within` is a
    command in front of it (strace, prlimit, faketime)."""

    READY_WITHIN = 5.0  # seconds after any fault (reliability goal 3)

    def __init__(self, binary, folder, manifest, **options):
        self.binary, self.starting = str(binary), False
        self.log, self.json_body = pathlib.Path(folder) / "log", pathlib.Path(folder) / "said"
        self.ready_after = 0.0
        # Not a line for every call: there are very many, and the ledger has them.
        env = {"TOOLCRIB_LOG": "info,toolcrib::call=error", **options.pop("env", {})}
        super().__init__(folder, manifest, env=env, program=self.binary, **options)
        self.starting = True

    def start(self, *more, seconds=None, within=None):
        """Starts it and waits until it is ready; AssertionError when it ends or is late. `more` are further arguments."""
        if not self.starting:
            return self  # the constructor of Crib asks too early
        began = time.monotonic()
        self.spawn(*more, within=within)
        until = seconds or self.READY_WITHIN

        poll(lambda: self.is_listening() or self.process.poll() is not None, until, "the line `listening on`")
        if self.process.poll() is not None:
            raise AssertionError(f"serve ended with {self.process.returncode}: {self.stderr[-800:]}")
        poll(self.ready, until, "GET /readyz answers 200")
        self.ready_after = time.monotonic() - began
        return self

    def spawn(self, *more, within=None):
        command = [*(self.within if within is None else within), self.binary, *self.args, *self.extra, *more]
        with open(self.log, "ab") as log, open(self.json_body, "wb") as said:
            self.process = subprocess.Popen(command, cwd=str(self.folder), env=clean_env(self.env, self.folder), start_new_session=True,
                                            stdin=subprocess.DEVNULL, stdout=said, stderr=log)

    def is_listening(self):
        """Whether it has printed its address; `port` is that of this start."""
        found = re.search(r"^listening on http://(\S+):(\d+)/?\s*$", self.stdout, re.M)
        if found:
            self.host, self.port = found.group(1), int(found.group(2))
        return found is not None

    @property
    def stdout(self):
        return self.json_body.read_text(errors="replace")

    @property
    def stderr(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def ready(self):
        try:
            return self.get("/readyz", timeout=2).status == 200
        except OSError:
            return False

    def kill9(self):
        """SIGKILL to the whole group, at once."""
        process, self.process = self.process, None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self):
        """Ends it in whatever state it is."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGCONT)
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.process = None

    def _join(self):
        pass

    def metric(self, name):
        """The value of a metric without labels."""
        return float(re.search(rf"^{name} (\S+)$", self.get("/metrics").body.decode(), re.M).group(1))

    def processor_seconds(self):
        """Processor time it has taken so far."""
        return processor_seconds(self.pid)
