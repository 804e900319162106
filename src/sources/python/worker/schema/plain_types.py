"""Types of Python itself: the schema and the converter of each."""

import collections
import collections.abc
import datetime
import decimal
import inspect
import typing
import uuid

from .converters import iso_reader, text_converter, to_bytes_from_base64, to_decimal, to_float, to_int, to_timedelta

TEXT_SCHEMA = {"type": "string"}
PLAIN_TYPES = {  # hint: (schema, converter or None)
    str: (TEXT_SCHEMA, None),
    bool: ({"type": "boolean"}, None),
    int: ({"type": "integer"}, to_int),
    float: ({"type": "number"}, to_float),
    type(None): ({"type": "null"}, None),
    None: ({"type": "null"}, None),
    typing.Any: ({}, None),
    object: ({}, None),
    inspect.Parameter.empty: ({}, None),
    typing.Hashable: ({}, None),
    bytes: ({"type": "string", "contentEncoding": "base64"}, text_converter(to_bytes_from_base64, "'aGVsbG8=' (base64)")),
    bytearray: (
        {"type": "string", "contentEncoding": "base64"},
        text_converter(lambda text: bytearray(to_bytes_from_base64(text)), "'aGVsbG8=' (base64)"),
    ),
    datetime.datetime: (
        {"type": "string", "format": "date-time"},
        text_converter(iso_reader(datetime.datetime.fromisoformat), "'2031-12-24T18:30:00Z'"),
    ),
    datetime.date: ({"type": "string", "format": "date"}, text_converter(datetime.date.fromisoformat, "'2031-12-24'")),
    datetime.time: ({"type": "string", "format": "time"}, text_converter(iso_reader(datetime.time.fromisoformat), "'18:30:00'")),
    datetime.timedelta: ({"type": "number", "description": "Seconds"}, to_timedelta),
    uuid.UUID: ({"type": "string", "format": "uuid"}, text_converter(uuid.UUID, "'6f1c9f0e-3d0b-4c59-9b7e-3f8a4d1b2c5d'")),
    decimal.Decimal: ({"anyOf": [{"type": "number"}, TEXT_SCHEMA]}, to_decimal),
}
ARRAY_TYPES = {  # hint: the constructor from a list, or None
    list: None, collections.abc.Sequence: None, collections.abc.MutableSequence: None, collections.abc.Collection: None,
    collections.abc.Iterable: None, collections.abc.Container: None, collections.abc.Reversible: None,
    collections.abc.Iterator: iter, tuple: tuple, set: set, frozenset: frozenset, collections.deque: collections.deque,
    collections.abc.Set: set, collections.abc.MutableSet: set,
}  # fmt: skip
OBJECT_TYPES = {  # hint: the constructor from a dict, or None
    dict: None,
    collections.abc.Mapping: None,
    collections.abc.MutableMapping: None,
    collections.OrderedDict: collections.OrderedDict,
}
WRAPPER_NAMES = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}  # they do not change the type inside
CONSTRAINTS = {  # attribute of an annotated type: keyword of JSON Schema
    "ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf",
    "min_length": "minLength", "max_length": "maxLength", "pattern": "pattern",
}  # fmt: skip
