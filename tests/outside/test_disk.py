"""Disks that fail: what the caller is told, what the process does, what the next start finds."""

import shutil
import subprocess
import time

import pytest

from harness import later, ok, poll, problem, processes
from recipes import sh

WRITER = {"tools": {"w": sh("echo ran", effect="write", limits=[{"calls": 100_000, "per": "lifetime"}])}}


@pytest.fixture
def fail():
    """fail(crib, "fsync:error=EIO") makes a running service's system calls fail; what it returns makes them work again."""
    if not shutil.which("strace"):
        pytest.skip("needs strace to make system calls fail")
    tracers = []

    def start(crib, what):
        calls = what.partition(":")[0]
        tracer = subprocess.Popen(["strace", "-f", "-p", str(crib.pid), "-o", "/dev/null", "-e", f"trace={calls}",
                                   "-e", f"inject={what}"], stderr=subprocess.PIPE, text=True)
        tracers.append(tracer)
        said = tracer.stderr.readline()
        if "attached" not in said:
            pytest.skip(f"strace may not look at processes here: {said.strip()}")

        def stop():
            tracer.terminate()
            tracer.wait()
        return stop

    yield start
    for tracer in tracers:
        tracer.kill()
        tracer.wait()


def ended(crib, seconds=10):
    """The service has ended by itself; its exit code."""
    process, crib.process = crib.process, None
    code = process.wait(seconds)
    crib._join()
    return code


@pytest.mark.parametrize("what", ["fsync,fdatasync:error=EIO", "pwrite64:error=EIO"])
def test_a_disk_that_fails(start, fail, mark, what):
    """Nothing is answered as done, running tools are ended, the process exits with 1 within a second and says why; afterwards
    everything acknowledged is there, and everything else is there as `unknown` or not at all."""
    slow = sh(f"sleep 300 0.{mark}", effect="write")
    crib = start({"tools": dict(WRITER["tools"], slow=slow)})
    acknowledged = {ok(crib.invoke("w"))["invocation_id"] for _ in range(10)}
    running = later(lambda: crib.invoke("slow"))
    poll(lambda: processes(mark), what="the slow tool")
    fail(crib, what)
    before = time.monotonic()
    said = problem(crib.invoke("w"), 503, "ledger_unavailable")
    assert said["retryable"] is True and "did not run" in said["content"][0]["text"], said
    code = ended(crib)
    took = time.monotonic() - before
    assert code == 1 and took < 1, (code, took)
    said = problem(running(), 503, "ledger_unavailable")
    assert said["retryable"] is False, "it was running"
    poll(lambda: not processes(mark), what="no tool is left")
    assert "the disk failed" in crib.stderr and "the ledger stops" in crib.stderr and "panicked" not in crib.stderr, crib.stderr

    crib.start()
    rows = {row["invocation_id"]: row["state"] for row in crib.all_rows()}
    assert all(rows.pop(one) == "succeeded" for one in acknowledged)
    assert set(rows.values()) == {"unknown"}, rows
    assert rows.get(said["invocation_id"]) == "unknown"
    ok(crib.invoke("w"))


def test_no_room_while_it_runs(start, fail):
    """ENOSPC is no doubt: calls are refused while it lasts, then they run again."""
    crib = start(WRITER)
    first = ok(crib.invoke("w"))["invocation_id"]
    works_again = fail(crib, "pwrite64:error=ENOSPC")
    said = problem(crib.invoke("w"), 503, "ledger_unavailable")
    assert "the disk is full" in said["detail"] and said["retryable"] is True, said
    assert crib.get("/readyz").status == 503 and crib.get("/livez").status == 200
    works_again()
    poll(lambda: crib.get("/readyz").status == 200, what="ready")
    last = ok(crib.invoke("w"))["invocation_id"]
    crib.restart()
    rows = {row["invocation_id"]: row["state"] for row in crib.all_rows()}
    assert (rows.pop(first), rows.pop(last)) == ("succeeded", "succeeded")
    assert set(rows.values()) <= {"refused"}, rows
