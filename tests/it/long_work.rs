use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib::call::Concurrency;
use toolcrib::{Effect, Tool, ToolContext, ToolError};

use crate::support::{TestApp, request};

fn invoke_request(tool: &str, body: Value, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = request("POST", &format!("/tools/{tool}/invoke"), None, Some(body));
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

const EVENTS: (&str, &str) = ("accept", "text/event-stream");
const ASYNC: (&str, &str) = ("prefer", "respond-async");

fn header_value<'a>(response: &'a Response, name: &str) -> &'a str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// An open stream of events.
struct Stream {
    body: Body,
    text: String,
}

impl Stream {
    async fn open(app: &TestApp, tool: &str, body: Value) -> Self {
        let response = app.respond(invoke_request(tool, body, &[EVENTS])).await;
        assert_eq!(
            (
                response.status().as_u16(),
                header_value(&response, "content-type")
            ),
            (200, "text/event-stream")
        );
        Self::from_response(response)
    }

    fn from_response(response: Response) -> Self {
        Self {
            body: response.into_body(),
            text: String::new(),
        }
    }

    /// The next block: `(event, data)`, or a comment; `None` at the end.
    async fn next_block(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let line = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .unwrap_or("")
                        .to_owned()
                };
                let found = (
                    line("event: "),
                    line(if block.starts_with(':') {
                        ": "
                    } else {
                        "data: "
                    }),
                );
                self.text = rest.to_owned();
                return Some(found);
            }
            let frame = self.body.frame().await?.unwrap();
            self.text
                .push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    async fn next_event(&mut self) -> (String, Value) {
        let (event, data) = self.next_block().await.unwrap();
        (event, serde_json::from_str(&data).unwrap())
    }

    /// The data of the progress events up to the result, and the result.
    async fn read_to_end(mut self) -> (Vec<Value>, Value) {
        let mut steps = Vec::new();
        loop {
            match self.next_event().await {
                (event, data) if event == "result" => {
                    assert_eq!(self.next_block().await, None, "the result is the last");
                    return (steps, data);
                }
                (event, mut data) => {
                    assert_eq!(event, "progress");
                    steps.push(data["data"].take());
                }
            }
        }
    }
}

/// A tool that counts up to two, waiting to be let go before each step.
fn counting_tool(effect: Effect) -> (Tool, Arc<Notify>, Arc<AtomicBool>) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (go, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (wait, drops) = (go.clone(), dropped.clone());
    let tool = Tool::new("count", "Counts.")
        .effect(effect)
        .timeout(Duration::from_secs(100))
        .call(move |_, context: ToolContext| {
            let (wait, guard) = (wait.clone(), Dropped(drops.clone()));
            async move {
                let _guard = guard;
                for n in 1..=2 {
                    context.progress(json!({"step": n}));
                    wait.notified().await;
                }
                Ok("counted")
            }
        });
    (tool, go, dropped)
}

#[tokio::test]
async fn plain_call_reports_no_progress() {
    let tool =
        Tool::new("t", "…")
            .effect(Effect::Read)
            .call(|_, context: ToolContext| async move {
                context.progress("to nobody");
                Ok(json!({"watched": context.has_listener()}))
            });
    let app = TestApp::new([tool]).await;
    assert_eq!(
        app.invoke("t", json!({})).await.1["structured_content"]["watched"],
        false
    );
    let response = app.respond(invoke_request(
        "t",
        json!({"arguments": {}}),
        &[("accept", "application/json, text/event-stream")],
    ));
    assert_eq!(
        header_value(&response.await, "content-type"),
        "application/json"
    );
    let (steps, result) = Stream::open(&app, "t", json!({"arguments": {}}))
        .await
        .read_to_end()
        .await;
    assert_eq!(
        (steps, &result["structured_content"]["watched"]),
        (vec![json!("to nobody")], &json!(true))
    );
}

#[tokio::test]
async fn every_attempt_is_streamed_without_secrets() {
    let tries = Arc::new(AtomicU32::new(0));
    let tool = Tool::new("t", "…")
        .effect(Effect::Read)
        .attempts(2)
        .call_blocking(move |_, context: ToolContext| {
            let attempt = tries.fetch_add(1, Ordering::SeqCst) + 1;
            context.progress(json!({"attempt": attempt, "key": ["key=top-secret-value!"]}));
            if attempt == 1 {
                Err(ToolError::upstream("down"))
            } else {
                Ok("up")
            }
        });
    let app = TestApp::new([tool]).await;
    app.registry()
        .shared()
        .redactor
        .add_secrets(["top-secret-value"]);
    let (steps, result) = Stream::open(&app, "t", json!({"arguments": {}}))
        .await
        .read_to_end()
        .await;
    let key = json!(["key=[redacted]!"]);
    assert_eq!(
        steps,
        [
            json!({"attempt": 1, "key": key}),
            json!({"attempt": 2, "key": key})
        ]
    );
    assert_eq!(result["meta"]["attempts"], 2);
}

#[tokio::test]
async fn program_streams_its_stderr_lines() {
    let manifest = r#"
tools:
  build:
    kind: command
    description: Builds something.
    parameters: {}
    command: [/bin/sh, -c, "printf '\\033[32mone\\033[0m\\n10%%\\r20%%\\r\\n\\n' >&2; printf 'last' >&2; echo built"]
    effect: read
"#;
    let app = TestApp::with_manifest(manifest, []).await;
    let (steps, result) = Stream::open(&app, "build", json!({"arguments": {}}))
        .await
        .read_to_end()
        .await;
    assert_eq!(
        steps,
        ["one", "10%", "20%", "last"].map(|line| json!({"stderr": line}))
    );
    assert_eq!(result["content"][0]["text"], "built");
}

#[tokio::test]
async fn heartbeat_fills_silence_every_15_seconds() {
    let (tool, go, _) = counting_tool(Effect::Read);
    let app = TestApp::new([tool]).await;
    let mut stream = Stream::open(&app, "count", json!({"arguments": {}})).await;
    stream.next_event().await;
    tokio::time::pause();
    for _ in 0..2 {
        let began = tokio::time::Instant::now();
        assert_eq!(
            stream.next_block().await,
            Some((String::new(), "heartbeat".into()))
        );
        let waited = began.elapsed();
        assert!((15.0..15.1).contains(&waited.as_secs_f64()), "{waited:?}");
    }
    go.notify_one();
    assert_eq!(stream.next_event().await.1["data"]["step"], 2);
    go.notify_one();
    assert_eq!(stream.next_event().await.0, "result");
}

#[tokio::test]
async fn slow_listener_delays_nothing() {
    let tool =
        Tool::new("t", "…")
            .effect(Effect::Read)
            .call(|_, context: ToolContext| async move {
                for n in 0..1000 {
                    context.progress(n);
                    tokio::task::yield_now().await;
                }
                Ok("done")
            });
    let app = TestApp::new([tool]).await;
    let stream = Stream::open(&app, "t", json!({"arguments": {}})).await;
    let row = app.wait_for_newest_state("succeeded").await;
    let (steps, result) = stream.read_to_end().await;
    assert_eq!(result, row["result"]);
    assert!(steps.len() <= 128, "{}", steps.len());
    assert_eq!(steps.last(), Some(&json!(999)), "the newest are kept");
}

#[tokio::test]
async fn follower_gets_result_and_leader_progress() {
    let (tool, go, _) = counting_tool(Effect::Read);
    let app = TestApp::new([tool.cache(Duration::from_secs(60), &[])]).await;
    let mut leader = Stream::open(&app, "count", json!({"arguments": {}})).await;
    leader.next_event().await;
    // It waits for the other, and is answered as one that runs when it has waited for a while.
    let mut joined = Stream::open(&app, "count", json!({"arguments": {}})).await;
    go.notify_one();
    assert_eq!(leader.next_event().await.1["data"]["step"], 2);
    go.notify_one();
    let (event, result) = joined.next_event().await;
    assert_eq!(
        (event.as_str(), &result["meta"]["cache"]),
        ("result", &json!("joined"))
    );
    assert_eq!(leader.next_event().await.0, "result");
}

#[tokio::test]
async fn queued_call_streams_and_may_be_refused() {
    let (tool, go, _) = counting_tool(Effect::Read);
    let tool = tool.concurrency(Concurrency {
        max: 1,
        queue: 1,
        wait: Duration::from_secs(5),
        per_caller: None,
    });
    let app = TestApp::new([tool]).await;
    let mut first = Stream::open(&app, "count", json!({"arguments": {}})).await;
    first.next_event().await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let second = Stream::open(&app, "count", json!({"arguments": {}})).await;
    assert_eq!(
        began.elapsed().as_secs(),
        2,
        "it is answered before it has a place"
    );
    let (steps, problem) = second.read_to_end().await;
    assert_eq!(
        (steps.len(), &problem["status"], &problem["kind"]),
        (0, &json!(503), &json!("overloaded"))
    );
    go.notify_one();
    go.notify_one();
}

/// Starts an asynchronous call and checks the address of its row.
async fn accept_async(app: &TestApp, headers: &[(&'static str, &str)]) -> String {
    let body = json!({"arguments": {}, "tool_use_id": "call_1"});
    let response = app.respond(invoke_request("count", body, headers)).await;
    assert_eq!(response.status().as_u16(), 202);
    assert_eq!(
        (
            header_value(&response, "preference-applied"),
            header_value(&response, "retry-after")
        ),
        ("respond-async", "1")
    );
    let place = header_value(&response, "location").to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let accepted: Value = serde_json::from_slice(&bytes).unwrap();
    let id = accepted["invocation_id"].as_str().unwrap();
    assert_eq!(place, format!("/invocations/{id}"));
    assert_eq!(
        accepted,
        json!({"invocation_id": id, "tool": "count", "tool_use_id": "call_1", "state": "running"})
    );
    place
}

#[tokio::test]
async fn fast_async_call_is_answered_directly() {
    let (tool, go, _) = counting_tool(Effect::Read);
    let quick = Tool::new("quick", "…").call(|_, _| async { Ok("at once") });
    let app = Arc::new(TestApp::new([tool, quick]).await);
    // The service waits 50 ms for a call that ends at once. On a busy machine one call may take
    // longer than that.
    let mut states = Vec::new();
    while states.last() != Some(&json!("succeeded")) && states.len() < 50 {
        let reply = app
            .send(invoke_request("quick", json!({"arguments": {}}), &[ASYNC]))
            .await;
        assert_eq!(
            reply.0.as_u16(),
            202,
            "a client that does not wait always gets 202"
        );
        states.push(reply.1["state"].clone());
    }
    assert_eq!(states.last(), Some(&json!("succeeded")));
    let wait = [("prefer", "respond-async, wait=1")];
    let response = app
        .respond(invoke_request("quick", json!({"arguments": {}}), &wait))
        .await;
    assert_eq!(
        (
            response.status().as_u16(),
            header_value(&response, "preference-applied")
        ),
        (200, "")
    );

    let waiting = tokio::spawn({
        let app = app.clone();
        async move {
            app.respond(invoke_request(
                "count",
                json!({"arguments": {}}),
                &[("prefer", "respond-async"), ("prefer", "wait=20")],
            ))
            .await
        }
    });
    app.wait_for_newest_with("tool=count&state=running").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(!waiting.is_finished());
    tokio::time::resume();
    // A permit that is still free is not counted twice.
    while !waiting.is_finished() {
        go.notify_one();
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap().status().as_u16(), 200);

    let waiting = tokio::spawn({
        let app = app.clone();
        async move { accept_async(&app, &[("prefer", "wait=20, respond-async")]).await }
    });
    app.wait_for_newest_with("tool=count&state=running").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume();
    let place = waiting.await.unwrap();
    assert_eq!(app.delete(&place).await.1["state"], "cancelled");
}

#[tokio::test]
async fn unstored_async_result_is_waited_for() {
    let (tool, go, _) = counting_tool(Effect::Read);
    let app = Arc::new(TestApp::new([tool.capture(toolcrib::Capture::Digest)]).await);
    let waiting = tokio::spawn({
        let app = app.clone();
        async move {
            app.respond(invoke_request("count", json!({"arguments": {}}), &[ASYNC]))
                .await
        }
    });
    app.wait_for_newest_with("state=running").await;
    while !waiting.is_finished() {
        go.notify_one();
        tokio::task::yield_now().await;
    }
    let response = waiting.await.unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            header_value(&response, "preference-applied")
        ),
        (200, "")
    );
    // With a key the call can be repeated.
    accept_async(&app, &[ASYNC, ("idempotency-key", "k-1")]).await;
}

#[tokio::test]
async fn event_stream_takes_precedence_over_respond_async() {
    let (tool, go, _) = counting_tool(Effect::Read);
    let app = TestApp::new([tool]).await;
    let response = app
        .respond(invoke_request(
            "count",
            json!({"arguments": {}}),
            &[EVENTS, ASYNC],
        ))
        .await;
    assert_eq!(
        (
            response.status().as_u16(),
            header_value(&response, "preference-applied")
        ),
        (200, "")
    );
    let mut stream = Stream::from_response(response);
    stream.next_event().await;
    go.notify_one();
    stream.next_event().await;
    go.notify_one();
    assert_eq!(stream.next_event().await.0, "result");
}
