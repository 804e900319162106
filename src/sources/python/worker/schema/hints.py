"""Type hints: the kind of a hint, known without importing the library that defines it."""

import typing

from ..error_text import first_line_of


class UnsupportedHint(Exception):
    """A type hint that JSON Schema cannot describe."""


def show_hint(hint):
    """A hint as text, for messages."""
    return getattr(hint, "__qualname__", None) or repr(hint)


def resolve_hint(text, scope):
    """The hint that a string contains."""
    try:
        return eval(text, scope)  # as typing.get_type_hints does; the text is the source of the module
    except Exception as error:
        raise UnsupportedHint(f"the hint {text!r} cannot be resolved: {first_line_of(error)}") from None


def origin_name(hint):
    """The name of the generic type of a hint.

    Final, NotRequired and similar types come from typing or typing_extensions. Only their names are equal.
    """
    origin = typing.get_origin(hint)
    return getattr(origin, "_name", None) or getattr(origin, "__name__", None)


def is_typed_dict(hint):
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__required_keys__") and hasattr(hint, "__total__")


def is_pydantic_model(hint):
    return isinstance(hint, type) and (hasattr(hint, "model_json_schema") or (hasattr(hint, "__fields__") and hasattr(hint, "parse_obj")))


def is_field(value):
    """Whether this is Field(...) of pydantic."""
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def is_annotated(hint):
    """Whether the hint has its own description, which takes precedence over the docstring."""
    return any(isinstance(item, str) or getattr(item, "description", None) for item in getattr(hint, "__metadata__", ()))


def field_types(owner, scope):
    """{field: hint} of a class. Hints that are strings are resolved."""
    try:
        return typing.get_type_hints(owner, localns={**scope, owner.__name__: owner}, include_extras=True)
    except Exception as error:
        raise UnsupportedHint(f"a hint in class {owner.__name__} cannot be resolved: {error}") from None
