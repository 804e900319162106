"""Manifests by recipe: small builders for tools and callers, and the YAML they become."""

import json
import os
import re
import sys

PYTHON = os.path.realpath(sys.executable)

KEYS = {"ANN": "ann-key-0123456789abcdef", "BOB": "bob-key-0123456789abcdef", "ROOT": "root-key-0123456789abcdef"}

# Two callers that may use everything, and an operator; start them with env=KEYS.
CALLERS = [{"name": "ann", "key": "${env:ANN}", "allow": ["*"]}, {"name": "bob", "key": "${env:BOB}", "allow": ["*"]},
           {"name": "root", "key": "${env:ROOT}", "admin": True}]


def to_yaml(value, pad=""):
    """Block YAML for dicts; everything below a list is flow style, which is JSON."""
    lines = []
    for key, item in value.items():
        name = key if re.fullmatch(r"[A-Za-z_][\w-]*", key) else json.dumps(key)
        if isinstance(item, dict) and item:
            lines.append(f"{pad}{name}:\n{to_yaml(item, pad + '  ')}")
        else:
            lines.append(f"{pad}{name}: {json.dumps(item, ensure_ascii=False)}\n")
    return "".join(lines)


def params(**fields):
    """The parameter shorthand: params(n='integer', city={...})."""
    full = {}
    for name, spec in fields.items():
        spec = {"type": spec} if isinstance(spec, str) else dict(spec)
        spec.setdefault("description", f"The {name} of the call")
        full[name] = spec
    return full


OPTIONAL_N = {"n": {"type": "integer", "description": "A number that tells calls apart", "required": False}}


def command(argv, **policy):
    tool = {"kind": "command", "description": "A program for the tests of this suite.", "command": argv,
            "parameters": OPTIONAL_N}
    tool.update(policy)
    if "input_schema" in policy:
        tool.pop("parameters")
    return tool


def sh(script, **policy):
    """A command tool that is a shell script (argv names the shell; Toolcrib starts none)."""
    return command(["/bin/sh", "-c", script], **policy)


def py(script, **policy):
    """A command tool that is a Python script without site packages."""
    return command([PYTHON, "-I", "-S", "-c", script], **policy)


def web(url, method="GET", request=None, **policy):
    """An http tool against the test upstream, which is on loopback."""
    tool = {"kind": "http", "description": "An upstream for the tests of this suite.", "parameters": OPTIONAL_N,
            "request": dict({"method": method, "url": url, "allow_private": True}, **(request or {}))}
    tool.update(policy)
    if "input_schema" in policy:
        tool.pop("parameters")
    return tool


def module(path, **entry):
    """An entry of python_modules: a file beside the manifest or an importable module, under this suite's own Python."""
    return dict({"module": str(path), "interpreter": PYTHON}, **entry)
