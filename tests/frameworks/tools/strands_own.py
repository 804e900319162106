"""What a team writes for Strands."""

import asyncio
import enum
from typing import Annotated, Literal, Optional

from pydantic import BaseModel, Field
from strands import ToolContext, tool


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Place(BaseModel):
    """Where."""

    city: str = Field(description="The city")
    country: Optional[str] = None


class Report(BaseModel):
    city: str
    degrees: float
    days: list[int] = []


@tool
def forecast(city: Annotated[str, "Where to look"], days: int = 3, unit: Literal["C", "K"] = "C", tags: list[str] = [],  # noqa: B006
             note: Optional[str] = None) -> str:
    """Forecasts the weather.

    Only for some days.

    Args:
        days: How many days.
        unit: Unit of
            the temperature.

    Returns:
        A sentence.
    """
    return f"{city} {days} {type(days).__name__} {unit} {tags} {note}"


@tool
def report(place: Place, unit: Unit = Unit.CELSIUS, limits: dict[str, float] = Field({}, description="Limits by name")) -> Report:
    """Reports on a place."""
    city = place["city"] if isinstance(place, dict) else place.city
    return Report(city=f"{city} {unit}", degrees=21.5, days=[1, 2])


@tool
def either(value: int | str | None, weight: float | None = None) -> dict:
    """Takes one or the other."""
    return {"value": value, "weight": weight}


@tool(name="other_name", description="Told otherwise.")
def named(x: int) -> int:
    """Not shown."""
    return x + 1


@tool
def number(x: int) -> int:
    """A number."""
    return x


@tool
def nothing() -> None:
    """Nothing."""


@tool
def parts(x: int = 1) -> dict:
    """A result in Strands' own shape."""
    return {"status": "success", "content": [{"text": "first"}, {"text": "second"}]}


@tool
def refuses(why: str) -> dict:
    """Says no in Strands' own shape."""
    return {"status": "error", "content": [{"text": f"no: {why}"}]}


@tool
def value_error(why: str) -> str:
    """Raises a ValueError."""
    raise ValueError(why)


@tool
def other_error(why: str) -> str:
    """Raises something else."""
    raise KeyError(why)


@tool
async def later(x: int) -> str:
    """Answers later."""
    await asyncio.sleep(0)
    return f"later {x}"


@tool
async def steps(count: int):
    """Works in steps."""
    for step in range(count):
        yield {"step": step}
    yield f"{count} steps"


@tool
def numpy(text: str, times: int = 2) -> str:
    """Repeats.

    Parameters
    ----------
    text : str
        What.
    times : int
        How often.
    """
    return text * times


@tool(context=True)
def who(question: str, tool_context: ToolContext) -> dict:
    """Who asks.

    Args:
        question: Anything.
    """
    return {"question": question, "id": tool_context.tool_use["toolUseId"], "agent": tool_context.agent.name,
            "state": tool_context.invocation_state}
