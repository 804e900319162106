"""The operator's commands on a running service: cancel, enable, disable, purge."""

import json
import threading

from harness import cli, ok, poll, problem
from recipes import sh
from terminal import on_terminal


def test_tools_are_switched(start, tmp_path):
    crib = start({"tools": {"greet": sh("echo hello", effect="read")}})
    code, text, _ = on_terminal("disable", "greet", "--server", f"localhost:{crib.port}", cwd=tmp_path)
    assert (code, text) == (0, "greet: disabled\n")
    problem(crib.invoke("greet"), 403, "tool_disabled")
    done = cli("enable", "greet", "--server", crib.port, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout) == {"tool": "greet", "enabled": True}, done
    ok(crib.invoke("greet"))
    missing = cli("disable", "gret", "--server", crib.base, cwd=tmp_path)
    assert missing.returncode == 1 and json.loads(missing.stdout)["kind"] == "unknown_tool", missing
    code, text, stderr = on_terminal("disable", "gret", "--server", crib.base, cwd=tmp_path)
    assert code == 1 and not text and stderr == "toolcrib: there is no tool `gret`\n", (text, stderr)


def test_stored_results_are_purged(start, tmp_path):
    crib = start({"tools": {"a": sh("echo a", effect="read", cache={"ttl": "1h"}), "b": sh("echo b", effect="read", cache={"ttl": "1h"})}})
    for name in "ab":
        ok(crib.invoke(name))
    assert poll(lambda: ok(crib.invoke("a"))["meta"]["cache"] == "hit", what="a stored result")
    done = cli("purge", "a", "--server", crib.base, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout) == {"tool": "a", "purged": 1}, done
    assert ok(crib.invoke("a"))["meta"]["cache"] == "miss" and ok(crib.invoke("b"))["meta"]["cache"] == "hit"
    code, text, _ = on_terminal("purge", "--server", crib.base, cwd=tmp_path)
    assert code == 0 and text.startswith("all tools: ") and text.endswith("purged\n"), text
    assert ok(crib.invoke("b"))["meta"]["cache"] == "miss"


def start_slow(crib):
    thread = threading.Thread(target=crib.invoke, args=("slow",), daemon=True)
    thread.start()
    return thread, crib.wait_row("tool=slow&state=running")["invocation_id"]


def test_running_call_is_cancelled(start, tmp_path):
    """By its id, or by the end of the id that the table shows."""
    crib = start({"tools": {"slow": sh("sleep 60", effect="read", timeout="90s")}})
    for shorten in (False, True):
        thread, invocation = start_slow(crib)
        table = cli("invocations", "--server", crib.base, "--state", "running", "--format", "table", cwd=tmp_path).stdout
        shown = table.splitlines()[1].split()[0]
        assert invocation.endswith(shown) and len(shown) == 12, table
        code, text, stderr = on_terminal("cancel", shown if shorten else invocation, "--server", crib.base, cwd=tmp_path)
        assert (code, text) == (0, f"slow: cancelled ({invocation})\n"), (text, stderr)
        thread.join(20)
        assert crib.row(invocation)["kind"] == "cancelled"
    for end in ("", invocation[-11:]):
        short = cli("cancel", end, "--server", crib.base, cwd=tmp_path)
        assert short.returncode == 64 and "is too short: give the whole id, or its last 12 characters" in short.stderr, short
    ended = cli("cancel", invocation[-12:], "--server", crib.base, cwd=tmp_path)
    assert ended.returncode == 1 and "no running call has an id that ends with" in ended.stderr, ended
    unknown = cli("cancel", "0" * 8 + "-0000-7000-8000-" + "0" * 12, "--server", crib.base, cwd=tmp_path)
    assert unknown.returncode == 1 and json.loads(unknown.stdout)["status"] == 404, unknown


def test_local_service_is_the_default(start, tmp_path):
    crib = start({"tools": {"greet": sh("echo hello", effect="read")}})
    for listen in (f"127.0.0.1:{crib.port}", f"0.0.0.0:{crib.port}", crib.port):
        done = cli("sources", cwd=tmp_path, env={"TOOLCRIB_LISTEN": str(listen)})
        assert done.returncode == 0 and json.loads(done.stdout) == {"sources": []}, done
    nobody = cli("sources", cwd=tmp_path, env={"TOOLCRIB_LISTEN": "127.0.0.1:1"})
    assert nobody.returncode == 1 and "is the service running there?" in nobody.stderr, nobody


def test_keys_are_sent(start, tmp_path):
    key = "operator-key-0123456789"
    crib = start({"callers": [{"name": "o", "key": key, "admin": True}], "tools": {"greet": sh("echo hello", effect="read")}})
    assert cli("purge", "--server", crib.base, cwd=tmp_path).returncode == 1
    refused = cli("cancel", "0" * 12, "--server", crib.base, "--format", "json", cwd=tmp_path)
    assert refused.returncode == 1 and json.loads(refused.stdout)["status"] == 401, refused
    assert cli("purge", "--server", crib.base, "--key", key, cwd=tmp_path).returncode == 0
    assert cli("purge", cwd=tmp_path, env={"TOOLCRIB_SERVER": crib.base, "TOOLCRIB_KEY": key}).returncode == 0


def test_waiting_call_is_decided_by_the_end_of_its_id(start, tmp_path):
    pay = sh("echo paid", effect="write", approval={"wait": "1ms"})
    crib = start({"tools": {"pay": pay}})
    waiting = crib.invoke("pay").json["invocation_id"]
    short = cli("approvals", "approve", waiting[-11:], "--server", crib.base, cwd=tmp_path)
    assert short.returncode == 64 and "is too short" in short.stderr, short
    other = cli("approvals", "deny", "0" * 12, "--server", crib.base, cwd=tmp_path)
    assert other.returncode == 1 and "no waiting call has an id that ends with" in other.stderr, other
    done = cli("approvals", "approve", waiting[-12:], "--server", crib.base, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["invocation_id"] == waiting, done


def test_tools_of_a_running_service_are_printed(start, tmp_path):
    crib = start({"tools": {"greet": sh("echo hello", effect="read")}})
    done = cli("tools", "--server", crib.base, cwd=tmp_path)
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["greet"], done
    table = cli("tools", "--server", crib.base, "--format", "table", cwd=tmp_path).stdout.splitlines()
    assert table[0].split() == ["TOOL", "KIND", "EFFECT", "DESCRIPTION"] and table[1].split()[:3] == ["greet", "command", "read"], table
    openai = json.loads(cli("tools", "--server", crib.base, "--format", "openai", cwd=tmp_path).stdout)
    assert openai[0]["function"]["name"] == "greet", openai


def test_calls_are_filtered_by_states_kind_and_text(start, tmp_path):
    """What failed, and why: over HTTP, by the command line, and in the file."""
    say = lambda script, **policy: sh(script, effect="read", **policy)
    crib = start({"tools": {"fine": say("echo all well"), "breaks": say("echo no paper in the printer >&2; exit 3"),
                            "slow": say("exec sleep 60", timeout="100ms")}})
    for name in ("fine", "breaks", "slow"):
        crib.invoke(name)
    crib.invoke("fine", {"unknown": 1})
    names = lambda query: sorted(row["tool"] for row in crib.rows(query))
    assert names("state=failed,timed_out") == ["breaks", "slow"]
    assert names("kind=invalid_arguments") == ["fine"] and names("kind=attempt_timed_out") == ["slow"]
    assert names("q=NO%20paper") == ["breaks"] and names("q=within") == ["slow"] and len(names("q=fine")) == 2
    assert names("until=1h") == [] and names("since=1h&until=2999-01-01T00:00:00Z&state=failed") == ["breaks"]
    assert "no paper in the printer" in crib.rows("q=paper")[0]["detail"]
    for query, words in (("state=failed,nope", "`nope` is not known here"), ("kind=nope", "`nope` is not known here"), ("until=nope", "until is a time")):
        assert words in problem(crib.get(f"/invocations?{query}"), 400, "invalid_request")["detail"]
    assert "printer" not in crib.stderr, "the log never has the text of a tool"
    options = ("--state", "failed,timed_out", "--q", "paper", "--since", "1h", "--until", "2999-01-01T00:00:00Z")
    for place in (("--server", crib.base), ("--ledger", str(crib.folder / "toolcrib.db"))):
        shown = json.loads(cli("invocations", *place, *options, cwd=tmp_path).stdout)["invocations"]
        assert [row["tool"] for row in shown] == ["breaks"], shown
        shown = json.loads(cli("invocations", *place, "--kind", "attempt_timed_out", cwd=tmp_path).stdout)["invocations"]
        assert [row["tool"] for row in shown] == ["slow"], shown
    wrong = cli("invocations", "--state", "failed,nope", cwd=tmp_path)
    assert wrong.returncode == 64 and "there is no state `nope`" in wrong.stderr, wrong
