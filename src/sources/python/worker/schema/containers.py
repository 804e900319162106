"""Lists, sets, tuples and dicts: the schema and the converter of a container, from those of its items."""

import json

from ..violations import InvalidValue
from .converters import convert_items, json_type_name, text_converter
from .hints import UnsupportedHint
from .plain_types import ARRAY_TYPES, OBJECT_TYPES, TEXT_SCHEMA


def from_array(builder, container, arguments):
    """(schema, converter) of a type in ARRAY_TYPES. `arguments`: the hints in its brackets."""
    if container is tuple and arguments and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        members = [builder.from_hint(argument) for argument in arguments if argument != ()]
        count = len(members)
        schema = {"type": "array", "prefixItems": [schema for schema, _ in members], "minItems": count, "maxItems": count}
        if not members:
            del schema["prefixItems"]

        def convert_each(value):
            if type(value) is not list or len(value) != count:
                raise InvalidValue(f"must be an array of {count}")
            return tuple(convert_items(value, [converter for _, converter in members]))

        return schema, convert_each
    item, converter = builder.from_hint(arguments[0]) if arguments else ({}, None)
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


def from_mapping(builder, container, arguments):
    """(schema, converter) of a type in OBJECT_TYPES. `arguments`: the hints of the key and of the value."""
    key, convert_key = builder.from_hint(arguments[0]) if arguments else (TEXT_SCHEMA, None)
    item, converter = builder.from_hint(arguments[1]) if len(arguments) > 1 else ({}, None)
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
