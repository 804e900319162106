"""Tools of Strands: objects of the installed package, and functions decorated with `@tool` of the stub."""

import functools
import importlib
import inspect
import re
import sys

from ..context import ToolContext
from ..error_text import first_line_of, message_of
from ..functions import Function
from ..results import render
from ..schema.hints import UnsupportedHint
from ..schema.json_schema import MISSING, drop_invalid_defaults, unwrap_schema
from ..signatures import is_async_function, is_context_hint
from ..tools import Tool
from ..violations import InvalidValue, pydantic_violations

# ---- functions decorated with the stub's @tool ---------------------------------------------------------------------------


STRANDS_SECTIONS = re.compile(r"(?i)(returns?|yields?|raises?|except|exceptions|examples?|notes?|see also|seealso|references|ref):")


def strands_description(text):
    """The description as Strands makes it, without the text from an Args heading to the next heading that Strands knows."""
    kept, skipping = [], False
    for line in inspect.cleandoc(text or "").split("\n"):
        if re.match(r"(?i)(args|arguments|parameters|params?):", line.strip()):
            skipping = True
        elif STRANDS_SECTIONS.match(line.strip()):
            skipping = False
        if not skipping:
            kept.append(line)
    return "\n".join(kept).strip()


class StrandsFunction(Function):
    """A typed function by the rules of Strands."""

    keeps_dicts = True

    def read_docs(self, doc):
        return strands_description(doc), super().read_docs(doc)[1]

    def missing_description(self, name):
        return f"Parameter {name}"

    def derive_output_schema(self):
        return None

    def takes_hidden(self, parameter):
        name = parameter.name
        if name == self.context_option():
            self.context_name = name
            return True
        if is_context_hint(parameter.annotation, self.scope):
            raise UnsupportedHint(
                f"parameter '{name}' is a ToolContext: use @tool(context=True) and name it tool_context, or @tool(context=\"{name}\")"
            )
        if name == "agent" and parameter.default is parameter.empty:
            self.agent_name = name
        return name in ("self", "cls", "agent")


def stub_tool(function, options):
    """The tool of a function that `@tool` of the stub has decorated."""
    return StrandsFunction(function, options).as_tool(format_error=format_strands_error, render=render_strands_result)


def format_strands_error(error):
    """The text of an exception as Strands writes it."""
    return f"Error: {message_of(error)}" if isinstance(error, ValueError) else f"Error: {type(error).__name__} - {message_of(error)}"


def render_strands_result(value):
    """The content of a result. Strands writes None as `null`."""
    return render("null" if value is None else value)


# ---- objects of the installed package ------------------------------------------------------------------------------------


def accept_null(schema, model):
    """The schema of Strands, with the null that Strands accepts as an argument.

    Strands writes the type `T | None` of an optional parameter as T. `model` is the pydantic model of the parameters.
    """
    model_properties = model.model_json_schema().get("properties") or {}
    properties = {name: make_nullable(part, model_properties.get(name)) for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def make_nullable(part, model_part):
    """`part` or null, if `model_part` permits T or null and `part` permits only T."""
    choices = model_part.get("anyOf") if isinstance(model_part, dict) else None
    if not isinstance(part, dict) or not isinstance(choices, list) or len(choices) != 2 or {"type": "null"} not in choices:
        return part
    kind = choices[1 - choices.index({"type": "null"})]
    kind = {word: value for word, value in kind.items() if word not in ("title", "additionalProperties")}  # as Strands does
    has_more = not part.keys() <= kind.keys() | model_part.keys() | {"description"}
    if has_more or any(part.get(word, MISSING) != value for word, value in kind.items()):
        return part  # a schema that the author of the tool has written
    return {"anyOf": [kind, {"type": "null"}], **{word: value for word, value in part.items() if word not in kind}}


def strands_context(call):
    """A ToolContext of Strands with the content of ours."""
    real = sys.modules["strands.types.tools"].ToolContext
    ours = call.tool_context()
    context = context_class(real)(tool_use=ours.tool_use, agent=ours.agent, invocation_state=ours.invocation_state)
    context._extend(call)
    return context


@functools.lru_cache(maxsize=None)
def context_class(real):
    """A class that is the ToolContext of Strands, `real`, and ours."""
    return type("ToolContext", (ToolContext, real), {"__init__": real.__init__, "__module__": "toolcrib"})


def installed_tool(tool):
    """The tool of an AgentTool, with the specification of Strands' own registry.

    A decorated function is called directly, because Strands would call it on another thread.
    """
    spec = tool.tool_spec
    normalise = getattr(importlib.import_module("strands.tools.tools"), "normalize_tool_spec", None)
    spec = normalise(spec) if normalise else spec
    schema = unwrap_schema(spec["inputSchema"])
    function, metadata = getattr(tool, "_tool_func", None), getattr(tool, "_metadata", None)
    model = getattr(metadata, "input_model", None)
    schema = drop_invalid_defaults(accept_null(schema, model) if hasattr(model, "model_json_schema") else schema)
    more = {"format_error": format_strands_error, "render": render_strands_result}
    if isinstance(spec.get("outputSchema"), dict):
        more["output_schema"] = unwrap_schema(spec["outputSchema"])
    if not (callable(function) and hasattr(metadata, "validate_input")):
        return Tool(
            tool.tool_name,
            spec.get("description"),
            schema,
            "strands",
            functools.partial(stream_strands_tool, tool),
            tool,
            is_async=True,
            takes_context=True,
            **more,
        )
    parameters = metadata.signature.parameters
    context_name = getattr(metadata, "_context_param", None)
    context_name = context_name if context_name in parameters else None
    needs_agent = "agent" in parameters and parameters["agent"].default is inspect.Parameter.empty

    def start(arguments, call):
        try:
            values = metadata.validate_input(arguments)
        except ValueError as error:
            raise InvalidValue(pydantic_violations(error) or first_line_of(error)) from None
        if context_name:
            values[context_name] = strands_context(call)
        if needs_agent:
            values["agent"] = call.tool_context().agent
        return function(**values)

    more.update(is_async=is_async_function(function), takes_context=bool(context_name) or needs_agent)
    return Tool(tool.tool_name, spec.get("description"), schema, "strands", start, function, **more)


async def stream_strands_tool(tool, arguments, call):
    """Calls an AgentTool that is not a decorated function. Its stream is progress, and the last event is the result."""
    context = call.tool_context()
    async for event in tool.stream(context.tool_use, {**context.invocation_state, "agent": context.agent}):
        if isinstance(event, dict) and "tool_stream_event" in event:
            yield event["tool_stream_event"].get("data")
        elif isinstance(event, dict) and "tool_result" in event:
            yield event["tool_result"]
        else:
            yield event
