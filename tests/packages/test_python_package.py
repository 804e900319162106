"""The Python package: built, installed into clean environments, and used against the real service."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import Venv, file_server, first_call, only_the_ledger, run, without_program
from harness import REPO

PACKAGE = REPO / "python"


def test_artefacts_hold_the_package_and_its_types(artefacts):
    wheel = next(artefacts.glob("*-py3-none-any.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"toolcrib/__init__.py", "toolcrib/py.typed", "toolcrib/_client.py"} <= names
    assert not any(name.startswith("toolcrib/_bin/") for name in names)
    with tarfile.open(next(artefacts.glob("toolcrib-[0-9].[0-9].[0-9].tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"pyproject.toml", "src/toolcrib/py.typed"} <= names


def test_source_distribution_can_be_installed(artefacts, tmp_path):
    venv = Venv(tmp_path / "venv")
    venv.install(next(artefacts.glob("toolcrib-[0-9].[0-9].[0-9].tar.gz")))
    assert venv.run("-c", "import toolcrib; print(toolcrib.__version__)").strip() == "0.1.0"


def test_pure_package_reports_missing_program(installed):
    environment = {name: value for name, value in os.environ.items() if name != "TOOLCRIB_BIN"} | {"PATH": ""}
    done = subprocess.run([installed.folder / "bin" / "toolcrib", "--version"], env=environment, text=True, capture_output=True)
    assert done.returncode == 1
    assert "it is the pure package" in done.stderr


def test_source_passes_mypy_strict(installed):
    installed.run("-m", "mypy", "--strict", "--cache-dir", os.devnull, PACKAGE / "src")


TYPED = """
from toolcrib import Client, ToolContext, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

@tool(name="mul", context=True)
def multiply(a: int, b: int, tool_context: ToolContext) -> int:
    tool_context.progress({"a": a})
    return a * b

reveal_type(add)
reveal_type(multiply)
reveal_type(Client().invoke("x"))
add("1", 2)
Client().invoke("x", runid="r")
"""


def test_decorator_keeps_the_types_of_the_function(installed, tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    done = subprocess.run(
        [installed.python, "-m", "mypy", "--strict", "--cache-dir", os.devnull, tmp_path / "typed.py"], text=True, capture_output=True
    )
    assert 'Revealed type is "def (a: int, b: int) -> int"' in done.stdout.replace("builtins.", "")
    assert "def (a: int, b: int, tool_context: toolcrib._tool.ToolContext) -> int" in done.stdout.replace("builtins.", "")
    assert done.stdout.count("error:") == 2 and 'incompatible type "str"' in done.stdout and 'keyword argument "runid"' in done.stdout, done.stdout


# Each test of these files runs in the clean environment, with the fixture of the package.
TOOLS = '''
from toolcrib import ToolContext, tool


@tool(context=True)
def greet(name: str, tool_context: ToolContext) -> str:
    """Greets a customer.

    Args:
        name: Name of the customer.
    """
    tool_context.progress({"name": name})
    language = tool_context.invocation_state.get("language")
    return f"{'Hei' if language == 'no' else 'Hello'}, {name}!"


@tool
def fail(reason: str) -> str:
    """Fails, to show errors.

    Args:
        reason: The text of the error.
    """
    raise ValueError(reason)


@tool(context=True)
def wait(seconds: float, tool_context: ToolContext) -> str:
    """Waits until it is cancelled.

    Args:
        seconds: Longest time.
    """
    for at in range(3):
        tool_context.progress({"at": at, "text": "ü\\u2028" * 500})
    tool_context.cancel_signal.wait(seconds)
    return "done"


@tool(context=True)
async def book(nights: int, tool_context: ToolContext) -> str:
    """Books a room.

    Args:
        nights: Number of nights.
    """
    answer = await tool_context.ask("Which room?", {"type": "object", "properties": {"room": {"type": "string"}}}, name="room")
    return f"{nights} nights, {answer.content['room']}"
'''

MANIFEST = """
python_modules:
  tools:
    module: ./tools.py
    interpreter: PYTHON
    context: [language]
    tools:
      greet: {effect: read}
      fail: {effect: read}
      wait: {effect: read}
tools:
  calculator: {kind: native}
  checked: {kind: native, use: calculator, approval: {by: [anonymous], wait: 1ms}}
toolsets:
  people: {tools: [greet, book]}
"""

TESTS = r'''
import asyncio
import json
import threading

import pytest

from toolcrib import Answer, AsyncClient, Client, NotAsked, ToolContext, ToolcribError
from tools import greet

pytestmark = pytest.mark.toolcrib(manifest="toolcrib.yaml")


def test_tool_can_be_called_without_the_service():
    context = ToolContext(invocation_state={"language": "no"}, timeout=5)
    assert greet("Ada", context) == "Hei, Ada!"
    assert context.reports == [{"name": "Ada"}] and 4 < context.deadline <= 5


def test_questions_are_answered_from_a_list():
    context = ToolContext(answers=[Answer(content={"room": "garden"})])
    answer = asyncio.run(context.ask("Which room?", name="room"))
    assert answer.accepted and answer.content == {"room": "garden"}
    assert context.questions == [{"message": "Which room?", "schema": None, "name": "room"}]
    with pytest.raises(NotAsked):
        asyncio.run(context.ask("And now?"))


def test_invoke_returns_the_answer(toolcrib):
    answer = toolcrib.invoke("greet", {"name": "Ada"}, context={"language": "no"}, run_id="r-1", timeout=5)
    assert answer["content"] == [{"type": "text", "text": "Hei, Ada!"}]
    row = next(toolcrib.invocations(tool="greet"))
    assert (row["run_id"], row["state"]) == ("r-1", "succeeded")


def test_error_of_a_tool_is_an_answer(toolcrib):
    answer = toolcrib.invoke("fail", {"reason": "no room"})
    assert answer["is_error"] and "no room" in answer["content"][0]["text"]


def test_problem_raises(toolcrib):
    with pytest.raises(ToolcribError) as caught:
        toolcrib.invoke("greet", {"nam": "Ada"})
    error = caught.value
    assert (error.kind, error.status, error.retryable) == ("invalid_arguments", 422, False)
    assert error.violations and error.content[0]["type"] == "text"
    with pytest.raises(ToolcribError) as caught:
        toolcrib.invoke("gret", {"name": "Ada"})
    assert (caught.value.kind, caught.value.did_you_mean) == ("unknown_tool", ["greet"])


def test_unknown_option_is_refused(toolcrib):
    with pytest.raises(TypeError, match="no option 'runid'"):
        toolcrib.invoke("greet", {"name": "Ada"}, runid="x")


def test_idempotency_key_replays(toolcrib):
    first = toolcrib.invoke("greet", {"name": "Ada"}, idempotency_key="k-1")
    assert toolcrib.invoke("greet", {"name": "Ada"}, idempotency_key="k-1")["invocation_id"] == first["invocation_id"]


def test_stream_yields_progress_and_result(toolcrib):
    events = list(toolcrib.stream("wait", {"seconds": 0}))
    assert [event.type for event in events] == ["progress"] * 3 + ["result"]
    assert events[1].data["data"] == {"at": 1, "text": "ü\u2028" * 500}
    assert events[-1].data["content"][0]["text"] == "done"


def test_stream_raises_for_a_refused_call(toolcrib):
    with pytest.raises(ToolcribError) as caught:
        list(toolcrib.stream("greet", {}))
    assert caught.value.kind == "invalid_arguments"


def test_cancel_ends_a_running_call(toolcrib):
    accepted = toolcrib.invoke("wait", {"seconds": 60}, prefer="respond-async")
    toolcrib.cancel(accepted["invocation_id"])
    states = set()
    while not states & {"cancelled", "unknown"}:
        states.add(toolcrib.invocation(accepted["invocation_id"])["state"])
    assert "cancelled" in states


def test_calls_takes_a_message_of_a_model(toolcrib):
    call = {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": json.dumps({"expression": "6*7"})}}
    completion = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    for run, message in [("r-1", completion), ("r-2", json.dumps(completion))]:
        done = toolcrib.calls(message, run_id=run, cache="bypass")
        assert done["dialect"] == "openai" and done["messages"][0]["content"] == "42", done
    text = '[TOOL_CALL]{"tool_name": "calculator", "arguments": {"expression": "1+1"}}[/TOOL_CALL]'
    assert toolcrib.calls(text)["results"][0]["content"][0]["text"] == "2"
    assert toolcrib.calls(text, run_id="r-3")["results"][0]["content"][0]["text"] == "2"


def test_tools_come_in_shape_of_provider(toolcrib):
    assert {tool["name"] for tool in toolcrib.tools()} == {"greet", "fail", "wait", "book", "calculator", "checked"}
    assert {tool["function"]["name"] for tool in toolcrib.tools(format="openai")} == {tool["name"] for tool in toolcrib.tools()}
    assert toolcrib.tool("greet")["policy"]["effect"] == "read"
    assert toolcrib.validate("greet", {"name": "Ada"})["valid"]


def test_part_of_the_tools_is_listed(toolcrib):
    names = lambda **options: [tool["name"] for tool in toolcrib.tools(**options)]
    assert names(toolset="people") == ["book", "greet"]
    assert names(query="waiting", limit=1, detail="brief") == ["wait"]
    assert len(names(run_id="r-1", discovery="off")) == 6
    brief, full = (toolcrib.tools("openai", toolset="people", detail=detail) for detail in ("brief", None))
    assert len(json.dumps(brief)) < len(json.dumps(full))
    with pytest.raises(TypeError, match="a list has no option 'toolsets'"):
        toolcrib.tools(toolsets="people")
    with pytest.raises(ToolcribError, match="there is no toolset `peple`; there are people"):
        toolcrib.tools(toolset="peple")

    async def listed():
        async with AsyncClient(toolcrib._base) as client:
            return await client.tools(toolset="people", query="room")

    assert [tool["name"] for tool in asyncio.run(listed())] == ["book"]


def test_invocations_reads_all_pages(toolcrib):
    for number in range(7):
        toolcrib.invoke("calculator", {"expression": f"{number}+1"})
    assert len(list(toolcrib.invocations(limit=2))) == 7
    assert sum(row["calls"] for row in toolcrib.usage()) == 7


def test_waiting_call_is_decided(toolcrib):
    asked = [toolcrib.invoke("checked", {"expression": "1+1"})["invocation_id"] for _ in range(2)]
    assert {row["invocation_id"] for row in toolcrib.approvals(state="waiting")} == set(asked)
    toolcrib.approve(asked[0], "fine", {"expression": "2+2"})
    assert toolcrib.wait(asked[0])["result"]["content"][0]["text"] == "4"
    toolcrib.deny(asked[1], note="no")
    assert toolcrib.wait(asked[1])["kind"] == "approval_denied"


def test_question_is_answered(toolcrib):
    asked = toolcrib.invoke("book", {"nights": 2})
    assert asked["question"]["name"] == "room"
    toolcrib.answer(asked["invocation_id"], {"room": "garden"}, question="room")
    assert toolcrib.wait(asked["invocation_id"])["result"]["content"][0]["text"] == "2 nights, garden"


def test_tools_are_switched_and_sources_listed(toolcrib):
    toolcrib.disable("calculator")
    with pytest.raises(ToolcribError) as caught:
        toolcrib.invoke("calculator", {"expression": "1"})
    assert caught.value.kind == "tool_disabled"
    toolcrib.enable("calculator")
    assert not toolcrib.invoke("calculator", {"expression": "1"})["is_error"]
    assert [(source["name"], source["state"]) for source in toolcrib.sources()] == [("tools", "up")]


def test_events_of_the_service_have_ids(toolcrib):
    later = threading.Timer(0.5, toolcrib.invoke, ["calculator", {"expression": "1"}])
    later.start()
    event = next(event for event in toolcrib.events() if event.type == "invocation.ended")
    later.join()
    assert event.data["tool"] == "calculator" and event.id
    toolcrib.invoke("calculator", {"expression": "2"})
    assert next(toolcrib.events(event.id)).type == "invocation.ended"


def test_both_clients_have_the_same_methods():
    public = lambda client: {name: getattr(client, name).__annotations__.keys() for name in dir(client) if not name.startswith("_")}
    assert public(Client) == public(AsyncClient)


def test_async_client_does_the_same(toolcrib):
    async def use():
        async with AsyncClient(toolcrib._base) as client:
            answers = await asyncio.gather(*(client.invoke("calculator", {"expression": f"{n}*2"}) for n in range(8)))
            assert [answer["content"][0]["text"] for answer in answers] == [str(n * 2) for n in range(8)]
            events = [event async for event in client.stream("wait", {"seconds": 0})]
            assert events[-1].type == "result"
            assert len([row async for row in client.invocations(limit=3)]) == 9
            with pytest.raises(ToolcribError):
                await client.invoke("greet", {})
            asked = await client.invoke("checked", {"expression": "1+1"})
            assert [row["state"] async for row in client.approvals(state="waiting")] == ["waiting"]
            await client.approve(asked["invocation_id"])
            assert (await client.wait(asked["invocation_id"]))["state"] == "succeeded"

    asyncio.run(use())


def test_clear_error_when_nothing_listens():
    with pytest.raises(ToolcribError, match="Is the service running") as caught:
        Client("http://127.0.0.1:1").tools()
    assert (caught.value.kind, caught.value.retryable) == ("unreachable", True)
'''


def test_client_tools_and_fixture_work_together(installed, binary, tmp_path):
    """The environment of the tests is also the interpreter of the module: its worker must ignore the installed package."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "toolcrib.yaml").write_text(MANIFEST.replace("PYTHON", str(installed.python)))
    (tmp_path / "test_tools.py").write_text(TESTS)
    output = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, env={**os.environ, "TOOLCRIB_BIN": str(binary)}, cwd=tmp_path)
    assert f"{TESTS.count('def test_')} passed" in output, output


def test_readme_of_the_package_is_valid(installed, binary, tmp_path):
    text = (PACKAGE / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        ast.parse(block)
    (tmp_path / "greetings.py").write_text(blocks[4])
    (tmp_path / "toolcrib.yaml").write_text(f"python_modules: {{g: {{module: ./greetings.py, interpreter: {installed.python}, context: [language]}}}}")
    (tmp_path / "test_readme.py").write_text(f"from greetings import test_greet_uses_the_language\n{blocks[5]}")
    output = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, env={**os.environ, "TOOLCRIB_BIN": str(binary)}, cwd=tmp_path)
    assert "2 passed" in output, output


def test_platform_wheel_starts_the_service(artefacts, binary, tmp_path, start):
    venv = Venv(tmp_path / "venv")
    venv.install(next(artefacts.glob("*manylinux*.whl")))
    environment = without_program()
    assert run(venv.folder / "bin" / "toolcrib", "--version", env=environment) == run(binary, "--version")
    crib = start(program=venv.folder / "bin" / "toolcrib")
    script = f"from toolcrib import Client; print(Client({crib.base!r}).invoke('calculator', {{'expression': '6*7'}})['content'])"
    assert "42" in venv.run("-c", script, env=environment)


@pytest.fixture
def index(artefacts, tmp_path):
    """An index of packages with ours in it, in the form of PEP 503."""
    folder = tmp_path / "index/toolcrib"
    folder.mkdir(parents=True)
    wheel = next(artefacts.glob("*manylinux*.whl"))
    shutil.copy(wheel, folder)
    (folder / "index.html").write_text(f'<!doctype html><a href="{wheel.name}">{wheel.name}</a>')
    with file_server(tmp_path / "index") as url:
        yield url


def uv(tmp_path, index):
    """The program uv with folders of its own, and the index before the usual one."""
    return {**without_program(), "UV_INDEX": index, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_TOOL_DIR": str(tmp_path / "tools"),
            "UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "UV_PYTHON": sys.executable, "UV_NO_CONFIG": "1"}


def test_uv_installs_and_uninstalls_the_program(index, tmp_path):
    environment, program = uv(tmp_path, index), Path(sys.executable).with_name("uv")
    work = tmp_path / "work"
    work.mkdir()
    run(program, "tool", "install", "toolcrib", env=environment)
    first_call([tmp_path / "bin/toolcrib"], env=environment, cwd=work)
    run(program, "tool", "uninstall", "toolcrib", env=environment)
    assert not (tmp_path / "bin/toolcrib").exists() and not (tmp_path / "tools/toolcrib").exists()
    assert only_the_ledger(work)


def test_uvx_starts_the_service(index, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    first_call([Path(sys.executable).with_name("uvx"), "toolcrib"], env=uv(tmp_path, index), cwd=work)
    assert only_the_ledger(work)
