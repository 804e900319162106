"""The Dockerfile's `build` stage, which these tests replace, has what the compiler reads."""

import pathlib
import re

import pytest

import harness
from harness import REPO

DOCKERFILE = (REPO / "Dockerfile").read_text()


def test_builder_gets_every_compiled_file():
    """By the list that cargo leaves beside the binary: a new folder must be named in the Dockerfile and .dockerignore."""
    listed = pathlib.Path(harness.BIN).with_suffix(".d")
    if not listed.exists():
        pytest.skip("cargo's list of sources is not beside the binary")
    places = [pathlib.Path(word) for word in listed.read_text().partition(": ")[2].split()]
    made = pathlib.Path(harness.BIN).resolve().parent  # what build.rs writes is below it
    files = {place.relative_to(REPO).as_posix() for place in places if place.is_relative_to(REPO) and not place.resolve().is_relative_to(made)}
    assert {"src/main.rs", "build.rs"} <= files, listed
    stage = DOCKERFILE[DOCKERFILE.index(" AS build"):DOCKERFILE.index(" AS python")]
    copied = {word for line in re.findall(r"^COPY (.+) \S+$", stage, re.M) for word in line.split()}
    ignored = (REPO / ".dockerignore").read_text().splitlines()
    stored = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    for place in (copied, stored):
        assert {"Cargo.toml", "Cargo.lock"} <= place
        missing = {file for file in files if not any(file == name or file.startswith(f"{name}/") for name in place)}
        assert not missing, missing


def test_builder_has_a_recent_enough_rust():
    wanted = re.search(r'^rust-version = "([\d.]+)"', (REPO / "Cargo.toml").read_text(), re.M).group(1)
    named = re.search(r"^ARG RUST=.*rust:([\d.]+)", DOCKERFILE, re.M).group(1)
    assert [int(part) for part in named.split(".")] >= [int(part) for part in wanted.split(".")]
