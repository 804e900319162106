"""Real crewAI: classes, instances, decorated functions, and tools of crewai-tools."""

import pytest
from harness import ok, error_text, text_of

QUIET = {"environment": {"OTEL_SDK_DISABLED": "true", "CREWAI_DISABLE_TELEMETRY": "true"}}
TOOLS = '''
from typing import Optional, Type
from crewai.tools import BaseTool, tool
from pydantic import BaseModel, Field

class Question(BaseModel):
    city: str = Field(description="The city")
    days: int = 3

class Weather(BaseTool):
    name: str = "My weather tool"
    description: str = "Weather of a city"
    args_schema: Type[BaseModel] = Question
    def _run(self, city: str, days: int = 3) -> str:
        return f"{city} {days}"

class Keyed(BaseTool):
    name: str = "keyed"
    description: str = "Needs a key"
    key: str
    def _run(self, q: str) -> str:
        return self.key + q

made = Keyed(key="k", name="made")

class Locked(Keyed):
    name: str = "locked"

@tool("Add numbers")
def add(a: int, b: int) -> int:
    """Adds two."""
    return a + b

@tool
async def later(x: str) -> str:
    """Later."""
    return x

@tool(max_usage_count=1, result_as_answer=True)
def once(x: str) -> dict:
    """Once."""
    if x == "boom":
        raise RuntimeError("boom")
    return {"x": x}
'''


@pytest.fixture
def crewai(with_package):
    return with_package("crewai")


def test_crewai_tools_are_found_and_described(crewai):
    worker, tools = crewai.load(TOOLS, **QUIET)
    assert set(tools) == {"my_weather_tool", "made", "add_numbers", "later", "once"}
    assert {tool["framework"] for tool in tools.values()} == {"crewai"}
    assert tools["my_weather_tool"]["input_schema"]["properties"]["city"] == {"type": "string", "title": "City", "description": "The city"}
    assert tools["later"]["mode"] == "async" and tools["once"]["result_as_answer"] is True
    (warning,) = worker.ready["warnings"]
    assert "'Locked' cannot be offered" in warning and "key: Field required" in warning


def test_crewai_calls(crewai):
    worker, tools = crewai.load(TOOLS, **QUIET)
    assert text_of(ok(worker.call("my_weather_tool", {"city": "Oslo"}))) == "Oslo 3"
    assert text_of(ok(worker.call("made", {"q": "1"}))) == "k1"
    assert text_of(ok(worker.call("add_numbers", {"a": 1, "b": 2}))) == "3"
    assert text_of(ok(worker.call("later", {"x": "y"}))) == "y"
    assert worker.call("add_numbers", {"a": 1, "b": "x"})["violations"][0]["pointer"] == "/b"
    assert error_text(worker.call("once", {"x": "boom"})) == "Error executing tool: boom"
    assert tools["once"]["max_calls"] == 1 and tools["add_numbers"]["max_calls"] is None, "the service counts"
    worker, _ = crewai.load(TOOLS, functions=["once"], **QUIET)
    assert ok(worker.call("once", {"x": "y"}))["structured_content"] == {"x": "y"}  # crewAI would show its agent Python's repr
    assert not [name for name in crewai.folder.iterdir() if name.suffix == ".db"]


def test_crewai_async_tools_run_on_the_loop(crewai):
    worker, _ = crewai.load(TOOLS, role="async", **QUIET)
    assert text_of(ok(worker.call("later", {"x": "y"}))) == "y"


def test_crewai_class_takes_its_arguments(crewai):
    worker, tools = crewai.load(TOOLS, object="Keyed", init={"key": "secret"}, **QUIET)
    assert list(tools) == ["keyed"] and text_of(worker.call("keyed", {"q": "1"})) == "secret1"


def test_crewai_tools_are_found_by_name(with_package):
    there = with_package("crewai_tools")
    (there.folder / "note.txt").write_text("one\ntwo\n")
    worker, tools = there.load_named("crewai_tools", functions=["FileReadTool"], **QUIET)
    assert list(tools) == ["read_a_files_content"]
    assert "two" in text_of(ok(worker.call("read_a_files_content", {"file_path": str(there.folder / "note.txt")})))
