use std::sync::Arc;

use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

const ANN: &str = "ann-key-0123456789";
const BOB: &str = "bob-key-0123456789";
const ROOT: &str = "root-key-0123456789";
const CALLERS: &str = "
callers:
  - {name: ann, key: ann-key-0123456789}
  - {name: bob, key: bob-key-0123456789}
  - {name: root, key: root-key-0123456789, admin: true}
";

/// A tool whose calls end one by one, and a signal for each start.
fn gated_tool() -> (Tool, Arc<Semaphore>, Arc<Notify>) {
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let (pass, tell) = (gate.clone(), started.clone());
    let tool = Tool::new("gated", "Waits.")
        .effect(Effect::Read)
        .call(move |_, _| {
            let (pass, tell) = (pass.clone(), tell.clone());
            async move {
                tell.notify_one();
                pass.acquire().await.unwrap().forget();
                Ok("through")
            }
        });
    (tool, gate, started)
}

fn invoke_request(key: &str) -> Request<axum::body::Body> {
    request(
        "POST",
        "/tools/gated/invoke",
        Some(key),
        Some(json!({"arguments": {}})),
    )
}

#[tokio::test]
async fn full_share_refuses_only_its_caller() {
    let (tool, gate, started) = gated_tool();
    let policy = "concurrency: {max: 2, queue: 0, per_caller: 1}";
    let manifest = format!("tools: {{gated: {{kind: native, {policy}}}}}{CALLERS}");
    let app = Arc::new(TestApp::with_manifest(&manifest, [tool]).await);
    let start = async |key: &'static str| {
        let app = app.clone();
        let call = tokio::spawn(async move { app.send(invoke_request(key)).await.0 });
        started.notified().await;
        move || call
    };
    let anns = start(ANN).await;
    let response = app.respond(invoke_request(ANN)).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let (_, problem) = app.send(invoke_request(ANN)).await;
    assert_eq!(
        (&problem["kind"], &problem["retryable"]),
        (&json!("overloaded"), &json!(true))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("it may run 1 of this tool at once"),
        "{problem}"
    );
    assert!(
        problem["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("other calls of yours"),
        "{problem}"
    );
    let bobs = start(BOB).await;
    let (_, problem) = app.send(invoke_request(ROOT)).await;
    assert_eq!(
        problem["detail"], "too many calls are running",
        "now the tool is full"
    );
    gate.add_permits(2);
    assert_eq!(
        (anns().await.unwrap(), bobs().await.unwrap()),
        (StatusCode::OK, StatusCode::OK)
    );
    gate.add_permits(1);
    assert_eq!(
        app.send(invoke_request(ANN)).await.0,
        StatusCode::OK,
        "the share is free again"
    );
}

#[tokio::test]
async fn cancelled_calls_free_their_share() {
    let (tool, gate, started) = gated_tool();
    let policy = "concurrency: {max: 2, queue: 0, per_caller: 1}";
    let manifest = format!("tools: {{gated: {{kind: native, {policy}}}}}{CALLERS}");
    let app = Arc::new(TestApp::with_manifest(&manifest, [tool]).await);
    for _ in 0..3 {
        let call = tokio::spawn({
            let app = app.clone();
            async move { app.send(invoke_request(ANN)).await }
        });
        started.notified().await;
        let (_, list) = app.get_as(ANN, "/invocations?state=running").await;
        let id = list["invocations"][0]["invocation_id"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            app.delete_as(ANN, &format!("/invocations/{id}")).await.0,
            StatusCode::OK
        );
        assert_eq!(call.await.unwrap().0.as_u16(), 499);
    }
    gate.add_permits(1);
    assert_eq!(app.send(invoke_request(ANN)).await.0, StatusCode::OK);
}

#[tokio::test]
async fn shares_are_part_of_the_policy() {
    let (tool, ..) = gated_tool();
    let manifest = format!(
        "defaults: {{concurrency: {{max: 8, per_caller: 4}}}}\ntools: {{gated: {{kind: native}}}}{CALLERS}"
    );
    let app = TestApp::with_manifest(&manifest, [tool]).await;
    let shown = async |name: &str| {
        app.get_as(ROOT, &format!("/tools/{name}")).await.1["policy"]["concurrency"].clone()
    };
    assert_eq!(
        shown("gated").await,
        json!({"max": 8, "queue": 64, "wait": "1s", "per_caller": 4})
    );
    let register = async |share: Value| {
        let tool = json!({"kind": "http", "description": "Gets it.", "request": {"url": "https://api.example.com/"},
            "concurrency": {"per_caller": share}});
        app.send(request("PUT", "/tools/get", Some(ROOT), Some(tool)))
            .await
    };
    let (status, registered) = register(json!(2)).await;
    assert_eq!(status, StatusCode::CREATED, "{registered}");
    assert_eq!(shown("get").await["per_caller"], 2);
    let (status, problem) = register(json!(0)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        problem["violations"][0]["pointer"],
        "/concurrency/per_caller"
    );
}
