"""Tools registered over HTTP: refusals, persistence, and that they run like any other."""

import ctypes
import fcntl
import json
import os
import socket
import struct
import threading

import pytest

from harness import Crib, ok, parallel, poll, problem, text_of
from recipes import CALLERS, KEYS
from upstream import Upstream

ROOT = KEYS["ROOT"]


def definition(url="https://api.example.com/{{ city }}", **more):
    return dict({"kind": "http", "description": "Weather now.", "effect": "read", "parameters": {"city": {"type": "string"}},
                 "request": {"url": url}}, **more)


def put(crib, name, body, key=None):
    return crib.request("PUT", f"/tools/{name}", json.dumps(body), key=key)


def listed(crib, origin="registered"):
    return [tool["name"] for tool in crib.get(f"/tools?origin={origin}").json["tools"]]


def test_registered_tools_survive_kill_nine(start):
    """The answer is the promise: whatever was answered is there after a kill, whatever was removed is not."""
    crib = start({"tools": {"calculator": {"kind": "native"}}})
    for turn in range(5):
        for n in range(10):
            reply = put(crib, f"tool_{n}", definition(tags=[f"turn-{turn}"]))
            assert reply.status == (201 if turn == 0 else 200), reply
        assert put(crib, f"extra_{turn}", definition()).status == 201
        if turn:
            assert crib.delete(f"/tools/extra_{turn - 1}").status == 200
        crib.kill9()
        crib.start()
        assert listed(crib) == [f"extra_{turn}"] + [f"tool_{n}" for n in range(10)]
        assert all(crib.get(f"/tools/tool_{n}").json["tags"] == [f"turn-{turn}"] for n in range(10))
    poll(lambda: '"registered":11' in crib.stderr, 2, "their number in the log")


def test_tool_is_registered_replaced_and_removed(start_shared_crib):
    crib = start_shared_crib
    reply = put(crib, "weather", definition(limits=[{"calls": 2, "per": "lifetime"}]))
    assert reply.status == 201 and crib.get("/tools/weather").json == reply.json
    tool = reply.json
    assert (tool["name"], tool["origin"], tool["kind"], tool["policy"]["effect"]) == ("weather", "registered", "http", "read")
    assert tool["usage"][0]["remaining"] == 2
    assert (repeated := put(crib, "weather", definition(limits=[{"calls": 2, "per": "lifetime"}]))).status == 200 and repeated.json == tool
    assert put(crib, "weather", definition(aliases=["forecast"], context=["tenant"])).json["context"] == ["tenant"]
    assert crib.get("/tools/forecast").json["name"] == "weather" and listed(crib) == ["weather"] and listed(crib, "manifest") == ["calculator"]
    assert crib.get("/tools?format=openai&origin=registered").json[0]["function"]["name"] == "weather"
    problem(crib.get("/tools?origin=elsewhere"), 400, "invalid_request")
    for name, more, words in (("forecast", {}, "is an alias of `weather`, a tool that is registered already"),
                              ("x", {"aliases": ["weather"]}, "registered already"), ("x", {"aliases": ["calculator"]}, "a tool of the manifest")):
        assert words in problem(put(crib, name, definition(**more)), 409, "invalid_request")["detail"]
    problem(crib.delete("/tools/forecast"), 404, "unknown_tool")
    assert crib.delete("/tools/weather").json == {"tool": "weather", "deleted": True}
    problem(crib.delete("/tools/weather"), 404, "unknown_tool")
    problem(crib.get("/tools/forecast"), 404)


def test_usage_and_switches_survive_a_registration(start):
    crib = start({"tools": {}})
    weather = definition("http://nowhere.invalid/{{ city }}", limits=[{"calls": 2, "per": "lifetime"}])  # RFC 6761: it never resolves
    assert put(crib, "weather", weather).status == 201
    problem(crib.invoke("weather", {}), 422, "invalid_arguments")
    assert problem(crib.invoke("wether"), 404)["did_you_mean"] == ["weather"]
    for _ in range(2):
        problem(crib.invoke("weather", {"city": "Oslo"}), 502, "upstream_failed")
    problem(crib.invoke("weather", {"city": "Oslo"}), 429, "usage_limit_reached")
    assert crib.post("/tools/weather/disable").status == 200
    for again in (lambda: crib.delete("/tools/weather"), crib.restart):
        again()
        put(crib, "weather", weather)
        tool = crib.get("/tools/weather").json
        assert (tool["available"], tool["usage"][0]["used"]) == (False, 2)
        problem(crib.invoke("weather", {"city": "Oslo"}), 403, "tool_disabled")


def test_registration_needs_an_admin(start):
    callers = [dict(CALLERS[0], allow=["get_*"]), *CALLERS[1:]]
    crib = start({"callers": callers, "tools": {}}, env=KEYS)
    assert put(crib, "get_x", definition(), ROOT).status == put(crib, "other", definition(), ROOT).status == 201
    assert [tool["name"] for tool in crib.get("/tools", key=KEYS["ANN"]).json["tools"]] == ["get_x"], "grants hold for registered tools"
    problem(crib.invoke("other", {"city": "x"}, key=KEYS["ANN"]), 403, "forbidden")
    problem(put(crib, "x", definition()), 401, "unauthenticated")
    problem(put(crib, "x", definition(), KEYS["ANN"]), 403, "forbidden")
    assert put(crib, "x", definition(), ROOT).status == 201
    problem(crib.delete("/tools/x", key=KEYS["BOB"]), 403, "forbidden")
    assert crib.get("/tools/x", key=KEYS["BOB"]).json["origin"] == "registered"
    assert crib.delete("/tools/x", key=ROOT).json == {"tool": "x", "deleted": True}


@pytest.mark.parametrize("body, says", [
    ({"kind": "command", "command": ["/usr/bin/id"]}, "kind http"),
    ({"kind": "native", "use": "read_file", "with": {"root": "/"}}, "kind http"),
    (definition(env=[{"name": "HOME"}]), "environment"),
    (definition("https://x.example/", request={"url": "https://x.example/", "headers": {"k": "${env:HOME}"}}), "reference"),
    (definition("https://x.example/${file:/etc/passwd}"), "reference"),
    (definition(request={"url": "http://127.0.0.1/", "allow_private": True}), "allow_private"),
    (definition("http://127.0.0.1:9/"), "may not reach"),
    (definition("http://2130706433/"), "may not reach"),
    (definition("http://[::ffff:169.254.169.254]/latest"), "may not reach"),
    (definition("http://localhost./"), "may not reach"),
    ("text", "a map"), ([], "a map"), (None, "kind is missing: http"), (definition(command=["/bin/id"]), "unknown key"),
    (definition(aliases=["no name!"]), "1 to 128"),
    (definition("ftp://example.com/"), "http:// or https://"), (definition("https://x.example/{{ context.tenant }}"), "write `context: [tenant]`"),
    (definition("https://x.example/%25252525/{{ city }}"), "more than 3 times"), (definition("https://x.example/..;a/"), "`..`"),
    (definition(cache={"ttl": "1m", "when": "'x' * 100000000 == args.city"}), "takes numbers"),
    (definition(**{f"key_{n}": 1 for n in range(60)}), "48 more"),
])
def test_invalid_registrations_are_refused(start_shared_crib, body, says):
    error = problem(put(start_shared_crib, "x", body), 400, "invalid_request")
    assert says in error["detail"], error
    assert error["violations"] and all(one["pointer"].startswith("/") or one["pointer"] == "" for one in error["violations"]), error
    assert listed(start_shared_crib) == []


def test_every_fault_of_a_registration_has_its_pointer(start_shared_crib):
    faulty = definition(descripton="x", timeout="soon", env=[{"name": "HOME"}], request={
        "url": "https://x.example/", "allow_private": True, "headers": {"authorization": "Bearer ${env:HOME}"}})
    error = problem(put(start_shared_crib, "x", faulty), 400, "invalid_request")
    pointers = {one["pointer"] for one in error["violations"]}
    assert {"/descripton", "/timeout", "/env", "/request/allow_private", "/request/headers/authorization"} <= pointers, error
    assert "did you mean description" in error["detail"] and "more" in error["detail"], error
    problem(put(start_shared_crib, "no%20name", definition()), 400, "invalid_request")
    for aliases in (["a", "a"], ["x"]):
        assert "declared twice" in problem(put(start_shared_crib, "x", definition(aliases=aliases)), 400, "invalid_request")["detail"]


@pytest.fixture(scope="module")
def start_shared_crib(start_shared):
    return start_shared({"tools": {"calculator": {"kind": "native"}}}, env={"HOME": "/root/very-secret-home"})


@pytest.mark.parametrize("headers, body, status", [
    ({"content-type": "text/plain"}, "{}", 415), (None, "{", 400), (None, '{"kind": "http", "kind": "http"}', 400),
    (None, json.dumps(definition(description="x" * (256 << 10))), 413)], ids=["type", "json", "twice", "size"])
def test_registration_bodies_are_read_strictly(start_shared_crib, headers, body, status):
    problem(start_shared_crib.request("PUT", "/tools/x", body, headers=headers), status, "invalid_request")


@pytest.mark.parametrize("name", ["weather", "Weather"])
def test_existing_names_cannot_be_registered(start, name):
    """Neither at once nor by a later manifest, in any spelling: the file takes precedence, and the registration waits."""
    crib = start({"tools": {"calculator": {"kind": "native", "aliases": ["calc"]}}})
    for own in ("calculator", "calc"):
        problem(put(crib, own, definition()), 409, "invalid_request")
        problem(crib.delete(f"/tools/{own}"), 409, "invalid_request")
    assert put(crib, "weather", definition()).status == 201
    before = crib.manifest.read_text()
    crib.manifest.write_text(before + f"  {name}: {{kind: native, use: calculator}}\n")
    poll(lambda: listed(crib) == [], 8, "the manifest has the name")
    poll(lambda: "a registered tool is skipped" in crib.stderr, 2, "a word in the log")
    assert text_of(ok(crib.invoke("weather", {"expression": "6*7"}))) == "42"
    problem(put(crib, "weather", definition()), 409)
    crib.restart()
    assert listed(crib) == []
    crib.manifest.write_text(before)
    poll(lambda: listed(crib) == ["weather"], 8, "it is back")
    crib.manifest.write_text(before + "  other: {kind: native, use: calculator, aliases: [weather]}\n")
    poll(lambda: listed(crib) == [], 8, "an alias of the manifest takes precedence, too")
    assert crib.delete("/tools/weather").status == 200, "one that waits can be removed"
    crib.manifest.write_text(before)
    poll(lambda: crib.get("/tools/other").status == 404, 8, "the manifest as it was")
    assert listed(crib) == []


def test_parallel_admins_get_true_answers(start):
    """Registering, removing, listing and reloading at the same time: every answer is true at its moment, none is a 500."""
    crib = start({"tools": {"calculator": {"kind": "native"}}})

    def work(index):
        for turn in range(10):
            assert put(crib, f"t{index}", definition(tags=[str(turn)])).status in (200, 201)
            assert crib.get(f"/tools/t{index}").json["tags"] == [str(turn)]
            if turn % 3 == 0:
                assert crib.delete(f"/tools/t{index}").status == 200
                problem(crib.get(f"/tools/t{index}"), 404, "unknown_tool")
            os.kill(crib.process.pid, 1)

    parallel(8, work)
    crib.restart()
    assert listed(crib) == []


# ---- a separate network, in which a public address belongs to this machine ---------------------------------------------

OWN = "11.22.33.44"


def alone_in_a_network(work):
    """Runs work() on a thread whose network has nothing but a loopback interface, which also carries OWN."""
    failures = []

    def run():
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(0x40000000):  # CLONE_NEWNET, for this thread and what it starts
                pytest.skip(f"no network namespace to be had: {os.strerror(ctypes.get_errno())}")
            with socket.socket() as sock:
                for name, address in ((b"lo", "127.0.0.1"), (b"lo:1", OWN)):
                    fcntl.ioctl(sock, 0x8916, struct.pack("16sH2s4s8s", name, socket.AF_INET, b"", socket.inet_aton(address), b""))  # SIOCSIFADDR
                    fcntl.ioctl(sock, 0x8914, struct.pack("16sH14s", name, 0x1 | 0x40, b""))  # SIOCSIFFLAGS: up, running
            work()
        except BaseException as failure:  # noqa: B902: raised again below
            failures.append(failure)

    if os.name != "posix" or os.geteuid() != 0 or not hasattr(ctypes.CDLL(None), "unshare"):
        pytest.skip("a network of its own needs root on Linux")
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "hangs"
    if failures:
        raise failures[0]


def test_registered_tool_runs_like_any_other(tmp_path):
    """Arguments at their positions, result picked, cached, limited, recorded; loopback is denied under every name."""

    def work():
        upstream = Upstream(host=OWN)
        crib = Crib(tmp_path / "crib", {"defaults": {"timeout": "9s"}, "tools": {}})
        try:
            inner = Upstream()
            body = definition(f"http://{OWN}:{upstream.port}/echo/{{{{ city }}}}", response={"pick": "/path"}, cache={"ttl": "1h"},
                              limits=[{"calls": 2, "per": "lifetime"}])
            assert put(crib, "weather", body).json["policy"]["timeout"] == "9s"
            for cache in ("miss", "hit"):
                answer = ok(crib.invoke("weather", {"city": "São Paulo"}))
                assert (answer["meta"]["cache"], text_of(answer)) == (cache, "/echo/S%C3%A3o%20Paulo"), answer
            crib.kill9()
            crib.start()
            assert ok(crib.invoke("weather", {"city": "São Paulo"}))["meta"]["cache"] == "hit"
            ok(crib.invoke("weather", {"city": "x"}))
            problem(crib.invoke("weather", {"city": "y"}), 429, "usage_limit_reached")
            assert crib.wait_row("tool=weather&state=refused")["kind"] == "usage_limit_reached"
            # A host that is filled in is one of the list, and the list is gated too.
            reply = put(crib, "any", definition(f"http://{{{{ city }}}}:{inner.port}/text", request={
                "url": f"http://{{{{ city }}}}:{inner.port}/text", "allow_hosts": ["127.0.0.1"]}))
            problem(reply, 400, "invalid_request")
            assert inner.hits() == 0
        finally:
            crib.stop()

    alone_in_a_network(work)


def test_registered_tools_take_little_memory(start):
    """The tools share what an HTTP client holds, such as the system's certificates (about 100 KB)."""
    crib = start({"tools": {}})
    for n in range(10):
        assert put(crib, f"first_{n}", definition()).status == 201
    before = crib.rss()
    for n in range(150):
        assert put(crib, f"tool_{n}", definition()).status == 201
    each = (crib.rss() - before) / 150
    assert each < 50 << 10, f"{each:.0f} bytes for each tool"


def test_own_host_name_is_refused(start):
    """Only names that the kernel knows. The registration makes no DNS request."""
    crib = start({"tools": {}})
    name = socket.gethostname()
    for host in (name, name.upper(), f"{name}.") if "." not in name else (name, name.split(".")[0]):
        error = problem(put(crib, "x", definition(f"http://{host}:{crib.port}/livez")), 400, "invalid_request")
        assert "this machine (where this service itself listens)" in error["detail"], error
        assert error["violations"][0]["pointer"] == "/request/url", error
    assert put(crib, "x", definition(f"http://{name}.example.com:{crib.port}/")).status == 201
