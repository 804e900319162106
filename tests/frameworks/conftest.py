"""Tools of real frameworks, unmodified, beside what the framework itself says when it is asked without Toolcrib.

    tests/run                                          # builds an environment for each framework under target/frameworks

by hand: target/venv-frameworks/bin/python -m pytest tests/frameworks, with TOOLCRIB_BIN=/path/to/toolcrib for another binary than
target/release/toolcrib. An environment is built once from its pinned NAME.txt and kept. Without PyPI, or with a Python that the
frameworks do not take (below 3.10), the tests skip themselves and say so.

NAME.txt has the newest pydantic that a framework allows, and NAME-oldest.txt the oldest one. Their schemas and conversions differ, so
the tests about these run under both.
"""

import json
import pathlib
import subprocess

import pytest

import harness
from environments import environment
from harness import TARGET, Crib, ok, error_result, text_of

pytest_plugins = "service_fixtures"

HERE = pathlib.Path(__file__).resolve().parent
PLACE = TARGET / "frameworks"
TOOLS = HERE / "tools"

# What both sides get: no consent is requested, no telemetry is sent.
ENVIRONMENT = {"BYPASS_TOOL_CONSENT": "true", "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TESTING": "true", "OTEL_SDK_DISABLED": "true",
               "TZ": "UTC", "PYTHONWARNINGS": "ignore"}


class Framework:
    """An environment with one framework, and the service over the same files."""

    def __init__(self, name, pydantic, folder):
        self.name, self.pydantic, self.folder, self.crib = name, pydantic, folder, None
        self.python = environment_of(name) if pydantic == "newest" else environment_with_oldest_pydantic(name)

    def serve(self, modules):
        """A service with these entries of python_modules, all under the framework's own interpreter."""
        entries = {name: dict({"interpreter": str(self.python), "environment": ENVIRONMENT}, **entry) for name, entry in modules.items()}
        self.crib = Crib(self.folder / "crib", {"python_modules": entries})
        return self.crib.ready(120)

    def framework_output(self, module, calls=(), **more):
        """How the framework describes a module: {"tools": {name: {"description", "schema"}}, "results": [{"is_error", "texts"}]}."""
        wanted = json.dumps(dict({"module": str(module), "calls": list(calls)}, **more))
        done = subprocess.run([str(self.python), str(HERE / "ask.py"), self.name], input=wanted, text=True, capture_output=True, timeout=120,
                              cwd=str(self.folder), env={**harness.clean_env(home=self.folder), **ENVIRONMENT})
        assert done.returncode == 0, f"{self.name} itself fails\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.strip().splitlines()[-1])


def environment_of(name):
    """The interpreter of an environment with NAME.txt; built when there is none or the file has changed."""
    return environment(HERE / f"{name}.txt", PLACE)


def environment_with_oldest_pydantic(name):
    """The interpreter of an environment that has only the packages of NAME-oldest.txt itself. It finds all others in that of NAME.txt."""
    packages = purelib(environment_of(name))
    python = environment(HERE / f"{name}-oldest.txt", PLACE)
    (purelib(python) / "others.pth").write_text(f"{packages}\n")
    return python


def purelib(python):
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return pathlib.Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="module")
def served(request, tmp_path_factory):
    """The framework that the test module names in FRAMEWORK, with the newest or the oldest pydantic. It is served as the function
    `modules` says, started once, and stopped with exit code 0."""
    running = {}

    def give(pydantic):
        if pydantic not in running:
            name = request.module.FRAMEWORK
            running[pydantic] = Framework(name, pydantic, tmp_path_factory.mktemp(name))
            running[pydantic].serve(request.module.modules(running[pydantic]))
        return running[pydantic]

    yield give
    for one in running.values():
        if one.crib:
            print(one.crib.stderr[-8000:])
            one.crib.stop()


@pytest.fixture
def framework(served):
    """The framework with the newest pydantic that it allows."""
    return served("newest")


@pytest.fixture(params=["newest", "oldest"])
def each_pydantic(served, request):
    """The framework with the newest and with the oldest pydantic that it allows."""
    return served(request.param)


def plain(schema, definitions=None):
    """A schema in normal form: references are followed; titles that only repeat the names, and keywords that repeat a default, are
    removed, and so is null for a parameter that is optional: Strands accepts it there, but its schema does not say so."""
    if isinstance(schema, list):
        return [plain(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return plain({**definitions[schema["$ref"].rpartition("/")[2]], **{key: one for key, one in schema.items() if key != "$ref"}}, definitions)
    output = {key: {name: plain(one, definitions) for name, one in value.items()} if key == "properties" else plain(value, definitions)
            for key, value in schema.items() if key != "$defs" and not (key == "title" and isinstance(value, str))}
    for keyword, idle in (("additionalProperties", True), ("required", [])):
        if output.get(keyword) == idle:
            del output[keyword]
    if isinstance(output.get("properties"), dict):
        output["properties"] = {name: one if name in output.get("required", []) else without_null(one) for name, one in output["properties"].items()}
    return output


def without_null(part):
    if isinstance(part, dict) and "default" in part and part["default"] is None:
        part = {key: one for key, one in part.items() if key != "default"}
    kinds = part.get("anyOf", []) if isinstance(part, dict) else []
    if len(kinds) == 2 and {"type": "null"} in kinds:
        kind = kinds[1 - kinds.index({"type": "null"})]
        part = {**kind, **{key: one for key, one in part.items() if key != "anyOf"}}
    return part


def json_or_text(text):
    """JSON is equal however it is spaced."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def compare(framework, module, calls, prefix=""):
    """Compares each tool's definition and each call's result of the service with those of the framework."""
    output = framework.framework_output(module, calls)
    listed = {tool["name"]: tool for tool in framework.crib.get("/tools").json["tools"]}
    for name, own in output["tools"].items():
        ours = listed[prefix + name]
        assert ours["description"].strip() == own["description"].strip(), name
        schemas = [plain(schema) for schema in (ours["input_schema"], own["schema"])]
        for schema in schemas:
            schema.pop("description", None)  # pydantic's model has one, the tool has its own
        assert schemas[0] == schemas[1], name
        assert ours["kind"] == "python" and ours["available"] is True
    for (name, arguments), own in zip(calls, output["results"]):
        reply = framework.crib.invoke(prefix + name, arguments)
        answer = (error_result if own["is_error"] else ok)(reply)
        if own.get("json") is not None:
            assert answer["structured_content"] == own["json"], (name, arguments)
        else:
            said_by_them = "\n".join(own["texts"])
            assert text_of(answer) == said_by_them or json_or_text(text_of(answer)) == json_or_text(said_by_them), (name, arguments)
    return output
