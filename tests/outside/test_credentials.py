"""Credentials of requests: OAuth tokens, and credentials of the caller of each call."""

import json
import pathlib
import time

import pytest

from harness import cli, error_result, ok, parallel, poll, problem, text_of
from model import KEY, Model, calls
from recipes import CALLERS, KEYS, to_yaml
from tokens import TokenServer
from upstream import reply_with

ANN, BOB, ROOT = KEYS["ANN"], KEYS["BOB"], KEYS["ROOT"]
SECRETS = {"CLIENT_SECRET": "client-secret-0123456789", "REFRESH": "first-refresh-token-0", "ANN_TOKEN": "anns-own-token-0123456789",
           "BOB_TOKEN": "bobs-own-token-0123456789"}
ENV = {**KEYS, **SECRETS}


def oauth(server, **more):
    return {"oauth": {"token_url": server.token_url, "client_id": "crib", "client_secret": "${env:CLIENT_SECRET}", **more}}


def http(url, auth=None, method="GET", **more):
    request = {"url": url, "method": method, "allow_private": True, **more.pop("request", {})}
    tool = {"kind": "http", "description": "Asks the API.", "effect": "read", "request": request, **more}
    return {**tool, "auth": auth} if auth else tool


def assert_no_secret(crib, secrets, key=None):
    """No secret is in any answer of the service, its log, or its ledger."""
    paths = ["/tools", "/invocations", "/sources", "/metrics", "/usage", "/openapi.json", "/readyz", "/tools?format=mcp"]
    paths += [f"/tools/{tool['name']}" for tool in crib.get("/tools", key=key).json["tools"]]
    paths += [f"/invocations/{row['invocation_id']}" for row in crib.rows(key=key)]
    output = {path: crib.get(path, key=key).body.decode() for path in paths}
    crib.stop()
    output.update({"log": crib.stderr + crib.stdout})
    for file in pathlib.Path(crib.folder).glob("*.db*"):
        output[str(file)] = file.read_bytes().decode("utf-8", "replace")
    for where, text in output.items():
        for secret in secrets:
            assert secret not in text, (where, secret)


@pytest.fixture
def server(upstream):
    return TokenServer(upstream)


# ---- OAuth -------------------------------------------------------------------------------------------------------------

def test_concurrent_calls_share_one_token(start, upstream):
    server = TokenServer(upstream, delay=0.3)
    auth = oauth(server, scopes=["a", "b"], audience="shop", parameters={"resource": "r"})
    crib = start({"tools": {name: http(server.api_url, auth) for name in ("one", "other")}}, env=ENV)
    answers = parallel(20, lambda index: ok(crib.invoke(("one", "other")[index % 2])))
    assert (server.token_requests, server.api_requests) == (1, 20)
    assert server.forms == [{"grant_type": "client_credentials", "scope": "a b", "audience": "shop", "resource": "r"}]
    assert server.clients == ["crib:client-secret-0123456789"]
    assert {answer["structured_content"]["echo"] for answer in answers} == {"[redacted]"}, "an API may repeat the token"
    assert_no_secret(crib, [*SECRETS.values(), *server.issued])


def test_client_may_be_in_the_body(start, server):
    crib = start({"tools": {"t": http(server.api_url, oauth(server, client_auth="client_secret_post"))}}, env=ENV)
    ok(crib.invoke("t"))
    assert server.forms[0]["client_secret"] == SECRETS["CLIENT_SECRET"] and server.clients == ["crib"]


def test_token_is_renewed_before_it_ends(start, upstream):
    server = TokenServer(upstream, lifetime=2)
    crib = start({"tools": {"t": http(server.api_url, oauth(server))}}, env=ENV)
    ok(crib.invoke("t"))
    ok(crib.invoke("t"))
    assert server.token_requests == 1
    time.sleep(2)  # the real lifetime of a token; how tokens end is tested with a paused clock beside the code
    ok(crib.invoke("t"))
    assert server.token_requests == 2


@pytest.mark.parametrize("method, effect", [("GET", "read"), ("POST", "write")])
def test_refused_token_is_replaced_once(start, server, method, effect):
    """A 401 means that nothing happened, so a write is sent again too. It stays one attempt of one call."""
    tool = http(server.api_url, oauth(server), method, request={"json": {"n": 1}} if method == "POST" else {}, effect=effect)
    crib = start({"tools": {"t": tool}}, env=ENV)
    ok(crib.invoke("t"))
    server.revoke()
    answer = ok(crib.invoke("t"))
    assert answer["meta"]["attempts"] == 1 and (server.token_requests, server.api_requests) == (2, 3)
    if method == "POST":
        assert answer["structured_content"]["body"] == '{"n":1}', "the whole body is sent again"
    server.upstream.scripts["/api"] = [reply_with({"error": "nobody may"}, 401)]
    for _ in range(5):
        assert "HTTP 401" in text_of(error_result(crib.invoke("t")))
    assert server.token_requests == 2, "an API that refuses every token causes no further token requests"
    assert [row["state"] for row in crib.rows()][-1] == "succeeded"


def test_rotated_refresh_token_is_used(start, upstream):
    server = TokenServer(upstream, lifetime=1)
    server.refresh_token = SECRETS["REFRESH"]
    auth = oauth(server, refresh_token="${env:REFRESH}")
    manifest = {"tools": {"t": http(server.api_url, auth)}}
    crib = start(manifest, env=ENV)
    for round_ in range(3):
        ok(crib.invoke("t"))
        time.sleep(1)
    # The newest refresh token survives a reload that changes the tool.
    crib.manifest.write_text(to_yaml({"tools": {"t": {**manifest["tools"]["t"], "description": "Asks the API again."}}}))
    poll(lambda: crib.get("/tools/t").json["description"].endswith("again."), what="the reload")
    ok(crib.invoke("t"))
    used = [form["refresh_token"] for form in server.forms]
    assert used[0] == SECRETS["REFRESH"] and len(set(used)) == len(used) >= 4, used
    assert_no_secret(crib, [*SECRETS.values(), *server.issued, *used])


@pytest.mark.parametrize("failure, words, retryable", [
    ((401, {"error": "invalid_client", "error_description": "Bad secret client-secret-0123456789"}), "invalid_client: Bad secret [redacted]", False),
    ((400, {"error": "invalid_scope"}), "refused the request: invalid_scope", False),
    ((503, b"<html>"), "answered HTTP 503", True), ((302, b""), "redirects are not followed", False), ((200, b"{}"), "without an access_token", False),
])
def test_failures_of_the_token_endpoint_are_clear(start, server, failure, words, retryable):
    server.failure = failure
    crib = start({"tools": {"t": http(server.api_url, oauth(server), limits=[{"calls": 9, "per": "day"}])}}, env=ENV)
    failed = problem(crib.invoke("t"), 502, "upstream_failed")
    assert "no access token: " in failed["detail"] and words in failed["detail"] and failed["retryable"] == retryable, failed
    assert server.api_requests == 0
    assert_no_secret(crib, SECRETS.values())


def test_refused_client_is_not_tried_for_each_call(start, server):
    server.failure = (401, {"error": "invalid_client"})
    crib = start({"tools": {"t": http(server.api_url, oauth(server))}}, env=ENV)
    for _ in range(10):
        problem(crib.invoke("t"), 502, "upstream_failed")
    assert server.token_requests == 1


def test_changed_credentials_take_effect_on_reload(start, server, tmp_path):
    (tmp_path / "secret").write_text("old-client-secret-000\n")
    auth = oauth(server, client_secret=f"${{file:{tmp_path / 'secret'}}}")
    crib = start({"tools": {"t": http(server.api_url, auth)}}, env=ENV)
    ok(crib.invoke("t"))
    (tmp_path / "secret").write_text("new-client-secret-111\n")
    poll(lambda: ok(crib.invoke("t")) and server.clients[-1] == "crib:new-client-secret-111", what="the new secret")


def test_token_endpoint_goes_through_the_address_gate(start, server, tmp_path):
    def checked(token_url, **request):
        tool = http("https://api.example.com/", {"oauth": {**oauth(server)["oauth"], "token_url": token_url}})
        tool["request"].update(request)
        (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"t": tool}}))
        return cli("check", cwd=tmp_path, env=ENV)

    refused = checked("http://auth.example.com/token", allow_private=False)
    assert refused.returncode == 64 and "auth.oauth.token_url: https is needed" in refused.stdout + refused.stderr
    warned = checked("https://127.0.0.1/token", allow_private=False)
    assert warned.returncode == 0 and "may not reach unless the manifest says `request.allow_private: true`" in warned.stdout + warned.stderr
    public = checked("http://1.1.1.1/token")
    assert "a public address, and http does not protect the secrets" in public.stdout + public.stderr
    crib = start({"tools": {"t": http(server.api_url, {"oauth": {**oauth(server)["oauth"], "token_url": "http://169.254.169.254/token"}})}}, env=ENV)
    assert "may not reach" in problem(crib.invoke("t"), 502, "upstream_failed")["detail"]


@pytest.mark.parametrize("auth, words", [
    ({}, "auth: oauth or basic is missing"), ({"oauth": {"token_url": "https://a.example"}}, "client_id"),
    ({"oauht": {}}, "auth.oauht: unknown key, did you mean oauth?"),
    ({"oauth": {"token_url": "https://a.example", "client_id": "c", "client_secret": "s", "scope": "x"}}, "auth.oauth.scope: unknown key, did you mean scopes?"),
    ({"oauth": {"token_url": "https://a.example", "client_id": "c"}}, "auth.oauth.client_secret: client_secret is missing"),
    ({"oauth": {"token_url": "https://a.example", "client_id": "c", "client_secret": "${env:NONE}"}}, "environment variable NONE is not set"),
    ({"oauth": {"token_url": "ftp://a.example", "client_id": "c", "client_secret": "s"}}, "auth.oauth.token_url: a URL begins with https://"),
    ({"basic": {"username": "a:b", "password": "p"}}, "auth.basic.username: a user name cannot contain"),
])
def test_faults_of_auth_are_located(tmp_path, auth, words):
    for manifest in ({"tools": {"t": http("https://api.example.com/", auth or {"": 1})}}, {"mcp_servers": {"s": {"url": "https://mcp.example.com", "auth": auth}}},
                     {"openapi": {"a": {"document": "https://api.example.com/openapi.json", "auth": auth}}}):
        if not auth and "tools" in manifest:
            manifest["tools"]["t"]["auth"] = {}
        (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
        run = cli("check", cwd=tmp_path)
        assert run.returncode == 64 and words in run.stdout + run.stderr, (manifest, run.stdout, run.stderr)


def test_basic_authentication_is_a_header(start, upstream):
    crib = start({"tools": {"t": http(upstream.base + "/echo", {"basic": {"username": "crib", "password": "${env:CLIENT_SECRET}"}})}}, env=ENV)
    answer = ok(crib.invoke("t"))["structured_content"]["headers"]["authorization"]
    assert answer.startswith("Basic ") and "[redacted]" in answer, answer
    assert upstream.requests[0][2]["authorization"] == "Basic Y3JpYjpjbGllbnQtc2VjcmV0LTAxMjM0NTY3ODk="


def test_registered_tools_have_no_auth(start, server):
    crib = start({"callers": CALLERS, "tools": {"t": http(server.api_url)}}, env=ENV)
    tool = {"kind": "http", "description": "d", "request": {"url": "https://api.example.com/"}}
    for more in ({"auth": oauth(server)}, {"request": {"url": "https://api.example.com/", "headers": {"x": "${caller:TOKEN}"}}},
                 {"request": {"url": "https://api.example.com/", "headers": {"x": "\ufdd3TOKEN\ufdd4"}}}):
        reply = crib.request("PUT", "/tools/mine", body=json.dumps({**tool, **more}), key=ROOT)
        problem(reply, 400, "invalid_request")


def test_openapi_source_uses_one_token(start, server, tmp_path):
    paths = {path: {"get": {"operationId": name, "security": [{"login": ["read"]}]}} for path, name in (("/api", "one"), ("/api?", "other"))}
    flows = {"clientCredentials": {"tokenUrl": "https://evil.example/token", "scopes": {"read": ""}}}
    document = {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": paths,
                "components": {"securitySchemes": {"login": {"type": "oauth2", "flows": flows}}}}
    (tmp_path / "api.json").write_text(json.dumps(document))
    source = {"document": str(tmp_path / "api.json"), "base_url": server.upstream.base, "allow_private": True}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"openapi": {"shop": source}}))
    assert 'write `auth: {oauth: {token_url: \\"https://evil.example/token\\"' in json.dumps(cli("check", cwd=tmp_path).stdout)
    crib = start({"openapi": {"shop": {**source, "auth": oauth(server)}}}, env=ENV).ready()
    parallel(4, lambda index: ok(crib.invoke("one")))
    assert server.token_requests == 1, "the token comes from the manifest's endpoint"
    assert_no_secret(crib, [*SECRETS.values(), *server.issued])


# ---- credentials of the caller -----------------------------------------------------------------------------------------

def with_credentials(**tools):
    callers = [dict(caller) for caller in CALLERS]
    callers[0]["credentials"] = {"TOKEN": "${env:ANN_TOKEN}"}
    callers[1]["credentials"] = {"TOKEN": "${env:BOB_TOKEN}"}
    return {"callers": callers, "tools": tools}


def own(upstream, path="/echo", **more):
    return http(upstream.base + path, request={"headers": {"x-token": "Bearer ${caller:TOKEN}"}}, **more)


def sent(upstream, name="x-token"):
    return [headers.get(name) for _, path, headers, _ in upstream.requests]


def test_each_caller_sends_its_own_credential(start, upstream):
    tool = http(upstream.base + "/echo/${caller:TOKEN}", request={"query": {"q": "${caller:TOKEN}"}, "headers": {"x-token": "${caller:TOKEN}"}})
    crib = start(with_credentials(t=tool), env=ENV)
    parallel(10, lambda index: ok(crib.invoke("t", key=(ANN, BOB)[index % 2])))
    for _, path, headers, _ in upstream.requests:
        value = headers["x-token"]
        assert value in SECRETS.values() and path == f"/echo/{value}?q={value}", path
    assert len(set(sent(upstream))) == 2
    echoed = ok(crib.invoke("t", key=ANN))["structured_content"]
    assert echoed["headers"]["x-token"] == "[redacted]" and echoed["path"] == "/echo/[redacted]"
    assert_no_secret(crib, SECRETS.values(), key=ROOT)


def test_caller_without_the_credential_is_refused(start, upstream):
    crib = start(with_credentials(t=own(upstream, limits=[{"calls": 5, "per": "day"}])), env=ENV)
    refused = problem(crib.invoke("t", key=ROOT), 403, "forbidden")
    assert refused["detail"] == "caller `root` has no credential `TOKEN`, which tool `t` sends for its caller", refused
    assert "needs the credential `TOKEN`" in text_of(refused)
    assert upstream.hits() == 0 and crib.usage("t", key=ROOT)[0]["used"] == 0
    run = cli("call", "t", "--manifest", crib.manifest, cwd=crib.folder, env=ENV)
    assert run.returncode != 0 and "caller `anonymous` has no credential `TOKEN`" in run.stdout + run.stderr


def test_results_are_cached_for_each_caller(start, upstream):
    crib = start({**with_credentials(t=own(upstream, "/counter")), "defaults": {"cache": {"ttl": "1h", "scope": "shared"}}}, env=ENV)
    statuses = [ok(crib.invoke("t", key=key))["meta"]["cache"] for key in (ANN, ANN, BOB, BOB)]
    assert statuses == ["miss", "hit", "miss", "hit"] and upstream.hits() == 2
    assert crib.get("/tools/t", key=ANN).json["policy"]["cache"]["scope"] == "caller"
    problem(crib.invoke("t", key=ROOT), 403, "forbidden")


def test_equal_calls_of_two_callers_do_not_join(start, upstream):
    crib = start(with_credentials(t=own(upstream, "/wait", cache={"ttl": "1h"})), env=ENV)
    answers = parallel(8, lambda index: ok(crib.invoke("t", key=(ANN, BOB)[index % 2])))
    assert upstream.hits() == 2 and sorted(set(sent(upstream))) == sorted("Bearer " + SECRETS[name] for name in ("ANN_TOKEN", "BOB_TOKEN"))
    assert all(answers[index]["structured_content"] == answers[index % 2]["structured_content"] for index in range(8))


def test_changed_credential_takes_effect_and_misses_the_cache(start, upstream, tmp_path):
    (tmp_path / "token").write_text("anns-first-token-0123\n")
    manifest = with_credentials(t=own(upstream, "/counter", cache={"ttl": "1h"}))
    manifest["callers"][0]["credentials"]["TOKEN"] = f"${{file:{tmp_path / 'token'}}}"
    crib = start(manifest, env=ENV)
    ok(crib.invoke("t", key=ANN))
    (tmp_path / "token").write_text("anns-second-token-0123\n")
    poll(lambda: ok(crib.invoke("t", key=ANN)) and sent(upstream)[-1] == "Bearer anns-second-token-0123", what="the new credential")
    assert ok(crib.invoke("t", key=ANN))["meta"]["cache"] == "hit"


def test_check_explains_faults_of_caller_credentials(tmp_path):
    def check(manifest):
        (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
        run = cli("check", cwd=tmp_path, env=ENV)
        return run.returncode, run.stdout + run.stderr

    tool = http("https://api.example.com/", request={"headers": {"x": "${caller:TOKEN}"}})
    code, output = check({"tools": {"t": tool}})
    assert code == 64 and "tools.t.request.headers.x: `${caller:TOKEN}` needs `callers:`, and this manifest has none" in output
    shared = {**tool, "cache": {"ttl": "5m", "scope": "shared"}}
    code, output = check(with_credentials(t=shared))
    assert code == 64 and "tools.t.cache.scope: each call sends its caller's own credentials" in output
    manifest = with_credentials(t=tool)
    manifest["callers"][0]["credentials"] = {"TOKN": "literal-credential-0123"}
    code, output = check(manifest)
    assert code == 0 and "callers.0.credentials.TOKN: a credential in plain text" in output and "literal-credential" not in output
    manifest["callers"][0]["credentials"] = {"a b": "x", "E": "", "M": "${env:NONE}"}
    code, output = check(manifest)
    for words in ("callers.0.credentials.M: environment variable NONE is not set",):
        assert code == 64 and words in output, output
    manifest["callers"][0]["credentials"] = {"a b": "x", "E": ""}
    code, output = check(manifest)
    for words in ("callers.0.credentials.a b: a credential's name has", "callers.0.credentials.E: the credential is empty"):
        assert code == 64 and words in output, output


def test_nested_calls_act_for_the_same_caller(start, upstream):
    """The agent asks for shared results. A result that was made with a caller's credentials is not shared nevertheless."""
    model = Model()
    agent = {"kind": "agent", "description": "Asks the API and repeats its answer.", "effect": "read", "tools": ["t"],
             "context": [], "cache": {"ttl": "1h", "scope": "shared"}, "model": {"base_url": model.base_url, "name": "m", "key": "${env:MODEL_KEY}"}}
    model.script("m", calls(("t", {})), "None.", calls(("t", {})), "First.", calls(("t", {})), "Second.")
    crib = start(with_credentials(t=own(upstream), agent=agent), env={**ENV, "MODEL_KEY": KEY})
    none, first, other = (ok(crib.invoke("agent", {"task": "Ask."}, key=key)) for key in (ROOT, ANN, BOB))
    assert text_of(none) == "None.", "neither is a result without the credential"
    assert sent(upstream) == [f"Bearer {SECRETS['ANN_TOKEN']}", f"Bearer {SECRETS['BOB_TOKEN']}"]
    assert (text_of(first), text_of(other), other["meta"]["cache"]) == ("First.", "Second.", "miss")
    assert not any(secret in json.dumps(model.requests) for secret in SECRETS.values())
    model.close()
    assert_no_secret(crib, SECRETS.values(), key=ROOT)


def test_openapi_source_sends_credentials_of_the_caller(start, upstream, tmp_path):
    paths = {"/{id}": {"get": {"operationId": "read", "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}},
             "/\ufdd3TOKEN\ufdd4": {"get": {"operationId": "steal"}}}
    (tmp_path / "api.json").write_text(json.dumps({"openapi": "3.1.0", "info": {"title": "S", "version": "1"}, "paths": paths}))
    source = {"document": str(tmp_path / "api.json"), "base_url": upstream.base + "/echo/${caller:TOKEN}", "allow_private": True,
              "headers": {"x-token": "${caller:TOKEN}"}, "query": {"key": "${caller:TOKEN}"}}
    crib = start({**with_credentials(), "openapi": {"shop": source}}, env=ENV).ready()
    ok(crib.invoke("read", {"id": "7"}, key=BOB))
    value = SECRETS["BOB_TOKEN"]
    assert upstream.requests[0][1] == f"/echo/{value}/7?key={value}" and sent(upstream) == [value]
    ok(crib.invoke("steal", key=BOB))
    assert upstream.requests[1][1] == f"/echo/{value}/TOKEN?key={value}", "a document refers to no credential"
    problem(crib.invoke("read", {"id": "7"}, key=ROOT), 403, "forbidden")
    assert_no_secret(crib, SECRETS.values(), key=ROOT)


# ---- MCP servers -------------------------------------------------------------------------------------------------------

def mcp_steps(upstream, is_allowed):
    """An MCP server with a URL and one tool, which answers the caller's authorization."""

    def serve(handler):
        if handler.command != "POST":
            return handler.reply(405)
        message, authorization = json.loads(handler.body), handler.headers.get("authorization")
        if not is_allowed(authorization):
            return handler.reply(401)
        method, number = message.get("method"), message.get("id")
        if number is None:
            return handler.reply(202)
        if method == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [{"name": "who", "description": "Who calls.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": f"{authorization}"}]}
        else:
            return handler.reply(200, {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}})
        handler.reply(200, {"jsonrpc": "2.0", "id": number, "result": result})

    upstream.script("/mcp", serve)
    upstream.script("/mcp/" + SECRETS["ANN_TOKEN"], serve)
    return upstream.base + "/mcp"


def test_mcp_server_gets_one_token(start, server):
    url = mcp_steps(server.upstream, lambda value: (value or "").removeprefix("Bearer ") in server.valid)
    crib = start({"mcp_servers": {"s": {"url": url, "auth": oauth(server)}}}, env=ENV).ready()
    parallel(5, lambda index: ok(crib.invoke("s_who")))
    assert server.token_requests == 1
    server.revoke()
    assert text_of(ok(crib.invoke("s_who"))) == "Bearer [redacted]" and server.token_requests == 2
    assert_no_secret(crib, [*SECRETS.values(), *server.issued])


@pytest.mark.parametrize("list_as", [None, "ann"])
def test_mcp_calls_carry_credentials_of_the_caller(start, upstream, list_as):
    seen = []
    url = mcp_steps(upstream, lambda value: seen.append(value) or True)
    entry = {"url": url, "headers": {"authorization": "Bearer ${caller:TOKEN}"}, **({"list_as": list_as} if list_as else {})}
    crib = start({**with_credentials(), "mcp_servers": {"s": entry}}, env=ENV).ready()
    assert set(seen) == {f"Bearer {SECRETS['ANN_TOKEN']}" if list_as else None}, "the listing"
    upstream.requests.clear()
    for key, name in ((ANN, "ANN_TOKEN"), (BOB, "BOB_TOKEN")):
        assert text_of(ok(crib.invoke("s_who", key=key))) == "Bearer [redacted]"
        calls = [headers["authorization"] for _, _, headers, body in upstream.requests]
        assert set(calls) == {f"Bearer {SECRETS[name]}"}, "every request of the call"
        upstream.requests.clear()
    problem(crib.invoke("s_who", key=ROOT), 403, "forbidden")
    assert upstream.requests == []
    assert_no_secret(crib, SECRETS.values(), key=ROOT)


def test_mcp_url_carries_a_credential_of_the_caller(start, upstream):
    url = mcp_steps(upstream, lambda value: True)
    entry = {"url": url + "/${caller:TOKEN}?key=${caller:TOKEN}", "list_as": "ann"}
    crib = start({**with_credentials(), "mcp_servers": {"s": entry}}, env=ENV).ready()
    ok(crib.invoke("s_who", key=ANN))
    assert {path for _, path, _, _ in upstream.requests} == {f"/mcp/{SECRETS['ANN_TOKEN']}?key={SECRETS['ANN_TOKEN']}"}
    assert_no_secret(crib, SECRETS.values(), key=ROOT)
