"""Builds the book in target/book: HTML with search, and each page as Markdown beside it.

    python3 tests/docs/build_book.py [FOLDER]

Needs mdbook. mdbook itself copies every file of docs/ but the Markdown. A page may link to a file of the repository outside docs/:
such files are copied to `repository/` of the book, and the links of the HTML lead there.
"""

import html
import pathlib
import re
import shutil
import subprocess
import sys

from pages import BOOK, REPO


def copied(path, folder):
    """The place in the book of a file or folder of the repository. A folder becomes a page with its files."""
    place = folder / "repository" / path.relative_to(REPO)
    if path.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        names = sorted(child.name for child in path.iterdir() if child.is_file())
        for name in names:
            shutil.copyfile(path / name, place / name)
        rows = "".join(f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>' for name in names)
        (place / "index.html").write_text(f"<!doctype html><meta charset=utf-8><title>{path.name}</title><ul>{rows}</ul>", encoding="utf-8")
        return place / "index.html"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)
    return place


def lead_into_the_book(folder):
    """Links of the HTML that leave the book lead to copies in it. Gives those that lead nowhere."""
    missing = []
    for page in folder.rglob("*.html"):
        if "repository" in page.relative_to(folder).parts or page.name in ("404.html", "toc.html"):
            continue
        # print.html has the pages of all folders, with the links of each.
        source = BOOK / page.relative_to(folder)

        def changed(found):
            path, _, anchor = found[1].partition("#")
            inside = (page.parent / path).resolve()
            if inside.exists() and inside.is_relative_to(folder):
                return found[0]
            if inside.with_suffix(".md").exists() and inside.is_relative_to(folder):  # a page that is only Markdown
                return f'href="{path.removesuffix(".html")}.md"'
            target = (source.parent / path).resolve()
            target = target.with_suffix(".md") if target.suffix == ".html" and not target.exists() else target
            if not target.exists() or not target.is_relative_to(REPO):
                missing.append(f"{page.relative_to(folder)}: {found[1]}")
                return found[0]
            ups = "../" * (len(page.relative_to(folder).parts) - 1)
            return f'href="{ups}{copied(target, folder).relative_to(folder)}{"#" + anchor if anchor and target.suffix != ".md" else ""}"'

        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(r'href="([^":#][^":]*)"', changed, text), encoding="utf-8")
    return missing


def main(folder):
    status = subprocess.run(["mdbook", "build", str(BOOK), "--dest-dir", str(folder)]).returncode
    if status:
        return status
    for page in BOOK.rglob("*.md"):
        place = folder / page.relative_to(BOOK)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, place)
    astray = lead_into_the_book(folder)
    print("\n".join(f"a link leads nowhere: {link}" for link in astray), end="\n" if astray else "")
    missing = [what for what, pattern in {"the search": "searchindex*.js", "llms.txt": "llms.txt"}.items() if not list(folder.glob(pattern))]
    if missing:
        print(f"the book has no {' and no '.join(missing)}: was mdbook built without the feature `search`?")
    return 1 if missing or astray else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve() if sys.argv[1:] else (REPO / "target" / "book").resolve()))
