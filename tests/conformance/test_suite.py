"""The suite against `POST /mcp`: what is not met is listed with its reason, and nothing else is missed."""

import pytest

import suite
from conftest import PLACE
from not_met import NOT_MET

RUNS = [
    ("0.1.16", "2025-06-18"),
    ("0.1.16", "2025-11-25"),
    ("0.2.0-alpha.12", "2025-03-26"),
    ("0.2.0-alpha.12", "2025-06-18"),
    ("0.2.0-alpha.12", "2025-11-25"),
    ("0.2.0-alpha.12", "2026-07-28"),
]


@pytest.mark.parametrize("release, version", RUNS)
def test_the_suite_finds_only_what_a_server_of_tools_cannot_have(crib, release, version, score):
    folder = PLACE / "results" / f"{release}-{version}"
    run = suite.run(crib.url, release, version, folder)
    assert run.passed, "the suite has run"
    score("HTTP", run)
    listed = {check for check in run.missed | run.passed | run.silent if check in NOT_MET}
    said = "\n".join(suite.why(folder))
    assert run.missed - NOT_MET.keys() == set(), f"failed and is not in not_met.py\n{said}"
    assert listed - run.missed == set(), "is in not_met.py and is met now"


def test_every_reason_is_of_a_check_that_is_there():
    assert all(reason.strip() for reason in NOT_MET.values())
