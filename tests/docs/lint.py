"""Checks the words of README and the book: sentence length, and words that only Toolcrib's authors would understand.

    python3 tests/docs/lint.py            # every page
    python3 tests/docs/lint.py FILE...    # these pages
"""

import pathlib
import re
import sys

from pages import REPO, blocks_removed, markdown_pages

# A habit of 25 words; a sentence of more than 30 is refused.
MOST_WORDS = 30

# What to write instead. The field's term is in docs/dev/glossary.md.
PRIVATE = {
    r"said": "the noun: response, message, output, definition",
    r"told": "informed, reported, or the noun",
    r"nobody|somebody|everybody|whoever": "the noun: caller, client, user",
    r"goes before": "takes precedence over",
    r"that is none|is none of|of none": "is not a …, invalid",
    r"in any case": "regardless of case, or always",
    r"tries": "attempts",
    r"crib|the house": "Toolcrib, the service",
    r"mend(ed|s|ing)?": "repair, fix",
    r"tariff|lineage|shelf|misfortune|spoilt|newcomer|in vain": "the field's term",
    r"asked for": "requested",
    r"gives? a rest|is rested|rests": "the circuit opens",
    r"by and by|once more|ere|thereof|hence": "a plain word",
}
REFUSED = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), better) for words, better in PRIVATE.items()]

ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|approx|resp|No)\.", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?:;])[)\"”’]*\s+(?=[A-Z`\"“(\[*]|$)")


def paragraphs(text):
    """(line, text) of each paragraph, list item and table cell, without blocks of code."""
    found, first = [], 0

    def end():
        if found:
            yield first, " ".join(found)
            found.clear()

    for number, line in enumerate(blocks_removed(text).splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", "<", "![")):
            yield from end()
        elif bare.startswith("|"):
            yield from end()
            yield from ((number, cell.strip()) for cell in re.split(r"(?<!\\)\|", bare) if re.search(r"\w", cell))
        else:
            if re.match(r"([-*+]|\d+\.)\s", bare):
                yield from end()
                bare = re.sub(r"^([-*+]|\d+\.)\s+", "", bare)
            if not found:
                first = number
            found.append(bare.lstrip("> "))
    yield from end()


def words_of(paragraph):
    """The paragraph as it is read: a link is its text, and a piece of code is one word."""
    text = re.sub(r"`[^`]*`", "CODE", paragraph)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return ABBREVIATIONS.sub(r"\1", text).replace("*", "")


def findings(page):
    for line, paragraph in paragraphs(page.read_text(encoding="utf-8")):
        text = words_of(paragraph)
        for sentence in SENTENCE_END.split(text):
            length = len(re.findall(r"[\w’'-]+", sentence))
            if length > MOST_WORDS:
                yield f"{name_of(page)}:{line}: {length} words in a sentence, {MOST_WORDS} at most: {sentence[:80]}…"
        for pattern, better in REFUSED:
            for match in pattern.finditer(text):
                yield f"{name_of(page)}:{line}: “{match.group()}”: write {better}"


def name_of(page):
    page = page.resolve()
    return page.relative_to(REPO) if page.is_relative_to(REPO) else page


def main(arguments):
    pages = [pathlib.Path(argument) for argument in arguments] or markdown_pages()
    found = [finding for page in pages for finding in findings(page)]
    print("\n".join(found) or f"{len(pages)} pages: no findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
