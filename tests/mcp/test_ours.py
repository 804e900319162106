"""The servers of this folder are right where they mean to be: the official SDK's client takes them, in both eras."""

import json
import subprocess

import pytest

from conftest import SERVERS
from recipes import PYTHON

ASK = '''
import asyncio, json, sys
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main(how):
    target = how if isinstance(how, str) else stdio_client(StdioServerParameters(command=how[0], args=how[1:]))
    async with Client(target) as client:
        listed = await client.list_tools()
        answer = await client.call_tool("echo", {"a": 1})
        print(json.dumps({"version": client.protocol_version, "tools": len(listed.tools), "said": answer.content[0].text}))

asyncio.run(main(json.loads(sys.argv[1])))
'''


@pytest.mark.parametrize(("era", "version"), [("session", "2025-11-25"), ("sessionless", "2025-11-25"), ("modern", "2026-07-28")])
@pytest.mark.parametrize("way", ["pipe", "web"])
def test_official_client_accepts_the_test_servers(python, web, way, era, version):
    if way == "pipe" and era == "sessionless":
        pytest.skip("pipes have no sessions")
    how = web(era).url if way == "web" else [PYTHON, "-S", str(SERVERS / "calls.py"), *(["modern"] if era == "modern" else [])]
    done = subprocess.run([python("sdk-2"), "-c", ASK, json.dumps(how)], text=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert (reported["version"], reported["said"]) == (version, '{"a": 1}') and reported["tools"] >= 1, reported
