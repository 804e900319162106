"""The cases of tests/corpus, a service with the tools that they call, and how a message is sent to it."""

import contextlib
import json
import pathlib
import shutil
import urllib.parse

import pytest

from harness import REPO, Crib
from upstream import Upstream, reply_with

CORPUS = REPO / "tests" / "corpus"


def cases():
    """Every case as a parameter of its own."""
    return [pytest.param(case, id=f"{path.stem}-{case['name']}") for path in sorted(CORPUS.glob("*.json"))
            for case in json.loads(path.read_text(encoding="utf-8"))]


@contextlib.contextmanager
def start_service(folder):
    """The service. Its tools record each run in the file `ran` of its folder."""
    folder, upstream = pathlib.Path(folder), Upstream()
    upstream.script("/broken", 500)
    upstream.script("/pdf", reply_with(b"%PDF-1.7 of the tests", kind="application/pdf"))
    shutil.copy(CORPUS / "tool", folder)
    manifest = (CORPUS / "toolcrib.yaml").read_text(encoding="utf-8")
    crib = Crib(folder, manifest.replace("127.0.0.1:PORT", upstream.base.partition("//")[2]))
    try:
        yield crib
    finally:
        print(f"--- stderr of {crib.folder}\n{crib.stderr[-6000:]}")
        crib.stop()
        upstream.close()


def post(crib, case, message, run):
    """Sends one message of a case."""
    query = {"run_id": run, **case.get("query", {})}
    path = "/calls?" + urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
    if isinstance(message, str):
        return crib.post(path, message.encode(), headers={"content-type": "text/plain; charset=utf-8"})
    return crib.post(path, json.dumps(message, ensure_ascii=False).encode(), headers={"content-type": "application/json"})
