"""Converters: functions from a JSON value to a value of a hinted type.

A converter raises InvalidValue if the value does not fit.
"""

import base64
import datetime
import decimal
import re

from ..error_text import first_line_of
from ..violations import InvalidValue, pydantic_violations


def json_type_name(value):
    """The JSON type of a value, for messages."""
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
    """A converter for strings that `read` can read. `example` is such a string, for messages."""

    def convert(value):
        if type(value) is not str:
            raise InvalidValue(f"must be a string like {example}, not {json_type_name(value)}")
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise InvalidValue(f"{value[:100]!r} cannot be read; it must be like {example}") from None

    return convert


def iso_reader(read):
    """Adapts ISO 8601 text for older Pythons, which do not read Z or an arbitrary number of decimals."""

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


def convert_items(items, converters):
    """The items, each converted by the converter at its place."""
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
    """A converter that calls a class with the value. An error of the constructor is a violation."""

    def construct(value):
        try:
            return build(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise InvalidValue(first_line_of(error)) from error

    return construct


def validation_converter(validate):
    """A converter that calls a validating function of pydantic."""

    def convert(value):
        try:
            return validate(value)
        except ValueError as error:  # the base of ValidationError
            raise InvalidValue(pydantic_violations(error) or first_line_of(error)) from error

    return convert
