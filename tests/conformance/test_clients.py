"""The official clients against the binary, over both transports, in both eras."""

import base64
import json
import os
import shutil
import subprocess
import sys

import pytest

import harness
from conftest import HERE, MANIFEST, PLACE, node

# name, requested era, version that must result
CLIENTS = [
    ("python", "legacy", "2025-11-25"),
    ("python", "auto", "2026-07-28"),
    ("sdk", "legacy", "2025-11-25"),
    ("client", "legacy", "2025-11-25"),
    ("client", "2026-07-28", "2026-07-28"),
]
LATE = "tools:\n  came_later:\n    kind: command\n    description: Came while the service was running.\n    command: [/bin/true]\n"


def run_client(client, era, url="", trigger="", command=(), env=None):
    """What the client saw."""
    reported = {"SERVER_ENV": json.dumps(env or {}), "TRIGGER_TEXT": LATE}
    if client != "python":
        work = PLACE / "work"
        work.mkdir(exist_ok=True)
        program = shutil.copy(HERE / "client.mjs", work)
        return json.loads(node(program, client, era, url, trigger, *command, env=reported, seconds=60).stdout)
    done = subprocess.run([sys.executable, str(HERE / "client.py"), era, url, str(trigger), *map(str, command)], text=True, timeout=60,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **reported})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def assert_complete(seen, version):
    """Everything that the tools define has arrived."""
    if seen["version"] is not None:  # the first TypeScript SDK does not report it over stdio
        assert seen["version"] == version
    assert seen["server"]["name"] == "toolcrib"
    names = [tool["name"] for tool in seen["tools"]]
    assert names == sorted(names) and {"test_simple_text", "json_schema_2020_12_tool", "structured"} <= set(names)
    assert all(tool["inputSchema"]["type"] == "object" and tool["description"] for tool in seen["tools"])
    simple = seen["tools"][names.index("test_simple_text")]
    assert simple["annotations"]["readOnlyHint"] is True, "from `effect: read`"
    [text] = seen["text"]["content"]
    assert (text["type"], text["text"]) == ("text", "This is a simple text response for testing.")
    assert not seen["text"].get("isError")
    [image] = seen["image"]["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG\r\n\x1a\n")
    [audio] = seen["audio"]["content"]
    assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
    [block] = seen["resource"]["content"]
    resource = block["resource"]
    assert (block["type"], resource["uri"], resource["mimeType"]) == ("resource", "test://embedded-resource", "text/plain")
    assert resource["text"] == "This is an embedded resource content."
    assert seen["structured"]["structuredContent"] == {"city": "Oslo", "degrees": 21.5}
    assert json.loads(seen["structured"]["content"][0]["text"]) == {"city": "Oslo", "degrees": 21.5}
    assert seen["error"]["isError"] is True
    assert "This tool intentionally returns an error for testing" in seen["error"]["content"][0]["text"]
    assert seen["invalid"]["isError"] is True and "city" in seen["invalid"]["content"][0]["text"]
    assert seen["unknown"].get("code") == -32602 and "no_such_tool" in seen["unknown"]["message"]
    assert seen["asked"] == ["Step 1: What is your name?", "Step 2: What is your favorite color?"]
    assert seen["answered"]["content"][0]["text"] == "Ada likes blue."
    assert [(step["progress"], step["total"]) for step in seen["progress"]] == [(0, 100), (50, 100), (100, 100)]
    assert seen["steps"]["content"][0]["text"] == "All steps are done."


@pytest.mark.parametrize("client, era, version", CLIENTS)
def test_clients_work_over_http(crib, client, era, version):
    seen = run_client(client, era, url=crib.url)
    assert_complete(seen, version)
    assert "registered_at_run_time" in seen["changed"]
    states = {row["tool"]: row["state"] for row in crib.rows("limit=30")}
    assert states["test_simple_text"] == "succeeded", "the very same ledger"


@pytest.mark.parametrize("client, era, version", CLIENTS)
def test_clients_work_over_stdio(tmp_path, client, era, version):
    shutil.copy(HERE / "tools.py", tmp_path)
    manifest = tmp_path / "toolcrib.yaml"
    manifest.write_text(f'{MANIFEST.read_text()}\ninclude: ["late/*.yaml"]\n')
    (tmp_path / "late").mkdir()
    ledger = f"sqlite://{tmp_path}/toolcrib.db"
    command = [harness.BIN, "serve", "--stdio", "--manifest", manifest, "--ledger", ledger]
    env = {**harness.clean_env({"SERVICE": "http://127.0.0.1:9"}, tmp_path)}
    seen = run_client(client, era, trigger=tmp_path / "late" / "more.yaml", command=command, env=env)
    assert_complete(seen, version)
    assert "came_later" in seen["changed"]
    rows = json.loads(harness.cli("invocations", "--ledger", ledger, cwd=tmp_path).stdout)["invocations"]
    assert {"test_simple_text": "succeeded", "test_error_handling": "failed"}.items() <= {
        row["tool"]: row["state"] for row in rows}.items(), rows  # fmt: skip


# ---- the inspector --------------------------------------------------------------------------------------------------------


def inspect(*arguments, ok=True):
    launcher = PLACE / "node_modules" / ".bin" / "mcp-inspector"
    return node(launcher, "--cli", *arguments, ok=ok, seconds=60)


def targets(crib, stdio):
    arguments, env = stdio
    given = [part for name, value in env.items() for part in ("-e", f"{name}={value}")]
    return {"http": [crib.url], "stdio": [harness.BIN, *arguments, *given]}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_inspector_lists_and_calls(crib, stdio, transport, era):
    target = targets(crib, stdio)[transport]
    chosen = ["--protocol-era", era]
    listed = json.loads(inspect(*target, "--method", "tools/list", *chosen).stdout)
    assert "structured" in [tool["name"] for tool in listed["tools"]]
    called = inspect(*target, "--method", "tools/call", "--tool-name", "structured", "--tool-args-json", '{"city": "Oslo"}', *chosen)
    assert json.loads(called.stdout)["structuredContent"] == {"city": "Oslo", "degrees": 21.5}


def test_inspector_accepts_the_schemas(crib):
    listed = inspect(crib.url, "--method", "tools/list", "--strict", ok=False)
    assert listed.returncode in (0, 6), listed
    # The suite's own schema is unusual on purpose.
    assert [line for line in listed.stderr.splitlines() if "error" in line and "json_schema_2020_12_tool" not in line] == []
