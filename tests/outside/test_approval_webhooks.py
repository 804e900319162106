"""Webhooks about waiting calls, verified with the library of Standard Webhooks, and the page behind their link."""

import json
import queue
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import free_port, poll
from recipes import sh
from standardwebhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AGENT, BOSS = "agent-key-0123456789", "boss-key-012345678901"
FORM = {"content-type": "application/x-www-form-urlencoded"}


class Receiver:
    """Keeps the webhooks that it is sent. The first requests get the statuses of `failures`."""

    def __init__(self):
        self.got = queue.Queue()
        self.failures = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                outer.got.put((dict(self.headers), body))
                self.send_response(outer.failures.pop(0) if outer.failures else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self):
        """The next webhook, verified."""
        headers, body = self.got.get(timeout=30)
        return headers["webhook-id"], Webhook(SECRET).verify(body, headers)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


def manifest(receiver, *more, **policy):
    notify = [{"url": receiver.url, "secret": SECRET, "name": "chat"}, *more]
    pay = sh("echo paid", effect="write", parameters={"amount": {"type": "integer", "description": "Euros."}, "to": {"type": "string", "description": "Whom."}},
             approval={"wait": "10ms", "message": "Check <it>.", **policy})
    return {"server": {"public_url": "https://tools.test/crib"}, "approvals": {"notify": notify}, "tools": {"pay": pay},
            "callers": [{"name": "agent", "key": AGENT}, {"name": "boss", "key": BOSS, "admin": True}]}


def waiting(crib, **arguments):
    reply = crib.invoke("pay", {"amount": 5, "to": "ann", **arguments}, key=AGENT)
    assert (reply.status, reply.json["state"]) == (202, "waiting"), reply
    return reply.json["invocation_id"]


def path_of(event):
    link = event["data"]["link"]
    assert link.startswith("https://tools.test/crib/approvals/")
    return link.removeprefix("https://tools.test/crib")


def decide(crib, path, decision, note="", **headers):
    return crib.post(path, urllib.parse.urlencode({"decision": decision, "note": note}), headers={**FORM, **headers})


def ended(crib, call):
    return poll(lambda: (row := crib.get(f"/invocations/{call}", key=BOSS).json)["state"] not in ("waiting", "running", "reserved") and row)


def test_webhook_is_signed_and_its_link_decides_once(start, receiver):
    crib = start(manifest(receiver))
    call = waiting(crib, to="<script>alert(1)</script>")
    name, event = receiver.next()
    assert (name, event["type"]) == (f"msg_{call}", "approval.waiting")
    data = event["data"]
    assert (data["invocation_id"], data["tool"], data["caller"]) == (call, "pay", "agent")
    assert (data["arguments"]["amount"], data["message"], data["effect"]) == (5, "Check <it>.", "write")
    path = path_of(event)

    page = crib.get(path)
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert "script-src" not in page.headers["content-security-policy"] and "default-src 'none'" in page.headers["content-security-policy"]
    assert (page.headers["cache-control"], page.headers["referrer-policy"]) == ("no-store", "same-origin")
    text = page.body.decode()
    assert "Check &lt;it&gt;." in text and "&lt;script&gt;" in text and "<script" not in text and 'value="approve"' in text
    assert crib.get(f"/invocations/{call}", key=BOSS).json["state"] == "waiting", "GET changes nothing"

    done = decide(crib, path, "approve", note="by phone")
    assert done.status == 200 and "Approved" in done.body.decode()
    row = ended(crib, call)
    assert row["state"] == "succeeded"
    assert (row["approval"]["decided_by"], row["approval"]["note"]) == ("link:chat", "by phone")
    for decision in ("approve", "deny"):
        again = decide(crib, path, decision)
        assert again.status == 409 and "decided already" in again.body.decode()
    later = crib.get(path)
    assert later.status == 200 and "By link:chat. Reason: by phone" in later.body.decode() and "<form" not in later.body.decode()
    assert len(crib.rows(key=BOSS)) == 1, "a second decision starts nothing"


def test_link_denies(start, receiver):
    crib = start(manifest(receiver))
    call = waiting(crib)
    path = path_of(receiver.next()[1])
    assert decide(crib, path, "deny", note="wrong recipient").status == 200
    row = ended(crib, call)
    assert (row["state"], row["kind"], row["approval"]["note"]) == ("refused", "approval_denied", "wrong recipient")


def test_only_the_right_link_decides(start, receiver):
    other = {"url": receiver.url, "secret": "whsec_" + "QUFB" * 10, "name": "mail"}
    crib = start(manifest(receiver, other))
    first, second = waiting(crib), waiting(crib)
    found = []
    while len(found) < 2:
        headers, body = receiver.got.get(timeout=30)
        data = json.loads(body)["data"]
        if "link=chat" in data["link"]:
            found.append((data["invocation_id"], path_of({"data": data})))
    paths = dict(found)
    good = paths[first]
    token = good.split("token=")[1]
    bad = [good.replace("link=chat", "link=mail"), good.replace("link=chat", "link=nobody"), good[:-1], good.replace(token, ""),
           good.replace(first, second), good.replace(first, "no-id"), good.replace(first, "01a20abd-2def-7354-a2db-b60ccc0aa579")]
    for path in bad:
        for reply in (crib.get(path), decide(crib, path, "approve")):
            assert reply.status == 404 and "not valid" in reply.body.decode(), (path, reply)
    assert crib.get(good.split("?")[0]).status == 400
    for body in ("decision=maybe", "note=x", "decision=approve&x=1", "decision=approve&note=" + "x" * 2001,
                 "decision=deny&decision=approve", "decision=approve&decision=approve", "decision=approve&note=a&note=b"):
        reply = crib.post(good, body, headers=FORM)
        assert reply.status == 400 and "This has not changed anything" in reply.body.decode(), (body, reply)
    assert crib.post(good, '{"decision": "approve"}', headers={"content-type": "application/json"}).status == 415
    foreign = decide(crib, good, "approve", origin="https://evil.test")
    assert foreign.status == 403
    for call in (first, second):
        assert crib.get(f"/invocations/{call}", key=BOSS).json["state"] == "waiting"
    assert decide(crib, good, "approve", origin="https://tools.test", host="tools.test").status == 200, "the page's own origin"
    assert ended(crib, first)["state"] == "succeeded"


def test_webhook_is_sent_again_until_it_arrives(start, receiver):
    receiver.failures = [500, 302]
    crib = start(manifest(receiver))
    call = waiting(crib)
    names = [receiver.next()[0] for _ in range(3)]
    assert names == [f"msg_{call}"] * 3
    crib.wait_for_log("a webhook could not be delivered")
    assert SECRET not in "".join(crib.stderr) and "token" not in "".join(crib.stderr)
    poll(lambda: 'toolcrib_approval_webhooks_total{outcome="delivered"} 1' in crib.get("/metrics", key=BOSS).body.decode())
    assert 'toolcrib_approval_webhooks_total{outcome="failed"} 2' in crib.get("/metrics", key=BOSS).body.decode()
    assert receiver.got.empty()


def test_webhook_is_sent_after_a_crash_and_the_link_stays_valid(start, receiver):
    port = free_port()
    dead = {"url": f"http://127.0.0.1:{port}/", "secret": SECRET, "name": "dead"}
    crib = start(manifest(receiver, dead))
    call = waiting(crib)
    path = path_of(receiver.next()[1])
    crib.wait_for_log("a webhook could not be delivered")
    crib.kill9()
    crib.restart()
    assert receiver.next()[0] == f"msg_{call}", "the other receiver has not got it, so all get it again"
    assert decide(crib, path, "approve").status == 200
    assert ended(crib, call)["state"] == "succeeded"


def test_arguments_that_may_not_be_stored_are_only_on_the_page(start, receiver):
    spec = manifest(receiver)
    spec["tools"]["pay"]["capture"] = "digest"
    crib = start(spec)
    call = waiting(crib, to="secret-recipient")
    headers, body = receiver.got.get(timeout=30)
    assert "secret-recipient" not in body
    event = Webhook(SECRET).verify(body, headers)
    assert event["data"]["arguments"] is None
    path = path_of(event)
    assert "secret-recipient" in crib.get(path).body.decode()
    assert decide(crib, path, "approve").status == 200
    assert ended(crib, call)["state"] == "succeeded"
    assert "secret-recipient" not in crib.get(path).body.decode()


def test_expired_link_changes_nothing(start, receiver):
    crib = start(manifest(receiver, expires="1500ms"))
    call = waiting(crib)
    path = path_of(receiver.next()[1])
    assert ended(crib, call)["kind"] == "approval_expired"
    assert decide(crib, path, "approve").status == 409
    assert "expired" in crib.get(path).body.decode()
