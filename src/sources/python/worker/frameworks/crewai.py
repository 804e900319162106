"""Tools of crewAI."""

import importlib
import os
import re

from ..content import text_block
from ..error_text import message_of
from ..results import render, structured_json
from ..schema.json_schema import drop_invalid_defaults, unwrap_schema
from ..signatures import is_async_function
from ..tools import TOOL_NAME, Tool
from ..violations import InvalidValue, pydantic_violations


def crewai_tool(tool):
    """The tool of a BaseTool: the schema is its args_schema, a call is its run(), a result is its text for an agent."""
    function = getattr(tool, "func", None)
    schema = tool.args_schema.model_json_schema() if tool.args_schema is not None else {}
    base = importlib.import_module("crewai.tools.base_tool").BaseTool
    sanitize = None
    try:
        sanitize = importlib.import_module("crewai.utilities.string_utils").sanitize_tool_name
    except (ImportError, AttributeError):
        pass
    # A coroutine needs arun: run would call asyncio.run, which fails inside a loop.
    use_arun = bool(function and is_async_function(function))

    def start(arguments, call):
        try:
            return tool.arun(**arguments) if use_arun else tool.run(**arguments)
        except ValueError as error:
            raise_if_arguments(error)
            raise

    async def start_async(arguments, call):
        try:
            return await start(arguments, call)
        except ValueError as error:
            raise_if_arguments(error)
            raise

    def raise_if_arguments(error):
        violations = pydantic_violations(error) if "arguments validation failed" in str(error) else None
        if violations:
            raise InvalidValue(violations) from None

    def render_crewai(value):
        failed = type(value).__name__ == "ToolFailure" and hasattr(value, "as_agent_message")
        if failed:
            return "[" + text_block(value.as_agent_message()) + "]", "null", True
        if isinstance(value, (bytes, bytearray)):
            return render(value)
        if isinstance(value, (dict, list, tuple)):
            return render(value)  # crewAI would show Python's repr to its agent
        text = tool.format_output_for_agent(value) if hasattr(tool, "format_output_for_agent") else str(value)
        structured = structured_json(text) if getattr(tool, "result_schema", None) is not None else "null"
        return "[" + text_block(text) + "]", structured, False

    max_calls = getattr(tool, "max_usage_count", None)
    if max_calls is not None:
        tool.max_usage_count = None  # the service counts the calls of all workers, and also after a restart
    source = function if function else (type(tool)._run if type(tool)._run is not base._run else type(tool))
    name = tool.name if TOOL_NAME.match(tool.name) else (sanitize or sanitize_name)(tool.name)
    return Tool(
        name,
        tool.description,
        drop_invalid_defaults(unwrap_schema(schema)),
        "crewai",
        start_async if use_arun else start,
        source,
        is_async=use_arun,
        result_as_answer=getattr(tool, "result_as_answer", False),
        render=render_crewai,
        max_calls=max_calls,
        is_cacheable=getattr(tool, "cache_function", None),
        env=declared_variables(tool),
        format_error=lambda error: f"Error executing tool: {message_of(error) or type(error).__name__}",
    )


def declared_variables(tool):
    """The environment variables of a tool. Sets the default of a variable that the manifest does not set."""
    declared = []
    for variable in getattr(tool, "env_vars", None) or []:
        if variable.default is not None:
            os.environ.setdefault(variable.name, variable.default)
        declared.append({word: getattr(variable, word) for word in ("name", "description", "required", "default")})
    return declared


def sanitize_name(name):
    """A valid name, for versions of crewAI that do not make one."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:64]
