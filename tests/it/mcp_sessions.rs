//! MCP with sessions: versions 2025-11-25, 2025-06-18 and 2025-03-26 over `/mcp`.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib::{Effect, Tool, ToolResult};

use crate::support::TestApp;
use crate::support::mcp::{
    last_message, mcp_request, messages, modern_request, next_message, rpc_message,
};

const VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
const SESSION_VERSION: &str = "2025-11-25";

fn echo_tool() -> Tool {
    Tool::new("echo", "Says it again.")
        .param("text", "string", "What")
        .effect(Effect::Read)
        .call(|args, context| async move {
            context.progress(json!({"progress": 1, "total": 2}));
            Ok(json!({"said": args["text"]}))
        })
}

fn waiting_tool(effect: Effect) -> (Tool, Arc<Notify>, Arc<Notify>) {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (started.clone(), go.clone());
    let tool = Tool::new("wait", "…").effect(effect).call(move |_, _| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok("done")
        }
    });
    (tool, started, go)
}

fn call_message(id: u64, name: &str, meta: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {}, "_meta": meta}})
}

#[tokio::test]
async fn session_lists_and_calls_in_every_version() {
    let list = Tool::new("list", "…")
        .effect(Effect::Read)
        .output_schema(json!({"type": "array"}))
        .call(|_, _| async { Ok(json!([1])) });
    let other = Tool::new("other", "…")
        .effect(Effect::Read)
        .call(|_, _| async {
            Ok(ToolResult {
                structured_content: Some(json!([1, 2])),
                ..ToolResult::text("Two numbers.")
            })
        });
    let app = TestApp::new([echo_tool(), list, other]).await;
    for version in VERSIONS {
        let session = app.session(version, None).await;
        assert_eq!(session.server["serverInfo"]["name"], "toolcrib");
        assert_eq!(
            session.server["capabilities"],
            json!({"tools": {"listChanged": true}})
        );
        assert_eq!(
            session.result_of("ping", json!({})).await["result"],
            json!({})
        );
        let listed = session.result_of("tools/list", json!({})).await["result"].take();
        assert_eq!(
            (listed.get("ttlMs"), listed.get("resultType")),
            (None, None),
            "nothing of a later version: {listed}"
        );
        assert_eq!(
            (
                &listed["tools"][0]["name"],
                listed["tools"][1].get("outputSchema")
            ),
            (&json!("echo"), None)
        );
        let result = session.call("echo", json!({"text": "hi"})).await;
        assert_eq!(
            (&result["structuredContent"], &result["isError"]),
            (&json!({"said": "hi"}), &json!(false))
        );
        assert_eq!(
            (
                result.get("resultType"),
                result["_meta"]["toolcrib/invocationId"].is_string()
            ),
            (None, true)
        );
        let listed = session.call("list", json!({})).await;
        assert_eq!(
            (
                listed.get("structuredContent"),
                &listed["content"][0]["text"]
            ),
            (None, &json!("[1]")),
            "an object until then"
        );
        assert!(
            listed["content"][1].is_null() && listed["_meta"]["toolcrib/warnings"].is_null(),
            "{listed}"
        );
        let events = session.call("other", json!({})).await;
        assert_eq!(
            (
                events.get("structuredContent"),
                &events["content"][1]["text"]
            ),
            (None, &json!("[1,2]")),
            "what no text says is one"
        );
        assert!(
            events["_meta"]["toolcrib/warnings"][0].is_string(),
            "{events}"
        );
        let wrong = session.call("echo", json!({})).await;
        assert_eq!(
            wrong["_meta"]["toolcrib/problem"]["kind"],
            "invalid_arguments"
        );
        let unknown = session
            .result_of("tools/call", json!({"name": "ech"}))
            .await;
        assert_eq!(
            (
                &unknown["error"]["code"],
                &unknown["error"]["data"]["did_you_mean"]
            ),
            (&json!(-32602), &json!(["echo"]))
        );
        let error = json!({"code": -32601, "message": "there is no method `x/y`"});
        assert_eq!(session.result_of("x/y", json!({})).await["error"], error);
    }
}

#[tokio::test]
async fn newer_version_gets_the_latest_session_version() {
    let app = TestApp::new([echo_tool()]).await;
    let client = json!({"name": "test", "version": "1"});
    for pending in ["2026-07-28", "2099-01-01", "2024-11-05"] {
        let params = json!({"protocolVersion": pending, "capabilities": {}, "clientInfo": client});
        let (status, opened) = last_message(
            app.respond(mcp_request(&rpc_message("initialize", params), None, &[]))
                .await,
        )
        .await;
        assert_eq!(
            (status.as_u16(), &opened["result"]["protocolVersion"]),
            (200, &json!(SESSION_VERSION)),
            "{pending}: {opened}"
        );
    }
}

#[tokio::test]
async fn progress_uses_the_stream_of_its_call() {
    let app = TestApp::new([echo_tool()]).await;
    let session = app.session(SESSION_VERSION, None).await;
    let mut body = call_message(5, "echo", json!({"progressToken": "p"}));
    body["params"]["arguments"] = json!({"text": "hi"});
    let (_, events) = messages(session.post(&body).await).await;
    assert_eq!(
        (
            events.len(),
            &events[0]["params"]["progress"],
            &events[1]["id"]
        ),
        (2, &json!(1.0), &json!(5)),
        "{events:?}"
    );
}

#[tokio::test]
async fn session_belongs_to_its_caller_until_deleted() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, admin: true}\n  - {name: bob, key: key-of-bob}\n";
    let app = TestApp::with_manifest(manifest, [echo_tool()]).await;
    let session = app.session(SESSION_VERSION, Some("key-of-ann")).await;
    let version = [
        ("mcp-session-id", &*session.id),
        ("mcp-protocol-version", SESSION_VERSION),
    ];
    let as_bob = mcp_request(
        &rpc_message("ping", json!({})),
        Some("key-of-bob"),
        &version,
    );
    let (status, answer) = last_message(app.respond(as_bob).await).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"], &answer["id"]),
        (404, &json!(-32600), &json!(1))
    );
    let unkeyed = mcp_request(&rpc_message("ping", json!({})), None, &version);
    assert_eq!(last_message(app.respond(unkeyed).await).await.0, 401);
    assert_eq!(
        session.result_of("ping", json!({})).await["result"],
        json!({})
    );
    assert_eq!(session.send("DELETE").await.status(), 204);
    assert_eq!(
        session.post(&rpc_message("ping", json!({}))).await.status(),
        404
    );
    assert_eq!(session.send("GET").await.status(), 404);
    assert_eq!(session.send("DELETE").await.status(), 404);
    let none = mcp_request(
        &rpc_message("tools/list", json!({})),
        Some("key-of-ann"),
        &[("mcp-protocol-version", SESSION_VERSION)],
    );
    assert_eq!(
        last_message(app.respond(none).await).await.0,
        400,
        "no session is named"
    );
}

#[tokio::test]
async fn cancel_notification_cancels_only_its_call() {
    let (tool, started, go) = waiting_tool(Effect::Write);
    let app = TestApp::new([tool]).await;
    let (one, other) = (
        app.session(SESSION_VERSION, None).await,
        app.session(SESSION_VERSION, None).await,
    );
    let (first, second) = (
        one.post(&call_message(7, "wait", json!({}))).await,
        other.post(&call_message(7, "wait", json!({}))).await,
    );
    started.notified().await;
    started.notified().await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "enough"}});
    assert_eq!(one.post(&cancel).await.status(), 202);
    app.wait_for_newest_with("state=unknown").await;
    let (_, events) = messages(first).await;
    assert_eq!(
        events,
        [] as [Value; 0],
        "what was cancelled is not answered"
    );
    go.notify_waiters();
    go.notify_one();
    let (_, answer) = last_message(second).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
}

#[tokio::test]
async fn request_id_is_unique_while_running() {
    let (tool, started, go) = waiting_tool(Effect::Read);
    let app = TestApp::new([tool]).await;
    let session = app.session(SESSION_VERSION, None).await;
    let first = session.post(&call_message(7, "wait", json!({}))).await;
    started.notified().await;
    let (status, answer) =
        last_message(session.post(&call_message(7, "wait", json!({}))).await).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!(-32600)),
        "{answer}"
    );
    go.notify_one();
    assert_eq!(
        last_message(first).await.1["result"]["content"][0]["text"],
        "done"
    );
}

#[tokio::test]
async fn closing_a_stream_is_no_disconnect() {
    for (effect, end) in [(Effect::Read, "cancelled"), (Effect::Write, "succeeded")] {
        let (tool, started, go) = waiting_tool(effect);
        let app = TestApp::new([tool]).await;
        let session = app.session(SESSION_VERSION, None).await;
        drop(session.post(&call_message(1, "wait", json!({}))).await);
        started.notified().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(
            app.newest_invocation().await["state"],
            "running",
            "it may be taken up again"
        );
        assert_eq!(session.send("DELETE").await.status(), 204);
        if effect == Effect::Write {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(
                app.newest_invocation().await["state"],
                "running",
                "a write goes on"
            );
            go.notify_one();
        }
        app.wait_for_newest_state(end).await;
    }
}

#[tokio::test]
async fn session_is_notified_of_list_changes() {
    let manifest = |description: &str| {
        format!("tools:\n  calculator: {{kind: native, description: {description}}}\n")
    };
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(SESSION_VERSION, None).await;
    let mut stream = session.send("GET").await.into_body();
    // The earlier answers show that the session was notified.
    session.result_of("ping", json!({})).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(
        next_message(&mut stream).await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(
        session.result_of("tools/list", json!({})).await["result"]["tools"][0]["description"],
        "two"
    );
    // An equal manifest is no change.
    assert_eq!(app.reload().await, None);
    let nothing = tokio::time::timeout(Duration::from_millis(100), next_message(&mut stream)).await;
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(session.send("DELETE").await.status(), 204);
    assert_eq!(
        next_message(&mut stream).await,
        None,
        "it ends with its session"
    );
}

#[tokio::test]
async fn newest_listening_stream_replaces_the_older() {
    let manifest = |description: &str| {
        format!("tools:\n  calculator: {{kind: native, description: {description}}}\n")
    };
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(SESSION_VERSION, None).await;
    let mut lost = session.send("GET").await.into_body();
    session.result_of("ping", json!({})).await;
    let mut own_stream = session.send("GET").await.into_body();
    assert_eq!(next_message(&mut lost).await, None);
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(
        next_message(&mut own_stream).await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn listening_streams_are_bounded_per_caller() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob}\n";
    let app = TestApp::with_manifest(manifest, [echo_tool()]).await;
    let listen = async |key| {
        let listen = modern_request(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
            Some(key),
        );
        app.respond(listen).await
    };
    let session = app.session(SESSION_VERSION, Some("key-of-ann")).await;
    let mut open = vec![session.send("GET").await];
    let refused = loop {
        let response = listen("key-of-ann").await;
        if response.status() != 200 || open.len() > 1000 {
            break response;
        }
        open.push(response);
    };
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"5".parse().unwrap())
    );
    let (_, problem) = last_message(refused).await;
    assert_eq!(problem["kind"], "overloaded");
    assert!(
        problem["detail"].as_str().unwrap().contains("of `ann`"),
        "{problem}"
    );
    assert!(open.len() <= 64, "{} of one caller", open.len());
    // Its own stream may still be reopened, and streams of calls do not count.
    open.push(session.send("GET").await);
    assert_eq!(open.last().unwrap().status(), 200);
    assert_eq!(
        session.call("echo", json!({"text": "hi"})).await["isError"],
        false
    );
    assert_eq!(listen("key-of-bob").await.status(), 200);
    open.pop();
    open.remove(1);
    assert_eq!(
        listen("key-of-ann").await.status(),
        200,
        "a stream that was closed makes room"
    );
}

#[tokio::test]
async fn sessions_are_bounded_per_caller() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob}\n";
    let app = TestApp::with_manifest(manifest, [echo_tool()]).await;
    let client = json!({"name": "test", "version": "1"});
    let params =
        json!({"protocolVersion": SESSION_VERSION, "capabilities": {}, "clientInfo": client});
    let open = async |key| {
        app.respond(mcp_request(
            &rpc_message("initialize", params.clone()),
            Some(key),
            &[],
        ))
        .await
        .status()
    };
    for _ in 0..250 {
        assert_eq!(open("key-of-ann").await, 200);
    }
    assert_eq!(
        (
            open("key-of-ann").await.as_u16(),
            open("key-of-bob").await.as_u16()
        ),
        (503, 200)
    );
}

#[tokio::test]
async fn repeated_initialized_notifies_once() {
    let manifest = |description: &str| {
        format!("tools:\n  calculator: {{kind: native, description: {description}}}\n")
    };
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(SESSION_VERSION, None).await;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(session.post(&ready).await.status(), 202);
    let mut stream = session.send("GET").await.into_body();
    session.result_of("ping", json!({})).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(
        next_message(&mut stream).await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    let nothing = tokio::time::timeout(Duration::from_millis(100), next_message(&mut stream)).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_during_session_end_are_answered() {
    let app = TestApp::new([echo_tool()]).await;
    for round in 0..200 {
        let session = app.session(SESSION_VERSION, None).await;
        let pending = async {
            tokio::time::sleep(Duration::from_micros(round * 5)).await;
            session
                .post(&rpc_message("ping", json!({})))
                .await
                .status()
                .as_u16()
        };
        let listens = async { session.send("GET").await.status().as_u16() };
        let (pending, listens, ended) = tokio::join!(pending, listens, session.send("DELETE"));
        assert!(
            [200, 404].contains(&pending) && [200, 404].contains(&listens),
            "{pending}, {listens}"
        );
        assert_eq!(ended.status(), 204);
    }
}

#[tokio::test]
async fn client_without_streams_gets_one_json_body() {
    let app = TestApp::new([echo_tool()]).await;
    let session = app.session(SESSION_VERSION, None).await;
    for accepted in [
        "application/json",
        "application/*",
        "Application/JSON;q=0.5",
    ] {
        let text = json!({"text": "hello"});
        let params = json!({"name": "echo", "arguments": text, "_meta": {"progressToken": 7}});
        let initialize = json!({"protocolVersion": SESSION_VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        for (message, member) in [
            (rpc_message("tools/call", params), "content"),
            (rpc_message("initialize", initialize), "serverInfo"),
        ] {
            let mut request = session.request(&message);
            if member == "serverInfo" {
                request.headers_mut().remove("mcp-session-id");
            }
            let header = accepted.parse().unwrap();
            request.headers_mut().insert("accept", header);
            let response = app.respond(request).await;
            assert_eq!(response.headers()["content-type"], "application/json");
            assert_eq!(
                response.headers().contains_key("mcp-session-id"),
                member == "serverInfo"
            );
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert!(answer["result"].get(member).is_some(), "{answer}");
        }
    }
}

#[tokio::test]
async fn refused_request_closes_no_stream() {
    let manifest = |description: &str| {
        format!("tools:\n  calculator: {{kind: native, description: {description}}}\n")
    };
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(SESSION_VERSION, None).await;
    let mut stream = session.send("GET").await.into_body();
    assert_eq!(session.send("HEAD").await.status(), 405);
    let mut unwanted = session.request(&json!({}));
    *unwanted.method_mut() = axum::http::Method::GET;
    unwanted
        .headers_mut()
        .insert("accept", "application/json".parse().unwrap());
    assert_eq!(app.respond(unwanted).await.status(), 406);
    session.result_of("ping", json!({})).await;
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(
        next_message(&mut stream).await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
}

/// A client that gets no event ids cannot ask for earlier events.
#[tokio::test]
async fn reconnected_listener_gets_missed_changes() {
    let manifest = |description: &str| {
        format!("tools:\n  calculator: {{kind: native, description: {description}}}\n")
    };
    let app = TestApp::with_manifest(&manifest("one"), [echo_tool()]).await;
    let session = app.session(SESSION_VERSION, None).await;
    let mut body = call_message(5, "echo", json!({"progressToken": "p"}));
    body["params"]["arguments"] = json!({"text": "hi"});
    let answer = session
        .post(&body)
        .await
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let mut stream = session.send("GET").await.into_body();
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    let changed = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    for (events, word) in [
        (answer, "notifications/progress"),
        (changed, "list_changed"),
    ] {
        let events = String::from_utf8(events.to_vec()).unwrap();
        assert!(
            events.contains(word)
                && !events
                    .lines()
                    .any(|line| line.starts_with("id:") || line.starts_with("retry:")),
            "{events}"
        );
    }
    for (heard, id) in ["0", "0/0", "1/0", "nonsense"].into_iter().enumerate() {
        drop(stream);
        app.write("toolcrib.yaml", &manifest(&format!("three {heard}")));
        assert_eq!(app.reload().await, None);
        let mut listen = session.request(&json!({}));
        *listen.method_mut() = axum::http::Method::GET;
        listen
            .headers_mut()
            .insert("last-event-id", id.parse().unwrap());
        stream = app.respond(listen).await.into_body();
        // A change is notified again, also one that came while no stream was open.
        for _ in 0..heard + 2 {
            assert_eq!(
                next_message(&mut stream).await.unwrap()["method"],
                "notifications/tools/list_changed",
                "{id}"
            );
        }
    }
}

#[tokio::test]
async fn invalid_requests_are_refused_with_advice() {
    let app = TestApp::new([echo_tool()]).await;
    let session = app.session(SESSION_VERSION, None).await;
    let answer = |body: Value| {
        json!({"jsonrpc": "2.0", "id": 9})
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .chain(body.as_object().unwrap().clone())
            .collect::<Value>()
    };
    for (body, code, words) in [
        (
            rpc_message("tools/call", json!([1])),
            -32600,
            "params is an object",
        ),
        (
            rpc_message("tools/call", json!({"name": "echo", "_meta": "x"})),
            -32600,
            "and so is its _meta",
        ),
        (
            rpc_message("tools/list", json!({"cursor": 5})),
            -32602,
            "a cursor is a text",
        ),
        (
            answer(json!({"error": "x"})),
            -32600,
            "not a message of MCP",
        ),
    ] {
        let (status, refused) = last_message(session.post(&body).await).await;
        assert_eq!(
            (status.as_u16(), &refused["error"]["code"]),
            (400, &json!(code)),
            "{refused}"
        );
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains(words),
            "{refused}"
        );
    }
    let lacking = rpc_message(
        "initialize",
        json!({"protocolVersion": SESSION_VERSION, "capabilities": {}}),
    );
    let (status, refused) = last_message(app.respond(mcp_request(&lacking, None, &[])).await).await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["code"], &refused["id"]),
        (400, &json!(-32602), &json!(1))
    );
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("clientInfo with name"),
        "{refused}"
    );
    let (status, refused) = last_message(
        app.respond(modern_request("initialize", json!({}), None))
            .await,
    )
    .await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["code"]),
        (404, &json!(-32601)),
        "gone since: {refused}"
    );
}

#[tokio::test]
async fn contradictory_headers_are_refused() {
    let app = TestApp::new([echo_tool()]).await;
    let session = app.session(SESSION_VERSION, None).await;
    for (name, value) in [
        ("mcp-session-id", "another"),
        ("mcp-protocol-version", "2025-06-18"),
    ] {
        let mut twice = session.request(&rpc_message("ping", json!({})));
        twice.headers_mut().append(name, value.parse().unwrap());
        let (status, refused) = last_message(app.respond(twice).await).await;
        assert_eq!(
            (status.as_u16(), &refused["error"]["code"], &refused["id"]),
            (400, &json!(-32020), &json!(1))
        );
    }
}

#[tokio::test]
async fn sessions_end_with_the_service() {
    let app = TestApp::new([echo_tool()]).await;
    let mut stream = {
        let session = app.session(SESSION_VERSION, None).await;
        session.send("GET").await.into_body()
    };
    app.close().await;
    assert_eq!(next_message(&mut stream).await, None);
}
