"""An MCP server of few lines and bad manners, for the tests beside it. What it does is said by its arguments."""
import json, os, sys, threading, time

QUIRKS = set(sys.argv[1:])
LOCK = threading.Lock()
# Where the messages of the request at hand go, where that is not standard output; and its headers.
REQUEST = threading.local()
SESSIONS = set()
CANCELLED = {}
ANSWERS = {}
EXTRA = []
LISTENER = []


def write(message):
    if getattr(REQUEST, "send", None):
        return REQUEST.send(message)
    with LOCK:
        if "babble" in QUIRKS:
            sys.stdout.write("x" * 5_000_000)
        sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def tool(name, properties=None, **more):
    schema = {"type": "object", "properties": properties or {}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
TOOLS = [
    tool("echo", {"text": TEXT}, title="Echo", annotations={"readOnlyHint": True}),
    tool("pid"), tool("die"), tool("hang"), tool("slow", {"seconds": NUMBER, "mark": TEXT, "until": TEXT}), tool("big", {"bytes": NUMBER}),
    tool("chatter"), tool("progress"), tool("refuse", {"code": NUMBER}), tool("helper"), tool("environment"),
    tool("ask"), tool("grow"), tool("meta"), tool("shout", {"text": TEXT}), tool("forget"), tool("shut"), tool("pester"), tool("mum"), tool("babble"), tool("headers"), tool("weather", outputSchema={
        "type": "object", "properties": {"celsius": NUMBER}, "required": ["celsius"]}),
]


def text(words):
    return {"content": [{"type": "text", "text": str(words)}]}


def slow(arguments, id):
    """Ends early when it is cancelled, and says so in a file. With `until` it ends when that file exists."""
    if "began" in arguments:
        open(arguments["began"], "w").close()
    while "until" in arguments:
        if os.path.exists(arguments["until"]):
            return text("slept")
        time.sleep(0.01)
    cancelled = CANCELLED.setdefault(id, threading.Event())
    if cancelled.wait(arguments["seconds"]):
        open(arguments["mark"], "w").close()
    return text("slept")


def ask(arguments, id):
    ANSWERS["a1"] = threading.Event()
    write({"jsonrpc": "2.0", "id": "a1", "method": "sampling/createMessage",
           "params": {"messages": [], "maxTokens": 1}})
    ANSWERS["a1"].wait(10)
    return text(json.dumps(ANSWERS["a1"].answer))


def call(name, arguments, id, meta):
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "pid":
        return text(os.getpid())
    if name == "die":
        print("I cannot go on", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "slow":
        return slow(arguments, id)
    if name == "big":
        return text("x" * int(arguments["bytes"]))
    if name == "chatter":
        with LOCK:
            sys.stdout.write("Listening...\n\n{\"level\":\"info\"}\n[1,2\n")
        return text("said")
    if name == "progress":
        for n in range(1, 6):
            if "progressToken" in meta:
                write({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": meta["progressToken"], "progress": n, "total": 5, "message": f"step {n}"}})
        return text("progressToken" in meta)
    if name == "refuse":
        raise LookupError(int(arguments["code"]))
    if name == "helper":
        import subprocess
        return text(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    if name == "environment":
        return text(json.dumps(dict(os.environ)))
    if name == "ask":
        return ask(arguments, id)
    if name == "grow":
        EXTRA.append(tool("grown"))
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "meta":
        return text(json.dumps(meta))
    if name == "shout":
        print(arguments["text"], file=sys.stderr, flush=True)
        return text("shouted")
    if name == "forget":
        SESSIONS.clear()
        return text("forgotten")
    if name == "mum":
        os.close(1)
    if name == "babble":
        QUIRKS.add("babble")
    if name == "shut":
        QUIRKS.add("shut")
        LISTENER[0].shutdown()
        LISTENER[0].server_close()
        return text("nobody else is let in")
    if name == "headers":
        return text(json.dumps({key.lower(): value for key, value in REQUEST.headers.items()}))
    if name == "weather":
        return {"content": [], "structuredContent": {"celsius": 21.5}}
    raise LookupError(-32602)


def deep_tool():
    schema = {}
    for _ in range(400):
        schema = {"properties": {"a": schema}}
    return dict(tool("deep"), inputSchema=dict(schema, type="object"))


def tools(cursor):
    if "endless" in QUIRKS or os.path.exists("endless"):
        return {"tools": [tool("a")], "nextCursor": "again"}
    if "spoiled" in QUIRKS:
        return {"tools": [tool("good"), {"name": "no_schema", "inputSchema": 7}, tool("good"), {
            "name": "odd_root", "inputSchema": {"type": "string"}}, tool("bad_pattern", {"a": {"type": "strin"}}), tool(""), tool(" "),
            deep_tool(), {"name": "untyped", "inputSchema": {"properties": {"a": {"type": "string"}}}}, tool("also_good"),
            {"name": "bare"}, dict(tool("hinted"), annotations={"readOnlyHint": "yes"}),
            {"name": "null_words", "inputSchema": {"type": "object", "required": None, "properties": {
                "required": {"type": "object", "properties": [], "required": True}}}}]}
    if "wordy" in QUIRKS:
        return {"tools": [{"name": "n" * 1_000_000, "inputSchema": 7}], "nextCursor": str(int(cursor or 0) + 1)}
    if "windy" in QUIRKS:
        return {"tools": [], "nextCursor": str(int((cursor or "0").split()[0]) + 1) + " " * 1_000_000}
    if "crowd" in QUIRKS:
        return {"tools": [tool(f"t{n}") for n in range(2000)]}
    every = TOOLS + EXTRA + ([tool("late")] if os.path.exists("late") else [])
    if os.path.exists("other"):
        every = [dict(one, description="Does something else.") if one["name"] == "pid" else one for one in every]
    at = int(cursor or 0)
    return {"tools": every[at:at + 5], **({"nextCursor": str(at + 5)} if at + 5 < len(every) else {})}


def answer(id, method, params):
    try:
        if method == "initialize" and "strict" in QUIRKS:
            raise LookupError(-32022)
        if method == "initialize" and "picky" in QUIRKS and params["protocolVersion"] != "2025-03-26":
            raise LookupError(-32602, {"supported": ["2024-11-05", "2025-03-26"], "requested": params["protocolVersion"]})
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                      "serverInfo": {"name": "bad manners", "version": "1"}}
        elif method == "server/discover" and "modern" in QUIRKS:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}},
                      "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
        elif method == "ping" and "modern" not in QUIRKS:
            result = {}
        elif method == "tools/list":
            result = tools(params.get("cursor"))
        elif method == "tools/call":
            result = call(params["name"], params.get("arguments", {}), id, params.get("_meta", {}))
        elif "hollow" in QUIRKS:
            result = {}
        else:
            raise LookupError(-32601)
        if "vague" in QUIRKS and method == "server/discover":
            result = {"supportedVersions": ["2026-07-28", 7], "capabilities": {"tools": []}, "ttlMs": None}
        elif "modern" in QUIRKS:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public", **result}
        if "backwards" in QUIRKS:
            write({"result": result, "id": id, "jsonrpc": "2.0"})
        else:
            write({"jsonrpc": "2.0", "id": id, "result": result})
    except LookupError as error:
        data = {"data": error.args[1]} if error.args[1:] else {}
        write({"jsonrpc": "2.0", "id": id, "error": {"code": error.args[0], "message": "no such luck", **data}})


class Http:
    """What a handler of http.server does; `listener` joins the two."""

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        if "shut" in QUIRKS:
            headers["connection"] = "close"
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        SESSIONS.discard(self.headers.get("mcp-session-id"))
        open("deleted", "w").close()
        self.reply(200)

    def event(self, message):
        data = f"event: message\ndata: {json.dumps(message)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if "locked" in QUIRKS and self.headers.get("authorization") != "Bearer let-me-in":
            return self.reply(401, b"{}", content_type="application/json", www_authenticate="Bearer")
        if "slash" in QUIRKS and not self.path.endswith("/"):
            return self.reply(307, location=self.path + "/")
        if "moved" in QUIRKS:
            return self.reply(307, location="https://elsewhere.example/mcp?token=x")
        if "modern" not in QUIRKS and method not in ("initialize", "server/discover"):
            if self.headers.get("mcp-session-id") not in SESSIONS:
                if "dead" in QUIRKS:
                    return self.reply(202) if id is None else self.reply(200, content_type="text/event-stream")
                if "gone" in QUIRKS:
                    return self.reply(410)
                if "confused" in QUIRKS:
                    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
                    return self.reply(400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), content_type="application/json")
                return self.reply(404)
        if id is None:
            return self.reply(202)
        session = {}
        if method == "initialize":
            session = {"mcp_session_id": f"session-{time.monotonic_ns()}"}
            SESSIONS.update(session.values())
        if method == "server/discover" and "modern" not in QUIRKS:
            return self.reply(400, b"Bad Request: no session")
        said = []
        REQUEST.headers, REQUEST.send = self.headers, said.append
        if "sse" in QUIRKS:
            self.send_response(200)
            for name, value in {"content-type": "text/event-stream", "transfer-encoding": "chunked", **session}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            REQUEST.send = self.event
            answer(id, method, params)
            self.wfile.write(b"0\r\n\r\n")
        else:
            answer(id, method, params)
            self.reply(200, json.dumps(said[-1]).encode(), content_type="application/json", **session)


def listener(port):
    # Imported only here: it takes several times as long to import as the rest of this server to start.
    import http.server
    handler = type("Handler", (Http, http.server.BaseHTTPRequestHandler), {"protocol_version": "HTTP/1.1"})
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


def main():
    if "late" in QUIRKS:
        time.sleep(0.5)
    if "stillborn" in QUIRKS:
        open("starts", "a").write("x")
        print("no licence found", file=sys.stderr, flush=True)
        sys.exit(4)
    if "http" in QUIRKS:
        port = next(int(quirk[5:]) for quirk in QUIRKS if quirk.startswith("port="))
        LISTENER.append(listener(port))
        LISTENER[0].serve_forever(0.02)
        time.sleep(600)
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            ANSWERS[id].answer = message
            ANSWERS[id].set()
        elif method == "notifications/cancelled":
            CANCELLED.setdefault(params["requestId"], threading.Event()).set()
        elif id is None or ("mute" in QUIRKS and method == "server/discover"):
            pass
        elif method == "subscriptions/listen":
            key = {"_meta": {"io.modelcontextprotocol/subscriptionId": id}}
            write({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                   "params": {"notifications": {"toolsListChanged": True}, **key}})
        elif method == "tools/call" and params["name"] == "hang":
            open("hangs", "w").close()
            time.sleep(600)
        elif method == "tools/call" and params["name"] == "pester":
            while True:
                write({"jsonrpc": "2.0", "id": "p" * 200, "method": "ping"})
        else:
            threading.Thread(target=answer, args=(id, method, params), daemon=True).start()
    if "stubborn" in QUIRKS:
        time.sleep(600)


if "stubborn" in QUIRKS:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
main()
