"""crewAI: instances of BaseTool, its decorator, and a ready-made tool of crewai-tools."""

from conftest import TOOLS, compare
from harness import ok, problem, error_result, text_of

FRAMEWORK = "crewai"


def modules(framework):
    (framework.folder / "crib").mkdir()
    (framework.folder / "crib" / "note.txt").write_text("line one\nline two\n")
    (framework.folder / "note.txt").write_text("line one\nline two\n")
    return {"own": {"module": str(TOOLS / "crewai_own.py"), "workers": 1, "tools": {
        "weather_of_a_city": {"effect": "read"}, "keeps_even": {"effect": "read", "cache": {"ttl": "1h"}}}}}


def test_crewai_tools_match_the_framework(each_pydantic):
    """Under the names that crewAI gives a model, since APIs refuse those with spaces."""
    output = compare(each_pydantic, TOOLS / "crewai_own.py", [
        ("weather_of_a_city", {"city": "Oslo"}), ("weather_of_a_city", {"city": "Oslo", "days": 5, "unit": "K", "note": "ü"}),
        ("plain", {"text": "ab", "times": 3}), ("later", {"x": 1}), ("add_two_numbers", {"a": 41}), ("twice", {"text": "ha"}),
        ("read_a_files_content", {"file_path": "note.txt"}), ("read_a_files_content", {"file_path": "note.txt", "start_line": 2, "line_count": 1}),
    ])
    assert set(output["tools"]) == {"weather_of_a_city", "plain", "later", "add_two_numbers", "twice", "only_twice", "keeps_even", "keyed", "read_a_files_content"}


def test_result_as_answer(framework):
    listed = {tool["name"]: tool["result_as_answer"] for tool in framework.crib.get("/tools").json["tools"]}
    assert listed["weather_of_a_city"] is True and listed["twice"] is False
    assert ok(framework.crib.invoke("weather_of_a_city", {"city": "Oslo"}))["result_as_answer"] is True


def test_exception_is_an_error_result(framework):
    assert "Atlantis has no weather" in text_of(error_result(framework.crib.invoke("weather_of_a_city", {"city": "Atlantis"})))


def test_invalid_arguments_are_refused(each_pydantic):
    for arguments, pointer in (({}, "/city"), ({"city": "Oslo", "days": 11}, "/days"), ({"city": "Oslo", "unit": "F"}, "/unit")):
        error = problem(each_pydantic.crib.invoke("weather_of_a_city", arguments), 422, "invalid_arguments")
        assert pointer in [one["pointer"] for one in error["violations"]], error


def test_max_usage_count_is_a_limit(framework):
    """Its max_usage_count is a limit of the service: it is shown, holds over restarts, and an admin resets it."""
    crib = framework.crib
    for _ in range(2):
        assert text_of(ok(crib.invoke("only_twice", {"x": 1}))) == "used 1"
    problem(crib.invoke("only_twice", {"x": 1}), 429, "usage_limit_reached")
    usage = crib.get("/tools/only_twice").json["usage"]
    assert [(one["limit"], one["per"], one["remaining"]) for one in usage] == [(2, "lifetime", 0)], usage
    crib.restart().ready(120)
    problem(crib.invoke("only_twice", {"x": 1}), 429, "usage_limit_reached")
    assert crib.post("/tools/only_twice/usage/reset").status == 200
    assert text_of(ok(crib.invoke("only_twice", {"x": 1}))) == "used 1"


def test_environment_variables_are_declared(framework):
    """They are listed; a default applies; a required one that is not set is reported."""
    crib = framework.crib
    env = {one["name"]: (one["required"], one["default"]) for one in crib.get("/tools/keyed").json["env"]}
    assert env == {"PLAIN_KEY": (True, None), "PLAIN_UNITS": (False, "km")}
    assert text_of(ok(crib.invoke("keyed"))) == "km"
    (source,) = crib.get("/sources").json["sources"]
    assert any("`keyed` needs the variable PLAIN_KEY" in warning for warning in source["warnings"]), source


def test_cache_function_decides_what_is_stored(framework):
    """Even results are stored, odd ones are not; a cache function that fails stores nothing."""
    for x, stored in ((2, True), (3, False), (4, True), (0, False)):
        output = [ok(framework.crib.invoke("keeps_even", {"x": x})) for _ in range(2)]
        assert [one["meta"]["cache"] for one in output] == ["miss", "hit" if stored else "miss"], (x, output)
