use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::{Capture, Effect, Idempotency, Limit, LimitScope, Per, Tool, ToolError};

use crate::support::{TestApp, request};

/// A reply: status, body as bytes, and whether it is marked as a replay.
#[derive(Debug, PartialEq)]
struct KeyedReply {
    status: u16,
    body: Vec<u8>,
    replayed: bool,
}

impl KeyedReply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn into_replayed(self) -> Self {
        Self {
            replayed: true,
            ..self
        }
    }
}

async fn invoke_keyed(app: &TestApp, tool: &str, key: &str, arguments: Value) -> KeyedReply {
    invoke_keyed_as(app, None, tool, key, arguments).await
}

async fn invoke_keyed_as(
    app: &TestApp,
    caller: Option<&str>,
    tool: &str,
    key: &str,
    arguments: Value,
) -> KeyedReply {
    let body = json!({"arguments": arguments, "tool_use_id": "call_1"});
    let mut request = request("POST", &format!("/tools/{tool}/invoke"), caller, Some(body));
    request
        .headers_mut()
        .insert("idempotency-key", key.parse().unwrap());
    let response = app.respond(request).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .to_vec();
    KeyedReply {
        status,
        body,
        replayed: headers
            .get("idempotent-replayed")
            .is_some_and(|value| value == "true"),
    }
}

fn counting_tool(tool: Tool<()>, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    tool.param_opt("n", "integer", "…").call(move |args, _| {
        let (run, n) = (runs.fetch_add(1, Ordering::SeqCst) + 1, args["n"].as_i64());
        async move {
            match n {
                Some(0) => Err(ToolError::ErrorResult("no".into())),
                Some(-1) => Err(ToolError::upstream("it is down")),
                Some(-2) => panic!("oh"),
                _ => Ok(json!({"run": run, "z": 0.1, "a": [1.0, 1e300, u64::MAX]})),
            }
        }
    })
}

fn write_tool(runs: &Arc<AtomicUsize>) -> Tool {
    counting_tool(Tool::new("pay", "…"), runs)
}

#[tokio::test]
async fn repeated_key_replays_the_answer() {
    let runs = Arc::default();
    let limit = Limit {
        calls: 1,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let app = TestApp::new([counting_tool(
        Tool::new("pay", "…").limit(limit.clone()),
        &runs,
    )])
    .await;
    let first = invoke_keyed(&app, "pay", "k-1", json!({"n": 5})).await;
    assert_eq!((first.status, first.replayed), (200, false));
    assert_eq!(
        (
            &first.json()["meta"]["usage"][0]["used"],
            &first.json()["tool_use_id"]
        ),
        (&json!(1), &json!("call_1"))
    );
    let replay = first.into_replayed();
    // The limit is used up, and the quoted form is the same key.
    assert_eq!(
        invoke_keyed(&app, "pay", "\"k-1\"", json!({"n": 5})).await,
        replay
    );
    assert_eq!(app.invoke("pay", json!({"n": 5})).await.0, 429);
    let app = app
        .restart([counting_tool(
            Tool::new("pay", "…").limit(limit.clone()),
            &runs,
        )])
        .await;
    assert_eq!(
        invoke_keyed(&app, "pay", "k-1", json!({"n": 5})).await,
        replay
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let (_, page) = app.get("/invocations?idempotency_key=k-1").await;
    assert_eq!(page["invocations"].as_array().unwrap().len(), 1);
    assert_eq!(page["invocations"][0]["idempotency_key"], "k-1");
    assert_eq!(
        page["invocations"][0]["invocation_id"],
        replay.json()["invocation_id"]
    );
    assert_eq!(app.get("/usage").await.1["tools"][0]["calls"], 2);
    assert_eq!(
        app.samples("toolcrib_replays_total").await,
        ["toolcrib_replays_total{tool=\"pay\"} 1"]
    );
}

#[tokio::test]
async fn failures_are_replayed_too() {
    let runs = Arc::default();
    let app = TestApp::new([write_tool(&runs)]).await;
    for (key, n, status) in [("no", 0, 200), ("down", -1, 502), ("panics", -2, 200)] {
        let first = invoke_keyed(&app, "pay", key, json!({"n": n})).await;
        assert_eq!(first.status, status);
        // Its key would only replay the same answer.
        assert!(
            status == 200 || first.json()["retryable"] == false,
            "{:?}",
            first.json()
        );
        assert_eq!(
            invoke_keyed(&app, "pay", key, json!({"n": n})).await,
            first.into_replayed()
        );
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn key_belongs_to_caller_tool_and_payload() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann}\n  - {name: bob, key: key-of-bob}\n";
    let runs = Arc::default();
    let app = TestApp::with_manifest(
        manifest,
        [
            write_tool(&runs),
            counting_tool(Tool::new("other", "…"), &runs),
        ],
    )
    .await;
    let first = invoke_keyed_as(&app, Some("key-of-ann"), "pay", "k", json!({"n": 5})).await;
    let wrong = invoke_keyed_as(&app, Some("key-of-ann"), "pay", "k", json!({"n": 6})).await;
    assert_eq!(
        (wrong.status, wrong.replayed, &wrong.json()["kind"]),
        (422, false, &json!("idempotency_mismatch"))
    );
    assert_eq!(wrong.json()["invocation_id"], first.json()["invocation_id"]);
    for (caller, tool) in [("key-of-bob", "pay"), ("key-of-ann", "other")] {
        let own = invoke_keyed_as(&app, Some(caller), tool, "k", json!({"n": 6})).await;
        assert_eq!((own.status, own.replayed), (200, false));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    let of_bob = app
        .get_as("key-of-bob", "/invocations?idempotency_key=k")
        .await
        .1;
    assert_eq!(
        of_bob["invocations"].as_array().unwrap().len(),
        1,
        "and nobody else's"
    );
}

#[tokio::test]
async fn parallel_equal_keys_run_once() {
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
            tokio::spawn(async move { invoke_keyed(&app, "pay", "k", json!({})).await })
        })
        .collect();
    let mut refused = Vec::new();
    while refused.len() < 9 {
        refused = app.get("/invocations?state=refused").await.1["invocations"]
            .as_array()
            .unwrap()
            .clone();
        tokio::task::yield_now().await;
    }
    let listed = app
        .wait_for_newest_with("idempotency_key=k&state=running")
        .await;
    let busy = invoke_keyed(&app, "pay", "k", json!({})).await;
    assert_eq!(
        (busy.status, &busy.json()["kind"]),
        (409, &json!("idempotency_in_progress"))
    );
    assert_eq!(
        (&busy.json()["retryable"], &busy.json()["retry_after_ms"]),
        (&json!(true), &json!(1000))
    );
    assert_eq!(busy.json()["invocation_id"], listed["invocation_id"]);
    gate.add_permits(1);
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap().status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200], vec![409; 9]].concat());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(invoke_keyed(&app, "pay", "k", json!({})).await.status, 200);
}

#[tokio::test]
async fn refused_call_frees_its_key() {
    let runs = Arc::default();
    let limit = Limit {
        calls: 1,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let app = TestApp::new([counting_tool(
        Tool::new("pay", "…").limit(limit.clone()),
        &runs,
    )])
    .await;
    assert_eq!(
        invoke_keyed(&app, "pay", "k", json!({"n": "many"}))
            .await
            .status,
        422
    );
    assert_eq!(app.invoke("pay", json!({})).await.0, 200);
    assert_eq!(
        invoke_keyed(&app, "pay", "k", json!({"n": 1})).await.status,
        429
    );
    assert_eq!(app.post("/tools/pay/usage/reset", json!({})).await.0, 200);
    assert_eq!(app.post("/tools/pay/disable", json!({})).await.0, 200);
    assert_eq!(
        invoke_keyed(&app, "pay", "k", json!({"n": 2})).await.status,
        403
    );
    assert_eq!(app.post("/tools/pay/enable", json!({})).await.0, 200);
    let ran = invoke_keyed(&app, "pay", "k", json!({"n": 3})).await;
    assert_eq!((ran.status, ran.replayed), (200, false));
    let (_, page) = app.get("/invocations?idempotency_key=k").await;
    let states: Vec<_> = page["invocations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["state"].clone())
        .collect();
    assert_eq!(
        states,
        ["succeeded", "refused", "refused", "refused"],
        "all are found by it"
    );
}

#[tokio::test]
async fn policy_requires_or_ignores_keys() {
    let runs = Arc::default();
    let required = counting_tool(
        Tool::new("must", "…").idempotency(Idempotency::Required),
        &runs,
    );
    let off = counting_tool(Tool::new("never", "…").idempotency(Idempotency::Off), &runs);
    let app = TestApp::new([required, off]).await;
    let (status, problem) = app.invoke("must", json!({})).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (400, &json!("invalid_request"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("Idempotency-Key"),
        "{problem}"
    );
    assert_eq!(invoke_keyed(&app, "must", "k", json!({})).await.status, 200);
    assert_eq!(
        app.get("/tools/must").await.1["policy"]["idempotency"],
        "required"
    );
    for _ in 0..2 {
        let keyed_reply = invoke_keyed(&app, "never", "k", json!({})).await;
        assert!(
            keyed_reply.json()["meta"]["warnings"][0]
                .as_str()
                .unwrap()
                .contains("Idempotency-Key")
        );
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn invalid_keys_are_refused() {
    let runs = Arc::default();
    let app = TestApp::new([write_tool(&runs)]).await;
    for key in ["", "a b", "\"a", &"k".repeat(256)] {
        let keyed_reply = invoke_keyed(&app, "pay", key, json!({})).await;
        assert_eq!(
            (keyed_reply.status, &keyed_reply.json()["kind"]),
            (400, &json!("invalid_request")),
            "{key}"
        );
    }
    let mut twice = request(
        "POST",
        "/tools/pay/invoke",
        None,
        Some(json!({"arguments": {}})),
    );
    twice
        .headers_mut()
        .append("idempotency-key", "a".parse().unwrap());
    twice
        .headers_mut()
        .append("idempotency-key", "b".parse().unwrap());
    assert_eq!(app.send(twice).await.0, 400);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn key_is_kept_for_a_day() {
    let runs = Arc::default();
    let (app, hand) = TestApp::with_clock([write_tool(&runs)]).await;
    let first = invoke_keyed(&app, "pay", "k", json!({}))
        .await
        .into_replayed();
    hand.fetch_add(86_399_000, Ordering::SeqCst);
    assert_eq!(invoke_keyed(&app, "pay", "k", json!({})).await, first);
    hand.fetch_add(2_000, Ordering::SeqCst);
    let second = invoke_keyed(&app, "pay", "k", json!({"n": 7})).await;
    assert_eq!(
        (
            second.status,
            second.replayed,
            second.json()["structured_content"]["run"].clone()
        ),
        (200, false, json!(2))
    );
    assert_eq!(
        invoke_keyed(&app, "pay", "k", json!({"n": 7})).await,
        second.into_replayed()
    );
}

#[tokio::test]
async fn keyed_read_bypasses_the_cache() {
    let runs = Arc::default();
    let tool = Tool::new("look", "…")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[]);
    let app = TestApp::new([counting_tool(tool, &runs)]).await;
    assert_eq!(
        app.invoke("look", json!({})).await.1["meta"]["cache"],
        "miss"
    );
    let first = invoke_keyed(&app, "look", "k", json!({})).await;
    assert_eq!(
        (
            first.json()["meta"]["cache"].clone(),
            first.json()["structured_content"]["run"].clone()
        ),
        (json!("bypass"), json!(2))
    );
    assert_eq!(
        invoke_keyed(&app, "look", "k", json!({})).await,
        first.into_replayed()
    );
    assert_eq!(
        app.invoke("look", json!({})).await.1["structured_content"]["run"],
        1
    );
}

#[tokio::test]
async fn abandoned_write_is_never_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let tool = Tool::new("pay", "…")
        .timeout(Duration::from_millis(20))
        .call(move |_, _| {
            counter.fetch_add(1, Ordering::SeqCst);
            async {
                std::future::pending::<()>().await;
                Ok("paid")
            }
        });
    let app = TestApp::new([tool]).await;
    let first = invoke_keyed(&app, "pay", "k", json!({})).await;
    assert_eq!(
        (first.status, &first.json()["retryable"]),
        (504, &json!(false))
    );
    assert_eq!(
        invoke_keyed(&app, "pay", "k", json!({})).await,
        first.into_replayed()
    );
    assert_eq!(
        (
            runs.load(Ordering::SeqCst),
            app.newest_invocation().await["state"].clone()
        ),
        (1, json!("unknown"))
    );
}

#[tokio::test]
async fn unstored_answers_are_replayed_in_process() {
    let runs = Arc::default();
    let tool = || counting_tool(Tool::new("pay", "…").capture(Capture::Digest), &runs);
    let app = TestApp::new([tool()]).await;
    let first = invoke_keyed(&app, "pay", "k", json!({"n": 5})).await;
    let failed = invoke_keyed(&app, "pay", "f", json!({"n": -1})).await;
    let (first, failed) = (first.into_replayed(), failed.into_replayed());
    assert_eq!(invoke_keyed(&app, "pay", "k", json!({"n": 5})).await, first);
    assert_eq!(
        invoke_keyed(&app, "pay", "f", json!({"n": -1})).await,
        failed
    );
    assert_eq!(
        invoke_keyed(&app, "pay", "k", json!({"n": 6})).await.status,
        422
    );
    let app = app.restart([tool()]).await;
    let later = invoke_keyed(&app, "pay", "k", json!({"n": 5})).await;
    assert_eq!(
        (later.status, later.replayed, runs.load(Ordering::SeqCst)),
        (200, true, 2)
    );
    assert_eq!(
        later.json()["meta"]["result_digest"]["hmac_sha256"]
            .as_str()
            .unwrap()
            .len(),
        64
    );
    assert_eq!(later.json()["invocation_id"], first.json()["invocation_id"]);
    assert_eq!(
        invoke_keyed(&app, "pay", "f", json!({"n": -1}))
            .await
            .status,
        502
    );
}

#[tokio::test]
async fn key_is_free_when_nothing_was_reached() {
    let manifest = "tools:\n  pay: {kind: http, description: d, request: {method: POST, url: \"http://127.0.0.1:1/\", \
                    allow_private: true}}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    let first = invoke_keyed(&app, "pay", "k", json!({})).await;
    assert_eq!(
        (first.status, &first.json()["retryable"]),
        (502, &json!(true))
    );
    let second = invoke_keyed(&app, "pay", "k", json!({})).await;
    assert_eq!((second.status, second.replayed), (502, false));
    assert_ne!(
        second.json()["invocation_id"],
        first.json()["invocation_id"]
    );
}

#[tokio::test]
async fn key_lookup_finds_its_call() {
    let runs = Arc::default();
    let app = TestApp::new([write_tool(&runs)]).await;
    let first = invoke_keyed(&app, "pay", "k", json!({"n": 5})).await;
    for n in 6..9 {
        assert_eq!(
            invoke_keyed(&app, "pay", "k", json!({"n": n})).await.status,
            422
        );
    }
    let (_, page) = app.get("/invocations?idempotency_key=k").await;
    let found: Vec<_> = page["invocations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["invocation_id"])
        .collect();
    assert_eq!(found, [&first.json()["invocation_id"]]);
}
