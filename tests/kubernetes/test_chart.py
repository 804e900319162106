"""The Helm chart: each option on and off, against the rules; bad values, with their messages."""

import json
import re
import textwrap

import pytest
import yaml

import rules
import values_reference
from harness import REPO
from rendering import AGENT, CHART, one

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
WEATHER = yaml.safe_load((AGENT / "values.yaml").read_text())["toolcrib"]["manifest"]
DIGEST = "sha256:" + "0123456789abcdef" * 4
RULES = REPO / "docker" / "prometheus" / "toolcrib.rules.yaml"
BESIDE = {
    "name": "beside", "image": "example.com/proxy:1",
    "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "8Mi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}, "runAsUser": 1000}}


def option(values, look=None, outside=()):
    """Values, what a reader must see of them, and objects that the reader makes."""
    return values, look or (lambda rendered: True), tuple(outside)


def pod(rendered):
    return rules.service_pod(rendered)


def container(rendered):
    return rules.toolcrib(pod(rendered))


def env(rendered):
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container(rendered)["env"]}


def kinds(rendered):
    return {part["kind"] for part in rendered}


def manifest(rendered):
    return yaml.safe_load(rules.config_map(rendered)["data"]["toolcrib.yaml"])


def policy(rendered):
    return one(rendered, "NetworkPolicy")["spec"]


def autoscaler(rendered):
    return one(rendered, "HorizontalPodAutoscaler")["spec"]


def on(name, **more):
    return {name: {"enabled": True, **more}}


SHARED = {
    "defaults": option({}, lambda r: kinds(r) == {
        "ConfigMap", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}),
    "mode": option({"mode": "shared"}),
    "nameOverride": option({"nameOverride": "tools"}, lambda r: one(r, "Service")["metadata"]["name"] == "toolcrib-tools"),
    "fullnameOverride": option({"fullnameOverride": "tools"}, lambda r: "tools.agents.svc" in manifest(r)["server"]["allowed_hosts"]),
    "commonLabels": option({"commonLabels": {"team": "a"}}, lambda r: all(part["metadata"]["labels"]["team"] == "a" for part in r if part["kind"] != "Pod")),
    "image.repository": option({"image": {"repository": "registry.example.com/toolcrib"}},
                               lambda r: container(r)["image"] == "registry.example.com/toolcrib:0.1.0"),
    "image.tag": option({"image": {"tag": "0.2.0-python"}}, lambda r: container(r)["image"] == "toolcrib:0.2.0-python"),
    "image.digest": option({"image": {"digest": DIGEST}}, lambda r: container(r)["image"] == f"toolcrib@{DIGEST}"),
    "image.pullPolicy": option({"image": {"pullPolicy": "Always"}}, lambda r: container(r)["imagePullPolicy"] == "Always"),
    "image.pullSecrets": option({"image": {"pullSecrets": ["registry"]}}, lambda r: pod(r)["imagePullSecrets"] == [{"name": "registry"}]),
    "manifest": option({"manifest": WEATHER}, lambda r: set(manifest(r)["tools"]) == {"calculator", "get_weather"}),
    "manifest, large numbers and words like no": option(
        {"manifest": {"tools": {"find": {
            "kind": "http", "description": "Finds a country by its code, e.g. no. Use for questions about countries.", "effect": "read",
            "parameters": {"code": {"type": "string", "description": "Code", "enum": ["no", "on", "1e3", "0x1"]}},
            "limits": [{"calls": 12345678, "per": "day"}], "request": {"url": "https://api.example.com/{{ code }}"}}}}},
        lambda r: "calls: 12345678\n" in rules.config_map(r)["data"]["toolcrib.yaml"]
        and manifest(r)["tools"]["find"]["parameters"]["code"]["enum"] == ["no", "on", "1e3", "0x1"]),
    "manifest, open": option({"manifest": {"server": {"allow_open": True, "max_in_flight": 64}}, "secrets": {"names": []}},
                             lambda r: "callers" not in manifest(r) and manifest(r)["server"]["max_in_flight"] == 64),
    "files": option({"manifest": {"include": ["orders.yaml"]}, "files": {"orders.yaml": "tools:\n  calculator: {kind: native}  # as it is\n"}},
                    lambda r: "# as it is" in rules.config_map(r)["data"]["orders.yaml"] and "tools" not in manifest(r)),
    "existingConfigMap": option({"existingConfigMap": "mine"}, lambda r: "ConfigMap" not in kinds(r), [("ConfigMap", "mine")]),
    "restartOnChange": option({"restartOnChange": True}),
    "secrets.names": option({"secrets": {"names": ["a", "b"]}}, lambda r: [
        source["secret"]["name"] for volume in pod(r)["volumes"] for source in volume.get("projected", {}).get("sources", [])] == ["a", "b"]),
    "database.urlSecret": option({"database": {"urlSecret": {"name": "db-app", "key": "uri"}}},
                                 lambda r: env(r)["TOOLCRIB_LEDGER"] == {"secretKeyRef": {"name": "db-app", "key": "uri"}}),
    "database.url": option({"database": {"url": "postgres://toolcrib@db/toolcrib?sslmode=verify-full"}},
                           lambda r: env(r)["TOOLCRIB_LEDGER"] == "postgres://toolcrib@db/toolcrib?sslmode=verify-full"),
    "database.passwordSecret": option(
        {"database": {"url": "postgres://toolcrib:$(DB_PASSWORD)@db/toolcrib", "passwordSecret": {"name": "db", "key": "pw"}}},
        # Kubernetes replaces only what stands before.
        lambda r: list(env(r)).index("DB_PASSWORD") < list(env(r)).index("TOOLCRIB_LEDGER")),
    "stop.lingerSeconds": option({"stop": {"lingerSeconds": 0}}, lambda r: pod(r)["terminationGracePeriodSeconds"] == 30),
    "stop.drainSeconds": option({"stop": {"drainSeconds": 120}}, lambda r: pod(r)["terminationGracePeriodSeconds"] == 140),
    "allowedHosts": option({"allowedHosts": ["tools.example.com"]}, lambda r: manifest(r)["server"]["allowed_hosts"][-1] == "tools.example.com"),
    "clusterDomain": option({"clusterDomain": "corp.example"}, lambda r: "toolcrib.agents.svc.corp.example" in manifest(r)["server"]["allowed_hosts"]),
    "logFilter": option({"logFilter": "debug"}, lambda r: env(r)["TOOLCRIB_LOG"] == "debug"),
    "env": option({"env": [{"name": "REGION", "value": "eu"}]}, lambda r: env(r)["REGION"] == "eu"),
    "envFrom": option({"envFrom": [{"secretRef": {"name": "more"}}]}, lambda r: container(r)["envFrom"] == [{"secretRef": {"name": "more"}}]),
    "startSeconds": option({"startSeconds": 660}, lambda r: container(r)["startupProbe"]["failureThreshold"] == 660),
    "resources": option({"resources": {"limits": {"memory": "1Gi", "cpu": 2}}}, lambda r: container(r)["resources"]["limits"] == {"memory": "1Gi", "cpu": 2}),
    "dataSize": option({"dataSize": "5Gi"}, lambda r: {"name": "toolcrib-data", "emptyDir": {"sizeLimit": "5Gi"}} in pod(r)["volumes"]),
    "tmpSize": option({"tmpSize": "1Gi"}, lambda r: {"name": "toolcrib-tmp", "emptyDir": {"sizeLimit": "1Gi"}} in pod(r)["volumes"]),
    "extraVolumes": option({"extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}], "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}]},
                           lambda r: pod(r)["volumes"][-1]["name"] == "ca", [("ConfigMap", "ca")]),
    "extraVolumeMounts": option({"extraVolumeMounts": [{"name": "toolcrib-data", "mountPath": "/var/cache"}]},
                                lambda r: container(r)["volumeMounts"][-1]["mountPath"] == "/var/cache"),
    "replicas": option({"replicas": 7}, lambda r: one(r, "Deployment")["spec"]["replicas"] == 7),
    "listenAddress": option({"listenAddress": "::"}, lambda r: env(r)["TOOLCRIB_LISTEN"] == "[::]:7411"),
    "autoscaling.enabled": option(on("autoscaling"), lambda r: autoscaler(r)["metrics"][0]["pods"] == {
        "metric": {"name": "toolcrib_open_calls"}, "target": {"type": "AverageValue", "averageValue": "64"}}),
    "autoscaling.minReplicas": option(on("autoscaling", minReplicas=2), lambda r: autoscaler(r)["minReplicas"] == 2),
    "autoscaling.maxReplicas": option(on("autoscaling", maxReplicas=50), lambda r: autoscaler(r)["maxReplicas"] == 50),
    "autoscaling.metric": option(on("autoscaling", metric="calls"), lambda r: autoscaler(r)["metrics"][0]["pods"]["metric"]["name"] == "calls"),
    "autoscaling.targetOpenCalls": option(on("autoscaling", targetOpenCalls=10),
                                          lambda r: autoscaler(r)["metrics"][0]["pods"]["target"]["averageValue"] == "10"),
    "autoscaling.targetCPUUtilization": option(on("autoscaling", targetCPUUtilization=80),
                                               lambda r: autoscaler(r)["metrics"][1]["resource"]["target"]["averageUtilization"] == 80),
    "autoscaling.behavior": option(on("autoscaling", behavior={"scaleUp": {"stabilizationWindowSeconds": 60}}),
                                   lambda r: autoscaler(r)["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 60),
    "podDisruptionBudget.enabled": option({"podDisruptionBudget": {"enabled": False}}, lambda r: "PodDisruptionBudget" not in kinds(r)),
    "podDisruptionBudget.maxUnavailable": option({"podDisruptionBudget": {"maxUnavailable": "34%"}},
                                                 lambda r: one(r, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "34%"),
    "networkPolicy.enabled": option({"networkPolicy": {"enabled": False}}, lambda r: "NetworkPolicy" not in kinds(r)),
    "networkPolicy.from": option({"networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "agent"}}}]}},
                                 lambda r: policy(r)["ingress"][0]["from"][0] == {"podSelector": {"matchLabels": {"app": "agent"}}}),
    "networkPolicy.metricsFrom": option({"networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]}},
                                        lambda r: policy(r)["ingress"][0]["from"][1:] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]),
    "networkPolicy.egress.enabled": option({"networkPolicy": {"egress": {"enabled": False}}},
                                           lambda r: policy(r)["policyTypes"] == ["Ingress"] and "egress" not in policy(r)),
    "networkPolicy.egress.databasePort": option({"networkPolicy": {"egress": {"databasePort": 6432}}},
                                                lambda r: policy(r)["egress"][1]["ports"][0]["port"] == 6432),
    "networkPolicy.egress.toInternet": option({"networkPolicy": {"egress": {"toInternet": False}}}, lambda r: len(policy(r)["egress"]) == 2),
    "networkPolicy.egress.extra": option({"networkPolicy": {"egress": {"extra": [{"ports": [{"port": 6379}]}]}}},
                                         lambda r: policy(r)["egress"][-1] == {"ports": [{"port": 6379}]}),
    "serviceMonitor.enabled": option(on("serviceMonitor"), lambda r: one(r, "ServiceMonitor")["spec"]["endpoints"][0]["path"] == "/metrics"),
    "serviceMonitor.labels": option(on("serviceMonitor", labels={"release": "prometheus"}),
                                    lambda r: one(r, "ServiceMonitor")["metadata"]["labels"]["release"] == "prometheus"),
    "serviceMonitor.interval": option(on("serviceMonitor", interval="1m"), lambda r: one(r, "ServiceMonitor")["spec"]["endpoints"][0]["interval"] == "1m"),
    "serviceMonitor.scrapeTimeout": option(on("serviceMonitor", scrapeTimeout="5s"),
                                           lambda r: one(r, "ServiceMonitor")["spec"]["endpoints"][0]["scrapeTimeout"] == "5s"),
    "serviceMonitor.keySecret": option(on("serviceMonitor", keySecret={"name": "", "key": "any"}),
                                       lambda r: "authorization" not in one(r, "ServiceMonitor")["spec"]["endpoints"][0]),
    "prometheusRule.enabled": option(on("prometheusRule"), lambda r: one(r, "PrometheusRule")["spec"] == yaml.safe_load(RULES.read_text())),
    "prometheusRule.labels": option(on("prometheusRule", labels={"release": "prometheus"}),
                                    lambda r: one(r, "PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"),
    "ingress.enabled": option(on("ingress", host="tools.example.com"), lambda r: "tools.example.com" in manifest(r)["server"]["allowed_hosts"]),
    "ingress.className": option(on("ingress", host="a.b", className="nginx"), lambda r: one(r, "Ingress")["spec"]["ingressClassName"] == "nginx"),
    "ingress.annotations": option(on("ingress", host="a.b", annotations={"a": "b"}), lambda r: one(r, "Ingress")["metadata"]["annotations"] == {"a": "b"}),
    "ingress.host": option(on("ingress", host="tools.example.com"), lambda r: one(r, "Ingress")["spec"]["rules"][0]["host"] == "tools.example.com"),
    "ingress.tlsSecretName": option(on("ingress", host="a.b", tlsSecretName="tls"),
                                    lambda r: one(r, "Ingress")["spec"]["tls"] == [{"hosts": ["a.b"], "secretName": "tls"}]),
    "service.port": option({"service": {"port": 80}}, lambda r: one(r, "Service")["spec"]["ports"][0]["port"] == 80),
    "service.annotations": option({"service": {"annotations": {"a": "b"}}}, lambda r: one(r, "Service")["metadata"]["annotations"] == {"a": "b"}),
    "service.sessionAffinity": option({"service": {"sessionAffinity": "ClientIP"}}, lambda r: one(r, "Service")["spec"]["sessionAffinity"] == "ClientIP"),
    "serviceAccount.create": option({"serviceAccount": {"create": False}},
                                    lambda r: "ServiceAccount" not in kinds(r) and pod(r)["serviceAccountName"] == "default"),
    "serviceAccount.name": option({"serviceAccount": {"name": "crib"}}, lambda r: pod(r)["serviceAccountName"] == "crib"),
    "serviceAccount.annotations": option({"serviceAccount": {"annotations": {"a": "b"}}},
                                         lambda r: one(r, "ServiceAccount")["metadata"]["annotations"] == {"a": "b"}),
    "podAnnotations": option({"podAnnotations": {"a": "b"}}, lambda r: one(r, "Deployment")["spec"]["template"]["metadata"]["annotations"]["a"] == "b"),
    "podLabels": option({"podLabels": {"a": "b"}}, lambda r: one(r, "Deployment")["spec"]["template"]["metadata"]["labels"]["a"] == "b"),
    "priorityClassName": option({"priorityClassName": "high"}, lambda r: pod(r)["priorityClassName"] == "high"),
    "runtimeClassName": option({"runtimeClassName": "gvisor"}, lambda r: pod(r)["runtimeClassName"] == "gvisor"),
    "nodeSelector": option({"nodeSelector": {"disk": "ssd"}}, lambda r: pod(r)["nodeSelector"] == {"disk": "ssd"}),
    "tolerations": option({"tolerations": [{"key": "a", "operator": "Exists"}]}, lambda r: pod(r)["tolerations"][0]["key"] == "a"),
    "affinity": option({"affinity": {"nodeAffinity": {}}}, lambda r: pod(r)["affinity"] == {"nodeAffinity": {}}),
    "topologySpread.enabled": option({"topologySpread": {"enabled": False}}, lambda r: "topologySpreadConstraints" not in pod(r)),
    "topologySpread.whenUnsatisfiable": option({"topologySpread": {"whenUnsatisfiable": "DoNotSchedule"}},
                                               lambda r: pod(r)["topologySpreadConstraints"][1]["whenUnsatisfiable"] == "DoNotSchedule"),
    "dnsConfig": option({"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}}, lambda r: pod(r)["dnsConfig"]["options"][0]["name"] == "ndots"),
    "extraInitContainers": option({"extraInitContainers": [{**BESIDE, "restartPolicy": "Always"}]}, lambda r: pod(r)["initContainers"][0]["name"] == "beside"),
    "extraContainers": option({"extraContainers": [BESIDE]}, lambda r: pod(r)["containers"][1]["name"] == "beside"),
    "extraObjects": option(
        {"extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x", "namespace": "agents"}, "data": {"a": "b"}}]},
        lambda r: one(r, "ConfigMap", "toolcrib-x")),
    "global": option({"global": {"any": 1}}),
    "enabled": option({"enabled": True}),
}


def agent_option(values, look=None, outside=()):
    return option({"toolcrib": values}, look, outside)


# Of the example chart, where the options differ.
SIDECAR = {
    "defaults": agent_option({}, lambda r: kinds(r) == {"ConfigMap", "Deployment", "PersistentVolumeClaim"} and "callers" not in manifest(r)),
    "sidecar.ledger, emptyDir": agent_option({"sidecar": {"ledger": "emptyDir"}}, lambda r: "PersistentVolumeClaim" not in kinds(r)),
    "sidecar.ledger, postgres": agent_option({"sidecar": {"ledger": "postgres"}}, lambda r: "secretKeyRef" in env(r)["TOOLCRIB_LEDGER"]),
    "sidecar.existingClaim": agent_option({"sidecar": {"existingClaim": "mine"}}, None, [("PersistentVolumeClaim", "mine")]),
    "sidecar.claim.size": agent_option({"sidecar": {"claim": {"size": "9Gi"}}},
                                       lambda r: one(r, "PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"] == "9Gi"),
    "sidecar.claim.storageClassName": agent_option({"sidecar": {"claim": {"storageClassName": "fast"}}},
                                                   lambda r: one(r, "PersistentVolumeClaim")["spec"]["storageClassName"] == "fast"),
    "sidecar.claim.accessModes": agent_option({"sidecar": {"claim": {"accessModes": ["ReadWriteOnce"]}}},
                                              lambda r: one(r, "PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteOnce"]),
    "sidecar.agentSeconds": agent_option({"sidecar": {"agentSeconds": 120}}, lambda r: pod(r)["terminationGracePeriodSeconds"] == 150),
    "stop": agent_option({"stop": {"lingerSeconds": 99, "drainSeconds": 60}},
                         lambda r: pod(r)["terminationGracePeriodSeconds"] == 100 and manifest(r)["server"] == {"linger": "0s", "drain": "60s"}),
    "secrets, none": agent_option({"secrets": {"names": []}, "manifest": {"tools": {"get_weather": None}}},
                                  lambda r: all(volume["name"] != "toolcrib-secrets" for volume in pod(r)["volumes"])),
    "callers": agent_option({"manifest": {"callers": [{"name": "a", "key": "${file:/run/secrets/toolcrib/a}"}]}},
                            lambda r: [caller["name"] for caller in manifest(r)["callers"]] == ["a"]),
    "allowedHosts": agent_option({"allowedHosts": ["agent"]}, lambda r: manifest(r)["server"]["allowed_hosts"] == ["agent"]),
    "existingConfigMap": agent_option({"existingConfigMap": "mine"}, None, [("ConfigMap", "mine")]),
    "condition of the chart above": agent_option({"enabled": True}),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_mode_with_option(helm, name):
    values, look, outside = SHARED[name]
    rendered = rules.fulfils_all(helm.template(values), outside)
    assert look(rendered)


@pytest.mark.parametrize("name", SIDECAR)
def test_sidecar_mode_with_option(helm, name):
    values, look, outside = SIDECAR[name]
    agent = values["toolcrib"].get("sidecar", {}).get("agentSeconds", 30)
    rendered = rules.fulfils_all(helm.agent(values), outside, agent)
    assert look(rendered)


def test_sidecar_mode_alone_makes_only_what_the_pod_mounts(helm):
    rendered = helm.template({"mode": "sidecar"})
    rules.fits_the_schemas(rendered)
    rules.manifest_passes_check(rendered)
    assert kinds(rendered) == {"ConfigMap", "PersistentVolumeClaim"}
    kept = one(rendered, "PersistentVolumeClaim")["metadata"]["annotations"]
    assert kept == {"helm.sh/resource-policy": "keep"}, "limits are counted in the ledger"


def test_file_of_tools_is_taken_as_it_is(helm, tmp_path):
    """As the README shows it."""
    file = tmp_path / "orders.yaml"
    file.write_text("# By hand.\ntools:\n  calculator: {kind: native}\n")
    rendered = helm.template({}, CHART, "toolcrib", "--set", "manifest.include={orders.yaml}", "--set-file", rf"files.orders\.yaml={file}")
    rules.fulfils_all(rendered)
    assert rules.config_map(rendered)["data"]["orders.yaml"] == file.read_text()


def test_all_options_together(helm):
    merged = {}
    for name, (values, _, outside) in SHARED.items():
        if not outside and not name.startswith(("networkPolicy.e", "podDisruptionBudget.e", "serviceAccount.c", "topologySpread.e", "manifest, open")):
            merge(merged, values)
    merged["manifest"]["include"] = ["orders.yaml"]
    merged["files"]["orders.yaml"] = "tools:\n  current_time: {kind: native}\n"
    merged["extraContainers"] = []
    merged["extraVolumes"] = merged["extraVolumeMounts"] = []
    rendered = rules.fulfils_all(helm.template(merged))
    assert kinds(rendered) >= {"Ingress", "PrometheusRule", "HorizontalPodAutoscaler", "ServiceMonitor", "PodDisruptionBudget", "NetworkPolicy"}


def merge(into, values):
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = json.loads(json.dumps(value))


def leaves(schema, path=""):
    for name, part in schema.get("properties", {}).items():
        if part.get("properties") and not name.endswith("Secret"):
            yield from leaves(part, f"{path}{name}.")
        else:
            yield path + name


def test_every_value_is_tried():
    tried = {name.split(",")[0] for name in [*SHARED, *SIDECAR]}
    assert set(leaves(SCHEMA)) <= tried


def test_schema_describes_every_value_and_allows_no_other():
    def walk(part, path):
        assert part.get("description") or not path, path
        if "properties" in part:
            assert part["additionalProperties"] is False, path
            for name, inner in part["properties"].items():
                walk(inner, f"{path}.{name}")

    walk(SCHEMA, "")
    known = set(leaves(SCHEMA))

    def defaults(values, path=""):
        for name, value in values.items():
            full = path + name
            if isinstance(value, dict) and any(leaf.startswith(f"{full}.") for leaf in known):
                yield from defaults(value, f"{full}.")
            else:
                yield full

    assert set(defaults(DEFAULTS)) == known - {"global", "enabled"}


def test_chart_passes_lint(helm):
    done = helm.run("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_alerts_of_the_chart_are_those_of_the_project():
    """Helm packs only files of the chart's folder."""
    assert (CHART / "files" / RULES.name).read_text() == RULES.read_text()


# ---- changes -----------------------------------------------------------------------------------------------------------

def checksum(helm, values):
    rendered = helm.template(values)
    return one(rendered, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/toolcrib"]


def test_pods_are_replaced_for_what_a_reload_does_not_take(helm):
    before = checksum(helm, {})
    assert checksum(helm, {"manifest": WEATHER}) == before, "a reload takes tools"
    assert checksum(helm, {"manifest": WEATHER, "restartOnChange": True}) != checksum(helm, {"restartOnChange": True})
    assert checksum(helm, {"manifest": {"server": {"max_in_flight": 8}}}) != before
    assert checksum(helm, {"manifest": {"cache": {"max_bytes": "32MiB"}}}) != before
    assert checksum(helm, {"stop": {"lingerSeconds": 1}}) != before


def test_selector_of_the_deployment_does_not_change_with_the_version(helm):
    rendered = helm.template({"commonLabels": {"team": "a"}, "podLabels": {"b": "c"}})
    assert one(rendered, "Deployment")["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "toolcrib", "app.kubernetes.io/instance": "toolcrib"}


def test_two_releases_share_nothing(helm):
    names = [{(part["kind"], part["metadata"]["name"]) for part in helm.template({}, CHART, release)} for release in ("one", "two")]
    assert not names[0] & names[1]


def test_notes_name_the_secrets_to_make(helm):
    done = helm.run("install", "toolcrib", CHART, "--namespace", "agents", "--dry-run=client")
    assert done.returncode == 0, done.stderr
    for words in ("toolcrib-database", "toolcrib-keys", "http://toolcrib.agents.svc:7411", "has no registry"):
        assert words in done.stdout


# ---- bad values --------------------------------------------------------------------------------------------------------

REFUSED = {
    "a misspelled name": ({"replica": 3}, "additional properties 'replica' not allowed"),
    "a misspelled name below": ({"autoscaling": {"enable": True}}, "at '/autoscaling': additional properties 'enable' not allowed"),
    "a text for a number": ({"replicas": "three"}, "at '/replicas': got string, want integer"),
    "no replica": ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    "another mode": ({"mode": "daemon"}, "value must be one of 'shared', 'sidecar'"),
    "a size without a unit that exists": ({"dataSize": "1GB"}, "at '/dataSize'"),
    "a digest that is none": ({"image": {"digest": "abc"}}, "at '/image/digest'"),
    "a tag in the repository's digest": ({"image": {"repository": "toolcrib@sha256:abc"}}, "at '/image/repository'"),
    "a drain of nothing": ({"stop": {"drainSeconds": 0}}, "at '/stop/drainSeconds'"),
    "a scrape without a unit": ({"serviceMonitor": {"interval": "30"}}, "at '/serviceMonitor/interval'"),
    "a file in the manifest's place": ({"files": {"toolcrib.yaml": "a"}}, "files: toolcrib.yaml is made from `manifest`"),
    "a file in a folder": ({"files": {"a/b.yaml": "a"}}, "files: `a/b.yaml` cannot be a key of a ConfigMap"),
    "an address that is none": ({"listenAddress": "localhost"}, "at '/listenAddress'"),
    "a database that is none": ({"database": {"url": "mysql://db"}}, "at '/database/url'"),
    "linger in the manifest": ({"manifest": {"server": {"linger": "5s"}}}, "manifest.server.linger: set stop.lingerSeconds instead"),
    "drain in the manifest": ({"manifest": {"server": {"drain": "5s"}}}, "manifest.server.drain: set stop.drainSeconds instead"),
    "hosts in the manifest": ({"manifest": {"server": {"allowed_hosts": ["a"]}}}, "manifest.server.allowed_hosts: set allowedHosts instead"),
    "listen in the manifest": ({"manifest": {"server": {"listen": "0.0.0.0:80"}}}, "manifest.server.listen: set listenAddress instead"),
    "a ledger in the manifest": ({"manifest": {"ledger": {"url": "postgres://a@b/c"}}}, "manifest.ledger.url: set database.urlSecret"),
    "no callers": ({"manifest": {"callers": []}}, "manifest.callers: a shared service needs callers"),
    "a literal key": ({"manifest": {"callers": [{"name": "a", "key": "key-0123456789abcdef"}]}}, "manifest.callers[0].key: a literal key"),
    "a password in a URL of the manifest": ({"manifest": {"cache": {"redis": "redis://:secret@redis:6379/0"}}}, "a URL has a literal password"),
    "a password in a URL of a file": ({"files": {"a.yaml": "x: https://u:secret@example.com"}}, "a URL has a literal password"),
    "a literal header": ({"manifest": {"tools": {"t": {"request": {"headers": {"Authorization": "Bearer abc"}}}}}}, "the header Authorization has a literal value"),
    "a password in the URL of the database": ({"database": {"url": "postgres://u:secret@db/x"}}, "database.url: it has a literal password"),
    "a password without its Secret": ({"database": {"url": "postgres://u:$(DB_PASSWORD)@db/x"}}, "database.passwordSecret.name"),
    "no database": ({"database": {"urlSecret": {"name": ""}}}, "database.urlSecret.name: name the Secret"),
    "an Ingress without a host": ({"ingress": {"enabled": True}}, "ingress.host: name the host"),
    "more replicas at least than at most": ({"autoscaling": {"enabled": True, "minReplicas": 20}}, "autoscaling.minReplicas: 20 is greater"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_values_are_refused_with_a_clear_message(helm, name):
    values, message = REFUSED[name]
    assert message in helm.refusal(values)


def test_templates_of_the_sidecar_refuse_the_shared_mode(helm):
    helm.agent()
    assert "need `mode: sidecar`" in helm.refusal({"toolcrib": {"mode": "shared"}}, helm.folder / "charts" / "agent")


def test_references_are_no_literal_secrets(helm):
    rendered = helm.template({"manifest": {
        "cache": {"redis": "redis://:${file:/run/secrets/toolcrib/redis}@redis:6379/0"},
        "callers": [{"name": "a", "key_sha256": "ab" * 32}, {"name": "b", "key": "${env:B_KEY}"}]}})
    rules.keeps_secrets_out(rendered)


# ---- its README --------------------------------------------------------------------------------------------------------

def test_readme_has_the_table_of_the_schema():
    text = values_reference.README.read_text()
    assert text == values_reference.written(text), "run python3 tests/kubernetes/values_reference.py"


def test_values_of_the_readme_are_accepted(helm):
    text = values_reference.README.read_text().partition("## Sidecar")[0]
    blocks = [yaml.safe_load(textwrap.dedent(block)) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    values = [block for block in blocks if "rules" not in block]
    assert len(values) == 6 and len(blocks) == 7
    for block in values:
        outside = [("ConfigMap", volume["configMap"]["name"]) for volume in block.get("extraVolumes", [])]
        rules.fulfils_all(helm.template(block), outside)


def test_versions_are_those_of_the_program():
    version = re.search(r'^version = "(.+)"', (REPO / "Cargo.toml").read_text(), re.M)[1]
    chart, agent = (yaml.safe_load((folder / "Chart.yaml").read_text()) for folder in (CHART, AGENT))
    assert chart["appVersion"] == version and agent["dependencies"][0]["version"] == chart["version"]
    for file in (REPO / "docker").rglob("*.yaml"):
        for name, tag in re.findall(r"image: \"?(\S*toolcrib):([^\s\"{]+)", file.read_text()):
            assert tag == version, (file, name)
        assert set(re.findall(r"newTag: (\S+)", file.read_text())) <= {version}, file
