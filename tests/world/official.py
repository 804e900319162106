"""What the official Python SDK sees of a server on standard input and output: `official.py SPEC` prints it as JSON. SPEC is JSON with
`command`, `environment`, `folder` and perhaps `call`."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.types import ElicitResult
from mcp.client.stdio import stdio_client


async def decline(context, params):
    """Toolcrib offers forms, so this client does too: some servers have other tools then."""
    return ElicitResult(action="decline")


async def look(spec, seen):
    command, *arguments = spec["command"]
    server = StdioServerParameters(command=command, args=arguments, env={**os.environ, **spec["environment"]}, cwd=spec["folder"])
    async with stdio_client(server, errlog=open(os.devnull, "w")) as (read, write), ClientSession(read, write, elicitation_callback=decline) as session:
        started = await session.initialize()
        tools, cursor = [], None
        while True:
            page = await session.list_tools(cursor)
            tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.nextCursor
            if not cursor:
                break
        call = None
        if spec.get("call"):
            name, arguments = spec["call"]
            result = await session.call_tool(name, arguments)
            call = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        seen.update(version=str(started.protocolVersion), tools=tools, call=call)


seen = {}
try:
    asyncio.run(asyncio.wait_for(look(json.loads(sys.argv[1]), seen), 180))
except BaseException:
    # A server that still writes while the client leaves: by then everything was seen.
    if not seen:
        raise
print(json.dumps(seen))
