"""Secrets of the manifest in the output of tools: complete, in part, encoded, in files. None is exposed."""

import base64
import json

import pytest

from harness import ok
from recipes import params, py, web
from upstream import PNG

KEY = "c4n4ryHTTP-9f8e7d6c5b4a39281706ABCDEFG"
TEXT = {"n": {"type": "integer"}}


def key_parts_in(text):
    """Parts of the key that would be worth something, as they are and as base64 of them."""
    return [KEY[at:at + 8] for at in range(len(KEY) - 7) if KEY[at:at + 8] in text]


def all_records(crib, reply):
    """All records of a call: its answer, its stored result, its row, and the ledger's bytes."""
    text = reply.body.decode()
    invocation = json.loads(text)["invocation_id"]
    text += crib.get(f"/invocations/{invocation}/result").body.decode() + crib.get(f"/invocations/{invocation}").body.decode()
    for path in crib.ledger.parent.glob(crib.ledger.name + "*"):
        text += path.read_bytes().decode("latin-1")
    return text


def repeating_page(upstream, path, status, most):
    """A page that repeats the header of the request where its answer is cut; `n` of the key's characters are before the cut."""
    def step(handler):
        n = int(handler.path.rpartition("=")[2])
        body = "." * (most - n) + handler.headers["x-key"] + "." * 5000
        handler.reply(status, body.encode(), "text/plain")
    return upstream.script(path, step)


def keyed_tool(url, **policy):
    tool = web(url, effect="read", parameters=params(**TEXT), **policy)
    tool["request"].update(headers={"x-key": "${env:KEY}"}, query={"n": "{{ n }}"})
    return tool


def printing_tool(stream, before, after, code=0):
    script = (f"import os, json, sys; n = json.load(sys.stdin)['n']; {stream}.write('.' * ({before} - n) + os.environ['K'] + '.' * {after}); "
              f"{stream}.flush(); sys.exit({code})")
    return py(script, effect="read", environment={"K": "${env:KEY}"}, parameters=params(**TEXT))


@pytest.mark.parametrize("cut", ["error", "body", "stdout", "stdout-of-write", "stderr-head", "stderr-tail", "stdout-of-refusal", "page"])
def test_truncation_leaves_no_part_of_a_secret(start, upstream, cut):
    most = 256 << 10
    tools = {
        "error": lambda: keyed_tool(repeating_page(upstream, "/error", 404, 4096)),
        "body": lambda: keyed_tool(repeating_page(upstream, "/body", 200, most)),
        "stdout": lambda: printing_tool("sys.stdout", most, 5000),
        "stdout-of-write": lambda: dict(printing_tool("sys.stdout", most, 5000), effect="write"),
        "stderr-head": lambda: printing_tool("sys.stderr", 4096, 50_000, 1),
        # The last 12 KiB are kept: of these `n` belong to the key's end.
        "stderr-tail": lambda: printing_tool("sys.stderr", 40_000, f"(12288 - {len(KEY)} + n)", 1),
        "stdout-of-refusal": lambda: printing_tool("sys.stdout", 8192, 50_000, 3),
        "page": lambda: printing_tool("sys.stdout", 25_000, 60_000),
    }
    crib = start({"tools": {"t": tools[cut]()}}, env={"KEY": KEY})
    for n in (0, 1, 7, 8, 20, 37, 38, 39, 45):
        output = all_records(crib, crib.invoke("t", {"n": n}))
        assert not key_parts_in(output), (n, key_parts_in(output))


def test_file_bytes_contain_no_secret(start, upstream):
    """The data of a block is checked before it is base64, so the position of the secret does not matter."""
    def picture(handler):
        n = int(handler.path.rpartition("=")[2])
        handler.reply(200, PNG + b"\0" * n + handler.headers["x-key"].encode(), "image/png")

    crib = start({"tools": {"t": keyed_tool(upstream.script("/picture", picture))}}, env={"KEY": KEY})
    for n in range(3):
        reply = crib.invoke("t", {"n": n})
        answer = ok(reply)
        assert answer["content"] == [{"type": "text", "text": "[image: left out, a secret is in its data]"}]
        assert "a secret is in its data" in answer["meta"]["warnings"][0]
        output = all_records(crib, reply)
        assert not key_parts_in(output)
        for begin in range(3):
            assert base64.b64encode(KEY[begin:begin + 9].encode()).decode() not in output


def test_base64_of_longer_texts_is_redacted(start):
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
