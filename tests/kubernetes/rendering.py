"""Charts and kustomizations to objects."""

import json
import os
import shutil
import subprocess

import yaml

from harness import REPO

CHART = REPO / "docker" / "helm" / "toolcrib"
AGENT = REPO / "docker" / "helm" / "agent"
KUSTOMIZE = REPO / "docker" / "kustomize"
NAMESPACE = "agents"


def objects(text):
    return [part for part in yaml.safe_load_all(text) if part]


def one(rendered, kind, name=None):
    """The only object of a kind, without those of `helm test`."""
    found = [part for part in rendered if part["kind"] == kind and (name is None or part["metadata"]["name"] == name)]
    assert len(found) == 1, (kind, name, [part["metadata"]["name"] for part in found])
    return found[0]


class Helm:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.number = 0

    def run(self, *arguments, values=None):
        """One run of helm to its end."""
        command = [self.program, *map(str, arguments)]
        if values:
            self.number += 1
            file = self.folder / f"values-{self.number}.yaml"
            file.write_text(json.dumps(values))
            command += ["--values", str(file)]
        return subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def template(self, values=None, chart=CHART, release="toolcrib", *more):
        done = self.run("template", release, chart, "--namespace", NAMESPACE, *more, values=values)
        assert done.returncode == 0, done.stderr
        return objects(done.stdout)

    def refusal(self, values, chart=CHART):
        """The message about values that are refused."""
        done = self.run("template", "toolcrib", chart, "--namespace", NAMESPACE, values=values)
        assert done.returncode != 0, f"not refused: {values}\n{done.stdout}"
        return done.stderr

    def agent(self, values=None):
        """The chart of the example, with the chart as its dependency."""
        folder = self.folder / "charts"
        if not folder.exists():
            shutil.copytree(CHART.parent, folder)
            done = self.run("dependency", "build", folder / "agent")
            assert done.returncode == 0, done.stderr
        return self.template(values, folder / "agent", "bot")


class Kustomize:
    def __init__(self, kubectl):
        self.kubectl = kubectl

    def __call__(self, folder):
        done = subprocess.run([self.kubectl, "kustomize", KUSTOMIZE / folder], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "deprecated" not in done.stderr, done.stderr
        return objects(done.stdout)
