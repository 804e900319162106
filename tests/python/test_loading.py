"""Which tools are loaded, from where, and the messages of failures."""

import pytest
from harness import ok, text_of

SPEC = """
TOOL_SPEC = {"name": "%s", "description": "Says its input.", "inputSchema": {"json": {"type": "object", "properties": {"x": {"type": "string"}}}}}
def %s(tool, **kwargs):
    return {"toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": tool["input"]["x"]}]}
"""


def test_prints_go_to_the_log(workshop):
    worker, _ = workshop.load(
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


def test_syntax_error_has_its_position(workshop):
    failed = workshop.fail("x = 1\ndef f(:\n    pass\n")
    assert (failed["kind"], failed["line"]) == ("syntax", 2)
    assert failed["file"].endswith("tools_here.py") and "tools_here.py:2" in failed["message"]
    assert "def f(:" in failed["traceback"] and "toolcrib worker" not in failed["traceback"]


def test_error_without_text_is_named(workshop):
    failed = workshop.fail("class Silent(Exception):\n    def __str__(self): return 1 / 0\nraise Silent()\n")
    assert "Silent: Silent" in failed["message"] and "tools_here.py:3" in failed["message"], failed


def test_linked_folder_is_the_users_own(workshop):
    """The innermost frame of the user's code is named, also if the folder is a link to one with a longer path."""
    workshop.write("import json\njson.loads('x')\n", "far/away/site-packages/mine/m.py")
    (workshop.folder / "l").symlink_to(workshop.folder / "far" / "away" / "site-packages" / "mine")
    failed = workshop.fail_named(workshop.folder / "l" / "m.py")
    assert failed["file"].endswith("/m.py") and failed["line"] == 2, failed


def test_missing_import_is_located_in_user_file(workshop):
    failed = workshop.fail("import json\n\nimport not_installed_anywhere\n")
    assert (failed["kind"], failed["line"]) == ("import", 3)
    assert "not_installed_anywhere" in failed["message"] and "tools_here.py:3" in failed["message"]


def test_library_exception_is_located_at_user_call(workshop):
    failed = workshop.fail("import json\nsettings = json.loads('{')\n")
    assert (failed["kind"], failed["line"]) == ("exception", 2)
    assert "JSONDecodeError" in failed["message"]


def test_sibling_error_is_located_in_the_sibling(workshop):
    workshop.write("x = 1\ny = 1 / 0\n", "helper.py")
    failed = workshop.fail("import helper\n")
    assert failed["file"].endswith("helper.py") and failed["line"] == 2
    assert "ZeroDivisionError: division by zero" in failed["message"]


def test_exit_at_import_is_a_failure(workshop):
    failed = workshop.fail("import sys\nsys.exit(3)\n")
    assert (failed["kind"], failed["line"]) == ("exception", 2)
    assert "exit" in failed["message"]


def test_siblings_can_be_imported_later(workshop):
    workshop.write("WORD = 'early'", "early_one.py")
    workshop.write("WORD = 'late'", "late_one.py")
    worker, _ = workshop.load(
        """
        import early_one
        def f():
            import late_one
            return early_one.WORD + late_one.WORD
        """,
        functions=["f"],
    )
    assert text_of(ok(worker.call("f"))) == "earlylate"


def test_files_named_like_stdlib_modules_are_harmless(workshop):
    for name in ("asyncio", "json", "dataclasses", "select"):
        workshop.write("raise RuntimeError('wrong module')", f"{name}.py")
    worker, _ = workshop.load("def f(): return 1", functions=["f"])
    assert text_of(ok(worker.call("f"))) == "1"


@pytest.mark.parametrize("role", ["sync", "async", "shared"])
def test_no_role_imports_a_sibling(workshop, role):
    """Not even a module that Python imports late, as `concurrent.futures` imports `queue`."""
    workshop.write("raise RuntimeError('wrong module')", "queue.py")
    worker, _ = workshop.load("def f(): return 1", functions=["f"], role=role)
    assert text_of(ok(worker.call("f"))) == "1"


def test_siblings_may_be_named_like_files_of_the_worker(workshop):
    for name in ("calls", "main", "results", "toolcrib_worker", "wire"):
        workshop.write(f"WORD = '{name}'", f"{name}.py")
    worker, _ = workshop.load(
        """
        import calls, main, results, toolcrib_worker, wire
        def f(): return " ".join(module.WORD for module in (calls, main, results, toolcrib_worker, wire))
        """,
        functions=["f"],
    )
    assert text_of(ok(worker.call("f"))) == "calls main results toolcrib_worker wire"


def test_tool_file_may_have_a_stdlib_name(workshop):
    worker, tools = workshop.load(SPEC % ("json", "json"), name="json.py")
    assert tools["json"]["framework"] == "tool_spec"
    assert text_of(ok(worker.call("json", {"x": "y"}))) == "y"


def test_module_is_loaded_by_its_dotted_name(workshop):
    workshop.write("", "pkg/__init__.py")
    workshop.write(SPEC % ("inner", "inner"), "pkg/inner.py")
    worker = workshop.worker({"PYTHONPATH": str(workshop.folder)})
    assert worker.load("pkg.inner")["op"] == "ready"
    assert text_of(ok(worker.call("inner", {"x": "y"}))) == "y"


def test_unknown_dotted_name_is_a_failure(workshop):
    failed = workshop.fail_named("nowhere_at.all")
    assert failed["kind"] == "import"
    assert "there is no module 'nowhere_at'" in failed["message"]


def test_missing_file_is_a_failure(workshop):
    failed = workshop.fail_named(workshop.folder / "gone.py")
    assert failed["kind"] == "not_found" and "gone.py" in failed["message"]


def test_missing_function_is_reported_with_existing_ones(workshop):
    failed = workshop.fail("def forecast(city: str): ...\ndef other(): ...\n", functions=["forcast"])
    assert failed["kind"] == "not_found"
    assert "'forcast'" in failed["message"] and "forecast, other" in failed["message"]


def test_module_without_tools_is_a_failure(workshop):
    failed = workshop.fail("def f(): ...\n")
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
def test_uncreatable_object_is_a_failure(workshop, request_, kind, words):
    failed = workshop.fail(CLASS, **request_)
    assert failed["kind"] == kind, failed
    for word in words:
        assert word in failed["message"], failed


def test_file_saved_twice_within_second_is_reread(workshop):
    for word in ("one", "two"):
        worker, _ = workshop.load(f"def f(): return '{word}'", functions=["f"])
        assert text_of(worker.call("f")) == word


def test_nothing_is_written_beside_the_file(workshop):
    workshop.load("def f(): return 1", functions=["f"])
    assert [path.name for path in workshop.folder.iterdir()] == ["tools_here.py"]


def test_strands_decorator_is_provided_without_strands(workshop):
    worker, tools = workshop.load(
        "from strands import tool\nfrom strands.types.tools import ToolUse, ToolResult\n@tool\ndef f(x: int) -> str:\n    '''F.'''\n    return str(x)\n"
    )
    assert tools["f"]["framework"] == "strands"
    assert text_of(ok(worker.call("f", {"x": 1}))) == "1"

def test_other_names_of_strands_fail_only_when_they_are_called(workshop):
    text = (
        "from strands import Agent, tool\n"
        "@tool\ndef f(x: int) -> str:\n    '''F.'''\n    return str(x)\n"
        "@tool\ndef ask():\n    '''Asks.'''\n    return Agent()\n"
    )
    worker, _ = workshop.load(text)
    assert text_of(ok(worker.call("f", {"x": 1}))) == "1"
    assert "strands-agents is not installed" in text_of(worker.call("ask"))
    failed = workshop.fail(text + "agent = Agent(tools=[f])\n")
    assert failed["kind"] == "import" and "strands-agents is not installed" in failed["message"]


def test_class_file_without_object_names_the_key(workshop):
    text = (
        "from toolcrib import tool\nclass Shop:\n    @tool\n    def price(self, item: str) -> str:\n"
        "        '''Price of an item.'''\n        return '1'\n"
    )
    assert "add `object: Shop`" in workshop.fail(text)["message"]
    assert "add `object: Shop`" in workshop.fail(text, functions=["price"])["message"]
    workshop.load(text, object="Shop")


def test_installed_strands_takes_precedence(workshop):
    workshop.write("def tool(f): raise RuntimeError('the real one')", "strands/__init__.py")
    failed = workshop.fail("from strands import tool\n@tool\ndef f(): ...\n")
    assert "the real one" in failed["message"]


def test_given_source_is_run_beside_other_files(workshop):
    path = workshop.write("def (")
    workshop.write("a note", "note.txt")
    source = "import pkgutil\ndef note(): return pkgutil.get_data(__name__, 'note.txt').decode()\n"
    worker, _ = workshop.load_named(path, functions=["note"], source=source)
    assert text_of(ok(worker.call("note", {}))) == "a note"
