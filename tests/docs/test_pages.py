"""Checks the book: its words, its links, its table of contents, and the order of the layers that it lists."""

import re
import urllib.parse

import pytest

import lint
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
    there = {str(page.relative_to(BOOK)) for page in BOOK.rglob("*.md")} - {"SUMMARY.md"}
    assert set(listed) == there


def test_manifest_reference_matches_the_code():
    stale = [name(path) for path, text in made_from(BINARY) if path.read_text(encoding="utf-8") != text]
    assert not stale, f"out of date: {stale}; run python3 tests/docs/manifest_reference.py {BINARY}"


def test_readme_is_short():
    assert len((REPO / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_rust_blocks_are_doc_tests():
    """rustdoc compiles the pages that src/lib.rs includes."""
    included = set(re.findall(r'include_str!\("\.\./([^"]+\.md)"\)', (REPO / "src" / "lib.rs").read_text(encoding="utf-8")))
    with_rust = {name(page) for page in PAGES if any(block.language == "rust" for block in blocks(page))}
    assert with_rust == included


def test_layers_are_listed_in_code_order():
    """The page that explains a call lists the layers as src/stack.rs builds them."""
    stack = (REPO / "src" / "stack.rs").read_text(encoding="utf-8")
    body = stack[stack.index("ServiceBuilder::new()"):stack.index("BoxCloneSyncService::new(stack)")]
    modules = {found: module for module, names in re.findall(r"use crate::middleware::(\w+)::(\{[^}]*\}|\w+);", stack)
               for found in re.findall(r"\w+", names)}
    code = [modules.get(layer, layer) for layer in re.findall(r"^\s*\.(?:layer|option_layer|service)\((\w+)", body, re.M)]
    page = BOOK / "explain" / "call.md"
    shown = [re.split(r"\s", line)[0] for block in blocks(page) if "layers" in block.options for line in block.text.splitlines() if line.strip()]
    assert shown == code
