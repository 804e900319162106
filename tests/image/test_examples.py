"""docker/: the compose file is brought up and its agent runs; the Kubernetes file fits the API's schemas."""

import os
import pathlib
import subprocess
import sys

import pytest

from conftest import HARDENED, base
from harness import REPO

DOCKER = REPO / "docker"


def tool(name):
    """A program of this virtual environment."""
    place = pathlib.Path(sys.executable).parent / name
    if not place.exists():
        pytest.skip(f"{name} is not installed beside this Python")
    return str(place)


def test_compose_file_starts_and_its_agent_succeeds(podman, small, tmp_path):
    """The file is used unchanged, except for the images, which exist already, and for a network, which the sidecar does not need."""
    compose = tool("podman-compose")
    here = tmp_path / "here.yaml"
    here.write_text(f"services:\n  toolcrib: {{image: {small}, network_mode: none}}\n  agent: {{image: {base(podman, 'python')}}}\n")
    wrapper = tmp_path / "podman"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(podman.command)} "$@"\n')
    wrapper.chmod(0o755)
    run = [compose, "--podman-path", wrapper, "--podman-run-args", " ".join([*podman.limits, "--health-interval=disable"]),
           "--file", DOCKER / "compose.yaml", "--file", here]
    try:
        done = subprocess.run([*run, "up", "--no-build", "--exit-code-from", "agent", "--abort-on-container-exit"], timeout=120,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        assert done.returncode == 0 and "agent: all as expected" in done.stdout
        sidecar = "toolcrib-example_toolcrib_1"
        assert podman("inspect", sidecar, "--format", "{{.HostConfig.ReadonlyRootfs}} {{.EffectiveCaps}}") == "true []"
        assert podman("inspect", sidecar, "--format", "{{.State.ExitCode}}") == "0"
    finally:
        subprocess.run([*run, "down", "--volumes"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_kubernetes_file_fits_the_schemas():
    done = subprocess.run([tool("kubernetes-validate"), "--strict", DOCKER / "kubernetes.yaml"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and done.stdout.count("passed for resource") == 4, done.stdout


def test_kubernetes_manifest_is_valid(podman, small, tmp_path):
    """With the mounts of the pod: the manifest where it is looked for, the key where it is named."""
    yaml = pytest.importorskip("yaml")
    parts = {part["kind"]: part for part in yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text())}
    pod = parts["Deployment"]["spec"]["template"]["spec"]
    sidecar = pod["initContainers"][0]
    sources = {"tools": parts["ConfigMap"]["data"], "secrets": parts["Secret"]["stringData"], "ledger": {}}
    mounts = []
    for mount in sidecar["volumeMounts"]:
        folder = tmp_path / mount["name"]
        folder.mkdir()
        for name, text in sources[mount["name"]].items():
            (folder / name).write_text(text)
        os.chmod(folder, 0o777)
        mounts.append(f"--volume={folder}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}")
    os.chmod(tmp_path, 0o755)
    done = podman.run("--rm", "--network=none", *HARDENED, *mounts, small, "check", check=False)
    assert done.returncode == 0 and "2 tools, 0 callers, 0 warnings" in done.stdout, done
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        command = sidecar[probe]["exec"]["command"]
        done = podman.run("--rm", "--network=none", f"--entrypoint={command[0]}", small, *command[1:], check=False)
        assert done.returncode == 1 and "no answer from http://127.0.0.1:7411" in done.stderr, done
