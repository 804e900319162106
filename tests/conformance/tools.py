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
