"""Role async: many calls at once on one loop, each of which can be cancelled."""

import time

import pytest
from harness import ok, error_text, text_of

TOOLS = """
import asyncio, sys
from toolcrib import tool

waiting = 0

@tool
async def meet(n: int) -> str:
    "Returns when n calls are here at once."
    global waiting
    waiting += 1
    while waiting < n:
        await asyncio.sleep(0.005)
    return "met"

@tool
async def forever(tool_context) -> str:
    tool_context.progress("started")
    try:
        await asyncio.sleep(3600)
    finally:
        print("cleaned up")

@tool
async def stream():
    try:
        while True:
            yield "tick"
            await asyncio.sleep(3600)
    finally:
        print("generator closed")

@tool
async def stubborn(tool_context) -> str:
    tool_context.progress("started")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "stayed: " + str(tool_context.cancel_signal.is_set())

@tool
async def cancels_itself():
    raise asyncio.CancelledError()

@tool
async def quits():
    async def inner():
        sys.exit(3)
    task = asyncio.create_task(inner())
    await asyncio.sleep(0.01)
    return "still here"

@tool
def blocking(x: int) -> int:
    return x
"""


def test_calls_run_concurrently(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    numbers = [worker.start_call("meet", {"n": 50}) for _ in range(50)]
    answers = [worker.receive() for _ in numbers]
    assert sorted(answer["id"] for answer in answers) == numbers
    assert {text_of(ok(answer)) for answer in answers} == {"met"}


def test_cancel_reaches_only_its_call(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    gone, stays = worker.start_call("forever", {}, watched=True), worker.start_call("meet", {"n": 2})
    assert worker.receive()["op"] == "progress"
    worker.send({"op": "cancel", "id": gone})
    assert worker.receive() == {"op": "cancelled", "id": gone}
    worker.start_call("meet", {"n": 2})
    assert {worker.receive()["id"] for _ in range(2)} == {stays, stays + 1}
    worker.close()
    assert "cleaned up" in worker.log


def test_cancel_right_after_the_call(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    call = '{"op":"call","id":1,"tool":"forever","arguments":{},"context":{},"watched":false}'
    worker.send_raw(call + '\n{"op":"cancel","id":1}\n{"op":"cancel","id":1}\n{"op":"cancel","id":99}')
    assert worker.receive() == {"op": "cancelled", "id": 1}
    worker.count = 1
    assert text_of(ok(worker.call("blocking", {"x": 1}))) == "1"


def test_generator_is_closed_when_cancelled(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    number = worker.start_call("stream", {}, watched=True)
    assert worker.receive() == {"op": "progress", "id": number, "data": "tick"}
    worker.send({"op": "cancel", "id": number})
    assert worker.receive() == {"op": "cancelled", "id": number}
    worker.close()
    assert "generator closed" in worker.log


def test_call_that_catches_cancel_may_answer(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    number = worker.start_call("stubborn", {}, watched=True)
    assert worker.receive()["op"] == "progress"
    worker.send({"op": "cancel", "id": number})
    assert text_of(worker.receive()) == "stayed: True"


def test_errors_and_exits_end_only_their_call(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    assert error_text(worker.call("cancels_itself")) == "Error: CancelledError"
    assert text_of(ok(worker.call("quits"))) == "still here"
    assert text_of(ok(worker.call("blocking", {"x": 1}))) == "1"


def test_end_of_input_cancels_calls_and_exits(workshop):
    worker, _ = workshop.load(TOOLS, role="async")
    worker.start_call("forever", {}, watched=True)
    worker.receive()
    began = time.monotonic()
    assert worker.close() == 0
    assert time.monotonic() - began < 3
    assert "cleaned up" in worker.log


def test_sync_worker_runs_coroutines_and_own_loops(workshop):
    worker, _ = workshop.load(TOOLS + "\ndef own():\n    return asyncio.run(meet(1))\n", functions=["meet", "own"])
    assert text_of(ok(worker.call("own"))) == "met"
    assert text_of(ok(worker.call("meet", {"n": 1}))) == "met"


@pytest.mark.parametrize("spoils", ["asyncio.run(meet(1))", "asyncio.set_event_loop(None)", "asyncio.get_event_loop().close()"])
def test_damaged_loop_is_repaired_for_next_call(workshop, spoils):
    worker, _ = workshop.load(
        TOOLS + f"\ndef spoil():\n    {spoils}\ndef old():\n    return asyncio.get_event_loop().run_until_complete(meet(1))\n",
        functions=["meet", "spoil", "old"],
    )
    for _ in range(2):
        ok(worker.call("spoil"))
        assert text_of(ok(worker.call("old"))) == "met"
        assert text_of(ok(worker.call("meet", {"n": 1}))) == "met"


SHARED = """
import asyncio, sys, threading, time
from toolcrib import tool

class Box:
    def __init__(self):
        self.held = []

    @tool
    def put(self, one: str, tool_context):
        "Blocks for a moment."
        tool_context.progress("begun")
        time.sleep(0.05)
        self.held.append(one)
        return {"held": self.held, "main": threading.current_thread() is threading.main_thread()}

    @tool
    async def look(self) -> list:
        return self.held

    @tool
    def yields(self):
        yield "first"
        yield "last"

    @tool
    def quits(self) -> str:
        sys.exit(3)

    @tool
    def stops(self) -> str:
        raise StopIteration("odd")

    @tool
    def runs(self) -> str:
        return asyncio.run(asyncio.sleep(0, "own loop"))

    @tool
    def hangs(self, tool_context) -> str:
        tool_context.progress("begun")
        return "heard: " + str(tool_context.cancel_signal.wait(20))

    @tool
    def typed(self, n: int) -> int:
        return n
"""


def test_shared_role_has_one_object(workshop):
    worker, tools = workshop.load(SHARED, role="shared", object="Box")
    assert (tools["put"]["mode"], tools["look"]["mode"]) == ("sync", "async")
    put = worker.call("put", {"one": "a"})
    assert ok(put)["structured_content"] == {"held": ["a"], "main": False}
    assert ok(worker.call("look", {}))["structured_content"] == ["a"]
    assert text_of(worker.call("yields", {})) == "last"
    assert text_of(worker.call("runs", {})) == "own loop"
    assert "SystemExit" in error_text(worker.call("quits", {})) or "3" in error_text(worker.call("quits", {}))
    assert "odd" in error_text(worker.call("stops", {}))
    assert worker.call("typed", {"n": "x"})["op"] == "invalid"
    assert ok(worker.call("look", {}))["structured_content"] == ["a"]


def test_shared_thread_ends_with_its_function(workshop):
    worker, _ = workshop.load(SHARED, role="shared", object="Box")
    number = worker.start_call("hangs", {}, watched=True)
    assert worker.receive()["data"] == "begun"
    worker.send({"op": "cancel", "id": number})
    end = worker.receive()
    assert (end["id"], text_of(end)) == (number, "heard: True")
