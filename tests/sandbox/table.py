"""Writes what was tried, reached and denied into docs/explain/sandbox-checks.md: python tests/sandbox/table.py --write"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import checks  # noqa: E402
import expected  # noqa: E402
import place  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "explain" / "sandbox-checks.md"
BEGIN, END = "<!-- begin: python tests/sandbox/table.py --write -->", "<!-- end -->"
SHORT = {"namespaces": "N", "landlock": "L", "seccomp": "S"}
COLUMNS = {"service": "`service`", "only": "`true`", "limits": "limits", "hosts": "hosts"}


def measure():
    """{(level, user, setting): {check: (verdict, reason)}}"""
    found = {}
    for level in place.LEVELS:
        for user in place.USERS:
            there = place.Place(level, user, list(checks.CHECKS))
            try:
                if there.in_force()[0] != level:
                    print(f"no level {level} as {user} here", file=sys.stderr)
                    continue
                for setting in place.SETTINGS:
                    if setting != "none" or level == "namespaces":
                        found[level, user, setting] = there.run(setting)
            finally:
                there.close()
    return found


def cell(found, name, setting, notes):
    """Where a check was reached: levels, as which user, and why that is so."""
    parts = []
    for level in place.LEVELS:
        users = {user: found[level, user, setting].get(name) for user in place.USERS if (level, user, setting) in found}
        reached = [user for user, verdict in users.items() if verdict and verdict[0] == "REACHED"]
        if not any(users.values()):
            continue
        if not reached:
            parts.append(SHORT[level].lower())
            continue
        reasons = {expected.reason(name, setting, level, user) or "NOT EXPECTED" for user in reached}
        numbers = ", ".join(str(notes.setdefault(why, len(notes) + 1)) for why in sorted(reasons))
        only = " root" if reached == ["root"] else " `nobody`" if reached == ["nobody"] else ""
        parts.append(f"**{SHORT[level]}**{only} ({numbers})")
    if not parts:
        return "–"
    return "denied" if all(part in SHORT.values() or part.islower() and len(part) == 1 for part in parts) else " ".join(parts)


def without(found, name):
    users = [user for user in place.USERS if found.get(("namespaces", user, "none"), {}).get(name, ("", ""))[0] == "REACHED"]
    return {0: "no", 1: f"{users[0]} only" if users else "", 2: "yes"}[len(users)]


def about(name):
    """What a check tries, from its first line, or from its name."""
    text = (expected.ABOUT.get(name) or checks.CHECKS[name].__doc__ or name.replace("_", " ")).strip().splitlines()[0].rstrip(".")
    text = text[0].upper() + text[1:]
    return f"{text} ({expected.PUBLISHED[name]})" if name in expected.PUBLISHED and expected.PUBLISHED[name] not in text else text


def render(found):
    notes, names = {}, [name for name in checks.CHECKS if not name.startswith("control_")]
    lines = [f"| check | what it attempts | without | {' | '.join(COLUMNS.values())} |", "| --- | --- | --- |" + " --- |" * len(COLUMNS)]
    for name in names:
        cells = [cell(found, name, setting, notes) for setting in COLUMNS]
        lines.append(f"| `{name}` | {about(name)} | {without(found, name)} | {' | '.join(cells)} |")
    counts = ["", "| checks reached, of " + str(len(names)) + " | root | `nobody` |", "| --- | --- | --- |"]
    for setting in place.SETTINGS:
        for level in place.LEVELS:
            if setting == "none" and level != "namespaces":
                continue
            reached = [sum(found.get((level, user, setting), {}).get(name, ("",))[0] == "REACHED" for name in names) for user in place.USERS]
            title = "without a sandbox" if setting == "none" else f"{COLUMNS[setting]}, {level}"
            counts.append(f"| {title} | {reached[0]} | {reached[1]} |")
    legend = ["", "Why something is reached:", ""] + [f"{number}. {why[0].upper()}{why[1:]}." for why, number in notes.items()]
    return "\n".join([*counts, "", *lines, *legend])


def main():
    text = render(measure())
    if "--write" not in sys.argv:
        print(text)
        return
    page = PAGE.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(f"{page[:start]}\n\n{text.strip()}\n\n{page[end:]}")


if __name__ == "__main__":
    main()
