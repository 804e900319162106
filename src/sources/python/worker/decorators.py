"""The module `toolcrib`, which tools import: `from toolcrib import tool, ToolContext`."""

import sys
import types

from .context import ToolContext
from .questions import Answer, NotAsked

TOOL_ATTRIBUTE = "__toolcrib__"  # the attribute of a decorated function; its value is an Options


class Options:
    """The options of a decorator."""

    def __init__(
        self, framework, name=None, description=None, input_schema=None, output_schema=None, context=False, result_as_answer=False
    ):
        self.framework, self.name, self.description = framework, name, description
        self.input_schema, self.output_schema = input_schema, output_schema
        self.context, self.result_as_answer = context, result_as_answer


def mark_tool(function, options):
    """Makes the function a tool with these options, and returns the function."""
    inner = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
    if not callable(inner):
        raise TypeError(f"@tool is for functions, not for {inner!r}")
    setattr(inner, TOOL_ATTRIBUTE, options)
    return function


def toolcrib_tool(
    function=None,
    *,
    name=None,
    description=None,
    input_schema=None,
    inputSchema=None,
    output_schema=None,
    context=False,
    result_as_answer=False,
):
    """Makes a typed function a tool. Its docstring and type hints describe the tool and its arguments."""
    if isinstance(function, str):
        name, function = function, None
    schema = input_schema if input_schema is not None else inputSchema
    options = Options("toolcrib", name, description, schema, output_schema, context, result_as_answer)
    return (lambda function: mark_tool(function, options)) if function is None else mark_tool(function, options)


def install_decorators():
    """Makes the module `toolcrib` importable."""
    module = types.ModuleType("toolcrib", "What tools may import from the worker that runs them.")
    module.tool, module.ToolContext, module.Answer, module.NotAsked = toolcrib_tool, ToolContext, Answer, NotAsked
    module.__all__ = ["Answer", "NotAsked", "ToolContext", "tool"]
    for exported in (ToolContext, Answer, NotAsked):
        exported.__module__ = "toolcrib"
    sys.modules["toolcrib"] = module
