"""The pages of README and the book, and the blocks of code in them."""

import dataclasses
import os
import pathlib
import re
import textwrap

REPO = pathlib.Path(__file__).resolve().parents[2]
BOOK = REPO / "docs"
BINARY = pathlib.Path(os.environ.get("TOOLCRIB_BIN") or REPO / "target" / "release" / "toolcrib").resolve()

FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^[ \t]*(?P=fence)[ \t]*$", re.M | re.S)


@dataclasses.dataclass
class Block:
    """A block of code. `language` is the first word of its info string, `options` are the others: `file=a.py` is {"file": "a.py"}."""

    page: pathlib.Path
    line: int
    language: str
    options: dict
    text: str

    @property
    def where(self):
        return f"{self.page.relative_to(REPO)}:{self.line}"


def markdown_pages():
    """Every page that the tests read. CHANGELOG is history and stays as it was written."""
    pages = [REPO / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(BOOK.rglob("*.md"))
    return [page for page in pages if page.exists()]


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        language, *options = match["info"].strip().split(",")
        pairs = (option.partition("=") for option in options)
        yield Block(page, text.count("\n", 0, match.start()) + 1, language.strip(),
                    {key.strip(): value.strip() for key, _, value in pairs}, textwrap.dedent(match["text"]))


def blocks_removed(text):
    """The text with empty lines for its blocks of code, so that line numbers stay true."""
    return FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)


def anchors(page):
    """The anchors of a page's headings, as GitHub and mdBook make them."""
    found = {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", blocks_removed(page.read_text(encoding="utf-8")), re.M):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        yield slug if not count else f"{slug}-{count}"
