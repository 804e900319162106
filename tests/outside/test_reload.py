"""A new manifest while the service runs: SIGHUP and changed files; good ones are loaded completely, bad ones are ignored."""

import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time

import pytest

from harness import BIN, clean_env, elapsed, in_background, lines_in, now, ok, poll, problem, text_of
from recipes import KEYS, py, sh, to_yaml, web

CALCULATOR = {"kind": "native"}


def send_sighup(crib):
    crib.process.send_signal(signal.SIGHUP)


def reloads(crib):
    return crib.get("/readyz").json["reloads"]


def write(crib, manifest):
    """As an editor does: a new file replaces the old one."""
    text = manifest if isinstance(manifest, str) else to_yaml(manifest)
    new = crib.manifest.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(crib.manifest)


def names(crib, key=None):
    return sorted(tool["name"] for tool in crib.get("/tools", key=key).json["tools"])


def wait_for_tools(crib, wanted, seconds=8):
    poll(lambda: names(crib) == sorted(wanted), seconds, f"tools {wanted}")


def wait_for_log(crib, words, seconds=5):
    """Log lines are written a moment after the event."""
    poll(lambda: words in crib.stderr, seconds, f"{words!r} in the log")


def test_file_change_and_signal_load_the_manifest(start):
    """A changed file is enough; SIGHUP does not wait for the next check. The log reports added and removed tools."""
    crib = start({"tools": {"calculator": CALCULATOR, "old": {"kind": "native", "use": "calculator"}}})
    write(crib, {"tools": {"calculator": CALCULATOR, "new": {"kind": "native", "use": "calculator"}}})
    wait_for_tools(crib, ["calculator", "new"])
    wait_for_log(crib, "1 added (new), 1 removed (old)")
    write(crib, {"tools": {"calculator": dict(CALCULATOR, timeout="9s")}})
    began = now()
    send_sighup(crib)
    poll(lambda: reloads(crib)["taken"] == 2, 1, "SIGHUP is heard at once")
    assert elapsed(began) < 1
    assert names(crib) == ["calculator"]
    wait_for_log(crib, "1 changed (calculator)")
    assert text_of(ok(crib.invoke("calculator", {"expression": "6*7"}))) == "42"


def test_bad_manifest_keeps_the_old_tools(start):
    """The log has every error with its position, callers see none of it, and the old tools serve on."""
    crib = start({"tools": {"calculator": CALCULATOR}})
    write(crib, "tools:\n  calculator: {kind: native, timeout: soon}\n  x: {kind: nativ}\n")
    poll(lambda: reloads(crib)["refused"] == 1, 8, "the bad manifest is refused")
    for place in ("toolcrib.yaml:2:30: tools.calculator.timeout", "toolcrib.yaml:3:7: tools.x.kind"):
        wait_for_log(crib, place)
    ready = crib.get("/readyz")
    assert ready.status == 200 and ready.json["manifest"].startswith("the previous manifest stays in use"), ready
    assert "2 errors" in ready.json["manifest"] and "soon" not in ready.body.decode()
    ok(crib.invoke("calculator", {"expression": "1"}))
    time.sleep(2.5)
    assert reloads(crib) == {"taken": 0, "refused": 1}, "a bad file is read once, not every second"
    write(crib, {"tools": {"mended": {"kind": "native", "use": "calculator"}}})
    wait_for_tools(crib, ["mended"])
    poll(lambda: crib.get("/readyz").json["manifest"] == "current", 8, "the mended manifest is in use")
    crib.manifest.unlink()
    poll(lambda: reloads(crib)["refused"] == 2, 8, "a manifest that is gone is refused")
    assert names(crib) == ["mended"]
    write(crib, "callers: [{name: ann, key: \"${file:key}\"}]\n")
    poll(lambda: reloads(crib)["refused"] == 3, 8, "the file of a secret that is missing")
    write(crib, "# for now\n")
    wait_for_tools(crib, [])


def test_included_files_are_added_and_removed(start):
    crib = start({"include": ["tools.d/*.yaml"], "tools": {"calculator": CALCULATOR}})
    more = crib.folder / "tools.d"
    more.mkdir()
    (more / "a.yaml").write_text("tools: {a: {kind: native, use: calculator}}\n")
    wait_for_tools(crib, ["a", "calculator"])
    (more / "b.yaml").write_text("tools: {b: {kind: native, use: calculator}}\n")
    wait_for_tools(crib, ["a", "b", "calculator"])
    (more / "a.yaml").unlink()
    wait_for_tools(crib, ["b", "calculator"])
    (more / "b.yaml").write_text("tools: {calculator: {kind: native}}\n")
    poll(lambda: reloads(crib)["refused"] == 1, 8, "a name that is declared twice")
    wait_for_log(crib, "tools.d/b.yaml:1:9: tools.calculator: the name is taken")


def test_unchanged_rewrite_is_no_change(start):
    crib = start({"tools": {"calculator": CALCULATOR}})
    text = crib.manifest.read_text()
    for _ in range(3):
        os.utime(crib.manifest)
        write(crib, text)
        time.sleep(1.2)
    assert reloads(crib) == {"taken": 0, "refused": 0}


def test_partly_written_file_removes_nothing(start):
    """A write in pieces, empty first: no call in between fails, and the complete file is loaded."""
    crib = start({"tools": {"calculator": CALCULATOR}})
    complete = to_yaml({"tools": {"calculator": CALCULATOR, "later": {"kind": "native", "use": "calculator"}}})
    with crib.manifest.open("w") as file:
        for piece in ("", complete[:10], complete[10:25], complete[25:]):
            file.write(piece)
            file.flush()
            end = time.monotonic() + 0.6
            while time.monotonic() < end:
                ok(crib.invoke("calculator", {"expression": "1"}))
                time.sleep(0.05)
    wait_for_tools(crib, ["calculator", "later"])
    crib.manifest.write_text("")
    poll(lambda: "is empty" in crib.stderr, 8, "an empty manifest is refused")
    assert names(crib) == ["calculator", "later"]


def test_config_map_link_swap_is_noticed(start, tmp_path):
    """As Kubernetes does it: the file is a link through ..data, a link to a folder that is replaced as a whole."""
    mounted, up_to = tmp_path / "mounted", ["one", "two"]
    for number, tool in enumerate(up_to):
        folder = mounted / f"..2026_{number}"
        folder.mkdir(parents=True)
        (folder / "toolcrib.yaml").write_text(f"include: ['more-*.yaml']\ntools: {{{tool}: {{kind: native, use: calculator}}}}\n")
        (folder / "more-x.yaml").write_text(f"tools: {{more_{tool}: {{kind: native, use: calculator}}}}\n")
    (mounted / "..data").symlink_to("..2026_0")
    for name in ("toolcrib.yaml", "more-x.yaml"):
        (mounted / name).symlink_to(f"..data/{name}")
    # The starter would write the manifest itself; this one is there.
    crib = start({"tools": {}}, folder=tmp_path / "work")
    crib.stop()
    crib.args[crib.args.index("--manifest") + 1] = str(mounted / "toolcrib.yaml")
    crib.start()
    assert names(crib) == ["more_one", "one"]
    (mounted / "..data_tmp").symlink_to("..2026_1")
    (mounted / "..data_tmp").replace(mounted / "..data")
    wait_for_tools(crib, ["more_two", "two"])


def test_rotated_secret_reaches_only_the_upstream(start, upstream, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("first-secret-value\n")
    crib = start({"tools": {"echo": web(upstream.base + "/echo", effect="read", request={
        "headers": {"authorization": "Bearer ${file:%s}" % secret}})}})
    sent = []
    upstream.script("/echo", lambda handler: (sent.append(handler.headers["authorization"]), handler.at_echo()))
    answer = ok(crib.invoke("echo"))
    secret.write_text("second-secret-value\n")
    poll(lambda: reloads(crib)["taken"] == 1, 8, "the new secret")
    answers = [answer, ok(crib.invoke("echo"))]
    assert sent == ["Bearer first-secret-value", "Bearer second-secret-value"]
    for output in answers:
        assert "secret-value" not in text_of(output) and "[redacted]" in text_of(output), output
    # Old values are remembered, since an upstream may still return them.
    upstream.script("/echo", lambda handler: handler.reply(200, b"first-secret-value second-secret-value", "text/plain"))
    assert text_of(ok(crib.invoke("echo", {"n": 2}))) == "[redacted] [redacted]"
    assert "secret-value" not in crib.stderr


def test_keys_are_rotated_without_a_restart(start, tmp_path):
    for name, key in KEYS.items():
        (tmp_path / name).write_text(key)
    callers = [{"name": "ann", "key": "${file:%s}" % (tmp_path / "ANN")},
               {"name": "root", "key": "${file:%s}" % (tmp_path / "ROOT"), "admin": True}]
    crib = start({"callers": callers, "tools": {"calculator": CALCULATOR}})
    call = lambda key: crib.invoke("calculator", {"expression": "1"}, key=key)
    ok(call(KEYS["ANN"]))
    (tmp_path / "ANN").write_text("another-key-0123456789")
    poll(lambda: call("another-key-0123456789").status == 200, 8, "the new key")
    problem(call(KEYS["ANN"]), 401, "unauthenticated")
    write(crib, {"callers": callers[1:], "tools": {"calculator": CALCULATOR}})
    poll(lambda: call("another-key-0123456789").status == 401, 8, "a caller that is gone")
    ok(call(KEYS["ROOT"]))
    wait_for_log(crib, "1 removed (ann)")


def test_settings_of_callers_change_with_the_manifest(start):
    def manifest(**ann):
        return {"callers": [{"name": "ann", "key": KEYS["ANN"], **ann}], "tools": {"calculator": CALCULATOR}}

    crib = start(manifest())
    call = lambda: crib.invoke("calculator", {"expression": "1"}, key=KEYS["ANN"]).status  # noqa: E731
    disable = lambda: crib.post("/tools/calculator/disable", key=KEYS["ANN"]).status  # noqa: E731
    assert (call(), disable()) == (200, 403)
    for settings, wanted in (({"deny": ["calc*"]}, (403, 403)), ({"limits": [{"calls": 1, "per": "lifetime"}]}, (200, 403)),
                             ({"limits": [{"calls": 1, "per": "lifetime"}], "admin": True}, (429, 200)), ({}, (403, 403))):
        before = reloads_of_admin(crib)
        write(crib, manifest(**settings))
        send_sighup(crib)
        poll(lambda: reloads_of_admin(crib) > before, 5, "the next manifest")
        assert (call(), disable()) == wanted, settings


def reloads_of_admin(crib):
    """How many manifests were taken, by the log: `/readyz` tells it to administrators only."""
    return crib.stderr.count("changed (ann)")


def test_running_call_keeps_its_definition(start, tmp_path):
    """Old and new definition answer at the same time; the old one is not cut short, and both are rows."""
    ran = tmp_path / "ran"
    crib = start({"tools": {"x": sh(f"echo begun >> {ran}; /bin/sleep 2.5; echo old", effect="write")}})
    answer = in_background(lambda: crib.invoke("x"))
    poll(lambda: lines_in(ran) == 1, 10, "it runs")
    write(crib, {"tools": {"x": sh("echo new", effect="write")}})
    send_sighup(crib)
    poll(lambda: reloads(crib)["taken"] == 1, 2, "the new manifest")
    assert text_of(ok(crib.invoke("x"))).strip() == "new"
    result = ok(answer())
    assert text_of(result).strip() == "old"
    assert crib.row(result["invocation_id"])["state"] == "succeeded"


def test_usage_stays_old_results_are_dropped(start, upstream):
    def tool(path, calls):
        return web(upstream.base + path, effect="read", cache={"ttl": "1h"}, limits=[{"calls": calls, "per": "lifetime"}])

    off = {"kind": "native", "use": "calculator"}
    crib = start({"tools": {"x": tool("/echo/one", 2), "off": off}})
    ok(crib.invoke("x"))
    assert crib.post("/tools/off/disable").status == 200
    assert ok(crib.invoke("x"))["meta"]["cache"] == "hit"
    shown = crib.get("/tools/x").json["definition_hash"]
    for manifest, is_same, cache, used in ((tool("/echo/one", 5), True, "hit", 1), (tool("/echo/two", 5), False, "miss", 2), (tool("/echo/one", 2), True, "hit", 2)):
        before = reloads(crib)["taken"]
        write(crib, {"tools": {"x": manifest, "off": off}})
        send_sighup(crib)
        poll(lambda: reloads(crib)["taken"] > before, 5, "the next manifest")
        assert (crib.get("/tools/x").json["definition_hash"] == shown) == is_same, "a limit is policy"
        problem(crib.invoke("off", {"expression": "1"}), 403, "tool_disabled")
        assert ok(crib.invoke("x"))["meta"]["cache"] == cache
        assert crib.usage("x")[0]["used"] == used
    problem(crib.invoke("x", {"n": 9}), 429, "usage_limit_reached")


def test_settings_that_need_a_restart_are_named(start):
    crib = start({"server": {"drain": "20s"}, "tools": {"calculator": CALCULATOR}})
    write(crib, {"server": {"drain": "3s", "max_body": "2MiB"}, "cache": {"max_bytes": "1MiB"}, "tools": {"new": {"kind": "native", "use": "calculator"}}})
    wait_for_tools(crib, ["new"])
    poll(lambda: "server.max_body, server.drain, cache.max_bytes" in crib.stderr, 2, "the keys by name")


def test_demo_has_nothing_to_reload(start):
    crib = start()
    send_sighup(crib)
    poll(lambda: "there is no manifest to reload" in crib.stderr, 5, "a word in the log")
    ok(crib.invoke("calculator", {"expression": "1"}))


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "127.0.0.1:0"])
def test_reload_never_removes_all_callers(start, listen):
    """A truncated or partly written file must not open the service to all clients."""
    callers = [{"name": "ann", "key": KEYS["ANN"]}]
    crib = start({"server": {"allowed_hosts": ["127.0.0.1"]}, "callers": callers, "tools": {"calculator": CALCULATOR}}, listen=listen)
    write(crib, {"tools": {"calculator": CALCULATOR}})
    poll(lambda: reloads(crib)["refused"] == 1, 8, "refused")
    wait_for_log(crib, "no callers")
    problem(crib.invoke("calculator", {"expression": "1"}), 401)
    ok(crib.invoke("calculator", {"expression": "1"}, key=KEYS["ANN"]))


def test_shutdown_during_reload_exits_with_0(start):
    """Concurrent signals: it ends with 0, ten times out of ten."""
    manifest = {"tools": {f"t{n}": {"kind": "native", "use": "calculator"} for n in range(200)}}
    crib = start(manifest)
    for turn in range(10):
        for _ in range(turn % 3 + 1):
            send_sighup(crib)
        time.sleep(0.01 * turn)
        crib.stop()
        crib.start()
        assert len(names(crib)) == 200


def handles(crib):
    process = pathlib.Path(f"/proc/{crib.process.pid}")
    if not process.exists():
        pytest.skip("needs /proc to count open files")
    return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))


def test_two_hundred_reloads_under_load(start, upstream, tmp_path):
    """No call fails, none is lost or counted twice, and no process or handle is left over."""
    (tmp_path / "notes").mkdir()

    def manifest(turn):
        tools = {"count": web(upstream.base + "/json", effect="read", timeout=f"{20 + turn % 2}s", limits=[{"calls": 10**6, "per": "day"}]),
                 "steady": {"kind": "native", "use": "calculator"},
                 "notes": {"kind": "native", "use": "read_file", "with": {"root": str(tmp_path / "notes"), "max_bytes": f"{turn % 7 + 1}KiB"}}}
        if turn % 2:
            tools["odd"] = py("print('odd')", effect="read")
        return {"tools": tools}

    crib = start(manifest(0))
    over, failures, calls = threading.Event(), [], [0, 0, 0]

    def load(slot, tool, arguments):
        session = crib.session()
        while not over.is_set():
            reply = session.invoke(tool, arguments)
            if reply.status != 200 or reply.json["is_error"]:
                failures.append(reply)
                return
            calls[slot] += 1
        session.close()

    for turn in range(5):  # what grows once grows before it is counted
        ok(crib.invoke("count", {"n": turn}))
    threads = [threading.Thread(target=load, args=(slot, *what), daemon=True)
               for slot, what in enumerate((("count", {"n": 1}), ("count", {"n": 2}), ("steady", {"expression": "6*7"})))]
    for thread in threads:
        thread.start()
    before = None
    for turn in range(1, 201):
        write(crib, manifest(turn))
        send_sighup(crib)
        poll(lambda: reloads(crib)["taken"] >= turn, 10, f"reload {turn}")
        if turn == 20:
            before = handles(crib), crib.rss()
    over.set()
    for thread in threads:
        thread.join(30)
    assert not failures, failures[:3]
    assert min(calls) > 20, calls
    assert crib.usage("count")[0]["used"] == calls[0] + calls[1] + 5
    assert reloads(crib)["refused"] == 0
    (files, threads_), memory = before
    poll(lambda: handles(crib)[0] <= files + 4, 15, f"open files as before: {files}, now {handles(crib)}")
    assert crib.rss() < memory + 64 * 2**20, (memory, crib.rss())


def test_pipe_as_manifest_is_refused_without_waiting(start):
    crib = start({"tools": {"calculator": CALCULATOR}})
    crib.manifest.unlink()
    os.mkfifo(crib.manifest)
    wait_for_log(crib, "not a regular file", 8)
    crib.manifest.unlink()
    write(crib, {"tools": {"another": {"kind": "native", "use": "calculator"}}})
    wait_for_tools(crib, ["another"])


def test_editor_files_are_ignored(start):
    crib = start({"include": ["tools.d/*.yaml"], "tools": {"calculator": CALCULATOR}})
    folder = crib.manifest.parent / "tools.d"
    folder.mkdir()
    (folder / ".#a.yaml").symlink_to("nobody@nowhere.1234")
    (folder / ".hidden.yaml").write_text("tools: {hidden: {kind: native, use: calculator}}\n")
    (folder / "a.yaml").write_text("tools: {seen: {kind: native, use: calculator}}\n")
    wait_for_tools(crib, ["calculator", "seen"])


def handles_sighup(pid):
    """Whether the process has a handler for SIGHUP (proc_pid_status(5))."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(caught.group(1), 16) >> (signal.SIGHUP - 1) & 1)


def test_early_sighup_does_not_end_the_service(tmp_path):
    early = 0
    for pause in (0, 0.005, 0.01, 0.02):
        command = [BIN, "serve", "--listen", "127.0.0.1:0", "--ledger", f"sqlite://{tmp_path}/l.db"]
        child = subprocess.Popen(command, env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path)
        try:
            began = now()
            while not handles_sighup(child.pid):
                assert elapsed(began) < 10, "it has no handler"
                time.sleep(0.001)
            early += not select.select([child.stdout], [], [], 0)[0]
            time.sleep(pause)
            child.send_signal(signal.SIGHUP)
            assert b"listening" in child.stdout.readline()
        finally:
            child.terminate()
            assert child.wait(20) == 0
            child.stdout.close()
    assert early, "the handler is there before the service listens"
