"""A TOOL_SPEC module with pydantic at hand."""

from strands.types.tools import ToolResult, ToolUse

TOOL_SPEC = {
    "name": "strands_module",
    "description": "Doubles a number.",
    "inputSchema": {"json": {"type": "object", "properties": {"x": {"type": "integer", "description": "The number"}}, "required": ["x"]}},
}


def strands_module(tool: ToolUse, **kwargs) -> ToolResult:
    return {"toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": str(tool["input"]["x"] * 2)}, {"json": {"x": tool["input"]["x"]}}]}
