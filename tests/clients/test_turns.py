"""A turn with each provider's own SDK: it reads a response of a scripted API, `POST /calls` reads what the SDK gives out, and the SDK sends
the messages that come back. The responses have the forms of calls that are new in 2026.

A response must fit the SDK's types to the last field, so that these forms are the provider's and not ours. What the SDK sends must
be what Toolcrib wrote, and every call must have its result under its own id.
"""

import json

import pytest
from pydantic import BaseModel

from corpus import start_service
from test_messages import CHECKS, bedrock as fits_bedrock
from upstream import Upstream

PROMPT = "How is the weather?"


@pytest.fixture(scope="module")
def crib(tmp_path_factory):
    with start_service(tmp_path_factory.mktemp("turns")) as crib:
        yield crib


@pytest.fixture
def api():
    """A model's API that answers what a test scripts, and remembers what it was sent."""
    up = Upstream()
    yield up
    up.close()


def script(api, path, answer):
    api.script(path, lambda handler: handler.reply(200, answer))


def last_request(api):
    return json.loads(api.requests[-1][3])


def answered(crib, message, dialect):
    """The messages to append, for what an SDK gives out."""
    body = message if isinstance(message, (str, bytes)) else json.dumps(message)
    reply = crib.post("/calls", body, headers={"content-type": "application/json"})
    assert reply.status == 200 and reply.json["dialect"] == dialect, reply
    return reply.json["messages"]


def has_no_unknown_fields(value):
    """Whether an SDK knows every field of an object that it has read, also within."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, (type(value).__name__, value.model_extra)
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, dict):
        value = list(value.values())
    return all(map(has_no_unknown_fields, value)) if isinstance(value, list) else True


# What people send: the whole object, or only the message in it, with or without what is null.
DUMPS = {"all": {}, "without_null": {"exclude_none": True}, "as_it_came": {"exclude_unset": True}}


@pytest.fixture(params=DUMPS)
def dump(request):
    return lambda value: value.model_dump(mode="json", by_alias=True, **DUMPS[request.param])


# ---- OpenAI -------------------------------------------------------------------------------------------------------------

def openai(api):
    from openai import OpenAI

    return OpenAI(base_url=api.base + "/v1", api_key="k", max_retries=0)


def test_openai_chat(crib, api, dump):
    from openai.types.chat import ChatCompletion

    calls = [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"location": "Oslo"}'}},
             {"id": "call_2", "type": "custom", "custom": {"name": "get_stock_price", "input": "ACME"}}]
    response = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}}]}
    assert has_no_unknown_fields(ChatCompletion.model_validate(response))
    script(api, "/v1/chat/completions", response)
    client, asked = openai(api), {"role": "user", "content": PROMPT}
    completion = client.chat.completions.create(model="m", messages=[asked])
    message = completion.choices[0].message
    for sent in (completion, completion.choices[0], message):
        messages = answered(crib, dump(sent), "openai")
        assert [one["tool_call_id"] for one in messages] == ["call_1", "call_2"] and messages[1]["content"] == "187.32 USD", messages
        client.chat.completions.create(model="m", messages=[asked, message, *messages])
        assert last_request(api)["messages"][2:] == messages


RESPONSES_CALLS = [
    {"type": "program", "id": "prog_1", "call_id": "call_p", "code": "print(1)", "fingerprint": "f"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": '{"location": "Oslo"}', "status": "completed",
     "caller": {"type": "program", "caller_id": "call_p"}},
    {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "stock_price", "namespace": "get", "arguments": '{"ticker": "ACME"}',
     "status": "completed", "caller": {"type": "direct"}},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_3", "name": "get_stock_price", "input": "ACME"},
    {"type": "tool_search_call", "id": "tsc_1", "call_id": "call_4", "execution": "client", "status": "completed", "arguments": {"goal": "x"}},
    {"type": "shell_call", "id": "sh_1", "call_id": "call_5", "status": "completed", "environment": {"type": "local"},
     "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}},
    {"type": "apply_patch_call", "id": "apc_1", "call_id": "call_6", "status": "completed", "operation": {"type": "delete_file", "path": "a.txt"}},
]


def test_openai_responses(crib, api, dump):
    from openai.types.responses import Response

    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "error": None, "incomplete_details": None,
                "instructions": None, "metadata": {}, "output": RESPONSES_CALLS, "parallel_tool_calls": True, "temperature": 1.0,
                "tool_choice": "auto", "tools": [], "top_p": 1.0}
    assert has_no_unknown_fields(Response.model_validate(response))
    script(api, "/v1/responses", response)
    client, asked = openai(api), {"role": "user", "content": PROMPT}
    read = client.responses.create(model="m", input=PROMPT)
    for sent in (dump(read), [dump(item) for item in read.output]):
        messages = answered(crib, sent, "openai-responses")
        assert [one["call_id"] for one in messages] == [f"call_{number}" for number in range(1, 7)], messages
        assert [one.get("caller") for one in messages[:2]] == [{"type": "program", "caller_id": "call_p"}, {"type": "direct"}]
        assert [one["type"] for one in messages[2:]] == ["custom_tool_call_output", "tool_search_output", "shell_call_output", "apply_patch_call_output"]
        assert messages[1]["output"] == messages[2]["output"] == "187.32 USD"
        for message in messages:
            CHECKS["openai-responses"](message)
        client.responses.create(model="m", input=[asked, *read.output, *messages])
        assert last_request(api)["input"][-6:] == messages


# ---- Anthropic ----------------------------------------------------------------------------------------------------------

def test_anthropic(crib, api, dump):
    from anthropic import Anthropic
    from anthropic.types import Message

    content = [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "1"}, "caller": {"type": "direct"}},
               {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "Oslo"},
                "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}},
               {"type": "tool_use", "id": "toolu_2", "name": "get_stock_price", "input": {"ticker": "ACME"}, "caller": {"type": "direct"}}]
    response = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "tool_use", "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1}}
    assert has_no_unknown_fields(Message.model_validate(response))
    script(api, "/v1/messages", response)
    client, asked = Anthropic(base_url=api.base, api_key="k", max_retries=0), {"role": "user", "content": PROMPT}
    message = client.messages.create(model="m", max_tokens=1, messages=[asked])
    for sent in (dump(message), [dump(block) for block in message.content]):
        (turn,) = answered(crib, sent, "anthropic")
        assert [one["tool_use_id"] for one in turn["content"]] == ["toolu_1", "toolu_2"], turn
        CHECKS["anthropic"](turn)
        client.messages.create(model="m", max_tokens=1, messages=[asked, {"role": "assistant", "content": message.content}, turn])
        assert last_request(api)["messages"][2] == turn


def test_anthropic_managed_agents(crib, api, dump):
    from anthropic import Anthropic
    from anthropic.types.beta.sessions import BetaManagedAgentsAgentCustomToolUseEvent as CustomToolUse

    event = {"type": "agent.custom_tool_use", "id": "sevt_1", "name": "get_stock_price", "input": {"ticker": "ACME"}, "processed_at": "2026-11-01T12:00:00Z"}
    read = CustomToolUse.model_validate(event)
    assert has_no_unknown_fields(read)
    messages = answered(crib, dump(read), "anthropic")
    CHECKS["managed-agents"](messages[0])
    assert messages[0]["custom_tool_use_id"] == "sevt_1"
    script(api, "/v1/sessions/sesn_1/events", {"data": []})
    Anthropic(base_url=api.base, api_key="k", max_retries=0).beta.sessions.events.send("sesn_1", events=messages)
    assert last_request(api)["events"] == messages


# ---- Google -------------------------------------------------------------------------------------------------------------

def google(api):
    from google import genai

    return genai.Client(api_key="k", vertexai=False, http_options=genai.types.HttpOptions(base_url=api.base))


def test_gemini(crib, api, dump):
    from google.genai import types

    parts = [{"text": "Thinking.", "thought": True},
             {"functionCall": {"id": "f1", "name": "get_weather", "args": {"location": "Oslo"}}, "thoughtSignature": "Q2FyZQ=="},
             {"functionCall": {"id": "f2", "name": "get_stock_price", "args": {"ticker": "ACME"}}}]
    response = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}], "modelVersion": "m", "responseId": "r"}
    types.GenerateContentResponse.model_validate(response)  # its models refuse fields that they do not know
    script(api, "/v1/models/m:generateContent", response)
    client, asked = google(api), types.Content(role="user", parts=[types.Part(text=PROMPT)])
    read = client.models.generate_content(model="m", contents=[asked])
    content = read.candidates[0].content
    for sent in (dump(read), dump(read.candidates[0]), dump(content), content.model_dump(mode="json")):
        (turn,) = answered(crib, sent, "gemini")
        responses = [part["functionResponse"] for part in turn["parts"]]
        assert [(one["id"], one["name"]) for one in responses] == [("f1", "get_weather"), ("f2", "get_stock_price")], turn
        client.models.generate_content(model="m", contents=[asked, content, types.Content.model_validate(turn)])
        arrived = last_request(api)["contents"]
        assert arrived[2] == turn and arrived[1]["parts"][1]["thoughtSignature"], arrived


def test_gemini_interactions(crib, api, dump):
    from google.genai import interactions

    steps = [{"type": "thought", "signature": "Q2FyZQ=="},
             {"type": "function_call", "id": "fc_1", "name": "get_weather", "arguments": {"location": "Oslo"}},
             {"type": "function_call", "id": "fc_2", "name": "get_stock_price", "arguments": {"ticker": "ACME"}}]
    response = {"id": "v1_1", "object": "interaction", "status": "requires_action", "model": "gemini-3-flash-preview", "created": "2026-11-01T12:00:00Z",
                "updated": "2026-11-01T12:00:01Z", "steps": steps}
    assert interactions.Interaction.model_validate(response).steps
    script(api, "/v1/interactions", response)
    client = google(api)
    read = client.interactions.create(model="gemini-3-flash-preview", input=PROMPT)
    for sent in (dump(read), [dump(step) for step in read.steps]):
        messages = answered(crib, sent, "gemini-interactions")
        assert [(one["call_id"], one["name"]) for one in messages] == [("fc_1", "get_weather"), ("fc_2", "get_stock_price")], messages
        for message in messages:
            CHECKS["gemini-interactions"](message)
        client.interactions.create(model="gemini-3-flash-preview", previous_interaction_id=read.id, input=messages)
        assert last_request(api)["input"] == messages


# ---- Bedrock ------------------------------------------------------------------------------------------------------------

def test_bedrock(crib, api):
    import boto3
    from botocore.config import Config

    blocks = [{"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "s"}}},
              {"toolUse": {"toolUseId": "srvtoolu_1", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}},
              {"toolResult": {"toolUseId": "srvtoolu_1", "content": [{"text": "rain"}], "type": "nova_grounding_result"}},
              {"toolUse": {"toolUseId": "tooluse_1", "name": "get_weather", "input": {"location": "Oslo"}}},
              {"toolUse": {"toolUseId": "tooluse_2", "name": "get_stock_price", "input": {"ticker": "ACME"}}}]
    fits_bedrock({"role": "assistant", "content": blocks})
    script(api, "/model/m/converse", {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "tool_use",
                                      "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1}})
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=api.base, aws_access_key_id="a", aws_secret_access_key="s",
                          config=Config(retries={"max_attempts": 1}))
    asked = {"role": "user", "content": [{"text": PROMPT}]}
    read = client.converse(modelId="m", messages=[asked])
    message = read["output"]["message"]
    assert message["content"] == blocks, "botocore leaves out what its types do not have"
    for sent in (read, message, message["content"]):
        (turn,) = answered(crib, json.dumps(sent, default=str), "bedrock")
        assert [(one["toolResult"]["toolUseId"], one["toolResult"]["status"]) for one in turn["content"]] == [
            ("tooluse_1", "success"), ("tooluse_2", "success")], turn
        fits_bedrock(turn)
        client.converse(modelId="m", messages=[asked, message, turn])
        assert last_request(api)["messages"][2] == turn
