//! What `GET /tools?format=` shows, to whom, and when it has changed.

use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

const FORMATS: [&str; 6] = [
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "bedrock",
    "mcp",
];

fn tool(name: &str) -> Tool {
    Tool::new(name, "Says yes to whatever it is asked.")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("yes") })
}

/// The names in an answer, whatever its shape.
fn tool_names(listing: &Value) -> Vec<&str> {
    let list = listing.get("tools").unwrap_or(listing);
    let list = list.pointer("/0/functionDeclarations").unwrap_or(list);
    let places = ["/name", "/function/name", "/toolSpec/name"];
    let name = |tool| {
        places
            .iter()
            .find_map(|place| Value::pointer(tool, place)?.as_str())
    };
    list.as_array()
        .unwrap()
        .iter()
        .map(|tool| name(tool).unwrap())
        .collect()
}

#[tokio::test]
async fn every_format_lists_the_enabled_tools() {
    let app = TestApp::new([tool("a").tag("demo"), tool("b"), tool("c").tag("demo")]).await;
    app.post("/tools/c/disable", json!({})).await;
    for format in FORMATS {
        let get = async |query: &str| app.get(&format!("/tools?format={format}{query}")).await.1;
        assert_eq!(tool_names(&get("").await), ["a", "b"], "{format}");
        assert_eq!(tool_names(&get("&tag=demo").await), ["a"], "{format}");
        assert_eq!(
            tool_names(&get("&origin=program").await),
            ["a", "b"],
            "{format}"
        );
        assert_eq!(
            tool_names(&get("&origin=registered").await),
            [""; 0],
            "{format}"
        );
    }
    let (status, problem) = app.get("/tools?format=morse").await;
    assert_eq!(status, 400);
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        FORMATS
            .iter()
            .chain(&["native"])
            .all(|format| detail.contains(format)),
        "{detail}"
    );
}

#[tokio::test]
async fn format_etag_changes_with_its_content() {
    let app = TestApp::new([tool("a"), tool("b")]).await;
    let mut seen = Vec::new();
    for format in FORMATS {
        let path = format!("/tools?format={format}");
        let tag = app.headers(&path).await["etag"].clone();
        assert!(!seen.contains(&tag), "{format}");
        let mut conditional = request("GET", &path, None, None);
        conditional
            .headers_mut()
            .insert("if-none-match", tag.clone());
        assert_eq!(app.respond(conditional).await.status(), 304, "{format}");
        app.post("/tools/b/disable", json!({})).await;
        assert_ne!(app.headers(&path).await["etag"], tag, "{format}");
        app.post("/tools/b/enable", json!({})).await;
        assert_eq!(app.headers(&path).await["etag"], tag, "{format}");
        seen.push(tag);
    }
}

#[tokio::test]
async fn callers_see_their_tools_under_stable_names() {
    let manifest = r#"
callers:
  - {name: one, key: one-key-0123456789abcdef, allow: ["weather.*"]}
  - {name: all, key: all-key-0123456789abcdef, allow: ["*"]}
"#;
    let app = TestApp::with_manifest(
        manifest,
        [
            tool("weather.get"),
            tool("weather.set"),
            tool("weather_set"),
        ],
    )
    .await;
    let one = app
        .get_as("one-key-0123456789abcdef", "/tools?format=openai")
        .await
        .1;
    // `weather_set` is another tool, though this caller may not use it.
    assert_eq!(tool_names(&one), ["weather_get", "weather.set"]);
    let all = app
        .get_as("all-key-0123456789abcdef", "/tools?format=openai")
        .await
        .1;
    assert_eq!(
        tool_names(&all),
        ["weather_get", "weather.set", "weather_set"]
    );
    let invoke = json!({"arguments": {}});
    let (status, answer) = app
        .post_as(
            "one-key-0123456789abcdef",
            "/tools/weather_get/invoke",
            invoke,
        )
        .await;
    assert_eq!(
        (status.as_u16(), &answer["tool"]),
        (200, &json!("weather.get")),
        "the name leads back"
    );
    let gemini = app
        .get_as("all-key-0123456789abcdef", "/tools?format=gemini")
        .await
        .1;
    assert_eq!(
        tool_names(&gemini),
        ["weather.get", "weather.set", "weather_set"]
    );
}
