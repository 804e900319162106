"""Holds an answer against what is expected of it: JSON against JSON, with a few objects that stand for more than one value.

    {"$any": true}              anything
    {"$contains": "x"}          a text with `x` in it; a list of texts: with each of them
    {"$lacks": "x"}             a text without `x`, or without any of a list
    {"$json": …}                a text that is JSON, which matches …
    {"$has": {…}}               an object with at least these fields
    {"$some": [a, b]}           a list in which some item matches a, and some b
    {"$one_of": [a, b]}         what matches a or b
    {"$all": [a, b]}            what matches a and b

Everything else is equal or it is not: objects have the same fields, lists the same length, `true` is not 1. 5.0 is 5, as in JSON.
"""

import json


def differences(expected, actual, place="$"):
    """The differences between `actual` and `expected`: one sentence each, none when it matches."""
    if isinstance(expected, dict) and any(key.startswith("$") for key in expected):
        (name, argument), = expected.items()
        return OPERATORS[name](argument, actual, place)
    if isinstance(expected, dict) and isinstance(actual, dict):
        found = [f"{place}.{key} is missing" for key in expected if key not in actual]
        found += [f"{place}.{key} should not be there: {brief(actual[key])}" for key in actual if key not in expected]
        return found + inside(expected, actual, place)
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{place} has {len(actual)} items instead of {len(expected)}: {brief(actual)}"]
        return [one for number, (e, a) in enumerate(zip(expected, actual)) for one in differences(e, a, f"{place}[{number}]")]
    if isinstance(expected, bool) != isinstance(actual, bool) or expected != actual:
        return [f"{place} is {brief(actual)} instead of {brief(expected)}"]
    return []


def inside(expected, actual, place):
    return [one for key in expected if key in actual for one in differences(expected[key], actual[key], f"{place}.{key}")]


def contains(wanted, actual, place):
    if not isinstance(actual, str):
        return [f"{place} is no text but {brief(actual)}"]
    return [f"{place} does not contain {word!r}: {brief(actual)}" for word in listed(wanted) if word not in actual]


def lacks(unwanted, actual, place):
    if not isinstance(actual, str):
        return [f"{place} is no text but {brief(actual)}"]
    return [f"{place} contains {word!r}: {brief(actual)}" for word in listed(unwanted) if word in actual]


def as_json(expected, actual, place):
    try:
        value = json.loads(actual)
    except (TypeError, ValueError):
        return [f"{place} is not JSON as text but {brief(actual)}"]
    return differences(expected, value, f"{place}(json)")


def has(expected, actual, place):
    if not isinstance(actual, dict):
        return [f"{place} is no object but {brief(actual)}"]
    return [f"{place}.{key} is missing" for key in expected if key not in actual] + inside(expected, actual, place)


def some(expected, actual, place):
    if not isinstance(actual, list):
        return [f"{place} is no list but {brief(actual)}"]
    return [f"no item of {place} matches {brief(one)}: {brief(actual)}" for one in expected
            if not any(not differences(one, item) for item in actual)]


def one_of(choices, actual, place):
    found = [differences(choice, actual, place) for choice in choices]
    return [] if any(not one for one in found) else [f"{place} matches none of {len(choices)}: " + " / ".join(one[0] for one in found)]


def all_of(parts, actual, place):
    return [one for part in parts for one in differences(part, actual, place)]


def anything(argument, actual, place):
    assert argument is True, "$any takes true"
    return []


OPERATORS = {"$any": anything, "$contains": contains, "$lacks": lacks, "$json": as_json, "$has": has, "$some": some,
             "$one_of": one_of, "$all": all_of}


def listed(value):
    return [value] if isinstance(value, str) else value


def brief(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 300 else text[:300] + "…"
