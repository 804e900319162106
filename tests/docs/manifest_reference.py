"""Makes docs/reference/manifest.md, and the schema beside it, from what `toolcrib schema` prints.

    python3 tests/docs/manifest_reference.py [PATH OF THE PROGRAM]
"""

import json
import pathlib
import subprocess
import sys

from pages import BOOK, REPO

PAGE = BOOK / "reference" / "manifest.md"
SCHEMA = BOOK / "reference" / "manifest.schema.json"

HEAD = """# Manifest

<!-- Made by tests/docs/manifest_reference.py from the code that reads manifests. Do not edit. -->

Every key of the manifest, with its type, its default and an example. [The manifest](../tools/manifest.md)
explains how the parts fit together. An unknown key is an error.

`toolcrib schema` prints the same as a JSON Schema, and [manifest.schema.json](manifest.schema.json) is that
schema. An editor with a YAML language server completes and checks keys after this first line:

```yaml,norun=a-comment
# yaml-language-server: $schema=./manifest.schema.json
```

- A **duration** has a unit: `250ms`, `30s`, `5m`, `24h`, `30d`.
- A **size** has a unit: `64KiB`, `1MiB`.
- A text may hold `${env:NAME}` or `${file:PATH}`. [Secrets and variables](../tools/secrets.md) has the rules.
"""

SECTIONS = [
    ("server", "Server", "The HTTP service."),
    ("ledger", "Ledger", "The record of calls. [Ledger and backup](../operate/backup.md) explains its file."),
    ("cache", "Cache", "Results in memory, and in Redis. [Cache results](../howto/caching.md) explains when a result is kept."),
    ("results", "Results", "How much of a result an answer shows. [Long results](../howto/long-results.md#keep-long-results-out-of-the-context) explains it."),
    ("telemetry", "Telemetry", "A collector of OpenTelemetry. [Telemetry](../operate/telemetry.md) explains what it gets."),
    ("compat", "Compat", "The HTTP APIs of other servers. [Move from MCP Toolbox](../howto/toolbox.md) shows how its clients use them."),
    ("calls", "CallSettings", "How [`POST /calls`](http-api.md) reads messages of models, and how names are matched."),
    ("toolsets", "ToolsetEntry", "A map of toolsets by name. [Offer many tools](../howto/many-tools.md#toolsets) shows their use."),
    ("discovery", "Discovery", "Shortens long lists to the tools that find and call the others. [Offer many "
     "tools](../howto/many-tools.md#lists-that-shorten-themselves) explains it."),
    ("callers", "Caller", "A list of clients with keys. [Callers and keys](../operate/callers.md) explains their rights."),
]
# Keys of a key: the object that stands there.
NESTED = {"retry": "Retry", "limits": "Limit", "cache": "CacheEntry", "concurrency": "ConcurrencyEntry", "env": "EnvVar",
          "request": "RequestConfig", "response": "ResponseConfig", "model": "ModelConfig", "budget": "Budget"}
KINDS = [
    ("http", "HttpTool", "[HTTP](../tools/http.md)"), ("command", "CommandTool", "[Command](../tools/command.md)"),
    ("sql", "SqlTool", "[SQL](../tools/sql.md)"), ("agent", "AgentTool", "[Agent](../tools/agent.md)"),
    ("native", "NativeTool", "[Built-ins](../tools/builtins.md)"),
]
BUILTINS = [("read_file", "ReadFileSettings"), ("http_get", "HttpGetSettings"), ("add_image", "AddImageSettings"),
            ("run_script", "RunScriptSettings"), ("delegate_work` and `ask_question", "DelegateSettings")]


class Page:
    def __init__(self, schema):
        self.schema, self.definitions, self.lines = schema, schema["$defs"], [HEAD]
        self.policy = set(schema["properties"]["defaults"]["properties"])

    def heading(self, level, text, about=""):
        self.lines.append(f"{'#' * level} {text}\n")
        if about:
            self.lines.append(about + "\n")

    def table(self, properties, required=()):
        self.lines.append("| key | type | default | example | meaning |\n| --- | --- | --- | --- | --- |")
        for key, property in properties.items():
            default = "required" if key in required else f"`{to_yaml_text(property['default'])}`" if "default" in property else ""
            examples = property.get("examples") or []
            example = f"`{to_yaml_text(examples[0])}`" if examples else ""
            cells = [f"`{key}`", self.type_of(property), default, example, self.meaning(property)]
            self.lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        self.lines.append("")

    def resolved(self, property):
        """The property with what it refers to, and without null, which stands for an absent key."""
        options = [option for option in property.get("anyOf", []) if option.get("type") != "null"]
        if len(options) == 1:
            property = {**property, "anyOf": [], **options[0]}
        if "$ref" in property:
            name = property["$ref"].rpartition("/")[2]
            property = {**self.definitions[name], "name": name, **{key: value for key, value in property.items() if key == "description"}}
        return property

    def type_of(self, property):
        property = self.resolved(property)
        forms = [option for option in property.get("anyOf", []) if option.get("type") != "null"]
        if forms:
            return " or ".join(dict.fromkeys(self.type_of(form) for form in forms))
        if property.get("name") in ("Duration", "Size"):
            return property["name"].lower()
        if words := self.enum_words(property):
            return ", ".join(f"`{word}`" for word, _ in words)
        if "const" in property:
            return f"`{property['const']}`"
        kinds = property.get("type", "any")
        kind = next((kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"), "any")
        if kind == "array":
            inner = self.type_of(property.get("items", {}))
            return "list" if inner in ("any", "object") else f"list of {inner}"
        return {"object": "map", "string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}.get(kind, kind)

    def enum_words(self, property):
        """(word, meaning) of a type that is one of several words."""
        if "enum" in property:
            return [(word, "") for word in property["enum"] if word is not None]
        return [(option["const"], option.get("description", "")) for option in property.get("oneOf", []) if "const" in option]

    def meaning(self, property):
        text = " ".join(property.get("description", "").split())
        words = [(word, meaning) for word, meaning in self.enum_words(self.resolved(property)) if meaning]
        return " ".join([text, *(f"`{word}`: {' '.join(meaning.split())}" for word, meaning in words)]).strip()

    def object(self, level, title, name, about="", without=()):
        definition = self.definitions[name]
        self.heading(level, title, about)
        properties = {key: value for key, value in definition["properties"].items() if key not in without}
        self.table(properties, definition.get("required", ()))
        return properties

    def nested(self, level, under, properties, done):
        for key in properties:
            name = NESTED.get(key)
            if name and (under, name) not in done and self.refers(properties[key], name):
                done.add((under, name))
                self.nested(level, f"{under}.{key}", self.object(level, f"`{under}.{key}`", name), done)

    @staticmethod
    def refers(property, name):
        return f'"#/$defs/{name}"' in json.dumps(property)

    def render(self):
        for key, name, about in SECTIONS:
            self.object(2, f"`{key}`", name, about)
        self.heading(2, "`include`", self.schema["properties"]["include"]["description"] + " Paths are relative to the manifest.")
        self.lines.append("```yaml,norun=needs-other-files\ninclude: [\"tools.d/*.yaml\"]\n```\n")
        self.heading(2, "`defaults`", "Policy of every tool that has no such key of its own. Each tool takes the same keys.")
        policy = self.schema["properties"]["defaults"]["properties"]
        self.table(policy)
        self.nested(3, "defaults", policy, set())
        tool = self.definitions["HttpTool"]["properties"]
        own = {kind: {key: value for key, value in self.definitions[name]["properties"].items()} for kind, name, _ in KINDS}
        common = [key for key in tool if all(key in keys for keys in own.values())]
        shared = {key: tool[key] for key in common if key not in self.policy and key != "kind"}
        self.heading(2, "`tools`", "A map of tools by name. A tool has a `kind`, the keys of this table, the keys of "
                     "[`defaults`](#defaults), and the keys of its kind.")
        kinds = " or ".join(f"`{kind}`" for kind, _, _ in KINDS)
        self.table({"kind": {"description": f"What runs the tool: {kinds}.", "type": "string", "examples": ["http"]}, **shared}, ["kind"])
        self.nested(3, "tools.NAME", shared, set())
        for kind, name, page in KINDS:
            definition = self.definitions[name]
            keys = {key: value for key, value in definition["properties"].items() if key not in common}
            self.heading(3, f"Kind `{kind}`", f"{page} explains the kind.")
            self.table(keys, definition.get("required", ()))
            self.nested(4, kind, keys, set())
        self.heading(3, "Settings of built-ins", "Keys of `with:`. The other built-ins have no settings.")
        for words, name in BUILTINS:
            self.object(4, f"`{words}`", name)
        source = self.definitions["SourceTool"]["properties"]
        own = ", ".join(f"`{key}`" for key in source if key not in self.policy)
        about = f"Each entry takes the keys of [`defaults`](#defaults), and {own} as in [`tools`](#tools)."
        self.object(2, "`python_modules`", "ModuleEntry", "A map of Python files and modules by name. [Python](../tools/python.md) explains them.")
        self.heading(3, "`python_modules.NAME.tools`", about)
        self.object(2, "`mcp_servers`", "ServerEntry", "A map of MCP servers by name. [MCP](../tools/mcp.md) explains them.")
        self.heading(3, "`mcp_servers.NAME.tools`", about)
        self.object(2, "`openapi`", "ApiEntry", "A map of OpenAPI documents by name. [OpenAPI](../tools/openapi.md) explains them.")
        self.heading(3, "`openapi.NAME.tools`", about)
        return "\n".join(self.lines).rstrip() + "\n"


def to_yaml_text(value):
    """The value as YAML in one line: JSON, without quotes where YAML needs none."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def made_from(binary):
    """(path, text) of each file."""
    text = subprocess.run([binary, "schema"], capture_output=True, text=True, check=True).stdout
    return [(PAGE, Page(json.loads(text)).render()), (SCHEMA, text)]


if __name__ == "__main__":
    program = sys.argv[1] if len(sys.argv) > 1 else str(REPO / "target" / "release" / "toolcrib")
    for path, text in made_from(program):
        path.write_text(text, encoding="utf-8")
