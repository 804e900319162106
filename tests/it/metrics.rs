//! `GET /metrics` after traffic that is known to the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::sync::Semaphore;
use toolcrib::{Effect, Limit, LimitScope, Per, Tool, ToolError};

use crate::support::{TestApp, request};

fn read_tool(name: &str) -> Tool<()> {
    Tool::new(name, "…").effect(Effect::Read)
}

/// Fails twice in a row, answers once, and so on.
fn flaky_tool() -> Tool {
    let tries = AtomicU32::new(0);
    read_tool("flaky").attempts(3).call(move |_, _| {
        let fails = tries.fetch_add(1, Ordering::SeqCst) % 3 != 2;
        async move {
            if fails {
                Err(ToolError::upstream("not now"))
            } else {
                Ok("yes")
            }
        }
    })
}

#[tokio::test]
async fn calls_are_counted_by_outcome_and_cache() {
    let limit = Limit {
        calls: 2,
        per: Per::Day,
        scope: LimitScope::Tool,
    };
    let app = TestApp::new([
        read_tool("yes")
            .param("n", "integer", "…")
            .call(|_, _| async { Ok("yes") }),
        read_tool("no").call(|_, _| async { Err::<String, _>("no".into()) }),
        read_tool("down")
            .call(|_, _| async { Err::<String, _>(ToolError::upstream_permanent("down")) }),
        read_tool("limited")
            .limit(limit)
            .call(|_, _| async { Ok("yes") }),
        flaky_tool(),
    ])
    .await;
    for n in 0..3 {
        assert_eq!(app.invoke("yes", json!({"n": n})).await.0, StatusCode::OK);
        app.invoke("yes", json!({"n": "three"})).await;
        app.invoke("no", json!({})).await;
        app.invoke("down", json!({})).await;
        app.invoke("limited", json!({})).await;
    }
    assert_eq!(
        app.invoke("flaky", json!({})).await.1["meta"]["attempts"],
        3
    );
    app.post("/tools/yes/disable", json!({})).await;
    app.invoke("yes", json!({"n": 1})).await;
    assert_eq!(
        app.samples("toolcrib_calls_total").await,
        [
            r#"toolcrib_calls_total{cache="off",outcome="invalid_arguments",tool="yes"} 3"#,
            r#"toolcrib_calls_total{cache="off",outcome="ok",tool="down"} 0"#,
            r#"toolcrib_calls_total{cache="off",outcome="ok",tool="flaky"} 1"#,
            r#"toolcrib_calls_total{cache="off",outcome="ok",tool="limited"} 2"#,
            r#"toolcrib_calls_total{cache="off",outcome="ok",tool="no"} 0"#,
            r#"toolcrib_calls_total{cache="off",outcome="ok",tool="yes"} 3"#,
            r#"toolcrib_calls_total{cache="off",outcome="tool_disabled",tool="yes"} 1"#,
            r#"toolcrib_calls_total{cache="off",outcome="tool_error",tool="no"} 3"#,
            r#"toolcrib_calls_total{cache="off",outcome="upstream_failed",tool="down"} 3"#,
            r#"toolcrib_calls_total{cache="off",outcome="usage_limit_reached",tool="limited"} 1"#,
        ]
    );
    let of = |tool: &str| format!("{{tool=\"{tool}\"}}");
    let retries = app.samples("toolcrib_retries_total").await;
    assert!(
        retries.contains(&format!("toolcrib_retries_total{} 2", of("flaky"))),
        "{retries:?}"
    );
    assert!(
        retries.contains(&format!("toolcrib_retries_total{} 0", of("down"))),
        "{retries:?}"
    );
    // Refused calls have no duration worth counting.
    let counts = app.samples("toolcrib_call_duration_seconds_count").await;
    for (tool, count) in [
        ("yes", 3),
        ("no", 3),
        ("down", 3),
        ("limited", 2),
        ("flaky", 1),
    ] {
        assert!(
            counts.contains(&format!(
                "toolcrib_call_duration_seconds_count{} {count}",
                of(tool)
            )),
            "{counts:?}"
        );
    }
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
async fn unknown_names_never_become_labels() {
    let app = TestApp::new([read_tool("known").call(|_, _| async { Ok("yes") })]).await;
    app.invoke("known", json!({})).await;
    let before = app.samples("toolcrib_").await.len();
    for n in 0..1000 {
        app.invoke(&format!("made_up_{n}"), json!({})).await;
        app.get(&format!("/made/up/{n}")).await;
        app.post(
            "/tools/known/invoke",
            json!({"arguments": {}, "run_id": format!("made_up_{n}")}),
        )
        .await;
    }
    let after = app.samples("toolcrib_").await;
    assert!(
        !after.iter().any(|sample| sample.contains("made")),
        "{after:?}"
    );
    let requests: Vec<_> = after
        .iter()
        .filter(|sample| sample.starts_with("toolcrib_http_requests_total"))
        .collect();
    assert_eq!(
        requests,
        [
            r#"toolcrib_http_requests_total{route="/metrics",status="200"} 1"#,
            r#"toolcrib_http_requests_total{route="/tools/{name}/invoke",status="200"} 1001"#,
            r#"toolcrib_http_requests_total{route="/tools/{name}/invoke",status="404"} 1000"#,
            r#"toolcrib_http_requests_total{route="none",status="404"} 1000"#,
        ]
    );
    // Three kinds of request more, and not one series for a name.
    assert_eq!(after.len(), before + 3);
}

#[tokio::test]
async fn metrics_need_a_key_unlike_health() {
    let manifest = "callers:\n  - {name: agent, key: agent-key-0123456789}\n  \
                    - {name: prometheus, key: scrape-key-0123456789, metrics: true, allow: []}\n";
    let app =
        TestApp::with_manifest(manifest, [read_tool("t").call(|_, _| async { Ok("yes") })]).await;
    let status = async |key| {
        app.respond(request("GET", "/metrics", key, None))
            .await
            .status()
    };
    assert_eq!(status(None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(
        status(Some("agent-key-0123456789")).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(status(Some("scrape-key-0123456789")).await, StatusCode::OK);
    // As docs/operate/metrics.md advises: a key that reads metrics and runs nothing.
    let (refused, _) = app
        .post_as(
            "scrape-key-0123456789",
            "/tools/t/invoke",
            json!({"arguments": {}}),
        )
        .await;
    assert_eq!(refused, StatusCode::FORBIDDEN);
    let (refused, _) = app
        .post_as("scrape-key-0123456789", "/tools/t/disable", json!({}))
        .await;
    assert_eq!(refused, StatusCode::FORBIDDEN);
    for probe in ["/livez", "/readyz"] {
        assert_eq!(app.get(probe).await.0, StatusCode::OK);
    }
    let response = app
        .respond(request(
            "GET",
            "/metrics",
            Some("scrape-key-0123456789"),
            None,
        ))
        .await;
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; version=0.0.4"
    );
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let refused = r#"toolcrib_calls_total{cache="off",outcome="forbidden",tool="t"} 1"#;
    assert!(text.contains(refused), "{text}");
    for caller in ["agent", "scrape-key"] {
        assert!(!text.contains(caller), "callers are no labels");
    }
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
