"""Requests that no client should send: each gets a clear problem, and the service continues."""

import json
import select
import socket
import urllib.parse

import pytest

from harness import now, ok, problem, read_all, elapsed, status_of, text_of
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
    '{"arguments": {"expression": NaN}}', b"\xff\xfe", b'{"arguments": {"expression": "\xff"}}'], ids=lambda body: repr(body)[:30])
def test_malformed_json_is_refused(crib, body):
    error = problem(send(crib, body), 400, "invalid_request")
    assert error["source"] == "service" and error["retryable"] is False


@pytest.mark.parametrize("body", ["[]", "null", '"text"', "42", "{}", '{"run_id": "r"}', '{"arguments": []}',
                                  '{"arguments": 5}', '{"arguments": true}',
                                  '{"arguments": {"expression": "1"}, "run_id": 5}',
                                  '{"arguments": {"expression": "1"}, "tool_use_id": {}}',
                                  '{"arguments": {"expression": "1"}, "context": "acme"}'])
def test_wrong_body_shape_is_refused(crib, body):
    """A body that is not an object, without `arguments` (a required key), or with fields of the wrong type."""
    problem(send(crib, body), 400, "invalid_request")


@pytest.mark.parametrize("body, says", [
    ("{", "not JSON"), ("[1]", "send an object"), ("{}", "`arguments` is missing"), ('{"arguments": "{"}', "a text that is not JSON"),
    ('{"arguments": {"n": 1, "n": 2}}', "duplicate key `n`"), (json.dumps({"arguments": '{"n": 1, "n": 2}'}), "duplicate key `n`"),
    ('{"arguments": 5}', "not integer"), ('{"arguments": {}, "timeout": 5}', "with a unit"), ('{"arguments": {}, "cache": "sometimes"}', "bypass"),
    ('{"arguments": {}, "page": {"size": 9}}', "detail, offset and limit"), ('{"arguments": %s}' % DEEP, "recursion limit")])
def test_refusal_says_what_is_wrong(crib, body, says):
    assert says in problem(send(crib, body), 400, "invalid_request")["detail"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                                  "application/jsonx", "text/json"])
def test_wrong_content_type_is_refused(crib, kind):
    body = '{"arguments": {"expression": "6*7"}}'
    assert "application/json" in problem(send(crib, body, headers={"content-type": kind}), 415, "invalid_request")["detail"]


def test_content_type_may_have_a_charset(crib):
    ok(send(crib, '{"arguments": {"expression": "6*7"}}', headers={"content-type": "Application/JSON; charset=utf-8"}))


def test_body_limit_is_exact(crib):
    def padded(size):
        frame = '{"arguments": {"expression": "1"}}'
        return frame + " " * (size - len(frame))

    ok(send(crib, padded(64 * 1024)))
    problem(send(crib, padded(64 * 1024 + 1)), 413, "invalid_request")


def test_body_limit_defaults_to_a_mebibyte(start):
    crib = start()
    assert "1.0 MiB" in problem(send(crib, '{"arguments": {"expression": "1"}}' + " " * (1 << 20)), 413, "invalid_request")["detail"]
    ok(send(crib, '{"arguments": {"expression": "1"}}' + " " * 900_000))


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_oversized_body_is_answered_without_reading(crib, chunked):
    """10 MB more than allowed: answered 413 without being read to the end, also without a length."""
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
    # A service that closes while bytes arrive may lose its answer to a reset; a wrong answer is still a fault.
    assert status_of(answer) in (413, None), answer[:300]
    assert sent < 1000, "the whole body was read"


def test_refusal_reaches_a_sending_client(crib):
    """A client that sends its whole body before it reads gets the answer that is already there, not a reset."""
    head = (f"POST /tools/calculator/invoke HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\nContent-Type: text/xml\r\n"
            "Content-Length: 60000\r\n\r\n")
    with socket.create_connection(("127.0.0.1", crib.port), timeout=20) as sock:
        sock.sendall(head.encode())
        assert select.select([sock], [], [], 20)[0], "an answer"
        for _ in range(6):
            sock.sendall(b" " * 10_000)
        assert status_of(read_all(sock)) == 415


@pytest.mark.parametrize("body", ['{"arguments": {"a": %s}}' % DEEP, DEEP, '{"arguments": %s}' % json.dumps('{"a": %s}' % DEEP),
                                  '{"a":' * 10_000 + "1" + "}" * 10_000, '{"context": {"a": %s}, "arguments": {}}' % DEEP],
                         ids=["arguments", "top", "string", "objects", "context"])
def test_json_of_ten_thousand_levels_is_refused(crib, body):
    started = now()
    # As a string inside valid JSON the nesting may also count as arguments that violate the schema.
    problem(send(crib, body, "anything"), {400, 422}, {"invalid_request", "invalid_arguments"})
    assert elapsed(started) < 3


@pytest.mark.parametrize("body", [
    '{"arguments": {"expression": "1"}, "arguments": {"expression": "2"}}',
    '{"arguments": {"expression": "1", "expression": "2"}}',
    '{"arguments": {"expression": "1", "expr\\u0065ssion": "2"}}',
    '{"arguments": {"a": {"b": [{"c": 1, "c": 2}]}}}',
    '{"arguments": {}, "context": {"tenant": "a", "tenant": "b"}}'])
def test_duplicate_keys_are_refused(crib, body):
    """At any depth, also when one of them is written with an escape: neither value is used."""
    error = problem(send(crib, body, "anything"), 400, "invalid_request")
    assert "duplicate" in (error["detail"] + text_of(error)).lower(), error


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 2}}'])
def test_duplicate_keys_in_string_arguments_are_refused(crib, text):
    problem(send(crib, json.dumps({"arguments": text}), "anything"), {400, 422}, {"invalid_request", "invalid_arguments"})


@pytest.mark.parametrize("text", ["", "{", '{"expression": "6*7"', "6*7", "null", "[]", '"{}"', '{"expression": "1"} {}'])
def test_malformed_string_arguments_are_refused(crib, text):
    """Not repaired, not run. 400 is the plain reading of the table; 422 would also be an answer a model can act on."""
    error = problem(send(crib, json.dumps({"arguments": text})), {400, 422}, {"invalid_request", "invalid_arguments"})
    assert "arguments" in error["detail"] + text_of(error), error


@pytest.mark.parametrize("body", ['{"expression": "6*7"}', '{"arguments": {"expression": "1"}, "expression": "2"}',
                                  '{"arguments": {"expression": "1"}, "Arguments": {}}',
                                  '{"arguments": {"expression": "1"}, "tool": "calculator"}'])
def test_unknown_top_level_field_is_refused(crib, body):
    """The problem says to wrap it in `arguments`."""
    error = problem(send(crib, body), 400, "invalid_request")
    assert "arguments" in error["detail"] + text_of(error), error


@pytest.mark.parametrize("field", ["input", "args", "parameters"])
def test_other_names_of_the_arguments_are_explained(crib, field):
    """As other APIs name them. Wrapping the field would be wrong advice."""
    error = problem(send(crib, json.dumps({field: {"expression": "6*7"}})), 400, "invalid_request")
    assert error["detail"] == f"unknown field `{field}`: the field with a tool's arguments is `arguments`", error


def test_unknown_tool_gets_suggestions(crib):
    assert problem(send(crib, '{"arguments": {}}', "calc"), 404, "unknown_tool")["did_you_mean"] == ["calculator"]
    error = problem(send(crib, '{"arguments": {}}', "get_wether"), 404, "unknown_tool")
    assert error["did_you_mean"] == ["get_weather"] and "get_weather" in text_of(error), error
    error = problem(send(crib, '{"arguments": {}}', "zzzzqqqq"), 404, "unknown_tool")
    assert not error.get("did_you_mean"), error
    problem(crib.get("/tools/get_wether"), 404, "unknown_tool")
    problem(crib.post("/tools/get_wether/validate", '{"arguments": {}}'), 404, "unknown_tool")


def test_alias_calls_the_tool(crib):
    """A declared alias is the tool."""
    answer = ok(send(crib, '{"arguments": {"city": "Oslo"}}', "weather"))
    assert answer["tool"] == "get_weather"


@pytest.mark.parametrize("path", [
    "/tools/..%2f..%2fetc%2fpasswd/invoke", "/tools/%2e%2e/invoke", "/tools/calculator%00/invoke", "/tools/%00/invoke",
    "/tools/calculator%2finvoke/invoke", "/tools/%ff%fe/invoke", "/tools/%0d%0aX-Evil:%201/invoke", "/tools/%20/invoke",
    "/tools/" + urllib.parse.quote("日本" * 40) + "/invoke", "/tools/calculator%25/invoke"])
def test_invalid_tool_names_are_refused(crib, path):
    reply = crib.post(path, '{"arguments": {"expression": "6*7"}}')
    problem(reply, {400, 404}, {"unknown_tool", "invalid_request"})
    assert "x-evil" not in reply.headers and b"root:" not in reply.body


@pytest.mark.parametrize("path", ["/tools/../tools/calculator/invoke", "/tools//invoke", "//tools/calculator/invoke", "/tools/./x/invoke"])
def test_paths_are_not_normalized(crib, path):
    """No normalization: a dot path is no route, or an unknown tool of that name."""
    head = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: 17\r\n\r\n")
    assert status_of(crib.raw(head.encode() + b'{"arguments": {}}')) in (400, 404, 405)


def test_long_tool_name_is_not_echoed(crib):
    reply = crib.post("/tools/" + "a" * 10_000 + "/invoke", '{"arguments": {}}')
    assert reply.status in (400, 404, 414, 431), reply
    assert len(reply.body) < 4096, "the name is not sent back in full"


def test_unknown_routes_and_methods_are_refused(crib):
    assert "/docs" in problem(crib.get("/nothing/here"), 404, "invalid_request")["detail"]
    assert "without the `/` at its end" in problem(crib.get("/tools/"), 404)["detail"]
    assert crib.get("/tools/calculator/invoke").status == crib.delete("/tools").status == 405
    assert crib.request("BREW", "/tools").status in (400, 405, 501)


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, b"hello\r\n\r\n", b"\0" * 1000,
                                  b"GET / HTTP/9.9\r\n\r\n", b"GET /tools HTTP/1.1\r\n: x\r\n\r\n"],
                         ids=["tls", "word", "zeros", "version", "header"])
def test_data_other_than_http_is_refused(crib, data):
    assert status_of(crib.raw(data, 15, half_close=True)) in (None, 400, 403, 431, 505)


@pytest.mark.parametrize("query", ["limit=abc", "limit=-1", "limit=0", "tols=x", "state=bogus", "cursor=%00garbage", "since=yesterdayish"])
def test_invalid_ledger_filters_are_refused(crib, query):
    problem(crib.get("/invocations?" + query), 400, "invalid_request")


@pytest.mark.parametrize("name", ["nope", "0199-not-an-id", "%00", "..%2f..", "0" * 5000])
def test_unknown_invocation_is_refused(crib, name):
    assert crib.get("/invocations/" + name).status in (400, 404, 414)


def test_extreme_numbers_never_cause_internal_errors(crib):
    """Big numbers never become an internal error."""
    for number in ("1e400", "-0", "1" * 400, "0.1e-400", "9007199254740993"):
        reply = send(crib, '{"arguments": {"a": %s}}' % number, "anything")
        assert reply.status in (200, 400, 422), (number, reply)
