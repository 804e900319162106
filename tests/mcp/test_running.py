"""MCP servers in the life of a service: what is said of them, reloads, the command line, what is stored."""

import json
import os

import pytest

from conftest import MODES, descendants, living, names, reads, script, served, source
from harness import cli, later, lines_in, now, ok, parallel, poll, problem, spent, text_of
from recipes import CALLERS, KEYS, to_yaml


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def test_what_is_said_of_it(start, mode):
    crib = served(start, s=script("calls", mode=mode, tools=reads("pid")))
    told = source(crib)
    assert (told["kind"], told["state"], told["fault"], told["replaced"]) == ("mcp", "up", None, 0) and told["tools"] > 30, told
    assert told["workers"] == (1 if mode == "persistent" else 0), told
    assert 'toolcrib_source_up{source="s"} 1' in crib.get("/metrics").body.decode()
    tool = crib.get("/tools/s_pid").json
    assert (tool["kind"], tool["effect"], tool["available"]) == ("mcp", "read", True), tool


def test_only_callers_that_may(start, mode):
    crib = start({"callers": [*CALLERS[1:], dict(CALLERS[0], allow=["s_echo"])], "mcp_servers": {"s": script("calls", mode=mode)}}, env=KEYS)
    poll(lambda: crib.get("/readyz").status == 200, 20)
    ok(crib.invoke("s_echo", key=KEYS["ANN"]))
    problem(crib.invoke("s_pid", key=KEYS["ANN"]), {403, 404})
    problem(crib.get("/sources", key=KEYS["ANN"]), 403)
    assert {tool["name"] for tool in crib.get("/tools", key=KEYS["ANN"]).json["tools"]} == {"s_echo"}


def test_limits_and_stored_results_are_toolcribs(start, mode, tmp_path):
    environment = {"COUNTED": str(tmp_path / "counted"), "STARTED": str(tmp_path / "started")}
    policies = {"count": {"effect": "read", "cache": {"ttl": "1m"}}, "pid": {"effect": "read", "limits": [{"calls": 2, "per": "day"}]}}
    crib = served(start, s=script("calls", mode=mode, environment=environment, tools=policies))
    ok(crib.invoke("s_count", {"n": 1}))
    began = lines_in(tmp_path / "started")
    assert [ok(crib.invoke("s_count", {"n": 1}))["meta"]["cache"] for _ in range(5)] == ["hit"] * 5
    assert lines_in(tmp_path / "counted") == 1 and lines_in(tmp_path / "started") == began, "nothing is asked, nothing is started"
    ok(crib.invoke("s_pid")), ok(crib.invoke("s_pid"))
    problem(crib.invoke("s_pid"), 429, "usage_limit_reached")


def test_a_server_that_is_taken_out_keeps_no_answer_back(start, mode):
    """Its call's answer goes when it is there; that its process takes its time to end is nobody's business."""
    slow = script("calls", mode=mode, tools=reads("late"))
    slow["command"] = ["/bin/sh", "-c", "trap '' TERM; \"$@\"; sleep 20", "sh", *slow["command"]]
    crib = served(start, s=slow)
    began = now()
    call = later(lambda: crib.invoke("s_late", {"n": 2}))
    crib.wait_row("tool=s_late&state=running")
    crib.manifest.write_text(to_yaml({"mcp_servers": {}}))
    poll(lambda: "s_late" not in names(crib), 15, "it is taken out")
    assert text_of(ok(call(10))) == "too late"
    assert spent(began) < 3.4
    below = descendants(crib.pid)
    crib.stop()
    poll(lambda: not living(below), 2, "what was left of it ends with the service")


def test_a_reload_of_the_manifest(start, mode, tmp_path):
    """An entry that stays as it is keeps its process; one that changes gets a new one, and calls under way end in the old."""
    entry = lambda **more: {"mcp_servers": {"s": script("calls", mode=mode, tools=reads("pid", "late"), **more), "kept": script("calls", tools=reads("pid"))}}  # noqa: E731
    crib = start(entry()).ready()
    before = {name: text_of(ok(crib.invoke(f"{name}_pid"))) for name in ("s", "kept")}
    call = later(lambda: crib.invoke("s_late", {"n": 2}))
    crib.wait_row("tool=s_late&state=running")
    crib.manifest.write_text(to_yaml(entry(environment={"NEW": "yes"})))
    poll(lambda: json.loads(text_of(ok(crib.invoke("s_environment")))).get("NEW") == "yes", 15, "the new entry is served")
    assert text_of(ok(call(10))) == "too late"
    assert text_of(ok(crib.invoke("kept_pid"))) == before["kept"]
    assert text_of(ok(crib.invoke("s_pid"))) != before["s"]
    crib.manifest.write_text(to_yaml({"mcp_servers": {"kept": script("calls", tools=reads("pid"))}}))
    poll(lambda: "s_pid" not in names(crib), 15, "it is gone")
    poll(lambda: descendants(crib.pid) == {int(before["kept"])}, 10, "and so is its process")


def test_many_at_once_on_demand(start):
    crib = served(start, s=script("calls", mode="on_demand", tools={"pid": {"effect": "read", "concurrency": {"max": 8}}}))
    pids = {text_of(ok(reply)) for reply in parallel(8, lambda _: crib.invoke("s_pid"))}
    assert len(pids) == 8
    poll(lambda: not descendants(crib.pid), 10, "none is left")


def test_the_command_line(tmp_path, mode):
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


def test_the_command_line_with_one_that_fails(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"mcp_servers": {"s": script("starts", "dies", start_timeout="3s"), "fine": script("calls")}}))
    done = cli("call", "fine_echo", "{}", cwd=tmp_path)
    assert done.returncode == 0, done
    done = cli("tools", cwd=tmp_path)
    assert done.returncode == 1 and "made-up.conf" in done.stderr, done
    assert "fine_echo" in done.stdout
