"""What programs that tools are see of the service, and how they are confined: commands, Python workers and MCP servers."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from harness import BIN, clean_env, cli, ok, poll, text_of
from recipes import PYTHON, command, to_yaml
from test_first_process import start_as_process_1  # noqa: F401: a fixture

if not pathlib.Path("/proc/self/environ").exists():
    pytest.skip("needs /proc", allow_module_level=True)

SECRETS = {"CANARY_REFERENCED": "canary-4f1d0c9b2a", "CANARY_OTHER": "canary-77aa01ffc3"}
NAME = pathlib.Path(BIN).name[:15]  # as long as the kernel keeps names

# The variables of a program. Secret values would be redacted in the answer, names are not.
LOOK = """
import json, os, resource

def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}

def environ(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return sorted(entry.split(b"=")[0].decode() for entry in file.read().split(b"\\0") if entry)
    except PermissionError:
        return "denied"

def files(pid):
    links = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links[name] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            pass  # what the list was read from
    return links

def services():
    found, pid = [], os.getppid()
    while pid:
        now = status(pid)
        if now["Name"] == NAME:
            try:
                links = sorted(files(pid).values())
            except PermissionError:
                links = "denied"
            found.append({"environ": environ(pid), "files": links})
        pid = int(now["PPid"])
    return found

def look():
    own = status("self")
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY, 0o666))
    mode = os.stat("made").st_mode & 0o777
    os.unlink("made")
    return {"own": environ("self"), "key": len(os.environ.get("KEY", "")), "services": services(), "files": files("self"),
            "no_new_privs": own["NoNewPrivs"], "umask": own["Umask"], "mode": mode,
            "core": resource.getrlimit(resource.RLIMIT_CORE), "open": resource.getrlimit(resource.RLIMIT_NOFILE)}
"""
COMMAND = "\nprint(json.dumps(look()))\n"
MODULE = "\nfrom toolcrib import tool\n\n@tool\ndef python_look() -> dict:\n    '''Looks round.'''\n    return look()\n"
SERVER = """
import sys

def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "look", "description": "Looks round.", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(look())}]}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        end = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **end}), flush=True)
"""
TOOLS = ["command_look", "python_look", "server_look"]


def manifest(folder, python=PYTHON):
    """A manifest with one tool of each kind; its files in the folder."""
    folder.mkdir(exist_ok=True)
    for name, text in {"command.py": COMMAND, "module.py": MODULE, "server.py": SERVER}.items():
        (folder / name).write_text(f"NAME = {NAME!r}\n{LOOK}{text}")
    key = {"KEY": "${env:CANARY_REFERENCED}"}
    # A sandbox would hide the service; here, what it keeps for itself must be hidden without one.
    return {"defaults": {"sandbox": "none"},
            "tools": {"command_look": command([python, "-I", "-S", "command.py"], environment=key)},
            "python_modules": {"python": {"module": "./module.py", "interpreter": python, "environment": key}},
            "mcp_servers": {"server": {"command": [python, "-I", "-S", "./server.py"], "environment": key}}}


def run_tool(crib, tool):
    answer = ok(crib.invoke(tool))
    return answer["structured_content"] or json.loads(text_of(answer))


def assert_hidden(found, services=1, is_root=True):
    assert not any("CANARY" in name for name in found["own"]) and "KEY" in found["own"], found["own"]
    assert found["key"] == len(SECRETS["CANARY_REFERENCED"]), "the program has its own variables"
    assert len(found["services"]) == services, found["services"]
    for service in found["services"]:
        if is_root:
            assert "CANARY_OTHER" not in service["environ"] and "CANARY_REFERENCED" not in service["environ"], service
            assert not any("environment" in link for link in service["files"]), service["files"]
        else:
            assert service["environ"] == "denied" and service["files"] == "denied", service
    assert found["no_new_privs"] == "1" and found["umask"] == "0077" and found["mode"] == 0o600, found
    assert found["core"] == [0, 0] and found["open"] == [1024, 1024], found
    assert not any("inherited" in link for link in found["files"].values()), found["files"]


def test_programs_cannot_see_the_service(start, tmp_path):
    folder = tmp_path / "crib"
    given = tmp_path / "inherited"
    given.write_text("")
    # An open file that the service itself was started with.
    given_up = {"PGHOST": "db.example", "TOKIO_WORKER_THREADS": "3"}
    crib = start(manifest(folder), folder=folder, env={**SECRETS, **given_up}, within=["sh", "-c", f"exec 7<{given}; \"$@\"; exit $?", "sh"]).ready()
    is_root = os.geteuid() == 0
    assert str(given) in [os.path.realpath(link) for link in pathlib.Path(f"/proc/{crib.pid}/fd").glob("*")] or not is_root
    for tool in TOOLS:
        assert_hidden(run_tool(crib, tool), is_root=is_root)
    assert set(run_tool(crib, "command_look")["files"]) == {"0", "1", "2"}
    threads = [path.read_text().strip() for path in pathlib.Path(f"/proc/{crib.pid}/task").glob("*/comm")]
    assert threads.count("tokio-rt-worker") >= 3, "the runtime is given what the environment said"
    if is_root:
        assert b"CANARY" not in pathlib.Path(f"/proc/{crib.pid}/environ").read_bytes()
        for service in run_tool(crib, "command_look")["services"]:
            assert not {"HOME", "PATH", "PGHOST", "TOKIO_WORKER_THREADS"} & set(service["environ"]), service


@pytest.mark.parametrize("given", [{}, {"MIMALLOC_PURGE_DELAY": "70"}], ids=["default", "given"])
def test_allocator_returns_memory_soon(start, tmp_path, given):
    """The setting belongs to the service alone, and the user's value takes precedence."""
    if os.geteuid() != 0:
        pytest.skip("only root may look")
    crib = start(manifest(tmp_path / "crib"), folder=tmp_path / "crib", env={**SECRETS, **given}).ready()
    environ = dict(entry.split("=", 1) for entry in pathlib.Path(f"/proc/{crib.pid}/environ").read_text().split("\0") if entry)
    assert environ["MIMALLOC_PURGE_DELAY"] == given.get("MIMALLOC_PURGE_DELAY", "10")
    assert "MIMALLOC_PURGE_DELAY" not in run_tool(crib, "command_look")["own"]


def test_unprivileged_user_is_denied(start):
    if os.geteuid() != 0:
        pytest.skip("the test before has shown it")
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def may_run(program):
        return subprocess.run([*other, "test", "-x", program]).returncode == 0

    python = next(filter(may_run, [PYTHON, "/usr/bin/python3"]), None) if shutil.which("setpriv") else None
    if python is None or not may_run(BIN):
        pytest.skip("no other user may run the programs here")
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        output = manifest(folder, python)
        os.chown(folder, 65534, 65534)
        crib = start(output, folder=folder, env=SECRETS, within=["sh", "-c", "\"$@\"; exit $?", "sh", *other]).ready()
        for tool in TOOLS:
            assert_hidden(run_tool(crib, tool), is_root=False)
        crib.stop()
    finally:
        shutil.rmtree(folder)


def test_first_process_exposes_nothing(start_as_process_1, tmp_path):  # noqa: F811
    folder = tmp_path / "crib"
    crib = start_as_process_1(manifest(folder), folder=folder, env=SECRETS).ready()
    for tool in TOOLS:
        assert_hidden(run_tool(crib, tool), services=2)


def test_reload_keeps_the_variables(start, tmp_path):
    folder = tmp_path / "crib"
    output = manifest(folder)
    crib = start(output, folder=folder, env=SECRETS).ready()
    output["tools"]["later"] = command([PYTHON, "-I", "-S", "command.py"], environment={"KEY": "${env:CANARY_OTHER}"})
    crib.manifest.write_text(to_yaml(output))
    poll(lambda: crib.get("/tools/later").status == 200, 20, "the new manifest")
    found = run_tool(crib, "later")
    assert found["key"] == len(SECRETS["CANARY_OTHER"]), found


def test_in_process_call_exposes_nothing(tmp_path):
    folder = tmp_path / "crib"
    (folder / "x").parent.mkdir()
    (folder / "toolcrib.yaml").write_text(to_yaml(manifest(folder)))
    for tool in TOOLS:
        done = cli("call", tool, cwd=folder, env={**SECRETS, "TOOLCRIB_LEDGER": f"sqlite://{folder}/of_variable.db"}, timeout=60)
        assert done.returncode == 0, done
        answer = json.loads(done.stdout)
        assert_hidden(answer["structured_content"] or json.loads(text_of(answer)), is_root=os.geteuid() == 0)
    assert (folder / "of_variable.db").exists(), "options have the values of variables"


def test_service_without_proc_warns_and_runs(tmp_path):
    hidden = ["unshare", "--mount", "sh", "-c", "umount -l /proc && exec \"$@\"", "sh"]
    if subprocess.run([*hidden, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("/proc cannot be taken away here")
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"calculator": {"kind": "native"}}}))
    done = subprocess.run([*hidden, BIN, "call", "calculator", '{"expression": "6*7"}'], cwd=tmp_path, env=clean_env(SECRETS),
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0 and "42" in done.stdout, done
    assert "the environment stays visible" in done.stderr, done.stderr


def test_process_shows_its_command_name(start):
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    assert pathlib.Path(f"/proc/{crib.pid}/comm").read_text().strip() == NAME
    shown = pathlib.Path(f"/proc/{crib.pid}/cmdline").read_bytes().split(b"\0")
    assert shown[0].decode() == BIN and shown[1] == b"serve", shown
