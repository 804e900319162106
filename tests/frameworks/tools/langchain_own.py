"""What a team writes for LangChain."""

from typing import Annotated, Literal, Optional, Type

from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException, tool
from pydantic import BaseModel, Field


@tool
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


@tool(parse_docstring=True)
def documented(city: str, unit: Literal["C", "K"] = "C", note: Optional[str] = None) -> dict:
    """Forecasts the weather.

    Args:
        city: Where to look.
        unit: Unit of the temperature.
        note: Anything.
    """
    return {"city": city, "unit": unit, "note": note}


class Search(BaseModel):
    """What is searched."""

    query: str = Field(description="The words")
    limit: int = Field(10, ge=1, le=50)


class Filter(BaseModel):
    field: str
    values: list[str] = []


@tool("search", args_schema=Search, return_direct=True)
def find(query: str, limit: int = 10) -> str:
    """Searches."""
    return f"{limit} of {query}"


@tool
def filtered(filter: Filter, also: list[Filter] = []) -> str:  # noqa: B006
    """Takes a model, and is given one."""
    return f"{type(filter).__name__} {filter.field} {filter.values} {len(also)}"


@tool
def injected(question: str, call: Annotated[str, InjectedToolCallId], config: RunnableConfig,
             user: Annotated[str, InjectedToolArg] = "nobody") -> str:
    """Is given what the model does not know."""
    return f"{question} {user} {call} {isinstance(config, dict)}"


@tool
async def later(x: int) -> str:
    """Answers later."""
    return f"later {x}"


@tool(response_format="content_and_artifact")
def with_artifact(x: int) -> tuple:
    """Has something beside its answer."""
    return f"content {x}", {"raw": [x]}


@tool
def refuses(why: str) -> str:
    """Says no."""
    raise ToolException(f"no: {why}")


@tool
def broken(why: str) -> str:
    """Fails."""
    raise KeyError(why)


class Handled(BaseTool):
    name: str = "handled"
    description: str = "Handles its own errors."
    handle_tool_error: bool = True

    def _run(self, why: str, run_manager: Optional[CallbackManagerForToolRun] = None) -> str:
        raise ToolException(f"handled: {why}")


class Multiply(BaseTool):
    name: str = "multiply"
    description: str = "Multiplies two numbers."
    args_schema: Optional[Type[BaseModel]] = None
    factor: int = 1

    def _run(self, a: int, b: int) -> int:
        return a * b * self.factor

    async def _arun(self, a: int, b: int) -> int:
        return a * b * self.factor


def _power(base: int, exponent: int = 2) -> int:
    """Raises a number to a power."""
    return base ** exponent


power = StructuredTool.from_function(_power, name="power")
handled = Handled()
multiply = Multiply(factor=2)
