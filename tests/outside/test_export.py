"""`toolcrib export` and `toolcrib import invocations`: recorded calls out of one ledger and into another, each once."""

import csv
import io
import json
import subprocess

import pytest

from harness import BIN, clean_env, cli, in_background, ok, problem
from recipes import CALLERS, KEYS, params, sh

TOOLS = {
    "greet": sh("echo hello", effect="read", parameters=params(name={"type": "string", "required": False})),
    "sad": sh("echo no >&2; exit 1", effect="write"),
    "flaky": sh("exit 0", effect="idempotent", limits=[{"calls": 1, "per": "lifetime"}]),
    "calculator": {"kind": "native", "cache": {"ttl": "1h"}},
    "data": sh("echo '{\"z\": 1.5, \"a\": [1, 18446744073709551615]}'", effect="read"),
}


def fill(crib):
    """A call of each kind of end."""
    ok(crib.invoke("greet", {"name": "a,b \"c\"\nd"}, run_id="r-7", tool_use_id="call_1"))
    crib.invoke("sad")
    ok(crib.invoke("flaky", headers={"idempotency-key": "k-1"}))
    problem(crib.invoke("flaky"), 429)
    for _ in range(2):
        ok(crib.invoke("calculator", {"expression": "6*7"}))
    ok(crib.invoke("data"))
    problem(crib.invoke("calculator", {"nothing": 1}), 422)


def lines(done):
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def export(*args, cwd):
    return cli("export", *args, cwd=cwd)


def usage(ledger, cwd):
    done = cli("usage", "--ledger", ledger, cwd=cwd)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["tools"]


@pytest.fixture
def stopped(start):
    crib = start({"tools": TOOLS})
    fill(crib)
    details = [crib.row(row["invocation_id"]) for row in reversed(crib.all_rows())]
    crib.stop()
    return crib, details


def test_export_is_what_the_service_shows(stopped, tmp_path):
    crib, details = stopped
    calls = lines(export("--ledger", crib.ledger, cwd=tmp_path))
    for detail in details:
        del detail["approval"]
    assert calls == details and len(calls) == 8
    assert [call["state"] for call in calls].count("refused") == 2
    assert {call["effect"] for call in calls} == {"read", "write", "idempotent"}


def test_server_and_ledger_export_the_same(start, tmp_path):
    crib = start({"tools": TOOLS})
    fill(crib)
    for _ in range(600):
        crib.invoke("greet")
    from_server = lines(cli("export", "--server", crib.base, cwd=tmp_path, timeout=60))
    crib.stop()
    assert len(from_server) == 608, "more than a page of the list"
    assert from_server == lines(export("--ledger", crib.ledger, cwd=tmp_path))


def test_callers_export_their_own_calls(start, tmp_path):
    crib = start({"callers": CALLERS, "tools": TOOLS}, env=KEYS)
    for key in ("ANN", "BOB"):
        ok(crib.invoke("greet", key=KEYS[key]))
    of = lambda key: [call["caller"] for call in lines(export("--server", crib.base, "--key", KEYS[key], cwd=tmp_path))]
    assert of("ANN") == ["ann"] and of("ROOT") == ["ann", "bob"]
    refused = export("--server", crib.base, "--key", "nonsense", cwd=tmp_path)
    assert refused.returncode == 1 and "key" in refused.stderr, refused


def test_filters_select_calls(stopped, tmp_path):
    crib, details = stopped
    tools = lambda *args: [call["tool"] for call in lines(export("--ledger", crib.ledger, *args, cwd=tmp_path))]
    assert tools("--tool", "sad") == ["sad"]
    assert len(tools("--since", "1h")) == 8 and tools("--until", "1h") == []
    middle = details[4]["started_at"]
    assert len(tools("--until", middle)) + len(tools("--since", middle)) == 8
    for option in ("--since", "--until"):
        done = export("--ledger", crib.ledger, option, "yesterday", cwd=tmp_path)
        assert done.returncode == 64 and option in done.stderr and "15m" in done.stderr, done


def test_csv_is_a_table_for_any_reader(stopped, tmp_path):
    crib, details = stopped
    done = subprocess.run([BIN, "export", "--ledger", crib.ledger, "--format", "csv"], env=clean_env(), cwd=tmp_path, capture_output=True)
    assert done.returncode == 0 and done.stdout.count(b"\r\n") == 9, done
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))
    assert [row["invocation_id"] for row in rows] == [detail["invocation_id"] for detail in details]
    assert json.loads(rows[0]["arguments"]) == {"name": "a,b \"c\"\nd"}
    assert (rows[0]["is_error"], rows[1]["is_error"], rows[3]["is_error"]) == ("false", "true", "")
    assert (rows[2]["idempotency_key"], rows[3]["kind"]) == ("k-1", "usage_limit_reached")


def test_running_calls_are_left_out(start, tmp_path):
    crib = start({"tools": {**TOOLS, "slow": sh("sleep 3", effect="write"), "slow_read": sh("sleep 3", effect="read")}})
    ok(crib.invoke("greet"))
    waits = [in_background(lambda tool=tool: crib.invoke(tool)) for tool in ("slow", "slow_read")]
    crib.wait_row("tool=slow"), crib.wait_row("tool=slow_read")
    for source in (("--server", crib.base), ("--ledger", crib.ledger)):
        assert [call["tool"] for call in lines(export(*source, cwd=tmp_path))] == ["greet"], source
    for wait in waits:
        ok(wait())


def test_closed_pipe_ends_the_export(start, tmp_path):
    crib = start({"tools": TOOLS})
    for _ in range(300):
        crib.invoke("greet")
    crib.stop()
    script = f'"{BIN}" export --ledger "{crib.ledger}" | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", script], env=clean_env(), cwd=tmp_path, capture_output=True, text=True)
    first, code = done.stdout.splitlines()
    assert json.loads(first)["tool"] == "greet" and code == "0" and done.stderr == "", done


def test_import_adds_each_call_once(stopped, start, tmp_path):
    crib, _ = stopped
    exported = export("--ledger", crib.ledger, cwd=tmp_path)
    (tmp_path / "calls.jsonl").write_text(exported.stdout)
    for expected in ({"imported": 8, "skipped": 0}, {"imported": 0, "skipped": 8}):
        done = cli("import", "invocations", "calls.jsonl", "--ledger", "archive.db", cwd=tmp_path)
        assert done.returncode == 0 and json.loads(done.stdout) == expected, done
    assert lines(export("--ledger", "archive.db", cwd=tmp_path)) == lines(exported)
    assert usage("archive.db", tmp_path) == usage(crib.ledger, tmp_path)

    other = start(crib.manifest.read_text(), folder=tmp_path / "other", ledger=tmp_path / "archive.db")
    assert other.usage("flaky")[0]["used"] == 0, "no limit is charged"
    again = other.invoke("flaky", headers={"idempotency-key": "k-1"})
    assert ok(again)["invocation_id"] not in exported.stdout, "the key is free"
    metrics = other.get("/metrics").body.decode()
    assert "\ntoolcrib_quota_drift 0\n" in metrics, metrics


def test_import_works_beside_a_service(stopped, start, tmp_path):
    crib, _ = stopped
    exported = export("--ledger", crib.ledger, cwd=tmp_path).stdout
    other = start({"tools": TOOLS}, folder=tmp_path / "other")
    ok(other.invoke("greet"))
    done = cli("import", "invocations", "-", "--ledger", other.ledger, cwd=tmp_path, stdin=exported)
    assert json.loads(done.stdout) == {"imported": 8, "skipped": 0}, done
    assert len(other.all_rows()) == 9
    ok(other.invoke("greet"))
    calls = {row["tool"]: row["calls"] for row in other.get("/usage").json["tools"]}
    assert calls["greet"] == 3 and calls["sad"] == 1


def test_wrong_line_is_named_and_nothing_of_it_is_written(stopped, tmp_path):
    crib, _ = stopped
    good = export("--ledger", crib.ledger, cwd=tmp_path).stdout.splitlines()
    wrong = json.loads(good[2])
    del wrong["tool"]
    for number, line, words in [(3, json.dumps(wrong), "missing field `tool`"), (1, "nonsense", "expected"),
                                (2, good[1].replace('"state":"failed"', '"state":"running"'), "has not ended")]:
        (tmp_path / "calls.jsonl").write_text("\n".join([*good[:number - 1], line, *good[number:]]))
        done = cli("import", "invocations", "calls.jsonl", "--ledger", f"new{number}.db", cwd=tmp_path)
        assert done.returncode == 64 and f"calls.jsonl:{number}: " in done.stderr and words in done.stderr, done
        assert "toolcrib export" in done.stderr and "0 calls before it were imported" in done.stderr, done
        assert usage(f"new{number}.db", tmp_path) == []
    missing = cli("import", "invocations", "nothing.jsonl", "--ledger", "never.db", cwd=tmp_path)
    assert missing.returncode == 64 and "nothing.jsonl: No such file" in missing.stderr, missing
    assert not (tmp_path / "never.db").exists(), "a wrong name makes no ledger"
