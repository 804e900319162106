"""Agents: a tool with a model and tools of its own. The model is scripted (model.py); the rest is real."""

import json
import socket
import time

import pytest
from harness import cli, in_background, now, ok, poll, problem, processes, error_result, elapsed, text_of
from model import KEY, Model, calls
from recipes import CALLERS, KEYS, py, sh, to_yaml
from streams import Stream

ENV = {**KEYS, "MODEL_KEY": KEY}
CALC = {"kind": "native"}


@pytest.fixture
def model():
    model = Model()
    yield model
    model.close()
    assert not model.refused, "\n".join(model.refused)


def agent(model, name="m", /, stream=False, **keys):
    """An agent whose model has the name `name`; a read, unless the keys set another effect."""
    more = keys.pop("model", {})
    return {"kind": "agent", "description": "Works out hard arithmetic, step by step.", "effect": "read",
            "model": {"base_url": model.base_url, "name": name, "key": "${env:MODEL_KEY}", "stream": stream, **more}, **keys}


def maths(model, /, **keys):
    return {"tools": {"calculator": CALC, "math": agent(model, **{"tools": ["calculator"], **keys})}}


ADD = calls(("calculator", {"expression": "20 + 22"}))
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


# ---- what it does ------------------------------------------------------------------------------------------------------

@both
def test_agent_calls_its_tools_and_answers(start, model, stream):
    crib = start(maths(model, stream=stream, system="You are careful.", model={"temperature": 0, "max_tokens": 99}), env=ENV)
    model.script("m", ADD, "It is 42.")
    answer = ok(crib.invoke("math", {"task": "20 + 22?", "context": "in tens"}, run_id="r-1", tool_use_id="outer"))
    assert text_of(answer).strip() == "It is 42." and answer["structured_content"] is None
    first, second = model.requests["m"]
    assert first["messages"] == [{"role": "system", "content": "You are careful."},
                                 {"role": "user", "content": "20 + 22?\n\nContext:\nin tens"}]
    assert (first["temperature"], first["max_tokens"], first["stream"]) == (0, 99, stream)
    assert model.tools("m") == ["calculator"] and model.tool_results("m") == {"call_0": "42"}
    assert second["messages"][:2] == first["messages"] and second["tools"] == first["tools"]
    assert answer["meta"]["model"] == {"requests": 2, "input_tokens": 60, "output_tokens": 20, "total_tokens": 80, "estimated": False}
    # Every call has a row of its own, of the same caller and run.
    inner = crib.wait_row("tool=calculator")
    outer = crib.row(answer["invocation_id"])
    assert (inner["run_id"], inner["caller"], inner["state"]) == ("r-1", "anonymous", "succeeded")
    assert inner["parent"] == outer["invocation_id"] and outer["parent"] is None
    assert inner["arguments"] == {"expression": "20 + 22"}


@both
def test_parallel_calls_of_a_message_keep_order(start, model, stream):
    nap = py("import sys,json,time; n=json.load(sys.stdin)['n']; time.sleep(0.6); print(n)", effect="read",
             parameters={"n": {"type": "integer", "description": "A number"}})
    crib = start({"tools": {"nap": nap, "boss": agent(model, stream=stream, tools=["na*"])}}, env=ENV)
    model.script("m", calls(*(("nap", {"n": n}) for n in range(4))), "done")
    began = now()
    ok(crib.invoke("boss", {"task": "sleep"}))
    assert elapsed(began) < 2.0, "four naps of 0.6 s at once"
    assert [one["content"].strip() for one in model.requests["m"][1]["messages"][-4:]] == ["0", "1", "2", "3"]


def test_tool_errors_are_shown_to_the_model(start, model):
    crib = start({"calls": {"parallel": 2}, "tools": {
        "calculator": CALC, "no": sh("echo 'not today' >&2; exit 3", effect="read"),
        "off": sh("echo", effect="read", enabled=False), "secret": sh("echo s3", effect="read"),
        "boss": agent(model, tools=["calculator", "no", "off"])}}, env=ENV)
    model.script("m", calls(("calculator", {"expression": "1 / 0"}), ("calculator", {"expr": 1}), ("calculator", "{'expression': '6*7',}"),
                            ("calculator", "{\"expression\""), ("no", {}), ("off", {}), ("secret", {}), ("calculater", {}), ("Calculator", {"expression": "1"})),
                 "done")
    ok(crib.invoke("boss", {"task": "try"}))
    reported = [model.tool_results("m")[f"call_{n}"] for n in range(9)]
    for text, words in zip(reported, ["zero", "expression", "42", "JSON", "not today", "disabled", "no tool `secret`", "did you mean calculator", "1"]):
        assert words in text, (words, reported)
    assert model.tools("m") == ["calculator", "no"], "what is off is not offered"
    assert not crib.rows("tool=secret")
    # What the model wrote is not sent back where a server would choke on it.
    requested = model.requests["m"][1]["messages"][1]["tool_calls"]
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in requested)


def test_repeated_call_is_refused_to_agent_only(start, model):
    crib = start(maths(model), env=ENV)
    model.script("m", ADD, ADD, "done")
    ok(crib.invoke("calculator", {"expression": "20 + 22"}, run_id="r"))
    ok(crib.invoke("math", {"task": "x"}, run_id="r"))
    output = [one["content"] for one in model.requests["m"][2]["messages"] if one["role"] == "tool"]
    assert output[0] == "42" and "just before" in output[1]
    ok(crib.invoke("calculator", {"expression": "20 + 22"}, run_id="r"))


def test_prompts_schemas_and_json_output_work(start, model):
    shape = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    two = {"a": {"type": "integer", "description": "One"}, "b": {"type": "integer", "description": "Other"}}
    crib = start({"tools": {"sum": agent(model, parameters=two, prompt="Add {{ a }} to {{ b }}.", output_schema=shape),
                            "raw": agent(model, "r", parameters=two)}}, env=ENV)
    model.script("m", '```json\n{"sum": 3}\n```', '{"sum": "x"}', "three").script("r", '[1, 2]')
    answer = ok(crib.invoke("sum", {"a": 1, "b": 2}))
    assert answer["structured_content"] == {"sum": 3}
    system, user = model.requests["m"][0]["messages"]
    assert '"sum"' in system["content"] and user["content"] == "Add 1 to 2." and "tools" not in model.requests["m"][0]
    problem(crib.invoke("sum", {"a": 1, "b": 2}), 502, "bad_output")
    problem(crib.invoke("sum", {"a": 1, "b": 2}), 502, "bad_output")
    assert ok(crib.invoke("raw", {"a": 1, "b": 2}))["structured_content"] == [1, 2]
    assert json.loads(model.requests["r"][0]["messages"][0]["content"]) == {"a": 1, "b": 2}
    problem(crib.invoke("sum", {"a": 1}), 422, "invalid_arguments")


def test_tool_result_may_be_the_answer(start, model):
    crib = start({"tools": {"answer": sh("echo '{\"n\": 1}'", effect="read", result_as_answer=True),
                            "boss": agent(model, tools=["answer"], max_turns=1)}}, env=ENV)
    model.script("m", calls(("answer", {})))
    answer = ok(crib.invoke("boss", {"task": "x"}))
    assert answer["structured_content"] == {"n": 1} and len(model.requests["m"]) == 1


# ---- grants, denials and context of its calls --------------------------------------------------------------------------

def test_agent_has_the_grants_of_its_caller(start, model):
    callers = [{"name": "ann", "key": "${env:ANN}", "allow": ["boss", "calculator"], "limits": [{"calls": 3, "per": "day"}]}, *CALLERS[1:]]
    crib = start({"callers": callers, "tools": {"calculator": CALC, "shell": sh("echo ran", effect="read"),
                                                "boss": agent(model, tools=["*"])}}, env=ENV)
    ask = calls(("calculator", {"expression": "1"}), ("shell", {}), ("calculator", {"expression": "2"}), ("calculator", {"expression": "3"}))
    model.script("m", ask, "done")
    ok(crib.invoke("boss", {"task": "x"}, key=KEYS["ANN"]))
    reported = model.tool_results("m")
    assert model.tools("m") == ["boss", "calculator"]
    assert "not allowed" in reported["call_1"]
    # The agent's own call was the first of three.
    assert sum("limit of 3 calls" in output for output in reported.values()) == 1, reported
    rows = crib.rows("caller=ann&tool=shell", key=KEYS["ROOT"])
    assert [(row["state"], row["kind"]) for row in rows] == [("refused", "forbidden")]
    model.script("m", ask, "done")
    ok(crib.invoke("boss", {"task": "x"}, key=KEYS["BOB"]))
    assert model.tool_results("m")["call_1"].strip() == "ran" and "shell" in model.tools("m")


def test_denied_tools_stay_denied_in_nested_calls(start, model):
    crib = start(maths(model, tools=["*"], depth=2), env=ENV)
    model.script("m", ADD, "done")
    message = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "math", "arguments": '{"task": "x"}'}}]}
    reply = crib.post("/calls?deny=Calcu*", json.dumps(message))
    assert reply.status == 200 and reply.json["results"][0]["is_error"] is False, reply
    assert model.tools("m") == ["math"] and "not allowed" in model.tool_results("m")["call_0"]


def test_result_under_a_denial_is_not_cached(start, model):
    keeps = {"cache": {"ttl": "5m", "context": []}}
    crib = start(maths(model, **keeps), env=ENV)
    message = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "math", "arguments": '{"task": "x"}'}}]}
    model.script("m", "without", "with", "again without")
    output = [text_of(crib.post(f"/calls{deny}", json.dumps(message)).json["results"][0]) for deny in ("?deny=calculator", "", "?deny=calculator", "")]
    assert output == ["without", "with", "again without", "with"]
    assert [len(model.tools("m", n)) for n in range(3)] == [0, 1, 0]


def test_context_reaches_tools_and_limits_caching(start, model):
    shown = agent(model, tools=["calculator"], cache={"ttl": "5m"})
    named = agent(model, tools=["calculator"], cache={"ttl": "5m", "context": ["tenant"]})
    alone = agent(model, "alone", cache={"ttl": "5m"})
    crib = start({"tools": {"calculator": CALC, "shown": shown, "named": named, "alone": alone}}, env=ENV)
    model.script("m", "a", "b", "c", "d").script("alone", "x", "y")
    ask = lambda tool, tenant: text_of(ok(crib.invoke(tool, {"task": "x"}, context={"tenant": tenant})))  # noqa: E731
    assert [ask("shown", 1), ask("shown", 1)] == ["a", "b"], "its tools see the context, so nothing is stored"
    assert [ask("named", 1), ask("named", 1), ask("named", 2)] == ["c", "c", "d"]
    assert [ask("alone", 1), ask("alone", 2)] == ["x", "x"], "an agent without tools hands the context to nobody"


# ---- bounds ------------------------------------------------------------------------------------------------------------

def test_nested_agents_are_bounded_by_depth(start, model):
    crib = start({"tools": {"calculator": CALC, **{f"a{n}": agent(model, f"a{n}", tools=[f"a{n + 1}", "calculator"]) for n in range(5)}}}, env=ENV)
    for n in range(5):
        model.script(f"a{n}", calls((f"a{n + 1}", {"task": f"level {n + 1}"}), ("calculator", {"expression": f"{n}"})), f"from {n}")
    assert text_of(ok(crib.invoke("a0", {"task": "go"}))).strip() == "from 0"
    # The fourth agent is the third nested call: nothing may be nested below it, so it does not begin.
    assert model.tool_results("a1")["call_0"] == "from 2" and model.tool_results("a2")["call_1"] == "2"
    assert "3 calls of tools deep" in model.tool_results("a2")["call_0"]
    assert not model.requests["a3"]
    rows = {row["tool"]: row for row in crib.rows()}
    assert rows["a1"]["parent"] == rows["a0"]["invocation_id"] and rows["a2"]["parent"] == rows["a1"]["invocation_id"]
    assert rows["a3"]["state"] == "failed"


def test_recursive_agent_needs_one_permit_and_ends(start, model):
    crib = start({"server": {"max_in_flight": 1}, "tools": {
        "calculator": CALC, "me": agent(model, tools=["me", "calculator"], depth=2, concurrency={"max": 1, "queue": 0})}}, env=ENV)
    model.script("m", calls(("me", {"task": "again"})), calls(("calculator", {"expression": "1"})), "inner", "outer")
    began = now()
    assert text_of(ok(crib.invoke("me", {"task": "go"}))) == "outer"
    assert elapsed(began) < 0.9, "nobody waited for a place"
    assert model.tool_results("m")["call_0"] == "inner"


@both
def test_turn_and_token_budgets_end_a_run(start, model, stream):
    crib = start({"tools": {"calculator": CALC, "few": agent(model, stream=stream, tools=["calculator"], max_turns=2),
                            "poor": agent(model, stream=stream, tools=["calculator"], budget={"tokens": 50})}}, env=ENV)
    steps = [calls(("calculator", {"expression": f"{n} + 1"}), text=f"Step {n}.") for n in range(9)]
    model.script("m", *steps)
    answer = error_result(crib.invoke("few", {"task": "x"}))
    assert "max_turns" in text_of(answer) and "Step 1." in text_of(answer)
    assert len(crib.all_rows("tool=calculator")) == 1, "the last turn's calls would be for nobody"
    model.script("m", *steps)
    answer = error_result(crib.invoke("poor", {"task": "x"}))
    assert "budget of tokens" in text_of(answer) and answer["meta"]["model"]["total_tokens"] == 80
    assert crib.row(answer["invocation_id"])["state"] == "failed"


def test_nested_agent_tokens_count(start, model):
    crib = start({"tools": {"below": agent(model, "below"), "boss": agent(model, tools=["below"], budget={"tokens": 70})}}, env=ENV)
    model.script("below", "yes").script("m", calls(("below", {"task": "x"})), "done")
    answer = error_result(crib.invoke("boss", {"task": "x"}))
    assert answer["meta"]["model"] == {"requests": 1, "input_tokens": 30, "output_tokens": 10, "total_tokens": 80, "estimated": False}


def test_nested_agent_tokens_count_through_delegation(start, model):
    crib = start({"tools": {"below": agent(model, "below"), "delegate_work": {"kind": "native", "effect": "read"},
                            "boss": agent(model, tools=["delegate_work"], budget={"tokens": 70})}}, env=ENV)
    model.script("below", "yes").script("m", calls(("delegate_work", {"task": "x", "context": "", "coworker": "below"})), "done")
    answer = error_result(crib.invoke("boss", {"task": "x"}))
    assert answer["meta"]["model"]["total_tokens"] == 80


def test_conversation_size_is_bounded(start, model):
    crib = start(maths(model, max_turns=9, timeout="120s"), env=ENV)
    model.script("m", calls(("calculator", {"expression": "1"}), text="word " * (700 << 10)))
    answer = error_result(crib.invoke("math", {"task": "x"}))
    assert "longer than 16" in text_of(answer) and answer["meta"]["model"]["requests"] == 5, text_of(answer)[:200]


@both
def test_tokens_are_estimated_without_usage_numbers(start, model, stream):
    crib = start(maths(model, stream=stream), env=ENV)
    model.script("m", lambda handler, body: handler.send_message("word " * 100, body, usage=None))
    used = ok(crib.invoke("math", {"task": "x"}))["meta"]["model"]
    assert used["estimated"] is True and 100 <= used["output_tokens"] < 200 and used["input_tokens"] > 20


def test_time_budget_and_deadline_end_a_run(start, model):
    crib = start({"tools": {"nap": sh("sleep 30", effect="read"), "slow": agent(model, tools=["nap"], budget={"time": "500ms"}),
                            "held": agent(model, tools=["nap"], budget={"time": "20s"})}}, env=ENV)
    model.script("m", lambda handler, body: handler.wait())
    began = now()
    assert "budget of time" in text_of(error_result(crib.invoke("slow", {"task": "x"})))
    problem(crib.invoke("held", {"task": "x"}, timeout="700ms"), 504, "deadline_exceeded")
    model.script("m", calls(("nap", {})), "done")
    problem(crib.invoke("held", {"task": "x"}, timeout="700ms"), 504, "deadline_exceeded")
    assert elapsed(began) < 5
    # The tool's call ended with the agent's, or was ended by it.
    poll(lambda: {row["state"] for row in crib.rows("tool=nap")} <= {"timed_out", "cancelled"} and crib.rows("tool=nap"))
    assert len(model.gone) == 0 or set(model.gone) == {"m"}


# ---- stopping ----------------------------------------------------------------------------------------------------------

@both
def test_cancelling_an_agent_stops_model_and_tools(start, model, mark, stream):
    crib = start({"tools": {"nap": sh(f"sleep 300 0.{mark} & wait", effect="write"),
                            "boss": agent(model, stream=stream, tools=["nap"], timeout="60s")}}, env=ENV)
    model.script("m", lambda handler, body: handler.wait())
    reply = in_background(lambda: crib.invoke("boss", {"task": "x"}))
    assert model.waiting.wait(10)
    row = crib.wait_row("tool=boss&state=running")
    assert crib.delete(f"/invocations/{row['invocation_id']}").status == 200
    problem(reply(), 499, "cancelled")
    poll(lambda: model.gone, what="the model's server sees that nobody waits any more")

    model.script("m", calls(("nap", {})), "done")
    reply = in_background(lambda: crib.invoke("boss", {"task": "x"}))
    poll(lambda: processes(mark), what="the program runs")
    inner = crib.wait_row("tool=nap")
    outer = crib.wait_row("tool=boss&state=running")
    assert inner["parent"] == outer["invocation_id"]
    assert crib.delete(f"/invocations/{outer['invocation_id']}").status == 200
    problem(reply(), 499, "cancelled")
    ended = poll(lambda: next((row for row in crib.rows("tool=nap") if row["state"] == "unknown"), None), what="a write that was stopped")
    assert ended["kind"] == "cancelled" and len(model.requests["m"]) == 1
    poll(lambda: not processes(mark), what="the program is gone with all its descendants")


def test_cancelling_a_tool_call_leaves_the_agent(start, model):
    crib = start({"tools": {"nap": sh("sleep 300", effect="read"), "boss": agent(model, tools=["nap"], timeout="60s")}}, env=ENV)
    model.script("m", calls(("nap", {})), "done without")
    reply = in_background(lambda: crib.invoke("boss", {"task": "x"}))
    inner = crib.wait_row("tool=nap&state=running")
    assert crib.delete(f"/invocations/{inner['invocation_id']}").status == 200
    assert text_of(ok(reply())) == "done without" and "cancelled" in model.tool_results("m")["call_0"]


@pytest.mark.parametrize("effect, state", [("write", "succeeded"), ("read", "cancelled")])
def test_disconnect_cancels_read_and_not_write(start, model, effect, state):
    crib = start(maths(model, effect=effect), env=ENV)

    def late(handler, body):
        model.waiting.set()
        poll(lambda: left)
        time.sleep(0.2)
        handler.send_message(ADD, body)

    left = []
    model.script("m", late, "42")
    events = Stream(crib, "math", arguments={"task": "x"}) if effect == "read" else None
    body = json.dumps({"arguments": {"task": "x"}}).encode()
    sock = events.sock if events else socket.create_connection(("127.0.0.1", crib.port))
    if not events:
        sock.sendall(b"POST /tools/math/invoke HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (crib.port, len(body)) + body)
    assert model.waiting.wait(10)
    sock.close()
    left.append(True)
    crib.wait_row(f"tool=math&state={state}")
    # A started write continues, and so do the calls that it makes.
    assert len(crib.all_rows("tool=calculator")) == (1 if effect == "write" else 0)


def test_agent_runs_asynchronously(start, model):
    crib = start(maths(model), env=ENV)
    model.script("m", ADD, "42")
    reply = crib.invoke("math", {"task": "x"}, headers={"prefer": "respond-async"})
    assert reply.status == 202
    id = reply.json["invocation_id"]
    poll(lambda: crib.row(id)["state"] == "succeeded")
    assert text_of(crib.row(id)["result"]) == "42"
    assert [row["tool"] for row in poll(lambda: crib.rows(f"parent={id}"))] == ["calculator"]
    problem(crib.get("/invocations?parent=x"), 400, "invalid_request")


def test_agent_under_an_idempotency_key_runs_once(start, model):
    crib = start({"tools": {"save": sh("echo saved", idempotency="required"), "boss": agent(model, tools=["save"], effect="write")}}, env=ENV)
    model.script("m", calls(("save", {})), "done")
    first, second = (crib.invoke("boss", {"task": "x"}, headers={"idempotency-key": "k-1"}) for _ in range(2))
    assert text_of(ok(first)) == "done" and second.body == first.body and len(model.requests["m"]) == 2
    row, = crib.all_rows("tool=save")
    assert row["state"] == "succeeded" and row["idempotency_key"] == row["invocation_id"]


def test_shutdown_lets_an_agent_finish(start, model):
    crib = start(maths(model), env=ENV)

    def late(handler, body):
        model.waiting.set()
        time.sleep(1)
        handler.send_message(ADD, body)

    model.script("m", late, "42")
    reply = in_background(lambda: crib.invoke("math", {"task": "x"}))
    assert model.waiting.wait(10)
    crib.terminate()
    assert text_of(ok(reply())) == "42" and model.tool_results("m") == {"call_0": "42"}


# ---- a model's server that fails ---------------------------------------------------------------------------------------

def cut_stream(handler, body):
    handler.events()
    handler.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "half an"}, "finish_reason": None}]})
    handler.end()


def torn_stream(handler, body):
    cut_stream(handler, body)
    handler.close_connection = True


def error_in_stream(handler, body):
    handler.events()
    handler.event({"choices": [{"index": 0, "delta": {"content": "well"}, "finish_reason": None}]})
    handler.event({"error": {"message": "overloaded", "code": 502}})
    handler.end()


FAILURES = {
    "429": 429, "500": 500, "503": 503, "529": 529,
    "no JSON": lambda handler, body: handler.reply(200, b"<html>busy</html>", "text/html"),
    "no choices": lambda handler, body: handler.reply(200, {"object": "list", "data": []}),
    "error with 200": lambda handler, body: handler.reply(200, {"error": {"message": "try later", "code": 429}}),
    "half a stream": cut_stream, "an error in the stream": error_in_stream,
    "a stream of garbage": lambda handler, body: (handler.events(), handler.event("{nonsense"), handler.end()),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_model_server_errors_are_retried(start, model, failure):
    stream = "stream" in failure
    crib = start(maths(model, stream=stream), env=ENV)
    model.script("m", FAILURES[failure], ADD, FAILURES[failure], "42")
    answer = ok(crib.invoke("math", {"task": "x"}))
    assert text_of(answer).strip() == "42" and answer["meta"]["model"]["requests"] == 2 and answer["meta"]["attempts"] == 1
    assert len(crib.all_rows("tool=calculator")) == 1, "a tool is not called again for that"


@pytest.mark.parametrize("failure, kind, retryable", [("503", "upstream_failed", True), ("no JSON", "bad_output", False), ("half a stream", "upstream_failed", True)])
def test_persistent_model_server_error_fails_the_call(start, model, failure, kind, retryable):
    crib = start(maths(model, stream="stream" in failure, effect="write"), env=ENV)
    model.script("m", FAILURES[failure])
    error = problem(crib.invoke("math", {"task": "x"}), 502, kind)
    assert len(model.requests["m"]) == 3 and error["retryable"] is retryable, error
    assert crib.row(error["invocation_id"])["state"] == "failed"
    # After a tool was called, nothing is repeated.
    model.script("m", ADD, FAILURES[failure])
    error = problem(crib.invoke("math", {"task": "x"}), 502, kind)
    assert error["retryable"] is False, error


def test_retry_after_of_model_is_honoured(start, model):
    crib = start(maths(model), env=ENV)
    model.script("m", lambda handler, body: handler.reply(429, {}, retry_after="1"), "done")
    began = now()
    ok(crib.invoke("math", {"task": "x"}))
    assert 1.0 <= time.monotonic() - began and elapsed(began) < 4
    model.script("m", lambda handler, body: handler.reply(429, {}, retry_after="120"), "done")
    error = problem(crib.invoke("math", {"task": "x"}), 502, "upstream_failed")
    assert error["retry_after_ms"] == 120_000 and len(model.requests["m"]) == 1


def test_permanent_errors_fail_without_the_key(start, model):
    for n, literal in enumerate((False, True)):
        tools = maths(model, model={"key": KEY} if literal else {})
        crib = start(tools, env=ENV)
        model.script("m", lambda handler, body: handler.reply(401, {"error": {"message": f"Incorrect API key provided: {KEY}. Find yours at …"}}))
        error = problem(crib.invoke("math", {"task": "x"}), 502, "upstream_failed")
        assert "HTTP 401: Incorrect API key provided: [redacted]" in error["detail"] and not error["retryable"]
        assert len(model.requests["m"]) == 1
        poll(lambda: crib.rows())
        assert KEY not in crib.stderr and KEY.encode() not in crib.ledger.read_bytes() and KEY not in crib.get("/tools/math").body.decode()


def test_refused_connection_is_upstream_failed(start, model):
    crib = start(maths(model, model={"base_url": "http://127.0.0.1:9/v1"}, effect="write"), env=ENV)
    error = problem(crib.invoke("math", {"task": "x"}), 502, "upstream_failed")
    assert "127.0.0.1:9" in error["detail"] and error["retryable"] is True, "nothing was reached, so nothing was done"


def test_model_answer_size_is_bounded(start, model):
    big = "x" * (5 << 20)
    crib = start({"tools": {"whole": agent(model, "w"), "streamed": agent(model, "s", stream=True)}}, env=ENV)
    model.script("w", big).script("s", big)
    for tool in ("whole", "streamed"):
        assert "more than 4.0 MiB" in problem(crib.invoke(tool, {"task": "x"}), 502, "bad_output")["detail"]


@both
def test_missing_model_answer_is_an_error(start, model, stream):
    crib = start(maths(model, stream=stream), env=ENV)
    for step, words in [
        ("", "returned no text"),
        ({"role": "assistant", "content": None, "refusal": "I cannot help with that."}, "I cannot help with that."),
        (lambda handler, body: handler.send_message("It is fort", body, finish="length"), "It is fort"),
        (lambda handler, body: handler.send_message("", body, finish="content_filter"), "content_filter"),
    ]:
        model.script("m", step)
        if isinstance(step, dict) and stream:
            continue  # refusals come in pieces of their own, which stream.rs tests
        assert words in text_of(error_result(crib.invoke("math", {"task": "x"})))


def test_truncated_call_runs_only_without_effects(start, model):
    crib = start({"tools": {"save": sh("echo saved", effect="write"), "boss": agent(model, tools=["save"])}}, env=ENV)
    model.script("m", lambda handler, body: handler.send_message(calls(("save", '{"n": 1')), body, finish="length"), "done")
    ok(crib.invoke("boss", {"task": "x"}))
    assert "cut off" in model.tool_results("m")["call_0"].lower() or "not complete" in model.tool_results("m")["call_0"].lower(), model.tool_results("m")
    assert all(row["state"] == "refused" for row in crib.rows("tool=save"))


def test_missing_call_ids_are_generated(start, model):
    crib = start(maths(model), env=ENV)
    bare = calls(("calculator", {"expression": "1"}), ("calculator", {"expression": "2"}))
    for call in bare["tool_calls"]:
        del call["id"]
    model.script("m", bare, "done")
    ok(crib.invoke("math", {"task": "x"}))
    assert model.tool_results("m") == {"call_1": "1", "call_2": "2"}


# ---- being watched -----------------------------------------------------------------------------------------------------

@both
def test_turns_are_streamed_as_progress(start, model, stream):
    crib = start(maths(model, stream=stream), env=ENV)
    model.script("m", ADD, 503, "It is 42, I think.")
    events = Stream(crib, "math", arguments={"task": "x"})
    assert events.head()[0] == 200
    reported, last = [], None
    while (block := events.next_block()) is not None:
        if block[0] == "progress":
            reported.append(block[1]["data"])
        elif block[0] == "result":
            last = block[1]
    assert text_of(last).strip() == "It is 42, I think."
    assert reported[0] == {"turn": 1, "calls": ["calculator"], "tokens": 40}
    repeated = next(one for one in reported if "again" in one)
    assert repeated["turn"] == 2 and "HTTP 503" in repeated["again"]
    assert {"turn": 2, "calls": [], "tokens": 80} in reported
    words = "".join(one["text"] for one in reported if "text" in one)  # in whole words
    assert words.split() == ("It is 42, I think.".split() if stream else [])


# ---- coworkers ---------------------------------------------------------------------------------------------------------

def test_delegation_and_questions_run_coworkers(start, model):
    short = {"task": {"type": "string", "description": "The task"}}
    crib = start({"callers": [{"name": "ann", "key": "${env:ANN}", "deny": ["private_eye"]}, *CALLERS[1:]], "tools": {
        "calculator": CALC, "math_whiz": agent(model, "whiz", tools=["calculator"]), "poet": agent(model, "poet", parameters=short),
        "private_eye": agent(model, "eye"), "taskless": agent(model, "none", prompt="Add {{ sum }}.", parameters={"sum": {"type": "string", "description": "A sum"}}),
        "delegate_work": {"kind": "native"},
        "ask": {"kind": "native", "use": "ask_question", "with": {"coworkers": ["poet"]}}}}, env=ENV)
    ann = {"key": KEYS["ANN"]}
    model.script("whiz", ADD, "42").script("poet", "roses")
    listed = crib.get("/tools/delegate_work", **ann).json
    assert listed["effect"] == "write" and sorted(listed["input_schema"]["required"]) == ["context", "coworker", "task"]
    # Agents that not all callers of the tool may use are not named.
    described = {name: crib.get(f"/tools/{name}", **ann).json["description"] for name in ("delegate_work", "ask")}
    purpose = "Works out hard arithmetic, step by step."
    assert described["delegate_work"].endswith(f"Coworkers:\n- math_whiz: {purpose}\n- poet: {purpose}"), described
    assert described["ask"].endswith(f"Coworkers:\n- poet: {purpose}"), described
    answer = ok(crib.invoke("delegate_work", {"task": "Add.", "context": "20 and 22", "coworker": '"Math Whiz"\n'}, run_id="r", **ann))
    assert text_of(answer) == "42" and model.requests["whiz"][0]["messages"][0]["content"] == "Add.\n\nContext:\n20 and 22"
    rows = {row["tool"]: row for row in crib.rows("run_id=r", **ann)}
    assert rows["math_whiz"]["parent"] == rows["delegate_work"]["invocation_id"] and rows["calculator"]["parent"] == rows["math_whiz"]["invocation_id"]
    # An agent that takes no context gets it in its task.
    assert text_of(ok(crib.invoke("ask", {"question": "A rhyme?", "context": "on noses", "coworker": "poet"}, **ann))) == "roses"
    assert model.requests["poet"][0]["messages"][0]["content"] == "A rhyme?\n\nContext:\non noses"
    for tool, coworker, known in [("delegate_work", "plumber", "math_whiz, poet"), ("delegate_work", "private_eye", "math_whiz, poet"),
                                  ("delegate_work", "calculator", "math_whiz, poet"), ("ask", "math_whiz", "poet")]:
        requested = {"question" if tool == "ask" else "task": "x", "context": "", "coworker": coworker}
        text = text_of(error_result(crib.invoke(tool, requested, **ann)))
        assert f"There are: {known}." in text, text
    assert not model.requests.get("eye")
    problem(crib.invoke("delegate_work", {"task": "x", "coworker": "poet"}, **ann), 422, "invalid_arguments")


def test_python_tool_sees_the_calling_agent(start, model, tmp_path):
    (tmp_path / "who.py").write_text("from toolcrib import tool\n\n\n@tool(context=True)\ndef who(tool_context) -> str:\n"
                                     "    'Says its name.'\n    return tool_context.agent.name + ' for ' + tool_context.caller\n")
    crib = start({"python_modules": {"who": {"module": str(tmp_path / "who.py")}}, "tools": {"boss": agent(model, "boss", tools=["who"])}},
                 env=ENV).ready()
    model.script("boss", calls(("who", {})), "done")
    ok(crib.invoke("boss", {"task": "Ask."}))
    assert model.tool_results("boss") == {"call_0": "boss for anonymous"}
    assert text_of(ok(crib.invoke("who"))) == "anonymous for anonymous"


def test_agents_do_not_share_cached_answers(start, model, tmp_path):
    (tmp_path / "who.py").write_text("from toolcrib import tool\n\n\n@tool(context=True)\ndef who(tool_context) -> str:\n"
                                     "    'Says its name.'\n    return tool_context.agent.name\n\n\n"
                                     "@tool\ndef plain() -> str:\n    'Says nothing of who asks.'\n    return 'plain'\n")
    stored = {"effect": "read", "cache": {"ttl": "1h", "scope": "shared", "context": []}}
    module = {"module": str(tmp_path / "who.py"), "tools": {"who": stored, "plain": stored}}
    crib = start({"python_modules": {"who": module}, "tools": {name: agent(model, name, tools=["who", "plain"]) for name in ("boss", "chief")}},
                 env=ENV).ready()
    asks = calls(("who", {}), ("plain", {}))
    for name in ("boss", "chief", "boss"):
        model.script(name, asks, "done")
        ok(crib.invoke(name, {"task": "Ask."}))
        assert model.tool_results(name)["call_0"] == name
    assert text_of(ok(crib.invoke("who"))) == "anonymous"
    cached = {tool: [row["cache"] for row in reversed(crib.rows()) if row["tool"] == tool] for tool in ("who", "plain")}
    assert cached == {"who": ["miss", "miss", "hit", "miss"], "plain": ["miss", "hit", "hit"]}, cached


def test_agent_lists_its_coworkers(start, model):
    crib = start({"tools": {"calculator": CALC, "whiz": agent(model, "whiz", tools=["calculator"]), "poet": agent(model, "poet"), "loner": agent(model, "x"),
                            "boss": agent(model, "boss", tools=["calculator"], coworkers=["whiz", "poet"])}}, env=ENV)
    model.script("whiz", ADD, "42").script("poet", "roses")
    model.script("boss", calls(("delegate_work", {"task": "Add.", "context": "20, 22", "coworker": "Whiz"}),
                               ("ask_question", {"question": "A rhyme?", "context": "", "coworker": "poet"}),
                               ("ask_question", {"question": "?", "context": "", "coworker": "loner"}),
                               ("delegate_work", {"context": "", "coworker": "poet"})), "done")
    answer = ok(crib.invoke("boss", {"task": "x"}))
    assert model.tools("boss") == ["calculator", "delegate_work", "ask_question"]
    reported = model.tool_results("boss")
    assert (reported["call_0"], reported["call_1"]) == ("42", "roses") and "There are: poet, whiz." in reported["call_2"] and "`task` is missing" in reported["call_3"]
    assert answer["meta"]["model"]["total_tokens"] == 80 + 80 + 40
    rows = {row["tool"]: row for row in crib.rows()}
    assert rows["whiz"]["parent"] == rows["boss"]["invocation_id"] and "loner" not in rows
    shown = model.requests["boss"][0]["tools"][1]["function"]
    assert shown["parameters"]["properties"]["coworker"]["enum"] == ["poet", "whiz"] and "- whiz: Works out hard arithmetic" in shown["description"]


# ---- the manifest ------------------------------------------------------------------------------------------------------

def checked(tmp_path, tools):
    (tmp_path / "t.yaml").write_text(to_yaml({"tools": tools}))
    run = cli("check", "--manifest", tmp_path / "t.yaml", cwd=tmp_path, env=ENV)
    return run.returncode, run.stdout + run.stderr


def test_invalid_agent_settings_are_found_by_check(tmp_path, model):
    def one(**keys):
        return checked(tmp_path, {"calculator": CALC, "boss": agent(model, **keys)})

    for keys, where in [
        ({"model": {"base_url": "localhost:1/v1"}}, "tools.boss.model.base_url"), ({"model": {"base_url": "ftp://x/"}}, "tools.boss.model.base_url"),
        ({"model": {"base_url": "http://k@x/v1"}}, "tools.boss.model.base_url"), ({"model": {"name": ""}}, "tools.boss.model.name"),
        ({"model": {"key": "a\nb"}}, "tools.boss.model.key"), ({"model": {"nam": "x"}}, "tools.boss.model"),
        ({"model": {"options": {"messages": []}}}, "tools.boss.model.options.messages"), ({"model": {"headers": {"a b": "c"}}}, "tools.boss.model.headers"),
        ({"max_turns": 0}, "tools.boss.max_turns"), ({"depth": 99}, "tools.boss.depth"), ({"budget": {"tokens": 0}}, "tools.boss.budget.tokens"),
        ({"budget": {"time": "5"}}, "tools.boss.budget.time"), ({"prompt": "Do {{ job }}"}, "tools.boss.prompt"), ({"coworkers": ["a b*"]}, "tools.boss.coworkers.0"),
    ]:
        code, output = one(**keys)
        assert code == 64 and where in output, (keys, output)
        assert KEY not in output
    code, output = one(tools=["calculator"], budget={"tokens": 20000, "time": "60s"}, depth=3, max_turns=8)
    assert code == 0, output


def test_unknown_names_are_found_by_check(tmp_path, model):
    code, output = checked(tmp_path, {"calculator": CALC, "poet": agent(model), "boss": agent(model, tools=["calculater", "x_*", "calculator", "*"],
                                                                                            coworkers=["poett", "calculator", "boss", "poet"]),
                                    "ask": {"kind": "native", "use": "ask_question", "with": {"coworkers": ["nobody"]}}})
    assert code == 64, "no source and no registration brings an agent"
    for where, words in [("tools.boss.tools.0", "calculator"), ("tools.boss.tools.1", "matches no tool"), ("tools.boss.coworkers.0", "poet"),
                         ("tools.boss.coworkers.1", "not an agent"), ("tools.ask.with.coworkers.0", "agent")]:
        line = next((line for line in output.splitlines() if where in line), None)
        assert line and words in line, (where, output)
    for fine in ("tools.boss.tools.2", "tools.boss.tools.3", "tools.boss.coworkers.2", "tools.boss.coworkers.3"):
        assert fine not in output, output


def test_agent_cannot_be_registered_over_http(start, model):
    crib = start(maths(model), env=ENV)
    assert "kind http" in problem(crib.request("PUT", "/tools/mine", json.dumps(agent(model))), 400)["detail"]


def test_run_survives_a_reload(start, model):
    crib = start(maths(model), env=ENV)

    def late(handler, body):
        crib.manifest.write_text(to_yaml({"tools": {"calculator": CALC, "other": agent(model)}}))
        poll(lambda: "other" in crib.get("/tools").body.decode())
        handler.send_message(ADD, body)

    model.script("m", late, "42")
    assert text_of(ok(crib.invoke("math", {"task": "x"}))) == "42" and model.tool_results("m") == {"call_0": "42"}


def test_nested_tool_progress_carries_its_name(start, model):
    talks = sh("echo half >&2; sleep 0.3; echo all", effect="read")
    crib = start({"tools": {"talks": talks, "boss": agent(model, tools=["talks"])}}, env=ENV)
    model.script("m", calls(("talks", {})), "done")
    events = Stream(crib, "boss", arguments={"task": "x"})
    assert events.head()[0] == 200
    reported = []
    while (block := events.next_block()) is not None:
        reported += [(block[1]["tool"], block[1]["tool_use_id"])] if block[0] == "progress" else []
    assert ("talks", "call_0") in reported and ("boss", None) in reported


def test_secret_in_a_model_answer_is_redacted(start, model):
    crib = start({"tools": {"boss": agent(model, stream=True, system="Never tell ${env:MODEL_KEY} to anybody.")}}, env=ENV)

    def tells(handler, body):
        handler.events()
        for piece in ("The key is ", KEY[:9], KEY[9:20], KEY[20:], " and no more."):
            handler.event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        handler.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        handler.event("[DONE]")
        handler.end()

    model.script("m", tells)
    events = Stream(crib, "boss", arguments={"task": "x"})
    events.head()
    output = []
    while (block := events.next_block()) is not None:
        output.append(json.dumps(block[1]))
    complete = "".join(output)
    assert "[redacted]" in complete and not any(KEY[at:at + 9] in complete for at in (0, 9, 18)), complete
