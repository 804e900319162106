//! Declared fields of a request's context: how each kind gets them, invalid values, and separate
//! answers.

use axum::http::{HeaderMap, Uri};
use axum::{Json, Router};
use serde_json::{Value, json};
use toolcrib::call::{Definition, NestedCall, ToolInvoker};
use toolcrib::{Effect, Tool, ToolContext};

use crate::support::mcp::{last_message, modern_request};
use crate::support::{Reply, TestApp, first_text, request};

/// An API that returns its request.
async fn start_upstream() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |uri: Uri, headers: HeaderMap, body: String| async move {
        let header = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        Json(
            json!({"uri": uri.to_string(), "tenant": header("x-tenant"), "trace": header("x-trace"), "body": body}),
        )
    };
    tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(echo))
            .await
            .unwrap();
    });
    format!("http://{address}")
}

async fn http_app(more: &str) -> TestApp {
    let url = start_upstream().await;
    let manifest = format!(
        "tools:\n  orders:\n    kind: http\n    description: Orders of a tenant.\n    context: [tenant, trace]\n    parameters: {{q: {{type: string, required: false}}}}\n    \
         request:\n      method: POST\n      url: \"{url}/t/{{{{ context.tenant }}}}\"\n      query: {{q: \"{{{{ q }}}}\", trace: \"{{{{ context.trace }}}}\"}}\n      \
         headers: {{x-tenant: \"{{{{ context.tenant }}}}\", x-trace: \"{{{{ context.trace }}}}\"}}\n      json: {{of: \"{{{{ context.tenant }}}}\", all: [\"{{{{ context.trace }}}}\"]}}\n      allow_private: true\n{more}"
    );
    TestApp::with_manifest(&manifest, []).await
}

async fn invoke_with_context(app: &TestApp, tool: &str, arguments: Value, context: Value) -> Reply {
    app.post(
        &format!("/tools/{tool}/invoke"),
        json!({"arguments": arguments, "context": context}),
    )
    .await
}

fn warnings(reply: &Reply) -> Vec<&str> {
    let warnings = reply.1["meta"]["warnings"]
        .as_array()
        .unwrap_or_else(|| panic!("{}", reply.1));
    warnings
        .iter()
        .map(|warning| warning.as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn requests_hold_declared_fields_encoded() {
    let app = http_app("").await;
    let (_, got) = invoke_with_context(
        &app,
        "orders",
        json!({"q": "a b"}),
        json!({"tenant": "a/b?c", "trace": 7}),
    )
    .await;
    let got = &got["structured_content"];
    assert_eq!(got["uri"], "/t/a%2Fb%3Fc?q=a%20b&trace=7");
    assert_eq!(
        (&got["tenant"], &got["trace"]),
        (&json!("a/b?c"), &json!("7"))
    );
    assert_eq!(got["body"], r#"{"of":"a/b?c","all":[7]}"#);
    let (_, got) = invoke_with_context(&app, "orders", json!({}), json!({"tenant": "acme"})).await;
    let got = &got["structured_content"];
    assert_eq!(
        (&got["uri"], &got["trace"]),
        (&json!("/t/acme"), &json!(null)),
        "absent like an argument"
    );
    assert_eq!(got["body"], r#"{"of":"acme","all":[null]}"#);
}

#[tokio::test]
async fn unusable_values_are_invalid_requests() {
    let app = http_app("").await;
    for (context, says) in [
        (
            json!({}),
            "`context.tenant` stands in the path of a URL, so `context` must have `tenant`.",
        ),
        (
            json!({"tenant": null}),
            "`context.tenant` stands in the path of a URL, so `context` must have `tenant`.",
        ),
        (
            json!({"tenant": ""}),
            "`context.tenant` stands in the path of a URL and must not be empty.",
        ),
        (json!({"tenant": ".."}), "where `.` and `..` lead elsewhere"),
        (json!({"tenant": "x".repeat(10_000)}), "at most 8192 bytes"),
        (
            json!({"tenant": "a", "trace": "b\r\nx: y"}),
            "`context.trace` stands in the header `x-trace`",
        ),
    ] {
        for route in ["invoke", "validate"] {
            let body = json!({"arguments": {}, "context": context});
            let (status, problem) = app.post(&format!("/tools/orders/{route}"), body).await;
            assert_eq!(
                (status.as_u16(), &problem["kind"]),
                (400, &json!("invalid_request")),
                "{problem}"
            );
            assert!(
                problem["detail"].as_str().unwrap().contains(says),
                "{problem}"
            );
            assert_eq!(problem["retryable"], false);
        }
        assert_eq!(app.newest_invocation().await["state"], "refused");
    }
    let call =
        json!({"name": "orders", "arguments": {}, "_meta": {"toolcrib/context": {"tenant": ".."}}});
    let (_, reply) =
        last_message(app.respond(modern_request("tools/call", call, None)).await).await;
    let says = "_meta, toolcrib/context: `context.tenant` stands in the path of a URL, where";
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    assert!(
        reply["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with(says),
        "{reply}"
    );
    let spoofed = invoke_with_context(
        &app,
        "orders",
        json!({"context.tenant": "other", "tenant": "other"}),
        json!({}),
    )
    .await;
    assert_eq!(spoofed.0, 422, "an argument is no context: {}", spoofed.1);
}

#[tokio::test]
async fn headers_without_a_value_are_left_out() {
    let url = start_upstream().await;
    let manifest = format!(
        "tools:\n  show:\n    kind: http\n    description: d\n    context: [token, trace]\n    \
         parameters: {{user: {{type: string, required: false}}}}\n    request:\n      url: \"{url}/\"\n      \
         headers: {{x-tenant: \"Bearer {{{{ context.token }}}}\", x-trace: \"{{{{ user }}}} {{{{ context.trace }}}}\"}}\n      \
         allow_private: true\n"
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    for (arguments, context, tenant, trace) in [
        (
            json!({"user": "ann"}),
            json!({"token": "t", "trace": 7}),
            json!("Bearer t"),
            json!("ann 7"),
        ),
        (json!({"user": "ann"}), json!({}), json!(null), json!(null)),
        (
            json!({}),
            json!({"token": null, "trace": 7}),
            json!(null),
            json!(null),
        ),
    ] {
        let (_, got) = invoke_with_context(&app, "show", arguments, context.clone()).await;
        let got = &got["structured_content"];
        assert_eq!(
            (&got["tenant"], &got["trace"]),
            (&tenant, &trace),
            "{context}"
        );
    }
}

#[tokio::test]
async fn too_long_values_are_refused() {
    let names: Vec<String> = (0..30).map(|n| format!("f{n}")).collect();
    let parameters: Vec<String> = names
        .iter()
        .map(|name| format!("{name}: {{type: string}}"))
        .collect();
    let items: Vec<String> = names
        .iter()
        .map(|name| format!("\"{{{{ {name} }}}}\""))
        .collect();
    let manifest = format!(
        "server: {{max_body: 8MiB}}\ntools:\n  fields: {{kind: command, description: d, command: [/bin/true], context: [{}]}}\n  \
         arguments: {{kind: command, description: d, command: [/bin/true, {}], parameters: {{{}}}}}\n",
        names.join(", "),
        items.join(", "),
        parameters.join(", ")
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    let long: Value = names
        .iter()
        .map(|name| (name.clone(), json!("x".repeat(120_000))))
        .collect();
    for route in ["invoke", "validate"] {
        let (status, problem) = app
            .post(
                &format!("/tools/fields/{route}"),
                json!({"arguments": {}, "context": long}),
            )
            .await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (400, &json!("invalid_request")),
            "{problem}"
        );
        let says = "The fields of `context` that this tool takes have 36";
        assert!(
            problem["detail"].as_str().unwrap().starts_with(says),
            "{problem}"
        );
        let (status, problem) = app
            .post(
                &format!("/tools/arguments/{route}"),
                json!({"arguments": long}),
            )
            .await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (422, &json!("invalid_arguments")),
            "{problem}"
        );
        assert!(
            problem["violations"][0]["message"]
                .as_str()
                .unwrap()
                .contains("is too long"),
            "{problem}"
        );
    }
    let short: Value = names
        .iter()
        .map(|name| (name.clone(), json!("x".repeat(2_000))))
        .collect();
    assert_eq!(
        invoke_with_context(&app, "fields", json!({}), short.clone())
            .await
            .0,
        200
    );
    assert_eq!(
        invoke_with_context(&app, "arguments", short, json!({}))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn undeclared_fields_are_reported() {
    let app = http_app("  plain: {kind: native, use: calculator}\n").await;
    let context = json!({"tenant": "acme", "user": "ann"});
    let reply = invoke_with_context(&app, "orders", json!({}), context.clone()).await;
    assert_eq!(
        warnings(&reply),
        ["of the context this tool takes tenant, trace; not passed on: `user`"]
    );
    let sum = json!({"expression": "1+1"});
    let reply = invoke_with_context(&app, "plain", sum.clone(), context.clone()).await;
    assert_eq!(
        warnings(&reply),
        ["this tool takes no context; not passed on: `tenant`, `user`"]
    );
    assert_eq!(
        warnings(&invoke_with_context(&app, "plain", sum.clone(), json!({})).await),
        [""; 0]
    );
    assert_eq!(
        warnings(&invoke_with_context(&app, "orders", json!({}), json!({"tenant": "acme"})).await),
        [""; 0]
    );
    let message = json!({"tool_name": "plain", "arguments": sum});
    let (_, reply) = app
        .post("/calls", json!({"message": message, "context": context}))
        .await;
    let notice = &reply["results"][0]["meta"]["warnings"][0];
    assert_eq!(
        notice, "this tool takes no context; not passed on: `tenant`, `user`",
        "{reply}"
    );
    let call = json!({"name": "plain", "arguments": sum, "_meta": {"toolcrib/context": context}});
    let (_, reply) =
        last_message(app.respond(modern_request("tools/call", call, None)).await).await;
    assert!(
        reply
            .to_string()
            .contains("this tool takes no context; not passed on: `tenant`, `user`"),
        "{reply}"
    );
}

#[tokio::test]
async fn declared_fields_are_listed() {
    let own = Tool::new("own", "…").call(|_, _| async { Ok("x") });
    let manifest = "tools:\n  t: {kind: command, description: d, command: [/bin/true], context: [tenant]}\n  plain: {kind: native, use: calculator}\n";
    let app = TestApp::with_manifest(manifest, [own]).await;
    for (name, context) in [
        ("t", json!(["tenant"])),
        ("plain", json!([])),
        ("own", json!(null)),
    ] {
        assert_eq!(
            app.get(&format!("/tools/{name}")).await.1["context"],
            context,
            "{name}"
        );
    }
    let (_, list) = app.get("/tools").await;
    assert!(
        list["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["context"] == json!(["tenant"]))
    );
}

#[tokio::test]
async fn commands_get_declared_fields_as_variables() {
    let manifest = "tools:\n  show:\n    kind: command\n    description: d\n    context: [tenant, user-id, roles]\n    \
        command: [/usr/bin/env]\n    output: text\n  \
        list:\n    kind: command\n    description: d\n    context: [tenant]\n    command: [/usr/bin/printf, \"%s\", \"{{ context.tenant }}\"]\n    output: text\n";
    let app = TestApp::with_manifest(manifest, []).await;
    let context =
        json!({"tenant": "a b; $(id)", "user-id": 7, "roles": ["x"], "LD_PRELOAD": "evil.so"});
    let reply = invoke_with_context(&app, "show", json!({}), context).await;
    for line in [
        "TOOLCRIB_CONTEXT_TENANT=a b; $(id)",
        "TOOLCRIB_CONTEXT_USER_ID=7",
        "TOOLCRIB_CONTEXT_ROLES=[\"x\"]",
    ] {
        assert!(
            first_text(&reply).lines().any(|found| found == line),
            "{line}: {}",
            first_text(&reply)
        );
    }
    assert!(
        !first_text(&reply).contains("evil"),
        "{}",
        first_text(&reply)
    );
    let reply = invoke_with_context(&app, "show", json!({}), json!({"roles": null})).await;
    assert!(
        !first_text(&reply).contains("TOOLCRIB_CONTEXT"),
        "unset: {}",
        first_text(&reply)
    );
    assert_eq!(
        first_text(
            &invoke_with_context(&app, "list", json!({}), json!({"tenant": "a b; $(id)"})).await
        ),
        "a b; $(id)"
    );
    for (tool, context, says) in [
        (
            "show",
            json!({"tenant": "a\0b"}),
            "`context.tenant` is the variable TOOLCRIB_CONTEXT_TENANT and must not contain a NUL",
        ),
        (
            "show",
            json!({"tenant": "x".repeat(131_072)}),
            "a variable has at most 131071 bytes with its name",
        ),
        (
            "list",
            json!({"tenant": "--help"}),
            "`context.tenant` must not begin with `-`",
        ),
        (
            "list",
            json!({}),
            "`context.tenant` stands in the command line, so `context` must have `tenant`.",
        ),
        (
            "list",
            json!({"tenant": null}),
            "`context` must have `tenant`",
        ),
    ] {
        let (status, problem) = invoke_with_context(&app, tool, json!({}), context).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (400, &json!("invalid_request")),
            "{problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn statements_bind_declared_fields() {
    let manifest = "tools:\n  rows:\n    kind: sql\n    description: d\n    context: [tenant]\n    parameters: {n: {type: integer}}\n    database: sqlite://shop.db\n    \
        statement: \"select :context.tenant as tenant, :n as n, :context.tenant is null as absent\"\n";
    let app = TestApp::with_files(manifest, &[("shop.db", "")])
        .await
        .with_sources_listed()
        .await;
    // The file is written behind the first look at the manifest.
    assert_eq!(app.reload().await, None);
    let evil = "x' or 1=1; drop table t; --";
    let (_, got) =
        invoke_with_context(&app, "rows", json!({"n": 1}), json!({"tenant": evil})).await;
    assert_eq!(
        got["structured_content"],
        json!([{"tenant": evil, "n": 1, "absent": 0}]),
        "{got}"
    );
    let (_, got) = invoke_with_context(&app, "rows", json!({"n": 1}), json!({})).await;
    assert_eq!(
        got["structured_content"],
        json!([{"tenant": null, "n": 1, "absent": 1}])
    );
    let (status, problem) =
        invoke_with_context(&app, "rows", json!({"n": 1}), json!({"tenant": u64::MAX})).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (400, &json!("invalid_request"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .starts_with("`context.tenant`: an integer up to"),
        "{problem}"
    );
}

const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "description": "Shows it.", "inputSchema": {"type": "object"}} for name in ("show", "own")]}
    elif method == "tools/call":
        context = (params.get("_meta") or {}).get("toolcrib/context")
        result = {"content": [{"type": "text", "text": json.dumps(context, sort_keys=True)}]}
    else:
        result = None
    said = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"#;

#[tokio::test]
async fn servers_get_declared_fields_in_meta() {
    let manifest = "mcp_servers:\n  s:\n    command: [python3, server.py]\n    context: [tenant]\n    tools: {show: {effect: read, cache: {ttl: 1m}}, own: {effect: read, context: [user]}}\n  \
        bare: {command: [python3, server.py]}\n";
    let app = TestApp::with_files(manifest, &[("server.py", SERVER)])
        .await
        .with_sources_listed()
        .await;
    let context = json!({"tenant": "acme", "user": "ann"});
    assert_eq!(
        first_text(&invoke_with_context(&app, "s_show", json!({}), context.clone()).await),
        r#"{"tenant": "acme"}"#
    );
    assert_eq!(
        first_text(&invoke_with_context(&app, "s_own", json!({}), context.clone()).await),
        r#"{"user": "ann"}"#
    );
    let bare = invoke_with_context(&app, "bare_show", json!({}), context.clone()).await;
    assert_eq!((first_text(&bare), warnings(&bare).len()), ("null", 1));
    assert_eq!(
        first_text(
            &invoke_with_context(&app, "s_show", json!({}), json!({"tenant": "other"})).await
        ),
        r#"{"tenant": "other"}"#
    );
    assert_eq!(
        invoke_with_context(&app, "s_show", json!({}), context)
            .await
            .1["meta"]["cache"],
        "hit"
    );
    assert_eq!(
        app.get("/tools/s_show").await.1["policy"]["cache"]["context"],
        json!(["tenant"])
    );
}

const MODULE: &str = r#"
from toolcrib import tool

@tool(context=True)
def state(tool_context) -> dict:
    """Shows its state."""
    return tool_context.invocation_state

@tool(context=True)
def part(tool_context) -> dict:
    """Shows its state."""
    return tool_context.invocation_state

@tool
def plain() -> str:
    """Knows nothing."""
    return "nothing"
"#;

#[tokio::test]
async fn python_functions_get_only_declared_fields() {
    let manifest = "python_modules:\n  m:\n    module: m.py\n    tools: {part: {effect: read, cache: {ttl: 1m}, context: [tenant]}, plain: {context: [tenant]}, state: {effect: read, cache: {ttl: 1m}}}\n";
    let app = TestApp::with_files(manifest, &[("m.py", MODULE)])
        .await
        .with_sources_listed()
        .await;
    let context = json!({"tenant": "acme", "user": "ann"});
    let state = invoke_with_context(&app, "state", json!({}), context.clone()).await;
    assert_eq!(
        (&state.1["structured_content"], warnings(&state).len()),
        (&context, 0),
        "all of it, as before"
    );
    let part = invoke_with_context(&app, "part", json!({}), context.clone()).await;
    assert_eq!(part.1["structured_content"], json!({"tenant": "acme"}));
    assert_eq!(
        warnings(&part),
        ["of the context this tool takes tenant; not passed on: `user`"]
    );
    let other = invoke_with_context(&app, "part", json!({}), json!({"tenant": "other"}))
        .await
        .1;
    assert_eq!(
        (&other["structured_content"], &other["meta"]["cache"]),
        (&json!({"tenant": "other"}), &json!("miss"))
    );
    assert_eq!(
        invoke_with_context(
            &app,
            "part",
            json!({}),
            json!({"tenant": "acme", "user": "bob"})
        )
        .await
        .1["meta"]["cache"],
        "hit"
    );
    assert_eq!(
        invoke_with_context(&app, "state", json!({}), context.clone())
            .await
            .1["meta"]["cache"],
        "off",
        "nothing is named"
    );
    assert_eq!(
        warnings(&invoke_with_context(&app, "plain", json!({}), context).await).len(),
        1
    );
    assert_eq!(app.get("/tools/plain").await.1["context"], json!([]));
    let (_, sources) = app.get("/sources").await;
    let odd = sources["sources"][0]["warnings"].to_string();
    assert!(
        odd.contains("tool `plain`: context has no effect: the function has no parameter for it"),
        "{odd}"
    );
    assert!(odd.contains("tool `state`: cache has no effect"), "{odd}");
}

#[tokio::test]
async fn shared_cache_without_effect_is_a_warning() {
    for (rules, is_reported) in [
        ("defaults: {effect: read, cache: 1m}", true),
        ("tools: {'st*': {effect: read, cache: 1m}}", true),
        (
            "prefix: ''}}\ndefaults: {effect: read, cache: {ttl: 1m",
            false,
        ),
    ] {
        let manifest = format!("python_modules: {{m: {{module: m.py, {rules}}}}}\n");
        let app = TestApp::with_files(&manifest, &[("m.py", MODULE)])
            .await
            .with_sources_listed()
            .await;
        let (_, sources) = app.get("/sources").await;
        let warnings = sources["sources"][0]["warnings"].to_string();
        assert_eq!(
            warnings.contains("tool `state`: cache has no effect"),
            is_reported,
            "{rules}: {sources}"
        );
    }
}

#[tokio::test]
async fn native_functions_get_only_declared_fields() {
    let show = |name: &str| {
        Tool::new(name, "…")
            .effect(Effect::Read)
            .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) })
    };
    let app = TestApp::new([show("all"), show("some").context(&["tenant"])]).await;
    let context = json!({"tenant": "acme", "user": "ann"});
    assert_eq!(
        invoke_with_context(&app, "all", json!({}), context.clone())
            .await
            .1["structured_content"],
        context
    );
    assert_eq!(
        invoke_with_context(&app, "some", json!({}), context)
            .await
            .1["structured_content"],
        json!({"tenant": "acme"})
    );
    let bad = toolcrib::Registry::builder()
        .tool(show("bad").context(&["a.b"]))
        .build()
        .await;
    assert!(
        bad.err()
            .unwrap()
            .to_string()
            .contains("tool `bad`: context: the name of a context field has")
    );
}

#[tokio::test]
async fn cached_answers_differ_by_declared_fields() {
    let manifest = "defaults: {cache: {ttl: 1m, context: []}}\ntools:\n  \
        auto: {kind: command, description: d, command: [/usr/bin/env], effect: read, context: [tenant], cache: {ttl: 1m}}\n  \
        default: {kind: command, description: d, command: [/usr/bin/env], effect: read, context: [tenant]}\n  \
        chosen: {kind: command, description: d, command: [/usr/bin/env], effect: read, context: [tenant, trace], cache: {ttl: 1m, context: [tenant]}}\n  \
        keyed: {kind: command, description: d, command: [/usr/bin/env], effect: read, cache: {ttl: 1m, context: [tenant]}}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    for tool in ["auto", "default", "chosen", "keyed"] {
        let how = async |context: Value| {
            let reply = invoke_with_context(&app, tool, json!({}), context).await;
            assert_eq!(warnings(&reply), [""; 0], "{tool}");
            reply.1["meta"]["cache"].as_str().unwrap().to_owned()
        };
        assert_eq!(how(json!({"tenant": "acme"})).await, "miss", "{tool}");
        assert_eq!(how(json!({"tenant": "other"})).await, "miss", "{tool}");
        assert_eq!(how(json!({"tenant": "acme"})).await, "hit", "{tool}");
        assert_eq!(how(json!({})).await, "miss", "{tool}");
        assert_eq!(
            app.get(&format!("/tools/{tool}")).await.1["policy"]["cache"]["context"],
            json!(["tenant"])
        );
    }
    let reply = invoke_with_context(
        &app,
        "chosen",
        json!({}),
        json!({"tenant": "acme", "trace": 2}),
    )
    .await;
    assert_eq!(
        reply.1["meta"]["cache"], "hit",
        "the manifest's own list holds"
    );
}

#[tokio::test]
async fn idempotency_key_belongs_to_its_context() {
    let tool = Tool::new("pay", "…")
        .context(&["tenant"])
        .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) });
    let app = TestApp::new([tool]).await;
    let pay = async |tenant: &str| {
        let body = json!({"arguments": {}, "context": {"tenant": tenant}});
        let mut request = request("POST", "/tools/pay/invoke", None, Some(body));
        request
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        app.send(request).await
    };
    assert_eq!(
        pay("acme").await.1["structured_content"],
        json!({"tenant": "acme"})
    );
    assert_eq!(
        pay("acme").await.1["structured_content"],
        json!({"tenant": "acme"})
    );
    let (status, problem) = pay("other").await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (422, &json!("idempotency_mismatch"))
    );
}

#[tokio::test]
async fn other_context_is_no_repeat() {
    let tool = Tool::new("look", "…")
        .effect(Effect::Read)
        .context(&["tenant"])
        .call(|_, _| async { Ok("x") });
    let app = TestApp::new([tool]).await;
    let look = async |tenant: &str| {
        let body = json!({"arguments": {}, "context": {"tenant": tenant}, "run_id": "r"});
        app.post("/tools/look/invoke", body).await.0.as_u16()
    };
    assert_eq!(
        [look("acme").await, look("other").await, look("other").await],
        [200, 200, 409]
    );
}

#[tokio::test]
async fn registered_tool_takes_declared_fields() {
    let app = TestApp::new([]).await;
    let url = format!("{}/{{{{ context.tenant }}}}", "https://api.example.com");
    let tool =
        json!({"kind": "http", "description": "d", "context": ["tenant"], "request": {"url": url}});
    let (status, shown) = app.put("/tools/far", tool.clone()).await;
    assert_eq!(
        (status.as_u16(), &shown["context"]),
        (201, &json!(["tenant"])),
        "{shown}"
    );
    let mut bare = tool;
    bare.as_object_mut().unwrap().remove("context");
    let (status, problem) = app.put("/tools/near", bare).await;
    assert_eq!(status.as_u16(), 400);
    let says = "`{{ context.tenant }}`: the tool does not take this field of the context; write `context: [tenant]`";
    assert!(
        problem["violations"][0]["message"]
            .as_str()
            .unwrap()
            .contains(says),
        "{problem}"
    );
}

#[tokio::test]
async fn changed_fields_change_the_definition() {
    let manifest = |context: &str| {
        format!("tools:\n  t: {{kind: command, description: d, command: [/bin/true]{context}}}\n")
    };
    let app = TestApp::with_manifest(&manifest(""), []).await;
    let hash = async || app.get("/tools/t").await.1["definition_hash"].clone();
    let before = hash().await;
    app.write("toolcrib.yaml", &manifest(", context: [tenant]"));
    assert_eq!(app.reload().await, None);
    let with = hash().await;
    assert_ne!(before, with);
    app.write("toolcrib.yaml", &manifest(""));
    assert_eq!(app.reload().await, None);
    assert_eq!(
        hash().await,
        before,
        "a tool without the key has the hash that it always had"
    );
}

/// Calls `inner`.
fn nesting_tool() -> Tool {
    Tool::new("outer", "…").call(|_, context: ToolContext| async move {
        let others = context
            .service::<std::sync::Arc<dyn ToolInvoker>>()
            .unwrap()
            .clone();
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        let (name, arguments) = ("inner".to_owned(), json!({}));
        let call = NestedCall {
            name,
            arguments,
            cut_off: false,
            tool_use_id: None,
            deadline,
            max_depth: None,
        };
        let answer = others
            .call(&context, &|_: &Definition| true, call)
            .await
            .map_err(|error| format!("{error:?}"))?;
        Ok(json!(answer.result.structured_content))
    })
}

#[tokio::test]
async fn nested_calls_inherit_the_fields() {
    let inner = Tool::new("inner", "…")
        .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) });
    let app = TestApp::new([
        nesting_tool().context(&["tenant"]),
        inner.context(&["tenant", "user"]),
    ])
    .await;
    let reply = invoke_with_context(
        &app,
        "outer",
        json!({}),
        json!({"tenant": "acme", "user": "ann"}),
    )
    .await;
    assert_eq!(
        reply.1["structured_content"],
        json!({"tenant": "acme"}),
        "{}",
        reply.1
    );
    let quiet = Tool::new("inner", "…")
        .context(&[])
        .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) });
    let app = TestApp::new([nesting_tool(), quiet]).await;
    let reply = invoke_with_context(&app, "outer", json!({}), json!({"tenant": "acme"})).await;
    assert_eq!(
        (&reply.1["structured_content"], warnings(&reply).len()),
        (&json!({}), 0)
    );
    let (_, rows) = app.get("/invocations?tool=inner").await;
    let id = rows["invocations"][0]["invocation_id"].as_str().unwrap();
    let row = app.get(&format!("/invocations/{id}")).await.1;
    assert_eq!(
        row["result"]["meta"]["warnings"],
        json!([]),
        "nobody sent it with that call"
    );
}
