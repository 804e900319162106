"""Rules of the two routes that call a tool which JSON Schema cannot express, so that examples obey them. Examples that break such a
rule are dropped. All others must be accepted: a 400 is then a fault of the document."""

import json

import schemathesis

CALLS = {"/tools/{name}/invoke", "/tools/{name}/validate"}
LONGEST_ID = 256


def fits_64_bits(value):
    """Larger integers are refused, not changed: `type: integer` has no such bound where any JSON is accepted."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, float):
        return not value.is_integer() or abs(value) < 2**63
    if isinstance(value, dict):
        return all(map(fits_64_bits, value.values()))
    return not isinstance(value, list) or all(map(fits_64_bits, value))


def is_object_text(text):
    """`arguments` may be a text: the JSON of an object, or nothing."""
    if not text.strip():
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and fits_64_bits(value)


def keeps_the_rules(body):
    if not isinstance(body, dict):
        return True
    arguments, page = body.get("arguments"), body.get("page")
    if isinstance(arguments, str) and not is_object_text(arguments):
        return False
    # An offset counts in the whole result, so it needs `detail: full`.
    if isinstance(page, dict) and page.get("offset") and page.get("detail") != "full":
        return False
    # `maxLength` counts characters, the service bytes.
    ids = (body.get(name) for name in ("run_id", "tool_use_id"))
    return fits_64_bits(body) and all(len(value.encode("utf-8", "replace")) <= LONGEST_ID for value in ids if isinstance(value, str))


@schemathesis.hook
def filter_case(context, case):
    is_valid = case.meta is None or case.meta.generation.mode.is_positive
    return case.operation.path not in CALLS or not is_valid or keeps_the_rules(case.body)
