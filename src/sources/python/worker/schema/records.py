"""Objects with known fields: TypedDict, dataclasses and NamedTuple."""

import dataclasses
import inspect
import sys
import typing

from ..violations import InvalidValue
from .converters import field_constructor, json_type_name
from .hints import field_types, origin_name
from .json_schema import MISSING, add_default


def from_typed_dict(builder, hint):
    fields, required = {}, set(hint.__required_keys__)
    for name, field in field_types(hint, class_scope(builder, hint)).items():
        fields[name] = (field, MISSING)
        wrapper = origin_name(field)  # with string hints __required_keys__ does not include these
        if wrapper == "NotRequired":
            required.discard(name)
        elif wrapper == "Required":
            required.add(name)
    return from_fields(builder, fields, required, None, hint, open_ended=builder.output)


def from_dataclass(builder, hint):
    hints = field_types(hint, class_scope(builder, hint))
    fields, required = {}, set()
    for field in dataclasses.fields(hint):
        if not field.init and not builder.output:
            continue
        fields[field.name] = (hints[field.name], field.default)
        if builder.output or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
            required.add(field.name)
    return from_fields(builder, fields, required, None if builder.as_dicts else field_constructor(hint), hint, open_ended=builder.output)


def from_named_tuple(builder, hint):
    hints, defaults = field_types(hint, class_scope(builder, hint)), hint._field_defaults
    fields = {name: (hints.get(name, typing.Any), defaults.get(name, MISSING)) for name in hint._fields}
    return from_fields(builder, fields, {name for name in fields if name not in defaults}, field_constructor(hint), hint)


def class_scope(builder, hint):
    """The names that the string hints of a class may use."""
    module = sys.modules.get(hint.__module__)
    return {**builder.scope, **(vars(module) if module else {})}


def from_fields(builder, fields, required, build, owner, open_ended=False):
    """(schema, converter) of an object with known fields.

    - fields: {name: (hint, default)}
    - build: makes the instance from the converted fields
    - owner: the class, for its docstring
    """
    properties, converters = {}, {}
    for name, (hint, default) in fields.items():
        properties[name], converters[name] = builder.from_hint(hint)
        add_default(properties[name], default, builder.defs)
    schema = {"type": "object", "properties": properties, "required": [name for name in fields if name in required]}
    if not open_ended:
        schema["additionalProperties"] = False
    doc = inspect.cleandoc(owner.__doc__ or "")
    # Not a description: the docstring that dataclass and NamedTuple generate, and the docstring of dict, which a TypedDict inherits.
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
