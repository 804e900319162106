"""Functions that know nothing of any framework; the manifest names those that are tools."""

import dataclasses
import decimal
import enum
import json
import typing


def weather(city: str, days: int = 3, units: typing.Literal["celsius", "fahrenheit"] = "celsius",
            note: typing.Optional[str] = None) -> dict:
    """Forecasts the weather of a city.

    Looks at the next days only.

    Args:
        city: Where to look, e.g. Oslo.
        days: How many days,
            at most ten.
        units: Unit of the temperature.

    Returns:
        The forecast.
    """
    return {"city": city, "days": days, "units": units, "note": note, "type": type(days).__name__}


def numpy_style(text: str, times: int = 2) -> str:
    """Repeats a text.

    Parameters
    ----------
    text : str
        What is repeated.
    times : int
        How often.
    """
    return text * times


def sphinx_style(text: str, times: int = 2) -> str:
    """Repeats a text.

    :param text: What is repeated.
    :param times: How often.
    :return: The long text.
    """
    return text * times


def no_words(value):
    return value


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(typing.TypedDict):
    x: int
    y: int


@dataclasses.dataclass
class Box:
    """A box."""

    width: int
    height: int = 2
    label: typing.Optional[str] = None


def shapes(colour: Colour, points: typing.List[Point], box: Box, weights: typing.Dict[str, float], flag: bool = False,
           either: typing.Union[int, str] = 1) -> dict:
    """Takes everything that a type hint can say."""
    return {"colour": getattr(colour, "value", colour), "points": points,
            "box": dataclasses.asdict(box) if dataclasses.is_dataclass(box) else box,
            "weights": weights, "flag": flag, "either": either}


def answers(what: str):
    """Answers in one of many types."""
    kinds = {
        "text": "plain words", "int": 42, "float": 2.5, "true": True, "none": None,
        "dict": {"a": 1, "b": [True, None, "ü"]}, "list": [{"n": 1}, {"n": 2}], "tuple": (1, 2), "empty": "",
        "dataclass": Box(1), "enum": Colour.RED, "decimal": decimal.Decimal("1.50"), "set": {1}, "object": object(),
        "nan": {"x": float("nan")}, "infinity": [float("inf")], "surrogate": "a\ud800b", "nul": "a\x00b", "bytes": b"\x00\xff",
        "int keys": {1: "one"}, "success": {"status": "success", "content": [{"text": "one"}, {"json": {"two": 2}}]},
        "error": {"status": "error", "content": [{"text": "no such city"}]},
        "png": {"status": "success", "content": [{"text": "a picture"}, {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}}]},
        "pdf": {"status": "success", "content": [{"document": {"format": "pdf", "name": "report", "source": {"bytes": b"%PDF-1.4"}}}]},
        "long": "x" * 5_000_000, "list of long": ["x" * 1000] * 900,
    }
    return kinds[what]


def raises(kind: str):
    """Fails in one of many ways."""
    raise {"value": ValueError("the city is not known"), "key": KeyError("city"), "own": type("Trouble", (Exception,), {})("deep trouble"),
           "empty": RuntimeError(), "unprintable": Unprintable(), "exit": SystemExit(3), "interrupt": KeyboardInterrupt(),
           "recursion": RecursionError("too deep"), "json": json.JSONDecodeError("bad", "{", 0)}[kind]


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def echo(value: typing.Any) -> dict:
    """Gives back what it got."""
    return {"value": value}


def deep(levels: int):
    """A list in a list in a list."""
    value = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def huge(digits: int) -> dict:
    """A long number."""
    return {"number": 10 ** digits + 1}


def _hidden(x: int) -> int:
    """Is no tool: nobody names it."""
    return x
