"""The packages with the program: tarball, Debian package, wheels, npm packages."""

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from . import content
from .files import REPO, VERSION, Unavailable, run, time_of_build, write_tarball, write_tree


def beside_the_program(program):
    """Files that the tarball and the Debian package have both: name in the tarball, path in the system, content."""
    yield "THIRD-PARTY-LICENSES.txt", "usr/share/doc/toolcrib/THIRD-PARTY-LICENSES.txt", content.licenses()
    yield "toolcrib-sbom.json", "usr/share/doc/toolcrib/toolcrib-sbom.json", content.sbom()
    yield "README.md", "usr/share/doc/toolcrib/README.md", (REPO / "README.md").read_text()
    folders = {"bash": "usr/share/bash-completion/completions", "zsh": "usr/share/zsh/vendor-completions",
               "fish": "usr/share/fish/vendor_completions.d"}
    for shell, script in content.completions(program.path).items():
        name = content.SHELLS[shell]
        yield f"completions/{shell}/{name}", f"{folders[shell]}/{name}", script


def tarball(program, out):
    folder = f"toolcrib-{VERSION}-{program.machine}-linux"
    files = {f"{folder}/{name}": text for name, _, text in beside_the_program(program)}
    files[f"{folder}/toolcrib"] = (program.path.read_bytes(), 0o755)
    files[f"{folder}/man/man1/toolcrib.1"] = content.manual_page(program.path)
    for name in ("LICENSE", "CHANGELOG.md"):
        files[f"{folder}/{name}"] = (REPO / name).read_text()
    path = out / f"{folder}.tar.gz"
    write_tarball(path, files)
    return [path]


def deb(program, out):
    if not shutil.which("dpkg-deb"):
        raise Unavailable("no dpkg-deb here (Debian: dpkg)")
    source = REPO / "dist/deb"
    installed = {path: text for _, path, text in beside_the_program(program)}
    installed["usr/bin/toolcrib"] = (program.path.read_bytes(), 0o755)
    installed["usr/lib/systemd/system/toolcrib.service"] = (source / "toolcrib.service").read_text()
    installed["etc/toolcrib/toolcrib.yaml"] = (source / "toolcrib.yaml").read_text()
    installed["usr/share/man/man1/toolcrib.1.gz"] = gzip.compress(content.manual_page(program.path).encode(), 9, mtime=0)
    installed["usr/share/doc/toolcrib/CHANGELOG.md.gz"] = gzip.compress((REPO / "CHANGELOG.md").read_bytes(), 9, mtime=0)
    installed["usr/share/doc/toolcrib/copyright"] = (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nSource: https://github.com/toolcrib/toolcrib\n\n"
        "Files: *\nCopyright: 2026 the authors of Toolcrib\nLicense: Apache-2.0\n On Debian systems, the text is /usr/share/common-licenses/Apache-2.0.\n"
        "Comment: THIRD-PARTY-LICENSES.txt has the licenses of what the program contains.\n")
    size = sum(len(entry[0] if isinstance(entry, tuple) else entry) for entry in installed.values()) // 1024
    control = {"control": f"""Package: toolcrib
Version: {VERSION}
Architecture: {program.debian_machine}
Maintainer: The Toolcrib authors <https://github.com/toolcrib/toolcrib>
Installed-Size: {size}
Depends: adduser
Recommends: bubblewrap, ca-certificates
Suggests: python3, nodejs
Section: net
Priority: optional
Homepage: https://github.com/toolcrib/toolcrib
Description: executes the tool calls of software agents
 One HTTP service, run beside your agent, that executes its tool calls:
 validated, limited, cached, retried and recorded.
""", "conffiles": "/etc/toolcrib/toolcrib.yaml\n"}
    for name in ("postinst", "prerm", "postrm"):
        control[name] = ((source / name).read_text(), 0o755)
    path = out / f"toolcrib_{VERSION}_{program.debian_machine}.deb"
    with tempfile.TemporaryDirectory() as folder:
        files = {f"DEBIAN/{name}": entry for name, entry in control.items()} | installed
        write_tree(Path(folder), files)
        # Every dpkg reads xz. One thread: more make other blocks. A higher level takes much longer for a few percent.
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", folder, path, env={**os.environ, "DPKG_DEB_THREADS_MAX": "1"})
    return [path]


# ---- Python --------------------------------------------------------------------------------------------------------------

def pure_wheel(out):
    """The wheel without the program, and the source distribution, by the build backend."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "python"
        shutil.copytree(REPO / "python", copy, ignore=shutil.ignore_patterns("__pycache__", "dist"))
        shutil.copy(REPO / "LICENSE", copy)
        build = [sys.executable, "-m", "build"]
        if run(sys.executable, "-c", "import importlib.util as u; print(all(map(u.find_spec, ('build', 'hatchling'))))").strip() == "True":
            run(*build, "--no-isolation", "--outdir", folder, copy)
        else:
            tools = Path(folder) / "tools"
            run(sys.executable, "-m", "venv", tools)
            run(tools / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", REPO / "dist/requirements.txt")
            run(tools / "bin/python", "-m", "build", "--no-isolation", "--outdir", folder, copy)
        return [Path(shutil.copy(path, out)) for path in sorted(Path(folder).glob("toolcrib-*"))]


def platform_wheel(pure, program, out):
    """The same wheel with the program in it."""
    tag = f"manylinux2014_{program.machine}.musllinux_1_1_{program.machine}"
    path = out / pure.name.replace("-py3-none-any", f"-py3-none-{tag}")
    moment = time.gmtime(max(time_of_build(), 315532800))[:6]  # a zip file knows no time before 1980

    def add(name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, moment)
        entry.external_attr = (stat.S_IFREG | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")

    with zipfile.ZipFile(pure) as source, zipfile.ZipFile(path, "w") as wheel:
        lines = []
        for name in source.namelist():
            data = source.read(name)
            if name.endswith(".dist-info/RECORD"):
                record = name
                continue
            if name.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
                kept = [line for line in text.splitlines() if line and not line.startswith("Tag:")]
                data = "\n".join([*kept, *(f"Tag: py3-none-{part}" for part in tag.split(".")), ""]).encode()
            add(name, data)
        licenses = record.replace("RECORD", "licenses/THIRD-PARTY-LICENSES.txt")
        add(licenses, content.licenses().encode())
        add("toolcrib/_bin/toolcrib", program.path.read_bytes(), 0o755)
        text = "\n".join([*lines, f"{record},,", ""])
        add(record, text.encode())
    return path


def wheels(program, out):
    made = pure_wheel(out)
    pure = next(path for path in made if path.name.endswith("-py3-none-any.whl"))
    return [*made, platform_wheel(pure, program, out)]


# ---- Node.js -------------------------------------------------------------------------------------------------------------

def npm(program, out):
    if not shutil.which("npm"):
        raise Unavailable("no npm here (Debian: npm)")
    about = json.loads((REPO / "node/package.json").read_text())
    name = f"@toolcrib/linux-{program.npm_machine}"
    manifest = {"name": name, "version": VERSION, "license": about["license"], "repository": about["repository"],
                "description": f"The program of Toolcrib for Linux on {program.npm_machine}.", "os": ["linux"], "cpu": [program.npm_machine],
                "files": ["bin", "THIRD-PARTY-LICENSES.txt"]}
    made = []
    with tempfile.TemporaryDirectory() as folder:
        main, platform = Path(folder) / "main", Path(folder) / "platform"
        # Other modes than 644 and 755, as a umask makes them, would be in the package.
        license_ = {"LICENSE": (REPO / "LICENSE").read_text()}
        write_tree(main, license_ | {path.relative_to(REPO / "node").as_posix(): (path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
                                     for path in sorted((REPO / "node").rglob("*")) if path.is_file() and "node_modules" not in path.parts})
        write_tree(platform, license_ | {"package.json": json.dumps(manifest, indent=2) + "\n", "bin/toolcrib": (program.path.read_bytes(), 0o755),
                                         "THIRD-PARTY-LICENSES.txt": content.licenses()})
        for source in (main, platform):
            shown = run("npm", "pack", "--json", "--pack-destination", out, cwd=source)
            # The name in the answer of some versions of npm still has the scope's characters.
            filename = re.sub(r"^@|/", lambda found: "" if found[0] == "@" else "-", json.loads(shown[shown.index("["):])[0]["filename"])
            made.append(out / filename)
    return made
