//! `GET /metrics` while calls run and wait, and its page.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

fn read_tool(name: &str) -> Tool<()> {
    Tool::new(name, "…").effect(Effect::Read)
}

#[tokio::test]
async fn cached_running_and_queued_calls_are_counted() {
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (wait, enter) = (gate.clone(), entered.clone());
    let slow = move |tool: Tool<()>| {
        let (wait, enter) = (wait.clone(), enter.clone());
        tool.call(move |_, _| {
            let (wait, enter) = (wait.clone(), enter.clone());
            async move {
                enter.add_permits(1);
                wait.acquire()
                    .await
                    .map(|_| ())
                    .map_err(|error| error.to_string())?;
                Ok("done")
            }
        })
    };
    let cached = slow(
        read_tool("cached")
            .param("n", "integer", "…")
            .cache(Duration::from_secs(60), &[]),
    );
    let app = Arc::new(
        TestApp::with_manifest(
            "defaults: {concurrency: {max: 1, queue: 8, wait: 1m}}\ntools: {cached: {kind: native}}",
            [cached],
        )
        .await,
    );
    let call = |n: u32| {
        let app = app.clone();
        tokio::spawn(async move {
            app.invoke("cached", json!({"n": n})).await.1["meta"]["cache"].clone()
        })
    };
    let first = call(1);
    entered.acquire().await.unwrap().forget();
    // Two join the first, one waits for its permit.
    let others = [call(1), call(1), call(2)];
    let until = async |sample: &str| {
        for _ in 0..2000 {
            if app.samples(sample).await.len() == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("never {sample}: {:?}", app.samples("toolcrib_").await);
    };
    until("toolcrib_queued{tool=\"cached\"} 1").await;
    until("toolcrib_open_calls 4").await;
    until("toolcrib_in_flight{tool=\"cached\"} 1").await;
    gate.add_permits(10);
    assert_eq!(first.await.unwrap(), "miss");
    for (other, status) in others.into_iter().zip(["joined", "joined", "miss"]) {
        assert_eq!(other.await.unwrap(), status);
    }
    for _ in 0..5 {
        app.invoke("cached", json!({"n": 1})).await;
    }
    app.post(
        "/tools/cached/invoke",
        json!({"arguments": {"n": 1}, "cache": "refresh"}),
    )
    .await;
    app.post(
        "/tools/cached/invoke",
        json!({"arguments": {"n": 1}, "cache": "bypass"}),
    )
    .await;
    assert_eq!(
        app.samples("toolcrib_calls_total").await,
        [
            r#"toolcrib_calls_total{cache="bypass",outcome="ok",tool="cached"} 1"#,
            r#"toolcrib_calls_total{cache="hit",outcome="ok",tool="cached"} 5"#,
            r#"toolcrib_calls_total{cache="joined",outcome="ok",tool="cached"} 2"#,
            r#"toolcrib_calls_total{cache="miss",outcome="ok",tool="cached"} 2"#,
            r#"toolcrib_calls_total{cache="refresh",outcome="ok",tool="cached"} 1"#,
        ]
    );
    assert_eq!(
        app.samples("toolcrib_cache_entries").await,
        ["toolcrib_cache_entries 2"]
    );
    assert_eq!(
        app.samples("toolcrib_in_flight").await,
        ["toolcrib_in_flight{tool=\"cached\"} 0"]
    );
    assert_eq!(
        app.samples("toolcrib_queued").await,
        ["toolcrib_queued{tool=\"cached\"} 0"]
    );
}

#[tokio::test]
async fn metrics_page_lists_every_family() {
    let page = include_str!("../../docs/operate/metrics.md");
    let app = TestApp::new([read_tool("t").call(|_, _| async { Ok("yes") })]).await;
    app.invoke("t", json!({})).await;
    // The request before is counted by now.
    app.samples("").await;
    for line in app.samples("# TYPE toolcrib_").await {
        let family = line.split(' ').nth(2).unwrap();
        assert!(
            page.contains(&format!("`{family}`")),
            "the page lacks {family}"
        );
    }
}
