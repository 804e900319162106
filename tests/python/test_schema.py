"""The schemas of docstrings and hints. Every schema is also checked against JSON Schema's own."""

import jsonschema
import pytest
from harness import text_of

HEAD = """
import collections, dataclasses, datetime, decimal, enum, pathlib, uuid
from typing import *
from toolcrib import tool, ToolContext
"""


def schema_of(workshop, signature, before="", **more):
    """The input schema of `def f(signature)`."""
    _, tools = workshop.load(HEAD + before + f"\ndef f({signature}): ...\n", functions=["f"], **more)
    schema = tools["f"]["input_schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def property_of(workshop, hint, before=""):
    schema = schema_of(workshop, f"x: {hint}", before)
    assert schema["required"] == ["x"] and schema["additionalProperties"] is False
    return schema["properties"]["x"]


@pytest.mark.parametrize(
    "hint, expected",
    [
        ("str", {"type": "string"}),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("None", {"type": "null"}),
        ("Any", {}),
        ("'int'", {"type": "integer"}),
        ("Optional[str]", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ("Union[int, str, None]", {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Literal['only']", {"type": "string", "const": "only"}),
        ("Literal[1, 'a', None]", {"enum": [1, "a", None]}),
        ("Literal['a', 1, True]", {"enum": ["a", 1, True]}),
        ("List[int]", {"type": "array", "items": {"type": "integer"}}),
        ("list[dict[str, float]]", {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}}),
        ("list", {"type": "array"}),
        ("dict", {"type": "object", "additionalProperties": True}),
        ("Mapping[str, List[str]]", {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}),
        ("Sequence[str]", {"type": "array", "items": {"type": "string"}}),
        ("Set[int]", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        ("Tuple[int, str]", {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
        ("Tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        ("datetime.datetime", {"type": "string", "format": "date-time"}),
        ("datetime.date", {"type": "string", "format": "date"}),
        ("datetime.time", {"type": "string", "format": "time"}),
        ("uuid.UUID", {"type": "string", "format": "uuid"}),
        ("decimal.Decimal", {"anyOf": [{"type": "number"}, {"type": "string"}]}),
        ("pathlib.Path", {"type": "string", "format": "path"}),
        ("bytes", {"type": "string", "contentEncoding": "base64"}),
        ("Annotated[int, 'How many']", {"type": "integer", "description": "How many"}),
        ("NewType('UserId', int)", {"type": "integer"}),
    ],
)
def test_hint_becomes_its_schema(workshop, hint, expected):
    assert property_of(workshop, hint) == expected


def test_newer_syntax_is_read_if_supported(workshop):
    if workshop.version >= (3, 10):
        assert property_of(workshop, "int | None") == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
        assert property_of(workshop, "list[str | int]")["items"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    if workshop.version >= (3, 12):
        schema = schema_of(workshop, "x: Tree", "type Tree = int | list[Tree]")
        assert schema["$defs"]["Tree"]["anyOf"][1] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}


def test_enum_is_its_values(workshop):
    classes = "class Color(enum.Enum):\n    RED = 'red'\n    BLUE = 'blue'\nclass Level(enum.IntEnum):\n    LOW = 1\n    HIGH = 2\n"
    schema = schema_of(workshop, "a: Color, b: Level, c: Color = Color.RED, d: Optional[Color] = None", classes)
    assert schema["properties"] == {
        "a": {"type": "string", "enum": ["red", "blue"]},
        "b": {"type": "integer", "enum": [1, 2]},
        "c": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "d": {"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "null"}], "default": None},
    }
    assert schema["required"] == ["a", "b"]


RECORDS = """
@dataclasses.dataclass
class Point:
    '''A place.'''
    x: float
    y: float = 0.0
    tags: List[str] = dataclasses.field(default_factory=list)
class Options(TypedDict, total=False):
    deep: Required[bool] if 'Required' in globals() else bool
    name: str
class Pair(NamedTuple):
    left: int
    right: Optional['Pair'] = None
"""


def test_defined_names_are_clean(workshop):
    before = "from dataclasses import make_dataclass\nA, B = make_dataclass('A', [('x', int)]), make_dataclass('B', [('y', int)])\nA.__name__ = B.__name__ = 'my point'\n"
    assert set(schema_of(workshop, "a: A, b: B", before)["$defs"]) == {"my_point", "my_point2"}


def test_records_are_defined_once_and_may_recurse(workshop):
    schema = schema_of(workshop, "a: Point, b: List[Point], c: Options, d: Pair", RECORDS)
    assert schema["properties"]["a"] == {"$ref": "#/$defs/Point"}
    assert schema["properties"]["b"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert schema["$defs"]["Point"] == {
        "type": "object",
        "description": "A place.",
        "properties": {
            "x": {"type": "number"},
            "y": {"type": "number", "default": 0.0},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert "name" not in schema["$defs"]["Options"]["required"]
    assert schema["$defs"]["Pair"]["properties"]["right"] == {"anyOf": [{"$ref": "#/$defs/Pair"}, {"type": "null"}], "default": None}


def test_string_hints_of_a_future_import(workshop):
    worker, tools = workshop.load(
        """
        from __future__ import annotations
        from typing import Optional, TYPE_CHECKING
        import dataclasses
        from toolcrib import tool
        if TYPE_CHECKING:
            from toolcrib import ToolContext

        @dataclasses.dataclass
        class Node:
            value: int
            next: Optional[Node] = None

        @tool
        def last(node: Node, tool_context: ToolContext) -> int:
            while node.next:
                node = node.next
            return node.value
        """
    )
    schema = tools["last"]["input_schema"]
    assert schema["properties"] == {"node": {"$ref": "#/$defs/Node"}} and tools["last"]["takes_context"]
    assert text_of(worker.call("last", {"node": {"value": 1, "next": {"value": 2}}})) == "2"


def test_classes_local_to_a_factory_function(workshop):
    worker, _ = workshop.load(
        """
        import dataclasses
        from typing import List
        from toolcrib import tool
        def make():
            @dataclasses.dataclass
            class Inner:
                n: int
            @tool
            def total(items: "List[Inner]") -> int:
                return sum(item.n for item in items if isinstance(item, Inner))
            return total
        total = make()
        """
    )
    assert text_of(worker.call("total", {"items": [{"n": 1}, {"n": 2}]})) == "3"


def test_defaults_are_in_the_schema(workshop):
    schema = schema_of(
        workshop,
        "a, b: str = 'x', c: int = None, d: List[int] = [1], e: float = float('nan'), f: Any = object(), g: datetime.date = datetime.date(2031, 1, 2), *, h: bool = True",
    )
    assert schema["required"] == ["a"]
    assert schema["properties"]["a"] == {}
    assert {name: part.get("default", "none") for name, part in schema["properties"].items()} == {
        "a": "none", "b": "x", "c": "none", "d": [1], "e": "none", "f": "none", "g": "2031-01-02", "h": True,
    }  # fmt: skip


def test_variadic_parameters_become_arrays_and_objects(workshop):
    schema = schema_of(workshop, "a: int, /, *rest: str, **more: float")
    assert schema["properties"] == {"a": {"type": "integer"}, "rest": {"type": "array", "items": {"type": "string"}}}
    assert schema["required"] == ["a"] and schema["additionalProperties"] == {"type": "number"}
    assert schema_of(workshop, "**more")["additionalProperties"] is True


def test_unsupported_hints_are_reported(workshop):
    for hint, words in (
        ("complex", "complex"),
        ("Callable[[int], int]", "Callable"),
        ("'Nowhere'", "Nowhere"),
        ("Dict[Tuple[int, int], str]", "keys"),
    ):
        failed = workshop.fail(HEAD + f"def f(x: {hint}): ...\n", functions=["f"])
        assert failed["kind"] == "invalid" and "parameter 'x'" in failed["message"] and words in failed["message"], failed
        assert failed["line"] == 5


GOOGLE = """Finds things.

    More of it.

    Args:
        query: What to
            find.
        limit (int, optional): How many: at most.
        **more: Others.

    Returns:
        A list.

    Notes on use."""
NUMPY = """Finds things.

    More of it.

    Parameters
    ----------
    query : str
        What to
        find.
    limit : int, optional
        How many: at most.

    Returns
    -------
    list
        A list."""
SPHINX = """Finds things.

    More of it.

    :param query: What to
        find.
    :type query: str
    :param int limit: How many: at most.
    :returns: A list."""


@pytest.mark.parametrize(
    "doc, rest",
    [(GOOGLE, "Returns:\n    A list.\n\nNotes on use."), (NUMPY, "Returns\n-------\nlist\n    A list."), (SPHINX, ":returns: A list.")],
    ids=["google", "numpy", "sphinx"],
)
def test_docstrings_in_three_styles(workshop, doc, rest):
    _, tools = workshop.load(f"def f(query: str, limit: int = 3):\n    '''{doc}\n    '''\n", functions=["f"])
    assert tools["f"]["description"] == f"Finds things.\n\nMore of it.\n\n{rest}"
    properties = tools["f"]["input_schema"]["properties"]
    assert properties["query"]["description"] == "What to find."
    assert properties["limit"]["description"] == "How many: at most."


def test_annotated_text_takes_precedence_over_docstrings(workshop):
    _, tools = workshop.load(
        HEAD
        + "def f(x: Annotated[int, 'Here'], y: int):\n    '''F.\n\n    Args:\n        x: there\n        y: said\n    '''\ndef bare(): ...\n",
        functions=["f", "bare"],
    )
    assert [part["description"] for part in tools["f"]["input_schema"]["properties"].values()] == ["Here", "said"]
    assert tools["bare"]["description"] == "bare"


def test_bundled_strands_decorator_follows_strands(workshop):
    _, tools = workshop.load(
        '''
        from strands import tool
        @tool
        def f(query: str, limit: int = 3, agent=None):
            """Finds.

            Args:
                query: What.

            This is dropped.

            Returns:
                Kept.
            """
        @tool(name="other", description="Said.", inputSchema={"json": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}})
        def g(a, b=None): return a
        '''
    )
    assert tools["f"]["description"] == "Finds.\n\nReturns:\n    Kept."
    assert tools["f"]["input_schema"]["properties"] == {
        "query": {"type": "string", "description": "What."},
        "limit": {"type": "integer", "default": 3, "description": "Parameter limit"},
    }
    assert tools["other"]["input_schema"] == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def test_bundled_strands_decorator_needs_declared_context(workshop):
    assert (
        "context=True"
        in workshop.fail("from strands import tool, ToolContext\n@tool\ndef f(c: ToolContext): ...\n", functions=["f"])["message"]
    )


def test_return_hint_with_fields_is_output_schema(workshop):
    _, tools = workshop.load(
        HEAD + RECORDS + "def a() -> Point: ...\ndef b() -> dict: ...\ndef c() -> List[Point]: ...\n"
        "@tool(output_schema={'type': 'object'})\ndef d() -> int: ...\ndef e() -> Options: ...\n", functions=["a", "b", "c", "d", "e"],
    )  # fmt: skip
    assert tools["a"]["output_schema"]["required"] == ["x", "y", "tags"]
    assert "additionalProperties" not in tools["e"]["output_schema"]
    assert [tools[name]["output_schema"] for name in "bcd"] == [None, None, {"type": "object"}]
