"""What is in the image, and that it runs locked down: no root, nothing writable but one volume."""

import http.server
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading

import pytest

import harness
from conftest import HARDENED, Podman, base, config
from harness import children, is_zombie, ok, poll, problem, error_result, text_of


def test_image_holds_little_beside_the_binary(podman, small):
    """No shell, no package manager: four small files beside the binary; the volume belongs to the user."""
    name = podman("create", "--health-interval=disable", small)
    try:
        with subprocess.Popen([*podman.command, "export", name], stdout=subprocess.PIPE) as export:
            with tarfile.open(fileobj=export.stdout, mode="r|") as archive:
                entries = {entry.name.strip("./"): entry for entry in archive}
    finally:
        podman("rm", name)
    assert {name for name, entry in entries.items() if not entry.isdir()} == {
        "toolcrib", "etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt"}
    assert (entries["data"].uid, entries["data"].gid) == (65532, 65532)
    assert {entry.uid for name, entry in entries.items() if name != "data"} == {0}
    assert config(podman, small)["Size"] < pathlib.Path(harness.BIN).stat().st_size + 1_000_000


@pytest.mark.parametrize("image", ["small", "with_python", "with_node"])
def test_image_declares_how_it_is_run(podman, image, request):
    found = config(podman, request.getfixturevalue(image))
    settings = found["Config"]
    assert settings["User"] == "65532:65532"
    assert (settings["Entrypoint"], settings["Cmd"]) == (["/toolcrib"], ["serve"])
    assert list(settings["Volumes"]) == ["/data"] and list(settings["ExposedPorts"]) == ["7411/tcp"]
    assert found["HealthCheck" if "HealthCheck" in found else "Healthcheck"]["Test"] == ["CMD", "/toolcrib", "healthcheck"]
    version = subprocess.run([harness.BIN, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1]
    assert settings["Labels"]["org.opencontainers.image.version"] == version, "the Dockerfile says another version"


def test_hardened_container_serves_and_persists_its_ledger(podman, serve):
    crib = serve()
    answer = ok(crib.invoke("calculator", {"expression": "6*7"}))
    assert text_of(answer) == "42"
    assert podman("healthcheck", "run", crib.name, check=False).returncode == 0
    assert crib.exec("/toolcrib", "healthcheck", "--live").returncode == 0
    assert crib.exec("/bin/sh", "-c", "true").returncode != 0
    if os.geteuid() == 0:
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{crib.pid}/status").read_text().splitlines())
        assert status["Uid"].split() == ["65532"] * 4
        assert int(status["CapEff"], 16) == 0 and status["NoNewPrivs"] == "1"
    assert crib.stop() == 0
    assert crib.exec("/toolcrib", "healthcheck").returncode != 0
    crib.restart()
    assert answer["invocation_id"] in [row["invocation_id"] for row in crib.rows()]


def test_running_call_is_answered_after_sigterm(serve, with_python):
    crib = serve("tools: {slow: {kind: command, description: Waits., parameters: {}, command: [sleep, '2']}}",
                 image=with_python)
    answer = harness.in_background(lambda: crib.invoke("slow"))
    crib.wait_row("tool=slow", lambda row: row["state"] == "running")
    assert crib.stop() == 0
    ok(answer())


def test_without_callers_it_listens_on_loopback_only(podman, serve, small):
    crib = serve(network="none")
    assert "listening on http://127.0.0.1:7411\n" in crib.logs()
    done = podman.run("--rm", "--network=none", *HARDENED, "--env=TOOLCRIB_LISTEN=0.0.0.0:7411", small, check=False)
    assert done.returncode == 1 and "--allow-open" in done.stderr, done


OPEN = """
server: {allowed_hosts: [toolcrib]}
callers: [{name: agent, key: key-of-the-agent-0123456789}]
tools: {calculator: {kind: native}}
"""


def test_with_callers_it_is_healthy_beyond_loopback(podman, serve):
    """As under a service's name in Compose: the listen address comes from the environment, the name is an allowed host."""
    crib = serve(OPEN, ["--env=TOOLCRIB_LISTEN=0.0.0.0:7411"], network="none")
    assert "listening on http://0.0.0.0:7411\n" in crib.logs()
    assert podman("healthcheck", "run", crib.name, check=False).returncode == 0
    call = crib.exec("/toolcrib", "call", "calculator", '{"expression": "6*7"}', "--server=http://127.0.0.1:7411")
    assert "unauthenticated" in call.stdout, call


def test_requests_need_an_allowed_host_name(serve):
    crib = serve(OPEN)
    for host, status in (("toolcrib", 200), (f"toolcrib:{crib.port}", 200), ("other", 403)):
        reply = crib.get("/tools", key="key-of-the-agent-0123456789", headers={"host": host})
        assert reply.status == status, (host, reply)


def test_mounted_manifest_is_found(podman, serve, small, tmp_path):
    crib = serve("tools: {sum: {kind: native, use: calculator}}")
    assert [tool["name"] for tool in crib.get("/tools").json["tools"]] == ["sum"]
    bad = tmp_path / "bad.yaml"
    bad.write_text("tools: {sum: {kind: native, use: calculatr}}")
    done = podman.run("--rm", "--network=none", *HARDENED, f"--volume={bad}:/etc/toolcrib/toolcrib.yaml:ro", small, check=False)
    assert done.returncode == 64 and "toolcrib.yaml:1:29: tools.sum.use" in done.stderr, done


def fetch(url):
    return f"""tools:
  fetch:
    kind: http
    description: Asks a server of this test.
    parameters: {{}}
    effect: read
    request: {{url: "{url}", allow_private: true}}
"""


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args):
        pass


@pytest.fixture
def upstream():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_https_uses_the_certificates_of_the_image(serve, upstream, tmp_path):
    """An unknown authority is refused as unknown, which needs a list of known ones; with its own authority in that list it is trusted."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make a certificate")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    own = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
           "-CA", "authority.pem", "-CAkey", "authority.key", "-keyout", "server.key", "-out", "server.pem"]
    for names in (["-subj", "/CN=Test authority", "-keyout", "authority.key", "-out", "authority.pem"], own):
        subprocess.run([*make, *names], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    upstream.socket = tls.wrap_socket(upstream.socket, server_side=True)
    manifest = fetch(f"https://localhost:{upstream.server_port}/")
    detail = problem(serve(manifest).invoke("fetch"), 502, "upstream_failed")["detail"]
    assert "certificate" in detail and "SSL_CERT_FILE" not in detail, detail
    trusting = serve(manifest, [f"--volume={tmp_path}/authority.pem:/etc/ssl/certs/ca-certificates.crt:ro"])
    assert text_of(ok(trusting.invoke("fetch"))) == "hello"


def test_names_are_resolved_by_dns(serve, upstream, tmp_path):
    """A static binary has no libraries for this: it must find resolv.conf and speak DNS by itself."""
    requests = []
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        server.bind(("127.0.0.97", 53))
    except OSError as error:
        pytest.skip(f"cannot be a name server here: {error}")

    def answer():
        while True:
            try:
                query, peer = server.recvfrom(512)
            except OSError:
                return
            end = query.index(b"\0", 12) + 5  # the question: name, type, class
            name, kind = query[12:end], query[end - 4:end - 2]
            requests.append(name[:-4])
            record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\0\0\1" if kind == b"\0\1" else b""
            server.sendto(query[:2] + b"\x81\x80\0\1\0" + bytes([bool(record)]) + b"\0\0\0\0" + query[12:end] + record, peer)

    threading.Thread(target=answer, daemon=True).start()
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.97\n")
    crib = serve(fetch(f"http://weather.example.test:{upstream.server_port}/"), [f"--volume={resolv}:/etc/resolv.conf:ro"])
    reply = crib.invoke("fetch")
    server.close()
    assert text_of(ok(reply)) == "hello"
    assert b"\7weather\7example\4test\0" in requests


PROGRAMS = """
tools:
  python:
    kind: command
    description: A program written in Python, told of its arguments on standard input.
    parameters: {n: {type: integer, description: A number}}
    command: [python3, -c, "import json, sys; print(json.load(sys.stdin)['n'] * 2)"]
    effect: read
  fail: {kind: command, description: Says no., parameters: {}, command: [sh, -c, "echo no >&2; exit 7"], effect: read}
  daemon:
    kind: command
    description: Leaves something behind.
    parameters: {}
    command: [sh, -c, "setsid -f sleep 0.2 </dev/null >/dev/null 2>&1; sleep 0.05"]
"""


def test_programs_are_sandboxed_as_the_book_says(serve, with_python):
    """The page on the sandbox promises `landlock` for containers, with a ledger that is hidden, also with a read-only root."""
    script = 'cat /data/toolcrib.db || cat /etc/toolcrib/toolcrib.yaml || echo hidden'
    tool = f"{{kind: command, description: Looks for files., effect: read, parameters: {{}}, command: [sh, -c, '{script}']"
    manifest = f"tools:\n  usual: {tool}}}\n  strict: {tool}, sandbox: true}}\n"
    container = serve(manifest, image=with_python)
    for name in ("usual", "strict"):
        sandbox = container.get(f"/tools/{name}").json["sandbox"]
        assert (sandbox["in_force"], sandbox["not_enforced"]) == ("landlock", []), sandbox
        assert text_of(ok(container.invoke(name))).strip() == "hidden"


def test_python_programs_run_and_leave_no_zombie(serve, with_python):
    crib = serve(PROGRAMS, image=with_python)
    assert text_of(ok(crib.invoke("python", {"n": 21}))) == "42"
    assert "no" in text_of(error_result(crib.invoke("fail")))

    def work(thread):
        for _ in range(20):
            ok(crib.invoke("daemon"))
            assert "status 7" in text_of(error_result(crib.invoke("fail")))

    harness.parallel(6, work)
    poll(lambda: len(children(crib.pid)) == 1, 10, "only the service is left")
    service, = children(crib.pid)
    assert not is_zombie(service) and not any(is_zombie(pid) for pid in children(service))
    assert crib.stop() == 0


def test_node_programs_run(serve, with_node):
    crib = serve("""
tools:
  node:
    kind: command
    description: A program written in JavaScript.
    parameters: {n: {type: integer, description: A number}}
    command: [node, -e, "console.log(process.argv[1] * 2)", "{{ n }}"]
    effect: read
""", image=with_node)
    assert text_of(ok(crib.invoke("node", {"n": 21}))).strip() == "42"
    assert crib.exec("npx", "--version").returncode == 0
    assert crib.stop() == 0


def test_archives_can_be_loaded(podman, with_python, with_node, tmp_path):
    """`dist/build --only images` with the bases of these tests, loaded where no image is."""
    program = tmp_path / "podman"
    command = [shutil.which("podman"), *podman.command[1:]]  # its full path: this file comes first on the PATH
    program.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    program.chmod(0o755)
    bases = {f"TOOLCRIB_BASE_{language.upper()}": base(podman, language) for language in ("python", "node")}
    subprocess.run([sys.executable, harness.REPO / "dist/build", "--strict", "--only", "images", "--binary", harness.BIN, "--out", tmp_path / "out"],
                   env={**os.environ, **bases, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True)
    found = {path.name.partition("-0")[0]: path for path in (tmp_path / "out").glob("*.docker.tar")}
    assert set(found) == {"toolcrib", "toolcrib-python", "toolcrib-node"}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # podman refuses long names
        empty = Podman(pathlib.Path(folder))
        for path in found.values():
            empty("load", "--input", path, timeout=300)
        images = empty("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        assert len(images) == 3
        assert empty.find_options(images[0]) is None
        for image in images:
            assert empty.run("--rm", "--network=none", image, "--version").startswith("toolcrib ")
