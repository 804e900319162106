"""Standard error: one line for each call, JSON or text, and never a secret."""

import json
import os
import pty
import re
import signal
import subprocess
import threading

import pytest

from harness import BIN, Crib, clean_env, ok, parallel, poll, problem, error_result
from recipes import KEYS, params, sh, to_yaml, web

FIELDS = {"timestamp", "level", "message", "invocation_id", "request_id", "tool", "caller", "state", "cache", "attempts",
          "duration_ms", "target"}
PLAIN = {"tools": {"yes": sh("echo y", effect="read"), "no": sh("exit 1", effect="read"), "cached": sh(
    "echo c", effect="read", cache={"ttl": "1h"})}}


def lines(crib):
    """Every line of standard error, each of which must be JSON."""
    return [json.loads(line) for line in crib.stderr.splitlines()]


def calls(crib):
    return [line for line in lines(crib) if line["target"] == "toolcrib::call"]


def test_every_call_logs_one_line(start, upstream):
    """Its fields agree with the ledger; info for answers and refusals, warn for unavailable upstreams."""
    crib = start({"tools": dict(PLAIN["tools"], down=web(upstream.base + "/reset", effect="read", retry={"attempts": 2}))})
    requests = [ok(crib.invoke("yes", {"n": 1}, run_id="run \"1\"\n", tool_use_id="use-1", headers={"x-request-id": "req-1"})),
             error_result(crib.invoke("no")), problem(crib.invoke("yes", {"n": "x"}), 422), problem(crib.invoke("down"), 502),
             ok(crib.invoke("cached")), ok(crib.invoke("cached"))]
    problem(crib.invoke("unknown"), 404)
    crib.get("/tools")
    found = poll(lambda: (lambda all: all if len(all) >= len(requests) else None)(calls(crib)), what="a line for each call")
    assert [line["invocation_id"] for line in found] == [answer["invocation_id"] for answer in requests]
    for line in found:
        assert FIELDS <= set(line) <= FIELDS | {"run_id", "tool_use_id", "kind", "detail"}, line
        assert ("detail" in line) == (line["state"] != "succeeded"), line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", line["timestamp"]) and line["message"] == "call"
        row = crib.row(line["invocation_id"])
        for field in ("tool", "caller", "state", "cache", "attempts", "duration_ms"):
            assert line[field] == row[field], (field, line, row)
        assert (line.get("run_id"), line.get("kind")) == (row["run_id"], row["kind"])
    assert [(line["level"], line["state"], line["cache"]) for line in found] == [
        ("INFO", "succeeded", "off"), ("INFO", "failed", "off"), ("INFO", "refused", "off"), ("WARN", "failed", "off"),
        ("INFO", "succeeded", "miss"), ("INFO", "succeeded", "hit")]
    assert (found[0]["request_id"], found[0]["run_id"], found[0]["tool_use_id"]) == ("req-1", "run \"1\"\n", "use-1")


def test_request_ids_are_returned(start):
    crib = start(PLAIN)
    for sent, stored in (("abc-1", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("a\tb", False), ("", False), ("\u00e9", False), (None, False)):
        for tool, status in (("yes", 200), ("unknown", 404)):
            reply = crib.invoke(tool, headers={"x-request-id": sent})
            id = reply.headers["x-request-id"]
            assert reply.status == status and (id == sent if stored else re.fullmatch(r"[0-9a-f-]{36}", id)), (sent, id)
            if status == 200:
                poll(lambda: [line for line in calls(crib) if line["request_id"] == id], what=f"{id!r} in the log")
    assert re.fullmatch(r"[0-9a-f-]{36}", crib.get("/no/such/route").headers["x-request-id"]), "what never becomes a call has one too"
    twice = crib.raw(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Request-Id: one\r\nX-Request-Id: two\r\n\r\n").decode()
    assert re.findall(r"x-request-id: (\S+)", twice.lower()) == re.findall(r"x-request-id: ([0-9a-f-]{36})\r", twice.lower()) != []


def test_lines_are_complete_after_shutdown(start):
    """Two thousand calls at once and a SIGTERM right behind them: every line is there, once."""
    crib = start({"defaults": {"concurrency": {"max": 64, "queue": 512, "wait": "20s"}}, "tools": {"calculator": {"kind": "native"}}})

    def work(_):
        session = crib.session()
        ids = [ok(session.invoke("calculator", {"expression": "6*7"}))["invocation_id"] for _ in range(125)]
        session.close()
        return ids

    ids = [id for some in parallel(16, work) for id in some]
    crib.stop()
    assert sorted(line["invocation_id"] for line in calls(crib)) == sorted(ids)
    assert lines(crib)[-1]["message"] == "stopped"


@pytest.mark.parametrize("filter, levels", [("toolcrib=warn", ["WARN"]), ("error", []), ("off", []), ("toolcrib::call=off,info", []),
                                            ("warn,toolcrib::call=info", ["INFO", "WARN"]), ("debug", ["INFO", "WARN"])])
def test_filter_decides_what_is_logged(start, upstream, filter, levels):
    crib = start({"tools": dict(PLAIN["tools"], down=web(upstream.base + "/reset", effect="read"))}, args=["--log", filter])
    ok(crib.invoke("yes"))
    problem(crib.invoke("down"), 502)
    crib.stop()
    assert [line["level"] for line in calls(crib)] == levels


def test_unread_pipe_does_not_block_the_service(tmp_path):
    """A pipe that is not read: calls continue, lost lines are counted, SIGTERM still ends the service."""
    crib = Crib.__new__(Crib)
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"calculator": {"kind": "native", "cache": {"ttl": "1h"}}}}))
    process = subprocess.Popen([BIN, "serve", "--listen", "127.0.0.1:0"], cwd=tmp_path, env=clean_env(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        crib.port = int(process.stdout.readline().rsplit(b":", 1)[1])

        def work(_):
            session = crib.session()
            for _ in range(800):
                ok(session.invoke("calculator", {"expression": "6*7"}))
            session.close()

        parallel(8, work)
        text = crib.get("/metrics").body.decode()
        lost = int(re.search(r"^toolcrib_log_dropped_total (\d+)$", text, re.M).group(1))
        assert lost > 0, "6400 lines do not fit into a pipe and a queue"
        process.send_signal(signal.SIGTERM)
        # The pipe is still not read.
        assert process.wait(28) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()


# ---- the start, and a terminal -----------------------------------------------------------------------------------------

def test_start_logs_its_settings(start):
    """One JSON line with the facts; on standard output the address alone."""
    crib = start({"server": {"allowed_hosts": ["crib.example"]}, "callers": [{"name": "ann", "key": "ann-key-0123456789abcdef"}, {
        "name": "root", "key": "root-key-0123456789abcdef", "admin": True}], "tools": dict(
            PLAIN["tools"], calculator={"kind": "native"}, off=sh("echo o", enabled=False))})
    assert crib.stdout.splitlines() == [f"listening on {crib.base}"]
    ready = poll(lambda: [line for line in lines(crib) if line["message"] == "ready"])[0]
    assert ready["level"] == "INFO" and ready["address"] == f"{crib.host}:{crib.port}" and ready["version"]
    assert (ready["tools"], ready["tools_off"], ready["tools_by_kind"]) == (5, 1, "1 native, 4 command")
    assert str(crib.ledger) in ready["ledger"] and ready["callers"] == "ann, root (admin)" and ready["hosts"] == "crib.example"
    assert "/livez" in ready["open"] and ready["docs"] == f"{crib.base}/docs" and ready["metrics"] == f"{crib.base}/metrics"


def on_terminal(folder, *args, env=None):
    """Runs `serve` with a terminal as standard error, calls a tool, stops it; standard output and what the terminal shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BIN, "serve", "--listen", "127.0.0.1:0", *args], cwd=folder, env=clean_env(env),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = []

    def read():
        try:
            while part := os.read(ours, 65536):
                shown.append(part)
        except OSError:  # Linux says so when the other end is closed
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        first = process.stdout.readline().decode()
        crib = Crib.__new__(Crib)
        crib.port = int(first.rsplit(":", 1)[1])
        ok(crib.invoke("calculator", {"expression": "6*7"}, run_id="a\x1b[2Jb"))
        problem(crib.invoke("calculator", {}), 422)
        process.send_signal(signal.SIGTERM)
        assert process.wait(28) == 0
        reader.join(5)
        return first + process.stdout.read().decode(), b"".join(shown).decode().replace("\r\n", "\n")
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        os.close(ours)


def test_terminal_gets_coloured_text(tmp_path):
    out, shown = on_terminal(tmp_path)
    assert re.fullmatch(r"listening on http://\S+\n", out)
    assert "\x1b[32m" in shown and "\x1b[2J" not in shown, "our colours, nobody else's control codes"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    for word in ("Toolcrib ", "\n  tools    6 (6 native)\n", "\n  ledger   sqlite ", "\n  callers  none\n", "\n  open     everything, to every client",
                 "\n  limits   ", "\n  console  http://127.0.0.1:", "/docs and http", "\n  curl -s http://127.0.0.1:"):
        assert word in plain, (word, plain)
    found = re.findall(r"^\S+Z +INFO toolcrib::call: calculator (\w+) in [\d.]+ ms( kind=\w+)?(?: detail=\"[^\"]*\")? caller=\"anonymous\"", plain, re.M)
    assert found == [("succeeded", ""), ("refused", " kind=invalid_arguments")], plain
    assert plain.rstrip().endswith("stopped")


@pytest.mark.parametrize("how", [["--log-format", "json"], None])
def test_format_can_be_chosen(tmp_path, start, how):
    _, shown = on_terminal(tmp_path, *(how or []), env={} if how else {"TOOLCRIB_LOG_FORMAT": "json"})
    assert all(json.loads(line) for line in shown.splitlines()) and "\x1b" not in shown
    crib = start(PLAIN, args=["--log-format", "human"])
    ok(crib.invoke("yes"))
    crib.stop()
    assert "toolcrib::call: yes succeeded in" in crib.stderr and "\x1b" not in crib.stderr and "{" not in crib.stderr


# ---- secrets -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", [["--log-format", "json"], ["--log-format", "human"], ["--log-format", "json", "--log", "trace"]])
def test_failures_log_no_secret(start, upstream, how):
    """Keys, header values, arguments and query strings, planted wherever a call can fail, are not in the log."""
    key, header, argument = "planted-secret-key-1", "planted-header-2", "planted-argument-3"

    def failing(url, **policy):
        request = {"headers": {"authorization": "Bearer ${env:PLANTED}", "x-more": "{{ text }}"}, "query": {"q": "{{ text }}"}}
        return web(url, request=request, effect="read", timeout="500ms", parameters=params(text="string"), **policy)

    echo = lambda handler: handler.reply(500, f"{dict(handler.headers)} {handler.path}".encode(), "text/plain")  # noqa: E731
    upstream.script("/fails", echo)
    upstream.script("/half-json", lambda handler: handler.reply(200, b'{"a": "' + str(dict(handler.headers)).encode(), "application/json"))
    paths = ("/fails", "/half-json", "/reset", "/hang", "/notfound", "/endless")
    crib = start({
        "callers": [{"name": "ann", "key": "${env:ANN}"}, {"name": "root", "key": "${env:ROOT}", "admin": True}],
        "tools": {
            **{path.strip("/").replace("-", "_"): failing(upstream.base + path, retry={"attempts": 2}) for path in paths},
            "nobody_there": failing("http://127.0.0.1:1/" + "{{ text }}"), "gated": failing("http://169.254.1.1/{{ text }}"),
            "says_no": sh("echo \"$PLANTED $0 $1\" >&2; exit 1", env=[{"name": "PLANTED", "description": "A key"}]),
            "argv": {"kind": "command", "description": "Fails with its argument.", "parameters": params(text="string"),
                     "command": ["/bin/sh", "-c", "echo \"$1\" >&2; exit 3", "sh", "{{ text }}"], "effect": "read"},
            "off": sh("true", enabled=False), "typed": sh("true", parameters=params(n="integer"))}},
        env=dict(KEYS, PLANTED=key), args=how)
    for name in [path.strip("/").replace("-", "_") for path in paths] + ["nobody_there", "gated", "argv", "off"]:
        assert crib.invoke(name, {"text": argument}, key=KEYS["ANN"], headers={"x-more": header}).status >= 200
    crib.invoke("says_no", key=KEYS["ANN"])
    crib.invoke("typed", {"n": argument}, key=KEYS["ANN"])
    crib.invoke(argument, key=KEYS["ANN"])
    problem(crib.invoke("argv", {"text": argument}, key=header), 401)
    problem(crib.invoke("argv", {"text": argument}, headers={"x-api-key": header}), 401)
    for body in ('{"arguments": {"text": "' + argument, '{"' + argument + '": 1}', argument):
        assert crib.post("/tools/argv/invoke", body, key=KEYS["ANN"]).status == 400
    crib.get(f"/invocations?{argument}={argument}", key=KEYS["ROOT"])
    crib.get(f"/{argument}", headers={"host": header, "origin": header})
    crib.invoke("argv", {"text": argument}, key=KEYS["ANN"], headers={"x-request-id": f"{header} {argument}"})
    crib.raw(f"GET /{argument} HTTP/9 {header}\r\nx: {header}\r\n\r\n".encode())
    crib.post(f"/tools/{argument}/disable", key=KEYS["ROOT"])
    crib.stop()
    output = crib.stderr + crib.stdout
    assert output.count("toolcrib::call") >= 10, output
    for planted in (key, header, argument, *KEYS.values()):
        at = output.find(planted)
        assert at < 0, f"{planted} in: {output[max(0, at - 300):at + 100]}"
