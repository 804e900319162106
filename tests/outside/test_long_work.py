"""Work that takes long shows itself: events while a call runs, and calls that go on by themselves, to be looked up."""

import json
import re
import socket
import time

from harness import children, later, now, ok, parallel, poll, problem, processes, shape, spent, status_of, text_of
from recipes import CALLERS, KEYS, py, sh
from test_cancel import ENDED, family
from test_lifecycle import invoke_bytes

EVENTS = {"accept": "text/event-stream"}
ASYNC = {"prefer": "respond-async"}


class Stream:
    """An open answer of events, read off a raw socket as it comes."""

    def __init__(self, crib, tool, headers=None, buffer=None, **top_level):
        body = json.dumps(dict({"arguments": {}}, **top_level)).encode()
        fields = {"host": f"127.0.0.1:{crib.port}", "content-type": "application/json", "content-length": len(body), **EVENTS,
                  **(headers or {})}
        self.sock = socket.socket()
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.settimeout(60)
        self.sock.connect(("127.0.0.1", crib.port))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.sock.sendall(f"POST /tools/{tool}/invoke HTTP/1.1\r\n{head}\r\n".encode() + body)
        self.data, self.text = b"", ""

    def head(self):
        while b"\r\n\r\n" not in self.data:
            self._more()
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head.lower(), head
        return status_of(head), dict(re.findall(r"^([\w-]+): (.*?)\r?$", head.decode().lower(), re.M))

    def _more(self):
        part = self.sock.recv(65536)
        if not part:
            raise EOFError("closed in the middle")
        self.data += part

    def block(self):
        """The next (event, data); a comment is (None, its text); None at the end of the body."""
        while "\n\n" not in self.text:
            while b"\r\n" not in self.data:
                self._more()
            size, _, rest = self.data.partition(b"\r\n")
            length = int(size, 16)
            while len(self.data) < len(size) + length + 4:
                self._more()
            chunk = self.data[len(size) + 2:len(size) + 2 + length]
            self.data = self.data[len(size) + length + 4:]
            if not length:
                return None
            self.text += chunk.decode()
        block, _, self.text = self.text.partition("\n\n")
        if block.startswith(":"):
            return None, block[1:].strip()
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        return lines["event"], json.loads(lines["data"])

    def result(self):
        """The result and what was told before it."""
        told = []
        while True:
            event, data = self.block()
            if event == "result":
                assert self.block() is None, "the result is the last"
                return data, told
            if event:
                told.append(data)

    def close(self):
        self.sock.close()


def opened(crib, tool, **more):
    stream = Stream(crib, tool, **more)
    status, headers = stream.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream"), headers
    assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no", headers
    return stream


def accepted(reply, state="running"):
    assert reply.status == 202, reply
    said = reply.json
    assert reply.headers["location"] == "/invocations/" + said["invocation_id"], reply
    assert reply.headers["preference-applied"] == "respond-async" and said["state"] == state, reply
    return said["invocation_id"]


def ended(crib, invocation, key=None, seconds=10):
    return poll(lambda: (lambda row: row if row["state"] in ENDED else None)(crib.row(invocation, key=key)), seconds, "its end")


def test_lines_come_while_the_program_runs_and_the_result_is_the_answer(start):
    crib = start({"tools": {"build": sh("echo step 1 >&2; /bin/sleep 0.7; printf '\\033[31mstep 2\\033[0m\\n' >&2; /bin/sleep 0.7; echo built",
                                        effect="read")}})
    began = now()
    stream = opened(crib, "build", tool_use_id="call_1")
    event, first = stream.block()
    at_first = time.monotonic() - began
    assert event == "progress" and first["data"] == {"stderr": "step 1"}, first
    assert (first["tool"], first["tool_use_id"], set(first)) == ("build", "call_1", {"invocation_id", "tool_use_id", "tool", "data"})
    assert crib.row(first["invocation_id"])["state"] == "running"
    event, second = stream.block()
    at_second = time.monotonic() - began
    assert second["data"] == {"stderr": "step 2"}
    result, told = stream.result()
    assert not told and text_of(shape(result)) == "built" and result["invocation_id"] == first["invocation_id"]
    assert at_first < 0.5 and 0.6 < at_second < 1.3, (at_first, at_second)
    assert crib.row(result["invocation_id"])["result"] == result
    stream.close()


def test_what_is_refused_is_a_plain_problem_and_what_failed_is_the_result(start):
    crib = start({"tools": {"x": sh("exit 3", effect="read", input_schema={"type": "object", "properties": {"n": {"type": "integer"}},
                                                                          "additionalProperties": False}),
                            "late": sh("exec /bin/sleep 5", effect="read", timeout="200ms"),
                            "one": sh("echo 1", effect="read", limits=[{"calls": 1, "per": "lifetime"}]),
                            "gone": {"kind": "command", "description": "A program that is not there.", "effect": "read",
                                     "parameters": {}, "command": ["/no/such/program"]}}})
    for headers in (EVENTS, ASYNC):
        problem(crib.invoke("nobody", headers=headers), 404, "unknown_tool")
        problem(crib.post("/tools/x/invoke", "{", headers=headers), 400, "invalid_request")
        problem(crib.invoke("x", {"n": "many"}, headers=headers), 422, "invalid_arguments")
    ok(crib.invoke("one"))
    problem(crib.invoke("one", headers=EVENTS), 429, "usage_limit_reached")
    result, _ = opened(crib, "x").result()
    assert shape(result)["is_error"] is True
    for tool, status, kind in (("late", 504, "attempt_timed_out"), ("gone", 502, "upstream_failed")):
        result, _ = opened(crib, tool).result()
        assert (result["status"], result["kind"]) == (status, kind), result
        assert crib.row(result["invocation_id"])["result"] == result


def test_who_leaves_the_stream_leaves_the_call(start, mark, tmp_path):
    ran = tmp_path / "ran"
    crib = start({"tools": {"family": py("import sys; print('begun', file=sys.stderr, flush=True)\n" + family(mark), effect="read", timeout="60s"),
                            "write": sh(f"echo begun >&2; /bin/sleep 1; echo done | tee -a {ran}", effect="write")}})
    stream = opened(crib, "family")
    invocation = stream.block()[1]["invocation_id"]
    poll(lambda: len(processes(mark)) >= 5, 10, "the whole family")
    stream.close()
    poll(lambda: not processes(mark), 1, "the whole family dead within a second")
    row = ended(crib, invocation)
    assert (row["state"], row["kind"], row["attempts"]) == ("cancelled", "cancelled", 1), row
    stream = opened(crib, "write")
    invocation = stream.block()[1]["invocation_id"]
    stream.close()
    row = ended(crib, invocation)
    assert row["state"] == "succeeded" and text_of(row["result"]) == "done" and ran.read_text() == "done\n"


def test_a_call_that_is_cancelled_says_so_in_its_stream(start, mark):
    crib = start({"tools": {"x": sh(f"echo begun >&2; exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    stream = opened(crib, "x")
    invocation = stream.block()[1]["invocation_id"]
    row = crib.delete(f"/invocations/{invocation}").json
    result, _ = stream.result()
    assert (result["status"], result["kind"]) == (499, "cancelled") and row["result"] == result
    poll(lambda: not processes(mark), 1, "it is dead")


def test_a_heartbeat_every_fifteen_seconds(start):
    crib = start({"tools": {"x": sh("/bin/sleep 17; echo done", effect="read", timeout="60s")}})
    stream = opened(crib, "x")
    began = now()
    assert stream.block() == (None, "heartbeat")
    assert 14 < time.monotonic() - began and spent(began) < 16.5
    assert text_of(stream.result()[0]) == "done"


def test_a_flood_of_lines_is_thinned_out_and_slows_nothing_down(start):
    """A program that writes 200,000 lines takes about as long with a listener as without, and the listener gets the last."""
    flood = "import sys\nfor n in range(200_000): print('line', n, file=sys.stderr)\nprint('done')"
    crib = start({"tools": {"x": py(flood, effect="read", timeout="60s")}})

    def timed(work):
        began = now()
        work()
        return time.monotonic() - began

    alone = min(timed(lambda: ok(crib.invoke("x"))) for _ in range(2))
    began = now()
    result, told = opened(crib, "x").result()
    heard = time.monotonic() - began
    print(f"alone {alone:.2f} s, with a listener {heard:.2f} s, {len(told)} lines")
    assert text_of(result) == "done" and told[-1]["data"] == {"stderr": "line 199999"}
    assert len(told) + sum(one.get("missed", 0) for one in told) == 200_000
    assert len(told) <= 50 * (heard + 2) and heard < 3 * alone + 0.5


def test_who_does_not_read_is_cut_and_the_call_with_it(start, mark):
    """Thirty seconds after nothing more could be written; a call whose caller must not leave ends by itself all the same."""
    chatty = f"import sys\nwhile True: print('{mark}' + 'x' * 8000, file=sys.stderr)"
    crib = start({"tools": {"x": py(chatty, effect="read", timeout="5m")}})
    stream = Stream(crib, "x", buffer=4096)
    stream.head()
    invocation = poll(lambda: crib.rows("state=running"), 5, "it runs")[0]["invocation_id"]
    began = now()
    row = ended(crib, invocation, seconds=100)
    took = time.monotonic() - began
    print(f"cut after {took:.0f} s, {crib.rss() >> 20} MiB")
    assert took > 25 and (row["state"], row["kind"]) == ("cancelled", "cancelled"), row
    poll(lambda: not processes(mark), 2, "it is dead")
    assert crib.rss() < 200 << 20


def test_secrets_leave_what_is_told(start, tmp_path):
    """Also line by line, when the secret has several."""
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n")
    tool = sh('echo "token $TOKEN in clear" >&2; printf "a\\033[0m%s\\n" "$TOKEN" >&2; echo "$KEY" >&2; echo done', effect="read",
              environment={"TOKEN": "${env:TOKEN}", "KEY": f"${{file:{key}}}"})
    crib = start({"tools": {"x": tool}}, env={"TOKEN": "tok-0123456789abcdef"})
    result, told = opened(crib, "x").result()
    assert text_of(result) == "done"
    assert [one["data"]["stderr"] for one in told] == [
        "token [redacted] in clear", "a[redacted]", "-----BEGIN PRIVATE KEY-----", "[redacted]", "[redacted]", "-----END PRIVATE KEY-----"]


def test_a_stop_ends_open_streams_with_a_result(start, mark):
    """What is done in time is answered, what is not is cancelled; both are told on their streams, and the service ends in time."""
    crib = start({"server": {"drain": "2s"}, "tools": {
        "soon": sh("echo begun >&2; /bin/sleep 1; echo done", effect="read"),
        "never": sh(f"echo begun >&2; exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    soon, never = opened(crib, "soon"), opened(crib, "never")
    assert [stream.block()[0] for stream in (soon, never)] == ["progress", "progress"]
    began = now()
    crib.terminate()
    poll(lambda: crib.get("/readyz").status == 503, 1, "not ready")
    refused = Stream(crib, "soon")
    assert status_of(refused.sock.recv(65536)) == 503, "a plain answer"
    results = [later(stream.result) for stream in (soon, never)]
    (done, _), (cancelled, _) = (result() for result in results)
    assert text_of(done) == "done" and (cancelled["status"], cancelled["kind"]) == (499, "cancelled")
    crib.stop(within=6)
    assert 2 <= time.monotonic() - began and spent(began) < 5
    assert not processes(mark)


def test_a_stream_is_a_request_under_way(start, mark):
    """It is not closed for newcomers, which are told that all places are taken; and it ends with a result when the service does."""
    tool = sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s", concurrency={"max": 1, "queue": 64, "wait": "60s"})
    crib = start({"server": {"drain": "1s"}, "tools": {"x": tool}}, within=["/bin/sh", "-c", 'ulimit -n 64; "$0" "$@"; exit $?'])
    streams = [Stream(crib, "x") for _ in range(32)]
    for stream in streams:
        assert stream.head()[0] == 200, "also those that wait for a place"
    for _ in range(20):
        problem(crib.invoke("x"), 503, "overloaded")
        assert crib.get("/livez").status == 200
    results = [later(stream.result) for stream in streams]
    crib.stop(within=6)
    assert {result()[0]["kind"] for result in results} == {"cancelled"}


def test_a_call_goes_on_by_itself_and_is_looked_up(start):
    crib = start({"callers": CALLERS, "tools": {"slow": sh("/bin/sleep 1; echo done", effect="read"), "quick": {"kind": "native", "use": "calculator"}}},
                 env=KEYS)
    ann, bob = KEYS["ANN"], KEYS["BOB"]
    began = now()
    reply = crib.invoke("slow", key=ann, headers=ASYNC, tool_use_id="call_1", run_id="r-1")
    assert spent(began) < 0.6, "at once"
    invocation = accepted(reply)
    assert reply.json == {"invocation_id": invocation, "tool": "slow", "tool_use_id": "call_1", "state": "running"}
    row = crib.row(invocation, key=ann)
    assert (row["state"], row["run_id"], row["result"]) == ("running", "r-1", None), row
    problem(crib.get(f"/invocations/{invocation}", key=bob), 404, "invalid_request")
    row = ended(crib, invocation, key=ann)
    assert row["state"] == "succeeded" and text_of(shape(row["result"])) == "done" and row["result"]["tool_use_id"] == "call_1"
    # What is done at once is looked up too; what is done within the time that the caller would wait is answered itself.
    reply = crib.invoke("quick", {"expression": "6*7"}, key=ann, headers=ASYNC)
    assert reply.json["state"] == "succeeded"
    assert text_of(shape(crib.row(accepted(reply, "succeeded"), key=ann)["result"])) == "42"
    reply = crib.invoke("quick", {"expression": "6*7"}, key=ann, headers={"prefer": "respond-async, wait=1"})
    assert text_of(ok(reply)) == "42" and "preference-applied" not in reply.headers
    assert text_of(ok(crib.invoke("slow", key=ann, headers={"prefer": 'respond-async, wait="5"'}))) == "done"
    began = now()
    accepted(crib.invoke("slow", key=ann, headers={"prefer": "handling=strict; a=1, RESPOND-ASYNC;q=1, wait=0"}))
    assert spent(began) < 0.6
    assert text_of(ok(crib.invoke("slow", key=ann, headers={"prefer": "wait=0, x=\"respond-async\""}))) == "done"


def test_a_call_that_goes_on_is_not_ended_by_leaving_but_by_delete(start, mark):
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    invocation = accepted(crib.invoke("x", headers=ASYNC))  # on a connection that is closed by now
    with socket.create_connection(("127.0.0.1", crib.port)) as sock:  # this one leaves before it is told anything
        sock.sendall(invoke_bytes(crib, "x").replace(b"\r\n\r\n", b"\r\nPrefer: respond-async, wait=60\r\n\r\n"))
        poll(lambda: len(processes(mark)) == 2, 5, "both run")
    time.sleep(0.5)
    assert len(processes(mark)) == 2
    for row in crib.rows("state=running"):
        assert crib.delete("/invocations/" + row["invocation_id"]).json["state"] == "cancelled"
    poll(lambda: not processes(mark), 1, "both are dead")
    assert crib.row(invocation)["kind"] == "cancelled"


def test_asking_again_under_a_key(start, tmp_path):
    ran = tmp_path / "ran"
    crib = start({"tools": {"x": sh(f"echo x >> {ran}; /bin/sleep 0.7; echo done", effect="write")}})
    key = {"idempotency-key": "k-1"}
    invocation = accepted(crib.invoke("x", headers={**ASYNC, **key}))
    for way in ({}, ASYNC, EVENTS):
        said = problem(crib.invoke("x", headers={**way, **key}), 409, "idempotency_in_progress")
        assert said["invocation_id"] == invocation
    answer = ended(crib, invocation)["result"]
    again = crib.invoke("x", headers={**ASYNC, **key})
    assert again.headers["idempotent-replayed"] == "true" and again.json == answer
    streamed = crib.invoke("x", headers={**EVENTS, **key})
    assert streamed.headers["idempotent-replayed"] == "true"
    assert streamed.body == b"event: result\ndata: " + again.body + b"\n\n"
    assert ran.read_text() == "x\n"


def test_bounds_hold_for_calls_that_go_on(start, mark):
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s",
                                    concurrency={"max": 2, "queue": 1, "wait": "500ms"}, limits=[{"calls": 100, "per": "day"}])}})
    replies = parallel(8, lambda _: crib.invoke("x", headers=ASYNC))
    running = [accepted(reply) for reply in replies if reply.status == 202]
    assert len(running) == 2, [reply.status for reply in replies]
    for reply in replies:
        if reply.status != 202:
            problem(reply, 503, "overloaded")
    assert crib.usage("x")[0]["used"] == 2 and len(processes(mark)) == 2
    for invocation in running:
        crib.delete(f"/invocations/{invocation}")


def test_a_call_that_was_accepted_is_found_after_kill_nine(start, mark):
    """Though it is a read without limit and key: it was on record before the 202."""
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s", idempotency="off")}})
    invocations = [accepted(crib.invoke("x", headers=ASYNC)) for _ in range(3)]
    crib.kill9()
    crib.start()
    assert {crib.row(invocation)["state"] for invocation in invocations} == {"unknown"}


def test_a_stop_waits_for_calls_that_go_on(start, mark):
    crib = start({"server": {"drain": "3s"}, "tools": {"soon": sh("/bin/sleep 1; echo done", effect="read"),
                                                       "never": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    soon, never = (accepted(crib.invoke(tool, headers=ASYNC)) for tool in ("soon", "never"))
    crib.restart()
    assert text_of(crib.row(soon)["result"]) == "done"
    assert crib.row(never)["state"] == "cancelled" and not processes(mark)


def test_nothing_is_left_of_two_hundred_streams(start, mark):
    """Some read to the end, some leave: the places, the processes and the connections are free again."""
    crib = start({"tools": {"x": sh(f"echo begun >&2; exec /bin/sleep 0.2 0.{mark[:3]}", effect="read",
                                    concurrency={"max": 8, "queue": 256, "wait": "30s"})}})

    def one(n):
        stream = Stream(crib, "x")
        if n % 3 == 0:
            stream.close()
            return
        assert stream.head()[0] == 200
        if n % 3 == 1:
            stream.block()
            stream.close()
        else:
            shape(stream.result()[0])
            stream.close()

    parallel(200, one)
    poll(lambda: not crib.rows("state=running"), 20, "all have ended")
    rows = crib.all_rows()
    # A request whose sender has left before it was looked at never was a call.
    assert 133 <= len(rows) <= 200 and {row["state"] for row in rows} <= {"succeeded", "cancelled"}
    poll(lambda: not children(crib.process.pid), 5, "no process is left")
    ok(crib.invoke("x"))
