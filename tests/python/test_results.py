"""Results: everything that a function may return, yield or raise."""

import base64
import json

import pytest
from harness import ok, error_text, text_of

HEAD = """
import collections, dataclasses, datetime, decimal, enum, pathlib, uuid
from typing import *
class Color(enum.Enum):
    RED = 'red'
class Text(str): ...
class Odd:
    def __str__(self): return 'odd one'
class Words(Mapping):
    def __getitem__(self, key): return 1
    def __iter__(self): return iter(['a'])
    def __len__(self): return 1
@dataclasses.dataclass
class Point:
    x: float
    color: Color = Color.RED
"""


def result_of(workshop, expression):
    worker, _ = workshop.load(HEAD + f"def f(): return {expression}\n", functions=["f"])
    return worker.call("f")


@pytest.mark.parametrize(
    "expression, text",
    [
        ("'plain \\u00e9\\n'", "plain é\n"),
        ("Text('sub')", "sub"),
        ("''", ""),
        ("3", "3"),
        ("2.5", "2.5"),
        ("10 ** 40", "1" + "0" * 40),
        ("True", "true"),
        ("float('nan')", "NaN"),
        ("Color.RED", "red"),
        ("decimal.Decimal('1.10')", "1.10"),
        ("datetime.datetime(2031, 1, 2, 3, 4)", "2031-01-02T03:04:00"),
        ("pathlib.PurePosixPath('a/b')", "a/b"),
        ("Odd()", "odd one"),
        ("'half \\ud800 pair'", "half \ufffd pair"),
        ("'\\ud83d\\ude00'", "😀"),
        ("'\\x00\\x1b'", "\x00\x1b"),
    ],
)
def test_single_value_is_text(workshop, expression, text):
    answer = ok(result_of(workshop, expression))
    assert [block["text"] for block in answer["content"]] == [text]
    assert answer["structured_content"] is None


def test_none_is_an_empty_result(workshop):
    assert ok(result_of(workshop, "None"))["content"] == []


@pytest.mark.parametrize(
    "expression, data",
    [
        ("{'a': [1, None, 'é']}", {"a": [1, None, "é"]}),
        ("[]", []),
        ("(1, 2)", [1, 2]),
        ("{3, 1, 2}", [1, 2, 3]),
        ("Point(1.5)", {"x": 1.5, "color": "red"}),
        ("[Point(1.5)]", [{"x": 1.5, "color": "red"}]),
        ("{'d': decimal.Decimal('1.10'), 'u': uuid.UUID(int=1), 't': datetime.timedelta(seconds=2), 'b': b'hi'}",
         {"d": "1.10", "u": "00000000-0000-0000-0000-000000000001", "t": 2.0, "b": "aGk="}),
        ("{1: 'a', None: 'b', (1, 2): 'c', Color.RED: 'd', datetime.date(2031, 1, 2): 'e'}", {"1": "a", "null": "b", "[1, 2]": "c", "red": "d", "2031-01-02": "e"}),
        ("{'x': float('nan'), 'y': [float('inf')]}", {"x": None, "y": [None]}),
        ("Words()", {"a": 1}),
        ("collections.deque([1])", [1]),
        ("{'odd': Odd()}", {"odd": "odd one"}),
        ("{'status': 'ok', 'content': 'not a tool result'}", {"status": "ok", "content": "not a tool result"}),
        ("{'s': 'half \\ud800'}", {"s": "half \ufffd"}),
    ],
)  # fmt: skip
def test_collection_is_structured_with_its_json_text(workshop, expression, data):
    answer = ok(result_of(workshop, expression))
    assert answer["structured_content"] == data
    assert json.loads(text_of(answer)) == data


def test_non_json_number_is_named(workshop):
    lost = result_of(workshop, "{'x': float('inf'), 'y': [1, {'z': -float('inf')}], 2: float('nan')}")
    assert lost["warnings"] == [
        "x: not a JSON number (inf), sent as null",
        "y[1].z: not a JSON number (-inf), sent as null",
        "2: not a JSON number (nan), sent as null",
    ]
    many = result_of(workshop, "[float('nan')] * 7")["warnings"]
    assert many[0] == "[0]: not a JSON number (nan), sent as null" and len(many) == 6
    assert many[-1] == "2 more values are not JSON numbers, sent as null"
    assert result_of(workshop, "{'x': None, 'y': 1.5}")["warnings"] == result_of(workshop, "float('inf')")["warnings"] == []


def test_collection_text_is_compact(workshop):
    assert text_of(result_of(workshop, "{'a': [1, 'é']}")) == '{"a":[1,"é"]}'


PNG = b"\x89PNG\r\n\x1a\nrest"


@pytest.mark.parametrize(
    "data, kind, mime",
    [
        (PNG, "image", "image/png"),
        (b"\xff\xd8\xffx", "image", "image/jpeg"),
        (b"RIFF0000WAVEx", "audio", "audio/wav"),
        (b"%PDF-1.7", "resource", "application/pdf"),
        (b"\x00\x01", "resource", "application/octet-stream"),
    ],
)
def test_bytes_are_typed_by_their_signature(workshop, data, kind, mime):
    (block,) = ok(result_of(workshop, repr(data)))["content"]
    inner = block["resource"] if kind == "resource" else block
    assert block["type"] == kind and inner["mimeType"] == mime
    assert base64.b64decode(inner["blob" if kind == "resource" else "data"]) == data


def test_strands_tool_result_is_converted(workshop):
    answer = ok(result_of(workshop, f"""{{"status": "success", "content": [
        {{"text": "words"}}, {{"json": {{"a": 1}}}}, {{"image": {{"format": "png", "source": {{"bytes": {PNG!r}}}}}}},
        {{"image": {{"format": "jpg", "source": {{"bytes": "aGk="}}}}}},
        {{"document": {{"format": "pdf", "name": "my report", "source": {{"bytes": b"%PDF-"}}}}}},
        {{"document": {{"format": "csv", "name": "t", "source": {{"bytes": b"a,b"}}}}}}]}}"""))  # fmt: skip
    assert answer["structured_content"] == {"a": 1}
    assert answer["content"] == [
        {"type": "text", "text": "words"},
        {"type": "text", "text": '{"a":1}'},
        {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"},
        {"type": "image", "data": "aGk=", "mimeType": "image/jpeg"},
        {"type": "resource", "resource": {"uri": "result:///my%20report.pdf", "mimeType": "application/pdf", "blob": "JVBERi0="}},
        {"type": "resource", "resource": {"uri": "result:///t.csv", "mimeType": "text/csv", "text": "a,b"}},
    ]


def test_several_json_items_are_a_list(workshop):
    parts = [{"json": {"a": 1}}, {"text": "words"}, {"json": [2]}, {"json": 3}]
    answer = ok(result_of(workshop, repr({"status": "success", "content": parts})))
    assert answer["structured_content"] == [{"a": 1}, [2], 3]
    assert [block["text"] for block in answer["content"]] == ['{"a":1}', "words", "[2]", "3"]
    assert ok(result_of(workshop, repr({"status": "success", "content": [{"text": "words"}, {"json": 3}]})))["structured_content"] == 3


def test_result_as_answer_flag_is_passed(workshop):
    for flag in (True, False):
        for more in ({}, {"status": "success"}):
            answer = ok(result_of(workshop, repr({"content": [{"text": "42"}], "result_as_answer": flag, **more})))
            assert (answer["content"], answer["result_as_answer"]) == ([{"type": "text", "text": "42"}], flag)
    assert "result_as_answer" not in ok(result_of(workshop, repr({"status": "success", "content": [{"text": "42"}]})))
    data = {"content": [{"text": "42"}], "result_as_answer": "yes"}
    assert ok(result_of(workshop, repr(data)))["structured_content"] == data, "any other value is the tool's own"


def test_hint_is_one_short_line(workshop):
    """None and an empty text are no hint; line ends and closing brackets would end the text that a model reads around it."""
    for hint, reported in (("Name a city.", "Name a city."), ("a\n]\n[b", "a ) [b"), ("x" * 1000, "x" * 300), (None, None), (" ", None)):
        answer = ok(result_of(workshop, repr({"content": [{"text": "42"}], "hint": hint})))
        assert (answer["content"], answer.get("hint")) == ([{"type": "text", "text": "42"}], reported), answer
    data = {"content": [{"text": "42"}], "hint": 5}
    assert ok(result_of(workshop, repr(data)))["structured_content"] == data


def test_tool_result_may_hold_mcp_blocks(workshop):
    blocks = [
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "notes://1", "mimeType": "text/plain", "text": "words"}},
        {"type": "resource", "resource": {"uri": "notes://2", "blob": "aGk="}},
    ]
    content = [{"text": "first"}, *blocks, {"type": "text", "text": "last"}]
    answer = ok(result_of(workshop, repr({"status": "success", "content": content})))
    assert answer["content"] == [{"type": "text", "text": "first"}, *blocks, {"type": "text", "text": "last"}]
    # Not quite: a resource holds a text or a blob.
    halves = {"type": "resource", "resource": {"uri": "notes://3"}}
    assert ok(result_of(workshop, repr({"status": "success", "content": [halves]})))["structured_content"]["content"] == [halves]


def test_error_status_is_an_error_result(workshop):
    assert error_text(result_of(workshop, "{'status': 'error', 'content': [{'text': 'no such city'}]}")) == "no such city"


@pytest.mark.parametrize(
    "body, words",
    [
        ("x = []; x.append(x); return x", "nested too deeply"),
        ("x = {}; x['x'] = [x]; return x", "nested too deeply"),
        ("x = []\n    for _ in range(200): x = [x]\n    return x", "nested deeper than 100"),
        ("x = []\n    for _ in range(200000): x = [x]\n    return x", "nested"),
        ("return 'x' * 2000", "bytes long; the limit is 1000"),
        ("return ['é' * 600]", "bytes long; the limit is 1000"),
        ("class Bad:\n        def __str__(self): raise RuntimeError('no text')\n    return Bad()", "no text"),
        ("return {'status': 'success', 'content': [{'image': {'format': 'png', 'source': {'bytes': '***'}}}]}", "base64"),
    ],
)
def test_unusable_result_is_bad_output(workshop, body, words):
    worker, _ = workshop.load(f"def f():\n    {body}\ndef g(): return 1\n", functions=["f", "g"], max_result=1000)
    answer = worker.call("f")
    assert (answer["op"], answer["kind"]) == ("failed_call", "bad_output"), answer
    assert words in answer["message"], answer
    assert text_of(ok(worker.call("g"))) == "1"


def test_integer_beyond_the_digit_limit(workshop):
    answer = result_of(workshop, "10 ** 5000")
    if answer["op"] == "failed_call":  # 3.11 and later, and patched older ones
        assert "more digits than Python writes" in answer["message"]
    else:
        assert len(text_of(answer)) == 5001


def test_hundred_levels_are_not_too_deep(workshop):
    assert ok(result_of(workshop, "eval('[' * 90 + ']' * 90)"))["structured_content"]
    assert ok(result_of(workshop, "['[{' * 500, '\"[' * 500]"))["structured_content"]


@pytest.mark.parametrize(
    "raised, text",
    [
        ("ValueError('bad day')", "Error: bad day"),
        ("KeyError('x')", "Error: KeyError: 'x'"),
        ("RuntimeError()", "Error: RuntimeError"),
        ("SystemExit(3)", "Error: SystemExit: 3"),
        ("KeyboardInterrupt()", "Error: KeyboardInterrupt"),
        ("type('Odd', (BaseException,), {'__str__': lambda self: 1 / 0})()", "Error: Odd"),
    ],
)
def test_exception_is_shown_and_its_traceback_sent_for_the_log(workshop, raised, text):
    worker, _ = workshop.load(f"def f(): raise {raised}\nasync def g(): raise {raised}\n", functions=["f", "g"])
    assert error_text(worker.call("f")) == text
    assert error_text(worker.call("g")) == text
    assert len(worker.tracebacks) == 2, worker.tracebacks
    for line, (traceback, name) in enumerate(zip(worker.tracebacks, "fg"), 1):
        before, found, _ = traceback.partition(f"line {line}, in {name}")
        assert found, traceback
        assert 'tools_here.py", ' in before and "toolcrib worker" not in before, traceback


def test_long_traceback_keeps_its_end(workshop):
    worker, _ = workshop.load("def f(): raise ValueError('x' * 100000 + ' the end')\n", functions=["f"])
    worker.call("f")
    [traceback] = worker.tracebacks
    assert len(traceback) < 10_000 and traceback.rstrip().endswith(" the end")


def test_strands_exceptions_have_their_framework_text(workshop):
    worker, _ = workshop.load("from strands import tool\n@tool\ndef f(v: bool):\n    raise ValueError('v') if v else KeyError('k')\n")
    assert [error_text(worker.call("f", {"v": v})) for v in (True, False)] == ["Error: v", "Error: KeyError - 'k'"]
    worker, _ = workshop.load(
        "TOOL_SPEC = {'name': 's', 'description': 'd', 'inputSchema': {}}\ndef s(tool): raise KeyError('call boom')\n", name="s.py"
    )
    assert error_text(worker.call("s")) == "Error: 'call boom'"


GENERATORS = """
def steps(n: int):
    for i in range(n):
        yield {"step": i}
async def asteps(n: int):
    for i in range(n):
        yield i
def returns():
    yield "half"
    return "all of it"
def breaks():
    yield 1
    raise ValueError("in the middle")
def odd():
    yield object
    yield float("nan")
"""
NAMES = ["steps", "asteps", "returns", "breaks", "odd"]


def test_yields_are_progress_and_last_result(workshop):
    worker, tools = workshop.load(GENERATORS, functions=NAMES)
    assert [tools[name]["mode"] for name in NAMES] == ["sync", "async", "sync", "sync", "sync"]
    seen, end = worker.watch("steps", {"n": 2})
    assert seen == [{"step": 0}, {"step": 1}] and end["structured_content"] == {"step": 1}
    seen, end = worker.watch("asteps", {"n": 3})
    assert seen == [0, 1, 2] and text_of(end) == "2"
    assert worker.watch("steps", {"n": 0})[1]["content"] == []
    assert worker.watch("asteps", {"n": 0})[1]["content"] == []
    seen, end = worker.watch("returns")
    assert seen == ["half"] and text_of(end) == "all of it"
    seen, end = worker.watch("breaks")
    assert seen == [1] and error_text(end) == "Error: in the middle"
    assert worker.watch("odd")[0] == ["<class 'object'>", None]


REPORTS = """
def crawl():
    yield {"progress": 1, "total": 2}
    yield {"progress": 2, "total": 2}
    yield {"crawled": 2}
async def acrawl():
    yield {"progress": 1}
    yield {"found": "a"}
    yield {"progress": 2}
    yield {"crawled": 2}
"""


def test_last_value_after_reports_is_only_the_result(workshop):
    worker, _ = workshop.load(REPORTS, functions=["crawl", "acrawl"])
    seen, end = worker.watch("crawl")
    assert seen == [{"progress": 1, "total": 2}, {"progress": 2, "total": 2}] and end["structured_content"] == {"crawled": 2}
    seen, end = worker.watch("acrawl")
    assert seen == [{"progress": 1}, {"found": "a"}, {"progress": 2}] and end["structured_content"] == {"crawled": 2}


def test_unwatched_call_sends_no_progress(workshop):
    worker, _ = workshop.load(GENERATORS, functions=NAMES)
    assert worker.call("steps", {"n": 3})["structured_content"] == {"step": 2}


def test_too_long_progress_is_dropped(workshop):
    worker, _ = workshop.load("def f():\n    yield 'x' * 2000\n    yield 'ok'\n", functions=["f"], max_result=1000)
    seen, end = worker.watch("f")
    assert seen == ["ok"] and text_of(end) == "ok"
    worker.close()
    assert "dropped" in worker.log
