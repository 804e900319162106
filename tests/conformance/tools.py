"""The tools that the conformance suite calls, as far as a server of tools can have them."""

import asyncio
import itertools
import json
import os
import struct
import urllib.request
import zlib

from toolcrib import tool


def png():
    """One red pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")


def wav():
    """A hundredth of a second of silence."""
    samples = bytes(160)
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    return b"".join([b"RIFF", struct.pack("<I", 36 + len(samples)), b"WAVEfmt ", struct.pack("<I", 16), form,
                     b"data", struct.pack("<I", len(samples)), samples])  # fmt: skip


def resource(uri, kind, text):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


@tool
def test_simple_text() -> str:
    """Says one text, always the same."""
    return "This is a simple text response for testing."


@tool
def test_image_content():
    """Shows one red pixel."""
    return png()


@tool
def test_audio_content():
    """Plays a moment of silence."""
    return wav()


@tool
def test_embedded_resource():
    """Answers a resource with its text."""
    content = [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    return {"status": "success", "content": content}


@tool
def test_multiple_content_types():
    """Answers a text, a picture and a resource."""
    picture = {"image": {"format": "png", "source": {"bytes": png()}}}
    data = resource("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123}))
    return {"status": "success", "content": [{"text": "Multiple content types test:"}, picture, data]}


@tool
def test_error_handling():
    """Always says no."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool(context=True)
async def test_tool_with_progress(tool_context) -> str:
    """Tells how far it is: 0, 50 and 100 of 100."""
    for done in (0, 50, 100):
        tool_context.progress({"progress": done, "total": 100, "message": f"Completed step {done} of 100"})
        await asyncio.sleep(0.05)
    return "All steps are done."


@tool
async def test_streaming_elicitation():
    """Streams its progress. It never asks its caller anything: no tool here can."""
    for done in range(3):
        yield {"progress": done}
        await asyncio.sleep(0.02)
    yield "Nothing was asked."


@tool
async def test_logging_tool() -> str:
    """Prints three lines while it runs."""
    for line in range(3):
        print(f"line {line} of test_logging_tool")
        await asyncio.sleep(0.02)
    return "Three lines were printed."


NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
USER = {
    "type": "object",
    "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
    "required": ["username", "email"],
}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
CHOICES = [{"const": f"value{n}", "title": f"{word} option"} for n, word in enumerate(["First", "Second", "Third"], 1)]
OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": CHOICES},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": CHOICES}},
    },
}


def described(answer):
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@tool(context=True)
async def test_elicitation(message: str, tool_context) -> str:
    """Asks the caller for a name and an address."""
    return described(await tool_context.ask(message, USER))


@tool(context=True)
async def test_elicitation_sep1034_defaults(tool_context) -> str:
    """Asks with a default for each type."""
    return described(await tool_context.ask("Check these values.", DEFAULTS))


@tool(context=True)
async def test_elicitation_sep1330_enums(tool_context) -> str:
    """Asks with each kind of choice."""
    return described(await tool_context.ask("Choose.", ENUMS))


@tool(context=True)
async def test_input_required_result_elicitation(tool_context) -> str:
    """Asks for a name."""
    answer = await tool_context.ask("What is your name?", NAME, name="user_name")
    return f"Hello, {answer.content.get('name', answer.action)}!"


@tool(context=True)
async def test_input_required_result_request_state(tool_context) -> str:
    """Asks for a confirmation."""
    answer = await tool_context.ask("Please confirm.", OK, name="confirm")
    return f"state-ok: {answer.content.get('ok')}"


@tool(context=True)
async def test_input_required_result_tampered_state(tool_context) -> str:
    """Asks for a confirmation. Its state must come back unchanged."""
    answer = await tool_context.ask("Please confirm.", OK, name="confirm")
    return f"confirmed: {answer.content.get('ok')}"


@tool(context=True)
async def test_input_required_result_multi_round(tool_context) -> str:
    """Asks twice."""
    color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    name = await tool_context.ask("Step 1: What is your name?", NAME, name="step1")
    chosen = await tool_context.ask("Step 2: What is your favorite color?", color, name="step2")
    return f"{name.content.get('name')} likes {chosen.content.get('color')}."


changes = itertools.count(1)


@tool
def test_trigger_tool_change() -> str:
    """Changes the list of tools: registers one, or replaces it."""
    definition = {
        "kind": "http",
        "description": f"Registered at run time, version {next(changes)}.",
        "parameters": {"id": {"type": "string", "description": "Which one to read."}},
        "request": {"url": "https://api.example.com/things/{{ id }}"},
        "effect": "read",
    }
    place = f"{os.environ['SERVICE']}/tools/registered_at_run_time"
    request = urllib.request.Request(place, json.dumps(definition).encode(), {"content-type": "application/json"}, method="PUT")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return f"Registered: {answer.status}."


@tool
def structured(city: str) -> dict:
    """Answers data.

    Args:
        city: Which city to tell of.
    """
    return {"city": city, "degrees": 21.5}
