//! The OpenAPI document: the committed one, and what `GET /openapi.json` adds for its caller.

use axum::http::StatusCode;
use serde_json::{Value, json};
use toolcrib::Tool;

use super::support::{TestApp, request};

fn tool(name: &str) -> Tool {
    Tool::new(name, "Says a word. Use it when one is wanted.")
        .param("word", "string", "The word")
        .call(|_, _| async { Ok("") })
}

/// Tools that have an operation of their own, by path.
fn tool_paths(document: &Value) -> Vec<&str> {
    let paths = document["paths"].as_object().unwrap().keys();
    let own = paths.filter_map(|path| path.strip_prefix("/tools/")?.strip_suffix("/invoke"));
    own.filter(|name| *name != "{name}").collect()
}

/// Every local reference leads somewhere.
fn assert_refs_resolve(document: &Value) {
    fn walk(document: &Value, at: &Value) {
        match at {
            Value::Object(object) => {
                if let Some(Value::String(target)) = object.get("$ref") {
                    assert!(
                        document
                            .pointer(target.strip_prefix('#').unwrap())
                            .is_some(),
                        "{target} leads nowhere"
                    );
                }
                object.values().for_each(|value| walk(document, value));
            }
            Value::Array(list) => list.iter().for_each(|value| walk(document, value)),
            _ => {}
        }
    }
    walk(document, document);
}

#[tokio::test]
async fn each_tool_has_an_operation_with_types() {
    let output = json!({"type": "object", "properties": {"at": {"$ref": "#/$defs/Place"}}, "$defs": {"Place": {"type": "string"}}});
    let app = TestApp::new([
        tool("say").output_schema(output).tag("words"),
        tool("shout"),
    ])
    .await;
    let (status, document) = app.get("/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    assert_refs_resolve(&document);
    assert_eq!(tool_paths(&document), ["say", "shout"]);

    let (say, schemas) = (
        &document["paths"]["/tools/say/invoke"]["post"],
        &document["components"]["schemas"],
    );
    assert_eq!(say["operationId"], "invoke_say");
    assert_eq!(say["summary"], "Says a word");
    assert_eq!(
        say["description"],
        "Says a word. Use it when one is wanted."
    );
    assert_eq!(say["tags"], json!(["invoke", "words"]));
    let parameters: Vec<_> = say["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(
        parameters,
        ["idempotency-key", "toolcrib-run-id"],
        "the name is in the path"
    );
    assert_eq!(
        say["requestBody"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/say_request"
    );
    assert_eq!(
        schemas["say_request"]["properties"]["arguments"],
        json!({"$ref": "#/components/schemas/say_arguments"})
    );
    assert_eq!(
        schemas["say_arguments"]["properties"]["word"]["type"],
        "string"
    );
    assert_eq!(
        schemas["say_answer"]["properties"]["structured_content"],
        json!({"oneOf": [{"$ref": "#/components/schemas/say_result"}, {"type": "null"}]})
    );
    assert_eq!(schemas["say_result_Place"], json!({"type": "string"}));

    // Without an output schema the answer has the shared schema; the problems are those of the
    // shared route.
    let answer = |path: &str| document["paths"][path]["post"]["responses"].clone();
    let mut shared = answer("/tools/{name}/invoke");
    // A typed answer is of one type: events and calls that are looked up are the shared route's
    // alone.
    assert_eq!(
        shared["200"]["content"]
            .as_object_mut()
            .unwrap()
            .remove("text/event-stream")
            .unwrap()["schema"]["type"],
        "string"
    );
    let accepted = shared.as_object_mut().unwrap().remove("202").unwrap();
    assert_eq!(
        accepted["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/Accepted"
    );
    let mut own = answer("/tools/shout/invoke");
    let examples = [&mut shared, &mut own]
        .map(|one| one["200"]["content"]["application/json"]["example"].take());
    assert_eq!(examples[1]["tool"], "shout");
    assert_eq!(own, shared);
    for status in [
        "400", "401", "403", "404", "408", "413", "415", "422", "429", "431", "499", "500", "502",
        "503", "504",
    ] {
        let problem = say["responses"][status]["$ref"].as_str().unwrap();
        let problem = document.pointer(&problem[1..]).unwrap();
        assert_eq!(
            problem["content"]["application/problem+json"]["schema"]["$ref"],
            "#/components/schemas/Problem",
            "{status}"
        );
    }
}

#[tokio::test]
async fn similar_names_get_distinct_operations() {
    // `tool` would be the shared route's operation, `invoke` its request.
    let names = [
        "get-weather",
        "get.weather",
        "GetWeather",
        "get_weather",
        "tool",
        "invoke",
        "9",
        "-",
        "class",
    ];
    let app = TestApp::new(names.map(tool).to_vec()).await;
    let (_, document) = app.get("/openapi.json").await;
    assert_refs_resolve(&document);
    let id = |name: &str| {
        document["paths"][format!("/tools/{name}/invoke")]["post"]["operationId"].clone()
    };
    assert_eq!(
        names.map(id),
        [
            "invoke_get_weather_3",
            "invoke_get_weather_4",
            "invoke_GetWeather",
            "invoke_get_weather_2",
            "invoke_tool_2",
            "invoke_invoke_2",
            "invoke_9",
            "invoke___2",
            "invoke_class",
        ]
    );
}

const CALLERS: &str = "
callers:
  - {name: ann, key: ann-key-0123456789, allow: [say]}
  - {name: root, key: root-key-0123456789, admin: true}
";

#[tokio::test]
async fn document_lists_the_tools_of_its_caller() {
    let app = TestApp::with_manifest(CALLERS, ["say", "shout", "off"].map(tool)).await;
    app.post_as("root-key-0123456789", "/tools/off/disable", json!({}))
        .await;
    let fixed = toolcrib::http::openapi_with_tools([]);
    assert_eq!(app.get("/openapi.json").await, (StatusCode::OK, fixed));
    assert_eq!(
        tool_paths(&app.get_as("ann-key-0123456789", "/openapi.json").await.1),
        ["say"]
    );
    assert_eq!(
        tool_paths(&app.get_as("root-key-0123456789", "/openapi.json").await.1),
        ["say", "shout"]
    );
    let (status, problem) = app.get_as("nobody's key", "/openapi.json").await;
    assert_eq!(
        (status, &problem["kind"]),
        (StatusCode::UNAUTHORIZED, &json!("unauthenticated"))
    );
}

#[tokio::test]
async fn known_document_is_not_sent_again() {
    let app = TestApp::new([tool("say")]).await;
    let headers = app.headers("/openapi.json").await;
    let tag = headers["etag"].clone();
    let mut conditional = request("GET", "/openapi.json", None, None);
    conditional
        .headers_mut()
        .insert("if-none-match", tag.clone());
    assert_eq!(
        app.send(conditional).await,
        (StatusCode::NOT_MODIFIED, Value::Null)
    );
    app.post("/tools/say/disable", json!({})).await;
    assert_ne!(app.headers("/openapi.json").await["etag"], tag);
}
