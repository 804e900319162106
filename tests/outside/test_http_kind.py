"""Kind `http`: values encoded for their place, answers typed, failures told apart, and what is tried again."""

import base64
import json
import socket
import time
import urllib.parse

import pytest

from harness import now, ok, poll, problem, said_no, spent, text_of
from recipes import params, web
from upstream import PNG, busy, moved, says

NASTY = ["a b", "a/b", "a?b=c", "a#b", "a%2fb", "ÆØÅ", "日本", "a&b=c", "a;b", "a\\b", "a+b", "%", "...", "a@b:80"]


def test_values_are_encoded_for_their_place(start, up):
    """A path value stays one segment, a query value one value; what the upstream decodes is what was said."""
    crib = start({"tools": {
        "in_path": web(up.base + "/echo/{{ v }}/end", effect="read", parameters=params(v="string")),
        "in_query": web(up.base + "/echo", request={"query": {"q": "{{ v }}", "fixed": "1"}}, effect="read", parameters=params(v="string")),
        "in_json": web(up.base + "/echo", "POST", {"json": {"v": "{{ v }}", "s": "<{{ v }}>"}}, effect="read", parameters=params(v="string"))}})
    for value in NASTY:
        path = ok(crib.invoke("in_path", {"v": value}))["structured_content"]["path"]
        segments = path.split("/")
        assert len(segments) == 4 and urllib.parse.unquote(segments[2]) == value, (value, path)
        query = ok(crib.invoke("in_query", {"v": value}))["structured_content"]["query"]
        assert urllib.parse.parse_qs(query, keep_blank_values=True) == {"q": [value], "fixed": ["1"]}, (value, query)
        body = ok(crib.invoke("in_json", {"v": value + '"}'}))["structured_content"]["body"]
        assert body == {"v": value + '"}', "s": f'<{value}"}}>'}, body


@pytest.mark.parametrize("value", [".", "..", "%2e%2e", "%2E.", "x/../y", "..%2fy", "", "..;/admin", "..;x=1", "..\0", "..\t",
                                   " ..", "..%00.png", "\uff0e\uff0e", "\u2025", "x\uff0f..\uff0fy", "%25252e%25252e", "%2525252525"])
def test_dot_segments_are_refused(start, up, value):
    """A path value that is `.` or `..`, also after decoding, never leaves. (An empty one would also change the path: loose.)"""
    crib = start({"tools": {"in_path": web(up.base + "/echo/{{ v }}/end", effect="read", parameters=params(v="string"))}})
    reply = crib.invoke("in_path", {"v": value})
    if value == "":
        assert reply.status in (200, 400, 422, 502)
        return
    problem(reply, {400, 403, 422, 502})
    assert up.hits() == 0


def test_a_header_value_cannot_bring_another_header(start, up):
    crib = start({"tools": {"in_header": web(up.base + "/echo", request={"headers": {"x-city": "{{ v }}"}}, effect="read",
                                             parameters=params(v="string"))}})
    assert ok(crib.invoke("in_header", {"v": "Oslo"}))["structured_content"]["headers"]["x-city"] == "Oslo"
    reply = crib.invoke("in_header", {"v": "Oslo\r\nx-evil: 1"})
    if reply.status == 200:
        assert "x-evil" not in reply.json["structured_content"]["headers"]
    else:
        problem(reply, {400, 422, 502})
    assert all("x-evil" not in {name.lower() for name in headers} for _, _, headers, _ in up.requests)


def test_a_lone_placeholder_keeps_its_type(start, up):
    crib = start({"tools": {"rows": web(up.base + "/echo", "POST", {"json": {"ids": "{{ ids }}", "n": "{{ n }}", "big": "{{ big }}"}},
                                        parameters=params(ids={"type": "array", "items": {"type": "integer"}}, n="number", big="integer"))}})
    said = ok(crib.invoke("rows", {"ids": [1, 2], "n": 1.5, "big": 9007199254740993}))["structured_content"]
    assert said["method"] == "POST" and said["body"] == {"ids": [1, 2], "n": 1.5, "big": 9007199254740993}
    assert said["headers"]["content-type"].startswith("application/json")


def test_answers_are_typed(start, up):
    """JSON is structured, text is text, an image is an image block: never base64 in a text."""
    crib = start({"tools": {name: web(f"{up.base}/{name}", effect="read") for name in ("json", "list", "text", "png")}})
    answer = ok(crib.invoke("json"))
    assert answer["structured_content"]["current"] == {"temperature": 22.5}
    assert json.loads(text_of(answer)) == answer["structured_content"]
    assert ok(crib.invoke("list"))["structured_content"] == [1, 2, 3]
    answer = ok(crib.invoke("text"))
    assert text_of(answer) == "plain words, ÆØÅ" and answer["structured_content"] is None
    blocks = [block for block in ok(crib.invoke("png"))["content"] if block["type"] == "image"]
    assert len(blocks) == 1 and blocks[0]["mimeType"] == "image/png" and base64.b64decode(blocks[0]["data"]) == PNG


def test_pick_and_error_when(start, up):
    up.script("/w", says({"current": {"t": 1}}), says({"error": {"message": "no city Atlantis"}}), says({"other": 1}))
    crib = start({"tools": {"w": web(up.base + "/w", effect="read", response={"pick": "/current", "error_when": "/error"})}})
    assert ok(crib.invoke("w"))["structured_content"] == {"t": 1}
    assert "no city Atlantis" in text_of(said_no(crib.invoke("w")))
    reply = crib.invoke("w")  # nothing at the pointer: not a success of nothing
    assert reply.status == 502 or said_no(reply)


def test_not_found_is_the_tool_saying_no(start, up):
    """A 404 with words is content for the model."""
    crib = start({"tools": {"nf": web(up.base + "/notfound", effect="read", retry={"attempts": 3})}})
    assert "no such city: Atlantis" in text_of(said_no(crib.invoke("nf")))
    assert up.hits() == 1, "an answer is not tried again"


@pytest.mark.parametrize("path, kind", [("/reset", "upstream_failed"), ("/cut", {"upstream_failed", "bad_output"}),
                                        ("/half", {"bad_output"})])
def test_broken_answers(start, up, path, kind):
    """A reset is upstream_failed; JSON that is none is bad_output."""
    crib = start({"tools": {"x": web(up.base + path, effect="write")}})
    said = problem(crib.invoke("x"), 502, kind)
    assert said["source"] in ("tool", "service") and up.hits() == 1
    assert crib.row(said["invocation_id"])["state"] in ("failed", "unknown")


@pytest.mark.parametrize("path", ["/hang", "/slow"])
def test_an_upstream_that_hangs(start, up, path):
    """No answer, or one that drips: the attempt's timeout covers both."""
    crib = start({"tools": {"x": web(up.base + path, effect="read", timeout="500ms")}})
    started = now()
    said = problem(crib.invoke("x"), 504, {"attempt_timed_out", "deadline_exceeded"})
    assert spent(started) < 5
    assert crib.row(said["invocation_id"])["state"] == "timed_out"


def test_the_deadline_is_over_all_attempts(start, up):
    crib = start({"tools": {"x": web(up.base + "/hang", effect="read", timeout="300ms", deadline="700ms", retry={"attempts": 50})}})
    started = now()
    problem(crib.invoke("x"), 504, {"attempt_timed_out", "deadline_exceeded"})
    assert spent(started) < 3


def test_nobody_listens(start):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    crib = start({"tools": {"x": web(f"http://127.0.0.1:{port}/", effect="read", retry={"attempts": 3})}})
    said = problem(crib.invoke("x"), 502, "upstream_failed")
    assert said["retryable"] is True and crib.row(said["invocation_id"])["attempts"] == 3, "a connect error is tried again"


@pytest.mark.parametrize("path", ["/endless", "/chunks"])
def test_a_body_of_ten_gibibytes(start, up, path):
    """Capped while reading: an answer soon, little memory, and the upstream is let go."""
    crib = start({"tools": {"x": web(up.base + path, effect="read", max_output="64KiB")}})
    before, started = crib.rss(), now()
    reply = crib.invoke("x")
    assert spent(started) < 10
    assert reply.status in (200, 502) and len(reply.body) < 400_000, reply.status  # cut and said so, or bad_output
    if reply.status == 502:
        problem(reply, 502, "bad_output")
    assert crib.rss() - before < 64 << 20
    assert up.poured < 256 << 20, "the upstream was left running"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(start, up, status):
    up.script("/go", moved(up.base + "/secret", status))
    crib = start({"tools": {"x": web(up.base + "/go", effect="read")}})
    reply = crib.invoke("x")
    assert reply.status == 502 or said_no(reply)
    assert up.hits("/secret") == 0 and up.hits("/go") == 1


# ---- what is tried again -----------------------------------------------------------------------------------------------

def test_retry_of_503_for_a_read(start, up):
    """503, 503, 200: one answer, three attempts, both failures in the ledger."""
    url = up.script("/flaky", 503, 503, says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 3}, limits=[{"calls": 5, "per": "day"}])}})
    answer = ok(crib.invoke("x"))
    assert answer["meta"]["attempts"] == 3 and up.hits() == 3
    assert answer["meta"]["usage"][0]["used"] == 1, "one invocation costs one unit"
    row = crib.row(answer["invocation_id"])
    assert row["attempts"] == 3 and len(row["attempt_errors"]) == 2 and "503" in json.dumps(row["attempt_errors"])


@pytest.mark.parametrize("status", [502, 503, 504, 429])
def test_retried_statuses(start, up, status):
    url = up.script("/flaky", status, says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="idempotent", retry={"attempts": 2})}})
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2


def test_no_retry_for_a_write(start, up):
    url = up.script("/flaky", 503, says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="write", retry={"attempts": 3})}})
    problem(crib.invoke("x"), 502, "upstream_failed")
    assert up.hits() == 1


def test_no_retry_of_500(start, up):
    """500 then 200: not among what is repeated (connect errors, 429, 502-504, timeouts)."""
    url = up.script("/flaky", 500, says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 3})}})
    said = problem(crib.invoke("x"), 502, "upstream_failed")
    assert up.hits() == 1 and said["source"] == "tool"


def test_no_retry_by_default(start, up):
    url = up.script("/flaky", 503, says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read")}})
    problem(crib.invoke("x"), 502, "upstream_failed")
    assert up.hits() == 1


def test_attempts_run_out(start, up):
    crib = start({"tools": {"x": web(up.script("/down", 503), effect="read", retry={"attempts": 3})}})
    said = problem(crib.invoke("x"), 502, "upstream_failed")
    row = crib.row(said["invocation_id"])
    assert up.hits() == 3 and row["attempts"] == 3 and row["state"] == "failed" and row["kind"] == "upstream_failed"


def test_timeouts_are_retried(start, up):
    url = up.script("/late", "hang", says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", timeout="300ms", retry={"attempts": 2})}})
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2


def test_retry_after_is_honoured(start, up):
    url = up.script("/busy", busy(1), says({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 2})}})
    started = now()
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2
    assert time.monotonic() - started >= 0.95


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(start, up):
    url = up.script("/busy", busy(3600))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 2}, deadline="1s")}})
    started = now()
    reply = crib.invoke("x")
    assert reply.status in (200, 502, 504) and spent(started) < 4
    poll(lambda: up.hits() == 1, 2, "one request only")
