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

Sections: wire, context, docstrings, shapes (hints to schemas and converters), functions, decorators, results, frameworks,
finding tools, loading, calls, roles, main.

How values travel. Bytes in arguments are base64 strings. In results: NaN and the infinities, which JSON has not, become null
inside lists and dicts (as JavaScript writes them, and a warning says so) and text (`NaN`) alone; a tuple or set becomes a list; Decimal, UUID, dates
and paths become strings; bytes become a picture or a sound if they begin like one, else a resource; an unknown object is its str().
"""

import sys

if sys.path[:1] == [""]:
    del sys.path[0]  # the working directory: a file there must not stand in for what is imported next

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

HERE = "<toolcrib worker>"  # this file's name in tracebacks
MAX_DEPTH = 100  # levels of lists and objects in one message; the service reads at most 128
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")  # what every model provider takes as a tool's name


# ---- wire ------------------------------------------------------------------------------------------------------------------


class Wire:
    """The protocol's two descriptors, out of reach of what tools do with 0, 1 and 2."""

    def __init__(self):
        self.source = os.dup(0)  # os.dup: not inherited by programs that tools start
        self.sink = os.dup(1)
        self.log = os.dup(2)
        self.give_standard_descriptors()
        self.lock = threading.Lock()  # tools may report progress from threads of their own
        self.max_line = 4 << 20
        # A forked child is no worker: it must neither hold the pipes (the service waits for their end) nor ever answer.
        os.register_at_fork(after_in_child=self.abandon)

    def give_standard_descriptors(self):
        """To tools: nothing to read, and the log twice."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != 0:
            os.dup2(nothing, 0)
            os.close(nothing)
        os.dup2(self.log, 1)
        os.dup2(self.log, 2)

    def abandon(self):
        for descriptor in (self.source, self.sink, self.log):
            try:
                os.close(descriptor)
            except OSError:
                pass
        self.source = self.sink = self.log = -1
        self.lock = threading.Lock()  # the old one may be held for ever, by a thread that was not forked

    def send(self, line):
        """Writes one line, given without its end. In one piece if the pipe takes it."""
        data = to_bytes(line) + b"\n"
        with self.lock:
            if self.sink < 0:
                os._exit(1)  # a fork of the worker that came back from the tool's function: it has nothing to say here
            try:
                written = os.write(self.sink, data)
                while written < len(data):
                    written += os.write(self.sink, data[written:])
            except OSError:
                os._exit(1)  # nobody listens any more

    def note(self, text):
        """Writes to the log, whatever the tool did to sys.stderr."""
        try:
            os.write(self.log, to_bytes(text.rstrip("\n") + "\n"))
        except OSError:
            pass

    def leave_with_the_service(self):
        """Ends the process when nobody reads the log any more, even in the middle of a call: no orphans."""

        def watch():
            poll = select.poll()
            poll.register(self.log, 0)  # only errors: POLLERR on a pipe says that its reader is gone
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
scan_json = json.JSONDecoder().scan_once  # the same for (text, position), without a look at what surrounds the value
quote = json.encoder.encode_basestring  # a str as JSON, quotes included; the fastest way there is
wire = None  # the one Wire, made by main()


# ---- context ---------------------------------------------------------------------------------------------------------------


class Agent:
    """Stands where a framework hands tools their agent. Toolcrib knows of the agent that calls only its name."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        raise AttributeError(f"Toolcrib knows only the name of the agent that calls, not its '{name}'")


class ToolContext:
    """What a tool may know of the call it answers.

    tool_use: {"toolUseId", "name", "input"}; invocation_state: the caller's context, an object; caller: whose key
    made the call; agent.name: the agent that made the call, or else the caller; invocation_id, run_id, attempt: the call's
    own; deadline: seconds left; cancel_signal: set when the call is cancelled.
    """

    def __init__(self, call):
        given = call.context
        self.tool_use = {
            "toolUseId": given.get("tool_use_id") or given.get("invocation_id") or "",
            "name": call.tool.name,
            "input": call.arguments,
        }
        self.invocation_state = given.get("state") or {}
        self._extend(call)

    def _extend(self, call):
        given = call.context
        self.agent = Agent(given.get("agent") or given.get("caller"))
        self.caller = given.get("caller")
        self.invocation_id = given.get("invocation_id")
        self.run_id = given.get("run_id")
        self.attempt = given.get("attempt", 1)
        self.cancel_signal = call.cancel_signal
        self._call = call

    @property
    def deadline(self):
        """Seconds left, or None without a deadline."""
        ends = self._call.ends
        return None if ends is None else max(0.0, ends - time.monotonic())

    def progress(self, data):
        """Tells whoever watches the call how far it is. Any value that JSON can hold; may be called from any thread."""
        self._call.progress(data)


# ---- docstrings ------------------------------------------------------------------------------------------------------------

GOOGLE_ARGUMENTS = re.compile(r"(?i)(args|arguments|parameters|params?|keyword args|keyword arguments|other parameters):\s*$")
GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.*)$")
NUMPY_ARGUMENTS = re.compile(r"(?i)(parameters|other parameters)\s*$")
UNDERLINE = re.compile(r"-{3,}\s*$")
SPHINX_ITEM = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def indent_of(line):
    return len(line) - len(line.lstrip())


def read_docstring(text):
    """(description, {parameter: description}): Google, NumPy and Sphinx styles; the parameters' blocks are cut out."""
    lines, kept, found, at = inspect.cleandoc(text or "").split("\n"), [], {}, 0

    def block(start, is_inside):
        end = start
        while end < len(lines) and (not lines[end].strip() or is_inside(end)):
            end += 1
        while end > start and not lines[end - 1].strip():
            end -= 1
        return end

    def deeper(base):
        return lambda index: indent_of(lines[index]) > base

    def items(start, end, pattern):
        """Lines at the first line's indent name parameters, deeper ones go on with what was said."""
        names, base = [], indent_of(lines[start]) if start < end else 0
        for line in lines[start:end]:
            if indent_of(line) <= base and line.strip():
                names = pattern(line.strip())
            elif names and line.strip():
                for name in names:
                    found[name] = f"{found.get(name, '')} {line.strip()}".strip()

    def google_item(line):
        match = GOOGLE_ITEM.match(line)
        if not match:
            return []
        found[match[1]] = match[2]
        return [match[1]]

    def numpy_item(line):
        names = [name.strip().lstrip("*") for name in line.split(":")[0].split(",")]
        found.update(dict.fromkeys(names, ""))
        return names

    while at < len(lines):
        line, base = lines[at], indent_of(lines[at])
        sphinx = SPHINX_ITEM.match(line.strip())
        if GOOGLE_ARGUMENTS.match(line.strip()):
            end = block(at + 1, deeper(base))
            if end == at + 1:  # "Parameters:" with nothing below it is a sentence
                kept.append(line)
            items(at + 1, end, google_item)
            at = end
        elif NUMPY_ARGUMENTS.match(line.strip()) and at + 1 < len(lines) and UNDERLINE.match(lines[at + 1].strip()):
            # The next heading is the line above the next underline.
            end = block(at + 2, lambda index: not (index + 1 < len(lines) and UNDERLINE.match(lines[index + 1].strip())))
            items(at + 2, end, numpy_item)
            at = end
        elif sphinx:
            end = block(at + 1, deeper(base))
            if sphinx[1] != "type":
                found[sphinx[2]] = " ".join([sphinx[3]] + [more.strip() for more in lines[at + 1 : end]]).strip()
            at = end
        else:
            kept.append(line)
            at += 1
    description = re.sub(r"\n\s*\n\s*\n+", "\n\n", "\n".join(kept)).strip()
    return description, {name: text for name, text in found.items() if text}


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


# ---- shapes: what a type hint means, as JSON Schema and as a converter -----------------------------------------------------


class BadHint(Exception):
    """A hint that no JSON Schema can say."""


class Unfit(Exception):
    """A value that cannot become what a hint says: [(JSON Pointer, message)]."""

    def __init__(self, violations):
        super().__init__(violations)
        self.violations = [("", violations)] if isinstance(violations, str) else violations

    def under(self, key):
        token = str(key).replace("~", "~0").replace("/", "~1")
        return [(f"/{token}{pointer}", message) for pointer, message in self.violations]


def kind_of(value):
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
    raise Unfit(f"must be an integer, not {kind_of(value)}")


def to_float(value):
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Unfit("is too large for a float") from None
    raise Unfit(f"must be a number, not {kind_of(value)}")


def of_text(read, example):
    """A converter for strings that hold something."""

    def convert(value):
        if type(value) is not str:
            raise Unfit(f"must be a string like {example}, not {kind_of(value)}")
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise Unfit(f"{value[:100]!r} cannot be read; it must be like {example}") from None

    return convert


def iso(read):
    """Older Pythons read neither Z nor any number of decimals."""

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
    raise Unfit("must be a number, or a string that holds one")


def to_timedelta(value):
    try:
        return datetime.timedelta(seconds=to_float(value))
    except OverflowError:
        raise Unfit("is too long a time") from None


def to_bytes_from_base64(value):
    return base64.b64decode(value, validate=True)


TEXT = {"type": "string"}
PLAIN = {  # hints that mean the same wherever they stand
    str: (TEXT, None),
    bool: ({"type": "boolean"}, None),
    int: ({"type": "integer"}, to_int),
    float: ({"type": "number"}, to_float),
    type(None): ({"type": "null"}, None),
    None: ({"type": "null"}, None),
    typing.Any: ({}, None),
    object: ({}, None),
    inspect.Parameter.empty: ({}, None),
    typing.Hashable: ({}, None),
    bytes: ({"type": "string", "contentEncoding": "base64"}, of_text(to_bytes_from_base64, "'aGVsbG8=' (base64)")),
    bytearray: (
        {"type": "string", "contentEncoding": "base64"},
        of_text(lambda text: bytearray(to_bytes_from_base64(text)), "'aGVsbG8=' (base64)"),
    ),
    datetime.datetime: ({"type": "string", "format": "date-time"}, of_text(iso(datetime.datetime.fromisoformat), "'2031-12-24T18:30:00Z'")),
    datetime.date: ({"type": "string", "format": "date"}, of_text(datetime.date.fromisoformat, "'2031-12-24'")),
    datetime.time: ({"type": "string", "format": "time"}, of_text(iso(datetime.time.fromisoformat), "'18:30:00'")),
    datetime.timedelta: ({"type": "number", "description": "Seconds"}, to_timedelta),
    uuid.UUID: ({"type": "string", "format": "uuid"}, of_text(uuid.UUID, "'6f1c9f0e-3d0b-4c59-9b7e-3f8a4d1b2c5d'")),
    decimal.Decimal: ({"anyOf": [{"type": "number"}, TEXT]}, to_decimal),
}
ARRAYS = {  # what becomes of a list that came in
    list: None, collections.abc.Sequence: None, collections.abc.MutableSequence: None, collections.abc.Collection: None,
    collections.abc.Iterable: None, collections.abc.Container: None, collections.abc.Reversible: None,
    collections.abc.Iterator: iter, tuple: tuple, set: set, frozenset: frozenset, collections.deque: collections.deque,
    collections.abc.Set: set, collections.abc.MutableSet: set,
}  # fmt: skip
OBJECTS = {
    dict: None,
    collections.abc.Mapping: None,
    collections.abc.MutableMapping: None,
    collections.OrderedDict: collections.OrderedDict,
}
WRAPPERS = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}  # they say nothing of the type they hold


def origin_name(hint):
    """Final, NotRequired and their kin come from typing or typing_extensions: only the name is the same."""
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
        raise BadHint(f"a hint in class {owner.__name__} cannot be resolved: {error}") from None


class Shapes:
    """Says hints as (schema, converter). One for each schema: named types are collected in `defs`.

    A converter is None where the JSON value is already what the hint says. `scope` resolves hints that are strings;
    `as_dicts`: nested models and dataclasses stay dicts, as Strands hands them over.
    """

    def __init__(self, scope, as_dicts=False, output=False):
        self.scope, self.as_dicts, self.output = scope, as_dicts, output
        self.defs, self.names, self.converters = {}, {}, {}

    def of(self, hint):
        if isinstance(hint, typing.ForwardRef):
            hint = hint.__forward_arg__
        if isinstance(hint, str):
            return self.of(resolve(hint, self.scope))
        try:
            if hint in PLAIN:
                schema, convert = PLAIN[hint]
                return dict(schema), convert
        except TypeError:  # not hashable: Literal or Annotated with a list inside
            pass
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated or hasattr(hint, "__metadata__"):
            return self.annotated(arguments[0], arguments[1:], hint)
        if origin is typing.Union or type(hint) is getattr(types, "UnionType", ()):
            return self.union(arguments)
        if origin is typing.Literal or origin_name(hint) == "Literal":
            return self.choice({value.value if isinstance(value, enum.Enum) else value: value for value in arguments}, hint)
        if origin_name(hint) in WRAPPERS:
            return self.of(arguments[0])
        if hasattr(hint, "__supertype__"):  # NewType
            return self.of(hint.__supertype__)
        if type(hint).__name__ == "TypeAliasType":  # type X = ...
            alias = hint.__value__
            return self.named(hint, hint.__name__, lambda: self.of(alias))
        if isinstance(hint, typing.TypeVar):
            return self.union(hint.__constraints__) if hint.__constraints__ else self.of(hint.__bound__ or typing.Any)
        if origin is not None and type(origin).__name__ == "TypeAliasType":
            raise BadHint(f"{hint!r}: aliases with parameters cannot be described")
        container = origin if origin is not None else hint
        if isinstance(container, type) and hasattr(container, "_fields") and issubclass(container, tuple):
            return self.named(container, container.__name__, lambda: self.named_tuple(container))
        try:
            if container in ARRAYS:
                return self.array(container, arguments)
            if container in OBJECTS:
                return self.mapping(container, arguments)
        except TypeError:
            pass
        if is_typed_dict(container):
            return self.named(container, container.__name__, lambda: self.typed_dict(container))
        if is_pydantic_model(hint):
            return self.model(hint)
        if dataclasses.is_dataclass(container) and isinstance(container, type):
            return self.named(container, container.__name__, lambda: self.dataclass(container))
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self.enumeration(hint)
        if isinstance(hint, type) and issubclass(hint, os.PathLike):
            path = pathlib.Path if hint is os.PathLike else hint
            return {"type": "string", "format": "path"}, of_text(path, "'notes/today.txt'")
        if hasattr(hint, "__get_pydantic_core_schema__"):
            return self.adapted(hint)
        for base in (str, bool, int, float):  # a subclass of a plain type is made from it
            if isinstance(hint, type) and issubclass(hint, base) and hint is not base:
                schema, _ = PLAIN[base]
                return dict(schema), constructor(hint)
        if getattr(hint, "__name__", None) == "LiteralString" or getattr(hint, "_name", None) == "LiteralString":
            return dict(TEXT), None
        raise BadHint(f"{show_hint(hint)} cannot be said as JSON Schema")

    def named(self, key, name, build):
        """A type by its name in $defs: types that hold themselves need it, and it is said once."""
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

    def annotated(self, hint, metadata, whole):
        if any(is_field(item) for item in metadata):
            return self.adapted(whole)
        schema, convert = self.of(hint)
        for item in metadata:
            if isinstance(item, str):
                schema["description"] = item
            for attribute, word in CONSTRAINTS.items():  # annotated_types, without importing it
                limit = getattr(item, attribute, None) if not isinstance(item, (str, type)) else None
                if isinstance(limit, (int, float, str)) and not isinstance(limit, bool):
                    length = {"array": "Items", "object": "Properties"}.get(schema.get("type"), "Length")
                    schema[word.replace("Length", length)] = limit
        return schema, convert

    def union(self, hints):
        shapes = [self.of(hint) for hint in hints]
        if len(shapes) == 1:
            return shapes[0]
        schema = {"anyOf": [schema for schema, _ in shapes]}
        if not any(convert for _, convert in shapes):
            return schema, None
        defs = self.defs

        def convert(value):
            failures = []
            for alternative, change in shapes:
                if fits(value, alternative, defs):
                    try:
                        return change(value) if change else value
                    except Unfit as unfit:
                        failures.append(unfit)
            raise failures[0] if len(failures) == 1 else Unfit("fits none of the types it may have")

        return schema, convert

    def choice(self, values, hint):
        """One of some JSON values; {value as it comes: value as the tool gets it}."""
        if not all(value is None or isinstance(value, (str, int, float)) for value in values):
            raise BadHint(f"{show_hint(hint)}: only strings, numbers, booleans and None can be chosen from")
        kinds = {type(value) for value in values}
        schema = {"const": next(iter(values))} if len(values) == 1 else {"enum": list(values)}
        if len(kinds) == 1 and kinds <= {str, int, float, bool}:
            schema = {**PLAIN[kinds.pop()][0], **schema}

        def convert(value):
            try:
                if value in values:
                    return values[value]
            except TypeError:
                pass
            raise Unfit("must be one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values))

        return schema, convert

    def enumeration(self, hint):
        members = list(hint)
        if not members:
            raise BadHint(f"{hint.__name__} has no members")
        if all(member.value is None or isinstance(member.value, (str, int, float)) for member in members):
            return self.choice({member.value: member for member in members}, hint)
        return self.choice({member.name: member for member in members}, hint)  # values that JSON cannot hold

    def array(self, container, arguments):
        if container is tuple and arguments and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            shapes = [self.of(argument) for argument in arguments if argument != ()]
            count = len(shapes)
            schema = {"type": "array", "prefixItems": [schema for schema, _ in shapes], "minItems": count, "maxItems": count}
            if not shapes:
                del schema["prefixItems"]

            def convert_each(value):
                if type(value) is not list or len(value) != count:
                    raise Unfit(f"must be an array of {count}")
                return tuple(convert_items(value, [change for _, change in shapes]))

            return schema, convert_each
        item, change = self.of(arguments[0]) if arguments else ({}, None)
        build = ARRAYS[container]
        schema = {"type": "array", "items": item} if item else {"type": "array"}
        if build in (set, frozenset):
            schema["uniqueItems"] = True
        if not change and not build:
            return schema, None

        def convert(value):
            if type(value) is not list:
                raise Unfit(f"must be an array, not {kind_of(value)}")
            items = convert_items(value, [change] * len(value)) if change else value
            try:
                return build(items) if build else items
            except TypeError:  # a set of lists
                raise Unfit("holds items that a set cannot hold") from None

        return schema, convert

    def mapping(self, container, arguments):
        key, change_key = self.of(arguments[0]) if arguments else (TEXT, None)
        item, change = self.of(arguments[1]) if len(arguments) > 1 else ({}, None)
        schema = {"type": "object", "additionalProperties": item or True}
        if key.get("type") == "string" and len(key) > 1:
            schema["propertyNames"] = key
        elif key.get("type") in ("integer", "number"):  # JSON's keys are strings
            number = change_key
            change_key = of_text(lambda text: number(json.loads(text)), "a number")
        elif key and key.get("type") != "string":
            raise BadHint("a dict's keys can only be strings, numbers or an Enum")
        build = OBJECTS[container]
        if not (change or change_key or build):
            return schema, None

        def convert(value):
            if type(value) is not dict:
                raise Unfit(f"must be an object, not {kind_of(value)}")
            result, violations = {}, []
            for name, item in value.items():
                try:
                    result[change_key(name) if change_key else name] = change(item) if change else item
                except Unfit as unfit:
                    violations += unfit.under(name)
            if violations:
                raise Unfit(violations)
            return build(result) if build else result

        return schema, convert

    def record(self, fields, required, build, owner, open_ended=False):
        """An object with known fields. `build` makes the instance from the converted ones."""
        properties, changes = {}, {}
        for name, (hint, default) in fields.items():
            properties[name], changes[name] = self.of(hint)
            add_default(properties[name], default, self.defs)
        schema = {"type": "object", "properties": properties, "required": [name for name in fields if name in required]}
        if not open_ended:
            schema["additionalProperties"] = False
        doc = inspect.cleandoc(owner.__doc__ or "")
        # dataclass and NamedTuple write a docstring of their own; dict's own is what a TypedDict inherits.
        if doc and not doc.startswith(f"{owner.__name__}(") and owner.__doc__ != dict.__doc__:
            schema["description"] = doc
        if build is None and not any(changes.values()):
            return schema, None

        def convert(value):
            if type(value) is not dict:
                raise Unfit(f"must be an object, not {kind_of(value)}")
            violations = [(f"/{name}", "is missing") for name in required if name not in value]
            result = {}
            for name, item in value.items():
                if name not in changes:
                    violations += Unfit("is not a field here").under(name)
                    continue
                try:
                    result[name] = changes[name](item) if changes[name] else item
                except Unfit as unfit:
                    violations += unfit.under(name)
            if violations:
                raise Unfit(violations)
            return build(result) if build else result

        return schema, convert

    def typed_dict(self, hint):
        fields, required = {}, set(hint.__required_keys__)
        for name, field in field_types(hint, self.scope_of(hint)).items():
            fields[name] = (field, MISSING)
            wrapper = origin_name(field)  # with string hints __required_keys__ does not know of these
            if wrapper == "NotRequired":
                required.discard(name)
            elif wrapper == "Required":
                required.add(name)
        return self.record(fields, required, None, hint, open_ended=self.output)

    def dataclass(self, hint):
        hints = field_types(hint, self.scope_of(hint))
        fields, required = {}, set()
        for field in dataclasses.fields(hint):
            if not field.init and not self.output:
                continue
            fields[field.name] = (hints[field.name], field.default)
            if self.output or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
                required.add(field.name)
        return self.record(fields, required, None if self.as_dicts else guarded(hint), hint, open_ended=self.output)

    def named_tuple(self, hint):
        hints, defaults = field_types(hint, self.scope_of(hint)), hint._field_defaults
        fields = {name: (hints.get(name, typing.Any), defaults.get(name, MISSING)) for name in hint._fields}
        return self.record(fields, {name for name in fields if name not in defaults}, guarded(hint), hint)

    def scope_of(self, hint):
        module = sys.modules.get(hint.__module__)
        return {**self.scope, **(vars(module) if module else {})}

    def model(self, hint):
        """A pydantic model: its own schema, its own checks."""
        if hasattr(hint, "model_json_schema"):
            schema = hint.model_json_schema(mode="serialization" if self.output else "validation")
            validate, dump = hint.model_validate, lambda model: model.model_dump()
        else:
            schema, validate, dump = hint.schema(), hint.parse_obj, lambda model: model.dict()
        convert = validated(validate)
        if self.as_dicts:
            inner = convert
            convert = lambda value: dump(inner(value))  # noqa: E731
        return self.adopt(hint, getattr(hint, "__name__", "Model"), schema), convert

    def adapted(self, hint):
        """Anything else that pydantic understands: Field(...), its own types."""
        try:
            adapter = importlib.import_module("pydantic").TypeAdapter(hint)
            schema = adapter.json_schema(mode="serialization" if self.output else "validation")
        except Exception as error:
            raise BadHint(f"{show_hint(hint)}: {first_line(error)}") from None
        convert = validated(adapter.validate_python, lax_json=True)
        return self.adopt(None, None, schema), convert

    def adopt(self, key, name, schema):
        """Takes a whole schema in: its $defs become ours, renamed where a name is taken."""
        schema = json.loads(json.dumps(schema))
        inner = schema.pop("$defs", None) or schema.pop("definitions", None) or {}
        renamed = {}
        for inner_name, definition in inner.items():
            unique, count = inner_name, 2
            while unique in self.defs and self.defs[unique] != definition:
                unique, count = f"{inner_name}{count}", count + 1
            renamed[inner_name] = unique
        for inner_name, definition in inner.items():
            self.defs[renamed[inner_name]] = relink(definition, renamed)
        schema = relink(schema, renamed)
        if key is None or "$ref" in schema:
            schema.pop("title", None)
            return schema
        return self.named(key, name, lambda: (schema, None))[0]


MISSING = dataclasses.MISSING
CONSTRAINTS = {
    "ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf",
    "min_length": "minLength", "max_length": "maxLength", "pattern": "pattern",
}  # fmt: skip


def show_hint(hint):
    return getattr(hint, "__qualname__", None) or repr(hint)


def first_line(error):
    return (str(error).strip() or type(error).__name__).split("\n")[0]


def resolve(text, scope):
    """The hint that a string stands for."""
    try:
        return eval(text, scope)  # as typing.get_type_hints does; the text is the module's own source
    except Exception as error:
        raise BadHint(f"the hint {text!r} cannot be resolved: {first_line(error)}") from None


def relink(schema, renamed):
    """$refs as they read in the schema that took this one in."""
    if isinstance(schema, dict):
        result = {key: relink(value, renamed) for key, value in schema.items()}
        target = schema.get("$ref")
        if isinstance(target, str):
            name = target.rsplit("/", 1)[-1]
            result["$ref"] = f"#/$defs/{renamed.get(name, name)}"
        return result
    if isinstance(schema, list):
        return [relink(item, renamed) for item in schema]
    return schema


def convert_items(items, changes):
    result, violations = [], []
    for index, (item, change) in enumerate(zip(items, changes)):
        try:
            result.append(change(item) if change else item)
        except Unfit as unfit:
            violations += unfit.under(index)
    if violations:
        raise Unfit(violations)
    return result


def guarded(build):
    """The constructor of a class with fields; what it refuses is a violation."""

    def construct(fields):
        try:
            return build(**fields)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise Unfit(pydantic_violations(error) or first_line(error)) from error

    return construct


def constructor(build):
    def construct(value):
        try:
            return build(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise Unfit(first_line(error)) from error

    return construct


def validated(validate, lax_json=False):
    """pydantic's check as a converter."""

    def convert(value):
        try:
            return validate(value)
        except ValueError as error:  # ValidationError is one
            raise Unfit(pydantic_violations(error) or first_line(error)) from error

    return convert


def pydantic_violations(error):
    """[(pointer, message)] of a pydantic ValidationError, also of one behind the error; else None."""
    for candidate in (error, error.__cause__):
        if type(candidate).__name__ == "ValidationError" and callable(getattr(candidate, "errors", None)):
            found = []
            for item in candidate.errors():
                unfit = Unfit(item["msg"])
                for key in reversed(item["loc"]):
                    unfit = Unfit(unfit.under(key))
                found += unfit.violations
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


def fits(value, schema, defs):
    """Whether the value may be of the schema, going by its outermost type."""
    if "$ref" in schema:
        return fits(value, defs.get(schema["$ref"].rsplit("/", 1)[-1]) or {}, defs)
    if "anyOf" in schema:
        return any(fits(value, alternative, defs) for alternative in schema["anyOf"])
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    wanted = schema.get("type")
    return not isinstance(wanted, str) or JSON_TYPES[wanted](value)


def add_default(schema, default, defs):
    """Says the default in the schema if JSON can, and if it fits: the service fills it in before it checks."""
    if default is MISSING or default is inspect.Parameter.empty:
        return
    try:
        value = json.loads(dump_json(default, strict=True))
    except (TypeError, ValueError, RecursionError):
        return
    if fits(value, schema, defs):
        schema["default"] = value


# ---- functions: a signature as a schema, and a call from arguments ---------------------------------------------------------


class Options:
    """What a decorator said."""

    def __init__(
        self, framework, name=None, description=None, input_schema=None, output_schema=None, context=False, result_as_answer=False
    ):
        self.framework, self.name, self.description = framework, name, description
        self.input_schema, self.output_schema = input_schema, output_schema
        self.context, self.result_as_answer = context, result_as_answer


class Parameter:
    """One parameter of a function: what it is called outside, and how a value for it is made."""

    __slots__ = ("name", "kind", "convert", "default")

    def __init__(self, name, kind, convert, default):
        self.name, self.kind, self.convert, self.default = name, kind, convert, default


def signature_of(function):
    try:
        return inspect.signature(function)
    except NameError:  # 3.14 evaluates hints late: a name that only type checkers import
        library = importlib.import_module("annotationlib")
        return inspect.signature(function, annotation_format=library.Format.FORWARDREF)


def inner_partial(function):
    while isinstance(function, functools.partial):
        function = function.func
    return function


def scope_of(function):
    """The names that a function's string hints may use."""
    function = inspect.unwrap(inner_partial(function))
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
            hint = resolve(hint, scope)
        except BadHint:
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
        self.shim = options.framework == "strands"
        self.scope = scope_of(function)
        self.signature = signature_of(function)
        self.context_name = None
        self.agent_name = None
        self.describe()
        kinds = {parameter.kind for parameter in self.parameters}
        # The quick way: every argument by keyword, the function's own defaults for the rest.
        self.by_keyword = not kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        self.by_keyword = self.by_keyword and not any(parameter.default is not MISSING for parameter in self.parameters)
        self.names = {parameter.name for parameter in self.parameters}
        rest = inspect.Parameter.VAR_KEYWORD  # its values come under names of their own
        self.changes = [
            (parameter.name, parameter.convert) for parameter in self.parameters if parameter.convert and parameter.kind is not rest
        ]

    def describe(self):
        options, doc = self.options, inspect.getdoc(inner_partial(self.function))
        description, said = read_docstring(doc)
        if self.shim:
            description = strands_description(doc)
        self.description = options.description or description or self.name
        shapes = Shapes(self.scope, as_dicts=self.shim)
        properties, required, rest, self.parameters = {}, [], False, []
        for name, parameter in self.signature.parameters.items():
            if self.is_hidden(name, parameter):
                continue
            try:
                schema, convert, needed, fill = self.shape(parameter, shapes)
            except BadHint as bad:
                raise BadHint(f"parameter '{name}': {bad}") from None
            own_words = is_annotated(self.resolved(parameter.annotation)) or is_field(parameter.default)
            if name in said and not (own_words and "description" in schema):
                schema["description"] = said[name]
            elif self.shim:
                schema.setdefault("description", f"Parameter {name}")
            self.parameters.append(Parameter(name, parameter.kind, convert, fill))
            if parameter.kind is parameter.VAR_KEYWORD:
                rest = {key: value for key, value in schema.items() if key != "description"} or True
                continue
            properties[name] = schema
            if needed:
                required.append(name)
        self.input_schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": rest}
        if shapes.defs:
            self.input_schema["$defs"] = shapes.defs
        if options.input_schema is not None:
            self.input_schema = bare_schema(options.input_schema)
        self.output_schema = options.output_schema
        if self.output_schema is None and not self.shim:
            self.output_schema = self.derive_output()

    def is_hidden(self, name, parameter):
        """Parameters that are not the model's to give: the context, and what Strands keeps for itself."""
        wanted = "tool_context" if self.options.context is True else self.options.context
        if name == wanted or (name == "tool_context" and not self.shim):
            self.context_name = name
            return True
        if is_context_hint(parameter.annotation, self.scope):
            if self.shim:  # as Strands has it
                raise BadHint(
                    f"parameter '{name}' is a ToolContext: say @tool(context=True) and name it tool_context, or @tool(context=\"{name}\")"
                )
            self.context_name = name
            return True
        if self.shim and name == "agent" and parameter.default is parameter.empty:
            self.agent_name = name
        return self.shim and name in ("self", "cls", "agent")

    def shape(self, parameter, shapes):
        """(schema, converter, whether it is required, what makes its value if it is left out)."""
        hint, default = parameter.annotation, parameter.default
        if is_field(default):  # x: int = Field(default=3, ge=0)
            schema, convert = shapes.adapted(typing.Annotated[self.resolved(hint), default])
            if default.is_required():
                return schema, convert, True, MISSING
            if not default.default_factory:
                add_default(schema, default.get_default(), shapes.defs)
            return schema, convert, False, functools.partial(default.get_default, call_default_factory=True)
        schema, convert = shapes.of(hint)
        if parameter.kind is parameter.VAR_POSITIONAL:
            schema = {"type": "array", "items": schema} if schema else {"type": "array"}
            return schema, convert and (lambda values: convert_items(values, [convert] * len(values))), False, MISSING
        add_default(schema, default, shapes.defs)
        return schema, convert, default is parameter.empty, MISSING

    def resolved(self, hint):
        try:
            return resolve(hint, self.scope) if isinstance(hint, str) else hint
        except BadHint:
            return hint

    def derive_output(self):
        """The return hint as a schema, only where it promises an object with known fields."""
        hint = self.resolved(self.signature.return_annotation)
        if not (is_typed_dict(hint) or is_pydantic_model(hint) or (dataclasses.is_dataclass(hint) and isinstance(hint, type))):
            return None
        try:
            shapes = Shapes(self.scope, output=True)
            root, _ = shapes.of(hint)
        except BadHint:
            return None
        name = root["$ref"].rsplit("/", 1)[-1]
        schema = dict(shapes.defs[name])
        if json.dumps(shapes.defs).find(f'"#/$defs/{name}"') < 0:
            del shapes.defs[name]
        return {**schema, "$defs": shapes.defs} if shapes.defs else schema

    def start(self, arguments, call):
        """Converts the arguments and calls. Raises Unfit when they cannot be what the hints say."""
        if self.by_keyword and arguments.keys() <= self.names:
            if self.changes:
                arguments = self.converted(arguments)
            if self.context_name is None and self.agent_name is None:
                try:
                    return self.function(**arguments)
                except TypeError:
                    self.check_complete(arguments)
                    raise
            positional = ()
        else:
            positional, arguments = self.arranged(self.converted(arguments))
        self.check_complete(arguments, positional)
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

    def converted(self, arguments):
        arguments, violations = dict(arguments), []
        for name, convert in self.changes:
            if name in arguments:
                try:
                    arguments[name] = convert(arguments[name])
                except Unfit as unfit:
                    violations += unfit.under(name)
        if violations:
            raise Unfit(violations)
        return arguments

    def arranged(self, arguments):
        """(positional, keywords) for functions that take some by place, any number, or any name."""
        positional, keywords, extra = [], {}, None
        many = next((parameter for parameter in self.parameters if parameter.kind is inspect.Parameter.VAR_POSITIONAL), None)
        by_place = bool(many and arguments.get(many.name))
        for parameter in self.parameters:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = parameter
            elif parameter is many:
                positional += arguments.get(many.name) or []
            else:
                value = arguments.get(parameter.name, MISSING)
                if value is MISSING and parameter.default is not MISSING:
                    value = parameter.default()
                placed = parameter.kind is inspect.Parameter.POSITIONAL_ONLY or (
                    by_place and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
                )
                if value is MISSING and placed:
                    value = self.signature.parameters[parameter.name].default
                    if value is inspect.Parameter.empty:
                        raise Unfit([(f"/{parameter.name}", "is missing")])
                if value is MISSING:
                    continue
                if placed:
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
                except Unfit as unfit:
                    raise Unfit(unfit.under(name)) from None
        return tuple(positional), keywords

    def check_complete(self, keywords, positional=()):
        """An own input_schema may ask for less than the function does."""
        missing = []
        for parameter in self.parameters[len(positional) :]:
            needed = self.signature.parameters[parameter.name].default is inspect.Parameter.empty
            if (
                needed
                and parameter.name not in keywords
                and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            ):
                missing.append((f"/{parameter.name}", "is missing"))
        if missing:
            raise Unfit(missing)


def is_annotated(hint):
    """Annotated with words of its own: they win over the docstring's."""
    return any(isinstance(item, str) or getattr(item, "description", None) for item in getattr(hint, "__metadata__", ()))


def bare_schema(schema):
    """An input schema without Strands' {"json": ...} around it, with an object at its root."""
    if isinstance(schema, dict) and set(schema) == {"json"}:
        schema = schema["json"]
    if not isinstance(schema, dict):
        raise BadHint("the input schema is no JSON Schema object")
    return {"type": "object", "properties": {}, **schema}


# ---- decorators: `from toolcrib import tool`, and a stand-in for Strands where it is not installed -------------------------

MARK = "__toolcrib__"  # the attribute that makes a function a tool


def mark(function, options):
    inner = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
    if not callable(inner):
        raise TypeError(f"@tool is for functions, not for {inner!r}")
    setattr(inner, MARK, options)
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
    """Makes a typed function a tool: its docstring and hints say what it does and takes."""
    if isinstance(function, str):
        name, function = function, None
    schema = input_schema if input_schema is not None else inputSchema
    options = Options("toolcrib", name, description, schema, output_schema, context, result_as_answer)
    return (lambda function: mark(function, options)) if function is None else mark(function, options)


def strands_tool(func=None, description=None, inputSchema=None, name=None, context=False):
    """Strands' @tool, as far as it makes sense without Strands."""
    if isinstance(context, str):
        context = context.strip()
        if not context:
            raise ValueError("Context parameter name cannot be empty")
    options = Options("strands", name, description, inputSchema, None, context)
    return (lambda function: mark(function, options)) if func is None else mark(func, options)


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


class StrandsStandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `strands` last, so only where the real one is not installed: files that need no more than @tool still load."""

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
    sys.meta_path.append(StrandsStandIn())


# ---- results ---------------------------------------------------------------------------------------------------------------


class BadOutput(Exception):
    """A result that cannot be handed on; the message says why."""


NOTHING = object()  # what a generator that yields nothing comes to


def plain(value):
    """A value that JSON does not know, as one that it does; else raises TypeError."""
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
    raise TypeError(f"{type(value).__name__} is nothing that JSON can say")


def plain_or_text(value):
    try:
        return plain(value)
    except TypeError:
        return str(value)


def tidy(value, place="", lost=None):
    """A copy that JSON can hold: keys become strings, NaN and the infinities null. Those are added to `lost` as (place, number)."""
    if isinstance(value, float):
        if value - value == 0:
            return value
        if lost is not None:
            lost.append((place, value))
        return None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        pairs = [(name if isinstance(name, str) else key_text(name), item) for name, item in value.items()]
        return {name: tidy(item, f"{place}.{name}" if place else name, lost) for name, item in pairs}
    if isinstance(value, (list, tuple)):
        return [tidy(item, f"{place}[{at}]", lost) for at, item in enumerate(value)]
    return tidy(plain_or_text(value), place, lost)


class Losses(threading.local):
    """What became null in the results that this thread is writing: a list of (place, number), or None where nobody asks."""

    found = None


losses = Losses()
MOST_LOSSES = 5  # that are named one by one
LONGEST_PLACE = 200


def loss_warnings(found):
    """A sentence for each number that JSON has not, and one for those that are too many."""
    named = [f"{place[:LONGEST_PLACE]}: not a JSON number ({float(number)!r}), sent as null" for place, number in found[:MOST_LOSSES]]
    more = len(found) - MOST_LOSSES
    if more > 0:
        named.append(f"{more} more {'value is' if more == 1 else 'values are'} not JSON numbers, sent as null")
    return named


def key_text(key):
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    key = plain_or_text(key)
    return key if isinstance(key, str) else str(key)


ENCODING = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
write_json = json.JSONEncoder(default=plain_or_text, **ENCODING).encode
write_strictly = json.JSONEncoder(default=plain, **ENCODING).encode


def dump_json(value, strict=False):
    """The value as JSON. Raises TypeError or ValueError if `strict` and JSON cannot hold it; BadOutput if nothing helps."""
    if strict:
        return write_strictly(value)
    try:
        try:
            text = write_json(value)
        except (TypeError, ValueError):  # keys that are no strings, NaN, lists that hold themselves
            text = write_json(tidy(value, lost=losses.found))
    except RecursionError:
        raise BadOutput("the result holds itself, or is nested too deeply to be written as JSON") from None
    except Exception as error:
        raise BadOutput(f"the result cannot be written as JSON: {type(error).__name__}: {first_line(error)}") from error
    if text.count("[") + text.count("{") > MAX_DEPTH and depth_of(text) > MAX_DEPTH:
        raise BadOutput(f"the result is nested deeper than {MAX_DEPTH} levels")
    return text


def depth_of(text):
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
    if value is None or value is NOTHING:
        return "[]", "null", False
    if kind is bool or kind is int or kind is float:
        return "[" + text_block(number_text(value)) + "]", "null", False
    if kind is dict and is_tool_result(value):
        return render_tool_result(value)
    if isinstance(value, enum.Enum):
        return render(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "[" + bytes_block(bytes(value)) + "]", "null", False
    if kind.__module__.partition(".")[0] == "PIL" and hasattr(value, "save"):
        return "[" + bytes_block(picture(value)) + "]", "null", False
    if isinstance(value, (dict, list, tuple)):
        text = dump_json(value)
        return "[" + text_block(text) + "]", text, False
    if isinstance(value, (str, int, float)):  # subclasses of them
        base = next(base for base in (str, int, float) if isinstance(value, base))
        return render(base(value) if base is not str else str.__str__(value))
    try:
        value = plain(value)
    except TypeError:
        value = str(value)
    except Exception as error:
        raise BadOutput(f"the result cannot be written as JSON: {type(error).__name__}: {first_line(error)}") from error
    return render(value)


def number_text(value):
    """As JSON writes it; NaN and Infinity as Python's JSON does."""
    if value is True or value is False:
        return TRUTH[value]
    if type(value) is float:
        return repr(value) if value - value == 0 else json.dumps(value)
    try:
        return str(value)
    except ValueError as error:  # 3.11 and later: integers of more than 4300 digits
        raise BadOutput(f"the result cannot be written as JSON: {error}") from None


def picture(image):
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


SIGNATURES = [  # how files begin: WHATWG's MIME Sniffing Standard, 6.1 and 6.2
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


def sniff(data):
    return next((kind for pattern, kind in SIGNATURES if re.match(pattern, data, re.DOTALL)), "application/octet-stream")


def bytes_block(data, kind=None, name="result"):
    kind = kind or sniff(data)
    family, blob = kind.partition("/")[0], base64.b64encode(data).decode()
    if family in ("image", "audio"):
        return dump_json({"type": family, "data": blob, "mimeType": kind})
    resource = {"uri": f"result:///{name}", "mimeType": kind}
    try:
        resource.update({"text": data.decode()} if family == "text" else {"blob": blob})
    except UnicodeDecodeError:
        resource["blob"] = blob
    return dump_json({"type": "resource", "resource": resource})


RESULT_PARTS = ("text", "json", "image", "document")


def is_tool_result(value):
    """{"status": "success"|"error", "content": [{"text"|"json"|"image"|"document": ...}], "result_as_answer": True|False, "hint": "..."}, and
    not just a dict with these words in it. One beside content is enough. A part may be a content block of MCP, too."""
    content = value.get("content")
    return (
        any(word in value for word in ("status", "result_as_answer", "hint"))
        and value.get("status", "success") in ("success", "error")
        and isinstance(value.get("result_as_answer", False), bool)
        and (value.get("hint") is None or isinstance(value["hint"], str))
        and isinstance(content, (list, tuple))
        and all(isinstance(part, dict) and (any(word in part for word in RESULT_PARTS) or is_block(part)) for part in content)
    )


# Characters of a hint: a sentence or two.
LONGEST_HINT = 300


def beside_content(value):
    """What a tool's result says beside its content, as further members of the answer's JSON."""
    if not is_tool_result(value):
        return ""
    answer = f',"result_as_answer":{TRUTH[value["result_as_answer"]]}' if "result_as_answer" in value else ""
    # A model reads it behind a list, in brackets: one line, and no bracket that ends them.
    hint = " ".join((value.get("hint") or "").replace("]", ")").split())[:LONGEST_HINT]
    return answer + (f',"hint":{dump_json(hint)}' if hint else "")


def is_block(part):
    """MCP's {"type": "image"|"audio", "data", "mimeType"} and {"type": "resource", "resource": {"uri", "text"|"blob"}}."""
    if part.get("type") in ("image", "audio"):
        return isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str)
    resource = part.get("resource") if part.get("type") == "resource" else None
    said = isinstance(resource, dict) and [resource.get("text"), resource.get("blob")]
    return bool(said) and isinstance(resource.get("uri"), str) and sum(isinstance(one, str) for one in said) == 1


def render_tool_result(value):
    blocks, data = [], []
    for part in value["content"]:
        if is_block(part):
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
    """A picture or document: its bytes as they are, or already as base64."""
    word = "image" if "image" in part else "document"
    media = part[word]
    source = media.get("source") if isinstance(media, dict) else None
    data = source.get("bytes") if isinstance(source, dict) else None
    if isinstance(data, str):
        try:
            data = base64.b64decode(data, validate=True)
        except ValueError:
            raise BadOutput(f"the {word}'s bytes are a string that is no base64") from None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return text_block(dump_json(part))  # kept elsewhere: say where
    data, kind = bytes(data), str(media.get("format") or "").lower()
    if word == "image":
        return bytes_block(data, f"image/{'jpeg' if kind == 'jpg' else kind}" if kind else None)
    name = urllib.parse.quote(str(media.get("name") or "document"), safe="") + (f".{kind}" if kind else "")
    return bytes_block(data, DOCUMENTS.get(kind), name)


def words_of(error):
    try:
        return str(error)
    except Exception:
        return ""


def plain_wording(error):
    """What a model is told of an exception."""
    message = words_of(error)
    if type(error) is ValueError and message:
        return f"Error: {message}"
    return f"Error: {type(error).__name__}: {message}" if message else f"Error: {type(error).__name__}"


# ---- frameworks: each makes Tools of its own objects -----------------------------------------------------------------------


class Tool:
    """What is offered, and how it is called: `start(arguments, call)` gives a value, an awaitable or a generator."""

    def __init__(self, name, description, input_schema, framework, start, source, **more):
        self.name, self.description, self.input_schema, self.framework, self.start = name, description, input_schema, framework, start
        self.output_schema = more.get("output_schema")
        self.mode = "async" if more.get("is_async") else "sync"
        self.takes_context = bool(more.get("takes_context"))
        self.result_as_answer = bool(more.get("result_as_answer"))
        self.max_calls = more.get("max_calls")
        self.env = more.get("env") or []
        self.is_cacheable = more.get("is_cacheable")
        self.wording = more.get("wording", plain_wording)
        self.render = more.get("render", render)
        self.python_name = None
        self.file, self.line = place_of_object(source)

    def as_json(self):
        shown = (
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
        return {word: getattr(self, word) for word in shown}


def place_of_object(source):
    """(file, line) where a function or class is written, as far as it can be known."""
    try:
        source = inspect.unwrap(inner_partial(source)) if callable(source) else source
        code = getattr(getattr(source, "__func__", source), "__code__", None)
        if code is not None:
            return code.co_filename, code.co_firstlineno
        if not isinstance(source, type):
            source = type(source)
        return inspect.getsourcefile(source), inspect.getsourcelines(source)[1]
    except (TypeError, OSError, ValueError):
        return None, None


def is_async(function):
    function = inner_partial(function)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def function_tool(function, options, name=None):
    """A plain function, or one marked by toolcrib.tool or the Strands stand-in."""
    name = options.name or name or getattr(function, "__name__", "")
    described = Function(function, options, name)
    strands = options.framework == "strands"
    return Tool(
        name, described.description, described.input_schema, options.framework, described.start, function,
        output_schema=described.output_schema, is_async=is_async(function), result_as_answer=options.result_as_answer,
        takes_context=described.context_name is not None or described.agent_name is not None,
        wording=strands_wording if strands else plain_wording, render=render_strands if strands else render,
    )  # fmt: skip


def strands_wording(error):
    return f"Error: {words_of(error)}" if isinstance(error, ValueError) else f"Error: {type(error).__name__} - {words_of(error)}"


def render_strands(value):
    return render("null" if value is None else value)


def fitting_defaults(schema):
    """A framework's schema without defaults that it refuses itself (null for a string): the service fills defaults in before it checks.

    Nothing is lost, for the framework fills them in too.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    defs, kept = schema.get("$defs") or {}, {}
    for name, part in properties.items():
        if isinstance(part, dict) and "default" in part and not fits(part["default"], part, defs):
            part = {word: value for word, value in part.items() if word != "default"}
        kept[name] = part
    return {**schema, "properties": kept}


def accepting_null(schema, model):
    """Strands' schema with the null that its own check of the arguments accepts.

    Strands writes an optional parameter's `T | None` as T alone. `model` is the pydantic model of the parameters.
    """
    own = model.model_json_schema().get("properties") or {}
    properties = {name: nullable(part, own.get(name)) for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def nullable(part, own):
    """`part` with null beside it, where `own` is T or null and `part` says T alone."""
    choices = own.get("anyOf") if isinstance(own, dict) else None
    if not isinstance(part, dict) or not isinstance(choices, list) or len(choices) != 2 or {"type": "null"} not in choices:
        return part
    kind = choices[1 - choices.index({"type": "null"})]
    kind = {word: value for word, value in kind.items() if word not in ("title", "additionalProperties")}  # as Strands does
    says_more = not part.keys() <= kind.keys() | own.keys() | {"description"}
    if says_more or any(part.get(word, MISSING) != value for word, value in kind.items()):
        return part  # the tool's author has written another schema
    return {"anyOf": [kind, {"type": "null"}], **{word: value for word, value in part.items() if word not in kind}}


def strands_context(call):
    """A real strands.ToolContext that knows what ours knows."""
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
    schema = bare_schema(spec["inputSchema"])
    function, metadata = getattr(tool, "_tool_func", None), getattr(tool, "_metadata", None)
    model = getattr(metadata, "input_model", None)
    schema = fitting_defaults(accepting_null(schema, model) if hasattr(model, "model_json_schema") else schema)
    more = {"wording": strands_wording, "render": render_strands}
    if isinstance(spec.get("outputSchema"), dict):
        more["output_schema"] = bare_schema(spec["outputSchema"])
    if not (callable(function) and hasattr(metadata, "validate_input")):
        return Tool(
            tool.tool_name,
            spec.get("description"),
            schema,
            "strands",
            functools.partial(strands_stream, tool),
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
            raise Unfit(pydantic_violations(error) or first_line(error)) from None
        if context_name:
            values[context_name] = strands_context(call)
        if needs_agent:
            values["agent"] = call.tool_context().agent
        return function(**values)

    more.update(is_async=is_async(function), takes_context=bool(context_name) or needs_agent)
    return Tool(tool.tool_name, spec.get("description"), schema, "strands", start, function, **more)


async def strands_stream(tool, arguments, call):
    """Any other AgentTool: what it streams is progress, the last is the result."""
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
        raise BadHint('TOOL_SPEC must be a dict with "name", "description" and "inputSchema"')
    if not callable(function):
        raise BadHint(f"'{spec['name']}' is not callable")
    if "inputSchema" not in spec:
        raise BadHint('TOOL_SPEC has no "inputSchema"')
    if not spec.get("description"):
        raise BadHint('TOOL_SPEC has no "description", and without one no model can choose the tool')
    parameters = list(signature_of(function).parameters.values())
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
        spec["name"], spec["description"], fitting_defaults(bare_schema(spec["inputSchema"])), "tool_spec", start, function,
        output_schema=bare_schema(output) if isinstance(output, dict) else None, is_async=is_async(function), takes_context=takes_context,
        wording=lambda error: f"Error: {words_of(error) or type(error).__name__}",
    )  # fmt: skip


def crewai_tool(tool):
    """A crewAI BaseTool: its args_schema, its run(), the text it makes for an agent."""
    function = getattr(tool, "func", None)
    schema = tool.args_schema.model_json_schema() if tool.args_schema is not None else {}
    base = importlib.import_module("crewai.tools.base_tool").BaseTool
    sanitize = None
    try:
        sanitize = importlib.import_module("crewai.utilities.string_utils").sanitize_tool_name
    except (ImportError, AttributeError):
        pass
    # Tool.run calls asyncio.run for a coroutine, which cannot be inside a loop: coroutines go through arun.
    use_arun = bool(function and is_async(function))

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
            raise Unfit(violations) from None

    def render_crewai(value):
        failed = type(value).__name__ == "ToolFailure" and hasattr(value, "as_agent_message")
        if failed:
            return "[" + text_block(value.as_agent_message()) + "]", "null", True
        if isinstance(value, (bytes, bytearray)):
            return render(value)
        if isinstance(value, (dict, list, tuple)):
            return render(value)  # crewAI would show its agent Python's repr
        text = tool.format_output_for_agent(value) if hasattr(tool, "format_output_for_agent") else str(value)
        structured = structured_text(text) if getattr(tool, "result_schema", None) is not None else "null"
        return "[" + text_block(text) + "]", structured, False

    max_calls = getattr(tool, "max_usage_count", None)
    if max_calls is not None:
        tool.max_usage_count = None  # the service counts: for all workers, and over restarts
    source = function if function else (type(tool)._run if type(tool)._run is not base._run else type(tool))
    name = tool.name if NAME.match(tool.name) else (sanitize or plain_name)(tool.name)
    return Tool(
        name, tool.description, fitting_defaults(bare_schema(schema)), "crewai", start_async if use_arun else start, source,
        is_async=use_arun, result_as_answer=getattr(tool, "result_as_answer", False), render=render_crewai,
        max_calls=max_calls, is_cacheable=getattr(tool, "cache_function", None), env=declared_variables(tool),
        wording=lambda error: f"Error executing tool: {words_of(error) or type(error).__name__}",
    )  # fmt: skip


def declared_variables(tool):
    """crewAI's env_vars. A default is set where the manifest gives the variable no value."""
    declared = []
    for variable in getattr(tool, "env_vars", None) or []:
        if variable.default is not None:
            os.environ.setdefault(variable.name, variable.default)
        declared.append({word: getattr(variable, word) for word in ("name", "description", "required", "default")})
    return declared


def plain_name(name):
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:64]


def langchain_tool(tool):
    """A LangChain BaseTool: the schema it shows to models, its invoke() with a tool call, the message it makes."""
    core = importlib.import_module("langchain_core.tools.base")
    shown = tool.tool_call_schema
    schema = (
        dict(shown) if isinstance(shown, dict) else shown.model_json_schema() if hasattr(shown, "model_json_schema") else shown.schema()
    )
    schema.pop("title", None)
    schema.pop("description", None)  # the tool's own, said again
    function, coroutine = getattr(tool, "func", None), getattr(tool, "coroutine", None)
    body = function or coroutine or type(tool)._run
    # BaseTool._run must be written and _arun may be; a StructuredTool has one or both, and says so.
    own_arun = type(tool)._arun is not core.BaseTool._arun
    use_async = coroutine is not None
    injected = getattr(tool, "_injected_args_keys", None) or injected_names(core, tool, body)
    hidden = set(injected) | (set(tool.args) - set(schema.get("properties") or ()))
    wants_config = bool(core._get_runnable_config_param(body)) if hasattr(core, "_get_runnable_config_param") else False

    def request(arguments, call):
        state = call.context.get("state") or {}
        # What the model says under a name that it is not shown is not for the function.
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
        """A ValidationError is about the arguments if it came up while they were read, before the function ran."""
        if any(frame.name == "_parse_input" for frame in traceback.extract_tb(error.__traceback__)):
            raise Unfit(pydantic_violations(error) or first_line(error)) from None

    return Tool(
        tool.name, tool.description, fitting_defaults(bare_schema(schema)), "langchain", start_async if use_async else start, body,
        is_async=use_async, takes_context=wants_config or bool(injected), result_as_answer=getattr(tool, "return_direct", False),
        render=render_langchain, wording=lambda error: f"Error: {error!r}\n Please fix your mistakes.",
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
        return "[" + text_block(value.content) + "]", "null" if failed else structured_text(value.content), failed
    return "[" + ",".join(langchain_block(part) for part in value.content) + "]", "null", failed


def structured_text(text):
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


def loaded(module, name):
    """A framework's class, if the framework has been imported: what was not imported has made no tools."""
    return vars(sys.modules[module]).get(name, ()) if module in sys.modules else ()


def recognise(value):
    """What makes a Tool of this object, or None if it is none."""
    if isinstance(value, (types.ModuleType, type)):
        return None
    options = getattr(value, MARK, None) if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)) else None
    if isinstance(options, Options):
        return lambda: function_tool(value, options)
    if isinstance(value, loaded("strands.types.tools", "AgentTool")):
        return lambda: installed_strands_tool(value)
    if isinstance(value, loaded("crewai.tools.base_tool", "BaseTool")):
        return lambda: crewai_tool(value)
    if isinstance(value, loaded("langchain_core.tools.base", "BaseTool")):
        return lambda: langchain_tool(value)
    return None


def is_tool_class(value):
    """A class whose instances are tools, and that is written to be used: not abstract."""
    bases = [loaded("crewai.tools.base_tool", "BaseTool"), loaded("langchain_core.tools.base", "BaseTool")]
    return (
        isinstance(value, type)
        and any(base and issubclass(value, base) and value is not base for base in bases)
        and not inspect.isabstract(value)
    )


class Finder:
    """Collects the tools of a module or of an object, and what could not be one."""

    def __init__(self, only):
        self.only = set(only) if only is not None else None
        self.tools, self.problems, self.seen = [], [], set()

    def add(self, python_name, make, source):
        """Makes a tool; what goes wrong is a problem with a place, not the end."""
        try:
            tool = make()
            tool.python_name = python_name
            check_tool(tool)
        except BadHint as bad:
            self.problem(python_name, str(bad), source)
        except Exception as error:
            self.problem(python_name, f"{type(error).__name__}: {first_line(error)}", source, error)
        else:
            self.tools.append(tool)

    def problem(self, name, reason, source, error=None):
        file, line = place_of_object(inner_function(source))
        self.problems.append((name, f"{shown_place(file, line)}: '{name}' cannot be offered: {reason}", file, line, error))

    def values(self, names_and_values, module_name=None):
        names_and_values = list(names_and_values)
        # A class beside its own instance is there to make that one.
        self.seen.update(id(type(value)) for _, value in names_and_values if is_tool_class(type(value)))
        for name, value in names_and_values:
            if id(value) in self.seen:
                continue  # the same tool under a second name
            make = recognise(value)
            if make:
                self.seen.add(id(value))
                self.add(name, make, value)
            elif is_tool_class(value) and (value.__module__ == module_name or (self.only and name in self.only)):
                self.seen.add(id(value))
                self.instance(name, value)

    def instance(self, name, kind):
        """A class that is a tool once made; one that needs arguments is for `object` and `init`."""
        try:
            made = kind()
        except Exception as error:
            why = "; ".join(f"{pointer[1:]}: {message}" for pointer, message in pydantic_violations(error) or []) or first_line(error)
            told = f"{kind.__name__}() needs arguments or fails ({why}); name it as `object` and give them as `init`"
            self.problem(name, told, kind, error)
        else:
            self.add(name, recognise(made), kind)

    def wanted(self):
        """The tools that `functions` names, by a tool's name or by its name in Python; and the names that led to none."""
        if self.only is None:
            return self.tools, []
        chosen = [tool for tool in self.tools if tool.name in self.only or tool.python_name in self.only]
        found = {tool.name for tool in chosen} | {tool.python_name for tool in chosen}
        return chosen, sorted(self.only - found)


def inner_function(source):
    return getattr(source, "_tool_func", None) or getattr(source, "func", None) or source


def check_tool(tool):
    if not isinstance(tool.name, str) or not NAME.match(tool.name):
        raise BadHint(f"its name is {tool.name!r}; a name is 1 to 64 of a-z, A-Z, 0-9, _ and -")
    if not isinstance(tool.description, str) or not tool.description.strip():
        raise BadHint("it has no description")
    try:
        dump_json(tool.as_json())
        write_strictly(tool.input_schema)
    except (BadOutput, TypeError, ValueError) as error:
        raise BadHint(f"its schema is no JSON: {error}") from None


def find_in_module(module, only, stem):
    """(tools, names not found, problems)."""
    finder = Finder(only)
    finder.values(list(vars(module).items()), module.__name__)
    spec = vars(module).get("TOOL_SPEC")
    if spec and not finder.tools:
        name = spec.get("name") if isinstance(spec, dict) else None
        function = getattr(module, stem, None) or (getattr(module, name, None) if isinstance(name, str) else None)
        if function is None:
            other = f" or '{name}' (named like the tool)" if isinstance(name, str) and name not in ("", stem) else ""
            reason = f"there is a TOOL_SPEC, but no function '{stem}' (named like the file){other}"
            finder.problems.append((stem, f"{shown_place(module.__file__, None)}: {reason}", module.__file__, None, None))
        else:
            finder.add(stem, lambda: spec_tool(module, spec, function), function)
    elif spec:
        finder.problems.append(
            (
                None,
                f"{shown_place(module.__file__, None)}: TOOL_SPEC is not looked at, since there are decorated tools",
                module.__file__,
                None,
                None,
            )
        )
    add_plain_functions(finder, lambda name: getattr(module, name, None))
    return finder


def find_in_object(instance, only):
    finder = Finder(only)
    if recognise(instance):
        finder.add(type(instance).__name__, recognise(instance), type(instance))
    names = {}  # the bases' first, each in the order of definition
    for kind in reversed(type(instance).__mro__):
        for name, raw in vars(kind).items():
            inner = getattr(raw, "__func__", raw)
            if recognise(inner) or recognise(raw):
                names[name] = True
    finder.values((name, bound(instance, name)) for name in names if getattr(type(instance), name, None) is not None)
    add_plain_functions(finder, lambda name: getattr(instance, name, None))
    return finder


def bound(instance, name):
    value = getattr(instance, name)
    inner = getattr(value, "__func__", None)
    if isinstance(value, types.MethodType) and not isinstance(inner, types.FunctionType) and recognise(inner):
        return inner.__get__(value.__self__, type(value.__self__))  # a classmethod around a decorated object, since 3.13
    return value


def add_plain_functions(finder, get):
    _, missing = finder.wanted()
    troubled = {name for name, *_ in finder.problems}
    for name in missing:
        value = get(name) if name.isidentifier() and not keyword.iskeyword(name) else None
        if value is not None and name not in troubled and callable(value) and not isinstance(value, type):
            finder.add(name, lambda: function_tool(value, Options("function"), name), value)  # noqa: B023


# ---- loading ---------------------------------------------------------------------------------------------------------------


class LoadFailure(Exception):
    def __init__(self, kind, message, file=None, line=None, error=None):
        super().__init__(message)
        self.kind, self.message, self.file, self.line, self.error = kind, message, file, line, error


def shown_place(file, line):
    return f"{file}:{line}" if file and line else str(file or "?")


class FreshLoader(importlib.machinery.SourceFileLoader):
    """Reads the file itself, never a cached compilation: that may be stale when a file is saved twice within a second. A
    worker that takes another's place is given what that one read, whatever the file says by now."""

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
        name = "_toolcrib_" + re.sub(r"\W", "_", name)  # a file json.py must not stand in for Python's own
    spec = importlib.util.spec_from_file_location(name, path, loader=FreshLoader(name, path, source))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def guard_load(act, what, is_own):
    """Runs a piece of the user's code at start; what it raises becomes a failure with the place in the user's code."""
    try:
        return act()
    except LoadFailure:
        raise
    except BaseException as error:
        file, line = place_of_error(error, is_own)
        kind = "syntax" if isinstance(error, SyntaxError) else "import" if isinstance(error, ImportError) else "exception"
        said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else first_line(error)}"
        if isinstance(error, SystemExit):
            said = f"it calls exit ({error.code})"
        raise LoadFailure(kind, f"{what} fails: {said}" + (f" ({shown_place(file, line)})" if file else ""), file, line, error) from None


def place_of_error(error, is_own):
    """The innermost place in the user's own code, else the innermost in a file."""
    if isinstance(error, SyntaxError) and error.filename and os.path.isfile(error.filename):
        return error.filename, error.lineno
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if is_own(frame[0])]
    return (own or frames or [(None, None)])[-1]


def own_code(folder):
    """Whether a file is the user's: below the folder, and not a library that happens to be installed there."""
    libraries = [os.path.realpath(path) + os.sep for path in sysconfig.get_paths().values()]

    def is_own(file):
        file = os.path.realpath(file)
        below = file.startswith(os.path.realpath(folder) + os.sep)
        return (
            below
            and "site-packages" not in file[len(folder) :]
            and not any(file.startswith(path) and not folder.startswith(path) for path in libraries)
        )

    return is_own


def load(request):
    """(tools, warnings) of a module. Raises LoadFailure."""
    target, only = request["module"], request.get("functions")
    if request.get("is_file"):
        sys.argv = [target]
        is_own, stem = own_code(os.path.dirname(target)), os.path.basename(target).split(".")[0]
        module = guard_load(lambda: import_file(target, request.get("source")), f"importing {target}", is_own)
    else:
        sys.argv = [target]
        stem = target.rpartition(".")[2]
        module, is_own = import_by_name(target)
    finder = find_in_object(make_object(module, request, is_own), only) if request.get("object") else None
    if finder is None:
        if request.get("init"):
            raise LoadFailure(
                "invalid", f"`init` is given to an `object`, and none is named for {target}", getattr(module, "__file__", None)
            )
        finder = find_in_module(module, only, stem)
    tools, missing = finder.wanted()
    refuse_missing(finder, missing, target, module)
    tools, doubles = without_doubles(tools)
    warnings = doubles + [message for name, message, *_ in finder.problems if only is None or name in only]
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

    def act():
        try:
            return importlib.import_module(target)
        except ModuleNotFoundError as error:
            if not error.name or not f"{target}.".startswith(f"{error.name}."):
                raise  # the module is there; something that it imports is not
            told = f"there is no module '{error.name}' for the interpreter {sys.executable}"
            raise LoadFailure("import", f"{told}; is its package in `requirements`, or the path to a file meant?", error=error) from None

    return guard_load(act, f"importing {target}", is_own), is_own


def make_object(module, request, is_own):
    """The one instance of the class that the manifest names."""
    name, init = request["object"], request.get("init") or {}
    kind = getattr(module, name, None)
    file = getattr(module, "__file__", None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        there = f"; it has {', '.join(classes)}" if classes else ""
        wrong = f"'{name}' in {file} is no class" if kind is not None else f"there is no class '{name}' in {file}"
        raise LoadFailure("not_found", wrong + there, file)
    place = place_of_object(kind.__init__ if isinstance(kind.__init__, types.FunctionType) else kind)
    try:
        inspect.signature(kind).bind(**init)
    except ValueError:
        pass  # no signature to be read
    except TypeError as error:
        raise LoadFailure(
            "invalid", f"`init` does not fit {name}{inspect.signature(kind)}: {error} ({shown_place(*place)})", place[0], place[1], error
        ) from None
    return guard_load(lambda: kind(**init), f"making {name}({', '.join(init)})", is_own)


def refuse_missing(finder, missing, target, module):
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


def without_doubles(tools):
    """One tool per name: the one defined last, as an assignment in Python."""
    by_name, warnings = {}, []
    for tool in tools:
        if tool.name in by_name:
            first = by_name[tool.name]
            places = f"{shown_place(first.file, first.line)}: '{tool.name}' is defined again at {shown_place(tool.file, tool.line)}"
            warnings.append(f"{places}, which is taken")
        by_name[tool.name] = tool
    return list(by_name.values()), warnings


def traceback_of(error):
    """The traceback from the user's code on, without the worker's and the import system's frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith((HERE, "<frozen importlib")):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


# ---- calls -----------------------------------------------------------------------------------------------------------------


TRUTH = {True: "true", False: "false"}


def warning_lines(number, messages):
    return "".join(f'{{"op":"warning","id":{number},"message":{quote(message)}}}\n' for message in messages)


def bad_output_line(number, message):
    return f'{{"op":"failed_call","id":{number},"kind":"bad_output","message":{quote(message)}}}'


def invalid_line(number, violations):
    told = [{"pointer": pointer, "message": message} for pointer, message in violations]
    return f'{{"op":"invalid","id":{number},"violations":{write_json(told)}}}'


class Call:
    """One call under way."""

    __slots__ = ("id", "tool", "arguments", "context", "watched", "ends", "over", "cancelled", "_signal", "_context")

    def __init__(self, message, tool):
        self.id, self.tool, self.arguments, self.watched = message["id"], tool, message["arguments"], message.get("watched", False)
        self.context = message.get("context") or {}
        left = self.context.get("deadline_ms")
        self.ends = None if left is None else time.monotonic() + left / 1000
        self.over = self.cancelled = False
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
        if not self.watched or self.over:
            return
        try:
            line = f'{{"op":"progress","id":{self.id},"data":{dump_json(data)}}}'
        except BadOutput as bad:
            wire.note(f"{self.tool.name}: progress was dropped: {bad}")
            return
        if len(line) > wire.max_line:
            wire.note(f"{self.tool.name}: progress of {len(line)} characters was dropped: no more than {wire.max_line} are sent on")
        elif not self.over:
            wire.send(line)

    def end(self, line):
        self.over = True
        wire.send(line)

    def result_line(self, value):
        """The answer for what the tool returned."""
        try:
            found = losses.found = []
            try:
                content, structured, is_error = self.tool.render(value)
            finally:
                losses.found = None
            answer = beside_content(value) if type(value) is dict and ("result_as_answer" in value or "hint" in value) else ""
            cached = "" if self.is_cacheable(value) else ',"not_cached":true'
            line = f'{{"op":"result","id":{self.id},"content":{content},"structured_content":{structured},"is_error":{TRUTH[is_error]}{answer}{cached}}}'
            if len(line) > wire.max_line or (len(line) > wire.max_line // 4 and len(to_bytes(line)) > wire.max_line):
                raise BadOutput(f"the result is {len(to_bytes(line))} bytes long; no more than {wire.max_line} are taken")
            return warning_lines(self.id, loss_warnings(found)) + line
        except BadOutput as bad:
            return bad_output_line(self.id, str(bad))
        except RecursionError:
            return bad_output_line(self.id, "the result holds itself, or is nested too deeply to be written as JSON")
        except Exception as error:  # a __str__ or model_dump of the tool's own
            wire.note(traceback_of(error))
            return bad_output_line(self.id, f"the result cannot be handed on: {type(error).__name__}: {words_of(error)[:HANDED_OVER]}")

    def is_cacheable(self, value):
        """Whether the tool's own condition lets the cache keep what it returned."""
        if self.tool.is_cacheable is None:
            return True
        try:
            return bool(self.tool.is_cacheable(self.arguments, value))
        except Exception as error:
            wire.note(f"{self.tool.name}: its cache function failed, so the result is not cached\n{traceback_of(error)}")
            return False

    def error_line(self, error):
        """The message goes to the model, the traceback to the log."""
        try:
            wire.note(traceback_of(error))
            text = self.tool.wording(error)
        except Exception:  # an exception that cannot even be shown
            text = f"Error: {type(error).__name__}"
        return f'{{"op":"result","id":{self.id},"content":[{text_block(text[:HANDED_OVER])}],"structured_content":null,"is_error":true}}'


# Characters of an exception's text. The service takes secrets out before it cuts the text to what is kept.
HANDED_OVER = 1 << 20

QUICK = {str, int, float, bool, type(None), dict, list, tuple}  # what is certainly no generator and nothing to await


def drain(generator, call):
    """Every yield is progress, the last is the result, unless the generator returns one."""
    last = NOTHING
    try:
        while True:
            try:
                last = next(generator)
            except StopIteration as stop:
                return last if stop.value is None else stop.value
            call.progress(last)
    finally:
        generator.close()


async def finish(value, call):
    """What comes of an awaitable, a generator or an async generator."""
    if isinstance(value, types.GeneratorType):
        return drain(value, call)
    if inspect.isasyncgen(value):
        last = NOTHING
        try:
            async for last in value:
                call.progress(last)
        finally:
            await value.aclose()
        return last
    if inspect.isawaitable(value):
        value = await value
        return await finish(value, call) if type(value) not in QUICK else value
    return value


def read_call(line, tools):
    """The message of a line; a call as a Call, or None if it was answered at once."""
    try:
        message = scan_json(line.decode(), 0)[0]
    except (ValueError, RecursionError, StopIteration) as error:  # an integer of thousands of digits, a wall of brackets
        found = re.match(rb'\{"op":"call","id":(\d+)', line)
        if found:
            wire.send(invalid_line(int(found[1]), [("", f"cannot be read: {first_line(error)}")]))
        else:
            wire.note(f"toolcrib worker: a line that cannot be read: {error}")
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
    """What one call did to sys.stdout or descriptor 1 must not fail the next: it may have been closed or replaced."""
    try:
        os.get_inheritable(1)  # the cheapest way to learn whether a descriptor is open
        os.get_inheritable(2)
    except OSError:
        wire.give_standard_descriptors()
    if sys.stdout is not streams[0] or streams[0].closed or sys.stderr is not streams[1] or streams[1].closed:
        streams[:] = [stream if not stream.closed else open_stream(index + 1) for index, stream in enumerate(streams)]
        sys.stdout, sys.stderr = streams


def open_stream(descriptor):
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def serve_one_by_one(tools):
    """Role sync: one call at a time, in the main thread."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    streams = [sys.stdout, sys.stderr]

    def answer(call):
        try:
            value = call.tool.start(call.arguments, call)
            if type(value) not in QUICK:
                if isinstance(value, types.GeneratorType):
                    value = drain(value, call)
                elif inspect.isasyncgen(value) or inspect.isawaitable(value):
                    value = loop.run_until_complete(finish(value, call))
        except Unfit as unfit:
            return invalid_line(call.id, unfit.violations)
        except BaseException as error:
            return call.error_line(error)
        return call.result_line(value)

    for line in iter(open(wire.source, "rb", buffering=1 << 16, closefd=False).readline, b""):
        _, call = read_call(line, tools)
        if call is None:
            continue
        # A context of its own: what one call keeps in a ContextVar is not the next caller's.
        call.end(contextvars.copy_context().run(answer, call))
        restore_streams(streams)
        if loop.is_closed():  # by a tool that took it for its own
            loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)  # asyncio.run leaves none behind


class Raised(Exception):
    """What a blocking function raised on its thread."""

    def __init__(self, error):
        self.error = error


def on_thread(call):
    """A blocking function, on the thread of role shared: what it returned, and what it raised."""
    try:
        value = call.tool.start(call.arguments, call)
        return drain(value, call) if isinstance(value, types.GeneratorType) else value, None
    except BaseException as error:  # also StopIteration and SystemExit, which no future hands on
        return None, error


def serve_together(tools, shared=False):
    """Role async: many calls at once, on one loop in the main thread. Role shared: blocking functions too, on one thread beside it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    tasks, pending = {}, [b""]
    own_loop = lambda: asyncio.set_event_loop(asyncio.new_event_loop())  # noqa: E731: some libraries ask for the thread's loop
    thread = concurrent.futures.ThreadPoolExecutor(1, "toolcrib-blocking", own_loop) if shared else None

    async def begin(call):
        if thread is None or call.tool.mode == "async":
            return call.tool.start(call.arguments, call)
        value, error = await loop.run_in_executor(thread, contextvars.copy_context().run, on_thread, call)
        if error is not None:
            raise error if isinstance(error, Unfit) else Raised(error)
        return value

    async def serve(call):
        try:
            value = await begin(call)
            value = await finish(value, call) if type(value) not in QUICK else value
        except Unfit as unfit:
            call.end(invalid_line(call.id, unfit.violations))
        except Raised as raised:
            call.end(call.error_line(raised.error))
        except asyncio.CancelledError as error:
            if call.cancelled:
                raise
            call.end(call.error_line(error))
        except BaseException as error:  # also SystemExit, which would end the loop
            call.end(call.error_line(error))
        else:
            call.end(call.result_line(value))

    def done(call, task):
        tasks.pop(call.id, None)
        if not call.over:  # cancelled, perhaps before it began
            call.end(f'{{"op":"cancelled","id":{call.id}}}')

    def take(line):
        message, call = read_call(line, tools)
        if call is not None:
            task = loop.create_task(serve(call))
            tasks[call.id] = (task, call)
            task.add_done_callback(functools.partial(done, call))
        elif message is not None and message["op"] == "cancel" and message["id"] in tasks:
            task, call = tasks[message["id"]]
            call.cancelled = True
            call.cancel_signal.set()
            # A thread cannot be stopped. Its call ends when the function does, or with the process.
            if thread is None or call.tool.mode == "async":
                task.cancel()

    def readable():
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
            take(line)

    loop.add_reader(wire.source, readable)
    ended = False
    while not ended:
        try:
            loop.run_forever()
            ended = True
        except (SystemExit, KeyboardInterrupt) as error:  # in a task of a tool's own making
            wire.note(traceback_of(error))
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
    wire.leave_with_the_service()
    request = b""
    while not request.endswith(b"\n"):  # unbuffered: what follows is for the role's own reader
        piece = os.read(wire.source, 1)
        if not piece:
            return
        request += piece
    request = read_json(request.decode())
    wire.max_line = request.get("max_result", wire.max_line)
    install_decorators()
    try:
        tools, warnings = guard_load(lambda: load(request), f"loading {request['module']}", lambda file: True)
    except LoadFailure as failure:
        shown = traceback_of(failure.error) if failure.error is not None else ""
        told = {
            "op": "failed",
            "kind": failure.kind,
            "message": failure.message,
            "file": failure.file,
            "line": failure.line,
            "traceback": shown,
        }
        wire.send(dump_json(told))
        leave(1)
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
        gc.freeze()  # what was imported stays: the collector need not look at it again
        by_name = {tool.name: tool for tool in tools}
        if request["role"] == "sync":
            serve_one_by_one(by_name)
        else:
            serve_together(by_name, shared=request["role"] == "shared")
        leave(0)


def leave(status):
    """Goes through atexit handlers, but within 2 s: a thread of the tool's that does not end is no reason to stay."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2)
    sys.exit(status)


main()
