use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::mcp::{last_message, rpc_message};
use crate::support::{Reply, TestApp, request};

const MANIFEST: &str = "compat: {toolbox: true}\ncallers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob, deny: [echo]}\n";

fn echo() -> Tool {
    Tool::new("echo", "Repeats a word.")
        .param("word", "string", "The word")
        .param_opt("times", "integer", "How often")
        .effect(Effect::Read)
        .tag("talk")
        .alias("repeat")
        .call(|arguments, _| async move { Ok(arguments["word"].clone()) })
}

fn other_tools() -> [Tool; 3] {
    let data = Tool::new("data", "Gives data.").call(|_, _| async { Ok(json!({"a": [1, 2]})) });
    let nothing = Tool::new("nothing", "Gives nothing.").call(|_, _| async { Ok(Value::Null) });
    let failing = Tool::new("failing", "Fails.")
        .call(|_, _| async { Ok(toolcrib::ToolResult::error("The table is locked.")) });
    [data, nothing, failing]
}

async fn app(manifest: &str) -> TestApp {
    TestApp::with_manifest(manifest, [echo()].into_iter().chain(other_tools())).await
}

async fn invoke(app: &TestApp, tool: &str, arguments: Value) -> Reply {
    app.post_as("key-of-ann", &format!("/api/tool/{tool}/invoke"), arguments)
        .await
}

fn error(status: &str, error: &str) -> Value {
    json!({"status": status, "error": error})
}

#[tokio::test]
async fn routes_exist_only_with_the_setting() {
    let app = app("callers: []\n").await;
    for path in ["/api/toolset", "/api/toolset/talk", "/api/tool/echo"] {
        assert_eq!(app.get(path).await.0, 404, "{path}");
    }
    for path in ["/api/tool/echo/invoke", "/mcp/", "/mcp/talk"] {
        assert_eq!(app.post(path, json!({})).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn toolsets_are_tags() {
    let app = app(MANIFEST).await;
    let names = |manifest: &Value| -> Vec<String> {
        manifest["tools"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    for path in ["/api/toolset", "/api/toolset/"] {
        let (status, manifest) = app.get_as("key-of-ann", path).await;
        assert_eq!(status, 200);
        assert_eq!(names(&manifest), ["data", "echo", "failing", "nothing"]);
    }
    let (_, talk) = app.get_as("key-of-ann", "/api/toolset/talk").await;
    let echo = json!({
        "description": "Repeats a word.",
        "parameters": [
            {"name": "word", "type": "string", "required": true, "description": "The word", "authServices": []},
            {"name": "times", "type": "integer", "required": false, "description": "How often", "authServices": []},
        ],
        "authRequired": [],
    });
    assert_eq!(
        talk,
        json!({"serverVersion": env!("CARGO_PKG_VERSION"), "tools": {"echo": echo}})
    );
    let (_, one) = app.get_as("key-of-ann", "/api/tool/repeat").await;
    assert_eq!(one["tools"], json!({"repeat": echo}), "as requested");

    // A toolset without tools for the caller is as one that does not exist.
    for (key, set) in [("key-of-ann", "nope"), ("key-of-bob", "talk")] {
        let message = format!(
            "there is no toolset `{set}`: the name of a toolset is one of the manifest's `toolsets`, or a tag of tools"
        );
        let reply = app.get_as(key, &format!("/api/toolset/{set}")).await;
        assert_eq!(reply, (StatusCode::NOT_FOUND, error("Not Found", &message)));
    }
    let (_, all) = app.get_as("key-of-bob", "/api/toolset").await;
    assert_eq!(names(&all), ["data", "failing", "nothing"]);
}

#[tokio::test]
async fn results_are_texts() {
    let app = app(MANIFEST).await;
    for (tool, arguments, text) in [
        ("echo", json!({"word": "hi"}), "hi"),
        ("data", json!({}), r#"{"a":[1,2]}"#),
        ("nothing", json!({}), "null"),
        ("failing", json!({}), r#"{"error":"The table is locked."}"#),
    ] {
        let reply = invoke(&app, tool, arguments).await;
        assert_eq!(reply, (StatusCode::OK, json!({"result": text})));
    }
    let (status, refused) = invoke(&app, "echo", json!({"times": "many"})).await;
    let text: Value = serde_json::from_str(refused["result"].as_str().unwrap()).unwrap();
    assert_eq!(status, 200);
    assert!(text["error"].as_str().unwrap().contains("word"), "{text}");

    let (_, page) = app.get_as("key-of-ann", "/invocations?limit=5").await;
    assert_eq!(page["invocations"].as_array().unwrap().len(), 5, "{page}");
}

#[tokio::test]
async fn refusals_have_the_status_of_the_problem() {
    let app = app(MANIFEST).await;
    let nobody = app.post("/api/tool/echo/invoke", json!({})).await;
    assert_eq!(nobody.0, 401);
    assert_eq!(nobody.1["status"], "Unauthorized");
    let unknown = invoke(&app, "ecco", json!({})).await;
    let message = "there is no tool `ecco`";
    assert_eq!(
        unknown,
        (StatusCode::NOT_FOUND, error("Not Found", message))
    );
    let denied = app
        .post_as("key-of-bob", "/api/tool/echo/invoke", json!({"word": "x"}))
        .await;
    assert_eq!(
        (denied.0.as_u16(), &denied.1["status"]),
        (403, &json!("Forbidden"))
    );
    assert_eq!(app.get_as("key-of-bob", "/api/tool/echo").await.0, 403);
    let list = invoke(&app, "echo", json!(["x"])).await;
    let message = "the body is not an object: send the arguments by name";
    assert_eq!(
        list,
        (StatusCode::BAD_REQUEST, error("Bad Request", message))
    );
}

#[tokio::test]
async fn idempotency_key_replays() {
    let app = app("compat: {toolbox: true}\n").await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let body = Some(json!({"word": "x"}));
        let mut request = request("POST", "/api/tool/echo/invoke", None, body);
        let key = "a-key-that-is-sent-twice".parse().unwrap();
        request.headers_mut().insert("idempotency-key", key);
        answers.push(app.respond(request).await);
    }
    let replayed = |index: usize| answers[index].headers().contains_key("idempotent-replayed");
    assert_eq!([replayed(0), replayed(1)], [false, true]);
}

fn mcp_request(path: &str, version: &str, method: &str, params: Value) -> Request<Body> {
    let body = rpc_message(method, params);
    let mut request = request("POST", path, Some("key-of-ann"), Some(body));
    for (name, value) in [("accept", "*/*"), ("mcp-protocol-version", version)] {
        let name = axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// As the clients do it until 2025-11-25: no session, and any type of answer.
#[tokio::test]
async fn mcp_needs_no_session() {
    let app = app(MANIFEST).await;
    for version in ["2025-06-18", "2025-11-25"] {
        let send = async |path: &str, method: &str, params: Value| {
            let response = app
                .respond(mcp_request(path, version, method, params))
                .await;
            assert_eq!(response.headers()["content-type"], "application/json");
            last_message(response).await.1
        };
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let opened = send("/mcp/", "initialize", params).await;
        assert_eq!(opened["result"]["protocolVersion"], version);

        let listed = send("/mcp/talk", "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(
            (tools.len(), &tools[0]["name"]),
            (1, &json!("echo")),
            "{listed}"
        );
        let unknown = send("/mcp/nope", "tools/list", json!({})).await;
        assert_eq!(unknown["error"]["code"], -32600, "{unknown}");

        let call = json!({"name": "echo", "arguments": {"word": version}});
        let answer = send("/mcp/", "tools/call", call).await;
        assert_eq!(answer["result"]["content"][0]["text"], version);
        let elsewhere = json!({"name": "data", "arguments": {}});
        let refused = send("/mcp/talk", "tools/call", elsewhere).await;
        assert_eq!(refused["error"]["message"], "Unknown tool: data");
    }
}

/// Clients read one page only, and refuse a list with a type that is no single word.
#[tokio::test]
async fn mcp_list_fits_the_clients() {
    let tools = (0..150).map(|number| {
        let schema = json!({"type": "object", "properties": {"id": {"type": ["string", "null"], "pattern": "^x"}}});
        Tool::new(format!("tool_{number}"), "Does it.")
            .input_schema(schema)
            .call(|_, _| async { Ok(json!("x")) })
    });
    let app = TestApp::with_manifest("compat: {toolbox: true}\n", tools).await;
    let request = mcp_request("/mcp/", "2025-06-18", "tools/list", json!({}));
    let (_, listed) = last_message(app.respond(request).await).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 150);
    assert_eq!(
        tools[0]["inputSchema"]["properties"]["id"],
        json!({"type": "string", "pattern": "^x", "description": r#"JSON Schema: {"pattern":"^x"}"#})
    );
}
