"""A tool is a function with hints and a docstring; the manifest names it."""

from typing import Literal


def weather_forecast(city: str, days: int = 3, units: Literal["celsius", "fahrenheit"] = "celsius") -> dict:
    """Forecast for a city. Use for questions about the days to come, not for the weather now.

    Args:
        city: City and country, e.g. Oslo, NO
        days: How many days
        units: Unit of the temperatures
    """
    lows = [4 + day % 3 for day in range(days)]
    return {"city": city, "units": units, "lows": lows if units == "celsius" else [low * 9 / 5 + 32 for low in lows]}
