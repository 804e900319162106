"""Python modules as sources of tools: the start, the command line, a file that changes, the end."""

import json
import signal
import subprocess
import time

import pytest

from harness import BIN, clean_env, cli, descendants, elapsed, in_background, is_alive, now, ok, poll, problem, text_of
from recipes import CALLERS, KEYS

HELLO = '''
import os, time

def hello(name: str) -> str:
    """Greets somebody.

    Args:
        name: Who is greeted
    """
    return f"hello {name}"

def pid() -> int:
    """The number of the process that answers."""
    return os.getpid()

def slow(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "done"
'''


def manifest_with_module(**more):
    return {"python_modules": {"greeter": dict({"module": "./hello.py", "functions": ["hello", "pid", "slow"]}, **more)}}


def write_module(folder, text=HELLO, name="hello.py"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def source(crib, name="greeter", key=None):
    return {one["name"]: one for one in crib.get("/sources", key=key).json["sources"]}[name]


def test_listening_line_follows_the_module_load(start, tmp_path):
    """The line is printed when the modules are listed: a script that calls at once is served."""
    crib = start(manifest_with_module(), folder=write_module(tmp_path / "crib"))
    assert ok(crib.invoke("hello", {"name": "Ann"}))["content"][0]["text"] == "hello Ann"
    assert crib.get("/readyz").status == 200
    shown = source(crib)
    assert (shown["state"], shown["kind"], shown["tools"], shown["fault"]) == ("up", "python", 3, None), shown
    crib.wait_for_log("3 tools")


def test_slow_module_does_not_delay_listening(start, tmp_path):
    """After five seconds the line is printed without it; until it is listed the service is not ready, and reports why."""
    manifest = {"tools": {"calculator": {"kind": "native"}}, **manifest_with_module()}
    began = now()
    crib = start(manifest, folder=write_module(tmp_path / "crib", "import time\ntime.sleep(9)\n" + HELLO))
    assert 4.5 < time.monotonic() - began and elapsed(began) < 8.5
    reply = crib.get("/readyz")
    error = problem(reply, 503, "tool_unavailable")
    assert "`greeter` is still loading" in error["detail"] and error["retryable"] is True and reply.headers["retry-after"] == "1", reply
    assert crib.get("/livez").status == 200 and source(crib)["state"] == "starting"
    ok(crib.invoke("calculator", {"expression": "6*7"}))
    error = problem(crib.invoke("hello", {"name": "Ann"}), 503, "tool_unavailable")
    assert "still loading" in error["detail"] and error["retry_after_ms"] >= 1000, error
    assert crib.get("/tools/hello").json["available"] is False
    poll(lambda: crib.get("/readyz").status == 200, 15, "ready")
    assert ok(crib.invoke("hello", {"name": "Ann"}))


def test_shutdown_while_a_module_loads(start, tmp_path):
    """SIGTERM works before the line is printed, and ends the worker too."""
    folder = write_module(tmp_path / "crib", "import time\nopen('loading', 'w').close()\ntime.sleep(60)\n")
    (folder / "toolcrib.yaml").write_text("python_modules: {m: {module: ./hello.py}}\n")
    process = subprocess.Popen([BIN, "serve", "--listen", "127.0.0.1:0"], cwd=folder, env=clean_env(None, folder),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        poll(lambda: (folder / "loading").exists(), 15, "the module loads")
        below = descendants(process.pid)
        assert below
        process.send_signal(signal.SIGTERM)
        assert process.wait(4) == 0
        assert b"listening" not in process.stdout.read()
        poll(lambda: not any(is_alive(pid) for pid in below), 5, "no worker is left")
    finally:
        process.kill()
        process.wait()


def test_workers_end_with_the_service(start, tmp_path):
    crib = start(manifest_with_module(workers=2), folder=write_module(tmp_path / "crib"))
    ok(crib.invoke("hello", {"name": "Ann"}))
    below = descendants(crib.process.pid)
    assert below
    crib.stop()
    poll(lambda: not any(is_alive(pid) for pid in below), 5, "no worker is left after SIGTERM")
    crib.start()
    ok(crib.invoke("hello", {"name": "Ann"}))
    below = descendants(crib.process.pid)
    crib.kill9()
    poll(lambda: not any(is_alive(pid) for pid in below), 10, "no worker is left after kill -9")


def test_changed_module_file_is_loaded(start_plain, tmp_path):
    """The change is noticed and loaded completely; a running call finishes in the old version; a bad file changes nothing."""
    folder = write_module(tmp_path / "crib")
    crib = start_plain(manifest_with_module(), folder=folder)
    first = text_of(crib.invoke("pid"))
    hash_before = crib.get("/tools/hello").json["definition_hash"]
    late = in_background(lambda: crib.invoke("slow", {"seconds": 4}))
    crib.wait_row("tool=slow", lambda row: row["state"] in ("reserved", "running"))
    write_module(folder, HELLO.replace('f"hello {name}"', 'f"good day {name}"'))
    poll(lambda: crib.get("/tools/hello").json["definition_hash"] != hash_before, 15, "the new file")
    assert text_of(crib.invoke("hello", {"name": "Ann"})) == "good day Ann"
    assert text_of(crib.invoke("pid")) != first
    assert text_of(late()) == "done"
    write_module(folder, "def hello(:\n")
    fault = poll(lambda: source(crib)["fault"], 15, "a fault")
    assert "hello.py" in fault and fault.endswith("the previous tools stay in service"), fault
    assert source(crib)["state"] == "up" and text_of(crib.invoke("hello", {"name": "Bob"})) == "good day Bob"
    write_module(folder, HELLO)
    poll(lambda: text_of(crib.invoke("hello", {"name": "Ann"})) == "hello Ann", 15, "the mended file")
    assert source(crib)["fault"] is None
    assert crib.get("/readyz").json["reloads"] == {"taken": 0, "refused": 0}, "the manifest was not read again"


def test_failed_module_recovers_when_its_file_does(start, tmp_path):
    folder = write_module(tmp_path / "crib", "raise RuntimeError('not today')\n")
    crib = start(manifest_with_module(), folder=folder)
    assert crib.get("/readyz").status == 200, "failed once is ready"
    shown = source(crib)
    assert shown["state"] == "failed" and "not today" in shown["fault"], shown
    error = problem(crib.invoke("hello", {"name": "Ann"}), 503, "tool_unavailable")
    assert "could not be loaded" in error["detail"] and "not today" not in error["detail"], "why is the operator's to see"
    write_module(folder)
    poll(lambda: crib.invoke("hello", {"name": "Ann"}).status == 200, 15, "it is up")


def test_restart_route_needs_an_admin(start_plain, tmp_path):
    crib = start_plain({"callers": CALLERS, **manifest_with_module()}, env=KEYS, folder=write_module(tmp_path / "crib"))
    before = text_of(crib.invoke("pid", key=KEYS["ANN"]))
    problem(crib.post("/sources/greeter/restart", key=KEYS["ANN"]), 403, "forbidden")
    problem(crib.get("/sources", key=KEYS["ANN"]), 403, "forbidden")
    problem(crib.get("/sources"), 401, "unauthenticated")
    problem(crib.post("/sources/nobody/restart", key=KEYS["ROOT"]), 404)
    done = crib.post("/sources/greeter/restart", key=KEYS["ROOT"])
    assert done.status == 200 and done.json["state"] == "up" and done.json["fault"] is None, done
    assert (pid := text_of(crib.invoke("pid", key=KEYS["ANN"]))) != before
    write_module(tmp_path / "crib", "import no_such_thing\n")
    failed = crib.post("/sources/greeter/restart", key=KEYS["ROOT"]).json
    assert failed["state"] == "up" and failed["fault"].endswith("; the previous tools stay in service"), failed
    assert text_of(crib.invoke("pid", key=KEYS["ANN"])) == pid


def test_tool_that_kills_its_worker_is_survived(start, tmp_path):
    """A worker that dies fails its own call, is replaced, and is counted."""
    text = HELLO + "\ndef die() -> str:\n    \"\"\"Ends the worker.\"\"\"\n    os._exit(3)\n"
    crib = start(manifest_with_module(functions=["hello", "die"]), folder=write_module(tmp_path / "crib", text))
    problem(crib.invoke("die"), 502, "tool_unavailable")
    poll(lambda: crib.invoke("hello", {"name": "Ann"}).status == 200, 15, "a new worker")
    poll(lambda: source(crib)["replaced"] >= 1, 10, "it is counted")
    metrics = crib.get("/metrics").body.decode()
    assert 'toolcrib_source_up{source="greeter"} 1' in metrics, metrics
    assert 'toolcrib_source_replaced_total{source="greeter"} 1' in metrics, metrics


# ---- the command line --------------------------------------------------------------------------------------------------

@pytest.fixture
def folder(tmp_path):
    write_module(tmp_path)
    (tmp_path / "toolcrib.yaml").write_text(json.dumps({"tools": {"calculator": {"kind": "native"}}, **manifest_with_module()}))
    return tmp_path


def test_tools_and_openapi_include_modules(folder):
    done = cli("tools", cwd=folder)
    assert done.returncode == 0, done
    tools = {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}
    assert set(tools) == {"calculator", "hello", "pid", "slow"} and tools["hello"]["available"] is True
    assert tools["hello"]["input_schema"]["required"] == ["name"], tools["hello"]
    assert not list(folder.glob("*.db")), "no ledger was made"
    done = cli("openapi", "--manifest", "toolcrib.yaml", cwd=folder)
    assert done.returncode == 0 and "/tools/hello/invoke" in json.loads(done.stdout)["paths"], done
    served = cli("tools", "--format", "openai", cwd=folder)
    assert {tool["function"]["name"] for tool in json.loads(served.stdout)} == set(tools)


def test_tools_reports_a_failing_module(folder):
    """The available tools are printed, the missing ones are reported, and so does the exit code."""
    write_module(folder, "import no_such_thing\n")
    done = cli("tools", cwd=folder)
    assert done.returncode == 1 and "source `greeter` failed" in done.stderr and "no_such_thing" in done.stderr, done
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["calculator"]


def test_call_runs_module_tools_in_process(folder):
    done = cli("call", "hello", '{"name": "Ann"}', cwd=folder)
    assert done.returncode == 0 and json.loads(done.stdout)["content"][0]["text"] == "hello Ann", done
    write_module(folder, "import no_such_thing\n")
    done = cli("call", "hello", '{"name": "Ann"}', cwd=folder)
    output = json.loads(done.stdout)
    assert done.returncode == 1 and output["kind"] == "tool_unavailable", done
    assert "source `greeter` failed" in done.stderr and "no_such_thing" in done.stderr, done
    assert cli("call", "calculator", '{"expression": "6*7"}', cwd=folder).returncode == 0


def test_call_does_not_wait_for_other_sources(folder):
    """The module needs a minute. The tool of the manifest is called at once."""
    write_module(folder, "import time\ntime.sleep(60)\n" + HELLO)
    began = now()
    assert cli("call", "calculator", '{"expression": "6*7"}', cwd=folder).returncode == 0
    assert elapsed(began) < 30


def test_check_runs_no_module_code(folder):
    """Files are looked for; what is in them is not."""
    write_module(folder, "open('ran', 'w').close()\nraise SystemExit(9)\n")
    done = cli("check", cwd=folder)
    assert done.returncode == 0 and "1 module (tools are listed at the start)" in done.stdout, done
    assert not (folder / "ran").exists()
    assert json.loads(cli("check", "--format", "json", cwd=folder).stdout)["modules"] == 1
    (folder / "hello.py").unlink()
    done = cli("check", cwd=folder)
    assert done.returncode == 64 and "python_modules.greeter.module: there is no file" in done.stderr + done.stdout, done


def test_included_files_may_have_modules(tmp_path):
    """Their paths are relative to their file; a name may exist only once."""
    write_module(tmp_path / "more")
    (tmp_path / "more" / "m.yaml").write_text(json.dumps(manifest_with_module()))
    (tmp_path / "toolcrib.yaml").write_text("include: [more/*.yaml]\n")
    done = cli("call", "hello", '{"name": "Ann"}', cwd=tmp_path)
    assert done.returncode == 0, done
    (tmp_path / "toolcrib.yaml").write_text("include: [more/*.yaml]\npython_modules: {greeter: {module: more/hello.py}}\n")
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 64 and "the name is taken" in done.stderr + done.stdout, done
