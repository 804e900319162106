"""The kustomizations: the rules of the chart, and the same objects as the chart makes."""

import pytest
import yaml

import rules
from rendering import one


@pytest.mark.parametrize("folder, agent", [("base", 0), ("overlays/production", 0), ("overlays/sidecar", 30)])
def test_kustomization(kustomize, folder, agent):
    rendered = kustomize(folder)
    if folder == "base":
        for part in rendered:
            part["metadata"]["namespace"] = "any"
    rules.fulfils_all(rendered, agent=agent)
    assert rules.config_map(rendered), "the pod mounts another ConfigMap than the one with the hash"


def bare(value):
    """Without the labels and annotations that helm adds, the namespace, and the variable that stands for it."""
    if isinstance(value, dict):
        return {name: bare(part) for name, part in value.items()
                if name not in ("annotations", "namespace") and (not name.startswith(("helm.sh/", "app.kubernetes.io/")) or name.endswith("/name"))}
    if isinstance(value, list):
        return [bare(part) for part in value if not (isinstance(part, dict) and part.get("name") == "POD_NAMESPACE")]
    return value


def comparable(rendered):
    """The objects by kind, without the manifest and without the hash in its name."""
    for volume in rules.service_pod(rendered)["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = "the manifest"
    return {part["kind"]: bare(part) for part in rendered if part["kind"] not in ("ConfigMap", "Pod")}


def test_base_is_what_the_chart_makes(kustomize, helm):
    assert comparable(kustomize("base")) == comparable(helm.template())


def test_manifest_of_the_base_is_that_of_the_chart(kustomize, helm):
    base, chart = (yaml.safe_load(rules.config_map(rendered)["data"]["toolcrib.yaml"]) for rendered in (kustomize("base"), helm.template()))
    hosts = [host.replace("${env:POD_NAMESPACE}", "agents") for host in base["server"].pop("allowed_hosts")]
    assert hosts == chart["server"].pop("allowed_hosts")
    assert base == chart


def test_production_is_what_the_chart_makes_with_these_options(kustomize, helm):
    values = {"autoscaling": {"enabled": True}, "serviceMonitor": {"enabled": True}, "image": {"repository": "registry.example.com/toolcrib"}}
    overlay, chart = comparable(kustomize("overlays/production")), comparable(helm.template(values))
    del chart["ServiceMonitor"]["spec"]["namespaceSelector"]
    assert overlay == chart


def test_sidecar_is_that_of_the_chart(kustomize, helm):
    ours, theirs = (rules.service_pod(rendered) for rendered in (kustomize("overlays/sidecar"), helm.agent()))
    theirs["initContainers"][0]["image"] = f"registry.example.com/{theirs['initContainers'][0]['image']}"
    assert ours["initContainers"] == theirs["initContainers"]
    for name in ("securityContext", "terminationGracePeriodSeconds"):
        assert ours[name] == theirs[name]


def test_changed_manifest_replaces_the_pods(kustomize):
    """By the hash in the name of the ConfigMap."""
    names = {one(kustomize(folder), "ConfigMap")["metadata"]["name"] for folder in ("base", "overlays/production", "overlays/sidecar")}
    assert len(names) == 3
