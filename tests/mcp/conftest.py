"""Toolcrib as a client of MCP servers: real ones from npm and PyPI, and ones that do everything wrong.

    tests/run mcp                                    # installs the servers under target/mcp

by hand: target/venv-mcp/bin/python -m pytest tests/mcp, with TOOLCRIB_BIN=/path/to/toolcrib for another binary than
target/release/toolcrib. What is not installed is skipped, and said. servers/ has the servers of our own: `wire.py` is a plain one without
packages, the others misbehave. Through HTTP as a user would: a manifest, then GET /tools and POST /tools/{server}_{tool}/invoke.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

from environments import environment
from harness import descendants, free_port, poll, TARGET
from recipes import PYTHON
from web import Web

pytest_plugins = "service_fixtures"

HERE = pathlib.Path(__file__).resolve().parent
PLACE = TARGET / "mcp"
SERVERS = HERE / "servers"
MODES = ("persistent", "on_demand")
READ = {"effect": "read"}


# ---- entries of mcp_servers ---------------------------------------------------------------------------------------------

def script(name, *args, **entry):
    """A server of servers/, on standard input and output. It has no sandbox: tests know it by its process id, which differs in a
    namespace. The servers of the registries run in the default sandbox."""
    command = [PYTHON, "-S", str(SERVERS / f"{name}.py"), *map(str, args)]
    return dict({"command": command, "sandbox": "none"}, **entry)


def read_policies(*names):
    """Policies that make these tools reads: what may be cancelled, repeated and forgotten."""
    return {name: dict(READ) for name in names}


def start_with_servers(starter, wait=60, **entries):
    """A service with these entries of mcp_servers; every one was listed or has failed once."""
    return starter({"mcp_servers": entries}).ready(wait)


# ---- looking ------------------------------------------------------------------------------------------------------------

def names(crib):
    return {tool["name"] for tool in crib.get("/tools").json["tools"] if tool["available"]}


def source(crib, name="s"):
    """A source. No text of it has the form of a program's debug output."""
    found = {one["name"]: one for one in crib.get("/sources").json["sources"]}[name]
    assert not re.search(r"Some\(|Object \{|Err\(", json.dumps(found)), found
    return found


def events(crib, tool, arguments=None, **more):
    """A call as a stream of events: [(event, data)], the result last."""
    reply = crib.invoke(tool, arguments, headers={"accept": "text/event-stream"}, **more)
    assert reply.status == 200 and reply.headers["content-type"] == "text/event-stream", reply
    found = []
    for block in reply.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    assert found[-1][0] == "result", found
    return found


def received(file, method=None):
    """The messages that a server of servers/ has received."""
    path = pathlib.Path(file)
    messages = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [message for message in messages if method in (None, message.get("method"))]


def warnings(crib, name="s"):
    """The warnings of a source that is up."""
    return "\n".join(source(crib, name).get("warnings", []))


def answered(crib, call, **answer):
    """The result of a call after its question is answered."""
    assert crib.post(f"/invocations/{call}/answer", json.dumps(answer)).status == 200
    return poll(lambda: crib.get(f"/invocations/{call}").json.get("result"), what="the end of the call")


def open_handles(pid):
    """Open file handles of a process and all below it."""
    count = 0
    for one in {pid} | descendants(pid):
        try:
            count += len(os.listdir(f"/proc/{one}/fd"))
        except OSError:
            continue
    return count


# ---- fixtures -----------------------------------------------------------------------------------------------------------

@pytest.fixture
def web():
    """Makes scripted MCP servers over HTTP."""
    made = []

    def make(*args, **more):
        made.append(Web(*args, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def node():
    """A Node.js that runs the packages of package.json, and where they are."""
    program, packages = shutil.which("node"), PLACE / "node_modules" / "@modelcontextprotocol"
    if not program or not packages.is_dir():
        pytest.skip("no Node.js here, or tests/run has not installed its packages")
    return os.path.realpath(program), packages


@pytest.fixture(scope="session")
def python():
    """The interpreter with an SDK: python("sdk-1.6"), python("sdk-1"), python("sdk-2")."""
    return lambda name: str(environment(HERE / f"{name}.txt", PLACE))


@pytest.fixture(scope="session")
def listening():
    """Starts servers that listen at a port: listening(command with {port}) -> URL of /mcp."""
    running = []

    def start(*command, env=None):
        port = free_port()
        command = [str(part).format(port=port) for part in command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={"PATH": os.environ["PATH"], "PORT": str(port), **(env or {})})
        running.append(process)

        def answers():
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        poll(answers, 60, f"{command} listens")
        return f"http://127.0.0.1:{port}/mcp"

    yield start
    for process in running:
        process.kill()
        process.wait()
