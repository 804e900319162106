//! Toolsets: named parts of the tools, for lists, MCP clients and callers.

use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;
use crate::support::mcp::{last_message, modern_request};

const MANIFEST: &str = r#"
tools:
  orders_get: {kind: native, tags: [read]}
  orders_delete: {kind: native}
  opening_hours: {kind: native, aliases: [hours], tags: [faq]}
  weather: {kind: native}
toolsets:
  support: {tools: ["orders_*"], tags: [faq], exclude: [orders_delete]}
  weather: {tools: [weather]}
  none: {tags: [nothing]}
callers:
  - {name: root, key: key-of-root, admin: true}
  - {name: ann, key: key-of-ann}
  - {name: bob, key: key-of-bob, toolset: support, deny: [hours]}
"#;

async fn app() -> TestApp {
    let tools = ["orders_get", "orders_delete", "opening_hours", "weather"].map(|name| {
        Tool::new(name, "Answers.")
            .effect(Effect::Read)
            .call(|_, _| async { Ok("ran") })
    });
    TestApp::with_manifest(MANIFEST, tools).await
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn mcp(app: &TestApp, key: &str, path: &str, method: &str, params: Value) -> Value {
    let mut request = modern_request(method, params, Some(key));
    *request.uri_mut() = path.parse().unwrap();
    last_message(app.respond(request).await).await.1
}

#[tokio::test]
async fn toolset_selects_by_pattern_and_tag() {
    let app = app().await;
    let (_, listed) = app.get_as("key-of-ann", "/tools?toolset=support").await;
    assert_eq!(names(&listed), ["opening_hours", "orders_get"]);
    let (_, both) = app
        .get_as("key-of-ann", "/tools?toolset=support&tag=read")
        .await;
    assert_eq!(names(&both), ["orders_get"]);
    let (status, invoked) = app
        .post_as(
            "key-of-ann",
            "/tools/weather/invoke",
            json!({"arguments": {}}),
        )
        .await;
    assert_eq!(status, 200, "a list does not bound its caller: {invoked}");
}

#[tokio::test]
async fn toolset_of_a_caller_bounds_its_calls() {
    let app = app().await;
    let (_, listed) = app.get_as("key-of-bob", "/tools").await;
    assert_eq!(names(&listed), ["orders_get"], "a denied tool is in no set");
    for (tool, expected) in [("orders_get", 200), ("orders_delete", 403), ("hours", 403)] {
        let path = format!("/tools/{tool}/invoke");
        let (status, _) = app
            .post_as("key-of-bob", &path, json!({"arguments": {}}))
            .await;
        assert_eq!(status.as_u16(), expected, "{tool}");
    }
    let (_, foreign) = app.get_as("key-of-bob", "/tools?toolset=weather").await;
    assert_eq!(names(&foreign), [""; 0]);
}

#[tokio::test]
async fn unknown_toolset_is_named() {
    let app = app().await;
    for path in ["/tools?toolset=suport", "/mcp/suport"] {
        let (status, problem) = match path.starts_with("/mcp") {
            true => app.post_as("key-of-bob", path, json!({})).await,
            false => app.get_as("key-of-bob", path).await,
        };
        assert_eq!(status, 404, "{path}");
        assert_eq!(
            problem["detail"], "there is no toolset `suport`; there are support",
            "{path}"
        );
    }
}

#[tokio::test]
async fn toolsets_are_listed_with_their_tokens() {
    let app = app().await;
    let of = async |key: &str| app.get_as(key, "/toolsets?format=anthropic").await.1;
    let all = of("key-of-root").await;
    let counts = |list: &Value| -> Vec<(String, u64)> {
        let sets = list["toolsets"].as_array().unwrap().iter();
        sets.map(|set| {
            let name = set["name"].as_str().unwrap().to_owned();
            (name, set["tools"].as_u64().unwrap())
        })
        .collect()
    };
    let expected = [("none", 0), ("support", 2), ("weather", 1)];
    assert_eq!(counts(&all), expected.map(|(name, n)| (name.to_owned(), n)));
    assert_eq!(
        counts(&of("key-of-bob").await),
        [("support".to_owned(), 1)],
        "a caller sees the sets of which it has a tool"
    );
    let (_, list) = app
        .get_as("key-of-root", "/tools?toolset=support&format=anthropic")
        .await;
    let (tokens, bytes) = (&all["toolsets"][1]["tokens"], list.to_string().len() as u64);
    let (low, high) = (bytes * 2 / 9 - 2, bytes * 2 / 9 + 2);
    assert!(
        (low..=high).contains(&tokens.as_u64().unwrap()),
        "{tokens} for {bytes} bytes"
    );
    assert_eq!(all["format"], "anthropic");
}

#[tokio::test]
async fn tools_that_find_others_fill_no_toolset() {
    let tools = ["orders_get", "orders_delete", "opening_hours", "weather"]
        .map(|name| Tool::new(name, "Answers.").call(|_, _| async { Ok("ran") }));
    let manifest = format!("{MANIFEST}discovery: {{above: 1 tools}}\n");
    let app = TestApp::with_manifest(&manifest, tools).await;
    let sets = async |key: &str| {
        let (_, list) = app.get_as(key, "/toolsets").await;
        let sets = list["toolsets"].as_array().unwrap().clone().into_iter();
        sets.map(|set| format!("{} {}", set["name"].as_str().unwrap(), set["tools"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        sets("key-of-root").await,
        ["none 0", "support 2", "weather 1"]
    );
    assert_eq!(
        sets("key-of-bob").await,
        ["support 1"],
        "names of other sets stay unknown"
    );
}

#[tokio::test]
async fn mcp_path_names_a_toolset() {
    let app = app().await;
    let path = "/mcp/support";
    let listed = mcp(&app, "key-of-ann", path, "tools/list", json!({})).await;
    assert_eq!(names(&listed["result"]), ["opening_hours", "orders_get"]);
    let call = json!({"name": "weather", "arguments": {}});
    let refused = mcp(&app, "key-of-ann", path, "tools/call", call).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}
