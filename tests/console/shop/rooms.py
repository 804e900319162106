"""A tool that asks its caller, for the tests of the console."""

from toolcrib import ToolContext, tool

ROOM = {
    "type": "object",
    "properties": {"room": {"type": "string", "enum": ["garden", "street"]}, "guests": {"type": "integer", "minimum": 1}},
    "required": ["room", "guests"],
}


@tool(context=True)
async def book_room(nights: int, tool_context: ToolContext) -> str:
    """Books a room.

    Args:
        nights: Number of nights.
    """
    answer = await tool_context.ask(f"{nights} nights in which room?", ROOM, name="room")
    return f"booked: {answer.content['room']} for {answer.content['guests']}" if answer.accepted else "nothing is booked"
