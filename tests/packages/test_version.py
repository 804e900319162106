"""`dist/version`: one version in all files, and what a release needs."""

import re
import shutil
import subprocess
import sys

import pytest
from conftest import run
from harness import REPO


def dist_version(*words, root=REPO):
    return subprocess.run([sys.executable, root / "dist/version", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def copy(tmp_path):
    """The files that have the version in them."""
    for name in ("Cargo.toml", "Cargo.lock", "CHANGELOG.md", "Dockerfile", "build.rs", "dist", "openapi", "python", "node", "docker", "docs/operate",
                 "crates", "benches/bare", "src/lib.rs", "src/main.rs"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (REPO / name).is_dir() else shutil.copy)(REPO / name, target)
    return tmp_path


def test_all_files_have_one_version(binary):
    done = dist_version("check")
    assert done.returncode == 0, done.stdout
    assert run(binary, "--version") == f"toolcrib {dist_version().stdout}"


def test_tag_needs_the_version_and_a_section_of_the_changelog(copy):
    version = dist_version().stdout.strip()
    done = dist_version("check", "v99.0.0", root=copy)
    assert done.returncode == 1 and f"it must be v{version}" in done.stdout, done.stdout
    text = (copy / "CHANGELOG.md").read_text()
    (copy / "CHANGELOG.md").write_text(re.sub(r"(?m)^## Unreleased\n", f"## Unreleased\n\n- one more\n\n## {version} - 2030-01-01\n", text, count=1))
    done = dist_version("check", f"v{version}", root=copy)
    assert done.returncode == 1 and done.stdout.splitlines() == ["CHANGELOG.md: the section `Unreleased` has entries, which a release must name"]


def test_set_writes_all_files(copy):
    done = dist_version("set", "7.8.9-rc.1", root=copy)
    assert done.returncode == 0, done.stdout
    assert dist_version("check", "v7.8.9-rc.1", root=copy).stdout == ""
    assert "### Added" in dist_version("notes", root=copy).stdout
    old = dist_version().stdout.strip()
    left = [path for path in copy.rglob("*") if path.suffix in (".toml", ".json", ".yaml") and "target" not in path.parts
            and re.search(rf"toolcrib.{{0,30}}\b{re.escape(old)}", path.read_text())]
    assert not left, left


def test_file_with_another_version_is_named(copy):
    path = copy / "node/package.json"
    path.write_text(path.read_text().replace('"version": "', '"version": "9', 1))
    done = dist_version("check", root=copy)
    assert done.returncode == 1 and done.stdout.startswith("node/package.json: 9"), done.stdout


def test_page_on_upgrades_names_the_newest_schemas():
    """A row for each minor version: which ledgers it reads."""
    minor = ".".join(dist_version().stdout.split(".")[:2])
    newest = [max(int(path.name[:4]) for path in (REPO / f"migrations/{engine}").glob("*.sql")) for engine in ("sqlite", "postgres")]
    assert f"| {minor} | schemas 1 to {newest[0]} | schemas 1 to {newest[1]} |" in (REPO / "docs/operate/upgrade.md").read_text()
