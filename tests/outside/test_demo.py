"""The first minute of a newcomer: no manifest, no ledger, one command."""

import stat

from harness import ok, poll, text_of


def test_first_call_works_without_a_manifest(start):
    """`toolcrib serve` in an empty folder runs the demo tools; a call answers and is found in the ledger."""
    crib = start()
    tools = crib.get("/tools").json["tools"]
    names = {tool["name"] for tool in tools}
    assert "calculator" in names, names

    answer = ok(crib.invoke("calculator", {"expression": "6*7"}))
    assert "42" in text_of(answer)
    assert answer["tool"] == "calculator"

    rows = poll(lambda: [row for row in crib.rows() if row["invocation_id"] == answer["invocation_id"]],
                what="the call in GET /invocations")
    assert rows[0]["tool"] == "calculator" and rows[0]["state"] == "succeeded"
    assert rows[0]["arguments"] == {"expression": "6*7"} and rows[0]["caller"] == "anonymous"

    one = crib.row(answer["invocation_id"])
    assert one["state"] == "succeeded"
    assert "42" in text_of(one["result"])
    assert one["attempt_errors"] == []


def test_ledger_is_private_to_its_owner(start):
    """toolcrib.db appears in the folder with mode 0600, and so do the files SQLite puts beside it."""
    crib = start()
    ok(crib.invoke("calculator", {"expression": "1+1"}))
    files = list(crib.folder.glob("toolcrib.db*"))
    assert crib.folder / "toolcrib.db" in files
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, (file.name, oct(file.stat().st_mode))


def test_start_shows_a_curl_line(start):
    """The demo start prints a command to try, with its address."""
    crib = start()
    poll(lambda: "curl" in crib.stdout + crib.stderr, 3, "a curl line to try")
    assert sum(line.startswith("listening on ") for line in crib.stdout.splitlines()) == 1
    curl = next(line for line in (crib.stdout + crib.stderr).splitlines() if "curl" in line)
    assert str(crib.port) in curl, curl


def test_demo_tools_are_ready_for_a_model(start):
    """Every demo tool has a description, an object schema and an effect."""
    tools = start().get("/tools").json
    assert tools["next_cursor"] is None
    for tool in tools["tools"]:
        assert tool["description"].strip() and tool["input_schema"]["type"] == "object", tool
        assert tool["kind"] == "native" and tool["effect"] in ("read", "idempotent", "write"), tool
        assert tool["available"] is True and tool["definition_hash"], tool
        for key in ("output_schema", "annotations", "result_as_answer", "tags"):
            assert key in tool, (key, tool)
    hashes = [tool["definition_hash"] for tool in tools["tools"]]
    assert len(set(hashes)) == len(hashes)
