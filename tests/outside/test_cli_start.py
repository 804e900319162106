"""The first commands of a newcomer: init, key new, completions, and which manifest is found."""

import hashlib
import json
import subprocess

import pytest

from harness import BIN, Crib, clean_env, cli, ok
from recipes import sh, to_yaml

MANIFEST = to_yaml({"tools": {"mine": sh("echo mine", effect="read")}})


def test_new_manifest_works(tmp_path):
    done = cli("init", cwd=tmp_path)
    assert done.returncode == 0 and "toolcrib check" in done.stdout, done
    assert {file.name for file in tmp_path.iterdir()} == {"toolcrib.yaml", "toolcrib.schema.json", ".gitignore"}
    checked = cli("check", "--strict", cwd=tmp_path)
    assert checked.returncode == 0 and checked.stdout == "toolcrib.yaml: ok: 2 tools, 0 callers, 0 warnings, 0 hints\n", checked
    called = cli("call", "word_count", "text=to be or not to be", cwd=tmp_path)
    assert called.returncode == 0 and json.loads(called.stdout)["content"][0]["text"].strip() == "6", called
    first = (tmp_path / "toolcrib.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=./toolcrib.schema.json"
    assert json.loads((tmp_path / "toolcrib.schema.json").read_text()) == json.loads(cli("schema", cwd=tmp_path).stdout)


def test_ledger_files_are_ignored_by_git(tmp_path):
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    assert cli("init", cwd=tmp_path).returncode == 0
    assert cli("call", "calculator", "expression=1", cwd=tmp_path).returncode == 0
    assert (tmp_path / "toolcrib.db").exists()
    listed = subprocess.run(["git", "status", "--short"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [line[3:] for line in listed.splitlines()] == [".gitignore", "toolcrib.schema.json", "toolcrib.yaml"], listed


@pytest.mark.parametrize("name", ["toolcrib.yaml", "toolcrib.yml"])
def test_init_overwrites_nothing(tmp_path, name):
    (tmp_path / name).write_text("mine")
    done = cli("init", cwd=tmp_path)
    assert done.returncode == 1 and f"{name} exists already; nothing was written" in done.stderr, done
    assert [file.name for file in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "mine"


def test_other_files_are_kept_by_init(tmp_path):
    (tmp_path / ".gitignore").write_text("target\n")
    done = cli("init", cwd=tmp_path)
    assert done.returncode == 0 and "add toolcrib.db* to it" in done.stdout and (tmp_path / ".gitignore").read_text() == "target\n", done


def test_new_key_opens_the_service(tmp_path):
    """The printed lines are pasted into a manifest as they are."""
    done = cli("key", "new", "research-agent", cwd=tmp_path)
    assert done.returncode == 0, done
    key, digest = (line.split()[1] for line in done.stdout.splitlines()[:2])
    assert hashlib.sha256(key.encode()).hexdigest() == digest and key not in done.stdout.split("callers:")[1]
    lines = "callers:" + done.stdout.split("\ncallers:")[1]
    crib = Crib(tmp_path / "crib", lines + MANIFEST)
    try:
        assert crib.invoke("mine").status == 401
        ok(crib.invoke("mine", headers={"x-api-key": key}))
    finally:
        crib.stop()
    other = json.loads(cli("key", "new", "7", "--format", "json", cwd=tmp_path).stdout)
    assert other["name"] == "7" and other["key"] != key and hashlib.sha256(other["key"].encode()).hexdigest() == other["key_sha256"]


@pytest.mark.parametrize("name", ["", "two words", "anonymous", "x" * 129])
def test_invalid_caller_names_are_refused(tmp_path, name):
    done = cli("key", "new", name, cwd=tmp_path)
    assert done.returncode == 64 and not done.stdout and done.stderr.startswith("toolcrib: "), done


def test_completions_are_scripts(tmp_path):
    for shell, word in (("bash", "complete -F"), ("zsh", "#compdef toolcrib"), ("fish", "complete -c toolcrib")):
        done = cli("completions", shell, cwd=tmp_path)
        assert done.returncode == 0 and word in done.stdout and "healthcheck" in done.stdout, done
    script = cli("completions", "bash", cwd=tmp_path).stdout
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert cli("completions", "cobol", cwd=tmp_path).returncode == 64


def test_manifest_is_found_by_both_names(tmp_path):
    (tmp_path / "toolcrib.yml").write_text(MANIFEST)
    assert "toolcrib.yml: ok: 1 tool" in cli("check", cwd=tmp_path).stdout
    assert [tool["name"] for tool in json.loads(cli("tools", cwd=tmp_path).stdout)["tools"]] == ["mine"]
    (tmp_path / "toolcrib.yaml").write_text(MANIFEST)
    for command in ("check", "tools", "serve", "pin", "usage"):
        done = cli(command, cwd=tmp_path)
        assert done.returncode == 64 and "there are two manifests here, toolcrib.yaml and toolcrib.yml" in done.stderr, done
    assert cli("check", "toolcrib.yml", cwd=tmp_path).returncode == 0


def test_check_takes_a_file(tmp_path):
    (tmp_path / "one.yaml").write_text(MANIFEST)
    assert cli("check", "one.yaml", cwd=tmp_path).stdout == cli("check", "--manifest", "one.yaml", cwd=tmp_path).stdout
    assert cli("check", "one.yaml", cwd=tmp_path, env={"TOOLCRIB_MANIFEST": "none.yaml"}).returncode == 0, "a variable gives way"
    assert cli("check", "one.yaml", "--manifest", "one.yaml", cwd=tmp_path).returncode == 64


@pytest.mark.parametrize("log_format", ["json", "human"])
@pytest.mark.parametrize("args", [("serve", "--listen", "0"), ("serve", "--stdio"), ("tools",), ("call", "calculator", "expression=1")])
def test_missing_manifest_is_said(tmp_path, args, log_format):
    """In every format of the log: the demo tools are not what an operator expects."""
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([BIN, *args, "--log-format", log_format], cwd=str(tmp_path), env=clean_env(None, tmp_path),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            if args == ("serve", "--listen", "0"):
                assert process.stdout.readline().startswith("listening on ")
                process.terminate()
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert "no manifest" in (tmp_path / "log").read_text().lower()
