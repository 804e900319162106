"""What a scenario is given (folder, randomness, services) and what it hands back (figures, and which call was wrong)."""

import contextlib
import importlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from harness import at_level, reap, token
from service import Service
from upstream import Upstream

# Every scenario prints these, and they are 0.
PROMISES = ("lost", "doubled", "over_limit", "drift")
# Faults of one figure that are described in words; the figure counts all.
TOLD = 3


class Skip(Exception):
    """This machine cannot play the scenario; the text says why."""


class TimedOut(Exception):
    """The scenario took longer than it may."""


class Trial:
    """One run of one scenario. `figures` is what it prints; each `record_fault` makes it fail."""

    def __init__(self, name, options):
        self.name = name
        scenario, _, self.level = name.partition("@")
        self.module = importlib.import_module(f"scenarios.{scenario}")
        self.binary, self.dynamic, self.old_binary = options.bin, options.dynamic_bin, options.old_bin
        self.seed, self.long, self.replicas = options.seed, options.long, options.replicas
        usual = self.module.ROUNDS[self.long] if self.long or not self.level else self.module.ROUNDS_AT_LEVEL
        self.rounds = options.rounds or usual
        # More rounds than the default may take proportionally longer.
        self.patience = int(self.module.PATIENCE[self.long] * max(1, self.rounds / self.module.ROUNDS[self.long]))
        self.figures = {"rounds": 0, "calls": 0, **{promise: 0 for promise in PROMISES}}
        self.must_be_zero = set(PROMISES)
        self.faults, self.services = [], []
        self.lock, self.stack = threading.Lock(), contextlib.ExitStack()
        self.mark = token()  # stands in the command line of every tool, so that what is left behind is found

    # ---- figures

    def require_zero(self, *names):
        """Figures of this scenario alone that must be 0 as well."""
        self.must_be_zero.update(names)
        for name in names:
            self.figures.setdefault(name, 0)

    def add(self, name, count=1):
        with self.lock:
            self.figures[name] = self.figures.get(name, 0) + count

    def record_max(self, name, value):
        """Keeps the largest value."""
        with self.lock:
            self.figures[name] = max(self.figures.get(name, 0), value)

    def record_fault(self, name, what, count=1):
        """A promise was broken: `name` is the figure that counts it, `what` says by which call."""
        with self.lock:
            self.must_be_zero.add(name)
            self.figures[name] = self.figures.get(name, 0) + count
            if sum(fault.startswith(f"{name}: ") for fault in self.faults) < TOLD:
                self.faults.append(f"{name}: {what}"[:900])

    # ---- what a scenario works with

    def random(self, *names):
        """Random choices of one thread, the same for the same seed."""
        return random.Random("/".join(map(str, (self.seed, self.name, *names))))

    def service(self, manifest, name="service", binary=None, **options):
        """A service that is ready."""
        service = self._service(manifest, name, binary, options).start()
        if self.level:
            self.check_level(service)
        return service

    def check_level(self, service):
        """The scenario is played at the level that it names, or not at all."""
        for tool in service.get("/tools").json["tools"]:
            sandbox = service.get(f"/tools/{tool['name']}").json.get("sandbox")
            if sandbox and sandbox["in_force"] != self.level:
                raise Skip(f"this machine has the level {sandbox['in_force']}")

    def start_second(self, manifest, name, **options):
        """One more service on a ledger; None if it ends because the ledger is locked."""
        service = self._service(manifest, name, None, options)
        try:
            return service.start(seconds=20)
        except AssertionError:
            if "lock" not in service.stderr:
                raise
            service.end()
            return None

    def _service(self, manifest, name, binary, options):
        if self.level:
            if os.geteuid() != 0:
                raise Skip("a level of the sandbox is played as root only")
            options.setdefault("within", at_level(self.level, self.folder / name))
        service = Service(binary or self.binary, self.folder / name, manifest, **options)
        self.services.append(service)
        return service

    def upstream(self):
        upstream = Upstream()
        self.stack.callback(upstream.close)
        return upstream

    @property
    def effects(self):
        """The file to which every write of a tool adds one line, `TOOL KEY`."""
        return self.folder / "effects"

    def tmpfs(self, size):
        if os.geteuid() != 0:
            raise Skip("mounting a small file system needs root")
        place = self.folder / "disk"
        place.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if made.returncode:
            raise Skip(f"cannot mount a tmpfs: {made.stdout.strip()}")
        self.stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
        return place

    # ---- from start to end

    def run(self):
        """Plays the scenario and prints its line; gives "ok", "failed" or "skipped: why"."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"toolcrib-faults-{self.name}-"))
        began, skipped = time.monotonic(), None
        try:
            with self.stack, patience(self.patience):
                try:
                    self.module.run(self)
                finally:
                    self.clean()
        except Skip as why:
            skipped = str(why)
        except KeyboardInterrupt:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        except Exception as failure:
            self.faults.append(f"the scenario broke off: {''.join(traceback.format_exception_only(type(failure), failure)).strip()}")
            traceback.print_exc(file=sys.stdout)
        if skipped is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            print(f"{self.name}: skipped: {skipped}", flush=True)
            return f"skipped: {skipped}"
        broken = [name for name in self.must_be_zero if self.figures[name]]
        output = " ".join(f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}" for name, value in self.figures.items())
        verdict = " FAILED" if broken or self.faults else ""
        print(f"{self.name}: {output} seed={self.seed} seconds={time.monotonic() - began:.0f}{verdict}", flush=True)
        if not verdict:
            shutil.rmtree(self.folder, ignore_errors=True)
            return "ok"
        self.report()
        return "failed"

    def clean(self):
        """Nothing of a scenario outlives it, whatever ended it."""
        for service in self.services:
            service.end()
        reap(self.mark)

    def report(self):
        for fault in self.faults:
            print(f"    {fault}")
        for service in self.services[:4]:
            lines = service.stderr.splitlines()
            print(f"    --- {service.log}", *(line[:300] for line in lines[-4:]), sep="\n    ")
        print(f"    kept: {self.folder}", flush=True)


@contextlib.contextmanager
def patience(seconds):
    """A hung service is a failed scenario, never a hung harness."""
    def late(*_):
        raise TimedOut(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
