"""The real clients of MCP Toolbox, against the service with `compat.toolbox`: one that uses /api, and one that speaks MCP."""

import json
import pathlib
import subprocess

import pytest

from environments import environment
from harness import TARGET, poll
from recipes import CALLERS, KEYS, command, params, sh

HERE = pathlib.Path(__file__).resolve().parent

USE = '''
import asyncio, inspect, json, sys, warnings
from toolbox_core import ToolboxClient
warnings.simplefilter("ignore")

async def attempt(work):
    try:
        return await work
    except Exception as error:
        return f"{type(error).__name__}: {error}"

async def main(url, headers):
    async with ToolboxClient(url, client_headers=headers) as client:
        names = lambda tools: tools if isinstance(tools, str) else sorted(tool.__name__ for tool in tools)
        seen = {"all": names(await attempt(client.load_toolset())), "talk": names(await attempt(client.load_toolset("talk"))),
                "nope": names(await attempt(client.load_toolset("nope")))}
        say = await attempt(client.load_tool("say"))
        if isinstance(say, str):
            seen["say"] = say
        else:
            seen["parameters"] = str(inspect.signature(say))
            seen["said"] = await attempt(say(words="hi", ratio=0.5, list=["a"]))
            seen["fails"] = await attempt((await client.load_tool("fail"))())
        print(json.dumps(seen))

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
'''

LANGCHAIN = '''
import sys
from toolbox_langchain import ToolboxClient
with ToolboxClient(sys.argv[1], client_headers={"Authorization": "Bearer " + sys.argv[2]}) as client:
    tool, = client.load_toolset("talk")
    print(tool.name, tool.invoke({"words": "from langchain"}).strip())
'''

SAY = command(["/bin/echo", "{{ words }}"], effect="read", tags=["talk"], parameters=params(
    words="string", ratio={"type": "number", "required": False}, list={"type": "array", "items": {"type": "string"}, "required": False},
    either={"type": ["integer", "string", "null"], "required": False}, unit={"enum": ["C", "F"], "default": "C"}))


@pytest.fixture
def crib(start):
    return start({"compat": {"toolbox": True}, "callers": [*CALLERS, {"name": "eve", "key": "${env:EVE}", "deny": ["say"]}],
                  "tools": {"say": SAY, "fail": sh("echo The table is locked. >&2; exit 3", effect="read")}}, env={**KEYS, "EVE": "eve-key-0123456789abcdef"})


def run(pins, program, *arguments):
    python = environment(HERE / f"{pins}.txt", TARGET / "outside")
    done = subprocess.run([str(python), "-c", program, *arguments], text=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def use(pins, crib, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return json.loads(run(pins, USE, crib.base, json.dumps(headers)))


@pytest.mark.parametrize("pins", ["toolbox-0", "toolbox-1"])
def test_client_loads_and_calls(crib, pins):
    seen = use(pins, crib, KEYS["ANN"])
    assert (seen["all"], seen["talk"]) == (["fail", "say"], ["say"])
    assert "there is no toolset `nope`" in seen["nope"]
    for part in ("words: str", "ratio: Optional[float]", "list: Optional[list[str]]", "either: Optional[str]", "unit: Optional[str]"):
        assert part in seen["parameters"], seen
    assert seen["said"].strip() == "hi" and "The table is locked." in seen["fails"]
    rows = poll(lambda: [one for one in crib.get("/invocations", key=KEYS["ROOT"]).json["invocations"] if one["state"] != "running"], what="rows")
    assert {(one["tool"], one["caller"]) for one in rows} == {("say", "ann"), ("fail", "ann")}


@pytest.mark.parametrize("pins", ["toolbox-0", "toolbox-1"])
def test_client_gets_the_tools_of_its_caller(crib, pins):
    seen = use(pins, crib, "eve-key-0123456789abcdef")
    assert seen["all"] == ["fail"] and "there is no toolset `talk`" in seen["talk"] and "say" in seen
    assert "401" in use(pins, crib)["all"]


def test_langchain_client_calls(crib):
    assert run("toolbox-1", LANGCHAIN, crib.base, KEYS["ANN"]) == "say from langchain"
