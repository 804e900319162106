"""Disks that fail: the answer to the caller, the end of the process, the state at the next start."""

import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import pytest

from harness import BIN, clean_env, cli, in_background, now, ok, poll, problem, processes, elapsed
from recipes import sh, to_yaml

WRITER = {"tools": {"w": sh("echo ran", effect="write", limits=[{"calls": 100_000, "per": "lifetime"}])}}


@pytest.fixture
def fail_syscalls():
    """fail_syscalls(crib, "fsync:error=EIO") makes a running service's system calls fail; the returned function ends the fault."""
    if not shutil.which("strace"):
        pytest.skip("needs strace to make system calls fail")
    tracers = []

    def start(crib, what):
        calls = what.partition(":")[0]
        tracer = subprocess.Popen(["strace", "-f", "-p", str(crib.pid), "-o", "/dev/null", "-e", f"trace={calls}",
                                   "-e", f"inject={what}"], stderr=subprocess.PIPE, text=True)
        tracers.append(tracer)
        output = tracer.stderr.readline()
        if "attached" not in output:
            pytest.skip(f"strace may not look at processes here: {output.strip()}")

        def stop():
            tracer.terminate()
            tracer.wait()
        return stop

    yield start
    for tracer in tracers:
        tracer.kill()
        tracer.wait()


def exit_code(crib, seconds=10):
    """Waits until the service ends by itself; returns its exit code."""
    process, crib.process = crib.process, None
    code = process.wait(seconds)
    crib._join()
    return code


@pytest.mark.parametrize("what", ["fsync,fdatasync:error=EIO", "pwrite64:error=EIO"])
def test_failing_disk_ends_the_service_without_loss(start, fail_syscalls, mark, what):
    """No call is answered as done, running tools are ended, the process exits with 1 within a second and reports why. Afterwards every
    acknowledged call is there, and every other call is `unknown` or missing."""
    slow = sh(f"sleep 300 0.{mark}", effect="write")
    crib = start({"tools": dict(WRITER["tools"], slow=slow)})
    acknowledged = {ok(crib.invoke("w"))["invocation_id"] for _ in range(10)}
    running = in_background(lambda: crib.invoke("slow"))
    poll(lambda: processes(mark), what="the slow tool")
    fail_syscalls(crib, what)
    before = now()
    error = problem(crib.invoke("w"), 503, "ledger_unavailable")
    assert error["retryable"] is True and "did not run" in error["content"][0]["text"], error
    code = exit_code(crib)
    took = elapsed(before)
    assert code == 1 and took < 1, (code, took)
    error = problem(running(), 503, "ledger_unavailable")
    assert error["retryable"] is False, "it was running"
    poll(lambda: not processes(mark), what="no tool is left")
    assert "the disk failed" in crib.stderr and "the ledger stops" in crib.stderr and "panicked" not in crib.stderr, crib.stderr

    crib.start()
    rows = {row["invocation_id"]: row["state"] for row in crib.all_rows()}
    assert all(rows.pop(one) == "succeeded" for one in acknowledged)
    assert set(rows.values()) == {"unknown"}, rows
    assert rows.get(error["invocation_id"]) == "unknown"
    ok(crib.invoke("w"))


def test_full_disk_refuses_calls_while_it_lasts(start, fail_syscalls):
    """ENOSPC leaves no doubt: calls are refused while it lasts, then they run again."""
    crib = start(WRITER)
    first = ok(crib.invoke("w"))["invocation_id"]
    works_again = fail_syscalls(crib, "pwrite64:error=ENOSPC")
    error = problem(crib.invoke("w"), 503, "ledger_unavailable")
    assert "the disk is full" in error["detail"] and error["retryable"] is True, error
    assert crib.get("/readyz").status == 503 and crib.get("/livez").status == 200
    works_again()
    poll(lambda: crib.get("/readyz").status == 200, what="ready")
    last = ok(crib.invoke("w"))["invocation_id"]
    crib.restart()
    rows = {row["invocation_id"]: row["state"] for row in crib.all_rows()}
    assert (rows.pop(first), rows.pop(last)) == ("succeeded", "succeeded")
    assert set(rows.values()) <= {"refused"}, rows


# ---- what is missing ---------------------------------------------------------------------------------------------------

def start_and_kill(start, calls=30):
    """A service that was killed after so many calls that are in the write-ahead log only: itself, and their ids."""
    crib = start(WRITER)
    ids = [ok(crib.invoke("w"))["invocation_id"] for _ in range(calls)]
    crib.kill9()
    return crib, ids


def ledger_files(crib, *kinds):
    return {kind: pathlib.Path(f"{crib.ledger}{kind}").read_bytes() for kind in kinds or ("", "-wal", ".head")}


def restore_files(crib, kept):
    for file in crib.folder.glob("toolcrib.db*"):
        file.unlink()
    for kind, data in kept.items():
        pathlib.Path(f"{crib.ledger}{kind}").write_bytes(data)


def refused_start(crib, *more):
    done = cli(*crib.args, *more, cwd=crib.folder)
    assert done.returncode == 1 and "panicked" not in done.stderr and "listening" not in done.stdout, done
    return done.stderr


def test_flipped_bits_in_the_log_are_detected(start):
    """Each start either refuses with the reason, or has every acknowledged call; SQLite alone would drop them silently."""
    crib, ids = start_and_kill(start)
    kept, dice, refusals = ledger_files(crib), random.Random(6), 0
    for _ in range(30):
        at = dice.randrange(len(kept["-wal"]) * 8)
        broken = bytearray(kept["-wal"])
        broken[at // 8] ^= 1 << at % 8
        restore_files(crib, dict(kept, **{"-wal": bytes(broken)}))
        try:
            crib.start()
        except AssertionError as ended:
            assert "serve ended with 1" in str(ended), ended
            assert "missing" in str(ended) or "damaged" in str(ended), ended
            assert ledger_files(crib, "", "-wal", ".head") == dict(kept, **{"-wal": bytes(broken)}), "left as they were"
            refusals += 1
            continue
        rows = {row["invocation_id"]: row["state"] for row in crib.all_rows()}
        assert all(rows.get(one) == "succeeded" for one in ids), (at, len(rows))
        crib.kill9()
    assert refusals > 15, "most bits of a log matter"


def test_flipped_bits_in_the_database_are_detected(start):
    """Each start either refuses with the reason, or every acknowledged call is there and unchanged."""
    crib = start({"tools": {"w": sh("echo $RANDOM $RANDOM $RANDOM", effect="write", limits=[{"calls": 100_000, "per": "lifetime"}])}})
    for _ in range(120):
        ok(crib.invoke("w"))
    shown = {row["invocation_id"]: crib.get(f"/invocations/{row['invocation_id']}").json for row in crib.all_rows()}
    crib.stop()
    kept, dice, damaged, refusals = ledger_files(crib, "", ".head"), random.Random(7), 0, 0
    for _ in range(30):
        at = dice.randrange(len(kept[""]) * 8)
        broken = bytearray(kept[""])
        broken[at // 8] ^= 1 << at % 8
        restore_files(crib, dict(kept, **{"": bytes(broken)}))
        try:
            crib.start()
        except AssertionError as ended:
            assert "serve ended with 1" in str(ended) and "panicked" not in str(ended), ended
            assert crib.ledger.read_bytes() == bytes(broken), "left as it was"
            refusals += 1
            continue
        for one, was in shown.items():
            reply = crib.get(f"/invocations/{one}")
            if reply.status == 500:
                problem(reply, 500, "internal")
                poll(lambda: "damaged" in crib.stderr, what="a line that names it")
                damaged += 1
                continue
            assert reply.status == 200 and reply.json == was, (at, was, reply)
        crib.kill9()
    print(f"{refusals} refused, {damaged} rows damaged")
    assert refusals and damaged, (refusals, damaged)


def test_accept_loss_starts_once(start):
    """The refusal reports how many commits are missing and what to do; --accept-loss starts anyway, with a warning, and works once."""
    crib, ids = start_and_kill(start)
    broken = bytearray(pathlib.Path(f"{crib.ledger}-wal").read_bytes())
    broken[len(broken) // 2] ^= 1
    pathlib.Path(f"{crib.ledger}-wal").write_bytes(broken)
    words = refused_start(crib)
    assert "acknowledged commits are missing" in words and "--accept-loss" in words and "toolcrib.db" in words, words
    called = cli("call", "w", "{}", "--manifest", crib.manifest, "--ledger", f"sqlite://{crib.ledger}", cwd=crib.folder)
    assert called.returncode == 1 and "missing" in called.stderr, called
    crib.extra = ["--accept-loss"]
    crib.start()
    assert "commits are missing, and --accept-loss permits that" in crib.stderr or poll(lambda: "--accept-loss permits that" in crib.stderr)
    rows = {row["invocation_id"] for row in crib.all_rows()}
    assert ids[0] in rows and ids[-1] not in rows
    ok(crib.invoke("w"))
    crib.stop()
    crib.extra = []
    crib.start()
    assert "missing" not in crib.stderr


def test_removed_or_replaced_database_is_warned_of(start):
    """Removed: a new one, with a warning. Another one: a warning. A backup: the same. None of these is reported as a loss."""
    crib, _ = start_and_kill(start, 3)
    crib.start()
    backup = crib.folder / "copy.db"
    assert cli("backup", backup, "--ledger", f"sqlite://{crib.ledger}", cwd=crib.folder).returncode == 0
    ok(crib.invoke("w"))
    crib.stop()
    crib.ledger.unlink()
    crib.start()
    poll(lambda: "the ledger that was here is gone" in crib.stderr, what="a warning that names it")
    assert str(crib.ledger) in crib.stderr and crib.rows() == []
    crib.stop()
    shutil.move(backup, crib.ledger)
    crib.start()
    poll(lambda: "the file is not the ledger that was here before" in crib.stderr, what="a warning")
    assert len(crib.rows()) == 3
    ok(crib.invoke("w"))
    crib.restart()
    assert "WARN" not in crib.stderr and len(crib.rows()) == 4


def test_older_copy_is_a_loss(start):
    """The same ledger with fewer commits, put back by hand: that is a loss."""
    crib = start(WRITER)
    ok(crib.invoke("w"))
    crib.stop()
    yesterday = crib.ledger.read_bytes()
    crib.start()
    ok(crib.invoke("w"))
    crib.stop()
    crib.ledger.write_bytes(yesterday)
    assert "acknowledged commits are missing" in refused_start(crib)
    assert crib.ledger.read_bytes() == yesterday


def test_read_only_folder_stops_the_start():
    """Without the right to write in it: no start, the ledger is named, and its file stays as it is."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        (folder / "toolcrib.yaml").write_text(to_yaml(WRITER))
        args = ["serve", "--listen", "127.0.0.1:0", "--ledger", f"sqlite://{folder}/toolcrib.db"]
        done = cli("call", "w", "{}", *args[3:], cwd=folder)
        assert done.returncode == 0, done
        for file in folder.glob("*"):
            file.chmod(0o644)
        before = (folder / "toolcrib.db").read_bytes()
        try:
            done = subprocess.run([BIN, *args], cwd=folder, env=clean_env(), user=65534, group=65534, extra_groups=[], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
        except PermissionError:
            pytest.skip("nobody else may run the program here")
        assert done.returncode == 1 and "toolcrib.db" in done.stderr and "panicked" not in done.stderr, done
        assert (folder / "toolcrib.db").read_bytes() == before
    finally:
        shutil.rmtree(folder)
