"""A rolling update, as far as it can be shown without a cluster: real replicas on PostgreSQL, a kubelet that probes and stops them,
a Service that learns late, and clients that call all the time."""

import http.client
import json
import random
import shutil
import subprocess
import threading
import time
import uuid

import pytest

import kubelet
from harness import REPO, free_port, poll
from test_service import KEYS, ask

AGENT, OPERATOR = KEYS["toolcrib-keys", "agent-key"], KEYS["toolcrib-keys", "operator-key"]
TOOLS = {
    "calculator": {"kind": "native", "repeatable": True, "limits": [{"calls": 1000000, "per": "lifetime"}]},
    "slow": {"kind": "command", "description": "Waits some seconds. Use it in tests of a rollout only.", "effect": "write", "repeatable": True,
             "command": ["sleep", "{{ seconds }}"], "parameters": {"seconds": {"type": "number", "description": "Seconds", "enum": [0.3, 6]}},
             "limits": [{"calls": 1000000, "per": "lifetime"}]},
}


class Clients:
    """Threads that call until they are told to end. `endpoints()` gives the addresses of this moment."""

    def __init__(self, endpoints, retries):
        self.endpoints, self.retries = endpoints, retries
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.answered, self.lost, self.retried = {"calculator": 0, "slow": 0}, [], []
        work = [("calculator", {"expression": "6*7"}, keep) for keep in (True, True, False, False)]
        work += [("slow", {"seconds": 0.3}, keep) for keep in (True, True, False, False)]
        self.threads = [threading.Thread(target=self.call_on, args=each) for each in work]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def call_on(self, tool, arguments, keep):
        connections = {}
        while not self.ended.is_set():
            key, reason = str(uuid.uuid4()), None
            for attempt in range(1 + self.retries):
                endpoint = random.choice(self.endpoints())
                reason = self.call(connections, endpoint, tool, arguments, key)
                if reason is None:
                    break
                with self.lock:
                    self.retried.append((endpoint, reason))
                time.sleep(0.05)
            with self.lock:
                if reason is None:
                    self.answered[tool] += 1
                else:
                    self.lost.append((tool, reason))
            if not keep:
                for connection in connections.values():
                    connection.close()
                connections.clear()
            time.sleep(0.01)
        for connection in connections.values():
            connection.close()

    @staticmethod
    def call(connections, endpoint, tool, arguments, key):
        """None for an answer, else why there is none."""
        connection = connections.setdefault(endpoint, http.client.HTTPConnection(*endpoint, timeout=30))
        headers = {"host": "toolcrib.agents.svc", "authorization": f"Bearer {AGENT}", "content-type": "application/json", "idempotency-key": key}
        try:
            connection.request("POST", f"/tools/{tool}/invoke", json.dumps({"arguments": arguments}), headers)
            response = connection.getresponse()
            body = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connections.pop(endpoint).close()
            return repr(error)
        return None if response.status == 200 and not body["is_error"] else f"{response.status} {body.get('kind')}"


def charged(pod, tool):
    """How many calls of a tool the ledger has counted, over all replicas."""
    limit, = json.loads(ask(pod, "GET", f"/tools/{tool}", key=OPERATOR)[1])["usage"]
    return limit["used"]


def running(pod):
    """How many slow calls this replica runs that are not of the clients."""
    rows = json.loads(ask(pod, "GET", "/invocations?state=running,reserved&tool=slow&limit=500", key=OPERATOR)[1])["invocations"]
    return len([row for row in rows if row["caller"] == "operator"])


def long_call(pod, answers):
    """A call that is longer than `linger`, on this pod."""
    status, body = ask(pod, "POST", "/tools/slow/invoke", key=OPERATOR, body={"arguments": {"seconds": 6}})
    answers.append(None if status == 200 else body)


def values(linger):
    return {"manifest": {"tools": TOOLS}, "stop": {"lingerSeconds": linger}}


@pytest.mark.parametrize("linger", [4, 0])
def test_rolling_update_loses_no_call(helm, database, tmp_path, linger):
    """`linger` is longer than the Service is late, so that no call is even refused. Without it, clients must try again."""
    rendered = helm.template(values(linger))
    secrets = {**KEYS, ("toolcrib-database", "url"): database()}
    base = 20 + 10 * linger
    pods = [kubelet.Pod(tmp_path / f"pod-{number}", rendered, kubelet.address(base + number), secrets) for number in range(3)]
    service, long_calls, results, threads = kubelet.Service(lag=1.5), [], {}, []

    def stop(pod):
        results[pod.ip] = pod.stop()

    try:
        for pod in pods:
            service.add(pod.start())
        with Clients(lambda: service.endpoints, retries=20) as clients:
            time.sleep(1)
            for number in range(3):
                # maxSurge 1, maxUnavailable 0: a new pod is ready before an old one goes.
                new = kubelet.Pod(tmp_path / f"pod-{3 + number}", rendered, kubelet.address(base + 3 + number), secrets)
                pods.append(new)
                service.add(new.start())
                old = pods[number]
                long = threading.Thread(target=long_call, args=(old, long_calls))
                long.start()
                poll(lambda: running(old) > 0, 10, "a long call on the old pod")
                threads += [service.remove(old), threading.Thread(target=stop, args=(old,))]
                threads[-1].start()
                threads.append(long)
                poll(lambda: not old.probe("readinessProbe"), 2, "an old pod that is not ready")
                if linger:
                    assert old.probe("livenessProbe"), "it still serves"
            for thread in threads:
                thread.join()
            time.sleep(0.5)
        grace = pods[0].spec["terminationGracePeriodSeconds"]
        assert len(results) == 3 and all(code == 0 and linger < seconds < grace - 2 for code, seconds in results.values()), results
        assert long_calls == [None] * 3, "a call that runs when its pod is stopped gets its answer"
        assert max(seconds for _, seconds in results.values()) > 5, "a stop waits for it"
        assert clients.lost == []
        assert min(clients.answered.values()) > 5, clients.answered
        clients.answered["slow"] += 3
        assert {tool: charged(pods[-1], tool) for tool in TOOLS} == clients.answered, "each call ran once"
        if linger:
            assert clients.retried == []
        else:
            assert clients.retried, "this client can see a call that is refused"
        print(f"rollout, linger {linger} s: {sum(clients.answered.values())} calls, lost {len(clients.lost)}, tried again {len(clients.retried)}, "
              f"stops {sorted(round(seconds, 1) for _, seconds in results.values())} s")
    finally:
        for pod in pods:
            pod.end()


def test_proxy_of_the_fleet_hides_the_restart_of_each_replica(helm, database, tmp_path):
    """docker/fleet/haproxy.cfg in front of three replicas, which stop and start one after the other. The client tries nothing again."""
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin") or pytest.skip("haproxy is not installed")
    rendered = helm.template(values(3))
    secrets = {**KEYS, ("toolcrib-database", "url"): database()}
    ips, folders = [kubelet.address(100 + number) for number in range(3)], iter(range(100))
    pods = [kubelet.Pod(tmp_path / f"pod-{next(folders)}", rendered, ip, secrets).start() for ip in ips]
    port, config = free_port(), tmp_path / "haproxy.cfg"
    text = (REPO / "docker" / "fleet" / "haproxy.cfg").read_text()
    template = "    server-template replica 10 toolcrib:7411 resolvers docker init-addr none\n"
    assert template in text and "bind :7411" in text
    # The names of Docker are not there.
    config.write_text(text.replace(template, "".join(f"    server replica{number} {ip}:7411\n" for number, ip in enumerate(ips)))
                      .replace("bind :7411", f"bind 127.0.0.1:{port}"))
    log = open(tmp_path / "haproxy.log", "w")
    proxy = subprocess.Popen([haproxy, "-db", "-f", config], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        poll(lambda: proxied(port), 10, "a proxy that answers")
        with Clients(lambda: [("127.0.0.1", port)], retries=0) as clients:
            for number in range(3):
                code, seconds = pods[number].stop()
                assert code == 0 and seconds < pods[number].spec["terminationGracePeriodSeconds"]
                pods[number].end()
                pods[number] = kubelet.Pod(tmp_path / f"pod-{next(folders)}", rendered, ips[number], secrets).start()
                time.sleep(0.5)
        assert clients.lost == []
        assert min(clients.answered.values()) > 5, clients.answered
        assert {tool: charged(pods[-1], tool) for tool in TOOLS} == clients.answered
    finally:
        proxy.terminate()
        proxy.wait(10)
        log.close()
        for pod in pods:
            pod.end()


def proxied(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_configuration_of_the_proxy_is_valid():
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin") or pytest.skip("haproxy is not installed")
    done = subprocess.run([haproxy, "-c", "-f", REPO / "docker" / "fleet" / "haproxy.cfg"], capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING" not in done.stdout + done.stderr, done
