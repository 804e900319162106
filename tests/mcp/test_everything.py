"""server-everything, the reference server of npm: what it can do arrives, by both transports and in both modes."""

import base64
import json

import pytest

from conftest import events, names, read_policies, source, warnings
from harness import ok, problem, error_result, text_of

# An entry for each transport: over pipes and over HTTP, persistent and on demand.
WAYS = ("pipe", "pipe_anew", "web", "web_anew")
OFFERED = {"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference", "get-structured-content", "get-sum",
           "get-tiny-image", "gzip-file-as-resource", "toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation"}


@pytest.fixture(scope="module")
def crib(start_shared, node, listening):
    program, packages = node
    main = str(packages / "server-everything" / "dist" / "index.js")
    url = listening(program, main, "streamableHttp")
    policies = read_policies("echo", "get-env", "get-sum", "get-tiny-image", "trigger-long-running-operation")
    policies["get-structured-content"] = {"effect": "read", "cache": {"ttl": "1m"}}
    pipe = {"command": [program, main, "stdio"], "environment": {"TOKEN": "${env:TOKEN}", "PLAIN": "yes"}, "tools": policies}
    web = {"url": url, "tools": policies}
    entries = {"pipe": pipe, "pipe_anew": dict(pipe, mode="on_demand"), "web": web, "web_anew": dict(web, mode="on_demand")}
    return start_shared({"mcp_servers": entries}, env={"TOKEN": "open-sesame-123", "UNDECLARED": "hidden"}).ready(60)


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


def test_tools_match_their_definitions(crib, way):
    assert source(crib, way)["state"] == "up", source(crib, way)
    assert OFFERED <= {name[len(way) + 1:] for name in names(crib) if name.startswith(way + "_")}
    tool = crib.get(f"/tools/{way}_get-sum").json
    assert tool["kind"] == "mcp" and tool["effect"] == "read" and tool["description"] == "Returns the sum of two numbers", tool
    assert tool["input_schema"]["required"] == ["a", "b"] and tool["input_schema"]["properties"]["a"]["type"] == "number", tool
    assert tool["annotations"]["readOnlyHint"] is True, tool
    assert crib.get(f"/tools/{way}_get-structured-content").json["output_schema"]["required"] == ["temperature", "conditions", "humidity"]


def test_server_instructions_do_not_reach_a_model(crib):
    assert "Everything Server" not in crib.get("/tools").body.decode()


def test_texts_and_numbers_arrive(crib, way):
    assert text_of(ok(crib.invoke(f"{way}_echo", {"message": "Grüße, 世界 🌍"}))) == "Echo: Grüße, 世界 🌍"
    assert text_of(ok(crib.invoke(f"{way}_get-sum", {"a": 40, "b": 2}))) == "The sum of 40 and 2 is 42."


def test_arguments_are_checked_before_the_call(crib, way):
    error = problem(crib.invoke(f"{way}_get-sum", {"a": "many"}), 422, "invalid_arguments")
    assert {one["pointer"] for one in error["violations"]} >= {"/a"}, error


def test_pictures_arrive(crib, way):
    answer = ok(crib.invoke(f"{way}_get-tiny-image"))
    assert [block["type"] for block in answer["content"]] == ["text", "image", "text"], answer
    picture = answer["content"][1]
    assert picture["mimeType"] == "image/png" and base64.b64decode(picture["data"]).startswith(b"\x89PNG")


def test_embedded_resources_arrive(crib, way):
    answer = ok(crib.invoke(f"{way}_get-resource-reference", {"resourceType": "Text", "resourceId": 3}))
    resource = next(block["resource"] for block in answer["content"] if block["type"] == "resource")
    assert resource["uri"].endswith("/3") and resource["mimeType"] == "text/plain" and "Resource 3" in resource["text"], resource
    answer = ok(crib.invoke(f"{way}_get-resource-reference", {"resourceType": "Blob", "resourceId": 4}))
    resource = next(block["resource"] for block in answer["content"] if block["type"] == "resource")
    assert b"Resource 4" in base64.b64decode(resource["blob"]), resource


def test_resource_links_arrive(crib, way):
    answer = ok(crib.invoke(f"{way}_get-resource-links", {"count": 2}))
    first, second = answer["content"][1:]
    assert first["type"] == "resource_link" and first["name"] == "Blob Resource 1", answer
    assert second["name"] == "Text Resource 2" and second["uri"] == "demo://resource/dynamic/text/2", answer


def test_structured_content_is_checked_and_cached(crib, way):
    answer = ok(crib.invoke(f"{way}_get-structured-content", {"location": "Chicago"}))
    assert answer["structured_content"] == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}, answer
    assert json.loads(text_of(answer)) == answer["structured_content"]
    repeated = ok(crib.invoke(f"{way}_get-structured-content", {"location": "Chicago"}))
    assert (answer["meta"]["cache"], repeated["meta"]["cache"]) == ("miss", "hit")


def test_annotated_messages_arrive(crib, way):
    answer = ok(crib.invoke(f"{way}_get-annotated-message", {"messageType": "error", "includeImage": True}))
    words, picture = answer["content"]
    assert words["text"] == "Error: Operation failed" and picture["mimeType"] == "image/png", answer


def test_progress_of_a_long_operation_arrives(crib, way):
    found = events(crib, f"{way}_trigger-long-running-operation", {"duration": 0.4, "steps": 4})
    reported = [data["data"] for event, data in found if event == "progress"]
    assert [one["progress"] for one in reported] == [1, 2, 3, 4] and reported[0]["total"] == 4, reported
    assert "Steps: 4" in text_of(found[-1][1]), found[-1]


def test_server_sees_only_the_declared_environment(crib):
    """It also sees the few variables that every program needs; a secret value is redacted in the answer."""
    for way in ("pipe", "pipe_anew"):
        answer = ok(crib.invoke(f"{way}_get-env"))
        seen = json.loads(text_of(answer))
        assert seen["PLAIN"] == "yes" and "PATH" in seen and "UNDECLARED" not in seen, seen
        assert "TOKEN" in seen and "open-sesame-123" not in json.dumps(answer), seen


def test_refusal_is_error_result_with_text(crib, way):
    answer = error_result(crib.invoke(f"{way}_get-resource-reference", {"resourceType": "Text", "resourceId": -1}))
    assert "Invalid resourceId" in text_of(answer), answer


def test_task_only_tool_is_left_out(crib, way):
    """`taskSupport: required` exists in 2025-11-25 only, and is experimental there: tasks are not requested."""
    problem(crib.invoke(f"{way}_simulate-research-query", {"topic": "rain"}), 404, "unknown_tool")
    assert "`simulate-research-query` is left out: it runs only as a task" in warnings(crib, way), source(crib, way)


def test_calls_are_recorded(crib, way):
    done = ok(crib.invoke(f"{way}_echo", {"message": "on record"}, run_id="r-1"))
    row = crib.row(done["invocation_id"])
    assert (row["tool"], row["state"], row["arguments"], row["run_id"]) == (f"{way}_echo", "succeeded", {"message": "on record"}, "r-1"), row
    assert text_of(row["result"]) == "Echo: on record"


def test_model_calls_reach_the_server(crib, way):
    call = {"id": "call_1", "type": "function", "function": {"name": f"{way}_get-sum", "arguments": '{"a": 1, "b": 2}'}}
    answer = crib.post("/calls", json.dumps({"role": "assistant", "content": None, "tool_calls": [call]})).json
    assert answer["messages"][0]["content"] == "The sum of 1 and 2 is 3.", answer
