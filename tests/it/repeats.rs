use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::call::OnDisconnect;
use toolcrib::{Capture, Effect, Limit, LimitScope, Per, Tool, ToolContext, ToolError, ToolResult};

use crate::support::{TestApp, first_text};

/// Returns the number of its runs; `mode` makes it fail, return an error result, or wait for the
/// gate.
fn counting_tool(name: &str, runs: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) -> Tool {
    let (runs, gate) = (runs.clone(), gate.clone());
    Tool::new(name, "…")
        .param_opt("n", "integer", "…")
        .param_opt("mode", "string", "…")
        .effect(Effect::Read)
        .call(move |arguments, _| {
            let (runs, gate) = (runs.clone(), gate.clone());
            async move {
                let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                match arguments.get("mode").and_then(Value::as_str) {
                    Some("fail") => Err(ToolError::upstream_permanent("down")),
                    Some("no") => Ok(ToolResult::error("no")),
                    Some("wait") => {
                        gate.acquire().await.unwrap().forget();
                        Ok(ToolResult::text(run.to_string()))
                    }
                    _ => Ok(ToolResult::text(run.to_string())),
                }
            }
        })
}

struct RepeatApp {
    app: TestApp,
    runs: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl RepeatApp {
    async fn new(change: impl Fn(Tool) -> Tool) -> Self {
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let tools = ["t", "other"].map(|name| change(counting_tool(name, &runs, &gate)));
        Self {
            app: TestApp::new(tools).await,
            runs,
            gate,
        }
    }

    /// The error kind of a call, `ok` for an answer.
    async fn call(&self, tool: &str, body: Value) -> String {
        let (status, said) = self.app.post(&format!("/tools/{tool}/invoke"), body).await;
        match status.as_u16() {
            200 => "ok".into(),
            _ => said["kind"].as_str().unwrap().to_owned(),
        }
    }

    async fn call_in_run(&self, run: &str, arguments: Value) -> String {
        self.call("t", json!({"arguments": arguments, "run_id": run}))
            .await
    }

    fn run_count(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn repeated_call_is_refused_at_no_cost() {
    let limit = Limit {
        calls: 9,
        per: Per::Run,
        scope: LimitScope::Tool,
    };
    let bench = RepeatApp::new(|tool| tool.limit(limit.clone())).await;
    let body = json!({"arguments": {"n": 1}, "run_id": "r"});
    let (_, first) = bench.app.post("/tools/t/invoke", body.clone()).await;
    assert_eq!(first["meta"]["usage"][0]["used"], 1);
    for again in [
        body,
        json!({"arguments": {"n": "1"}, "run_id": "r"}),
        json!({"arguments": "{\"n\": 1}", "run_id": "r"}),
    ] {
        let reply = bench.app.post("/tools/t/invoke", again).await;
        let (status, problem) = &reply;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (409, &json!("repeated_call"))
        );
        assert_eq!(
            (&problem["source"], &problem["retryable"]),
            (&json!("service"), &json!(false))
        );
        assert!(
            first_text(&reply).contains("have its answer")
                && first_text(&reply).contains("something else"),
            "{problem}"
        );
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains(first["invocation_id"].as_str().unwrap()),
            "{problem}"
        );
        let row = bench.app.newest_invocation().await;
        assert_eq!(
            (&row["state"], &row["kind"]),
            (&json!("refused"), &json!("repeated_call"))
        );
        assert_eq!(row["invocation_id"], problem["invocation_id"]);
    }
    assert_eq!(bench.run_count(), 1);
    assert_eq!(bench.call_in_run("r", json!({"n": 2})).await, "ok");
    let (_, usage) = bench
        .app
        .post(
            "/tools/t/invoke",
            json!({"arguments": {"n": 1}, "run_id": "r"}),
        )
        .await;
    assert_eq!(
        usage["meta"]["usage"][0]["used"], 3,
        "refused ones are not among them"
    );
}

#[tokio::test]
async fn any_difference_makes_another_call() {
    let bench = RepeatApp::new(|tool| tool).await;
    for (tool, body) in [
        ("t", json!({"arguments": {}, "run_id": "r"})),
        ("t", json!({"arguments": {}, "run_id": "s"})),
        ("t", json!({"arguments": {}})),
        ("t", json!({"arguments": {}})),
        ("t", json!({"arguments": {"n": 1}, "run_id": "r"})),
        ("other", json!({"arguments": {"n": 1}, "run_id": "r"})),
        (
            "other",
            json!({"arguments": {"n": 1}, "run_id": "r", "cache": "refresh"}),
        ),
        (
            "other",
            json!({"arguments": {"n": 1}, "run_id": "r", "page": {"detail": "full"}}),
        ),
        (
            "other",
            json!({"arguments": {"n": 1}, "run_id": "r", "page": {"detail": "full", "limit": 7}}),
        ),
    ] {
        assert_eq!(bench.call(tool, body.clone()).await, "ok", "{tool} {body}");
    }
    for ignored in [
        json!({"timeout": "9s"}),
        json!({"tool_use_id": "u-2"}),
        json!({"context": {"a": 1}}),
    ] {
        let mut body =
            json!({"arguments": {"n": 1}, "run_id": "r", "page": {"detail": "full", "limit": 7}});
        body.as_object_mut()
            .unwrap()
            .extend(ignored.as_object().unwrap().clone());
        assert_eq!(
            bench.call("other", body).await,
            "repeated_call",
            "{ignored} makes no other answer"
        );
    }
}

#[tokio::test]
async fn only_an_answer_can_be_repeated() {
    let bench = RepeatApp::new(|tool| tool).await;
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "fail"})).await,
        "upstream_failed"
    );
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "fail"})).await,
        "upstream_failed",
        "it may work now"
    );
    assert_eq!(bench.call_in_run("r", json!({"mode": "no"})).await, "ok");
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "no"})).await,
        "repeated_call",
        "a no is an answer"
    );
    // What was refused or failed in between does not make it another.
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "fail"})).await,
        "upstream_failed"
    );
    assert_eq!(
        bench.call_in_run("r", json!({"n": "many"})).await,
        "invalid_arguments"
    );
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "no"})).await,
        "repeated_call"
    );
    assert_eq!(bench.call_in_run("r", json!({"n": 1})).await, "ok");
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "no"})).await,
        "ok",
        "not in a row"
    );
}

#[tokio::test]
async fn parallel_equal_calls_both_run() {
    let bench = RepeatApp::new(|tool| tool).await;
    let wait = || bench.call_in_run("r", json!({"mode": "wait"}));
    let open = async {
        while bench.run_count() < 2 {
            tokio::task::yield_now().await;
        }
        bench.gate.add_permits(2);
    };
    let (one, other, ()) = tokio::join!(wait(), wait(), open);
    assert_eq!([one, other], ["ok", "ok"]);
    assert_eq!(wait().await, "repeated_call");
}

#[tokio::test]
async fn unreceived_answer_may_be_requested_again() {
    let bench = Arc::new(RepeatApp::new(|tool| tool.on_disconnect(OnDisconnect::Finish)).await);
    let left = tokio::spawn({
        let bench = bench.clone();
        async move { bench.call_in_run("r", json!({"mode": "wait"})).await }
    });
    while bench.run_count() < 1 {
        tokio::task::yield_now().await;
    }
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    bench.gate.add_permits(2);
    bench.app.wait_for_newest_state("succeeded").await;
    assert_eq!(bench.call_in_run("r", json!({"mode": "wait"})).await, "ok");
    assert_eq!(
        bench.call_in_run("r", json!({"mode": "wait"})).await,
        "repeated_call"
    );
}

#[tokio::test]
async fn stored_result_counts_and_repeatable_tools_run() {
    let minute = std::time::Duration::from_secs(60);
    let bench = RepeatApp::new(|tool| tool.cache(minute, &[])).await;
    assert_eq!(bench.call_in_run("before", json!({})).await, "ok");
    assert_eq!(
        bench.call_in_run("r", json!({})).await,
        "ok",
        "out of the cache"
    );
    assert_eq!(bench.call_in_run("r", json!({})).await, "repeated_call");
    assert_eq!(bench.run_count(), 1);

    let bench = RepeatApp::new(|tool| tool.repeatable()).await;
    assert_eq!(
        [
            bench.call_in_run("r", json!({})).await,
            bench.call_in_run("r", json!({})).await
        ],
        ["ok", "ok"]
    );
    assert_eq!(
        bench.app.get("/tools/t").await.1["policy"]["repeatable"],
        true
    );
}

#[tokio::test]
async fn repeatable_tool_may_interleave_with_others() {
    let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let app = TestApp::new([
        counting_tool("t", &runs, &gate),
        counting_tool("clock", &runs, &gate).repeatable(),
    ])
    .await;
    for (tool, status) in [
        ("t", 200),
        ("t", 409),
        ("clock", 200),
        ("t", 200),
        ("t", 409),
        ("clock", 200),
        ("clock", 200),
    ] {
        let (found, _) = app
            .post(
                &format!("/tools/{tool}/invoke"),
                json!({"arguments": {}, "run_id": "r"}),
            )
            .await;
        assert_eq!(found.as_u16(), status, "{tool}");
    }
}

#[tokio::test]
async fn idempotency_key_is_no_repeat() {
    let bench = RepeatApp::new(|tool| tool.effect(Effect::Write)).await;
    let send = async |key: &str| {
        let request = Request::post("/tools/t/invoke")
            .header("host", "localhost")
            .header("idempotency-key", key);
        let request = request.header("content-type", "application/json");
        let (status, said) = bench
            .app
            .send(
                request
                    .body(Body::from(r#"{"arguments": {}, "run_id": "r"}"#))
                    .unwrap(),
            )
            .await;
        (status.as_u16(), said)
    };
    let first = send("k-1").await;
    assert_eq!(first.0, 200);
    assert_eq!(send("k-1").await, first, "the same answer again");
    assert_eq!(
        send("k-2").await.1["kind"],
        "repeated_call",
        "a new call is one"
    );
    assert_eq!(bench.call_in_run("r", json!({"n": 1})).await, "ok");
    assert_eq!(send("k-2").await.0, 200, "its key was free");
    assert_eq!(bench.run_count(), 3);
}

#[tokio::test]
async fn manifest_declares_repeatable_tools() {
    let native = "kind: native, use: calculator";
    let manifest = format!(
        "defaults: {{repeatable: true}}\ntools:\n  a: {{{native}}}\n  b: {{{native}, repeatable: false}}\n  \
         c: {{kind: native, use: current_time, repeatable: false}}\n"
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    let repeatable = async |tool: &str| {
        app.get(&format!("/tools/{tool}")).await.1["policy"]["repeatable"].clone()
    };
    assert_eq!(
        [
            repeatable("a").await,
            repeatable("b").await,
            repeatable("c").await
        ],
        [true, false, false]
    );
    app.write(
        "toolcrib.yaml",
        &format!("tools:\n  a: {{{native}}}\n  c: {{kind: native, use: current_time}}\n"),
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(
        [repeatable("a").await, repeatable("c").await],
        [false, true],
        "what time it is differs each time"
    );
}

#[tokio::test]
async fn runs_expire_after_an_hour_per_caller() {
    let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let (app, hand) =
        TestApp::with_clock([counting_tool("t", &runs, &gate).capture(Capture::Digest)]).await;
    let call = async || {
        app.post("/tools/t/invoke", json!({"arguments": {}, "run_id": "r"}))
            .await
            .0
            .as_u16()
    };
    assert_eq!([call().await, call().await], [200, 409]);
    hand.fetch_add(3_600_001, Ordering::SeqCst);
    assert_eq!([call().await, call().await], [200, 409]);

    let manifest = "callers:\n  - {name: ann, key: key-of-ann-012345}\n  - {name: bob, key: key-of-bob-012345}\n";
    let app = TestApp::with_manifest(manifest, [counting_tool("t", &runs, &gate)]).await;
    let call = async |key: &str| {
        app.post_as(
            key,
            "/tools/t/invoke",
            json!({"arguments": {}, "run_id": "r"}),
        )
        .await
        .0
        .as_u16()
    };
    assert_eq!(
        [
            call("key-of-ann-012345").await,
            call("key-of-bob-012345").await
        ],
        [200, 200]
    );
    assert_eq!(
        [
            call("key-of-ann-012345").await,
            call("key-of-bob-012345").await
        ],
        [409, 409]
    );
}

#[tokio::test]
async fn context_reaches_the_tool_not_its_arguments() {
    let tool = Tool::new("t", "…")
        .param_opt("n", "integer", "…")
        .effect(Effect::Read)
        .call(|arguments, context: ToolContext| async move {
            Ok(json!({"arguments": arguments, "context": *context.context}))
        });
    let app = TestApp::new([tool]).await;
    let fingerprint = json!({"fingerprint": {"agent": "a-1", "task": "t-1"}, "n": 7});
    let body = json!({"arguments": {}, "run_id": "r", "context": fingerprint});
    let (_, answer) = app.post("/tools/t/invoke", body).await;
    assert_eq!(
        answer["structured_content"],
        json!({"arguments": {}, "context": fingerprint})
    );
    assert_eq!(app.newest_invocation().await["arguments"], json!({}));
}

#[tokio::test]
async fn read_passes_again_when_its_answer_is_old() {
    let runs = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let tool = |name: &str| counting_tool(name, &runs, &gate);
    let (app, clock) = TestApp::with_clock([
        tool("live"),
        tool("cached").cache(std::time::Duration::from_secs(5), &[]),
        tool("writes").effect(Effect::Write),
    ])
    .await;
    for (name, seconds) in [("live", 60), ("cached", 5)] {
        let call = async || {
            let body = json!({"arguments": {}, "run_id": name});
            app.post(&format!("/tools/{name}/invoke"), body).await.0
        };
        assert_eq!(call().await, 200);
        clock.fetch_add(seconds * 1000 - 1, Ordering::SeqCst);
        assert_eq!(call().await, 409, "{name}");
        clock.fetch_add(1, Ordering::SeqCst);
        assert_eq!(call().await, 200, "{name}");
        assert_eq!(call().await, 409, "the new answer is the last one");
    }
    let body = json!({"arguments": {}, "run_id": "w"});
    let write = async || app.post("/tools/writes/invoke", body.clone()).await.0;
    assert_eq!(write().await, 200);
    clock.fetch_add(30 * 60_000, Ordering::SeqCst);
    assert_eq!(write().await, 409, "a write does the same again");
}
