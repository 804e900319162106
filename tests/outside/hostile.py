"""Requests that cost more than their size: one list for every parser that reads what a caller sends. `requests(size)` names each with
the bytes of its body near `size`. A test asserts their cost for other callers, not the answer."""

import json
import urllib.parse

from recipes import sh

JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}}


def mcp(method, name=None):
    """Headers of a call without a session."""
    head = {"content-type": "application/json", "accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN,
            "mcp-method": method}
    return {**head, "mcp-name": name} if name else head


def form(*names):
    return {"type": "object", "required": list(names), "additionalProperties": False,
            "properties": {name: {"type": "string"} for name in names}}


def manifest():
    """Tools with every kind of position that a caller's value can have. No call of the list reaches a server."""
    nowhere = "http://127.0.0.1:9"
    text = {"type": "string"}
    return {"tools": {
        "calculator": {"kind": "native"},
        "path": {"kind": "http", "description": "A value in a path.", "effect": "read",
                 "parameters": {"name": text}, "request": {"url": f"{nowhere}/items/{{{{ name }}}}/x", "allow_private": True}},
        "places": {"kind": "http", "description": "Values in other places.", "effect": "read",
                   "parameters": {"q": text, "head": text, "body": {"type": "object"}},
                   "request": {"method": "POST", "url": f"{nowhere}/?q={{{{ q }}}}", "allow_private": True,
                               "headers": {"x-head": "{{ head }}"}, "json": {"body": "{{ body }}"}}},
        "fetch": {"kind": "native", "use": "http_get"},
        "lists": sh("exec cat >/dev/null", effect="read", input_schema={
            "type": "object", "properties": {"items": {"type": "array", "items": {"anyOf": [
                form("a", "b"), form("c", "d"), {"type": "null"}]}}}}),
        "wide": sh("exec cat >/dev/null", effect="read", input_schema={
            "type": "object", "additionalProperties": False,
            "properties": {f"property_{n}": {"type": "string"} for n in range(18)}}),
        "formats": sh("exec cat >/dev/null", effect="read", input_schema={
            "type": "object", "properties": {
                "set": {"type": "array", "uniqueItems": True}, "mail": {"type": "string", "format": "email"},
                "when": {"type": "string", "format": "date-time"}, "link": {"type": "string", "format": "uri"},
                "host": {"type": "string", "format": "idn-hostname"}, "like": {"type": "string", "pattern": "^(a+)+$"},
                "count": {"type": "integer", "multipleOf": 0.01}}}),
        "kept": sh("printf '%s' ok", effect="read", cache={"ttl": "1m", "context": [], "when": "args.v|lower != result|trim"},
                   parameters={"v": {"type": "string"}}),
    }}


# Shapes of a text that is long: each is repeated.
SHAPES = {"segments": "a/", "parents": "../", "selves": "./", "slashes": "/", "dots": ".", "escapes": "%2e", "brackets": "[",
          "spaces": " ", "unicode": "ü\u202e/", "one name": "a"}


def text_manifest():
    """A tool for each place to which a call brings a text: a built-in, a file name, a host, a header, a pattern, an expression."""
    text = {"a": {"type": "string"}}
    nowhere = "http://127.0.0.1:9"

    def web(**request):
        return {"kind": "http", "description": "A value in a request.", "effect": "read", "parameters": text,
                "request": dict({"url": nowhere + "/", "allow_private": True}, **request)}

    def native(use, **settings):
        return dict({"kind": "native", "use": use}, **({"with": settings} if settings else {}))

    shell = ["/bin/sh", "-c", "exec true"]
    return {"tools": {
        "add_image": native("add_image", root="."), "add_image_url": native("add_image"), "ask_question": native("ask_question"),
        "calculator": native("calculator"), "current_time": native("current_time"), "delegate_work": native("delegate_work"),
        "http_get": native("http_get"), "http_get_listed": native("http_get", allow_hosts=["a.example"]),
        "read_cache": native("read_cache"), "read_file": native("read_file", root="."),
        "read_file_deep": native("read_file", root=".", deny=["**/a/**/a/*.b", "a/**", "[!x]*"]),
        "read_result": native("read_result"),
        "output_file": sh("exec true", effect="read", parameters=text, output={"file": "out/{{ a }}"}),
        "printed_file": sh("exec cat", effect="read", parameters=text, stdin="{{ a }}", output={"file": "{{ stdout }}"}),
        "argument": {"kind": "command", "description": "A value on the command line.", "effect": "read", "parameters": text,
                     "command": shell + ["{{ a }}"]},
        "input": {"kind": "command", "description": "A value on standard input.", "effect": "read", "parameters": text,
                  "command": shell, "stdin": "{{ a }}"},
        "path": web(url=nowhere + "/{{ a }}/x"), "query": web(url=nowhere + "/?a={{ a }}"),
        "host": web(url="http://{{ a }}/", allow_hosts=["a.example"], allow_private=False),
        "header": web(headers={"x-a": "{{ a }}"}), "form": web(method="POST", form={"a": "{{ a }}"}),
        "denied": sh("exec true", effect="read", parameters=text, deny_when=[
            {"when": "args.a|lower|trim == 'x' or 'b' in args.a or args.a|upper|length == 3", "say": "No."}]),
        "format": sh("exec true", effect="read", input_schema={"type": "object", "required": ["a"], "properties": {"a": {
            "type": "string", "pattern": "^(a|/|\\.)+(%2e)*$", "format": "uri-reference"}}}),
    }}


def texts(size):
    """Requests with a long text of each shape, for each tool of `text_manifest`. The names of arguments are those of the built-ins."""
    keys = {"add_image": "source", "add_image_url": "source", "calculator": "expression", "current_time": "timezone", "http_get": "url",
            "http_get_listed": "url", "read_cache": "key", "read_file": "path", "read_file_deep": "path", "read_result": "invocation_id"}
    before = {"http_get": "http://a.example/", "http_get_listed": "http://", "add_image_url": "https://a.example/?", "read_cache": "tool:"}
    for shape, unit in SHAPES.items():
        text = unit * (size // len(unit.encode()))
        for tool in text_manifest()["tools"]:
            value = before.get(tool, "") + text
            arguments = {keys.get(tool, "a"): value}
            if tool == "ask_question":
                arguments = {"question": "x", "context": "y", "coworker": value}
            if tool == "delegate_work":
                arguments = {"task": "x", "context": "y", "coworker": value}
            body = json.dumps({"arguments": arguments}, ensure_ascii=False)
            yield f"{tool} {shape}", ("POST", f"/tools/{tool}/invoke", JSON, body)


def nested(size, opening, closing, inside="1"):
    times = size // (len(opening) + len(closing))
    return opening * times + inside + closing * times


def arguments(size):
    """Pairs of a tool and the text of its arguments."""
    many = lambda item, length: "[" + ",".join([item] * (size // (length + 1))) + "]"
    keys = lambda pattern: "{" + ",".join(f'"{pattern % n}":1' for n in range(size // (len(pattern % 1) + 6))) + "}"
    text = lambda **fields: json.dumps(fields, ensure_ascii=False)
    yield "path %25", "path", text(name="%" + "25" * (size // 2))
    yield "path %%%", "path", text(name="%" * size)
    yield "path dots", "path", text(name="../" * (size // 3))
    yield "path ligatures", "path", text(name="\ufdfa" * (size // 3))
    yield "path segments", "path", text(name="/" * size)
    yield "query value", "places", text(q="%é" * (size // 3), head="x", body={})
    yield "header value", "places", text(q="x", head="x" * size, body={})
    yield "body value", "places", '{"q":"x","head":"x","body":' + nested(min(size, 1200), '{"a":', "}") + "}"
    yield "url", "fetch", text(url="http://" + "a." * (size // 2))
    yield "url host", "fetch", text(url="http://" + "ü" * (size // 2) + "/")
    yield "url dots", "fetch", text(url="http://h/" + "a/../" * (size // 5))
    yield "expression", "calculator", text(expression="(" * size)
    yield "expression sums", "calculator", text(expression="1+" * (size // 2) + "1")
    yield "expression powers", "calculator", text(expression="9**" * (size // 3) + "9")
    yield "expression names", "calculator", text(expression="abs" * (size // 3))
    yield "expression digits", "calculator", text(expression="9" * size)
    yield "anyOf list", "lists", '{"items":' + many("{}   ", 5) + "}"
    yield "anyOf near list", "lists", '{"items":' + many('{"a":"x","b":1}', 15) + "}"
    yield "anyOf numbers", "lists", '{"items":' + many("7", 1) + "}"
    yield "unknown keys", "wide", keys("k%d")
    yield "near keys", "wide", keys("property_%d")
    yield "repeated letters", "wide", keys("propertypropertyproperty%d")
    yield "one long key", "wide", text(**{"p" * size: 1})
    yield "wrong types", "wide", "{" + ",".join(f'"property_{n % 18}{"" if n < 18 else n}":1' for n in range(size // 20)) + "}"
    yield "unique numbers", "formats", '{"set":[' + ",".join(map(str, range(size // 7))) + "]}"
    yield "unique objects", "formats", '{"set":[' + ",".join(f'{{"a":{n}}}' for n in range(size // 13)) + "]}"
    yield "unique same", "formats", '{"set":' + many("[1]  ", 5) + "}"
    yield "mail", "formats", text(mail="a@" + "b." * (size // 2))
    yield "time", "formats", text(when="2026-01-01T00:00:00." + "0" * size + "Z")
    yield "link", "formats", text(link="http://[" + ":" * size)
    yield "idn host", "formats", text(host="ü" * (size // 2))
    yield "pattern", "formats", text(like="a" * size + "b")
    yield "digits", "formats", '{"count":' + "9" * size + "}"
    yield "exponent", "formats", '{"count":1e' + "9" * size + "}"
    yield "fraction", "formats", '{"count":0.' + "0" * size + "1}"
    yield "text as JSON", "formats", text(set=json.dumps([1] * (size // 8)))
    yield "text as nested JSON", "formats", text(set="[" * (size // 2) + "]" * (size // 2))
    yield "cached", "kept", text(v="A" * size)


def broken_json(size):
    """Texts that are invalid JSON, or that only a repair makes JSON."""
    call = '{"tool_name":"calculator","arguments":{"expression":"1'
    yield "brackets", "[" * size
    yield "objects", '{"a":' * (size // 5)
    yield "closing", "]" * size
    yield "quotes", '"' * size
    yield "backslashes", "\\" * size
    yield "commas", "[" + "," * size
    yield "colons", "{" + ":" * size
    yield "apostrophes", "{" + "'a':'b'," * (size // 8)
    yield "bare words", "{" + "a:b," * (size // 4)
    yield "comments", "{" + "/**/" * (size // 4)
    yield "line comments", "{" + "//\n" * (size // 3)
    yield "open text", call + "x" * size
    yield "escaped text", call + '\\"' * (size // 2)
    yield "double encoded", json.dumps(json.dumps(call * (size // 80)))
    yield "trailing commas", '{"tool_name":"calculator","arguments":{"a":[' + "1,," * (size // 3) + "]}}"
    yield "Python words", '{"tool_name":"calculator","arguments":{"a":[' + "True,None," * (size // 10) + "]}}"
    yield "missing commas", '{"tool_name":"calculator","arguments":{"a":[' + "1 " * (size // 2) + "]}}"
    yield "concatenated", '"a"+' * (size // 4)
    yield "newlines", '{"a":"' + "\n" * size
    yield "spaces", " " * size


def model_texts(size):
    """What a model might write, in the dialects that are text."""
    complete = '[TOOL_CALL]{"tool_name":"calculator","arguments":{"expression":"1"}}[/TOOL_CALL]'
    yield "many calls", complete * (size // len(complete))
    for mark in ("[TOOL_CALL]", "[/TOOL_CALL]", "<tool_call>", "</tool_call>", "[TOOL_CALL]{", "<tool_call>{\"a\":",
                 "```json\n", "```", "~~~\n", "Action:", "Action: calculator\nAction Input: ", "Action Input: {", "Thought:\n",
                 "Observation:", "<function=", "<function=calculator>", "<|python_tag|>", "[", "<", "{", "[TOOL_CALL",
                 "{\"tool_name\":\"calculator\"", "Action: a\n", "\n> ", "`", "``"):
        yield f"mark {mark.strip()}", mark * (size // len(mark))
    yield "call without end", "[TOOL_CALL]" + "{" * size
    yield "call of brackets", "[TOOL_CALL]" + "[" * (size // 2) + "]" * (size // 2) + "[/TOOL_CALL]"
    for name, text in broken_json(size):
        yield f"call of {name}", f"[TOOL_CALL]{text}[/TOOL_CALL]"
    yield "input of quotes", "Action: calculator\nAction Input: " + '"' * size
    yield "input of lines", "Action: calculator\nAction Input: {" + "\n" * size


def messages(size):
    """Messages of providers' dialects."""
    def openai(name, text, times=1):
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": text}}
        return {"role": "assistant", "tool_calls": [call] * times}

    yield "openai calls", openai("calculator", "{}", size // 90)
    yield "openai 250 names", openai("calculatr" * 7, "{}", 250)
    yield "openai 250 long names", openai("c" * (size // 300), "{}", 250)
    yield "openai same ids", openai("calculator", '{"expression":"1"}', 250)
    for name, text in broken_json(size):
        yield f"openai {name}", openai("calculator", text)
    yield "anthropic blocks", {"role": "assistant", "content": [{"type": "text", "text": ""}] * (size // 28)}
    yield "anthropic calls", {"role": "assistant", "content": [
        {"type": "tool_use", "id": f"t{n}", "name": "calculator", "input": {}} for n in range(size // 75)]}
    yield "gemini parts", {"role": "model", "parts": [{"functionCall": {"name": "calculator", "args": {}}}] * (size // 60)}
    yield "responses items", {"output": [{"type": "function_call", "call_id": "a", "name": "calculator", "arguments": "{"}] * (size // 80)}
    yield "bedrock blocks", {"message": {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "c", "input": {}}}] * (size // 60)}}
    yield "deny names", {"message": {"tool_name": "calculator", "arguments": {}}, "deny": [f"n{n}" for n in range(size // 10)]}
    yield "deny stars", {"message": {"tool_name": "calculator", "arguments": {}}, "deny": ["*a" * (size // 2)]}
    yield "deny questions", {"message": {"tool_name": "calculator", "arguments": {}}, "deny": ["*" + "?" * size + "b"]}
    yield "context", {"message": {"tool_name": "calculator", "arguments": {}}, "context": {f"k{n}": n for n in range(size // 14)}}
    yield "envelope keys", dict({f"k{n}": 1 for n in range(size // 11)}, message={})
    yield "a list of lists", [[]] * (size // 6)


def definitions(size):
    """Tools to register."""
    def tool(**more):
        return dict({"kind": "http", "description": "A tool.", "effect": "read", "parameters": {"a": {"type": "string"}},
                     "request": {"url": "https://api.example.com/{{ a }}"}}, **more)

    yield "url of %25", tool(request={"url": "https://api.example.com/%" + "25" * (size // 2)})
    yield "url of dots", tool(request={"url": "https://api.example.com/" + "..;/" * (size // 4)})
    yield "url of placeholders", tool(request={"url": "https://api.example.com/" + "{{a}}" * (size // 5)})
    yield "url of braces", tool(request={"url": "https://api.example.com/" + "{{" * (size // 2)})
    yield "hosts", tool(request={"url": "https://{{ a }}/", "allow_hosts": [f"h{n}.example.com" for n in range(size // 22)]})
    yield "aliases", tool(aliases=[f"alias_{n}" for n in range(size // 16)])
    yield "tags", tool(tags=[f"t{n}" for n in range(size // 10)])
    yield "unknown keys", tool(**{f"k{n}": 1 for n in range(size // 11)})
    yield "long unknown key", tool(**{"k" * size: 1})
    yield "parameters", tool(parameters=dict({"a": {"type": "string"}}, **{f"p{n}": {"type": "string"} for n in range(size // 28)}))
    yield "when of brackets", tool(cache={"ttl": "1m", "when": "(" * size})
    yield "when that repeats", tool(cache={"ttl": "1m", "when": "'x' * 100000000 == args.a"})
    yield "description", tool(description="\u0000" * (size // 6))


def queries(size):
    """Paths with query strings and headers; servers bound these far below the body."""
    size = min(size, 12_000)
    text = "x" * size
    for path in ("/invocations?limit=", "/invocations?cursor=", "/tools?cursor=", "/tools?tag=", "/invocations?tool=",
                 "/invocations?since=", "/calls?deny=", "/usage?window=", "/invocations/"):
        yield path, "GET", path + text, {}
        yield path + "%25", "GET", path + "%" + "25" * (size // 2), {}
    yield "many pairs", "GET", "/invocations?" + "&".join(["tool=a"] * (size // 7)), {}
    yield "many tags", "GET", "/tools?" + "&".join(f"tag=t{n}" for n in range(size // 9)), {}
    yield "tool name", "GET", "/tools/" + text, {}
    yield "tool name of dots", "GET", "/tools/" + "%2e%2e%2f" * (size // 9), {}
    for header, value in (("if-none-match", '"a",' * (size // 4)), ("accept", "a/b;q=0.1," * (size // 10)),
                          ("prefer", "wait=1," * (size // 7)), ("idempotency-key", text), ("traceparent", "00-" + "a" * size),
                          ("tracestate", "a=b," * (size // 4)), ("x-request-id", text), ("authorization", "Bearer " + text),
                          ("host", text), ("origin", "http://" + text), ("content-type", "a/b;" * (size // 4)),
                          ("last-event-id", text), ("mcp-session-id", text), ("cookie", "a=b;" * (size // 4))):
        yield header, "POST", "/tools/calculator/invoke", {**JSON, header: value}


def requests(size):
    """(name, method, path, headers, body) of each."""
    for name, tool, text in arguments(size):
        body = '{"arguments":' + text + "}"
        yield f"invoke {name}", "POST", f"/tools/{tool}/invoke", JSON, body
        yield f"validate {name}", "POST", f"/tools/{tool}/validate", JSON, body
        call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":%s,"name":"%s","arguments":%s}}'
        yield f"mcp {name}", "POST", "/mcp", mcp("tools/call", tool), call % (json.dumps(META), tool, text)
    for name, text in broken_json(size):
        yield f"invoke {name}", "POST", "/tools/calculator/invoke", JSON, text
        yield f"mcp {name}", "POST", "/mcp", mcp("tools/call"), '{"jsonrpc":"2.0","id":1,"method":' + text
    for name, text in model_texts(size):
        yield f"text {name}", "POST", "/calls", TEXT, text
        yield f"text in JSON {name}", "POST", "/calls", JSON, json.dumps({"text": text})
    for name, message in messages(size):
        yield f"calls {name}", "POST", "/calls", JSON, json.dumps(message)
    for name, definition in definitions(min(size, 240 << 10)):  # a larger one is not read
        yield f"register {name}", "PUT", "/tools/hostile", JSON, json.dumps(definition)
    for name, method, path, headers in queries(size):
        yield f"query {name}", method, path, headers, "{}" if method == "POST" else ""
    for field, value in (("context", {f"k{n}": n for n in range(size // 14)}), ("timeout", "9" * size), ("page", {"offset": "9" * size}),
                         ("cache", "x" * size), ("run_id", "x" * size), ("tool_use_id", "x" * size), ("x" * size, 1)):
        yield f"field {field[:12]}", "POST", "/tools/calculator/invoke", JSON, json.dumps({"arguments": {"expression": "1"}, field: value})
    yield "field keys", "POST", "/tools/calculator/invoke", JSON, "{" + ",".join(f'"k{n}":1' for n in range(size // 10)) + "}"
    yield "duplicate keys", "POST", "/tools/calculator/invoke", JSON, '{"arguments":{' + '"expression":"1",' * (size // 17) + '"a":1}}'
    yield "mcp batch", "POST", "/mcp", mcp("ping"), json.dumps([{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(size // 45)])
    yield "mcp cursor", "POST", "/mcp", mcp("tools/list"), json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META, "cursor": "x" * size}})
    yield "mcp method", "POST", "/mcp", mcp("x"), json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * size})
    yield "mcp id", "POST", "/mcp", mcp("ping"), '{"jsonrpc":"2.0","id":' + "9" * size + ',"method":"ping"}'


def largest(most=1 << 20):
    """Each request as large as the service reads: some bodies grow when they are written as JSON."""
    found = {}
    for size in (most // 3, most // 2, most * 9 // 10):
        for name, *request in requests(size):
            if len(request[-1].encode()) <= most:
                found[name] = request
    return found


def target(path):
    """A path as a request line carries it."""
    return urllib.parse.quote(path, safe="/?=&%:,*")
