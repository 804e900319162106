"""The values that reach the function, and the violations of invalid arguments."""

import pytest
from harness import ok, text_of

HEAD = """
import collections, dataclasses, datetime, decimal, enum, pathlib, uuid
from typing import *
class Color(enum.Enum):
    RED = 'red'
@dataclasses.dataclass
class Point:
    x: float
    when: Optional[datetime.date] = None
    def __post_init__(self):
        if self.x < 0:
            raise ValueError("x must not be negative")
class Options(TypedDict, total=False):
    color: Color
class Pair(NamedTuple):
    a: int
    b: datetime.timedelta
"""


@pytest.mark.parametrize(
    "hint, given, seen",
    [
        ("int", 3.0, "3"),
        ("float", 3, "3.0"),
        ("bool", True, "True"),
        ("Color", "red", "<Color.RED: 'red'>"),
        ("Optional[Color]", None, "None"),
        ("datetime.datetime", "2031-12-24T18:30:00.5Z", "datetime.datetime(2031, 12, 24, 18, 30, 0, 500000, tzinfo=datetime.timezone.utc)"),
        ("datetime.date", "2031-12-24", "datetime.date(2031, 12, 24)"),
        ("datetime.time", "18:30:00", "datetime.time(18, 30)"),
        ("datetime.timedelta", 1.5, "datetime.timedelta(seconds=1, microseconds=500000)"),
        ("uuid.UUID", "6f1c9f0e-3d0b-4c59-9b7e-3f8a4d1b2c5d", "UUID('6f1c9f0e-3d0b-4c59-9b7e-3f8a4d1b2c5d')"),
        ("decimal.Decimal", "0.10", "Decimal('0.10')"),
        ("decimal.Decimal", 0.1, "Decimal('0.1')"),
        ("pathlib.PurePosixPath", "a/b", "PurePosixPath('a/b')"),
        ("bytes", "aGk=", "b'hi'"),
        ("Set[int]", [1, 1], "{1}"),
        ("FrozenSet[str]", ["a"], "frozenset({'a'})"),
        ("Tuple[int, float]", [1, 2], "(1, 2.0)"),
        ("Tuple[Color, ...]", ["red"], "(<Color.RED: 'red'>,)"),
        ("Dict[str, Color]", {"a": "red"}, "{'a': <Color.RED: 'red'>}"),
        ("Dict[int, str]", {"1": "a"}, "{1: 'a'}"),
        ("Dict[Color, int]", {"red": 1}, "{<Color.RED: 'red'>: 1}"),
        ("Point", {"x": 1, "when": "2031-12-24"}, "Point(x=1.0, when=datetime.date(2031, 12, 24))"),
        ("List[Point]", [{"x": 1}], "[Point(x=1.0, when=None)]"),
        ("Options", {"color": "red"}, "{'color': <Color.RED: 'red'>}"),
        ("Pair", {"a": 1, "b": 60}, "Pair(a=1, b=datetime.timedelta(seconds=60))"),
        ("Union[datetime.date, Point, str]", "2031-12-24", "datetime.date(2031, 12, 24)"),
        ("Union[datetime.date, Point, str]", "soon", "'soon'"),
        ("Union[datetime.date, Point, str]", {"x": 2}, "Point(x=2.0, when=None)"),
        ("Union[int, float]", 2.5, "2.5"),
        ("List[Union[List[int], Color]]", [[1.0], "red"], "[[1], <Color.RED: 'red'>]"),
        ("Any", {"a": [1]}, "{'a': [1]}"),
    ],
)
def test_value_is_converted_as_hinted(workshop, hint, given, seen):
    worker, _ = workshop.load(HEAD + f"def f(x: {hint}): return repr(x)\n", functions=["f"])
    assert text_of(ok(worker.call("f", {"x": given}))) == seen


@pytest.mark.parametrize(
    "hint, given, pointer, words",
    [
        ("datetime.date", "tomorrow", "/x", "'tomorrow' cannot be read; it must be like '2031-12-24'"),
        ("uuid.UUID", "1", "/x", "cannot be read"),
        ("bytes", "*", "/x", "base64"),
        ("decimal.Decimal", "ten", "/x", "number"),
        ("List[datetime.date]", ["2031-12-24", "never"], "/x/1", "cannot be read"),
        ("Dict[str, datetime.date]", {"a/b": "never"}, "/x/a~1b", "cannot be read"),
        ("List[Point]", [{"x": 1}, {"x": -1}], "/x/1", "x must not be negative"),
        ("Point", {"when": "never"}, "/x/x", "is missing"),
        ("Set[list]", [[1]], "/x", "a set cannot hold"),
        ("Union[Color, Point]", {"x": -2}, "/x", "x must not be negative"),
    ],
)
def test_invalid_value_is_violation_with_pointer(workshop, hint, given, pointer, words):
    worker, _ = workshop.load(HEAD + f"def f(x: {hint}): print('ran')\n", functions=["f"])
    answer = worker.call("f", {"x": given})
    assert answer["op"] == "invalid", answer
    assert pointer in [violation["pointer"] for violation in answer["violations"]], answer
    assert any(words in violation["message"] for violation in answer["violations"]), answer
    worker.close()
    assert "ran" not in worker.log


def test_every_violation_is_reported(workshop):
    worker, _ = workshop.load(HEAD + "def f(a: datetime.date, b: List[uuid.UUID]): ...\n", functions=["f"])
    answer = worker.call("f", {"a": "x", "b": ["y", "z"]})
    assert [violation["pointer"] for violation in answer["violations"]] == ["/a", "/b/0", "/b/1"]


def test_parameters_positional_variadic_and_named(workshop):
    worker, _ = workshop.load(
        "def f(a, b=2, /, c=3, *rest: int, d, e=5, **more: float): return [a, b, c, list(rest), d, e, more]\n", functions=["f"]
    )
    for given, seen in (
        ({"a": 1, "d": 4}, [1, 2, 3, [], 4, 5, {}]),
        ({"a": 1, "c": 9, "d": 4, "other": 1}, [1, 2, 9, [], 4, 5, {"other": 1.0}]),
        ({"a": 1, "rest": [7, 8], "d": 4}, [1, 2, 3, [7, 8], 4, 5, {}]),
        ({"a": 1, "d": 4, "more": 2}, [1, 2, 3, [], 4, 5, {"more": 2.0}]),
    ):
        assert worker.call("f", given)["structured_content"] == seen


def test_own_schema_may_differ_from_the_function(workshop):
    worker, _ = workshop.load("from toolcrib import tool\n@tool(input_schema={'type': 'object'})\ndef f(a, b=2): return [a, b]\n")
    assert worker.call("f", {"a": 1, "zzz": 3})["structured_content"] == [1, 2]
    answer = worker.call("f", {"b": 1})
    assert answer["op"] == "invalid" and answer["violations"] == [{"pointer": "/a", "message": "is missing"}]


def test_choices_keep_the_types_of_json(workshop):
    """In Python True is 1, but a model that gives 1 does not mean true."""
    worker, _ = workshop.load("from typing import Literal\ndef f(x: Literal['a', 1, True]): return repr(x)\n", functions=["f"])
    seen = [text_of(worker.call("f", {"x": given})) for given in ("a", 1, 1.0, True)]
    assert seen == ["'a'", "1", "1", "True"]
    assert [violation["pointer"] for violation in worker.call("f", {"x": False})["violations"]] == ["/x"]


def test_internal_type_error_is_no_violation(workshop):
    worker, _ = workshop.load("def f(a: int): return a + 'x'\n", functions=["f"])
    answer = worker.call("f", {"a": 1})
    assert answer["is_error"] and text_of(answer).startswith("Error: TypeError: unsupported operand")


def test_strands_passes_nested_records_as_dicts(workshop):
    worker, _ = workshop.load(HEAD + "from strands import tool\n@tool\ndef f(p: Point, c: Color): return repr([p, c])\n")
    assert text_of(worker.call("f", {"p": {"x": 1}, "c": "red"})) == "[{'x': 1.0}, <Color.RED: 'red'>]"


PYDANTIC = """
from typing import Annotated, List, Optional
from pydantic import BaseModel, Field
from toolcrib import tool
class Inner(BaseModel):
    n: int = Field(ge=0, description="A number")
class Outer(BaseModel):
    inner: Inner
    many: List[Inner] = []
@tool
def f(o: Outer, limit: Annotated[int, Field(ge=1, description="How many")] = 5, word: str = Field(default="w", max_length=3)) -> Inner:
    return Inner(n=o.inner.n + limit + len(o.many) + len(word))
"""


def test_pydantic_models_and_fields_are_converted(with_pydantic):
    worker, tools = with_pydantic.load(PYDANTIC)
    schema = tools["f"]["input_schema"]
    assert schema["$defs"]["Inner"]["properties"]["n"]["minimum"] == 0
    assert schema["properties"]["o"] == {"$ref": "#/$defs/Outer"}
    assert schema["properties"]["limit"] == {"type": "integer", "minimum": 1, "description": "How many", "default": 5}
    assert schema["properties"]["word"]["maxLength"] == 3 and schema["required"] == ["o"]
    assert tools["f"]["output_schema"]["properties"]["n"]["type"] == "integer"
    assert worker.call("f", {"o": {"inner": {"n": 1}}})["structured_content"] == {"n": 7}
    answer = worker.call("f", {"o": {"inner": {"n": 1}, "many": [{"n": -1}]}, "limit": 0})
    assert [violation["pointer"] for violation in answer["violations"]] == ["/o/many/0/n", "/limit"]


def test_models_are_returned_with_the_aliases_of_their_schema(with_pydantic):
    worker, tools = with_pydantic.load(
        "from typing import List\nfrom pydantic import BaseModel, Field\n"
        "class Person(BaseModel):\n    full_name: str = Field(alias='fullName')\n"
        "def one() -> Person: return Person(fullName='Ann')\n"
        "def many() -> List[Person]: return [Person(fullName='Ann')]\n",
        functions=["one", "many"],
    )
    assert tools["one"]["output_schema"]["required"] == ["fullName"]
    assert worker.call("one", {})["structured_content"] == {"fullName": "Ann"}
    assert worker.call("many", {})["structured_content"] == [{"fullName": "Ann"}]


def test_defaults_of_fields_may_lie_outside_their_constraints(with_pydantic):
    """As in FastAPI: the function gets the default that its author wrote, whether it fits or not."""
    worker, tools = with_pydantic.load(
        "from typing import Annotated\nfrom pydantic import Field\n"
        "def f(n: int = Field(default=None), m: Annotated[int, Field(ge=1)] = 0): return repr([n, m])\n",
        functions=["f"],
    )
    assert "default" not in tools["f"]["input_schema"]["properties"]["n"]
    assert text_of(worker.call("f", {})) == "[None, 0]"


def test_fault_of_a_field_has_the_reason_of_pydantic(with_pydantic):
    failed = with_pydantic.fail(
        "from typing import Annotated\nfrom pydantic import Field\ndef f(p: Annotated[str, Field(pattern='(')]): return p\n",
        functions=["f"],
    )
    assert "regex parse error" in failed["message"] and "unclosed group" in failed["message"]


def test_decimals_and_local_times_reach_the_function(with_pydantic):
    """Some versions of pydantic write a pattern with a lookahead for Decimal."""
    worker, tools = with_pydantic.load(
        "import datetime as dt, decimal\nfrom pydantic import BaseModel\n"
        "class Bill(BaseModel):\n    sum: decimal.Decimal\n    at: dt.datetime\n"
        "def pay(bill: Bill): return f'{bill.sum} {bill.at.isoformat()}'\n",
        functions=["pay"],
    )
    assert tools["pay"]["schema_owner"] == "derived"
    assert text_of(worker.call("pay", {"bill": {"sum": "1.50", "at": "2024-05-05T10:00:00"}})) == "1.50 2024-05-05T10:00:00"
