"""Questions of a function to the caller of its call."""

from harness import error_text, ok, text_of

TOOLS = """
import asyncio
from toolcrib import Answer, NotAsked, tool

@tool
async def ask_twice(tool_context) -> list:
    first = await tool_context.ask("First?", {"type": "object", "properties": {}}, name="first")
    second = await tool_context.ask("Second?")
    assert type(first) is Answer
    return [first.action, first.content, first.accepted, second.accepted, second.content]

@tool
async def ask_both(tool_context) -> list:
    answers = await asyncio.gather(tool_context.ask("a", name="a"), tool_context.ask("b", name="b"))
    return [answer.action for answer in answers]

@tool
async def goes_on(tool_context) -> str:
    try:
        await tool_context.ask("Really?")
    except NotAsked as error:
        return f"went on: {error}"

@tool
def blocking(tool_context) -> str:
    asyncio.run(tool_context.ask("Really?"))
"""


def start(worker, tool, asks=True):
    """Starts a call whose caller can be asked. Returns its id."""
    worker.count += 1
    worker.send({"op": "call", "id": worker.count, "deadline_ms": 30000, "tool": tool, "arguments": {}, "context": {}, "asks": asks})
    return worker.count


def asked(worker, number):
    message = worker.receive()
    assert (message["op"], message["id"]) == ("ask", number)
    return message["data"]


def test_function_goes_on_with_each_answer(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    number = start(worker, "ask_twice")
    first = asked(worker, number)
    assert first == {"question": 1, "message": "First?", "schema": {"type": "object", "properties": {}}, "name": "first"}
    worker.send({"op": "answer", "id": number, "question": 7, "action": "accept"})  # an unknown question changes nothing
    worker.send({"op": "answer", "id": number, "question": 1, "action": "accept", "content": {"a": 1}})
    second = asked(worker, number)
    assert (second["question"], second["schema"], second["name"]) == (2, None, None)
    worker.send({"op": "answer", "id": number, "question": 2, "action": "decline"})
    assert ok(worker.receive())["structured_content"] == ["accept", {"a": 1}, True, False, {}]


def test_several_questions_may_be_open(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    number = start(worker, "ask_both")
    names = {asked(worker, number)["name"]: n for n in (1, 2)}
    for name, action in (("b", "cancel"), ("a", "accept")):
        worker.send({"op": "answer", "id": number, "question": names[name], "action": action})
    assert ok(worker.receive())["structured_content"] == ["accept", "cancel"]


def test_function_learns_that_it_cannot_ask(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    start(worker, "goes_on", asks=False)
    assert text_of(ok(worker.receive())).startswith("went on: the caller of this call cannot be asked")
    number = start(worker, "goes_on")
    asked(worker, number)
    worker.send({"op": "answer", "id": number, "question": 1, "error": "the caller has left"})
    assert text_of(ok(worker.receive())) == "went on: the caller has left"


def test_blocking_function_cannot_ask(workshop):
    for role in ("sync", "shared"):
        worker, _ = workshop.load(TOOLS, role=role)
        start(worker, "blocking")
        assert "only an `async def` function can ask" in error_text(worker.receive())
