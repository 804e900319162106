use std::time::Duration;

use serde_json::{Value, json};
use toolcrib::{Capture, Effect, Tool, ToolError};

use crate::support::TestApp;

/// Nothing that only the caller and the tool may know.
fn assert_no_secret(shown: &Value) {
    assert!(!shown.to_string().contains("Ann"), "{shown}");
}

/// Tools that get a name and repeat it in every way.
fn tools() -> Vec<Tool> {
    let tool = |name: &str| {
        Tool::new(name, "…")
            .param("name", "string", "Of a person")
            .param_opt("n", "integer", "…")
            .effect(Effect::Read)
    };
    vec![
        tool("says").call(|arguments, _| async move { Ok(arguments) }),
        tool("cached")
            .cache(Duration::from_secs(60), &[])
            .call(|arguments, _| async move { Ok(arguments) }),
        tool("fails").attempts(2).call(|arguments, _| async move {
            Err::<String, _>(ToolError::upstream(format!("no {}", arguments["name"])))
        }),
        tool("panics").call(|arguments, _| async move {
            if arguments["name"] != "x" {
                panic!("at {}", arguments["name"])
            } else {
                Ok("")
            }
        }),
        tool("waits")
            .call(|_, _| async { std::future::pending::<Result<String, ToolError>>().await }),
        tool("open")
            .capture(Capture::Full)
            .call(|arguments, _| async move { Ok(arguments) }),
    ]
}

const DIGESTS: &str = "ledger: {capture: digest}\n";

#[tokio::test]
async fn digest_ledger_reveals_only_equality() {
    let app = TestApp::with_manifest(DIGESTS, tools()).await;
    let mut rows = Vec::new();
    for (name, n) in [("Ann", 1), ("Ann", 1), ("Ann", 2)] {
        let (_, answer) = app.invoke("says", json!({"name": name, "n": n})).await;
        assert_eq!(answer["structured_content"], json!({"name": name, "n": n}));
        rows.push(app.newest_invocation().await);
    }
    rows.iter().for_each(assert_no_secret);
    for row in &rows {
        assert_eq!(
            (&row["state"], &row["arguments"], &row["result"]),
            (&json!("succeeded"), &Value::Null, &Value::Null)
        );
        assert_eq!(
            row["arguments_digest"]["bytes"],
            r#"{"n":1,"name":"Ann"}"#.len()
        );
        assert_eq!(
            row["arguments_digest"]["hmac_sha256"]
                .as_str()
                .unwrap()
                .len(),
            64
        );
    }
    for field in ["arguments_digest", "result_digest"] {
        assert_eq!(rows[0][field], rows[1][field]);
        assert_ne!(rows[0][field], rows[2][field]);
    }
    // Another process has another key: a comparison reveals nothing.
    let other = TestApp::with_manifest(DIGESTS, tools()).await;
    other.invoke("says", json!({"name": "Ann", "n": 1})).await;
    assert_ne!(
        other.newest_invocation().await["arguments_digest"],
        rows[0]["arguments_digest"]
    );
    // A tool's own word wins.
    app.invoke("open", json!({"name": "Ann"})).await;
    let row = app.newest_invocation().await;
    assert_eq!(
        (&row["arguments"]["name"], &row["arguments_digest"]),
        (&json!("Ann"), &Value::Null)
    );
    assert_eq!(
        app.get("/tools/says").await.1["policy"]["capture"],
        "digest"
    );
    assert_eq!(app.get("/tools/open").await.1["policy"]["capture"], "full");
}

#[tokio::test]
async fn failures_keep_their_kind_without_text() {
    let app = TestApp::with_manifest(DIGESTS, tools()).await;
    let (status, problem) = app.invoke("fails", json!({"name": "Ann"})).await;
    assert!(
        status == 502 && problem["detail"].as_str().unwrap().contains("Ann"),
        "the caller hears all of it"
    );
    let row = app.newest_invocation().await;
    assert_no_secret(&row);
    assert_eq!(
        (&row["state"], &row["kind"]),
        (&json!("failed"), &json!("upstream_failed"))
    );
    assert_eq!(
        (&row["result"]["kind"], &row["result"]["status"]),
        (&json!("upstream_failed"), &json!(502))
    );
    assert_eq!(row["result"]["retryable"], true);
    assert!(row["result_digest"]["bytes"].as_u64().unwrap() > 0);
    let tries = row["attempt_errors"].as_array().unwrap();
    assert_eq!(
        (tries.len(), &tries[1]["kind"]),
        (2, &json!("upstream_failed"))
    );

    let (status, problem) = app
        .invoke("says", json!({"name": "Ann", "n": "Ann", "Anna": 1}))
        .await;
    assert!(status == 422 && problem["violations"].as_array().unwrap().len() == 2);
    let row = app.newest_invocation().await;
    assert_no_secret(&row);
    assert_eq!(
        (&row["state"], &row["result"]["status"]),
        (&json!("refused"), &json!(422))
    );

    app.invoke("panics", json!({"name": "Ann"})).await;
    let row = app.newest_invocation().await;
    assert_no_secret(&row);
    assert_eq!(
        (&row["state"], &row["kind"], &row["result"]),
        (&json!("failed"), &Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn running_and_cached_calls_show_digests() {
    let app = std::sync::Arc::new(TestApp::with_manifest(DIGESTS, tools()).await);
    let mut digests = Vec::new();
    for cache in ["miss", "hit"] {
        let (_, answer) = app.invoke("cached", json!({"name": "Ann"})).await;
        assert_eq!(
            (
                &answer["meta"]["cache"],
                &answer["structured_content"]["name"]
            ),
            (&json!(cache), &json!("Ann"))
        );
        let row = app.newest_invocation().await;
        assert_no_secret(&row);
        digests.push(row["result_digest"].clone());
    }
    assert!(digests[0] == digests[1] && digests[0].is_object());
    // What is in the ledger is all of it.
    app.registry().shared().ledger.flush().await.unwrap();
    let purged = app
        .send(crate::support::request("DELETE", "/cache", None, None))
        .await
        .1;
    assert_eq!(purged["purged"], 0, "the result was in memory only");

    let waiting = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("waits", json!({"name": "Ann"})).await }
    });
    let row = app.wait_for_newest_state("running").await;
    assert_no_secret(&row);
    assert!(row["arguments_digest"].is_object() && row["result"].is_null());
    assert_no_secret(&app.get("/invocations").await.1);
    waiting.abort();
}

#[tokio::test]
async fn digest_key_makes_verifiable_digests() {
    let manifest = "ledger: {capture: digest, digest_key: kept-somewhere-else}\n";
    let app = TestApp::with_manifest(manifest, tools()).await;
    app.invoke("says", json!({"n": 1, "name": "Ann"})).await;
    // printf '%s' '{"n":1,"name":"Ann"}' | openssl dgst -sha256 -hmac kept-somewhere-else
    let digest = app.newest_invocation().await["arguments_digest"].clone();
    assert_eq!(
        digest,
        json!({"hmac_sha256": "b7e4cabda2cb61e7b2e442d19c6695b6e48a9980325133cf972621acbea0ce9d", "bytes": 20})
    );
}

#[tokio::test]
async fn write_only_data_is_never_stored() {
    let login = Tool::new("login", "…")
        .input_schema(json!({"type": "object", "properties": {
            "user": {"type": "integer", "minimum": 1},
            "pin": {"type": "integer", "minimum": 100_000, "writeOnly": true},
            "code": {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "null"}], "writeOnly": true}}}))
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[])
        .call(|_, _| async { Ok("in") });
    let app = TestApp::new([login]).await;
    for pin in [json!(4711), json!("4711")] {
        let (status, problem) = app
            .invoke("login", json!({"user": -7, "pin": pin, "code": 9321}))
            .await;
        assert_eq!(
            (
                status.as_u16(),
                problem["violations"].as_array().unwrap().len()
            ),
            (422, 3)
        );
        let row = app.newest_invocation().await;
        for shown in [&problem, &row] {
            let shown = shown.to_string();
            assert!(
                shown.contains("must be at least 1, not -7"),
                "others are quoted: {shown}"
            );
            assert!(
                !shown.contains("4711") && !shown.contains("9321"),
                "{shown}"
            );
        }
    }
    for cache in ["miss", "hit"] {
        let (_, answer) = app.invoke("login", json!({"pin": "123456"})).await;
        assert_eq!(answer["meta"]["cache"], cache);
        assert_eq!(
            answer["meta"]["coercions"][0],
            json!({"pointer": "/pin", "from": "string", "to": "integer"})
        );
        assert!(!app.newest_invocation().await.to_string().contains("123456"));
    }
    let purged = app
        .send(crate::support::request("DELETE", "/cache", None, None))
        .await
        .1;
    assert_eq!(
        purged["purged"], 0,
        "a hash of a short secret, as the key of a stored result, would give it away"
    );
}
