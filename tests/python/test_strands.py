"""Real Strands and its ready-made tools, unmodified."""

import http.server
import json
import threading

import pytest
from harness import ok, error_text, text_of

TOOLS = '''
import datetime, enum
from typing import Any, Dict, List, Optional
from pydantic import BaseModel
from strands import tool, ToolContext
import strands.types.tools

class Point(BaseModel):
    x: float

@tool
def forecast(city: str, days: int = 3, note: Optional[str] = None, unit: str = None) -> dict:
    """Forecast for a city.

    Args:
        city: The city
        days: How many
    """
    return {"city": city, "days": days, "note": note, "unit": unit}

@tool
def nested(point: Point, anything: Any) -> str:
    """Nested."""
    return f"{type(point).__name__} {point}"

@tool(context=True)
def who(tool_context: ToolContext) -> str:
    """Who."""
    assert isinstance(tool_context, strands.types.tools.ToolContext)
    tool_context.progress("half")
    use = tool_context.tool_use
    return f"{tool_context.agent.name} {use['toolUseId']} {use['name']} {use['input']} {tool_context.invocation_state} {tool_context.caller} {tool_context.deadline > 1} {tool_context.cancel_signal.is_set()}"

@tool
def steps(n: int):
    """Steps."""
    for i in range(n):
        yield i

@tool
async def asteps(n: int):
    """Async steps."""
    for i in range(n):
        yield {"step": i}

@tool
async def later(word: str) -> str:
    """Later."""
    return word

@tool
def nothing() -> None:
    """Nothing."""

@tool
def breaks(kind: str) -> str:
    """Breaks."""
    raise ValueError("bad day") if kind == "value" else KeyError("k")

@tool
def says_no() -> dict:
    """No."""
    return {"status": "error", "content": [{"text": "no such city"}]}

class Store:
    def __init__(self, start: int):
        self.total = start
    @tool
    def add(self, n: int) -> int:
        """Adds."""
        self.total += n
        return self.total
    @classmethod
    @tool
    def whose(cls) -> str:
        """Whose."""
        return cls.__name__
    @staticmethod
    @tool
    def fixed(n: int) -> int:
        """Fixed."""
        return n
'''


@pytest.fixture
def strands(with_package):
    return with_package("strands")


def test_strands_spec_is_shown_to_models(strands):
    worker, tools = strands.load(TOOLS)
    assert list(tools) == ["forecast", "nested", "who", "steps", "asteps", "later", "nothing", "breaks", "says_no"]
    assert {tool["framework"] for tool in tools.values()} == {"strands"}
    assert [name for name, tool in tools.items() if tool["mode"] == "async"] == ["asteps", "later"]
    assert [name for name, tool in tools.items() if tool["takes_context"]] == ["who"]
    assert tools["forecast"]["line"] == 11 and tools["forecast"]["description"] == "Forecast for a city."
    assert tools["forecast"]["input_schema"] == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "days": {"type": "integer", "default": 3, "description": "How many"},
            # Strands shows `str | None` as a text alone, and takes null.
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "Parameter note"},
            "unit": {"type": "string", "description": "Parameter unit"},
        },
        "required": ["city"],
    }
    assert tools["nested"]["input_schema"]["properties"]["anything"]["type"] == "string"


def test_strands_calls(strands):
    worker, _ = strands.load(TOOLS)
    assert ok(worker.call("forecast", {"city": "Oslo"}))["structured_content"] == {"city": "Oslo", "days": 3, "note": None, "unit": None}
    assert text_of(worker.call("nested", {"point": {"x": 1}, "anything": "a"})) == "dict {'x': 1.0}"
    assert text_of(worker.call("nothing")) == "null"
    assert text_of(worker.call("later", {"word": "w"})) == "w"
    assert error_text(worker.call("breaks", {"kind": "value"})) == "Error: bad day"
    assert error_text(worker.call("breaks", {"kind": "key"})) == "Error: KeyError - 'k'"
    assert error_text(worker.call("says_no")) == "no such city"
    assert worker.call("nested", {"point": {"x": "no"}, "anything": ""})["violations"][0]["pointer"] == "/point/x"
    seen, end = worker.watch("steps", {"n": 2})
    assert seen == [0, 1] and text_of(end) == "1"
    seen, end = worker.watch("asteps", {"n": 2})
    assert seen == [{"step": 0}, {"step": 1}] and end["structured_content"] == {"step": 1}


def test_optional_parameter_accepts_null(strands):
    worker, tools = strands.load(
        """
        import enum
        from typing import List, Literal, Optional, Union
        from pydantic import BaseModel, Field
        from strands import tool

        class Point(BaseModel):
            x: float

        class Unit(enum.Enum):
            C = "c"

        @tool
        def maybe(limit: Optional[int] = None, small: Optional[int] = Field(3, ge=1, le=9, description="Small"),
                  point: Optional[Point] = None, unit: Optional[Unit] = None, kind: Optional[Literal["a", "b"]] = "a",
                  tags: Optional[List[str]] = None, either: Union[int, str, None] = None, never: int = 1) -> str:
            "Maybe."
            return repr((limit, small, point, unit, kind, tags, either, never))

        @tool(inputSchema={"json": {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 1}}}})
        def own(limit: Optional[int] = None) -> str:
            "Its author's schema."
            return repr(limit)
        """
    )
    shown = tools["maybe"]["input_schema"]["properties"]
    takes_null = {name for name, part in shown.items() if {"type": "null"} in part.get("anyOf", [])}
    assert takes_null == set(shown) - {"never"}, shown
    assert shown["small"]["description"] == "Small" and shown["small"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 9}
    nulls = dict.fromkeys(takes_null)
    assert text_of(ok(worker.call("maybe", nulls))) == repr((*[None] * 7, 1))
    assert text_of(ok(worker.call("maybe", {"limit": 2, "point": {"x": 1}}))).startswith("(2, 3, ")
    assert worker.call("maybe", {"never": None})["op"] == "invalid"
    assert tools["own"]["input_schema"]["properties"]["limit"]["type"] == "integer", "a schema that its author wrote stays"


def test_tool_context_is_the_real_one(strands):
    worker, _ = strands.load(TOOLS)
    seen, end = worker.watch("who")
    assert seen == ["half"] and text_of(ok(end)) == "tester inv-1 who {} {} tester True False"


def test_class_is_one_instance(strands):
    worker, tools = strands.load(TOOLS, object="Store", init={"start": 5})
    assert list(tools) == ["add", "whose", "fixed"]
    assert [text_of(worker.call("add", {"n": 1})) for _ in range(2)] == ["6", "7"]
    assert text_of(worker.call("whose")) == "Store"
    assert text_of(worker.call("fixed", {"n": 2})) == "2"


def test_own_tool_class_is_streamed(strands):
    worker, tools = strands.load(
        """
        from strands.types.tools import AgentTool
        class Own(AgentTool):
            tool_name = "own"
            tool_spec = {"name": "own", "description": "Own.", "inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}}}
            tool_type = "own"
            async def stream(self, tool_use, invocation_state, **kwargs):
                yield "half"
                yield {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": str(tool_use["input"]["x"])}]}
        own = Own()
        """
    )
    assert tools["own"]["mode"] == "async"
    seen, end = worker.watch("own", {"x": 4})
    assert seen[0] == "half" and text_of(ok(end)) == "4"


READY_MADE = {"environment": {"BYPASS_TOOL_CONSENT": "true"}}


@pytest.fixture
def ready_made(with_package):
    return with_package("strands_tools")


def test_ready_made_tools_run_unchanged(ready_made):
    def call(name, **arguments):
        worker, tools = ready_made.load_named(f"strands_tools.{name}", **READY_MADE)
        assert list(tools) == [name]
        return text_of(ok(worker.call(name, arguments)))

    path = str(ready_made.folder / "note.txt")
    assert call("calculator", expression="sqrt(2) * 2") == "Result: 2.8284271247"
    assert call("current_time", timezone="Europe/Oslo").count("T") == 1
    assert "successfully" in call("file_write", path=path, content="one\ntwo\n")
    assert "two" in call("file_read", path=path, mode="view")
    assert "three" in call("editor", command="str_replace", path=path, old_str="two", new_str="three") or "three" in open(path).read()
    assert "TOOLCRIB_WORKER" in call("environment", action="list")
    assert "slept for 0.1 seconds" in call("sleep", seconds=0.1)
    assert "hi" in call("shell", command="echo hi")


def test_ready_made_http_request_reaches_local_server(ready_made):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"said here")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        worker, tools = ready_made.load_named("strands_tools.http_request", **READY_MADE)
        assert tools["http_request"]["framework"] == "tool_spec" and tools["http_request"]["takes_context"]
        answer = ok(worker.call("http_request", {"method": "GET", "url": f"http://127.0.0.1:{server.server_port}/"}))
        assert "said here" in json.dumps(answer)
    finally:
        server.shutdown()


@pytest.mark.parametrize("name", ["think", "batch", "use_agent", "journal", "python_repl", "generate_image_stability"])
def test_ready_made_tools_load(ready_made, name):
    _, tools = ready_made.load_named(f"strands_tools.{name}", **READY_MADE)
    assert tools[name]["description"] and tools[name]["input_schema"]["type"] == "object"


def test_ready_made_tool_names_its_missing_package(ready_made):
    failed = ready_made.fail_named("strands_tools.rss")
    assert failed["kind"] == "import" and "feedparser" in failed["message"] and failed["file"].endswith("rss.py")
