//! The log event of each call, for a program with a subscriber of its own.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use toolcrib::{Effect, Tool, ToolError};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::support::{TestApp, request};

/// One event: its level and its fields.
type Event = (String, BTreeMap<String, String>);

/// A program's own subscriber. The other tests' calls reach it as well: those looked for carry a
/// run of their own.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Event>>>);

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(
            field.name().to_owned(),
            format!("{value:?}").trim_matches('"').to_owned(),
        );
    }
}

impl tracing::Subscriber for Collector {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "toolcrib::call"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        self.0
            .lock()
            .unwrap()
            .push((event.metadata().level().to_string(), fields));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn tools() -> [Tool; 3] {
    let read = |name: &str| Tool::<()>::new(name, "…").effect(Effect::Read);
    [
        read("yes")
            .param_opt("word", "string", "…")
            .call(|_, _| async { Ok("a-result") }),
        read("no").call(|_, _| async { Err::<String, _>("no".into()) }),
        read("down").call(|_, _| async { Err::<String, _>(ToolError::upstream_permanent("down")) }),
    ]
}

fn invoke_request(run: &str, tool: &str, arguments: Value, request_id: &[&[u8]]) -> Request<Body> {
    let body = json!({"arguments": arguments, "run_id": run, "tool_use_id": "use-1"});
    let mut request = request("POST", &format!("/tools/{tool}/invoke"), None, Some(body));
    for id in request_id {
        request.headers_mut().append(
            "x-request-id",
            axum::http::HeaderValue::from_bytes(id).unwrap(),
        );
    }
    request
}

#[tokio::test]
async fn embedding_program_gets_one_event_per_call() {
    let collector = Collector::default();
    tracing::subscriber::set_global_default(collector.clone()).unwrap();
    let app = TestApp::new(tools()).await;
    for (tool, arguments) in [
        ("yes", json!({"word": "an-argument"})),
        ("yes", json!({"word": 7, "more": 1})),
        ("no", json!({})),
        ("down", json!({})),
        ("nobody_knows", json!({})),
    ] {
        app.send(invoke_request("run-of-log", tool, arguments, &[b"abc-1"]))
            .await;
    }
    let mut events = collector.0.lock().unwrap().clone();
    events.retain(|(_, fields)| fields.get("run_id").is_some_and(|run| run == "run-of-log"));
    let short: Vec<_> = events
        .iter()
        .map(|(level, fields)| {
            (
                level.as_str(),
                fields["tool"].as_str(),
                fields["state"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            ("INFO", "yes", "succeeded"),
            ("INFO", "yes", "refused"),
            ("INFO", "no", "failed"),
            ("WARN", "down", "failed"),
        ]
    );
    let last = &events[3].1;
    assert_eq!(last["kind"], "upstream_failed");
    assert_eq!(
        (last["request_id"].as_str(), last["tool_use_id"].as_str()),
        ("abc-1", "use-1")
    );
    assert_eq!(last["caller"], "anonymous");
    assert_eq!(
        (last["cache"].as_str(), last["attempts"].as_str()),
        ("off", "1")
    );
    let row = app.newest_invocation().await;
    assert_eq!(row["invocation_id"], last["invocation_id"].as_str());
    let all = format!("{events:?}");
    assert!(
        !all.contains("an-argument") && !all.contains("a-result"),
        "{all}"
    );
}
