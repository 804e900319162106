"""A ledger and a lock file of an earlier version stay valid. modules/first_ledger/ was made by the binary of commit ec9f0ec, which
sorted the keys of all objects: toolcrib.yaml was served, each of its tools called once, `remote` registered, and the server's tools
pinned. Hashes of definitions and arguments must not change."""

import gzip
import json
import pathlib
import shutil
import sqlite3
import time

import pytest

from harness import cli, ok, problem, text_of

MODULES = pathlib.Path(__file__).resolve().parent / "modules"
FIRST = MODULES / "first_ledger"
ENV = {"DIGEST_KEY": "a-digest-key-0123456789", "ROOT": "root-key-0123456789abcdef"}
ROOT = ENV["ROOT"]
HASHES = {
    "fetch": "b813929604a56ab385321b7ed9993a1d9282e4fbb2ccccd0cb87df76cf4393f4",
    "order": "333e89a091823e255931d6f950e436f8a70142d5d3b7b500d280b984d2a8e34d",
    "secret_order": "104ab4781a2da307fb8c5e86b4c2d3ac96a39bc91bfa24f9b0f068e27d786061",
    "remote": "a405656457a61e184061b2f7fb9fcac09b3b02da54e6bc60aa9bdda335f7879f",
    "s_get": "b1f2e1a81a09ee1cd8b1692f7f4e0d35fdd873a18efd7008e02fb5edb468cabd",
}
REMOTE = {"kind": "http", "description": "Asks somewhere, and there is nobody.", "effect": "idempotent",
          "parameters": {"zone": {"type": "string", "description": "The zone to look at"},
                         "area": {"type": "string", "description": "The area in it"}},
          "request": {"url": "http://nowhere.invalid/{{ zone }}", "query": {"z": "{{ zone }}", "a": "{{ area }}"}}}


@pytest.fixture()
def folder(tmp_path):
    folder = tmp_path / "crib"
    shutil.copytree(FIRST, folder)
    (folder / "toolcrib.db").write_bytes(gzip.decompress((folder / "toolcrib.db.gz").read_bytes()))
    shutil.copy(MODULES / "mcp_server.py", folder / "server.py")
    # Keys are kept for a day. No other column says when they end.
    with sqlite3.connect(folder / "toolcrib.db") as database:
        database.execute("update invocation set key_until = ? where key_until is not null", [int((time.time() + 3600) * 1000)])
    database.close()
    return folder


def serve(start, folder):
    return start((folder / "toolcrib.yaml").read_text(), folder=folder, env=ENV).ready()


def test_stored_results_and_keys_are_found(start, folder):
    crib = serve(start, folder)
    for arguments in ({"where": {"zone": "z", "area": "a"}, "after": "noon"}, {"after": "noon", "where": {"area": "a", "zone": "z"}}):
        answer = ok(crib.invoke("fetch", arguments, key=ROOT))
        assert (text_of(answer), answer["meta"]["cache"]) == ("1795368611091216946", "hit")
    for arguments in ({"which": "tea", "amount": 3}, {"amount": 3, "which": "tea"}):
        replayed = crib.invoke("order", arguments, key=ROOT, headers={"idempotency-key": "k-1"})
        assert text_of(ok(replayed)) == "1795368611108549945"
    other = crib.invoke("order", {"which": "tea", "amount": 4}, key=ROOT, headers={"idempotency-key": "k-1"})
    problem(other, 422, "idempotency_mismatch")


def test_keyed_digests_are_unchanged(start, folder):
    crib = serve(start, folder)
    known = crib.invoke("secret_order", {"which": "tea", "amount": 3}, key=ROOT, headers={"idempotency-key": "k-2"})
    assert known.json["meta"]["result_digest"], known
    other = crib.invoke("secret_order", {"which": "tea", "amount": 4}, key=ROOT, headers={"idempotency-key": "k-2"})
    problem(other, 422, "idempotency_mismatch")
    ok(crib.invoke("secret_order", {"which": "tea", "amount": 3}, key=ROOT))
    digests = {row["arguments_digest"]["hmac_sha256"] for row in crib.rows("tool=secret_order", key=ROOT) if row["state"] == "succeeded"}
    assert digests == {"2864f370b172d9aca8f23bf7e27f18f5f716a0046c40bea6e8e1c886a9ba1b0e"}


def test_definition_hashes_are_unchanged(start, folder):
    crib = serve(start, folder)
    tools = {name: crib.get(f"/tools/{name}", key=ROOT).json for name in HASHES}
    assert {name: tool["definition_hash"] for name, tool in tools.items()} == HASHES
    # The same again, with the members in another order.
    repeated = crib.request("PUT", "/tools/remote", json.dumps(REMOTE).encode(), headers={"content-type": "application/json"}, key=ROOT)
    assert repeated.status == 200 and repeated.json["definition_hash"] == HASHES["remote"]
    assert list(repeated.json["input_schema"]["properties"]) == ["zone", "area"]


def test_pins_are_unchanged(start, folder):
    done = cli("pin", "--dry-run", cwd=folder, env=ENV)
    assert done.returncode == 0, done
    # It is not stopped. That it answers no structured content is a warning.
    answer = ok(serve(start, folder).invoke("s_get", {"where": {}, "after": "noon"}, key=ROOT))
    assert "output schema" in answer["meta"]["warnings"][0], answer
