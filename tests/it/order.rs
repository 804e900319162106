//! Members of objects keep the order in which their author wrote them: a model reads it.

use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

const MANIFEST: &str = "
tools:
  think:
    kind: command
    command: [/bin/echo, '{\"reasoning\": 1, \"answer\": {\"z\": 1, \"a\": 2}}']
    output: json
    effect: read
    cache: {ttl: 1h}
    description: Thinks before it answers.
    parameters:
      zone: {type: string, required: false}
      area: {type: string, required: false}
    output_schema:
      type: object
      properties: {reasoning: {type: integer}, answer: {type: object}}
";

/// The names in the order in which they stand in the text.
fn in_order(value: &Value, names: [&str; 2]) -> bool {
    let text = value.to_string();
    let at = names.map(|name| text.find(&format!("\"{name}\"")));
    assert!(at.iter().all(Option::is_some), "{names:?} in {text}");
    at[0] < at[1]
}

#[tokio::test]
async fn schemas_keep_their_order_in_every_format() {
    let app = TestApp::with_manifest(MANIFEST, []).await;
    for format in [
        "native",
        "mcp",
        "openai",
        "openai-responses",
        "anthropic",
        "gemini",
        "bedrock",
    ] {
        let (status, listed) = app.get(&format!("/tools?format={format}")).await;
        assert_eq!(status, 200, "{listed}");
        assert!(in_order(&listed, ["zone", "area"]), "{format}: {listed}");
    }
    let tool = app.get("/tools/think").await.1;
    assert!(
        in_order(&tool["output_schema"], ["reasoning", "answer"]),
        "{tool}"
    );
    let document = app.get("/openapi.json").await.1;
    assert!(in_order(&document, ["zone", "area"]));
}

#[tokio::test]
async fn results_keep_their_order_stored_or_not() {
    let app = TestApp::with_manifest(MANIFEST, []).await;
    for cache in ["miss", "hit"] {
        let (_, answer) = app.invoke("think", json!({})).await;
        assert_eq!(answer["meta"]["cache"], cache);
        let content = &answer["structured_content"];
        assert!(
            in_order(content, ["reasoning", "answer"]) && in_order(content, ["z", "a"]),
            "{answer}"
        );
        assert_eq!(
            answer["content"][0]["text"],
            r#"{"reasoning":1,"answer":{"z":1,"a":2}}"#
        );
    }
    let row = app.newest_invocation().await;
    let id = row["invocation_id"].as_str().unwrap();
    let stored = app.get(&format!("/invocations/{id}/result")).await.1;
    assert!(
        in_order(&stored["structured_content"], ["reasoning", "answer"]),
        "{stored}"
    );
}

#[tokio::test]
async fn recorded_arguments_keep_their_order() {
    let app = TestApp::with_manifest(MANIFEST, []).await;
    app.invoke("think", json!({"zone": "z", "area": "a"})).await;
    assert!(in_order(
        &app.newest_invocation().await["arguments"],
        ["zone", "area"]
    ));
    // Equal all the same.
    assert_eq!(
        app.invoke("think", json!({"area": "a", "zone": "z"}))
            .await
            .1["meta"]["cache"],
        "hit"
    );
}

#[tokio::test]
async fn derived_schemas_keep_the_order_of_fields() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Asked {
        zone: String,
        area: String,
    }
    let tool = Tool::typed("typed", "Takes two.", |asked: Asked, _| async move {
        Ok(asked.zone + &asked.area)
    });
    let app = TestApp::new([tool.effect(Effect::Read)]).await;
    assert!(in_order(&app.get("/tools/typed").await.1, ["zone", "area"]));
}

#[tokio::test]
async fn other_order_is_another_document() {
    let app = TestApp::new([]).await;
    let definition = |properties: Value| {
        json!({"kind": "http", "description": "Asks somewhere.", "effect": "read", "request": {"url": "http://nowhere.invalid/"},
            "input_schema": {"type": "object", "properties": properties, "additionalProperties": false}})
    };
    let one = json!({"zone": {"type": "string"}, "area": {"type": "string"}});
    let other = json!({"area": {"type": "string"}, "zone": {"type": "string"}});
    let (_, before) = app.put("/tools/t", definition(one)).await;
    let paths = ["/tools?format=openai", "/tools?format=mcp", "/openapi.json"];
    let mut tags = Vec::new();
    for path in paths {
        tags.push(app.headers(path).await["etag"].clone());
    }
    let (status, after) = app.put("/tools/t", definition(other)).await;
    assert_eq!(
        (status.as_u16(), &after["definition_hash"]),
        (200, &before["definition_hash"])
    );
    assert!(
        in_order(&after["input_schema"], ["area", "zone"]),
        "{after}"
    );
    for (path, tag) in paths.iter().zip(tags) {
        assert_ne!(app.headers(path).await["etag"], tag, "{path}");
    }
}
