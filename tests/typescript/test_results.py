"""Results: each value of JavaScript has one form."""

import base64
import json
import socket

import pytest
from worker_process import error_text, ok, text_of

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
VALUES = r"""
    import { Readable } from "node:stream";
    const png = Buffer.from("%s", "base64");
    class Point { constructor() { this.x = 1; this.hidden = () => 1 } get y() { return 2 } }
    class Money { constructor() { this.cents = 5n } toJSON() { return { amount: "0.05" } }}
    class Text { toString() { return "as text" } }
    class Empty {}
    const loop = { name: "a" }; loop.self = loop;
    let deep = {}; for (let i = 0; i < 150; i++) deep = { deep };
    const shared = { a: 1 };
    const values = {
      text: () => "hallo", empty: () => "", number: () => 1.5, big: () => 12345678901234567890n, yes: () => true, nothing: () => undefined, null: () => null,
      nan: () => NaN, object: () => ({ a: 1, b: undefined, c: null }), list: () => [1, undefined, "x"],
      exact: () => ({ id: 9007199254740993n, list: [2n ** 64n] }), date: () => new Date(0), nested: () => ({ at: new Date(0), bytes: Buffer.from("hi"), url: new URL("https://a.b/c") }),
      map: () => new Map([["a", 1], [2, new Set([1, 1, 2])]]), objectMap: () => new Map([[{ a: 1 }, 1]]), set: () => new Set(["a", "a"]),
      floats: () => new Float32Array([1, 0.5]), regexp: () => ({ at: /a+/g }),
      lost: () => ({ a: [NaN, 1], b: Infinity }), manyLost: () => Array(9).fill(NaN),
      point: () => new Point(), money: () => new Money(), stringable: () => new Text(), emptyClass: () => new Empty(), error: () => new RangeError("too far"),
      loop: () => loop, deep: () => deep, shared: () => [shared, shared], promise: () => ({ a: Promise.resolve(1) }), fn: () => () => 1,
      surrogate: () => "a\ud800b", surrogates: () => ({ "k\udc00": ["\ud83d"] }), control: () => "\u0000\u001b[31m",
      png: () => png, pdf: () => Buffer.from("%%PDF-1.7"), octets: () => new Uint8Array([1, 2, 3]), buffer: () => new Uint8Array([1]).buffer,
      blob: () => new Blob(["a,b"], { type: "text/csv" }), badText: () => new Blob([new Uint8Array([255])], { type: "text/plain" }),
      stream: () => Readable.from(["a", "b"]), bytesStream: () => new Blob([png]).stream(), objectStream: () => Readable.from([{ a: 1 }, { a: 2 }]),
      json: () => Response.json({ id: 1 }), html: () => new Response("<p>", { headers: { "content-type": "text/html; charset=utf-8" } }), notFound: () => new Response("gone", { status: 404 }),
      image: () => new Response(png, { headers: { "content-type": "image/png" } }), exactJson: () => new Response('{"id":9007199254740993}', { headers: { "content-type": "application/json" } }),
      brokenJson: () => new Response("{", { headers: { "content-type": "application/json" } }),
      mcp: () => ({ content: [{ type: "text", text: "one" }, { type: "image", data: png.toString("base64"), mimeType: "image/png" }], structuredContent: { n: 1 }, isError: false, hint: "ask  [for] less", resultAsAnswer: true }),
      mcpError: () => ({ content: [{ type: "text", text: "no" }], isError: true }), likeMcp: () => ({ content: [{ type: "text" }], more: 1 }),
      ai: () => ({ type: "content", value: [{ type: "text", text: "one" }, { type: "media", data: png.toString("base64"), mediaType: "image/png" }, { type: "file-url", url: "https://a.b/c.pdf" }] }),
      huge: () => "x".repeat(5 << 20), hugeObject: () => ({ text: "x".repeat(5 << 20) }), wide: () => ({ text: "\u20ac".repeat(2 << 20) }),
      hugeStream: () => Readable.from((function* () { for (;;) yield "x".repeat(1 << 20) })()),
      proto: () => JSON.parse('{"__proto__": {"a": 1}, "constructor": 1}'), throwing: () => ({ get a() { throw new Error("no field") } }),
    };
    /** Gives a value. */
    export async function give(name) { return values[name]() }
    /** Gives a value without waiting. */
    export function giveAtOnce(name) { return values[name]() }
""" % PNG


@pytest.fixture
def give(workshop):
    worker, _ = workshop.load(VALUES)
    return lambda name, tool="give": worker.call(tool, {"name": name})


def test_scalars(give):
    for name, text in {"text": "hallo", "number": "1.5", "big": "12345678901234567890", "yes": "true", "nan": "NaN"}.items():
        answer = ok(give(name))
        assert (text_of(answer), answer["structured_content"]) == (text, None)
    assert ok(give("empty"))["content"] == [{"type": "text", "text": ""}]
    for name in ("nothing", "null"):
        assert ok(give(name))["content"] == []


@pytest.mark.parametrize("tool", ["give", "giveAtOnce"])
def test_objects(give, tool):
    forms = {
        "object": {"a": 1, "c": None},
        "list": [1, None, "x"],
        "exact": {"id": 9007199254740993, "list": [2**64]},
        "nested": {"at": "1970-01-01T00:00:00.000Z", "bytes": "aGk=", "url": "https://a.b/c"},
        "map": {"a": 1, "2": [1, 2]},
        "objectMap": [[{"a": 1}, 1]],
        "set": ["a"],
        "floats": [1, 0.5],
        "regexp": {"at": "/a+/g"},
        "point": {"x": 1},
        "money": {"amount": "0.05"},
        "shared": [{"a": 1}, {"a": 1}],
        "proto": {"__proto__": {"a": 1}, "constructor": 1},
    }
    for name, value in forms.items():
        answer = ok(give(name, tool))
        assert answer["structured_content"] == value, name
        assert json.loads(text_of(answer)) == value
        assert answer["warnings"] == []
    assert text_of(give("date", tool)) == "1970-01-01T00:00:00.000Z"
    assert text_of(give("stringable", tool)) == "as text"


def test_numbers_that_json_cannot_hold(give):
    answer = ok(give("lost"))
    assert answer["structured_content"] == {"a": [None, 1], "b": None}
    assert answer["warnings"] == ["a[0]: not a JSON number (NaN), sent as null", "b: not a JSON number (Infinity), sent as null"]
    assert ok(give("manyLost"))["warnings"][-1] == "4 more values are not JSON numbers, sent as null"


def test_what_cannot_be_passed_on(give):
    for name, part in {
        "loop": "refers to itself at self",
        "deep": "nested deeper than 100 levels",
        "promise": "a promise at a: await it first",
        "fn": "returned a function",
        "emptyClass": "an object of the class Empty, which has no fields",
        "huge": "bytes long; the limit is 4194304",
        "hugeObject": "longer than the limit of 4194304 bytes",
        "wide": "bytes long; the limit is 4194304",
        "hugeStream": "longer than the limit",
        "throwing": "no field",
    }.items():
        answer = give(name)
        assert answer["op"] == "failed_call", (name, str(answer)[:200])
        assert part in answer["message"], name
    assert text_of(give("text")) == "hallo"


def test_an_error_that_is_returned(give):
    assert error_text(give("error")) == "Error: RangeError: too far"


def test_text_is_valid_unicode(give):
    assert text_of(give("surrogate")) == "a\ufffdb"
    assert ok(give("surrogates"))["structured_content"] == {"k\ufffd": ["\ufffd"]}
    assert text_of(give("control")) == "\x00\x1b[31m"


def test_bytes(give):
    assert ok(give("png"))["content"] == [{"type": "image", "data": PNG, "mimeType": "image/png"}]
    assert ok(give("bytesStream"))["content"] == [{"type": "image", "data": PNG, "mimeType": "image/png"}]
    resource = ok(give("pdf"))["content"][0]["resource"]
    assert (resource["mimeType"], base64.b64decode(resource["blob"])) == ("application/pdf", b"%PDF-1.7")
    assert ok(give("octets"))["content"][0]["resource"]["blob"] == "AQID"
    assert ok(give("buffer"))["content"][0]["resource"]["blob"] == "AQ=="
    assert ok(give("blob"))["content"][0]["resource"]["text"] == "a,b"
    assert ok(give("badText"))["content"][0]["resource"]["blob"] == "/w=="


def test_streams(give):
    assert text_of(give("stream")) == "ab"
    assert ok(give("objectStream"))["structured_content"] == [{"a": 1}, {"a": 2}]


def test_web_responses(give):
    assert ok(give("json"))["structured_content"] == {"id": 1}
    assert ok(give("exactJson"))["structured_content"] == {"id": 9007199254740993}
    assert text_of(give("html")) == "<p>"
    assert text_of(give("brokenJson")) == "{"
    assert error_text(give("notFound")) == "gone"
    assert ok(give("image"))["content"] == [{"type": "image", "data": PNG, "mimeType": "image/png"}]


def test_content_of_mcp(give):
    answer = ok(give("mcp"))
    assert answer["content"] == [{"type": "text", "text": "one"}, {"type": "image", "data": PNG, "mimeType": "image/png"}]
    assert answer["structured_content"] == {"n": 1}
    assert (answer["hint"], answer["result_as_answer"]) == ("ask [for) less", True)
    assert error_text(give("mcpError")) == "no"
    assert ok(give("likeMcp"))["structured_content"] == {"content": [{"type": "text"}], "more": 1}


def test_content_of_the_ai_sdk(give):
    assert ok(give("ai"))["content"] == [
        {"type": "text", "text": "one"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource_link", "uri": "https://a.b/c.pdf", "name": "file"},
    ]


GENERATORS = """
    /** Counts. */
    export async function* count(to) { for (let i = 0; i < to; i++) yield i }
    /** Counts, and returns. */
    export function* total(to) { let sum = 0; for (let i = 0; i < to; i++) { sum += i; yield i } return { sum } }
    /** Reports. */
    export async function* report() { yield { progress: 1, total: 2 }; yield { progress: 2, total: 2 }; yield "done" }
    /** Fails after a report. */
    export async function* fail() { yield 1; throw new Error("broken") }
    /** Reports by its context. */
    export async function load(input, { onProgress, progress }) { onProgress({ file: 1 }); progress(2n ** 60n); return "loaded" }
    /** Reports by a parameter. @param {(data: unknown) => void} onProgress */
    export async function byName(files, onProgress) { onProgress(files); return files }
    /** Reports what cannot be written. */
    export async function* bad() { const loop = []; loop.push(loop); yield loop; yield "x".repeat(5 << 20); return "end" }
    /** Reports late. */
    export async function late(input, { progress }) { setTimeout(() => progress("late"), 50); return "done" }
"""


def test_progress(workshop):
    worker, tools = workshop.load(GENERATORS)
    assert list(tools["byName"]["input_schema"]["properties"]) == ["files"]
    seen, answer = worker.watch("count", {"to": 3})
    assert (seen, text_of(answer)) == ([0, 1, 2], "2")
    seen, answer = worker.watch("total", {"to": 3})
    assert (seen, answer["structured_content"]) == ([0, 1, 2], {"sum": 3})
    seen, answer = worker.watch("report")
    assert (seen, text_of(answer)) == ([{"progress": 1, "total": 2}, {"progress": 2, "total": 2}], "done")
    seen, answer = worker.watch("fail")
    assert (seen, error_text(answer)) == ([1], "Error: broken")
    seen, answer = worker.watch("load")
    assert (seen, text_of(answer)) == ([{"file": 1}, 2**60], "loaded")
    seen, answer = worker.watch("byName", {"files": 3})
    assert (seen, text_of(answer)) == ([3], "3")
    assert worker.watch("late")[0] == []
    seen, answer = worker.watch("bad")
    assert (seen, text_of(answer)) == ([], "end")
    worker.wait_for_log("bad: progress was dropped: the result refers to itself", "bad: progress was dropped: the result is longer")


def test_progress_is_not_sent_to_nobody(workshop):
    worker, _ = workshop.load(GENERATORS)
    assert text_of(worker.call("count", {"to": 3})) == "2"


def test_a_failed_fetch_says_why(workshop):
    with socket.socket() as unused:  # bound, but without a listener
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        worker, _ = workshop.load("/** Reads.\n * @param {string} url */\nexport async function read(url) { return (await fetch(url)).text() }")
        assert error_text(worker.call("read", {"url": url})).startswith("Error: TypeError: fetch failed: connect ECONNREFUSED 127.0.0.1")
