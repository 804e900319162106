//! The circuit breaker as callers and operators see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use toolcrib::{Effect, Tool, ToolError};

use crate::support::{TestApp, first_text};

/// A tool whose runner is unavailable while the switch is on.
fn flaky_tool(name: &str) -> (Tool, Arc<AtomicBool>) {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    let tool = Tool::new(name, "…").effect(Effect::Read).call(move |_, _| {
        let down = is_down.load(Ordering::SeqCst);
        async move {
            if down {
                Err(ToolError::upstream("nobody there"))
            } else {
                Ok("yes")
            }
        }
    });
    (tool, down)
}

async fn open_circuit(app: &TestApp, tool: &str) {
    for _ in 0..5 {
        assert_eq!(app.invoke(tool, json!({})).await.0, 502);
    }
}

#[tokio::test]
async fn open_circuit_answers_with_retry_after() {
    let app = TestApp::new([flaky_tool("t").0, flaky_tool("other").0]).await;
    assert_eq!(app.get("/tools/t").await.1["breaker"], "closed");
    open_circuit(&app, "t").await;
    let reply = app.invoke("t", json!({})).await;
    let problem = &reply.1;
    assert_eq!(
        (reply.0.as_u16(), &problem["kind"]),
        (503, &json!("tool_unavailable"))
    );
    assert_eq!(
        (&problem["retryable"], &problem["source"]),
        (&json!(true), &json!("tool"))
    );
    assert!(
        (1..=5000).contains(&problem["retry_after_ms"].as_u64().unwrap()),
        "{problem}"
    );
    assert!(first_text(&reply).contains("did not run"), "{problem}");
    let row = app.newest_invocation().await;
    assert_eq!(
        (&row["state"], &row["kind"], &row["attempts"]),
        (&json!("refused"), &problem["kind"], &json!(0))
    );
    assert_eq!(app.get("/tools/t").await.1["breaker"], "open");
    assert_eq!(
        app.invoke("other", json!({})).await.0,
        502,
        "another tool's breaker is its own"
    );
    assert_eq!(
        app.samples("toolcrib_circuit_breaker").await,
        [
            r#"toolcrib_circuit_breaker_openings_total{tool="other"} 0"#,
            r#"toolcrib_circuit_breaker_openings_total{tool="t"} 1"#,
            r#"toolcrib_circuit_breaker_state{tool="other"} 0"#,
            r#"toolcrib_circuit_breaker_state{tool="t"} 2"#,
        ]
    );
}

#[tokio::test]
async fn readyz_verbose_lists_breakers_and_stays_ready() {
    let app = TestApp::new([flaky_tool("t").0, flaky_tool("fine").0]).await;
    open_circuit(&app, "t").await;
    for asked in ["/readyz", "/readyz?verbose=false", "/readyz?probe=kubelet"] {
        assert_eq!(
            app.get(asked).await,
            (axum::http::StatusCode::OK, json!({"status": "ready"})),
            "{asked}"
        );
    }
    for asked in [
        "/readyz?verbose",
        "/readyz?verbose=true",
        "/readyz?verbose=1",
    ] {
        let (status, ready) = app.get(asked).await;
        assert_eq!(
            (status.as_u16(), &ready["status"], &ready["ledger"]),
            (200, &json!("ready"), &json!("up"))
        );
        let breakers = ready["breakers"].as_array().unwrap();
        assert_eq!(
            (breakers.len(), &breakers[0]["tool"], &breakers[0]["state"]),
            (1, &json!("t"), &json!("open"))
        );
        assert_eq!(breakers[0]["failures"], 5);
        assert!(
            breakers[0]["retry_after_ms"].as_u64().unwrap() <= 5000,
            "{ready}"
        );
    }
    assert_eq!(app.get("/readyz?verbose=much").await.0, 400);
}

#[tokio::test]
async fn readyz_verbose_needs_an_admin_key() {
    let manifest = "callers:\n  - {name: agent, key: agent-key-0123456789}\n  \
                    - {name: prometheus, key: scrape-key-0123456789, metrics: true, allow: []}\n  \
                    - {name: root, key: root-key-0123456789, admin: true}\n";
    let app = TestApp::with_manifest(manifest, [flaky_tool("t").0]).await;
    assert_eq!(app.get("/readyz").await.0, 200);
    assert_eq!(
        app.get_as("no-such-key", "/readyz").await.0,
        200,
        "a probe is never asked for a key"
    );
    assert_eq!(app.get("/readyz?verbose").await.0, 401);
    assert_eq!(app.get_as("no-such-key", "/readyz?verbose").await.0, 401);
    assert_eq!(
        app.get_as("agent-key-0123456789", "/readyz?verbose")
            .await
            .0,
        403
    );
    for key in ["scrape-key-0123456789", "root-key-0123456789"] {
        assert_eq!(
            app.get_as(key, "/readyz?verbose").await.1["breakers"],
            json!([])
        );
    }
}

#[tokio::test]
async fn reload_keeps_breaker_of_unchanged_tool() {
    let entry = |timeout: &str| {
        format!(
            "t: {{kind: http, description: \"…\", effect: read, timeout: {timeout}, request: {{url: \"http://127.0.0.1:9/\", allow_private: true}}}}"
        )
    };
    let caller = |name: &str| format!("{{name: {name}, key: {name}-key-0123456789, admin: true}}");
    let manifest =
        |tool: String, callers: &str| format!("callers: [{callers}]\ntools:\n  {tool}\n");
    let app = TestApp::with_manifest(&manifest(entry("5s"), &caller("ann")), []).await;
    let key = "ann-key-0123456789";
    for _ in 0..5 {
        assert_eq!(
            app.post_as(key, "/tools/t/invoke", json!({"arguments": {}}))
                .await
                .0,
            502
        );
    }
    let state = async || app.get_as(key, "/tools/t").await.1["breaker"].clone();
    assert_eq!(state().await, "open");
    // Other callers: another stack around the same tool.
    let both = format!("{}, {}", caller("ann"), caller("bob"));
    app.write("toolcrib.yaml", &manifest(entry("5s"), &both));
    assert_eq!((app.reload().await, state().await), (None, json!("open")));
    // Another tool, though of the same name.
    app.write("toolcrib.yaml", &manifest(entry("6s"), &both));
    assert_eq!((app.reload().await, state().await), (None, json!("closed")));
}

#[tokio::test]
async fn tool_with_variable_url_has_no_breaker() {
    let manifest = r#"
tools:
  fetch: {kind: native, use: http_get, with: {allow_private: true}}
  regional:
    kind: http
    description: "…"
    effect: read
    parameters: {region: {type: string, description: "…"}}
    request: {url: "http://{{ region }}:9/", allow_hosts: [127.0.0.1, 127.0.0.2], allow_private: true}
"#;
    let app = TestApp::with_manifest(manifest, []).await;
    for _ in 0..8 {
        assert_eq!(
            app.invoke("fetch", json!({"url": "http://127.0.0.1:9/"}))
                .await
                .0,
            502
        );
        assert_eq!(
            app.invoke("regional", json!({"region": "127.0.0.1"}))
                .await
                .0,
            502
        );
    }
    for tool in ["fetch", "regional"] {
        assert_eq!(
            app.get(&format!("/tools/{tool}")).await.1["breaker"],
            json!(null)
        );
    }
    assert_eq!(app.samples("toolcrib_circuit_breaker_state").await, [""; 0]);
}
