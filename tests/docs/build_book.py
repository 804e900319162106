"""Builds the book in target/book: HTML with search, and each page as Markdown beside it.

    python3 tests/docs/build_book.py [FOLDER]

Needs mdbook. mdbook itself copies every file of docs/ but the Markdown.
"""

import pathlib
import shutil
import subprocess
import sys

from pages import BOOK, REPO


def main(folder):
    status = subprocess.run(["mdbook", "build", str(BOOK), "--dest-dir", str(folder)]).returncode
    if status:
        return status
    for page in BOOK.rglob("*.md"):
        place = folder / page.relative_to(BOOK)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, place)
    missing = [what for what, pattern in {"the search": "searchindex*.js", "llms.txt": "llms.txt"}.items() if not list(folder.glob(pattern))]
    if missing:
        print(f"the book has no {' and no '.join(missing)}: was mdbook built without the feature `search`?")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve() if sys.argv[1:] else REPO / "target" / "book"))
