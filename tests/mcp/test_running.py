"""MCP servers during the life of a service: their status, reloads, the command line, stored results."""

import json
import os

import pytest

from conftest import MODES, names, read_policies, script, start_with_servers, source
from harness import alive, cli, descendants, elapsed, in_background, lines_in, now, ok, parallel, poll, problem, text_of
from recipes import CALLERS, KEYS, to_yaml


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def test_source_status_describes_the_server(start, mode):
    crib = start_with_servers(start, s=script("calls", mode=mode, tools=read_policies("pid")))
    status = source(crib)
    assert (status["kind"], status["state"], status["fault"], status["replaced"]) == ("mcp", "up", None, 0) and status["tools"] > 30, status
    assert status["workers"] == (1 if mode == "persistent" else 0), status
    assert 'toolcrib_source_up{source="s"} 1' in crib.get("/metrics").body.decode()
    tool = crib.get("/tools/s_pid").json
    assert (tool["kind"], tool["effect"], tool["available"]) == ("mcp", "read", True), tool


def test_grants_apply_to_server_tools(start, mode):
    crib = start({"callers": [*CALLERS[1:], dict(CALLERS[0], allow=["s_echo"])], "mcp_servers": {"s": script("calls", mode=mode)}}, env=KEYS)
    poll(lambda: crib.get("/readyz").status == 200, 20)
    ok(crib.invoke("s_echo", key=KEYS["ANN"]))
    problem(crib.invoke("s_pid", key=KEYS["ANN"]), {403, 404})
    problem(crib.get("/sources", key=KEYS["ANN"]), 403)
    assert {tool["name"] for tool in crib.get("/tools", key=KEYS["ANN"]).json["tools"]} == {"s_echo"}


def test_limits_and_cache_apply_to_server_tools(start, mode, tmp_path):
    environment = {"COUNTED": str(tmp_path / "counted"), "STARTED": str(tmp_path / "started")}
    policies = {"count": {"effect": "read", "cache": {"ttl": "1m"}, "aliases": ["tally"]}, "pid": {"effect": "read", "limits": [{"calls": 2, "per": "day"}]}}
    crib = start_with_servers(start, s=script("calls", mode=mode, environment=environment, tools=policies, timeout="9s"))
    ok(crib.invoke("tally", {"n": 1}))
    tool = crib.get("/tools/tally").json
    assert [tool["name"], tool["kind"], tool["origin"], tool["effect"], tool["policy"]["timeout"]] == ["s_count", "mcp", "manifest", "read", "9s"]
    began = lines_in(tmp_path / "started")
    assert [ok(crib.invoke("s_count", {"n": 1}))["meta"]["cache"] for _ in range(5)] == ["hit"] * 5
    assert lines_in(tmp_path / "counted") == 1 and lines_in(tmp_path / "started") == began, "nothing is asked, nothing is started"
    ok(crib.invoke("s_pid")), ok(crib.invoke("s_pid"))
    problem(crib.invoke("s_pid"), 429, "usage_limit_reached")


def test_removed_server_still_answers_its_call(start, mode):
    """The running call is answered, although the server's process takes its time to end."""
    slow = script("calls", mode=mode, tools=read_policies("late"))
    slow["command"] = ["/bin/sh", "-c", "trap '' TERM; \"$@\"; sleep 20", "sh", *slow["command"]]
    crib = start_with_servers(start, s=slow)
    began = now()
    call = in_background(lambda: crib.invoke("s_late", {"n": 2}))
    crib.wait_row("tool=s_late&state=running")
    crib.manifest.write_text(to_yaml({"mcp_servers": {}}))
    poll(lambda: "s_late" not in names(crib), 15, "it is taken out")
    assert text_of(ok(call(10))) == "too late"
    assert elapsed(began) < 3.4
    below = descendants(crib.pid)
    crib.stop()
    poll(lambda: not alive(below), 2, "what was left of it ends with the service")


def test_manifest_reload_keeps_unchanged_servers(start, mode, tmp_path):
    """An unchanged entry keeps its process; a changed one gets a new process, and running calls end in the old one."""
    entry = lambda **more: {"mcp_servers": {"s": script("calls", mode=mode, tools=read_policies("pid", "late"), **more), "kept": script("calls", tools=read_policies("pid"))}}  # noqa: E731
    crib = start(entry()).ready()
    before = {name: text_of(ok(crib.invoke(f"{name}_pid"))) for name in ("s", "kept")}
    call = in_background(lambda: crib.invoke("s_late", {"n": 2}))
    crib.wait_row("tool=s_late&state=running")
    crib.manifest.write_text(to_yaml(entry(environment={"NEW": "yes"})))
    poll(lambda: json.loads(text_of(ok(crib.invoke("s_environment")))).get("NEW") == "yes", 15, "the new entry is served")
    assert text_of(ok(call(10))) == "too late"
    assert text_of(ok(crib.invoke("kept_pid"))) == before["kept"]
    assert text_of(ok(crib.invoke("s_pid"))) != before["s"]
    crib.manifest.write_text(to_yaml({"mcp_servers": {"kept": script("calls", tools=read_policies("pid"))}}))
    poll(lambda: "s_pid" not in names(crib), 15, "it is gone")
    poll(lambda: descendants(crib.pid) == {int(before["kept"])}, 10, "and so is its process")


def test_on_demand_calls_run_in_parallel(start):
    crib = start_with_servers(start, s=script("calls", mode="on_demand", tools={"pid": {"effect": "read", "concurrency": {"max": 8}}}))
    pids = {text_of(ok(reply)) for reply in parallel(8, lambda _: crib.invoke("s_pid"))}
    assert len(pids) == 8
    poll(lambda: not descendants(crib.pid), 10, "none is left")


def test_command_line_uses_the_server(tmp_path, mode):
    environment = {"STARTED": str(tmp_path / "started")}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"mcp_servers": {"s": script("calls", mode=mode, environment=environment)}}))
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 0 and not (tmp_path / "started").exists(), "it starts nothing"
    done = cli("tools", "--format", "openai", cwd=tmp_path)
    assert done.returncode == 0 and "s_echo" in {tool["function"]["name"] for tool in json.loads(done.stdout)}, done
    done = cli("call", "s_echo", '{"a": 1}', cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["content"][0]["text"] == '{"a": 1}', done
    for pid in (tmp_path / "started").read_text().split():
        poll(lambda: not os.path.exists(f"/proc/{pid}"), 10, "nothing is left running")


def test_command_line_reports_a_failed_server(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"mcp_servers": {"s": script("starts", "dies", start_timeout="3s"), "fine": script("calls")}}))
    done = cli("call", "fine_echo", "{}", cwd=tmp_path)
    assert done.returncode == 0, done
    done = cli("tools", cwd=tmp_path)
    assert done.returncode == 1 and "made-up.conf" in done.stderr, done
    assert "fine_echo" in done.stdout
