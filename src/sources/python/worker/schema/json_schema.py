"""Finished JSON Schemas: their references, defaults and root."""

import dataclasses
import inspect
import json

from ..json_values import write_json_strictly
from .hints import UnsupportedHint

MISSING = dataclasses.MISSING
JSON_TYPES = {  # type in a schema: whether a value has it
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def is_same_json(one, other):
    """Whether two values are the same in JSON, where 1 is 1.0, and true is not 1 as in Python."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def may_fit(value, schema, defs):
    """Whether the value may match the schema. Checks only the outermost type."""
    if "$ref" in schema:
        return may_fit(value, defs.get(schema["$ref"].rsplit("/", 1)[-1]) or {}, defs)
    if "anyOf" in schema:
        return any(may_fit(value, alternative, defs) for alternative in schema["anyOf"])
    if "const" in schema:
        return is_same_json(value, schema["const"])
    if "enum" in schema:
        return any(is_same_json(value, choice) for choice in schema["enum"])
    wanted = schema.get("type")
    return not isinstance(wanted, str) or JSON_TYPES[wanted](value)


def add_default(schema, default, defs):
    """Adds the default to the schema if it can be written as JSON and matches. The service fills it in before validation."""
    if default is MISSING or default is inspect.Parameter.empty:
        return
    try:
        value = json.loads(write_json_strictly(default))
    except (TypeError, ValueError, RecursionError):
        return
    if may_fit(value, schema, defs):
        schema["default"] = value


def drop_invalid_defaults(schema):
    """The schema of a framework, without defaults that violate it, e.g. null for a string.

    The service fills defaults in before validation. Nothing is lost, because the framework also fills them in.
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


def unwrap_schema(schema):
    """A schema of an object. Removes the {"json": ...} that Strands has around a schema."""
    if isinstance(schema, dict) and set(schema) == {"json"}:
        schema = schema["json"]
    if not isinstance(schema, dict):
        raise UnsupportedHint("the input schema is not a JSON Schema object")
    return {"type": "object", "properties": {}, **schema}


def rewrite_refs(schema, renamed):
    """The schema with renamed references. `renamed`: {name in $defs: new name}."""
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
