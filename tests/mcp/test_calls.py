"""Calls of servers that misbehave, in both modes: a call ends as it should, and others do not notice."""

import base64
import json
import threading
import time

import pytest

from conftest import MODES, answered, events, received, read_policies, script, start_with_servers, source
from harness import alive, descendants, elapsed, error_result, in_background, now, ok, parallel, poll, problem, text_of, wait_until_gone
from recipes import CALLERS, KEYS

SECRET = "open-sesame-0123456789"


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def crib(start, mode, tmp_path):
    """One server, with all of its tools as reads; `other` is another process of the same server."""
    environment = {"HEARD": str(tmp_path / "heard"), "COUNTED": str(tmp_path / "counted"), "STARTED": str(tmp_path / "started"), "TOKEN": "${env:TOKEN}"}
    policies = read_policies("echo", "pid", "meta", "says_no", "steps", "late", "hangs", "reverse", "blocks", "weather", "flood", "noisy", "environment",
                     "huge", "dies")
    policies["hangs"] = {"effect": "read", "timeout": "1s"}
    policies["endless"] = {"effect": "read", "timeout": "5s"}
    policies["closes_stdout"] = {"effect": "read", "timeout": "5s"}
    entry = script("calls", mode=mode, environment=environment, tools=policies)
    return start({"mcp_servers": {"s": entry, "other": script("calls", tools=read_policies("echo"))}}, env={"TOKEN": SECRET}).ready(60)


def assert_still_works(crib):
    """Both servers answer: at once the other, soon this one. An answer may still be lost in what went before."""
    ok(crib.invoke("other_echo", {"a": 1}))
    poll(lambda: crib.invoke("s_echo", {"a": 1}, timeout="2s").status == 200, 12, "it answers again")


# ---- what servers may do ------------------------------------------------------------------------------------------------

def test_arguments_and_results_arrive_unchanged(crib):
    given = {"text": "a\nb\u2028\u0000\x1b", "big": 2**60, "real": 0.1, "deep": [[[{"x": None}]]], "": "empty"}
    assert json.loads(text_of(ok(crib.invoke("s_echo", given)))) == given


def test_every_kind_of_content_block_arrives(crib):
    answer = ok(crib.invoke("s_blocks"))
    assert [block["type"] for block in answer["content"]] == ["text", "image", "audio", "resource", "resource", "resource_link"], answer
    assert answer["content"][3]["resource"]["text"] == "words"
    assert base64.b64decode(answer["content"][4]["resource"]["blob"]) == b"%PDF"
    assert answer["content"][5] == {"type": "resource_link", "uri": "test://far", "name": "far", "mimeType": "text/plain", "description": "Far away"}
    assert answer["structured_content"] is None


def test_structured_content_arrives(crib):
    answer = ok(crib.invoke("s_weather"))
    assert answer["structured_content"] == {"degrees": 21.5} and text_of(answer) == '{"degrees": 21.5}', answer


def test_progress_is_requested_and_arrives_in_order(crib):
    found = events(crib, "s_steps")
    assert [data["data"] for event, data in found if event == "progress"] == [{"progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)], found
    assert text_of(found[-1][1]) == "done"


def test_error_result_is_an_answer(crib):
    assert text_of(error_result(crib.invoke("s_says_no"))) == "There is no such city."


def test_protocol_errors_become_tool_errors(crib):
    """Invalid arguments and an internal error are shown to the model. Neither closes the connection."""
    assert text_of(error_result(crib.invoke("s_refuses"))) == "The MCP server s answered with error -32602: n must be even"
    assert text_of(error_result(crib.invoke("s_breaks"))) == "The MCP server s answered with error -32603: The disk is full"
    assert_still_works(crib)


def test_refused_write_is_charged_and_replayed(start, mode, tmp_path):
    """A protocol error after the call was sent proves nothing: the call is charged, and its key replays the error."""
    entry = script("calls", mode=mode, environment={"COUNTED": str(tmp_path / "counted")},
                   tools={"counts_and_refuses": {"limits": [{"calls": 5, "per": "day"}]}})
    crib = start_with_servers(start, s=entry)
    first, repeated = [crib.invoke("s_counts_and_refuses", {"n": 1}, headers={"idempotency-key": "k1"}) for _ in range(2)]
    error_result(first)
    assert repeated.body == first.body and repeated.headers["idempotent-replayed"] == "true", repeated
    assert (tmp_path / "counted").read_text() == "done\n"
    assert crib.usage("s_counts_and_refuses")[0]["used"] == 1


def test_package_manager_logins_are_redacted(start, mode):
    """A server gets them for its installation; its output does not show them."""
    given = {"UV_INDEX_URL": "https://me:pass-of-the-index@index.example/simple", "NPM_CONFIG__AUTH": "auth-of-the-registry"}
    crib = start({"mcp_servers": {"s": script("calls", mode=mode, tools=read_policies("environment"))}}, env=given).ready(60)
    seen = json.loads(text_of(ok(crib.invoke("s_environment"))))
    assert (seen["UV_INDEX_URL"], seen["NPM_CONFIG__AUTH"]) == ("https://[redacted]@index.example/simple", "[redacted]"), seen
    assert "pass-of-the-index" not in crib.get("/invocations").body.decode()


def test_trace_is_the_only_caller_data_forwarded(start, mode):
    crib = start({"callers": CALLERS, "mcp_servers": {"s": script("calls", mode=mode, environment={"HEARD": "heard"}, tools=read_policies("meta"))}}, env=KEYS)
    poll(lambda: crib.get("/readyz").status == 200, 60)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "vendor=value", "cookie": "session=callers"}
    meta = json.loads(text_of(ok(crib.invoke("s_meta", {"a": 1}, key=KEYS["ANN"], headers=headers))))
    assert meta["traceparent"].split("-")[1] == trace and meta["tracestate"] == "vendor=value", meta
    assert "traceparent" not in json.loads(text_of(ok(crib.invoke("s_meta", {"a": 2}, key=KEYS["ANN"]))))
    text = json.dumps(received(crib.manifest.parent / "heard", "tools/call"))
    assert trace in text and KEYS["ANN"] not in text and "session=callers" not in text


def test_declared_context_reaches_the_server(start, mode):
    entry = script("calls", mode=mode, context=["tenant"], tools={"meta": {**read_policies("meta")["meta"], "cache": {"ttl": "1m"}}, "pid": {"context": ["user"]}},
                   env=[{"name": "NONE", "required": False}, {"name": "UNITS", "default": "km"}], environment={"COPY": "${env:NONE}"})
    crib = start_with_servers(start, s=entry, bare=script("calls", mode=mode))
    acme = {"tenant": "acme", "user": "ann"}
    for context, cache in ((acme, "miss"), ({"tenant": "other"}, "miss"), (acme, "hit")):
        answer = ok(crib.invoke("s_meta", context=context))
        assert json.loads(text_of(answer))["toolcrib/context"] == {"tenant": context["tenant"]} and answer["meta"]["cache"] == cache
    bare = ok(crib.invoke("bare_meta", context=acme))
    assert "toolcrib/context" not in text_of(bare) and len(bare["meta"]["warnings"]) == 1
    assert (crib.get("/tools/s_echo").json["context"], crib.get("/tools/s_pid").json["context"]) == (["tenant"], ["user"])
    seen = json.loads(text_of(ok(crib.invoke("s_environment"))))
    assert seen["UNITS"] == "km" and not {"NONE", "COPY"} & set(seen), seen
    assert crib.get("/tools/s_echo").json["env"][1]["default"] == "km"


def test_server_gets_only_the_declared_environment(crib):
    seen = json.loads(text_of(ok(crib.invoke("s_environment"))))
    assert {"HEARD", "TOKEN", "PATH"} <= set(seen), seen
    assert {name for name in seen if not name.startswith("TOOLCRIB_")} <= {"HEARD", "COUNTED", "STARTED", "TOKEN", "PATH", "HOME", "LANG", "LC_CTYPE", "TMPDIR", "PWD"}, seen


# ---- dying and hanging --------------------------------------------------------------------------------------------------

def test_server_death_fails_the_call(crib, tmp_path):
    problem(crib.invoke("s_dies"), 502, "tool_unavailable")
    assert_still_works(crib)
    assert (tmp_path / "counted").read_text() == "dies\n", "it was asked once"


def test_server_death_leaves_a_write_unknown(start, mode, tmp_path):
    """Its effect is uncertain: the state is `unknown`, and the call never runs again."""
    crib = start_with_servers(start, s=script("calls", mode=mode, environment={"COUNTED": str(tmp_path / "counted")}, tools={"dies": {"retry": {"attempts": 3}}}))
    error = problem(crib.invoke("s_dies"), 502)
    assert crib.row(error["invocation_id"])["state"] == "unknown", error
    assert (tmp_path / "counted").read_text() == "dies\n"


def test_server_death_lets_a_read_retry(start, mode, tmp_path):
    entry = script("calls", mode=mode, environment={"COUNTED": str(tmp_path / "counted")}, tools={"dies": {"effect": "read", "retry": {"attempts": 3}}})
    crib = start_with_servers(start, s=entry)
    error = problem(crib.invoke("s_dies"), {502, 503}, "tool_unavailable")
    assert len(crib.row(error["invocation_id"])["attempt_errors"]) >= 2, error
    assert 2 <= (tmp_path / "counted").read_text().count("dies") <= 3


def test_server_death_fails_calls_in_same_process(crib, mode):
    """Calls in one process fail together and at once; calls in separate processes do not."""
    other = in_background(lambda: crib.invoke("s_late", {"n": 2}))
    poll(lambda: crib.rows("tool=s_late&state=running"), 5, "it runs")
    time.sleep(0.3)
    problem(crib.invoke("s_dies"), 502, "tool_unavailable")
    if mode == "persistent":
        problem(other(5), 502, "tool_unavailable")
    else:
        ok(other(10))
    assert_still_works(crib)


def test_hanging_call_times_out_and_is_cancelled(crib, mode, tmp_path):
    other = in_background(lambda: crib.invoke("s_late", {"n": 2}))
    began = now()
    problem(crib.invoke("s_hangs"), 504, "attempt_timed_out")
    assert elapsed(began) < 4
    assert text_of(ok(other(20))) == "too late", "calls beside it go on"
    if mode == "persistent":
        requests = poll(lambda: [one["id"] for one in received(tmp_path / "heard", "tools/call") if one["params"]["name"] == "hangs"], 5, "the call")
        reported = poll(lambda: received(tmp_path / "heard", "notifications/cancelled"), 5, "it is told")
        assert [one["params"]["requestId"] for one in reported] == requests, reported
    assert_still_works(crib)


def test_cancelled_call_is_cancelled_on_the_server(crib, mode, tmp_path):
    call = in_background(lambda: crib.invoke("s_late", {"n": 30}))
    row = crib.wait_row("tool=s_late&state=running")
    poll(lambda: received(tmp_path / "heard", "tools/call"), 10, "it has the call")
    assert crib.delete(f"/invocations/{row['invocation_id']}").status == 200
    problem(call(10), 499, "cancelled")
    if mode == "persistent":
        poll(lambda: received(tmp_path / "heard", "notifications/cancelled"), 5, "it is told")
    else:
        poll(lambda: len(descendants(crib.pid)) <= 1, 10, "its process ends")
    assert_still_works(crib)


def test_late_answer_reaches_no_other_call(crib, mode):
    """What was given up answers later; no other call gets that."""
    for _ in range(2):
        problem(crib.invoke("s_late", {"n": 3}, timeout="2s"), 504)  # on demand, its server starts in that time too
    for number in range(20):
        assert json.loads(text_of(ok(crib.invoke("s_echo", {"n": number})))) == {"n": number}
        time.sleep(0.05)


def test_closed_stdout_ends_the_call_at_once(crib):
    """The server closes its output and continues to run: the call ends at once, not at its timeout."""
    began = now()
    problem(crib.invoke("s_closes_stdout"), 502, "tool_unavailable")
    assert elapsed(began) < 4
    assert_still_works(crib)


def test_child_processes_end_with_the_server(crib, mark, mode):
    """Processes in sessions of their own, which hold its pipes open."""
    problem(crib.invoke("s_leaves_children", {"mark": mark, "die": True}), 502)
    assert_still_works(crib)
    wait_until_gone(mark)


def test_child_processes_end_with_the_service(crib, mark):
    ok(crib.invoke("s_leaves_children", {"mark": mark}))
    below = descendants(crib.pid)
    crib.stop()
    wait_until_gone(mark, 5)
    assert not alive(below)


# ---- too much -----------------------------------------------------------------------------------------------------------

def test_answer_of_50_megabytes_is_refused(crib):
    before = crib.rss()
    other = in_background(lambda: [ok(crib.invoke("other_echo", {"n": n})) for n in range(20)])
    problem(crib.invoke("s_huge", {"n": 50}), 502, "bad_output")
    other()
    assert_still_works(crib)
    assert crib.rss() - before < 60_000_000, "it was not taken in whole, or was let go of"


def test_line_without_end_is_refused(crib):
    before = crib.rss()
    began = now()
    problem(crib.invoke("s_endless"), {502, 504})
    assert elapsed(began) < 10
    assert_still_works(crib)
    assert crib.rss() - before < 60_000_000


def test_answer_of_half_a_megabyte_is_accepted(crib):
    """More than a pipe holds, less than what is too much."""
    given = {"words": "w" * 500_000}
    done = ok(crib.invoke("s_echo", given))
    assert json.loads(text_of(crib.row(done["invocation_id"])["result"])) == given


def test_notification_flood_does_not_block_the_answer(crib):
    before = crib.rss()
    found = events(crib, "s_flood")
    assert text_of(found[-1][1]) == "after the flood"
    progress = [data for name, data in found if name == "progress"]
    assert len(progress) + sum(event.get("missed", 0) for event in progress) == 20_000, "each one is delivered, or counted as missed"
    assert text_of(ok(crib.invoke("s_flood"))) == "after the flood"
    assert_still_works(crib)
    assert crib.rss() - before < 60_000_000


def test_stderr_flood_does_not_block_the_answer(crib):
    before = crib.rss()
    assert text_of(ok(crib.invoke("s_noisy"))) == "after the noise"
    assert_still_works(crib)
    assert crib.rss() - before < 60_000_000
    assert len(crib.stderr) < 5_000_000, "the log is not flooded either"


# ---- lies ---------------------------------------------------------------------------------------------------------------

def test_structured_content_that_does_not_fit_is_a_warning(crib):
    """The schema of a server describes: the result is passed on, and a warning says what does not fit."""
    answer = ok(crib.invoke("s_wrong_shape"))
    assert "degrees" in answer["meta"]["warnings"][0], answer
    answer = ok(crib.invoke("s_no_structure"))
    assert "output schema" in answer["meta"]["warnings"][0], answer
    assert text_of(error_result(crib.invoke("s_no_structure_no"))) == "No weather today.", "a no need not fit"


def test_unknown_block_becomes_text(crib):
    """The result of a call that has run is not lost because of one block, or because of its form."""
    answer = ok(crib.invoke("s_no_result"))
    assert text_of(answer) == "just words" and answer["meta"]["warnings"] == ["content is a text and not a list of blocks"], answer
    answer = ok(crib.invoke("s_odd_block"))
    assert {block["type"] for block in answer["content"]} == {"text"} and "still here" in text_of(answer), answer
    assert "cannot be read and is passed on as text" in answer["meta"]["warnings"][0], answer


def test_invalid_base64_is_reported_and_left_out(crib):
    answer = ok(crib.invoke("s_bad_base64"))
    assert [block["type"] for block in answer["content"]] == ["text", "text", "text", "image", "text"], answer
    assert answer["content"][0]["text"] == "[image: left out, its data is not base64]"
    assert [warning.split(":")[0] for warning in answer["meta"]["warnings"]] == ["content.0", "content.1", "content.2"], answer
    assert base64.b64decode(answer["content"][3]["data"], validate=True).startswith(b"\x89PNG")


def test_data_with_a_secret_is_left_out(crib):
    answer = ok(crib.invoke("s_secret_bytes"))
    assert text_of(answer) == "[image: left out, a secret is in its data]", answer
    assert "secret" in answer["meta"]["warnings"][0]


def test_garbage_between_messages_is_skipped(crib):
    """A stray print does not end the server."""
    assert text_of(ok(crib.invoke("s_garbage"))) == "after garbage"
    assert text_of(ok(crib.invoke("s_garbage"))) == "after garbage"


def test_partial_line_before_answer_fails_call(crib):
    """An unreadable answer fails the call at once, and the server continues."""
    began = now()
    for tool in ("garbage_half", "bare", "not_text"):
        error = problem(crib.invoke(f"s_{tool}", timeout="10s"), 502, "bad_output")
        assert "not a JSON-RPC message" in error["detail"], error
    assert elapsed(began) < 5
    assert_still_works(crib)


def test_unreadable_line_is_logged_by_length_only(crib):
    assert text_of(ok(crib.invoke("s_log_lines"))) == "after the log"
    problem(crib.invoke("s_not_text"), 502, "bad_output")
    ok(crib.invoke("s_garbage"))
    crib.wait_for_log("not a message: a line of", 5)
    poll(lambda: "not UTF-8" in crib.stderr and "not JSON-RPC" in crib.stderr, 5, crib.stderr)
    assert "secret-result" not in crib.stderr and "Loading model" not in crib.stderr, crib.stderr


def test_foreign_and_duplicate_answers_are_ignored(crib):
    for _ in range(3):
        assert text_of(ok(crib.invoke("s_wrong_id"))) == "its own"
        assert text_of(ok(crib.invoke("s_twice"))) == "first"
        assert text_of(ok(crib.invoke("s_echo", {"a": 1}))) == '{"a": 1}'


def test_answer_before_its_call_is_ignored(crib):
    assert text_of(ok(crib.invoke("s_shadow"))) == "its own"
    for number in range(60):
        assert json.loads(text_of(ok(crib.invoke("s_echo", {"n": number})))) == {"n": number}


def test_hundred_calls_may_be_answered_in_reverse(start, mode):
    if mode == "on_demand":
        pytest.skip("each call has a server of its own")
    crib = start({"mcp_servers": {"s": script("calls", tools={"reverse": {"effect": "read", "concurrency": {"max": 100}}})}}).ready()
    answers = parallel(100, lambda number: crib.invoke("s_reverse", {"n": number, "of": 100}))
    assert [text_of(ok(answer)) for answer in answers] == [str(number) for number in range(100)]


def test_concurrent_calls_get_their_own_answers(crib):
    answers = parallel(12, lambda number: [crib.invoke("s_echo", {"n": number, "k": k}) for k in range(3)])
    for number, some in enumerate(answers):
        assert [json.loads(text_of(ok(one))) for one in some] == [{"n": number, "k": k} for k in range(3)]


def test_requests_that_were_not_offered_are_refused(crib):
    """Sampling, URLs and roots were not offered: refused, at once."""
    began = now()
    reported = json.loads(text_of(ok(crib.invoke("s_asks"))))
    assert reported == {"sampling/createMessage": "error", "elicitation/create": "error", "roots/list": "error", "ping": "result", "made/up": "error"}, reported
    assert elapsed(began) < 4


def test_form_of_a_session_reaches_the_caller(crib, mode):
    """A question does not name its call. With other calls on its connection it is cancelled."""
    question = crib.invoke("s_asks_form")
    assert question.status == 202 and question.json["question"]["message"] == "Which room?", question
    result = answered(crib, question.json["invocation_id"], action="accept", content={"room": "garden"})
    assert json.loads(text_of(result)) == {"action": "accept", "content": {"room": "garden"}}
    other = in_background(lambda: crib.invoke("s_late", {"n": 2}))
    crib.wait_row("tool=s_late&state=running")
    question = crib.invoke("s_asks_form")
    if mode == "persistent":
        assert json.loads(text_of(ok(question))) == {"action": "cancel"}, question
    else:
        result = answered(crib, question.json["invocation_id"], action="decline")
        assert json.loads(text_of(result)) == {"action": "decline"}
    ok(other(10))


def test_client_has_no_capabilities_for_models(crib, tmp_path):
    ok(crib.invoke("s_echo"))
    for message in received(tmp_path / "heard", "initialize"):
        assert not {"sampling", "roots"} & set(message["params"]["capabilities"]), message
        assert message["params"]["clientInfo"]["name"] == "toolcrib", message


# ---- secrets ------------------------------------------------------------------------------------------------------------

def test_echoed_secret_is_redacted(crib):
    reported = [crib.invoke(f"s_{name}") for name in ("secret", "secret_error", "secret_no")]
    reported.append(crib.post("/tools/s_secret_step/invoke", '{"arguments": {}}', headers={"accept": "text/event-stream"}))
    ok(reported[0]), error_result(reported[2])
    rows = crib.get("/invocations?limit=100").body
    each = [crib.get(f"/invocations/{row['invocation_id']}").body for row in json.loads(rows)["invocations"]]
    time.sleep(0.3)
    for place in [reply.body for reply in reported] + [rows, *each, crib.stderr.encode(), crib.get("/sources").body, crib.get("/tools").body]:
        for spelled in (SECRET.encode(), base64.b64encode(SECRET.encode())):
            assert spelled not in place, place


# ---- both at once -------------------------------------------------------------------------------------------------------

def test_mixed_faults_leave_no_trace(crib, mode, tmp_path):
    """Everything at once; afterwards everything is as before."""
    bad = ["dies", "hangs", "garbage", "wrong_id", "no_result", "says_no", "noisy", "steps"]
    stop, seen = threading.Event(), []

    def good():
        while not stop.is_set():
            seen.append(crib.invoke("other_echo", {"n": len(seen)}))

    worker = threading.Thread(target=good)
    worker.start()
    try:
        parallel(8, lambda number: [crib.invoke(f"s_{bad[(number + k) % 8]}") for k in range(4)])
    finally:
        stop.set()
        worker.join()
    assert seen and all(reply.status == 200 for reply in seen), "the other server did not notice"
    assert_still_works(crib)
    assert source(crib, "other")["replaced"] == 0
