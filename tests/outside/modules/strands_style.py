"""Written for Strands, which is not installed here."""

from strands import ToolContext, tool


@tool
def word_count(text: str) -> int:
    """Counts words.

    Args:
        text: What is counted.
    """
    return len(text.split())


@tool(context=True)
def tenant(tool_context: ToolContext) -> str:
    """Tells the tenant."""
    return tool_context.invocation_state.get("tenant", "none")
