"""Texts and numbers of other programs: charsets, compression, halves of surrogate pairs, and numbers with many digits. Nothing of
them is lost or changed without a warning."""

import gzip
import json
import zlib

import pytest

from harness import error_result, ok, problem, text_of
from recipes import PYTHON, command, params, py, web

JSON_TYPE = {"content-type": "application/json"}
WEI = 340282366920938463463374607431768211455

SERVER = r'''
import json, sys
REPLIES = {"big": '{"content": [], "structuredContent": {"wei": 340282366920938463463374607431768211455}}',
           "cut": r'{"content": [{"type": "text", "text": "cut \ud83d"}]}'}
LIST = {"tools": [{"name": name, "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}} for name in ["big", "cut", "echo"]]}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"initialize": json.dumps({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}),
              "tools/list": json.dumps(LIST)}.get(message["method"])
    if message["method"] == "tools/call":
        params = message["params"]
        result = REPLIES.get(params["name"]) or json.dumps({"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]})
    answer = '"result": ' + result if result else '"error": {"code": -32601, "message": "no"}'
    print('{"jsonrpc": "2.0", "id": %s, %s}' % (json.dumps(message["id"]), answer), flush=True)
'''


def answer_with(body, kind, status=200, **headers):
    return lambda handler: handler.reply(status, body, kind, **headers)


def fetch(start, upstream, *steps, **policy):
    """Calls a tool once for each step of the upstream; gives the replies."""
    upstream.script("/x", *steps)
    crib = start({"tools": {"x": web(upstream.base + "/x", effect="read", **policy)}})
    return [crib.invoke("x") for _ in steps]


def warnings_of(answer):
    return " ".join(answer["meta"]["warnings"])


@pytest.mark.parametrize("text, kind, charset", [
    ("Größe;5 €\n", "text/csv; charset=windows-1252", "cp1252"),
    ("日本", "text/plain; charset=Shift_JIS", "shift_jis"),
    ("zwölf", "text/plain; charset=utf-16", "utf-16"),
    ("<?xml version='1.0' encoding='ISO-8859-1'?><a>ü</a>", "application/xml", "latin-1"),
    ("<meta charset=koi8-r><p>да", "text/html", "koi8-r"),
    ("mark", "text/plain", "utf-8-sig"),
])
def test_text_is_decoded(start, upstream, text, kind, charset):
    [reply] = fetch(start, upstream, answer_with(text.encode(charset), kind))
    answer = ok(reply)
    assert text_of(answer) == text and answer["meta"]["warnings"] == []


def test_json_in_another_charset_is_read(start, upstream):
    replies = fetch(start, upstream, answer_with('{"a": "ü"}'.encode("latin-1"), "application/json; charset=iso-8859-1"),
                    answer_with('{"a": "ü"}'.encode("utf-16"), "application/json"))
    assert [ok(reply)["structured_content"] for reply in replies] == [{"a": "ü"}] * 2


def test_bytes_that_are_no_text_are_reported(start, upstream):
    broken, unknown, error = fetch(start, upstream, answer_with(b"g\xfcn", "text/plain"), answer_with(b"ok", "text/plain; charset=x-odd"),
                                   answer_with("ungültig".encode("latin-1"), "text/plain; charset=latin1", 400))
    assert text_of(ok(broken)) == "g\ufffdn" and "not UTF-8" in warnings_of(broken.json)
    assert text_of(ok(unknown)) == "ok" and "x-odd" in warnings_of(unknown.json)
    assert text_of(error_result(error)) == "HTTP 400: ungültig"


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", lambda body: zlib.compress(body)[2:-4]),
                                          ("utf-8", bytes), ("identity", bytes)])
def test_compressed_answers_are_read(start, upstream, coding, pack):
    """No request asks for compression, but some servers always compress."""
    good, bad = fetch(start, upstream, answer_with(pack(b'{"a": 1}'), "application/json", **{"content-encoding": coding}),
                      answer_with(pack(b'{"message": "no such user"}'), "application/json", 400, **{"content-encoding": coding}))
    assert ok(good)["structured_content"] == {"a": 1}
    assert "no such user" in text_of(error_result(bad))


def test_documents_tokens_and_models_are_decoded_too(start, upstream):
    """What the service itself asks for, from servers that compress everything, or write UTF-16."""

    def packed(value, charset="utf-8"):
        return answer_with(gzip.compress(json.dumps(value, ensure_ascii=False).encode(charset)), "application/json", content_encoding="gzip")

    document = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "/"}],
                "paths": {"/echo": {"get": {"operationId": "look", "summary": "Schaut nach Größen."}}}}
    said = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Größe 5"}}]}
    upstream.script("/api.json", packed(document, "utf-16"))
    upstream.script("/token", packed({"access_token": "issued-token-0123456789", "token_type": "Bearer"}))
    upstream.script("/v1/chat/completions", packed(said))
    upstream.script("/busy", answer_with("überlastet".encode("latin-1"), "text/plain; charset=latin1", 503))
    auth = {"oauth": {"token_url": upstream.base + "/token", "client_id": "crib", "client_secret": "${env:CLIENT_SECRET}"}}
    agent = {"kind": "agent", "description": "Answers at once.", "effect": "read", "model": {"base_url": upstream.base + "/v1", "name": "m"}}
    crib = start({"openapi": {"shop": {"document": upstream.base + "/api.json", "allow_private": True}},
                  "tools": {"api": web(upstream.base + "/echo", effect="read", auth=auth), "busy": web(upstream.base + "/busy", effect="read"),
                            "agent": agent}}, env={"CLIENT_SECRET": "client-secret-0123456789"}).ready()
    assert crib.get("/tools/look").json["description"] == "Schaut nach Größen."
    ok(crib.invoke("api"))
    assert upstream.requests[-1][2]["authorization"] == "Bearer issued-token-0123456789", upstream.requests[-1]
    assert text_of(ok(crib.invoke("agent", {"task": "x"}))) == "Größe 5"
    row = crib.row(crib.invoke("busy").json["invocation_id"])
    assert "überlastet" in json.dumps(row["attempt_errors"], ensure_ascii=False), row


def test_unreadable_compression_is_refused_in_words(start, upstream):
    good, bad, large = fetch(start, upstream, answer_with(b"\x0b\x02\x80", "application/json", **{"content-encoding": "br"}),
                             answer_with(b"\x0b\x02\x80", "text/plain", 400, **{"content-encoding": "br"}),
                             answer_with(gzip.compress(b"[" + b"1," * 300_000 + b"1]"), "application/json", **{"content-encoding": "gzip"}))
    assert "content-encoding br" in problem(good, 502, "bad_output")["detail"]
    assert "content-encoding br" in text_of(error_result(bad))
    assert "max_output" in problem(large, 502, "bad_output")["detail"], "the cap holds for the decompressed size"


def test_byte_order_marks_and_blank_answers_are_no_error(start, upstream):
    marked, blank = fetch(start, upstream, answer_with(b'\xef\xbb\xbf{"a": 1}', "application/json"), answer_with(b" \r\n", "application/json"))
    assert ok(marked)["structured_content"] == {"a": 1}
    assert ok(blank)["structured_content"] is None
    crib = start({"tools": {"sum": {"kind": "native", "use": "calculator"}}})
    reply = crib.post("/tools/sum/invoke", b'\xef\xbb\xbf{"arguments": {"expression": "1+1"}}', headers=JSON_TYPE)
    assert text_of(ok(reply)) == "2"


def test_every_digit_of_a_result_is_kept(start, upstream):
    body = b'{"wei": 340282366920938463463374607431768211455, "price": 12345678901234567.89, "id": 9007199254740993.0, "pi": 3.14, "php": 59.913330000000002}'
    [reply] = fetch(start, upstream, answer_with(body, "application/json"))
    answer = ok(reply)
    assert answer["structured_content"] == {"wei": str(WEI), "price": "12345678901234567.89", "id": 9007199254740993, "pi": 3.14, "php": 59.91333}
    assert "numbers with more digits" in warnings_of(answer)
    schema = {"type": "object", "properties": {"wei": {"type": "integer"}, "price": {"type": "number"}}}
    [typed] = fetch(start, upstream, answer_with(body, "application/json"), output_schema=schema)
    assert ok(typed)["structured_content"] == answer["structured_content"]
    [wrong] = fetch(start, upstream, answer_with(body, "application/json"), output_schema={"type": "object", "properties": {"wei": {"type": "boolean"}}})
    detail = problem(wrong, 502)["detail"]
    assert detail.startswith("the output violates the output schema: `wei` must be a") and not detail.endswith("."), detail
    [picked] = fetch(start, upstream, answer_with(body, "application/json"), response={"pick": "/wei"})
    assert text_of(ok(picked)) == str(WEI)


def test_program_and_mcp_server_keep_digits_and_texts(start, tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    crib = start({"tools": {"big": py(f"print('{{\"n\": {WEI}}}')", output="json", effect="read"),
                            "cut": py(r"print('{\"t\": \"cut \\ud83d\"}')", output="json", effect="read")},
                  "mcp_servers": {"s": {"command": [PYTHON, "-I", "-S", str(tmp_path / "server.py")], "defaults": {"effect": "read"}}}}).ready()
    assert ok(crib.invoke("big"))["structured_content"] == {"n": str(WEI)}
    assert ok(crib.invoke("cut"))["structured_content"] == {"t": "cut \ufffd"}
    big, cut = ok(crib.invoke("s_big")), ok(crib.invoke("s_cut"))
    assert big["structured_content"] == {"wei": str(WEI)} and "more digits" in warnings_of(big)
    assert text_of(cut) == "cut \ufffd" and "surrogate pair" in warnings_of(cut)
    whole = crib.post("/tools/s_echo/invoke", b'{"arguments": {"n": 5.0}}', headers=JSON_TYPE)
    assert text_of(ok(whole)) == '{"n": 5}'


def test_half_of_a_surrogate_pair_refuses_nothing(start):
    crib = start({"tools": {"cat": command(["/bin/cat"], output="text", effect="read", parameters=params(t="string")),
                            "sum": {"kind": "native", "use": "calculator"}}})
    for body in [rb'{"arguments": {"t": "cut \ud83d"}}', rb'{"arguments": "{\"t\": \"cut \\ud83d\"}"}']:
        answer = ok(crib.post("/tools/cat/invoke", body, headers=JSON_TYPE))
        assert json.loads(text_of(answer)) == {"t": "cut \ufffd"} and "surrogate pair" in warnings_of(answer)
    call = rb'{"id": "c", "type": "function", "function": {"name": "sum", "arguments": "{\"expression\": \"1+1\"}"}}'
    reply = crib.post("/calls", rb'{"role": "assistant", "content": "cut \ud83d", "tool_calls": [' + call + b"]}", headers=JSON_TYPE)
    assert reply.status == 200 and reply.json["messages"][0]["content"] == "2"
    assert "surrogate pair" in " ".join(reply.json["warnings"])


def test_whole_numbers_reach_a_tool_as_integers(start, upstream):
    crib = start({"tools": {
        "url": web(upstream.base + "/echo/{{ n }}", request={"query": {"n": "{{ n }}"}}, effect="read", parameters=params(n="integer")),
        "argv": command(["/bin/echo", "--n={{ n }}"], effect="read", parameters=params(n="integer")),
        "input": command(["/bin/cat"], output="text", effect="read", parameters=params(n="integer", any="number")),
    }})
    for text, whole in [("5.0", 5), ("1e3", 1000), ("9007199254740993.0", 9007199254740993)]:
        body = b'{"arguments": {"n": %s}}' % text.encode()
        echoed = ok(crib.post("/tools/url/invoke", body, headers=JSON_TYPE))["structured_content"]
        assert (echoed["path"], echoed["query"]) == (f"/echo/{whole}", f"n={whole}")
        assert text_of(ok(crib.post("/tools/argv/invoke", body, headers=JSON_TYPE))) == f"--n={whole}"
    answer = ok(crib.post("/tools/input/invoke", b'{"arguments": {"n": "7.0", "any": 5.0}}', headers=JSON_TYPE))
    assert text_of(answer) == '{"n":7,"any":5.0}', "any number stays as it was written"


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "12345678901234567.89", "18446744073709551617.0", "1e400"])
def test_argument_that_would_change_is_refused(start, number):
    crib = start({"tools": {"cat": command(["/bin/cat"], output="text", effect="read", parameters=params(n="number"))}})
    reply = crib.post("/tools/cat/invoke", b'{"arguments": {"n": %s}}' % number.encode(), headers=JSON_TYPE)
    assert "would be changed; send it as a text" in problem(reply, 400)["detail"]
