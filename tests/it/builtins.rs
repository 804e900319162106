//! Built-in tools that need a service around them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::TestApp;

/// `time` returns another answer each second, so a repeated answer was stored.
const CACHED: &str = r#"
tools:
  read_cache: {kind: native}
  word:
    kind: command
    description: Answers with what it is given and a number that no two answers share.
    parameters:
      word: {type: string, description: A word}
      times: {type: integer, default: 1, description: How often}
    command: [/bin/sh, -c, "cat; date +%N"]
    effect: read
    aliases: [words]
    cache: {ttl: 60s, context: [tenant]}
"#;

async fn invoke_ok(app: &TestApp, tool: &str, arguments: Value) -> Value {
    let (status, answer) = app.invoke(tool, arguments).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The answer of `read_cache`: the stored content, or the reason why there is none.
async fn read_stored(app: &TestApp, what: &str) -> Result<Value, String> {
    let answer = invoke_ok(app, "read_cache", json!({"key": what})).await;
    match answer["is_error"] {
        Value::Bool(false) => Ok(answer["content"].clone()),
        _ => Err(answer["content"][0]["text"].as_str().unwrap().to_owned()),
    }
}

#[tokio::test]
async fn stored_results_expire() {
    let native = toolcrib::Tool::new("now", "…")
        .effect(toolcrib::Effect::Read)
        .cache(std::time::Duration::from_secs(60), &[])
        .call(|_, _| async { Ok("tick") });
    let reader = toolcrib::kinds::builtin::build(
        "read_cache",
        "read_cache",
        &serde_json::Map::new(),
        std::path::Path::new(""),
        &toolcrib::kinds::HttpClients::default(),
    );
    let (app, hand) = TestApp::with_clock([native, reader.unwrap().unwrap()]).await;
    app.invoke("now", json!({})).await;
    assert_eq!(
        read_stored(&app, "tool:now|input:").await,
        Ok(json!([{"type": "text", "text": "tick"}]))
    );
    hand.fetch_add(59_999, Ordering::SeqCst);
    assert!(read_stored(&app, "tool:now|input:{}").await.is_ok());
    hand.fetch_add(1, Ordering::SeqCst);
    assert!(
        read_stored(&app, "tool:now|input:")
            .await
            .unwrap_err()
            .starts_with("nothing is stored")
    );
}

#[tokio::test]
async fn digest_results_need_an_unrecorded_reader() {
    let manifest = CACHED.replace(
        "    effect: read\n",
        "    effect: read\n    capture: digest\n",
    ) + "  quiet: {kind: native, use: read_cache, capture: digest, cache: {ttl: 60s, scope: shared, context: []}}\n";
    let app = TestApp::with_manifest(&manifest, []).await;
    let first = invoke_ok(&app, "word", json!({"word": "a"})).await["content"].clone();
    let key = "tool:word|input:word=a";
    assert!(
        read_stored(&app, key)
            .await
            .unwrap_err()
            .contains("not kept in the ledger")
    );
    // A tool whose own results are not recorded may return it.
    let quiet = invoke_ok(&app, "quiet", json!({"key": key})).await;
    assert_eq!(
        (&quiet["content"], &quiet["meta"]["cache"]),
        (&first, &json!("off"))
    );
    assert_eq!(app.newest_invocation().await["result"], Value::Null);
}
