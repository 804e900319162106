"""The Grafana dashboard and the alert rules in docker/: they name only metrics that the service has."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from collector import Collector
from harness import ok, poll
from recipes import sh
from test_metrics import scrape
from test_telemetry import FAST

DOCKER = pathlib.Path(__file__).parents[2] / "docker"
RULES = DOCKER / "prometheus" / "toolcrib.rules.yaml"
DASHBOARD = DOCKER / "grafana" / "toolcrib.json"
METRIC = re.compile(r"\b(?:toolcrib|process)_\w+(?=[{\[ )]|$)")


def expressions(value):
    """Every query of a dashboard."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key in ("expr", "query", "definition") and isinstance(below, str):
                yield below
            else:
                yield from expressions(below)
    elif isinstance(value, list):
        for below in value:
            yield from expressions(below)


def names(text):
    return set(METRIC.findall(text))


@pytest.fixture(scope="module")
def samples(start_shared):
    """The names of all samples of a service with a tool, a source and a collector."""
    collector = Collector()
    crib = start_shared({"tools": {"t": sh("true", effect="read")}, "python_modules": {"m": {"module": "json"}},
                         "telemetry": {"otlp": collector.url}}, env=FAST)
    ok(crib.invoke("t"))
    wanted = {"toolcrib_telemetry_records_total", "toolcrib_ledger_commit_seconds_bucket"}
    poll(lambda: wanted <= set(scrape(crib)[0]), what="the metrics of commits and of telemetry")
    yield set(scrape(crib)[0])
    collector.close()


def test_dashboard_shows_metrics_that_exist(samples):
    dashboard = json.loads(DASHBOARD.read_text())
    shown = names("\n".join(expressions(dashboard)))
    assert shown - samples == set()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples}
    missing = families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert missing == set(), "each metric has a place on the dashboard"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) and all(panel["title"] for panel in dashboard["panels"])


def test_rules_use_metrics_that_exist(samples):
    used = names(RULES.read_text())
    assert len(used) > 8 and used - samples == set()


def test_rules_pass_promtool():
    if not shutil.which("promtool"):
        pytest.skip("promtool is missing (Debian: prometheus)")
    for arguments in (["check", "rules", RULES], ["test", "rules", RULES.with_suffix(".test.yaml")]):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
