use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use toolcrib::call::{Content, OutputCheckMode};
use toolcrib::{Capture, Effect, Tool, ToolError, ToolResult};

use crate::support::{TestApp, first_text, request};

fn rows_json(n: u64) -> Value {
    (0..n)
        .map(|id| json!({"id": id, "name": format!("row {id}")}))
        .collect()
}

/// A tool that lists `n` rows, counts its runs, and fails from the second run on, if it may not run
/// again.
fn listing_tool(tool: Tool<()>, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    tool.param("n", "integer", "How many").call(move |arguments, _| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!({"rows": rows_json(arguments["n"].as_u64().unwrap_or_default()), "source": "a table"})) }
    })
}

fn cached_listing(runs: &Arc<AtomicUsize>) -> Tool {
    listing_tool(
        Tool::new("cached", "…")
            .effect(Effect::Read)
            .cache(Duration::from_secs(60), &[]),
        runs,
    )
}

fn uncached_listing(runs: &Arc<AtomicUsize>) -> Tool {
    listing_tool(Tool::new("plain", "…").effect(Effect::Read), runs)
}

async fn invoke_page(app: &TestApp, tool: &str, n: u64, page: Value) -> (StatusCode, Value) {
    app.post(
        &format!("/tools/{tool}/invoke"),
        json!({"arguments": {"n": n}, "page": page}),
    )
    .await
}

fn full_page(offset: usize) -> Value {
    json!({"detail": "full", "offset": offset})
}

/// `shown`, `total` and `next_offset` of an answer.
fn overflow_counts(answer: &Value) -> Value {
    let overflow = &answer["meta"]["overflow"];
    json!([
        overflow["shown"],
        overflow["total"],
        overflow["next_offset"]
    ])
}

#[tokio::test]
async fn exploring_caps_a_list_and_records_all() {
    let runs = Arc::default();
    let unstored = Tool::new("unstored", "…").capture(Capture::Digest);
    let app = TestApp::new([
        cached_listing(&runs),
        uncached_listing(&runs),
        listing_tool(unstored, &runs),
    ])
    .await;
    let (_, answer) = invoke_page(&app, "unstored", 60, full_page(0)).await;
    let hint = &answer["meta"]["overflow"]["hint"];
    assert_eq!(
        (overflow_counts(&answer), hint),
        (
            json!([50, 60, 50]),
            &json!("The rest is not kept: ask for less at once.")
        )
    );
    let (_, answer) = app.invoke("plain", json!({"n": 300})).await;
    assert_eq!(
        (
            overflow_counts(&answer),
            &answer["meta"]["overflow"]["unit"]
        ),
        (json!([200, 300, null]), &json!("items"))
    );
    let id = answer["invocation_id"].as_str().unwrap();
    let hint = answer["meta"]["overflow"]["hint"].as_str().unwrap();
    assert!(
        hint.contains(&format!("GET /invocations/{id}/result")) && !hint.contains("page"),
        "{hint}"
    );
    let record = app.newest_invocation().await["result"].clone();
    assert_eq!(
        (
            &record["structured_content"]["rows"],
            &record["meta"]["overflow"]
        ),
        (&rows_json(300), &Value::Null)
    );
    let (_, answer) = invoke_page(&app, "cached", 300, json!({"limit": 7})).await;
    assert_eq!(overflow_counts(&answer), json!([7, 300, null]));
    assert!(
        answer["meta"]["overflow"]["hint"]
            .as_str()
            .unwrap()
            .contains("\"page\": {\"detail\": \"full\"}")
    );
    for full in [
        app.invoke("cached", json!({"n": 200})).await,
        invoke_page(&app, "cached", 50, full_page(0)).await,
    ] {
        assert_eq!(full.1["meta"]["overflow"], Value::Null);
    }
}

#[tokio::test]
async fn keyed_result_can_be_paged_and_replayed() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool(Tool::new("pay", "…"), &runs)]).await;
    let keyed = async |app: &TestApp, page: Value| {
        let body = json!({"arguments": {"n": 120}, "page": page});
        let mut request = request("POST", "/tools/pay/invoke", None, Some(body));
        request
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        let response = app.respond(request).await;
        (
            response.status().as_u16(),
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    };
    assert_eq!(keyed(&app, full_page(50)).await.0, 409, "it claims no key");
    let first = keyed(&app, full_page(0)).await;
    let answer: Value = serde_json::from_slice(&first.1).unwrap();
    assert_eq!(overflow_counts(&answer), json!([50, 120, 50]));
    assert!(
        answer["meta"]["overflow"]["hint"]
            .as_str()
            .unwrap()
            .contains("with its Idempotency-Key")
    );
    assert_eq!(keyed(&app, full_page(0)).await, first);
    let app = app
        .restart([listing_tool(Tool::new("pay", "…"), &runs)])
        .await;
    assert_eq!(keyed(&app, full_page(0)).await, first);
    let last: Value = serde_json::from_slice(&keyed(&app, full_page(100)).await.1).unwrap();
    assert_eq!(
        (
            overflow_counts(&last),
            &last["structured_content"]["rows"][0]["id"]
        ),
        (json!([20, 120, null]), &json!(100))
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn list_with_min_items_is_not_cut() {
    let schema = |least: u64| json!({"type": "object", "properties": {"rows": {"type": "array", "minItems": least}}});
    let (runs, app) = (Arc::default(), |tool| TestApp::new([tool]));
    let tool = |least| {
        listing_tool(
            Tool::new("plain", "…")
                .effect(Effect::Read)
                .output_schema(schema(least))
                .output_check(OutputCheckMode::Warn),
            &runs,
        )
    };
    let (_, answer) = app(tool(210))
        .await
        .invoke("plain", json!({"n": 300}))
        .await;
    assert_eq!(
        (
            &answer["meta"]["overflow"],
            &answer["structured_content"]["rows"]
        ),
        (&Value::Null, &rows_json(300))
    );
    let warning = answer["meta"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("output_schema"), "{warning}");
    let (_, answer) = app(tool(200))
        .await
        .invoke("plain", json!({"n": 300}))
        .await;
    assert_eq!(
        (overflow_counts(&answer), &answer["meta"]["warnings"]),
        (json!([200, 300, null]), &json!([]))
    );
    // The whole breaks the schema already.
    let (_, answer) = app(tool(400))
        .await
        .invoke("plain", json!({"n": 300}))
        .await;
    assert_eq!(
        (
            overflow_counts(&answer),
            answer["meta"]["warnings"].as_array().map(Vec::len)
        ),
        (json!([200, 300, null]), Some(1))
    );
}

#[tokio::test]
async fn wrapped_text_with_min_length_is_not_cut() {
    let tool = |name: &str, least: u64| {
        let schema = json!({"type": "object", "properties": {"result": {"type": "string", "minLength": least}}});
        let tool = Tool::new(name, "…")
            .effect(Effect::Read)
            .output_schema(schema);
        tool.call(|_, _| async {
            let text = "x".repeat(100_000);
            Ok(ToolResult {
                content: vec![Content::text(text.clone())],
                structured_content: Some(json!({"result": text})),
                ..ToolResult::default()
            })
        })
    };
    let app = TestApp::new([tool("whole", 90_000), tool("cut", 1)]).await;
    let shown = async |name: &str| {
        let (_, answer) = app.invoke(name, json!({})).await;
        let wrapped = answer["structured_content"]["result"].as_str().unwrap();
        (wrapped.len(), answer["meta"]["warnings"][0].clone())
    };
    let (length, warning) = shown("whole").await;
    assert_eq!(length, 100_000);
    assert!(
        warning.as_str().unwrap().contains("output_schema"),
        "{warning}"
    );
    let (length, warning) = shown("cut").await;
    assert!(length < 60_000 && warning.is_null(), "{length} {warning}");
}

#[tokio::test]
async fn control_characters_are_removed_and_reported() {
    let tool = |name: &str| Tool::new(name, "…").effect(Effect::Read);
    let app = TestApp::new([
        tool("red").call(|_, _| async { Ok("\u{1b}[31mred\u{1b}[0m\r\n\u{7}done\u{202e}") }),
        tool("no").call(|_, _| async {
            Err::<String, _>(ToolError::ErrorResult("\u{1b}[31mno\u{1b}[0m".into()))
        }),
        tool("down").call(|_, _| async {
            Err::<String, _>(ToolError::upstream("\u{1b}[31mdown\u{1b}[0m"))
        }),
        tool("panics").call(|_, _| async {
            if true {
                panic!("\u{1b}[31moh\u{1b}[0m")
            } else {
                Ok("")
            }
        }),
        tool("data").call(|_, _| async { Ok(json!({"log": "\u{1b}[31mred"})) }),
    ])
    .await;
    let red = app.invoke("red", json!({})).await;
    assert_eq!(first_text(&red), "red\ndone\u{202e}");
    let warnings = red.1["meta"]["warnings"].to_string();
    assert!(
        warnings.contains("were removed") && warnings.contains("bidirectional"),
        "{warnings}"
    );
    assert_eq!(first_text(&app.invoke("no", json!({})).await), "no");
    assert_eq!(app.invoke("down", json!({})).await.1["detail"], "down");
    assert!(first_text(&app.invoke("panics", json!({})).await).ends_with("unexpectedly: oh"));
    let data = app.invoke("data", json!({})).await;
    assert_eq!(
        (&data.1["structured_content"]["log"], first_text(&data)),
        (&json!("\u{1b}[31mred"), r#"{"log":"\u001b[31mred"}"#)
    );
}
