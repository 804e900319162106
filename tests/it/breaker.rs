//! The circuit breaker as callers and operators see it.

use serde_json::json;

use crate::support::TestApp;

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
