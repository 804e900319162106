"""Tools of LangChain."""

import base64
import importlib
import re
import traceback
import typing

from ..content import bytes_block, text_block
from ..error_text import first_line_of
from ..json_values import dump_json
from ..results import render, structured_json
from ..schema.json_schema import drop_invalid_defaults, unwrap_schema
from ..tools import Tool
from ..violations import InvalidValue, pydantic_violations


def langchain_tool(tool):
    """The tool of a BaseTool: the schema is the one for models, a call is invoke() with a tool call, a result is its message."""
    core = importlib.import_module("langchain_core.tools.base")
    schema = call_schema(tool)
    function, coroutine = getattr(tool, "func", None), getattr(tool, "coroutine", None)
    body = function or coroutine or type(tool)._run
    # A subclass of BaseTool has _run and perhaps _arun. A StructuredTool has one or both of `func` and `coroutine`.
    own_arun = type(tool)._arun is not core.BaseTool._arun
    use_async = coroutine is not None
    injected = getattr(tool, "_injected_args_keys", None) or injected_names(core, tool, body)
    hidden = set(injected) | (set(tool.args) - set(schema.get("properties") or ()))
    wants_config = bool(core._get_runnable_config_param(body)) if hasattr(core, "_get_runnable_config_param") else False

    def request(arguments, call):
        state = call.context.get("state") or {}
        # A name that is hidden from the model is not passed to the function.
        args = {name: value for name, value in arguments.items() if name not in hidden}
        args.update((name, state[name]) for name in injected if name in state)
        use = call.tool_use()
        return {"type": "tool_call", "id": use["toolUseId"], "name": tool.name, "args": args}, {"configurable": state}

    def start(arguments, call):
        message, config = request(arguments, call)
        try:
            return tool.invoke(message, config)
        except NotImplementedError:
            if not own_arun:
                raise
            return start_async(arguments, call)  # a tool that can only be awaited
        except ValueError as error:
            raise_if_arguments(error)
            raise

    async def start_async(arguments, call):
        message, config = request(arguments, call)
        try:
            return await tool.ainvoke(message, config)
        except ValueError as error:
            raise_if_arguments(error)
            raise

    def raise_if_arguments(error):
        """A ValidationError is about the arguments if it was raised while LangChain parsed them, before the function ran."""
        if any(frame.name == "_parse_input" for frame in traceback.extract_tb(error.__traceback__)):
            raise InvalidValue(pydantic_violations(error) or first_line_of(error)) from None

    return Tool(
        tool.name,
        tool.description,
        drop_invalid_defaults(unwrap_schema(schema)),
        "langchain",
        start_async if use_async else start,
        body,
        is_async=use_async,
        takes_context=wants_config or bool(injected),
        result_as_answer=getattr(tool, "return_direct", False),
        render=render_langchain,
        format_error=lambda error: f"Error: {error!r}\n Please fix your mistakes.",
    )


def call_schema(tool):
    """The schema that models get, from a dict or a model of pydantic 1 or 2."""
    model = tool.tool_call_schema
    if isinstance(model, dict):
        schema = dict(model)
    else:
        schema = model.model_json_schema() if hasattr(model, "model_json_schema") else model.schema()
    schema.pop("title", None)
    schema.pop("description", None)  # the same as the tool's description
    return schema


def injected_names(core, tool, body):
    """The parameters that are hidden from models and that the caller's context sets by name.

    The id of the call is not one of them, because LangChain sets it.
    """
    hints = {}
    if isinstance(tool.args_schema, type):
        hints = dict(getattr(tool.args_schema, "__annotations__", {}))
    try:
        hints.update(typing.get_type_hints(body, include_extras=True))
    except Exception:
        pass
    kinds = (core.InjectedToolArg,) if hasattr(core, "InjectedToolArg") else ()
    found = set()
    for name, hint in hints.items():
        for item in getattr(hint, "__metadata__", ()):
            kind = item if isinstance(item, type) else type(item)
            if kinds and issubclass(kind, kinds) and kind.__name__ != "InjectedToolCallId":
                found.add(name)
    return found


def render_langchain(value):
    """The content of a ToolMessage, without its artifact, as a model gets it."""
    if not (hasattr(value, "tool_call_id") and hasattr(value, "content")):
        return render(value)
    failed = getattr(value, "status", "success") == "error"
    if isinstance(value.content, str):
        return "[" + text_block(value.content) + "]", "null" if failed else structured_json(value.content), failed
    return "[" + ",".join(langchain_block(part) for part in value.content) + "]", "null", failed


def langchain_block(part):
    """A content block of LangChain as a block of MCP."""
    if isinstance(part, str):
        return text_block(part)
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return text_block(part["text"])
    data = part.get("base64") or part.get("data")  # {"type": "image", "base64"|"data", "mime_type"}
    address = part.get("image_url")
    address = address.get("url") if isinstance(address, dict) else address
    kind = part.get("mime_type")
    match = re.match(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)\Z", address, re.DOTALL) if isinstance(address, str) else None
    if match:
        kind, data = match[1], match[2]
    if isinstance(data, str):
        try:
            return bytes_block(base64.b64decode(data, validate=True), kind)
        except ValueError:
            pass
    return text_block(dump_json(part))
