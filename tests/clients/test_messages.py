"""The messages that POST /calls returns, checked against the types of the providers' own SDKs: every answer of tests/corpus."""

import anthropic.types
import anthropic.types.beta.sessions
import botocore.session
import botocore.validate
import google.genai.interactions
import google.genai.types
import mcp.types
import openai.types.chat
import openai.types.responses
import pytest
from pydantic import ConfigDict, TypeAdapter

from corpus import cases, post, start_service


@pytest.fixture(scope="module")
def crib(tmp_path_factory):
    with start_service(tmp_path_factory.mktemp("corpus")) as crib:
        yield crib


def bedrock(message):
    shape = botocore.session.get_session().get_service_model("bedrock-runtime").shape_for("Message")
    report = botocore.validate.ParamValidator().validate(message, shape)
    assert not report.has_errors(), report.generate_report()


def mcp_response(message):
    if "error" in message:
        mcp.types.JSONRPCError.model_validate(message)
    else:
        mcp.types.CallToolResult.model_validate(mcp.types.JSONRPCResponse.model_validate(message).result)


def typed(kind):
    """A check against a TypedDict of an SDK, which takes no other fields. What it calls iterable is checked while it is read."""
    adapter = TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))

    def read(value):
        if not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
            for one in value.values() if isinstance(value, dict) else value:
                read(one)

    return lambda message: read(adapter.validate_python([message]))


CHECKS = {
    "openai": typed(openai.types.chat.ChatCompletionMessageParam),
    "openai-responses": typed(openai.types.responses.ResponseInputItemParam),
    "anthropic": typed(anthropic.types.MessageParam),
    "managed-agents": typed(anthropic.types.beta.sessions.BetaManagedAgentsUserCustomToolResultEventParams),
    "gemini": google.genai.types.Content.model_validate,
    "gemini-interactions": google.genai.interactions.FunctionResultStep.model_validate,
    "bedrock": bedrock,
    "mcp": mcp_response,
}


@pytest.mark.parametrize("case", cases())
def test_messages_fit_the_sdk_types(crib, case, request):
    reply = post(crib, case, case["text"] if "text" in case else case["body"], request.node.callspec.id)
    assert reply.status == case["expect"].get("status", 200), reply
    if reply.status == 200:
        # Our own format and plain text have no SDK types.
        dialect = reply.json["dialect"]
        assert dialect in CHECKS or dialect in ("native", "text"), dialect
        for message in reply.json["messages"]:
            is_event = str(message.get("type", "")).startswith("user.")
            CHECKS.get("managed-agents" if is_event else dialect, lambda _: None)(message)
