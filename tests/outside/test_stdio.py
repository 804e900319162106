"""`toolcrib serve --stdio`: MCP on standard input and output, in raw lines."""

import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from harness import cli, now, poll, elapsed
from recipes import to_yaml

NEW, OLD = "2026-07-28", "2025-11-25"
META = {f"io.modelcontextprotocol/{key}": value for key, value in
        {"protocolVersion": NEW, "clientInfo": {"name": "raw", "version": "1"}, "clientCapabilities": {}}.items()}
TOOLS = {
    "server": {"drain": "2s"},
    "tools": {
        "sum": {"kind": "native", "use": "calculator"},
        "nap": {"kind": "command", "description": "Sleeps.", "parameters": {"seconds": {"type": "string", "description": "How long."}},
                "command": ["/bin/sleep", "{{ seconds }}"], "effect": "read"},
        "count": {"kind": "native", "use": "calculator", "limits": [{"calls": 2, "per": "day"}]},
    },
}


class Pipe:
    """One `toolcrib serve --stdio` and its client."""

    def __init__(self, folder, manifest=TOOLS, args=(), env=None):
        folder = pathlib.Path(folder)
        self.ledger = f"sqlite://{folder}/toolcrib.db"
        file = folder / "toolcrib.yaml"
        file.write_text(manifest if isinstance(manifest, str) else to_yaml(manifest))
        command = [harness.BIN, "serve", "--stdio", "--manifest", str(file), "--ledger", self.ledger, *args]
        self.process = subprocess.Popen(command, cwd=str(folder), env=harness.clean_env(env, folder), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.folder, self.lines, self.err, self.last = folder, queue.Queue(), [], 0
        self.readers = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in iter(self.process.stdout.readline, b""):
            self.lines.put(json.loads(line))  # nothing but the protocol
        self.lines.put(None)

    def _read_errors(self):
        for line in iter(self.process.stderr.readline, b""):
            self.err.append(line.decode())

    @property
    def stderr(self):
        return "".join(self.err)

    def send(self, message):
        self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self, seconds=20):
        """The next message; None at the end."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"nothing was said within {seconds} s\n{self.stderr}") from None

    def start_request(self, method, params=None, era=NEW):
        self.last += 1
        params = dict(params or {})
        if era == NEW:
            params["_meta"] = {**META, **params.get("_meta", {})}
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return self.last

    def request(self, method, params=None, era=NEW):
        """The answer to this request; messages before it are kept in `notifications`."""
        number, self.notifications = self.start_request(method, params, era), []
        while True:
            reply = self.receive()
            assert reply is not None, f"it ended\n{self.stderr}"
            if reply.get("id") == number:
                return reply
            self.notifications.append(reply)

    def call(self, tool, arguments=None, era=NEW, **more):
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}, **more}, era)["result"]

    def initialize(self, version=OLD):
        reply = self.request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}, OLD)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply["result"]

    def rows(self):
        return json.loads(cli("invocations", "--ledger", self.ledger, cwd=self.folder).stdout)["invocations"]

    def wait_for_exit(self, within=20):
        """It exits by itself; exit 0."""
        code = self.process.wait(within)
        for reader in self.readers:
            reader.join(5)
        assert code == 0, f"exit code {code}\n{self.stderr}"

    def close_input(self, within=20):
        self.process.stdin.close()
        self.wait_for_exit(within)


@pytest.fixture
def pipe(tmp_path):
    pipes = []

    def start(manifest=TOOLS, **more):
        pipes.append(Pipe(tmp_path, manifest, **more))
        return pipes[-1]

    yield start
    for one in pipes:
        if one.process.poll() is None:
            one.process.kill()
        print(f"--- stderr\n{one.stderr[-4000:]}")


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", OLD])
def test_session_client_lists_and_calls(pipe, version):
    crib = pipe()
    assert crib.initialize(version)["protocolVersion"] == version
    assert [tool["name"] for tool in crib.request("tools/list", era=OLD)["result"]["tools"]] == ["count", "nap", "sum"]
    assert crib.call("sum", {"expression": "6*7"}, era=OLD)["content"] == [{"type": "text", "text": "42"}]
    assert crib.request("ping", era=OLD)["result"] == {}
    crib.close_input()


def test_sessionless_client_lists_and_calls(pipe):
    crib = pipe()
    found = crib.request("server/discover")["result"]
    assert {OLD, NEW} <= set(found["supportedVersions"])
    assert [tool["name"] for tool in crib.request("tools/list")["result"]["tools"]] == ["count", "nap", "sum"]
    result = crib.call("sum", {"expression": "6*7"})
    assert (result["resultType"], result["content"]) == ("complete", [{"type": "text", "text": "42"}])
    crib.close_input()


def test_calls_are_recorded_and_limits_persist(pipe):
    crib = pipe()
    assert not crib.call("count", {"expression": "1"}).get("isError")
    crib.close_input()
    rows = crib.rows()
    assert [(row["tool"], row["caller"], row["state"]) for row in rows] == [("count", "anonymous", "succeeded")]
    crib = pipe()
    assert not crib.call("count", {"expression": "1"}).get("isError")
    assert "limit" in crib.call("count", {"expression": "1"})["content"][0]["text"]
    crib.close_input()
    assert [row["state"] for row in crib.rows()] == ["refused", "succeeded", "succeeded"]


def test_operator_is_not_bound_by_grants(pipe):
    crib = pipe({**TOOLS, "callers": [{"name": "agent", "key": "k" * 32, "allow": ["sum"]}]})
    assert [tool["name"] for tool in crib.request("tools/list")["result"]["tools"]] == ["count", "nap", "sum"]
    crib.close_input()


def test_calls_run_in_parallel(pipe):
    crib = pipe()
    began = now()
    requests = {crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": "0.5"}}) for _ in range(5)}
    assert {crib.receive()["id"] for _ in range(5)} == requests
    assert elapsed(began) < 2
    crib.close_input()


def test_stdout_has_messages_and_no_port(pipe):
    with socket.create_server(("127.0.0.1", 0)) as taken:  # this port cannot be bound a second time
        manifest = {**TOOLS, "server": {"listen": f"127.0.0.1:{taken.getsockname()[1]}"}}
        crib = pipe(manifest, env={"TOOLCRIB_LISTEN": "0.0.0.0:7411", "TOOLCRIB_LOG": "debug"})
        assert crib.call("sum", {"expression": "1+1"})["content"][0]["text"] == "2"
        links = [os.readlink(f"/proc/{crib.process.pid}/fd/{number}") for number in os.listdir(f"/proc/{crib.process.pid}/fd")]
        inodes = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
        listening = [line.split() for table in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
        assert [line for line in listening if line[3] == "0A" and line[9] in inodes] == []
    crib.close_input()
    assert crib.receive() is None, "every line before was JSON"
    poll(lambda: "serving MCP on standard input and output" in crib.stderr, 5, "the line in the log")


def test_end_of_input_answers_running_calls_first(pipe):
    crib = pipe()
    number = crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": "0.7"}})
    poll(lambda: harness.processes("sleep\0000.7"), what="the nap")
    crib.close_input()
    answer = crib.receive()
    assert (answer["id"], answer["result"].get("isError", False)) == (number, False)
    assert [row["state"] for row in crib.rows()] == ["succeeded"]


def test_calls_after_the_drain_time_are_cancelled(pipe, mark):
    crib = pipe()
    crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": f"300.{mark}"}})
    poll(lambda: harness.processes(mark), what="the nap")
    began = now()
    crib.close_input()
    assert 1.5 < time.monotonic() - began and elapsed(began) < 8
    assert harness.processes(mark) == []
    assert [row["state"] for row in crib.rows()] == ["cancelled"]


def test_signal_drains_as_well(pipe):
    crib = pipe()
    number = crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": "0.7"}})
    poll(lambda: harness.processes("sleep\0000.7"), what="the nap")
    crib.process.send_signal(signal.SIGTERM)
    crib.wait_for_exit()
    assert crib.receive()["id"] == number
    assert [row["state"] for row in crib.rows()] == ["succeeded"]


def test_open_subscription_does_not_delay_the_end(pipe):
    crib = pipe()
    crib.start_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert crib.receive()["method"] == "notifications/subscriptions/acknowledged"
    began = now()
    crib.close_input()
    assert elapsed(began) < 3


def test_client_that_stops_reading_is_disconnected(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(TOOLS))
    read, write = os.pipe()
    with subprocess.Popen([harness.BIN, "serve", "--stdio"], cwd=str(tmp_path), env=harness.clean_env(None, tmp_path), stdin=subprocess.PIPE,
                          stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        os.close(read)
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(20) == 0, process.stderr.read()


@pytest.mark.parametrize("calls, seconds, pause", [(1, "1", 0), (60, "0.01", 0.5)])
def test_client_that_has_left_is_no_warning(tmp_path, calls, seconds, pause):
    """Nobody reads the answers of the last calls. Some are written before the input ends."""
    nap = {**TOOLS["tools"]["nap"], "concurrency": {"max": 4, "queue": calls, "wait": "60s"}}  # on a busy machine none may be refused
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"server": {"drain": "60s"}, "tools": {"nap": nap}}))
    read, write = os.pipe()
    call = {"name": "nap", "arguments": {"seconds": seconds}, "_meta": META}
    lines = [json.dumps({"jsonrpc": "2.0", "id": at, "method": "tools/call", "params": call}) + "\n" for at in range(calls)]
    with subprocess.Popen([harness.BIN, "serve", "--stdio"], cwd=str(tmp_path), env=harness.clean_env(None, tmp_path), stdin=subprocess.PIPE,
                          stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        os.close(read)
        process.stdin.write("".join(lines).encode())
        process.stdin.flush()
        time.sleep(pause)
        process.stdin.close()
        errors = process.stderr.read().decode()
        assert process.wait(20) == 0 and "the client has disconnected" in errors and "WARN" not in errors, errors


@pytest.mark.parametrize("era", [OLD, NEW])
def test_manifest_change_is_notified(pipe, era):
    crib = pipe()
    if era == OLD:
        crib.initialize()
        crib.request("tools/list", era=OLD)
    else:
        crib.start_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert crib.receive()["method"] == "notifications/subscriptions/acknowledged"
    more = {**TOOLS, "tools": {**TOOLS["tools"], "late": {"kind": "native", "use": "current_time"}}}
    (crib.folder / "toolcrib.yaml").write_text(to_yaml(more))
    assert crib.receive()["method"] == "notifications/tools/list_changed"
    assert "late" in [tool["name"] for tool in crib.request("tools/list", era=era)["result"]["tools"]]
    crib.close_input()


def test_tools_list_waits_for_sources(pipe, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1.5)\n\ndef slow() -> str:\n    '''Was slow to come.'''\n    return 'here'\n")
    crib = pipe({**TOOLS, "python_modules": {"slow": {"module": "./slow.py", "functions": ["slow"]}}})
    assert "slow" in [tool["name"] for tool in crib.request("tools/list")["result"]["tools"]]
    crib.close_input()


def test_slow_source_is_notified_when_listed(pipe, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(8)\n\ndef slow() -> str:\n    '''Was slow to come.'''\n    return 'here'\n")
    crib = pipe({**TOOLS, "python_modules": {"slow": {"module": "./slow.py", "functions": ["slow"]}}})
    crib.initialize()
    assert "slow" not in [tool["name"] for tool in crib.request("tools/list", era=OLD)["result"]["tools"]]
    assert crib.receive()["method"] == "notifications/tools/list_changed"
    assert crib.call("slow", era=OLD)["content"][0]["text"] == "here"
    crib.close_input()


@pytest.mark.parametrize(
    "line, code, number",
    [
        (b"{", -32700, None),
        (b'{"a": 1, "a": 2}', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (b'"text"', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 7}', -32600, 7),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
        (b'{"id": "x", "method": "tools/list"}', -32600, "x"),
        (b'{"jsonrpc": "2.0", "id": 8, "method": "no/such"}', -32602, 8),  # without _meta, before any session
        (b'{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": 5}}', -32602, 9),
        (b'{"jsonrpc": "2.0", "id": 10, "method": "tools/list", "params": {"pad": "' + b"x" * (1 << 20) + b'"}}', -32600, 10),
        (b'{"method": "tools/list", "params": {"pad": "' + b"x" * (1 << 20) + b'"}, "jsonrpc": "2.0", "id": 11}', -32600, 11),
        (b'{"method": "tools/call", "params": {"name": "sum", "name": "nap"}, "jsonrpc": "2.0", "id": "k"}', -32700, "k"),
        (b'{"id": 12, "method": "tools/call", "params": ' + b"[" * 200 + b"]" * 200 + b"}", -32700, 12),
    ],
)
def test_invalid_message_is_answered_and_reading_continues(pipe, line, code, number):
    crib = pipe()
    crib.raw(line + b"\n")
    reply = crib.receive()
    assert (reply["error"]["code"], reply["id"]) == (code, number), reply
    assert reply["error"]["message"].strip()
    assert crib.call("sum", {"expression": "6*7"})["content"][0]["text"] == "42"
    crib.close_input()


def test_pending_input_is_answered_before_the_end(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(TOOLS))
    call = {"name": "sum", "arguments": {"expression": "6*7"}, "_meta": META}
    requests = [{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call} for number in range(400)]
    for lines in (["{"], ["{", *map(json.dumps, requests)]):
        done = cli("serve", "--stdio", cwd=tmp_path, stdin="\n".join(lines))  # the last line has no end
        assert done.returncode == 0, done
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert {answer.get("id") for answer in answers} == {None, *range(len(lines) - 1)}
        assert all(answer["result"]["content"][0]["text"] == "42" for answer in answers if answer.get("id") is not None)


def test_early_messages_do_not_end_session(pipe):
    crib = pipe()
    reported = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    for method, params, era in (("ping", None, OLD), ("server/discover", None, NEW), ("tools/list", None, OLD),
                                ("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}, NEW)):
        crib.request(method, params, era)
        crib.send(reported)
        crib.send({"jsonrpc": "2.0", "id": 3, "result": {}})
    assert crib.initialize()["protocolVersion"] == OLD
    assert crib.call("sum", {"expression": "6*7"}, era=OLD)["content"][0]["text"] == "42"
    crib.close_input()


def test_duplicate_id_is_refused_call_continues(pipe, mark):
    crib = pipe()
    number = crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": f"0.7{mark}"}})
    crib.last -= 1
    crib.start_request("tools/call", {"name": "sum", "arguments": {"expression": "6*7"}})
    first, second = crib.receive(), crib.receive()
    assert (first["error"]["code"], first["id"]) == (-32600, None)
    assert (second["id"], second["result"]["resultType"]) == (number, "complete")
    crib.close_input()
    assert [(row["tool"], row["state"]) for row in crib.rows()] == [("nap", "succeeded")]


def test_id_in_use_gets_no_second_answer(pipe, mark):
    crib = pipe()
    number = crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": f"0.7{mark}"}})
    crib.raw(f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call", "params": {{"name": "nap", "name": "sum"}}}}\n'.encode())
    first, second = crib.receive(), crib.receive()
    assert (first["error"]["code"], first["id"]) == (-32700, None)
    assert second["id"] == number and "result" in second
    crib.close_input()


def test_subscriptions_do_not_use_call_slots(pipe):
    crib = pipe()
    requests = [crib.start_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}) for _ in range(65)]
    output = [crib.receive() for _ in requests]
    assert sum(one.get("method") == "notifications/subscriptions/acknowledged" for one in output) == 64
    refused = [one for one in output if "error" in one]
    assert [(one["id"], one["error"]["code"]) for one in refused] == [(requests[-1], -32600)] and "64" in refused[0]["error"]["message"]
    assert crib.call("sum", {"expression": "6*7"})["content"][0]["text"] == "42"
    crib.close_input()


def test_repeated_initialized_is_notified_once(pipe):
    crib = pipe()
    crib.initialize()
    for _ in range(3):
        crib.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    crib.request("tools/list", era=OLD)
    more = {**TOOLS, "tools": {**TOOLS["tools"], "late": {"kind": "native", "use": "current_time"}}}
    (crib.folder / "toolcrib.yaml").write_text(to_yaml(more))
    assert crib.receive()["method"] == "notifications/tools/list_changed"
    crib.request("ping", era=OLD)
    assert crib.notifications == []
    crib.close_input()


def test_messages_without_a_recipient_are_ignored(pipe):
    crib = pipe()
    for line in (b"", b"  ", b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}',
                 b'{"jsonrpc": "2.0", "method": "notifications/no-such"}', b'{"jsonrpc": "2.0", "id": 3, "result": {}}'):
        crib.raw(line + b"\n")
    assert crib.call("sum", {"expression": "6*7"})["content"][0]["text"] == "42"
    crib.close_input()


def test_cancelled_call_is_not_answered(pipe, mark):
    crib = pipe()
    crib.initialize()
    number = crib.start_request("tools/call", {"name": "nap", "arguments": {"seconds": f"300.{mark}"}}, OLD)
    poll(lambda: harness.processes(mark), what="the nap")
    crib.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number, "reason": "enough"}})
    poll(lambda: not harness.processes(mark), what="the end of the nap")
    crib.request("ping", era=OLD)
    assert crib.notifications == []
    crib.close_input()
    assert [row["state"] for row in crib.rows()] == ["cancelled"]


@pytest.mark.parametrize("extra", [["--listen", "127.0.0.1:0"], ["--allow-open"]])
def test_listen_address_is_refused(tmp_path, extra):
    done = cli("serve", "--stdio", *extra, cwd=tmp_path)
    assert done.returncode == 64 and done.stdout == ""
    assert "--stdio" in done.stderr and "--listen" in done.stderr


def test_bad_manifest_exits_64_with_empty_stdout(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text("tools: {sum: {kind: nonsense}}\n")
    done = cli("serve", "--stdio", cwd=tmp_path)
    assert done.returncode == 64 and done.stdout == "" and "nonsense" in done.stderr


ASKS = {"tools": {"pay": {"kind": "native", "use": "calculator", "effect": "write",
                          "approval": {"by": ["anonymous"], "wait": "20s", "message": "Check it."}}}}
FORMS = {"elicitation": {"form": {}}}


@pytest.mark.parametrize("action, is_error, state", [("accept", False, "succeeded"), ("decline", True, "refused")])
def test_form_in_a_session_decides_about_a_call(pipe, action, is_error, state):
    """The question is a request of the service, on the same two streams as the open call. Nothing runs before the answer."""
    crib = pipe(ASKS)
    crib.request("initialize", {"protocolVersion": OLD, "capabilities": FORMS, "clientInfo": {"name": "raw", "version": "1"}}, OLD)
    crib.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    number = crib.start_request("tools/call", {"name": "pay", "arguments": {"expression": "6*7"}}, OLD)
    question = crib.receive()
    assert (question["method"], question["params"]["mode"]) == ("elicitation/create", "form")
    assert "Check it." in question["params"]["message"] and "6*7" in question["params"]["message"]
    crib.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action, "content": {"note": "seen"}}})
    answer = crib.receive()
    assert (answer["id"], answer["result"]["isError"]) == (number, is_error), answer
    crib.close_input()
    assert [row["state"] for row in crib.rows()] == [state]


def test_call_with_a_question_is_repeated_with_its_answer(pipe):
    """Since 2026-07-28 the question is the answer to the call. A changed state is refused, and a second repetition runs nothing."""
    crib = pipe(ASKS)
    capable = {"_meta": {"io.modelcontextprotocol/clientCapabilities": FORMS}}
    asked = crib.call("pay", {"expression": "6*7"}, **capable)
    assert asked["resultType"] == "input_required"
    answers = {name: {"action": "accept", "content": {}} for name in asked["inputRequests"]}
    forged = {"name": "pay", "arguments": {"expression": "6*7"}, "inputResponses": answers, "requestState": asked["requestState"] + "0", **capable}
    assert crib.request("tools/call", forged)["error"]["code"] == -32602
    for _ in range(2):
        answer = crib.call("pay", {"expression": "6*7"}, inputResponses=answers, requestState=asked["requestState"], **capable)
        assert answer["content"][0]["text"] == "42"
    crib.close_input()
    assert len(crib.rows()) == 1


def test_tag_gives_the_client_a_part_of_the_tools(pipe):
    tools = {"sum": {"kind": "native", "use": "calculator", "tags": ["math"]}, "other": {"kind": "native", "use": "calculator"}}
    client = pipe({"tools": tools}, args=["--tag", "math"])
    assert [tool["name"] for tool in client.request("tools/list")["result"]["tools"]] == ["sum"]
    assert client.call("sum", {"expression": "6*7"})["content"][0]["text"] == "42"
    refused = client.request("tools/call", {"name": "other", "arguments": {"expression": "1"}})
    assert refused["error"]["code"] == -32602 and "Unknown tool" in refused["error"]["message"]


def test_toolset_gives_the_client_a_part_of_the_tools(pipe, tmp_path):
    sets = {"toolsets": {"math": {"tools": ["s*"]}}}
    tools = {name: {"kind": "native", "use": "calculator"} for name in ("sum", "other")}
    client = pipe({"tools": tools, **sets}, args=["--toolset", "math"])
    assert [tool["name"] for tool in client.request("tools/list")["result"]["tools"]] == ["sum"]
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": tools, **sets}))
    unknown = cli("serve", "--stdio", "--toolset", "maths", cwd=tmp_path)
    assert unknown.returncode == 64 and "there is no toolset `maths`; there are math" in unknown.stderr, unknown


def test_tag_is_for_stdio_only(tmp_path):
    refused = cli("serve", "--tag", "math", cwd=tmp_path)
    assert refused.returncode == 64 and "--stdio" in refused.stderr, refused
