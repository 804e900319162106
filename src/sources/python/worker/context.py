"""The information about a call that a tool can take: `ToolContext`."""

import time


class Agent:
    """Replaces the agent object that a framework gives to its tools. Toolcrib knows only the name of the calling agent."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        raise AttributeError(f"Toolcrib knows only the name of the agent that calls, not its '{name}'")


class ToolContext:
    """The information about the call for a tool.

    - tool_use: {"toolUseId", "name", "input"}
    - invocation_state: the caller's context, an object
    - caller: the name of the key that made the call
    - agent.name: the agent that made the call, or else the caller
    - invocation_id, run_id, attempt: the identifiers of the call
    - deadline: seconds left
    - cancel_signal: a threading.Event, set when the call is cancelled
    """

    def __init__(self, call):
        fields = call.context
        self.tool_use = {
            "toolUseId": fields.get("tool_use_id") or fields.get("invocation_id") or "",
            "name": call.tool.name,
            "input": call.arguments,
        }
        self.invocation_state = fields.get("state") or {}
        self._extend(call)

    def _extend(self, call):
        fields = call.context
        self.agent = Agent(fields.get("agent") or fields.get("caller"))
        self.caller = fields.get("caller")
        self.invocation_id = fields.get("invocation_id")
        self.run_id = fields.get("run_id")
        self.attempt = fields.get("attempt", 1)
        self.cancel_signal = call.cancel_signal
        self._call = call

    @property
    def deadline(self):
        """Seconds left, or None without a deadline."""
        deadline = self._call.deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    async def ask(self, message, schema=None, *, name=None):
        """Asks the caller of the call, and waits for the `Answer`.

        schema: the JSON Schema of the answer's content, an object whose properties are texts, numbers, booleans or choices
        name: tells the questions of one call apart

        Raises `NotAsked` if the caller cannot be asked. The time counts toward the tool's `timeout`.
        """
        return await self._call.questions.ask(message, schema, name)

    def progress(self, data):
        """Reports progress to the listeners of the call: any value that JSON can contain. May be called from any thread."""
        self._call.progress(data)
