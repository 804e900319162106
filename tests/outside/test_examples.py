"""examples/agents: an agent's whole turn in each provider's format, in Python and JavaScript, against the scripted model server; and
the loop in the README. examples/python: its tools."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import uuid

import pytest

from harness import REPO, clean_env, ok, problem, error_result, text_of
from streams import open_stream

AGENTS = REPO / "examples" / "agents"
PROVIDERS = ["openai", "openai-responses", "anthropic", "gemini", "bedrock"]
ANSWER = "6 * 7 is "


@pytest.fixture(scope="module")
def model():
    """The scripted model server: its address, and the requests it received as lines of its log."""
    server = subprocess.Popen([sys.executable, str(AGENTS / "model_server.py")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    yield server.stdout.readline().split()[-1]
    server.terminate()
    server.wait(10)
    server.stdout.close()


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared()  # the demo tools


def run(command, crib, model):
    env = clean_env({"TOOLCRIB_URL": crib.base, "MODEL_URL": model, "PATH": os.environ["PATH"]})
    return subprocess.run(command, cwd=str(crib.folder), env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def check(done, crib, rows_before):
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.startswith(ANSWER) and "42" in done.stdout and "1764" in done.stdout, done.stdout
    rows = crib.wait_row("tool=calculator", lambda row: '42 ** 2' in json.dumps(row["arguments"])) and crib.all_rows("tool=calculator")
    assert len(rows) == rows_before + 3, rows


@pytest.mark.parametrize("provider", PROVIDERS)
def test_python_agent_runs(crib, model, provider):
    before = len(crib.all_rows("tool=calculator"))
    check(run([sys.executable, "-I", "-S", str(AGENTS / "agent.py"), provider], crib, model), crib, before)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_javascript_agent_runs(crib, model, provider):
    node = shutil.which("node")
    if not node:
        pytest.skip("no node here")
    before = len(crib.all_rows("tool=calculator"))
    check(run([node, str(AGENTS / "agent.mjs"), provider], crib, model), crib, before)


def test_readme_loop_runs(crib, model):
    """Its lines run unchanged except for the imports, with `model` as the reader's own call to a provider."""
    loop, = [block for block in re.findall(r"```python\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.S) if '"/calls' in block]
    messages = [{"role": "user", "content": "What is 6 times 7?"}]

    def ask(messages, tools):
        body = json.dumps({"model": "scripted", "messages": messages, "tools": tools}).encode()
        return urllib.request.urlopen(urllib.request.Request(model + "/v1/chat/completions", body, {"authorization": "Bearer x"})).read()

    assert len(loop.strip().splitlines()) <= 10
    exec(loop.replace("http://localhost:7411", crib.base), {"json": json, "uuid4": uuid.uuid4, "Request": urllib.request.Request, "urlopen": urllib.request.urlopen, "messages": messages, "model": ask})
    assert messages[-1]["content"].startswith(ANSWER)


def test_examples_are_short_and_have_no_dependencies():
    for script in ("agent.py", "agent.mjs"):
        text = (AGENTS / script).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 100, script
        imported = set(re.findall(r"^(?:import|from) ([\w.]+)", text, re.M))
        assert {one.partition(".")[0] for one in imported} <= set(sys.stdlib_module_names), imported


@pytest.mark.parametrize("provider, body", [
    ("openai", {"model": "m", "messages": [{"role": "user", "content": ""}], "tools": []}),
    ("openai", {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": []}),
    ("openai", {"model": "m", "tools": "TOOLS", "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}, {"id": "c2"}]},
                {"role": "tool", "tool_call_id": "c1", "content": "42"}]}),
    ("openai", {"model": "m", "tools": "TOOLS", "messages": [{"role": "user", "content": "?"}, {"role": "tool", "tool_call_id": "c1", "content": "42"}]}),
    ("openai", {"model": "m", "tools": "TOOLS", "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
                {"role": "tool", "tool_call_id": "c1", "content": "42", "is_error": False}]}),
])
def test_scripted_model_refuses_invalid_requests(model, provider, body):
    """Otherwise a complete turn would prove nothing."""
    tools = [{"type": "function", "function": {"name": "calculator", "description": "Adds.", "parameters": {"type": "object"}}}]
    body = dict(body, tools=tools if body["tools"] == "TOOLS" else body["tools"])
    request = urllib.request.Request(model + "/v1/chat/completions", json.dumps(body).encode(), {"authorization": "Bearer x"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 400


def test_python_example_runs(start):
    """Every tool of examples/python, as its manifest has them."""
    example = REPO / "examples" / "python"
    crib = start((example / "toolcrib.yaml").read_text(encoding="utf-8").replace("./trips.py", str(example / "trips.py"))).ready()
    oslo, rome = {"name": "Oslo", "latitude": 59.91, "longitude": 10.75}, {"name": "Rome", "latitude": 41.9, "longitude": 12.5}
    assert text_of(ok(crib.invoke("distance", {"start": oslo, "end": rome}))).startswith("200")
    assert ok(crib.invoke("distance", {"start": oslo, "end": rome}))["meta"]["cache"] == "hit"
    problem(crib.invoke("distance", {"start": {"name": "Oslo"}, "end": rome}), 422, "invalid_arguments")
    result, reported = open_stream(crib, "plan_trip", arguments={"stops": [oslo, rome, oslo], "pause": 0.01}).result()
    assert [one["data"]["to"] for one in reported[:2]] == ["Rome", "Oslo"] and len(result["structured_content"]["legs"]) == 2
    assert text_of(error_result(crib.invoke("plan_trip", {"stops": []}))) == "Error: a trip has two stops at least"
    problem(crib.invoke("book_trip", {"destination": "Rome", "travellers": 2}), 400, "invalid_request")  # without a key
    booked = ok(crib.invoke("book_trip", {"destination": "Rome", "travellers": 2}, context={"customer": "ann"}, headers={"idempotency-key": "b-1"}))
    assert booked["structured_content"]["customer"] == "ann" and booked["structured_content"]["booking"].startswith("oslo-")
    assert "customer" not in crib.get("/tools/book_trip").json["input_schema"]["properties"]
    assert text_of(ok(crib.invoke("fare_weekend_fare", {"fare": 100}))) == "120.0"
