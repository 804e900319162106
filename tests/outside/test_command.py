"""Kind `command`: what reaches the program, what it returns, and that no process survives."""

import json
import os

import pytest

from harness import elapsed, error_result, in_background, now, ok, poll, problem, processes, text_of, wait_until_gone
from recipes import command, params, py, PYTHON, sh

TEXT = params(text="string")
SHOW = ("import sys, os, json; json.dump({'argv': sys.argv[1:], 'stdin': sys.stdin.read(), 'env': dict(os.environ),"
        " 'cwd': os.getcwd()}, sys.stdout)")


def show_tool(*extra, **policy):
    """A program that answers with what it was given."""
    return command([PYTHON, "-I", "-S", "-c", SHOW, *extra], **dict({"effect": "read"}, **policy))


def test_arguments_are_single_argv_items(start):
    """No shell, ever: quotes, spaces, `$()`, newlines and globs arrive as they are, in one item."""
    crib = start({"tools": {"show": show_tool("{{ text }}", "end", parameters=TEXT)}})
    for text in ("a b", "$(id) `id` ; rm -rf / | cat > x && y", 'q"u\'o\\te', "line\nline", "*", "ÆØÅ 日本", "${HOME}", "{{ text }}"):
        assert ok(crib.invoke("show", {"text": text}))["structured_content"]["argv"] == [text, "end"]


def test_argv_value_cannot_be_an_option(start):
    """A value that begins with `-` is refused, unless a literal `--` stands before it."""
    crib = start({"tools": {"bare": show_tool("{{ text }}", parameters=TEXT), "fenced": show_tool("--", "{{ text }}", parameters=TEXT)}})
    reply = crib.invoke("bare", {"text": "--output=/etc/passwd"})
    problem(reply, {400, 403, 422, 502})  # the contract requires a refusal, but does not name its kind
    answer = ok(crib.invoke("fenced", {"text": "-x"}))
    assert answer["structured_content"]["argv"][-1] == "-x"


def test_optional_and_repeated_items_follow_the_arguments(start):
    """`when` leaves items out, `each` repeats them, and neither lets a value become an option."""
    properties = {"since": {"type": "string"}, "merges": {"type": "boolean"}, "paths": {"type": "array", "items": {"type": "string"}}}
    show = show_tool("log", {"when": "since", "args": ["--since={{ since }}"]}, {"when": "merges", "args": ["--merges"]},
                     {"each": "paths"}, input_schema={"type": "object", "properties": properties})
    crib = start({"tools": {"show": show}})
    for arguments, argv in (({}, ["log"]), ({"since": "-1 day", "merges": False}, ["log", "--since=-1 day"]),
                            ({"merges": True, "paths": ["a b", "c;d"]}, ["log", "--merges", "a b", "c;d"])):
        assert ok(crib.invoke("show", arguments))["structured_content"]["argv"] == argv
    refused = problem(crib.invoke("show", {"paths": ["a", "--output=x"]}), 422)
    assert "`paths[1]` must not begin with `-`" in refused["detail"], refused


def test_output_file_becomes_a_typed_block(start, tmp_path):
    """The file whose path the program prints is the result, if it is below the working folder."""
    script = "printf '\\211PNG\\r\\n\\032\\n' > a.png; echo $1"
    draw = command(["/bin/sh", "-c", script, "sh", "{{ text }}"], parameters=TEXT, output={"file": "{{ stdout }}"}, effect="read")
    crib = start({"tools": {"draw": draw}})
    block, = ok(crib.invoke("draw", {"text": "a.png"}))["content"]
    assert (block["type"], block["mimeType"]) == ("image", "image/png")
    assert "`b.png` does not exist" in text_of(error_result(crib.invoke("draw", {"text": "b.png"})))
    assert "leads out of the folder" in text_of(error_result(crib.invoke("draw", {"text": "/etc/hostname"})))


def test_number_may_be_negative_after_a_long_option(start):
    """The value of `--lon` may be negative. A text, or a number elsewhere, must still not begin with `-`."""
    crib = start({"tools": {
        "option": show_tool("--lon", "{{ n }}", parameters=params(n="number")),
        "bare": show_tool("{{ n }}", parameters=params(n="number")),
        "word": show_tool("--lon", "{{ text }}", parameters=TEXT)}})
    assert ok(crib.invoke("option", {"n": -73.9}))["structured_content"]["argv"] == ["--lon", "-73.9"]
    problem(crib.invoke("bare", {"n": -73.9}), {422})
    problem(crib.invoke("word", {"text": "-73.9"}), {422})


def test_nul_in_an_argument_is_refused(start):
    """argv cannot hold a NUL: the call is refused without a crash."""
    crib = start({"tools": {"show": show_tool("{{ text }}", parameters=TEXT)}})
    problem(crib.invoke("show", {"text": "a\0b"}), {400, 422, 502})
    ok(crib.invoke("show", {"text": "ab"}))


def test_placeholders_keep_their_types(start):
    """Numbers and booleans become their JSON text; lists and objects too, as one item."""
    crib = start({"tools": {"show": show_tool("{{ n }}", "{{ b }}", "{{ l }}", parameters=params(n="number", b="boolean", l="array"))}})
    argv = ok(crib.invoke("show", {"n": 1.5, "b": True, "l": [1, "x"]}))["structured_content"]["argv"]
    assert argv[:2] == ["1.5", "true"] and json.loads(argv[2]) == [1, "x"]


def test_environment_is_cleared(start):
    """Nothing of the service's environment is inherited: only what the manifest names."""
    crib = start({"tools": {"show": show_tool(environment={"LANG": "C.UTF-8", "KEY": "${env:TOOL_KEY}"})}},
                 env={"TOOL_KEY": "k-1", "SERVICE_ONLY": "x"})
    env = ok(crib.invoke("show", {}))["structured_content"]["env"]
    assert env["LANG"] == "C.UTF-8" and "SERVICE_ONLY" not in env and "TOOL_KEY" not in env and "HOME" not in env, env
    assert env["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    assert "KEY" in env  # its value is a secret, and may be redacted in the answer


def test_stdin_is_the_template_or_arguments(start):
    """The template, or the arguments object as JSON."""
    crib = start({"tools": {"templated": show_tool(stdin="{{ text }}", parameters=TEXT), "plain": show_tool(parameters=TEXT)}})
    assert ok(crib.invoke("templated", {"text": "hei\n"}))["structured_content"]["stdin"] == "hei\n"
    assert json.loads(ok(crib.invoke("plain", {"text": "hei"}))["structured_content"]["stdin"]) == {"text": "hei"}


def test_large_unread_stdin_does_not_block(start):
    """More than a pipe holds, to a program that does not read: no hang, no failure."""
    crib = start({"tools": {"deaf": sh("echo done", stdin="{{ text }}", parameters=TEXT, effect="read")}})
    assert "done" in text_of(ok(crib.invoke("deaf", {"text": "x" * 500_000})))


def test_workdir_is_relative_to_the_manifest(start, tmp_path):
    work = tmp_path / "here" / "work"
    work.mkdir(parents=True)
    crib = start({"tools": {"show": show_tool(workdir="./work")}}, folder=tmp_path / "here")
    assert os.path.realpath(ok(crib.invoke("show", {}))["structured_content"]["cwd"]) == os.path.realpath(work)


def test_output_modes_auto_json_text(start):
    crib = start({"tools": {
        "auto_json": sh("echo '{\"a\": 1}'", effect="read"), "auto_text": sh("echo '{a: 1'", effect="read"),
        "text": sh("echo '{\"a\": 1}'", effect="read", output="text"), "list": sh("echo '[1, 2]'", effect="read", output="json"),
        "half": sh("printf '{\"a\": [1, '", effect="read", output="json"),
        "empty": sh("exit 0", effect="read")}})
    answer = ok(crib.invoke("auto_json"))
    assert answer["structured_content"] == {"a": 1} and json.loads(text_of(answer)) == {"a": 1}
    answer = ok(crib.invoke("auto_text"))
    assert answer["structured_content"] is None and "{a: 1" in text_of(answer)
    answer = ok(crib.invoke("text"))
    assert answer["structured_content"] is None and '"a"' in text_of(answer)
    assert ok(crib.invoke("list"))["structured_content"] == [1, 2]
    error = problem(crib.invoke("half"), 502, "bad_output")
    assert error["source"] == "tool" and crib.row(error["invocation_id"])["state"] == "failed"
    ok(crib.invoke("empty"))


def test_output_must_fit_its_schema(start):
    """What the tool promised and did not keep is bad_output, not a result."""
    crib = start({"tools": {"liar": sh("echo '{\"a\": \"x\"}'", effect="read", output_schema={
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})}})
    problem(crib.invoke("liar"), 502, "bad_output")


def test_exit_code_and_stderr_become_error(start):
    """Exit 1 is the tool saying no: 200, is_error, and its stderr is the text."""
    crib = start({"tools": {"sad": sh("echo out; echo 'no such file: x.txt' >&2; exit 1", effect="read"),
                            "mute": sh("exit 3", effect="read"), "killed": sh("kill -9 $$", effect="read")}})
    answer = error_result(crib.invoke("sad"))
    assert "no such file: x.txt" in text_of(answer)
    assert crib.row(answer["invocation_id"])["result"]["is_error"] is True
    error_result(crib.invoke("mute"))
    reply = crib.invoke("killed")  # no exit code at all: an error result or a failure, reported in either case
    assert reply.status == 502 or error_result(reply)


def test_missing_program_is_upstream_failed(start):
    """Spawn failures are upstream_failed; a check that finds them earlier would be fine too, so it is made absent later."""
    crib = start({"tools": {"calculator": {"kind": "native"}, "ghost": command(["./ghost"], effect="read")}},
                 folder=_with_program(start.root / "ghost"))
    os.unlink(crib.folder / "ghost")
    problem(crib.invoke("ghost"), 502, "upstream_failed")
    ok(crib.invoke("calculator", {"expression": "1"}))


def _with_program(folder):
    folder.mkdir(parents=True)
    (folder / "ghost").write_text("#!/bin/sh\necho boo\n")
    (folder / "ghost").chmod(0o755)
    return folder


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_capped(start, mark, stream):
    """A program that prints without end: an early answer, bounded memory, the program ended."""
    script = f"exec /usr/bin/yes {mark}" + (" >&2" if stream == "stderr" else "")
    crib = start({"tools": {"loud": sh(script, effect="read", max_output="64KiB", timeout="5s")}})
    before, started = crib.rss(), now()
    reply = crib.invoke("loud")
    assert elapsed(started) < 10
    # Two readings: cut off with a warning (200), or invalid output (502); stderr may run into the timeout.
    assert reply.status in (200, 502) or (stream == "stderr" and reply.status == 504), reply
    assert len(reply.body) < 400_000, "capped"
    assert crib.rss() - before < 64 << 20
    wait_until_gone(mark)


def test_output_below_its_cap_is_complete(start):
    crib = start({"tools": {"big": py("print('x' * 1000000, end='')", effect="read", max_output="1MiB", output="text")}})
    assert text_of(ok(crib.invoke("big"))) == "x" * 1_000_000


def test_endless_program_is_ended_by_timeout(start, mark):
    """Its timeout ends it: 504, the row records it, the process is gone."""
    crib = start({"tools": {"stuck": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="400ms"),
                            "stuck_write": sh(f"exec /bin/sleep 300 0.{mark}", effect="write", timeout="400ms")}})
    error = problem(crib.invoke("stuck"), 504, {"attempt_timed_out", "deadline_exceeded"})
    assert crib.row(error["invocation_id"])["state"] == "timed_out"
    error = problem(crib.invoke("stuck_write"), 504, {"attempt_timed_out", "deadline_exceeded"})
    assert crib.row(error["invocation_id"])["state"] == "unknown", "nobody knows what a started write did"
    wait_until_gone(mark)


FAMILY = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for kind in ("child", "session", "orphan", "closed"):
    if os.fork() == 0:
        if kind != "child":
            os.setsid()
        if kind in ("orphan", "closed") and os.fork():
            os._exit(0)
        if kind == "closed":
            for fd in (0, 1, 2):
                os.close(fd)
        os.execv("/bin/sleep", ["/bin/sleep", "300", "0.MARK"])
END
"""


def test_timeout_kills_all_descendants(start, mark):
    """Children that ignore SIGTERM, with sessions of their own, orphaned, with closed pipes: all gone with the call."""
    script = FAMILY.replace("MARK", mark).replace("END", "signal.pause()")
    crib = start({"tools": {"family": py(script, effect="read", timeout="1500ms")}})
    answer = in_background(lambda: crib.invoke("family"))
    poll(lambda: len(processes(mark)) >= 5, 10, "the parent and its four")
    problem(answer(), 504, {"attempt_timed_out", "deadline_exceeded"})
    wait_until_gone(mark)


def test_orphaned_children_do_not_delay_the_answer(start, mark):
    """The program ends and its children hold stdout open: the answer does not wait for them longer than the timeout."""
    script = FAMILY.replace("MARK", mark).replace("END", "print('parent done', flush=True)")
    crib = start({"tools": {"leaver": py(script, effect="read", timeout="2s")}})
    started = now()
    reply = crib.invoke("leaver")
    assert reply.status in (200, 504), reply
    assert elapsed(started) < 8
    wait_until_gone(mark)  # an ended call owns no process


def test_daemon_ends_with_its_call(start, mark):
    """A program that leaves the group and closes its pipes has ended soon after its call, with its environment or without."""
    tools = {}
    for name, env in (("kept", ""), ("cleared", "env -i ")):
        for seconds in (0, 1.5):
            # The first pause: the service limits a program a moment after its start, and a cleared environment leaves only that sign.
            script = f"sleep 0.1; setsid {env}/bin/sleep 300 0.{mark} >/dev/null 2>&1 </dev/null & sleep 0.3; sleep {seconds}; echo done"
            tools[f"{name}_{int(seconds)}"] = sh(script, effect="read")
    twice = ("import os\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.closerange(0, 3)\n"
             f"  os.execv('/bin/sleep', ['/bin/sleep', '300', '0.{mark}'])")
    tools["twice"] = py(twice, effect="read")
    crib = start({"tools": tools})
    for name in tools:
        ok(crib.invoke(name))
    wait_until_gone(mark)


def test_hung_tool_does_not_block_others(start_plain, mark):
    """While every slot of one tool hangs, another answers at once."""
    crib = start_plain({"tools": {
        "hung": sh(f"exec /bin/sleep 300 0.{mark}", effect="read", timeout="3s", concurrency={"max": 2, "queue": 8, "wait": "1s"}),
        "calculator": {"kind": "native"}, "quick": sh("echo quick", effect="read")}})
    waiting = [in_background(lambda: crib.invoke("hung")) for _ in range(6)]
    poll(lambda: len(processes(mark)) == 2, 5, "two hanging programs")
    for _ in range(10):
        started = now()
        ok(crib.invoke("calculator", {"expression": "1"}))
        ok(crib.invoke("quick"))
        assert elapsed(started) < 1
    for answer in waiting:
        problem(answer(), {503, 504})
    wait_until_gone(mark)


def test_read_file_stays_within_its_root(start, tmp_path):
    """The built-in under another name: inside its root it reads; nothing leads out of it."""
    home = tmp_path / "home"
    notes = home / "notes"
    (notes / "sub").mkdir(parents=True)
    (notes / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    (notes / "big.txt").write_text("b" * 100_000)
    secret = home / "secret.txt"
    secret.write_text("the-secret-text")
    (notes / "link.txt").symlink_to(secret)
    (notes / "up").symlink_to(home)
    os.mkfifo(notes / "pipe")
    crib = start({"tools": {"read_notes": {"kind": "native", "use": "read_file", "with": {"root": "./notes", "max_bytes": "16KiB"}}}},
                 folder=home)
    assert "three" in text_of(ok(crib.invoke("read_notes", {"path": "a.txt"})))
    part = text_of(ok(crib.invoke("read_notes", {"path": "a.txt", "start_line": 2, "line_count": 2})))
    assert "two" in part and "three" in part and "one" not in part and "four" not in part
    for path in ("../secret.txt", "sub/../../secret.txt", str(secret), "link.txt", "up/secret.txt", "/etc/passwd", "./../secret.txt",
                 "/proc/self/environ", "..", ".", "sub", "", "a.txt\0", "nothing.txt", "pipe", "file:///etc/passwd"):
        started = now()
        reply = crib.invoke("read_notes", {"path": path})
        assert b"the-secret-text" not in reply.body and b"root:" not in reply.body, path
        assert reply.status >= 400 or reply.json["is_error"], (path, reply)
        assert reply.status < 500 or reply.status == 502, (path, reply)
        assert elapsed(started) < 5, path
    assert len(crib.invoke("read_notes", {"path": "big.txt"}).body) < 60_000


def test_argument_stays_in_the_folder_of_its_file(start, tmp_path):
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts/2026.txt").write_text("a chart")
    (tmp_path / "outside.txt").write_text("not a chart")
    tool = {"kind": "command", "description": "Shows the chart of a year.", "command": ["/bin/true"], "workdir": str(tmp_path),
            "parameters": {"year": {"type": "string", "description": "Year of the chart"}}, "output": {"file": "charts/{{ year }}.txt"}}
    crib = start({"tools": {"chart": tool}})
    assert ok(crib.invoke("chart", {"year": "2026"}))["content"] == [{"type": "text", "text": "a chart"}]
    for year in ("../outside", "x/../../outside", "/outside"):
        assert "must not lead out of its folder" in problem(crib.invoke("chart", {"year": year}), 422, "invalid_arguments")["detail"]
