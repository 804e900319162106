//! W3C trace context: from the caller to the backends of tools, and no further.

use axum::http::{HeaderMap, HeaderName, Request};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use toolcrib::call::{Definition, NestedCall, ToolInvoker, TraceContext};
use toolcrib::{Tool, ToolContext};

use crate::support::mcp::{last_message, modern_request};
use crate::support::{TestApp, request};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

/// An API that returns its request headers.
async fn start_upstream() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |headers: HeaderMap| async move {
        let header = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        Json(
            json!({"parent": header("traceparent"), "state": header("tracestate"), "key": header("idempotency-key").is_some()}),
        )
    };
    tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/", post(echo)))
            .await
            .unwrap();
    });
    format!("http://{address}/")
}

/// Calls `echo` and returns its answer.
fn calling_tool() -> Tool {
    Tool::new("asks", "…").call(|_, context: ToolContext| async move {
        let own = context
            .trace()
            .map(|trace: &TraceContext| trace.trace_id().to_owned());
        let others = context
            .service::<std::sync::Arc<dyn ToolInvoker>>()
            .unwrap()
            .clone();
        let deadline = Instant::now() + Duration::from_secs(20);
        let call = NestedCall {
            name: "echo".into(),
            arguments: json!({}),
            cut_off: false,
            tool_use_id: None,
            deadline,
            max_depth: None,
            script_position: None,
        };
        let answer = others
            .call(&context, &|_: &Definition| true, call)
            .await
            .map_err(|error| format!("{error:?}"))?;
        Ok(json!({"own": own, "below": answer.result.structured_content}))
    })
}

async fn app() -> TestApp {
    let url = start_upstream().await;
    let tool = |name: &str, more: &str| {
        format!(
            "  {name}: {{kind: http, description: d, request: {{method: POST, url: \"{url}\", allow_private: true{more}}}}}\n"
        )
    };
    let own = tool("own", &format!(", headers: {{traceparent: {OTHER}}}"));
    TestApp::with_manifest(
        &format!("tools:\n{}{own}", tool("echo", "")),
        [calling_tool()],
    )
    .await
}

fn with_trace_headers(
    mut request: Request<axum::body::Body>,
    headers: &[(&str, &str)],
) -> Request<axum::body::Body> {
    for (name, value) in headers {
        request
            .headers_mut()
            .append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    request
}

async fn invoke(app: &TestApp, tool: &str, headers: &[(&str, &str)]) -> Value {
    let plain = request(
        "POST",
        &format!("/tools/{tool}/invoke"),
        None,
        Some(json!({"arguments": {}})),
    );
    let (status, mut answer) = app.send(with_trace_headers(plain, headers)).await;
    assert_eq!(status, 200, "{answer}");
    answer["structured_content"].take()
}

async fn invoke_over_mcp(app: &TestApp, meta: Value, headers: &[(&str, &str)]) -> Value {
    let plain = modern_request(
        "tools/call",
        json!({"name": "echo", "arguments": {}, "_meta": meta}),
        None,
    );
    let (status, mut answer) =
        last_message(app.respond(with_trace_headers(plain, headers)).await).await;
    assert_eq!(status, 200, "{answer}");
    answer["result"]["structuredContent"].take()
}

fn expected_headers(parent: Option<&str>, state: Option<&str>) -> Value {
    json!({"parent": parent, "state": state, "key": true})
}

#[tokio::test]
async fn trace_headers_reach_the_api_unchanged() {
    let app = app().await;
    let headers = [
        ("traceparent", PARENT),
        ("tracestate", "rojo=00f067aa0ba902b7"),
        ("tracestate", "congo=t61rcWkgMzE"),
    ];
    assert_eq!(
        invoke(&app, "echo", &headers).await,
        expected_headers(Some(PARENT), Some(STATE))
    );
    let message = request(
        "POST",
        "/calls",
        None,
        Some(json!({"tool_name": "echo", "arguments": {}})),
    );
    let (_, reply) = app.send(with_trace_headers(message, &headers)).await;
    assert_eq!(
        reply["results"][0]["structured_content"],
        expected_headers(Some(PARENT), Some(STATE)),
        "{reply}"
    );
}

#[tokio::test]
async fn invalid_trace_is_ignored() {
    let app = app().await;
    for headers in [
        &[][..],
        &[("tracestate", STATE)],
        &[("traceparent", "00-nonsense"), ("tracestate", STATE)],
        &[("traceparent", PARENT), ("traceparent", OTHER)],
    ] {
        assert_eq!(
            invoke(&app, "echo", headers).await,
            expected_headers(None, None),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn manifest_traceparent_takes_precedence() {
    let app = app().await;
    let headers = [("traceparent", PARENT), ("tracestate", STATE)];
    assert_eq!(
        invoke(&app, "own", &headers).await,
        expected_headers(Some(OTHER), None)
    );
}

#[tokio::test]
async fn nested_calls_share_the_trace() {
    let app = app().await;
    let header = invoke(
        &app,
        "asks",
        &[("traceparent", PARENT), ("tracestate", STATE)],
    )
    .await;
    assert_eq!(header["own"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(header["below"], expected_headers(Some(PARENT), Some(STATE)));
}

#[tokio::test]
async fn mcp_meta_takes_precedence_over_headers() {
    let app = app().await;
    // A progress token selects the path through rmcp.
    for way in [json!({}), json!({"progressToken": 1})] {
        let meta = |more: Value| crate::support::mcp::merge(way.clone(), more);
        let headers = [("traceparent", OTHER), ("tracestate", "of=headers")];
        let header = meta(json!({"traceparent": PARENT, "tracestate": STATE}));
        assert_eq!(
            invoke_over_mcp(&app, header, &headers).await,
            expected_headers(Some(PARENT), Some(STATE))
        );
        assert_eq!(
            invoke_over_mcp(&app, meta(json!({"traceparent": PARENT})), &headers).await,
            expected_headers(Some(PARENT), None)
        );
        assert_eq!(
            invoke_over_mcp(&app, meta(json!({})), &headers).await,
            expected_headers(Some(OTHER), Some("of=headers"))
        );
        assert_eq!(
            invoke_over_mcp(&app, meta(json!({"traceparent": 7})), &[]).await,
            expected_headers(None, None)
        );
    }
}

#[tokio::test]
async fn session_messages_have_their_own_trace() {
    let app = app().await;
    let session = app.session("2025-11-25", None).await;
    let call =
        crate::support::mcp::rpc_message("tools/call", json!({"name": "echo", "arguments": {}}));
    for (headers, expected) in [(&[("traceparent", PARENT)][..], Some(PARENT)), (&[], None)] {
        let (_, answer) = last_message(
            app.respond(with_trace_headers(session.request(&call), headers))
                .await,
        )
        .await;
        assert_eq!(
            answer["result"]["structuredContent"],
            expected_headers(expected, None),
            "{answer}"
        );
    }
}
