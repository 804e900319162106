"""Draws the pictures of docs/dev/architecture.md from the code: the crates, and the way of a call.

    python3 tests/docs/architecture_picture.py            # writes the pictures into the page
    python3 tests/docs/architecture_picture.py --check    # fails if the page has other pictures

The crates come from the Cargo.toml files, the layers of folders from tests/it/tidy.rs, and the layers
of a call from src/stack/order.rs and src/stack/. The pictures are text, because mdBook draws no other.
"""

import pathlib
import re
import sys
import textwrap

from pages import BOOK, REPO

PAGE = BOOK / "dev" / "architecture.md"

# The folders through which a call passes. The others of their layers stand beside them.
WAY = {
    "http": "reads the request, makes an invocation",
    "mcp": "MCP requests only",
    "catalog/registry": "holds the current catalog",
    "catalog": "finds the tool and its stack",
    "stack/order": "defines the order of the layers",
    "stack": "the layers",
    "kinds": "runs the tool",
}
# The layers of a call that are not in src/stack/.
ROOMS = {"await_decision": "approval/waiting.rs", "approval": "approval/rule.rs", "cache": "cache", "page_guard": "cache/page_guard.rs"}
WIDTH = 100


def read(path):
    return (REPO / path).read_text(encoding="utf-8")


def section(manifest, name):
    """The text of one section of a Cargo.toml. Python has a reader of TOML only from 3.11 on."""
    found = re.search(rf"^\[{name}\]\n(.*?)(?=^\[|\Z)", manifest, re.S | re.M)
    return found[1] if found else ""


def members():
    """Each package of the workspace: its folder, what it is, and the members that it uses."""
    listed = re.search(r"^members = \[(.*?)\]", section(read("Cargo.toml"), "workspace"), re.S | re.M)[1]
    folders = [".", *(str(found.relative_to(REPO)) for pattern in re.findall(r'"(.*?)"', listed) for found in sorted(REPO.glob(pattern)))]
    manifests = [read(pathlib.Path(folder) / "Cargo.toml") for folder in folders]
    packages = [dict(re.findall(r'^(name|description) = "(.*)"$', section(manifest, "package"), re.M)) for manifest in manifests]
    names = [package["name"] for package in packages]
    return {package["name"]: {
        "folder": "src/" if folder == "." else f"{folder}/",
        "about": package["description"],
        "uses": [name for name in names if re.search(rf"^{name}[ .]", section(manifest, "dependencies"), re.M)],
    } for folder, manifest, package in zip(folders, manifests, packages)}


def draw_crates():
    """A tree: a line leads from a package to those that it uses."""
    packages = members()
    used = {name for package in packages.values() for name in package["uses"]}
    rows, shown = [], set()

    def add(name, lead, below):
        package = packages[name]
        rows.append((lead + name, below + ("│" if package["uses"] and name not in shown else ""), f"{package['folder']}: {package['about']}"))
        uses = [] if name in shown else package["uses"]
        shown.add(name)
        for other in uses:
            last = other == uses[-1]
            add(other, below + ("└─> " if last else "├─> "), below + ("    " if last else "│   "))

    for name in packages:
        if name not in used:
            add(name, "", "")
    column = max(len(label) for label, _, _ in rows) + 2
    lines = []
    for label, below, about in rows:
        first, *others = textwrap.wrap(about, WIDTH - column)
        lines.append(label.ljust(column) + first)
        lines += [below.ljust(column) + other for other in others]
    return "\n".join(line.rstrip() for line in lines)


def folder_layers():
    """The layers of folders, the lowest first."""
    listed = re.search(r"const LAYERS: \[&\[&str\]; \d+\] = \[\n(.*?)\n\];", read("tests/it/tidy.rs"), re.S)[1]
    return [re.findall(r'"([\w/]+)"', layer) for layer in re.findall(r"&\[(.*?)\]", listed, re.S)]


def call_layers():
    """(name, is optional, purpose) of the layers of a call, the outermost first."""
    listed = re.search(r"order:\n//!\n(.*?)\.\n//!\n", read("src/stack/mod.rs"), re.S)[1]
    names = re.findall(r"\w+", listed.replace("//!", ""))
    stack = read("src/stack/order.rs")
    body = stack[stack.index("ServiceBuilder::new()"):stack.index("BoxCloneSyncService::new(stack)")]
    built = re.findall(r"((?:^ +// .*\n)+)^ +\.(layer|option_layer|service)\(", body, re.M)
    if len(built) != len(names):
        raise SystemExit(f"src/stack/order.rs builds {len(built)} layers with a comment, src/stack/mod.rs lists {len(names)}")
    for name, (comment, call) in zip(names, built):
        text = " ".join(line.strip().removeprefix("// ") for line in comment.splitlines())
        yield name, call == "option_layer", re.split(r"(?<=\.)\s", text)[0].rstrip(".")


def uses_ledger(layer):
    """Whether the code of a layer of a call names the ledger."""
    path = REPO / "src" / ROOMS.get(layer, f"stack/{layer}.rs")
    files = sorted(path.glob("*.rs")) if path.is_dir() else [path]
    codes = (file.read_text(encoding="utf-8").partition("\n#[cfg(test)]\nmod tests {")[0] for file in files)
    return any(re.search(r"^(?!\s*//).*\bcrate::ledger\b", code, re.M) for code in codes)


def spelled(folder):
    return f"{folder}/" if (REPO / "src" / folder).is_dir() else f"{folder}.rs"


def draw_way():
    """The layers of folders, the highest first, and in them the layers of a call."""
    layers = folder_layers()
    places = [number for folder in WAY for number, layer in enumerate(layers) if folder in layer]
    if len(places) != len(WAY) or places != sorted(places, reverse=True):
        raise SystemExit("tests/it/tidy.rs has other layers than the way of a call: see WAY in this file")
    lines = ["layer  a call passes"]
    end = min(places)
    for number, folders in reversed(list(enumerate(layers))):
        passed = [folder for folder in WAY if folder in folders]
        label = f"{number + 1:>5}  "
        others = ", ".join(spelled(folder) for folder in folders if folder not in passed)
        if not passed:
            bar = "│ " if max(places) > number > end else "  "
            lines += textwrap.wrap(others, WIDTH, initial_indent=f"{label}{bar}                  ", subsequent_indent=" " * 27)
        for folder in passed:
            beside = f"; in the same layer: {others}" if others and folder == passed[-1] else ""
            lines.append(f"{label}▼ {spelled(folder):<17} {WAY[folder]}{beside}")
            label = " " * 7
            if folder == "stack":
                lines += [f"       │   {line}" for line in draw_stack()]
    return "\n".join(line.rstrip() for line in lines)


def draw_stack():
    for name, is_optional, purpose in call_layers():
        shown = f"({name})" if is_optional else name
        mark = "ledger/" if uses_ledger(name) else ""
        first, *others = textwrap.wrap(purpose, 58)
        yield f"{shown:<18}{first:<60}{mark}"
        yield from (" " * 18 + other for other in others)


PICTURES = {"crates": draw_crates, "way": draw_way}


def with_pictures(text):
    """The page with the pictures of the code."""
    for name, draw in PICTURES.items():
        start, end = f"<!-- picture {name}: made by tests/docs/architecture_picture.py -->\n", "<!-- end of the picture -->"
        if text.count(start) != 1:
            raise SystemExit(f"{PAGE.name} has no place for the picture: {start.strip()}")
        before, _, rest = text.partition(start)
        after = rest[rest.index(end):]
        text = f"{before}{start}\n```text\n{draw()}\n```\n\n{after}"
    return text


def main(arguments):
    text = PAGE.read_text(encoding="utf-8")
    drawn = with_pictures(text)
    if "--check" not in arguments:
        PAGE.write_text(drawn, encoding="utf-8")
    elif drawn != text:
        print(f"{PAGE.relative_to(REPO)} is out of date: run python3 tests/docs/architecture_picture.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
