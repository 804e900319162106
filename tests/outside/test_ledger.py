"""The ledger: rows and filters, and what happens when its file is read-only, corrupt, newer, or its disk is full."""

import json
import os
import sqlite3
import subprocess
import urllib.parse

import pytest

from harness import clean_env, cli, in_background, lines_in, ok, poll, problem, error_result, text_of
from recipes import params, sh, to_yaml, web
from upstream import reply_with

PLAIN = {"tools": {"calculator": {"kind": "native"}}}


def write_tool(ran, **policy):
    return sh(f"echo ran >> {ran}", effect="write", limits=[{"calls": 100_000, "per": "lifetime"}], **policy)


def assert_start_refused(crib, **more):
    """`serve` on this ledger ends with 1 and words that name the ledger."""
    done = cli(*crib.args, cwd=crib.folder, **more)
    assert done.returncode == 1, done
    assert "listening" not in done.stdout and "panicked" not in done.stderr, done
    assert crib.ledger.name in done.stderr + done.stdout, done.stderr
    return done.stderr + done.stdout


def test_rows_can_be_filtered(start):
    """Newest first, with the contract's fields; tool, run_id, state, since and limit pick; a cursor walks to the end once."""
    crib = start({"tools": {"a": sh("echo a", effect="write"), "b": sh("exit 1", effect="write")}})
    ids = [ok(crib.invoke("a", {"n": number}, run_id=f"r{number % 2}"))["invocation_id"] for number in range(7)]
    crib.invoke("b", {"n": 1})
    problem(crib.invoke("a", {"n": "x"}), 422)
    poll(lambda: len(crib.rows()) == 9, what="nine rows")
    rows = crib.rows("tool=a&state=succeeded")
    assert [row["invocation_id"] for row in rows] == ids[::-1]
    for row in rows:
        assert set(row) >= {"invocation_id", "tool", "caller", "run_id", "state", "kind", "cache", "attempts", "started_at",
                            "duration_ms", "arguments"}
        assert row["kind"] is None and row["duration_ms"] >= 0 and row["attempts"] == 1
    assert [row["arguments"]["n"] for row in crib.rows("run_id=r1&tool=a")] == [5, 3, 1]
    assert {row["tool"] for row in crib.rows("tool=b")} == {"b"}
    assert crib.rows("caller=nobody") == [] and len(crib.rows("caller=anonymous")) == 9
    since = urllib.parse.quote(rows[2]["started_at"], safe="")
    newer = {row["invocation_id"] for row in crib.rows(f"tool=a&state=succeeded&since={since}")}
    assert set(ids[5:]) <= newer and not newer & set(ids[:3]), "since is a start time"

    page = crib.get("/invocations?tool=a&state=succeeded&limit=3").json
    walked, pages = [row["invocation_id"] for row in page["invocations"]], 1
    while page["next_cursor"]:
        ok(crib.invoke("a", {"n": 100}))  # newer rows do not disturb the walk
        cursor = urllib.parse.quote(page["next_cursor"], safe="")
        page = crib.get(f"/invocations?tool=a&state=succeeded&limit=3&cursor={cursor}").json
        walked += [row["invocation_id"] for row in page["invocations"]]
        pages += 1
        assert pages < 10
    assert walked == ids[::-1]


def test_row_has_its_result_and_attempts(start):
    """GET /invocations/{id}: the same object plus the answer or problem, and the failed attempts."""
    crib = start({"tools": {"a": sh("echo '{\"x\": 1}'", effect="write"), "five": web("http://127.0.0.1:1/", effect="write")}})
    answer = ok(crib.invoke("a", tool_use_id="t"))
    row = crib.row(answer["invocation_id"])
    assert row["result"]["structured_content"] == {"x": 1} and row["result"]["content"] == answer["content"]
    error = problem(crib.invoke("five"), 502, "upstream_failed")
    row = crib.row(error["invocation_id"])
    assert row["state"] == "failed" and row["result"]["kind"] == "upstream_failed"
    assert len(row["attempt_errors"]) == 1 and row["kind"] == "upstream_failed"


def test_write_only_fields_are_redacted(start):
    """A field marked writeOnly reaches the tool and never the ledger."""
    crib = start({"tools": {"login": sh("cat > /dev/null; echo fine", effect="write", environment={"PATH": "/usr/bin:/bin"}, parameters=params(
        user="string", password={"type": "string", "writeOnly": True}))}})
    answer = ok(crib.invoke("login", {"user": "ann", "password": "correct-horse-battery"}))
    row = crib.row(answer["invocation_id"])
    assert row["arguments"]["user"] == "ann" and "correct-horse" not in json.dumps(row)
    crib.stop()
    assert all(b"correct-horse" not in file.read_bytes() for file in crib.folder.glob("toolcrib.db*"))


def test_write_only_numbers_are_never_quoted(start):
    """Not in violations, coercions, lists, running calls or logs, and not even hashed on disk by the cache."""
    tool = sh("cat > /dev/null; sleep 1; echo fine", effect="read", cache={"ttl": "5m"}, environment={"PATH": "/usr/bin:/bin"},
              parameters=params(user="integer", pin={"type": "integer", "minimum": 10_000_000, "writeOnly": True}))
    crib = start({"tools": {"login": tool}}, args=["--log", "trace"])
    error = problem(crib.invoke("login", {"user": "x", "pin": 4711_815}), 422)
    assert {one["pointer"] for one in error["violations"]} == {"/user", "/pin"}
    thread = in_background(lambda: ok(crib.invoke("login", {"user": 1, "pin": "47118150"})))
    running = crib.wait_row("tool=login&state=running")
    answer = thread()
    assert answer["meta"]["coercions"] == [{"pointer": "/pin", "from": "string", "to": "integer"}]
    assert running["arguments"]["user"] == 1
    crib.invoke("login", {"user": 1, "pin": 47118150})
    shown = json.dumps([error, running, answer, crib.row(answer["invocation_id"]), crib.row(error["invocation_id"]), crib.rows()])
    crib.stop()
    disk = b"".join(file.read_bytes() for file in crib.folder.glob("toolcrib.db*"))
    for place in (shown, disk.decode("latin-1"), crib.stderr, crib.stdout):
        assert "4711815" not in place
    db = sqlite3.connect(str(crib.ledger))
    assert db.execute("select count(*) from stored_result").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize("place", ["ledger", "tool"])
def test_digest_capture_stores_no_data(start, upstream, place):
    """capture: digest: arguments, results and the words of failures are nowhere on disk and in no log; the caller gets all of it."""
    output = params(name="string", n={"type": "integer", "required": False})
    tool = {"capture": "digest"} if place == "tool" else {}
    crib = start({"ledger": {"capture": "digest"} if place == "ledger" else {}, "tools": {
        "echo": sh("cat", effect="read", cache={"ttl": "5m"}, parameters=output, environment={"PATH": "/usr/bin:/bin"}, **tool),
        "write": sh("cat", effect="write", parameters=output, environment={"PATH": "/usr/bin:/bin"}, **tool),
        "no": sh("cat >&2; exit 1", effect="read", parameters=output, environment={"PATH": "/usr/bin:/bin"}, **tool),
        "broken": web(upstream.base + "/nothing", effect="read", output_schema={"type": "object", "properties": {"name": {"const": "x"}}},
                      parameters=output, **tool)}}, args=["--log", "trace"])
    upstream.script("/nothing", reply_with({"name": "Ann-Example"}))
    name = {"name": "Ann-Example"}
    rows = []
    for cache in ("miss", "hit"):
        answer = ok(crib.invoke("echo", name))
        assert answer["structured_content"] == name and answer["meta"]["cache"] == cache
        rows.append(crib.row(answer["invocation_id"]))
    assert ok(crib.invoke("write", name))["structured_content"] == name
    assert "Ann-Example" in text_of(error_result(crib.invoke("no", name)))
    rows.append(crib.row(problem(crib.invoke("broken", name), 502, "bad_output")["invocation_id"]))
    rows.append(crib.row(problem(crib.invoke("echo", {"name": "x", "Ann-Example": 1, "n": 47110815}), 422)["invocation_id"]))
    for row in rows:
        assert row["arguments"] is None and len(row["arguments_digest"]["hmac_sha256"]) == 64, row
    assert rows[0]["arguments_digest"] == rows[1]["arguments_digest"] != rows[3]["arguments_digest"]
    assert rows[0]["result"] is None and rows[0]["result_digest"] == rows[1]["result_digest"] is not None
    assert rows[2]["result"]["kind"] == "bad_output" and rows[3]["result"]["status"] == 422
    assert "Ann-Example" not in json.dumps(rows) + crib.get("/invocations").body.decode()
    files = lambda: b"".join(file.read_bytes() for file in crib.folder.glob("toolcrib.db*"))
    poll(lambda: rows[3]["arguments_digest"]["hmac_sha256"].encode() in files(), what="the rows on disk")
    crib.stop()
    for word in ("Ann-Example", "47110815"):
        assert word.encode() not in files() and word not in crib.stderr + crib.stdout
    crib.start()
    answer = ok(crib.invoke("echo", name))
    assert answer["meta"]["cache"] == "miss", "its stored results end with the process"
    assert crib.row(answer["invocation_id"])["arguments_digest"] != rows[0]["arguments_digest"], "another key each start"


def test_reads_are_flushed_on_shutdown(start):
    """Observed calls are written with a delay, and SIGTERM loses none."""
    crib = start(PLAIN)
    ids = {ok(crib.invoke("calculator", {"expression": str(number)}))["invocation_id"] for number in range(50)}
    crib.restart()
    assert {row["invocation_id"] for row in crib.all_rows()} >= ids


def test_strict_durability_survives_kill_nine(start):
    """With `durability: strict` an answered read is in the ledger, also when the next thing is a kill -9."""
    crib = start(dict(PLAIN, ledger={"durability": "strict"}))
    ids = {ok(crib.invoke("calculator", {"expression": str(number)}))["invocation_id"] for number in range(20)}
    crib.kill9()
    crib.start()
    assert {row["invocation_id"] for row in crib.all_rows()} >= ids


def test_acknowledged_writes_survive_kill_nine(start, tmp_path):
    """The end of a charged call is committed before its answer is sent."""
    crib = start({"tools": {"w": write_tool(tmp_path / "ran")}})
    ids = {ok(crib.invoke("w"))["invocation_id"] for _ in range(20)}
    crib.kill9()
    crib.start()
    rows = {row["invocation_id"]: row["state"] for row in crib.all_rows()}
    assert all(rows.get(one) == "succeeded" for one in ids), rows


def test_two_services_on_one_file(start, tmp_path):
    """A limit counts for both, a key has one holder, and the calls of one that is killed are settled by the other while it runs. A service
    that stops in order, as in a rolling restart, leaves nothing behind."""
    ran, tried = tmp_path / "ran", tmp_path / "tried"
    manifest = {"tools": {
        "few": sh(f"echo ran >> {ran}", effect="write", limits=[{"calls": 10, "per": "lifetime"}]),
        "hung": sh(f"echo tried >> {tried}; sleep 20", effect="write", timeout="90s")}}
    first = start(manifest)
    second = start(manifest, ledger=first.ledger)
    replies = [(first, second)[number % 2].invoke("few") for number in range(14)]
    assert [reply.status for reply in replies] == [200] * 10 + [429] * 4, replies
    assert lines_in(ran) == 10
    in_background(lambda: first.invoke("hung", headers={"idempotency-key": "h"}))
    poll(lambda: tried.exists(), what="the hung call runs")
    problem(second.invoke("hung", headers={"idempotency-key": "h"}), 409, "idempotency_in_progress")
    listed = cli("invocations", "--ledger", f"sqlite://{first.ledger}", cwd=tmp_path)
    assert listed.returncode == 0 and "reserved" in listed.stdout, listed
    first.kill9()
    row = poll(lambda: second.rows("tool=hung&state=unknown"), 10, what="the call is settled")[0]
    problem(second.invoke("hung", headers={"idempotency-key": "h"}), 409, "outcome_unknown")
    assert lines_in(tried) == 1 and row["idempotency_key"] == "h"
    third = start(manifest, ledger=first.ledger)
    second.stop()
    assert third.rows("tool=hung&state=unknown") and len(third.rows("tool=few&state=succeeded")) == 10
    third.stop()
    assert not list(first.folder.glob("*.lock-*"))


# ---- unusable files ----------------------------------------------------------------------------------------------------

def test_corrupt_file_stops_the_start(start):
    """Random bytes: no start, the file is named and not touched."""
    crib = start(PLAIN)
    crib.stop()
    for file in crib.folder.glob("toolcrib.db*"):
        file.unlink()
    noise = os.urandom(64 * 1024)
    crib.ledger.write_bytes(noise)
    assert_start_refused(crib)
    assert crib.ledger.read_bytes() == noise


def test_foreign_database_is_left_unchanged(start):
    """An SQLite file of another program does not silently get our tables: it is refused, or left unchanged."""
    crib = start(PLAIN)
    crib.stop()
    for file in crib.folder.glob("toolcrib.db*"):
        file.unlink()
    with sqlite3.connect(str(crib.ledger)) as db:
        db.execute("create table invocations (mine text)")
        db.execute("insert into invocations values ('kept')")
    db.close()
    assert_start_refused(crib)
    with sqlite3.connect(str(crib.ledger)) as db:
        assert db.execute("select mine from invocations").fetchall() == [("kept",)]
    db.close()


def test_newer_schema_is_refused(start):
    """A ledger of a later version is refused, and its rows stay."""
    crib = start(PLAIN)
    ok(crib.invoke("calculator", {"expression": "1"}))
    crib.stop()
    db = sqlite3.connect(str(crib.ledger))
    db.execute("insert into _sqlx_migrations (version, description, installed_on, success, checksum, execution_time)"
               " values (99990101000000, 'from the future', current_timestamp, 1, x'00', 0)")
    db.commit()
    db.close()
    words = assert_start_refused(crib).lower()
    assert "newer" in words or "version" in words, words
    db = sqlite3.connect(str(crib.ledger))
    db.execute("delete from _sqlx_migrations where version = 99990101000000")
    db.commit()
    db.close()
    crib.start()
    assert len(crib.rows()) == 1


@pytest.mark.parametrize("place", ["missing/folder/toolcrib.db", "."])
def test_impossible_path_stops_the_start(tmp_path, place):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(PLAIN))
    done = cli("serve", "--manifest", "toolcrib.yaml", "--listen", "127.0.0.1:0", "--ledger", f"sqlite://{tmp_path}/{place}",
               cwd=tmp_path)
    assert done.returncode == 1 and "panicked" not in done.stderr and "listening" not in done.stdout, done


def test_read_only_file_stops_the_start(start, tmpfs):
    """On a file system that became read-only: no start, and the ledger is named."""
    disk = tmpfs("8m")
    crib = start(PLAIN, ledger=disk / "toolcrib.db")
    ok(crib.invoke("calculator", {"expression": "1"}))
    crib.stop()
    before = crib.ledger.read_bytes()
    done = subprocess.run(["mount", "-o", "remount,ro", str(disk)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        pytest.skip(f"cannot remount read-only: {done.stdout}")
    assert_start_refused(crib)
    assert crib.ledger.read_bytes() == before
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, env=clean_env())
    crib.start()
    assert len(crib.rows()) == 1


def fill_disk(disk):
    """Fills every free byte."""
    with open(disk / "filler", "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"f" * size)
            except OSError:
                pass
    return disk / "filler"


def test_full_disk_refuses_charged_calls(start, tmpfs, tmp_path):
    """Charged calls are refused (503 ledger_unavailable) while the disk is full, and run again when there is room. Acknowledged calls
    are there, before and after a restart, and every run was counted."""
    disk, ran = tmpfs("16m"), tmp_path / "ran"
    crib = start({"tools": {"w": write_tool(ran, parameters=params(text="string")), "calculator": {"kind": "native"}}},
                 ledger=disk / "toolcrib.db")
    acknowledged = [ok(crib.invoke("w", {"text": "x"}))["invocation_id"] for _ in range(10)]
    filler = fill_disk(disk)

    refused = 0
    for _ in range(400):
        reply = crib.invoke("w", {"text": "x" * 4000})
        if reply.status == 200:
            acknowledged.append(reply.json["invocation_id"])  # what was preallocated may still take some rows
            continue
        error = problem(reply, 503, "ledger_unavailable")
        if not error["retryable"]:
            continue  # it ran, and the disk became full before its end was written
        assert int(reply.headers["retry-after"]) >= 1
        refused += 1
        if refused >= 5:
            break
    assert refused >= 5, "the disk is full and every call was taken"
    assert crib.running and crib.get("/livez").status == 200
    poll(lambda: crib.get("/readyz").status == 503, 10, "not ready while the ledger cannot write")
    # A read without a limit is promised nothing by the ledger: answered, or refused in the same words.
    reply = crib.invoke("calculator", {"expression": "6*7"})
    assert reply.status == 200 or problem(reply, 503, "ledger_unavailable")

    filler.unlink()
    recovered = poll(lambda: (lambda r: r if r.status == 200 else None)(crib.invoke("w", {"text": "x"})), 30, "a charged call that runs again")
    acknowledged.append(recovered.json["invocation_id"])
    poll(lambda: crib.get("/readyz").status == 200, 10, "ready again")
    for repeated in (lambda: None, crib.restart):
        repeated()
        rows = {row["invocation_id"]: row["state"] for row in crib.all_rows("tool=w")}
        assert all(rows.get(one) == "succeeded" for one in acknowledged)
        assert len(acknowledged) <= lines_in(ran) <= crib.usage("w")[0]["used"], (len(acknowledged), lines_in(ran))
    crib.stop()
    db = sqlite3.connect(str(crib.ledger))
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    db.close()
