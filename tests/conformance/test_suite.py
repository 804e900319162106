"""The suite against the binary: every unmet check is listed with its reason, and no other check is missed."""

import pytest

import bridge
import harness
import suite
from conftest import PLACE
from not_met import NOT_MET, NOT_MET_OVER_STDIO, is_of_http

HTTP = [
    ("0.1.16", "2025-06-18"),
    ("0.1.16", "2025-11-25"),
    ("0.2.0-alpha.12", "2025-03-26"),
    ("0.2.0-alpha.12", "2025-06-18"),
    ("0.2.0-alpha.12", "2025-11-25"),
    ("0.2.0-alpha.12", "2026-07-28"),
]
# What the suite has for 2025-03-26 is about HTTP alone.
STDIO = [run for run in HTTP[2:] if run[1] != "2025-03-26"]


def assert_as_listed(run, listed):
    """Exactly what is listed is missed."""
    assert run.passed, "the suite has run"
    assert not run.silent, "these checked nothing"
    unlisted = run.missed - listed.keys()
    assert not unlisted, "missed, and not listed in not_met.py\n" + "\n".join(suite.explanations(run, unlisted))
    assert run.passed & listed.keys() == set(), "listed in not_met.py, and met"


@pytest.mark.parametrize("release, version", HTTP)
def test_suite_passes_over_http(crib, score, release, version):
    run = suite.run(crib.url, release, version, PLACE / "results" / f"http-{release}-{version}")
    score("HTTP", run)
    assert_as_listed(run, NOT_MET)


@pytest.mark.parametrize("release, version", STDIO)
def test_suite_passes_over_stdio(stdio, score, release, version):
    arguments, env = stdio
    between = bridge.Bridge([harness.BIN, *arguments], env)
    try:
        run = suite.run(between.url, release, version, PLACE / "results" / f"stdio-{release}-{version}").excluding(is_of_http)
    finally:
        ends = between.close()
    score("stdio", run)
    assert_as_listed(run, NOT_MET_OVER_STDIO)
    assert set(ends) == {0}


def test_exceptions_and_documented_scores_are_current(scores):
    if len(scores) < len(HTTP) + len(STDIO):
        pytest.skip("only with all runs of the suite")
    missed = {transport: set().union(*(run.missed for other, run in scores if other == transport)) for transport in ("HTTP", "stdio")}
    assert NOT_MET.keys() - missed["HTTP"] == set()
    assert {check for check in NOT_MET_OVER_STDIO if not is_of_http(check)} - missed["stdio"] == set()
    page = (harness.REPO / "docs" / "explain" / "mcp-conformance.md").read_text()
    for transport, run in scores:
        met, scenarios, passed, checks = run.score()
        text = f"{met} of {scenarios} scenarios, {passed} of {checks} checks"
        if run.suite == HTTP[-1][0]:
            assert [line for line in page.splitlines() if line.startswith(f"| {run.version} |") and text in line], f"{run.version}: {text}"
    assert all(reason.strip() for reason in NOT_MET_OVER_STDIO.values())
