"""Schemas of other parties: a call that the server would accept reaches it, and what could not be judged is said."""

import json

import pytest

from conftest import script, start_with_servers
from harness import ok, problem, text_of


@pytest.fixture
def crib(start):
    return start_with_servers(start, s=script("schemas", defaults={"effect": "read"}))


def sent(crib, name, **arguments):
    return json.loads(text_of(crib.invoke(f"s_{name}", arguments)))


def test_default_that_does_not_fit_is_not_filled_in(crib):
    assert sent(crib, "none") == {}
    assert sent(crib, "nested") == {"y": "kept"}
    assert "must be an integer" in problem(crib.invoke("s_none", {"x": None}), 422)["detail"]
    assert not any("default" in finding for finding in map(str, crib.get("/sources").json["sources"][0]["warnings"]))


def test_time_needs_no_offset(crib):
    assert sent(crib, "naive") == {}, "the server knows the zone of its own default"
    assert sent(crib, "naive", at="2024-05-05T10:00:00") == {"at": "2024-05-05T10:00:00"}
    problem(crib.invoke("s_naive", {"at": "soon"}), 422)


def test_pattern_that_looks_ahead_is_checked(crib):
    assert sent(crib, "password", p="Abcdefg1") == {"p": "Abcdefg1"}
    assert "must match the pattern" in problem(crib.invoke("s_password", {"p": "abcdefg1"}), 422)["detail"]


def test_pattern_that_takes_too_long_passes_with_a_warning(crib):
    answer = ok(crib.invoke("s_slow_pattern", {"p": "a" * 60 + "!"}))
    assert json.loads(answer["content"][0]["text"])["p"].endswith("!")
    assert any("takes too long to compare" in warning for warning in answer["meta"]["warnings"]), answer["meta"]


def test_pattern_that_cannot_be_compiled_stands_in_the_description(crib):
    assert sent(crib, "broken_pattern", p="Any") == {"p": "Any"}
    shown = crib.get("/tools/s_broken_pattern").json["input_schema"]["properties"]["p"]
    assert shown == {"type": "string", "description": "A word. Pattern: ^[a-z"}


def test_one_form_and_both_spellings_are_enough(crib):
    assert sent(crib, "one_of", value=5) == {"value": 5}
    problem(crib.invoke("s_one_of", {"value": [5]}), 422)
    for version in ("4.1", 4.1, "4", 4):
        assert sent(crib, "enum", version=version) == {"version": version}
    problem(crib.invoke("s_enum", {"version": "5"}), 422)


def test_result_that_does_not_fit_is_passed_on(crib):
    answer = ok(crib.invoke("s_naive_result"))
    assert answer["structured_content"] == {"at": "2024-05-05T10:00:00"} and not answer["meta"]["warnings"], answer
    answer = ok(crib.invoke("s_other_result"))
    assert answer["structured_content"] == {"at": 5}
    assert any("violates the output schema" in warning for warning in answer["meta"]["warnings"]), answer["meta"]
    answer = ok(crib.invoke("s_no_result"))
    assert any("no structured content" in warning for warning in answer["meta"]["warnings"]), answer["meta"]


def test_output_check_decides_for_a_tool(start):
    crib = start_with_servers(start, s=script("schemas", defaults={"effect": "read", "output_check": "fail"},
                                              tools={"no_result": {"output_check": "off"}}))
    ok(crib.invoke("s_naive_result"))
    assert "violates the output schema" in problem(crib.invoke("s_other_result"), 502, "bad_output")["detail"]
    assert not ok(crib.invoke("s_no_result"))["meta"]["warnings"]
    assert crib.get("/tools/s_other_result").json["policy"]["output_check"] == "fail"
