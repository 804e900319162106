"""`toolcrib migrate`: a whole ledger from a file to PostgreSQL, where everything goes on."""

import json

import pytest

import postgres
from harness import cli, ok, poll, problem
from recipes import sh

TOOLS = {
    "limited": sh("exit 0", effect="write", limits=[{"calls": 5, "per": "lifetime"}]),
    "limited_read": sh("echo hello", effect="read", limits=[{"calls": 4, "per": "month"}]),
    "stamp": sh("date +%s%N", effect="write"),
    "off": sh("exit 0", effect="read"),
    "cached": sh("date +%s%N", effect="read", cache={"ttl": "1h"}),
}
REGISTERED = {"kind": "http", "description": "A tool of an admin.", "effect": "read", "parameters": {},
              "request": {"url": "https://api.example.com/v1/status"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if postgres.programs() is None:
        pytest.skip("no PostgreSQL is installed here")
    server = postgres.Postgres(tmp_path_factory.mktemp("postgres") / "own")
    yield server
    server.stop()


def migrate(*args, cwd):
    return cli("migrate", *args, cwd=cwd, timeout=60)


def totals(ledger, cwd):
    done = cli("usage", "--ledger", ledger, cwd=cwd)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["tools"]


def test_service_goes_on_in_postgresql(start, server, tmp_path):
    server.run("create database moved")
    crib = start({"tools": TOOLS})
    for _ in range(3):
        ok(crib.invoke("limited"))
        ok(crib.invoke("limited_read"))
    key = {"idempotency-key": "k-1"}
    first = crib.invoke("stamp", headers=key)
    cached = ok(crib.invoke("cached"))
    assert crib.post("/tools/off/disable").status == 200
    registered = crib.request("PUT", "/tools/status", json.dumps(REGISTERED))
    assert registered.status in (200, 201), registered
    problem(crib.invoke("off"), 403)
    poll(lambda: len(crib.all_rows()) == 9, what="all rows")
    rows = crib.all_rows()

    in_use = migrate(crib.ledger, server.url("moved"), cwd=tmp_path)
    assert in_use.returncode == 1 and "uses it; stop all services" in in_use.stderr, in_use
    crib.stop()
    before = totals(crib.ledger, tmp_path)
    moved = migrate(f"sqlite://{crib.ledger}", server.url("moved"), cwd=tmp_path)
    assert moved.returncode == 0, moved
    tables = {table["table"]: table["rows"] for table in json.loads(moved.stdout)["tables"]}
    assert (tables["calls"], tables["held keys"], tables["counters of limits"]) == (9, 1, 2), tables
    again = migrate(crib.ledger, server.url("moved"), cwd=tmp_path)
    assert again.returncode == 1 and "not empty" in again.stderr, again

    other = start(crib.manifest.read_text(), folder=tmp_path / "other", ledger=server.url("moved"))
    assert totals(server.url("moved"), tmp_path) == before and other.all_rows() == rows
    replayed = other.invoke("stamp", headers=key)
    assert replayed.body == first.body and replayed.headers["idempotent-replayed"] == "true"
    assert ok(other.invoke("cached"))["content"] == cached["content"], "the stored result"
    problem(other.invoke("off"), 403)
    assert other.get("/tools/status").status == 200, "the registered tool"
    for used in (4, 5):
        assert ok(other.invoke("limited"))["meta"]["usage"][0]["used"] == used
    problem(other.invoke("limited"), 429)
    assert other.usage("limited_read")[0]["used"] == 3
    ok(other.invoke("limited_read"))
    problem(other.invoke("limited_read"), 429)
    assert "\ntoolcrib_quota_drift 0\n" in other.get("/metrics").body.decode()

    running = migrate(server.url("moved"), "back.db", cwd=tmp_path)
    assert running.returncode == 1 and "a replica on" in running.stderr, running
    other.stop()
    back = migrate(server.url("moved"), "back.db", cwd=tmp_path)
    assert back.returncode == 0, back
    third = start(crib.manifest.read_text(), folder=tmp_path / "third", ledger=tmp_path / "back.db")
    assert third.invoke("stamp", headers=key).body == first.body
    problem(third.invoke("limited"), 429)


def test_wrong_ends_are_refused(tmp_path):
    missing = migrate("nothing.db", "new.db", cwd=tmp_path)
    assert missing.returncode == 1 and "there is no such file" in missing.stderr, missing
    assert not (tmp_path / "nothing.db").exists() and not (tmp_path / "new.db").exists()
    same = migrate("one.db", "one.db", cwd=tmp_path)
    assert same.returncode == 64 and "the same ledger" in same.stderr, same
    unknown = migrate("mysql://x", "new.db", cwd=tmp_path)
    assert unknown.returncode == 64 and "postgres://" in unknown.stderr, unknown
