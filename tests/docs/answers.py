"""Compares an answer with the one that a page shows.

`…` within a string stands for any text, the string "…" for any value, and an object's key "…" for any further keys. Values that
differ from run to run need no such mark: ids, times and sizes are compared by their type alone.
"""

import json
import re

ANY = "…"
VARIES = re.compile(r"(_ms|_at|_bytes|_id|^id|^port|^version)$")


def differences(shown, seen, path="$"):
    """What differs, a line for each place."""
    if shown == ANY:
        return
    if isinstance(shown, dict) and isinstance(seen, dict):
        further = ANY in shown
        for key, value in shown.items():
            if key == ANY:
                continue
            if key not in seen:
                yield f"{path}.{key}: the page shows {short(value)}, the answer has no such key"
            elif VARIES.search(key) and type(value) is type(seen[key]) and not isinstance(value, (dict, list)):
                continue
            elif VARIES.search(key) and isinstance(value, (int, float)) and isinstance(seen[key], (int, float)):
                continue
            else:
                yield from differences(value, seen[key], f"{path}.{key}")
        if not further:
            for key in seen.keys() - shown.keys():
                yield f"{path}.{key}: the answer has {short(seen[key])}, the page shows no such key"
    elif isinstance(shown, list) and isinstance(seen, list):
        further = bool(shown) and shown[-1] == ANY
        expected = shown[:-1] if further else shown
        if len(seen) < len(expected) or (len(seen) > len(expected) and not further):
            yield f"{path}: the page shows {len(expected)} items, the answer has {len(seen)}"
        for at, (one, other) in enumerate(zip(expected, seen)):
            yield from differences(one, other, f"{path}[{at}]")
    elif isinstance(shown, str) and isinstance(seen, str):
        if not matches(shown, seen):
            yield f"{path}: the page shows {short(shown)}, the answer has {short(seen)}"
    elif shown != seen:
        yield f"{path}: the page shows {short(shown)}, the answer has {short(seen)}"


def matches(shown, seen):
    pattern = ".*".join(re.escape(part) for part in shown.split(ANY))
    return re.fullmatch(pattern, seen, re.S) is not None


def text_matches(shown, seen):
    lines = lambda text: "\n".join(line.rstrip() for line in text.strip().splitlines())
    return matches(lines(shown), lines(seen))


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:120] + "…"
