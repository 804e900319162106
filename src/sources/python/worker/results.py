"""Results: the return value of a tool as content and structured content."""

import enum
import json

from .content import bytes_block, encode_png, is_mcp_block, media_block, text_block
from .json_values import JSON_BOOLEANS, BadOutput, dump_json, has_no_text, read_json, to_json_value, unwritable

NO_VALUE = object()  # the value of a generator that yields nothing


def render(value):
    """(content, structured content, whether it is an error), the first two as JSON."""
    kind = type(value)
    if kind is str:
        return "[" + text_block(value) + "]", "null", False
    if value is None or value is NO_VALUE:
        return "[]", "null", False
    if kind is bool or kind is int or kind is float:
        return "[" + text_block(number_to_text(value)) + "]", "null", False
    if kind is dict and is_tool_result(value):
        return render_tool_result(value)
    if isinstance(value, enum.Enum):
        return render(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "[" + bytes_block(bytes(value)) + "]", "null", False
    if kind.__module__.partition(".")[0] == "PIL" and hasattr(value, "save"):
        return "[" + bytes_block(encode_png(value)) + "]", "null", False
    if isinstance(value, (dict, list, tuple)):
        text = dump_json(value)
        return "[" + text_block(text) + "]", text, False
    if isinstance(value, (str, int, float)):  # subclasses of them
        base = next(base for base in (str, int, float) if isinstance(value, base))
        return render(base(value) if base is not str else str.__str__(value))
    try:
        value = to_json_value(value)
    except TypeError:
        if has_no_text(value):
            raise BadOutput(
                f"the function returned an object of the class {type(value).__name__}, which is neither JSON nor text: return a "
                "dict, a list, a text or a number, or give the class a __str__"
            ) from None
        value = str(value)
    except Exception as error:
        raise unwritable(error) from error
    return render(value)


def number_to_text(value):
    """The text of a number as in JSON. NaN and the infinities are written as Python's `json` writes them."""
    if value is True or value is False:
        return JSON_BOOLEANS[value]
    if type(value) is float:
        return repr(value) if value - value == 0 else json.dumps(value)
    try:
        return str(value)
    except ValueError as error:  # 3.11 and later: integers of more than 4300 digits
        raise unwritable(error) from None


RESULT_PART_KEYS = ("text", "json", "image", "document")


def is_tool_result(value):
    """Whether a dict is a result with its content, and not just data with the same keys:

    {"status": "success"|"error", "content": [{"text"|"json"|"image"|"document": ...}], "result_as_answer": True|False,
    "hint": "..."}. One key beside `content` is enough. A part may also be a content block of MCP.
    """
    content = value.get("content")
    return (
        any(key in value for key in ("status", "result_as_answer", "hint"))
        and value.get("status", "success") in ("success", "error")
        and isinstance(value.get("result_as_answer", False), bool)
        and (value.get("hint") is None or isinstance(value["hint"], str))
        and isinstance(content, (list, tuple))
        and all(isinstance(part, dict) and (any(key in part for key in RESULT_PART_KEYS) or is_mcp_block(part)) for part in content)
    )


def render_tool_result(value):
    blocks, data = [], []
    for part in value["content"]:
        if is_mcp_block(part):
            blocks.append(dump_json(part))
        elif "text" in part:
            blocks.append(text_block(part["text"] if type(part["text"]) is str else str(part["text"])))
        elif "json" in part:
            text = dump_json(part["json"])
            blocks.append(text_block(text))
            data.append(text)
        else:
            blocks.append(media_block(part))
    structured = data[0] if len(data) == 1 else "[" + ",".join(data) + "]" if data else "null"
    return "[" + ",".join(blocks) + "]", structured, value.get("status") == "error"


MAX_HINT_CHARS = 300  # a sentence or two


def extra_members(value):
    """The members of the message for the keys of a result beside its content, status excluded."""
    if not is_tool_result(value):
        return ""
    answer = f',"result_as_answer":{JSON_BOOLEANS[value["result_as_answer"]]}' if "result_as_answer" in value else ""
    # A model reads the hint in brackets, after a list. So the hint is one line without a closing bracket.
    hint = " ".join((value.get("hint") or "").replace("]", ")").split())[:MAX_HINT_CHARS]
    return answer + (f',"hint":{dump_json(hint)}' if hint else "")


def structured_json(text):
    """The text if it is an object or an array as JSON, else null. Some frameworks write a dict or a list as such a text."""
    if text[:1] in ("{", "["):
        try:
            return dump_json(read_json(text))
        except (ValueError, RecursionError, BadOutput):
            pass
    return "null"
