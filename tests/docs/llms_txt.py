"""Makes docs/llms.txt, the list of pages for models, in the form of https://llmstxt.org.

    python3 tests/docs/llms_txt.py            # writes the file
    python3 tests/docs/llms_txt.py --check    # fails if the file is out of date

The pages and sections come from docs/SUMMARY.md. The line of a page comes from its first paragraph.
"""

import re
import sys

from pages import BOOK, REPO, blocks_removed

FILE = BOOK / "llms.txt"
HEAD = """# Toolcrib

> {about}

Start with [Your first tool](start/first-tool.md) to add a tool, and with [Troubleshooting](operate/troubleshooting.md)
for a message. [skill/SKILL.md](skill/SKILL.md) has the commands that an agent needs. Every page is Markdown, at the
address that is listed here.
"""
# What a model that is short of room may leave out.
OPTIONAL = "Develop"
# Letters. A first sentence that is shorter does not tell what is on the page.
ENOUGH = 45


def about(page):
    """What a page is about: of its first paragraph the sentence about the page, or enough from its beginning. Without links and line breaks."""
    text = blocks_removed(page.read_text(encoding="utf-8"))
    text = text.partition("\n## Decision\n")[2] if page.parent.name == "decisions" and "\n## Decision\n" in text else text
    paragraphs = re.split(r"\n\s*\n", text)
    first = next(part for part in map(str.strip, paragraphs) if part and not part.startswith(("#", "<", "|"))).removeprefix("- ")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", re.sub(r":$", ".", plain))
    line = next((sentence for sentence in sentences if sentence.startswith("This page")), "")
    if line:
        return line
    while sentences and len(line) < ENOUGH:
        line = f"{line} {sentences.pop(0)}".strip()
    return line


def made():
    lines, section = [], None
    for line in (BOOK / "SUMMARY.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"# (.*)", line):
            section = "Optional" if heading[1] == OPTIONAL else heading[1]
            lines += [] if section == "Summary" else ["", f"## {section}", ""]
        elif found := re.match(r"\s*(?:- )?\[(.*)\]\((.*)\)", line):
            if section == "Summary":
                lines += ["", "## Introduction", ""]
                section = None
            lines.append(f"- [{found[1]}]({found[2]}): {about(BOOK / found[2])}")
    return HEAD.format(about=about(BOOK / "index.md")) + "\n".join(lines) + "\n"


def main(arguments):
    if "--check" not in arguments:
        FILE.write_text(made(), encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != made():
        print(f"{FILE.relative_to(REPO)} is out of date: run python3 tests/docs/llms_txt.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
