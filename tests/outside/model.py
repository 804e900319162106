"""A model with a script, behind OpenAI Chat Completions: whole answers and streams, and the ways in which servers fail.

Each request is looked at as the API looks at it (by the scripted provider of examples/agents), and refused with 400 if that would
refuse it. A script belongs to a model's name: `model.script("m", calls(("calculator", {"expression": "1+1"})), "2")`. A step is a text,
`calls(...)`, a dict (an assistant's message), a number (that status), or a function that takes the handler and the request's body.
The last step is repeated.
"""

import json
import pathlib
import sys
import threading
import time

from scripted import ScriptedHandler, ScriptedServer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "agents"))
import model_server  # noqa: E402

KEY = "sk-scripted-0123456789abcdef"
USAGE = {"prompt_tokens": 30, "completion_tokens": 10, "total_tokens": 40}


def calls(*asked, text=None):
    """A message that calls tools: (name, arguments), arguments as an object or as the text that the model wrote."""
    made = [{"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}}
            for n, (name, given) in enumerate(asked)]
    return {"role": "assistant", "content": text, "refusal": None, "annotations": [], "tool_calls": made}


class Handler(ScriptedHandler):
    def do_POST(self):
        model = self.server.owner
        raw = self.read_body()
        try:
            body = json.loads(raw)
            model_server.require(self.path == "/v1/chat/completions", f"no API at {self.path}")
            model_server.require(self.headers.get("authorization") == f"Bearer {KEY}", "the key is missing or wrong")
            model_server.require(self.headers.get("content-type") == "application/json", "content-type")
            names, _, _ = model_server.openai(body)
            model_server.require(len(set(names)) == len(names), "tools: names must be unique")
        except (model_server.Refused, ValueError, KeyError, TypeError, AttributeError) as problem:
            model.refused.append(f"{type(problem).__name__}: {problem}\n{raw.decode()}")
            return self.reply(400, {"error": {"message": f"{problem}", "type": "invalid_request_error"}})
        step = model.next(body, self)
        try:
            if callable(step):
                step(self, body)
            elif isinstance(step, int):
                self.reply(step, {"error": {"message": f"status {step}"}})
            else:
                self.send_message(step, body)
        except OSError:
            model.gone.append(body["model"])
            self.close_connection = True

    def send_message(self, step, body, finish=None, usage=USAGE):
        message = {"role": "assistant", "content": step, "refusal": None, "annotations": []} if isinstance(step, str) else step
        finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
        head = {"id": "chatcmpl-1", "created": 1741570283, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
            answer = {**head, "object": "chat.completion", "choices": [choice]}
            return self.reply(200, {**answer, "usage": usage} if usage else answer)
        self.events()
        for delta in deltas(message):
            self.event({**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self.event({**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if usage and body.get("stream_options", {}).get("include_usage"):
            self.event({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        self.event("[DONE]")
        self.end()

    # a stream, piece by piece

    def events(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.write(": connected\n\n")

    def event(self, data):
        self.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n: ping\n\n")

    def write(self, text):
        # In two pieces: an event may arrive in parts.
        data = text.encode()
        for piece in (data[: len(data) // 2], data[len(data) // 2:]):
            if piece:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")

    def wait(self, seconds=60):
        """Sends nothing until the client disconnects."""
        self.server.owner.waiting.set()
        self.connection.settimeout(seconds)
        if not self.rfile.read(1):
            raise OSError("gone")


def deltas(message):
    yield {"role": "assistant", "content": "", "refusal": None}
    for word in (message.get("content") or "").split(" "):
        if word:
            yield {"content": f"{word} "}
    for n, call in enumerate(message.get("tool_calls", [])):
        yield {"tool_calls": [{"index": n, "id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}]}
    # Of several calls in turns, a few characters each.
    texts = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    for at in range(0, max(map(len, texts), default=0), 7):
        for n, text in enumerate(texts):
            if text[at:at + 7]:
                yield {"tool_calls": [{"index": n, "function": {"arguments": text[at:at + 7]}}]}


class Model:
    """The server. `requests` are the requests by model, `refused` what was wrong with those that the API would not take."""

    def __init__(self):
        self.scripts, self.requests, self.refused, self.gone, self.lock = {}, {}, [], [], threading.Lock()
        self.waiting = threading.Event()
        self.server = ScriptedServer(Handler, self)
        self.base_url = f"{self.server.base}/v1"

    def script(self, name, *steps):
        self.scripts[name], self.requests[name] = list(steps), []
        return self

    def next(self, body, handler):
        with self.lock:
            requested = self.requests.setdefault(body["model"], [])
            requested.append(dict(body, at=time.monotonic()))
            steps = self.scripts.get(body["model"]) or ["no script"]
            return steps[min(len(requested), len(steps)) - 1]

    def tool_results(self, name, request=-1):
        """The results of tools, by the ids of the calls, in a request."""
        return {one["tool_call_id"]: one["content"] for one in self.requests[name][request]["messages"] if one["role"] == "tool"}

    def tools(self, name, request=0):
        return [one["function"]["name"] for one in self.requests[name][request].get("tools", [])]

    def close(self):
        self.server.close()
