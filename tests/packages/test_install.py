"""The tarball and the Debian package, installed in a clean place, used by another user, and removed."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import first_call, only_the_ledger, run
from harness import REPO, TARGET

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
UNIT = "usr/lib/systemd/system/toolcrib.service"


# ---- tarball -------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def unpacked(artefacts, tmp_path_factory):
    """The folder of the tarball, which nobody may write to."""
    folder = tmp_path_factory.mktemp("tarball")
    with tarfile.open(next(artefacts.glob("toolcrib-*-linux.tar.gz"))) as tar:
        assert {(entry.uid, entry.gid) for entry in tar} == {(0, 0)}
        tar.extractall(folder, filter="data")
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)
    yield next(folder.iterdir())
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


@needs_root
def test_tarball_works_for_another_user_in_a_read_only_folder(unpacked, tmp_path):
    reachable(unpacked)
    reachable(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, 65534, 65534)
    first_call([*NOBODY, unpacked / "toolcrib"], cwd=work, env={"PATH": "/usr/bin:/bin", "HOME": str(work)})
    assert only_the_ledger(work)


def reachable(path):
    """Other users may pass the folders above, which pytest makes for one user."""
    for folder in path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    path.chmod(path.stat().st_mode | 0o011)


def test_tarball_has_all_that_belongs_to_the_program(unpacked):
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert names == {"toolcrib", "LICENSE", "README.md", "CHANGELOG.md", "THIRD-PARTY-LICENSES.txt", "toolcrib-sbom.json", "man/man1/toolcrib.1",
                     "completions/bash/toolcrib", "completions/zsh/_toolcrib", "completions/fish/toolcrib.fish"}
    for shell, script in (("bash", "bash/toolcrib"), ("zsh", "zsh/_toolcrib"), ("fish", "fish/toolcrib.fish")):
        if shutil.which(shell):
            run(shell, "-n", unpacked / "completions" / script)


def test_manual_page_is_valid_and_names_every_command(unpacked, binary):
    page = unpacked / "man/man1/toolcrib.1"
    listed = re.findall(r"^  ([a-z]+)  ", run(binary, "--help").partition("Commands:")[2].partition("\n\n")[0], re.M)
    assert len(listed) > 20
    for command in set(listed) - {"help"}:
        assert f".SS toolcrib {command}\n" in page.read_text()
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-c", page], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Long lines of help are printed as they are.
        assert not [line for line in done.stderr.splitlines() if "break" not in line and "adjust" not in line], done.stderr
        assert "--accept-loss" in done.stdout


# ---- Debian package ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A Debian of its own. Made once, and copied for each run."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs debootstrap and root")
    kept = TARGET / "packages/debian-with-systemd"
    if not (kept / "etc/debian_version").exists():
        shutil.rmtree(kept, ignore_errors=True)
        begun = kept.with_name("debian-begun")
        shutil.rmtree(begun, ignore_errors=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", "--include=adduser,init-system-helpers,systemd,systemd-sysv,bubblewrap", "bookworm", begun],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            pytest.skip(f"debootstrap cannot make a Debian here: {done.stdout[-300:]}")
        begun.rename(kept)
    root = tmp_path_factory.mktemp("debian") / "root"
    run("cp", "-a", "--reflink=auto", kept, root)
    reachable(root)
    return root


def files_of(root):
    return {path.relative_to(root).as_posix() for folder in ("etc", "usr", "var/lib/toolcrib", "lib/systemd") for path in (root / folder).rglob("*")
            if not path.is_dir()}


def settings(unit, key):
    return [line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith(f"{key}=")]


def test_debian_package_is_installed_used_and_removed(artefacts, root):
    dpkg = ("chroot", root, "dpkg")
    before = files_of(root)
    shutil.copy(next(artefacts.glob("*.deb")), root / "toolcrib.deb")
    run(*dpkg, "--install", "/toolcrib.deb")
    assert "install ok installed" in run(*dpkg, "--status", "toolcrib")
    # As the unit starts it: its user, its variables, its working folder, its state folder.
    unit = root / UNIT
    user, = settings(unit, "User")
    state, = settings(unit, "StateDirectory")
    run("chroot", root, "install", "-d", "-m", "700", "-o", user, f"/var/lib/{state}")
    environment = dict(pair.split("=", 1) for line in settings(unit, "Environment") for pair in line.split())
    start = [shutil.which("chroot"), f"--userspec={user}:{user}", root, "env", "-C", *settings(unit, "WorkingDirectory"),
             settings(unit, "ExecStart")[0].removesuffix(" serve")]
    first_call(start, env={"PATH": "/usr/bin:/bin", **environment})
    assert sorted(path.name for path in (root / "etc/toolcrib").iterdir()) == ["toolcrib.yaml"]
    assert run("chroot", root, "stat", "-c", "%U:%G %a", "/etc/toolcrib/toolcrib.yaml").strip() == "root:toolcrib 640"

    run(*dpkg, "--remove", "toolcrib")
    assert "etc/toolcrib/toolcrib.yaml" in files_of(root) and not (root / "usr/bin/toolcrib").exists()
    run(*dpkg, "--purge", "toolcrib")
    left = {name for name in files_of(root) - before if not name.startswith(("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"))}
    assert left and all(name.startswith("var/lib/toolcrib/ledger.db") for name in left), left
    # Its owner stays as long as the ledger does.
    assert "toolcrib" in (root / "etc/passwd").read_text()


def test_purge_without_a_ledger_leaves_no_user(artefacts, root):
    shutil.rmtree(root / "var/lib/toolcrib", ignore_errors=True)
    shutil.copy(next(artefacts.glob("*.deb")), root / "toolcrib.deb")
    run("chroot", root, "dpkg", "--install", "/toolcrib.deb")
    run("chroot", root, "dpkg", "--purge", "toolcrib")
    assert "toolcrib" not in (root / "etc/passwd").read_text()


PROBED = {
    "calculator": {"kind": "native"},
    "plain": {"kind": "command", "description": "Tries what the unit and the sandbox forbid.", "parameters": {}, "effect": "read",
              "command": ["sh", "-c", "ls /var/lib/toolcrib /home 2>&1; touch /usr/x 2>&1; true"]},
    "boxed": {"kind": "command", "description": "Lists the root.", "parameters": {}, "effect": "read", "sandbox": True, "command": ["sh", "-c", "ls /"]},
}
PROBE = r"""#!/bin/bash
# Runs beside the service, and ends the machine. One line of JSON for each answer.
exec >/probe.out 2>&1
ask() { exec 3<>/dev/tcp/127.0.0.1/7411; printf '%s %s HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 38\r\n\r\n%-38s' "$1" "$2" "$3" >&3; tail -n 1 <&3; echo; }
for i in {1..200}; do (exec 3<>/dev/tcp/127.0.0.1/7411) 2>/dev/null && break; sleep 0.1; done
ask POST /tools/calculator/invoke '{"arguments": {"expression": "6*7"}}'
ask POST /tools/plain/invoke '{"arguments": {}}'
ask POST /tools/boxed/invoke '{"arguments": {}}'
ask GET /tools/boxed '{}'
systemctl reload toolcrib; echo "reload $?"
systemctl stop toolcrib; systemctl show toolcrib --property=ExecMainStatus,Result
systemctl poweroff --force
"""


@pytest.mark.skipif(not shutil.which("systemd-nspawn"), reason="systemd-nspawn is not here (Debian: systemd-container)")
def test_systemd_starts_the_unit_with_its_sandboxes(artefacts, root):
    """The package in a machine of its own: the hardening of the unit leaves bubblewrap what it needs."""
    shutil.copy(next(artefacts.glob("*.deb")), root / "toolcrib.deb")
    run("chroot", root, "dpkg", "--install", "/toolcrib.deb")
    (root / "etc/toolcrib/toolcrib.yaml").write_text(json.dumps({"tools": PROBED}))
    (root / "probe").write_text(PROBE)
    (root / "probe").chmod(0o755)
    units = root / "etc/systemd/system"
    (units / "probe.service").write_text("[Unit]\nAfter=toolcrib.service\n[Service]\nType=oneshot\nExecStart=/probe\n")
    (units / "multi-user.target.wants/probe.service").symlink_to("../probe.service")
    booted = subprocess.run(["systemd-nspawn", f"--directory={root}", "--register=no", "--keep-unit", "--private-network", "--boot"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    for name in ("probe.service", "multi-user.target.wants/probe.service"):
        (units / name).unlink()
    if not (root / "probe.out").exists():
        pytest.skip(f"no system can be booted here: {booted.stdout.strip()[-200:]}")
    said = (root / "probe.out").read_text()
    run("chroot", root, "dpkg", "--purge", "toolcrib")
    answers = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(answers) == 4, said
    assert answers[0]["content"][0]["text"] == "42"
    plain = answers[1]["content"][0]["text"]
    assert "'/var/lib/toolcrib': Permission denied" in plain and "'/home': Permission denied" in plain and "Read-only file system" in plain
    assert "var" not in answers[2]["content"][0]["text"].split()
    assert answers[3]["sandbox"] == {"asked": True, "in_force": "namespaces", "not_enforced": []}
    assert "reload 0" in said and "Result=success\nExecMainStatus=0" in said, said


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here (Debian: systemd)")
def test_unit_is_valid_and_hardened(artefacts, tmp_path):
    run("dpkg-deb", "--extract", next(artefacts.glob("*.deb")), tmp_path)
    for name in ("sysinit.target", "basic.target", "network-online.target", "multi-user.target", "shutdown.target"):
        (tmp_path / f"usr/lib/systemd/system/{name}").write_text("[Unit]\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").write_text("")
    (tmp_path / "bin/sh").chmod(0o755)
    done = subprocess.run(["systemd-analyze", "verify", f"--root={tmp_path}", "--man=no", "toolcrib.service"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and "toolcrib.service" not in done.stdout, done.stdout
    # 0 is the best. Namespaces and mounts for bubblewrap keep it from less.
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=35", "--no-pager", f"--root={tmp_path}", "toolcrib.service"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_unit_leaves_what_the_sandbox_needs():
    """docs/operate/sandbox.md: bubblewrap mounts a /proc and makes namespaces."""
    unit = REPO / "dist/deb/toolcrib.service"
    for key in ("ProtectKernelTunables", "ProtectKernelLogs", "ProcSubset", "ProtectProc", "ProtectHostname", "PrivateUsers"):
        assert settings(unit, key) == [], key
    kinds, = settings(unit, "RestrictNamespaces")
    assert {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} == set(kinds.split())
    assert {"@mount", "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} <= set(settings(unit, "SystemCallFilter")[0].split())
