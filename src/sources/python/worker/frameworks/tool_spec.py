"""Tools of a file with TOOL_SPEC and one function: the format that Strands has for files without decorators."""

from ..error_text import message_of
from ..schema.hints import UnsupportedHint
from ..schema.json_schema import drop_invalid_defaults, unwrap_schema
from ..signatures import is_async_function, read_signature
from ..tools import Tool


def spec_tool(module, spec, function):
    """The tool of TOOL_SPEC and of its function, which is called as f(tool_use, **state). The state is the caller's context."""
    if not isinstance(spec, dict) or not spec.get("name"):
        raise UnsupportedHint('TOOL_SPEC must be a dict with "name", "description" and "inputSchema"')
    if not callable(function):
        raise UnsupportedHint(f"'{spec['name']}' is not callable")
    if "inputSchema" not in spec:
        raise UnsupportedHint('TOOL_SPEC has no "inputSchema"')
    if not spec.get("description"):
        raise UnsupportedHint('TOOL_SPEC has no "description", and without one no model can choose the tool')
    parameters = list(read_signature(function).parameters.values())
    first = parameters[0].name if parameters else None
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name for parameter in parameters[1:] if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)}
    takes_context = takes_all or bool(named)

    def start(arguments, call):
        state = call.context.get("state") if takes_context else None
        if state:
            state = {name: value for name, value in state.items() if (takes_all or name in named) and name != first}
        return function(call.tool_use(), **(state or {}))

    output = spec.get("outputSchema")
    return Tool(
        spec["name"],
        spec["description"],
        drop_invalid_defaults(unwrap_schema(spec["inputSchema"])),
        "tool_spec",
        start,
        function,
        output_schema=unwrap_schema(output) if isinstance(output, dict) else None,
        schema_owner="own",
        is_async=is_async_function(function),
        takes_context=takes_context,
        format_error=lambda error: f"Error: {message_of(error) or type(error).__name__}",
    )
