"""A token endpoint (RFC 6749) and an API that accepts its tokens, as steps of the scripted upstream."""

import base64
import itertools
import threading
import urllib.parse


class TokenServer:
    """`/token` issues access tokens, `/api` answers only to the tokens that are valid now."""

    def __init__(self, upstream, lifetime=3600, delay=0.0):
        self.upstream, self.lifetime, self.delay = upstream, lifetime, delay
        self.lock, self.numbers = threading.Lock(), itertools.count(1)
        self.forms, self.clients, self.issued, self.valid = [], [], [], set()
        self.refresh_token = None  # the one that is valid now
        self.failure = None  # (status, body) in place of a token
        self.token_url, self.api_url = upstream.script("/token", self.issue), upstream.script("/api", self.serve)

    def issue(self, handler):
        self.upstream.over.wait(self.delay)
        form = dict(urllib.parse.parse_qsl(handler.body.decode()))
        basic = handler.headers.get("authorization", "")
        with self.lock:
            self.forms.append(form)
            self.clients.append(base64.b64decode(basic[6:]).decode() if basic.startswith("Basic ") else form.get("client_id"))
            if self.failure:
                return handler.reply(*self.failure)
            if form["grant_type"] == "refresh_token":
                if form["refresh_token"] != self.refresh_token:
                    return handler.reply(400, {"error": "invalid_grant", "error_description": f"Unknown {form['refresh_token']}"})
                self.refresh_token = f"rotated-refresh-token-{next(self.numbers)}"
            token = f"issued-access-token-{next(self.numbers)}"
            self.issued.append(token)
            self.valid.add(token)
            answer = {"access_token": token, "token_type": "Bearer"}
            answer.update({"expires_in": self.lifetime} if self.lifetime else {})
            answer.update({"refresh_token": self.refresh_token} if self.refresh_token else {})
        handler.reply(200, answer)

    def serve(self, handler):
        token = handler.headers.get("authorization", "").removeprefix("Bearer ")
        with self.lock:
            is_valid = token in self.valid
        if is_valid:
            handler.reply(200, {"method": handler.command, "body": handler.body.decode(), "echo": token})
        else:
            handler.reply(401, {"error": "invalid_token", "token": token})

    def revoke(self):
        """Every token that was issued until now is refused from now on."""
        with self.lock:
            self.valid.clear()

    @property
    def token_requests(self):
        return self.upstream.hits("/token")

    @property
    def api_requests(self):
        return self.upstream.hits("/api")
