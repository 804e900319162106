"""What every rendering must fulfil. Each function takes all objects of one rendering."""

import functools
import json
import pathlib
import re
import subprocess
import tempfile

import kubernetes_validate
import kubernetes_validate.utils
import yaml

from harness import BIN, clean_env

VERSIONS = ("1.29", "1.32", "1.34", kubernetes_validate.latest_version())
SECRETS = "/run/secrets/toolcrib"
# Volumes of the restricted Pod Security Standard.
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def pods(rendered):
    """Each pod template or pod: (its object, metadata, spec)."""
    for part in rendered:
        if part["kind"] == "Deployment":
            template = part["spec"]["template"]
            yield part, template["metadata"], template["spec"]
        elif part["kind"] == "Pod":
            yield part, part["metadata"], part["spec"]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def toolcrib(spec):
    """The container of the service."""
    found = [container for container in containers(spec) if container["name"] == "toolcrib"]
    assert len(found) == 1
    return found[0]


def service_pod(rendered):
    found = [spec for part, _, spec in pods(rendered) if part["kind"] == "Deployment"]
    assert len(found) == 1
    return found[0]


# ---- schemas -----------------------------------------------------------------------------------------------------------

def fits_the_schemas(rendered):
    for part in rendered:
        fits_its_schema(json.dumps(part))


@functools.lru_cache(maxsize=None)
def fits_its_schema(text):
    """Most objects are the same in most renderings."""
    part = json.loads(text)
    if part["apiVersion"] == "monitoring.coreos.com/v1":
        return  # see test_monitors_and_rules_fit_the_operator: its models take seconds to load
    for version in VERSIONS:
        kubernetes_validate.validate(part, version, strict=True)


# It reads its files anew for each object.
kubernetes_validate.utils.schema_contents = functools.lru_cache(maxsize=None)(kubernetes_validate.utils.schema_contents)


def fits_the_operator(part):
    from cloudcoil.models.prometheus_operator import v1

    model = getattr(v1, part["kind"]).model_validate(part)
    # The model drops what it does not know.
    understood = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert understood == part, (understood, part)


# ---- Pod Security, restricted ------------------------------------------------------------------------------------------

def is_restricted(rendered):
    """Every control of https://kubernetes.io/docs/concepts/security/pod-security-standards/, as of 1.34."""
    for _, metadata, spec in pods(rendered):
        pod = spec.get("securityContext", {})
        assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
        assert not any(name.startswith("container.apparmor") for name in metadata.get("annotations", {}))
        assert not pod.get("sysctls")
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= VOLUMES, volume
        for container in containers(spec):
            own = container.get("securityContext", {})

            def effective(name):
                return own.get(name, pod.get(name))

            assert not own.get("privileged"), container["name"]
            assert own.get("allowPrivilegeEscalation") is False, container["name"]
            assert own["capabilities"]["drop"] == ["ALL"], container["name"]
            assert set(own["capabilities"].get("add", [])) <= {"NET_BIND_SERVICE"}, container["name"]
            assert effective("runAsNonRoot") is True, container["name"]
            assert effective("runAsUser") != 0, container["name"]
            assert (effective("seccompProfile") or {}).get("type") in ("RuntimeDefault", "Localhost"), container["name"]
            assert own.get("procMount", "Default") == "Default"
            assert "windowsOptions" not in own and "windowsOptions" not in pod
            assert set(effective("seLinuxOptions") or {}) <= {"type", "level"}
            assert (effective("appArmorProfile") or {"type": "RuntimeDefault"})["type"] in ("RuntimeDefault", "Localhost")
            assert not any(port.get("hostPort") for port in container.get("ports", []))
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert "host" not in container.get(probe, {}).get("httpGet", {})
            # Beyond the standard.
            assert own.get("readOnlyRootFilesystem") is True, container["name"]
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], container["name"]
        assert spec["automountServiceAccountToken"] is False


# ---- references --------------------------------------------------------------------------------------------------------

def refers_to_what_is_there(rendered, outside=()):
    """Names, labels and ports meet. `outside` are objects that the reader makes."""
    there = {(part["kind"], part["metadata"]["name"]) for part in rendered} | set(outside)
    namespaces = {part["metadata"].get("namespace") for part in rendered}
    assert len(namespaces) == 1, namespaces
    assert len(there) >= len(rendered), "two objects have one name"
    for part, metadata, spec in pods(rendered):
        mounted = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])}
        for container in containers(spec):
            places = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert len(places) == len(set(places))
            names = [variable["name"] for variable in container.get("env", [])]
            assert len(names) == len(set(names)), names
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, volume
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there, volume
            if "projected" in volume:
                assert volume["projected"]["defaultMode"] == 0o440, "not for the group alone"
        if spec.get("serviceAccountName") not in (None, "default"):
            assert ("ServiceAccount", spec["serviceAccountName"]) in there
        if part["kind"] == "Deployment":
            labels = metadata["labels"]
            assert part["spec"]["selector"]["matchLabels"].items() <= labels.items()
            for constraint in spec.get("topologySpreadConstraints", []):
                assert constraint["labelSelector"]["matchLabels"].items() <= labels.items()
    for part in rendered:
        spec = part.get("spec", {})
        if part["kind"] == "Service":
            ports = {port["name"] for container in containers(selected(rendered, spec["selector"])) for port in container.get("ports", [])}
            assert {port["targetPort"] for port in spec["ports"]} <= ports
        elif part["kind"] == "Ingress":
            backend = spec["rules"][0]["http"]["paths"][0]["backend"]["service"]
            service, = [other for other in rendered if other["kind"] == "Service"]
            assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
        elif part["kind"] == "PodDisruptionBudget":
            selected(rendered, spec["selector"]["matchLabels"])
        elif part["kind"] == "NetworkPolicy":
            ports = {port["name"] for container in containers(selected(rendered, spec["podSelector"]["matchLabels"]))
                     for port in container.get("ports", [])}
            assert {port["port"] for rule in spec["ingress"] for port in rule["ports"]} <= ports
        elif part["kind"] == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            deployment = next(other for other in rendered if (other["kind"], other["metadata"]["name"]) == (target["kind"], target["name"]))
            assert deployment["apiVersion"] == target["apiVersion"]
            assert "replicas" not in deployment["spec"], "each installation would set the number back"
        elif part["kind"] == "ServiceMonitor":
            service, = [other for other in rendered if other["kind"] == "Service"]
            assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            assert {endpoint["port"] for endpoint in spec["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}


def selected(rendered, labels):
    """The spec of the one pod that these labels select."""
    found = [spec for _, metadata, spec in pods(rendered) if labels.items() <= metadata["labels"].items()]
    assert len(found) == 1, labels
    return found[0]


# ---- secrets, the manifest, the stop -----------------------------------------------------------------------------------

def keeps_secrets_out(rendered):
    assert not [part for part in rendered if part["kind"] == "Secret"], "secrets are named, not made"
    for part in rendered:
        if part["kind"] == "ConfigMap":
            for text in part["data"].values():
                assert not re.search(r"://[^/@\s]*:[^$/@\s][^/@\s]*@", text), text
                for caller in (yaml.safe_load(text) or {}).get("callers", []) if "callers:" in text else []:
                    assert "${" in caller.get("key", "${"), caller
    for _, _, spec in pods(rendered):
        for container in containers(spec):
            for variable in container.get("env", []):
                if re.search(r"PASSWORD|KEY|TOKEN", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"], variable
                assert not re.search(r"://[^/@\s]*:[^$/@\s][^/@\s]*@", variable.get("value", "")), variable


def seconds(text):
    """A duration of the manifest."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", text))


def config_map(rendered):
    """The one that the pod mounts as its manifest; None if the reader makes it."""
    maps = {part["metadata"]["name"]: part for part in rendered if part["kind"] == "ConfigMap"}
    if not any(part["kind"] == "Deployment" for part in rendered):
        return next(iter(maps.values()), None)
    spec = service_pod(rendered)
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "toolcrib-manifest")
    return maps.get(volume["configMap"]["name"])


def grace_covers_the_stop(rendered, agent=0):
    if (found := config_map(rendered)) is None:
        return
    server = yaml.safe_load(found["data"]["toolcrib.yaml"]).get("server", {})
    needed = agent + seconds(server.get("linger", "0s")) + seconds(server.get("drain", "20s")) + 8
    spec = service_pod(rendered)
    assert needed <= spec["terminationGracePeriodSeconds"] <= needed + 5


def manifest_passes_check(rendered):
    if (found := config_map(rendered)) is not None:
        checked(tuple(sorted(found["data"].items())))


@functools.lru_cache(maxsize=None)
def checked(files):
    """The real `toolcrib check`, with a file for each secret. No warning is accepted."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        place = write_manifest(folder, files, lambda name: f"{name}-0123456789abcdef0123")
        done = subprocess.run([BIN, "check"], cwd=place, env=clean_env({"POD_IP": "10.1.2.3", "POD_NAMESPACE": "agents"}), capture_output=True, text=True)
        assert done.returncode == 0 and " 0 warnings" in done.stdout, done.stdout + done.stderr


def write_manifest(folder, files, secret):
    """The mounts of the container below a folder: etc/ with the manifest, and secrets/ with a file for each that it names."""
    place, secrets = folder / "etc", folder / "secrets"
    place.mkdir(parents=True)
    secrets.mkdir()
    for name, text in files:
        for named in re.findall(rf"\$\{{file:{SECRETS}/([^}}]+)\}}", text):
            (secrets / named).write_text(secret(named))
        (place / name).write_text(text.replace(SECRETS, str(secrets)))
    return place


# ---- probes ------------------------------------------------------------------------------------------------------------

def can_write_in_its_working_folder(rendered):
    """The service makes environments of Python modules there."""
    for part, _, spec in pods(rendered):
        if part["kind"] == "Deployment":
            container = toolcrib(spec)
            mount, = [mount for mount in container["volumeMounts"] if mount["mountPath"] == container["workingDir"]]
            assert not mount.get("readOnly")


def has_the_probes(rendered):
    for part, _, spec in pods(rendered):
        if part["kind"] != "Deployment":
            continue
        container = toolcrib(spec)
        if "ports" in container:
            paths = {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
            for name, path in paths.items():
                get = container[name]["httpGet"]
                assert (get["path"], get["port"]) == (path, "http")
            port, = container["ports"]
            listen = next(variable["value"] for variable in container["env"] if variable["name"] == "TOOLCRIB_LISTEN")
            assert listen.endswith(f":{port['containerPort']}")
        else:
            assert container["restartPolicy"] == "Always" and container in spec["initContainers"]
            commands = {"startupProbe": [], "readinessProbe": [], "livenessProbe": ["--live"]}
            for name, more in commands.items():
                assert container[name]["exec"]["command"] == ["/toolcrib", "healthcheck", *more]
                assert container[name]["timeoutSeconds"] > 5, "the command waits 5 s itself"


def fulfils_all(rendered, outside=(), agent=0):
    fits_the_schemas(rendered)
    is_restricted(rendered)
    refers_to_what_is_there(rendered, outside)
    keeps_secrets_out(rendered)
    has_the_probes(rendered)
    can_write_in_its_working_folder(rendered)
    manifest_passes_check(rendered)
    if any(part["kind"] == "Deployment" for part in rendered):
        grace_covers_the_stop(rendered, agent)
    return rendered
