"""The record of administration: what is in it, who may read it, and that every later change of it is found."""

import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

import postgres
from harness import cli, ok, poll, problem
from recipes import CALLERS, KEYS, sh, to_yaml

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operate" / "audit.md"
SERVER = pathlib.Path(__file__).resolve().parent / "modules" / "mcp_server.py"
TOOLS = {
    "off": sh("exit 0", effect="read"),
    "limited": sh("exit 0", effect="write", limits=[{"calls": 5, "per": "day"}]),
    "pay": sh("echo paid", effect="write", approval={"by": ["root"]}),
}
MANIFEST = {"callers": CALLERS, "tools": TOOLS}
REGISTERED = {"kind": "http", "description": "A tool of an admin.", "effect": "read", "parameters": {},
              "request": {"url": "https://api.example.com/v1/status"}}
ADMIN = KEYS["ROOT"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if postgres.programs() is None:
        pytest.skip("no PostgreSQL is installed here")
    server = postgres.Postgres(tmp_path_factory.mktemp("postgres") / "own")
    yield server
    server.stop()


def entries(crib, query=""):
    reply = crib.get(f"/audit?limit=500&{query}", key=ADMIN)
    assert reply.status == 200, reply
    return reply.json["entries"]


def told(crib, query=""):
    return [(one["actor"], one["action"], one["subject"]) for one in reversed(entries(crib, query))]


def decide(crib, verdict):
    reply = crib.invoke("pay", key=KEYS["ANN"], headers={"prefer": "respond-async"})
    assert reply.status == 202, reply
    call = reply.json["invocation_id"]
    decided = crib.post(f"/invocations/{call}/{verdict}", "{}", key=ADMIN)
    assert decided.status == 200, decided
    return call


def administer(crib):
    """One action of each kind, as (actor, action, subject)."""
    for path in ("/tools/off/disable", "/tools/off/enable", "/tools/limited/usage/reset?caller=ann"):
        assert crib.post(path, key=ADMIN).status == 200
    for path in ("/cache", "/tools/off/cache"):
        assert crib.delete(path, key=ADMIN).status == 200
    assert crib.request("PUT", "/tools/status", json.dumps(REGISTERED), key=ADMIN).status == 201
    assert crib.delete("/tools/status", key=ADMIN).status == 200
    problem(crib.delete("/tools/status", key=ADMIN), 404)
    approved, denied = decide(crib, "approve"), decide(crib, "deny")
    problem(crib.post(f"/invocations/{denied}/approve", "{}", key=ADMIN), 409)
    return [("root", action, subject) for action, subject in [
        ("tool_disabled", "off"), ("tool_enabled", "off"), ("limits_reset", "limited"), ("cache_purged", None),
        ("cache_purged", "off"), ("tool_registered", "status"), ("tool_unregistered", "status"), ("call_approved", approved),
        ("call_denied", denied)]]


def verify(*args, code=0, cwd):
    done = cli("audit", "verify", *args, cwd=cwd)
    assert done.returncode == code, done
    return json.loads(done.stdout)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_actions_are_recorded_and_move_with_the_ledger(start, engine, request, tmp_path):
    ledger = None
    if engine == "postgres":
        server = request.getfixturevalue("server")
        server.run("create database audit")
        ledger = server.url("audit")
    crib = start(MANIFEST, env=KEYS, ledger=ledger)
    expected = administer(crib)
    poll(lambda: len(entries(crib)) == len(expected) + 2, what="the first uses of two keys")
    keys = [one for one in told(crib) if one[1] == "key_first_used"]
    assert sorted(keys) == [("ann", "key_first_used", "ann"), ("root", "key_first_used", "root")]
    assert [one for one in told(crib) if one[1] != "key_first_used"] == expected
    assert not any(key in json.dumps(entries(crib)) for key in KEYS.values()), "no secrets"
    problem(crib.get("/audit", key=KEYS["ANN"]), 403)

    assert told(crib, "action=tool_disabled&actor=root&subject=off") == expected[:1]
    problem(crib.get("/audit?action=nothing", key=ADMIN), 400)
    page = crib.get("/audit?limit=4", key=ADMIN).json
    walked = page["entries"]
    while page["next_cursor"]:
        page = crib.get(f"/audit?limit=4&cursor={page['next_cursor']}", key=ADMIN).json
        walked += page["entries"]
    assert walked == entries(crib) and [one["seq"] for one in walked] == list(range(len(walked), 0, -1))

    # A new start notes no key again.
    crib.restart()
    ok(crib.invoke("off", key=KEYS["ANN"]))
    assert crib.post("/tools/off/disable", key=ADMIN).status == 200
    assert len(entries(crib)) == len(walked) + 1

    # The chain, with the ledger, over HTTP, and by the script of the page.
    place, url = str(crib.ledger), f"http://127.0.0.1:{crib.port}"
    whole = verify("--ledger", place, cwd=tmp_path)
    assert whole["valid"] and whole["entries"] == len(walked) + 1 and whole["last_hash"] == entries(crib)[0]["hash"]
    assert verify("--server", url, "--key", ADMIN, cwd=tmp_path) == whole
    exported = cli("export", "--audit", "--ledger", place, cwd=tmp_path)
    assert exported.returncode == 0, exported
    kinds = ["hash" in json.loads(line) for line in exported.stdout.splitlines()]
    assert kinds == [False] * (len(kinds) - whole["entries"]) + [True] * whole["entries"], "calls, then entries"
    script = re.search(r"```python,file=check_audit.py\n(.*?)```", PAGE.read_text(), re.S)[1]
    checked = subprocess.run([sys.executable, "-c", script], input=exported.stdout, capture_output=True, text=True)
    assert checked.stdout == f"{whole['entries']} {whole['last_hash']}\n", checked
    over_http = cli("export", "--audit", "--server", url, "--key", ADMIN, cwd=tmp_path)
    assert over_http.stdout.splitlines()[-1] == exported.stdout.splitlines()[-1]
    crib.stop()

    # It moves along, as a whole or as lines.
    moved = cli("migrate", place, "moved.db", cwd=tmp_path, timeout=60)
    assert moved.returncode == 0, moved
    assert verify("--ledger", "moved.db", cwd=tmp_path) == whole
    (tmp_path / "all.jsonl").write_text(exported.stdout)
    for imported in (True, False):
        done = cli("import", "invocations", "all.jsonl", "--ledger", "archive.db", cwd=tmp_path)
        assert done.returncode == 0 and (json.loads(done.stdout)["imported"] > 0) == imported, done
    assert verify("--ledger", "archive.db", cwd=tmp_path) == whole


def test_later_changes_are_found(start, tmp_path):
    crib = start(MANIFEST, env=KEYS)
    for _ in range(4):
        assert crib.post("/tools/off/disable", key=ADMIN).status == 200
    poll(lambda: len(entries(crib)) == 5, what="five entries")
    known = entries(crib)[0]["hash"]
    crib.stop()
    for change, fault, seq in [
            ("update audit set actor = 'mallory' where seq = 3", "edited", 3),
            ("delete from audit where seq = 2", "deleted", 2),
            ("update audit set seq = 9 where seq = 2; update audit set seq = 2 where seq = 4; update audit set seq = 4 where seq = 9",
             "reordered", 2)]:
        copy = shutil.copy(crib.ledger, tmp_path / "copy.db")
        with sqlite3.connect(copy) as connection:
            connection.executescript(change)
        connection.close()
        assert verify("--ledger", copy, code=1, cwd=tmp_path)["broken"] == {"fault": fault, "seq": seq}
        shown = cli("audit", "verify", "--ledger", copy, "--format", "table", cwd=tmp_path)
        assert shown.returncode == 1 and f"entry {seq} was {fault}" in shown.stdout, shown
    copy = shutil.copy(crib.ledger, tmp_path / "copy.db")
    with sqlite3.connect(copy) as connection:
        connection.execute("delete from audit where seq > 3")
    connection.close()
    assert verify("--ledger", copy, cwd=tmp_path)["entries"] == 3, "a chain alone does not show it"
    cut = verify("--ledger", copy, "--expect", known, code=1, cwd=tmp_path)
    assert cut["broken"] == {"fault": "cut_off", "seq": 4}
    assert verify("--ledger", crib.ledger, "--expect", known, cwd=tmp_path)["valid"]
    wrong = cli("audit", "verify", "--ledger", crib.ledger, "--expect", "abc", cwd=tmp_path)
    assert wrong.returncode == 64 and "64 hexadecimal digits" in wrong.stderr, wrong


def test_reloads_are_recorded(start):
    crib = start(MANIFEST, env=KEYS)
    changed = dict(MANIFEST, tools=dict(TOOLS, more=sh("exit 0", effect="read")))
    crib.manifest.write_text(to_yaml(changed))
    poll(lambda: ("operator", "manifest_reloaded", None) in told(crib), what="the entry")
    detail = entries(crib, "action=manifest_reloaded")[0]["detail"]
    assert detail == {"tools": "1 added (more)", "callers": "the same"}


def test_new_pins_are_recorded_once(start, tmp_path):
    folder = tmp_path / "pinned"
    folder.mkdir()
    shutil.copy(SERVER, folder / "server.py")

    def offer(description):
        schema = {"type": "object", "properties": {}}
        (folder / "tools.json").write_text(json.dumps([{"name": "say", "description": description, "inputSchema": schema}]))
        pinned = cli("pin", cwd=folder)
        assert pinned.returncode == 0, pinned

    manifest = {"callers": CALLERS, "mcp_servers": {"one": {"command": ["/bin/sh", "-c", f"cd '{folder}' && exec python3 server.py"]}}}
    (folder / "toolcrib.yaml").write_text(to_yaml(dict(manifest, callers=[])))
    offer("Says it.")
    crib = start(manifest, folder=folder, env=KEYS)

    def pins():
        return [(one["actor"], one["subject"], one["detail"]["tools"]) for one in entries(crib, "action=server_pinned")]

    assert pins() == [("operator", "one", 1)]
    crib.restart()
    assert len(pins()) == 1, "the same pins"
    assert crib.post("/sources/one/restart", key=ADMIN).status == 200
    assert ("root", "source_restarted", "one") in told(crib)
    crib.stop()
    (folder / "toolcrib.yaml").write_text(to_yaml(dict(manifest, callers=[])))
    offer("Says it loudly.")
    (folder / "toolcrib.yaml").write_text(to_yaml(manifest))
    crib.restart()
    assert len(pins()) == 2
