"""`dist/build`: the same files from every folder, the licences, the list of packages."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import build, is_static, run
from harness import REPO


def sums(folder):
    return dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A copy of the repository in another folder, made under another umask, without git."""
    copy = tmp_path_factory.mktemp("elsewhere") / "a longer name".replace(" ", "-")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPO).split("\0")
    for name in filter(None, listed):
        source = REPO / name
        if not source.is_file():
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy / name)
        (copy / name).chmod(0o700 if os.access(source, os.X_OK) else 0o600)
    return copy


def test_two_packings_are_the_same(artefacts, binary, elsewhere, tmp_path):
    epoch = run("git", "log", "-1", "--format=%ct", cwd=REPO).strip()
    program = tmp_path / "program"
    shutil.copy(binary, program)
    second = build(program, tmp_path / "out", elsewhere, cwd=tmp_path, umask=0o077, env={**os.environ, "SOURCE_DATE_EPOCH": epoch, "TZ": "Asia/Tokyo"})
    assert sums(second) == sums(artefacts)
    assert len(sums(second)) == 9, sums(second)


def test_two_builds_of_the_program_are_the_same(binary, elsewhere):
    if not is_static(binary):
        pytest.skip("builds the program once more, in minutes: tests/run --dist packages")
    epoch = run("git", "log", "-1", "--format=%ct", cwd=REPO).strip()
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    second = run(elsewhere / "dist/binary", "--locked", env={**environment, "SOURCE_DATE_EPOCH": epoch}, cwd="/").splitlines()[-1]
    with open(second, "rb") as one, open(binary, "rb") as other:
        assert one.read() == other.read()
    shutil.rmtree(elsewhere / "target")


def test_program_names_no_folder_of_this_machine(binary):
    if not is_static(binary):
        pytest.skip("only the program that ships: tests/run --dist packages")
    content = binary.read_bytes()
    for folder in (str(REPO), os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")):
        assert folder.encode() + b"/" not in content, folder


def test_every_package_has_its_license(artefacts):
    for path in [*artefacts.glob("*.tgz"), *artefacts.glob("*.tar.gz")]:
        with tarfile.open(path) as tar:
            names = {name.partition("/")[2] for name in tar.getnames()}
        assert "LICENSE" in names, path
        assert ("THIRD-PARTY-LICENSES.txt" in names) == ("linux" in path.name), path
    for path in artefacts.glob("*.whl"):
        names = {name.partition("dist-info/licenses/")[2] for name in zipfile.ZipFile(path).namelist()}
        assert "LICENSE" in names and ("THIRD-PARTY-LICENSES.txt" in names) == ("linux" in path.name), path


def test_sums_are_those_of_the_files(artefacts):
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=artefacts)
    for path in artefacts.glob("*.sha256"):
        run("sha256sum", "--check", "--strict", path.name, cwd=artefacts)


def test_dynamic_program_is_refused(tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    for program, word in ((tmp_path / "script", "not an ELF file"), (sys.executable, "linked dynamically")):
        done = subprocess.run([sys.executable, REPO / "dist/build", "--binary", program, "--out", tmp_path], text=True, capture_output=True)
        assert done.returncode == 1 and word in done.stderr, done


def test_list_of_packages_is_valid_cyclonedx(artefacts):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    text = (artefacts / "toolcrib-sbom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    document = json.loads(text)
    names = {component["name"] for component in document["components"]}
    assert {"tokio", "libsqlite3-sys", "ring", "preact"} <= names
    assert not {"toolcrib-macros", "proptest", "insta", "vite"} & names, "only compiled with, or for tests"
    known = {component["bom-ref"] for component in document["components"]}
    assert known == {used for entry in document["dependencies"] for used in entry["dependsOn"]}


def test_licenses_name_every_package(artefacts):
    text = (artefacts / "THIRD-PARTY-LICENSES.txt").read_text()
    for component in json.loads((artefacts / "toolcrib-sbom.json").read_text())["components"]:
        assert re.search(rf"^{re.escape(component['name'])} {re.escape(component['version'])} \(", text, re.M), component["name"]
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in text
