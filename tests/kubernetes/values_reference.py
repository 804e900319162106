#!/usr/bin/env python3
"""Writes the table of values in the README of the Helm chart, from its schema and its defaults: `python3 tests/kubernetes/values_reference.py`."""

import json
import pathlib

import yaml

CHART = pathlib.Path(__file__).resolve().parents[2] / "docker" / "helm" / "toolcrib"
README = CHART / "README.md"
BEGIN, END = "<!-- values: tests/kubernetes/values_reference.py writes this part -->\n", "<!-- end of values -->\n"


def rows(schema, defaults, path=""):
    for name, part in schema["properties"].items():
        if name in ("global", "enabled") and not path:
            continue
        here = f"{path}{name}"
        if part.get("properties") and not name.endswith("Secret"):
            yield from rows(part, defaults[name], f"{here}.")
            continue
        default = json.dumps(defaults[name], ensure_ascii=False)
        default = "see values.yaml" if len(default) > 70 else f"`{default}`"
        yield f"| `{here}` | {default} | {part['description'].replace('|', chr(92) + '|')} |\n"


def table():
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    return "\n| value | default | meaning |\n| --- | --- | --- |\n" + "".join(rows(schema, defaults)) + "\n"


def written(text):
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + table() + END + tail


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
