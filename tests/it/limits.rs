use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use toolcrib::{Effect, Limit, LimitScope, Per, Tool};

use crate::support::TestApp;

fn limited_tool(limits: &[(u64, Per, LimitScope)]) -> Tool {
    let tool = Tool::new("t", "…")
        .param_opt("n", "integer", "…")
        .effect(Effect::Read);
    let limits = limits.iter().map(|(calls, per, scope)| Limit {
        calls: *calls,
        per: *per,
        scope: *scope,
    });
    limits
        .fold(tool, Tool::limit)
        .call(|_, _| async { Ok("x") })
}

#[tokio::test]
async fn window_ends_on_time_and_never_returns() {
    let (app, hand) =
        TestApp::with_clock([limited_tool(&[(2, Per::Minute, LimitScope::Tool)])]).await;
    let call = async || app.invoke("t", json!({})).await;
    assert_eq!(call().await.1["meta"]["usage"][0]["remaining"], 1);
    assert_eq!(call().await.0, 200);
    let (status, problem) = call().await;
    assert_eq!(
        (
            status.as_u16(),
            &problem["retryable"],
            &problem["retry_after_ms"]
        ),
        (429, &json!(true), &json!(30_000))
    );
    hand.fetch_add(29_999, Ordering::SeqCst);
    assert_eq!(call().await.0, 429);
    hand.fetch_add(1, Ordering::SeqCst);
    assert_eq!(call().await.0, 200);
    // A clock that goes back frees no unit: the later window continues.
    hand.fetch_add(-3_600_000, Ordering::SeqCst);
    assert_eq!(
        (call().await.0.as_u16(), call().await.0.as_u16()),
        (200, 429)
    );
}

#[tokio::test]
async fn limit_holds_for_a_thousand_callers() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let tool = Tool::new("t", "…")
        .limit(Limit {
            calls: 100,
            per: Per::Lifetime,
            scope: LimitScope::Tool,
        })
        .concurrency(toolcrib::call::Concurrency {
            max: 1000,
            queue: 1000,
            wait: std::time::Duration::from_secs(60),
            per_caller: None,
        });
    let tool = tool.call(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok("x") }
    });
    let app = Arc::new(TestApp::with_manifest("server: {max_in_flight: 1000}\n", [tool]).await);
    let calls: Vec<_> = (0..1000)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { app.invoke("t", json!({})).await.0.as_u16() })
        })
        .collect();
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for call in calls {
        *statuses.entry(call.await.unwrap()).or_default() += 1;
    }
    assert_eq!(
        (statuses.get(&200), statuses.get(&429)),
        (Some(&100), Some(&900))
    );
    assert_eq!(runs.load(Ordering::SeqCst), 100);
}

#[tokio::test]
async fn scopes_and_runs_count_separately_until_reset() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, admin: true}\n  - {name: bob, key: key-of-bob, \
                    limits: [{calls: 3, per: lifetime}]}\n";
    let tool = limited_tool(&[
        (2, Per::Run, LimitScope::Tool),
        (4, Per::Lifetime, LimitScope::Caller),
    ])
    .repeatable();
    let app = TestApp::with_manifest(manifest, [tool]).await;
    let call = async |key: &str, run: Option<&str>| {
        app.post_as(
            key,
            "/tools/t/invoke",
            json!({"arguments": {}, "run_id": run}),
        )
        .await
        .0
        .as_u16()
    };
    // Two for each run; calls without one share the unnamed run.
    for (run, status) in [
        (Some("a"), 200),
        (Some("a"), 200),
        (Some("a"), 429),
        (None, 200),
        (None, 200),
        (None, 429),
    ] {
        assert_eq!(call("key-of-ann", run).await, status, "{run:?}");
    }
    // `GET /usage` leaves limits per run out, and each list names the owner of each limit.
    let owners = |limits: &serde_json::Value| -> Vec<serde_json::Value> {
        let limits = limits.as_array().unwrap().iter();
        limits
            .map(|limit| json!([limit["of"], limit["calls"], limit["used"]]))
            .collect()
    };
    let usage = app.get_as("key-of-ann", "/usage").await.1;
    assert_eq!(
        owners(&usage["tools"][0]["limits"]),
        [json!(["tool", 4, 4])]
    );
    assert_eq!(usage["callers"][0]["caller"], "bob");
    assert_eq!(
        owners(&usage["callers"][0]["limits"]),
        [json!(["caller", 3, 0])]
    );
    let usage = app.get_as("key-of-bob", "/tools/t").await.1["usage"].clone();
    assert_eq!(
        owners(&usage),
        [
            json!(["tool", 2, 0]),
            json!(["tool", 4, 0]),
            json!(["caller", 3, 0])
        ]
    );
    // Ann has used her four; Bob has his own four, but only three over all tools.
    assert_eq!(call("key-of-ann", Some("b")).await, 429);
    for (run, status) in [("a", 200), ("b", 200), ("c", 200), ("d", 429)] {
        assert_eq!(call("key-of-bob", Some(run)).await, status, "{run}");
    }
    let (_, problem) = app
        .post_as(
            "key-of-bob",
            "/tools/t/invoke",
            json!({"arguments": {}, "run_id": "e"}),
        )
        .await;
    assert_eq!(owners(&problem["usage"]), [json!(["caller", 3, 3])]);
    assert_eq!(
        problem["detail"],
        "the limit of 3 calls per lifetime of caller bob, over all tools, is reached"
    );
    assert_eq!(
        problem["content"][0]["text"],
        "Your limit of 3 calls per lifetime over all tools is reached. Continue without tools."
    );
    assert_eq!(
        app.post_as("key-of-bob", "/tools/t/usage/reset", json!({}))
            .await
            .0,
        403
    );
    assert_eq!(
        app.post_as("key-of-ann", "/tools/t/usage/reset?caller=ann", json!({}))
            .await
            .0,
        200
    );
    assert_eq!(call("key-of-ann", Some("e")).await, 200);
    assert_eq!(call("key-of-bob", Some("e")).await, 429);
}

#[tokio::test]
async fn refused_calls_cost_nothing() {
    let app = TestApp::new([limited_tool(&[(1, Per::Lifetime, LimitScope::Tool)])]).await;
    assert_eq!(app.invoke("t", json!({"n": "many"})).await.0, 422);
    assert_eq!(app.invoke("t", json!({"x": 1})).await.0, 422);
    assert_eq!(app.get("/tools/t").await.1["usage"][0]["used"], 0);
    assert_eq!(app.invoke("t", json!({})).await.0, 200);
    let usage = app.get("/usage").await.1;
    assert_eq!(
        (&usage["tools"][0]["calls"], &usage["tools"][0]["refused"]),
        (&json!(3), &json!(2))
    );
}

#[tokio::test]
async fn unit_is_charged_and_refunded_once() {
    let limits = [
        (5, Per::Day, LimitScope::Caller),
        (9, Per::Day, LimitScope::Caller),
        (7, Per::Run, LimitScope::Tool),
    ];
    let app = TestApp::new([limited_tool(&limits)]).await;
    for _ in 0..3 {
        let (status, _) = app
            .post(
                "/tools/t/invoke",
                json!({"arguments": {}, "timeout": "1ns"}),
            )
            .await;
        assert_eq!(status, 504);
        assert_eq!(app.invoke("t", json!({})).await.0, 200);
    }
    let usage = app.get("/tools/t").await.1["usage"].clone();
    let used: Vec<_> = usage
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["limit"], &one["used"]))
        .collect();
    assert_eq!(used, [(&json!(5), &json!(3)), (&json!(7), &json!(3))]);
}
