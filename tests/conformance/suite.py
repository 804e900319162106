"""Runs the conformance suite and reads its results."""

import dataclasses
import json
import pathlib
import re
import shutil

from conftest import node, package

# The suite's own words; what is neither is not counted.
PASSED, MISSED = {"SUCCESS"}, {"FAILURE", "WARNING"}


@dataclasses.dataclass
class Run:
    """The result of a run: its checks as `scenario/check`."""

    suite: str
    version: str
    folder: pathlib.Path
    passed: set
    missed: set
    # Scenarios that checked nothing.
    silent: set

    def excluding(self, left_out):
        """The same but for some checks."""
        passed, missed = ({check for check in some if not left_out(check)} for some in (self.passed, self.missed))
        return dataclasses.replace(self, passed=passed, missed=missed)

    def score(self):
        """Scenarios met completely, of how many; checks, of how many."""
        scenarios = {check.split("/")[0] for check in self.passed | self.missed}
        not_met = {check.split("/")[0] for check in self.missed}
        return len(scenarios - not_met), len(scenarios), len(self.passed), len(self.passed | self.missed)


def run(url, release, version, folder):
    """All scenarios of a release of the suite, for one version of the protocol."""
    shutil.rmtree(folder, ignore_errors=True)
    program = package({"0.1.16": "conformance", "0.2.0-alpha.12": "conformance-next"}[release], "dist/index.js")
    node(program, "server", "--url", url, "--suite", "all", "--spec-version", version, "--output-dir", folder, ok=False,
         seconds=300)
    found = {}
    for scenario, check in checks_in(folder):
        found.setdefault(scenario, []).append((f"{scenario}/{check['id']}", check["status"]))
    every = [check for checks in found.values() for check in checks]
    passed, missed = ({name for name, status in every if status in words} for words in (PASSED, MISSED))
    silent = {scenario for scenario, checks in found.items() if not {status for _, status in checks} & (PASSED | MISSED)}
    return Run(release, version, folder, passed - missed, missed, silent)


def explanations(run, checks):
    """The messages of the suite about these checks."""
    for scenario, check in checks_in(run.folder):
        if check["status"] in MISSED and f"{scenario}/{check['id']}" in checks:
            yield f"{scenario}/{check['id']}: {check['status']}: {check.get('errorMessage') or check['description']}"


def checks_in(folder):
    """Each check with its scenario."""
    for file in sorted(folder.rglob("checks.json")):
        scenario = re.fullmatch(r"server-(.*)-\d{4}-\d\d-\d\dT.*", file.parent.name)[1]
        for check in json.loads(file.read_text()):
            yield scenario, check
