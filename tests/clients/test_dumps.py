"""The dump of a model's message by each provider's SDK goes into POST /calls, and the answer fits the SDK's type of a request. Every
provider gets the same five calls."""

import json

import anthropic.types
import google.genai.types
import mcp.types
import openai.types.chat
import openai.types.responses
import pytest

from corpus import start_service
from test_messages import CHECKS

CALLS = [
    ("id_1", "calculator", {"expression": "6*7"}),
    ("id_2", "take_screenshot", {}),
    ("id_3", "get_invoice", {}),
    ("id_4", "book_table", {"restaurant": "Chez Ada", "guests": 2}),
    ("id_5", "no_such_tool", {"a": [1, None]}),
]


@pytest.fixture(scope="module")
def crib(tmp_path_factory):
    with start_service(tmp_path_factory.mktemp("dumps")) as crib:
        yield crib


def pydantic_dumps(*models):
    """The ways in which SDKs made of pydantic models write them."""
    for model in models:
        for options in [{}, {"exclude_none": True}, {"exclude_unset": True}, {"by_alias": True}, {"by_alias": True, "exclude_none": True}]:
            yield model.model_dump(mode="json", **options)


def openai_chat():
    calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}} for id, name, arguments in CALLS]
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    completion = openai.types.chat.ChatCompletion.model_validate({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}]})
    choice = completion.choices[0]
    yield from pydantic_dumps(completion, choice, choice.message)
    yield [call.model_dump() for call in choice.message.tool_calls]


def openai_responses():
    items = [{"type": "reasoning", "id": "rs_1", "summary": []}]
    items += [{"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": json.dumps(arguments), "status": "completed"}
              for id, name, arguments in CALLS]
    response = openai.types.responses.Response.model_validate({
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt", "status": "completed", "output": items,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})
    yield from pydantic_dumps(response)
    yield [item.model_dump(mode="json") for item in response.output]


def anthropic_messages():
    content = [{"type": "thinking", "thinking": "Five things.", "signature": "x"}, {"type": "text", "text": "I will."}]
    content += [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in CALLS]
    message = anthropic.types.Message.model_validate({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content, "stop_reason": "tool_use",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}})
    yield from pydantic_dumps(message)
    yield {"role": "assistant", "content": [block.model_dump(mode="json") for block in message.content]}
    yield [block.model_dump(mode="json", exclude_none=True) for block in message.content]


def gemini():
    parts = [{"text": "I will.", "thought": True}]
    parts += [{"function_call": {"id": id, "name": name, "args": arguments}, "thought_signature": b"x"} for id, name, arguments in CALLS]
    response = google.genai.types.GenerateContentResponse.model_validate({
        "candidates": [{"content": {"role": "model", "parts": parts}, "finish_reason": "STOP", "index": 0}], "model_version": "gemini"})
    candidate = response.candidates[0]
    yield from pydantic_dumps(response, candidate, candidate.content)
    yield [part.model_dump(mode="json") for part in candidate.content.parts]


def bedrock():
    # boto3 gives plain dicts.
    content = [{"text": "I will."}] + [{"toolUse": {"toolUseId": id, "name": name, "input": arguments}} for id, name, arguments in CALLS]
    message = {"role": "assistant", "content": content}
    CHECKS["bedrock"](message)
    yield {"ResponseMetadata": {"HTTPStatusCode": 200}, "output": {"message": message}, "stopReason": "tool_use",
           "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}}
    yield message
    yield content


def mcp_requests():
    requests = [mcp.types.JSONRPCRequest(jsonrpc="2.0", id=id, **mcp.types.CallToolRequest(
        params=mcp.types.CallToolRequestParams(name=name, arguments=arguments)).model_dump(mode="json", by_alias=True, exclude_none=True))
        for id, name, arguments in CALLS]
    yield [request.model_dump(mode="json", by_alias=True, exclude_none=True) for request in requests]


def results_openai(messages):
    assert [message["role"] for message in messages] == ["tool"] * 5 + ["user"]
    parts = messages[-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text", "file"]
    return [(message["tool_call_id"], "42" in message["content"]) for message in messages[:-1]]


def results_responses(messages):
    kinds = [[part["type"] for part in message["output"]] if isinstance(message["output"], list) else "text" for message in messages]
    assert kinds == ["text", ["input_image"], ["input_file"], "text", "text"], kinds
    return [(message["call_id"], "42" in message["output"]) for message in messages]


def results_anthropic(messages):
    [message] = messages
    results = message["content"]
    assert [[block["type"] for block in result["content"]] for result in results] == [["text"], ["image"], ["document"], ["text"], ["text"]]
    assert [result.get("is_error", False) for result in results] == [False, False, False, True, True]
    return [(result["tool_use_id"], result["content"][0].get("text") == "42") for result in results]


def results_gemini(messages):
    [message] = messages
    responses = [part["functionResponse"] for part in message["parts"]]
    assert [response["name"] for response in responses] == [name for _, name, _ in CALLS]
    assert [list(response["response"]) for response in responses] == [["output"]] * 3 + [["error"]] * 2
    assert [[part["inlineData"]["mimeType"] for part in response.get("parts", [])] for response in responses] == [
        [], ["image/png"], ["application/pdf"], [], []]
    return [(response["id"], response["response"].get("output") == "42") for response in responses]


def results_bedrock(messages):
    [message] = messages
    results = [block["toolResult"] for block in message["content"]]
    assert [result["status"] for result in results] == ["success"] * 3 + ["error"] * 2
    assert [[list(block)[0] for block in result["content"]] for result in results] == [
        ["text"], ["image"], ["text", "document"], ["text"], ["text"]]
    return [(result["toolUseId"], result["content"][0].get("text") == "42") for result in results]


def results_mcp(messages):
    assert [message["error"]["code"] for message in messages if "error" in message] == [-32602]
    results = [message.get("result", {"content": [{"type": "none"}], "isError": True}) for message in messages]
    assert [result["content"][0]["type"] for result in results] == ["text", "image", "resource", "text", "none"]
    assert [result["isError"] for result in results] == [False, False, False, True, True]
    return [(message["id"], result["content"][0].get("text") == "42") for message, result in zip(messages, results)]


SDKS = {
    "openai": (openai_chat, results_openai),
    "openai-responses": (openai_responses, results_responses),
    "anthropic": (anthropic_messages, results_anthropic),
    "gemini": (gemini, results_gemini),
    "bedrock": (bedrock, results_bedrock),
    "mcp": (mcp_requests, results_mcp),
}


@pytest.mark.parametrize("dialect", SDKS)
def test_sdk_dumps_run_and_get_typed_answers(crib, dialect):
    dumps, reported = SDKS[dialect]
    for body in dumps():
        reply = crib.post("/calls", json.dumps(body).encode(), headers={"content-type": "application/json"})
        assert reply.status == 200, (body, reply)
        answer = reply.json
        assert answer["dialect"] == dialect and answer["warnings"] == [], (body, answer)
        assert [result["tool_use_id"] for result in answer["results"]] == [id for id, _, _ in CALLS]
        assert [result.get("kind") for result in answer["results"]] == [None] * 4 + ["unknown_tool"]
        for message in answer["messages"]:
            CHECKS[dialect](message)
        assert reported(answer["messages"]) == [(id, id == "id_1") for id, _, _ in CALLS], answer["messages"]
