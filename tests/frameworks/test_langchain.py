"""LangChain: its decorator, StructuredTool, BaseTool, injected arguments."""

from conftest import TOOLS, compare
from harness import ok, problem, error_result, text_of

FRAMEWORK = "langchain"


def modules(_):
    return {"own": {"module": str(TOOLS / "langchain_own.py"), "tools": {"add": {"effect": "read"}}}}


def test_langchain_tools_match_the_framework(each_pydantic):
    output = compare(each_pydantic, TOOLS / "langchain_own.py", [
        ("add", {"a": 41}), ("add", {"a": 2**62, "b": 2}), ("search", {"query": "words"}), ("search", {"query": "words", "limit": 3}),
        ("filtered", {"filter": {"field": "x", "values": ["a"]}, "also": [{"field": "y"}]}), ("later", {"x": 1}), ("with_artifact", {"x": 5}),
        ("handled", {"why": "late"}), ("multiply", {"a": 3, "b": 7}), ("power", {"base": 3}), ("power", {"base": 2, "exponent": 10}),
    ])
    assert set(output["tools"]) == {"add", "documented", "search", "filtered", "injected", "later", "with_artifact", "refuses", "broken", "handled",
                                  "multiply", "power"}


def test_objects_are_structured(each_pydantic):
    answer = ok(each_pydantic.crib.invoke("documented", {"city": "Oslo", "note": "ü"}))
    assert answer["structured_content"] == {"city": "Oslo", "unit": "C", "note": "ü"}, answer


def test_injected_arguments_are_hidden_from_the_model(each_pydantic):
    crib = each_pydantic.crib
    assert list(crib.get("/tools/injected").json["input_schema"]["properties"]) == ["question"]
    assert text_of(ok(crib.invoke("injected", {"question": "?"}, tool_use_id="call_7"))) == "? nobody call_7 True"
    reply = crib.invoke("injected", {"question": "?", "user": "root"})
    assert reply.status == 422 or text_of(ok(reply)).split()[1] == "nobody", reply


def test_exceptions_are_error_results(framework):
    assert "no: late" in text_of(error_result(framework.crib.invoke("refuses", {"why": "late"})))
    answer = error_result(framework.crib.invoke("broken", {"why": "key"}))
    assert "key" in text_of(answer) and "Traceback" not in text_of(answer)


def test_return_direct_is_an_answer(framework):
    assert framework.crib.get("/tools/search").json["result_as_answer"] is True
    assert framework.crib.get("/tools/add").json["result_as_answer"] is False


def test_invalid_arguments_are_refused(each_pydantic):
    for name, arguments, pointer in (("add", {}, "/a"), ("search", {"query": "x", "limit": 51}, "/limit"), ("documented", {"city": "Oslo", "unit": "F"}, "/unit"),
                                     ("filtered", {"filter": {"values": []}}, "/filter/field")):
        error = problem(each_pydantic.crib.invoke(name, arguments), 422, "invalid_arguments")
        assert pointer in [one["pointer"] for one in error["violations"]], error
