"""Toolcrib for Python: declare tools, call tools, and test them.

`tool` and `ToolContext` belong to the files with your tools. A worker of the service has a module of this name too, with
the same decorator, and uses that one.
"""

from ._client import ApprovalFilters, AsyncClient, CallsOptions, Client, Event, InvocationFilters, InvokeOptions, ListOptions, Problem, ToolAnswer, ToolcribError
from ._tool import Agent, Answer, NotAsked, ToolContext, tool

__all__ = [
    "Agent",
    "Answer",
    "ApprovalFilters",
    "AsyncClient",
    "CallsOptions",
    "Client",
    "Event",
    "InvocationFilters",
    "InvokeOptions",
    "ListOptions",
    "NotAsked",
    "Problem",
    "ToolAnswer",
    "ToolContext",
    "ToolcribError",
    "tool",
]
__version__ = "0.1.0"
