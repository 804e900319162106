"""Long results: pages of the stored result, previews, the result route, and the removal of escape sequences."""

import json

import pytest

from harness import ok, poll, problem, error_result, assert_answer_shape, text_of
from recipes import CALLERS, KEYS, command, py, sh

ROWS = "import json, sys; open('runs', 'a').write('x'); print(json.dumps([{'id': n, 'name': f'row {n}'} for n in range(1000)]))"
TEXT = "print(''.join(f'line {n} ø\\n' for n in range(12000)), end='')"


def rows(n=1000):
    return [{"id": number, "name": f"row {number}"} for number in range(n)]


def long_text():
    """The output of TEXT; a program's last line end is not part of its output."""
    return "\n".join(f"line {n} ø" for n in range(12000))


def start_listing(start, **policy):
    return start({"tools": {"list_rows": py(ROWS, effect="read", **policy)}})


def run_count(crib):
    return len((crib.folder / "runs").read_text())


def page(crib, offset=0, tool="list_rows", **more):
    return crib.invoke(tool, page=dict({"detail": "full", "offset": offset}, **more))


def part_of(answer):
    """The text of a part, without the last block of a cut result: that block tells a model about the rest."""
    content = answer["content"][:-1] if answer["meta"]["overflow"] else answer["content"]
    return text_of({"content": content})


def read_parts(get, join):
    """Follows next_offset to the end."""
    complete, offset, parts = None, 0, 0
    while offset is not None:
        answer = assert_answer_shape(get(offset).json)
        part = join(answer)
        complete = part if complete is None else complete + part
        overflow, parts = answer["meta"]["overflow"], parts + 1
        assert set(overflow) >= {"shown", "total", "hint", "next_offset"}, overflow
        assert parts < 1000, "pages must come to an end"
        offset = overflow["next_offset"]
    return complete, parts


def test_pages_of_a_cached_list_are_complete(start):
    crib = start_listing(start, cache={"ttl": "5m"})
    for structured in (True, False):
        complete, pages = read_parts(lambda offset: page(crib, offset),
                                  lambda answer: answer["structured_content"] if structured else json.loads(part_of(answer)))
        assert complete == rows() and pages == 20
    behind = ok(page(crib, 1000))
    assert behind["structured_content"] == [] and (behind["meta"]["overflow"]["shown"], behind["meta"]["overflow"]["next_offset"]) == (0, None)
    crib.restart()
    assert ok(page(crib, 950))["structured_content"] == rows()[950:], "the stored result outlives the process"
    assert run_count(crib) == 1


def test_exploring_is_limited_and_full_detail_pages(start):
    crib = start_listing(start, cache={"ttl": "5m"})
    answer = ok(crib.invoke("list_rows"))
    overflow = answer["meta"]["overflow"]
    assert answer["structured_content"] == rows(200)
    assert (overflow["shown"], overflow["total"], overflow["next_offset"]) == (200, 1000, None) and "full" in overflow["hint"]
    assert ok(crib.invoke("list_rows", page={"detail": "brief", "limit": 3}))["structured_content"] == rows(3)
    answer = ok(page(crib, 990, limit=100))
    assert answer["structured_content"] == rows()[990:] and answer["meta"]["overflow"]["next_offset"] is None
    assert ok(page(crib, 0, limit=1000))["meta"]["overflow"] is None, "all of it is no part"
    for bad in ([], {"offset": 3}, {"detail": "full", "limit": 0}, {"detail": 1}, {"detail": "full", "offset": -1}, {"size": 5}):
        assert "page" in problem(crib.invoke("list_rows", page=bad), 400, "invalid_request")["detail"]


@pytest.mark.parametrize("policy, mode", [({}, "use"), ({"cache": {"ttl": "5m"}}, "bypass"), ({"cache": {"ttl": "5m"}}, "refresh")])
def test_further_page_needs_a_stored_result(start, policy, mode):
    crib = start_listing(start, **policy)
    first = ok(crib.invoke("list_rows", cache=mode, page={"detail": "full"}))
    assert first["meta"]["overflow"]["next_offset"] == 50
    error = problem(crib.invoke("list_rows", cache=mode, page={"detail": "full", "offset": 50}), 409, "invalid_request")
    assert "GET /invocations/{id}/result" in error["detail"] and error["retryable"] is False
    assert "did not run" in text_of(error) and crib.row(error["invocation_id"])["state"] == "refused"
    assert run_count(crib) == 1
    rest = crib.get(f"/invocations/{first['invocation_id']}/result?offset=50")
    assert ok(rest)["structured_content"] == rows()[50:]


def test_result_route_returns_the_whole_result(start):
    crib = start({"tools": {"list_rows": py(ROWS, effect="read"), "write": py(TEXT, effect="read", output="text"),
                            "refuse": sh("echo no >&2; exit 3"), "secretive": sh("echo hi", capture="digest"),
                            "gone": command(["/no/such/program"], effect="read"), "slow": sh("/bin/sleep 1; echo done", effect="read"),
                            "kept": py(ROWS, effect="read", cache={"ttl": "5m"})}})
    listed, wrote = ok(crib.invoke("list_rows")), ok(crib.invoke("write"))
    path = lambda answer, query="": f"/invocations/{answer['invocation_id']}/result{query}"
    crib.row(wrote["invocation_id"])
    assert ok(crib.get(path(listed)))["structured_content"] == rows()
    assert text_of(ok(crib.get(path(wrote)))) == long_text()
    parts, _ = read_parts(lambda offset: crib.get(path(listed, f"?offset={offset}&limit=333")), lambda answer: answer["structured_content"])
    assert parts == rows()
    parts, number = read_parts(lambda offset: crib.get(path(wrote, f"?offset={offset}&limit=10000")), part_of)
    assert parts == long_text() and number == -(-len(parts) // 10000)
    refused = error_result(crib.invoke("refuse"))
    assert crib.get(path(refused)).json == refused
    assert "digest" in problem(crib.get(path(ok(crib.invoke("secretive")))), 404)["detail"]
    for failed in (crib.invoke("gone"), crib.invoke("refuse", {"n": "many"})):
        assert problem(crib.get(path(failed.json, "?offset=1"))) == problem(failed, {422, 502}), "as its caller was answered"
    for cache in ("miss", "hit"):
        answer = ok(crib.invoke("kept", page={"detail": "full"}))
        full = ok(crib.get(path(answer)))
        assert full["meta"]["cache"] == answer["meta"]["cache"] == cache and full["invocation_id"] == answer["invocation_id"]
        assert full["structured_content"] == rows() and ok(crib.get(path(answer, "?offset=998")))["structured_content"] == rows()[998:]
    running = crib.invoke("slow", headers={"prefer": "respond-async"}).json
    assert "still runs" in problem(crib.get(path(running)), 409)["detail"]
    poll(lambda: crib.get(path(running)).status == 200, what="its end")
    for unknown in ("nonsense", "0199aaaa-0000-7000-8000-000000000000"):
        problem(crib.get(f"/invocations/{unknown}/result"), 404, "invalid_request")
    for query in ("?limit=0", "?offset=-1", "?page=2"):
        problem(crib.get(path(listed, query)), 400, "invalid_request")


def test_results_belong_to_their_caller(start):
    crib = start({"callers": CALLERS, "tools": {"list_rows": py(ROWS, effect="read")}}, env=KEYS)
    answer = ok(crib.invoke("list_rows", key=KEYS["ANN"]))
    path = f"/invocations/{answer['invocation_id']}/result"
    for who, status in (("ANN", 200), ("ROOT", 200), ("BOB", 404)):
        assert crib.get(path, key=KEYS[who]).status == status, who


def test_long_text_shows_beginning_and_end(start):
    crib = start({"tools": {"write": py(TEXT, effect="read", cache={"ttl": "5m"}, output="text")}})
    complete = long_text()
    answer = ok(crib.invoke("write"))
    overflow = answer["meta"]["overflow"]
    head, tail = part_of(answer).split(f"\n[… {overflow['total'] - overflow['shown']} characters left out …]\n")
    assert complete.startswith(head) and complete.endswith(tail) and len(head) + len(tail) == overflow["shown"] == 50_000
    assert overflow["total"] == len(complete) and overflow["unit"] == "characters"
    pages, number = read_parts(lambda offset: page(crib, offset, "write"), part_of)
    assert pages == complete and number == -(-len(complete) // 50_000)
    short = start({"tools": {"say": sh("echo 'few words'", effect="read")}})
    assert text_of(ok(short.invoke("say", page={"detail": "full", "limit": 3}))) == "few words", "a limit is for lists: it tears no short text"


def test_escape_sequences_are_removed(start):
    crib = start({"tools": {"red": sh(r"printf '\033[1;31mred\033[0m\r\n\033]0;title\007done\010\000\tend'", output="text"),
                            "no": sh(r"printf '\033[31mno\033[0m' >&2; exit 1"),
                            "hidden": py(r"print('safe\u202e \U000e0041')", output="text")}})
    assert text_of(ok(crib.invoke("red"))) == "red\ndone\tend"
    assert text_of(error_result(crib.invoke("no"))) == "exit status 1: no"
    warnings = ok(crib.invoke("hidden"))["meta"]["warnings"]
    assert any("bidirectional" in one for one in warnings) and any("U+E0000" in one for one in warnings), warnings


# ---- a model's own pages -----------------------------------------------------------------------------------------------

PAGED = """
from toolcrib import tool

@tool
def rows(n: int) -> dict:
    "Lists rows."
    return {"content": [{"json": [{"id": one} for one in range(n)]}], "hint": "Ask for fewer rows."}

@tool
def clash(offset: str) -> str:
    "Takes an offset of its own."
    return offset
"""


def test_python_tool_is_read_page_by_page(start, tmp_path):
    file = tmp_path / "paged.py"
    file.write_text(PAGED)
    entry = {"module": str(file), "functions": ["rows"], "tools": {"rows": {"paging": "model"}}}
    crib = start({"python_modules": {"paged": entry}, "tools": {"read_result": {"kind": "native"}}}).ready()
    names = list(crib.get("/tools/rows").json["input_schema"]["properties"])
    assert names == ["n", "detail_level", "offset", "limit"]
    call = {"id": "c", "type": "function", "function": {"name": "rows", "arguments": '{"n": 320}'}}
    message = json.dumps({"role": "assistant", "tool_calls": [call]}).encode()
    reported = crib.post("/calls", message, headers={"content-type": "application/json"}).json["messages"][0]["content"]
    words = reported.splitlines()[-1]
    assert '"detail_level": "full", "offset": 200.' in words and words.endswith("Ask for fewer rows.]"), words
    rest = ok(crib.invoke("rows", {"n": 320, "detail_level": "full", "offset": 200}))
    assert rest["structured_content"][0] == {"id": 200} and rest["meta"]["cache"] == "hit"


def test_parameter_conflict_stops_the_module(start, tmp_path):
    file = tmp_path / "paged.py"
    file.write_text(PAGED)
    crib = start({"python_modules": {"paged": {"module": str(file), "tools": {"clash": {"paging": "model"}}}}})
    fault = lambda: str(crib.get("/sources").json["sources"][0])  # noqa: E731
    poll(lambda: "another type" in fault(), 20, "the fault")
    assert "tools.clash" in fault() and "`offset`" in fault()
