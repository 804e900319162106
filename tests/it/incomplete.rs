//! Results of which the tool itself left out a part: the model learns so, whichever way it called.

use serde_json::{Value, json};
use toolcrib::Effect;

use crate::support::{Reply, TestApp, first_text};

const MANIFEST: &str = r#"
defaults: {effect: read}
tools:
  print:
    kind: command
    description: Prints a long line of text.
    command: [/usr/bin/printf, "%0500d", "7"]
    max_output: 100B
  read_file: {kind: native, with: {root: ., max_bytes: 12B}}
  read_result: {kind: native}
"#;

const NARROW: &str = "If the rest matters, narrow the call.";

async fn app() -> TestApp {
    let numbers = "with recursive c(i) as (select 1 union all select i + 1 from c where i < 1500) select i from c";
    let bounds = [
        ("few", "max_rows: 50"),
        ("many", "max_rows: 1000"),
        ("short", "max_rows: 5000, max_output: 100B"),
    ];
    let tools = bounds.map(|(name, bound)| {
        format!(
            "  {name}: {{kind: sql, description: Lists numbers., database: sqlite://shop.db, {bound}, statement: \"{numbers}\"}}\n"
        )
    });
    let manifest = format!("{MANIFEST}{}", tools.concat());
    TestApp::with_files(
        &manifest,
        &[("shop.db", ""), ("lines.txt", "one\ntwo\nthree\nfour\n")],
    )
    .await
}

/// The text of the last block.
fn last_text(content: &Value) -> &str {
    let block = content
        .as_array()
        .and_then(|blocks| blocks.last())
        .unwrap_or_else(|| panic!("{content}"));
    block["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{content}"))
}

fn counts((_, answer): &Reply) -> Value {
    let overflow = &answer["meta"]["overflow"];
    json!([
        overflow["shown"],
        overflow["total"],
        overflow["unit"],
        overflow["next_offset"]
    ])
}

#[tokio::test]
async fn rest_states_what_the_tool_left_out() {
    let app = app().await;
    for (tool, arguments, shown, note) in [
        (
            "few",
            json!({}),
            json!([50, null, "items", null]),
            "[Only the first 50 items are shown; there are more. ",
        ),
        (
            "many",
            json!({}),
            json!([200, null, "items", null]),
            "[Only 200 of more than 1000 items are shown. ",
        ),
        (
            "short",
            json!({}),
            json!([12, null, "items", null]),
            "[Only the first 12 items are shown; there are more. ",
        ),
        (
            "print",
            json!({}),
            json!([100, null, "characters", null]),
            "[Only the first 100 characters are shown; ",
        ),
        (
            "read_file",
            json!({"path": "lines.txt"}),
            json!([8, null, "characters", null]),
            "[Only the first 8 characters are shown; there are more. Go on with start_line 3.]",
        ),
    ] {
        let reply = app.invoke(tool, arguments).await;
        assert_eq!(counts(&reply), shown, "{tool}: {}", reply.1);
        assert!(
            last_text(&reply.1["content"]).starts_with(note),
            "{tool}: {}",
            reply.1
        );
    }
    let reply = app.invoke("few", json!({})).await;
    assert_eq!(
        reply.1["meta"]["overflow"]["hint"],
        "The tool has more items, which its limit `max_rows` left out: ask for less at once, or raise the limit."
    );
}

#[tokio::test]
async fn every_dialect_tells_the_model() {
    let app = app().await;
    let note = format!("[Only the first 50 items are shown; there are more. {NARROW}]");
    let call = json!({"name": "few", "arguments": "{}"});
    for message in [
        json!({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": call}]}),
        json!([{"type": "function_call", "call_id": "c1", "name": "few", "arguments": "{}"}]),
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "few", "input": {}}]}),
        json!({"role": "model", "parts": [{"functionCall": {"name": "few", "args": {}}}]}),
        json!({"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "few", "input": {}}}]}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "few", "arguments": {}}}),
        json!({"tool_name": "few", "arguments": {}}),
        json!({"text": "[TOOL_CALL]{\"name\": \"few\", \"arguments\": {}}[/TOOL_CALL]"}),
    ] {
        let (status, answer) = app.post("/calls", message.clone()).await;
        assert_eq!(status, 200, "{message}: {answer}");
        assert!(
            answer["messages"].to_string().contains(&note),
            "{message}: {answer}"
        );
        assert_eq!(last_text(&answer["results"][0]["content"]), note);
    }
    let over_mcp = app.mcp_call("few", json!({}), json!({})).await;
    assert_eq!(last_text(&over_mcp["content"]), note);
    assert_eq!(over_mcp["_meta"]["toolcrib/overflow"]["total"], Value::Null);
}

#[tokio::test]
async fn pages_never_state_a_false_total() {
    let app = app().await;
    let page = |offset| json!({"arguments": {}, "page": {"detail": "full", "offset": offset, "limit": 400}});
    let first = app.post("/tools/many/invoke", page(0)).await;
    assert_eq!(counts(&first), json!([400, null, "items", 400]));
    assert!(
        last_text(&first.1["content"]).starts_with("[Only 400 of more than 1000 items are shown. "),
        "{}",
        first.1
    );
    let hint = first.1["meta"]["overflow"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("which its limit `max_rows` left out"),
        "{hint}"
    );
    let path = format!(
        "/invocations/{}/result",
        first.1["invocation_id"].as_str().unwrap()
    );
    let last = app.get(&format!("{path}?offset=800&limit=400")).await;
    assert_eq!(counts(&last), json!([200, null, "items", null]));
    let note = format!("[These are the last of the first 1000 items. There are more. {NARROW}]");
    assert_eq!(last_text(&last.1["content"]), note);
    let whole = app.get(&path).await;
    assert_eq!(counts(&whole), json!([1000, null, "items", null]));
    let recorded = app.get(path.trim_end_matches("/result")).await;
    assert_eq!(
        recorded.1["result"]["meta"]["overflow"]["total"],
        Value::Null
    );
    assert!(
        last_text(&recorded.1["result"]["content"]).contains("there are more"),
        "{}",
        recorded.1
    );
}

#[tokio::test]
async fn model_reads_on_with_the_named_tool() {
    let app = app().await;
    let (_, answer) = app.invoke("many", json!({})).await;
    let note = last_text(&answer["content"]);
    let id = answer["invocation_id"].as_str().unwrap();
    let arguments = format!("{{\"invocation_id\": \"{id}\", \"offset\": 200}}");
    assert!(
        note.ends_with(&format!("To read on call read_result with {arguments}.]")),
        "{note}"
    );
    let next = app
        .invoke("read_result", serde_json::from_str(&arguments).unwrap())
        .await;
    let rows: Value = serde_json::from_str(first_text(&next)).unwrap();
    assert_eq!(
        (rows[0]["i"].as_i64(), counts(&next)[1].is_null()),
        (Some(201), true)
    );
    let last = app
        .invoke("read_result", json!({"invocation_id": id, "offset": 990}))
        .await;
    assert!(
        last_text(&last.1["content"]).contains("There are more."),
        "{}",
        last.1
    );
}

#[tokio::test]
async fn repeated_answers_are_incomplete_too() {
    let app = app().await;
    let plain = toolcrib::Tool::new("unused", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok(json!([1, 2])) });
    let complete = TestApp::new([plain])
        .await
        .invoke("unused", json!({}))
        .await;
    assert_eq!(
        (
            counts(&complete),
            &complete.1["content"].as_array().unwrap().len()
        ),
        (json!([null, null, null, null]), &1)
    );
    let send = || {
        let mut request = crate::support::request(
            "POST",
            "/tools/few/invoke",
            None,
            Some(json!({"arguments": {}})),
        );
        request
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        app.send(request)
    };
    let (first, again) = (send().await, send().await);
    assert_eq!(first.1["invocation_id"], again.1["invocation_id"]);
    assert_eq!(first.1["content"], again.1["content"]);
    assert_eq!(counts(&again), json!([50, null, "items", null]));
}
