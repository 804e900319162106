use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

const CALLERS: &str = "callers:\n  - {name: ann, key: key-of-ann-000000, admin: true}\n  \
                       - {name: prom, key: key-of-prom-00000, allow: []}\n";

fn echo_tool(name: &str) -> Tool {
    let tool = Tool::new(name, "…")
        .param_opt("text", "string", "…")
        .param_opt("pin", "string", "…");
    tool.effect(Effect::Read)
        .call(|arguments, _| async move { Ok(arguments) })
}

async fn invoke_as(app: &TestApp, key: &str, tool: &str, arguments: &Value) -> (u16, Value) {
    let (status, answer) = app
        .post_as(
            key,
            &format!("/tools/{tool}/invoke"),
            json!({"arguments": arguments}),
        )
        .await;
    (status.as_u16(), answer)
}

/// The newest call of the ledger, as its admin sees it.
async fn newest_row(app: &TestApp) -> Value {
    let (_, page) = app
        .get_as("key-of-ann-000000", "/invocations?limit=1")
        .await;
    let id = page["invocations"][0]["invocation_id"]
        .as_str()
        .unwrap()
        .to_owned();
    app.get_as("key-of-ann-000000", &format!("/invocations/{id}"))
        .await
        .1
}

#[tokio::test]
async fn refused_call_keeps_its_beginning() {
    let app = TestApp::with_manifest(CALLERS, [echo_tool("echo")]).await;
    let long = json!({"text": "☃".repeat(300_000)});
    assert_eq!(
        invoke_as(&app, "key-of-prom-00000", "echo", &long).await.0,
        403
    );
    app.registry().shared().ledger.flush().await.unwrap();
    let row = newest_row(&app).await;
    assert_eq!(
        (&row["state"], &row["arguments"], &row["arguments_digest"]),
        (&json!("refused"), &Value::Null, &Value::Null)
    );
    let (truncated, text) = (&row["arguments_truncated"], long.to_string());
    assert_eq!(truncated["bytes"], text.len());
    assert_eq!(
        truncated["sha256"],
        hex::encode(Sha256::digest(text.as_bytes()))
    );
    let beginning = truncated["beginning"].as_str().unwrap();
    assert!(
        text.starts_with(beginning) && (1020..=1024).contains(&beginning.len()),
        "{beginning}"
    );
    let (_, list) = app.get_as("key-of-ann-000000", "/invocations").await;
    assert_eq!(list["invocations"][0]["arguments_truncated"], *truncated);

    // What is short stays, and so does what ran.
    let short = json!({"text": "x".repeat(1000)});
    assert_eq!(
        invoke_as(&app, "key-of-prom-00000", "echo", &short).await.0,
        403
    );
    let row = newest_row(&app).await;
    assert_eq!(
        (
            &row["arguments"],
            &row["arguments_truncated"],
            &row["count"]
        ),
        (&short, &Value::Null, &json!(1))
    );
    assert_eq!(
        invoke_as(&app, "key-of-ann-000000", "echo", &long).await.0,
        200
    );
    assert_eq!(newest_row(&app).await["arguments"], long);
}

#[tokio::test]
async fn refusal_rows_are_short_for_every_reason() {
    let manifest = "tools: {limited: {kind: command, description: Limited., command: [/bin/true], effect: read, \
                    parameters: {text: {type: string, description: A text.}}, limits: [{calls: 0, per: day}]}}\n";
    let app = TestApp::with_manifest(manifest, [echo_tool("echo")]).await;
    let long = "9".repeat(200_000);
    let unknown: Value = (0..60)
        .map(|at| (format!("{at}{long}"), json!(1)))
        .take(4)
        .collect::<serde_json::Map<_, _>>()
        .into();
    for (tool, arguments, kind) in [
        ("limited", json!({"text": long}), "usage_limit_reached"),
        ("echo", json!({"text": [long.clone()]}), "invalid_arguments"),
        ("echo", unknown, "invalid_arguments"),
    ] {
        let (_, problem) = app.invoke(tool, arguments).await;
        assert_eq!(problem["kind"], kind, "{problem:.200}");
        let row = app.newest_invocation().await;
        assert!(row["arguments_truncated"]["bytes"].as_u64().unwrap() > 200_000);
        assert!(
            row.to_string().len() < 12 << 10,
            "{kind}: {} bytes",
            row.to_string().len()
        );
        assert_eq!(
            (&row["result"]["kind"], &row["result"]["status"]),
            (&json!(kind), &problem["status"])
        );
    }
}

#[tokio::test]
async fn recorded_beginning_contains_no_secret() {
    let secret = echo_tool("secret").input_schema(json!({"type": "object", "properties": {
        "pin": {"type": "string", "writeOnly": true}, "text": {"type": "string"}}}));
    let manifest = format!("{CALLERS}tools: {{calculator: {{kind: native, capture: digest}}}}\n");
    let app = TestApp::with_manifest(&manifest, [secret]).await;
    let arguments = json!({"pin": "hunter2-hunter2", "text": "x".repeat(5000)});
    assert_eq!(
        invoke_as(&app, "key-of-prom-00000", "secret", &arguments)
            .await
            .0,
        403
    );
    let row = newest_row(&app).await;
    assert!(!row.to_string().contains("hunter2"), "{row}");
    let hidden = json!({"pin": "[redacted]", "text": "x".repeat(5000)}).to_string();
    assert_eq!(
        row["arguments_truncated"]["sha256"],
        hex::encode(Sha256::digest(hidden.as_bytes()))
    );
    // With digest capture there is no beginning.
    let arguments = json!({"expression": "hunter2+".repeat(1000)});
    assert_eq!(
        invoke_as(&app, "key-of-prom-00000", "calculator", &arguments)
            .await
            .0,
        403
    );
    let row = newest_row(&app).await;
    assert!(!row.to_string().contains("hunter2"), "{row}");
    assert_eq!(row["arguments_truncated"], Value::Null);
    assert_eq!(
        row["arguments_digest"]["bytes"],
        arguments.to_string().len()
    );
}

#[tokio::test]
async fn refusals_of_one_second_share_a_row() {
    let (app, hand) = TestApp::with_clock([echo_tool("echo")]).await;
    let mut ids = Vec::new();
    for _ in 0..250 {
        let (status, problem) = app.invoke("echo", json!({"text": 1.5})).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (422, &json!("invalid_arguments"))
        );
        ids.push(problem["invocation_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        ids.iter().collect::<std::collections::HashSet<_>>().len(),
        250,
        "each answer has an id of its own"
    );
    app.registry().shared().ledger.flush().await.unwrap();
    let (_, page) = app.get("/invocations?state=refused&limit=500").await;
    let rows = page["invocations"].as_array().unwrap();
    assert_eq!(
        (rows.len(), &rows[0]["count"], &rows[1]["count"]),
        (101, &json!(150), &json!(1))
    );
    assert_eq!(rows[0]["invocation_id"], *ids[100]);
    let usage = app.get("/usage").await.1["tools"][0].clone();
    assert_eq!(
        (&usage["calls"], &usage["refused"]),
        (&json!(250), &json!(250))
    );
    let counts = app.samples("toolcrib_calls_total").await;
    assert!(
        counts
            .iter()
            .any(|line| line.contains("invalid_arguments") && line.ends_with(" 250")),
        "{counts:?}"
    );
    // A call that shares a row has none of its own, and the answer explains it.
    assert_eq!(
        app.get(&format!("/invocations/{}", ids[100])).await.1["count"],
        150
    );
    let (status, problem) = app.get(&format!("/invocations/{}", ids[200])).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (404, &json!("invalid_request"))
    );
    assert!(
        problem["detail"].as_str().unwrap().contains(&ids[100]),
        "{problem}"
    );
    // A second later a call has its own row again.
    hand.fetch_add(1000, std::sync::atomic::Ordering::SeqCst);
    app.invoke("echo", json!({"text": 1.5})).await;
    assert_eq!(app.newest_invocation().await["count"], 1);
}

#[tokio::test]
async fn missing_call_is_not_found() {
    let app = TestApp::new([echo_tool("echo")]).await;
    app.invoke("echo", json!({"text": 1.5})).await;
    for id in [
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        "x",
    ] {
        let (status, problem) = app.get(&format!("/invocations/{id}")).await;
        assert_eq!(
            (status.as_u16(), &problem["detail"]),
            (404, &json!("there is no such invocation")),
            "{id}"
        );
    }
}
