"""Content blocks of MCP: text, images, audio and files, as JSON.

Bytes become an image or audio if they begin like one, else a resource.
"""

import base64
import io
import re
import urllib.parse

from .json_values import BadOutput, dump_json, quote

FILE_SIGNATURES = [  # first bytes of files: WHATWG's MIME Sniffing Standard, 6.1 and 6.2
    (rb"\x89PNG\r\n\x1a\n", "image/png"), (rb"\xff\xd8\xff", "image/jpeg"), (rb"GIF8[79]a", "image/gif"),
    (rb"RIFF....WEBPVP", "image/webp"), (rb"RIFF....WAVE", "audio/wav"), (rb"ID3|\xff\xfb", "audio/mpeg"), (rb"OggS\x00", "audio/ogg"),
    (rb"%PDF-", "application/pdf"),
]  # fmt: skip
DOCUMENTS = {
    "pdf": "application/pdf", "csv": "text/csv", "html": "text/html", "txt": "text/plain", "md": "text/markdown",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip


def text_block(text):
    return '{"type":"text","text":' + quote(text) + "}"


def bytes_block(data, kind=None, name="result"):
    kind = kind or sniff_mime_type(data)
    family, blob = kind.partition("/")[0], base64.b64encode(data).decode()
    if family in ("image", "audio"):
        return dump_json({"type": family, "data": blob, "mimeType": kind})
    resource = {"uri": f"result:///{name}", "mimeType": kind}
    try:
        resource.update({"text": data.decode()} if family == "text" else {"blob": blob})
    except UnicodeDecodeError:
        resource["blob"] = blob
    return dump_json({"type": "resource", "resource": resource})


def sniff_mime_type(data):
    return next((kind for pattern, kind in FILE_SIGNATURES if re.match(pattern, data, re.DOTALL)), "application/octet-stream")


def encode_png(image):
    """An image of Pillow as a PNG file."""
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def is_mcp_block(part):
    """MCP's {"type": "image"|"audio", "data", "mimeType"} and {"type": "resource", "resource": {"uri", "text"|"blob"}}."""
    if part.get("type") in ("image", "audio"):
        return isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str)
    resource = part.get("resource") if part.get("type") == "resource" else None
    contents = isinstance(resource, dict) and [resource.get("text"), resource.get("blob")]
    return bool(contents) and isinstance(resource.get("uri"), str) and sum(isinstance(content, str) for content in contents) == 1


def media_block(part):
    """The block of {"image"|"document": {"format", "source": {"bytes"}}}. The bytes are raw or base64."""
    word = "image" if "image" in part else "document"
    media = part[word]
    source = media.get("source") if isinstance(media, dict) else None
    data = source.get("bytes") if isinstance(source, dict) else None
    if isinstance(data, str):
        try:
            data = base64.b64decode(data, validate=True)
        except ValueError:
            raise BadOutput(f"the {word}'s bytes are a string that is not base64") from None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return text_block(dump_json(part))  # the data is stored elsewhere: pass the reference on
    data, kind = bytes(data), str(media.get("format") or "").lower()
    if word == "image":
        return bytes_block(data, f"image/{'jpeg' if kind == 'jpg' else kind}" if kind else None)
    name = urllib.parse.quote(str(media.get("name") or "document"), safe="") + (f".{kind}" if kind else "")
    return bytes_block(data, DOCUMENTS.get(kind), name)
