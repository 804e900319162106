"""The real program with the variables, the manifest and the Secrets of a rendering: probes, names, metrics, the metric of the autoscaler."""

import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading

import pytest

import kubelet
import rules
import values_reference
from harness import BIN, poll
from rendering import one

KEYS = {("toolcrib-keys", f"{name}-key"): f"{name}-key-0123456789abcdef" for name in ("agent", "operator", "prometheus")}
TOOLS = {"wait": {"kind": "command", "description": "Waits. Use it in tests of the autoscaler only.", "effect": "read", "command": ["sleep", "20"], "parameters": {}}}
OPTIONS = {"manifest": {"tools": TOOLS}, "autoscaling": {"enabled": True}, "serviceMonitor": {"enabled": True}, "stop": {"lingerSeconds": 0}}


def ask(pod, method, path, host=None, key=None, body=None, port=None):
    connection = http.client.HTTPConnection(pod.ip, port or pod.port, timeout=20)
    headers = {"host": host or f"{pod.ip}:{pod.port}", **({"authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request(method, path, body and json.dumps(body), {**headers, **({"content-type": "application/json"} if body else {})})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def rendered(helm):
    return helm.template(OPTIONS)


@pytest.fixture(scope="module")
def pod(rendered, database, tmp_path_factory):
    secrets = {**KEYS, ("toolcrib-database", "url"): database()}
    pod = kubelet.Pod(tmp_path_factory.mktemp("pod"), rendered, kubelet.address(1), secrets)
    yield pod.start()
    assert pod.stop()[0] == 0, pod.words()
    pod.end()


def test_probes_succeed_at_the_address_of_the_pod(pod):
    assert pod.probe("startupProbe") and pod.probe("readinessProbe") and pod.probe("livenessProbe")
    assert "postgres" in pod.words()


def test_every_name_of_the_service_is_accepted(pod):
    for host in ("toolcrib", "toolcrib.agents", "toolcrib.agents.svc", "toolcrib.agents.svc.cluster.local", pod.ip):
        for value in (host, f"{host}:7411"):
            assert ask(pod, "GET", "/tools", value, KEYS["toolcrib-keys", "agent-key"])[0] == 200, value
    assert ask(pod, "GET", "/tools", "toolcrib.other.svc", KEYS["toolcrib-keys", "agent-key"])[0] == 403


def test_prometheus_scrapes_as_the_service_monitor_says(pod, rendered):
    endpoint, = one(rendered, "ServiceMonitor")["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    # Prometheus addresses each pod by its IP.
    assert ask(pod, "GET", endpoint["path"], key=KEYS[credentials["name"], credentials["key"]])[0] == 200
    assert ask(pod, "GET", endpoint["path"])[0] == 401
    assert ask(pod, "GET", endpoint["path"], key=KEYS["toolcrib-keys", "agent-key"])[0] == 403


def samples(pod, name):
    _, text = ask(pod, "GET", "/metrics", key=KEYS["toolcrib-keys", "prometheus-key"])
    assert f"# TYPE {name} gauge\n" in text
    return [float(value) for value in re.findall(rf"^{name} ([\d.]+)$", text, re.M)]


def test_autoscaler_names_a_metric_that_counts_calls_in_flight(pod, rendered):
    name = one(rendered, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert samples(pod, name) == [0], "one number for each pod, without labels to add up"
    calls = [threading.Thread(target=ask, args=(pod, "POST", "/tools/wait/invoke", None, KEYS["toolcrib-keys", "agent-key"], {"arguments": {}})) for _ in range(3)]
    for call in calls:
        call.start()
    poll(lambda: samples(pod, name) == [3], 10, "three calls in flight")
    operator = KEYS["toolcrib-keys", "operator-key"]
    for row in json.loads(ask(pod, "GET", "/invocations?state=running", key=operator)[1])["invocations"]:
        ask(pod, "DELETE", f"/invocations/{row['invocation_id']}", key=operator)
    for call in calls:
        call.join()
    poll(lambda: samples(pod, name) == [0], 10, "no call in flight")
    assert f"seriesQuery: '{name}{{" in values_reference.README.read_text(), "the rule of the Prometheus Adapter"


def test_helm_test_asks_the_service(pod, rendered):
    container, = one(rendered, "Pod")["spec"]["containers"]
    server = f"http://{pod.ip}:{pod.port}"
    arguments = [server if argument == "http://toolcrib:7411" else argument for argument in container["args"]]
    assert server in arguments
    assert subprocess.run([BIN, *arguments], capture_output=True).returncode == 0
    assert subprocess.run([BIN, *arguments[:-1], "http://127.0.0.1:1"], capture_output=True).returncode == 1


def test_sidecar_is_ready_by_its_own_command_and_stops_in_time(helm, tmp_path):
    listen = {"TOOLCRIB_LISTEN": f"{kubelet.address(9)}:7411", "TOOLCRIB_LEDGER": f"sqlite://{tmp_path}/toolcrib.db"}
    pod = kubelet.Pod(tmp_path / "pod", helm.agent(), kubelet.address(9), {("agent-tools", "weather-key"): "weather-key-0123456789"}, listen)
    try:
        pod.start()
        assert pod.probe("livenessProbe")
        code, seconds = pod.stop()
        assert code == 0 and seconds < 28, pod.words()
        assert not pod.probe("livenessProbe") and not pod.probe("readinessProbe")
    finally:
        pod.end()


def test_pod_without_its_key_says_which_file_is_missing(rendered, tmp_path):
    place = rules.write_manifest(tmp_path / "pod", sorted(rules.config_map(rendered)["data"].items()), lambda key: "a-key-0123456789abcdef")
    (tmp_path / "pod" / "secrets" / "agent-key").unlink()
    done = subprocess.run([BIN, "serve"], cwd=place, env={"POD_IP": "10.0.0.1"}, capture_output=True, text=True, timeout=20)
    assert done.returncode != 0 and "agent-key" in done.stderr


def test_security_context_leaves_the_sandbox_usable(tmp_path_factory):
    """As user 65532, without capabilities and without new privileges: at least system calls are filtered, and files where the kernel can."""
    prefix = kubelet.effective_user()
    if prefix is None or shutil.which("setpriv") is None:
        pytest.skip("changing the user needs root and setpriv")
    folder = pathlib.Path(tmp_path_factory.mktemp("sandbox"))
    for above in (folder, *folder.parents[:-1]):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    program = folder / "toolcrib"
    shutil.copy(BIN, program)
    done = subprocess.run([*prefix, program, "sandbox", "--explain", "--", "true"], cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    level = re.search(r"in force +(\S+)", done.stdout)[1]
    assert level in ("namespaces", "landlock", "seccomp"), done.stdout
    ran = subprocess.run([*prefix, program, "sandbox", "--", "cat", "/proc/self/status"], cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert re.search(r"^Seccomp:\s+2$", ran.stdout, re.M) and re.search(r"^CapEff:\s+0+$", ran.stdout, re.M), ran
