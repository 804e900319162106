"""What is run elsewhere or read: the images, the Helm chart, the book."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from .files import REPO, Unavailable, VERSION, run, time_of_build, write_tarball

# A target of the Dockerfile, and the image's name.
IMAGES = {"toolcrib": "toolcrib", "python": "toolcrib-python", "node": "toolcrib-node"}
AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")


def make_stage(program, folder):
    """What the Dockerfile's stage `build` leaves, from a program that exists."""
    shutil.rmtree(folder, ignore_errors=True)
    image = folder / "image"
    (image / "data").mkdir(parents=True)
    shutil.copy(program, image / "toolcrib")
    (image / "toolcrib").chmod(0o755)
    authorities = next((place for place in AUTHORITIES if Path(place).exists()), None)
    if authorities is None:
        raise Unavailable("no file with CA certificates here (Debian: ca-certificates)")
    shutil.copy(authorities, image / "ca-certificates.crt")
    return folder


def image_command(stage, tag, *options):
    """Arguments of podman that build an image. Docker's format: an OCI image has no health check."""
    return ["build", "--isolation=chroot", "--format=docker", "--layers=false", f"--timestamp={time_of_build()}",
            f"--build-context=build={stage}", "--tag", tag, *options, REPO]


def images(program, out):
    """An archive for each image: `podman load` and `docker load` read it. TOOLCRIB_BASE_PYTHON and TOOLCRIB_BASE_NODE name other bases."""
    if not shutil.which("podman"):
        raise Unavailable("no podman here (Debian: podman)")
    made = []
    with tempfile.TemporaryDirectory() as folder:
        stage = make_stage(program.path, Path(folder) / "build")
        for target, name in IMAGES.items():
            tag = f"localhost/{name}:{VERSION}"
            base = os.environ.get(f"TOOLCRIB_BASE_{target.upper()}")
            options = [f"--build-arg={target.upper()}={base}", "--pull=never"] if base else []
            try:
                run("podman", *image_command(stage, tag, "--target", target, *options))
            except SystemExit as failure:
                raise Unavailable(f"{name}: {str(failure).strip().splitlines()[-1]}; made: {', '.join(path.name for path in made) or 'none'}")
            path = out / f"{name}-{VERSION}-{program.debian_machine}.docker.tar"
            path.unlink(missing_ok=True)
            run("podman", "save", "--quiet", "--format=docker-archive", "--output", path, tag)
            made.append(path)
    return made


def chart(_program, out):
    source = REPO / "docker/helm/toolcrib"
    if not source.exists():
        raise Unavailable("docker/helm/toolcrib does not exist")
    files = {f"toolcrib/{path.relative_to(source).as_posix()}": path.read_bytes() for path in source.rglob("*") if path.is_file()}
    path = out / f"toolcrib-chart-{VERSION}.tgz"
    write_tarball(path, files)
    return [path]


def book(_program, out):
    if not shutil.which("mdbook"):
        raise Unavailable("no mdbook here: cargo install --locked mdbook")
    path = out / "book"
    shutil.rmtree(path, ignore_errors=True)
    run(sys.executable, REPO / "tests/docs/build_book.py", path)
    return [path]
