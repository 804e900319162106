"""Types of pydantic: pydantic makes the schema and checks the values."""

import importlib
import json

from ..error_text import first_line_of
from .converters import validation_converter
from .hints import UnsupportedHint, show_hint
from .json_schema import rewrite_refs


def from_pydantic_model(builder, hint):
    """(schema, converter) of a model, of version 1 or 2."""
    if hasattr(hint, "model_json_schema"):
        schema = hint.model_json_schema(mode="serialization" if builder.output else "validation")
        validate, dump = hint.model_validate, lambda model: model.model_dump()
    else:
        schema, validate, dump = hint.schema(), hint.parse_obj, lambda model: model.dict()
    convert = validation_converter(validate)
    if builder.as_dicts:
        inner = convert
        convert = lambda value: dump(inner(value))  # noqa: E731
    return adopt_schema(builder, hint, getattr(hint, "__name__", "Model"), schema), convert


def from_pydantic_type(builder, hint):
    """(schema, converter) of any other type that pydantic knows, e.g. with Field(...)."""
    try:
        adapter = importlib.import_module("pydantic").TypeAdapter(hint)
        schema = adapter.json_schema(mode="serialization" if builder.output else "validation")
    except Exception as error:
        raise UnsupportedHint(f"{show_hint(hint)}: {first_line_of(error)}") from None
    convert = validation_converter(adapter.validate_python)
    return adopt_schema(builder, None, None, schema), convert


def adopt_schema(builder, key, name, schema):
    """Adds a complete schema to the builder. Its $defs are renamed if the builder has other ones with the same names."""
    schema = json.loads(json.dumps(schema))
    inner = schema.pop("$defs", None) or schema.pop("definitions", None) or {}
    renamed = {}
    for inner_name, definition in inner.items():
        unique, count = inner_name, 2
        while unique in builder.defs and builder.defs[unique] != definition:
            unique, count = f"{inner_name}{count}", count + 1
        renamed[inner_name] = unique
    for inner_name, definition in inner.items():
        builder.defs[renamed[inner_name]] = rewrite_refs(definition, renamed)
    schema = rewrite_refs(schema, renamed)
    if key is None or "$ref" in schema:
        schema.pop("title", None)
        return schema
    return builder.named_type(key, name, lambda: (schema, None))[0]
