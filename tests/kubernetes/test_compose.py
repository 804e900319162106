"""docker/compose.fleet.yaml, with what it mounts."""

import os
import pathlib
import subprocess
import sys

import compose_spec
import pytest
import yaml

import rules
from harness import BIN, REPO, clean_env

DOCKER = REPO / "docker"
FLEET = DOCKER / "compose.fleet.yaml"
VARIABLES = {"DB_PASSWORD": "p", "AGENT_KEY": "agent-key-0123456789abcdef", "OPERATOR_KEY": "operator-key-0123456789abcdef"}


@pytest.fixture
def config(tmp_path):
    """config(file, variables) gives the file as podman-compose reads it, without podman."""
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho podman version 5.0.0\n")
    podman.chmod(0o755)
    program = pathlib.Path(sys.executable).parent / "podman-compose"

    def read(file, variables):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), **variables}
        return subprocess.run([program, "--file", file, "config"], env=environment, capture_output=True, text=True, timeout=60)

    return read


def fleet():
    return yaml.safe_load(FLEET.read_text())


@pytest.mark.parametrize("file", [FLEET, DOCKER / "compose.yaml"])
def test_compose_file_fits_the_specification(file):
    """Strict: an unknown key is an error."""
    compose_spec.PyCompose.from_yaml(file.read_text()).validate()
    spoiled = file.read_text().replace("read_only:", "readonly:")
    with pytest.raises(Exception, match="readonly"):
        compose_spec.PyCompose.from_yaml(spoiled).validate()


def test_fleet_is_read_by_a_second_program(config):
    done = config(FLEET, VARIABLES)
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) == {"toolcrib", "proxy", "db", "redis"}
    assert services["toolcrib"]["environment"]["TOOLCRIB_LEDGER"] == "postgres://toolcrib:p@db/toolcrib?sslmode=disable"


def test_fleet_does_not_start_without_a_password(config):
    done = config(FLEET, {})
    assert done.returncode != 0 and "DB_PASSWORD" in done.stderr


def test_only_the_proxy_has_a_port_and_only_for_this_machine():
    ports = {name: service.get("ports") for name, service in fleet()["services"].items()}
    assert ports.pop("proxy") == ["127.0.0.1:7411:7411"] and set(ports.values()) == {None}


def test_database_and_redis_have_no_way_out():
    services = fleet()["services"]
    assert fleet()["networks"]["data"] == {"internal": True}
    assert all(services[name]["networks"] == ["data"] for name in ("db", "redis"))


def test_files_that_are_mounted_exist():
    for service in fleet()["services"].values():
        for mount in service.get("volumes", []):
            source = mount.partition(":")[0]
            assert not source.startswith(".") or (DOCKER / source).exists(), mount


def test_manifest_of_the_fleet_passes_check(tmp_path):
    service = fleet()["services"]["toolcrib"]
    text = (DOCKER / "fleet" / "toolcrib" / "toolcrib.yaml").read_text()
    for name in service["secrets"]:
        (tmp_path / name).write_text(f"{name}-0123456789abcdef0123")
        assert f"/run/secrets/{name}" in text
        text = text.replace(f"/run/secrets/{name}", str(tmp_path / name))
    (tmp_path / "toolcrib.yaml").write_text(text)
    done = subprocess.run([BIN, "check"], cwd=tmp_path, env=clean_env(), capture_output=True, text=True)
    assert done.returncode == 0 and " 0 warnings" in done.stdout, done.stdout + done.stderr
    server = yaml.safe_load(text)["server"]
    needed = rules.seconds(server["linger"]) + rules.seconds(server["drain"]) + 8
    assert needed <= rules.seconds(service["stop_grace_period"]) <= needed + 5
