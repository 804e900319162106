"""The worker as a package: the size of its files, their imports, and what is imported when."""

import ast
import functools

import pytest
from harness import WORKER, ok, worker_files

MAX_LINES = 350
ADAPTERS = ["frameworks/crewai.py", "frameworks/langchain.py", "frameworks/strands.py", "frameworks/tool_spec.py"]
FRAMEWORKS = ["crewai", "langchain", "langchain_core", "pydantic", "strands"]
PATHS = [path.relative_to(WORKER).as_posix() for path in [*worker_files(), WORKER / "boot.py"]]


@functools.lru_cache(maxsize=None)
def parsed(path):
    return ast.parse((WORKER / path).read_text())


def module_path(parts):
    """The file of a module, or None if a file of a package defines the name."""
    for path in ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"])):
        if path in PATHS:
            return path
    return None


def own_imports(path):
    """The files of the worker that a file imports, also inside functions."""
    folder, found = path.split("/")[:-1], set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")]
            found |= {module_path([part for part in base if part])}
    return found


def outside_imports(path):
    """The modules of others that a file imports."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", PATHS)
def test_each_file_is_short_and_says_its_idea(path):
    assert ast.get_docstring(parsed(path)), "it has no docstring"
    assert len((WORKER / path).read_text().splitlines()) <= MAX_LINES


def test_files_import_each_other_without_circles():
    imports, done = {path: own_imports(path) for path in PATHS}, set()
    assert imports["frameworks/crewai.py"] >= {"tools.py", "schema/json_schema.py"}, "the imports are read"

    def visit(path, way):
        assert path not in way, " imports ".join([*way[way.index(path) :], path])
        if path not in done:
            for imported in imports[path]:
                visit(imported, [*way, path])
            done.add(path)

    for path in PATHS:
        visit(path, [])


LOADED = """
import sys
def f(): return sorted(sys.modules)
"""


def loaded_modules(worker):
    """(files of the worker, modules of others) that a worker has imported."""
    names = ok(worker.call("f"))["structured_content"]
    own = {tuple(name.split(".")[1:]) for name in names if name.startswith("<toolcrib worker>")}
    return {module_path(list(parts)) for parts in own}, {name for name in names if not name.startswith("<")}


def test_worker_imports_only_what_a_module_needs(workshop):
    worker, _ = workshop.load(LOADED, functions=["f"])
    own, others = loaded_modules(worker)
    assert own == set(PATHS) - set(ADAPTERS) - {"boot.py", "async_role.py"}
    assert not others & set(FRAMEWORKS)
    worker, _ = workshop.load(LOADED, functions=["f"], role="shared")
    assert loaded_modules(worker)[0] == set(PATHS) - set(ADAPTERS) - {"boot.py", "sync_role.py"}
    decorated = "from strands import tool\n@tool\ndef f():\n    '''F.'''\n    import sys\n    return {'names': sorted(sys.modules)}\n"
    worker, _ = workshop.load(decorated)
    names = ok(worker.call("f"))["structured_content"]["names"]
    assert [name for name in names if name.startswith("<toolcrib worker>.frameworks.")] == [
        "<toolcrib worker>.frameworks.strands",
        "<toolcrib worker>.frameworks.strands_stub",
    ]


def test_adapters_import_no_further_module_of_python(workshop):
    """Otherwise a file of the user with the same name would be imported, because adapters are imported after the user's module."""
    worker, _ = workshop.load(LOADED, functions=["f"])
    _, others = loaded_modules(worker)
    for path in ADAPTERS:
        assert outside_imports(path) <= others, path


def test_tracebacks_name_files_of_the_worker(workshop):
    worker, _ = workshop.load("import traceback\ndef f(): return ''.join(traceback.format_stack())\n", functions=["f"])
    stack = ok(worker.call("f"))["content"][0]["text"]
    assert '"<toolcrib worker/sync_role.py>"' in stack and '"<toolcrib worker/functions.py>"' in stack
