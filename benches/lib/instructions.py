"""How many CPU instructions a call costs, counted by valgrind.

Time measures the machine, too: beside a compiler, the same call takes 30 % more CPU. Instructions do not depend on the load, nor on
the processor. Hardware counters (`perf stat`) count them faster, but most virtual machines have none. valgrind counts those of the
program, not those of the kernel.

Every call is followed by a wait for its row, so each row has a commit of its own, and the count does not depend on how fast the
disk is. Toolcrib has one worker thread here. The smallest of some counts is taken: a thread that wakes another too often only adds."""

import contextlib
import ctypes
import os
import pathlib
import platform
import re
import shutil
import sqlite3
import struct
import subprocess
import tempfile
import time

from lib import calls, load, python, service
from lib.service import fail

WARM_UP, COUNTS, CALLS = 20, 5, 20
# The threads of the ledger have these names; older programs have the second only. What they do is counted apart: under load, one
# commit serves many calls.
LEDGER_THREADS = ("ledger-writ", "sqlx-sqlite")
COMMIT_S, PAUSE_S = 30, 0.0005
NOISE = {"call": 0.03, "ledger": 0.06}  # by which counts of one program differ, at most
MEMORY = "/dev/shm"
# valgrind and vgdb make the name of their pipe from these.
VGDB_NAMES = ("LOGNAME", "USER", "HOST", "HOSTNAME", "TMPDIR")

# linux/prctl.h, linux/seccomp.h, linux/bpf_common.h, and the number of prctl(2)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_GET_AUXV = 38, 22, 2, 0x41555856
BPF_LOAD, BPF_JUMP_IF_EQUAL, BPF_RETURN = 0x20, 0x15, 0x06
SECCOMP_ERROR, SECCOMP_ALLOW, EINVAL = 0x00050000, 0x7FFF0000, 22
PRCTL = {"x86_64": 157, "aarch64": 167}


@contextlib.contextmanager
def memory_folder():
    """In memory where there is such a file system: the disk would only be waited for."""
    with tempfile.TemporaryDirectory(prefix="counted-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as path:
        yield pathlib.Path(path)


def has_valgrind():
    return platform.machine() in PRCTL and shutil.which("valgrind") is not None


def count(binary, cases=tuple(calls.CASES)):
    """{case: {"call": …, "ledger": …}}: instructions of a call, in the threads of the ledger and in all others."""
    with memory_folder() as own, calls.prepared(own) as manifest:
        command = service.serve_command(binary, "counted", own, manifest)
        with Counted(command, own) as server, server.connect() as connection, contextlib.closing(open_ledger(own / "counted.db")) as ledger:
            calls.await_tools(server)
            server.request_count = 0  # of calls: those until now have no rows
            return {case: count_case(case, server, connection, ledger) for case in cases}


def open_ledger(file):
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True)


def count_case(case, server, connection, ledger):
    path, body, headers, cache = calls.CASES[case]

    def call(times):
        for _ in range(times):
            server.ask("POST", path, body, connection, headers=headers)
            await_rows(ledger, server.request_count)

    call(WARM_UP)  # the first one fills the cache
    load.check(server, path, cache, body, headers)
    await_rows(ledger, server.request_count)
    readings = [server.counted()]
    for _ in range(COUNTS):
        call(CALLS)
        readings.append(server.counted())
    load.check(server, path, cache, body, headers)
    steps = list(zip(readings, readings[1:]))
    return {part: min(after[part] - before[part] for before, after in steps) // CALLS for part in ("call", "ledger")}


def await_rows(ledger, count):
    until = time.monotonic() + COMMIT_S
    while ledger.execute("select max(seq) from invocation").fetchone()[0] != count:
        if time.monotonic() > until:
            fail(f"the ledger has no row for each of {count} calls")
        time.sleep(PAUSE_S)


class Counted(service.Server):
    """Toolcrib under callgrind, which translates its code and counts."""

    def __init__(self, command, folder):
        callgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file=/dev/null"]
        super().__init__("counted", callgrind + command, folder)
        self.ledger_threads, self.request_count = set(), 0

    def __enter__(self):
        # Toolcrib starts itself again to hide its environment, unless it finds a copy of it. Under valgrind it would leave
        # valgrind that way. One thread: on every machine the same.
        self.copy = os.memfd_create("toolcrib-environment", 0)
        os.write(self.copy, b"TOKIO_WORKER_THREADS=1\0")
        os.lseek(self.copy, 0, os.SEEK_SET)
        try:
            return super().__enter__()
        finally:
            os.close(self.copy)

    def start_options(self):
        # The allocator's setting is src/main.rs'.
        own = {"PATH": os.environ["PATH"], "MIMALLOC_PURGE_DELAY": "10"}
        shared = {name: os.environ[name] for name in VGDB_NAMES if name in os.environ}
        return {"env": own | shared, "pass_fds": [self.copy],
                "preexec_fn": refuse_auxiliary_vector}

    def ask(self, method, path, body=None, connection=None, key=None, headers=None):
        self.request_count += connection is not None  # without one it opens one and asks again
        return super().ask(method, path, body, connection, key, headers)

    def control(self, *options):
        command = ["callgrind_control", *options, str(self.child.pid)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode:
            fail(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def counted(self):
        """Instructions so far."""
        counts = re.findall(r"Th (\d+) +([\d,]+)", self.control("-e"))
        if not self.ledger_threads:
            names = self.thread_names()
            self.ledger_threads = {thread for thread, name in names.items() if name.startswith(LEDGER_THREADS)}
            if not self.ledger_threads:
                fail(f"no thread's name begins with {' or '.join(LEDGER_THREADS)}: {names}")
        found = {"call": 0, "ledger": 0}
        for thread, instructions in counts:
            found["ledger" if thread in self.ledger_threads else "call"] += int(instructions.replace(",", ""))
        return found

    def thread_names(self):
        """{valgrind's number: name}"""
        command = ["vgdb", f"--pid={self.child.pid}", "v.info", "scheduler"]
        shown = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout
        names = {}
        for thread, tid in re.findall(r"^Thread (\d+): .*\(lwpid (\d+)\)", shown, re.MULTILINE):
            with contextlib.suppress(OSError), open(f"/proc/{self.child.pid}/task/{tid}/comm") as name:
                names[thread] = name.read().strip()
        return names


def refuse_auxiliary_vector():
    """valgrind gives the program an auxiliary vector of its own, without the kernel's vDSO. Versions that do not know
    prctl(PR_GET_AUXV) hand out the kernel's, and rustix would read the vDSO at an address that is not there. With EINVAL, as from an
    old kernel, it reads /proc/self/auxv, which valgrind replaces."""
    program = [
        (BPF_LOAD, 0, 0, 0),  # struct seccomp_data: the number of the system call
        (BPF_JUMP_IF_EQUAL, 0, 3, PRCTL[platform.machine()]),
        (BPF_LOAD, 0, 0, 16),  # its first argument
        (BPF_JUMP_IF_EQUAL, 0, 1, PR_GET_AUXV),
        (BPF_RETURN, 0, 0, SECCOMP_ERROR | EINVAL),
        (BPF_RETURN, 0, 0, SECCOMP_ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
