"""server-everything, the reference server of npm: what it can do arrives, by both transports and in both modes."""

import base64
import json

import pytest

from conftest import events, names, reads, source, warnings
from harness import ok, problem, said_no, text_of

# An entry for each way to reach it: over pipes and over HTTP, kept and started for each call.
WAYS = ("pipe", "pipe_anew", "web", "web_anew")
OFFERED = {"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference", "get-structured-content", "get-sum",
           "get-tiny-image", "gzip-file-as-resource", "toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation"}


@pytest.fixture(scope="module")
def crib(start_shared, node, listening):
    program, packages = node
    main = str(packages / "server-everything" / "dist" / "index.js")
    url = listening(program, main, "streamableHttp")
    policies = reads("echo", "get-env", "get-sum", "get-tiny-image", "trigger-long-running-operation")
    policies["get-structured-content"] = {"effect": "read", "cache": {"ttl": "1m"}}
    pipe = {"command": [program, main, "stdio"], "environment": {"TOKEN": "${env:TOKEN}", "PLAIN": "yes"}, "tools": policies}
    web = {"url": url, "tools": policies}
    entries = {"pipe": pipe, "pipe_anew": dict(pipe, mode="on_demand"), "web": web, "web_anew": dict(web, mode="on_demand")}
    return start_shared({"mcp_servers": entries}, env={"TOKEN": "open-sesame-123", "UNDECLARED": "hidden"}).ready(60)


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


def test_all_its_tools_are_there_as_it_defines_them(crib, way):
    assert source(crib, way)["state"] == "up", source(crib, way)
    assert OFFERED <= {name[len(way) + 1:] for name in names(crib) if name.startswith(way + "_")}
    tool = crib.get(f"/tools/{way}_get-sum").json
    assert tool["kind"] == "mcp" and tool["effect"] == "read" and tool["description"] == "Returns the sum of two numbers", tool
    assert tool["input_schema"]["required"] == ["a", "b"] and tool["input_schema"]["properties"]["a"]["type"] == "number", tool
    assert tool["annotations"]["readOnlyHint"] is True, tool
    assert crib.get(f"/tools/{way}_get-structured-content").json["output_schema"]["required"] == ["temperature", "conditions", "humidity"]


def test_its_instructions_do_not_reach_a_model(crib):
    assert "Everything Server" not in crib.get("/tools").body.decode()


def test_texts_and_numbers(crib, way):
    assert text_of(ok(crib.invoke(f"{way}_echo", {"message": "Grüße, 世界 🌍"}))) == "Echo: Grüße, 世界 🌍"
    assert text_of(ok(crib.invoke(f"{way}_get-sum", {"a": 40, "b": 2}))) == "The sum of 40 and 2 is 42."


def test_arguments_are_checked_before_it_is_asked(crib, way):
    said = problem(crib.invoke(f"{way}_get-sum", {"a": "many"}), 422, "invalid_arguments")
    assert {one["pointer"] for one in said["violations"]} >= {"/a"}, said


def test_pictures(crib, way):
    answer = ok(crib.invoke(f"{way}_get-tiny-image"))
    assert [block["type"] for block in answer["content"]] == ["text", "image", "text"], answer
    picture = answer["content"][1]
    assert picture["mimeType"] == "image/png" and base64.b64decode(picture["data"]).startswith(b"\x89PNG")


def test_embedded_resources(crib, way):
    answer = ok(crib.invoke(f"{way}_get-resource-reference", {"resourceType": "Text", "resourceId": 3}))
    resource = next(block["resource"] for block in answer["content"] if block["type"] == "resource")
    assert resource["uri"].endswith("/3") and resource["mimeType"] == "text/plain" and "Resource 3" in resource["text"], resource
    answer = ok(crib.invoke(f"{way}_get-resource-reference", {"resourceType": "Blob", "resourceId": 4}))
    resource = next(block["resource"] for block in answer["content"] if block["type"] == "resource")
    assert b"Resource 4" in base64.b64decode(resource["blob"]), resource


def test_links_to_resources(crib, way):
    """Nobody here can follow them, so they are words: name and address."""
    answer = ok(crib.invoke(f"{way}_get-resource-links", {"count": 2}))
    first, second = answer["content"][1:]
    assert "Blob Resource 1" in first["text"] and "Text Resource 2" in second["text"] and "demo://resource/dynamic/text/2" in second["text"], answer


def test_structured_content_fits_its_schema_and_is_cached(crib, way):
    answer = ok(crib.invoke(f"{way}_get-structured-content", {"location": "Chicago"}))
    assert answer["structured_content"] == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}, answer
    assert json.loads(text_of(answer)) == answer["structured_content"]
    again = ok(crib.invoke(f"{way}_get-structured-content", {"location": "Chicago"}))
    assert (answer["meta"]["cache"], again["meta"]["cache"]) == ("miss", "hit")


def test_annotated_messages(crib, way):
    answer = ok(crib.invoke(f"{way}_get-annotated-message", {"messageType": "error", "includeImage": True}))
    words, picture = answer["content"]
    assert words["text"] == "Error: Operation failed" and picture["mimeType"] == "image/png", answer


def test_progress_of_work_that_takes_long(crib, way):
    found = events(crib, f"{way}_trigger-long-running-operation", {"duration": 0.4, "steps": 4})
    told = [data["data"] for event, data in found if event == "progress"]
    assert [one["progress"] for one in told] == [1, 2, 3, 4] and told[0]["total"] == 4, told
    assert "Steps: 4" in text_of(found[-1][1]), found[-1]


def test_it_sees_of_the_environment_what_is_declared(crib):
    """And the few that any program needs; a value that is a secret leaves the answer again."""
    for way in ("pipe", "pipe_anew"):
        answer = ok(crib.invoke(f"{way}_get-env"))
        seen = json.loads(text_of(answer))
        assert seen["PLAIN"] == "yes" and "PATH" in seen and "UNDECLARED" not in seen, seen
        assert "TOKEN" in seen and "open-sesame-123" not in json.dumps(answer), seen


def test_what_it_refuses_is_a_no_with_its_words(crib, way):
    answer = said_no(crib.invoke(f"{way}_get-resource-reference", {"resourceType": "Text", "resourceId": -1}))
    assert "Invalid resourceId" in text_of(answer), answer


def test_a_tool_that_runs_as_a_task_only_is_left_out(crib, way):
    """`taskSupport: required` is of 2025-11-25 alone, and experimental there: tasks are not asked for."""
    problem(crib.invoke(f"{way}_simulate-research-query", {"topic": "rain"}), 404, "unknown_tool")
    assert "`simulate-research-query` is left out: it runs only as a task" in warnings(crib, way), source(crib, way)


def test_calls_are_on_record(crib, way):
    done = ok(crib.invoke(f"{way}_echo", {"message": "on record"}, run_id="r-1"))
    row = crib.row(done["invocation_id"])
    assert (row["tool"], row["state"], row["arguments"], row["run_id"]) == (f"{way}_echo", "succeeded", {"message": "on record"}, "r-1"), row
    assert text_of(row["result"]) == "Echo: on record"


def test_a_models_own_calls_reach_it(crib, way):
    call = {"id": "call_1", "type": "function", "function": {"name": f"{way}_get-sum", "arguments": '{"a": 1, "b": 2}'}}
    answer = crib.post("/calls", json.dumps({"role": "assistant", "content": None, "tool_calls": [call]})).json
    assert answer["messages"][0]["content"] == "The sum of 1 and 2 is 3.", answer
