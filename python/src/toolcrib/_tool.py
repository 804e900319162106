"""The decorator and the context, for use outside a worker: in tests, type checkers and editors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

Function = TypeVar("Function", bound=Callable[..., Any])

# The worker uses the same attribute. A function that is marked here is a tool there.
MARK = "__toolcrib_tool__"


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    function: str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    context: bool | str = False,
    result_as_answer: bool = False,
) -> Callable[[Function], Function]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Declares a typed function as a tool. Its docstring and type hints become the definition.

    The function itself does not change, so that tests can call it. Options:

    name: the name of the tool. Default: the name of the function.
    description: replaces the description in the docstring.
    input_schema, output_schema: JSON Schemas that replace those of the type hints.
    context: passes a `ToolContext` as the argument `tool_context`, or as the argument of this name.
    result_as_answer: tells the agent to return the result as its answer.
    """
    if isinstance(function, str):
        options["name"], function = function, None
    unknown = options.keys() - {"name", "description", "input_schema", "output_schema", "context", "result_as_answer"}
    if unknown:
        raise TypeError(f"tool() has no option {sorted(unknown)[0]!r}")

    def mark(function: Any) -> Any:
        setattr(function, MARK, options)
        return function

    return mark if function is None else mark(function)


@dataclass
class Agent:
    """The agent that makes the call. Only its name is known."""

    name: str | None = None


class NotAsked(Exception):
    """The caller of the call cannot be asked, or has left without an answer."""


@dataclass
class Answer:
    """The answer to a question. `content` has the values that the schema asks for."""

    action: str = "accept"
    """`accept`, `decline` or `cancel`."""
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether the action is `accept`."""
        return self.action == "accept"


@dataclass
class ToolContext:
    """The facts about a call that a tool may use. Create one to test a tool that takes a context.

    `progress` collects the reports of the tool in `reports`. In a worker, clients of the service receive them. `ask` takes
    the answers from `answers`, in their order, and collects the questions in `questions`.
    """

    invocation_state: dict[str, Any] = field(default_factory=dict)
    tool_use: dict[str, Any] = field(default_factory=dict)
    agent: Agent = field(default_factory=Agent)
    caller: str | None = None
    invocation_id: str | None = None
    run_id: str | None = None
    attempt: int = 1
    timeout: float | None = None
    """Seconds from now until the deadline. `None`: no deadline."""
    cancel_signal: threading.Event = field(default_factory=threading.Event)
    reports: list[Any] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ends = None if self.timeout is None else time.monotonic() + self.timeout

    @property
    def deadline(self) -> float | None:
        """The seconds that are left, or `None` without a deadline."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def progress(self, data: Any) -> None:
        """Reports progress: any value that JSON can hold. Threads may call this."""
        self.reports.append(data)

    async def ask(self, message: str, schema: Mapping[str, Any] | None = None, *, name: str | None = None) -> Answer:
        """Asks the caller of the call, and waits for the answer.

        message: the text for the person.
        schema: the JSON Schema of the content: an object whose properties are texts, numbers, booleans or choices.
        name: tells the questions of one call apart.

        Raises `NotAsked` if the caller cannot be asked; here, if no answers are left.
        """
        self.questions.append({"message": message, "schema": schema, "name": name})
        if not self.answers:
            raise NotAsked("no answers are left: give ToolContext the list `answers`")
        return self.answers.pop(0)
