"""The command line, which scripts rely on."""

import json

import pytest

from harness import BIN, cli, clean_env, lines_in, ok, poll
from recipes import params, sh, to_yaml

EXPR = '{"expression": "6*7"}'


@pytest.fixture
def folder(tmp_path):
    """A folder with a manifest."""
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {
        "calculator": {"kind": "native"}, "greet": sh(f"echo ran >> {tmp_path}/ran; echo hello", effect="read", description="Greets whoever asks."),
        "sad": sh("echo sorry >&2; exit 1", effect="read"),
        "count": sh(f"echo ran >> {tmp_path}/counted", effect="write", limits=[{"calls": 2, "per": "lifetime"}]),
        "word": sh("cat", effect="read", stdin="{{ text }}", environment={"PATH": "/usr/bin:/bin"}, parameters=params(text="string"))}}))
    return tmp_path


def test_check_runs_nothing(folder):
    """Exit 0; no tool ran and no ledger was made."""
    done = cli("check", "--manifest", "toolcrib.yaml", cwd=folder)
    assert done.returncode == 0, done
    assert not (folder / "ran").exists() and not list(folder.glob("*.db"))
    assert cli("check", cwd=folder).returncode == 0, "toolcrib.yaml here is found"


def test_tools_prints_names_and_descriptions(folder):
    """Names and descriptions for people; the model's shapes for scripts."""
    done = cli("tools", "--manifest", "toolcrib.yaml", cwd=folder)
    assert done.returncode == 0 and "calculator" in done.stdout and "greet" in done.stdout, done
    assert not (folder / "ran").exists()


def test_tools_prints_openai_format(folder):
    done = cli("tools", "--format", "openai", cwd=folder)
    assert done.returncode == 0, done
    tools = {tool["function"]["name"]: tool for tool in json.loads(done.stdout)}
    assert tools["greet"]["type"] == "function" and tools["greet"]["function"]["description"] == "Greets whoever asks."
    assert tools["word"]["function"]["parameters"]["required"] == ["text"]


def test_tools_prints_anthropic_format(folder):
    done = cli("tools", "--format", "anthropic", cwd=folder)
    assert done.returncode == 0, done
    tools = {tool["name"]: tool for tool in json.loads(done.stdout)}
    assert tools["word"]["input_schema"]["properties"]["text"]["type"] == "string"
    assert tools["greet"]["description"] == "Greets whoever asks." and "parameters" not in tools["greet"]


def test_tools_refuses_an_unknown_format(folder):
    done = cli("tools", "--format", "morse", cwd=folder)
    assert done.returncode != 0 and "morse" in done.stderr + done.stdout, done


def test_call_in_process(folder):
    """One call, its answer on stdout, 0."""
    done = cli("call", "calculator", EXPR, "--manifest", "toolcrib.yaml", cwd=folder)
    assert done.returncode == 0 and "42" in done.stdout, done


def test_call_from_stdin(folder):
    done = cli("call", "calculator", "-", cwd=folder, stdin=EXPR)
    assert done.returncode == 0 and "42" in done.stdout, done


def test_call_without_a_manifest(tmp_path):
    """The demo tools are there when nothing else is."""
    done = cli("call", "calculator", EXPR, cwd=tmp_path)
    assert done.returncode == 0 and "42" in done.stdout, done


def test_call_without_arguments(folder):
    done = cli("call", "greet", cwd=folder)
    assert done.returncode == 0 and "hello" in done.stdout, done


@pytest.mark.parametrize("args, words", [(("calculater", EXPR), "calculator"), (("calculator", "{}"), "expression"),
                                         (("calculator", "{broken"), "JSON"), (("calculator", "[]"), "object")])
def test_call_failures_are_explained(folder, args, words):
    """Not 0, and the words that help."""
    done = cli("call", *args, cwd=folder)
    text = done.stdout + done.stderr
    assert done.returncode != 0 and words in text and "panicked" not in text, done


def test_call_prints_error_results(folder):
    """Its text is shown (the contract leaves the exit code open)."""
    done = cli("call", "sad", cwd=folder)
    assert "sorry" in done.stdout + done.stderr and done.returncode in (0, 1), done


def test_call_starts_only_what_the_tool_needs(tmp_path):
    servers = {name: {"command": ["/bin/sh", "-c", f"echo x >> {tmp_path / name}; exit 1"]} for name in ("one", "two")}
    (tmp_path / "toolcrib.yaml").write_text(json.dumps({"tools": {"calculator": {"kind": "native"}}, "mcp_servers": servers}))
    done = cli("call", "functions.Calculator", EXPR, cwd=tmp_path)
    assert done.returncode == 0 and "source" not in done.stderr and not (tmp_path / "one").exists(), done
    done = cli("call", "two_x", cwd=tmp_path)
    assert done.returncode == 1 and (tmp_path / "two").exists() and not (tmp_path / "one").exists(), done


def test_call_counts_against_limits(folder):
    """Calls in process use the manifest's ledger: a limit counts over processes."""
    codes = [cli("call", "count", cwd=folder).returncode for _ in range(3)]
    assert codes[:2] == [0, 0] and codes[2] != 0 and lines_in(folder / "counted") == 2


def test_call_over_a_server(start, tmp_path):
    """`--server` asks a running service; its ledger has the row."""
    crib = start({"tools": {"greet": sh("echo from-the-server", effect="read"), "calculator": {"kind": "native"}}})
    done = cli("call", "greet", "{}", "--server", crib.base, cwd=tmp_path)
    assert done.returncode == 0 and "from-the-server" in done.stdout, done
    crib.wait_row("tool=greet")
    assert cli("call", "nope", "{}", "--server", crib.base, cwd=tmp_path).returncode != 0
    assert not list(tmp_path.glob("*.db")), "a client makes no ledger"


# ---- `call -`: a model's message from standard input ------------------------------------------------------------------

ASK = {"name": "calculator", "arguments": {"expression": "6*7"}}
MESSAGES = {
    "openai": {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": EXPR}}]},
    "anthropic": {"role": "assistant", "content": [
        {"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "toolu_1", "name": "calculator", "input": ASK["arguments"]}]},
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "calculator", "args": ASK["arguments"]}}]},
    "bedrock": {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "calculator", "input": ASK["arguments"]}}]},
    "native": {"tool_name": "calculator", "arguments": ASK["arguments"]},
    "text": "I need the calculator.\n\nAction: calculator\nAction Input: " + EXPR + "\n",
}


def call_message(said, *args, cwd):
    """Exit code and answer of `call -`."""
    done = cli("call", "-", *args, cwd=cwd, stdin=said if isinstance(said, str) else json.dumps(said))
    assert "panicked" not in done.stderr, done
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("dialect", MESSAGES)
@pytest.mark.parametrize("named", [False, True])
def test_call_of_a_message(folder, dialect, named):
    """Any dialect, guessed or named: its calls run, and the messages to append are printed."""
    code, answer = call_message(MESSAGES[dialect], *(["--dialect", dialect] if named else []), cwd=folder)
    assert code == 0 and answer["dialect"] == dialect and len(answer["results"]) == 1, answer
    assert answer["results"][0]["tool"] == "calculator" and answer["results"][0]["is_error"] is False, answer
    assert "42" in json.dumps(answer["messages"]), answer


def test_call_of_a_failing_message(folder):
    """Exit 1 when a tool returns an error result, is missing or gets wrong arguments; the other calls run."""
    def two(name, arguments):
        other = {"id": "call_2", "type": "function", "function": {"name": name, "arguments": arguments}}
        return dict(MESSAGES["openai"], tool_calls=[*MESSAGES["openai"]["tool_calls"], other])
    for name, arguments in (("sad", "{}"), ("no_such_tool", "{}"), ("calculator", "{}")):
        code, answer = call_message(two(name, arguments), cwd=folder)
        assert code == 1 and len(answer["results"]) == 2 and answer["results"][0]["is_error"] is False, answer
    code, answer = call_message({"role": "assistant", "content": "Nothing to do."}, cwd=folder)
    assert code == 0 and answer["results"] == [] and answer["messages"] == [], answer
    code, problem = call_message([1, 2], cwd=folder)
    assert code == 1 and problem["kind"] == "invalid_request" and problem["status"] == 400, problem


def test_call_of_a_message_over_a_server(start, tmp_path):
    """The server runs it; options and keys arrive."""
    crib = start({"tools": {"calculator": {"kind": "native"}, "sad": sh("exit 1", effect="write")}})
    for output, run in ((MESSAGES["anthropic"], "r 7&x"), (MESSAGES["text"], "r8")):
        code, answer = call_message(output, "--server", crib.base, "--run-id", run, cwd=tmp_path)
        assert code == 0 and "42" in json.dumps(answer["messages"]), answer
    crib.wait_row("tool=calculator", lambda row: row["run_id"] == "r 7&x")
    sad = {"tool_name": "sad", "arguments": {}}
    answers = [call_message(sad, "--server", crib.base, "--idempotency-key", "once", cwd=tmp_path) for _ in range(2)]
    assert [code for code, _ in answers] == [1, 1], answers
    assert answers[0][1]["results"][0]["invocation_id"] == answers[1][1]["results"][0]["invocation_id"], answers
    assert call_message(MESSAGES["gemini"], "--dialect", "bedrock", "--server", crib.base, cwd=tmp_path)[0] == 1
    assert not list(tmp_path.glob("*.db")), "a client makes no ledger"


@pytest.mark.parametrize("args", [("-", "{}"), ("-", "-"), ("-", "--dialect", "french"), ("calculator", EXPR, "--run-id", "r"),
                                  ("calculator", "--dialect", "openai")])
def test_call_refuses_mixed_message_and_tool(folder, args):
    done = cli("call", *args, cwd=folder)
    assert done.returncode == 64 and done.stderr and not done.stdout, done


def test_usage_and_invocations_are_printed(start, tmp_path):
    """Both read a server or a ledger file, also while the service runs on it."""
    crib = start({"tools": {"greet": sh("echo hello", effect="write"), "sad": sh("exit 1", effect="write")}})
    invocation = ok(crib.invoke("greet"))["invocation_id"]
    crib.invoke("sad")
    for source in (("--server", crib.base), ("--ledger", f"sqlite://{crib.ledger}")):
        done = cli("usage", *source, cwd=tmp_path)
        assert done.returncode == 0 and "greet" in done.stdout and "sad" in done.stdout, done
        done = cli("invocations", *source, cwd=tmp_path)
        assert done.returncode == 0 and invocation in done.stdout, done


@pytest.mark.parametrize("what", ["usage", "invocations", "call"])
def test_unreachable_server_is_reported(tmp_path, what):
    args = ("call", "calculator", EXPR) if what == "call" else (what,)
    done = cli(*args, "--server", "http://127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 1 and "127.0.0.1:1" in done.stderr + done.stdout and "panicked" not in done.stderr, done


def test_missing_ledger_is_reported(tmp_path):
    """Reading makes no file."""
    done = cli("usage", "--ledger", f"sqlite://{tmp_path}/none.db", cwd=tmp_path)
    assert done.returncode == 1 and "none.db" in done.stderr + done.stdout, done
    assert not (tmp_path / "none.db").exists()


def test_openapi_prints_the_document(tmp_path):
    document = json.loads(cli("openapi", cwd=tmp_path).stdout)
    assert document["openapi"].startswith("3.1") and "/tools" in document["paths"]


def test_healthcheck_reports_by_exit_code(start, tmp_path):
    """0 when ready (or alive, with --live), not 0 without a service."""
    crib = start()
    for live in ([], ["--live"]):
        assert cli("healthcheck", *live, "--server", crib.base, cwd=tmp_path).returncode == 0
    crib.stop()
    for live in ([], ["--live"]):
        done = cli("healthcheck", *live, "--server", crib.base, cwd=tmp_path)
        assert done.returncode == 1 and "panicked" not in done.stderr, done


def test_environment_sets_listen_and_ledger(tmp_path):
    """TOOLCRIB_LISTEN and TOOLCRIB_LEDGER replace the flags."""
    import re
    import subprocess
    env = clean_env({"TOOLCRIB_LISTEN": "127.0.0.1:0", "TOOLCRIB_LEDGER": f"sqlite://{tmp_path}/other.db"}, tmp_path)
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen([BIN, "serve"], cwd=str(tmp_path), env=env, stdout=out, stderr=subprocess.DEVNULL)
    try:
        output = poll(lambda: re.search(r"^listening on http://127.0.0.1:(\d+)", (tmp_path / "out").read_text(), re.M), 15, "the line")
        assert int(output.group(1)) not in (0, 7411) and (tmp_path / "other.db").exists() and not (tmp_path / "toolcrib.db").exists()
    finally:
        process.terminate()
        assert process.wait(28) == 0


def test_occupied_port_is_reported(start, tmp_path):
    """A failed start is 1 and names the address."""
    crib = start()
    done = cli("serve", "--listen", f"127.0.0.1:{crib.port}", cwd=tmp_path)
    assert done.returncode == 1 and str(crib.port) in done.stderr and "panicked" not in done.stderr, done


@pytest.mark.parametrize("args", [("frobnicate",), ("serve", "--no-such-flag"), ("serve", "--listen", "nonsense"), ("call",)])
def test_wrong_command_line_is_refused(tmp_path, args):
    done = cli(*args, cwd=tmp_path)
    assert done.returncode != 0 and done.stderr and "panicked" not in done.stderr and "listening" not in done.stdout, done


def test_help_and_version(tmp_path):
    done = cli("--help", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("init", "serve", "check", "tools", "call", "usage", "invocations", "sources", "cancel", "enable", "disable", "purge", "key",
                 "backup", "openapi", "completions", "healthcheck"):
        assert word in done.stdout, word
    assert cli("--version", cwd=tmp_path).returncode == 0
