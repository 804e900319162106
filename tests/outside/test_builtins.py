"""The built-ins that look at files, addresses and stored results: what they let through, and what they keep shut."""

import base64
import os
import struct
import zlib

import pytest

from harness import cli, ok, problem, error_result, text_of
from recipes import CALLERS, KEYS, params, sh
from upstream import reply_with


def png(width, height):
    """A whole picture: grey, of this size."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + b"\x80" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
WEBP = base64.b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA=")
JPEG = (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x0b\x08\x00\x08\x00\x10\x01\x01\x11\x00"
        b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x7f\xff\xd9")
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """pictures/ is what the tools may read; its parent is what they may not."""
    place = tmp_path_factory.mktemp("files")
    root = place / "pictures"
    (root / "sub").mkdir(parents=True)
    (place / "secret.png").write_bytes(png(7, 7))
    for name, data in {"grey.png": png(40, 30), "sub/dot.gif": GIF, "photo.jpg": JPEG, "new.webp": WEBP, "paper.pdf": PDF,
                       "lies.png": GIF, "drawing.png": b"<svg xmlns='http://www.w3.org/2000/svg'/>", "note.txt": b"words\n",
                       "cut.png": png(40, 30)[:18], "data.bin": b"\x00\x01\xff"}.items():
        (root / name).write_bytes(data)
    os.symlink("../secret.png", root / "link.png")
    os.symlink(place / "secret.png", root / "far.png")
    os.symlink("..", root / "up")
    os.mkfifo(root / "pipe.png")
    return root


@pytest.fixture(scope="module")
def crib(start_shared, folder):
    look = {"kind": "native", "use": "add_image"}
    return start_shared({"tools": {
        "add_image": {"kind": "native"},
        "look": dict(look, **{"with": {"root": str(folder), "allow_private": True}}),
        "small": dict(look, **{"with": {"root": str(folder), "allow_private": True, "max_bytes": "100B"}}),
        "read": {"kind": "native", "use": "read_file", "with": {"root": str(folder)}},
        "fetch": {"kind": "native", "use": "http_get", "with": {"allow_private": True}}}})


def picture_of(answer):
    """The one picture of an answer: media type, bytes, and its description."""
    image, text = answer["content"]
    assert (image["type"], text["type"]) == ("image", "text"), answer
    assert set(image) == {"type", "data", "mimeType"} and answer["structured_content"] is None, answer
    return image["mimeType"], base64.b64decode(image["data"], validate=True), text["text"]


PICTURES = [("grey.png", png(40, 30), "image/png", "40x30"), ("sub/dot.gif", GIF, "image/gif", "1x1"),
            ("photo.jpg", JPEG, "image/jpeg", "16x8"), ("new.webp", WEBP, "image/webp", "1x1"),
            ("lies.png", GIF, "image/gif", "1x1"), ("./sub/../grey.png", png(40, 30), "image/png", "40x30")]


@pytest.mark.parametrize("path, data, mime, size", PICTURES)
def test_pictures_from_files_are_returned(crib, path, data, mime, size):
    """The bytes are unchanged; they decide the type, not the name."""
    kind, bytes_, text = picture_of(ok(crib.invoke("look", {"source": path})))
    assert (kind, bytes_) == (mime, data) and path in text and mime in text and size in text, text


@pytest.mark.parametrize("path, data, mime, size", PICTURES)
@pytest.mark.parametrize("head", ["data:image/png;base64,", "data:;base64,", "DATA:text/html;charset=utf-8;base64,"])
def test_pictures_from_data_uris_are_returned(crib, path, data, mime, size, head):
    """Also by a tool that reads no files."""
    kind, bytes_, text = picture_of(ok(crib.invoke("add_image", {"source": head + base64.b64encode(data).decode()})))
    assert (kind, bytes_) == (mime, data) and size in text, text


def test_pictures_from_urls_are_returned(crib, upstream):
    """The bytes decide the type, not the server's header; a query, which may contain a secret, is not repeated."""
    for declared in ("image/png", "text/plain", "application/octet-stream", "image/gif"):
        url = upstream.script("/pic", reply_with(png(40, 30), kind=declared))
        kind, data, text = picture_of(ok(crib.invoke("look", {"source": url + "?token=hush"})))
        assert (kind, data) == ("image/png", png(40, 30)) and url in text and "hush" not in text, text


@pytest.mark.parametrize("path", ["drawing.png", "paper.pdf", "note.txt", "data.bin", "cut.png"])
def test_non_picture_files_are_refused(crib, path):
    """The error result says what would be right; a picture that ends in its header is damaged."""
    text = text_of(error_result(crib.invoke("look", {"source": path})))
    assert path in text and ("damaged" in text if path == "cut.png" else "PNG, JPEG, GIF or WebP" in text), text


def test_non_picture_urls_are_refused(crib, upstream):
    error_result(crib.invoke("look", {"source": upstream.script("/x.png", reply_with(b"<html>", kind="image/png"))}))
    assert "404" in text_of(error_result(crib.invoke("look", {"source": upstream.base + "/notfound"})))
    problem(crib.invoke("look", {"source": upstream.script("/away.png", lambda h: h.reply(302, b"", Location=upstream.base + "/png"))}),
            502, "upstream_failed")


@pytest.mark.parametrize("path", ["../secret.png", "sub/../../secret.png", "link.png", "far.png", "up/secret.png", "/etc/passwd"])
@pytest.mark.parametrize("tool, argument", [("look", "source"), ("read", "path")])
def test_paths_outside_the_folder_are_refused(crib, folder, tool, argument, path):
    text = text_of(error_result(crib.invoke(tool, {argument: path})))
    assert "leads out" in text and str(folder.parent) not in text, text


def test_non_regular_files_are_refused(crib, folder):
    """Neither a pipe nor a folder blocks a call, and the text shows no path of this machine."""
    for path, words in (("pipe.png", "not a regular file"), ("sub", "is a folder"), ("nope.png", "does not exist")):
        text = text_of(error_result(crib.invoke("look", {"source": path}, timeout="10s")))
        assert words in text and str(folder) not in text, text


@pytest.mark.parametrize("source", ["", "a.png", "/etc/passwd", "file:///etc/passwd", "FILE:///etc/passwd", "ftp://127.0.0.1/a.png",
                                    "gopher://127.0.0.1/", "data:image/png", "https://user:pw@example.com/a.png", "http://a b/",
                                    "http:\\\\127.0.0.1\\a.png"])
def test_invalid_sources_are_refused(crib, source):
    """Without a root there are no files; only the schemes http, https and data are accepted. The refusals cost nothing."""
    error = problem(crib.invoke("add_image", {"source": source}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/source" and "`source`" in error["violations"][0]["message"], error


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0x7f.1", "169.254.169.254", "[::ffff:127.0.0.1]", "10.0.0.1"])
def test_private_addresses_are_denied(crib, upstream, host):
    """As for http_get: unless the manifest opens them; metadata addresses never."""
    error = problem(crib.invoke("add_image", {"source": f"http://{host}:{upstream.port}/png"}), 502, "upstream_failed")
    assert "may not reach" in error["detail"] or "no answer" in error["detail"] or "resolve" in error["detail"], error
    assert upstream.hits() == 0
    metadata = problem(crib.invoke("look", {"source": "http://169.254.169.254/png"}), 502, "upstream_failed")
    assert "may not reach" in metadata["detail"], metadata


def test_too_large_pictures_are_refused(crib, upstream):
    """Files, answers and data: URIs alike; an answer is not read to its end."""
    data = base64.b64encode(png(200, 200)).decode()
    big = os.urandom(200)
    assert "100 B" in text_of(error_result(crib.invoke("small", {"source": "data:;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + big).decode()})))
    problem(crib.invoke("small", {"source": upstream.base + "/endless"}), 502, "bad_output")
    assert upstream.poured < 64 << 20
    assert ok(crib.invoke("look", {"source": "data:;base64," + data}))
    assert len(png(40, 30)) <= 100 and ok(crib.invoke("small", {"source": "grey.png"}))


def test_large_picture_is_recorded_whole(crib, folder):
    """A picture of four megabytes is returned, and the ledger has it unchanged."""
    data = png(10, 10) + os.urandom(4 << 20)
    (folder / "large.png").write_bytes(data)
    answer = ok(crib.invoke("look", {"source": "large.png"}))
    assert picture_of(answer)[1] == data
    row = crib.wait_row("tool=look")
    assert row["tool"] == "look" and picture_of(crib.row(answer["invocation_id"])["result"])[1] == data
    (folder / "large.png").write_bytes(png(10, 10) + os.urandom(6 << 20))
    assert "5.0 MiB" in text_of(error_result(crib.invoke("look", {"source": "large.png"})))


def test_files_get_typed_content(crib, upstream):
    """read_file and http answers: pictures as pictures, documents as resources, text as text."""
    assert ok(crib.invoke("read", {"path": "note.txt"}))["content"] == [{"type": "text", "text": "words\n"}]
    grey = {"type": "image", "data": base64.b64encode(png(40, 30)).decode(), "mimeType": "image/png"}
    assert ok(crib.invoke("read", {"path": "grey.png"}))["content"] == [grey]
    blob = base64.b64encode(PDF).decode()
    paper = {"uri": "file:///paper.pdf", "mimeType": "application/pdf", "blob": blob}
    assert ok(crib.invoke("read", {"path": "paper.pdf"}))["content"] == [{"type": "resource", "resource": paper}]
    assert "data.bin" in text_of(error_result(crib.invoke("read", {"path": "data.bin"})))
    url = upstream.script("/docs/paper", reply_with(PDF, kind="application/pdf"))
    answer = ok(crib.invoke("fetch", {"url": url + "?sig=hush"}))
    assert answer["content"] == [{"type": "resource", "resource": {"uri": url, "mimeType": "application/pdf", "blob": blob}}]
    assert crib.row(answer["invocation_id"])["result"]["content"] == answer["content"]
    assert ok(crib.invoke("fetch", {"url": upstream.script("/raw", reply_with(PDF, kind="application/octet-stream"))}))["content"][0]["resource"]["blob"] == blob


# ---- read_cache --------------------------------------------------------------------------------------------------------

def number_tool(**policy):
    """A tool whose every run returns another answer."""
    return sh("cat >/dev/null; date +%s%N", effect="read", parameters=params(city="string", days={"type": "integer", "default": 3}),
              cache=dict({"ttl": "1h"}, **policy))


def test_stored_results_are_read(start):
    """By any spelling of the arguments; over kill -9; without a run."""
    crib = start({"tools": {"read_cache": {"kind": "native"}, "number": dict(number_tool(), aliases=["numbers"])}, "ledger": {"durability": "strict"}})
    key = 'tool:number|input:{"city": "Oslo"}'
    missing = text_of(error_result(crib.invoke("read_cache", {"key": key})))
    assert "nothing is stored" in missing and "tool:" in missing, missing
    first = ok(crib.invoke("number", {"city": "Oslo"}))["content"]
    for repeated in (key, 'tool:number|input:{"days":3,"city":"Oslo"}', 'tool:number|input:{"days": "3", "city": "Oslo"}',
                  "tool:number|input:city=Oslo", "tool:number|input:city=Oslo&days=3", "tool: number|input: city=Oslo, days=3 ",
                  "tool:numbers|input:city=Oslo", "tool:functions.Number|input:city=Oslo"):
        assert ok(crib.invoke("read_cache", {"key": repeated}))["content"] == first, repeated
    crib.kill9()
    crib.start()
    assert ok(crib.invoke("read_cache", {"key": key}))["content"] == first
    assert len(crib.rows("tool=number")) == 1
    crib.post("/tools/number/disable")
    assert text_of(error_result(crib.invoke("read_cache", {"key": key}))) == "`number` is disabled"
    crib.post("/tools/number/enable")
    for key, words in (("tool:numbr|input:city=Oslo", "did you mean number?"), ("tool:read_cache|input:key=x", "never stored"),
                       ('tool:number|input:{"town": "Oslo"}', "no call of `number` can have had this input: `town` is not a parameter"),
                       ("tool:number|input:city=Oslo&days=4", "nothing is stored for this call of `number`")):
        assert words in text_of(error_result(crib.invoke("read_cache", {"key": key})))
    for key in ("", "Oslo", "tool:number", "tool:number|input:{'city': 1}", "tool:number|input:city=a=b", "tool:number|input:[1]"):
        assert problem(crib.invoke("read_cache", {"key": key}), 422, "invalid_arguments")["violations"][0]["pointer"] == "/key"
    crib.delete("/tools/number/cache")
    assert "nothing is stored" in text_of(error_result(crib.invoke("read_cache", {"key": "tool:number|input:city=Oslo"})))


def test_stored_result_needs_its_context(start):
    crib = start({"tools": {"read_cache": {"kind": "native"}, "number": number_tool(context=["tenant"])}})
    stored = ok(crib.invoke("number", {"city": "a"}, context={"tenant": "acme", "trace": 1}))["content"]
    key = {"key": "tool:number|input:city=a"}
    assert ok(crib.invoke("read_cache", key, context={"tenant": "acme", "trace": 2}))["content"] == stored
    for context in ({}, {"tenant": "other"}):
        assert "nothing is stored" in text_of(error_result(crib.invoke("read_cache", key, context=context)))


def test_stored_results_of_others_stay_private(start):
    """Callers read their own results and shared ones, admins no more than that, and no caller reads results of a tool without a grant."""
    callers = [dict(CALLERS[0]), dict(CALLERS[1], deny=["own"]), CALLERS[2]]
    crib = start({"callers": callers, "tools": {"read_cache": {"kind": "native"}, "own": number_tool(), "all": number_tool(scope="shared")}}, env=KEYS)
    own = ok(crib.invoke("own", {"city": "a"}, key=KEYS["ANN"]))["content"]
    shared = ok(crib.invoke("all", {"city": "a"}, key=KEYS["ANN"]))["content"]

    def read(tool, who):
        return crib.invoke("read_cache", {"key": f"tool:{tool}|input:city=a"}, key=KEYS[who])

    assert ok(read("own", "ANN"))["content"] == own
    for who in ("ANN", "BOB", "ROOT"):
        assert ok(read("all", who))["content"] == shared
    assert "nothing is stored" in text_of(error_result(read("own", "ROOT")))
    assert text_of(error_result(read("own", "BOB"))) == "there is no tool `own`"
    assert text_of(error_result(read("owm", "BOB"))) == "there is no tool `owm`", "and no likeness shows it"


def test_settings_without_effect_are_reported(tmp_path):
    """`check` names the place."""
    (tmp_path / "toolcrib.yaml").write_text("tools:\n  read_cache:\n    kind: native\n    cache: {ttl: 1m, context: []}\n"
                                            "  add_image:\n    kind: native\n    with: {rot: x}\n")
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 64 and ":4:5: warning: tools.read_cache.cache: " in done.stdout + done.stderr, done
    assert "tools.add_image.with.rot" in done.stdout + done.stderr and "root" in done.stdout + done.stderr, done


def test_denied_files_are_not_read(start, tmp_path):
    folder = tmp_path / "files"
    (folder / ".git").mkdir(parents=True)
    for name in (".env", ".git/config", "server.pem", "notes.md"):
        (folder / name).write_text("very-secret words")
    (folder / "link.txt").symlink_to(".env")
    read = lambda **more: {"kind": "native", "use": "read_file", "with": {"root": str(folder), **more}}  # noqa: E731
    crib = start({"tools": {"read": read(), "own": read(deny=["*.md"])}})
    for path in (".env", ".ENV", ".git/config", "server.pem", "link.txt", "./.git/../.env"):
        answer = error_result(crib.invoke("read", {"path": path}))
        assert "denied" in text_of(answer) and "very-secret" not in str(answer), path
    assert text_of(ok(crib.invoke("read", {"path": "notes.md"}))) == "very-secret words"
    assert ".env*" in crib.get("/tools/read").json["description"]
    assert text_of(ok(crib.invoke("own", {"path": ".env"}))) == "very-secret words"
    assert "denied" in text_of(error_result(crib.invoke("own", {"path": "notes.md"})))
    assert "*.md" in crib.get("/tools/own").json["description"]
