use std::sync::atomic::Ordering;

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
