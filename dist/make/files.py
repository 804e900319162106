"""Archives that depend on their content alone: sorted names, one time, no owner."""

import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import tarfile

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
VERSION = re.search(r'^version = "(.+)"$', (REPO / "Cargo.toml").read_text(), re.M).group(1)
# e_machine of an ELF file, and the names of the machine in Rust and wheels, in Debian, and in npm.
MACHINES = {62: ("x86_64", "amd64", "x64"), 183: ("aarch64", "arm64", "arm64")}


class Unavailable(Exception):
    """An artefact cannot be made here, and why."""


def run(*command, **options):
    """The output of a program."""
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def set_time():
    """The time of all artefacts, for the programs that are started, too: that of the commit, unless SOURCE_DATE_EPOCH is set."""
    if not os.environ.get("SOURCE_DATE_EPOCH"):
        committed = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        os.environ["SOURCE_DATE_EPOCH"] = committed.stdout.strip() or "0"


def time_of_build():
    return int(os.environ["SOURCE_DATE_EPOCH"])


class Program:
    """The program that is packed."""

    def __init__(self, path, allow_dynamic=False):
        self.path = pathlib.Path(path).resolve()
        content = self.path.read_bytes()
        if content[:4] != b"\x7fELF":
            raise SystemExit(f"{path}: not an ELF file for Linux")
        if not allow_dynamic and (b"/ld-linux" in content or b"/ld-musl" in content):
            raise SystemExit(f"{path}: linked dynamically, and packages need a static program: dist/binary builds it")
        names = MACHINES.get(int.from_bytes(content[18:20], "little"))
        if names is None:
            raise SystemExit(f"{path}: for a machine other than x86_64 and aarch64")
        self.machine, self.debian_machine, self.npm_machine = names


def write_tree(folder, files):
    """Writes a map of path to content, or to (content, mode), with one time for all."""
    for name, entry in files.items():
        content, mode = entry if isinstance(entry, tuple) else (entry, 0o644)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)  # whatever the umask is
        os.utime(path, (time_of_build(), time_of_build()))


def write_tarball(path, files):
    """A .tar.gz of the same map."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            content, mode = files[name] if isinstance(files[name], tuple) else (files[name], 0o644)
            content = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, time_of_build()
            tar.addfile(entry, io.BytesIO(content))
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=time_of_build()) as packed:
        packed.write(raw.getvalue())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
