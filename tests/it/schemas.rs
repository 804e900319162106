//! Schemas that stand for too much, and arguments that break an ordinary schema a hundred thousand
//! times.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use toolcrib::manifest::{self, ManifestInput};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

/// Twenty-five definitions, each of which refers to the next one twice: 2 KB that stand for 33
/// million subschemas.
pub(super) fn doubling_schema() -> Value {
    let mut schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}});
    for level in 0..25 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        schema["$defs"][format!("d{level}")] = json!({"anyOf": [next, next]});
    }
    schema["$defs"]["d25"] = json!({"type": "integer"});
    schema
}

fn plain_tool(name: &str) -> Tool {
    Tool::new(name, "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("plain") })
}

#[tokio::test]
async fn exponential_schema_cannot_be_registered() {
    let app = TestApp::with_manifest("tools: {calculator: {kind: native}}\n", []).await;
    let definition = |schema: Value| {
        json!({"kind": "http", "description": "Weather now.", "effect": "read", "input_schema": schema,
            "request": {"url": "http://nowhere.invalid/"}})
    };
    let (status, problem) = app
        .put("/tools/weather", definition(doubling_schema()))
        .await;
    assert!(status.is_client_error(), "{problem}");
    let text = problem.to_string();
    assert!(
        text.contains("/input_schema/$defs/d1") && text.contains("at most 50000 are allowed"),
        "{text}"
    );
    assert_eq!(app.get("/tools/weather").await.0, 404);
    let plain = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    assert_eq!(app.put("/tools/weather", definition(plain)).await.0, 201);
}

/// Files as they are, and no variables.
struct Files;

impl ManifestInput for Files {
    fn env_var(&self, _: &str) -> Option<String> {
        None
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
}

#[test]
fn check_locates_a_too_large_schema() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.yaml");
    let tool = |key: &str| {
        let schema = doubling_schema();
        format!(
            "tools:\n  t:\n    kind: command\n    command: [/bin/true]\n    description: Counts rows.\n    {key}: {schema}\n"
        )
    };
    let found = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let checked = manifest::check(&file, &Files, &HashMap::new());
        checked
            .findings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let input = found(&tool("input_schema"));
    let first = input
        .iter()
        .find(|line| line.contains("expands to more than 50000"))
        .unwrap();
    assert!(
        first.contains("t.yaml:6:") && first.contains(": tools.t.input_schema.$defs.d1"),
        "{first}"
    );
    let output = found(&tool("output_schema"));
    let first = output
        .iter()
        .find(|line| line.contains("expands to more than 50000"))
        .unwrap();
    assert!(
        first.contains("t.yaml:6:") && first.contains("warning: tools.t.output_schema.$defs.d1"),
        "{first}"
    );
    assert!(
        first.contains("served without its output schema"),
        "{first}"
    );
}

#[tokio::test]
async fn too_large_output_schemas_are_dropped() {
    let app = TestApp::new([plain_tool("t").output_schema(doubling_schema())]).await;
    assert_eq!(app.get("/tools/t").await.1["output_schema"], Value::Null);
    assert_eq!(app.invoke("t", json!({})).await.0, 200);
}

#[tokio::test]
async fn bad_lists_affect_only_their_source() {
    let form = |names: [&str; 2]| {
        json!({"type": "object", "required": names, "additionalProperties": false,
            "properties": {names[0]: {"type": "integer"}, names[1]: {"type": "string"}}})
    };
    let items = json!({"anyOf": [form(["a", "b"]), form(["c", "d"]), {"type": "null"}]});
    let schema =
        json!({"type": "object", "properties": {"items": {"type": "array", "items": items}}});
    let app = TestApp::new([
        plain_tool("listing").input_schema(schema),
        plain_tool("other"),
    ])
    .await;
    let bad = json!({"items": vec![json!({}); 200_000]});
    let calls = (0..4).map(|_| app.invoke("listing", bad.clone()));
    let others = async {
        for _ in 0..20 {
            assert_eq!(app.invoke("other", json!({})).await.0, 200);
        }
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(calls), others);
    for (status, problem) in answers {
        assert_eq!(
            (
                status.as_u16(),
                problem["violations"].as_array().unwrap().len()
            ),
            (422, 50)
        );
        assert_eq!(problem["violations"][49]["pointer"], "/items/49");
    }
    let (status, problem) = app
        .post("/tools/listing/validate", json!({"arguments": bad}))
        .await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (422, &json!("invalid_arguments"))
    );
}
