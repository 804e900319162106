"""What a kubelet and a Service do with the pods of a rendering, with processes of this machine.

A pod has an address of its own in 127.0.0.0/8. Probes, variables, mounts and the grace period are those of the rendering."""

import http.client
import os
import random
import signal
import subprocess
import threading
import time

import rules
from harness import BIN, clean_env, poll

# Another run of these tests has another one.
SUBNET = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}"


def address(number):
    return f"{SUBNET}.{number}"


class Pod:
    """`secrets` has the values of Secrets: {(name, key): value}. `env` replaces variables, such as the address of a sidecar."""

    def __init__(self, folder, rendered, ip, secrets, env=None):
        self.spec, self.ip, self.secrets = rules.service_pod(rendered), ip, secrets
        self.container = rules.toolcrib(self.spec)
        files = sorted(rules.config_map(rendered)["data"].items())
        mounted = [source["secret"]["name"] for volume in self.spec["volumes"] for source in volume.get("projected", {}).get("sources", [])]
        self.place = rules.write_manifest(folder, files, lambda key: next(secrets[name, key] for name in mounted if (name, key) in secrets))
        self.env = clean_env({**{variable["name"]: self.value(variable) for variable in self.container["env"]}, **(env or {})}, folder)
        data = folder / self.container["workingDir"].strip("/")
        data.mkdir()
        self.log = open(folder / "log", "w+")
        self.ready = self.stopping = False
        # The image has this entry point.
        self.process = subprocess.Popen([BIN, "serve"], cwd=data, env=self.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.probing = threading.Thread(target=self.probe_on, daemon=True)

    def value(self, variable):
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            return self.secrets[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
        if "fieldRef" in source:
            return {"status.podIP": self.ip, "metadata.namespace": "agents"}[source["fieldRef"]["fieldPath"]]
        # All addresses of the pod are this one.
        return variable["value"].replace("0.0.0.0", self.ip).replace("/etc/toolcrib", str(self.place))

    @property
    def port(self):
        port, = self.container["ports"]
        return port["containerPort"]

    def probe(self, name):
        """One probe: whether it succeeds."""
        spec = self.container[name]
        timeout = spec["timeoutSeconds"]
        if "exec" in spec:
            command = [BIN if part == "/toolcrib" else part for part in spec["exec"]["command"]]
            try:
                return subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout).returncode == 0
            except subprocess.TimeoutExpired:
                return False
        get = spec["httpGet"]
        port = {port["name"]: port["containerPort"] for port in self.container["ports"]}[get["port"]]
        connection = http.client.HTTPConnection(self.ip, port, timeout=timeout)
        try:
            connection.request("GET", get["path"], headers={header["name"]: header["value"] for header in get.get("httpHeaders", [])})
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def probe_on(self):
        for _ in range(self.container["startupProbe"]["failureThreshold"]):
            if self.probe("startupProbe"):
                break
            time.sleep(self.container["startupProbe"]["periodSeconds"])
        while not self.stopping:
            self.ready = self.probe("readinessProbe")
            time.sleep(self.container["readinessProbe"]["periodSeconds"])

    def start(self, seconds=30):
        """Returns when the pod is ready."""
        self.probing.start()
        poll(lambda: self.ready or self.process.poll() is not None, seconds, "a ready pod")
        assert self.process.poll() is None, self.words()
        return self

    def stop(self):
        """SIGTERM, and SIGKILL after the grace period. Gives the exit code and the seconds. A preStop would come first."""
        self.stopping, began = True, time.monotonic()
        assert "lifecycle" not in self.container
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(self.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return code, time.monotonic() - began

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.stopping = True
        self.log.close()

    def words(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()[-4000:]


class Service:
    """The endpoints of ready pods. A node learns `lag` seconds late that a pod is stopping."""

    def __init__(self, lag):
        self.lag, self.endpoints, self.lock = lag, [], threading.Lock()

    def add(self, pod):
        with self.lock:
            self.endpoints = [*self.endpoints, (pod.ip, pod.port)]

    def remove(self, pod):
        def later():
            time.sleep(self.lag)
            with self.lock:
                self.endpoints = [end for end in self.endpoints if end != (pod.ip, pod.port)]

        thread = threading.Thread(target=later)
        thread.start()
        return thread


def effective_user():
    """A prefix that gives a process what the container's securityContext leaves; None if that cannot be done here."""
    if os.geteuid() != 0:
        return None
    return ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
