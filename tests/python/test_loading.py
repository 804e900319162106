"""What is loaded, from where, and what is said when it cannot be."""

import pytest
from harness import ok, text_of

SPEC = """
TOOL_SPEC = {"name": "%s", "description": "Says its input.", "inputSchema": {"json": {"type": "object", "properties": {"x": {"type": "string"}}}}}
def %s(tool, **kwargs):
    return {"toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": tool["input"]["x"]}]}
"""


def test_prints_at_import_and_in_calls_go_to_the_log(here):
    worker, _ = here.load(
        """
        import os, subprocess, sys
        print("at import")
        def f():
            print("in the call")
            sys.stderr.write("on stderr\\n")
            os.write(1, b"raw\\xff on 1\\n")
            subprocess.run(["echo", "from a child"])
            return "said"
        """,
        functions=["f"],
    )
    assert text_of(ok(worker.call("f"))) == "said"
    assert worker.close() == 0
    for line in ("at import", "in the call", "on stderr", "on 1", "from a child"):
        assert line in worker.log


def test_a_syntax_error_has_its_place(here):
    failed = here.fail("x = 1\ndef f(:\n    pass\n")
    assert (failed["kind"], failed["line"]) == ("syntax", 2)
    assert failed["file"].endswith("tools_here.py") and "tools_here.py:2" in failed["message"]
    assert "def f(:" in failed["traceback"] and "toolcrib worker" not in failed["traceback"]


def test_a_missing_import_has_its_place_in_the_users_own_file(here):
    failed = here.fail("import json\n\nimport not_installed_anywhere\n")
    assert (failed["kind"], failed["line"]) == ("import", 3)
    assert "not_installed_anywhere" in failed["message"] and "tools_here.py:3" in failed["message"]


def test_an_exception_in_a_library_is_placed_where_the_user_called_it(here):
    failed = here.fail("import json\nsettings = json.loads('{')\n")
    assert (failed["kind"], failed["line"]) == ("exception", 2)
    assert "JSONDecodeError" in failed["message"]


def test_an_error_in_a_sibling_is_placed_in_the_sibling(here):
    here.write("x = 1\ny = 1 / 0\n", "helper.py")
    failed = here.fail("import helper\n")
    assert failed["file"].endswith("helper.py") and failed["line"] == 2
    assert "ZeroDivisionError: division by zero" in failed["message"]


def test_exit_at_import_is_a_failure_not_the_end(here):
    failed = here.fail("import sys\nsys.exit(3)\n")
    assert (failed["kind"], failed["line"]) == ("exception", 2)
    assert "exit" in failed["message"]


def test_siblings_can_be_imported_also_later(here):
    here.write("WORD = 'early'", "early_one.py")
    here.write("WORD = 'late'", "late_one.py")
    worker, _ = here.load(
        """
        import early_one
        def f():
            import late_one
            return early_one.WORD + late_one.WORD
        """,
        functions=["f"],
    )
    assert text_of(ok(worker.call("f"))) == "earlylate"


def test_files_in_the_folder_named_like_pythons_own_do_not_break_the_worker(here):
    for name in ("asyncio", "json", "dataclasses", "select"):
        here.write("raise RuntimeError('wrong module')", f"{name}.py")
    worker, _ = here.load("def f(): return 1", functions=["f"])
    assert text_of(ok(worker.call("f"))) == "1"


def test_a_tool_file_named_like_a_module_of_python(here):
    worker, tools = here.load(SPEC % ("json", "json"), name="json.py")
    assert tools["json"]["framework"] == "tool_spec"
    assert text_of(ok(worker.call("json", {"x": "y"}))) == "y"


def test_a_module_by_its_dotted_name(here):
    here.write("", "pkg/__init__.py")
    here.write(SPEC % ("inner", "inner"), "pkg/inner.py")
    worker = here.worker({"PYTHONPATH": str(here.folder)})
    assert worker.load("pkg.inner")["op"] == "ready"
    assert text_of(ok(worker.call("inner", {"x": "y"}))) == "y"


def test_a_dotted_name_that_is_not_there(here):
    failed = here.fail_named("nowhere_at.all")
    assert failed["kind"] == "import"
    assert "there is no module 'nowhere_at'" in failed["message"]


def test_a_file_that_is_not_there(here):
    failed = here.fail_named(here.folder / "gone.py")
    assert failed["kind"] == "not_found" and "gone.py" in failed["message"]


def test_a_function_that_is_not_there_is_named_with_those_that_are(here):
    failed = here.fail("def forecast(city: str): ...\ndef other(): ...\n", functions=["forcast"])
    assert failed["kind"] == "not_found"
    assert "'forcast'" in failed["message"] and "forecast, other" in failed["message"]


def test_a_module_without_tools(here):
    failed = here.fail("def f(): ...\n")
    assert failed["kind"] == "not_found" and "@tool" in failed["message"]


CLASS = """
from toolcrib import tool
class Notes:
    def __init__(self, path: str):
        if not path:
            raise ValueError("an empty path")
        self.path = path
    @tool
    def where(self) -> str:
        return self.path
"""


@pytest.mark.parametrize(
    "request_, kind, words",
    [
        ({"object": "Note"}, "not_found", ["no class 'Note'", "it has Notes"]),
        ({"object": "Notes"}, "invalid", ["missing a required argument: 'path'", "tools_here.py:4"]),
        ({"object": "Notes", "init": {"path": "x", "size": 1}}, "invalid", ["unexpected keyword argument 'size'"]),
        ({"object": "Notes", "init": {"path": ""}}, "exception", ["ValueError: an empty path", "tools_here.py:6"]),
        ({"init": {"path": "x"}}, "invalid", ["`object`"]),
    ],
)
def test_an_object_that_cannot_be_made(here, request_, kind, words):
    failed = here.fail(CLASS, **request_)
    assert failed["kind"] == kind, failed
    for word in words:
        assert word in failed["message"], failed


def test_a_file_saved_twice_within_a_second_is_read_anew(here):
    for word in ("one", "two"):
        worker, _ = here.load(f"def f(): return '{word}'", functions=["f"])
        assert text_of(worker.call("f")) == word


def test_nothing_is_written_beside_the_file(here):
    here.load("def f(): return 1", functions=["f"])
    assert [path.name for path in here.folder.iterdir()] == ["tools_here.py"]


def test_without_strands_its_decorator_is_there_and_nothing_else(here):
    worker, tools = here.load(
        "from strands import tool\nfrom strands.types.tools import ToolUse, ToolResult\n@tool\ndef f(x: int) -> str:\n    '''F.'''\n    return str(x)\n"
    )
    assert tools["f"]["framework"] == "strands"
    assert text_of(ok(worker.call("f", {"x": 1}))) == "1"
    failed = here.fail("from strands import Agent\n")
    assert failed["kind"] == "import" and "strands-agents is not installed" in failed["message"]


def test_a_real_strands_on_the_path_wins_over_the_stand_in(here):
    here.write("def tool(f): raise RuntimeError('the real one')", "strands/__init__.py")
    failed = here.fail("from strands import tool\n@tool\ndef f(): ...\n")
    assert "the real one" in failed["message"]


def test_a_worker_that_is_given_its_source_runs_that_and_reads_other_files_as_they_are(here):
    path = here.write("def (")
    here.write("a note", "note.txt")
    source = "import pkgutil\ndef note(): return pkgutil.get_data(__name__, 'note.txt').decode()\n"
    worker, _ = here.load_named(path, functions=["note"], source=source)
    assert text_of(ok(worker.call("note", {}))) == "a note"
