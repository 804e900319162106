"""Servers written with FastMCP and with the official Python SDK, of both eras: results, exceptions and progress arrive."""

import base64
import json
import os
import signal

import pytest

from conftest import MODES, SERVERS, events, names, read_policies, start_with_servers
from harness import now, ok, poll, problem, error_result, elapsed, text_of

# SDK, and the environment that has it. mcp 1.x speaks the session era only; mcp 2.x, and FastMCP 4 upon it, both.
SDKS = {"fastmcp": "sdk-2", "mcp-2": "sdk-2", "mcp-1": "sdk-1"}
TOOLS = {"add", "forecast", "fails", "picture", "climbs", "sleeps", "pid"}


@pytest.fixture(scope="module", params=list(SDKS))
def sdk(request):
    return request.param


@pytest.fixture(scope="module")
def crib(sdk, start_shared, python, listening):
    interpreter, toolbox = python(SDKS[sdk]), str(SERVERS / "toolbox.py")
    # Large packages: on a busy machine they take longer to start than a call takes by default.
    policies = {name: dict(policy, timeout="3m") for name, policy in {**read_policies("add", "picture", "climbs", "pid"), "forecast": {}, "fails": {}}.items()}
    policies["sleeps"] = {"effect": "read", "timeout": "1s"}
    pipe = {"command": [interpreter, toolbox, sdk, "stdio"], "start_timeout": "3m", "tools": policies}
    web = {"url": listening(interpreter, toolbox, sdk, "{port}"), "tools": policies}
    return start_with_servers(start_shared, wait=240, pipe=pipe, pipe_anew=dict(pipe, mode="on_demand"), web=web, web_anew=dict(web, mode="on_demand"))


@pytest.fixture(params=("pipe", "pipe_anew", "web", "web_anew"))
def way(request):
    return request.param


def test_sdk_functions_are_tools(crib, way):
    assert {name for name in names(crib) if name.startswith(f"{way}_") and name[len(way) + 1:] in TOOLS} == {f"{way}_{name}" for name in TOOLS}
    tool = crib.get(f"/tools/{way}_forecast").json
    assert tool["input_schema"]["properties"]["city"]["minLength"] == 1 and "degrees" in tool["output_schema"]["properties"], tool


def test_typed_results_are_structured(crib, way):
    answer = ok(crib.invoke(f"{way}_add", {"a": 40, "b": 2}))
    assert text_of(answer) == "42" and answer["structured_content"] == {"result": 42}, answer
    answer = ok(crib.invoke(f"{way}_forecast", {"city": "Oslo"}))
    assert answer["structured_content"] == {"city": "Oslo", "degrees": 21.5, "days": ["sun", "rain"]}, answer
    assert json.loads(text_of(answer)) == answer["structured_content"]


def test_invalid_arguments_are_refused(crib, way):
    error = problem(crib.invoke(f"{way}_forecast", {"city": ""}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/city", error


def test_exception_is_an_error_result(crib, way):
    answer = error_result(crib.invoke(f"{way}_fails", {"reason": "the moon is full"}))
    assert "the moon is full" in text_of(answer) or "Error executing tool" in text_of(answer), answer
    assert "Traceback" not in text_of(answer)


def test_pictures_arrive(crib, way):
    answer = ok(crib.invoke(f"{way}_picture"))
    picture = next(block for block in answer["content"] if block["type"] == "image")
    assert picture["mimeType"] == "image/png" and base64.b64decode(picture["data"]).startswith(b"\x89PNG"), answer


def test_progress_arrives(crib, way):
    found = events(crib, f"{way}_climbs", {"steps": 3})
    reported = [data["data"] for event, data in found if event == "progress"]
    assert [(one["progress"], one["total"], one["message"]) for one in reported] == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")], reported
    assert text_of(found[-1][1]) == "up"


def test_timed_out_call_keeps_the_server(crib, way):
    if way == "pipe_anew":
        pytest.skip("there its time is spent on the start of a large package; test_calls.py has this with a small server")
    before = text_of(ok(crib.invoke(f"{way}_pid")))
    began = now()
    problem(crib.invoke(f"{way}_sleeps", {"seconds": 20}), 504, "attempt_timed_out")
    assert elapsed(began) < 5
    after = text_of(ok(crib.invoke(f"{way}_pid")))
    assert before == after


def test_catalog_lists_it_in_every_format(crib):
    for kind in ("openai", "openai-responses", "anthropic", "gemini", "bedrock", "mcp"):
        reply = crib.get(f"/tools?format={kind}")
        assert reply.status == 200 and b"pipe_forecast" in reply.body, (kind, reply)


@pytest.mark.parametrize("mode", MODES)
def test_killed_server_is_restarted(start, python, mode):
    """An SDK server that is killed is restarted like any other."""
    crib = start_with_servers(start, s={"command": [python("sdk-2"), str(SERVERS / "toolbox.py"), "mcp-2", "stdio"], "mode": mode, "tools": read_policies("pid")})
    if mode == "persistent":
        os.kill(int(text_of(ok(crib.invoke("s_pid")))), signal.SIGKILL)
    poll(lambda: crib.invoke("s_pid").status == 200, 20, "it answers again")
