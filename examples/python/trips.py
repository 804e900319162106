"""The tools of a travel desk, as plain Python: signatures and docstrings are all that a model sees.

    toolcrib serve --manifest examples/python/toolcrib.yaml
"""

import asyncio
import math
import os
from typing import Literal, TypedDict

from toolcrib import ToolContext, tool  # every worker has it at hand, nothing is to be installed


class Place(TypedDict):
    name: str
    latitude: float
    longitude: float


@tool
def distance(start: Place, end: Place, unit: Literal["km", "mi"] = "km") -> float:
    """Tells the distance between two places as the crow flies.

    Args:
        start: Where the way begins.
        end: Where it ends.
        unit: Kilometres or miles.
    """
    a, b = (math.radians(place["latitude"]) for place in (start, end))
    turn = math.radians(end["longitude"] - start["longitude"])
    cosine = math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(turn)
    return round(math.acos(max(-1.0, min(1.0, cosine))) * (6371.0 if unit == "km" else 3958.8), 1)


@tool
async def plan_trip(stops: list[Place], pause: float = 0.1):
    """Plans a trip over several stops, in the order given. Tells each leg as soon as it is planned.

    Args:
        stops: Two places or more.
        pause: Seconds that the planning of a leg takes.
    """
    if len(stops) < 2:
        raise ValueError("a trip has two stops at least")  # the model receives this sentence
    legs = []
    for start, end in zip(stops, stops[1:]):
        await asyncio.sleep(pause)
        legs.append({"from": start["name"], "to": end["name"], "km": distance(start, end)})
        yield legs[-1]  # progress
    yield {"legs": legs, "km": round(sum(leg["km"] for leg in legs), 1)}  # the last one is the result


@tool(context=True)
def book_trip(destination: str, travellers: int, tool_context: ToolContext) -> dict:
    """Books a trip for the customer that the conversation is about. Use only when the customer has agreed.

    Args:
        destination: Name of the place.
        travellers: How many people travel.
    """
    customer = tool_context.invocation_state.get("customer")  # the request's `context`: no model can make it up
    if not customer:
        raise ValueError("nobody is logged in")
    return {"booking": f"{os.environ['DESK']}-{tool_context.tool_use['toolUseId']}", "customer": customer,
            "destination": destination, "travellers": travellers}


def weekend_fare(fare: float) -> float:
    """Computes the fare at a weekend.

    Args:
        fare: The fare on a weekday, in EUR.
    """
    return round(fare * 1.2, 2)
