"""The context of a call, and that a function gets it only if it asks for it."""

from harness import ok, text_of

TOOLS = """
from toolcrib import tool, ToolContext
from strands import tool as strands_tool
import threading, time

@tool
def all_of_it(x: int, tool_context: ToolContext):
    c = tool_context
    return {"use": c.tool_use, "state": c.invocation_state, "agent": c.agent.name, "caller": c.caller, "invocation": c.invocation_id,
            "run": c.run_id, "attempt": c.attempt, "left": c.deadline, "none": hasattr(c.agent, "messages")}

@tool
def by_hint(c: "ToolContext", x: int = 1) -> str:
    return c.agent.name

@tool(context="ctx")
def by_name(ctx) -> str:
    return ctx.caller

@strands_tool(context=True)
def strands_way(tool_context, word: str) -> str:
    return word + tool_context.tool_use["toolUseId"] + str(tool_context.invocation_state["tenant"])

@strands_tool
def with_agent(agent, word: str) -> str:
    return agent.name

def plain(tool_context, x: int) -> str:
    return tool_context.agent.name

def place_only(tool_context, x: int, /) -> str:
    return tool_context.agent.name + str(x)

@tool
def without(x: int) -> int:
    return x

@tool
def reports(tool_context):
    tool_context.progress({"half": True})
    thread = threading.Thread(target=tool_context.progress, args=("from a thread",))
    thread.start()
    thread.join()
    def late():
        time.sleep(0.2)
        tool_context.progress("too late")
    threading.Thread(target=late).start()
    return "done"
"""
NAMES = ["all_of_it", "by_hint", "by_name", "strands_way", "with_agent", "plain", "place_only", "without", "reports"]
CONTEXT = {
    "invocation_id": "inv-9",
    "tool_use_id": "tu-9",
    "caller": "ada",
    "run_id": "run-9",
    "attempt": 2,
    "state": {"tenant": 7},
}


def test_context_has_its_fields(workshop):
    worker, _ = workshop.load(TOOLS, functions=NAMES)
    answer = ok(worker.call("all_of_it", {"x": 1}, CONTEXT, deadline_ms=5000))["structured_content"]
    assert 4 < answer.pop("left") <= 5
    assert answer == {
        "use": {"toolUseId": "tu-9", "name": "all_of_it", "input": {"x": 1}}, "state": {"tenant": 7}, "agent": "ada", "caller": "ada",
        "invocation": "inv-9", "run": "run-9", "attempt": 2, "none": False,
    }  # fmt: skip


def test_context_can_be_requested_in_every_way(workshop):
    worker, tools = workshop.load(TOOLS, functions=NAMES)
    requests = {name for name, tool in tools.items() if tool["takes_context"]}
    assert requests == set(NAMES) - {"without"}
    for tool in tools.values():
        assert set(tool["input_schema"]["properties"]) <= {"x", "word"}, tool
    for name, given, output in (
        ("by_hint", {}, "ada"), ("by_name", {}, "ada"), ("strands_way", {"word": "w"}, "wtu-97"), ("with_agent", {"word": "w"}, "ada"),
        ("plain", {"x": 1}, "ada"), ("place_only", {"x": 1}, "ada1"), ("without", {"x": 1}, "1"),
    ):  # fmt: skip
        assert text_of(ok(worker.call(name, given, CONTEXT))) == output


def test_tool_use_id_defaults_to_invocation(workshop):
    worker, _ = workshop.load(TOOLS, functions=NAMES)
    assert worker.call("all_of_it", {"x": 1})["structured_content"]["use"]["toolUseId"] == "inv-1"


def test_progress_comes_from_threads_but_not_late(workshop):
    worker, _ = workshop.load(TOOLS, functions=NAMES)
    seen, end = worker.watch("reports")
    assert seen == [{"half": True}, "from a thread"] and text_of(end) == "done"
    seen, end = worker.watch("reports")  # the late progress of the first call has arrived by now, and was not sent
    worker.call("without", {"x": 1})
    assert "too late" not in seen


def test_caller_cannot_pass_the_context(workshop):
    worker, _ = workshop.load("def f(tool_context, **more): return [tool_context.agent.name, sorted(more)]\n", functions=["f"])
    assert worker.call("f", {"tool_context": "forged", "a": 1})["structured_content"] == ["tester", ["a"]]


def test_spec_function_gets_context_by_parameters(workshop):
    spec = "TOOL_SPEC = {'name': 's', 'description': 'd', 'inputSchema': {}}\n"
    worker, tools = workshop.load(spec + "def s(tool, tenant=None): return str(tenant)\n", name="s.py")
    assert tools["s"]["takes_context"] is True
    assert text_of(worker.call("s", {}, {"state": {"tenant": "a", "other": 1}})) == "a"
    worker, tools = workshop.load(spec + "def s(tool): return 'alone'\n", name="s.py")
    assert tools["s"]["takes_context"] is False
    assert text_of(worker.call("s", {}, {"state": {"tenant": "a"}})) == "alone"
