"""Section `openapi`: operations of a document as tools, sent to a real upstream; and the command `import`."""

import base64
import json
import urllib.parse

import pytest

from harness import cli, error_result, ok, poll, problem
from upstream import reply_with


def parameter(name, location, schema, **more):
    return {"name": name, "in": location, "required": location == "path", "schema": schema, **more}


TEXTS = {"type": "array", "items": {"type": "string"}}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}


def document(**paths):
    return {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "http://unused.example"}], "paths": paths}


def operation(path, method="get", **fields):
    return {path: {method: {"operationId": "op", **fields}}}


@pytest.fixture
def api(start, upstream, tmp_path):
    """Starts a service with the API of a document at the upstream."""

    def begin(paths, root=None, **entry):
        (tmp_path / "api.json").write_text(json.dumps({**document(**paths), **(root or {})}))
        entry = {"document": str(tmp_path / "api.json"), "base_url": upstream.base, "allow_private": True, **entry}
        crib = start({"openapi": {"shop": entry}}, env={"SHOP_KEY": "very-secret-{{ x }}"})
        poll(lambda: crib.get("/readyz").status == 200)
        return crib

    return begin


def echoed(crib, name, arguments):
    return ok(crib.invoke(name, arguments))["structured_content"]


def test_parameters_fill_path_query_headers_and_cookies(api):
    parameters = [
        parameter("id", "path", {"type": "string"}), parameter("ids", "path", TEXTS), parameter("tags", "query", TEXTS),
        parameter("joined", "query", TEXTS, explode=False), parameter("spaced", "query", TEXTS, style="spaceDelimited", explode=False),
        parameter("filter", "query", POINT, style="deepObject"), parameter("spread", "query", POINT),
        parameter("where", "query", POINT, content={"application/json": {"schema": POINT}}), parameter("X-List", "header", TEXTS),
        parameter("session", "cookie", {"type": "string"}),
    ]
    del parameters[7]["schema"]
    crib = api(operation("/echo/{id}/{ids}", parameters=parameters))
    request = echoed(crib, "op", {
        "id": "a/b", "ids": ["x,y", "z"], "tags": ["1", "2"], "joined": ["a,b", "c"], "spaced": ["a b", "c"], "filter": {"x": 1, "y": 2},
        "spread": {"x": 3}, "where": {"y": 4}, "X-List": ["p", "q"], "session": "s 1",
    })
    assert request["path"] == "/echo/a%2Fb/x%2Cy,z"
    assert urllib.parse.parse_qsl(request["query"]) == [
        ("tags", "1"), ("tags", "2"), ("joined", "a,b,c"), ("spaced", "a b c"), ("filter[x]", "1"), ("filter[y]", "2"), ("x", "3"), ("where", '{"y":4}')]
    assert "joined=a%2Cb,c" in request["query"]
    assert (request["headers"]["x-list"], request["headers"]["cookie"]) == ("p,q", "session=s%201")
    request = echoed(crib, "op", {"id": "1", "ids": ["2"]})
    assert request["query"] == "" and not {"x-list", "cookie"} & set(request["headers"])


@pytest.mark.parametrize("value", ["..", "%2e%2e", ""])
def test_path_parameter_stays_one_segment(api, upstream, value):
    crib = api(operation("/echo/{ids}/end", parameters=[parameter("ids", "path", TEXTS)]))
    problem(crib.invoke("op", {"ids": [value]}), 422, "invalid_arguments")
    problem(crib.invoke("op", {"ids": []}), 422, "invalid_arguments")
    assert upstream.hits() == 0


def test_json_body_is_merged_into_the_arguments(api):
    schema = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}, "size": POINT, "id": {"type": "string", "readOnly": True}}}
    crib = api(operation("/echo", "post", requestBody={"content": {"application/json": {"schema": schema}}}))
    tool = crib.get("/tools/op").json
    assert set(tool["input_schema"]["properties"]) == {"title", "size"} and tool["input_schema"]["required"] == ["title"]
    assert (tool["effect"], tool["kind"]) == ("write", "http")
    request = echoed(crib, "op", {"title": "x", "size": {"x": 1}})
    assert request["body"] == {"title": "x", "size": {"x": 1}} and request["headers"]["idempotency-key"]


def test_form_and_multipart_bodies_are_sent(api, upstream):
    form = {"type": "object", "properties": {"name": {"type": "string"}, "address": POINT}}
    file = {"type": "object", "properties": {"title": {"type": "string"}, "file": {"type": "string", "format": "binary"}}}
    crib = api({
        "/form": {"post": {"operationId": "form", "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": form}}}}},
        "/upload": {"post": {"operationId": "upload", "requestBody": {"content": {"multipart/form-data": {"schema": file}}}}},
        "/raw": {"put": {"operationId": "raw", "requestBody": {"content": {"image/png": {}}}}},
    })
    upstream.script("/form", reply_with(b"{}"))
    upstream.script("/upload", reply_with(b"{}"))
    upstream.script("/raw", reply_with(b"{}"))
    ok(crib.invoke("form", {"name": "a b&c", "address": {"x": 1}}))
    ok(crib.invoke("upload", {"title": "A", "file": base64.b64encode(b"\x00\xff\r\n--").decode()}))
    ok(crib.invoke("raw", {"body": base64.b64encode(b"\x89PNG").decode()}))
    bodies = {path: (headers, body) for _, path, headers, body in upstream.requests}
    assert urllib.parse.parse_qsl(text(bodies["/form"][1])) == [("name", "a b&c"), ("address[x]", "1")]
    headers, body = bodies["/upload"]
    boundary = {name.lower(): value for name, value in headers.items()}["content-type"].split("boundary=")[1]
    parts = raw(body).split(b"--" + boundary.encode())
    assert len(parts) == 4 and parts[3] == b"--\r\n"
    assert parts[1] == b'\r\ncontent-disposition: form-data; name="title"\r\n\r\nA\r\n'
    assert parts[2].endswith(b"\r\n\r\n\x00\xff\r\n--\r\n") and b'filename="file"' in parts[2]
    assert raw(bodies["/raw"][1]) == b"\x89PNG"
    problem(crib.invoke("raw", {"body": "not base64!"}), 422, "invalid_arguments")


def raw(body):
    return body if isinstance(body, bytes) else body.encode("latin-1") if isinstance(body, str) else json.dumps(body).encode()


def text(body):
    return raw(body).decode()


def test_methods_decide_the_effect_and_the_manifest_takes_precedence(api):
    paths = {"/x": {method: {"operationId": f"{method}_x", "tags": ["x"]} for method in ("get", "put", "post", "delete")}}
    crib = api(paths, defaults={"timeout": "7s"}, tools={"post_*": {"effect": "idempotent"}, "delete_x": {"effect": "write", "timeout": "3s"}})
    tools = {tool["name"]: tool for tool in crib.get("/tools").json["tools"]}
    assert {name: tool["effect"] for name, tool in tools.items()} == {"get_x": "read", "put_x": "idempotent", "post_x": "idempotent", "delete_x": "write"}
    assert all(tool["tags"] == ["x"] for tool in tools.values())
    assert [crib.get(f"/tools/{name}").json["policy"]["timeout"] for name in ("get_x", "delete_x")] == ["7s", "3s"]


def test_include_prefix_and_credentials_apply(api):
    paths = {"/echo": {"get": {"operationId": "list", "tags": ["orders"]}, "delete": {"operationId": "clear", "tags": ["orders"]}}, "/other": {"get": {}}}
    crib = api(paths, include=["orders"], exclude=["DELETE *"], prefix="shop_", headers={"x-key": "${env:SHOP_KEY}"}, query={"v": "2"})
    assert [tool["name"] for tool in crib.get("/tools").json["tools"]] == ["shop_list"]
    request = echoed(crib, "shop_list", {})
    # The upstream echoes the secret, and the service removes it.
    assert request["query"] == "v=2" and "very-secret" not in json.dumps(request)


def test_sources_show_what_was_imported(api):
    paths = {"/a": {"get": {}}, "/b": {"get": {"parameters": [{"$ref": "#/none"}]}}}
    crib = api(paths)
    source = crib.get("/sources").json["sources"][0]
    assert (source["kind"], source["state"], source["tools"]) == ("openapi", "up", 1)
    assert source["operations"] == {"found": 2, "imported": 1, "left_out": [{"operation": "GET /b", "reason": "`#/none` does not exist"}]}
    assert any("GET /b is left out" in warning for warning in source["warnings"])
    crib.wait_for_log("GET /b is left out")
    assert crib.stderr.count("GET /b is left out") == 1


def test_answer_that_differs_from_the_document_is_not_lost(api, upstream):
    schema = {"type": "object", "required": ["id"], "additionalProperties": False, "properties": {"id": {"type": "string", "enum": ["a"], "maxLength": 1}}}
    crib = api(operation("/x", "post", responses={"201": {"content": {"application/json": {"schema": schema}}}}))
    upstream.script("/x", reply_with(b'{"id": null, "more": 1}', kind="application/json"))
    assert ok(crib.invoke("op"))["structured_content"] == {"id": None, "more": 1}
    assert crib.get("/tools/op").json["output_schema"]["properties"]["id"]["type"] == ["string", "null"]


def test_edited_document_is_loaded_while_the_service_runs(api, tmp_path):
    crib = api(operation("/a"))
    (tmp_path / "api.json").write_text(json.dumps(document(**{"/b": {"get": {"operationId": "second"}}})))
    poll(lambda: [tool["name"] for tool in crib.get("/tools").json["tools"]] == ["second"])
    (tmp_path / "api.json").write_text("swagger: '2.0'")
    poll(lambda: "version 2.0" in (crib.get("/sources").json["sources"][0]["fault"] or ""))
    assert [tool["name"] for tool in crib.get("/tools").json["tools"]] == ["second"], "the last good document stays in use"


def test_document_at_a_url_is_read(start, upstream):
    paths = operation("/echo")
    upstream.script("/api.json", reply_with(json.dumps({**document(**paths), "servers": [{"url": "/"}]}).encode(), kind="application/json"))
    crib = start({"openapi": {"shop": {"document": f"{upstream.base}/api.json", "allow_private": True}}})
    poll(lambda: crib.get("/readyz").status == 200)
    assert echoed(crib, "op", {})["path"] == "/echo"


def test_private_addresses_need_permission(start, upstream, tmp_path):
    (tmp_path / "api.json").write_text(json.dumps(document(**operation("/echo"))))
    crib = start({"openapi": {"shop": {"document": str(tmp_path / "api.json"), "base_url": upstream.base}}})
    poll(lambda: crib.get("/readyz").status == 200)
    problem(crib.invoke("op"), 502, "upstream_failed")
    assert upstream.hits() == 0


def test_error_of_the_api_is_an_error_result(api, upstream):
    crib = api(operation("/x"))
    upstream.script("/x", lambda handler: handler.reply(404, b'{"message": "no such order"}', kind="application/json"))
    assert "no such order" in json.dumps(error_result(crib.invoke("op"))["content"])


def test_import_prints_a_manifest_that_check_accepts(tmp_path):
    (tmp_path / "api.json").write_text(json.dumps(document(**operation("/a/{id}", parameters=[parameter("id", "path", TEXTS)]))))
    done = cli("import", "openapi", tmp_path / "api.json", "--prefix", "shop_", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# 1 of 1 operations") and "\n  shop_op:\n    kind: http\n" in done.stdout
    assert 'url: "http://unused.example/a/{{ id | comma }}"' in done.stdout
    (tmp_path / "toolcrib.yaml").write_text(done.stdout)
    assert cli("check", cwd=tmp_path).returncode == 0
    (tmp_path / "bad.json").write_text("{}")
    done = cli("import", "openapi", tmp_path / "bad.json", cwd=tmp_path)
    assert done.returncode == 64 and "it is not an OpenAPI document" in done.stderr


def test_import_names_the_option_that_is_missing(tmp_path):
    nowhere = document(**operation("/a"))
    del nowhere["servers"]
    (tmp_path / "api.json").write_text(json.dumps(nowhere))
    done = cli("import", "openapi", "api.json", cwd=tmp_path)
    assert done.returncode == 64 and not done.stdout, done
    assert done.stderr.endswith("api.json: none of its 1 operations becomes a tool: GET /a: the document names no server: give --base-url\n"), done
    done = cli("import", "openapi", "api.json", "--base-url", "https://shop.example", cwd=tmp_path)
    assert done.returncode == 0 and 'url: "https://shop.example/a"' in done.stdout, done
    other = operation("/b", servers=[{"url": "https://files.example"}])
    (tmp_path / "api.json").write_text(json.dumps(document(**operation("/a", operationId="a"), **other)))
    done = cli("import", "openapi", "api.json", cwd=tmp_path)
    assert done.stdout.startswith("# 1 of 2 operations of api.json\n# left out: GET /b: it has a server of its own, `files.example`: give --allow-host\n")
    done = cli("import", "openapi", "api.json", "--allow-host", "files.example", cwd=tmp_path)
    assert done.stdout.startswith("# 2 of 2 operations") and 'url: "https://files.example/b"' in done.stdout, done


def test_import_converts_servers_of_other_clients(tmp_path):
    servers = {"mcpServers": {"my files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "${HOME}"}}, "off": {"command": "x", "disabled": True}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    done = cli("import", "mcp", tmp_path / "mcp.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == """# my_files: named `my files` before; its tools begin with `my_files_`
# left out: off: it is disabled
mcp_servers:
  my_files:
    command:
      - npx
      - "-y"
      - x
    environment:
      A: "${env:HOME}"
"""
    (tmp_path / "toolcrib.yaml").write_text(done.stdout)
    assert cli("check", cwd=tmp_path, env={"HOME": str(tmp_path)}).returncode == 0


def test_keys_of_tools_are_checked_against_the_document(tmp_path):
    """A key is an operationId or a name; `check` finds one that matches nothing without starting the source."""
    (tmp_path / "api.json").write_text(json.dumps(document(**operation("/a", operationId="issues/list", summary="Lists the issues of a shop."))))
    manifest = "openapi: {gh: {document: ./api.json, prefix: gh_, include: [%s], tools: {%s: {timeout: 2s}}}}\n"

    def checked(include, key):
        (tmp_path / "toolcrib.yaml").write_text(manifest % (include, key))
        done = cli("check", cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    assert checked("issues*", "issues_list")[0] == checked("issues*", '"issues/list"')[0] == 0
    for key in ("issues_lst", "gh_issues_list"):
        status, text = checked("issues*", key)
        assert status == 64 and f"the document has no operation `{key}`; did you mean `issues_list`?" in text, text
    status, text = checked("issuess", "issues_list")
    assert status == 64 and "`include` selects none of them" in text, text
    assert "matches no tool of the source" in checked("issues*", '"orders*"')[1]


def test_check_builds_the_tools_of_a_document(tmp_path):
    """`check` reports without `--live` what the start would: operations that cannot become tools, and arguments that an operation lacks."""
    loop = {"type": "object", "properties": {"part": {"$ref": "#/components/schemas/Loop"}}}
    body = {"content": {"application/json": {"schema": loop}}}
    paths = {"/a": {"get": {"operationId": "getA", "summary": "Reads an order of the shop.", "responses": {"200": {"description": "ok"}},
                            "parameters": [{"name": "amount", "in": "query", "description": "The amount", "schema": {"type": "integer"}}]}},
             "/b": {"post": {"operationId": "postB", "summary": "Writes an order.", "requestBody": body, "responses": {"200": {"description": "ok"}}}}}
    api = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": "https://shop.example"}], "paths": paths,
           "components": {"schemas": {"Loop": {"$ref": "#/components/schemas/Loop"}}}}
    (tmp_path / "api.json").write_text(json.dumps(api))
    (tmp_path / "toolcrib.yaml").write_text("openapi: {shop: {document: ./api.json, defaults: {deny_when: [{when: args.n > 5, say: No.}]},\n"
                                            "  tools: {getA: {approval: {when: args.ammount > 5}}, postB: {timeout: 5s}, 'post*': {timeout: 5s}}}}\n")
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 0, done
    assert "the operation POST /b is left out: its schema cannot be used: `#/$defs/Loop` leads back to itself and never ends" in done.stdout, done
    assert "tools.getA.approval.when: the tool has no parameter `ammount`, did you mean `amount`?" in done.stdout, done
    assert "defaults.deny_when.0.when: the tool has no parameter `n`" in done.stdout, done
    assert "tools.postB: the source's tool is left out, so this entry has no effect" in done.stdout, done
    assert "tools.post*: this pattern matches only tools that are left out, so it has no effect" in done.stdout, done


def test_forms_and_spellings_of_a_document_are_read_as_the_api_reads_them(api):
    value = {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "number"}]}
    crib = api({
        **operation("/echo/v", "post", operationId="set", requestBody={"required": True, "content": {"application/json": {
            "schema": {"type": "object", "properties": {"value": value}}}}}),
        **operation("/echo/e", operationId="report", parameters=[parameter("detect", "query", {"type": "string", "enum": [4.1, 4]})]),
        "/echo/elsewhere": {"$ref": "paths.yaml#/elsewhere"},
    })
    assert echoed(crib, "set", {"value": 5})["body"] == {"value": 5}
    for detect in ("4.1", 4.1):
        assert "detect=4.1" in json.dumps(echoed(crib, "report", {"detect": detect}))
    problem(crib.invoke("report", {"detect": "5"}), 422)
    warnings = crib.get("/sources").json["sources"][0]["warnings"]
    assert any("the path /echo/elsewhere is left out" in warning and "bundle" in warning for warning in warnings), warnings
