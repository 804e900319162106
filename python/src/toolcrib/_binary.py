"""The program `toolcrib`, if this installation has one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

MISSING = (
    "this installation of the Python package has no program `toolcrib`: it is the pure package. "
    "Install a platform wheel, or name the program in TOOLCRIB_BIN."
)


def find() -> str | None:
    """The path of the program: TOOLCRIB_BIN, the program of a platform wheel, or the first one on PATH."""
    named = os.environ.get("TOOLCRIB_BIN")
    if named:
        return named
    bundled = Path(__file__).parent / "_bin" / "toolcrib"
    if bundled.is_file():
        return str(bundled)
    # The script that runs `main` has the same name, and would start itself.
    own = Path(sys.argv[0]).resolve()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("toolcrib", path=folder)
        if found and Path(found).resolve() != own and not _is_script(found):
            return found
    return None


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def main() -> None:
    """Replaces this process by the program."""
    program = find()
    if program is None:
        sys.exit(f"toolcrib: {MISSING}")
    os.execv(program, [program, *sys.argv[1:]])
