"""`toolcrib backup`: a copy of the ledger while the service works, that is a ledger itself."""

import json
import os
import signal
import sqlite3
import stat
import subprocess
import threading

import pytest

from harness import BIN, clean_env, cli, ok, poll, problem
from recipes import params, sh, to_yaml

LIMIT = 100_000


def counting_tool(**policy):
    return sh("exit 0", effect="write", limits=[{"calls": LIMIT, "per": "lifetime"}], **policy)


def backup(crib, to, **more):
    return cli("backup", to, "--ledger", f"sqlite://{crib.ledger}", cwd=crib.folder, **more)


def test_copy_of_busy_ledger_is_ledger(start, tmp_path):
    """A copy taken during calls is private and complete: it has every answered call, and limits continue from it."""
    crib = start({"tools": {"w": counting_tool(), "calculator": {"kind": "native"}}})
    stop, answered = threading.Event(), []

    def busy():
        session = crib.session()
        while not stop.is_set():
            answered.append(ok(session.invoke("w"))["invocation_id"])
        session.close()

    threads = [threading.Thread(target=busy, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        poll(lambda: len(answered) > 50, what="calls before the copy")
        before = set(answered)
        done = backup(crib, tmp_path / "copy.db")
        assert done.returncode == 0, done
        poll(lambda: len(answered) > len(before) + 20, what="calls after the copy")
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    copy = tmp_path / "copy.db"
    output = json.loads(done.stdout)
    assert output == {"backup": str(copy), "bytes": copy.stat().st_size}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.glob("copy.db*")) == ["copy.db"]
    with sqlite3.connect(f"file:{copy}?mode=ro", uri=True) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert db.execute("pragma application_id").fetchone()[0] == int.from_bytes(b"TCRB", "big")
        rows, used = db.execute("select (select count(*) from invocation), (select used from quota)").fetchone()
    db.close()
    assert len(before) <= rows == used <= len(answered) + 4, "one moment: a row and its unit, or neither"
    usage = cli("usage", "--ledger", f"sqlite://{copy}", cwd=tmp_path)
    assert json.loads(usage.stdout)["tools"][0]["calls"] == rows, usage

    other = start(crib.manifest.read_text(), folder=tmp_path / "other", ledger=copy)
    found = {row["invocation_id"]: row["state"] for row in other.all_rows()}
    assert before <= set(found) and set(found.values()) <= {"succeeded", "unknown"}
    assert ok(other.invoke("w"))["meta"]["usage"][0]["used"] == used + 1


def test_running_calls_are_unknown_in_the_copy(start, tmp_path):
    """As after a crash: charged, and never run again."""
    crib = start({"tools": {"slow": sh("sleep 3", effect="write", limits=[{"calls": 5, "per": "lifetime"}])}})
    thread = threading.Thread(target=crib.invoke, args=("slow",), daemon=True)
    thread.start()
    running = crib.wait_row("tool=slow")["invocation_id"]
    poll(lambda: crib.usage("slow")[0]["used"] == 1, what="the reservation")
    assert backup(crib, tmp_path / "copy.db").returncode == 0
    other = start(crib.manifest.read_text(), folder=tmp_path / "other", ledger=tmp_path / "copy.db")
    assert other.row(running)["state"] == "unknown" and other.usage("slow")[0]["used"] == 1
    thread.join(20)
    assert crib.row(running)["state"] == "succeeded", "the service itself went on"


def test_ledger_is_found_as_serve_finds_it(start, tmp_path):
    """--ledger, TOOLCRIB_LEDGER, the manifest's, or toolcrib.db here; with no service running too."""
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    ok(crib.invoke("calculator", {"expression": "1"}))
    crib.stop()
    place = tmp_path / "place"
    (place / "data").mkdir(parents=True)
    os.rename(crib.ledger, place / "data" / "mine.db")
    for name, args, env in [("a", ("--ledger", "sqlite://data/mine.db"), None), ("b", (), {"TOOLCRIB_LEDGER": "sqlite://data/mine.db"})]:
        done = cli("backup", name, *args, cwd=place, env=env)
        assert done.returncode == 0 and (place / name).exists(), done
    (place / "toolcrib.yaml").write_text(to_yaml({"ledger": {"url": "sqlite://data/mine.db"}, "tools": {"calculator": {"kind": "native"}}}))
    assert cli("backup", "c", cwd=place).returncode == 0
    (place / "toolcrib.yaml").write_text("ledger: {url: '${env:NOT_THERE}'}\n")
    done = cli("backup", "d", cwd=place)
    assert done.returncode == 64 and "NOT_THERE is not set" in done.stderr and "--ledger" in done.stderr, done
    (place / "toolcrib.yaml").unlink()
    done = cli("backup", "e", cwd=place)
    assert done.returncode == 1 and "toolcrib.db" in done.stderr and not (place / "e").exists(), done


def test_ledger_commands_need_no_other_secret(start, tmp_path):
    """Keys of callers and tools that are not set do not matter, nor do faults of tools."""
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    ok(crib.invoke("calculator", {"expression": "1"}))
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({
        "ledger": {"url": str(crib.ledger), "digest_key": "${env:NOT_THERE}"}, "callers": [{"name": "a", "key": "${env:NOT_THERE}"}],
        "tools": {"x": {"kind": "nonsense"}}}))
    for args in (("backup", "copy.db"), ("usage",), ("invocations",)):
        done = cli(*args, cwd=tmp_path)
        assert done.returncode == 0 and ("calculator" in done.stdout or "copy.db" in done.stdout), done


def test_existing_files_are_not_overwritten(start, tmp_path):
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    (tmp_path / "mine").write_text("kept")
    for to, words in [(tmp_path / "mine", "exists already"), (crib.ledger, "exists already"), (tmp_path / "no" / "folder", "No such file"), (tmp_path, "exists already")]:
        done = backup(crib, to)
        assert done.returncode == 1 and words in done.stderr and "panicked" not in done.stderr and not done.stdout, done
    assert (tmp_path / "mine").read_text() == "kept"
    assert crib.get("/readyz").status == 200
    done = cli("backup", cwd=tmp_path)
    assert done.returncode == 64, done


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm", ".lock"])
def test_copy_refuses_names_of_ledger_files(start, suffix):
    """SQLite would take a copy of that name for its own journal, and delete it."""
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    ok(crib.invoke("calculator", {"expression": "1"}))
    to = crib.ledger.with_name(crib.ledger.name + suffix)
    done = backup(crib, to)
    assert done.returncode == 1 and ("another file" in done.stderr), done.stderr
    ok(crib.invoke("calculator", {"expression": "1"}))


def test_foreign_database_is_not_copied(tmp_path):
    with sqlite3.connect(str(tmp_path / "other.db")) as db:
        db.execute("create table mine (x)")
    db.close()
    done = cli("backup", "copy", "--ledger", "sqlite://other.db", cwd=tmp_path)
    assert done.returncode == 1 and "another program" in done.stderr and not list(tmp_path.glob("copy*")), done


def start_large(start, megabytes):
    """A service whose ledger has some megabytes."""
    crib = start({"server": {"max_body": "8MiB"}, "tools": {"w": counting_tool(stdin="x", parameters=params(text="string"))}})
    text = "x" * (4 << 20)
    for _ in range(megabytes // 4):
        ok(crib.invoke("w", {"text": text}))
    return crib


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_backup_leaves_nothing(start, tmp_path, sign):
    """Ctrl-C in the middle leaves no file, not even a partial one, and does not block the next backup."""
    crib = start_large(start, 160)
    process = subprocess.Popen([BIN, "backup", str(tmp_path / "copy"), "--ledger", f"sqlite://{crib.ledger}"], cwd=str(tmp_path),
                               env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    def under_way():
        try:
            return sum(one.stat().st_size for one in tmp_path.glob("copy*")) > 1 << 20
        except FileNotFoundError:
            return False
    poll(under_way, what="a copy in flight")
    process.send_signal(sign)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1 and b"stopped" in err and not out, (process.returncode, out, err)
    assert not list(tmp_path.glob("copy*"))
    assert backup(crib, tmp_path / "copy").returncode == 0


def test_full_disk_leaves_nothing(start, tmp_path, tmpfs):
    """The backup reports that there is no room and leaves nothing; the service is not affected."""
    disk = tmpfs("8m")
    crib = start_large(start, 16)
    done = backup(crib, disk / "copy.db")
    assert done.returncode == 1 and "full" in done.stderr and not list(disk.iterdir()), done
    assert ok(crib.invoke("w", {"text": "x"}))
    problem(crib.invoke("w", {}), 422)
