"""The tarball and the Debian package, installed in a clean place, used by another user, and removed."""

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
    kept = TARGET / "packages/debian"
    if not (kept / "etc/debian_version").exists():
        shutil.rmtree(kept, ignore_errors=True)
        begun = kept.with_name("debian-begun")
        shutil.rmtree(begun, ignore_errors=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", "--include=adduser,init-system-helpers", "bookworm", begun],
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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here (Debian: systemd)")
def test_unit_is_valid_and_hardened(artefacts, tmp_path):
    run("dpkg-deb", "--extract", next(artefacts.glob("*.deb")), tmp_path)
    for name in ("sysinit.target", "basic.target", "network-online.target", "multi-user.target", "shutdown.target"):
        (tmp_path / f"usr/lib/systemd/system/{name}").write_text("[Unit]\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kill").write_text("")
    (tmp_path / "bin/kill").chmod(0o755)
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
