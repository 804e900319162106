"""The same tools under each SDK: `toolbox.py SDK stdio`, or `toolbox.py SDK PORT` for streamable HTTP. SDK is fastmcp,
fastmcp-2, mcp-1 or mcp-2."""

import asyncio
import base64
import os
import sys
from typing import Annotated

from pydantic import BaseModel, Field

SDK, WAY = sys.argv[1:]
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==")

if SDK.startswith("fastmcp"):
    from fastmcp import Context, FastMCP as Server
    from fastmcp.utilities.types import Image
elif SDK == "mcp-1":
    from mcp.server.fastmcp import Context, FastMCP as Server, Image
else:
    from mcp.server.mcpserver import Context, Image, MCPServer as Server

OPTIONS = {"host": "127.0.0.1", "port": int(WAY)} if WAY != "stdio" and SDK == "mcp-1" else {}
server = Server("toolbox", **OPTIONS)


class Forecast(BaseModel):
    """Weather to come."""

    city: str
    degrees: float = Field(description="In Celsius.")
    days: list[str]


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def forecast(city: Annotated[str, Field(description="Where.", min_length=1)]) -> Forecast:
    """Tells the weather to come."""
    return Forecast(city=city, degrees=21.5, days=["sun", "rain"])


@server.tool()
def fails(reason: str) -> str:
    """Raises."""
    raise ValueError(reason)


@server.tool()
def picture() -> Image:
    """A picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
async def climbs(ctx: Context, steps: int = 3) -> str:
    """Tells how far it is."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await asyncio.sleep(0.05)
    return "up"


@server.tool()
async def sleeps(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def pid() -> int:
    """Its process."""
    return os.getpid()


if WAY == "stdio":
    server.run(**({"show_banner": False} if SDK == "fastmcp" else {}))
elif SDK == "fastmcp":
    server.run(transport="http", host="127.0.0.1", port=int(WAY), show_banner=False)
elif SDK == "mcp-1":
    server.run(transport="streamable-http")
else:
    server.run(transport="streamable-http", host="127.0.0.1", port=int(WAY))
