"""Work that takes long shows itself: events while a call runs, and calls that go on by themselves, to be looked up."""

import socket
import time

from harness import children, in_background, now, ok, parallel, poll, problem, processes, assert_answer_shape, elapsed, status_of, text_of
from recipes import CALLERS, KEYS, py, sh, web
from streams import EVENTS, Stream, open_stream
from test_cancel import ENDED, family_script
from test_lifecycle import invoke_bytes

ASYNC = {"prefer": "respond-async"}


def accepted_id(reply, state="running"):
    assert reply.status == 202, reply
    output = reply.json
    assert reply.headers["location"] == "/invocations/" + output["invocation_id"], reply
    assert reply.headers["preference-applied"] == "respond-async" and output["state"] == state, reply
    return output["invocation_id"]


def wait_until_ended(crib, invocation, key=None, seconds=10):
    return poll(lambda: (lambda row: row if row["state"] in ENDED else None)(crib.row(invocation, key=key)), seconds, "its end")


def test_progress_lines_precede_the_result(start):
    crib = start({"tools": {"build": sh("echo step 1 >&2; /bin/sleep 0.7; printf '\\033[31mstep 2\\033[0m\\n' >&2; /bin/sleep 0.7; echo built",
                                        effect="read")}})
    began = now()
    stream = open_stream(crib, "build", tool_use_id="call_1")
    event, first = stream.next_block()
    at_first = time.monotonic() - began
    assert event == "progress" and first["data"] == {"stderr": "step 1"}, first
    assert (first["tool"], first["tool_use_id"], set(first)) == ("build", "call_1", {"invocation_id", "tool_use_id", "tool", "data"})
    assert crib.row(first["invocation_id"])["state"] == "running"
    event, second = stream.next_block()
    at_second = time.monotonic() - began
    assert second["data"] == {"stderr": "step 2"}
    result, reported = stream.result()
    assert not reported and text_of(assert_answer_shape(result)) == "built" and result["invocation_id"] == first["invocation_id"]
    assert at_first < 0.5 and 0.6 < at_second < 1.3, (at_first, at_second)
    assert crib.row(result["invocation_id"])["result"] == result
    stream.close()


def test_refusal_is_problem_and_failure_result(start, upstream):
    crib = start({"tools": {"x": sh("exit 3", effect="read", input_schema={"type": "object", "properties": {"n": {"type": "integer"}},
                                                                          "additionalProperties": False}),
                            "late": sh("exec /bin/sleep 5", effect="read", timeout="200ms"),
                            "one": sh("echo 1", effect="read", limits=[{"calls": 1, "per": "lifetime"}]), "off": sh("echo 1", enabled=False),
                            "sad": web(upstream.script("/sad", 500), "POST", effect="write"),
                            "gone": {"kind": "command", "description": "A program that is not there.", "effect": "read",
                                     "parameters": {}, "command": ["/no/such/program"]}}})
    for headers in (EVENTS, ASYNC):
        problem(crib.invoke("nobody", headers=headers), 404, "unknown_tool")
        problem(crib.post("/tools/x/invoke", "{", headers=headers), 400, "invalid_request")
        problem(crib.invoke("x", {"n": "many"}, headers=headers), 422, "invalid_arguments")
        problem(crib.invoke("off", headers=headers), 403, "tool_disabled")
    ok(crib.invoke("one"))
    for headers in (EVENTS, ASYNC):
        problem(crib.invoke("one", headers=headers), 429, "usage_limit_reached")
    result, _ = open_stream(crib, "x").result()
    assert assert_answer_shape(result)["is_error"] is True
    for tool, status, kind in (("late", 504, "attempt_timed_out"), ("gone", 502, "upstream_failed")):
        result, _ = open_stream(crib, tool).result()
        assert (result["status"], result["kind"]) == (status, kind), result
        assert crib.row(result["invocation_id"])["result"] == result
    streamed, replayed = (crib.invoke("sad", headers={**EVENTS, "idempotency-key": "k-1"}) for _ in range(2))
    assert (replayed.status, replayed.headers["idempotent-replayed"]) == (502, "true"), "nothing runs, so there is nothing to stream"
    assert streamed.body == b"event: result\ndata: " + replayed.body + b"\n\n"


def test_disconnect_from_a_stream_cancels_the_call(start, mark, tmp_path):
    ran = tmp_path / "ran"
    crib = start({"tools": {"family": py("import sys; print('begun', file=sys.stderr, flush=True)\n" + family_script(mark), effect="read", timeout="60s"),
                            "write": sh(f"echo begun >&2; /bin/sleep 1; echo done | tee -a {ran}", effect="write")}})
    stream = open_stream(crib, "family")
    invocation = stream.next_block()[1]["invocation_id"]
    poll(lambda: len(processes(mark)) >= 5, 10, "the whole family")
    stream.close()
    poll(lambda: not processes(mark), 1, "the whole family dead within a second")
    row = wait_until_ended(crib, invocation)
    assert (row["state"], row["kind"], row["attempts"]) == ("cancelled", "cancelled", 1), row
    stream = open_stream(crib, "write")
    invocation = stream.next_block()[1]["invocation_id"]
    stream.close()
    row = wait_until_ended(crib, invocation)
    assert row["state"] == "succeeded" and text_of(row["result"]) == "done" and ran.read_text() == "done\n"


def test_cancelled_call_ends_its_stream(start, mark):
    crib = start({"tools": {"x": sh(f"echo begun >&2; exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    stream = open_stream(crib, "x")
    invocation = stream.next_block()[1]["invocation_id"]
    row = crib.delete(f"/invocations/{invocation}").json
    result, _ = stream.result()
    assert (result["status"], result["kind"]) == (499, "cancelled") and row["result"] == result
    poll(lambda: not processes(mark), 1, "it is dead")


def test_line_flood_is_thinned_out(start):
    """A program that writes 200,000 lines takes about as long with a listener as without, and the listener gets the last."""
    flood = "import sys\nfor n in range(200_000): print('line', n, file=sys.stderr)\nprint('done')"
    crib = start({"tools": {"x": py(flood, effect="read", timeout="60s")}})

    def timed(work):
        began = now()
        work()
        return time.monotonic() - began

    alone = min(timed(lambda: ok(crib.invoke("x"))) for _ in range(2))
    began = now()
    result, reported = open_stream(crib, "x").result()
    received = time.monotonic() - began
    print(f"alone {alone:.2f} s, with a listener {received:.2f} s, {len(reported)} lines")
    assert text_of(result) == "done" and reported[-1]["data"] == {"stderr": "line 199999"}
    assert len(reported) + sum(one.get("missed", 0) for one in reported) == 200_000
    assert len(reported) <= 50 * (received + 2) and received < 3 * alone + 0.5


def test_unread_stream_is_closed_with_its_call(start, mark):
    """Thirty seconds after the last successful write; a call whose on_disconnect is finish ends by itself."""
    chatty = f"import sys\nwhile True: print('{mark}' + 'x' * 8000, file=sys.stderr)"
    crib = start({"tools": {"x": py(chatty, effect="read", timeout="5m")}})
    stream = Stream(crib, "x", buffer=4096)
    stream.head()
    invocation = poll(lambda: crib.rows("state=running"), 5, "it runs")[0]["invocation_id"]
    began = now()
    row = wait_until_ended(crib, invocation, seconds=100)
    took = time.monotonic() - began
    print(f"cut after {took:.0f} s, {crib.rss() >> 20} MiB")
    assert took > 25 and (row["state"], row["kind"]) == ("cancelled", "cancelled"), row
    poll(lambda: not processes(mark), 2, "it is dead")
    assert crib.rss() < 200 << 20


def test_progress_is_redacted(start, tmp_path):
    """Also line by line, when the secret has several."""
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n")
    tool = sh('echo "token $TOKEN in clear" >&2; printf "a\\033[0m%s\\n" "$TOKEN" >&2; echo "$KEY" >&2; echo done', effect="read",
              environment={"TOKEN": "${env:TOKEN}", "KEY": f"${{file:{key}}}"})
    crib = start({"tools": {"x": tool}}, env={"TOKEN": "tok-0123456789abcdef"})
    result, reported = open_stream(crib, "x").result()
    assert text_of(result) == "done"
    assert [one["data"]["stderr"] for one in reported] == [
        "token [redacted] in clear", "a[redacted]", "-----BEGIN PRIVATE KEY-----", "[redacted]", "[redacted]", "-----END PRIVATE KEY-----"]


def test_shutdown_ends_streams_with_a_result(start, mark):
    """Calls that end in time are answered, others are cancelled; both results arrive on their streams, and the service ends in time."""
    crib = start({"server": {"drain": "2s"}, "tools": {
        "soon": sh("echo begun >&2; /bin/sleep 1; echo done", effect="read"),
        "never": sh(f"echo begun >&2; exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    soon, never = open_stream(crib, "soon"), open_stream(crib, "never")
    assert [stream.next_block()[0] for stream in (soon, never)] == ["progress", "progress"]
    began = now()
    crib.terminate()
    poll(lambda: crib.get("/readyz").status == 503, 1, "not ready")
    refused = Stream(crib, "soon")
    assert status_of(refused.sock.recv(65536)) == 503, "a plain answer"
    results = [in_background(stream.result) for stream in (soon, never)]
    (done, _), (cancelled, _) = (result() for result in results)
    assert text_of(done) == "done" and (cancelled["status"], cancelled["kind"]) == (499, "cancelled")
    crib.stop(within=6)
    assert 2 <= time.monotonic() - began and elapsed(began) < 5
    assert not processes(mark)


def test_stream_counts_as_an_active_request(start, mark):
    """It is not closed for new callers, which get 503 instead; it ends with a result when the service does."""
    tool = sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s", concurrency={"max": 1, "queue": 64, "wait": "60s"})
    crib = start({"server": {"drain": "1s"}, "tools": {"x": tool}}, within=["/bin/sh", "-c", 'ulimit -n 64; "$0" "$@"; exit $?'])
    # There are 32 slots. For a new connection, the service closes one whose request it has not read yet rather than an idle one. So the
    # last two are opened alone, and one that was closed is opened again.
    streams = []
    for number in (30, 1, 1):
        for stream in [Stream(crib, "x") for _ in range(number)]:
            try:
                head = stream.head()
            except EOFError:
                stream = Stream(crib, "x")
                head = stream.head()
            assert head[0] == 200, "also those that wait for a place"
            streams.append(stream)
    for _ in range(20):
        problem(crib.invoke("x"), 503, "overloaded")
        assert crib.get("/livez").status == 200
    results = [in_background(stream.result) for stream in streams]
    crib.stop(within=6)
    assert {result()[0]["kind"] for result in results} == {"cancelled"}


def test_async_call_is_found_by_its_id(start):
    crib = start({"callers": CALLERS, "tools": {"slow": sh("/bin/sleep 1; echo done", effect="read"), "quick": {"kind": "native", "use": "calculator"}}},
                 env=KEYS)
    ann, bob = KEYS["ANN"], KEYS["BOB"]
    began = now()
    reply = crib.invoke("slow", key=ann, headers=ASYNC, tool_use_id="call_1", run_id="r-1")
    assert elapsed(began) < 0.6, "at once"
    invocation = accepted_id(reply)
    assert reply.json == {"invocation_id": invocation, "tool": "slow", "tool_use_id": "call_1", "state": "running"}
    row = crib.row(invocation, key=ann)
    assert (row["state"], row["run_id"], row["result"]) == ("running", "r-1", None), row
    problem(crib.get(f"/invocations/{invocation}", key=bob), 404, "invalid_request")
    row = wait_until_ended(crib, invocation, key=ann)
    assert row["state"] == "succeeded" and text_of(assert_answer_shape(row["result"])) == "done" and row["result"]["tool_use_id"] == "call_1"
    # What is done at once is looked up too; what is done within the time that the caller would wait is answered itself.
    reply = crib.invoke("quick", {"expression": "6*7"}, key=ann, headers=ASYNC)
    assert reply.json["state"] == "succeeded"
    assert text_of(assert_answer_shape(crib.row(accepted_id(reply, "succeeded"), key=ann)["result"])) == "42"
    reply = crib.invoke("quick", {"expression": "6*7"}, key=ann, headers={"prefer": "respond-async, wait=1"})
    assert text_of(ok(reply)) == "42" and "preference-applied" not in reply.headers
    assert text_of(ok(crib.invoke("slow", key=ann, headers={"prefer": 'respond-async, wait="5"'}))) == "done"
    began = now()
    accepted_id(crib.invoke("slow", key=ann, headers={"prefer": "handling=strict; a=1, RESPOND-ASYNC;q=1, wait=0"}))
    assert elapsed(began) < 0.6
    assert text_of(ok(crib.invoke("slow", key=ann, headers={"prefer": "wait=0, x=\"respond-async\""}))) == "done"


def test_async_call_ends_by_delete_not_disconnect(start, mark):
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    invocation = accepted_id(crib.invoke("x", headers=ASYNC))  # on a connection that is closed by now
    with socket.create_connection(("127.0.0.1", crib.port)) as sock:  # this one disconnects before any event
        sock.sendall(invoke_bytes(crib, "x").replace(b"\r\n\r\n", b"\r\nPrefer: respond-async, wait=60\r\n\r\n"))
        poll(lambda: len(processes(mark)) == 2, 5, "both run")
    time.sleep(0.5)
    assert len(processes(mark)) == 2
    for row in crib.rows("state=running"):
        assert crib.delete("/invocations/" + row["invocation_id"]).json["state"] == "cancelled"
    poll(lambda: not processes(mark), 1, "both are dead")
    assert crib.row(invocation)["kind"] == "cancelled"


def test_idempotency_key_finds_the_async_call(start, tmp_path):
    ran = tmp_path / "ran"
    crib = start({"tools": {"x": sh(f"echo x >> {ran}; /bin/sleep 0.7; echo done", effect="write")}})
    key = {"idempotency-key": "k-1"}
    invocation = accepted_id(crib.invoke("x", headers={**ASYNC, **key}))
    for way in ({}, ASYNC, EVENTS):
        error = problem(crib.invoke("x", headers={**way, **key}), 409, "idempotency_in_progress")
        assert error["invocation_id"] == invocation
    answer = wait_until_ended(crib, invocation)["result"]
    repeated = crib.invoke("x", headers={**ASYNC, **key})
    assert repeated.headers["idempotent-replayed"] == "true" and repeated.json == answer
    streamed = crib.invoke("x", headers={**EVENTS, **key})
    assert streamed.headers["idempotent-replayed"] == "true"
    assert streamed.body == b"event: result\ndata: " + repeated.body + b"\n\n"
    assert ran.read_text() == "x\n"


def test_async_calls_obey_limits_and_concurrency(start, mark):
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s",
                                    concurrency={"max": 2, "queue": 1, "wait": "500ms"}, limits=[{"calls": 100, "per": "day"}])}})
    replies = parallel(8, lambda _: crib.invoke("x", headers=ASYNC))
    running = [accepted_id(reply) for reply in replies if reply.status == 202]
    assert len(running) == 2, [reply.status for reply in replies]
    for reply in replies:
        if reply.status != 202:
            problem(reply, 503, "overloaded")
    assert crib.usage("x")[0]["used"] == 2 and len(processes(mark)) == 2
    for invocation in running:
        crib.delete(f"/invocations/{invocation}")


def test_accepted_call_is_found_after_kill_nine(start, mark):
    """Though it is a read without limit and key: it was on record before the 202."""
    crib = start({"tools": {"x": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s", idempotency="off")}})
    invocations = [accepted_id(crib.invoke("x", headers=ASYNC)) for _ in range(3)]
    crib.kill9()
    crib.start()
    assert {crib.row(invocation)["state"] for invocation in invocations} == {"unknown"}


def test_shutdown_waits_for_async_calls(start, mark):
    crib = start({"server": {"drain": "3s"}, "tools": {"soon": sh("/bin/sleep 1; echo done", effect="read"),
                                                       "never": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="60s")}})
    soon, never = (accepted_id(crib.invoke(tool, headers=ASYNC)) for tool in ("soon", "never"))
    crib.restart()
    assert text_of(crib.row(soon)["result"]) == "done"
    assert crib.row(never)["state"] == "cancelled" and not processes(mark)


def test_two_hundred_streams_leave_nothing(start, mark):
    """Some are read to the end, some are closed early: the permits, processes and connections are free again."""
    crib = start({"tools": {"x": sh(f"echo begun >&2; exec /bin/sleep 0.2 0.{mark[:3]}", effect="read",
                                    concurrency={"max": 8, "queue": 256, "wait": "30s"})}})

    def one(n):
        stream = Stream(crib, "x")
        if n % 3 == 0:
            stream.close()
            return
        assert stream.head()[0] == 200
        if n % 3 == 1:
            stream.next_block()
            stream.close()
        else:
            assert_answer_shape(stream.result()[0])
            stream.close()

    parallel(200, one)
    poll(lambda: not crib.rows("state=running"), 20, "all have ended")
    rows = crib.all_rows()
    # A request whose sender disconnects before it is read never becomes a call.
    assert 133 <= len(rows) <= 200 and {row["state"] for row in rows} <= {"succeeded", "cancelled"}
    poll(lambda: not children(crib.process.pid), 5, "no process is left")
    ok(crib.invoke("x"))
