"""Folders that programs share with the service or with each other, as an ordinary user at each level that holds files."""

import os
import pathlib
import shutil
import tempfile

import pytest

import place
from harness import BIN, Crib, at_level, cli, text_of

USER = place.USERS["nobody"]
LINE = {"line": {"type": "string", "description": "A line for the shell."}}
pytestmark = pytest.mark.xdist_group("nobody")


def shell(**settings):
    return {"kind": "command", "description": "Runs a line.", "command": ["/bin/sh", "-c", "{{ line }}"], "stdin": "", "parameters": LINE,
            "output": "text", "repeatable": True, **settings}


@pytest.fixture(params=["namespaces", "landlock"])
def serve(request):
    """serve(prepare, manifest): a service in a folder that `prepare` has filled, all of it owned by an ordinary user."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="toolcrib-places-", dir="/srv"))
    services = []

    def start(manifest, *folders, at="."):
        for name in ("bin", "run/systemd/resolve", "data", *folders):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("127.0.0.1 localhost\n")
        (folder / at / "toolcrib.yaml").write_text("")
        program = folder / "bin" / "toolcrib"
        shutil.copy(BIN, program)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)
        folder.chmod(0o755)
        within = at_level(request.param, folder, USER)
        crib = Crib(folder / at, manifest, ledger=folder / "data" / "ledger.db", within=within, program=program)
        services.append(crib)
        in_force = crib.get("/tools").json and crib.get(f"/tools/{next(iter(manifest['tools']))}").json["sandbox"]["in_force"]
        if in_force != request.param:
            pytest.skip(f"no level {request.param} here: {in_force}")
        return crib

    start.folder, start.level = folder, request.param
    yield start
    for crib in services:
        if crib.process:
            crib.kill9()
    shutil.rmtree(folder, ignore_errors=True)


def run(crib, tool, line):
    return crib.invoke(tool, {"line": line})


def sandbox_of(crib, tool):
    return crib.get(f"/tools/{tool}").json["sandbox"]


def test_a_link_on_the_way_shows_no_hidden_file(serve):
    (serve.folder / "app").mkdir()
    (serve.folder / "app" / "notes").write_text("of the tool")
    (serve.folder / "current").symlink_to("app")
    here = serve.folder / "current"
    crib = serve({"tools": {"run": shell(sandbox=True, workdir=str(here))}}, at="current")
    assert text_of(run(crib, "run", "cat notes").json) == "of the tool"
    assert text_of(run(crib, "run", f"cat {here}/notes").json) == "of the tool"
    for way in ("toolcrib.yaml", f"{here}/toolcrib.yaml", f"{serve.folder}/app/toolcrib.yaml"):
        reply = run(crib, "run", f"cat {way}")
        assert reply.json["is_error"] and "Runs a line" not in text_of(reply.json), way


def test_a_granted_folder_that_became_a_link_is_refused(serve):
    shared = serve.folder / "shared"
    crib = serve({"tools": {"makes": shell(sandbox={"write": [str(shared)]}, workdir=str(serve.folder / "a")),
                            "uses": shell(sandbox={"write": [str(shared / "x")]}, workdir=str(serve.folder / "b"))}}, "shared/x", "a", "b", "keys")
    assert not run(crib, "uses", f"echo kept > {shared}/x/f").json["is_error"]
    assert not run(crib, "makes", f"rm -rf {shared}/x && ln -s {serve.folder} {shared}/x").json["is_error"]
    reply = run(crib, "uses", f"ls {shared}/x")
    assert (reply.status, reply.json["kind"]) == (502, "upstream_failed"), reply
    assert "leads to" in str(reply.json) and "restart the service" in str(reply.json)


def test_a_folder_of_included_files_is_reported(serve):
    parts = serve.folder / "parts"
    tools = {"free": shell(workdir=str(serve.folder / "a")), "only": shell(sandbox=True, workdir=str(serve.folder / "a")),
             "writes": shell(sandbox={"write": [str(parts)]}, workdir=str(serve.folder / "a"))}
    crib = serve({"include": ["parts/*.yaml"], "tools": tools}, "parts", "a")
    assert "files" in sandbox_of(crib, "free")["not_enforced"]
    assert "files" in sandbox_of(crib, "writes")["not_enforced"]
    assert sandbox_of(crib, "only")["not_enforced"] == []


def test_a_linked_secret_in_a_writable_folder_is_reported(serve):
    (serve.folder / "vault").mkdir()
    (serve.folder / "vault" / "real").write_text("key-0123456789abcdef")
    (serve.folder / "vault" / "key").symlink_to("real")
    secret = {"A": f"${{file:{serve.folder}/vault/key}}"}
    crib = serve({"tools": {"free": shell(workdir=str(serve.folder / "a")), "only": shell(sandbox=True, workdir=str(serve.folder / "a")),
                            "holder": shell(workdir=str(serve.folder / "b"), environment=secret)}}, "a", "b")
    assert "files" in sandbox_of(crib, "free")["not_enforced"]
    assert sandbox_of(crib, "only")["not_enforced"] == []


def test_a_program_leaves_no_journal_for_the_ledger(serve):
    """SQLite would roll the ledger back by it."""
    if serve.level == "landlock":
        pytest.skip("there, a program may write into the folder of the ledger, as `not_enforced` says")
    crib = serve({"tools": {"run": shell()}}, "data/work")
    journal = f"{crib.ledger}-journal"
    (crib.ledger.parent / "other").write_text("so that the folder is not hidden as a whole")
    crib.kill9()
    crib.start()
    for line in (f"echo forged > {journal}", f"echo forged > {journal}.new && mv {journal}.new {journal}", f"rm {journal}"):
        assert run(crib, "run", line).json["is_error"], line
    assert pathlib.Path(journal).read_bytes() == b""
    crib.stop()
    done = cli("audit", "verify", "--ledger", f"sqlite://{crib.ledger}", cwd=serve.folder)
    assert done.returncode == 0, done
