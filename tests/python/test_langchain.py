"""Real langchain-core: decorated functions, classes, structured tools, what is injected."""

import pytest
from harness import ok, error_text, text_of

TOOLS = '''
from typing import Annotated, Optional
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException, tool

@tool
def multiply(a: int, b: Annotated[int, "second"]) -> int:
    """Multiply two."""
    return a * b

@tool
async def later(a: int) -> dict:
    """Later."""
    return {"a": a}

@tool(response_format="content_and_artifact", return_direct=True)
def both(x: str):
    """Content and artifact."""
    return f"said {x}", {"big": 1}

@tool
def injected(x: str, user: Annotated[str, InjectedToolArg], number: Annotated[str, InjectedToolCallId], config: RunnableConfig) -> str:
    """Injected."""
    return f"{x} {user} {number} {config['configurable']['tenant']}"

@tool(parse_docstring=True)
def blocks(q: Optional[str] = None) -> list:
    """Blocks.

    Args:
        q: The question
    """
    return [{"type": "text", "text": "t"}, {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}}]

def _limited(n: float) -> str:
    """Limited."""
    if n < 0:
        raise ToolException("too small")
    if n > 100:
        raise KeyError("too big")
    return str(n)

limited = StructuredTool.from_function(_limited, name="limited", handle_tool_error=True)

class Upper(BaseTool):
    name: str = "upper"
    description: str = "Upper case."
    def _run(self, q: str) -> str:
        return q.upper()

class OnlyAsync(BaseTool):
    name: str = "only_async"
    description: str = "Can only be awaited."
    def _run(self, q: str) -> str:
        raise NotImplementedError("await me")
    async def _arun(self, q: str) -> str:
        return q.upper()
'''


@pytest.fixture
def langchain(with_package):
    return with_package("langchain_core")


def test_langchain_tools_are_found_and_described(langchain):
    _, tools = langchain.load(TOOLS)
    assert list(tools) == ["multiply", "later", "both", "injected", "blocks", "limited", "upper", "only_async"]
    assert {tool["framework"] for tool in tools.values()} == {"langchain"}
    assert [name for name, tool in tools.items() if tool["mode"] == "async"] == ["later"]
    assert [name for name, tool in tools.items() if tool["takes_context"]] == ["injected"]
    assert tools["both"]["result_as_answer"] is True
    assert list(tools["injected"]["input_schema"]["properties"]) == ["x"]
    assert tools["multiply"]["input_schema"]["properties"]["b"] == {"type": "integer", "title": "B", "description": "second"}
    assert (
        tools["blocks"]["description"] == "Blocks." and tools["blocks"]["input_schema"]["properties"]["q"]["description"] == "The question"
    )


def test_langchain_calls(langchain):
    worker, _ = langchain.load(TOOLS)
    assert text_of(ok(worker.call("multiply", {"a": 2, "b": 3}))) == "6"
    assert worker.call("multiply", {"a": 2, "b": "x"})["violations"][0]["pointer"] == "/b"
    assert text_of(ok(worker.call("later", {"a": 1}))) == '{"a": 1}'
    answer = ok(worker.call("both", {"x": "y"}))
    assert text_of(answer) == "said y" and answer["structured_content"] is None  # an artifact is not for models
    assert text_of(ok(worker.call("injected", {"x": "X"}, {"tool_use_id": "tu", "state": {"user": "ada", "tenant": 7}}))) == "X ada tu 7"
    assert [block["type"] for block in ok(worker.call("blocks"))["content"]] == ["text", "image", "image"]
    assert text_of(ok(worker.call("limited", {"n": 1}))) == "1.0"
    assert error_text(worker.call("limited", {"n": -1})) == "too small"
    assert error_text(worker.call("limited", {"n": 1000})) == "Error: KeyError('too big')\n Please fix your mistakes."
    assert text_of(ok(worker.call("upper", {"q": "a"}))) == "A"
    assert text_of(ok(worker.call("only_async", {"q": "a"}))) == "A"


def test_langchain_async_tools_run_on_the_loop(langchain):
    worker, _ = langchain.load(TOOLS, role="async")
    assert text_of(ok(worker.call("later", {"a": 1}))) == '{"a": 1}'
