"""Questions of a tool to the caller of its call."""

from .json_values import dump_json


class NotAsked(Exception):
    """The caller of the call cannot be asked, or has left without an answer."""


class Answer:
    """The answer to a question.

    - action: "accept", "decline" or "cancel"
    - content: with "accept", the values that the schema asks for, else an empty dict
    - accepted: whether the action is "accept"
    """

    def __init__(self, action, content=None):
        self.action, self.content = action, content or {}

    @property
    def accepted(self):
        return self.action == "accept"

    def __repr__(self):
        return f"Answer({self.action!r}, {self.content!r})"


class OpenQuestions:
    """The questions of one call that have no answer yet."""

    def __init__(self, call):
        self.call, self.futures, self.last = call, {}, 0

    async def ask(self, message, schema, name):
        call = self.call
        if call.loop is None or call.tool.mode != "async":
            raise NotAsked("only an `async def` function can ask")
        if not call.asks:
            raise NotAsked("the caller of this call cannot be asked: it takes no questions")
        self.last += 1
        number = self.last
        line = f'{{"op":"ask","id":{call.id},"data":{dump_json({"question": number, "message": str(message), "schema": schema, "name": name})}}}'
        future = self.futures[number] = call.loop.create_future()
        try:
            call.wire.send(line)
            return await future
        finally:
            del self.futures[number]

    def answer(self, message):
        """Takes an answer of the service."""
        future = self.futures.get(message["question"])
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(NotAsked(message["error"]))
        else:
            future.set_result(Answer(message["action"], message.get("content")))
