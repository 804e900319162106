//! Lists that have only the tools that find the others (`discovery:`).

use axum::body::Body;
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;
use crate::support::mcp::{last_message, modern_request, next_message};

fn tools() -> impl Iterator<Item = Tool> {
    ["red", "green", "blue", "yellow"].into_iter().map(|name| {
        Tool::new(format!("paint_{name}"), format!("Paints a wall {name}."))
            .effect(Effect::Read)
            .call(|_, _| async { Ok("painted") })
    })
}

const TOOLS: &str = "tools:
  paint_red: {kind: native, tags: [warm, wall]}
  paint_green: {kind: native, tags: [wall]}
  paint_blue: {kind: native, tags: [wall]}
  paint_yellow: {kind: native, tags: [warm, wall]}
toolsets:
  cold: {tools: [paint_blue, paint_green]}
";

async fn app(discovery: &str) -> TestApp {
    TestApp::with_manifest(&format!("{TOOLS}{discovery}\n"), tools()).await
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list.get("tools").unwrap_or(list).as_array().unwrap().iter();
    tools
        .map(|tool| {
            tool.get("function").unwrap_or(tool)["name"]
                .as_str()
                .unwrap()
        })
        .collect()
}

const FINDERS: [&str; 2] = ["call_tool", "search_tools"];

async fn search(app: &TestApp, query: &str, run: Value) {
    let body = json!({"arguments": {"query": query, "limit": 1}, "run_id": run});
    let (status, answer) = app.post("/tools/search_tools/invoke", body).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test]
async fn long_list_has_only_the_finders() {
    let app = app("discovery: {above: 3 tools}").await;
    for path in ["/tools", "/tools?format=openai", "/tools?format=mcp"] {
        assert_eq!(names(&app.get(path).await.1), FINDERS, "{path}");
    }
    let (_, all) = app.get("/tools?discovery=off").await;
    assert_eq!(names(&all).len(), 6);
    let (_, short) = app.get("/tools?toolset=cold").await;
    let expected = ["call_tool", "paint_blue", "paint_green", "search_tools"];
    assert_eq!(names(&short), expected, "a short list shows its tools");
    let (status, answer) = app
        .post("/tools/paint_red/invoke", json!({"arguments": {}}))
        .await;
    assert_eq!(
        status, 200,
        "a tool can be called without being listed: {answer}"
    );
}

#[tokio::test]
async fn list_by_tag_is_shortened_too() {
    let app = app("discovery: {above: 3 tools, keep: [paint_red]}").await;
    let listed = async |path: &str| {
        let (_, list) = app.get(path).await;
        names(&list).join(" ")
    };
    let short = "call_tool paint_red search_tools";
    assert_eq!(listed("/tools?tag=wall").await, short);
    assert_eq!(listed("/tools?tag=wall&format=openai").await, short);
    assert_eq!(listed("/tools?tag=warm").await, "paint_red paint_yellow");
    assert_eq!(listed("/tools?tag=none").await, "");
    let whole = listed("/tools?origin=manifest").await;
    assert_eq!(
        whole.split(' ').count(),
        6,
        "a list by origin is whole: {whole}"
    );
}

#[tokio::test]
async fn mcp_client_with_a_tag_finds_only_its_tools() {
    let app = app("discovery: {above: 1 tools}").await;
    let mcp = async |method: &str, params: Value| {
        let mut request = modern_request(method, params, None);
        *request.uri_mut() = "/mcp?tag=warm".parse().unwrap();
        last_message(app.respond(request).await).await.1["result"].take()
    };
    assert_eq!(names(&mcp("tools/list", json!({})).await), FINDERS);
    let search =
        json!({"name": "search_tools", "arguments": {"query": "paint a wall blue", "limit": 9}});
    let found = mcp("tools/call", search).await;
    let mut found = names(&found["structuredContent"]);
    found.sort_unstable();
    assert_eq!(found, ["paint_red", "paint_yellow"]);
    let call = |name: &str| json!({"name": "call_tool", "arguments": {"name": name}});
    assert_eq!(mcp("tools/call", call("paint_red")).await["isError"], false);
    assert_eq!(mcp("tools/call", call("paint_blue")).await["isError"], true);
}

#[tokio::test]
async fn bound_may_be_tokens() {
    for (bound, is_short) in [
        ("30 tokens", false),
        ("10k tokens", true),
        ("4 tools", true),
    ] {
        let app = app(&format!("discovery: {{above: {bound}}}")).await;
        let (_, list) = app.get("/tools?format=openai").await;
        assert_eq!(names(&list).len() == 6, is_short, "{bound}: {list}");
    }
}

#[tokio::test]
async fn kept_and_found_tools_stay() {
    let app = app("discovery: {above: 3 tools, keep: [\"*_red\"]}").await;
    let listed = async |path: &str| {
        let (_, list) = app.get(path).await;
        names(&list).join(" ")
    };
    let first = "call_tool paint_red search_tools";
    assert_eq!(listed("/tools").await, first);
    search(&app, "blue", json!("r-1")).await;
    assert_eq!(
        listed("/tools?run_id=r-1").await,
        "call_tool paint_blue paint_red search_tools"
    );
    assert_eq!(listed("/tools?run_id=r-2").await, first);
    assert_eq!(listed("/tools").await, first);
}

#[tokio::test]
async fn mcp_session_learns_of_found_tools() {
    let app = app("discovery: {above: 3 tools}").await;
    let session = app.session("2025-11-25", None).await;
    let other = app.session("2025-11-25", None).await;
    let listed = async |session: &crate::support::mcp::Session<'_>| {
        let list = session.result_of("tools/list", json!({})).await;
        names(&list["result"]).join(" ")
    };
    assert_eq!(listed(&session).await, FINDERS.join(" "));
    let mut stream: Body = session.send("GET").await.into_body();
    session
        .call("search_tools", json!({"query": "blue", "limit": 1}))
        .await;
    let message = next_message(&mut stream).await.unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed");
    assert_eq!(listed(&session).await, "call_tool paint_blue search_tools");
    assert_eq!(listed(&other).await, FINDERS.join(" "));
}

#[tokio::test]
async fn stateless_client_keeps_a_short_list() {
    let app = app("discovery: {above: 3 tools}").await;
    search(&app, "blue", Value::Null).await;
    let request = modern_request("tools/list", json!({}), None);
    let (_, list) = last_message(app.respond(request).await).await;
    assert_eq!(names(&list["result"]), FINDERS);
}

#[tokio::test]
async fn caller_without_finders_has_the_whole_list() {
    let callers = "callers:\n  - {name: ann, key: key-of-ann, deny: [search_tools]}\n";
    let app = app(&format!("discovery: {{above: 3 tools}}\n{callers}")).await;
    let (_, list) = app.get_as("key-of-ann", "/tools").await;
    assert_eq!(names(&list).len(), 5, "{list}");
}

#[tokio::test]
async fn anthropic_defers_and_refers() {
    let app = app("discovery: {above: 3 tools, keep: [paint_red], defer_loading: true}").await;
    let (_, list) = app.get("/tools?format=anthropic").await;
    let deferred = |tool: &Value| tool["defer_loading"] == true;
    let loaded: Vec<&Value> = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| !deferred(tool))
        .collect();
    assert_eq!(
        names(&json!(loaded)),
        ["paint_red", "search_tools"],
        "{list}"
    );
    assert_eq!(names(&list).len(), 5, "without call_tool: {list}");
    let (_, other) = app.get("/tools?format=openai").await;
    assert_eq!(
        names(&other).len(),
        3,
        "another format has the short list: {other}"
    );
    let call = |query: &str| {
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "search_tools",
            "input": {"query": query, "limit": 1}}]})
    };
    let (_, answer) = app.post("/calls", call("blue")).await;
    assert_eq!(
        answer["messages"][0]["content"][0]["content"],
        json!([{"type": "tool_reference", "tool_name": "paint_blue"}]),
        "{answer}"
    );
    let (_, nothing) = app.post("/calls", call("xyzzy")).await;
    assert_eq!(
        nothing["messages"][0]["content"][0]["content"][0]["type"], "text",
        "{nothing}"
    );
}

#[tokio::test]
async fn brief_list_has_less_text() {
    let long = Tool::new("long", format!("Does it. {}", "And more. ".repeat(60)))
        .input_schema(json!({"type": "object", "title": "Long", "properties": {
            "a": {"type": "string", "title": "A", "description": format!("The first. {}", "x ".repeat(200))}},
            "additionalProperties": false}))
        .output_schema(json!({"type": "object", "properties": {"b": {"type": "string"}}}))
        .example(json!({"a": "x"}))
        .call(|_, _| async { Ok(json!({"b": ""})) });
    let app = TestApp::new([long]).await;
    let (_, list) = app.get("/tools?detail=brief").await;
    let tool = &list["tools"][0];
    assert_eq!(tool["output_schema"], Value::Null);
    assert_eq!(
        tool["input_schema"],
        json!({"type": "object", "properties": {"a": {"type": "string", "description": "The first."}}})
    );
    for format in ["openai", "anthropic", "mcp"] {
        let size = async |detail: &str| {
            let path = format!("/tools?format={format}&detail={detail}");
            app.get(&path).await.1.to_string().len()
        };
        assert!(size("brief").await * 2 < size("full").await, "{format}");
    }
    let (_, full) = app.get("/tools?format=anthropic").await;
    assert_eq!(full[0]["input_examples"], json!([{"a": "x"}]));
    let (_, openai) = app.get("/tools?format=openai").await;
    let text = openai[0]["function"]["description"].as_str().unwrap();
    assert!(
        text.ends_with("Example of arguments: {\"a\":\"x\"}"),
        "{text}"
    );
}
