#!/usr/bin/env python3
"""A model provider with a script instead of a model, for all five APIs, on loopback.

    python3 model_server.py [PORT]        # prints: listening on http://127.0.0.1:PORT

For any question it calls `calculator` twice at once (one call fails), then once more, then answers with the results. It
looks at each request as its provider's API does, and refuses (400, with the reason) what that would refuse: unknown fields, empty
content, roles out of turn, a call that is not answered exactly once by its id, a thought that does not come back as it was.
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = "calculator"
NAME = {"openai": r"[a-zA-Z0-9_-]{1,64}", "openai-responses": r"[a-zA-Z0-9_-]{1,64}", "anthropic": r"[a-zA-Z0-9_-]{1,128}",
        "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", "bedrock": r"[a-zA-Z0-9_-]{1,64}"}


class Refused(Exception):
    """What the API would answer with 400."""


def require(holds, why):
    if not holds:
        raise Refused(why)


def check_fields(value, where, required, optional=""):
    """An object with all of `required`, maybe some of `optional`, and nothing else."""
    require(isinstance(value, dict), f"{where}: an object is needed, not {json.dumps(value)}")
    for name in required.split():
        require(name in value, f"{where}.{name}: field required")
    for name in value:
        require(name in f"{required} {optional}".split(), f"{where}.{name}: extra fields are not permitted")


def non_empty_text(value, where):
    require(isinstance(value, str) and value.strip(), f"{where}: a text that is not empty is needed, not {json.dumps(value)}")
    return value


def tool(provider, where, name, description, schema):
    require(re.fullmatch(NAME[provider], name), f"{where}: {name!r} does not match {NAME[provider]}")
    non_empty_text(description, f"{where}.description")
    kinds = ("object", "OBJECT") if provider == "gemini" else ("object",)
    require(isinstance(schema, dict) and schema.get("type") in kinds, f"{where}: the schema's type must be object")
    return name


def text_of_parts(content, where):
    """The text of a message: a text, or a list of text parts."""
    if isinstance(content, list):
        for n, part in enumerate(content):
            check_fields(part, f"{where}[{n}]", "type text")
            require(part["type"] == "text", f"{where}[{n}].type: text is needed, not {json.dumps(part['type'])}")
        content = "".join(part["text"] for part in content)
    return non_empty_text(content, where)


def check_answered(calls, answers, where):
    """Every call was answered exactly once, by its id."""
    require(sorted(calls) == sorted(answers), f"{where}: calls {sorted(calls)} were answered as {sorted(answers)}")


def script(rounds):
    """What to say next, by the results of each round so far as (failed, text): a list of calls, or the last words. `failed` is None
    where the API has no place for it."""
    if not rounds:
        return [{"expression": "6 * 7"}, {"expression": "1 / 0"}]
    (failed, product), (broken, complaint) = rounds[0]
    require(not failed and "42" in product, f"6 * 7 gave {rounds[0][0]}")
    require(broken is not False and "zero" in complaint, f"1 / 0 should have failed: {rounds[0][1]}")
    if len(rounds) == 1:
        return [{"expression": "42 ** 2"}]
    return f"6 * 7 is {product}, its square is {rounds[1][0][1]}, and nobody divides by zero."


# ---- the APIs: each checks a request, and gives the results so far and a function that words the answer ----------------------

def openai(body):
    check_fields(body, "body", "model messages", "tools tool_choice parallel_tool_calls max_completion_tokens max_tokens temperature stream stream_options")
    require(body.get("tools") != [], "tools: [] is too short - 'tools'")
    require("stream_options" not in body or body.get("stream"), "stream_options: only allowed when stream is enabled")
    names = []
    for n, one in enumerate(body.get("tools", [])):
        check_fields(one, f"tools[{n}]", "type function")
        check_fields(one["function"], f"tools[{n}].function", "name parameters", "description strict")
        names.append(tool("openai", f"tools[{n}]", one["function"]["name"], one["function"].get("description"), one["function"]["parameters"]))
    rounds, open_calls = [], []
    for n, message in enumerate(body["messages"]):
        where = f"messages[{n}]"
        require(message.get("role") in ("system", "user", "assistant", "tool"), f"{where}.role")
        require(message["role"] == "tool" or not open_calls, f"{where}: tool calls {open_calls} did not have response messages")
        if message["role"] == "tool":
            check_fields(message, where, "role tool_call_id content")
            require(message["tool_call_id"] in open_calls, f"{where}: no call {message['tool_call_id']} is open")
            open_calls.remove(message["tool_call_id"])
            rounds[-1].append((None, text_of_parts(message["content"], f"{where}.content")))
        elif message["role"] == "assistant":
            check_fields(message, where, "role", "content tool_calls refusal annotations")
            open_calls = [call["id"] for call in message.get("tool_calls", [])]
            rounds.append([])
        else:
            text_of_parts(message["content"], f"{where}.content")
    require(not open_calls, f"tool calls {open_calls} did not have response messages")

    def word(reply, ids):
        message = {"role": "assistant", "content": reply, "refusal": None, "annotations": []}
        if isinstance(reply, list):
            message |= {"content": None, "tool_calls": [{"id": f"call_{id}", "type": "function", "function": {"name": TOOL, "arguments": json.dumps(one)}}
                                                        for id, one in zip(ids, reply)]}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1741570283, "model": body["model"],
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}],
                "usage": {"prompt_tokens": 82, "completion_tokens": 17, "total_tokens": 99}}
    return names, rounds, word


def openai_responses(body):
    check_fields(body, "body", "model input tools", "instructions tool_choice parallel_tool_calls include store max_output_tokens")
    names = []
    for n, one in enumerate(body["tools"]):
        check_fields(one, f"tools[{n}]", "type name parameters", "description strict")
        names.append(tool("openai-responses", f"tools[{n}]", one["name"], one.get("description"), one["parameters"]))
    rounds, calls, answers, thought = [], [], [], False
    for n, item in enumerate(body["input"]):
        where, kind = f"input[{n}]", item.get("type", "message")
        require(not thought or kind == "function_call", f"{where}: a reasoning item was provided without its required following item")
        thought = kind == "reasoning"
        if kind == "reasoning":
            check_fields(item, where, "type id summary", "encrypted_content status")
            rounds.append([])
        elif kind == "function_call":
            check_fields(item, where, "type call_id name arguments", "id status")
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            check_fields(item, where, "type call_id output", "id status")
            require(item["call_id"] in calls, f"{where}: no tool call found for function call output with call_id {item['call_id']}")
            answers.append(item["call_id"])
            rounds[-1].append((None, non_empty_text(item["output"], where)))
        else:
            require(kind == "message" and item["role"] in ("user", "assistant", "system", "developer"), f"{where}: {kind}")
    check_answered(calls, answers, "input")

    def word(reply, ids):
        if isinstance(reply, list):
            output = [{"id": f"rs_{ids[0]}", "type": "reasoning", "summary": []}]
            output += [{"type": "function_call", "id": f"fc_{id}", "call_id": f"call_{id}", "name": TOOL, "arguments": json.dumps(one), "status": "completed"}
                       for id, one in zip(ids, reply)]
        else:
            output = [{"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": reply, "annotations": []}]}]
        return {"id": "resp_1", "object": "response", "created_at": 1741294021, "status": "completed", "error": None, "incomplete_details": None,
                "instructions": None, "metadata": {}, "model": body["model"], "output": output, "parallel_tool_calls": True, "temperature": 1.0,
                "tool_choice": "auto", "tools": body["tools"], "top_p": 1.0}
    return names, rounds, word


def anthropic(body):
    check_fields(body, "body", "model max_tokens messages tools", "system tool_choice thinking temperature")
    names = []
    for n, one in enumerate(body["tools"]):
        check_fields(one, f"tools[{n}]", "name input_schema", "description type strict cache_control input_examples")
        names.append(tool("anthropic", f"tools[{n}]", one["name"], one.get("description"), one["input_schema"]))
    rounds, open_calls = [], []
    for n, message in enumerate(body["messages"]):
        where = f"messages.{n}"
        check_fields(message, where, "role content")
        require(message["role"] == ("assistant" if n % 2 else "user"), f"{where}: roles must alternate, and begin with user")
        blocks = [{"type": "text", "text": message["content"]}] if isinstance(message["content"], str) else message["content"]
        require(blocks, f"{where}: content must not be empty")
        answers = [block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "user":
            check_answered(open_calls, answers, where)
            require(all(block["type"] == "tool_result" for block in blocks[: len(answers)]), f"{where}: tool results come first")
            rounds += [[]] if answers else []
        for block in blocks:
            if block["type"] == "tool_result":
                check_fields(block, where, "type tool_use_id content", "is_error cache_control")
                content = block["content"] if isinstance(block["content"], list) else [{"type": "text", "text": block["content"]}]
                rounds[-1].append((block.get("is_error", False), " ".join(non_empty_text(part["text"], where) for part in content)))
            elif block["type"] == "thinking":
                require(block == {"type": "thinking", "thinking": "I need a calculator.", "signature": "c2lnbmVk"}, f"{where}: thinking blocks cannot be modified")
            elif block["type"] == "text":
                non_empty_text(block["text"], f"{where}: text content blocks must be non-empty")
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]

    def word(reply, ids):
        content = [{"type": "text", "text": reply}]
        if isinstance(reply, list):
            content = [{"type": "thinking", "thinking": "I need a calculator.", "signature": "c2lnbmVk"}]
            content += [{"type": "tool_use", "id": f"toolu_{id}", "name": TOOL, "input": one} for id, one in zip(ids, reply)]
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content, "stop_sequence": None,
                "stop_reason": "tool_use" if isinstance(reply, list) else "end_turn", "usage": {"input_tokens": 472, "output_tokens": 91}}
    return names, rounds, word


def gemini(body):
    check_fields(body, "body", "contents tools", "systemInstruction toolConfig generationConfig safetySettings")
    names = []
    for n, group in enumerate(body["tools"]):
        check_fields(group, f"tools[{n}]", "functionDeclarations")
        for one in group["functionDeclarations"]:
            check_fields(one, f"tools[{n}]", "name description", "parameters parametersJsonSchema response responseJsonSchema behavior")
            require(("parameters" in one) != ("parametersJsonSchema" in one), f"{one['name']}: one of parameters and parametersJsonSchema")
            names.append(tool("gemini", f"tools[{n}]", one["name"], one["description"], one.get("parametersJsonSchema", one.get("parameters"))))
    rounds, open_calls = [], []
    for n, content in enumerate(body["contents"]):
        where = f"contents[{n}]"
        check_fields(content, where, "role parts")
        require(content["role"] == ("model" if n % 2 else "user") and content["parts"], f"{where}: role or parts")
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        require(len(answers) == len(open_calls), "Please ensure that the number of function response parts is equal to the number of function call parts of "
             "the function call turn.")
        check_answered([f"{one.get('id')} {one['name']}" for one in open_calls], [f"{one.get('id')} {one.get('name')}" for one in answers], where)
        for one in answers:
            check_fields(one, where, "name response", "id parts")
            require(isinstance(one["response"], dict), f"{where}: response must be an object")
        rounds += [[("error" in one["response"], json.dumps(one["response"])) for one in answers]] if answers else []
        open_calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        require(not open_calls or content["parts"][0].get("thoughtSignature") == "c2lnbmVk", f"{where}: function call is missing a thought_signature")

    def word(reply, ids):
        parts = [{"text": reply}]
        if isinstance(reply, list):
            parts = [{"functionCall": {"id": id, "name": TOOL, "args": one}} for id, one in zip(ids, reply)]
            parts[0]["thoughtSignature"] = "c2lnbmVk"
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
                "usageMetadata": {"promptTokenCount": 61, "candidatesTokenCount": 19, "totalTokenCount": 80}, "modelVersion": "scripted"}
    return names, rounds, word


def bedrock(body):
    check_fields(body, "body", "messages toolConfig", "system inferenceConfig")
    check_fields(body["toolConfig"], "toolConfig", "tools", "toolChoice")
    names = []
    for n, one in enumerate(body["toolConfig"]["tools"]):
        check_fields(one, f"tools[{n}]", "toolSpec")
        check_fields(one["toolSpec"], f"tools[{n}].toolSpec", "name inputSchema", "description strict")
        check_fields(one["toolSpec"]["inputSchema"], f"tools[{n}].inputSchema", "json")
        names.append(tool("bedrock", f"tools[{n}]", one["toolSpec"]["name"], one["toolSpec"].get("description"), one["toolSpec"]["inputSchema"]["json"]))
    rounds, open_calls = [], []
    for n, message in enumerate(body["messages"]):
        where = f"messages.{n}"
        check_fields(message, where, "role content")
        require(message["role"] == ("assistant" if n % 2 else "user") and message["content"], f"{where}: role or content")
        answers = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        if message["role"] == "user":
            check_answered(open_calls, [one.get("toolUseId") for one in answers], where)
        for one in answers:
            check_fields(one, where, "toolUseId content", "status")
            require(one.get("status", "success") in ("success", "error"), f"{where}: status")
            require(all(len(part) == 1 for part in one["content"]), f"{where}: each content block has one member")
        rounds += [[(one.get("status") == "error", json.dumps(one["content"])) for one in answers]] if answers else []
        for block in message["content"]:
            require(len(block) == 1, f"{where}: each content block has one member")
            non_empty_text(block.get("text", "-"), where)
        open_calls = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]

    def word(reply, ids):
        content = [{"text": reply}]
        if isinstance(reply, list):
            content = [{"toolUse": {"toolUseId": f"tooluse_{id}", "name": TOOL, "input": one}} for id, one in zip(ids, reply)]
        return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "tool_use" if isinstance(reply, list) else "end_turn",
                "usage": {"inputTokens": 412, "outputTokens": 67, "totalTokens": 479}, "metrics": {"latencyMs": 15}}
    return names, rounds, word


ROUTES = [(r"/v1/chat/completions", "authorization", openai), (r"/v1/responses", "authorization", openai_responses),
          (r"/v1/messages", "x-api-key authorization", anthropic), (r"/v1(?:beta)?/models/[\w.-]+:generateContent", "x-goog-api-key", gemini),
          (r"/model/[\w.:-]+/converse", "authorization", bedrock)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            status, answer = 200, self.answer(json.loads(body))
        except (Refused, ValueError, KeyError, TypeError, AttributeError) as problem:
            status, answer = 400, {"error": {"message": f"{type(problem).__name__}: {problem}"}}
        answer = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def answer(self, body):
        for path, keys, api in ROUTES:
            if re.fullmatch(path, self.path):
                require(any(self.headers.get(key) for key in keys.split()), f"the key is missing: no header {keys.replace(' ', ' or ')}")
                require(api is not anthropic or self.headers.get("anthropic-version"), "anthropic-version: header is required")
                names, rounds, word = api(body)
                require(len(set(names)) == len(names), "tools: names must be unique")
                require(TOOL in names, f"tools: this script calls {TOOL}, which is not there")
                rounds = [one for one in rounds if one]
                return word(script(rounds), [f"r{len(rounds)}n{n}" for n in range(2)])
        raise Refused(f"no API at {self.path}")

    def log_message(self, form, *args):
        print(form % args, file=sys.stderr)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
