"""Real model messages, each with its expected answer: every case of tests/corpus, against one service. tests/corpus/README.md defines
the cases. `pytest tests/outside/test_corpus.py -k NAME` runs one."""

import collections
import json
import urllib.parse

import pytest

from corpus import cases, post, start_service
from harness import KINDS, poll, assert_answer_shape
from matcher import differences

FIELDS = {"name", "about", "query", "body", "text", "before", "expect"}
EXPECTED = {"dialect", "messages", "results", "ran", "warnings", "result_as_answer"}
REFUSED = {"status", "problem", "ran"}
NOT_NOTED = {"calculator", "take_screenshot", "get_order", "get_invoice", "slow"}  # these do not write into `ran`


@pytest.fixture(scope="module")
def crib(tmp_path_factory):
    with start_service(tmp_path_factory.mktemp("corpus")) as crib:
        yield crib


@pytest.mark.parametrize("case", cases())
def test_case_passes(crib, case, request):
    noted = crib.folder / "ran"
    run = request.node.callspec.id
    for message in case.get("before", []):
        assert post(crib, case, message, run).status == 200
    noted.write_text("")
    rows_before = len(wait_for_rows(crib, run))

    reply = post(crib, case, case["text"] if "text" in case else case["body"], run)
    answer, expect = reply.json, case["expect"]
    if "status" in expect:
        assert reply.status == expect["status"], reply
        wrong = differences({"$has": expect["problem"]}, answer)
        assert answer["kind"] in KINDS and answer["content"], answer
    else:
        assert reply.status == 200, reply
        wrong = wrong_answer(expect, answer)
    assert not wrong, "\n".join(wrong) + f"\nthe whole answer: {json.dumps(answer, ensure_ascii=False, indent=1)}"
    check_what_ran(crib, noted, run, rows_before, expect["ran"])


def wrong_answer(expect, answer):
    wrong = differences(expect["dialect"], answer["dialect"], "dialect")
    wrong += differences(expect["messages"], answer["messages"], "messages")
    wrong += differences(expect.get("result_as_answer", False), answer["result_as_answer"], "result_as_answer")
    wrong += differences(expect.get("warnings", []), answer["warnings"], "warnings")
    if len(answer["results"]) != len(expect["results"]):
        return wrong + [f"{len(answer['results'])} results instead of {len(expect['results'])}"]
    for number, (expected, result) in enumerate(zip(expect["results"], answer["results"])):
        wrong += wrong_result(expected, result, f"results[{number}]")
    return wrong


def wrong_result(expected, result, place):
    """An invoke answer or a problem. Fields that the case does not name are not compared, except the two of `meta` that report changes:
    they must be empty."""
    expected = dict(expected)
    coercions, warnings = expected.pop("coercions", []), expected.pop("warnings", [])
    if "kind" in expected:
        if "kind" not in result:
            return [f"{place} should be a problem: {result}"]
        assert result["kind"] in KINDS and result["detail"] and result["content"], result
    else:
        if "kind" in result:
            return [f"{place} should not be a problem: {result}"]
        meta = assert_answer_shape(result)["meta"]
        got = [[one["pointer"], one["from"], one["to"]] for one in meta["coercions"]]
        wrong = differences(coercions, got, f"{place}.meta.coercions") + differences(warnings, meta["warnings"], f"{place}.meta.warnings")
        if wrong:
            return wrong
    return differences({"$has": expected}, result, place)


def check_what_ran(crib, noted, run, rows_before, ran):
    """Two witnesses: the runs that the tools recorded, with their arguments, and the ledger."""
    wanted = collections.Counter(run_line(tool, arguments) for tool, arguments in ran if tool not in NOT_NOTED)
    wrote = collections.Counter(run_line(*line.split(" ", 1)) for line in noted.read_text(encoding="utf-8").split("\n")[:-1])
    assert wrote == wanted, f"the tools ran as {sorted(wrote)} instead of {sorted(wanted)}"
    rows = wait_for_rows(crib, run, rows_before + len(ran))[: -rows_before or None]
    tried = collections.Counter(row["tool"] for row in rows if row["attempts"])
    assert tried == collections.Counter(tool for tool, _ in ran), f"in the ledger: {tried}"
    requests = collections.Counter(run_line(row["tool"], row["arguments"]) for row in rows if row["attempts"] and row["tool"] in NOT_NOTED)
    assert requests == collections.Counter(run_line(tool, arguments) for tool, arguments in ran if tool in NOT_NOTED)


def wait_for_rows(crib, run, at_least=0):
    """The run's rows, newest first, when so many are written and all have ended."""
    def look():
        rows = crib.rows("limit=100&run_id=" + urllib.parse.quote(run))
        return (len(rows) >= at_least and all(row["state"] not in ("reserved", "running") for row in rows)) and [rows]
    return poll(look, what=f"{at_least} rows of {run}")[0]


def run_line(tool, arguments):
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return f"{tool} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"


# ---- can these tests fail? -------------------------------------------------------------------------------------------------

def test_every_case_is_well_formed():
    names = [param.id for param in cases()]
    assert len(names) >= 130 and len(set(names)) == len(names), "each has a name of its own"
    for param in cases():
        case, = param.values
        assert set(case) <= FIELDS and ("body" in case) != ("text" in case), param.id
        expect = case["expect"]
        assert (set(expect) == REFUSED) if "status" in expect else ({"dialect", "messages", "results", "ran"} <= set(expect) <= EXPECTED), param.id
        assert all(len(one) == 2 and isinstance(one[1], dict) for one in expect["ran"]), param.id


def test_matcher_notices_wrong_answers():
    """A right answer, and each thing that may be wrong with it."""
    result = {"invocation_id": "1", "tool": "ping", "tool_use_id": "c1", "is_error": False, "content": [{"type": "text", "text": "pong"}],
              "structured_content": None, "result_as_answer": False,
              "meta": {"cache": "off", "attempts": 1, "duration_ms": 1.0, "usage": [], "coercions": [], "overflow": None, "warnings": []}}
    expect = {"dialect": "openai", "messages": [{"role": "tool", "tool_call_id": "c1", "content": "pong"}],
              "results": [{"tool": "ping", "is_error": False}], "ran": [["ping", {}]]}
    answer = {"dialect": "openai", "messages": [{"role": "tool", "tool_call_id": "c1", "content": "pong"}], "result_as_answer": False,
              "results": [result], "warnings": []}
    assert wrong_answer(expect, answer) == []
    coerced = dict(result, meta=dict(result["meta"], coercions=[{"pointer": "/a", "from": "string", "to": "integer"}]))
    problem = {"kind": "unknown_tool", "detail": "no", "content": [{"type": "text", "text": "no"}]}
    for change in ({"dialect": "anthropic"}, {"messages": []}, {"result_as_answer": True}, {"warnings": ["?"]}, {"results": []},
                   {"results": [coerced]}, {"results": [problem]}, {"results": [dict(result, tool="pong")]}):
        assert wrong_answer(expect, dict(answer, **change)), change
