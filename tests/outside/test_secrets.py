"""Secrets of the manifest in what tools say: whole, in part, encoded, in files. None comes out."""

import base64
import json

import pytest

from harness import ok
from recipes import params, py, web
from upstream import PNG

KEY = "c4n4ryHTTP-9f8e7d6c5b4a39281706ABCDEFG"
TEXT = {"n": {"type": "integer"}}


def runs(text):
    """Parts of the key that would be worth something, as they are and as base64 of them."""
    return [KEY[at:at + 8] for at in range(len(KEY) - 7) if KEY[at:at + 8] in text]


def everything(crib, reply):
    """All that is said of a call: its answer, its stored result, its row, and the ledger's bytes."""
    said = reply.body.decode()
    invocation = json.loads(said)["invocation_id"]
    said += crib.get(f"/invocations/{invocation}/result").body.decode() + crib.get(f"/invocations/{invocation}").body.decode()
    for path in crib.ledger.parent.glob(crib.ledger.name + "*"):
        said += path.read_bytes().decode("latin-1")
    return said


def repeats(up, path, status, most):
    """A page that repeats the header of the request where its answer is cut; `n` of the key's characters are before the cut."""
    def step(handler):
        n = int(handler.path.rpartition("=")[2])
        body = "." * (most - n) + handler.headers["x-key"] + "." * 5000
        handler.reply(status, body.encode(), "text/plain")
    return up.script(path, step)


def keyed(url, **policy):
    tool = web(url, effect="read", parameters=params(**TEXT), **policy)
    tool["request"].update(headers={"x-key": "${env:KEY}"}, query={"n": "{{ n }}"})
    return tool


def prints(stream, before, after, code=0):
    script = (f"import os, json, sys; n = json.load(sys.stdin)['n']; {stream}.write('.' * ({before} - n) + os.environ['K'] + '.' * {after}); "
              f"{stream}.flush(); sys.exit({code})")
    return py(script, effect="read", environment={"K": "${env:KEY}"}, parameters=params(**TEXT))


@pytest.mark.parametrize("cut", ["error", "body", "stdout", "stdout-of-write", "stderr-head", "stderr-tail", "stdout-of-refusal", "page"])
def test_a_cut_leaves_no_part_of_a_secret(start, up, cut):
    most = 256 << 10
    tools = {
        "error": lambda: keyed(repeats(up, "/error", 404, 4096)),
        "body": lambda: keyed(repeats(up, "/body", 200, most)),
        "stdout": lambda: prints("sys.stdout", most, 5000),
        "stdout-of-write": lambda: dict(prints("sys.stdout", most, 5000), effect="write"),
        "stderr-head": lambda: prints("sys.stderr", 4096, 50_000, 1),
        # The last 12 KiB are kept: of these `n` belong to the key's end.
        "stderr-tail": lambda: prints("sys.stderr", 40_000, f"(12288 - {len(KEY)} + n)", 1),
        "stdout-of-refusal": lambda: prints("sys.stdout", 8192, 50_000, 3),
        "page": lambda: prints("sys.stdout", 25_000, 60_000),
    }
    crib = start({"tools": {"t": tools[cut]()}}, env={"KEY": KEY})
    for n in (0, 1, 7, 8, 20, 37, 38, 39, 45):
        said = everything(crib, crib.invoke("t", {"n": n}))
        assert not runs(said), (n, runs(said))


def test_bytes_of_files_hold_no_secret(start, up):
    """The data of a block is looked at before it is base64, so where the secret stands does not matter."""
    def picture(handler):
        n = int(handler.path.rpartition("=")[2])
        handler.reply(200, PNG + b"\0" * n + handler.headers["x-key"].encode(), "image/png")

    crib = start({"tools": {"t": keyed(up.script("/picture", picture))}}, env={"KEY": KEY})
    for n in range(3):
        reply = crib.invoke("t", {"n": n})
        answer = ok(reply)
        assert answer["content"] == [{"type": "text", "text": "[image: left out, a secret is in its data]"}]
        assert "a secret is in its data" in answer["meta"]["warnings"][0]
        said = everything(crib, reply)
        assert not runs(said)
        for begin in range(3):
            assert base64.b64encode(KEY[begin:begin + 9].encode()).decode() not in said


def test_base64_of_longer_texts_is_found(start):
    script = ("import base64, json, os, sys; n = json.load(sys.stdin)['n']; text = ('user:abc'[:n] + os.environ['K'] + 'xyz').encode(); "
              "print(json.dumps({'a': base64.b64encode(text).decode(), 'b': base64.urlsafe_b64encode(text).decode().rstrip('='), "
              "'c': base64.b64encode(base64.b64encode(text)).decode()}))")
    crib = start({"tools": {"t": py(script, effect="read", environment={"K": "${env:KEY}"}, parameters=params(**TEXT))}}, env={"KEY": KEY})
    for n in range(6):
        answer = ok(crib.invoke("t", {"n": n}))["structured_content"]
        assert all("[redacted]" in text for text in answer.values()), answer
        for text in answer.values():
            left, right = text.split("[redacted]")
            assert len(left) <= 2 * n + 3 and len(right) <= 16, answer
