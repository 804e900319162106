"""The image, built from the Dockerfile and started by podman. `tests/run image` runs this. TOOLCRIB_BIN is a static binary: compiling
it once more inside the builder would take minutes, so that stage is replaced by a folder. Without podman or a base image the tests are
skipped with the reason."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import harness
from harness import REPO, TARGET, Crib, free_port, poll

sys.path.insert(0, str(REPO / "dist"))

from make import deploy, files  # noqa: E402

pytest_plugins = "service_fixtures"

HARDENED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
# A container in a container may lack cgroups that crun understands, and the right to raise limits.
WAYS_TO_RUN = ((), ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"))
RUNTIMES = ((), ("--runtime=runc",))


class Podman:
    """podman with a store of its own, separate from the user's."""

    def __init__(self, folder):
        self.folder, self.runtime, self.limits = folder, (), ()
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def command(self):
        return ["podman", f"--root={self.folder}/store", f"--runroot={self.folder}/run", *self.runtime]

    def __call__(self, *args, check=True, timeout=120):
        """Standard output of a podman command; with check=False the whole process."""
        done = subprocess.run([*self.command, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=timeout)
        if not check:
            return done
        assert done.returncode == 0, f"podman {args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def build(self, tag, binary, *options):
        """The repository's Dockerfile, with the `build` stage replaced by a folder that holds this binary."""
        files.set_time()
        try:
            stage = deploy.make_stage(binary, self.folder / "build")
        except files.Unavailable as reason:
            pytest.skip(str(reason))
        self(*deploy.image_command(stage, tag, "--pull=never", *options), timeout=300)
        return tag

    def run(self, *args, check=True, timeout=60):
        """`podman run` with options that work on this machine. No timer for health checks: that needs systemd."""
        return self("run", *self.limits, "--health-interval=disable", *args, check=check, timeout=timeout)

    def find_options(self, image):
        """Finds the options with which a container starts. Returns None, or the reason why none starts."""
        for self.runtime in RUNTIMES:
            for self.limits in WAYS_TO_RUN:
                done = self.run("--rm", "--network=none", image, "--version", check=False)
                if done.returncode == 0:
                    return None
        return done.stderr.strip()[-300:]


class Container(Crib):
    """`toolcrib serve` in a container, used like any other service of the suite."""

    def __init__(self, podman, image, folder, manifest=None, flags=(), network="host"):
        self.podman, self.port = podman, free_port()
        self.name = f"toolcrib-test-{self.port}"
        self.volume, options = f"{self.name}-data", []
        if manifest is not None:
            path = folder / f"{self.name}.yaml"
            path.write_text(manifest)
            path.chmod(0o644)
            options = [f"--volume={path}:/etc/toolcrib/toolcrib.yaml:ro"]
        if network == "host":
            options.append(f"--env=TOOLCRIB_LISTEN=127.0.0.1:{self.port}")
        self.create = ["--detach", f"--name={self.name}", f"--network={network}", *HARDENED, f"--volume={self.volume}:/data",
                       *options, *flags, image]

    def start(self):
        self.podman.run(*self.create)
        self.wait()
        return self

    def wait(self, starts=1):
        def listening():
            assert self.inspect("{{.State.Running}}") == "true", self.logs()
            return self.logs().count("listening on http://") >= starts
        poll(listening, 20, "the line `listening on http://ADDR`")

    def restart(self):
        starts = self.logs().count("listening on http://")
        self.podman("start", self.name)
        self.wait(starts + 1)

    def inspect(self, what):
        return self.podman("inspect", "--format", what, self.name)

    def logs(self):
        done = self.podman("logs", self.name, check=False)
        return done.stdout + done.stderr

    def exec(self, *args):
        return self.podman("exec", self.name, *args, check=False)

    @property
    def pid(self):
        return int(self.inspect("{{.State.Pid}}"))

    def stop(self, within=28):
        self.podman("stop", f"--time={within}", self.name)
        return int(self.inspect("{{.State.ExitCode}}"))

    def remove(self):
        self.podman("rm", "--force", "--volumes", self.name, check=False)
        self.podman("volume", "rm", "--force", self.volume, check=False)


@pytest.fixture(scope="session")
def podman():
    if not shutil.which("podman"):
        pytest.skip("podman is not here")
    podman = Podman(TARGET / "image")
    info = podman("info", check=False)
    if info.returncode and "mismatch" in info.stderr:  # the folder has moved, and the store remembers where it was
        shutil.rmtree(podman.folder)
        podman = Podman(podman.folder)
        info = podman("info", check=False)
    if info.returncode:
        pytest.skip(f"podman cannot work here: {info.stderr.strip()[-300:]}")
    yield podman
    podman("image", "prune", "--force", check=False)


@pytest.fixture(scope="session")
def small(podman):
    """The default target."""
    image = podman.build("localhost/toolcrib-test", harness.BIN)
    if trouble := podman.find_options(image):
        pytest.skip(f"podman can build here, but start nothing: {trouble}")
    return image


@pytest.fixture(scope="session")
def with_python(podman, small):
    """The target `python`, on the base that the Dockerfile names, or on a Debian made here."""
    return podman.build("localhost/toolcrib-test-python", harness.BIN, "--target=python", f"--build-arg=PYTHON={base(podman, 'python')}")


@pytest.fixture(scope="session")
def with_node(podman, small):
    """The target `node`, in the same way."""
    return podman.build("localhost/toolcrib-test-node", harness.BIN, "--target=node", f"--build-arg=NODE={base(podman, 'node')}")


# What a Debian needs in place of the bases that the Dockerfile names.
PACKAGES = {"python": "ca-certificates,python3", "node": "ca-certificates,nodejs"}
# debootstrap cannot configure packages that need one another.
LATER = {"node": ["npm"]}


def base(podman, language):
    made = f"localhost/{language}-base"
    if podman("image", "exists", made, check=False).returncode == 0:
        return made
    named = re.search(rf"^ARG {language.upper()}=(\S+)$", (REPO / "Dockerfile").read_text(), re.M).group(1)
    if podman("pull", "--quiet", named, check=False, timeout=300).returncode == 0:
        return named
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip(f"{named} cannot be pulled, and there is no debootstrap (or no root) to make a base")
    root = podman.folder / language
    shutil.rmtree(root, ignore_errors=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES[language]}", "bookworm", root],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    if done.returncode == 0 and language in LATER:
        done = subprocess.run(["chroot", root, "apt-get", "install", "--yes", "--no-install-recommends", *LATER[language]],
                              env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=600)
    if done.returncode:
        pytest.skip(f"{named} cannot be pulled, and no Debian can be made: {done.stdout[-300:]}")
    archive = podman.folder / f"{language}.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    podman("import", archive, made, timeout=300)
    shutil.rmtree(root)
    archive.unlink()
    return made


@pytest.fixture
def serve(podman, small, tmp_path):
    """serve(manifest, flags, image, network) -> Container; all are removed at the end."""
    started = []

    def serve(manifest=None, flags=(), image=small, network="host"):
        started.append(Container(podman, image, tmp_path, manifest, flags, network))
        return started[-1].start()

    tmp_path.chmod(0o755)
    yield serve
    for container in started:
        print(f"--- {container.name}\n{container.logs()[-4000:]}")
        container.remove()


def config(podman, image):
    return json.loads(podman("image", "inspect", image))[0]
