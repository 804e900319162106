"""Checks the book: its words, its links, its table of contents, and what it shows of the code: layers, folders and files."""

import functools
import json
import os
import pathlib
import re
import subprocess
import urllib.parse

import pyte
import pytest
import yaml

import architecture_picture
import first_minute
import lint
import llms_txt
import overview_picture
from manifest_reference import made_from
from pages import BINARY, BOOK, REPO, anchors, blocks, blocks_removed, markdown_pages

PAGES = markdown_pages()
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def name(page):
    return str(page.relative_to(REPO))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_words_are_plain(page):
    found = list(lint.findings(page))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page):
    faults = []
    text = re.sub(r"`[^`\n]*`", "", blocks_removed(page.read_text(encoding="utf-8")))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            faults.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            faults.append(f"{link}: no such heading")
    assert not faults, f"{name(page)}:\n" + "\n".join(faults)


def test_contents_list_every_page():
    listed = re.findall(r"\]\(([^)]+\.md)\)", (BOOK / "SUMMARY.md").read_text(encoding="utf-8"))
    assert len(listed) == len(set(listed)), "a page is listed twice"
    there = {str(page.relative_to(BOOK)) for page in BOOK.rglob("*.md")} - {"SUMMARY.md", "skill/SKILL.md"}
    assert set(listed) == there


def test_list_for_models_is_current():
    assert llms_txt.main(["--check"]) == 0, "run python3 tests/docs/llms_txt.py"
    # The form of llmstxt.org: a title, a quotation, then sections whose lists are links with notes.
    title, _, quotation, *rest = llms_txt.made().splitlines()
    assert title.startswith("# ") and quotation.startswith("> ")
    lists = rest[rest.index("## Introduction"):]
    assert all(not line or re.fullmatch(r"## \S.*|- \[[^\]]+\]\([^)]+\.md\): \S.*", line) for line in lists)


def test_pictures_are_current_and_small():
    """The picture of the recording is the recording, and not edited."""
    for picture, module in ((first_minute.PICTURE, first_minute), (overview_picture.PICTURE, overview_picture)):
        drawn = picture.read_text(encoding="utf-8")
        assert drawn == module.draw(), f"{name(picture)} is out of date: run {module.__name__}.py"
        assert len(drawn.encode()) < 150_000 and "prefers-color-scheme:dark" in drawn


def test_recording_has_the_commands_of_its_script():
    head, *lines = map(json.loads, first_minute.CAST.read_text(encoding="utf-8").splitlines())
    assert head["version"] == 2 and all(kind == "o" for _, kind, _ in lines)
    screen = pyte.HistoryScreen(head["width"], head["height"], history=500, ratio=1)
    pyte.Stream(screen).feed("".join(text for _, _, text in lines))
    rows = [*screen.history.top, *(screen.buffer[row] for row in range(head["height"]))]
    shown = "".join("".join(row[column].data for column in range(head["width"])) for row in rows).replace(" ", "")
    for command in first_minute.COMMANDS:
        assert all(part.replace(" ", "") in shown for part in command.split("\n")), command
    assert "listeningonhttp://127.0.0.1:7411" in shown and '"total":37.5' in shown and "succeeded" in shown and "refused" in shown


def test_skill_has_the_form_of_agent_skills():
    _, front, body = re.split(r"^---$", (BOOK / "skill" / "SKILL.md").read_text(encoding="utf-8"), maxsplit=2, flags=re.M)
    keys = yaml.safe_load(front)
    assert set(keys) == {"name", "description"} and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", keys["name"])
    assert 1 <= len(keys["description"]) <= 1024 and len(body.splitlines()) <= 500


def test_manifest_reference_matches_the_code():
    stale = [name(path) for path, text in made_from(BINARY) if path.read_text(encoding="utf-8") != text]
    assert not stale, f"out of date: {stale}; run python3 tests/docs/manifest_reference.py {BINARY}"


def test_architecture_pictures_match_the_code():
    assert architecture_picture.main(["--check"]) == 0, "run python3 tests/docs/architecture_picture.py"


def test_code_map_has_every_folder_in_its_layer():
    rows = re.findall(r"^\| ?(\d*) \| (`[^|]*`) \|", (BOOK / "dev" / "architecture.md").read_text(encoding="utf-8"), re.M)
    shown = []
    for layer, paths in rows:
        shown += [[]] if layer else []
        shown[-1] += re.findall(r"`([\w/]+?)/?(?:\.rs)?`", paths)
    # The program's own file has no layer.
    listed = [sorted(set(folders) - {"main"}) for folders in shown]
    assert listed == [sorted(folders) for folders in architecture_picture.folder_layers()]


@functools.cache
def repository_paths():
    """Each file and folder of the repository under every end of its path: a page leaves out the folder that it explains."""
    found = set()
    for folder, folders, files in os.walk(REPO):
        folders[:] = [child for child in folders if child not in (".git", "target", "node_modules")]
        for child in [*files, *(f"{child}/" for child in folders)]:
            parts = (pathlib.Path(folder).relative_to(REPO) / child).parts
            end = "/" if child.endswith("/") else ""
            found.update("/".join(parts[start:]) + end for start in range(len(parts)))
    return found


DEVELOPER_PAGES = [*sorted((BOOK / "dev").rglob("*.md")), REPO / "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", DEVELOPER_PAGES, ids=name)
def test_named_files_exist(page):
    """A file of code or a folder that a developer's page names is there."""
    paths, faults = repository_paths(), []
    for number, line in enumerate(blocks_removed(page.read_text(encoding="utf-8")).splitlines(), 1):
        for code in re.findall(r"`([^`]+)`", line):
            # Not `target/`, which builds make, and not `<kind>.rs`, which stands for a file.
            named = re.findall(r"[\w./-]+\.rs\b", code) if "<" not in code else []
            named += re.findall(r"^(?!target/)[\w./-]+/$", code)
            faults += [f"{name(page)}:{number}: {path}: no such file or folder" for path in named if path.removeprefix("./") not in paths]
    assert not faults, "\n".join(faults)


def test_comments_name_existing_files():
    paths, faults = repository_paths(), []
    for file in sorted(path for folder in ("src", "crates", "tests/it") for path in (REPO / folder).rglob("*.rs")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            comment = re.match(r"\s*//[/!]?(.*)", line)
            named = re.findall(r"(?<![\w/:])[\w./-]+\.rs\b(?!/)", comment[1]) if comment else []
            faults += [f"{name(file)}:{number}: {path}: no such file" for path in named if path.removeprefix("./") not in paths]
    assert not faults, "\n".join(faults)


def table_codes(page):
    """What stands in backticks in the tables of a page."""
    lines = (BOOK / "reference" / page).read_text(encoding="utf-8").splitlines()
    return {code for line in lines if line.startswith("|") for code in re.findall(r"`([^`]+)`", line)}


def test_every_route_is_in_the_reference():
    document = json.loads((REPO / "openapi" / "openapi.json").read_text(encoding="utf-8"))
    methods = ("get", "post", "put", "patch", "delete")
    routes = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item if method in methods}
    missing = sorted(routes - table_codes("http-api.md"))
    assert not missing, f"docs/reference/http-api.md has no line for {missing}"


def subcommands(*command):
    """The commands that `--help` lists."""
    text = subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, check=True).stdout
    listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return [name for name in re.findall(r"^  (\S+)", listed[1] if listed else "", re.MULTILINE) if name != "help"]


def test_every_command_is_in_the_reference():
    page = (BOOK / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = [(name, *more) for name in subcommands() for more in [(), *((part,) for part in subcommands(name))]]
    assert ("approvals", "deny") in commands
    missing = [command for command in commands if not re.search(rf"^toolcrib {' '.join(command)}\b", page, re.MULTILINE)]
    assert not missing, f"docs/reference/cli.md has no line for {missing}"


def test_readme_is_short():
    assert len((REPO / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_rust_blocks_are_doc_tests():
    """rustdoc compiles the pages that src/lib.rs includes."""
    included = set(re.findall(r'include_str!\("\.\./([^"]+\.md)"\)', (REPO / "src" / "lib.rs").read_text(encoding="utf-8")))
    with_rust = {name(page) for page in PAGES if any(block.language == "rust" for block in blocks(page))}
    assert with_rust == included


def test_layers_are_listed_in_code_order():
    """The page that explains a call lists the layers as src/stack/order.rs builds them."""
    stack = (REPO / "src" / "stack" / "order.rs").read_text(encoding="utf-8")
    body = stack[stack.index("ServiceBuilder::new()"):stack.index("BoxCloneSyncService::new(stack)")]
    rooms = {"waiting": "await_decision", "rule": "approval"}
    modules = {found: rooms.get(module, module) for module, names in re.findall(r"use .*?(\w+)::(\{[^}]*\}|[A-Z]\w+);", stack)
               for found in re.findall(r"\w+", names)}
    layers = re.findall(r"^\s*\.(?:layer|option_layer|service)\((?:InterceptorLayer::new\()?(\w+)", body, re.M)
    code = [modules.get(layer[0].upper() + layer[1:], layer) for layer in layers]
    page = BOOK / "explain" / "call.md"
    shown = [re.split(r"\s", line)[0] for block in blocks(page) if "layers" in block.options for line in block.text.splitlines() if line.strip()]
    assert shown == code
