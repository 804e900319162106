"""Permissions: keys, allow and deny, admin routes, a caller's own rows; Host and Origin; and secrets stay secret."""

import json
import re

import pytest

from harness import cli, ok, parallel, poll, problem, status_of
from recipes import KEYS, sh, to_yaml, web

ANN, BOB, ROOT = KEYS["ANN"], KEYS["BOB"], KEYS["ROOT"]


def manifest(**more):
    return dict({
        "callers": [{"name": "ann", "key": "${env:ANN}", "allow": ["get_weather", "search_*"], "deny": ["search_secret*"]},
                    {"name": "bob", "key": "${env:BOB}", "allow": ["*"], "deny": ["delete_*"]},
                    {"name": "root", "key": "${env:ROOT}", "admin": True}],
        "tools": {name: sh("echo fine", effect="read") for name in
                  ("get_weather", "search_web", "search_secrets", "delete_rows", "other")}}, **more)


@pytest.fixture
def crib(start):
    return start(manifest(), env=KEYS)


@pytest.fixture(scope="module")
def crib_with_callers(start_shared):
    return start_shared(manifest(), env=KEYS)


ROUTES = [("GET", "/tools"), ("GET", "/tools/other"), ("POST", "/tools/other/invoke"), ("POST", "/tools/other/validate"),
          ("GET", "/invocations"), ("GET", "/invocations/0199"), ("GET", "/usage"), ("DELETE", "/invocations/0199"),
          ("POST", "/tools/other/disable"),
          ("POST", "/tools/other/enable"), ("POST", "/tools/other/usage/reset"), ("DELETE", "/cache"), ("DELETE", "/tools/other/cache")]
ADMIN = ROUTES[8:]


@pytest.mark.parametrize("method, path", ROUTES)
def test_missing_or_wrong_key_is_refused(crib_with_callers, method, path):
    """Every route of tools and ledger requires a key: otherwise 401."""
    body = '{"arguments": {}}' if method == "POST" else None
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}, {"authorization": "Bearer " + ANN[:-1]},
                    {"authorization": "Basic " + ANN}, {"authorization": ANN}, {"x-api-key": "wrong"}, {"authorization": "Bearer " + ANN + "x"}):
        problem(crib_with_callers.request(method, path, body=body, headers=headers), 401, "unauthenticated")


@pytest.mark.parametrize("method, path", ADMIN)
def test_admin_routes_need_an_admin(crib, method, path):
    body = "{}" if method == "POST" else None
    problem(crib.request(method, path, body=body, key=BOB), 403, "forbidden")
    assert crib.request(method, path, body=body, key=ROOT).status in (200, 204)


def test_authorization_scheme_ignores_case(crib):
    assert crib.get("/tools", headers={"authorization": "bearer " + ANN}).status == 200


def test_allow_and_deny_decide_grants(crib):
    """Globs; deny wins; what is not allowed is 403 and is not listed."""
    listed = {key: [tool["name"] for tool in crib.get("/tools", key=key).json["tools"]] for key in (ANN, BOB, ROOT)}
    assert sorted(listed[ANN]) == ["get_weather", "search_web"]
    assert sorted(listed[BOB]) == ["get_weather", "other", "search_secrets", "search_web"]
    assert len(listed[ROOT]) == 5
    for tool in ("get_weather", "search_web"):
        ok(crib.invoke(tool, key=ANN))
    for tool in ("search_secrets", "delete_rows", "other"):
        problem(crib.invoke(tool, key=ANN), 403, "forbidden")
        assert crib.get("/tools/" + tool, key=ANN).status in (403, 404)
        problem(crib.post(f"/tools/{tool}/validate", '{"arguments": {}}', key=ANN), 403, "forbidden")
    refused = problem(crib.invoke("delete_rows", key=BOB), 403, "forbidden")
    assert (crib.row(refused["invocation_id"], key=ROOT)["state"], crib.row(refused["invocation_id"], key=ROOT)["caller"]) == ("refused", "bob")


def write_manifest(folder, callers, **more):
    (folder / "toolcrib.yaml").write_text(to_yaml(dict({
        "tools": {"send_mail": dict(sh("echo sent", effect="read"), aliases=["mailer"])}, "callers": callers}, **more)), encoding="utf-8")


CALLER = {"name": "ann", "key": "${env:ANN}"}
ADMIN_CALLER = {"name": "root", "key": "${env:ROOT}", "admin": True}


@pytest.mark.parametrize("entry", [{"deny": ["mailr"]}, {"allow": ["send_mial"]}])
def test_unknown_tool_in_grants_is_error(tmp_path, entry):
    write_manifest(tmp_path, [dict(CALLER, **entry)])
    for command in (["check"], ["serve", "--listen", "127.0.0.1:0"], ["tools"]):
        run = cli(*command, cwd=tmp_path, env=KEYS)
        text = run.stdout + run.stderr
        assert run.returncode == 64, (command, run)
        assert re.search(r"toolcrib\.yaml:\d+:\d+: callers\.0\.(deny|allow)\.0: `\w+` matches no tool", text), text
        assert "did you mean mailer?" in text or "did you mean send_mail?" in text, text


def test_possibly_registered_grant_is_a_warning(start, tmp_path):
    """`check` warns, `--strict` fails, the service starts with a warning; there is no warning once the tool exists."""
    write_manifest(tmp_path, [dict(CALLER, deny=["late"]), ADMIN_CALLER])
    run = cli("check", cwd=tmp_path, env=KEYS)
    assert run.returncode == 0 and "warning: callers.0.deny.0: `late` matches no tool" in run.stdout, run
    assert cli("check", "--strict", cwd=tmp_path, env=KEYS).returncode == 64
    crib = start((tmp_path / "toolcrib.yaml").read_text(), env=KEYS)
    poll(lambda: "`late` matches no tool" in crib.stderr, what="the warning in the log")
    tool = json.dumps({"kind": "http", "description": "It comes later.", "request": {"url": "https://example.com/"}})
    assert crib.request("PUT", "/tools/late", body=tool, key=ROOT).status == 201
    poll(lambda: "`late` matches a tool now" in crib.stderr, what="the end of the warning in the log")
    problem(crib.invoke("late", key=ANN), 403, "forbidden")
    crib.kill9()
    crib.start()
    problem(crib.invoke("late", key=ANN), 403, "forbidden")
    assert "matches no tool" not in crib.stderr, "registered tools are known at the start"


def test_invalid_and_weak_keys_are_found(tmp_path):
    """The hash of an unset variable, a key that no header holds: errors. Keys that can be guessed: warnings."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    write_manifest(tmp_path, [{"name": "ann", "key_sha256": empty}])
    for command in (["check"], ["serve", "--listen", "127.0.0.1:0"]):
        run = cli(*command, cwd=tmp_path)
        assert run.returncode == 64 and "hash of an empty text" in run.stdout + run.stderr, run
    for key in ("x", "changeme", "a" * 40):
        write_manifest(tmp_path, [dict(CALLER)])
        run = cli("check", cwd=tmp_path, env={"ANN": key})
        assert run.returncode == 0 and "[short-key]" in run.stdout and cli("check", "--strict", cwd=tmp_path, env={"ANN": key}).returncode == 64, run


def test_suggestions_name_only_allowed_tools(crib):
    """did_you_mean must not list the tools of others (the contract does not define it)."""
    error = problem(crib.invoke("delete_row", key=ANN), 404, "unknown_tool")
    assert not error.get("did_you_mean") and "delete_rows" not in json.dumps(error), error
    assert problem(crib.invoke("get_wether", key=ANN), 404)["did_you_mean"] == ["get_weather"]


def test_callers_see_only_their_own_invocations(crib):
    """A caller lists and reads its own calls; an admin all."""
    mine = ok(crib.invoke("get_weather", key=ANN))["invocation_id"]
    theirs = ok(crib.invoke("get_weather", key=BOB))["invocation_id"]
    poll(lambda: len(crib.rows(key=ROOT)) == 2, what="both rows for the admin")
    assert [row["invocation_id"] for row in crib.rows(key=ANN)] == [mine]
    assert [row["caller"] for row in crib.rows(key=BOB)] == ["bob"]
    assert {row["caller"] for row in crib.rows("caller=ann&limit=50", key=BOB)} <= {"bob"}, "a filter opens nothing"
    problem(crib.get("/invocations?caller=ann&since=nonsense", key=BOB), 400, "invalid_request")
    assert crib.get("/invocations/" + theirs, key=ANN).status in (403, 404)
    assert crib.row(mine, key=ANN)["caller"] == "ann" and crib.row(mine, key=ROOT)["caller"] == "ann"
    usage = crib.get("/usage", key=ANN).json["tools"]
    assert usage and {row["caller"] for row in usage} == {"ann"}


def test_keys_may_be_given_by_hash(start):
    """`key_sha256` instead of the key itself."""
    import hashlib
    digest = hashlib.sha256(ANN.encode()).hexdigest()
    crib = start(manifest(callers=[{"name": "ann", "key_sha256": digest, "allow": ["*"]}]))
    assert crib.get("/tools", key=ANN).status == 200
    problem(crib.get("/tools", key=digest), 401, "unauthenticated")


def test_health_needs_no_key(crib):
    assert crib.get("/livez").status == 200 and crib.get("/readyz").status == 200


def test_callers_run_in_parallel(start, tmp_path):
    """Each call waits until the other callers' calls run too."""
    meets = sh(f"mktemp -p {tmp_path} met.XXXXXX; until [ $(ls {tmp_path} | grep -c met) = 4 ]; do sleep 0.02; done", effect="read")
    crib = start(manifest(tools={"get_weather": meets}), env=KEYS)
    assert all(reply.status == 200 for reply in parallel(4, lambda index: crib.invoke("get_weather", key=[ANN, BOB][index % 2])))


# ---- Host, Origin, bind ------------------------------------------------------------------------------------------------

EVERY = [("GET", path) for path in ("/", "/tools", "/tools/other", "/invocations", "/usage", "/openapi.json", "/docs", "/livez", "/readyz")] + [
    ("POST", "/tools/other/invoke"), ("POST", "/tools/other/disable"), ("DELETE", "/cache"), ("GET", "/mcp"), ("GET", "/nowhere"),
    ("PUT", "/tools/other/invoke"), ("POST", "/calls")]


@pytest.fixture(scope="module")
def crib_with_allowed_hosts(start_shared):
    return start_shared({"server": {"allowed_hosts": ["toolcrib"], "allowed_origins": ["https://console.example"]},
                         "tools": {"other": sh("echo fine", effect="read")}})


@pytest.mark.parametrize("method, path", EVERY)
def test_foreign_host_or_origin_is_refused(crib_with_allowed_hosts, method, path):
    """A page that rebinds DNS, or posts across origins, is refused on every route (the health routes are read as included)."""
    body = '{"arguments": {}}' if method == "POST" else None
    for headers in ({"host": "evil.example"}, {"host": "localhost@evil"}, {"host": f"evil.example:{crib_with_allowed_hosts.port}"}, {"host": f"127.0.0.1.evil.example:{crib_with_allowed_hosts.port}"},
                    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
                    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
                    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
                    {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "https://console.example.evil.example"},
                    {"origin": f"http://127.0.0.1:{crib_with_allowed_hosts.port}.evil.example"}):
        reply = crib_with_allowed_hosts.request(method, path, body=body, headers=headers)
        assert reply.status == 403, (headers, reply)
        assert reply.json["kind"] == "forbidden", (headers, reply)


def test_forms_and_twofold_headers_of_foreign_pages_are_refused(crib_with_allowed_hosts):
    crib = crib_with_allowed_hosts
    body = '[TOOL_CALL]{"tool_name": "other", "arguments": {}}[/TOOL_CALL]'
    form = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    before = len(crib.rows())
    problem(crib.post("/calls", body, headers={"content-type": "text/plain", **form}), 403, "forbidden")
    assert len(crib.rows()) == before, "a form that is sent leads to a page, but not with GET"
    assert crib.post("/calls", body, headers={"content-type": "text/plain"}).status == 200
    for lines in ("Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Mode: cors"):
        head = f"GET /tools HTTP/1.1\r\nHost: 127.0.0.1:{crib.port}\r\n{lines}\r\nConnection: close\r\n\r\n"
        assert status_of(crib.raw(head.encode())) == 403, lines


def test_own_and_allowed_hosts_are_accepted(crib_with_allowed_hosts):
    for headers in ({}, {"host": "toolcrib"}, {"host": f"toolcrib:{crib_with_allowed_hosts.port}"}, {"origin": crib_with_allowed_hosts.base},
                    {"origin": "https://console.example"}):
        assert crib_with_allowed_hosts.get("/tools", headers=headers).status == 200, headers


def test_forwarded_port_is_accepted(start):
    """As `kubectl port-forward`, `docker -p` and `ssh -L` do: another port at loopback forwards to any address here."""
    for listen in ("127.0.0.1:0", "0.0.0.0:0"):
        crib = start({"tools": {"other": sh("echo fine", effect="read")}}, listen=listen, args=["--allow-open"])
        for host in ("localhost:8080", "127.0.0.1:8080", "[::1]:8080", "localhost", "127.0.0.1", "[::1]"):
            assert crib.get("/tools", headers={"host": host}).status == 200, (listen, host)
            assert crib.get("/tools", headers={"host": host, "origin": f"http://{host}"}).status == 200, (listen, host)
            assert crib.get("/tools", headers={"host": host, "origin": "http://localhost:3000"}).status == 403, (listen, host)


@pytest.mark.parametrize("lines", ["", "Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n", "Host: \r\n", "Host: a b\r\n"])
def test_malformed_host_is_refused(crib_with_allowed_hosts, lines):
    head = "GET /tools HTTP/1.1\r\n" + lines.format(port=crib_with_allowed_hosts.port) + "Connection: close\r\n\r\n"
    answer = crib_with_allowed_hosts.raw(head.encode())
    assert re.match(rb"HTTP/1.1 4(00|03) ", answer), answer[:200]


def test_absolute_target_is_checked(crib_with_allowed_hosts):
    head = f"GET http://evil.example/tools HTTP/1.1\r\nHost: 127.0.0.1:{crib_with_allowed_hosts.port}\r\nConnection: close\r\n\r\n"
    assert re.match(rb"HTTP/1.1 4(00|03|04) ", crib_with_allowed_hosts.raw(head.encode())), "the target names another host"


def test_listening_beyond_loopback_needs_callers(tmp_path):
    """0.0.0.0 without callers: no start, and the message names a solution."""
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"other": sh("echo fine")}}))
    done = cli("serve", "--manifest", "toolcrib.yaml", "--listen", "0.0.0.0:0", cwd=tmp_path)
    assert done.returncode in (1, 64), done
    assert "--allow-open" in done.stderr + done.stdout and "listening" not in done.stdout


@pytest.mark.parametrize("how", ["callers", "flag", "manifest"])
def test_listening_beyond_loopback_can_be_allowed(start, how):
    """With callers, with --allow-open, or with server.allow_open it starts."""
    output = manifest() if how == "callers" else {"tools": {"other": sh("echo fine", effect="read")}}
    if how == "manifest":
        output["server"] = {"allow_open": True}
    crib = start(output, env=KEYS, listen="0.0.0.0:0", args=["--allow-open"] if how == "flag" else [])
    assert crib.host == "0.0.0.0"


# ---- secrets -----------------------------------------------------------------------------------------------------------

SECRET = "s3cr3t-5f0c2b7e91d44a6e"


def test_upstream_secret_is_never_exposed(start, upstream):
    """An upstream that echoes its headers: the key is in no listing, ledger, problem or log."""
    def headers(path):
        return web(upstream.base + path, request={"headers": {"authorization": "Bearer ${env:WEATHER_KEY}"},
                                            "query": {"q": "{{ n }}"}}, effect="read", timeout="2s",
                   env=[{"name": "WEATHER_KEY", "description": "Key for the provider", "required": True}])

    upstream.script("/fails", lambda handler: handler.reply(500, SECRET.encode(), "text/plain"))
    upstream.script("/says-no", lambda handler: handler.reply(404, f"bad key Bearer {SECRET}".encode(), "text/plain"))
    upstream.script("/broken", lambda handler: handler.reply(200, b'{"key": "' + SECRET.encode(), "application/json"))
    paths = ("/echo", "/fails", "/says-no", "/broken", "/reset", "/hang")
    crib = start({"tools": {path.strip("/").replace("-", "_"): headers(path) for path in paths}},
                 env={"WEATHER_KEY": SECRET, "RUST_LOG": "trace"})
    bodies = []
    for path in paths:
        reply = crib.invoke(path.strip("/").replace("-", "_"), {"n": 1})
        if path != "/echo":  # the tool's own good answer is not in the contract's list; everything else is
            bodies.append(reply.body)
        bodies.append(crib.get("/tools/" + path.strip("/").replace("-", "_")).body)
        crib.row(reply.json["invocation_id"])
    sent = [seen[2] for seen in upstream.requests]
    assert all(SECRET in dict((k.lower(), v) for k, v in one.items())["authorization"] for one in sent) and sent, "it was sent on"
    bodies += [crib.get("/tools").body, crib.get("/invocations").body, crib.get("/usage").body, crib.get("/openapi.json").body]
    bodies += [crib.get("/invocations/" + row["invocation_id"]).body for row in crib.rows()]
    for body in bodies:
        assert SECRET.encode() not in body, body[:2000]
    described = crib.get("/tools/echo").json["env"]
    assert described[0]["name"] == "WEATHER_KEY", described
    crib.stop()
    assert SECRET not in crib.stderr + crib.stdout
    for file in crib.folder.glob("toolcrib.db*"):
        assert SECRET.encode() not in file.read_bytes(), file


def test_caller_keys_are_never_exposed(crib):
    ok(crib.invoke("get_weather", key=ANN))
    problem(crib.invoke("other", key=ANN), 403)
    bodies = [crib.get(path, key=ROOT).body for path in ("/tools", "/tools/other", "/invocations", "/usage", "/openapi.json")]
    crib.stop()
    text = b"".join(bodies) + crib.stderr.encode() + b"".join(file.read_bytes() for file in crib.folder.glob("toolcrib.db*"))
    for key in KEYS.values():
        assert key.encode() not in text


def test_empty_allow_list_allows_nothing(start):
    callers = [{"name": "none", "key": KEYS["ANN"], "allow": []}, {"name": "all", "key": KEYS["ROOT"]}]
    crib = start({"callers": callers, "tools": {"calculator": {"kind": "native"}}})
    assert crib.get("/tools", key=KEYS["ANN"]).json["tools"] == []
    problem(crib.invoke("calculator", {"expression": "1"}, key=KEYS["ANN"]), 403, "forbidden")
    ok(crib.invoke("calculator", {"expression": "1"}, key=KEYS["ROOT"]))
