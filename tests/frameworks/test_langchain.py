"""LangChain: its decorator, StructuredTool, BaseTool, injected arguments."""

from conftest import TOOLS, compare
from harness import ok, problem, said_no, text_of

FRAMEWORK = "langchain"


def modules(_):
    return {"own": {"module": str(TOOLS / "langchain_own.py"), "tools": {"add": {"effect": "read"}}}}


def test_they_are_as_langchain_says(framework):
    said = compare(framework, TOOLS / "langchain_own.py", [
        ("add", {"a": 41}), ("add", {"a": 2**62, "b": 2}), ("search", {"query": "words"}), ("search", {"query": "words", "limit": 3}),
        ("filtered", {"filter": {"field": "x", "values": ["a"]}, "also": [{"field": "y"}]}), ("later", {"x": 1}), ("with_artifact", {"x": 5}),
        ("handled", {"why": "late"}), ("multiply", {"a": 3, "b": 7}), ("power", {"base": 3}), ("power", {"base": 2, "exponent": 10}),
    ])
    assert set(said["tools"]) == {"add", "documented", "search", "filtered", "injected", "later", "with_artifact", "refuses", "broken", "handled",
                                  "multiply", "power"}


def test_objects_are_structured(framework):
    answer = ok(framework.crib.invoke("documented", {"city": "Oslo", "note": "ü"}))
    assert answer["structured_content"] == {"city": "Oslo", "unit": "C", "note": "ü"}, answer


def test_injected_arguments_are_not_the_models(framework):
    crib = framework.crib
    assert list(crib.get("/tools/injected").json["input_schema"]["properties"]) == ["question"]
    assert text_of(ok(crib.invoke("injected", {"question": "?"}, tool_use_id="call_7"))) == "? nobody call_7 True"
    reply = crib.invoke("injected", {"question": "?", "user": "root"})
    assert reply.status == 422 or text_of(ok(reply)).split()[1] == "nobody", reply


def test_errors(framework):
    assert "no: late" in text_of(said_no(framework.crib.invoke("refuses", {"why": "late"})))
    said = said_no(framework.crib.invoke("broken", {"why": "key"}))
    assert "key" in text_of(said) and "Traceback" not in text_of(said)


def test_return_direct_is_an_answer(framework):
    assert framework.crib.get("/tools/search").json["result_as_answer"] is True
    assert framework.crib.get("/tools/add").json["result_as_answer"] is False


def test_what_does_not_fit(framework):
    for name, arguments, pointer in (("add", {}, "/a"), ("search", {"query": "x", "limit": 51}, "/limit"), ("documented", {"city": "Oslo", "unit": "F"}, "/unit"),
                                     ("filtered", {"filter": {"values": []}}, "/filter/field")):
        said = problem(framework.crib.invoke(name, arguments), 422, "invalid_arguments")
        assert pointer in [one["pointer"] for one in said["violations"]], said
