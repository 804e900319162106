"""Toolcrib's Python worker: loads one tool module and answers calls over pipes until its standard input ends.

The service starts `python -X utf8 -c BOOT`, where BOOT reads a line with a byte count and so many bytes (this file) from
descriptor 0 and executes them. From then on descriptors 0 and 1 carry JSON, UTF-8, one object per line:

    <- {"op":"load","module":"/abs/x.py"|"pkg.mod","is_file":true,"source":null|"…","object":null|"Class","init":{},"functions":null|["f"],
        "role":"sync"|"async"|"shared","max_result":4194304}
    -> {"op":"ready","python":"3.11.7","tools":[...],"warnings":[...]}      or {"op":"failed","kind",...} and exit 1
    <- {"op":"call","id":1,"tool":"f","arguments":{},"context":{...},"watched":true}
    -> {"op":"progress","id":1,"data":...}*  {"op":"warning","id":1,"message":"…"}*  then one of  result | invalid | failed_call | cancelled  with the same id
    <- {"op":"cancel","id":1}                                               not in role sync

What tools print goes to descriptor 2, the log, and never into the protocol. Standard library only, Python 3.9 to 3.14.

Sections: wire, context, docstrings, schemas (type hints to JSON Schema and converters), functions, decorators, results, frameworks,
finding tools, loading, calls, roles, main.

How values are encoded. Bytes in arguments are base64 strings. In results: NaN and the infinities, which JSON does not have, become null
inside lists and dicts (as JavaScript writes them, with a warning) and text (`NaN`) outside of them; a tuple or set becomes a list; Decimal, UUID, dates
and paths become strings; bytes become an image or audio if they begin like one, else a resource; an unknown object becomes its str().
"""

import sys

if sys.path[:1] == [""]:
    del sys.path[0]  # the working directory: a file there must not replace a module that is imported next

import asyncio
import base64
import collections
import collections.abc
import concurrent.futures
import contextvars
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import json
import keyword
import os
import pathlib
import re
import select
import signal
import sysconfig
import threading
import time
import traceback
import types
import typing
import urllib.parse
import uuid

WORKER_FILE = "<toolcrib worker>"  # this file's name in tracebacks
MAX_DEPTH = 100  # levels of lists and objects in one message; the service reads at most 128
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")  # what every model provider takes as a tool's name


# ---- wire ------------------------------------------------------------------------------------------------------------------


class Wire:
    """The descriptors of the protocol. Tools cannot reach them through 0, 1 and 2."""

    def __init__(self):
        self.source = os.dup(0)  # os.dup: not inherited by programs that tools start
        self.sink = os.dup(1)
        self.log = os.dup(2)
        self.redirect_standard_descriptors()
        self.lock = threading.Lock()  # tools may report progress from threads of their own
        self.max_line = 4 << 20
        # A forked child is not a worker: it must not hold the pipes open (the service waits for their end), and must not answer.
        os.register_at_fork(after_in_child=self.close_in_child)

    def redirect_standard_descriptors(self):
        """Gives tools an empty standard input, and the log as standard output and standard error."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != 0:
            os.dup2(nothing, 0)
            os.close(nothing)
        os.dup2(self.log, 1)
        os.dup2(self.log, 2)

    def close_in_child(self):
        for descriptor in (self.source, self.sink, self.log):
            try:
                os.close(descriptor)
            except OSError:
                pass
        self.source = self.sink = self.log = -1
        self.lock = threading.Lock()  # the old one may be locked forever by a thread that was not forked

    def send(self, line):
        """Writes one line and its line end, with a single write if the pipe accepts it."""
        data = to_bytes(line) + b"\n"
        with self.lock:
            if self.sink < 0:
                os._exit(1)  # a fork of the worker that returned from the tool's function: it must not answer
            try:
                written = os.write(self.sink, data)
                while written < len(data):
                    written += os.write(self.sink, data[written:])
            except OSError:
                os._exit(1)  # the service has closed the pipe

    def write_log(self, text):
        """Writes to the log, whatever the tool did to sys.stderr."""
        try:
            os.write(self.log, to_bytes(text.rstrip("\n") + "\n"))
        except OSError:
            pass

    def exit_with_the_service(self):
        """Ends the process when the service has closed the log, even during a call. So no process is orphaned."""

        def watch():
            poll = select.poll()
            poll.register(self.log, 0)  # only errors: POLLERR on a pipe means that its reader is gone
            while True:
                for _, event in poll.poll():
                    if event & (select.POLLERR | select.POLLHUP):
                        os._exit(1)
                    if event & select.POLLNVAL:
                        return

        if hasattr(select, "poll"):
            threading.Thread(target=watch, name="toolcrib-watch", daemon=True).start()


def to_bytes(text):
    """UTF-8. Halves of surrogate pairs, which UTF-8 cannot hold, are joined or become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


read_json = json.JSONDecoder().decode
scan_json = json.JSONDecoder().scan_once  # the same for (text, position); ignores the text around the value
quote = json.encoder.encode_basestring  # a str as JSON, quotes included; the fastest way there is
wire = None  # the one Wire, made by main()


# ---- context ---------------------------------------------------------------------------------------------------------------


class Agent:
    """Replaces the agent object that a framework gives to its tools. Toolcrib knows only the name of the calling agent."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        raise AttributeError(f"Toolcrib knows only the name of the agent that calls, not its '{name}'")


class ToolContext:
    """The information about the call for a tool.

    tool_use: {"toolUseId", "name", "input"}; invocation_state: the caller's context, an object; caller: whose key
    made the call; agent.name: the agent that made the call, or else the caller; invocation_id, run_id, attempt: the call's
    own; deadline: seconds left; cancel_signal: set when the call is cancelled.
    """

    def __init__(self, call):
        fields = call.context
        self.tool_use = {
            "toolUseId": fields.get("tool_use_id") or fields.get("invocation_id") or "",
            "name": call.tool.name,
            "input": call.arguments,
        }
        self.invocation_state = fields.get("state") or {}
        self._extend(call)

    def _extend(self, call):
        fields = call.context
        self.agent = Agent(fields.get("agent") or fields.get("caller"))
        self.caller = fields.get("caller")
        self.invocation_id = fields.get("invocation_id")
        self.run_id = fields.get("run_id")
        self.attempt = fields.get("attempt", 1)
        self.cancel_signal = call.cancel_signal
        self._call = call

    @property
    def deadline(self):
        """Seconds left, or None without a deadline."""
        deadline = self._call.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def progress(self, data):
        """Reports progress to the listeners of the call: any value that JSON can contain. May be called from any thread."""
        self._call.progress(data)


# ---- docstrings ------------------------------------------------------------------------------------------------------------

GOOGLE_ARGUMENTS = re.compile(r"(?i)(args|arguments|parameters|params?|keyword args|keyword arguments|other parameters):\s*$")
GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.*)$")
NUMPY_ARGUMENTS = re.compile(r"(?i)(parameters|other parameters)\s*$")
UNDERLINE = re.compile(r"-{3,}\s*$")
SPHINX_ITEM = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def indentation(line):
    return len(line) - len(line.lstrip())


def read_docstring(text):
    """(description, {parameter: description}): Google, NumPy and Sphinx styles; the parameters' blocks are cut out."""
    lines, description_lines, parameters, at = inspect.cleandoc(text or "").split("\n"), [], {}, 0

    def block_end(start, belongs):
        end = start
        while end < len(lines) and (not lines[end].strip() or belongs(end)):
            end += 1
        while end > start and not lines[end - 1].strip():
            end -= 1
        return end

    def is_deeper_than(base):
        return lambda index: indentation(lines[index]) > base

    def read_items(start, end, pattern):
        """Lines with the first line's indentation name parameters. Deeper lines continue the description."""
        names, base = [], indentation(lines[start]) if start < end else 0
        for line in lines[start:end]:
            if indentation(line) <= base and line.strip():
                names = pattern(line.strip())
            elif names and line.strip():
                for name in names:
                    parameters[name] = f"{parameters.get(name, '')} {line.strip()}".strip()

    def google_item(line):
        match = GOOGLE_ITEM.match(line)
        if not match:
            return []
        parameters[match[1]] = match[2]
        return [match[1]]

    def numpy_item(line):
        names = [name.strip().lstrip("*") for name in line.split(":")[0].split(",")]
        parameters.update(dict.fromkeys(names, ""))
        return names

    while at < len(lines):
        line, base = lines[at], indentation(lines[at])
        sphinx = SPHINX_ITEM.match(line.strip())
        if GOOGLE_ARGUMENTS.match(line.strip()):
            end = block_end(at + 1, is_deeper_than(base))
            if end == at + 1:  # "Parameters:" without lines below it is ordinary text
                description_lines.append(line)
            read_items(at + 1, end, google_item)
            at = end
        elif NUMPY_ARGUMENTS.match(line.strip()) and at + 1 < len(lines) and UNDERLINE.match(lines[at + 1].strip()):
            # The next heading is the line above the next underline.
            end = block_end(at + 2, lambda index: not (index + 1 < len(lines) and UNDERLINE.match(lines[index + 1].strip())))
            read_items(at + 2, end, numpy_item)
            at = end
        elif sphinx:
            end = block_end(at + 1, is_deeper_than(base))
            if sphinx[1] != "type":
                parameters[sphinx[2]] = " ".join([sphinx[3]] + [more.strip() for more in lines[at + 1 : end]]).strip()
            at = end
        else:
            description_lines.append(line)
            at += 1
    description = re.sub(r"\n\s*\n\s*\n+", "\n\n", "\n".join(description_lines)).strip()
    return description, {name: text for name, text in parameters.items() if text}


STRANDS_SECTIONS = re.compile(r"(?i)(returns?|yields?|raises?|except|exceptions|examples?|notes?|see also|seealso|references|ref):")


def strands_description(text):
    """The description as Strands makes it: what follows an Args heading is left out until a heading that Strands knows."""
    kept, skipping = [], False
    for line in inspect.cleandoc(text or "").split("\n"):
        if re.match(r"(?i)(args|arguments|parameters|params?):", line.strip()):
            skipping = True
        elif STRANDS_SECTIONS.match(line.strip()):
            skipping = False
        if not skipping:
            kept.append(line)
    return "\n".join(kept).strip()


# ---- schemas: type hints to JSON Schema and converters -----------------------------------------------------------------------


class UnsupportedHint(Exception):
    """A type hint that JSON Schema cannot describe."""


class InvalidValue(Exception):
    """A value that does not fit its type hint: [(JSON Pointer, message)]."""

    def __init__(self, violations):
        super().__init__(violations)
        self.violations = [("", violations)] if isinstance(violations, str) else violations

    def at_key(self, key):
        token = str(key).replace("~", "~0").replace("/", "~1")
        return [(f"/{token}{pointer}", message) for pointer, message in self.violations]


def json_type_name(value):
    """The value's JSON type, for messages."""
    for kind, name in (
        (bool, "a boolean"),
        (str, "a string"),
        (int, "an integer"),
        (float, "a number"),
        (list, "an array"),
        (dict, "an object"),
    ):
        if isinstance(value, kind):
            return name
    return "null"


def to_int(value):
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise InvalidValue(f"must be an integer, not {json_type_name(value)}")


def to_float(value):
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise InvalidValue("is too large for a float") from None
    raise InvalidValue(f"must be a number, not {json_type_name(value)}")


def text_converter(read, example):
    """A converter for strings with a certain content."""

    def convert(value):
        if type(value) is not str:
            raise InvalidValue(f"must be a string like {example}, not {json_type_name(value)}")
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise InvalidValue(f"{value[:100]!r} cannot be read; it must be like {example}") from None

    return convert


def iso_reader(read):
    """Adapts the text for older Pythons, which do not read Z or an arbitrary number of decimals."""

    def convert(text):
        text = re.sub(r"[.,](\d+)", lambda match: "." + (match[1] + "00000")[:6], text, count=1)
        return read(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)

    return convert


def to_decimal(value):
    if type(value) in (int, float, str):
        try:
            return decimal.Decimal(repr(value) if type(value) is float else value)
        except (ArithmeticError, ValueError):
            pass
    raise InvalidValue("must be a number, or a string that holds one")


def to_timedelta(value):
    try:
        return datetime.timedelta(seconds=to_float(value))
    except OverflowError:
        raise InvalidValue("is too large for a duration") from None


def to_bytes_from_base64(value):
    return base64.b64decode(value, validate=True)


TEXT_SCHEMA = {"type": "string"}
PLAIN_TYPES = {  # hints with a fixed schema
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
    datetime.datetime: ({"type": "string", "format": "date-time"}, text_converter(iso_reader(datetime.datetime.fromisoformat), "'2031-12-24T18:30:00Z'")),
    datetime.date: ({"type": "string", "format": "date"}, text_converter(datetime.date.fromisoformat, "'2031-12-24'")),
    datetime.time: ({"type": "string", "format": "time"}, text_converter(iso_reader(datetime.time.fromisoformat), "'18:30:00'")),
    datetime.timedelta: ({"type": "number", "description": "Seconds"}, to_timedelta),
    uuid.UUID: ({"type": "string", "format": "uuid"}, text_converter(uuid.UUID, "'6f1c9f0e-3d0b-4c59-9b7e-3f8a4d1b2c5d'")),
    decimal.Decimal: ({"anyOf": [{"type": "number"}, TEXT_SCHEMA]}, to_decimal),
}
ARRAY_TYPES = {  # hint: the constructor for a list of the arguments
    list: None, collections.abc.Sequence: None, collections.abc.MutableSequence: None, collections.abc.Collection: None,
    collections.abc.Iterable: None, collections.abc.Container: None, collections.abc.Reversible: None,
    collections.abc.Iterator: iter, tuple: tuple, set: set, frozenset: frozenset, collections.deque: collections.deque,
    collections.abc.Set: set, collections.abc.MutableSet: set,
}  # fmt: skip
OBJECT_TYPES = {
    dict: None,
    collections.abc.Mapping: None,
    collections.abc.MutableMapping: None,
    collections.OrderedDict: collections.OrderedDict,
}
WRAPPER_NAMES = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}  # they do not change the type inside


def origin_name(hint):
    """Final, NotRequired and similar hints come from typing or typing_extensions. Only their names are equal."""
    origin = typing.get_origin(hint)
    return getattr(origin, "_name", None) or getattr(origin, "__name__", None)


def is_typed_dict(hint):
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__required_keys__") and hasattr(hint, "__total__")


def is_pydantic_model(hint):
    return isinstance(hint, type) and (hasattr(hint, "model_json_schema") or (hasattr(hint, "__fields__") and hasattr(hint, "parse_obj")))


def is_field(value):
    """pydantic's Field(...), without importing pydantic."""
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def field_types(owner, scope):
    """{field: hint} of a class, strings resolved."""
    try:
        return typing.get_type_hints(owner, localns={**scope, owner.__name__: owner}, include_extras=True)
    except Exception as error:
        raise UnsupportedHint(f"a hint in class {owner.__name__} cannot be resolved: {error}") from None


class SchemaBuilder:
    """Converts type hints to (schema, converter). Use one for each schema: named types are collected in `defs`.

    A converter is None if the JSON value needs no conversion. `scope` resolves hints that are strings;
    `as_dicts`: nested models and dataclasses stay dicts, as in Strands.
    """

    def __init__(self, scope, as_dicts=False, output=False):
        self.scope, self.as_dicts, self.output = scope, as_dicts, output
        self.defs, self.names, self.converters = {}, {}, {}

    def from_hint(self, hint):
        if isinstance(hint, typing.ForwardRef):
            hint = hint.__forward_arg__
        if isinstance(hint, str):
            return self.from_hint(resolve_hint(hint, self.scope))
        try:
            if hint in PLAIN_TYPES:
                schema, convert = PLAIN_TYPES[hint]
                return dict(schema), convert
        except TypeError:  # not hashable: Literal or Annotated with a list inside
            pass
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated or hasattr(hint, "__metadata__"):
            return self.from_annotated(arguments[0], arguments[1:], hint)
        if origin is typing.Union or type(hint) is getattr(types, "UnionType", ()):
            return self.from_union(arguments)
        if origin is typing.Literal or origin_name(hint) == "Literal":
            return self.from_choices({value.value if isinstance(value, enum.Enum) else value: value for value in arguments}, hint)
        if origin_name(hint) in WRAPPER_NAMES:
            return self.from_hint(arguments[0])
        if hasattr(hint, "__supertype__"):  # NewType
            return self.from_hint(hint.__supertype__)
        if type(hint).__name__ == "TypeAliasType":  # type X = ...
            alias = hint.__value__
            return self.named_type(hint, hint.__name__, lambda: self.from_hint(alias))
        if isinstance(hint, typing.TypeVar):
            return self.from_union(hint.__constraints__) if hint.__constraints__ else self.from_hint(hint.__bound__ or typing.Any)
        if origin is not None and type(origin).__name__ == "TypeAliasType":
            raise UnsupportedHint(f"{hint!r}: aliases with parameters cannot be described")
        container = origin if origin is not None else hint
        if isinstance(container, type) and hasattr(container, "_fields") and issubclass(container, tuple):
            return self.named_type(container, container.__name__, lambda: self.from_named_tuple(container))
        try:
            if container in ARRAY_TYPES:
                return self.from_array(container, arguments)
            if container in OBJECT_TYPES:
                return self.from_mapping(container, arguments)
        except TypeError:
            pass
        if is_typed_dict(container):
            return self.named_type(container, container.__name__, lambda: self.from_typed_dict(container))
        if is_pydantic_model(hint):
            return self.from_pydantic_model(hint)
        if dataclasses.is_dataclass(container) and isinstance(container, type):
            return self.named_type(container, container.__name__, lambda: self.from_dataclass(container))
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self.from_enum(hint)
        if isinstance(hint, type) and issubclass(hint, os.PathLike):
            path = pathlib.Path if hint is os.PathLike else hint
            return {"type": "string", "format": "path"}, text_converter(path, "'notes/today.txt'")
        if hasattr(hint, "__get_pydantic_core_schema__"):
            return self.from_pydantic_type(hint)
        for base in (str, bool, int, float):  # a subclass of a plain type is made from it
            if isinstance(hint, type) and issubclass(hint, base) and hint is not base:
                schema, _ = PLAIN_TYPES[base]
                return dict(schema), value_constructor(hint)
        if getattr(hint, "__name__", None) == "LiteralString" or getattr(hint, "_name", None) == "LiteralString":
            return dict(TEXT_SCHEMA), None
        raise UnsupportedHint(f"{show_hint(hint)} cannot be described in JSON Schema")

    def named_type(self, key, name, build):
        """A reference to a type in $defs. Recursive types need it, and it avoids repetition."""
        if key not in self.names:
            unique, count = re.sub(r"\W", "_", name), 2
            while unique in self.defs:
                unique, count = f"{name}{count}", count + 1
            self.names[key], self.defs[unique] = unique, None
            self.defs[unique], self.converters[key] = build()
        reference = {"$ref": f"#/$defs/{self.names[key]}"}
        if key in self.converters:
            return reference, self.converters[key]

        def later(value):  # inside its own definition: the converter is not known yet
            convert = self.converters[key]
            return convert(value) if convert else value

        return reference, later

    def from_annotated(self, hint, metadata, full_hint):
        if any(is_field(item) for item in metadata):
            return self.from_pydantic_type(full_hint)
        schema, convert = self.from_hint(hint)
        for item in metadata:
            if isinstance(item, str):
                schema["description"] = item
            for attribute, word in CONSTRAINTS.items():  # annotated_types, without importing it
                limit = getattr(item, attribute, None) if not isinstance(item, (str, type)) else None
                if isinstance(limit, (int, float, str)) and not isinstance(limit, bool):
                    length = {"array": "Items", "object": "Properties"}.get(schema.get("type"), "Length")
                    schema[word.replace("Length", length)] = limit
        return schema, convert

    def from_union(self, hints):
        members = [self.from_hint(hint) for hint in hints]
        if len(members) == 1:
            return members[0]
        schema = {"anyOf": [schema for schema, _ in members]}
        if not any(convert for _, convert in members):
            return schema, None
        defs = self.defs

        def convert(value):
            failures = []
            for alternative, converter in members:
                if may_fit(value, alternative, defs):
                    try:
                        return converter(value) if converter else value
                    except InvalidValue as invalid:
                        failures.append(invalid)
            raise failures[0] if len(failures) == 1 else InvalidValue("matches none of the permitted types")

        return schema, convert

    def from_choices(self, values, hint):
        """One of several JSON values. `values`: {value in the arguments: value for the tool}."""
        if not all(value is None or isinstance(value, (str, int, float)) for value in values):
            raise UnsupportedHint(f"{show_hint(hint)}: a choice can only have strings, numbers, booleans and None")
        kinds = {type(value) for value in values}
        schema = {"const": next(iter(values))} if len(values) == 1 else {"enum": list(values)}
        if len(kinds) == 1 and kinds <= {str, int, float, bool}:
            schema = {**PLAIN_TYPES[kinds.pop()][0], **schema}

        def convert(value):
            try:
                if value in values:
                    return values[value]
            except TypeError:
                pass
            raise InvalidValue("must be one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values))

        return schema, convert

    def from_enum(self, hint):
        members = list(hint)
        if not members:
            raise UnsupportedHint(f"{hint.__name__} has no members")
        if all(member.value is None or isinstance(member.value, (str, int, float)) for member in members):
            return self.from_choices({member.value: member for member in members}, hint)
        return self.from_choices({member.name: member for member in members}, hint)  # values that JSON cannot contain

    def from_array(self, container, arguments):
        if container is tuple and arguments and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            members = [self.from_hint(argument) for argument in arguments if argument != ()]
            count = len(members)
            schema = {"type": "array", "prefixItems": [schema for schema, _ in members], "minItems": count, "maxItems": count}
            if not members:
                del schema["prefixItems"]

            def convert_each(value):
                if type(value) is not list or len(value) != count:
                    raise InvalidValue(f"must be an array of {count}")
                return tuple(convert_items(value, [converter for _, converter in members]))

            return schema, convert_each
        item, converter = self.from_hint(arguments[0]) if arguments else ({}, None)
        build = ARRAY_TYPES[container]
        schema = {"type": "array", "items": item} if item else {"type": "array"}
        if build in (set, frozenset):
            schema["uniqueItems"] = True
        if not converter and not build:
            return schema, None

        def convert(value):
            if type(value) is not list:
                raise InvalidValue(f"must be an array, not {json_type_name(value)}")
            items = convert_items(value, [converter] * len(value)) if converter else value
            try:
                return build(items) if build else items
            except TypeError:  # a set of lists
                raise InvalidValue("holds items that a set cannot hold") from None

        return schema, convert

    def from_mapping(self, container, arguments):
        key, convert_key = self.from_hint(arguments[0]) if arguments else (TEXT_SCHEMA, None)
        item, converter = self.from_hint(arguments[1]) if len(arguments) > 1 else ({}, None)
        schema = {"type": "object", "additionalProperties": item or True}
        if key.get("type") == "string" and len(key) > 1:
            schema["propertyNames"] = key
        elif key.get("type") in ("integer", "number"):  # JSON's keys are strings
            number = convert_key
            convert_key = text_converter(lambda text: number(json.loads(text)), "a number")
        elif key and key.get("type") != "string":
            raise UnsupportedHint("a dict's keys can only be strings, numbers or an Enum")
        build = OBJECT_TYPES[container]
        if not (converter or convert_key or build):
            return schema, None

        def convert(value):
            if type(value) is not dict:
                raise InvalidValue(f"must be an object, not {json_type_name(value)}")
            result, violations = {}, []
            for name, item in value.items():
                try:
                    result[convert_key(name) if convert_key else name] = converter(item) if converter else item
                except InvalidValue as invalid:
                    violations += invalid.at_key(name)
            if violations:
                raise InvalidValue(violations)
            return build(result) if build else result

        return schema, convert

    def from_fields(self, fields, required, build, owner, open_ended=False):
        """An object with known fields. `build` makes the instance from the converted ones."""
        properties, converters = {}, {}
        for name, (hint, default) in fields.items():
            properties[name], converters[name] = self.from_hint(hint)
            add_default(properties[name], default, self.defs)
        schema = {"type": "object", "properties": properties, "required": [name for name in fields if name in required]}
        if not open_ended:
            schema["additionalProperties"] = False
        doc = inspect.cleandoc(owner.__doc__ or "")
        # dataclass and NamedTuple write a docstring of their own; dict's own is what a TypedDict inherits.
        if doc and not doc.startswith(f"{owner.__name__}(") and owner.__doc__ != dict.__doc__:
            schema["description"] = doc
        if build is None and not any(converters.values()):
            return schema, None

        def convert(value):
            if type(value) is not dict:
                raise InvalidValue(f"must be an object, not {json_type_name(value)}")
            violations = [(f"/{name}", "is missing") for name in required if name not in value]
            result = {}
            for name, item in value.items():
                if name not in converters:
                    violations += InvalidValue("is not a known field").at_key(name)
                    continue
                try:
                    result[name] = converters[name](item) if converters[name] else item
                except InvalidValue as invalid:
                    violations += invalid.at_key(name)
            if violations:
                raise InvalidValue(violations)
            return build(result) if build else result

        return schema, convert

    def from_typed_dict(self, hint):
        fields, required = {}, set(hint.__required_keys__)
        for name, field in field_types(hint, self.class_scope(hint)).items():
            fields[name] = (field, MISSING)
            wrapper = origin_name(field)  # with string hints __required_keys__ does not include these
            if wrapper == "NotRequired":
                required.discard(name)
            elif wrapper == "Required":
                required.add(name)
        return self.from_fields(fields, required, None, hint, open_ended=self.output)

    def from_dataclass(self, hint):
        hints = field_types(hint, self.class_scope(hint))
        fields, required = {}, set()
        for field in dataclasses.fields(hint):
            if not field.init and not self.output:
                continue
            fields[field.name] = (hints[field.name], field.default)
            if self.output or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
                required.add(field.name)
        return self.from_fields(fields, required, None if self.as_dicts else field_constructor(hint), hint, open_ended=self.output)

    def from_named_tuple(self, hint):
        hints, defaults = field_types(hint, self.class_scope(hint)), hint._field_defaults
        fields = {name: (hints.get(name, typing.Any), defaults.get(name, MISSING)) for name in hint._fields}
        return self.from_fields(fields, {name for name in fields if name not in defaults}, field_constructor(hint), hint)

    def class_scope(self, hint):
        module = sys.modules.get(hint.__module__)
        return {**self.scope, **(vars(module) if module else {})}

    def from_pydantic_model(self, hint):
        """A pydantic model: its own schema, its own checks."""
        if hasattr(hint, "model_json_schema"):
            schema = hint.model_json_schema(mode="serialization" if self.output else "validation")
            validate, dump = hint.model_validate, lambda model: model.model_dump()
        else:
            schema, validate, dump = hint.schema(), hint.parse_obj, lambda model: model.dict()
        convert = validation_converter(validate)
        if self.as_dicts:
            inner = convert
            convert = lambda value: dump(inner(value))  # noqa: E731
        return self.adopt_schema(hint, getattr(hint, "__name__", "Model"), schema), convert

    def from_pydantic_type(self, hint):
        """Anything else that pydantic understands: Field(...), its own types."""
        try:
            adapter = importlib.import_module("pydantic").TypeAdapter(hint)
            schema = adapter.json_schema(mode="serialization" if self.output else "validation")
        except Exception as error:
            raise UnsupportedHint(f"{show_hint(hint)}: {first_line_of(error)}") from None
        convert = validation_converter(adapter.validate_python, lax_json=True)
        return self.adopt_schema(None, None, schema), convert

    def adopt_schema(self, key, name, schema):
        """Takes a complete schema in: its $defs become ours, renamed where a name is taken."""
        schema = json.loads(json.dumps(schema))
        inner = schema.pop("$defs", None) or schema.pop("definitions", None) or {}
        renamed = {}
        for inner_name, definition in inner.items():
            unique, count = inner_name, 2
            while unique in self.defs and self.defs[unique] != definition:
                unique, count = f"{inner_name}{count}", count + 1
            renamed[inner_name] = unique
        for inner_name, definition in inner.items():
            self.defs[renamed[inner_name]] = rewrite_refs(definition, renamed)
        schema = rewrite_refs(schema, renamed)
        if key is None or "$ref" in schema:
            schema.pop("title", None)
            return schema
        return self.named_type(key, name, lambda: (schema, None))[0]


MISSING = dataclasses.MISSING
CONSTRAINTS = {
    "ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf",
    "min_length": "minLength", "max_length": "maxLength", "pattern": "pattern",
}  # fmt: skip


def show_hint(hint):
    return getattr(hint, "__qualname__", None) or repr(hint)


def first_line_of(error):
    return (str(error).strip() or type(error).__name__).split("\n")[0]


def resolve_hint(text, scope):
    """The hint that a string stands for."""
    try:
        return eval(text, scope)  # as typing.get_type_hints does; the text is the module's own source
    except Exception as error:
        raise UnsupportedHint(f"the hint {text!r} cannot be resolved: {first_line_of(error)}") from None


def rewrite_refs(schema, renamed):
    """The schema with its $refs renamed."""
    if isinstance(schema, dict):
        result = {key: rewrite_refs(value, renamed) for key, value in schema.items()}
        target = schema.get("$ref")
        if isinstance(target, str):
            name = target.rsplit("/", 1)[-1]
            result["$ref"] = f"#/$defs/{renamed.get(name, name)}"
        return result
    if isinstance(schema, list):
        return [rewrite_refs(item, renamed) for item in schema]
    return schema


def convert_items(items, converters):
    result, violations = [], []
    for index, (item, converter) in enumerate(zip(items, converters)):
        try:
            result.append(converter(item) if converter else item)
        except InvalidValue as invalid:
            violations += invalid.at_key(index)
    if violations:
        raise InvalidValue(violations)
    return result


def field_constructor(build):
    """A converter that calls the constructor of a class with fields. An error of the constructor is a violation."""

    def construct(fields):
        try:
            return build(**fields)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise InvalidValue(pydantic_violations(error) or first_line_of(error)) from error

    return construct


def value_constructor(build):
    def construct(value):
        try:
            return build(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise InvalidValue(first_line_of(error)) from error

    return construct


def validation_converter(validate, lax_json=False):
    """pydantic's check as a converter."""

    def convert(value):
        try:
            return validate(value)
        except ValueError as error:  # ValidationError is one
            raise InvalidValue(pydantic_violations(error) or first_line_of(error)) from error

    return convert


def pydantic_violations(error):
    """[(pointer, message)] of a pydantic ValidationError, also of one behind the error; else None."""
    for candidate in (error, error.__cause__):
        if type(candidate).__name__ == "ValidationError" and callable(getattr(candidate, "errors", None)):
            found = []
            for item in candidate.errors():
                invalid = InvalidValue(item["msg"])
                for key in reversed(item["loc"]):
                    invalid = InvalidValue(invalid.at_key(key))
                found += invalid.violations
            return found
    return None


JSON_TYPES = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def may_fit(value, schema, defs):
    """Whether the value may match the schema. Checks only the outermost type."""
    if "$ref" in schema:
        return may_fit(value, defs.get(schema["$ref"].rsplit("/", 1)[-1]) or {}, defs)
    if "anyOf" in schema:
        return any(may_fit(value, alternative, defs) for alternative in schema["anyOf"])
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    wanted = schema.get("type")
    return not isinstance(wanted, str) or JSON_TYPES[wanted](value)


def add_default(schema, default, defs):
    """Adds the default to the schema if it can be written as JSON and matches. The service fills it in before validation."""
    if default is MISSING or default is inspect.Parameter.empty:
        return
    try:
        value = json.loads(dump_json(default, strict=True))
    except (TypeError, ValueError, RecursionError):
        return
    if may_fit(value, schema, defs):
        schema["default"] = value


# ---- functions: a signature as a schema, and a call from arguments ---------------------------------------------------------


class Options:
    """The options of a decorator."""

    def __init__(
        self, framework, name=None, description=None, input_schema=None, output_schema=None, context=False, result_as_answer=False
    ):
        self.framework, self.name, self.description = framework, name, description
        self.input_schema, self.output_schema = input_schema, output_schema
        self.context, self.result_as_answer = context, result_as_answer


class Parameter:
    """One parameter of a function: its public name, its converter and its default."""

    __slots__ = ("name", "kind", "convert", "default")

    def __init__(self, name, kind, convert, default):
        self.name, self.kind, self.convert, self.default = name, kind, convert, default


def read_signature(function):
    try:
        return inspect.signature(function)
    except NameError:  # 3.14 evaluates hints late: a name that only type checkers import
        library = importlib.import_module("annotationlib")
        return inspect.signature(function, annotation_format=library.Format.FORWARDREF)


def unwrap_partial(function):
    while isinstance(function, functools.partial):
        function = function.func
    return function


def function_scope(function):
    """The names that a function's string hints may use."""
    function = inspect.unwrap(unwrap_partial(function))
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__globals__"):
        function = getattr(type(function), "__call__", function)
    scope = dict(getattr(function, "__globals__", {}))
    for name, cell in zip(getattr(getattr(function, "__code__", None), "co_freevars", ()), getattr(function, "__closure__", None) or ()):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            pass
    return scope


def is_context_hint(hint, scope):
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        if re.search(r"\bToolContext\b", hint) and "ToolContext" not in scope:
            return True  # imported for type checkers only
        try:
            hint = resolve_hint(hint, scope)
        except UnsupportedHint:
            return False
    hints = [hint, typing.get_origin(hint), *typing.get_args(hint)]
    return any(
        isinstance(item, type) and item.__name__ == "ToolContext" and (item is ToolContext or item.__module__.startswith("strands."))
        for item in hints
    )


class Function:
    """A typed function as a tool: description, schema, and the call."""

    def __init__(self, function, options, name):
        self.function, self.options, self.name = function, options, name
        self.is_strands = options.framework == "strands"
        self.scope = function_scope(function)
        self.signature = read_signature(function)
        self.context_name = None
        self.agent_name = None
        self.build_schemas()
        kinds = {parameter.kind for parameter in self.parameters}
        # The fast path: every argument by keyword, the function's own defaults for the rest.
        self.calls_by_keyword = not kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        self.calls_by_keyword = self.calls_by_keyword and not any(parameter.default is not MISSING for parameter in self.parameters)
        self.names = {parameter.name for parameter in self.parameters}
        rest = inspect.Parameter.VAR_KEYWORD  # its values have names of their own
        self.converters = [
            (parameter.name, parameter.convert) for parameter in self.parameters if parameter.convert and parameter.kind is not rest
        ]

    def build_schemas(self):
        options, doc = self.options, inspect.getdoc(unwrap_partial(self.function))
        description, parameter_docs = read_docstring(doc)
        if self.is_strands:
            description = strands_description(doc)
        self.description = options.description or description or self.name
        builder = SchemaBuilder(self.scope, as_dicts=self.is_strands)
        properties, required, additional, self.parameters = {}, [], False, []
        for name, parameter in self.signature.parameters.items():
            if self.is_hidden(name, parameter):
                continue
            try:
                schema, convert, is_required, make_default = self.parameter_schema(parameter, builder)
            except UnsupportedHint as bad:
                raise UnsupportedHint(f"parameter '{name}': {bad}") from None
            has_own_description = is_annotated(self.resolve_annotation(parameter.annotation)) or is_field(parameter.default)
            if name in parameter_docs and not (has_own_description and "description" in schema):
                schema["description"] = parameter_docs[name]
            elif self.is_strands:
                schema.setdefault("description", f"Parameter {name}")
            self.parameters.append(Parameter(name, parameter.kind, convert, make_default))
            if parameter.kind is parameter.VAR_KEYWORD:
                additional = {key: value for key, value in schema.items() if key != "description"} or True
                continue
            properties[name] = schema
            if is_required:
                required.append(name)
        self.input_schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": additional}
        if builder.defs:
            self.input_schema["$defs"] = builder.defs
        if options.input_schema is not None:
            self.input_schema = unwrap_schema(options.input_schema)
        self.output_schema = options.output_schema
        if self.output_schema is None and not self.is_strands:
            self.output_schema = self.derive_output_schema()

    def is_hidden(self, name, parameter):
        """Whether a model cannot set the parameter: the context, and parameters that Strands reserves."""
        wanted = "tool_context" if self.options.context is True else self.options.context
        if name == wanted or (name == "tool_context" and not self.is_strands):
            self.context_name = name
            return True
        if is_context_hint(parameter.annotation, self.scope):
            if self.is_strands:  # as Strands has it
                raise UnsupportedHint(
                    f"parameter '{name}' is a ToolContext: use @tool(context=True) and name it tool_context, or @tool(context=\"{name}\")"
                )
            self.context_name = name
            return True
        if self.is_strands and name == "agent" and parameter.default is parameter.empty:
            self.agent_name = name
        return self.is_strands and name in ("self", "cls", "agent")

    def parameter_schema(self, parameter, builder):
        """(schema, converter, whether it is required, a function that makes its default)."""
        hint, default = parameter.annotation, parameter.default
        if is_field(default):  # x: int = Field(default=3, ge=0)
            schema, convert = builder.from_pydantic_type(typing.Annotated[self.resolve_annotation(hint), default])
            if default.is_required():
                return schema, convert, True, MISSING
            if not default.default_factory:
                add_default(schema, default.get_default(), builder.defs)
            return schema, convert, False, functools.partial(default.get_default, call_default_factory=True)
        schema, convert = builder.from_hint(hint)
        if parameter.kind is parameter.VAR_POSITIONAL:
            schema = {"type": "array", "items": schema} if schema else {"type": "array"}
            return schema, convert and (lambda values: convert_items(values, [convert] * len(values))), False, MISSING
        add_default(schema, default, builder.defs)
        return schema, convert, default is parameter.empty, MISSING

    def resolve_annotation(self, hint):
        try:
            return resolve_hint(hint, self.scope) if isinstance(hint, str) else hint
        except UnsupportedHint:
            return hint

    def derive_output_schema(self):
        """The schema of the return hint, if the hint is an object with known fields."""
        hint = self.resolve_annotation(self.signature.return_annotation)
        if not (is_typed_dict(hint) or is_pydantic_model(hint) or (dataclasses.is_dataclass(hint) and isinstance(hint, type))):
            return None
        try:
            builder = SchemaBuilder(self.scope, output=True)
            root, _ = builder.from_hint(hint)
        except UnsupportedHint:
            return None
        name = root["$ref"].rsplit("/", 1)[-1]
        schema = dict(builder.defs[name])
        if json.dumps(builder.defs).find(f'"#/$defs/{name}"') < 0:
            del builder.defs[name]
        return {**schema, "$defs": builder.defs} if builder.defs else schema

    def start(self, arguments, call):
        """Converts the arguments and calls the function. Raises InvalidValue if they do not fit the type hints."""
        if self.calls_by_keyword and arguments.keys() <= self.names:
            if self.converters:
                arguments = self.convert_arguments(arguments)
            if self.context_name is None and self.agent_name is None:
                try:
                    return self.function(**arguments)
                except TypeError:
                    self.check_required(arguments)
                    raise
            positional = ()
        else:
            positional, arguments = self.arrange_arguments(self.convert_arguments(arguments))
        self.check_required(arguments, positional)
        keywords = dict(arguments)
        if self.context_name is not None:
            if self.signature.parameters[self.context_name].kind is inspect.Parameter.POSITIONAL_ONLY:
                index = list(self.signature.parameters).index(self.context_name)
                positional = (*positional[:index], call.tool_context(), *positional[index:])
            else:
                keywords[self.context_name] = call.tool_context()
        if self.agent_name is not None:
            keywords[self.agent_name] = call.tool_context().agent
        return self.function(*positional, **keywords)

    def convert_arguments(self, arguments):
        arguments, violations = dict(arguments), []
        for name, convert in self.converters:
            if name in arguments:
                try:
                    arguments[name] = convert(arguments[name])
                except InvalidValue as invalid:
                    violations += invalid.at_key(name)
        if violations:
            raise InvalidValue(violations)
        return arguments

    def arrange_arguments(self, arguments):
        """(positional, keywords) for functions with positional-only parameters, `*args` or `**kwargs`."""
        positional, keywords, extra = [], {}, None
        var_positional = next((parameter for parameter in self.parameters if parameter.kind is inspect.Parameter.VAR_POSITIONAL), None)
        has_var_values = bool(var_positional and arguments.get(var_positional.name))
        for parameter in self.parameters:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = parameter
            elif parameter is var_positional:
                positional += arguments.get(var_positional.name) or []
            else:
                value = arguments.get(parameter.name, MISSING)
                if value is MISSING and parameter.default is not MISSING:
                    value = parameter.default()
                is_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY or (
                    has_var_values and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
                )
                if value is MISSING and is_positional:
                    value = self.signature.parameters[parameter.name].default
                    if value is inspect.Parameter.empty:
                        raise InvalidValue([(f"/{parameter.name}", "is missing")])
                if value is MISSING:
                    continue
                if is_positional:
                    positional.append(value)
                else:
                    keywords[parameter.name] = value
        if extra is not None:
            unknown = {name: value for name, value in arguments.items() if name not in self.names or name == extra.name}
            reserved = {self.context_name, self.agent_name}
            for name, value in unknown.items():
                if name in reserved:
                    continue
                try:
                    keywords[name] = extra.convert(value) if extra.convert else value
                except InvalidValue as invalid:
                    raise InvalidValue(invalid.at_key(name)) from None
        return tuple(positional), keywords

    def check_required(self, keywords, positional=()):
        """Checks for missing arguments: an explicit input_schema may require less than the function."""
        missing = []
        for parameter in self.parameters[len(positional) :]:
            is_required = self.signature.parameters[parameter.name].default is inspect.Parameter.empty
            if (
                is_required
                and parameter.name not in keywords
                and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            ):
                missing.append((f"/{parameter.name}", "is missing"))
        if missing:
            raise InvalidValue(missing)


def is_annotated(hint):
    """Whether the hint has its own description, which takes precedence over the docstring."""
    return any(isinstance(item, str) or getattr(item, "description", None) for item in getattr(hint, "__metadata__", ()))


def unwrap_schema(schema):
    """An input schema without Strands' {"json": ...} around it, with an object at its root."""
    if isinstance(schema, dict) and set(schema) == {"json"}:
        schema = schema["json"]
    if not isinstance(schema, dict):
        raise UnsupportedHint("the input schema is not a JSON Schema object")
    return {"type": "object", "properties": {}, **schema}


# ---- decorators: `from toolcrib import tool`, and a stub for Strands where it is not installed -------------------------

TOOL_ATTRIBUTE = "__toolcrib__"  # the attribute that makes a function a tool


def mark_tool(function, options):
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


def strands_tool(func=None, description=None, inputSchema=None, name=None, context=False):
    """Strands' @tool, reduced to what works without Strands."""
    if isinstance(context, str):
        context = context.strip()
        if not context:
            raise ValueError("Context parameter name cannot be empty")
    options = Options("strands", name, description, inputSchema, None, context)
    return (lambda function: mark_tool(function, options)) if func is None else mark_tool(func, options)


STRANDS_TYPES = [
    "ToolUse",
    "ToolResult",
    "ToolResultContent",
    "ToolSpec",
    "Tool",
    "ToolChoice",
    "ToolConfig",
    "ToolGenerator",
    "JSONSchema",
    "ToolResultStatus",
]


class StrandsStub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides `strands` if the real package is not installed, so that files that need only @tool still load."""

    NAMES = {
        "strands": {"tool": strands_tool, "ToolContext": ToolContext},
        "strands.tools": {"tool": strands_tool},
        "strands.tools.decorator": {"tool": strands_tool},
        "strands.types": {},
        "strands.types.tools": {**dict.fromkeys(STRANDS_TYPES, dict), "ToolContext": ToolContext},
    }

    def find_spec(self, name, path=None, target=None):
        parent = sys.modules.get(name.rpartition(".")[0])
        if name not in self.NAMES or (parent is not None and getattr(parent, "__loader__", None) is not self):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(self.NAMES[module.__name__])

        def missing(name):
            if name.startswith("__"):
                raise AttributeError(name)
            raise ImportError(f"strands-agents is not installed for this interpreter; without it '{module.__name__}' has no '{name}'")

        module.__getattr__ = missing


def install_decorators():
    module = types.ModuleType("toolcrib", "What tools may import from the worker that runs them.")
    module.tool, module.ToolContext, module.__all__ = toolcrib_tool, ToolContext, ["tool", "ToolContext"]
    ToolContext.__module__ = "toolcrib"
    sys.modules["toolcrib"] = module
    sys.meta_path.append(StrandsStub())


# ---- results ---------------------------------------------------------------------------------------------------------------


class BadOutput(Exception):
    """A result that cannot be passed on; the message is the reason."""


NO_VALUE = object()  # the value of a generator that yields nothing


def to_json_value(value):
    """Converts a value without a JSON type to one that JSON can contain; else raises TypeError."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if hasattr(value, "__fields__") and hasattr(value, "dict") and not isinstance(value, type):
        return value.dict()
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


def to_json_value_or_text(value):
    try:
        return to_json_value(value)
    except TypeError:
        return str(value)


def replace_unwritable(value, place="", lost=None):
    """A copy that JSON can contain: keys become strings, NaN and the infinities become null. These are added to `lost` as (place, number)."""
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
    """The numbers that became null in the result that this thread is writing: a list of (place, number); None: not collected."""

    numbers = None


lost_numbers = LostNumbers()
MAX_NAMED_LOSSES = 5  # that get a warning of their own
MAX_PLACE_CHARS = 200


def lost_number_warnings(lost):
    """A warning for each number that JSON cannot contain, and one for the rest."""
    warnings = [f"{place[:MAX_PLACE_CHARS]}: not a JSON number ({float(number)!r}), sent as null" for place, number in lost[:MAX_NAMED_LOSSES]]
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
write_json_strictly = json.JSONEncoder(default=to_json_value, **ENCODING).encode


def dump_json(value, strict=False):
    """The value as JSON. Raises TypeError or ValueError if `strict` and JSON cannot contain it; BadOutput if the value cannot be written."""
    if strict:
        return write_json_strictly(value)
    try:
        try:
            text = write_json(value)
        except (TypeError, ValueError):  # keys that are not strings, NaN, recursive lists
            text = write_json(replace_unwritable(value, lost=lost_numbers.numbers))
    except RecursionError:
        raise BadOutput("the result refers to itself, or is nested too deeply to be written as JSON") from None
    except Exception as error:
        raise BadOutput(f"the result cannot be written as JSON: {type(error).__name__}: {first_line_of(error)}") from error
    if text.count("[") + text.count("{") > MAX_DEPTH and nesting_depth(text) > MAX_DEPTH:
        raise BadOutput(f"the result is nested deeper than {MAX_DEPTH} levels")
    return text


def nesting_depth(text):
    deepest = depth = 0
    for bracket in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > deepest:
            deepest = depth
    return deepest


def text_block(text):
    return '{"type":"text","text":' + quote(text) + "}"


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
        value = str(value)
    except Exception as error:
        raise BadOutput(f"the result cannot be written as JSON: {type(error).__name__}: {first_line_of(error)}") from error
    return render(value)


def number_to_text(value):
    """As JSON writes it; NaN and Infinity as Python's JSON does."""
    if value is True or value is False:
        return JSON_BOOLEANS[value]
    if type(value) is float:
        return repr(value) if value - value == 0 else json.dumps(value)
    try:
        return str(value)
    except ValueError as error:  # 3.11 and later: integers of more than 4300 digits
        raise BadOutput(f"the result cannot be written as JSON: {error}") from None


def encode_png(image):
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


FILE_SIGNATURES = [  # first bytes of files: WHATWG's MIME Sniffing Standard, 6.1 and 6.2
    (rb"\x89PNG\r\n\x1a\n", "image/png"), (rb"\xff\xd8\xff", "image/jpeg"), (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBPVP", "image/webp"), (rb"RIFF....WAVE", "audio/wav"), (rb"ID3|\xff\xfb", "audio/mpeg"), (rb"OggS\x00", "audio/ogg"),
    (rb"%PDF-", "application/pdf"),
]  # fmt: skip
DOCUMENTS = {
    "pdf": "application/pdf", "csv": "text/csv", "html": "text/html", "txt": "text/plain", "md": "text/markdown",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip


def sniff_mime_type(data):
    return next((kind for pattern, kind in FILE_SIGNATURES if re.match(pattern, data, re.DOTALL)), "application/octet-stream")


def bytes_block(data, kind=None, name="result"):
    kind = kind or sniff_mime_type(data)
    family, blob = kind.partition("/")[0], base64.b64encode(data).decode()
    if family in ("image", "audio"):
        return dump_json({"type": family, "data": blob, "mimeType": kind})
    resource = {"uri": f"result:///{name}", "mimeType": kind}
    try:
        resource.update({"text": data.decode()} if family == "text" else {"blob": blob})
    except UnicodeDecodeError:
        resource["blob"] = blob
    return dump_json({"type": "resource", "resource": resource})


RESULT_PART_KEYS = ("text", "json", "image", "document")


def is_tool_result(value):
    """{"status": "success"|"error", "content": [{"text"|"json"|"image"|"document": ...}], "result_as_answer": True|False, "hint": "..."}, and
    not just a dict with these keys. One key beside content is enough. A part may be a content block of MCP, too."""
    content = value.get("content")
    return (
        any(key in value for key in ("status", "result_as_answer", "hint"))
        and value.get("status", "success") in ("success", "error")
        and isinstance(value.get("result_as_answer", False), bool)
        and (value.get("hint") is None or isinstance(value["hint"], str))
        and isinstance(content, (list, tuple))
        and all(isinstance(part, dict) and (any(key in part for key in RESULT_PART_KEYS) or is_mcp_block(part)) for part in content)
    )


# Characters of a hint: a sentence or two.
MAX_HINT_CHARS = 300


def extra_members(value):
    """The members of the response for what a tool's result has beside its content."""
    if not is_tool_result(value):
        return ""
    answer = f',"result_as_answer":{JSON_BOOLEANS[value["result_as_answer"]]}' if "result_as_answer" in value else ""
    # A model reads it after a list, in brackets: so it is one line without a closing bracket.
    hint = " ".join((value.get("hint") or "").replace("]", ")").split())[:MAX_HINT_CHARS]
    return answer + (f',"hint":{dump_json(hint)}' if hint else "")


def is_mcp_block(part):
    """MCP's {"type": "image"|"audio", "data", "mimeType"} and {"type": "resource", "resource": {"uri", "text"|"blob"}}."""
    if part.get("type") in ("image", "audio"):
        return isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str)
    resource = part.get("resource") if part.get("type") == "resource" else None
    contents = isinstance(resource, dict) and [resource.get("text"), resource.get("blob")]
    return bool(contents) and isinstance(resource.get("uri"), str) and sum(isinstance(content, str) for content in contents) == 1


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


def media_block(part):
    """An image or document: raw bytes, or base64."""
    word = "image" if "image" in part else "document"
    media = part[word]
    source = media.get("source") if isinstance(media, dict) else None
    data = source.get("bytes") if isinstance(source, dict) else None
    if isinstance(data, str):
        try:
            data = base64.b64decode(data, validate=True)
        except ValueError:
            raise BadOutput(f"the {word}'s bytes are a string that is not base64") from None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return text_block(dump_json(part))  # stored elsewhere: pass the reference on
    data, kind = bytes(data), str(media.get("format") or "").lower()
    if word == "image":
        return bytes_block(data, f"image/{'jpeg' if kind == 'jpg' else kind}" if kind else None)
    name = urllib.parse.quote(str(media.get("name") or "document"), safe="") + (f".{kind}" if kind else "")
    return bytes_block(data, DOCUMENTS.get(kind), name)


def message_of(error):
    try:
        return str(error)
    except Exception:
        return ""


def format_error(error):
    """The text of an exception for a model."""
    message = message_of(error)
    if type(error) is ValueError and message:
        return f"Error: {message}"
    return f"Error: {type(error).__name__}: {message}" if message else f"Error: {type(error).__name__}"


# ---- frameworks: each makes Tools of its own objects -----------------------------------------------------------------------


class Tool:
    """A tool: its definition, and `start(arguments, call)`, which returns a value, an awaitable or a generator."""

    def __init__(self, name, description, input_schema, framework, start, source, **more):
        self.name, self.description, self.input_schema, self.framework, self.start = name, description, input_schema, framework, start
        self.output_schema = more.get("output_schema")
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
        fields = (
            "name",
            "description",
            "input_schema",
            "output_schema",
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


def object_location(source):
    """(file, line) where a function or class is defined; None if unknown."""
    try:
        source = inspect.unwrap(unwrap_partial(source)) if callable(source) else source
        code = getattr(getattr(source, "__func__", source), "__code__", None)
        if code is not None:
            return code.co_filename, code.co_firstlineno
        if not isinstance(source, type):
            source = type(source)
        return inspect.getsourcefile(source), inspect.getsourcelines(source)[1]
    except (TypeError, OSError, ValueError):
        return None, None


def is_async_function(function):
    function = unwrap_partial(function)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def function_tool(function, options, name=None):
    """A plain function, or one marked by toolcrib.tool or the Strands stub."""
    name = options.name or name or getattr(function, "__name__", "")
    described = Function(function, options, name)
    strands = options.framework == "strands"
    return Tool(
        name, described.description, described.input_schema, options.framework, described.start, function,
        output_schema=described.output_schema, is_async=is_async_function(function), result_as_answer=options.result_as_answer,
        takes_context=described.context_name is not None or described.agent_name is not None,
        format_error=format_strands_error if strands else format_error, render=render_strands_result if strands else render,
    )  # fmt: skip


def format_strands_error(error):
    return f"Error: {message_of(error)}" if isinstance(error, ValueError) else f"Error: {type(error).__name__} - {message_of(error)}"


def render_strands_result(value):
    return render("null" if value is None else value)


def drop_invalid_defaults(schema):
    """A framework's schema without defaults that violate it (null for a string): the service fills defaults in before validation.

    Nothing is lost, because the framework also fills them in.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    defs, valid = schema.get("$defs") or {}, {}
    for name, part in properties.items():
        if isinstance(part, dict) and "default" in part and not may_fit(part["default"], part, defs):
            part = {key: value for key, value in part.items() if key != "default"}
        valid[name] = part
    return {**schema, "properties": valid}


def accept_null(schema, model):
    """Strands' schema with the null that its own check of the arguments accepts.

    Strands writes an optional parameter's `T | None` as T alone. `model` is the pydantic model of the parameters.
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
        return part  # the tool's author has written another schema
    return {"anyOf": [kind, {"type": "null"}], **{word: value for word, value in part.items() if word not in kind}}


def strands_context(call):
    """A real strands.ToolContext with the content of ours."""
    real = sys.modules["strands.types.tools"].ToolContext
    kind = strands_context.kinds.get(real)
    if kind is None:
        kind = strands_context.kinds[real] = type("ToolContext", (ToolContext, real), {"__init__": real.__init__, "__module__": "toolcrib"})
    ours = call.tool_context()
    context = kind(tool_use=ours.tool_use, agent=ours.agent, invocation_state=ours.invocation_state)
    context._extend(call)
    return context


strands_context.kinds = {}


def installed_strands_tool(tool):
    """An AgentTool of the real Strands: its registry's own spec; a decorated function is called without the framework's thread."""
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
    """Any other AgentTool: its stream is progress, and the last event is the result."""
    context = call.tool_context()
    async for event in tool.stream(context.tool_use, {**context.invocation_state, "agent": context.agent}):
        if isinstance(event, dict) and "tool_stream_event" in event:
            yield event["tool_stream_event"].get("data")
        elif isinstance(event, dict) and "tool_result" in event:
            yield event["tool_result"]
        else:
            yield event


def spec_tool(module, spec, function):
    """TOOL_SPEC and the function named like the file: f(tool_use, **the caller's context)."""
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
        spec["name"], spec["description"], drop_invalid_defaults(unwrap_schema(spec["inputSchema"])), "tool_spec", start, function,
        output_schema=unwrap_schema(output) if isinstance(output, dict) else None, is_async=is_async_function(function), takes_context=takes_context,
        format_error=lambda error: f"Error: {message_of(error) or type(error).__name__}",
    )  # fmt: skip


def crewai_tool(tool):
    """A crewAI BaseTool: its args_schema, its run(), its text for an agent."""
    function = getattr(tool, "func", None)
    schema = tool.args_schema.model_json_schema() if tool.args_schema is not None else {}
    base = importlib.import_module("crewai.tools.base_tool").BaseTool
    sanitize = None
    try:
        sanitize = importlib.import_module("crewai.utilities.string_utils").sanitize_tool_name
    except (ImportError, AttributeError):
        pass
    # Tool.run calls asyncio.run for a coroutine, which cannot be inside a loop: coroutines go through arun.
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
            return render(value)  # crewAI would show its agent Python's repr
        text = tool.format_output_for_agent(value) if hasattr(tool, "format_output_for_agent") else str(value)
        structured = structured_json(text) if getattr(tool, "result_schema", None) is not None else "null"
        return "[" + text_block(text) + "]", structured, False

    max_calls = getattr(tool, "max_usage_count", None)
    if max_calls is not None:
        tool.max_usage_count = None  # the service counts: for all workers, and over restarts
    source = function if function else (type(tool)._run if type(tool)._run is not base._run else type(tool))
    name = tool.name if TOOL_NAME.match(tool.name) else (sanitize or sanitize_name)(tool.name)
    return Tool(
        name, tool.description, drop_invalid_defaults(unwrap_schema(schema)), "crewai", start_async if use_arun else start, source,
        is_async=use_arun, result_as_answer=getattr(tool, "result_as_answer", False), render=render_crewai,
        max_calls=max_calls, is_cacheable=getattr(tool, "cache_function", None), env=declared_variables(tool),
        format_error=lambda error: f"Error executing tool: {message_of(error) or type(error).__name__}",
    )  # fmt: skip


def declared_variables(tool):
    """crewAI's env_vars. Sets the default of a variable that the manifest does not set."""
    declared = []
    for variable in getattr(tool, "env_vars", None) or []:
        if variable.default is not None:
            os.environ.setdefault(variable.name, variable.default)
        declared.append({word: getattr(variable, word) for word in ("name", "description", "required", "default")})
    return declared


def sanitize_name(name):
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:64]


def langchain_tool(tool):
    """A LangChain BaseTool: its schema for models, its invoke() with a tool call, its message."""
    core = importlib.import_module("langchain_core.tools.base")
    model_schema = tool.tool_call_schema
    schema = (
        dict(model_schema) if isinstance(model_schema, dict) else model_schema.model_json_schema() if hasattr(model_schema, "model_json_schema") else model_schema.schema()
    )
    schema.pop("title", None)
    schema.pop("description", None)  # repeats the tool's own
    function, coroutine = getattr(tool, "func", None), getattr(tool, "coroutine", None)
    body = function or coroutine or type(tool)._run
    # BaseTool._run must be written and _arun may be; a StructuredTool has one or both as attributes.
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
        """A ValidationError is about the arguments if it was raised while they were parsed, before the function ran."""
        if any(frame.name == "_parse_input" for frame in traceback.extract_tb(error.__traceback__)):
            raise InvalidValue(pydantic_violations(error) or first_line_of(error)) from None

    return Tool(
        tool.name, tool.description, drop_invalid_defaults(unwrap_schema(schema)), "langchain", start_async if use_async else start, body,
        is_async=use_async, takes_context=wants_config or bool(injected), result_as_answer=getattr(tool, "return_direct", False),
        render=render_langchain, format_error=lambda error: f"Error: {error!r}\n Please fix your mistakes.",
    )  # fmt: skip


def injected_names(core, tool, body):
    """Parameters that models are not shown and the caller's context fills in by name (not the call's id, which LangChain fills in)."""
    hints = {}
    if isinstance(tool.args_schema, type):
        hints = {
            name: getattr(tool.args_schema, "__annotations__", {}).get(name) for name in getattr(tool.args_schema, "__annotations__", {})
        }
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
    """A ToolMessage as a model gets it: its content, not its artifact."""
    if not (hasattr(value, "tool_call_id") and hasattr(value, "content")):
        return render(value)
    failed = getattr(value, "status", "success") == "error"
    if isinstance(value.content, str):
        return "[" + text_block(value.content) + "]", "null" if failed else structured_json(value.content), failed
    return "[" + ",".join(langchain_block(part) for part in value.content) + "]", "null", failed


def structured_json(text):
    """The text, if it is an object or an array as JSON, which is what LangChain makes of a dict or a list; else null."""
    if text[:1] in ("{", "["):
        try:
            return dump_json(read_json(text))
        except (ValueError, RecursionError, BadOutput):
            pass
    return "null"


def langchain_block(part):
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


# ---- finding tools ---------------------------------------------------------------------------------------------------------


def imported_class(module, name):
    """A framework's class, if the framework has been imported. Otherwise it has made no tools."""
    return vars(sys.modules[module]).get(name, ()) if module in sys.modules else ()


def tool_factory(value):
    """A function that makes a Tool of this object; None if the object is not a tool."""
    if isinstance(value, (types.ModuleType, type)):
        return None
    options = getattr(value, TOOL_ATTRIBUTE, None) if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)) else None
    if isinstance(options, Options):
        return lambda: function_tool(value, options)
    if isinstance(value, imported_class("strands.types.tools", "AgentTool")):
        return lambda: installed_strands_tool(value)
    if isinstance(value, imported_class("crewai.tools.base_tool", "BaseTool")):
        return lambda: crewai_tool(value)
    if isinstance(value, imported_class("langchain_core.tools.base", "BaseTool")):
        return lambda: langchain_tool(value)
    return None


def is_tool_class(value):
    """Whether this is a class whose instances are tools, and not abstract."""
    bases = [imported_class("crewai.tools.base_tool", "BaseTool"), imported_class("langchain_core.tools.base", "BaseTool")]
    return (
        isinstance(value, type)
        and any(base and issubclass(value, base) and value is not base for base in bases)
        and not inspect.isabstract(value)
    )


class ToolFinder:
    """Collects the tools of a module or of an object, and the problems."""

    def __init__(self, only):
        self.only = set(only) if only is not None else None
        self.tools, self.problems, self.seen = [], [], set()

    def add_tool(self, python_name, make, source):
        """Makes a tool. A failure is recorded as a problem with its place."""
        try:
            tool = make()
            tool.python_name = python_name
            check_tool(tool)
        except UnsupportedHint as bad:
            self.add_problem(python_name, str(bad), source)
        except Exception as error:
            self.add_problem(python_name, f"{type(error).__name__}: {first_line_of(error)}", source, error)
        else:
            self.tools.append(tool)

    def add_problem(self, name, reason, source, error=None):
        file, line = object_location(unwrap_function(source))
        self.problems.append((name, f"{format_location(file, line)}: '{name}' cannot be offered: {reason}", file, line, error))

    def add_values(self, names_and_values, module_name=None):
        names_and_values = list(names_and_values)
        # A class with an instance in the module is not a tool of its own.
        self.seen.update(id(type(value)) for _, value in names_and_values if is_tool_class(type(value)))
        for name, value in names_and_values:
            if id(value) in self.seen:
                continue  # the same tool under a second name
            make = tool_factory(value)
            if make:
                self.seen.add(id(value))
                self.add_tool(name, make, value)
            elif is_tool_class(value) and (value.__module__ == module_name or (self.only and name in self.only)):
                self.seen.add(id(value))
                self.add_instance(name, value)

    def add_instance(self, name, kind):
        """Makes a tool of a class without arguments. A class with arguments needs `object` and `init`."""
        try:
            instance = kind()
        except Exception as error:
            reason = "; ".join(f"{pointer[1:]}: {message}" for pointer, message in pydantic_violations(error) or []) or first_line_of(error)
            message = f"{kind.__name__}() needs arguments or fails ({reason}); name it as `object` and give them as `init`"
            self.add_problem(name, message, kind, error)
        else:
            self.add_tool(name, tool_factory(instance), kind)

    def selected_tools(self):
        """The tools that `functions` names, by a tool's name or by its name in Python; and the names without a tool."""
        if self.only is None:
            return self.tools, []
        chosen = [tool for tool in self.tools if tool.name in self.only or tool.python_name in self.only]
        found = {tool.name for tool in chosen} | {tool.python_name for tool in chosen}
        return chosen, sorted(self.only - found)


def unwrap_function(source):
    return getattr(source, "_tool_func", None) or getattr(source, "func", None) or source


def check_tool(tool):
    if not isinstance(tool.name, str) or not TOOL_NAME.match(tool.name):
        raise UnsupportedHint(f"its name is {tool.name!r}; a name is 1 to 64 of a-z, A-Z, 0-9, _ and -")
    if not isinstance(tool.description, str) or not tool.description.strip():
        raise UnsupportedHint("it has no description")
    try:
        dump_json(tool.as_json())
        write_json_strictly(tool.input_schema)
    except (BadOutput, TypeError, ValueError) as error:
        raise UnsupportedHint(f"its schema is not valid JSON: {error}") from None


def find_in_module(module, only, stem):
    """(tools, names not found, problems)."""
    finder = ToolFinder(only)
    finder.add_values(list(vars(module).items()), module.__name__)
    spec = vars(module).get("TOOL_SPEC")
    if spec and not finder.tools:
        name = spec.get("name") if isinstance(spec, dict) else None
        function = getattr(module, stem, None) or (getattr(module, name, None) if isinstance(name, str) else None)
        if function is None:
            other = f" or '{name}' (named like the tool)" if isinstance(name, str) and name not in ("", stem) else ""
            reason = f"there is a TOOL_SPEC, but no function '{stem}' (named like the file){other}"
            finder.problems.append((stem, f"{format_location(module.__file__, None)}: {reason}", module.__file__, None, None))
        else:
            finder.add_tool(stem, lambda: spec_tool(module, spec, function), function)
    elif spec:
        finder.problems.append(
            (
                None,
                f"{format_location(module.__file__, None)}: TOOL_SPEC is ignored, because there are decorated tools",
                module.__file__,
                None,
                None,
            )
        )
    add_undecorated_functions(finder, lambda name: getattr(module, name, None))
    return finder


def find_in_object(instance, only):
    finder = ToolFinder(only)
    if tool_factory(instance):
        finder.add_tool(type(instance).__name__, tool_factory(instance), type(instance))
    names = {}  # the bases' first, each in the order of definition
    for kind in reversed(type(instance).__mro__):
        for name, raw in vars(kind).items():
            inner = getattr(raw, "__func__", raw)
            if tool_factory(inner) or tool_factory(raw):
                names[name] = True
    finder.add_values((name, bind_method(instance, name)) for name in names if getattr(type(instance), name, None) is not None)
    add_undecorated_functions(finder, lambda name: getattr(instance, name, None))
    return finder


def bind_method(instance, name):
    value = getattr(instance, name)
    inner = getattr(value, "__func__", None)
    if isinstance(value, types.MethodType) and not isinstance(inner, types.FunctionType) and tool_factory(inner):
        return inner.__get__(value.__self__, type(value.__self__))  # a classmethod around a decorated object, since 3.13
    return value


def add_undecorated_functions(finder, get_value):
    _, missing = finder.selected_tools()
    failed = {name for name, *_ in finder.problems}
    for name in missing:
        value = get_value(name) if name.isidentifier() and not keyword.iskeyword(name) else None
        if value is not None and name not in failed and callable(value) and not isinstance(value, type):
            finder.add_tool(name, lambda: function_tool(value, Options("function"), name), value)  # noqa: B023


# ---- loading ---------------------------------------------------------------------------------------------------------------


class LoadFailure(Exception):
    def __init__(self, kind, message, file=None, line=None, error=None):
        super().__init__(message)
        self.kind, self.message, self.file, self.line, self.error = kind, message, file, line, error


def format_location(file, line):
    return f"{file}:{line}" if file and line else str(file or "?")


class UncachedLoader(importlib.machinery.SourceFileLoader):
    """Reads the file itself, never a cached compilation, which may be stale if a file is saved twice within a second. A
    replacement worker gets the source that the first one read, even if the file has changed."""

    def __init__(self, name, path, source):
        super().__init__(name, path)
        self.source = source

    def path_stats(self, path):
        raise OSError("not cached")

    def get_data(self, path):
        # Tools may ask for other files of their folder by this too (pkgutil.get_data).
        return self.source.encode() if self.source is not None and path == self.path else super().get_data(path)


def import_file(path, source=None):
    """The module of a file; its folder is importable for as long as the worker lives."""
    if source is None and not os.path.isfile(path):
        raise LoadFailure("not_found", f"there is no file {path}", path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path).split(".")[0]
    if name in sys.modules or name in getattr(sys, "stdlib_module_names", sys.builtin_module_names) or not name.isidentifier():
        name = "_toolcrib_" + re.sub(r"\W", "_", name)  # a file json.py must not replace the module of Python
    spec = importlib.util.spec_from_file_location(name, path, loader=UncachedLoader(name, path, source))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_user_code(action, description, is_own):
    """Runs a part of the user's code at start. An exception becomes a LoadFailure with the place in the user's code."""
    try:
        return action()
    except LoadFailure:
        raise
    except BaseException as error:
        file, line = error_location(error, is_own)
        kind = "syntax" if isinstance(error, SyntaxError) else "import" if isinstance(error, ImportError) else "exception"
        reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else first_line_of(error)}"
        if isinstance(error, SystemExit):
            reason = f"it calls exit ({error.code})"
        raise LoadFailure(kind, f"{description} fails: {reason}" + (f" ({format_location(file, line)})" if file else ""), file, line, error) from None


def error_location(error, is_own):
    """The innermost place in the user's own code, else the innermost in a file."""
    if isinstance(error, SyntaxError) and error.filename and os.path.isfile(error.filename):
        return error.filename, error.lineno
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if is_own(frame[0])]
    return (own or frames or [(None, None)])[-1]


def own_code_test(folder):
    """Returns a test whether a file is the user's: in the folder, and not in a library that is installed there."""
    libraries = [os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values()]

    def is_own(file):
        file = os.path.realpath(file)
        is_in_folder = file.startswith(os.path.realpath(folder) + os.sep)
        return (
            is_in_folder
            and "site-packages" not in file[len(folder) :]
            and not any(file.startswith(path) and not folder.startswith(path) for path in libraries)
        )

    return is_own


def load_tools(request):
    """(tools, warnings) of a module. Raises LoadFailure."""
    target, only = request["module"], request.get("functions")
    if request.get("is_file"):
        sys.argv = [target]
        is_own, stem = own_code_test(os.path.dirname(target)), os.path.basename(target).split(".")[0]
        module = run_user_code(lambda: import_file(target, request.get("source")), f"importing {target}", is_own)
    else:
        sys.argv = [target]
        stem = target.rpartition(".")[2]
        module, is_own = import_by_name(target)
    finder = find_in_object(make_object(module, request, is_own), only) if request.get("object") else None
    if finder is None:
        if request.get("init"):
            raise LoadFailure(
                "invalid", f"`init` is set, but no `object` is named for {target}", getattr(module, "__file__", None)
            )
        finder = find_in_module(module, only, stem)
    tools, missing = finder.selected_tools()
    raise_for_missing(finder, missing, target, module)
    tools, duplicate_warnings = remove_duplicates(tools)
    warnings = duplicate_warnings + [message for name, message, *_ in finder.problems if only is None or name in only]
    if not tools:
        first = next((problem for problem in finder.problems), None)
        hint = f"; {first[1]}" if first else "; decorate functions with @tool, name them in `functions`, or write a TOOL_SPEC"
        raise LoadFailure(
            "not_found",
            f"no tool was found in {target}{hint}",
            first[2] if first else getattr(module, "__file__", None),
            first[3] if first else None,
            first[4] if first else None,
        )
    if all(tool.line and tool.file == tools[0].file for tool in tools):
        tools.sort(key=lambda tool: tool.line)
    warnings += [
        f"the tool `{tool.name}` needs the variable {variable['name']}, which is not set: add it to `env` of the module"
        for tool in tools
        for variable in tool.env
        if variable["required"] and variable["name"] not in os.environ
    ]
    return tools, warnings


def import_by_name(target):
    """(the module, whether a file is part of its package)"""
    root = target.partition(".")[0]

    def is_own(file):
        return f"{os.sep}{root}{os.sep}" in file or os.path.basename(file) == f"{root}.py"

    def import_target():
        try:
            return importlib.import_module(target)
        except ModuleNotFoundError as error:
            if not error.name or not f"{target}.".startswith(f"{error.name}."):
                raise  # the module exists; a module that it imports does not
            message = f"there is no module '{error.name}' for the interpreter {sys.executable}"
            raise LoadFailure("import", f"{message}; add its package to `requirements`, or give the path of a file", error=error) from None

    return run_user_code(import_target, f"importing {target}", is_own), is_own


def make_object(module, request, is_own):
    """The one instance of the class that the manifest names."""
    name, init = request["object"], request.get("init") or {}
    kind = getattr(module, name, None)
    file = getattr(module, "__file__", None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        known = f"; it has {', '.join(classes)}" if classes else ""
        message = f"'{name}' in {file} is not a class" if kind is not None else f"there is no class '{name}' in {file}"
        raise LoadFailure("not_found", message + known, file)
    place = object_location(kind.__init__ if isinstance(kind.__init__, types.FunctionType) else kind)
    try:
        inspect.signature(kind).bind(**init)
    except ValueError:
        pass  # no signature to be read
    except TypeError as error:
        raise LoadFailure(
            "invalid", f"`init` does not fit {name}{inspect.signature(kind)}: {error} ({format_location(*place)})", place[0], place[1], error
        ) from None
    return run_user_code(lambda: kind(**init), f"making {name}({', '.join(init)})", is_own)


def raise_for_missing(finder, missing, target, module):
    if not missing:
        return
    for name, message, file, line, error in finder.problems:
        if name in missing:
            raise LoadFailure("invalid", message, file, line, error)
    there = [tool.name for tool in finder.tools] or [
        name for name, value in vars(module).items() if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    ]
    known = f"; it has {', '.join(there[:20])}" if there else ""
    raise LoadFailure("not_found", f"there is no tool or function '{missing[0]}' in {target}{known}", getattr(module, "__file__", None))


def remove_duplicates(tools):
    """One tool per name: the one defined last, as an assignment in Python."""
    by_name, warnings = {}, []
    for tool in tools:
        if tool.name in by_name:
            first = by_name[tool.name]
            places = f"{format_location(first.file, first.line)}: '{tool.name}' is defined again at {format_location(tool.file, tool.line)}"
            warnings.append(f"{places}; the later definition is used")
        by_name[tool.name] = tool
    return list(by_name.values()), warnings


def user_traceback(error):
    """The traceback from the user's code on, without the worker's and the import system's frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith((WORKER_FILE, "<frozen importlib")):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


# ---- calls -----------------------------------------------------------------------------------------------------------------


JSON_BOOLEANS = {True: "true", False: "false"}


def warning_lines(number, messages):
    return "".join(f'{{"op":"warning","id":{number},"message":{quote(message)}}}\n' for message in messages)


def bad_output_line(number, message):
    return f'{{"op":"failed_call","id":{number},"kind":"bad_output","message":{quote(message)}}}'


def invalid_line(number, violations):
    items = [{"pointer": pointer, "message": message} for pointer, message in violations]
    return f'{{"op":"invalid","id":{number},"violations":{write_json(items)}}}'


class Call:
    """One call in flight."""

    __slots__ = ("id", "tool", "arguments", "context", "watched", "deadline", "has_ended", "cancelled", "_signal", "_context")

    def __init__(self, message, tool):
        self.id, self.tool, self.arguments, self.watched = message["id"], tool, message["arguments"], message.get("watched", False)
        self.context = message.get("context") or {}
        left = self.context.get("deadline_ms")
        self.deadline = None if left is None else time.monotonic() + left / 1000
        self.has_ended = self.cancelled = False
        self._signal = self._context = None

    @property
    def cancel_signal(self):
        if self._signal is None:
            self._signal = threading.Event()
        return self._signal

    def tool_context(self):
        if self._context is None:
            self._context = ToolContext(self)
        return self._context

    def tool_use(self):
        return self.tool_context().tool_use

    def progress(self, data):
        if not self.watched or self.has_ended:
            return
        try:
            line = f'{{"op":"progress","id":{self.id},"data":{dump_json(data)}}}'
        except BadOutput as bad:
            wire.write_log(f"{self.tool.name}: progress was dropped: {bad}")
            return
        if len(line) > wire.max_line:
            wire.write_log(f"{self.tool.name}: progress of {len(line)} characters was dropped: the limit is {wire.max_line}")
        elif not self.has_ended:
            wire.send(line)

    def end(self, line):
        self.has_ended = True
        wire.send(line)

    def result_line(self, value):
        """The response line for the result of the tool."""
        try:
            lost = lost_numbers.numbers = []
            try:
                content, structured, is_error = self.tool.render(value)
            finally:
                lost_numbers.numbers = None
            members = extra_members(value) if type(value) is dict and ("result_as_answer" in value or "hint" in value) else ""
            not_cached = "" if self.is_cacheable(value) else ',"not_cached":true'
            line = f'{{"op":"result","id":{self.id},"content":{content},"structured_content":{structured},"is_error":{JSON_BOOLEANS[is_error]}{members}{not_cached}}}'
            if len(line) > wire.max_line or (len(line) > wire.max_line // 4 and len(to_bytes(line)) > wire.max_line):
                raise BadOutput(f"the result is {len(to_bytes(line))} bytes long; the limit is {wire.max_line}")
            return warning_lines(self.id, lost_number_warnings(lost)) + line
        except BadOutput as bad:
            return bad_output_line(self.id, str(bad))
        except RecursionError:
            return bad_output_line(self.id, "the result refers to itself, or is nested too deeply to be written as JSON")
        except Exception as error:  # a __str__ or model_dump of the tool's own
            wire.write_log(user_traceback(error))
            return bad_output_line(self.id, f"the result cannot be passed on: {type(error).__name__}: {message_of(error)[:MAX_EXCEPTION_CHARS]}")

    def is_cacheable(self, value):
        """Whether the tool's own condition permits the cache to store the result."""
        if self.tool.is_cacheable is None:
            return True
        try:
            return bool(self.tool.is_cacheable(self.arguments, value))
        except Exception as error:
            wire.write_log(f"{self.tool.name}: its cache function failed, so the result is not cached\n{user_traceback(error)}")
            return False

    def error_line(self, error):
        """The message goes to the model, the traceback to the log."""
        try:
            wire.write_log(user_traceback(error))
            text = self.tool.format_error(error)
        except Exception:  # an exception whose text cannot be read
            text = f"Error: {type(error).__name__}"
        return f'{{"op":"result","id":{self.id},"content":[{text_block(text[:MAX_EXCEPTION_CHARS])}],"structured_content":null,"is_error":true}}'


# Characters of an exception's text. The service redacts secrets before it cuts the text.
MAX_EXCEPTION_CHARS = 1 << 20

PLAIN_RESULT_TYPES = {str, int, float, bool, type(None), dict, list, tuple}  # types that are neither generators nor awaitable


def exhaust_generator(generator, call):
    """Every yielded value is progress. The last one is the result, unless the generator returns one."""
    last = NO_VALUE
    try:
        while True:
            try:
                last = next(generator)
            except StopIteration as stop:
                return last if stop.value is None else stop.value
            call.progress(last)
    finally:
        generator.close()


async def await_value(value, call):
    """The result of an awaitable, a generator or an async generator."""
    if isinstance(value, types.GeneratorType):
        return exhaust_generator(value, call)
    if inspect.isasyncgen(value):
        last = NO_VALUE
        try:
            async for last in value:
                call.progress(last)
        finally:
            await value.aclose()
        return last
    if inspect.isawaitable(value):
        value = await value
        return await await_value(value, call) if type(value) not in PLAIN_RESULT_TYPES else value
    return value


def read_call(line, tools):
    """The message of a line; a call as a Call, or None if it was answered at once."""
    try:
        message = scan_json(line.decode(), 0)[0]
    except (ValueError, RecursionError, StopIteration) as error:  # an integer of thousands of digits, a wall of brackets
        found = re.match(rb'\{"op":"call","id":(\d+)', line)
        if found:
            wire.send(invalid_line(int(found[1]), [("", f"cannot be read: {first_line_of(error)}")]))
        else:
            wire.write_log(f"toolcrib worker: a line that cannot be read: {error}")
        return None, None
    if message["op"] != "call":
        return message, None
    tool = tools.get(message["tool"])
    if tool is None:
        wire.send(bad_output_line(message["id"], f"this worker has no tool '{message['tool']}'"))
        return None, None
    return message, Call(message, tool)


# ---- roles -----------------------------------------------------------------------------------------------------------------


def restore_streams(streams):
    """Restores sys.stdout and descriptor 1: a call may have closed or replaced them."""
    try:
        os.get_inheritable(1)  # the cheapest way to learn whether a descriptor is open
        os.get_inheritable(2)
    except OSError:
        wire.redirect_standard_descriptors()
    if sys.stdout is not streams[0] or streams[0].closed or sys.stderr is not streams[1] or streams[1].closed:
        streams[:] = [stream if not stream.closed else open_stream(index + 1) for index, stream in enumerate(streams)]
        sys.stdout, sys.stderr = streams


def open_stream(descriptor):
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def serve_sync(tools):
    """Role sync: one call at a time, in the main thread."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    streams = [sys.stdout, sys.stderr]

    def run_call(call):
        try:
            value = call.tool.start(call.arguments, call)
            if type(value) not in PLAIN_RESULT_TYPES:
                if isinstance(value, types.GeneratorType):
                    value = exhaust_generator(value, call)
                elif inspect.isasyncgen(value) or inspect.isawaitable(value):
                    value = loop.run_until_complete(await_value(value, call))
        except InvalidValue as invalid:
            return invalid_line(call.id, invalid.violations)
        except BaseException as error:
            return call.error_line(error)
        return call.result_line(value)

    for line in iter(open(wire.source, "rb", buffering=1 << 16, closefd=False).readline, b""):
        _, call = read_call(line, tools)
        if call is None:
            continue
        # A new context: the next call must not see the ContextVars of this one.
        call.end(contextvars.copy_context().run(run_call, call))
        restore_streams(streams)
        if loop.is_closed():  # by a tool
            loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)  # asyncio.run leaves none behind


class FunctionRaised(Exception):
    """The exception of a blocking function on its thread."""

    def __init__(self, error):
        self.error = error


def run_on_thread(call):
    """Runs a blocking function on the thread of role shared. Returns (value, error)."""
    try:
        value = call.tool.start(call.arguments, call)
        return exhaust_generator(value, call) if isinstance(value, types.GeneratorType) else value, None
    except BaseException as error:  # also StopIteration and SystemExit, which no future passes on
        return None, error


def serve_async(tools, shared=False):
    """Role async: many calls at once, on one loop in the main thread. Role shared: blocking functions too, on one thread beside it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    tasks, pending = {}, [b""]
    set_own_loop = lambda: asyncio.set_event_loop(asyncio.new_event_loop())  # noqa: E731: some libraries ask for the thread's loop
    thread = concurrent.futures.ThreadPoolExecutor(1, "toolcrib-blocking", set_own_loop) if shared else None

    async def start_call(call):
        if thread is None or call.tool.mode == "async":
            return call.tool.start(call.arguments, call)
        value, error = await loop.run_in_executor(thread, contextvars.copy_context().run, run_on_thread, call)
        if error is not None:
            raise error if isinstance(error, InvalidValue) else FunctionRaised(error)
        return value

    async def serve_call(call):
        try:
            value = await start_call(call)
            value = await await_value(value, call) if type(value) not in PLAIN_RESULT_TYPES else value
        except InvalidValue as invalid:
            call.end(invalid_line(call.id, invalid.violations))
        except FunctionRaised as raised:
            call.end(call.error_line(raised.error))
        except asyncio.CancelledError as error:
            if call.cancelled:
                raise
            call.end(call.error_line(error))
        except BaseException as error:  # also SystemExit, which would end the loop
            call.end(call.error_line(error))
        else:
            call.end(call.result_line(value))

    def on_done(call, task):
        tasks.pop(call.id, None)
        if not call.has_ended:  # cancelled, perhaps before it started
            call.end(f'{{"op":"cancelled","id":{call.id}}}')

    def handle_line(line):
        message, call = read_call(line, tools)
        if call is not None:
            task = loop.create_task(serve_call(call))
            tasks[call.id] = (task, call)
            task.add_done_callback(functools.partial(on_done, call))
        elif message is not None and message["op"] == "cancel" and message["id"] in tasks:
            task, call = tasks[message["id"]]
            call.cancelled = True
            call.cancel_signal.set()
            # A thread cannot be stopped. Its call ends when the function does, or with the process.
            if thread is None or call.tool.mode == "async":
                task.cancel()

    def on_readable():
        data = os.read(wire.source, 1 << 18)
        if not data:
            loop.remove_reader(wire.source)
            loop.stop()
            return
        *lines, rest = data.split(b"\n")
        if not lines:
            pending.append(rest)
            return
        lines[0] = b"".join(pending) + lines[0]
        pending[:] = [rest]
        for line in lines:
            handle_line(line)

    loop.add_reader(wire.source, on_readable)
    ended = False
    while not ended:
        try:
            loop.run_forever()
            ended = True
        except (SystemExit, KeyboardInterrupt) as error:  # in a task that a tool made
            wire.write_log(user_traceback(error))
    unfinished = [task for task, _ in tasks.values()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        loop.run_until_complete(asyncio.wait(unfinished, timeout=1))


# ---- main ------------------------------------------------------------------------------------------------------------------


def main():
    global wire
    wire = Wire()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    wire.exit_with_the_service()
    request = b""
    while not request.endswith(b"\n"):  # unbuffered: the following bytes belong to the reader of the role
        piece = os.read(wire.source, 1)
        if not piece:
            return
        request += piece
    request = read_json(request.decode())
    wire.max_line = request.get("max_result", wire.max_line)
    install_decorators()
    try:
        tools, warnings = run_user_code(lambda: load_tools(request), f"loading {request['module']}", lambda file: True)
    except LoadFailure as failure:
        shown = user_traceback(failure.error) if failure.error is not None else ""
        failure_message = {
            "op": "failed",
            "kind": failure.kind,
            "message": failure.message,
            "file": failure.file,
            "line": failure.line,
            "traceback": shown,
        }
        wire.send(dump_json(failure_message))
        exit_process(1)
    else:
        wire.send(
            dump_json(
                {
                    "op": "ready",
                    "python": ".".join(map(str, sys.version_info[:3])),
                    "tools": [tool.as_json() for tool in tools],
                    "warnings": warnings,
                }
            )
        )
        gc.collect()
        gc.freeze()  # imported modules stay, so the collector can skip them
        by_name = {tool.name: tool for tool in tools}
        if request["role"] == "sync":
            serve_sync(by_name)
        else:
            serve_async(by_name, shared=request["role"] == "shared")
        exit_process(0)


def exit_process(status):
    """Runs the atexit handlers, for at most 2 s: a thread of a tool that does not end must not delay the exit."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2)
    sys.exit(status)


main()
