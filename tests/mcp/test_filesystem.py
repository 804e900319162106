"""server-filesystem of npm: the manifest's policies apply to its tools, and so does its own access check."""

import json

import pytest

from conftest import MODES, names
from harness import alive, descendants, error_result, ok, problem, text_of


@pytest.fixture(params=MODES)
def crib(request, start, node, tmp_path):
    program, packages = node
    (tmp_path / "open").mkdir()
    (tmp_path / "closed.txt").write_text("not for you")
    entry = {"command": [program, str(packages / "server-filesystem" / "dist" / "index.js"), "./open"], "mode": request.param,
             "include": ["read_*", "write_file", "list_directory", "edit_file"], "exclude": ["read_media_file"],
             "tools": {"read_text_file": {"effect": "read", "cache": {"ttl": "1m"}}, "write_file": {"effect": "idempotent"}}}
    return start({"mcp_servers": {"files": entry}}, folder=tmp_path).ready(60)


def test_file_is_written_and_read(crib, tmp_path):
    place = tmp_path / "open" / "note.txt"
    ok(crib.invoke("files_write_file", {"path": str(place), "content": "Grüße\n"}))
    assert place.read_text() == "Grüße\n"
    answer = ok(crib.invoke("files_read_text_file", {"path": str(place)}))
    assert text_of(answer) == "Grüße\n" and answer["structured_content"] == {"content": "Grüße\n"}, answer
    assert "[FILE] note.txt" in text_of(ok(crib.invoke("files_list_directory", {"path": str(tmp_path / "open")})))


def test_paths_outside_its_folder_are_refused(crib, tmp_path):
    answer = error_result(crib.invoke("files_read_text_file", {"path": str(tmp_path / "closed.txt")}))
    assert "denied" in text_of(answer).lower() and "not for you" not in str(answer), answer
    error_result(crib.invoke("files_write_file", {"path": "/etc/toolcrib-test", "content": "x"}))


def test_only_included_tools_are_served(crib):
    there = names(crib)
    assert {"files_read_text_file", "files_write_file", "files_edit_file"} <= there, there
    assert not there & {"files_read_media_file", "files_move_file", "files_create_directory"}, there


def test_effect_is_from_manifest_or_write(crib):
    effects = {tool["name"]: tool["effect"] for tool in crib.get("/tools").json["tools"]}
    assert effects["files_read_text_file"] == "read" and effects["files_write_file"] == "idempotent", effects
    assert effects["files_edit_file"] == "write" and effects["files_list_directory"] == "write", "what a server says of itself loosens nothing"


def test_idempotency_key_runs_a_write_once(crib, tmp_path):
    place = tmp_path / "open" / "count.txt"
    place.write_text("a\n")
    edit = {"path": str(place), "edits": [{"oldText": "a\n", "newText": "aa\n"}]}
    first = crib.post("/tools/files_edit_file/invoke", body=body(edit), headers={"idempotency-key": "k1"})
    repeated = crib.post("/tools/files_edit_file/invoke", body=body(edit), headers={"idempotency-key": "k1"})
    assert first.status == repeated.status == 200 and first.body == repeated.body and repeated.headers["idempotent-replayed"] == "true", repeated
    assert place.read_text() == "aa\n"
    problem(crib.post("/tools/files_edit_file/invoke", body=body({**edit, "dryRun": True}), headers={"idempotency-key": "k1"}), 422, "idempotency_mismatch")


def test_read_is_cached_as_declared(crib, tmp_path):
    place = tmp_path / "open" / "changing.txt"
    place.write_text("one")
    read = lambda **more: ok(crib.invoke("files_read_text_file", {"path": str(place)}, **more))  # noqa: E731
    assert text_of(read()) == "one"
    place.write_text("two")
    assert (text_of(read()), text_of(read(cache="refresh"))) == ("one", "two")


def test_server_ends_with_the_service(crib, tmp_path):
    ok(crib.invoke("files_list_directory", {"path": str(tmp_path / "open")}))
    below = descendants(crib.pid)
    crib.stop()
    assert not alive(below)


def body(arguments):
    return json.dumps({"arguments": arguments})
