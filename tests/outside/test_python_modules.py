"""Python modules as sources of tools: what cannot be loaded, what changes while it runs, clashes, interpreters, the command line."""

import json
import pathlib
import subprocess
import sys
import time

import pytest

from harness import alive, children, clean_env, cli, is_zombie, in_background, now, ok, poll, problem, elapsed, text_of
from recipes import CALLERS, KEYS, PYTHON, module, to_yaml

FILES = pathlib.Path(__file__).resolve().parent / "modules"
GOOD = "def greet(name: str) -> str:\n    'Greets somebody.'\n    return f'{WORD} {name}'\n"


def greeting_source(word="Hello"):
    return f"WORD = {word!r}\n\n\n{GOOD}"


def write(path, text):
    """As an editor does: a new file replaces the old one."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def names(crib):
    return {tool["name"]: tool["available"] for tool in crib.get("/tools").json["tools"]}


def verbose(crib):
    return crib.get("/readyz?verbose")


def assert_greets(crib, word, tool="greet"):
    reply = crib.invoke(tool, {"name": "Ann"})
    return reply.status == 200 and text_of(reply) == f"{word} Ann"


# ---- what cannot be loaded ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source, entry, line, words", [
    ("import os\n\ndef greet(:\n    pass\n", {}, 3, ["syntax"]),
    ("import os\nimport no_such_module_here\n", {}, 2, ["no_such_module_here"]),
    ("x = 1\ny = x / 0\n", {}, 2, ["ZeroDivisionError", "division by zero"]),
    ("def other() -> int:\n    return 1\n", {}, None, ["greet"]),
    ("class Tools:\n    def __init__(self, url):\n        self.url = url + 1\n", {"object": "Tools", "init": {"url": "x"}}, 3, ["Tools", "TypeError"]),
    ("class Tools:\n    def __init__(self, url):\n        pass\n", {"object": "Tools", "init": {"uri": "x"}}, None, ["Tools", "uri"]),
    ("class Tool:\n    pass\n", {"object": "Tools"}, None, ["Tools"]),
    ("import sys\nsys.exit(3)\n", {}, 2, ["SystemExit", "exit"]),
    ("import os\nos._exit(3)\n", {}, None, ["exit", "ended", "3"]),
])
def test_load_error_has_a_position_and_recovers(start, tmp_path, source, entry, line, words):
    """The service is up and ready, its other tools work; the names that the manifest knows answer 503; mended, they work."""
    path = tmp_path / "broken.py"
    path.write_text(source)
    crib = start({"tools": {"calculator": {"kind": "native"}}, "python_modules": {
        "broken": module(path, functions=["greet"], tools={"greet": {"effect": "read"}}, **entry)}}).ready()
    place = f"broken.py:{line}" if line else "broken"
    crib.wait_for_log(place)
    poll(lambda: any(word.lower() in crib.stderr.lower() for word in words), 5, "what is wrong, in the log")
    reported = verbose(crib)
    assert reported.status == 200 and place in reported.body.decode(), reported
    assert any(word.lower() in reported.body.decode().lower() for word in words), reported
    assert crib.get("/livez").status == 200
    ok(crib.invoke("calculator", {"expression": "6*7"}))
    reply = crib.invoke("greet", {"name": "Ann"})
    problem(reply, 503, "tool_unavailable")
    assert names(crib).get("greet") in (None, False)
    assert str(tmp_path) not in text_of(reply.json), "a model need not know where files are"
    if entry:
        write(path, "class Tools:\n    def __init__(self, **kwargs):\n        pass\n\n    def greet(self, name: str) -> str:\n"
                    "        'Greets.'\n        return f'Hello {name}'\n")
    else:
        write(path, greeting_source())
    poll(lambda: assert_greets(crib, "Hello"), 15, "mended")
    assert names(crib)["greet"] is True
    poll(lambda: "broken.py" not in verbose(crib).body.decode(), 5, "nothing to complain of")


def test_invalid_function_does_not_affect_others(start, tmp_path):
    """An invalid function is reported with its line, and the others are served."""
    (tmp_path / "some.py").write_text(
        "from toolcrib import tool\n\n\n@tool\ndef good(a: int) -> int:\n    'Good.'\n    return a\n\n\n"
        "@tool(name='not a name!')\ndef bad(a: int) -> int:\n    'Bad.'\n    return a\n")
    crib = start({"python_modules": {"some": module(tmp_path / "some.py")}}).ready()
    assert names(crib) == {"good": True}
    crib.wait_for_log("not a name!")
    crib.wait_for_log("some.py:1")
    assert text_of(ok(crib.invoke("good", {"a": 1}))) == "1"


def test_policy_for_missing_tool_stops_module(start, tmp_path):
    """An operator who meant to limit a tool gets the nearest name; no tool is served without its policy."""
    (tmp_path / "some.py").write_text(greeting_source())
    crib = start({"python_modules": {"some": module(tmp_path / "some.py", functions=["greet"], tools={"greeet": {"effect": "read"}})}}).ready()
    crib.wait_for_log("greeet")
    crib.wait_for_log("did you mean")
    assert "tools.greeet: the source has no such tool; did you mean `greet`?" in verbose(crib).body.decode()
    assert names(crib) == {"greeet": False, "greet": False} and crib.get("/tools?format=openai").json == [], "known by name, and not to be called"
    error = problem(crib.invoke("greet", {"name": "Ann"}), 503, "tool_unavailable")
    assert "source `some` could not be loaded" in error["detail"] and error["retryable"] is True and error["retry_after_ms"] >= 1000, error
    write(crib.manifest, crib.manifest.read_text().replace("greeet", "greet"))
    poll(lambda: assert_greets(crib, "Hello"), 15, "the corrected policy")


def test_policies_of_the_manifest_apply(start, tmp_path):
    (tmp_path / "some.py").write_text("import os\n" + greeting_source() + "\n\ndef word() -> str:\n    'A word.'\n    return os.environ['KEY']\n")
    policy = {"effect": "read", "timeout": "9s", "description": "Says hello to a person.", "aliases": ["hail"], "tags": ["t"],
              "annotations": {"title": "W"}, "limits": [{"calls": 2, "per": "day"}]}
    entry = module(tmp_path / "some.py", prefix="w_", functions=["greet", "word"], environment={"KEY": "value-of-key"}, tools={"greet": policy})
    crib = start({"defaults": {"timeout": "20s"}, "python_modules": {"some": entry}}).ready()
    tool, plain = crib.get("/tools/hail").json, crib.get("/tools/w_word").json
    assert [tool[key] for key in ("name", "kind", "origin", "effect", "description", "tags")] == [
        "w_greet", "python", "manifest", "read", policy["description"], ["t"]], tool
    assert (tool["annotations"]["title"], tool["policy"]["timeout"], plain["policy"]["timeout"], plain["effect"]) == ("W", "9s", "20s", "write")
    assert ok(crib.invoke("hail", {"name": "Ann"}))["meta"]["usage"][0]["remaining"] == 1
    assert text_of(ok(crib.invoke("w_word"))) == "value-of-key"


def test_duplicate_name_in_manifest_is_error(tmp_path):
    """A conflict that is visible without loading is an error of the manifest, with both positions."""
    (tmp_path / "one.py").write_text(greeting_source())
    entry = {"functions": ["greet"], "tools": {"greet": {"effect": "read"}}}
    for manifest in ({"python_modules": {"one": module("./one.py", **entry), "two": module("./one.py", **entry)}},
                     {"tools": {"greet": {"kind": "native", "use": "calculator"}}, "python_modules": {"one": module("./one.py", **entry)}}):
        (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
        done = cli("check", cwd=tmp_path)
        assert done.returncode == 64 and "greet" in done.stdout + done.stderr and "taken" in done.stdout + done.stderr, done


def test_duplicate_name_in_files_serves_one(start, tmp_path):
    """The manifest's own tool, and one of two files, keep the name; the log and readyz report the other. A prefix helps."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("from toolcrib import tool\n\n\n" + greeting_source(name).replace("def greet", "@tool\ndef greet"))
    one, two = (module(tmp_path / f"{name}.py") for name in ("one", "two"))
    crib = start({"python_modules": {"one": one, "two": two}}).ready()
    crib.wait_for_log("greet")
    assert assert_greets(crib, "one") or assert_greets(crib, "two"), crib.invoke("greet", {"name": "Ann"})
    assert "greet" in verbose(crib).body.decode() and "taken" in verbose(crib).body.decode()
    crib = start({"tools": {"greet": {"kind": "native", "use": "calculator"}}, "python_modules": {"one": one}}).ready()
    assert text_of(ok(crib.invoke("greet", {"expression": "6*7"}))) == "42"
    assert "greet" in verbose(crib).body.decode()
    crib = start({"python_modules": {"one": one, "two": dict(two, prefix="two_")}}).ready()
    assert assert_greets(crib, "one") and assert_greets(crib, "two", "two_greet")


# ---- changes while it runs ---------------------------------------------------------------------------------------------

def test_changed_file_is_loaded_beside_running_calls(start, tmp_path):
    path = tmp_path / "tools.py"
    text = "import time\n\n\ndef greet(name: str, pause: float = 0.0) -> str:\n    'Greets.'\n    time.sleep(pause)\n    return f'{WORD} {name}'\n"
    path.write_text("WORD = 'Hello'\n" + text)
    crib = start({"python_modules": {"m": module(path, functions=["greet"])}}).ready()
    hash_before = crib.get("/tools/greet").json["definition_hash"]
    slow = in_background(lambda: crib.invoke("greet", {"name": "Ann", "pause": 4}))
    crib.wait_row("state=running")
    write(path, "WORD = 'Salut'\n" + text.replace("'Greets.'", "'Greets in French.'"))
    poll(lambda: assert_greets(crib, "Salut"), 10, "the new version")
    assert crib.get("/tools/greet").json["description"] == "Greets in French."
    assert crib.get("/tools/greet").json["definition_hash"] != hash_before
    assert text_of(ok(slow())) == "Hello Ann", "it was begun by the old version"
    poll(lambda: len([pid for pid in children(crib.pid) if not is_zombie(pid)]) <= 2, 10, "the old workers are gone")


def test_invalid_edit_keeps_the_old_version(start, tmp_path):
    path = tmp_path / "tools.py"
    path.write_text(greeting_source("Hello"))
    crib = start({"python_modules": {"m": module(path, functions=["greet"], tools={"greet": {"effect": "read"}})}}).ready()
    write(path, greeting_source("Broken") + "\ndef oops(:\n")
    crib.wait_for_log("tools.py:8", 10)
    for _ in range(5):
        assert assert_greets(crib, "Hello"), crib.invoke("greet", {"name": "Ann"})
        time.sleep(0.1)
    assert "tools.py:8" in verbose(crib).body.decode()
    assert names(crib) == {"greet": True}
    # It serves on although its own file is broken, also when its worker has to be replaced.
    write(path, greeting_source("Mended"))
    poll(lambda: assert_greets(crib, "Mended"), 10, "the mended version")


def test_tools_change_with_the_file(start, tmp_path):
    path = tmp_path / "tools.py"
    one = "from toolcrib import tool\n\n\n@tool\ndef one() -> int:\n    'One.'\n    return 1\n"
    path.write_text(one)
    crib = start({"python_modules": {"m": module(path)}}).ready()
    etag = crib.get("/tools").headers["etag"]
    write(path, one + "\n\n@tool\ndef two() -> int:\n    'Two.'\n    return 2\n")
    poll(lambda: names(crib) == {"one": True, "two": True}, 10, "a second tool")
    assert crib.get("/tools").headers["etag"] != etag
    write(path, one.replace("one", "three"))
    poll(lambda: names(crib) == {"three": True}, 10, "another tool")
    problem(crib.invoke("one"), 404, "unknown_tool")


def test_modules_change_with_the_manifest(start, tmp_path):
    (tmp_path / "tools.py").write_text(greeting_source())
    manifest = {"tools": {"calculator": {"kind": "native"}}}
    crib = start(manifest).ready()
    assert not children(crib.pid)
    with_module = dict(manifest, python_modules={"m": module(tmp_path / "tools.py", functions=["greet"])})
    write(crib.manifest, to_yaml(with_module))
    poll(lambda: assert_greets(crib, "Hello"), 10, "the module's tool")
    pids = children(crib.pid)
    write(crib.manifest, to_yaml(dict(with_module, tools={"calculator": {"kind": "native", "timeout": "9s"}})))
    poll(lambda: crib.get("/readyz").json["reloads"]["taken"] == 2, 10, "another manifest")
    assert assert_greets(crib, "Hello")
    assert set(pids) & set(children(crib.pid)), "an entry that has not changed keeps its workers"
    entry = with_module["python_modules"]["m"]

    def reload(**changes):
        before = crib.get("/readyz").json["reloads"]["taken"]
        write(crib.manifest, to_yaml(dict(manifest, python_modules={"m": dict(entry, **changes)})))
        poll(lambda: crib.get("/readyz").json["reloads"]["taken"] > before, 10, "another manifest")
        status = crib.get("/sources").json["sources"][0]
        return status["state"], status["fault"], crib.get("/tools/greet").json["effect"]

    assert reload(tools={"greet": {"effect": "read"}}) == ("up", None, "read")
    missing = "tools.great: the source has no such tool; did you mean `greet`?; the previous tools stay in service"
    assert reload(tools={"great": {"effect": "read"}}) == ("up", missing, "read"), "the policies before stay"
    assert reload() == ("up", None, "write")
    assert set(pids) & set(children(crib.pid)), "another policy starts no worker"
    reload(environment={"KEY": "other"})
    poll(lambda: not set(pids) & set(children(crib.pid)), 15, "other variables need other workers")
    assert assert_greets(crib, "Hello")
    write(crib.manifest, to_yaml(manifest))
    poll(lambda: "greet" not in names(crib), 10, "it is gone")
    poll(lambda: not children(crib.pid), 10, "and its workers")


def test_many_changes_leave_one_set_of_workers(start, tmp_path):
    path = tmp_path / "tools.py"
    path.write_text(greeting_source("w0"))
    crib = start({"python_modules": {"m": module(path, functions=["greet"])}}).ready()
    for number in range(1, 11):
        write(path, greeting_source(f"w{number}"))
        time.sleep(0.15)
    poll(lambda: assert_greets(crib, "w10"), 15, "the last version")
    poll(lambda: len(children(crib.pid)) <= 2, 10, "one set of workers")


def test_restart_route_loses_no_call(start_plain, tmp_path):
    """For an admin: new processes, no call lost; others may not, and what is not there is not there."""
    path = tmp_path / "tools.py"
    path.write_text("import os, time\n\n\ndef pid(pause: float = 0.0) -> int:\n    'Its process.'\n    time.sleep(pause)\n    return os.getpid()\n")
    crib = start_plain({"callers": CALLERS, "python_modules": {"m": module(path, functions=["pid"], workers=2)}}, env=KEYS).ready()
    root, ann = KEYS["ROOT"], KEYS["ANN"]
    before = text_of(ok(crib.invoke("pid", key=ann)))
    slow = in_background(lambda: crib.invoke("pid", {"pause": 2}, key=ann))
    poll(lambda: crib.rows('state=running', key=ann), 5, 'it runs')
    problem(crib.post("/sources/m/restart", key=ann), 403, "forbidden")
    problem(crib.post("/sources/m/restart"), 401, "unauthenticated")
    problem(crib.post("/sources/other/restart", key=root), 404)
    reply = crib.post("/sources/m/restart", key=root)
    assert reply.status in (200, 202, 204), reply
    poll(lambda: text_of(ok(crib.invoke("pid", key=ann))) not in (before, ""), 10, "a new process")
    ok(slow())


# ---- interpreters ------------------------------------------------------------------------------------------------------

def test_default_interpreter_is_python3_of_the_path(start, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(PYTHON)
    (tmp_path / "tools.py").write_text("import sys\n\n\ndef version() -> list:\n    'Version.'\n    return list(sys.version_info[:3])\n")
    entry = {"module": str(tmp_path / "tools.py"), "functions": ["version"]}
    crib = start({"python_modules": {"m": entry}}, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}).ready()
    assert ok(crib.invoke("version"))["structured_content"] == list(sys.version_info[:3])


@pytest.mark.parametrize("what, words", [("other program", "cat"), ("old", "3.9"), ("not executable", "python")])
def test_unusable_interpreters_are_reported(start, tmp_path, what, words):
    (tmp_path / "tools.py").write_text(greeting_source())
    entry = module(tmp_path / "tools.py", functions=["greet"])
    if what == "other program":
        entry["interpreter"] = "/bin/cat"
    elif what == "not executable":
        (tmp_path / "python").write_text("#!/bin/sh\n")
        entry["interpreter"] = str(tmp_path / "python")
    else:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.version_info = (3, 8, 18, 'final', 0)\nsys.version = '3.8.18 (as if)'\n")
        entry["environment"] = {"PYTHONPATH": str(tmp_path)}
    began = now()
    crib = start({"tools": {"calculator": {"kind": "native"}}, "python_modules": {"m": entry}}).ready()
    assert elapsed(began) < 20
    crib.wait_for_log(words)
    assert words in verbose(crib).body.decode(), verbose(crib)
    problem(crib.invoke("greet", {"name": "Ann"}), 503, "tool_unavailable")
    ok(crib.invoke("calculator", {"expression": "1"}))


def test_worker_needs_only_the_standard_library(start, tmp_path):
    """The worker needs the standard library only; the folder of the file is importable, the working folder is the manifest's."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sibling.py").write_text("WORD = 'Hello from beside'\n")
    (tmp_path / "lib" / "tools.py").write_text("import os\nfrom sibling import WORD\n\n\ndef greet(name: str) -> str:\n    'Greets.'\n"
                                               "    import sibling\n    return f'{sibling.WORD} {name}'\n\n\ndef where() -> str:\n    'Where.'\n    return os.getcwd()\n")
    crib = start({"python_modules": {"m": module("../lib/tools.py", functions=["greet", "where"])}}, folder=tmp_path / "crib").ready()
    assert assert_greets(crib, "Hello from beside")
    assert text_of(ok(crib.invoke("where"))) == str(tmp_path / "crib")


def test_file_named_like_a_library_is_harmless(start, tmp_path):
    """json.py and typing.py as tool files do not harm the worker."""
    for name in ("calendar", "random"):
        (tmp_path / f"{name}.py").write_text(greeting_source(name))
    crib = start({"python_modules": {"a": module(tmp_path / "calendar.py", functions=["greet"], prefix="a_"),
                                     "b": module(tmp_path / "random.py", functions=["greet"], prefix="b_")}}).ready()
    assert assert_greets(crib, "calendar", "a_greet") and assert_greets(crib, "random", "b_greet")


def test_importable_module_is_loaded(start, tmp_path):
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    for folder in ("pkg", "pkg/sub"):
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "pkg" / "sub" / "tools.py").write_text("from . import word\nWORD = word.WORD\n" + GOOD)
    (tmp_path / "pkg" / "sub" / "word.py").write_text("WORD = 'Packed'\n")
    crib = start({"python_modules": {"m": module("pkg.sub.tools", functions=["greet"], environment={"PYTHONPATH": str(tmp_path)}),
                                     "std": module("textwrap", functions=["shorten"], prefix="std_")}}).ready()
    assert assert_greets(crib, "Packed")


@pytest.fixture(scope="module")
def pypi(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pypi")
    if subprocess.run([PYTHON, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("python3 -m venv does not work here")
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), "iniconfig==2.0.0"],
                          env=clean_env(home=folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    if done.returncode:
        pytest.skip("PyPI is out of reach")


def with_requirements(tmp_path, text):
    """A module that needs a package, and the requirements that name it."""
    (tmp_path / "requirements.txt").write_text(text)
    (tmp_path / "tools.py").write_text("import iniconfig\n\n\ndef parse(text: str) -> dict:\n    'Parses.'\n"
                                       "    return {s.name: dict(s.items()) for s in iniconfig.IniConfig('x', text)}\n")
    entry = module(tmp_path / "tools.py", functions=["parse"], requirements=str(tmp_path / "requirements.txt"))
    del entry["interpreter"]
    return {"python_modules": {"m": entry}}


def with_this_python(tmp_path):
    """A path on which python3 is this suite's own: Debian's has no ensurepip."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    if not (tmp_path / "bin" / "python3").exists():
        (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
        (tmp_path / "bin" / "python3").chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}


def test_requirements_are_installed_once(start, tmp_path, pypi):
    manifest, env = with_requirements(tmp_path, "iniconfig==2.0.0\n"), with_this_python(tmp_path)
    crib = start(manifest, env=env)
    crib.ready(120)
    assert ok(crib.invoke("parse", {"text": "[a]\nb=c\n"}))["structured_content"] == {"a": {"b": "c"}}
    poll(lambda: "requirements" in crib.stderr or "install" in crib.stderr, 5, "a line about it in the log")
    crib.stop()
    began = now()
    crib.start().ready(30)
    assert elapsed(began) < 3, "it is there already"
    assert ok(crib.invoke("parse", {"text": "[a]\nb=c\n"}))
    ours = [path for path in pathlib.Path(tmp_path).rglob("pyvenv.cfg")]
    assert len(ours) == 1, ours


def test_uninstallable_requirements_are_reported(start, tmp_path, pypi):
    """The reason is reported, other tools work, no partial environment is used; corrected requirements are."""
    manifest, env = with_requirements(tmp_path, "iniconfig==999.0.0\n"), with_this_python(tmp_path)
    crib = start(dict(manifest, tools={"calculator": {"kind": "native"}}), env=env)
    crib.ready(120)
    crib.wait_for_log("999.0.0")
    assert "999.0.0" in verbose(crib).body.decode() or "requirements" in verbose(crib).body.decode()
    problem(crib.invoke("parse", {"text": ""}), 503, "tool_unavailable")
    ok(crib.invoke("calculator", {"expression": "1"}))
    write(tmp_path / "requirements.txt", "iniconfig==2.0.0\n")
    poll(lambda: crib.invoke("parse", {"text": "[a]\nb=c\n"}).status == 200, 120, "mended")


def test_service_runs_while_requirements_are_installed(start, tmp_path, pypi):
    """Other tools answer at once; readyz waits; a shutdown meanwhile is quick and leaves no process."""
    # A package whose build takes longer than the start waits for sources, even a local one.
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/setup.py").write_text("import time; time.sleep(4); from setuptools import setup; setup(name='slow', version='1')")
    needed = f"iniconfig==2.0.0\nslow @ file://{tmp_path}/slow\n"
    manifest, env = with_requirements(tmp_path, needed), with_this_python(tmp_path)
    crib = start(dict(manifest, tools={"calculator": {"kind": "native"}}), env=env)
    ok(crib.invoke("calculator", {"expression": "1"}))
    assert crib.get("/readyz").status == 503
    problem(crib.invoke("parse", {"text": ""}), 503, "tool_unavailable")
    there, began = children(crib.pid), now()
    crib.stop()
    assert elapsed(began) < 8
    poll(lambda: not alive(there), 3, "no process")
    crib.start().ready(120)
    assert ok(crib.invoke("parse", {"text": "[a]\nb=c\n"})), "what was half-built is built anew"


# ---- the manifest and the command line -----------------------------------------------------------------------------------

@pytest.mark.parametrize("entry, place, words", [
    ("{module: ./tools.py, wrokers: 2}", "wrokers", "workers"), ("{module: ./tools.py, workers: 0}", "workers", "1"),
    ("{module: ./tools.py, workers: many}", "workers", "whole number"), ("{workers: 2}", "module", "module"), ("{module: 5}", "module", "quotes"),
    ("{module: ./tools.py, functions: greet}", "functions", "[greet]"), ("{module: ./tools.py, init: {a: 1}}", "init", "object"),
    ("{module: ./tools.py, tools: {greet: {timeout: soon}}}", "timeout", "soon"),
    ("{module: ./tools.py, tools: {greet: {efect: read}}}", "efect", "effect"),
    ("{module: ./tools.py, environment: {A: '${env:NOT_THERE_AT_ALL}'}}", "environment", "NOT_THERE_AT_ALL"),
    ("{module: ./no_such_file.py}", "module", "no_such_file.py"), ("{module: ./tools.py, interpreter: /opt/no-such-python}", "interpreter", "no-such-python"),
    ("{module: ./tools.py, interpreter: python3, requirements: ./requirements.txt}", "m", "requirements"),
])
def test_check_reports_what_is_wrong_and_where(tmp_path, entry, place, words):
    (tmp_path / "tools.py").write_text(greeting_source())
    (tmp_path / "requirements.txt").write_text("")
    (tmp_path / "toolcrib.yaml").write_text(f"python_modules:\n  m: {entry}\n")
    done = cli("check", cwd=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode == 64, text
    assert "toolcrib.yaml:2:" in text and f"python_modules.m" in text and place in text and words in text, text


def test_check_accepts_a_valid_module(tmp_path):
    (tmp_path / "tools.py").write_text(greeting_source())
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"python_modules": {"m": module("./tools.py", functions=["greet"], tools={"greet": {"effect": "read"}})}}))
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tools_and_call_work_without_a_server(tmp_path):
    (tmp_path / "tools.py").write_text(greeting_source())
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"python_modules": {"m": module("./tools.py", functions=["greet"])}}))
    done = cli("tools", "--format", "openai", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["function"]["name"] == "greet"
    done = cli("call", "greet", '{"name": "Ann"}', cwd=tmp_path)
    assert done.returncode == 0 and "Hello Ann" in done.stdout, done.stdout + done.stderr
    done = cli("call", "greet", '{"nam": "Ann"}', cwd=tmp_path)
    assert done.returncode != 0 and "name" in done.stdout + done.stderr
    (tmp_path / "tools.py").write_text("def greet(:\n")
    done = cli("call", "greet", '{"name": "Ann"}', cwd=tmp_path)
    assert done.returncode != 0 and "tools.py:1" in done.stdout + done.stderr, done.stdout + done.stderr
    done = cli("tools", cwd=tmp_path)
    assert "tools.py:1" in done.stdout + done.stderr, done.stdout + done.stderr


def test_included_manifests_may_have_modules(start, tmp_path):
    (tmp_path / "crib" / "more").mkdir(parents=True)
    (tmp_path / "crib" / "more" / "tools.py").write_text(greeting_source())
    (tmp_path / "crib" / "more" / "more.yaml").write_text(to_yaml({"python_modules": {"m": module("./tools.py", functions=["greet"])}}))
    crib = start({"include": ["more/*.yaml"]}, folder=tmp_path / "crib").ready()
    assert assert_greets(crib, "Hello"), "relative paths start at the file they stand in"


def test_metrics_and_usage_include_python_tools(start, tmp_path):
    (tmp_path / "tools.py").write_text(greeting_source())
    crib = start({"python_modules": {"m": module(tmp_path / "tools.py", functions=["greet"])}}).ready()
    assert assert_greets(crib, "Hello")
    assert 'tool="greet"' in crib.get("/metrics").body.decode()
    assert poll(lambda: [one for one in crib.get("/usage").json["tools"] if one["tool"] == "greet"], 5, "usage")[0]["succeeded"] == 1
    assert "invoke_greet" in crib.get("/openapi.json").body.decode()
