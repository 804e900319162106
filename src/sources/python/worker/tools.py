"""A tool as the worker calls it, from any framework."""

import re

from .error_text import format_error
from .json_values import BadOutput, dump_json, write_json_strictly
from .locations import object_location
from .results import render
from .schema.hints import UnsupportedHint

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")  # a name that every model provider accepts


class Tool:
    """A tool: its definition, and `start(arguments, call)`, which returns a value, an awaitable or a generator.

    - schema_owner: who wrote the schemas: "own" (the author of the module), "derived" (this worker, from type hints), or
      "foreign" (a framework, which checks the arguments itself)
    - source: the function or class, for its place in the file
    - env: [{"name", "description", "required", "default"}] of the variables that it reads
    - is_cacheable(arguments, value): whether the cache may store a result
    - format_error(error): the text of an exception, for a model
    - render(value): (content, structured content, whether it is an error) of a result
    """

    def __init__(self, name, description, input_schema, framework, start, source, **more):
        self.name, self.description, self.input_schema, self.framework, self.start = name, description, input_schema, framework, start
        self.output_schema = more.get("output_schema")
        self.schema_owner = more.get("schema_owner", "foreign")
        self.mode = "async" if more.get("is_async") else "sync"
        self.takes_context = bool(more.get("takes_context"))
        self.result_as_answer = bool(more.get("result_as_answer"))
        self.max_calls = more.get("max_calls")
        self.env = more.get("env") or []
        self.is_cacheable = more.get("is_cacheable")
        self.format_error = more.get("format_error", format_error)
        self.render = more.get("render", render)
        self.python_name = None
        self.file, self.line = object_location(source)

    def as_json(self):
        """The definition, for the message `ready`."""
        fields = (
            "name",
            "description",
            "input_schema",
            "output_schema",
            "schema_owner",
            "mode",
            "takes_context",
            "framework",
            "result_as_answer",
            "max_calls",
            "env",
            "file",
            "line",
        )
        return {field: getattr(self, field) for field in fields}


def check_tool(tool):
    """Raises UnsupportedHint if the tool cannot be offered."""
    if not isinstance(tool.name, str) or not TOOL_NAME.match(tool.name):
        raise UnsupportedHint(f"its name is {tool.name!r}; a name is 1 to 64 of a-z, A-Z, 0-9, _ and -")
    if not isinstance(tool.description, str) or not tool.description.strip():
        raise UnsupportedHint("it has no description")
    try:
        dump_json(tool.as_json())
        write_json_strictly(tool.input_schema)
    except (BadOutput, TypeError, ValueError) as error:
        raise UnsupportedHint(f"its schema is not valid JSON: {error}") from None
