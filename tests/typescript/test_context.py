"""What a tool learns about its call, and questions to the caller."""

import json

from worker_process import error_text, ok, text_of

TOOL = """
    /** Tells. */
    export function tell(input, context) {
      const { deadline, signal, ask, progress, onProgress, abortSignal, ...rest } = context;
      return { ...rest, left: deadline - Date.now() > 5000, isSignal: signal instanceof AbortSignal && !signal.aborted };
    }
    /** Asks. @param {import("toolcrib").ToolContext} context */
    export async function ask(text, context) {
      const answer = await context.ask(text, { type: "object", properties: { ok: { type: "boolean" } } }, { name: "sure" });
      return answer;
    }
"""


def test_the_context(workshop):
    worker, tools = workshop.load(TOOL)
    assert (tools["tell"]["takes_context"], tools["ask"]["takes_context"]) == (True, True)
    assert list(tools["ask"]["input_schema"]["properties"]) == ["text"]
    context = {"invocation_id": "i-1", "tool_use_id": "t-1", "run_id": "r-1", "agent": "helper", "attempt": 2, "state": {"tenant": "acme"}}
    assert ok(worker.call("tell", {}, context))["structured_content"] == {
        **{"invocationId": "i-1", "toolUseId": "t-1", "runId": "r-1", "caller": "tester", "agent": "helper", "attempt": 2},
        **{"state": {"tenant": "acme"}, "left": True, "isSignal": True},
    }


def test_questions(workshop):
    worker, _ = workshop.load(TOOL)
    number = worker.start_call("ask", {"text": "Really?"}, asks=True)
    question = worker.receive()
    assert question == {
        "op": "ask",
        "id": number,
        "data": {"question": 1, "message": "Really?", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}, "name": "sure"},
    }
    worker.send({"op": "answer", "id": number, "question": 1, "action": "accept", "content": {"ok": True}})
    assert json.loads(text_of(worker.receive())) == {"action": "accept", "content": {"ok": True}, "accepted": True}
    number = worker.start_call("ask", {"text": "Really?"}, asks=True)
    worker.receive()
    worker.send({"op": "answer", "id": number, "question": 1, "error": "the caller has left"})
    assert error_text(worker.receive()) == "Error: NotAsked: the caller has left"
    assert "takes no questions" in error_text(worker.call("ask", {"text": "Really?"}))


def test_calls_do_not_share_a_context(workshop):
    worker, _ = workshop.load("/** Waits. */\nexport async function wait(input, context) { await new Promise((done) => setTimeout(done, 50)); return context.runId }")
    numbers = {worker.start_call("wait", {}, {"run_id": f"r-{at}"}): f"r-{at}" for at in range(5)}
    for _ in range(5):
        answer = worker.receive()
        assert text_of(answer) == numbers[answer["id"]]
