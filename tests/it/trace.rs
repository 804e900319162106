//! W3C trace context: from whoever asks to those that tools ask, and to nobody else.

use axum::http::{HeaderMap, HeaderName, Request};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use toolcrib::call::{Definition, SubCall, ToolInvoker, TraceContext};
use toolcrib::{Tool, ToolContext};

use crate::support::mcp::{last, modern};
use crate::support::{TestApp, request};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

/// An API that says what headers it got.
async fn upstream() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |headers: HeaderMap| async move {
        let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        Json(
            json!({"parent": said("traceparent"), "state": said("tracestate"), "key": said("idempotency-key").is_some()}),
        )
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(echo))).await.unwrap() });
    format!("http://{address}/")
}

/// Calls `echo` and says what it said.
fn asks() -> Tool {
    Tool::new("asks", "…").call(|_, context: ToolContext| async move {
        let own = context.trace().map(|trace: &TraceContext| trace.trace_id().to_owned());
        let others = context.service::<std::sync::Arc<dyn ToolInvoker>>().unwrap().clone();
        let deadline = Instant::now() + Duration::from_secs(20);
        let call = SubCall {
            name: "echo".into(),
            arguments: json!({}),
            cut_off: false,
            tool_use_id: None,
            deadline,
            levels: None,
        };
        let answer = others.call(&context, &|_: &Definition| true, call).await.map_err(|error| format!("{error:?}"))?;
        Ok(json!({"own": own, "below": answer.result.structured_content}))
    })
}

async fn app() -> TestApp {
    let url = upstream().await;
    let tool = |name: &str, more: &str| {
        format!(
            "  {name}: {{kind: http, description: d, request: {{method: POST, url: \"{url}\", allow_private: true{more}}}}}\n"
        )
    };
    let own = tool("own", &format!(", headers: {{traceparent: {OTHER}}}"));
    TestApp::with_manifest(&format!("tools:\n{}{own}", tool("echo", "")), [asks()]).await
}

fn traced(mut request: Request<axum::body::Body>, headers: &[(&str, &str)]) -> Request<axum::body::Body> {
    for (name, value) in headers {
        request.headers_mut().append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    request
}

async fn invoke(app: &TestApp, tool: &str, headers: &[(&str, &str)]) -> Value {
    let asked = request("POST", &format!("/tools/{tool}/invoke"), None, Some(json!({"arguments": {}})));
    let (status, mut answer) = app.send(traced(asked, headers)).await;
    assert_eq!(status, 200, "{answer}");
    answer["structured_content"].take()
}

async fn over_mcp(app: &TestApp, meta: Value, headers: &[(&str, &str)]) -> Value {
    let asked = modern("tools/call", json!({"name": "echo", "arguments": {}, "_meta": meta}), None);
    let (status, mut answer) = last(app.respond(traced(asked, headers)).await).await;
    assert_eq!(status, 200, "{answer}");
    answer["result"]["structuredContent"].take()
}

fn heard(parent: Option<&str>, state: Option<&str>) -> Value {
    json!({"parent": parent, "state": state, "key": true})
}

#[tokio::test]
async fn a_trace_goes_on_to_the_api_as_it_came() {
    let app = app().await;
    let headers =
        [("traceparent", PARENT), ("tracestate", "rojo=00f067aa0ba902b7"), ("tracestate", "congo=t61rcWkgMzE")];
    assert_eq!(invoke(&app, "echo", &headers).await, heard(Some(PARENT), Some(STATE)));
    let message = request("POST", "/calls", None, Some(json!({"tool_name": "echo", "arguments": {}})));
    let (_, reply) = app.send(traced(message, &headers)).await;
    assert_eq!(reply["results"][0]["structured_content"], heard(Some(PARENT), Some(STATE)), "{reply}");
}

#[tokio::test]
async fn what_is_no_trace_goes_nowhere_and_is_no_error() {
    let app = app().await;
    for headers in [
        &[][..],
        &[("tracestate", STATE)],
        &[("traceparent", "00-nonsense"), ("tracestate", STATE)],
        &[("traceparent", PARENT), ("traceparent", OTHER)],
    ] {
        assert_eq!(invoke(&app, "echo", headers).await, heard(None, None), "{headers:?}");
    }
}

#[tokio::test]
async fn a_traceparent_of_the_manifests_stands_alone() {
    let app = app().await;
    let headers = [("traceparent", PARENT), ("tracestate", STATE)];
    assert_eq!(invoke(&app, "own", &headers).await, heard(Some(OTHER), None));
}

#[tokio::test]
async fn calls_below_are_in_the_same_trace() {
    let app = app().await;
    let said = invoke(&app, "asks", &[("traceparent", PARENT), ("tracestate", STATE)]).await;
    assert_eq!(said["own"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(said["below"], heard(Some(PARENT), Some(STATE)));
}

#[tokio::test]
async fn over_mcp_what_the_message_says_goes_before_headers() {
    let app = app().await;
    // A token for progress takes the long way, through rmcp.
    for way in [json!({}), json!({"progressToken": 1})] {
        let meta = |more: Value| crate::support::mcp::with(way.clone(), more);
        let headers = [("traceparent", OTHER), ("tracestate", "of=headers")];
        let said = meta(json!({"traceparent": PARENT, "tracestate": STATE}));
        assert_eq!(over_mcp(&app, said, &headers).await, heard(Some(PARENT), Some(STATE)));
        assert_eq!(over_mcp(&app, meta(json!({"traceparent": PARENT})), &headers).await, heard(Some(PARENT), None));
        assert_eq!(over_mcp(&app, meta(json!({})), &headers).await, heard(Some(OTHER), Some("of=headers")));
        assert_eq!(over_mcp(&app, meta(json!({"traceparent": 7})), &[]).await, heard(None, None));
    }
}

#[tokio::test]
async fn in_a_session_each_message_has_its_own() {
    let app = app().await;
    let session = app.session("2025-11-25", None).await;
    let call = crate::support::mcp::rpc("tools/call", json!({"name": "echo", "arguments": {}}));
    for (headers, expected) in [(&[("traceparent", PARENT)][..], Some(PARENT)), (&[], None)] {
        let (_, answer) = last(app.respond(traced(session.posted(&call), headers)).await).await;
        assert_eq!(answer["result"]["structuredContent"], heard(expected, None), "{answer}");
    }
}
