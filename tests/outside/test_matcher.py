"""The matcher of the corpus (matcher.py) must find differences: a test that cannot fail is worthless."""

import pytest

from matcher import differences


@pytest.mark.parametrize("expected, actual", [
    (1, 1), (5, 5.0), (None, None), ("a", "a"), ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}), ({"$any": True}, None),
    ({"$contains": ["Oslo", "22.5"]}, "Oslo: 22.5"), ({"$lacks": ["x", "y"]}, "abc"), ({"$json": {"a": {"$any": True}}}, '{"a": 7}'),
    ({"$has": {"a": 1}}, {"a": 1, "b": 2}), ({"$some": [{"$contains": "b"}, "a"]}, ["a", "bb"]), ({"$one_of": [1, "a"]}, "a"),
    ({"$all": [{"$contains": "a"}, {"$lacks": "b"}]}, "ac"),
])
def test_matcher_accepts_equal_values(expected, actual):
    assert differences(expected, actual) == []


@pytest.mark.parametrize("expected, actual", [
    (1, 2), (1, True), (0, False), (True, 1), ("1", 1), (None, 0), (None, ""), ({}, []), ([], None), ({"a": 1}, {}), ({}, {"a": 1}), ({"a": None}, {}),
    ([1], [1, 2]), ([1, 2], [1]), ([1, 2], [2, 1]), ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}),
    ({"$contains": ["Oslo", "rain"]}, "Oslo: 22.5"), ({"$contains": "a"}, ["a"]), ({"$lacks": "b"}, "abc"), ({"$lacks": "b"}, None),
    ({"$json": {"a": 1}}, '{"a": 2}'), ({"$json": {"a": 1}}, "{a: 1}"), ({"$json": {"a": 1}}, {"a": 1}), ({"$has": {"a": 1}}, {"a": 2}),
    ({"$has": {"a": None}}, {"b": 1}), ({"$has": {}}, []), ({"$some": ["a", "b"]}, ["a"]), ({"$some": []}, "a"), ({"$one_of": [1, 2]}, 3),
    ({"$all": [{"$contains": "a"}, {"$lacks": "c"}]}, "ac"),
])
def test_matcher_finds_differences(expected, actual):
    assert differences(expected, actual)


@pytest.mark.parametrize("mistyped", [{"$contain": "a"}, {"$any": True, "b": 1}, {"$any": False}])
def test_matcher_refuses_unknown_operators(mistyped):
    with pytest.raises((KeyError, ValueError, AssertionError)):
        differences(mistyped, "a")
