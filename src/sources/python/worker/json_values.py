"""Values of Python as JSON, also those for which JSON has no type.

NaN and the infinities become null inside lists and dicts, with a warning, as JavaScript writes them. Outside of them they
become text (`NaN`). A tuple or set becomes a list. Decimal, UUID, dates and paths become strings, and bytes inside other
values become base64. An unknown object becomes its str().
"""

import base64
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import re
import threading
import uuid

from .error_text import first_line_of

MAX_DEPTH = 100  # levels of lists and objects in a result; the service reads messages of at most 128 levels
read_json = json.JSONDecoder().decode
scan_json = json.JSONDecoder().scan_once  # reads (text, position); ignores the text around the value
quote = json.encoder.encode_basestring  # a str as JSON, with its quotes; the fastest way there is
JSON_BOOLEANS = {True: "true", False: "false"}


class BadOutput(Exception):
    """A result that cannot be passed on. The message is the reason."""


def unwritable(error):
    """The failure of a result that cannot be written as JSON."""
    if "set_int_max_str_digits" in str(error):  # 3.11 and later
        return BadOutput(
            "the result has an integer with more digits than Python writes: return a text such as hex(value), or raise "
            "the limit by sys.set_int_max_str_digits()"
        )
    return BadOutput(f"the result cannot be written as JSON: {type(error).__name__}: {first_line_of(error)}")


def to_json_value(value):
    """Converts a value without a JSON type to one that JSON can contain. Raises TypeError if there is no such value."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True)  # as in the output schema
    if hasattr(value, "__fields__") and hasattr(value, "dict") and not isinstance(value, type):
        return value.dict(by_alias=True)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, collections.abc.Set):
        try:
            return sorted(value)  # the order of a set changes from process to process
        except TypeError:
            return list(value)
    if isinstance(value, (collections.deque, collections.abc.ValuesView, collections.abc.Sequence)) and not isinstance(value, str):
        return list(value)
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def has_no_text(value):
    """Whether the text of an object is only its class and its address, which tells a model nothing."""
    return type(value).__str__ is object.__str__ and type(value).__repr__ is object.__repr__


def to_json_value_or_text(value):
    try:
        return to_json_value(value)
    except TypeError:
        return str(value)


def replace_unwritable(value, place="", lost=None):
    """A copy that JSON can contain: keys become strings, NaN and the infinities become null.

    `lost`: a list that gets (place, number) for each number that became null.
    """
    if isinstance(value, float):
        if value - value == 0:
            return value
        if lost is not None:
            lost.append((place, value))
        return None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        pairs = [(name if isinstance(name, str) else key_to_text(name), item) for name, item in value.items()]
        return {name: replace_unwritable(item, f"{place}.{name}" if place else name, lost) for name, item in pairs}
    if isinstance(value, (list, tuple)):
        return [replace_unwritable(item, f"{place}[{at}]", lost) for at, item in enumerate(value)]
    return replace_unwritable(to_json_value_or_text(value), place, lost)


class LostNumbers(threading.local):
    """The numbers that became null in the result that this thread is writing.

    `numbers`: a list of (place, number), or None if they are not collected.
    """

    numbers = None


lost_numbers = LostNumbers()
MAX_NAMED_LOSSES = 5  # numbers that get their own warning
MAX_PLACE_CHARS = 200  # of a place in a warning


def lost_number_warnings(lost):
    """A warning for each number that JSON cannot contain, and one for the rest."""
    warnings = [
        f"{place[:MAX_PLACE_CHARS]}: not a JSON number ({float(number)!r}), sent as null" for place, number in lost[:MAX_NAMED_LOSSES]
    ]
    more = len(lost) - MAX_NAMED_LOSSES
    if more > 0:
        warnings.append(f"{more} more {'value is' if more == 1 else 'values are'} not JSON numbers, sent as null")
    return warnings


def key_to_text(key):
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    key = to_json_value_or_text(key)
    return key if isinstance(key, str) else str(key)


ENCODING = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
write_json = json.JSONEncoder(default=to_json_value_or_text, **ENCODING).encode
write_json_strictly = json.JSONEncoder(default=to_json_value, **ENCODING).encode  # raises TypeError for an unknown object


def dump_json(value):
    """The value as JSON. Raises BadOutput if the value cannot be written."""
    try:
        try:
            text = write_json(value)
        except (TypeError, ValueError):  # keys that are not strings, NaN, recursive lists
            text = write_json(replace_unwritable(value, lost=lost_numbers.numbers))
    except RecursionError:
        raise BadOutput("the result refers to itself, or is nested too deeply to be written as JSON") from None
    except Exception as error:
        raise unwritable(error) from error
    if text.count("[") + text.count("{") > MAX_DEPTH and nesting_depth(text) > MAX_DEPTH:
        raise BadOutput(f"the result is nested deeper than {MAX_DEPTH} levels")
    return text


def nesting_depth(text):
    """Levels of lists and objects in a JSON text."""
    deepest = depth = 0
    for bracket in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > deepest:
            deepest = depth
    return deepest
