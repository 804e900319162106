use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib::{Effect, Tool, ToolContext};

use crate::support::{TestApp, request};

/// An open stream of `GET /events`.
struct Events {
    body: Body,
    text: String,
    /// The id of the last block.
    id: String,
}

impl Events {
    async fn open(app: &TestApp, key: Option<&str>, last_event_id: Option<&str>) -> Self {
        let mut request = request("GET", "/events", key, None);
        if let Some(id) = last_event_id {
            let headers = request.headers_mut();
            headers.insert("last-event-id", id.parse().unwrap());
        }
        let response = app.respond(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            body: response.into_body(),
            text: String::new(),
            id: String::new(),
        }
    }

    /// The next event; `None` at the end. Comments are skipped, but their ids count.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let line = |name: &str| {
                    let found = block.lines().find_map(|line| line.strip_prefix(name));
                    found.map(str::to_owned)
                };
                let found = line("event: ").zip(line("data: "));
                self.id = line("id: ").unwrap();
                self.text = rest.to_owned();
                if let Some((event, data)) = found {
                    return Some((event, serde_json::from_str(&data).unwrap()));
                }
            }
            let frame = self.body.frame().await?.unwrap();
            let text = std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
            self.text.push_str(text);
        }
    }

    /// The next event with this name.
    async fn expect(&mut self, name: &str) -> Value {
        let (event, data) = self.next().await.unwrap();
        assert_eq!(event, name, "{data}");
        data
    }
}

fn greet() -> Tool {
    Tool::new("greet", "Greets.").call(|_, _| async { Ok("hello") })
}

/// A tool that reports progress once, and ends when it is let go.
fn slow() -> (Tool, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let wait = go.clone();
    let tool = Tool::new("slow", "Waits.")
        .effect(Effect::Read)
        .timeout(Duration::from_secs(100))
        .call(move |_, context: ToolContext| {
            let wait = wait.clone();
            async move {
                context.progress(json!({"step": 1}));
                wait.notified().await;
                Ok("done")
            }
        });
    (tool, go)
}

const TWO_CALLERS: &str = r"
callers:
  - {name: ann, key: ann-key-0123456789abcdef}
  - {name: bob, key: bob-key-0123456789abcdef}
  - {name: root, key: root-key-0123456789abcdef, admin: true}
";
const ANN: &str = "ann-key-0123456789abcdef";
const BOB: &str = "bob-key-0123456789abcdef";
const ROOT: &str = "root-key-0123456789abcdef";

#[tokio::test]
async fn events_follow_a_call_without_its_result() {
    let (tool, go) = slow();
    let app = TestApp::new([tool]).await;
    let mut events = Events::open(&app, None, None).await;
    let call = app.invoke("slow", json!({}));
    let watch = async {
        let started = events.expect("invocation.started").await;
        let progress = events.expect("invocation.progress").await;
        go.notify_one();
        (started, progress, events.expect("invocation.ended").await)
    };
    let ((status, answer), (started, progress, ended)) = tokio::join!(call, watch);
    assert_eq!(status, StatusCode::OK);
    let id = &answer["invocation_id"];
    for event in [&started, &progress, &ended] {
        assert_eq!(
            (&event["invocation_id"], &event["tool"]),
            (id, &json!("slow"))
        );
    }
    assert_eq!(progress["data"], json!({"step": 1}));
    assert_eq!(
        (&started["state"], &ended["state"]),
        (&json!("running"), &json!("succeeded"))
    );
    let listed = app.get("/invocations").await.1["invocations"][0].clone();
    assert_eq!(ended, listed, "the shape is that of the list");
}

#[tokio::test]
async fn caller_sees_events_of_its_own_calls_only() {
    let app = TestApp::with_manifest(TWO_CALLERS, [greet()]).await;
    let mut own = Events::open(&app, Some(ANN), None).await;
    let mut all = Events::open(&app, Some(ROOT), None).await;
    for key in [BOB, ANN] {
        let body = json!({"arguments": {}});
        let (status, _) = app.post_as(key, "/tools/greet/invoke", body).await;
        assert_eq!(status, StatusCode::OK);
    }
    assert_eq!(own.expect("invocation.started").await["caller"], "ann");
    assert_eq!(own.expect("invocation.ended").await["caller"], "ann");
    for caller in ["bob", "ann"] {
        assert_eq!(all.expect("invocation.started").await["caller"], caller);
        assert_eq!(all.expect("invocation.ended").await["caller"], caller);
    }
    let anonymous = app.get("/events").await;
    assert_eq!(anonymous.0, StatusCode::UNAUTHORIZED);
}

/// The call begins before the client's last event, and ends while the client is away.
#[tokio::test]
async fn resumed_stream_has_the_calls_that_ended_meanwhile() {
    let (tool, go) = slow();
    let app = TestApp::new([tool, greet()]).await;
    let mut events = Events::open(&app, None, None).await;
    let long = app.invoke("slow", json!({}));
    let rest = async {
        events.expect("invocation.started").await;
        events.expect("invocation.progress").await;
        app.invoke("greet", json!({})).await;
        events.expect("invocation.started").await;
        events.expect("invocation.ended").await;
        let id = events.id.clone();
        drop(events);
        let missed = app.invoke("greet", json!({})).await.1;
        go.notify_one();
        (id, missed)
    };
    let ((_, long), (id, missed)) = tokio::join!(long, rest);
    let mut resumed = Events::open(&app, None, Some(&id)).await;
    app.invoke("greet", json!({"now": true})).await;
    let mut found = Vec::new();
    loop {
        match resumed.next().await.unwrap() {
            (name, data) if name == "invocation.ended" => found.push(data),
            (name, _) => {
                assert_eq!(name, "invocation.started", "the first event that is new");
                break;
            }
        }
    }
    for call in [&missed, &long] {
        let ended = found
            .iter()
            .find(|one| one["invocation_id"] == call["invocation_id"]);
        assert_eq!(ended.unwrap()["state"], "succeeded");
    }
    let ids: Vec<&Value> = found.iter().map(|one| &one["invocation_id"]).collect();
    let position = |call: &Value| ids.iter().position(|id| **id == call["invocation_id"]);
    assert!(
        position(&missed) < position(&long),
        "in the order of their ends"
    );
}

/// The call has an id that is older than all that the client's last event names.
#[tokio::test]
async fn resumed_stream_has_a_call_that_waited_for_a_person() {
    let pay = Tool::new("pay", "Pays.").call(|_, _| async { Ok("paid") });
    let manifest = "tools:\n  pay: {kind: native, approval: {wait: 20ms}}\n";
    let app = TestApp::with_manifest(manifest, [pay, greet()]).await;
    let waiting = app.invoke("pay", json!({})).await.1["invocation_id"].clone();
    let mut events = Events::open(&app, None, None).await;
    let greeted = app.invoke("greet", json!({})).await.1;
    events.expect("invocation.started").await;
    events.expect("invocation.ended").await;
    let (_, ended_since) = events.id.split_once('.').unwrap();
    let from = greeted["invocation_id"].as_str().unwrap();
    let last_event_id = format!("{from}.{ended_since}");
    drop(events);
    let call = format!("/invocations/{}", waiting.as_str().unwrap());
    let (status, _) = app.post(&format!("{call}/approve"), json!({})).await;
    assert_eq!(status, StatusCode::OK);
    while app.get(&call).await.1["state"] != "succeeded" {
        tokio::task::yield_now().await;
    }
    let mut resumed = Events::open(&app, None, Some(&last_event_id)).await;
    app.invoke("greet", json!({"now": true})).await;
    let mut ended = Vec::new();
    while let Some((name, data)) = resumed.next().await
        && name == "invocation.ended"
    {
        ended.push(data["invocation_id"].clone());
    }
    assert!(ended.contains(&waiting), "{ended:?}");
}

#[tokio::test]
async fn resumed_stream_tells_when_more_was_missed() {
    let app = TestApp::new([greet()]).await;
    let mut events = Events::open(&app, None, None).await;
    app.invoke("greet", json!({})).await;
    events.expect("invocation.started").await;
    events.expect("invocation.ended").await;
    let id = events.id.clone();
    for _ in 0..1001 {
        app.invoke("greet", json!({})).await;
    }
    let mut resumed = Events::open(&app, None, Some(&id)).await;
    assert_eq!(resumed.expect("missed").await["reason"], "resume_limit");
    for _ in 0..1000 {
        resumed.expect("invocation.ended").await;
    }
    app.invoke("greet", json!({})).await;
    resumed.expect("invocation.started").await;
    // The first stream has not been read meanwhile.
    let missed = events.expect("missed").await;
    assert_eq!(missed["reason"], "slow_reader");
    assert!(missed["events"].as_u64().unwrap() > 900, "{missed}");
}

#[tokio::test]
async fn invalid_last_event_id_is_refused() {
    let app = TestApp::new([]).await;
    for id in ["7", "x.y", ""] {
        let mut request = request("GET", "/events", None, None);
        let headers = request.headers_mut();
        headers.insert("last-event-id", id.parse().unwrap());
        let (status, problem) = app.send(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{id}");
        assert!(problem["detail"].as_str().unwrap().contains("leave it out"));
    }
}

#[tokio::test]
async fn replay_ends_with_the_call_that_it_repeats() {
    let app = TestApp::new([greet()]).await;
    let invoke = || {
        let body = json!({"arguments": {}});
        let mut request = request("POST", "/tools/greet/invoke", None, Some(body));
        let headers = request.headers_mut();
        headers.insert("idempotency-key", "k1".parse().unwrap());
        request
    };
    let (_, first) = app.send(invoke()).await;
    let mut events = Events::open(&app, None, None).await;
    app.send(invoke()).await;
    let started = events.expect("invocation.started").await;
    let ended = events.expect("invocation.ended").await;
    assert_eq!(started["invocation_id"], ended["invocation_id"]);
    assert_eq!(ended["replayed_from"], first["invocation_id"]);
    assert_eq!(ended["state"], "succeeded");
}

#[tokio::test]
async fn long_arguments_are_left_out_of_events() {
    let tool = Tool::new("echo", "Echoes.")
        .param("text", "string", "The text")
        .call(|_, _| async { Ok("ok") });
    let app = TestApp::new([tool]).await;
    let mut events = Events::open(&app, None, None).await;
    app.invoke("echo", json!({"text": "x"})).await;
    app.invoke("echo", json!({"text": "x".repeat(3000)})).await;
    for arguments in [json!({"text": "x"}), Value::Null] {
        for name in ["invocation.started", "invocation.ended"] {
            assert_eq!(events.expect(name).await["arguments"], arguments);
        }
    }
}

#[tokio::test]
async fn changed_tools_are_named_to_those_that_see_them() {
    let manifest =
        format!("{TWO_CALLERS}  - {{name: eve, key: eve-key-0123456789abcdef, deny: [greet]}}\n");
    let app = TestApp::with_manifest(&manifest, [greet()]).await;
    let mut own = Events::open(&app, Some(ANN), None).await;
    let mut other = Events::open(&app, Some("eve-key-0123456789abcdef"), None).await;
    let (status, _) = app.post_as(ROOT, "/tools/greet/disable", json!({})).await;
    assert_eq!(status, StatusCode::OK);
    let changed = own.expect("tools.changed").await;
    let only_changed = json!({"added": [], "removed": [], "changed": ["greet"]});
    assert_eq!(changed, only_changed);
    let definition =
        json!({"kind": "http", "description": "d", "request": {"url": "https://example.com/"}});
    let register = request("PUT", "/tools/fetch", Some(ROOT), Some(definition));
    assert_eq!(app.send(register).await.0, StatusCode::CREATED);
    assert_eq!(own.expect("tools.changed").await["added"], json!(["fetch"]));
    assert_eq!(
        other.expect("tools.changed").await["added"],
        json!(["fetch"])
    );
}

#[tokio::test]
async fn stream_ends_when_its_key_is_revoked() {
    let app = TestApp::with_manifest(TWO_CALLERS, [greet()]).await;
    let mut events = Events::open(&app, Some(BOB), None).await;
    app.write(
        "toolcrib.yaml",
        &TWO_CALLERS.replace(BOB, "new-key-0123456789abcdef"),
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn number_of_streams_is_bounded() {
    let app = TestApp::new([]).await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(Events::open(&app, None, None).await);
    }
    let (status, problem) = app.get("/events").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
    drop(open);
    Events::open(&app, None, None).await;
}
