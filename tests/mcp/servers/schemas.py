"""A server whose schemas are as other people write them. Each call answers with its arguments, or with what RESULTS has."""

import json

from wire import Server, text, tool

LOOKS_AHEAD = r"^(?=.*[A-Z])(?=.*\d).{8,}$"


def of(**properties):
    return {"type": "object", "properties": properties}


INPUTS = {
    "none": of(x={"type": "integer", "default": None}),
    "nested": of(x={"type": "object", "properties": {"y": {"type": "string"}}, "default": {"y": 1}}, y={"default": "kept"}),
    "naive": of(at={"type": "string", "format": "date-time", "default": "2024-01-01T10:00:00"}),
    "password": of(p={"type": "string", "pattern": LOOKS_AHEAD}),
    "slow_pattern": of(p={"type": "string", "pattern": r"^(a|a)*\1b$"}),
    "broken_pattern": of(p={"type": "string", "pattern": "^[a-z", "description": "A word"}),
    "one_of": of(value={"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}),
    "enum": of(version={"type": "string", "enum": [4.1, 4]}),
}
RESULTS = {
    "naive_result": {"at": "2024-05-05T10:00:00"},
    "other_result": {"at": 5},
    "no_result": None,
}
OUTPUT = {**of(at={"type": "string", "format": "date-time"}), "required": ["at"]}


def call(server, message):
    name = message["params"]["name"]
    if name in RESULTS:
        return text("done", **({} if RESULTS[name] is None else {"structuredContent": RESULTS[name]}))
    return text(json.dumps(message["params"].get("arguments")))


tools = [tool(name, schema=schema) for name, schema in INPUTS.items()] + [tool(name, outputSchema=OUTPUT) for name in RESULTS]
Server(tools, {name: call for name in (*INPUTS, *RESULTS)}).run()
