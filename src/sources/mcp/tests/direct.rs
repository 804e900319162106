//! Calls of servers with a URL and without sessions.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::*;

/// A server of MCP 2026-07-28. Its tools show what reaches it.
#[derive(Default)]
struct Server2026 {
    /// Tripped when the request of `hang` is dropped.
    hanging: Mutex<Option<oneshot::Sender<()>>>,
    /// How often the stream of `restless` was continued.
    continued: AtomicUsize,
}

/// A stream that ends at once, and is to be continued without a pause.
const RESTLESS: &str = "id: restless\nretry: 0\ndata: \n\n";

type Shared = Arc<Server2026>;

fn json_answer(id: &Value, result: Value) -> Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn events(text: String) -> Response {
    ([("content-type", "text/event-stream")], text).into_response()
}

async fn answer(State(server): State<Shared>, headers: HeaderMap, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap();
    let id = &message["id"];
    let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
    match message["method"].as_str().unwrap() {
        "server/discover" => json_answer(
            id,
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"}, "ttlMs": 0, "cacheScope": "private"}),
        ),
        "tools/list" => {
            let region = json!({"type": "string", "x-mcp-header": "Region"});
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}});
            let mut plain = tool("headers");
            plain["inputSchema"] = json!({"type": "object"});
            let rest = ["pär", "broken", "restless", "hang"]
                .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            let tools = [vec![plain, tool("regional")], rest.to_vec()].concat();
            json_answer(
                id,
                json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}),
            )
        }
        "tools/call" => match message["params"]["name"].as_str().unwrap() {
            // The stream ends after its first event.
            "broken" => events("id: e1\ndata: \n\n".into()),
            "restless" => events(RESTLESS.into()),
            "hang" => {
                let _guard = server.hanging.lock().take();
                std::future::pending().await
            }
            _ => {
                let found = headers.iter().map(|(name, value)| {
                    (
                        name.to_string(),
                        String::from_utf8_lossy(value.as_bytes()).into_owned(),
                    )
                });
                let found: BTreeMap<_, _> = found.collect();
                let shown = json!({"headers": found, "params": message["params"]});
                json_answer(id, text(shown.to_string()))
            }
        },
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

/// Continues the streams of `broken` and `restless`.
async fn resume(State(server): State<Shared>, headers: HeaderMap) -> Response {
    match headers.get("last-event-id").map(HeaderValue::as_bytes) {
        Some(b"e1") => {}
        Some(b"restless") => {
            server.continued.fetch_add(1, Ordering::Relaxed);
            return events(RESTLESS.into());
        }
        _ => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
    let result = json!({"content": [{"type": "text", "text": "continued"}]});
    let response = json!({"jsonrpc": "2.0", "id": 1_i64 << 30, "result": result});
    events(format!("id: e2\ndata: {response}\n\n"))
}

async fn fixture() -> (Fixture, Shared, oneshot::Receiver<()>) {
    let (sender, dropped) = oneshot::channel();
    let server = Arc::new(Server2026 {
        hanging: Mutex::new(Some(sender)),
        ..Server2026::default()
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = axum::Router::new()
        .route("/mcp", post(answer).get(resume))
        .with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let fixture = Fixture::try_new(&[], |settings| {
        settings.transport = Transport::Url {
            url: url.parse().unwrap(),
            headers: BTreeMap::from([("x-team".into(), "blue".into())]),
            auth: None,
            per_caller: None,
        };
    });
    (fixture.await.unwrap(), server, dropped)
}

#[tokio::test]
async fn requests_have_the_headers_of_the_protocol() {
    if is_python_missing() {
        return;
    }
    let (fixture, ..) = fixture().await;
    for (tool, name, region) in [
        ("headers", "headers", None),
        ("regional", "regional", Some("north")),
        ("pär", "=?base64?cMOkcg==?=", None),
    ] {
        let shown = fixture.text(tool, json!({"region": "north"})).await;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let (headers, params) = (&shown["headers"], &shown["params"]);
        assert_eq!(headers["mcp-method"], "tools/call");
        assert_eq!(headers["mcp-name"], name);
        assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
        assert_eq!(headers["x-team"], "blue");
        assert_eq!(headers["mcp-param-region"].as_str(), region, "{tool}");
        assert_eq!(params["arguments"], json!({"region": "north"}));
        let meta = &params["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"]["name"],
            "toolcrib"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert!(meta["toolcrib/idempotencyKey"].is_string());
    }
}

#[tokio::test]
async fn stream_that_breaks_off_is_continued() {
    if is_python_missing() {
        return;
    }
    let (fixture, ..) = fixture().await;
    assert_eq!(fixture.text("broken", json!({})).await, "continued");
}

#[tokio::test]
async fn stream_is_not_continued_without_a_pause() {
    if is_python_missing() {
        return;
    }
    let (fixture, server, _) = fixture().await;
    let began = Instant::now();
    let call = tokio::spawn(fixture.call("restless", json!({})));
    wait_until("it is continued", || {
        server.continued.load(Ordering::Relaxed) >= 3
    })
    .await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    call.abort();
}

#[tokio::test]
async fn abandoned_call_closes_its_request() {
    if is_python_missing() {
        return;
    }
    let (fixture, server, dropped) = fixture().await;
    let mut call = Box::pin(fixture.call("hang", json!({})));
    tokio::select! {
        ended = &mut call => panic!("{ended:?}"),
        () = wait_until("the request arrives", || server.hanging.lock().is_none()) => {}
    }
    drop(call);
    tokio::time::timeout(TIMEOUT, dropped)
        .await
        .unwrap()
        .unwrap_err();
}
