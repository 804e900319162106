"""Calls of servers that misbehave, in both modes: a call ends as it should, and others do not notice."""

import base64
import json
import threading
import time

import pytest

from conftest import MODES, descendants, events, gone, heard, living, reads, script, served, source
from harness import later, now, ok, parallel, poll, problem, said_no, spent, text_of
from recipes import CALLERS, KEYS

SECRET = "open-sesame-0123456789"


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def crib(start, mode, tmp_path):
    """One server, with all of its tools as reads; `other` is another process of the same."""
    environment = {"HEARD": str(tmp_path / "heard"), "COUNTED": str(tmp_path / "counted"), "STARTED": str(tmp_path / "started"), "TOKEN": "${env:TOKEN}"}
    policies = reads("echo", "pid", "meta", "says_no", "steps", "late", "hangs", "reverse", "blocks", "weather", "flood", "noisy", "environment",
                     "huge", "dies")
    policies["hangs"] = {"effect": "read", "timeout": "1s"}
    policies["endless"] = {"effect": "read", "timeout": "5s"}
    policies["closes_stdout"] = {"effect": "read", "timeout": "5s"}
    entry = script("calls", mode=mode, environment=environment, tools=policies)
    return start({"mcp_servers": {"s": entry, "other": script("calls", tools=reads("echo"))}}, env={"TOKEN": SECRET}).ready(60)


def fine(crib):
    """Both servers answer: at once the other, soon this one. An answer may still be lost in what went before."""
    ok(crib.invoke("other_echo", {"a": 1}))
    poll(lambda: crib.invoke("s_echo", {"a": 1}, timeout="2s").status == 200, 12, "it answers again")


# ---- what servers may do ------------------------------------------------------------------------------------------------

def test_what_goes_there_and_what_comes_back(crib):
    given = {"text": "a\nb\u2028\u0000\x1b", "big": 2**60, "real": 0.1, "deep": [[[{"x": None}]]], "": "empty"}
    assert json.loads(text_of(ok(crib.invoke("s_echo", given)))) == given


def test_every_kind_of_block(crib):
    answer = ok(crib.invoke("s_blocks"))
    assert [block["type"] for block in answer["content"]] == ["text", "image", "audio", "resource", "resource", "text"], answer
    assert answer["content"][3]["resource"]["text"] == "words"
    assert base64.b64decode(answer["content"][4]["resource"]["blob"]) == b"%PDF"
    assert "far" in answer["content"][5]["text"] and "test://far" in answer["content"][5]["text"], "a link is words: nobody here can follow it"
    assert answer["structured_content"] is None


def test_structured_content(crib):
    answer = ok(crib.invoke("s_weather"))
    assert answer["structured_content"] == {"degrees": 21.5} and text_of(answer) == '{"degrees": 21.5}', answer


def test_progress_is_asked_for_and_arrives_in_order(crib):
    found = events(crib, "s_steps")
    assert [data["data"] for event, data in found if event == "progress"] == [{"progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)], found
    assert text_of(found[-1][1]) == "done"


def test_a_no_is_an_answer(crib):
    assert text_of(said_no(crib.invoke("s_says_no"))) == "There is no such city."


def test_what_the_protocol_calls_an_error(crib):
    """Invalid arguments are for the model to read; an internal error says that the tool failed. Neither costs the connection."""
    assert text_of(said_no(crib.invoke("s_refuses"))) == "The MCP server s refuses the call: n must be even"
    told = crib.invoke("s_breaks")
    assert told.status in (200, 502) and "The disk is full" in told.body.decode(), told
    fine(crib)


def test_a_write_that_was_run_and_refused_is_not_run_again(start, mode, tmp_path):
    """What a server says once it has the call proves nothing: it is charged, and its key says the same again."""
    entry = script("calls", mode=mode, environment={"COUNTED": str(tmp_path / "counted")},
                   tools={"counts_and_refuses": {"limits": [{"calls": 5, "per": "day"}]}})
    crib = served(start, s=entry)
    first, again = [crib.invoke("s_counts_and_refuses", {"n": 1}, headers={"idempotency-key": "k1"}) for _ in range(2)]
    said_no(first)
    assert again.body == first.body and again.headers["idempotent-replayed"] == "true", again
    assert (tmp_path / "counted").read_text() == "done\n"
    assert crib.usage("s_counts_and_refuses")[0]["used"] == 1


def test_logins_of_package_managers_do_not_come_back(start, mode):
    """A server gets them, for what it installs; nobody sees them in what it says."""
    given = {"UV_INDEX_URL": "https://me:pass-of-the-index@index.example/simple", "NPM_CONFIG__AUTH": "auth-of-the-registry"}
    crib = start({"mcp_servers": {"s": script("calls", mode=mode, tools=reads("environment"))}}, env=given).ready(60)
    seen = json.loads(text_of(ok(crib.invoke("s_environment"))))
    assert (seen["UV_INDEX_URL"], seen["NPM_CONFIG__AUTH"]) == ("https://[redacted]@index.example/simple", "[redacted]"), seen
    assert "pass-of-the-index" not in crib.get("/invocations").body.decode()


def test_the_trace_goes_on_and_nothing_else_of_the_caller(start, mode):
    crib = start({"callers": CALLERS, "mcp_servers": {"s": script("calls", mode=mode, environment={"HEARD": "heard"}, tools=reads("meta"))}}, env=KEYS)
    poll(lambda: crib.get("/readyz").status == 200, 60)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "vendor=value", "cookie": "session=callers"}
    meta = json.loads(text_of(ok(crib.invoke("s_meta", {"a": 1}, key=KEYS["ANN"], headers=headers))))
    assert meta["traceparent"].split("-")[1] == trace and meta["tracestate"] == "vendor=value", meta
    assert "traceparent" not in json.loads(text_of(ok(crib.invoke("s_meta", {"a": 2}, key=KEYS["ANN"]))))
    said = json.dumps(heard(crib.manifest.parent / "heard", "tools/call"))
    assert trace in said and KEYS["ANN"] not in said and "session=callers" not in said


def test_it_gets_the_declared_environment_and_no_more(crib):
    seen = json.loads(text_of(ok(crib.invoke("s_environment"))))
    assert {"HEARD", "TOKEN", "PATH"} <= set(seen), seen
    assert {name for name in seen if not name.startswith("TOOLCRIB_")} <= {"HEARD", "COUNTED", "STARTED", "TOKEN", "PATH", "HOME", "LANG", "LC_CTYPE", "TMPDIR", "PWD"}, seen


# ---- dying and hanging --------------------------------------------------------------------------------------------------

def test_it_dies_under_a_call(crib, tmp_path):
    problem(crib.invoke("s_dies"), 502, "tool_unavailable")
    fine(crib)
    assert (tmp_path / "counted").read_text() == "dies\n", "it was asked once"


def test_it_dies_under_a_write(start, mode, tmp_path):
    """Nobody knows what was done: `unknown`, and never again."""
    crib = served(start, s=script("calls", mode=mode, environment={"COUNTED": str(tmp_path / "counted")}, tools={"dies": {"retry": {"attempts": 3}}}))
    said = problem(crib.invoke("s_dies"), 502)
    assert crib.row(said["invocation_id"])["state"] == "unknown", said
    assert (tmp_path / "counted").read_text() == "dies\n"


def test_it_dies_under_a_read_that_may_be_tried_again(start, mode, tmp_path):
    entry = script("calls", mode=mode, environment={"COUNTED": str(tmp_path / "counted")}, tools={"dies": {"effect": "read", "retry": {"attempts": 3}}})
    crib = served(start, s=entry)
    said = problem(crib.invoke("s_dies"), {502, 503}, "tool_unavailable")
    assert len(crib.row(said["invocation_id"])["attempt_errors"]) >= 2, said
    assert 2 <= (tmp_path / "counted").read_text().count("dies") <= 3


def test_calls_beside_one_that_dies(crib, mode):
    """In one process they share its end, and say so at once; where each has its own, they do not."""
    beside = later(lambda: crib.invoke("s_late", {"n": 2}))
    poll(lambda: crib.rows("tool=s_late&state=running"), 5, "it runs")
    time.sleep(0.3)
    problem(crib.invoke("s_dies"), 502, "tool_unavailable")
    if mode == "persistent":
        problem(beside(5), 502, "tool_unavailable")
    else:
        ok(beside(10))
    fine(crib)


def test_a_call_that_hangs_is_given_up_and_it_is_told(crib, mode, tmp_path):
    beside = later(lambda: crib.invoke("s_late", {"n": 2}))
    began = now()
    problem(crib.invoke("s_hangs"), 504, "attempt_timed_out")
    assert spent(began) < 4
    assert text_of(ok(beside(20))) == "too late", "calls beside it go on"
    if mode == "persistent":
        asked = poll(lambda: [one["id"] for one in heard(tmp_path / "heard", "tools/call") if one["params"]["name"] == "hangs"], 5, "the call")
        told = poll(lambda: heard(tmp_path / "heard", "notifications/cancelled"), 5, "it is told")
        assert [one["params"]["requestId"] for one in told] == asked, told
    fine(crib)


def test_a_call_that_is_cancelled(crib, mode, tmp_path):
    call = later(lambda: crib.invoke("s_late", {"n": 30}))
    row = crib.wait_row("tool=s_late&state=running")
    poll(lambda: heard(tmp_path / "heard", "tools/call"), 10, "it has the call")
    assert crib.delete(f"/invocations/{row['invocation_id']}").status == 200
    problem(call(10), 499, "cancelled")
    if mode == "persistent":
        poll(lambda: heard(tmp_path / "heard", "notifications/cancelled"), 5, "it is told")
    else:
        poll(lambda: len(descendants(crib.pid)) <= 1, 10, "its process ends")
    fine(crib)


def test_an_answer_that_comes_too_late_is_nobodys(crib, mode):
    """What was given up answers later; no other call gets that."""
    for _ in range(2):
        problem(crib.invoke("s_late", {"n": 3}, timeout="2s"), 504)  # on demand, its server starts in that time too
    for number in range(20):
        assert json.loads(text_of(ok(crib.invoke("s_echo", {"n": number})))) == {"n": number}
        time.sleep(0.05)


def test_an_hour_does_not_pass_when_nobody_reads(crib):
    """It closes its output and lives on: the call ends at once, not when its time is up."""
    began = now()
    problem(crib.invoke("s_closes_stdout"), 502, "tool_unavailable")
    assert spent(began) < 4
    fine(crib)


def test_what_it_has_started_goes_with_it(crib, mark, mode):
    """Processes in sessions of their own, which hold its pipes open."""
    problem(crib.invoke("s_leaves_children", {"mark": mark, "die": True}), 502)
    fine(crib)
    gone(mark)


def test_what_it_has_started_ends_with_the_service(crib, mark):
    ok(crib.invoke("s_leaves_children", {"mark": mark}))
    below = descendants(crib.pid)
    crib.stop()
    gone(mark, 5)
    assert not living(below)


# ---- too much -----------------------------------------------------------------------------------------------------------

def test_an_answer_of_50_megabytes(crib):
    before = crib.rss()
    beside = later(lambda: [ok(crib.invoke("other_echo", {"n": n})) for n in range(20)])
    problem(crib.invoke("s_huge", {"n": 50}), 502, "bad_output")
    beside()
    fine(crib)
    assert crib.rss() - before < 60_000_000, "it was not taken in whole, or was let go of"


def test_a_line_without_an_end(crib):
    before = crib.rss()
    began = now()
    problem(crib.invoke("s_endless"), {502, 504})
    assert spent(began) < 10
    fine(crib)
    assert crib.rss() - before < 60_000_000


def test_an_answer_of_half_a_megabyte_is_fine(crib):
    """More than a pipe holds, less than what is too much."""
    given = {"words": "w" * 500_000}
    done = ok(crib.invoke("s_echo", given))
    assert json.loads(text_of(crib.row(done["invocation_id"])["result"])) == given


def test_a_flood_of_notifications(crib):
    before = crib.rss()
    found = events(crib, "s_flood")
    assert text_of(found[-1][1]) == "after the flood"
    progress = [data for name, data in found if name == "progress"]
    assert len(progress) + sum(event.get("missed", 0) for event in progress) == 20_000, "each one is delivered, or counted as missed"
    assert text_of(ok(crib.invoke("s_flood"))) == "after the flood"
    fine(crib)
    assert crib.rss() - before < 60_000_000


def test_a_flood_on_standard_error(crib):
    before = crib.rss()
    assert text_of(ok(crib.invoke("s_noisy"))) == "after the noise"
    fine(crib)
    assert crib.rss() - before < 60_000_000
    assert len(crib.stderr) < 5_000_000, "the log is not flooded either"


# ---- lies ---------------------------------------------------------------------------------------------------------------

def test_structured_content_that_is_not_what_was_promised(crib):
    said = problem(crib.invoke("s_wrong_shape"), 502, "bad_output")
    assert "degrees" in said["detail"], said
    problem(crib.invoke("s_no_structure"), 502, "bad_output")
    assert text_of(said_no(crib.invoke("s_no_structure_no"))) == "No weather today.", "a no need not fit"


def test_results_that_are_none(crib):
    problem(crib.invoke("s_no_result"), 502, {"bad_output", "upstream_failed"})
    reply = crib.invoke("s_odd_block")
    if reply.status == 200:
        assert "still here" in text_of(reply), reply
    else:
        problem(reply, 502, "bad_output")
    fine(crib)


def test_data_that_is_no_base64_is_told_and_the_rest_comes(crib):
    answer = ok(crib.invoke("s_bad_base64"))
    assert [block["type"] for block in answer["content"]] == ["text", "text", "text", "image", "text"], answer
    assert answer["content"][0]["text"] == "[image: left out, its data is not base64]"
    assert [warning.split(":")[0] for warning in answer["meta"]["warnings"]] == ["content.0", "content.1", "content.2"], answer
    assert base64.b64decode(answer["content"][3]["data"], validate=True).startswith(b"\x89PNG")


def test_data_that_held_a_secret_is_told(crib):
    answer = ok(crib.invoke("s_secret_bytes"))
    assert text_of(answer) == "[image: left out, a secret is in its data]", answer
    assert "secret" in answer["meta"]["warnings"][0]


def test_garbage_between_messages(crib):
    """A stray print is no reason to end."""
    assert text_of(ok(crib.invoke("s_garbage"))) == "after garbage"
    assert text_of(ok(crib.invoke("s_garbage"))) == "after garbage"


def test_half_a_line_before_an_answer(crib):
    """An answer that cannot be read: the call fails at once, and the server goes on."""
    began = now()
    for tool in ("garbage_half", "bare", "not_text"):
        said = problem(crib.invoke(f"s_{tool}", timeout="10s"), 502, "bad_output")
        assert "no JSON-RPC message" in said["detail"], said
    assert spent(began) < 5
    fine(crib)


def test_a_line_that_is_no_message_is_in_the_log_by_its_length_only(crib):
    assert text_of(ok(crib.invoke("s_log_lines"))) == "after the log"
    problem(crib.invoke("s_not_text"), 502, "bad_output")
    ok(crib.invoke("s_garbage"))
    crib.logged("no message: a line of", 5)
    poll(lambda: "not UTF-8" in crib.stderr and "not JSON-RPC" in crib.stderr, 5, crib.stderr)
    assert "secret-result" not in crib.stderr and "Loading model" not in crib.stderr, crib.stderr


def test_answers_to_others_and_answers_twice(crib):
    for _ in range(3):
        assert text_of(ok(crib.invoke("s_wrong_id"))) == "its own"
        assert text_of(ok(crib.invoke("s_twice"))) == "first"
        assert text_of(ok(crib.invoke("s_echo", {"a": 1}))) == '{"a": 1}'


def test_an_answer_to_a_call_that_was_not_made_yet(crib):
    assert text_of(ok(crib.invoke("s_shadow"))) == "its own"
    for number in range(60):
        assert json.loads(text_of(ok(crib.invoke("s_echo", {"n": number})))) == {"n": number}


def test_a_hundred_calls_answered_in_reverse(start, mode):
    if mode == "on_demand":
        pytest.skip("each call has a server of its own")
    crib = start({"mcp_servers": {"s": script("calls", tools={"reverse": {"effect": "read", "concurrency": {"max": 100}}})}}).ready()
    answers = parallel(100, lambda number: crib.invoke("s_reverse", {"n": number, "of": 100}))
    assert [text_of(ok(answer)) for answer in answers] == [str(number) for number in range(100)]


def test_calls_at_the_same_time_each_get_their_own(crib):
    answers = parallel(12, lambda number: [crib.invoke("s_echo", {"n": number, "k": k}) for k in range(3)])
    for number, some in enumerate(answers):
        assert [json.loads(text_of(ok(one))) for one in some] == [{"n": number, "k": k} for k in range(3)]


def test_it_asks_for_what_only_a_person_may_give(crib):
    """Sampling, elicitation and roots were not offered: refused, at once. Only a ping is answered."""
    began = now()
    told = json.loads(text_of(ok(crib.invoke("s_asks"))))
    assert told == {"sampling/createMessage": "error", "elicitation/create": "error", "roots/list": "error", "ping": "result", "made/up": "error"}, told
    assert spent(began) < 4


def test_nothing_that_needs_a_person_was_offered(crib, tmp_path):
    ok(crib.invoke("s_echo"))
    for message in heard(tmp_path / "heard", "initialize"):
        assert not {"sampling", "elicitation", "roots"} & set(message["params"]["capabilities"]), message
        assert message["params"]["clientInfo"]["name"] == "toolcrib", message


# ---- secrets ------------------------------------------------------------------------------------------------------------

def test_a_secret_that_it_echoes_stays_inside(crib):
    told = [crib.invoke(f"s_{name}") for name in ("secret", "secret_error", "secret_no")]
    told.append(crib.post("/tools/s_secret_step/invoke", '{"arguments": {}}', headers={"accept": "text/event-stream"}))
    ok(told[0]), said_no(told[2])
    rows = crib.get("/invocations?limit=100").body
    each = [crib.get(f"/invocations/{row['invocation_id']}").body for row in json.loads(rows)["invocations"]]
    time.sleep(0.3)
    for place in [reply.body for reply in told] + [rows, *each, crib.stderr.encode(), crib.get("/sources").body, crib.get("/tools").body]:
        for spelled in (SECRET.encode(), base64.b64encode(SECRET.encode())):
            assert spelled not in place, place


# ---- both at once -------------------------------------------------------------------------------------------------------

def test_a_bad_hour(crib, mode, tmp_path):
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
    fine(crib)
    assert source(crib, "other")["replaced"] == 0
