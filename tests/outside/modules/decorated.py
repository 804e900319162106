"""Tools by the decorator that every worker has at hand."""

import asyncio
import itertools
import os
import pathlib
import threading
import time

from toolcrib import ToolContext, tool

_calls = itertools.count(1)


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool(name="renamed", description="Has another name and description.",
      inputSchema={"json": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1, "description": "Any number from one on"}},
                            "required": ["x"]}})
def original(x: int) -> int:
    """Not for the model."""
    return x * 2


@tool(context=True)
def who(question: str, tool_context: ToolContext) -> dict:
    """Tells who asks.

    Args:
        question: Anything.
    """
    use = tool_context.tool_use
    return {"id": use["toolUseId"], "name": use["name"], "input": use["input"], "agent": tool_context.agent.name,
            "state": tool_context.invocation_state}


@tool(context="ctx")
async def who_async(ctx: ToolContext) -> dict:
    """Tells who asks, later."""
    await asyncio.sleep(0)
    return {"state": ctx.invocation_state, "agent": ctx.agent.name, "id": ctx.tool_use["toolUseId"]}


@tool
def counter(key: str = "") -> int:
    """Counts its calls."""
    return next(_calls)


@tool(context=True)
def counter_of(tool_context: ToolContext, key: str = "") -> int:
    """Counts its calls, and could tell tenants apart."""
    return next(_calls)


@tool
def steps(count: int):
    """Works in steps."""
    for number in range(1, count + 1):
        yield {"step": number}
    yield f"{count} steps"


@tool
async def steps_async(count: int, pause: float = 0.0):
    """Works in steps, between other calls."""
    for number in range(1, count + 1):
        await asyncio.sleep(pause)
        yield f"step {number}"
    yield {"steps": count}


@tool
def steps_then_trouble():
    """Works in steps until something is wrong."""
    yield "one"
    raise ValueError("the second step is missing")


@tool
def nap(seconds: float) -> dict:
    """Sleeps in a worker of its own."""
    begun = time.time()
    time.sleep(seconds)
    return {"pid": os.getpid(), "begun": begun, "ended": time.time(), "main": threading.current_thread() is threading.main_thread()}


@tool
async def nap_async(seconds: float) -> dict:
    """Sleeps between others."""
    begun = time.time()
    await asyncio.sleep(seconds)
    return {"pid": os.getpid(), "begun": begun, "ended": time.time()}


@tool
def environment() -> dict:
    """All environment variables."""
    return dict(os.environ)


@tool
def fails_once(flag: str) -> str:
    """Its worker dies the first time."""
    path = pathlib.Path(flag)
    if not path.exists():
        path.write_text("x")
        os._exit(1)
    return "second time lucky"


@tool
def charge(amount: int) -> dict:
    """Takes money."""
    return {"number": next(_calls), "amount": amount}
