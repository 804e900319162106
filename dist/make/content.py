"""What goes into several artefacts beside the program: its manual page, completions, licences and the list of its packages."""

import functools
import json
import pathlib
import re
import uuid
from datetime import datetime, timezone

from .files import REPO, VERSION, run, time_of_build

SHELLS = {"bash": "toolcrib", "zsh": "_toolcrib", "fish": "toolcrib.fish"}
LICENSE_FILE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.I)
# The licence of what is linked statically and is no crate. The files come with the compiler and with Debian's base-files.
GLIBC_LICENSE = pathlib.Path("/usr/share/common-licenses/LGPL-2.1")
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the
following conditions: The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


# ---- completions and the manual page -------------------------------------------------------------------------------------

def ask(program, *arguments):
    """Output of the program, whatever its file is called and whatever variables are set here: help shows both."""
    return run("toolcrib", *arguments, executable=str(program), env={})


@functools.lru_cache(None)
def completions(program):
    return {shell: ask(program, "completions", shell) for shell in SHELLS}


def escaped(text):
    """Text for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)
    return "\\&" + text if text.startswith((".", "'")) else text


@functools.lru_cache(None)
def manual_page(program):
    """toolcrib(1), from the help of each command."""
    day = datetime.fromtimestamp(time_of_build(), timezone.utc).date()
    text = ask(program, "--help")
    commands = re.findall(r"^  ([a-z]+)  +\S", text.partition("Commands:")[2].partition("\n\n")[0], re.M)
    lines = [f'.TH TOOLCRIB 1 {day} "toolcrib {VERSION}" "User Commands"', ".SH NAME",
             "toolcrib \\- executes the tool calls of software agents", ".SH SYNOPSIS", ".B toolcrib", "[OPTIONS] COMMAND",
             ".SH DESCRIPTION", ".nf", *map(escaped, text.splitlines()), ".fi", ".SH COMMANDS"]
    for command in commands:
        if command == "help":
            continue
        lines += [f".SS toolcrib {command}", ".nf", *map(escaped, ask(program, command, "--help").splitlines()), ".fi"]
    lines += [".SH EXIT STATUS", "0 when it is done, 1 when it failed, 64 for wrong usage or a manifest with errors.",
              ".SH SEE ALSO", escaped("The book: docs/reference/cli.md in the sources.")]
    return "\n".join(lines) + "\n"


# ---- the packages in the program -----------------------------------------------------------------------------------------

@functools.lru_cache(None)
def metadata():
    return json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", cwd=REPO))


@functools.lru_cache(None)
def crates():
    """The crates that are compiled into the program, in the order of their names. Those that only run in the compiler are left out."""
    host = run("rustc", "--print", "host-tuple").strip()
    tree = run("cargo", "tree", "--locked", "--package", "toolcrib", "--edges", "normal,no-proc-macro", "--target", host,
               "--prefix", "none", "--format", "{p}", cwd=REPO)
    wanted = {tuple(line.split(" ")[:2]) for line in tree.splitlines() if line}
    found = [package for package in metadata()["packages"] if (package["name"], f"v{package['version']}") in wanted]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def spdx(package):
    """The licence of a crate. A slash is the old way to write OR."""
    return re.sub(r" ?/ ?", " OR ", package["license"] or "NOASSERTION")


@functools.lru_cache(None)
def console_packages():
    """(name, version, licence, text) of what the console's script has in it."""
    lock = json.loads((REPO / "console/package-lock.json").read_text())["packages"]
    found = []
    for place, package in sorted(lock.items()):
        name = place.rpartition("node_modules/")[2]
        if name and not package.get("dev"):
            path = REPO / "dist/licenses" / f"{name.replace('/', '+')}.txt"
            if not path.exists():
                raise SystemExit(f"{path.relative_to(REPO)}: missing; it is the licence of {name}, which console/package-lock.json names")
            found.append((name, package["version"], package["license"], path.read_text()))
    return found


def license_texts(package):
    """The files with licences of a crate, also of the C sources in it. Their own tests and examples are not compiled."""
    folder = pathlib.Path(package["manifest_path"]).parent
    if folder.is_relative_to(REPO):
        return [(REPO / "LICENSE").read_text()]
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and LICENSE_FILE.match(path.name)
             and path.suffix.lower() in ("", ".txt", ".md", ".mit", ".apache") and not {"tests", "test", "examples"} & set(path.parts)]
    texts = [path.read_text(errors="replace").strip() + "\n" for path in found]
    if texts:
        return texts
    # Its author left the file out. The first licence is offered to everybody with the same words.
    if "Apache-2.0" in spdx(package):
        return [(REPO / "LICENSE").read_text()]
    if "MIT" in spdx(package):
        return [f"Copyright (c) {', '.join(package['authors']) or 'the authors of ' + package['name']}\n\n{MIT}"]
    raise SystemExit(f"{package['name']}: {package['license']}, and the crate has no file with that licence")


@functools.lru_cache(None)
def licenses():
    """The licences of everything in the program: each text once, after the names of what it belongs to."""
    used = {}
    for package in crates():
        for text in license_texts(package):
            used.setdefault(text, []).append(f"{package['name']} {package['version']} ({spdx(package)})")
    for name, version, license_, text in console_packages():
        used.setdefault(text, []).append(f"{name} {version} ({license_}), in the console")
    used.setdefault((REPO / "LICENSE").read_text(), []).append("the Rust standard library (MIT OR Apache-2.0)")
    if GLIBC_LICENSE.exists():
        note = "Its source is in every Linux distribution. To link the program with another version of it, build Toolcrib from source."
        used[f"{note}\n\n{GLIBC_LICENSE.read_text()}"] = ["the GNU C Library (LGPL-2.1-or-later), linked statically"]
    parts = ["Toolcrib is licensed under Apache-2.0, see LICENSE. The program contains the following software.\n"]
    for text, names in sorted(used.items(), key=lambda item: item[1][0].lower()):
        parts.append(f"{'=' * 100}\n" + "".join(f"{name}\n" for name in names) + f"{'-' * 100}\n\n{text.strip()}\n")
    return "\n".join(parts)


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def dependencies():
    """Which crate uses which. What the console's script has in it belongs to the program."""
    by_id = {package["id"]: purl(package) for package in crates()}
    found = []
    for node in metadata()["resolve"]["nodes"]:
        if node["id"] in by_id:
            normal = {dependency["pkg"] for dependency in node["deps"] if any(kind["kind"] is None for kind in dependency["dep_kinds"])}
            uses = sorted(by_id[one] for one in normal if one in by_id)
            if by_id[node["id"]] == f"pkg:cargo/toolcrib@{VERSION}":
                uses += [npm_purl(name, version) for name, version, _, _ in console_packages()]
            found.append({"ref": by_id[node["id"]], "dependsOn": uses})
    return sorted(found, key=lambda one: one["ref"])


def npm_purl(name, version):
    return f"pkg:npm/{name.replace('@', '%40')}@{version}"


@functools.lru_cache(None)
def sbom():
    """All packages in the program, as CycloneDX. From the lock files: builds nothing."""
    locked = re.findall(r'^name = "(.+)"\nversion = "(.+)"\nsource = .+\nchecksum = "(.+)"$', (REPO / "Cargo.lock").read_text(), re.M)
    checksums = {(name, version): checksum for name, version, checksum in locked}
    components = []
    for package in crates():
        name, version = package["name"], package["version"]
        if name == "toolcrib":
            continue
        component = {"type": "library", "bom-ref": purl(package), "name": name, "version": version,
                     "licenses": [{"expression": spdx(package)}], "purl": purl(package)}
        if (name, version) in checksums:
            component["hashes"] = [{"alg": "SHA-256", "content": checksums[name, version]}]
        components.append(component)
    for name, version, license_, _ in console_packages():
        components.append({"type": "library", "bom-ref": npm_purl(name, version), "name": name, "version": version,
                           "licenses": [{"expression": license_}], "purl": npm_purl(name, version)})
    root = f"pkg:cargo/toolcrib@{VERSION}"
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time_of_build(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": root, "name": "toolcrib", "version": VERSION,
                          "licenses": [{"expression": "Apache-2.0"}], "purl": root},
        },
        "components": components,
        "dependencies": dependencies(),
    }
    # The same list has the same number on each machine.
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document))}"
    return json.dumps(document, indent=1) + "\n"
