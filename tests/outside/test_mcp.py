"""The MCP server at /mcp over real sockets: streams that stay open, and what becomes of them."""

import http.client
import json
import socket
import threading
import time

from harness import in_background, lines_in, now, poll, read_all, elapsed
from recipes import module, sh

BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"


def send(crib, body=None, method="POST", path="/mcp", **headers):
    """A request whose answer is read as it arrives."""
    link = http.client.HTTPConnection("127.0.0.1", crib.port, timeout=30)
    fields = {"accept": BOTH, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body is not None:
        fields["content-type"] = "application/json"
    link.request(method, path, json.dumps(body) if body is not None else None, fields)
    return link.getresponse()


def messages_of(reply):
    """The messages of an answer, to its end."""
    text = reply.read().decode()
    if reply.headers["content-type"].startswith("application/json"):
        return [json.loads(text)]
    data = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in data if line]


def rpc(method, params, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def open_session(crib, version="2025-11-25"):
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    reply = send(crib, rpc("initialize", params))
    assert messages_of(reply)[-1]["result"]["protocolVersion"] == version
    fields = {"mcp_session_id": reply.headers["mcp-session-id"], "mcp_protocol_version": version}
    assert send(crib, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **fields).status == 202
    return fields


def stateless_call(crib, method, params, **headers):
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}, **params.pop("_meta", {})}
    return send(crib, rpc(method, {**params, "_meta": meta}), mcp_protocol_version=MODERN, mcp_method=method, **headers)


def test_sigterm_answers_calls_then_ends_streams(start, tmp_path):
    ran = tmp_path / "ran"
    crib = start({"tools": {"slow": sh(f"echo begun >> {ran}; /bin/sleep 2; echo done", effect="write")}})
    session = open_session(crib)
    streams = [send(crib, method="GET", **session) for _ in range(3)]
    streams.append(stateless_call(crib, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    assert [stream.status for stream in streams] == [200] * 4
    call = {"name": "slow", "arguments": {}}
    answers = [in_background(lambda: messages_of(send(crib, rpc("tools/call", call, id=7), **session))),
               in_background(lambda: messages_of(stateless_call(crib, "tools/call", dict(call), mcp_name="slow"))),
               in_background(lambda: messages_of(stateless_call(crib, "tools/call", {**call, "_meta": {"progressToken": 1}}, mcp_name="slow")))]
    poll(lambda: lines_in(ran) == 3, 10, "they run")
    began = now()
    crib.terminate()
    for answer in answers:
        assert answer()[-1]["result"]["content"][0]["text"].strip() == "done"
    for stream in streams:
        stream.read()
    crib.stop()
    assert elapsed(began) < 5, "open streams keep nobody waiting"
    crib.start()
    assert not crib.rows("state=unknown")


TALKER = """
from toolcrib import tool

@tool
def talk():
    \"\"\"Tells more than a client takes at once.\"\"\"
    for n in range(600):
        yield {"n": n, "words": ["x" * 3000] * 4}
    yield "done"
"""


def test_slow_reader_gets_its_answer_after_sigterm(start, tmp_path):
    """The call has ended, but its messages have not all been sent: the client has the second that every answer has."""
    file = tmp_path / "talker.py"
    file.write_text(TALKER)
    crib = start({"python_modules": {"t": module(file)}}).ready()
    session = open_session(crib)
    call = {"name": "talk", "arguments": {}, "_meta": {"progressToken": 1}}
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    wires = []
    for fields, params in [
        ({"mcp-session-id": session["mcp_session_id"], "mcp-protocol-version": "2025-11-25"}, call),
        ({"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "talk"},
         {**call, "_meta": {**meta, **call["_meta"]}}),
    ]:
        body = json.dumps(rpc("tools/call", params, id=7))
        head = {"host": f"127.0.0.1:{crib.port}", "accept": BOTH, "content-type": "application/json", "content-length": len(body), **fields}
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        wire.settimeout(10)
        wire.connect(("127.0.0.1", crib.port))
        wire.sendall(("POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + "\r\n" + body).encode())
        wires.append(wire)
    poll(lambda: len(crib.rows("state=succeeded")) == 2, 20, "both calls have ended")
    crib.terminate()
    time.sleep(0.4)
    answers = [in_background(lambda wire=wire: read_all(wire)) for wire in wires]
    for answer in answers:
        text = answer()
        assert b'"text":"done"' in text and text.endswith(b"0\r\n\r\n"), text[-300:]
    crib.stop()


def test_unread_stream_takes_no_memory(start):
    """A hundred changes of the list, and a client that reads none of them."""
    tool = {"kind": "http", "effect": "read", "parameters": {}, "request": {"url": "https://api.example.com/"}}
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    session = open_session(crib)
    stream = send(crib, method="GET", **session)
    for turn in range(50):
        assert crib.request("PUT", "/tools/comes", json.dumps({**tool, "description": f"d{turn}"})).status in (200, 201)
        assert crib.request("DELETE", "/tools/comes").status in (200, 204)
    answer = messages_of(send(crib, rpc("tools/call", {"name": "calculator", "arguments": {"expression": "6*7"}}), **session))
    assert answer[-1]["result"]["content"][0]["text"] == "42"
    assert send(crib, method="DELETE", **session).status == 204
    changed = [message["method"] for message in messages_of(stream)]
    assert changed and set(changed) == {"notifications/tools/list_changed"}


def test_many_sessions_work_in_parallel(start):
    crib = start({"tools": {"calculator": {"kind": "native", "cache": {"ttl": "1m"}}}})
    wrong = []

    def work(n):
        session = open_session(crib)
        for turn in range(20):
            call = rpc("tools/call", {"name": "calculator", "arguments": {"expression": f"{n}*1000+{turn}"}}, id=turn)
            answer = messages_of(send(crib, call, **session))[-1]
            if answer.get("id") != turn or answer["result"]["content"][0]["text"] != str(n * 1000 + turn):
                wrong.append((n, turn, answer))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, wrong[:3]


def test_tag_gives_the_client_a_part_of_the_tools(start):
    tools = {"sum": {"kind": "native", "use": "calculator", "tags": ["math", "x y"]}, "other": {"kind": "native", "use": "calculator"}}
    crib = start({"tools": tools})
    names = lambda reply: [tool["name"] for tool in messages_of(reply)[-1]["result"]["tools"]]
    assert names(stateless_call(crib, "tools/list", {})) == ["other", "sum"]
    for path in ("/mcp?tag=math", "/mcp?tag=x%20y"):
        assert names(stateless_call(crib, "tools/list", {}, path=path)) == ["sum"]
    assert names(stateless_call(crib, "tools/list", {}, path="/mcp?tag=later")) == [], "a source may bring such tools later"
    session = open_session(crib)
    assert names(send(crib, rpc("tools/list", {}), path="/mcp?tag=math", **session)) == ["sum"]
    call = {"name": "other", "arguments": {"expression": "6*7"}}
    for meta in ({}, {"_meta": {"progressToken": 1}}):
        refused = messages_of(stateless_call(crib, "tools/call", {**call, **meta}, path="/mcp?tag=math", mcp_name="other"))[-1]
        assert refused["error"]["code"] == -32602, refused
    assert messages_of(send(crib, rpc("tools/call", call), path="/mcp?tag=math", **session))[-1]["error"]["code"] == -32602
    wrong = send(crib, rpc("tools/list", {}), path="/mcp?tags=math", **session)
    assert wrong.status == 400 and "did you mean `tag`" in json.loads(wrong.read())["detail"]
