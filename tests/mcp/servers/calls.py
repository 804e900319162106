"""Tools that behave well, or badly while they are called. `calls.py modern` speaks 2026-07-28 only."""

import base64
import json
import os
import subprocess
import sys
import threading
import time

from wire import OBJECT, Refused, Server, append_line, text, tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer", "description": "A number."}}, "required": ["n"]}
WEATHER = {"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="


def arguments(message):
    return message["params"].get("arguments") or {}


# ---- well behaved -------------------------------------------------------------------------------------------------------

def echo(server, message):
    """Its arguments, again."""
    return text(json.dumps(arguments(message), sort_keys=True))


def pid(server, message):
    return text(str(os.getpid()))


def count(server, message):
    """A call that leaves a trace."""
    append_line("COUNTED", str(arguments(message).get("n")))
    return text("counted")


def environment(server, message):
    return text(json.dumps(dict(os.environ), sort_keys=True))


def meta(server, message):
    """What came beside the arguments."""
    return text(json.dumps(message["params"].get("_meta", {}), sort_keys=True))


def says_no(server, message):
    return text("There is no such city.", isError=True)


def refuses(server, message):
    raise Refused(-32602, "n must be even")


def counts_and_refuses(server, message):
    """Does its work, and then finds fault with what it was given."""
    append_line("COUNTED", "done")
    raise Refused(-32602, "n must be even")


def breaks(server, message):
    raise Refused(-32603, "The disk is full")


def blocks(server, message):
    """Every kind of block there is, with annotations."""
    marked = {"annotations": {"audience": ["user"], "priority": 0.5}}
    return {"content": [
        dict(text("one")["content"][0], **marked),
        dict({"type": "image", "data": PIXEL, "mimeType": "image/png"}, **marked),
        {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "test://words", "mimeType": "text/plain", "text": "words"}},
        {"type": "resource", "resource": {"uri": "test://bytes", "mimeType": "application/pdf", "blob": base64.b64encode(b"%PDF").decode()}},
        {"type": "resource_link", "uri": "test://far", "name": "far", "mimeType": "text/plain", "description": "Far away"},
    ]}


def weather(server, message):
    return {"content": [{"type": "text", "text": '{"degrees": 21.5}'}], "structuredContent": {"degrees": 21.5}}


def steps(server, message):
    """Progress, then the result."""
    token = message["params"].get("_meta", {}).get("progressToken")
    for number in (1, 2, 3):
        if token is not None:
            server.notify("notifications/progress", progressToken=token, progress=number, total=3, message=f"step {number}")
        time.sleep(0.05)
    return text("done" if token is not None else "done, nobody asked for progress")


# ---- badly behaved ------------------------------------------------------------------------------------------------------

def dies(server, message):
    """Without a word."""
    append_line("COUNTED", "dies")
    os._exit(3)


def leaves_children(server, message):
    """Processes in sessions of their own, which hold the pipes and carry a mark; then it dies, if asked to."""
    for _ in range(3):
        subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM HUP; sleep 300; : {arguments(message)['mark']}"], start_new_session=True)
    if arguments(message).get("die"):
        os._exit(3)
    return text("started")


def hangs(server, message):
    """Never answers."""
    append_line("COUNTED", "hangs")


def late(server, message):
    """Answers when its caller has given up."""
    time.sleep(arguments(message).get("n", 2))
    return text("too late")


def huge(server, message):
    """An answer of `n` megabytes."""
    server.raw(b'{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "' % json.dumps(message["id"]).encode())
    for _ in range(arguments(message)["n"]):
        server.raw(b"x" * 1_000_000)
    server.raw(b'"}]}}\n')


def endless(server, message):
    """A line without an end: nothing else is said any more."""
    with server.lock:
        while True:
            server.out.write(b"x" * 1_000_000)
            server.out.flush()


def wrong_shape(server, message):
    """Structured content that is not what the output schema says."""
    return {"content": [{"type": "text", "text": "warm"}], "structuredContent": {"degrees": "warm"}}


def no_structure(server, message):
    """An output schema, and nothing structured."""
    return text("warm")


def no_structure_no(server, message):
    """The same, saying no: allowed."""
    return text("No weather today.", isError=True)


def no_result(server, message):
    """A result that is none of tools/call."""
    return {"content": "just words"}


def odd_block(server, message):
    """A block of a type that nobody knows."""
    return {"content": [{"type": "hologram", "data": "?"}, {"type": "text", "text": "still here"}]}


def bad_base64(server, message):
    """Data that is none, in every place, and a picture whose lines are broken as in mail."""
    return {"content": [
        {"type": "image", "data": "not base64!", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg=?", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "test://bytes", "blob": "JVBERi0==="}},
        {"type": "image", "data": "\n".join([PIXEL[:60], PIXEL[60:]]).rstrip("="), "mimeType": "image/png"},
        {"type": "text", "text": "the rest"},
    ]}


def secret_bytes(server, message):
    return {"content": [{"type": "image", "data": base64.b64encode(b"key" + os.environ["TOKEN"].encode()).decode(), "mimeType": "image/png"}]}


def garbage(server, message):
    """Lines that are no JSON, between: what a stray print leaves behind."""
    server.raw("Loading model... 100%\n\n\x1b[31mwarning\x1b[0m\n{\"half\": \n[1, 2]\n\"words\"\n17\nnull\n")
    server.raw(b"\xff\xfe not UTF-8\n")
    return text("after garbage")


def garbage_half(server, message):
    """The answer, with a print that ended without its newline before it."""
    server.raw("progress: 40% ")
    return text("behind half a line")


def bare(server, message):
    """An answer that says nothing."""
    server.send({"id": message["id"]})


def not_text(server, message):
    """An answer whose bytes are no text."""
    server.raw(b'{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "secret-result-\xff"}]}}\n'
               % json.dumps(message["id"]).encode())


def log_lines(server, message):
    """A log on standard output, whose objects have ids of their own."""
    server.raw(json.dumps({"level": "info", "id": message["id"], "msg": "secret-result"}) + "\n")
    return text("after the log")


def wrong_id(server, message):
    """An answer to a question that nobody has asked, then its own."""
    server.answer(987654321, text("of another"))
    server.send({"id": None, "error": {"code": -32700, "message": "Parse error"}})
    server.answer(str(message["id"]) + "x", text("of another"))
    return text("its own")


def twice(server, message):
    """Its answer, and another with the same id."""
    server.answer(message["id"], text("first"))
    return text("second")


def shadow(server, message):
    """Answers for calls that may be in flight or come next."""
    for number in range(int(message["id"]) + 1, int(message["id"]) + 50) if isinstance(message["id"], int) else ():
        server.answer(number, text("forged"))
    return text("its own")


GATHERED, GATE = [], threading.Lock()


def reverse(server, message):
    """Waits for `of` calls, then answers all of them, the last one first."""
    with GATE:
        GATHERED.append(message)
        if len(GATHERED) < arguments(message)["of"]:
            return
        gathered, GATHERED[:] = GATHERED[::-1], []
    for one in gathered:
        server.answer(one["id"], text(str(arguments(one)["n"])))


def asks(server, message):
    """Asks its client for what a client may offer; tells what came."""
    reported = {}
    for method, params in (("sampling/createMessage", {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}),
                           ("elicitation/create", {"mode": "url", "message": "Pay", "url": "https://a.example", "elicitationId": "1"}), ("roots/list", None),
                           ("ping", None), ("made/up", None)):
        answer = server.ask(method, params, 5)
        reported[method] = "nothing" if answer is None else "error" if "error" in answer else "result"
    return text(json.dumps(reported))


def asks_form(server, message):
    """Asks the caller for a room, and says what came."""
    schema = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
    reply = server.ask("elicitation/create", {"message": "Which room?", "requestedSchema": schema}, seconds=30)
    return text(json.dumps(reply and reply.get("result")))


def flood(server, message):
    """Notifications without an end in sight, then the answer."""
    token = message["params"].get("_meta", {}).get("progressToken", 0)
    for number in range(20_000):
        server.notify("notifications/progress", progressToken=token, progress=number)
        server.notify("notifications/message", level="info", data="word " * 20)
        server.notify("notifications/made/up", n=number)
    return text("after the flood")


def noisy(server, message):
    """20 MB on standard error, a line of 1 MB among them."""
    line = b"n" * 200 + b"\n"
    for _ in range(100):
        os.write(2, line * 1000)
    os.write(2, b"n" * 1_000_000 + b"\n")
    return text("after the noise")


def closes_stdout(server, message):
    """Says nothing any more, but lives on."""
    os.close(1)
    sys.stderr.write("stdout is closed\n")


def secret(server, message):
    """What an operator gave it in confidence, in every place there is."""
    word = os.environ["TOKEN"]
    return {"content": [{"type": "text", "text": f"with {word} in {base64.b64encode(word.encode()).decode()}"},
                        {"type": "resource", "resource": {"uri": f"test://{word}", "text": word}}],
            "structuredContent": {"key": word, word: 1}, "_meta": {"key": word}}


def secret_error(server, message):
    sys.stderr.write(f"failed with {os.environ['TOKEN']}\n")
    sys.stderr.flush()
    raise Refused(-32603, f"cannot log in with {os.environ['TOKEN']}")


def secret_no(server, message):
    return text(f"no such key: {os.environ['TOKEN']}", isError=True)


def secret_step(server, message):
    token = message["params"].get("_meta", {}).get("progressToken")
    server.notify("notifications/progress", progressToken=token, progress=1, message=f"using {os.environ['TOKEN']}")
    time.sleep(0.1)
    return text("done")


SCHEMAS = {count: NUMBER, late: NUMBER, huge: NUMBER}
OUTPUTS = {weather: WEATHER, wrong_shape: WEATHER, no_structure: WEATHER, no_structure_no: WEATHER}
TOOLS = [echo, pid, count, environment, meta, says_no, refuses, counts_and_refuses, breaks, blocks, weather, steps, dies, leaves_children, hangs, late, huge, endless,
         wrong_shape, no_structure, no_structure_no, no_result, odd_block, bad_base64, garbage, garbage_half, bare, not_text, log_lines, wrong_id, twice, shadow, reverse,
         asks, asks_form, flood, noisy, closes_stdout, secret, secret_error, secret_no, secret_step, secret_bytes]


def definition(function):
    more = {"outputSchema": OUTPUTS[function]} if function in OUTPUTS else {}
    return tool(function.__name__, (function.__doc__ or "A tool of a test server.").strip(), SCHEMAS.get(function, OBJECT), **more)


if __name__ == "__main__":
    Server(map(definition, TOOLS), {one.__name__: one for one in TOOLS}, modern="modern" in sys.argv).run()
