"""Servers of an old and of a new release of each SDK, and MCP Toolbox: their tools are listed and called, over pipes and over HTTP."""

import os
import shutil

import pytest

from conftest import PLACE, SERVERS, names, source
from harness import error_result, ok, problem, text_of

# Name: the argument of toolbox.py, and the environment that has this release.
PYTHON = {"fastmcp_old": ("fastmcp-2", "sdk-0"), "fastmcp_new": ("fastmcp", "sdk-2"), "python_old": ("mcp-1", "sdk-0"), "python_1": ("mcp-1", "sdk-1"),
          "python_2": ("mcp-2", "sdk-2")}
TYPESCRIPT = {"typescript_old": "old", "typescript_1": "sdk", "typescript_2": "server"}
# Releases that have no structured results yet.
UNSTRUCTURED = ("fastmcp_old", "python_old", "typescript_old")
WAYS = ("pipe", "web")


def entry(way, command, listening):
    if way == "pipe":
        return {"command": [*command, "stdio"], "start_timeout": "3m", "timeout": "3m"}
    return {"url": listening(*command, "{port}"), "start_timeout": "3m", "timeout": "3m"}


@pytest.fixture(scope="module")
def python_servers(python):
    """The commands of the servers in Python, without the way."""
    return {name: [python(environment), str(SERVERS / "toolbox.py"), sdk] for name, (sdk, environment) in PYTHON.items()}


@pytest.fixture(scope="module")
def typescript_servers(node, tmp_path_factory):
    """The commands of the servers in TypeScript. Node.js looks for packages beside the program."""
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(PLACE / "node_modules")
    shutil.copy(SERVERS / "typescript.mjs", folder)
    return {name: [node[0], str(folder / "typescript.mjs"), release] for name, release in TYPESCRIPT.items()}


@pytest.fixture(scope="module")
def in_python(start_shared, python_servers, listening):
    return start_shared({"mcp_servers": {f"{name}_{way}": entry(way, command, listening) for name, command in python_servers.items() for way in WAYS}}).ready(240)


@pytest.fixture(scope="module")
def in_typescript(start_shared, typescript_servers, listening):
    return start_shared({"mcp_servers": {f"{name}_{way}": entry(way, command, listening) for name, command in typescript_servers.items() for way in WAYS}}).ready(120)


@pytest.fixture(params=[f"{name}_{way}" for name in (*PYTHON, *TYPESCRIPT) for way in WAYS])
def one(request):
    """(service, name of the server)"""
    is_python = request.param.rpartition("_")[0] in PYTHON
    return request.getfixturevalue("in_python" if is_python else "in_typescript"), request.param


def test_tools_are_listed_and_called(one):
    crib, server = one
    assert source(crib, server)["state"] == "up", source(crib, server)
    assert {f"{server}_{name}" for name in ("add", "forecast", "fails")} <= names(crib)
    assert crib.get(f"/tools/{server}_add").json["input_schema"]["required"] == ["a", "b"]
    assert text_of(ok(crib.invoke(f"{server}_add", {"a": 40, "b": 2}))) == "42"
    problem(crib.invoke(f"{server}_add", {"a": "many", "b": 2}), 422, "invalid_arguments")
    # Some releases hide the reason.
    words = text_of(error_result(crib.invoke(f"{server}_fails", {"reason": "the moon"})))
    assert "the moon" in words or "Error" in words, words


def test_results_are_structured_where_the_release_has_them(one):
    crib, server = one
    answer = ok(crib.invoke(f"{server}_forecast", {"city": "Oslo"}))
    assert '"degrees"' in text_of(answer), answer
    if server.rpartition("_")[0] in UNSTRUCTURED:
        assert answer["structured_content"] is None, answer
    else:
        assert answer["structured_content"]["city"] == "Oslo" and crib.get(f"/tools/{server}_forecast").json["output_schema"], answer


def test_schemas_of_zod_take_what_zod_takes(in_typescript):
    for server in TYPESCRIPT:
        for way in WAYS:
            tool = f"{server}_{way}_greet"
            assert text_of(ok(in_typescript.invoke(tool, {"name": "Ann"}))) == "Hi, dear Ann"
            assert text_of(ok(in_typescript.invoke(tool, {"name": "Ann", "title": "Dr", "mail": "a@b.de"}))) == "Hi, Dr Ann <a@b.de>"
            assert text_of(ok(in_typescript.invoke(tool, {"name": "Ann", "mail": None}))) == "Hi, dear Ann"
            problem(in_typescript.invoke(tool, {"name": "Ann", "mail": "none"}), 422, "invalid_arguments")


@pytest.mark.parametrize("way", WAYS)
def test_toolbox_is_mounted(start, listening, way):
    """MCP Toolbox 1.12 leaves out members of server/discover that the protocol requires."""
    program = next((PLACE / "node_modules" / "@toolbox-sdk").glob("server-linux-x64/**/toolbox"), None)
    if not program or not os.access(program, os.X_OK):
        pytest.skip("MCP Toolbox is not installed: it exists for Linux on x64, and npm has to reach it")
    command = [str(program), "--config", str(SERVERS / "toolbox.yaml")]
    one = {"command": [*command, "--stdio"]} if way == "pipe" else {"url": listening(*command, "--port", "{port}")}
    crib = start({"mcp_servers": {"box": one}}).ready(60)
    assert source(crib, "box")["state"] == "up", source(crib, "box")
    assert "42" in text_of(ok(crib.invoke("box_add", {"a": 40, "b": 2})))
