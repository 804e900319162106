//! MCP with sessions: versions 2025-11-25, 2025-06-18 and 2025-03-26 over `/mcp`.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib::{Effect, Tool, ToolResult};

use crate::support::TestApp;
use crate::support::mcp::{last, messages, modern, next, posted, rpc};

const VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
const OLD: &str = "2025-11-25";

fn echo() -> Tool {
    Tool::new("echo", "Says it again.").param("text", "string", "What").effect(Effect::Read).call(
        |args, context| async move {
            context.progress(json!({"progress": 1, "total": 2}));
            Ok(json!({"said": args["text"]}))
        },
    )
}

fn waiting(effect: Effect) -> (Tool, Arc<Notify>, Arc<Notify>) {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (begun.clone(), go.clone());
    let tool = Tool::new("wait", "…").effect(effect).call(move |_, _| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok("done")
        }
    });
    (tool, begun, go)
}

fn call(id: u64, name: &str, said: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {}, "_meta": said}})
}

#[tokio::test]
async fn a_session_lists_and_calls_in_every_version() {
    let list = Tool::new("list", "…")
        .effect(Effect::Read)
        .output_schema(json!({"type": "array"}))
        .call(|_, _| async { Ok(json!([1])) });
    let other = Tool::new("other", "…").effect(Effect::Read).call(|_, _| async {
        Ok(ToolResult { structured_content: Some(json!([1, 2])), ..ToolResult::text("Two numbers.") })
    });
    let app = TestApp::new([echo(), list, other]).await;
    for version in VERSIONS {
        let session = app.session(version, None).await;
        assert_eq!(session.server["serverInfo"]["name"], "toolcrib");
        assert_eq!(session.server["capabilities"], json!({"tools": {"listChanged": true}}));
        assert_eq!(session.ask("ping", json!({})).await["result"], json!({}));
        let listed = session.ask("tools/list", json!({})).await["result"].take();
        assert_eq!(
            (listed.get("ttlMs"), listed.get("resultType")),
            (None, None),
            "nothing of a later version: {listed}"
        );
        assert_eq!((&listed["tools"][0]["name"], listed["tools"][1].get("outputSchema")), (&json!("echo"), None));
        let result = session.call("echo", json!({"text": "hi"})).await;
        assert_eq!((&result["structuredContent"], &result["isError"]), (&json!({"said": "hi"}), &json!(false)));
        assert_eq!((result.get("resultType"), result["_meta"]["toolcrib/invocationId"].is_string()), (None, true));
        let listed = session.call("list", json!({})).await;
        assert_eq!(
            (listed.get("structuredContent"), &listed["content"][0]["text"]),
            (None, &json!("[1]")),
            "an object until then"
        );
        assert!(listed["content"][1].is_null() && listed["_meta"]["toolcrib/warnings"].is_null(), "{listed}");
        let told = session.call("other", json!({})).await;
        assert_eq!(
            (told.get("structuredContent"), &told["content"][1]["text"]),
            (None, &json!("[1,2]")),
            "what no text says is one"
        );
        assert!(told["_meta"]["toolcrib/warnings"][0].is_string(), "{told}");
        let wrong = session.call("echo", json!({})).await;
        assert_eq!(wrong["_meta"]["toolcrib/problem"]["kind"], "invalid_arguments");
        let unknown = session.ask("tools/call", json!({"name": "ech"})).await;
        assert_eq!(
            (&unknown["error"]["code"], &unknown["error"]["data"]["did_you_mean"]),
            (&json!(-32602), &json!(["echo"]))
        );
        let error = json!({"code": -32601, "message": "there is no method `x/y`"});
        assert_eq!(session.ask("x/y", json!({})).await["error"], error);
    }
}

#[tokio::test]
async fn a_newer_version_than_sessions_have_is_answered_with_the_last_that_has() {
    let app = TestApp::new([echo()]).await;
    let client = json!({"name": "test", "version": "1"});
    for asked in ["2026-07-28", "2099-01-01", "2024-11-05"] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": client});
        let (status, opened) = last(app.respond(posted(&rpc("initialize", params), None, &[])).await).await;
        assert_eq!((status.as_u16(), &opened["result"]["protocolVersion"]), (200, &json!(OLD)), "{asked}: {opened}");
    }
}

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call() {
    let app = TestApp::new([echo()]).await;
    let session = app.session(OLD, None).await;
    let mut body = call(5, "echo", json!({"progressToken": "p"}));
    body["params"]["arguments"] = json!({"text": "hi"});
    let (_, told) = messages(session.post(&body).await).await;
    assert_eq!((told.len(), &told[0]["params"]["progress"], &told[1]["id"]), (2, &json!(1.0), &json!(5)), "{told:?}");
}

#[tokio::test]
async fn a_session_is_its_callers_own_and_ends_when_it_is_told_to() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, admin: true}\n  - {name: bob, key: key-of-bob}\n";
    let app = TestApp::with_manifest(manifest, [echo()]).await;
    let session = app.session(OLD, Some("key-of-ann")).await;
    let version = [("mcp-session-id", &*session.id), ("mcp-protocol-version", OLD)];
    let as_bob = posted(&rpc("ping", json!({})), Some("key-of-bob"), &version);
    let (status, answer) = last(app.respond(as_bob).await).await;
    assert_eq!((status.as_u16(), &answer["error"]["code"], &answer["id"]), (404, &json!(-32600), &json!(1)));
    let unkeyed = posted(&rpc("ping", json!({})), None, &version);
    assert_eq!(last(app.respond(unkeyed).await).await.0, 401);
    assert_eq!(session.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(session.send("DELETE").await.status(), 204);
    assert_eq!(session.post(&rpc("ping", json!({}))).await.status(), 404);
    assert_eq!(session.send("GET").await.status(), 404);
    assert_eq!(session.send("DELETE").await.status(), 404);
    let none = posted(&rpc("tools/list", json!({})), Some("key-of-ann"), &[("mcp-protocol-version", OLD)]);
    assert_eq!(last(app.respond(none).await).await.0, 400, "no session is named");
}

#[tokio::test]
async fn a_call_that_is_said_to_be_cancelled_is_whatever_its_policy_and_only_that_one() {
    let (tool, begun, go) = waiting(Effect::Write);
    let app = TestApp::new([tool]).await;
    let (one, other) = (app.session(OLD, None).await, app.session(OLD, None).await);
    let (first, second) = (one.post(&call(7, "wait", json!({}))).await, other.post(&call(7, "wait", json!({}))).await);
    begun.notified().await;
    begun.notified().await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "enough"}});
    assert_eq!(one.post(&cancel).await.status(), 202);
    app.until_newest_with("state=unknown").await;
    let (_, told) = messages(first).await;
    assert_eq!(told, [] as [Value; 0], "what was cancelled is not answered");
    go.notify_waiters();
    go.notify_one();
    let (_, answer) = last(second).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
}

#[tokio::test]
async fn an_id_is_used_once_at_a_time() {
    let (tool, begun, go) = waiting(Effect::Read);
    let app = TestApp::new([tool]).await;
    let session = app.session(OLD, None).await;
    let first = session.post(&call(7, "wait", json!({}))).await;
    begun.notified().await;
    let (status, answer) = last(session.post(&call(7, "wait", json!({}))).await).await;
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (400, &json!(-32600)), "{answer}");
    go.notify_one();
    assert_eq!(last(first).await.1["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn whoever_closes_a_stream_of_a_session_has_not_left_but_whoever_ends_it_has() {
    for (effect, end) in [(Effect::Read, "cancelled"), (Effect::Write, "succeeded")] {
        let (tool, begun, go) = waiting(effect);
        let app = TestApp::new([tool]).await;
        let session = app.session(OLD, None).await;
        drop(session.post(&call(1, "wait", json!({}))).await);
        begun.notified().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(app.newest().await["state"], "running", "it may be taken up again");
        assert_eq!(session.send("DELETE").await.status(), 204);
        if effect == Effect::Write {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(app.newest().await["state"], "running", "a write goes on");
            go.notify_one();
        }
        app.until_newest_is(end).await;
    }
}

#[tokio::test]
async fn a_session_hears_when_its_tools_have_changed() {
    let manifest = |description: &str| format!("tools:\n  calculator: {{kind: native, description: {description}}}\n");
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(OLD, None).await;
    let mut stream = session.send("GET").await.into_body();
    // What was asked before shows that the session has been told of.
    session.ask("ping", json!({})).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(next(&mut stream).await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(session.ask("tools/list", json!({})).await["result"]["tools"][0]["description"], "two");
    // The same again is no change.
    assert_eq!(app.reload().await, None);
    let nothing = tokio::time::timeout(Duration::from_millis(100), next(&mut stream)).await;
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(session.send("DELETE").await.status(), 204);
    assert_eq!(next(&mut stream).await, None, "it ends with its session");
}

#[tokio::test]
async fn a_session_listens_on_one_stream_and_the_newest_is_it() {
    let manifest = |description: &str| format!("tools:\n  calculator: {{kind: native, description: {description}}}\n");
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(OLD, None).await;
    let mut lost = session.send("GET").await.into_body();
    session.ask("ping", json!({})).await;
    let mut kept = session.send("GET").await.into_body();
    assert_eq!(next(&mut lost).await, None);
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(next(&mut kept).await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn streams_without_a_call_are_bounded_and_one_caller_cannot_have_them_all() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob}\n";
    let app = TestApp::with_manifest(manifest, [echo()]).await;
    let listen = async |key| {
        let listen = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}), Some(key));
        app.respond(listen).await
    };
    let session = app.session(OLD, Some("key-of-ann")).await;
    let mut open = vec![session.send("GET").await];
    let refused = loop {
        let response = listen("key-of-ann").await;
        if response.status() != 200 || open.len() > 1000 {
            break response;
        }
        open.push(response);
    };
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"5".parse().unwrap()));
    let (_, problem) = last(refused).await;
    assert_eq!(problem["kind"], "overloaded");
    assert!(problem["detail"].as_str().unwrap().contains("of `ann`"), "{problem}");
    assert!(open.len() <= 64, "{} of one caller", open.len());
    // Its own stream may be opened anew all the same, and calls are no such streams.
    open.push(session.send("GET").await);
    assert_eq!(open.last().unwrap().status(), 200);
    assert_eq!(session.call("echo", json!({"text": "hi"})).await["isError"], false);
    assert_eq!(listen("key-of-bob").await.status(), 200);
    open.pop();
    open.remove(1);
    assert_eq!(listen("key-of-ann").await.status(), 200, "a stream that was closed makes room");
}

#[tokio::test]
async fn the_sessions_of_one_caller_shut_no_other_out() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob}\n";
    let app = TestApp::with_manifest(manifest, [echo()]).await;
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": OLD, "capabilities": {}, "clientInfo": client});
    let open = async |key| app.respond(posted(&rpc("initialize", params.clone()), Some(key), &[])).await.status();
    for _ in 0..250 {
        assert_eq!(open("key-of-ann").await, 200);
    }
    assert_eq!((open("key-of-ann").await.as_u16(), open("key-of-bob").await.as_u16()), (503, 200));
}

#[tokio::test]
async fn a_session_that_says_twice_that_it_is_ready_hears_of_a_change_once() {
    let manifest = |description: &str| format!("tools:\n  calculator: {{kind: native, description: {description}}}\n");
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(OLD, None).await;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(session.post(&ready).await.status(), 202);
    let mut stream = session.send("GET").await.into_body();
    session.ask("ping", json!({})).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(next(&mut stream).await.unwrap()["method"], "notifications/tools/list_changed");
    let nothing = tokio::time::timeout(Duration::from_millis(100), next(&mut stream)).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_asked_while_a_session_ends_is_answered_or_finds_none() {
    let app = TestApp::new([echo()]).await;
    for round in 0..200 {
        let session = app.session(OLD, None).await;
        let asked = async {
            tokio::time::sleep(Duration::from_micros(round * 5)).await;
            session.post(&rpc("ping", json!({}))).await.status().as_u16()
        };
        let listens = async { session.send("GET").await.status().as_u16() };
        let (asked, listens, ended) = tokio::join!(asked, listens, session.send("DELETE"));
        assert!([200, 404].contains(&asked) && [200, 404].contains(&listens), "{asked}, {listens}");
        assert_eq!(ended.status(), 204);
    }
}

#[tokio::test]
async fn a_request_that_opens_no_stream_takes_none_away() {
    let manifest = |description: &str| format!("tools:\n  calculator: {{kind: native, description: {description}}}\n");
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let session = app.session(OLD, None).await;
    let mut stream = session.send("GET").await.into_body();
    assert_eq!(session.send("HEAD").await.status(), 405);
    let mut unwanted = session.posted(&json!({}));
    *unwanted.method_mut() = axum::http::Method::GET;
    unwanted.headers_mut().insert("accept", "application/json".parse().unwrap());
    assert_eq!(app.respond(unwanted).await.status(), 406);
    session.ask("ping", json!({})).await;
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    assert_eq!(next(&mut stream).await.unwrap()["method"], "notifications/tools/list_changed");
}

/// Who is told no number asks for nothing that came before.
#[tokio::test]
async fn events_have_no_ids_and_whoever_listens_anew_hears_what_it_missed() {
    let manifest = |description: &str| format!("tools:\n  calculator: {{kind: native, description: {description}}}\n");
    let app = TestApp::with_manifest(&manifest("one"), [echo()]).await;
    let session = app.session(OLD, None).await;
    let mut body = call(5, "echo", json!({"progressToken": "p"}));
    body["params"]["arguments"] = json!({"text": "hi"});
    let answer = session.post(&body).await.into_body().collect().await.unwrap().to_bytes();
    let mut stream = session.send("GET").await.into_body();
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    let changed = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    for (told, word) in [(answer, "notifications/progress"), (changed, "list_changed")] {
        let told = String::from_utf8(told.to_vec()).unwrap();
        assert!(
            told.contains(word) && !told.lines().any(|line| line.starts_with("id:") || line.starts_with("retry:")),
            "{told}"
        );
    }
    for (heard, id) in ["0", "0/0", "1/0", "nonsense"].into_iter().enumerate() {
        drop(stream);
        app.write("toolcrib.yaml", &manifest(&format!("three {heard}")));
        assert_eq!(app.reload().await, None);
        let mut listen = session.posted(&json!({}));
        *listen.method_mut() = axum::http::Method::GET;
        listen.headers_mut().insert("last-event-id", id.parse().unwrap());
        stream = app.respond(listen).await.into_body();
        // What has changed is said anew, and so is what changed while nobody listened.
        for _ in 0..heard + 2 {
            assert_eq!(next(&mut stream).await.unwrap()["method"], "notifications/tools/list_changed", "{id}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_what_would_be_right() {
    let app = TestApp::new([echo()]).await;
    let session = app.session(OLD, None).await;
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
        (rpc("tools/call", json!([1])), -32600, "params is an object"),
        (rpc("tools/call", json!({"name": "echo", "_meta": "x"})), -32600, "and so is its _meta"),
        (rpc("tools/list", json!({"cursor": 5})), -32602, "a cursor is a text"),
        (answer(json!({"error": "x"})), -32600, "no message of MCP"),
    ] {
        let (status, refused) = last(session.post(&body).await).await;
        assert_eq!((status.as_u16(), &refused["error"]["code"]), (400, &json!(code)), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(words), "{refused}");
    }
    let lacking = rpc("initialize", json!({"protocolVersion": OLD, "capabilities": {}}));
    let (status, refused) = last(app.respond(posted(&lacking, None, &[])).await).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"], &refused["id"]), (400, &json!(-32602), &json!(1)));
    assert!(refused["error"]["message"].as_str().unwrap().contains("clientInfo with name"), "{refused}");
    let (status, refused) = last(app.respond(modern("initialize", json!({}), None)).await).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (404, &json!(-32601)), "gone since: {refused}");
}

#[tokio::test]
async fn a_header_that_says_two_things_is_refused() {
    let app = TestApp::new([echo()]).await;
    let session = app.session(OLD, None).await;
    for (name, value) in [("mcp-session-id", "another"), ("mcp-protocol-version", "2025-06-18")] {
        let mut twice = session.posted(&rpc("ping", json!({})));
        twice.headers_mut().append(name, value.parse().unwrap());
        let (status, refused) = last(app.respond(twice).await).await;
        assert_eq!((status.as_u16(), &refused["error"]["code"], &refused["id"]), (400, &json!(-32020), &json!(1)));
    }
}

#[tokio::test]
async fn sessions_end_with_the_service() {
    let app = TestApp::new([echo()]).await;
    let mut stream = {
        let session = app.session(OLD, None).await;
        session.send("GET").await.into_body()
    };
    app.close().await;
    assert_eq!(next(&mut stream).await, None);
}
