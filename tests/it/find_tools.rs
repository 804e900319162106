//! Tools that are found by words: `GET /tools?query=`, `search_tools` and `call_tool`.

use serde_json::{Value, json};
use toolcrib::{Effect, Tool, ToolResult};

use crate::support::mcp::{last_message, modern_request};
use crate::support::{TestApp, first_text};

const MANIFEST: &str = r#"
tools:
  search_tools: {kind: native}
  call_tool: {kind: native}
  send_mail: {kind: native, tags: [post]}
  send_fax: {kind: native}
  pay_invoice: {kind: native, approval: {by: [root], wait: 0s}}
toolsets:
  post: {tags: [post]}
callers:
  - {name: root, key: key-of-root, admin: true}
  - {name: ann, key: key-of-ann}
  - {name: bob, key: key-of-bob, allow: ["send_*", search_tools, call_tool], deny: [send_fax]}
  - {name: cat, key: key-of-cat, toolset: post}
  - {name: dan, key: key-of-dan, allow: []}
"#;

async fn app() -> TestApp {
    let mail = Tool::new("send_mail", "Sends a message to a person.")
        .param("to", "string", "The address of the recipient")
        .call(|arguments, _| async move { Ok(json!({"sent_to": arguments["to"]})) });
    let fax = Tool::new("send_fax", "Sends a page to a number.")
        .effect(Effect::Read)
        .call(|_, _| async { Ok(ToolResult::error("The line is busy.")) });
    let pay = Tool::new("pay_invoice", "Pays an invoice.").call(|_, _| async { Ok("paid") });
    TestApp::with_manifest(MANIFEST, [mail, fax, pay]).await
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn call(app: &TestApp, key: &str, tool: &str, arguments: Value) -> Value {
    let path = format!("/tools/{tool}/invoke");
    app.post_as(key, &path, json!({"arguments": arguments}))
        .await
        .1
}

#[tokio::test]
async fn query_lists_the_best_matches_first() {
    let app = app().await;
    let listed = async |key: &str, query: &str| {
        let path = format!("/tools?query={query}");
        let (_, list) = app.get_as(key, &path).await;
        names(&list).join(" ")
    };
    assert_eq!(
        listed("key-of-ann", "send%20a%20message").await,
        "send_mail send_fax"
    );
    assert_eq!(listed("key-of-ann", "recipients").await, "send_mail");
    assert_eq!(
        listed("key-of-ann", "sending&limit=1")
            .await
            .split(' ')
            .count(),
        1
    );
    assert_eq!(listed("key-of-ann", "send&toolset=post").await, "send_mail");
    assert_eq!(
        listed("key-of-bob", "fax").await,
        "",
        "a denied tool is not found"
    );
    assert_eq!(listed("key-of-ann", "search%20tools").await, "");
    let (status, _) = app.get_as("key-of-ann", "/tools?query=x&limit=0").await;
    assert_eq!(status, 400);
    let (_, list) = app
        .get_as("key-of-ann", "/tools?query=fax&format=anthropic")
        .await;
    assert_eq!(list[0]["name"], "send_fax");
}

#[tokio::test]
async fn new_tool_is_found() {
    let app = app().await;
    assert_eq!(
        names(&app.get_as("key-of-root", "/tools?query=kettle").await.1),
        [""; 0]
    );
    let kettle = Tool::new("kettle", "Boils water.").call(|_, _| async { Ok("hot") });
    app.registry().register(kettle).unwrap();
    let (_, list) = app.get_as("key-of-root", "/tools?query=boil").await;
    assert_eq!(names(&list), ["kettle"]);
}

#[tokio::test]
async fn search_finds_what_its_caller_may_use() {
    let app = app().await;
    for (key, expected) in [
        ("key-of-ann", "send_mail send_fax"),
        ("key-of-bob", "send_mail"),
        ("key-of-cat", "send_mail"),
    ] {
        let found = call(
            &app,
            key,
            "search_tools",
            json!({"query": "send a message"}),
        )
        .await;
        let found = &found["structured_content"];
        assert_eq!(names(found).join(" "), expected, "{key}");
        assert_eq!(
            found["tools"][0]["input_schema"]["required"],
            json!(["to"]),
            "{found}"
        );
    }
    let nothing = call(
        &app,
        "key-of-ann",
        "search_tools",
        json!({"query": "xyzzy"}),
    )
    .await;
    assert!(
        nothing["structured_content"]["hint"].is_string(),
        "{nothing}"
    );
    let refused = call(&app, "key-of-dan", "search_tools", json!({"query": "x"})).await;
    assert_eq!(refused["kind"], "forbidden", "`allow: []` is nothing");
}

#[tokio::test]
async fn called_tool_has_its_own_stack_and_row() {
    let app = app().await;
    let arguments = json!({"name": "Send-Mail", "arguments": {"to": "x@example.com"}});
    let answer = call(&app, "key-of-ann", "call_tool", arguments).await;
    assert_eq!(
        answer["structured_content"],
        json!({"sent_to": "x@example.com"}),
        "{answer}"
    );
    let (_, rows) = app.get_as("key-of-root", "/invocations").await;
    let rows = rows["invocations"].as_array().unwrap();
    let row = |tool: &str| rows.iter().find(|row| row["tool"] == tool).unwrap();
    assert_eq!(
        row("send_mail")["parent"],
        answer["invocation_id"],
        "{rows:?}"
    );
    assert_eq!(row("send_mail")["arguments"]["to"], "x@example.com");
    let id = answer["invocation_id"].as_str().unwrap();
    let (_, outer) = app
        .get_as("key-of-ann", &format!("/invocations/{id}"))
        .await;
    assert!(
        !outer.to_string().contains("x@example.com"),
        "only the row of the called tool has arguments and result: {outer}"
    );
}

#[tokio::test]
async fn failures_of_a_called_tool_are_words() {
    let app = app().await;
    for (key, arguments, expected) in [
        (
            "key-of-ann",
            json!({"name": "send_fax"}),
            "The line is busy.",
        ),
        ("key-of-ann", json!({"name": "send_mail"}), "to"),
        (
            "key-of-ann",
            json!({"name": "send_mai"}),
            "Did you mean send_mail?",
        ),
        (
            "key-of-ann",
            json!({"name": "call_tool"}),
            "There is no tool `call_tool`",
        ),
        ("key-of-bob", json!({"name": "send_fax"}), "not"),
        ("key-of-cat", json!({"name": "pay_invoice"}), "not"),
    ] {
        let reply = app
            .post_as(
                key,
                "/tools/call_tool/invoke",
                json!({"arguments": arguments}),
            )
            .await;
        assert_eq!(reply.1["is_error"], true, "{arguments} {reply:?}");
        assert!(
            first_text(&reply).contains(expected),
            "{arguments} {reply:?}"
        );
    }
}

#[tokio::test]
async fn connection_with_a_part_of_the_tools_finds_only_these() {
    let app = app().await;
    let mcp = async |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        let mut request = modern_request("tools/call", params, Some("key-of-ann"));
        *request.uri_mut() = "/mcp/post".parse().unwrap();
        last_message(app.respond(request).await).await.1["result"].take()
    };
    let found = mcp("search_tools", json!({"query": "send"})).await;
    assert_eq!(names(&found["structuredContent"]), ["send_mail"]);
    let refused = mcp("call_tool", json!({"name": "send_fax"})).await;
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "There is no tool `send_fax`. Search for it.");
    let misspelt = mcp("call_tool", json!({"name": "send_fx"})).await;
    let text = misspelt["content"][0]["text"].as_str().unwrap();
    assert!(
        !text.contains("fax"),
        "a hint names no tool outside the toolset: {text}"
    );
    let answer = mcp(
        "call_tool",
        json!({"name": "send_mail", "arguments": {"to": "x"}}),
    )
    .await;
    assert_eq!(answer["structuredContent"], json!({"sent_to": "x"}));
}
