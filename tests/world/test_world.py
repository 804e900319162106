"""MCP servers as people use them: each of servers.json is mounted, and compared with what the official Python SDK sees of it.

    TOOLCRIB_BIN=/path/to/toolcrib python -m pytest tests/world          # takes the registries, and writes docs/reference/mcp-servers.md
    … -k "toolbox or time"                                               # some of them; the page stays
    TOOLCRIB_WORLD="service none landlock seccomp" …                     # each of them in these sandboxes; landlock and seccomp are
                                                                         # levels that are played, and need root

The packages are kept below target/world. A server that the official client cannot start either is skipped,
and said on the page.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from environments import environment
from harness import BIN, LEVELS, REPO, TARGET, at_level, poll

pytest_plugins = "service_fixtures"

HERE = pathlib.Path(__file__).resolve().parent
PLACE = TARGET / "world"
PAGE = REPO / "docs" / "reference" / "mcp-servers.md"
SERVERS = json.loads((HERE / "servers.json").read_text())
# The default sandbox, no sandbox, or the default sandbox at a level below that of this machine.
WAYS = os.environ.get("TOOLCRIB_WORLD", "service").split()
ROWS = {}


def command_of(server):
    arguments = server.get("args", [])
    if "npm" in server:
        return ["npx", "-y", server["npm"], *arguments]
    name, place = server["name"], PLACE / "python"
    place.mkdir(parents=True, exist_ok=True)
    pins = place / f"{name}.txt"
    pins.write_text("\n".join([server["pypi"], *server.get("with", [])]))
    program = server.get("command", server["pypi"].split("==")[0])
    return [str(environment(pins, place).parent / program), *arguments]


@pytest.fixture(scope="session")
def sdk():
    """The interpreter with the official SDK."""
    if not shutil.which("npx"):
        pytest.skip("no npx here")
    return environment(REPO / "tests" / "mcp" / "sdk-1.txt", TARGET / "mcp")


@pytest.fixture(scope="session")
def caches():
    """Variables of every server. Packages that bring a browser would load it while they are installed."""
    return {"npm_config_cache": str(PLACE / "npm"), "PUPPETEER_SKIP_DOWNLOAD": "true", "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"}


@pytest.fixture
def folder(tmp_path):
    """The working folder of the servers."""
    folder = tmp_path / "work"
    folder.mkdir()
    for file in HERE.glob("*.yaml"):
        shutil.copy(file, folder)
    return folder


def look_officially(sdk, server, variables, folder):
    spec = {"command": command_of(server), "environment": variables, "folder": str(folder), "call": server.get("call")}
    try:
        done = subprocess.run([str(sdk), str(HERE / "official.py"), json.dumps(spec)], capture_output=True, text=True, timeout=400)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout) if done.returncode == 0 else None


def is_task_only(tool):
    return tool.get("execution", {}).get("taskSupport") == "required"


def content_of(result):
    """The blocks without what only describes them."""
    return [{name: value for name, value in block.items() if name not in ("annotations", "_meta")} for block in result["content"]]


@pytest.mark.parametrize("server", SERVERS, ids=[server["name"] for server in SERVERS])
def test_server_is_mounted_as_the_official_client_sees_it(start, sdk, caches, folder, server):
    name, variables = server["name"], {**server.get("env", {}), **caches}
    package = server.get("npm") or server["pypi"]
    seen = look_officially(sdk, server, variables, folder)
    if seen is None:
        ROWS[name] = (package, "", "", "the official client cannot start it here")
        pytest.skip("the official client cannot start it here")
    notes, call = [], ""
    for way in WAYS:
        differ, call = compare(start, server, seen, variables, folder, way)
        notes = [f"the schemas of {differ} tools are read leniently"] if differ else []
    ROWS[name] = (package, f"{len(served(server, seen))} of {len(seen['tools'])}", call, "; ".join(notes))


def served(server, seen):
    """The tools that Toolcrib serves."""
    return {tool["name"]: tool for tool in seen["tools"] if not is_task_only(tool) and tool["name"] not in server.get("left_out", [])}


def compare(start, server, seen, variables, folder, way):
    """Mounts a server. Gives the number of tools with another schema, and what is said of its call."""
    name = server["name"]
    # The packages are there now, and the service of a test has no settings of registries.
    entry = {"command": command_of(server), "environment": {**variables, "npm_config_offline": "true"}, "workdir": str(folder), "start_timeout": "5m", "timeout": "2m"}
    if way == "none":
        entry["sandbox"] = "none"
    crib = start({"mcp_servers": {name: entry}}, within=at_level(way, folder) if way in LEVELS else ())

    def state():
        return crib.get("/sources").json["sources"][0]

    poll(lambda: state()["state"] in ("up", "failed"), 300, f"{way}: it is listed")
    assert state()["state"] == "up", (way, state(), crib.stderr[-2000:])
    if way in LEVELS:
        assert state()["sandbox"]["in_force"] == way, state()
    expected = served(server, seen)
    ours = {tool["name"].removeprefix(f"{name}_"): tool for tool in crib.get("/tools").json["tools"]}
    assert set(ours) == set(expected), (way, set(ours) ^ set(expected), state()["warnings"])
    differ = []
    for own, tool in expected.items():
        schema = crib.get(f"/tools/{name}_{own}").json["input_schema"]
        if schema != {"type": "object", **tool["inputSchema"]}:
            differ.append(own)
    assert not differ or state()["warnings"], f"{way}: schemas differ without a warning: {differ}"
    if not server.get("call"):
        return len(differ), ""
    own, arguments = server["call"]
    answer = crib.invoke(f"{name}_{own}", arguments, timeout="2m")
    assert answer.status == 200, (way, answer)
    assert answer.json["is_error"] == bool(seen["call"].get("isError")), (way, answer.json, seen["call"])
    assert content_of(answer.json) == content_of(seen["call"]), (way, answer.json, seen["call"])
    return len(differ), f"`{own}`: equal"


def tried_in():
    """The sandboxes, for the page."""
    names = {"service": "the default `service`", "none": "`none`"}
    told = [names.get(way, f"`service` at level `{way}`") for way in WAYS]
    return ["Each server was compared in these [sandboxes](../operate/sandbox.md), with the same result:", ", ".join(told) + "."]


@pytest.fixture(scope="session", autouse=True)
def page():
    """Writes the page if every server was tried."""
    yield
    if len(ROWS) == len(SERVERS):
        version = subprocess.run([BIN, "--version"], capture_output=True, text=True).stdout.strip()
        lines = [f"| `{package}` | {tools} | {call} | {note} |" for package, tools, call, note in (ROWS[server["name"]] for server in SERVERS)]
        PAGE.write_text("\n".join([
            "# MCP servers that were tried", "",
            "This page lists MCP servers of npm and PyPI that Toolcrib has mounted. `tests/world` writes it with",
            f"{version}: it compares names, schemas and one call with what the official Python SDK sees.", "",
            "A tool that runs only as a task, or that sends its user to a URL, is left out. Most calls need an",
            "account or the network, so not every server has a call here. The content of a call is equal also where",
            "the server answers that it has no account, no file or no database.", "",
            *tried_in(), "",
            "| package | tools served | call | note |", "| --- | --- | --- | --- |", *lines, ""]))
