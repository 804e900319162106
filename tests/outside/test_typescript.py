"""TypeScript modules as sources of tools: what runs, what is shown, what changes while it runs. tests/typescript has the worker itself."""

import json
import shutil

import pytest

from harness import ok, poll, problem, text_of

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")

SOURCE = """\
import { WORD } from "./words.mjs";
import { mark } from "marks";

/**
 * Greets.
 * @param {string} name Name of a person
 */
export function greet(name) {
  return `${WORD} ${name}${mark}`;
}

/** Never returns. */
export function spin() {
  for (;;);
}
"""


@pytest.fixture
def shop(tmp_path):
    """A module with a file that it imports, and with a package in the folder above."""
    folder = tmp_path / "tools"
    folder.mkdir()
    package = tmp_path / "node_modules" / "marks"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "marks", "type": "module", "exports": "./index.js"}))
    (package / "index.js").write_text("export const mark = '!';\n")
    (folder / "words.mjs").write_text("export const WORD = 'Hello';\n")
    (folder / "shop.mjs").write_text(SOURCE)
    return folder / "shop.mjs"


def entry(path, **more):
    return {"typescript_modules": {"shop": {"module": str(path), "tools": {
        "greet": {"effect": "read"}, "spin": {"effect": "read", "timeout": "300ms", "retry": {"attempts": 1}}}, **more}}}


def greets(crib, expected):
    reply = crib.invoke("greet", {"name": "Ann"})
    return reply.status == 200 and text_of(reply) == expected


@pytest.mark.parametrize("sandbox", ["service", True])
def test_functions_are_tools(start, shop, sandbox):
    crib = start(entry(shop, sandbox=sandbox)).ready()
    poll(lambda: greets(crib, "Hello Ann!"), 30, "the module is loaded")
    tool = crib.get("/tools/greet").json
    assert (tool["kind"], tool["description"]) == ("typescript", "Greets."), tool
    assert tool["input_schema"]["required"] == ["name"], tool
    [source] = crib.get("/sources").json["sources"]
    assert (source["kind"], source["state"], source["workers"]) == ("typescript", "up", 1), source
    problem(crib.invoke("greet", {"name": 7, "nom": "Ann"}), 422, "invalid_arguments")


def test_spinning_call_is_ended_after_its_timeout(start, shop):
    crib = start(entry(shop)).ready()
    poll(lambda: greets(crib, "Hello Ann!"), 30, "the module is loaded")
    problem(crib.invoke("spin", {}), 504, "attempt_timed_out")
    ok(crib.invoke("greet", {"name": "Ann"}))
    poll(lambda: crib.get("/sources").json["sources"][0]["replaced"] == 1, 10, "the worker was replaced")


def test_changed_files_are_loaded(start, shop):
    crib = start(entry(shop)).ready()
    poll(lambda: greets(crib, "Hello Ann!"), 30, "the module is loaded")
    words = shop.with_name("words.mjs")
    words.write_text("export const WORD = 'Good day,';\n")
    poll(lambda: greets(crib, "Good day, Ann!"), 30, "the imported file is loaded again")
    shop.write_text(SOURCE.replace("${name}", "dear ${name}"))
    poll(lambda: greets(crib, "Good day, dear Ann!"), 30, "the module is loaded again")
    words.write_text("export const WORD = ;\n")
    poll(lambda: "words.mjs:1" in (crib.get("/sources").json["sources"][0]["fault"] or ""), 30, "the fault is shown")
    assert greets(crib, "Good day, dear Ann!"), "the old version stays"
