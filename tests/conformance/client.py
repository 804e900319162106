"""What a client of the official Python SDK sees of a server, as JSON.

python client.py legacy|auto URL|"" TRIGGER [COMMAND ARGUMENT...]     # see client.mjs
"""

import asyncio
import json
import os
import pathlib
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ElicitResult

era, url, trigger, *command = sys.argv[1:]


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main():
    changed = asyncio.Event()

    async def hear(message):
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changed.set()

    async def answer(context, form):
        asked.append(form.message)
        return ElicitResult(action="accept", content={"name": "Ada"} if "name" in form.message else {"color": "blue"})

    asked = []
    server = url or StdioServerParameters(command=command[0], args=command[1:], env=json.loads(os.environ["SERVER_ENV"]))
    async with Client(server, mode=era, message_handler=hear, elicitation_callback=answer, read_timeout_seconds=20) as client:
        call = client.call_tool
        seen = {
            "version": client.protocol_version,
            "server": plain(client.server_info),
            "tools": [plain(tool) for tool in (await client.list_tools()).tools],
            "text": plain(await call("test_simple_text")),
            "image": plain(await call("test_image_content")),
            "audio": plain(await call("test_audio_content")),
            "resource": plain(await call("test_embedded_resource")),
            "structured": plain(await call("structured", {"city": "Oslo"})),
            "error": plain(await call("test_error_handling")),
            "invalid": plain(await call("structured", {})),
        }
        try:
            seen["unknown"] = {"result": plain(await call("no_such_tool"))}
        except MCPError as error:
            seen["unknown"] = {"code": error.code, "message": error.message}
        seen["answered"] = plain(await call("test_input_required_result_multi_round"))
        seen["asked"] = asked
        progress = []

        async def told(done, total, message):
            progress.append({"progress": done, "total": total, "message": message})

        seen["steps"] = plain(await call("test_tool_with_progress", progress_callback=told))
        seen["progress"] = progress
        seen["changed"] = await change(client, changed)
        print(json.dumps(seen))


async def change(client, changed):
    """The names of the tools after the list-changed notification."""

    async def act():
        if trigger:
            pathlib.Path(trigger).write_text(os.environ["TRIGGER_TEXT"])
        else:
            await client.call_tool("test_trigger_tool_change")

    async def names():
        return [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]

    try:
        if era == "legacy":
            await act()
            await asyncio.wait_for(changed.wait(), 8)
            return await names()
        async with client.listen(tools_list_changed=True) as events:
            await act()
            await asyncio.wait_for(anext(aiter(events)), 8)
            return await names()
    except TimeoutError:
        return "nothing was told"


asyncio.run(main())
