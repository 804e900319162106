use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::{Capture, Effect, Idempotency, Limit, LimitScope, Per, Tool, ToolError};

use crate::support::{TestApp, request};

/// What came back: status, body as bytes, whether it says that it is a replay.
#[derive(Debug, PartialEq)]
struct Said {
    status: u16,
    body: Vec<u8>,
    replayed: bool,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn again(self) -> Self {
        Self { replayed: true, ..self }
    }
}

async fn keyed(app: &TestApp, tool: &str, key: &str, arguments: Value) -> Said {
    keyed_as(app, None, tool, key, arguments).await
}

async fn keyed_as(app: &TestApp, caller: Option<&str>, tool: &str, key: &str, arguments: Value) -> Said {
    let body = json!({"arguments": arguments, "tool_use_id": "call_1"});
    let mut request = request("POST", &format!("/tools/{tool}/invoke"), caller, Some(body));
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    let response = app.respond(request).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
    Said { status, body, replayed: headers.get("idempotent-replayed").is_some_and(|value| value == "true") }
}

fn counting(tool: Tool<()>, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    tool.param_opt("n", "integer", "…").call(move |args, _| {
        let (run, n) = (runs.fetch_add(1, Ordering::SeqCst) + 1, args["n"].as_i64());
        async move {
            match n {
                Some(0) => Err(ToolError::Said("no".into())),
                Some(-1) => Err(ToolError::upstream("it is down")),
                Some(-2) => panic!("oh"),
                _ => Ok(json!({"run": run, "z": 0.1, "a": [1.0, 1e300, u64::MAX]})),
            }
        }
    })
}

fn write(runs: &Arc<AtomicUsize>) -> Tool {
    counting(Tool::new("pay", "…"), runs)
}

#[tokio::test]
async fn asking_again_is_not_asking_twice() {
    let runs = Arc::default();
    let limit = Limit { calls: 1, per: Per::Lifetime, scope: LimitScope::Tool };
    let app = TestApp::new([counting(Tool::new("pay", "…").limit(limit.clone()), &runs)]).await;
    let first = keyed(&app, "pay", "k-1", json!({"n": 5})).await;
    assert_eq!((first.status, first.replayed), (200, false));
    assert_eq!(
        (&first.json()["meta"]["usage"][0]["used"], &first.json()["tool_use_id"]),
        (&json!(1), &json!("call_1"))
    );
    let again = first.again();
    // The limit is used up, and the quoted form is the same key.
    assert_eq!(keyed(&app, "pay", "\"k-1\"", json!({"n": 5})).await, again);
    assert_eq!(app.invoke("pay", json!({"n": 5})).await.0, 429);
    let app = app.restart([counting(Tool::new("pay", "…").limit(limit.clone()), &runs)]).await;
    assert_eq!(keyed(&app, "pay", "k-1", json!({"n": 5})).await, again);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let (_, page) = app.get("/invocations?idempotency_key=k-1").await;
    assert_eq!(page["invocations"].as_array().unwrap().len(), 1);
    assert_eq!(page["invocations"][0]["idempotency_key"], "k-1");
    assert_eq!(page["invocations"][0]["invocation_id"], again.json()["invocation_id"]);
    assert_eq!(app.get("/usage").await.1["tools"][0]["calls"], 2);
    assert_eq!(app.samples("toolcrib_replays_total").await, ["toolcrib_replays_total{tool=\"pay\"} 1"]);
}

#[tokio::test]
async fn failures_are_said_again_too() {
    let runs = Arc::default();
    let app = TestApp::new([write(&runs)]).await;
    for (key, n, status) in [("no", 0, 200), ("down", -1, 502), ("panics", -2, 200)] {
        let first = keyed(&app, "pay", key, json!({"n": n})).await;
        assert_eq!(first.status, status);
        // Its key would only say the same again.
        assert!(status == 200 || first.json()["retryable"] == false, "{:?}", first.json());
        assert_eq!(keyed(&app, "pay", key, json!({"n": n})).await, first.again());
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_key_belongs_to_its_caller_its_tool_and_its_payload() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob}\n";
    let runs = Arc::default();
    let app = TestApp::with_manifest(manifest, [write(&runs), counting(Tool::new("other", "…"), &runs)]).await;
    let first = keyed_as(&app, Some("key-of-ann"), "pay", "k", json!({"n": 5})).await;
    let wrong = keyed_as(&app, Some("key-of-ann"), "pay", "k", json!({"n": 6})).await;
    assert_eq!((wrong.status, wrong.replayed, &wrong.json()["kind"]), (422, false, &json!("idempotency_mismatch")));
    assert_eq!(wrong.json()["invocation_id"], first.json()["invocation_id"]);
    for (caller, tool) in [("key-of-bob", "pay"), ("key-of-ann", "other")] {
        let own = keyed_as(&app, Some(caller), tool, "k", json!({"n": 6})).await;
        assert_eq!((own.status, own.replayed), (200, false));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    let of_bob = app.get_as("key-of-bob", "/invocations?idempotency_key=k").await.1;
    assert_eq!(of_bob["invocations"].as_array().unwrap().len(), 1, "and nobody else's");
}

#[tokio::test]
async fn many_at_once_run_once() {
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counter, wait) = (runs.clone(), gate.clone());
    let tool = Tool::new("pay", "…").call(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        let wait = wait.clone();
        async move {
            let _ = wait.acquire().await;
            Ok("paid")
        }
    });
    let app = Arc::new(TestApp::new([tool]).await);
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { keyed(&app, "pay", "k", json!({})).await })
        })
        .collect();
    let mut refused = Vec::new();
    while refused.len() < 9 {
        refused = app.get("/invocations?state=refused").await.1["invocations"].as_array().unwrap().clone();
        tokio::task::yield_now().await;
    }
    let listed = app.until_newest_with("idempotency_key=k&state=running").await;
    let busy = keyed(&app, "pay", "k", json!({})).await;
    assert_eq!((busy.status, &busy.json()["kind"]), (409, &json!("idempotency_in_progress")));
    assert_eq!((&busy.json()["retryable"], &busy.json()["retry_after_ms"]), (&json!(true), &json!(1000)));
    assert_eq!(busy.json()["invocation_id"], listed["invocation_id"]);
    gate.add_permits(1);
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap().status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200], vec![409; 9]].concat());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(keyed(&app, "pay", "k", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_refused_call_frees_its_key() {
    let runs = Arc::default();
    let limit = Limit { calls: 1, per: Per::Lifetime, scope: LimitScope::Tool };
    let app = TestApp::new([counting(Tool::new("pay", "…").limit(limit.clone()), &runs)]).await;
    assert_eq!(keyed(&app, "pay", "k", json!({"n": "many"})).await.status, 422);
    assert_eq!(app.invoke("pay", json!({})).await.0, 200);
    assert_eq!(keyed(&app, "pay", "k", json!({"n": 1})).await.status, 429);
    assert_eq!(app.post("/tools/pay/usage/reset", json!({})).await.0, 200);
    assert_eq!(app.post("/tools/pay/disable", json!({})).await.0, 200);
    assert_eq!(keyed(&app, "pay", "k", json!({"n": 2})).await.status, 403);
    assert_eq!(app.post("/tools/pay/enable", json!({})).await.0, 200);
    let ran = keyed(&app, "pay", "k", json!({"n": 3})).await;
    assert_eq!((ran.status, ran.replayed), (200, false));
    let (_, page) = app.get("/invocations?idempotency_key=k").await;
    let states: Vec<_> = page["invocations"].as_array().unwrap().iter().map(|call| call["state"].clone()).collect();
    assert_eq!(states, ["succeeded", "refused", "refused", "refused"], "all are found by it");
}

#[tokio::test]
async fn an_operator_may_want_a_key_or_none() {
    let runs = Arc::default();
    let required = counting(Tool::new("must", "…").idempotency(Idempotency::Required), &runs);
    let off = counting(Tool::new("never", "…").idempotency(Idempotency::Off), &runs);
    let app = TestApp::new([required, off]).await;
    let (status, problem) = app.invoke("must", json!({})).await;
    assert_eq!((status.as_u16(), &problem["kind"]), (400, &json!("invalid_request")));
    assert!(problem["detail"].as_str().unwrap().contains("Idempotency-Key"), "{problem}");
    assert_eq!(keyed(&app, "must", "k", json!({})).await.status, 200);
    assert_eq!(app.get("/tools/must").await.1["policy"]["idempotency"], "required");
    for _ in 0..2 {
        let said = keyed(&app, "never", "k", json!({})).await;
        assert!(said.json()["meta"]["warnings"][0].as_str().unwrap().contains("Idempotency-Key"));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn what_is_no_key_is_refused() {
    let runs = Arc::default();
    let app = TestApp::new([write(&runs)]).await;
    for key in ["", "a b", "\"a", &"k".repeat(256)] {
        let said = keyed(&app, "pay", key, json!({})).await;
        assert_eq!((said.status, &said.json()["kind"]), (400, &json!("invalid_request")), "{key}");
    }
    let mut twice = request("POST", "/tools/pay/invoke", None, Some(json!({"arguments": {}})));
    twice.headers_mut().append("idempotency-key", "a".parse().unwrap());
    twice.headers_mut().append("idempotency-key", "b".parse().unwrap());
    assert_eq!(app.send(twice).await.0, 400);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_key_is_kept_for_a_day_after_its_call() {
    let runs = Arc::default();
    let (app, hand) = TestApp::with_clock([write(&runs)]).await;
    let first = keyed(&app, "pay", "k", json!({})).await.again();
    hand.fetch_add(86_399_000, Ordering::SeqCst);
    assert_eq!(keyed(&app, "pay", "k", json!({})).await, first);
    hand.fetch_add(2_000, Ordering::SeqCst);
    let second = keyed(&app, "pay", "k", json!({"n": 7})).await;
    assert_eq!(
        (second.status, second.replayed, second.json()["structured_content"]["run"].clone()),
        (200, false, json!(2))
    );
    assert_eq!(keyed(&app, "pay", "k", json!({"n": 7})).await, second.again());
}

#[tokio::test]
async fn a_read_with_a_key_runs_once_past_the_cache() {
    let runs = Arc::default();
    let tool = Tool::new("look", "…").effect(Effect::Read).cache(Duration::from_secs(60), &[]);
    let app = TestApp::new([counting(tool, &runs)]).await;
    assert_eq!(app.invoke("look", json!({})).await.1["meta"]["cache"], "miss");
    let first = keyed(&app, "look", "k", json!({})).await;
    assert_eq!(
        (first.json()["meta"]["cache"].clone(), first.json()["structured_content"]["run"].clone()),
        (json!("bypass"), json!(2))
    );
    assert_eq!(keyed(&app, "look", "k", json!({})).await, first.again());
    assert_eq!(app.invoke("look", json!({})).await.1["structured_content"]["run"], 1);
}

#[tokio::test]
async fn a_write_that_was_not_waited_for_is_never_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let tool = Tool::new("pay", "…").timeout(Duration::from_millis(20)).call(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async {
            std::future::pending::<()>().await;
            Ok("paid")
        }
    });
    let app = TestApp::new([tool]).await;
    let first = keyed(&app, "pay", "k", json!({})).await;
    assert_eq!((first.status, &first.json()["retryable"]), (504, &json!(false)));
    assert_eq!(keyed(&app, "pay", "k", json!({})).await, first.again());
    assert_eq!((runs.load(Ordering::SeqCst), app.newest().await["state"].clone()), (1, json!("unknown")));
}

#[tokio::test]
async fn answers_that_are_not_kept_are_said_again_while_the_process_lives() {
    let runs = Arc::default();
    let tool = || counting(Tool::new("pay", "…").capture(Capture::Digest), &runs);
    let app = TestApp::new([tool()]).await;
    let first = keyed(&app, "pay", "k", json!({"n": 5})).await;
    let failed = keyed(&app, "pay", "f", json!({"n": -1})).await;
    let (first, failed) = (first.again(), failed.again());
    assert_eq!(keyed(&app, "pay", "k", json!({"n": 5})).await, first);
    assert_eq!(keyed(&app, "pay", "f", json!({"n": -1})).await, failed);
    assert_eq!(keyed(&app, "pay", "k", json!({"n": 6})).await.status, 422);
    let app = app.restart([tool()]).await;
    let later = keyed(&app, "pay", "k", json!({"n": 5})).await;
    assert_eq!((later.status, later.replayed, runs.load(Ordering::SeqCst)), (200, true, 2));
    assert_eq!(later.json()["meta"]["result_digest"]["hmac_sha256"].as_str().unwrap().len(), 64);
    assert_eq!(later.json()["invocation_id"], first.json()["invocation_id"]);
    assert_eq!(keyed(&app, "pay", "f", json!({"n": -1})).await.status, 502);
}

#[tokio::test]
async fn a_key_is_free_when_nothing_was_reached() {
    let manifest = "tools:\n  pay: {kind: http, description: d, request: {method: POST, url: \"http://127.0.0.1:1/\", \
                    allow_private: true}}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    let first = keyed(&app, "pay", "k", json!({})).await;
    assert_eq!((first.status, &first.json()["retryable"]), (502, &json!(true)));
    let second = keyed(&app, "pay", "k", json!({})).await;
    assert_eq!((second.status, second.replayed), (502, false));
    assert_ne!(second.json()["invocation_id"], first.json()["invocation_id"]);
}

#[tokio::test]
async fn whoever_looks_for_a_key_finds_the_call_that_holds_it() {
    let runs = Arc::default();
    let app = TestApp::new([write(&runs)]).await;
    let first = keyed(&app, "pay", "k", json!({"n": 5})).await;
    for n in 6..9 {
        assert_eq!(keyed(&app, "pay", "k", json!({"n": n})).await.status, 422);
    }
    let (_, page) = app.get("/invocations?idempotency_key=k").await;
    let found: Vec<_> = page["invocations"].as_array().unwrap().iter().map(|call| &call["invocation_id"]).collect();
    assert_eq!(found, [&first.json()["invocation_id"]]);
}
