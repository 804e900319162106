"""Requests nobody should send: each gets a clear problem, and the service goes on."""

import json
import socket
import urllib.parse

import pytest

from harness import now, ok, problem, read_all, spent, status_of, text_of
from recipes import params, sh

DEEP = "[" * 10_000 + "]" * 10_000


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared({"server": {"max_body": "64KiB"}, "tools": {
        "calculator": {"kind": "native"},
        "get_weather": sh("echo sunny", effect="read", parameters=params(city="string"), aliases=["weather"]),
        "anything": sh("echo fine", effect="read", input_schema={"type": "object"}),
    }})


@pytest.fixture(autouse=True)
def still_well(crib):
    """Whatever a test sent, the next call works."""
    yield
    assert "42" in text_of(ok(crib.invoke("calculator", {"expression": "6*7"})))


def send(crib, body, tool="calculator", **more):
    return crib.post(f"/tools/{tool}/invoke", body, **more)


@pytest.mark.parametrize("body", [
    "", "not json", "{", '{"arguments": {"expression": "1"}', "{'arguments': {}}", '{"arguments": {}} trailing',
    '{"arguments": {"expression": NaN}}', b"\xff\xfe", b'{"arguments": {"expression": "\xff"}}',
    '{"arguments": {"expression": "\\ud800"}}'], ids=lambda body: repr(body)[:30])
def test_not_json(crib, body):
    said = problem(send(crib, body), 400, "invalid_request")
    assert said["source"] == "service" and said["retryable"] is False


@pytest.mark.parametrize("body", ["[]", "null", '"text"', "42", "{}", '{"run_id": "r"}', '{"arguments": []}',
                                  '{"arguments": 5}', '{"arguments": true}',
                                  '{"arguments": {"expression": "1"}, "run_id": 5}',
                                  '{"arguments": {"expression": "1"}, "tool_use_id": {}}',
                                  '{"arguments": {"expression": "1"}, "context": "acme"}'])
def test_wrong_shape(crib, body):
    """A body that is no object, no `arguments` (a required key), or fields of the wrong type."""
    problem(send(crib, body), 400, "invalid_request")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                                  "application/jsonx", "text/json"])
def test_wrong_content_type(crib, kind):
    body = '{"arguments": {"expression": "6*7"}}'
    problem(send(crib, body, headers={"content-type": kind}), 415, "invalid_request")


def test_content_type_with_charset(crib):
    ok(send(crib, '{"arguments": {"expression": "6*7"}}', headers={"content-type": "Application/JSON; charset=utf-8"}))


def test_body_at_and_over_the_limit(crib):
    def padded(size):
        frame = '{"arguments": {"expression": "1"}}'
        return frame + " " * (size - len(frame))

    ok(send(crib, padded(64 * 1024)))
    problem(send(crib, padded(64 * 1024 + 1)), 413, "invalid_request")


def test_the_limit_is_a_mebibyte_by_default(start):
    crib = start()
    problem(send(crib, '{"arguments": {"expression": "1"}}' + " " * (1 << 20)), 413, "invalid_request")
    ok(send(crib, '{"arguments": {"expression": "1"}}' + " " * 900_000))


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_body_far_over_the_limit(crib, chunked):
    """10 MB more than allowed: answered 413 without being read to the end, also when no length is told."""
    head = (f"POST /tools/calculator/invoke HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\n")
    head += "Transfer-Encoding: chunked\r\n\r\n" if chunked else "Content-Length: 10000000\r\n\r\n"
    part = b"2710\r\n" + b" " * 10_000 + b"\r\n" if chunked else b" " * 10_000
    with socket.create_connection(("127.0.0.1", crib.port), timeout=20) as sock:
        sock.sendall(head.encode())
        sock.settimeout(0.001)
        answer, sent = b"", 0
        while sent < 1000 and not answer:
            try:
                sock.settimeout(20)
                sock.sendall(part)
                sent += 1
                sock.settimeout(0.001)
                answer = sock.recv(65536)
                if not answer:
                    break
            except socket.timeout:
                continue
            except OSError:
                break
        sock.settimeout(10)
        answer += read_all(sock)
    # A reset may eat the answer of a service that closes while bytes are under way; a wrong answer may not be there.
    assert status_of(answer) in (413, None), answer[:300]
    assert sent < 1000, "the whole body was read"


@pytest.mark.parametrize("body", ['{"arguments": {"a": %s}}' % DEEP, DEEP, '{"arguments": %s}' % json.dumps('{"a": %s}' % DEEP),
                                  '{"a":' * 10_000 + "1" + "}" * 10_000, '{"context": {"a": %s}, "arguments": {}}' % DEEP],
                         ids=["arguments", "top", "string", "objects", "context"])
def test_json_ten_thousand_deep(crib, body):
    started = now()
    # As a string inside valid JSON the nesting may also count as arguments that break the schema.
    problem(send(crib, body, "anything"), {400, 422}, {"invalid_request", "invalid_arguments"})
    assert spent(started) < 3


@pytest.mark.parametrize("body", [
    '{"arguments": {"expression": "1"}, "arguments": {"expression": "2"}}',
    '{"arguments": {"expression": "1", "expression": "2"}}',
    '{"arguments": {"expression": "1", "expr\\u0065ssion": "2"}}',
    '{"arguments": {"a": {"b": [{"c": 1, "c": 2}]}}}',
    '{"arguments": {}, "context": {"tenant": "a", "tenant": "b"}}'])
def test_duplicate_keys(crib, body):
    """At any depth, also when one of them is written with an escape: neither value is believed."""
    said = problem(send(crib, body, "anything"), 400, "invalid_request")
    assert "duplicate" in (said["detail"] + text_of(said)).lower(), said


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 2}}'])
def test_duplicate_keys_in_a_string_of_arguments(crib, text):
    problem(send(crib, json.dumps({"arguments": text}), "anything"), {400, 422}, {"invalid_request", "invalid_arguments"})


@pytest.mark.parametrize("text", ["", "{", '{"expression": "6*7"', "6*7", "null", "[]", '"{}"', '{"expression": "1"} {}'])
def test_arguments_a_broken_string(crib, text):
    """Not repaired, not run. 400 is the plain reading of the table; 422 would also be an answer a model can act on."""
    said = problem(send(crib, json.dumps({"arguments": text})), {400, 422}, {"invalid_request", "invalid_arguments"})
    assert "arguments" in said["detail"] + text_of(said), said


@pytest.mark.parametrize("body", ['{"expression": "6*7"}', '{"arguments": {"expression": "1"}, "expression": "2"}',
                                  '{"arguments": {"expression": "1"}, "Arguments": {}}',
                                  '{"arguments": {"expression": "1"}, "tool": "calculator"}'])
def test_unknown_top_level_field(crib, body):
    """The problem says to wrap it in `arguments`."""
    said = problem(send(crib, body), 400, "invalid_request")
    assert "arguments" in said["detail"] + text_of(said), said


def test_unknown_tool(crib):
    said = problem(send(crib, '{"arguments": {}}', "get_wether"), 404, "unknown_tool")
    assert said["did_you_mean"] == ["get_weather"] and "get_weather" in text_of(said), said
    said = problem(send(crib, '{"arguments": {}}', "zzzzqqqq"), 404, "unknown_tool")
    assert not said.get("did_you_mean"), said
    problem(crib.get("/tools/get_wether"), 404, "unknown_tool")
    problem(crib.post("/tools/get_wether/validate", '{"arguments": {}}'), 404, "unknown_tool")


def test_alias(crib):
    """A declared alias is the tool."""
    answer = ok(send(crib, '{"arguments": {"city": "Oslo"}}', "weather"))
    assert answer["tool"] == "get_weather"


@pytest.mark.parametrize("path", [
    "/tools/..%2f..%2fetc%2fpasswd/invoke", "/tools/%2e%2e/invoke", "/tools/calculator%00/invoke", "/tools/%00/invoke",
    "/tools/calculator%2finvoke/invoke", "/tools/%ff%fe/invoke", "/tools/%0d%0aX-Evil:%201/invoke", "/tools/%20/invoke",
    "/tools/" + urllib.parse.quote("日本" * 40) + "/invoke", "/tools/calculator%25/invoke"])
def test_tool_names_that_are_none(crib, path):
    reply = crib.post(path, '{"arguments": {"expression": "6*7"}}')
    problem(reply, {400, 404}, {"unknown_tool", "invalid_request"})
    assert "x-evil" not in reply.headers and b"root:" not in reply.body


@pytest.mark.parametrize("path", ["/tools/../tools/calculator/invoke", "/tools//invoke", "//tools/calculator/invoke", "/tools/./x/invoke"])
def test_paths_are_taken_as_they_are(crib, path):
    """No normalising: a dot path is no route, or a tool of that name that is not there."""
    head = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: 17\r\n\r\n")
    assert status_of(crib.raw(head.encode() + b'{"arguments": {}}')) in (400, 404, 405)


def test_a_tool_name_of_ten_kilobytes(crib):
    reply = crib.post("/tools/" + "a" * 10_000 + "/invoke", '{"arguments": {}}')
    assert reply.status in (400, 404, 414, 431), reply
    assert len(reply.body) < 4096, "the name is not sent back in full"


def test_unknown_routes_and_methods(crib):
    assert crib.get("/nothing/here").status == 404
    assert crib.get("/tools/calculator/invoke").status == 405
    assert crib.request("BREW", "/tools").status in (400, 405, 501)


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, b"hello\r\n\r\n", b"\0" * 1000,
                                  b"GET / HTTP/9.9\r\n\r\n", b"GET /tools HTTP/1.1\r\n: x\r\n\r\n"],
                         ids=["tls", "word", "zeros", "version", "header"])
def test_what_is_not_http(crib, data):
    assert status_of(crib.raw(data, 15, half_close=True)) in (None, 400, 403, 431, 505)


@pytest.mark.parametrize("query", ["limit=abc", "limit=-1", "state=bogus", "cursor=%00garbage", "since=yesterdayish"])
def test_ledger_filters_that_mean_nothing(crib, query):
    problem(crib.get("/invocations?" + query), 400, "invalid_request")


@pytest.mark.parametrize("name", ["nope", "0199-not-an-id", "%00", "..%2f..", "0" * 5000])
def test_an_unknown_invocation(crib, name):
    assert crib.get("/invocations/" + name).status in (400, 404, 414)


def test_numbers_at_the_edge(crib):
    """Big numbers never become an internal error."""
    for number in ("1e400", "-0", "1" * 400, "0.1e-400", "9007199254740993"):
        reply = send(crib, '{"arguments": {"a": %s}}' % number, "anything")
        assert reply.status in (200, 400, 422), (number, reply)
