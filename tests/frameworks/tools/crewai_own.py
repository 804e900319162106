"""What a team writes for crewAI."""

from typing import Annotated, Literal, Optional, Type

from crewai.tools import BaseTool, EnvVar, tool
from crewai_tools import FileReadTool
from pydantic import BaseModel, Field


class WeatherInput(BaseModel):
    """What the weather tool takes."""

    city: str = Field(description="The city")
    days: int = Field(3, ge=1, le=10, description="How many days")
    unit: Literal["C", "K"] = "C"
    note: Optional[str] = None


class Weather(BaseTool):
    name: str = "Weather of a city"
    description: str = "Forecasts the weather of a city."
    args_schema: Type[BaseModel] = WeatherInput
    result_as_answer: bool = True
    greeting: str = "Hello"

    def _run(self, city: str, days: int = 3, unit: str = "C", note: Optional[str] = None) -> str:
        if city == "Atlantis":
            raise ValueError("Atlantis has no weather")
        return f"{self.greeting} {city} {days} {unit} {note}"


class Keyed(BaseTool):
    name: str = "keyed"
    description: str = "Needs a key."
    env_vars: list[EnvVar] = [EnvVar(name="PLAIN_KEY", description="The key", required=True),
                              EnvVar(name="PLAIN_UNITS", description="Units", required=False, default="km")]

    def _run(self) -> str:
        import os

        return os.environ["PLAIN_UNITS"]


class Plain(BaseTool):
    name: str = "plain"
    description: str = "Takes its schema from its signature."

    def _run(self, text: str, times: Annotated[int, Field(description="How often", ge=1)] = 2) -> dict:
        return {"text": text * times}


class Later(BaseTool):
    name: str = "later"
    description: str = "Answers later."

    async def _run(self, x: int) -> str:
        return f"later {x}"


@tool("Add two numbers")
def add(a: int, b: int = 1) -> int:
    """Adds.

    Args:
        a: The first.
    """
    return a + b


@tool
def twice(text: str) -> str:
    """Says it twice."""
    return text * 2


@tool("Only twice", max_usage_count=2)
def only_twice(x: int) -> str:
    """May be used two times."""
    return f"used {x}"


@tool
def keeps_even(x: int) -> int:
    """Says it again."""
    return x


keeps_even.cache_function = lambda arguments, result: 8 % result == 0 and result % 2 == 0


weather = Weather()
kind_weather = Plain()
keyed = Keyed()
answers_later = Later()
reads = FileReadTool()
