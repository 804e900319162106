"""The last release beside this version. TOOLCRIB_OLD_BIN names its program: what docs/operate/upgrade.md calls stable must still be there,
and both versions work on one ledger. The fault test `fleet_upgrade` does the same with PostgreSQL, under load."""

import json
import os
import re
import shutil
import subprocess

import pytest

from harness import BIN, REPO, ok, poll, text_of

OLD = os.environ.get("TOOLCRIB_OLD_BIN")
needs_old = pytest.mark.skipif(not OLD, reason="no program of the last release: name one in TOOLCRIB_OLD_BIN")

MANIFEST = {"tools": {
    "calculator": {"kind": "native"},
    "stamp": {"kind": "command", "description": "Writes a line.", "parameters": {"text": {"type": "string", "description": "The line"}},
              "command": ["sh", "-c", "echo $$"], "effect": "write"},
    "few": {"kind": "native", "use": "calculator", "limits": [{"calls": 3, "per": "lifetime"}]},
}}


def asked(program, *words, **options):
    return subprocess.run([program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def document(program, command):
    done = asked(program, command)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


# ---- what a schema allowed is still allowed ------------------------------------------------------------------------------

class Comparison:
    """Walks two JSON Schemas side by side, and notes what the newer one has lost."""

    def __init__(self, old, new):
        self.old, self.new, self.lost, self.seen = old, new, [], set()

    @staticmethod
    def resolved(root, schema):
        while isinstance(schema, dict) and "$ref" in schema and schema["$ref"].startswith("#/"):
            target = root
            for part in schema["$ref"][2:].split("/"):
                target = target[part]
            schema = target
        return schema if isinstance(schema, dict) else {}

    def parts(self, root, schema):
        """The schema and all that it combines."""
        schema = self.resolved(root, schema)
        found = [schema]
        for key in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(key, []):
                found += self.parts(root, part)
        return found

    def walk(self, old, new, place, fields_may_vanish=False):
        olds, news = self.parts(self.old, old), self.parts(self.new, new)
        known = (json.dumps(old, sort_keys=True), json.dumps(new, sort_keys=True))
        if known in self.seen:
            return
        self.seen.add(known)
        for part in olds:
            for name, schema in part.get("properties", {}).items():
                candidates = [other["properties"][name] for other in news if name in other.get("properties", {})]
                # A branch of a choice is enough: which one it was does not matter.
                if candidates:
                    self.walk(schema, {"anyOf": candidates} if len(candidates) > 1 else candidates[0], f"{place}.{name}")
                elif not any(isinstance(other.get("additionalProperties"), (bool, dict)) and other.get("additionalProperties") for other in news):
                    self.lost.append(f"{place}.{name}")
            values = set(map(json.dumps, part.get("enum", []) + ([part["const"]] if "const" in part else [])))
            allowed = {json.dumps(value) for other in news for value in other.get("enum", []) + ([other["const"]] if "const" in other else [])}
            if values and allowed:
                self.lost += [f"{place} = {value}" for value in sorted(values - allowed)]
            for key in ("items", "additionalProperties"):
                below = [other[key] for other in news if isinstance(other.get(key), dict)]
                if isinstance(part.get(key), dict) and below:
                    self.walk(part[key], {"anyOf": below} if len(below) > 1 else below[0], f"{place}[]")
        needed = {name for other in news[:1] for name in other.get("required", [])} - {name for part in olds[:1] for name in part.get("required", [])}
        self.lost += [f"{place}.{name} is required now" for name in sorted(needed) if place.startswith(("manifest", "body"))]


def test_comparison_sees_what_is_lost():
    old = {"properties": {"a": {"$ref": "#/$defs/A"}, "b": {"type": "string"}, "c": {"items": {"enum": ["x", "y"]}}}, "$defs": {"A": {"properties": {"in": {}}}}}
    new = {"properties": {"a": {"anyOf": [{"properties": {"out": {}}}]}, "c": {"items": {"enum": ["x", "z"]}}}, "required": ["a"]}
    comparison = Comparison(old, new)
    comparison.walk(old, new, "manifest")
    assert sorted(comparison.lost) == ['manifest.a is required now', 'manifest.a.in', 'manifest.b', 'manifest.c[] = "y"']
    comparison = Comparison(old, old)
    comparison.walk(old, old, "manifest")
    assert comparison.lost == []


@needs_old
def test_manifest_keeps_its_keys():
    old, new = document(OLD, "schema"), document(BIN, "schema")
    comparison = Comparison(old, new)
    comparison.walk(old, new, "manifest")
    assert not comparison.lost, "\n".join(comparison.lost)


@needs_old
def test_api_keeps_its_routes_and_fields():
    old, new = document(OLD, "openapi"), document(BIN, "openapi")
    comparison = Comparison(old, new)
    for path, methods in old["paths"].items():
        for method, operation in methods.items():
            other = new["paths"].get(path, {}).get(method)
            if other is None:
                comparison.lost.append(f"{method} {path}")
                continue
            names = {(one["in"], one["name"]) for one in (Comparison.resolved(new, one) for one in other.get("parameters", []))}
            for one in (Comparison.resolved(old, one) for one in operation.get("parameters", [])):
                if (one["in"], one["name"]) not in names:
                    comparison.lost.append(f"{method} {path}: {one['in']} {one['name']}")
            for status, answer in operation.get("responses", {}).items():
                if status not in other["responses"]:
                    comparison.lost.append(f"{method} {path}: {status}")
                    continue
                for kind, content in Comparison.resolved(old, answer).get("content", {}).items():
                    found = Comparison.resolved(new, other["responses"][status]).get("content", {}).get(kind)
                    if found is None:
                        comparison.lost.append(f"{method} {path}: {status} {kind}")
                    elif "schema" in content and "schema" in found:
                        comparison.walk(content["schema"], found["schema"], f"{method} {path} {status}")
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                found = other.get("requestBody", {}).get("content", {}).get(kind)
                if found is None:
                    comparison.lost.append(f"{method} {path}: takes {kind}")
                elif "schema" in content and "schema" in found:
                    comparison.walk(content["schema"], found["schema"], f"body of {method} {path}")
    assert not comparison.lost, "\n".join(comparison.lost)


def flags(program, *words):
    """The flags of a command, and of those below it."""
    text = asked(program, *words, "--help").stdout
    found = {(*words, flag) for flag in re.findall(r"(?m)^ +(?:-\w, )?(--[a-z-]+)", text)}
    below = re.findall(r"(?m)^  ([a-z]+)(?:  |$)", text.partition("Commands:\n")[2].partition("\n\n")[0])
    for command in set(below) - {"help"}:
        found |= {(*words, command)} | flags(program, *words, command)
    return found


@needs_old
def test_command_line_keeps_its_commands_and_flags():
    old = flags(OLD)
    assert ("serve", "--ledger") in old and ("key", "new") in old
    assert not old - flags(BIN)


@needs_old
def test_long_manifest_of_the_last_release_is_still_valid(tmp_path):
    """The manifest of the start, and one with most keys if the old version takes it."""
    folder = tmp_path / "first"
    folder.mkdir()
    assert asked(OLD, "init", cwd=folder).returncode == 0
    assert asked(BIN, "check", "--strict", cwd=folder).returncode == 0
    shutil.copytree(REPO / "examples", tmp_path / "examples")
    if asked(OLD, "check", "toolcrib.yaml", "--no-secrets", cwd=tmp_path / "examples").returncode == 0:
        done = asked(BIN, "check", "toolcrib.yaml", "--no-secrets", cwd=tmp_path / "examples")
        assert done.returncode == 0, done.stdout


# ---- one ledger, two versions --------------------------------------------------------------------------------------------

@needs_old
def test_ledger_of_the_last_release_is_read(start, tmp_path):
    folder = tmp_path / "crib"
    old = start(MANIFEST, folder=folder, program=OLD)
    first = ok(old.invoke("stamp", {"text": "a"}, headers={"idempotency-key": "k-1"}))
    for _ in range(2):
        ok(old.invoke("few", {"expression": "1+1"}))
    rows = {row["invocation_id"]: row for row in old.rows()}
    old.stop()

    new = start(MANIFEST, folder=folder)
    again = ok(new.invoke("stamp", {"text": "a"}, headers={"idempotency-key": "k-1"}))
    assert (again["invocation_id"], text_of(again)) == (first["invocation_id"], text_of(first)), "the key is kept"
    ok(new.invoke("few", {"expression": "1+1"}))
    assert new.invoke("few", {"expression": "1+1"}).status == 429, "so are the counters"
    after = {row["invocation_id"]: row for row in new.rows()}
    for invocation_id, row in rows.items():
        kept = {name: value for name, value in row.items() if name in after[invocation_id]}
        assert kept == {name: after[invocation_id][name] for name in kept} and kept.keys() == row.keys()
    new.stop()

    done = asked(OLD, "invocations", "--ledger", new.ledger, cwd=folder)
    refused = "written by a newer Toolcrib" in done.stderr
    assert (done.returncode == 0) != refused, done


@needs_old
def test_old_service_goes_on_while_the_new_one_starts(start, tmp_path):
    folder = tmp_path / "crib"
    old = start(MANIFEST, folder=folder, program=OLD)
    ok(old.invoke("few", {"expression": "1"}))
    new = start(MANIFEST, folder=folder)
    for crib in (old, new, old, new):
        ok(crib.invoke("calculator", {"expression": "6*7"}))
    poll(lambda: len(new.rows("tool=calculator")) == 4, 10, "the calls of both")
    assert len(old.rows("tool=calculator")) == 4
    # Units that one has set aside come back within a second. Both together stay below the limit.
    poll(lambda: new.invoke("few", {"expression": "1"}).status == 200, 10, "a unit for the new one")
    poll(lambda: old.invoke("few", {"expression": "1"}).status == 200, 10, "a unit for the old one")
    assert {new.invoke("few", {"expression": "1"}).status, old.invoke("few", {"expression": "1"}).status} == {429}
