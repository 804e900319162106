"""How large the ledger's file may become: refused calls cost little, and `ledger.max_bytes` holds."""

import sqlite3
import time

from harness import ok, poll, problem
from recipes import params, sh

MIB = 1 << 20
BOUND = 16 * MIB


def file_bytes(crib):
    return crib.ledger.stat().st_size


def log_bytes(crib):
    log = crib.ledger.with_name(crib.ledger.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def gauge(crib, name):
    lines = crib.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))


def test_refused_calls_use_little_space(start):
    """A caller that may do nothing sends 100 large bodies: the file grows by their beginnings, and every call is counted."""
    crib = start({
        "callers": [
            {"name": "ann", "key": "key-of-ann-000000000", "admin": True},
            {"name": "prom", "key": "key-of-prom-00000000", "allow": []},
        ],
        "tools": {"calculator": {"kind": "native"}},
    })
    session = crib.session()
    for _ in range(100):
        problem(session.invoke("calculator", {"expression": "9" * 900_000}, key="key-of-prom-00000000"), 403, "forbidden")
    session.close()
    admin = {"key": "key-of-ann-000000000"}
    poll(lambda: crib.get("/usage", **admin).json["tools"][0]["refused"] == 100, what="rows of all calls")
    # The log holds whole pages of each commit; it is copied at 4 MiB.
    assert log_bytes(crib) < 6 * MIB, log_bytes(crib)
    row = crib.rows("limit=1", **admin)[0]
    stored = row["arguments_truncated"]
    assert row["arguments"] is None and stored["bytes"] > 900_000 and len(stored["beginning"]) == 1024, row
    crib.stop()
    assert file_bytes(crib) < MIB, file_bytes(crib)


def test_file_stays_below_its_bound(start):
    """Reads and refusals of four times the bound: the oldest go, calls that were promised stay, totals are exact."""
    crib = start({
        "ledger": {"max_bytes": "16MiB"},
        "tools": {
            "echo": sh("cat", stdin="{{ text }}", effect="read", parameters=params(text="string"), output="text"),
            "pay": sh("true", effect="write"),
        },
    })
    paid = [ok(crib.invoke("pay", {"n": number}))["invocation_id"] for number in range(5)]
    session, largest = crib.session(), 0
    for number in range(160):
        ok(session.invoke("echo", {"text": f"{number}" + "x" * 200_000}))
        problem(session.invoke("echo", {"txt": "x"}), 422)
        largest = max(largest, file_bytes(crib))
    session.close()
    assert largest <= BOUND, largest
    crib.wait_for_log("over 80 % of ledger.max_bytes")
    assert gauge(crib, "toolcrib_ledger_max_bytes") == BOUND and gauge(crib, "toolcrib_ledger_up") == 1
    assert 0 < gauge(crib, "toolcrib_ledger_used_bytes") <= gauge(crib, "toolcrib_ledger_bytes")
    assert sum(float(line.split()[-1]) for line in crib.get("/metrics").body.decode().splitlines()
               if line.startswith("toolcrib_ledger_trimmed_total")) > 50
    usage = {row["tool"]: row for row in crib.get("/usage").json["tools"]}
    assert [usage["echo"][field] for field in ("calls", "succeeded", "refused")] == [320, 160, 160]
    assert usage["pay"]["succeeded"] == 5
    assert [crib.row(one)["state"] for one in paid] == ["succeeded"] * 5
    crib.stop()
    with sqlite3.connect(f"file:{crib.ledger}?mode=ro", uri=True) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    db.close()


def test_approved_call_waits_for_room(start):
    """A call that is approved while the file is full has no row and does not run. It starts once, when there is room."""
    manifest = {"ledger": {"max_bytes": "16MiB", "when_down": "serve_reads"}, "tools": {
        "pay": sh("true", effect="write", parameters=params(text="string")),
        "wire": sh("echo wired >> effects", effect="write", approval={"wait": "100ms"})}}
    crib = start(manifest)
    waiting = crib.invoke("wire", {"n": 1})
    assert waiting.status == 202, waiting
    call, session = waiting.json["invocation_id"], crib.session()
    poll(lambda: session.invoke("pay", {"text": "x" * 200_000}).status == 503, 60, "the file is full")
    session.close()
    assert crib.post(f"/invocations/{call}/approve").status == 200, "without a body"
    # Longer than the service takes to look at decided calls.
    time.sleep(3)
    shown = crib.get(f"/invocations/{call}").json
    assert (shown["state"], shown["approval"]["state"]) == ("waiting", "approved"), shown
    crib.stop()
    assert not (crib.folder / "effects").exists()
    larger = start({**manifest, "ledger": {"max_bytes": "64MiB"}}, folder=crib.folder, ledger=crib.ledger)
    poll(lambda: larger.get(f"/invocations/{call}").json["state"] == "succeeded", 20, "the call has run")
    time.sleep(2)
    assert (crib.folder / "effects").read_text() == "wired\n"


def test_durable_calls_fill_the_ledger_file(start):
    """Calls with effects are never deleted: the service refuses, gives the reason, and continues with more room."""
    manifest = {"ledger": {"max_bytes": "16MiB"},
                "tools": {"pay": sh("true", effect="write", parameters=params(text="string"))}}
    crib = start(manifest)
    session, done = crib.session(), 0
    for number in range(200):
        reply = session.invoke("pay", {"text": f"{number}" + "x" * 200_000})
        if reply.status != 200:
            break
        done += 1
    session.close()
    error = problem(reply, 503, "ledger_unavailable")
    assert "ledger.max_bytes" in error["detail"], error
    assert crib.get("/readyz").status == 503
    assert file_bytes(crib) <= BOUND
    crib.stop()
    larger = start({**manifest, "ledger": {"max_bytes": "64MiB"}}, folder=crib.folder, ledger=crib.ledger)
    ok(larger.invoke("pay", {"text": "more"}))
    usage = larger.get("/usage").json["tools"][0]
    assert (usage["calls"], usage["succeeded"]) == (done + 1, done + 1)
