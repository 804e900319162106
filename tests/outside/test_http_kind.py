"""Kind `http`: values encoded by position, typed answers, kinds of failures, and retries."""

import base64
import json
import time
import urllib.parse

import pytest

from harness import free_port, now, ok, poll, problem, error_result, elapsed, text_of
from recipes import params, web
from upstream import PNG, busy, redirect_to, reply_with

NASTY = ["a b", "a/b", "a?b=c", "a#b", "a%2fb", "ÆØÅ", "日本", "a&b=c", "a;b", "a\\b", "a+b", "%", "...", "a@b:80"]


def test_values_are_encoded_by_position(start, upstream):
    """A path value stays one segment, a query value one value; the upstream decodes the original value."""
    crib = start({"tools": {
        "in_path": web(upstream.base + "/echo/{{ v }}/end", effect="read", parameters=params(v="string")),
        "in_query": web(upstream.base + "/echo", request={"query": {"q": "{{ v }}", "fixed": "1"}}, effect="read", parameters=params(v="string")),
        "in_json": web(upstream.base + "/echo", "POST", {"json": {"v": "{{ v }}", "s": "<{{ v }}>"}}, effect="read", parameters=params(v="string"))}})
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
def test_dot_segments_are_refused(start, upstream, value):
    """A path value that is `.` or `..`, also after decoding, is never sent. (An empty one would also change the path: either outcome is accepted.)"""
    crib = start({"tools": {"in_path": web(upstream.base + "/echo/{{ v }}/end", effect="read", parameters=params(v="string"))}})
    reply = crib.invoke("in_path", {"v": value})
    if value == "":
        assert reply.status in (200, 400, 422, 502)
        return
    problem(reply, {400, 403, 422, 502})
    assert upstream.hits() == 0


def test_header_value_cannot_inject_a_header(start, upstream):
    crib = start({"tools": {"in_header": web(upstream.base + "/echo", request={"headers": {"x-city": "{{ v }}"}}, effect="read",
                                             parameters=params(v="string"))}})
    assert ok(crib.invoke("in_header", {"v": "Oslo"}))["structured_content"]["headers"]["x-city"] == "Oslo"
    reply = crib.invoke("in_header", {"v": "Oslo\r\nx-evil: 1"})
    if reply.status == 200:
        assert "x-evil" not in reply.json["structured_content"]["headers"]
    else:
        problem(reply, {400, 422, 502})
    assert all("x-evil" not in {name.lower() for name in headers} for _, _, headers, _ in upstream.requests)


def test_lone_placeholder_keeps_its_type(start, upstream):
    crib = start({"tools": {"rows": web(upstream.base + "/echo", "POST", {"json": {"ids": "{{ ids }}", "n": "{{ n }}", "big": "{{ big }}"}},
                                        parameters=params(ids={"type": "array", "items": {"type": "integer"}}, n="number", big="integer"))}})
    answer = ok(crib.invoke("rows", {"ids": [1, 2], "n": 1.5, "big": 9007199254740993}))["structured_content"]
    assert answer["method"] == "POST" and answer["body"] == {"ids": [1, 2], "n": 1.5, "big": 9007199254740993}
    assert answer["headers"]["content-type"].startswith("application/json")


def test_answers_are_typed(start, upstream):
    """JSON is structured, text is text, an image is an image block: never base64 in a text."""
    crib = start({"tools": {name: web(f"{upstream.base}/{name}", effect="read") for name in ("json", "list", "text", "png")}})
    answer = ok(crib.invoke("json"))
    assert answer["structured_content"]["current"] == {"temperature": 22.5}
    assert json.loads(text_of(answer)) == answer["structured_content"]
    assert ok(crib.invoke("list"))["structured_content"] == [1, 2, 3]
    answer = ok(crib.invoke("text"))
    assert text_of(answer) == "plain words, ÆØÅ" and answer["structured_content"] is None
    blocks = [block for block in ok(crib.invoke("png"))["content"] if block["type"] == "image"]
    assert len(blocks) == 1 and blocks[0]["mimeType"] == "image/png" and base64.b64decode(blocks[0]["data"]) == PNG


def test_pick_and_error_when_apply(start, upstream):
    upstream.script("/w", reply_with({"current": {"t": 1}}), reply_with({"error": {"message": "no city Atlantis"}}), reply_with({"other": 1}))
    crib = start({"tools": {"w": web(upstream.base + "/w", effect="read", response={"pick": "/current", "error_when": "/error"})}})
    assert ok(crib.invoke("w"))["structured_content"] == {"t": 1}
    assert "no city Atlantis" in text_of(error_result(crib.invoke("w")))
    reply = crib.invoke("w")  # nothing at the pointer: not a success of nothing
    assert reply.status == 502 or error_result(reply)


def test_not_found_is_an_error_result(start, upstream):
    """A 404 with words is content for the model."""
    crib = start({"tools": {"nf": web(upstream.base + "/notfound", effect="read", retry={"attempts": 3})}})
    assert "no such city: Atlantis" in text_of(error_result(crib.invoke("nf")))
    assert upstream.hits() == 1, "an answer is not tried again"


@pytest.mark.parametrize("path, kind", [("/reset", "upstream_failed"), ("/cut", {"upstream_failed", "bad_output"}),
                                        ("/half", {"bad_output"})])
def test_broken_answers_fail_the_call(start, upstream, path, kind):
    """A reset is upstream_failed; invalid JSON is bad_output."""
    crib = start({"tools": {"x": web(upstream.base + path, effect="write")}})
    error = problem(crib.invoke("x"), 502, kind)
    assert error["source"] in ("tool", "service") and upstream.hits() == 1
    assert crib.row(error["invocation_id"])["state"] in ("failed", "unknown")


@pytest.mark.parametrize("path", ["/hang", "/slow"])
def test_hanging_upstream_times_out(start, upstream, path):
    """No answer, or one that drips: the attempt's timeout covers both."""
    crib = start({"tools": {"x": web(upstream.base + path, effect="read", timeout="500ms")}})
    started = now()
    error = problem(crib.invoke("x"), 504, {"attempt_timed_out", "deadline_exceeded"})
    assert elapsed(started) < 5
    assert crib.row(error["invocation_id"])["state"] == "timed_out"


def test_deadline_covers_all_attempts(start, upstream):
    crib = start({"tools": {"x": web(upstream.base + "/hang", effect="read", timeout="300ms", deadline="700ms", retry={"attempts": 50})}})
    started = now()
    problem(crib.invoke("x"), 504, {"attempt_timed_out", "deadline_exceeded"})
    assert elapsed(started) < 3


def test_refused_connection_is_upstream_failed(start):
    crib = start({"tools": {"x": web(f"http://127.0.0.1:{free_port()}/", effect="read", retry={"attempts": 3})}})
    error = problem(crib.invoke("x"), 502, "upstream_failed")
    assert error["retryable"] is True and crib.row(error["invocation_id"])["attempts"] == 3, "a connect error is tried again"


@pytest.mark.parametrize("path", ["/endless", "/chunks"])
def test_endless_body_is_capped(start, upstream, path):
    """Capped while reading: an answer soon, little memory, and the upstream is let go."""
    crib = start({"tools": {"x": web(upstream.base + path, effect="read", max_output="64KiB")}})
    before, started = crib.rss(), now()
    reply = crib.invoke("x")
    assert elapsed(started) < 10
    assert reply.status in (200, 502) and len(reply.body) < 400_000, reply.status  # cut with a warning, or bad_output
    if reply.status == 502:
        problem(reply, 502, "bad_output")
    assert crib.rss() - before < 64 << 20
    assert upstream.poured < 256 << 20, "the upstream was left running"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(start, upstream, status):
    upstream.script("/go", redirect_to(upstream.base + "/secret", status))
    crib = start({"tools": {"x": web(upstream.base + "/go", effect="read")}})
    reply = crib.invoke("x")
    assert reply.status == 502 or error_result(reply)
    assert upstream.hits("/secret") == 0 and upstream.hits("/go") == 1


# ---- retries -----------------------------------------------------------------------------------------------------------

def test_read_is_retried_after_503(start, upstream):
    """503, 503, 200: one answer, three attempts, both failures in the ledger."""
    url = upstream.script("/flaky", 503, 503, reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 3}, limits=[{"calls": 5, "per": "day"}])}})
    answer = ok(crib.invoke("x"))
    assert answer["meta"]["attempts"] == 3 and upstream.hits() == 3
    assert answer["meta"]["usage"][0]["used"] == 1, "one invocation costs one unit"
    row = crib.row(answer["invocation_id"])
    assert row["attempts"] == 3 and len(row["attempt_errors"]) == 2 and "503" in json.dumps(row["attempt_errors"])


@pytest.mark.parametrize("status", [502, 503, 504, 429])
def test_retried_statuses(start, upstream, status):
    url = upstream.script("/flaky", status, reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="idempotent", retry={"attempts": 2})}})
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2


def test_write_is_not_retried(start, upstream):
    url = upstream.script("/flaky", 503, reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="write", retry={"attempts": 3})}})
    problem(crib.invoke("x"), 502, "upstream_failed")
    assert upstream.hits() == 1


def test_status_500_is_not_retried(start, upstream):
    """500 then 200: not among what is repeated (connect errors, 429, 502-504, timeouts)."""
    url = upstream.script("/flaky", 500, reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 3})}})
    error = problem(crib.invoke("x"), 502, "upstream_failed")
    assert upstream.hits() == 1 and error["source"] == "tool"


def test_no_retry_by_default(start, upstream):
    url = upstream.script("/flaky", 503, reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read")}})
    problem(crib.invoke("x"), 502, "upstream_failed")
    assert upstream.hits() == 1


def test_attempts_are_bounded(start, upstream):
    crib = start({"tools": {"x": web(upstream.script("/down", 503), effect="read", retry={"attempts": 3})}})
    error = problem(crib.invoke("x"), 502, "upstream_failed")
    row = crib.row(error["invocation_id"])
    assert upstream.hits() == 3 and row["attempts"] == 3 and row["state"] == "failed" and row["kind"] == "upstream_failed"


def test_timeouts_are_retried(start, upstream):
    url = upstream.script("/late", "hang", reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", timeout="300ms", retry={"attempts": 2})}})
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2


def test_retry_after_is_honoured(start, upstream):
    url = upstream.script("/busy", busy(1), reply_with({"fine": True}))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 2})}})
    started = now()
    assert ok(crib.invoke("x"))["meta"]["attempts"] == 2
    assert time.monotonic() - started >= 0.95


def test_retry_after_beyond_the_deadline_is_ignored(start, upstream):
    url = upstream.script("/busy", busy(3600))
    crib = start({"tools": {"x": web(url, effect="read", retry={"attempts": 2}, deadline="1s")}})
    started = now()
    reply = crib.invoke("x")
    assert reply.status in (200, 502, 504) and elapsed(started) < 4
    poll(lambda: upstream.hits() == 1, 2, "one request only")
