"""Type hints to JSON Schemas and converters: the choice by the kind of a hint, and what has no file of its own."""

import dataclasses
import enum
import json
import os
import pathlib
import re
import types
import typing

from ..violations import InvalidValue
from .containers import from_array, from_mapping
from .converters import text_converter, value_constructor
from .hints import UnsupportedHint, is_field, is_pydantic_model, is_typed_dict, origin_name, resolve_hint, show_hint
from .json_schema import is_same_json, may_fit
from .plain_types import ARRAY_TYPES, CONSTRAINTS, OBJECT_TYPES, PLAIN_TYPES, TEXT_SCHEMA, WRAPPER_NAMES
from .pydantic_types import from_pydantic_model, from_pydantic_type
from .records import from_dataclass, from_named_tuple, from_typed_dict


class SchemaBuilder:
    """Converts type hints to (schema, converter). A converter is None if the JSON value needs no conversion.

    Use one builder for each schema, because named types are collected in `defs`.

    - scope: the names that hints may use if they are strings
    - as_dicts: nested models and dataclasses stay dicts, as in Strands
    - output: the schema is for a result, not for arguments
    """

    def __init__(self, scope, as_dicts=False, output=False):
        self.scope, self.as_dicts, self.output = scope, as_dicts, output
        self.defs, self.names, self.converters = {}, {}, {}

    def from_hint(self, hint):
        """(schema, converter) of a hint. Raises UnsupportedHint."""
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
            return self.from_choices([(value.value if isinstance(value, enum.Enum) else value, value) for value in arguments], hint)
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
            return self.named_type(container, container.__name__, lambda: from_named_tuple(self, container))
        try:
            if container in ARRAY_TYPES:
                return from_array(self, container, arguments)
            if container in OBJECT_TYPES:
                return from_mapping(self, container, arguments)
        except TypeError:
            pass
        if is_typed_dict(container):
            return self.named_type(container, container.__name__, lambda: from_typed_dict(self, container))
        if is_pydantic_model(hint):
            return from_pydantic_model(self, hint)
        if dataclasses.is_dataclass(container) and isinstance(container, type):
            return self.named_type(container, container.__name__, lambda: from_dataclass(self, container))
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self.from_enum(hint)
        if isinstance(hint, type) and issubclass(hint, os.PathLike):
            path = pathlib.Path if hint is os.PathLike else hint
            return {"type": "string", "format": "path"}, text_converter(path, "'notes/today.txt'")
        if hasattr(hint, "__get_pydantic_core_schema__"):
            return from_pydantic_type(self, hint)
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
            clean = re.sub(r"\W", "_", name)
            unique, count = clean, 2
            while unique in self.defs:
                unique, count = f"{clean}{count}", count + 1
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
        """Annotated[hint, *metadata]: the metadata are a description, and limits."""
        if any(is_field(item) for item in metadata):
            return from_pydantic_type(self, full_hint)
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
        """Any of several types. The first type whose converter accepts the value is used."""
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
        """One of several JSON values. `values`: [(value in the arguments, value for the tool)]."""
        written = [value for value, _ in values]
        if not all(value is None or isinstance(value, (str, int, float)) for value in written):
            raise UnsupportedHint(f"{show_hint(hint)}: a choice can only have strings, numbers, booleans and None")
        kinds = {type(value) for value in written}
        schema = {"const": written[0]} if len(written) == 1 else {"enum": written}
        if len(kinds) == 1 and kinds <= {str, int, float, bool}:
            schema = {**PLAIN_TYPES[kinds.pop()][0], **schema}

        def convert(value):
            for choice, result in values:
                if is_same_json(choice, value):
                    return result
            raise InvalidValue("must be one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in written))

        return schema, convert

    def from_enum(self, hint):
        """An Enum: the values of its members, or else their names."""
        members = list(hint)
        if not members:
            raise UnsupportedHint(f"{hint.__name__} has no members")
        if all(member.value is None or isinstance(member.value, (str, int, float)) for member in members):
            return self.from_choices([(member.value, member) for member in members], hint)
        return self.from_choices([(member.name, member) for member in members], hint)  # values that JSON cannot contain
