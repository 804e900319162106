"""Tables on a terminal, JSON for programs."""

import json

import pytest

from harness import cli, ok, poll
from recipes import sh, to_yaml
from terminal import on_terminal

LONG = "Greets whoever asks, in as many words as are needed to make this description much longer than any terminal is wide."
TOOLS = {"greet": sh("echo hello", effect="read", description=LONG), "sad": sh("exit 1", effect="write"),
         "off": sh("exit 0", effect="write", enabled=False)}


@pytest.fixture(scope="module")
def crib(start_shared):
    crib = start_shared({"tools": {**TOOLS, "slow": sh("sleep 30", effect="read", timeout="60s")}})
    ok(crib.invoke("greet"))
    crib.invoke("sad")
    crib.wait_row("tool=sad")
    return crib


COMMANDS = {"usage": ("TOOL", "greet"), "invocations": ("ID", "greet"), "sources": ("no sources", "no sources")}


def assert_table(text, *words, columns=80):
    """Lines that fit, without escape codes."""
    lines = text.splitlines()
    assert lines and all(len(line) <= columns for line in lines) and "\x1b" not in text, text
    assert all(word in text for word in words), text
    return lines


@pytest.mark.parametrize("command", COMMANDS)
def test_terminal_gets_table_and_pipe_gets_json(crib, tmp_path, command):
    code, text, _ = on_terminal(command, "--server", crib.base, cwd=tmp_path)
    assert code == 0
    assert_table(text, *COMMANDS[command])
    piped = cli(command, "--server", crib.base, cwd=tmp_path)
    assert piped.returncode == 0 and isinstance(json.loads(piped.stdout), dict), piped
    code, text, _ = on_terminal(command, "--server", crib.base, "--format", "json", cwd=tmp_path)
    assert code == 0 and list(json.loads(text)) == list(json.loads(piped.stdout)), text
    forced = cli(command, "--server", crib.base, "--format", "table", cwd=tmp_path)
    assert_table(forced.stdout, *COMMANDS[command])


def test_tables_fit_the_terminal(crib, tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": TOOLS}))
    for columns in (50, 60, 80, 200):
        code, text, _ = on_terminal("tools", cwd=tmp_path, columns=columns)
        lines = assert_table(text, "greet", "sad", "disabled", columns=columns)
        assert code == 0 and lines[0].split()[:3] == ["TOOL", "KIND", "EFFECT"], text
        assert ("…" in text) == (columns < 150), text
    narrow = cli("tools", "--format", "table", cwd=tmp_path, env={"COLUMNS": "50"})
    assert_table(narrow.stdout, "greet", columns=50)


def test_tools_json_is_the_native_format(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": TOOLS}))
    plain, native, other = (cli("tools", *args, cwd=tmp_path).stdout for args in ((), ("--format", "native"), ("--format", "json")))
    assert plain == native == other and {tool["name"] for tool in json.loads(plain)["tools"]} == set(TOOLS)
    code, text, _ = on_terminal("tools", "--format", "openai", cwd=tmp_path)
    assert code == 0 and json.loads(text)[0]["type"] == "function", text


def test_tokens_of_tools_have_the_biggest_first(tmp_path):
    wordy = {**TOOLS["greet"], "description": "Greets. " * 300}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {**TOOLS, "wordy": wordy}}))
    costs = json.loads(cli("tools", "--tokens", cwd=tmp_path).stdout)
    numbers = [tool["tokens"]["anthropic"] for tool in costs["tools"]]
    assert numbers == sorted(numbers, reverse=True) and sum(numbers) == costs["total"]["anthropic"], costs
    assert costs["tools"][0]["name"] == "wordy" and "shorten it" in costs["tools"][0]["advice"], costs
    assert costs["tools"][-1]["advice"] == "" and set(costs["total"]) >= {"openai", "mcp"}, costs
    table = cli("tools", "--tokens", "--format", "table", cwd=tmp_path)
    assert table.stdout.splitlines()[1].split()[:2] == ["wordy", str(numbers[0])], table
    assert "one token for 4.5 bytes" in table.stderr, table


def test_check_is_text_unless_json_is_asked_for(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": TOOLS}))
    code, text, _ = on_terminal("check", cwd=tmp_path)
    assert code == 0 and "ok: 3 tools" in text and "ok: 3 tools" in cli("check", cwd=tmp_path).stdout, text
    code, text, _ = on_terminal("check", "--format", "json", cwd=tmp_path)
    assert code == 0 and json.loads(text)["ok"] is True, text


def test_failed_calls_show_a_reason(crib, tmp_path):
    crib.invoke("nope")
    crib.invoke("greet", {"x": 1})
    text = poll(lambda: (lambda out: out if "refused" in out else None)(
        cli("invocations", "--server", crib.base, "--format", "table", cwd=tmp_path).stdout), what="the refused call")
    (line,) = [line for line in text.splitlines() if "greet" in line and "refused" in line]
    shown = line.split("ms", 1)[1].strip()
    assert shown, text


def test_older_calls_are_announced(crib, tmp_path):
    ok(crib.invoke("greet"))
    text = poll(lambda: (lambda out: out if "Older calls are not shown" in out else None)(
        cli("invocations", "--server", crib.base, "--limit", "1", "--format", "table", cwd=tmp_path).stdout), what="two calls")
    assert len(text.splitlines()) == 4, text


def test_refusals_are_sentences_on_a_terminal(start, tmp_path):
    crib = start({"callers": [{"name": "a", "key": "a-long-enough-key-0123"}], "tools": {"calculator": {"kind": "native"}}})
    code, text, stderr = on_terminal("usage", "--server", crib.base, cwd=tmp_path)
    assert code == 1 and not text and stderr.startswith("toolcrib: ") and "{" not in stderr, (text, stderr)
    piped = cli("usage", "--server", crib.base, cwd=tmp_path)
    assert piped.returncode == 1 and json.loads(piped.stdout)["status"] == 401, piped
    keyed = cli("usage", "--server", crib.base, "--key", "a-long-enough-key-0123", cwd=tmp_path)
    assert keyed.returncode == 0, keyed


def test_sources_show_faults_in_full(start, tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "lib.py").write_text("def add(a: int, b: int) -> int:\n    'Adds two numbers.'\n    return a + b\n")
    (folder / "bad.py").write_text("import no_such_module_at_all\n")
    crib = start({"python_modules": {"lib": {"module": str(folder / "lib.py"), "functions": ["add"]},
                                     "bad": {"module": str(folder / "bad.py"), "functions": ["add"]}}})
    text = poll(lambda: (lambda out: out if "failed" in out and " up " in out else None)(
        cli("sources", "--server", crib.base, "--format", "table", cwd=tmp_path).stdout), 20, "both sources")
    assert text.splitlines()[0].split()[:4] == ["SOURCE", "KIND", "STATE", "TOOLS"], text
    assert any(line.startswith("bad: ") and "no_such_module_at_all" in line for line in text.splitlines()), text
