"""`sandbox:`: what programs may do, what is shown, and the command line. tests/sandbox has the checks by level."""

import os
import pathlib

import pytest

from harness import cli, error_result, ok, problem, text_of
from recipes import PYTHON, command, params, py, sh, to_yaml

LINE = params(line="string")
HAS_BWRAP = pathlib.Path("/usr/bin/bwrap").is_file()
namespaces = pytest.mark.skipif(not HAS_BWRAP, reason="bubblewrap is not installed")


def run(line="{{ line }}", **policy):
    return command(["/bin/sh", "-c", line], **dict({"parameters": LINE, "stdin": ""}, **policy))


def folders(tmp_path):
    for name in "wo":
        (tmp_path / name).mkdir()
    (tmp_path / "o" / "theirs").write_text("theirs")
    (tmp_path / "shared").write_text("shared")


@namespaces
def test_service_level_hides_the_service_and_nothing_else(start, tmp_path):
    folders(tmp_path)
    crib = start({"tools": {"run": run(workdir=str(tmp_path / "w")), "other": sh("ls", workdir=str(tmp_path / "o"))}})
    view = crib.get("/tools/run").json["sandbox"]
    assert view == {"asked": "service", "in_force": "namespaces", "not_enforced": []}
    for hidden in (crib.ledger, crib.manifest, tmp_path / "o" / "theirs"):
        text = text_of(error_result(crib.invoke("run", {"line": f"cat {hidden}"})))
        assert "Permission denied" in text or "No such file" in text, text
    assert "mine" in text_of(ok(crib.invoke("run", {"line": "echo mine > f; cat f"})))
    assert text_of(ok(crib.invoke("run", {"line": f"cat {tmp_path}/shared"}))) == "shared"
    gone = error_result(crib.invoke("run", {"line": f"kill -0 {crib.pid}"}))
    assert "No such process" in text_of(gone)


def test_true_leaves_the_system_and_its_own_folder(start, tmp_path):
    folders(tmp_path)
    (tmp_path / "w" / "own").write_text("own")
    crib = start({"tools": {"run": run(workdir=str(tmp_path / "w"), sandbox=True),
                            "wider": run(workdir=str(tmp_path / "w"), sandbox={"read": [str(tmp_path / "shared")], "write": [str(tmp_path / "w")]})}})
    view = crib.get("/tools/run").json["sandbox"]
    assert view["asked"] is True and view["not_enforced"] == [], view
    assert text_of(ok(crib.invoke("run", {"line": "cat own"}))) == "own"
    error_result(crib.invoke("run", {"line": f"cat {tmp_path}/shared"}))
    error_result(crib.invoke("run", {"line": "echo x > new"}))
    assert text_of(ok(crib.invoke("run", {"line": "echo x > $TMPDIR/new && cat $TMPDIR/new"}))) == "x"
    assert text_of(ok(crib.invoke("wider", {"line": f"cat {tmp_path}/shared; echo -n x > new; cat new"}))) == "sharedx"
    assert "its sandbox may be the reason: it may read nothing more" in crib.stderr


def test_named_hosts_are_reached_through_the_proxy(start, tmp_path, upstream):
    folders(tmp_path)
    fetch = ("import urllib.request, sys, json; print(urllib.request.urlopen(json.load(sys.stdin)['line'], timeout=5).status)")
    tool = command([PYTHON, "-I", "-c", fetch], parameters=LINE, workdir=str(tmp_path / "w"),
                   sandbox={"network": [f"127.0.0.1:{upstream.port}"], "read": [os.path.dirname(os.path.dirname(PYTHON))]})
    crib = start({"tools": {"fetch": tool}})
    if "network" in crib.get("/tools/fetch").json["sandbox"]["not_enforced"]:
        pytest.skip("the kernel's Landlock does not hold TCP ports")
    reached = text_of(crib.invoke("fetch", {"line": f"http://127.0.0.1:{upstream.port}/"}))
    assert "200" in reached or "HTTP Error 404" in reached, reached
    refused = text_of(error_result(crib.invoke("fetch", {"line": f"{crib.base}/livez"})))
    assert "403" in refused, refused
    assert "a program connects to a host" in crib.stderr and "`network:` of its sandbox does not name it" in crib.stderr


def test_limits_end_a_program(start, tmp_path):
    folders(tmp_path)
    limits = {"memory": "64MiB", "cpu": "1s", "files": 16, "disk": "1MiB", "write": [str(tmp_path / "w")], "read": [os.path.dirname(os.path.dirname(PYTHON))]}
    code = {"memory": "bytearray(256 << 20)", "files": "[open('/dev/null') for _ in range(64)]", "disk": "open('big', 'wb').write(bytes(4 << 20))",
            "cpu": "exec('while True: pass')"}
    crib = start({"tools": {name: py(text, workdir=str(tmp_path / "w"), sandbox=limits) for name, text in code.items()}})
    for name, words in (("memory", "MemoryError"), ("files", "Too many open files"), ("disk", ""), ("cpu", "")):
        assert words in text_of(error_result(crib.invoke(name))), name


def test_wrong_settings_are_explained(tmp_path):
    for sandbox, expected in (("off", "there are service, none"), (False, "write `none`"), ({"netwrok": True}, "netwrok"),
                              ({"network": ["https://a.example"]}, "is not a host"), ({"memory": "much"}, "memory")):
        manifest = {"tools": {"t": sh("true", sandbox=sandbox)}}
        (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
        checked = cli("check", cwd=tmp_path)
        assert checked.returncode == 64 and expected in checked.stdout + checked.stderr, (sandbox, checked)
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"mcp_servers": {"m": {"url": "https://a.example/mcp", "sandbox": True}}}))
    assert "sandbox goes with a command" in (checked := cli("check", cwd=tmp_path)).stdout + checked.stderr
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"defaults": {"sandbox": "none"}, "tools": {"t": sh("true")}}))
    assert "no-sandbox" in (checked := cli("check", cwd=tmp_path)).stdout + checked.stderr


def test_command_line_runs_and_explains(tmp_path):
    folders(tmp_path)
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"t": sh("true", workdir="./w", sandbox={"read": ["./shared"]})}}))
    explained = cli("sandbox", "t", "--explain", cwd=tmp_path)
    assert explained.returncode == 0 and "in force" in explained.stdout and str(tmp_path / "shared") in explained.stdout, explained
    ran = cli("sandbox", "t", "--", "cat", str(tmp_path / "shared"), cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "shared"), ran
    assert cli("sandbox", "t", "--", "sh", "-c", f"cat {tmp_path}/o/theirs; exit 7", cwd=tmp_path).returncode == 7
    assert cli("sandbox", "--read", "../shared", "--", "cat", "../shared", cwd=tmp_path / "w").stdout == "shared"
    assert cli("sandbox", "--read", "../shared", "--", "cat", "../o/theirs", cwd=tmp_path / "w").returncode == 1
    missing = cli("sandbox", "nope", "--explain", cwd=tmp_path)
    assert missing.returncode == 1 and "the manifest has no entry `nope`" in missing.stderr, missing


def test_a_sandbox_that_must_be_enforced_refuses(start, tmp_path):
    """Without bubblewrap and Landlock, `required` fails closed: here by a ledger in the program's own folder."""
    if HAS_BWRAP:
        pytest.skip("namespaces enforce everything here; tests/sandbox hides them")
    folders(tmp_path)
    crib = start({"tools": {"t": sh("true", sandbox={"required": True, "write": [str(tmp_path)]})}})
    assert "its sandbox cannot be enforced" in problem(crib.invoke("t"), 502)["detail"]
