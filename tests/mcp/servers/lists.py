"""`lists.py WAY [FILE]`: a server with an unusual tool list."""

import json
import os
import pathlib
import sys
import threading
import time

from wire import OBJECT, Server, append_line, text, tool

sys.setrecursionlimit(100_000)
WAY = sys.argv[1]
FILE = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None


def deep(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


TREE = {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "required": ["value"]}
SCHEMAS = {
    "no_object": {"type": "string"},
    "a_list": [1, 2],
    "not_compilable": {"type": "object", "properties": {"a": {"type": "strin"}}},
    "bad_pattern": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    "far_ref": {"type": "object", "properties": {"a": {"$ref": f"http://127.0.0.1:{os.environ.get('TRAP', '1')}/schema.json"}}},
    "file_ref": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
    "no_such_ref": {"type": "object", "properties": {"a": {"$ref": "#/$defs/nowhere"}}},
    "circle": {"$ref": "#"},
    "deep": deep(30),
    "tree": {"type": "object", "properties": {"root": {"$ref": "#/$defs/tree"}}, "required": ["root"], "$defs": {"tree": TREE}},
    "fine": OBJECT,
}
NAMES = ["get weather", "files/read", "naïve", "größe", "工具", "a.b", "a-b", "", "x" * 300, "new\nline", "\u202egnp", "ok", "UPPER", "$(id)", "../up", "\x1b[2Jclear"]
COLOURED = "Reads \x1b[31mred\x1b[0m files.\x07\x00\u202e\U000e0041 Then\tthat's it.\nTwo lines."


class Lists(Server):
    def on_tools_list(self, number, params):
        append_line("LISTED", json.dumps(params))
        if WAY == "endless":
            page = int(params.get("cursor", 0))
            return self.answer(number, {"tools": [tool(f"tool_{page}")], "nextCursor": str(page + 1)})
        if WAY == "same_cursor":
            return self.answer(number, {"tools": [tool("again")], "nextCursor": "x"})
        if WAY == "pages":
            page = int(params.get("cursor", 0))
            more = {"nextCursor": str(page + 1)} if page < 9 else {}
            return self.answer(number, dict({"tools": [tool(f"tool_{page}")]}, **more))
        if WAY == "file":
            self.tools = json.loads(FILE.read_text())
        if WAY == "no_list":
            return self.answer(number, {"tools": "none"})
        super().on_tools_list(number, params)


def watch(server):
    """Notifies of list changes: of the file, or without a pause."""
    before = FILE and FILE.read_text()
    while True:
        if WAY == "loop":
            server.notify("notifications/tools/list_changed")
            continue
        time.sleep(0.05)
        now = FILE.read_text()
        if now != before:
            before = now
            server.notify("notifications/tools/list_changed")


TOOLS = {
    "many": [tool(f"tool_{number}", schema={"type": "object", "properties": {"n": {"type": "integer"}}}) for number in range(10_000)],
    "duplicates": [tool("one", "The first."), tool("two"), tool("one", "The second.")],
    "names": [tool(name) for name in NAMES],
    "coloured": [tool("coloured", COLOURED, {"type": "object", "properties": {"a": {"type": "string", "description": COLOURED}}},
                      title=COLOURED, annotations={"title": COLOURED})],
    "schemas": [tool(name, schema=schema) for name, schema in SCHEMAS.items()],
    "very_deep": [tool("very_deep", schema=deep(3000)), tool("fine")],
    "bad_output": [tool("bad_output", outputSchema={"type": "strin"}), tool("fine")],
    "half": [{"name": "no_schema"}, {"description": "no name", "inputSchema": OBJECT}, "words", None, tool("fine")],
    "tasks": [tool("as_task", execution={"taskSupport": "required"}), tool("either", execution={"taskSupport": "optional"}), tool("fine")],
    "none": [],
    "left": [tool("b_c"), tool("own")],
    "right": [tool("c")],
    "huge": [tool("fine", "d" * 5_000_000)],
    "hints": [tool("reads", annotations={"readOnlyHint": True, "idempotentHint": True, "title": "Reads"}),
              tool("destroys", annotations={"readOnlyHint": False, "destructiveHint": True})],
}


class Any(dict):
    """A call of any tool returns its name."""

    def get(self, name, default=None):
        return lambda server, message: text(f"{name} of {os.getpid()}")


server = Lists(TOOLS.get(WAY, [tool("fine")]))
server.calls = Any()
if WAY in ("loop", "file"):
    threading.Thread(target=watch, args=(server,), daemon=True).start()
server.run()
