//! The run of a call: in the body, in a header, or the session of MCP.

use axum::http::{HeaderName, Request};
use axum::{body::Body, http::StatusCode};
use serde_json::{Value, json};
use toolcrib::{Effect, Limit, LimitScope, Per, Tool};

use crate::support::mcp::{last_message, modern_request, rpc_message};
use crate::support::{TestApp, request};

const HEADER: HeaderName = HeaderName::from_static("toolcrib-run-id");

fn say() -> Tool {
    Tool::new("say", "Says a word.")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("word") })
}

fn in_run(mut request: Request<Body>, run: &str) -> Request<Body> {
    request.headers_mut().append(HEADER, run.parse().unwrap());
    request
}

fn invoke(body: Value) -> Request<Body> {
    request("POST", "/tools/say/invoke", None, Some(body))
}

async fn newest_run(app: &TestApp) -> Value {
    app.newest_invocation().await["run_id"].clone()
}

#[tokio::test]
async fn header_names_the_run() {
    let app = TestApp::new([say()]).await;
    assert_eq!(
        app.send(in_run(invoke(json!({"arguments": {}})), "r-1"))
            .await
            .0,
        StatusCode::OK
    );
    assert_eq!(newest_run(&app).await, "r-1");
    let (status, problem) = app
        .send(in_run(invoke(json!({"arguments": {}})), "r-1"))
        .await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (409, &json!("repeated_call")),
        "the run is a named one"
    );
    let message = json!({"message": {"tool_name": "say", "arguments": {}}});
    let calls = |run: &str| in_run(request("POST", "/calls", None, Some(message.clone())), run);
    assert_eq!(app.send(calls("r-2")).await.0, StatusCode::OK);
    assert_eq!(newest_run(&app).await, "r-2");
    let over_mcp = modern_request("tools/call", json!({"name": "say", "arguments": {}}), None);
    assert_eq!(
        last_message(app.respond(in_run(over_mcp, "r-3")).await)
            .await
            .0,
        StatusCode::OK
    );
    assert_eq!(newest_run(&app).await, "r-3");
}

#[tokio::test]
async fn run_in_the_body_takes_precedence() {
    let app = TestApp::new([say()]).await;
    app.send(in_run(
        invoke(json!({"arguments": {}, "run_id": "body"})),
        "header",
    ))
    .await;
    assert_eq!(newest_run(&app).await, "body");
    app.send(in_run(
        invoke(json!({"arguments": {}, "run_id": null})),
        "header",
    ))
    .await;
    assert_eq!(newest_run(&app).await, "header");
    let calls = request(
        "POST",
        "/calls?run_id=query",
        None,
        Some(json!({"tool_name": "say", "arguments": {}})),
    );
    app.send(in_run(calls, "other")).await;
    assert_eq!(newest_run(&app).await, "query");
    let meta = json!({"name": "say", "arguments": {}, "_meta": {"toolcrib/runId": "meta"}});
    last_message(
        app.respond(in_run(modern_request("tools/call", meta, None), "other"))
            .await,
    )
    .await;
    assert_eq!(newest_run(&app).await, "meta");
}

#[tokio::test]
async fn invalid_run_headers_are_refused() {
    let app = TestApp::new([say()]).await;
    for run in ["", " ", "a b", "a\tb", &"x".repeat(257)] {
        let (status, problem) = app
            .send(in_run(invoke(json!({"arguments": {}})), run))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{run:?}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("toolcrib-run-id"),
            "{problem}"
        );
    }
    let twice = in_run(in_run(invoke(json!({"arguments": {}})), "a"), "b");
    assert_eq!(app.send(twice).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn session_is_the_run_of_its_calls() {
    let limit = Limit {
        calls: 2,
        per: Per::Run,
        scope: LimitScope::Tool,
    };
    let app = TestApp::new([say().limit(limit)]).await;
    let session = app.session("2025-06-18", None).await;
    for _ in 0..2 {
        let result = session.call("say", json!({})).await;
        assert_eq!(
            result["content"][0]["text"], "word",
            "a call may repeat the one before it: {result}"
        );
        assert_eq!(newest_run(&app).await, session.id.as_str());
    }
    let third = session.call("say", json!({})).await;
    assert_eq!(
        third["_meta"]["toolcrib/problem"]["kind"], "usage_limit_reached",
        "{third}"
    );
    let other = app.session("2025-06-18", None).await;
    assert_eq!(
        other.call("say", json!({})).await["isError"],
        false,
        "another session is another run"
    );
    let named = other.request(&rpc_message(
        "tools/call",
        json!({"name": "say", "arguments": {}}),
    ));
    last_message(app.respond(in_run(named, "r-9")).await).await;
    assert_eq!(
        newest_run(&app).await,
        "r-9",
        "the header goes before the session"
    );
    let again = other.request(&rpc_message(
        "tools/call",
        json!({"name": "say", "arguments": {}}),
    ));
    let (_, answer) = last_message(app.respond(in_run(again, "r-9")).await).await;
    assert_eq!(
        answer["result"]["_meta"]["toolcrib/problem"]["kind"], "repeated_call",
        "{answer}"
    );
}
