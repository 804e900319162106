//! Functions that `#[tool]` makes tools of, seen over HTTP.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib::call::JsonObject;
use toolcrib::{App, ToolContext, ToolError, ToolResult, tool};

use crate::support::{TestApp, first_text};

#[derive(Serialize, JsonSchema)]
struct Found {
    /// Titles that were found
    titles: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Oldest,
    Newest,
}

/// Notes that tools share.
struct Notes(Vec<&'static str>);

/// Finds notes by a word in their title.
///
/// Case does not matter.
///
/// # Errors
/// When there are no notes.
#[tool(
    effect = "read",
    timeout = "10s",
    deadline = "1m",
    retry(attempts = 3),
    limits(calls = 100, per = "day", scope = "caller"),
    limits(calls = 1000, per = "month"),
    cache(ttl = "5m", scope = "shared", context = ["tenant"]),
    should_cache = has_titles,
    concurrency(max = 4, queue = 8, wait = "250ms", per_caller = 2),
    on_disconnect = "finish",
    idempotency = "off",
    capture = "digest",
    repeatable,
    strict,
    result_as_answer,
    paging = "model",
    tags = ["notes", "search"],
    aliases = ["search_notes"],
    env(name = "TOOLCRIB_TEST_NOT_SET", description = "A place", default = "here"),
    annotations(title = "Notes", openWorldHint = false),
)]
async fn find_notes(
    /// A word of the title
    word: String,
    context: ToolContext,
    /// At most so many
    #[tool(default = 10)]
    #[schemars(range(min = 1, max = 50))]
    most: usize,
    /// Which come first
    order: Option<Order>,
    #[tool(default)] exact: bool,
) -> Result<Found, ToolError> {
    let notes = context.service::<Notes>().ok_or("no notes are shared")?;
    let fits = |title: &&&str| {
        if exact {
            **title == word
        } else {
            title.to_lowercase().contains(&word.to_lowercase())
        }
    };
    let mut titles: Vec<String> = notes
        .0
        .iter()
        .filter(fits)
        .take(most)
        .map(|title| (*title).to_owned())
        .collect();
    if let Some(Order::Newest) = order {
        titles.reverse();
    }
    Ok(Found { titles })
}

fn has_titles(_: &JsonObject, result: &ToolResult) -> bool {
    result
        .structured_content
        .as_ref()
        .is_some_and(|found| found["titles"] != json!([]))
}

async fn notes() -> TestApp {
    let notes = Notes(vec!["Plants", "Eggplant recipe", "Letters"]);
    TestApp::loading(App::builder().share(notes).tool(find_notes::tool()), None).await
}

#[tokio::test]
async fn attribute_reads_the_definition_from_the_function() {
    let (status, shown) = notes().await.get("/tools/find_notes").await;
    assert_eq!(status, 200);
    assert_eq!(
        shown["description"],
        "Finds notes by a word in their title.\n\nCase does not matter."
    );
    let input = &shown["input_schema"];
    assert_eq!(input["required"], json!(["word"]));
    assert_eq!(input["additionalProperties"], false);
    let properties = &input["properties"];
    assert_eq!(
        properties.as_object().unwrap().len(),
        7,
        "four, three of paging, and no context: {properties}"
    );
    assert_eq!(
        properties["word"],
        json!({"type": "string", "description": "A word of the title"})
    );
    let most = &properties["most"];
    assert_eq!(
        (&most["default"], &most["minimum"], &most["maximum"]),
        (&json!(10), &json!(1), &json!(50)),
        "{most}"
    );
    assert_eq!(most["description"], "At most so many");
    assert_eq!(properties["exact"]["default"], false);
    assert_eq!(
        shown["output_schema"]["properties"]["titles"]["description"],
        "Titles that were found"
    );
    assert_eq!(shown["output_schema"]["type"], "object");
}

#[tokio::test]
async fn attribute_settings_reach_the_tool() {
    let (_, shown) = notes().await.get("/tools/search_notes").await;
    assert_eq!(
        shown["policy"],
        json!({
            "effect": "read", "timeout": "10s", "deadline": "1m", "retry": {"attempts": 3},
            "limits": [
                {"calls": 100, "per": "day", "scope": "caller"}, {"calls": 1000, "per": "month", "scope": "tool"}
            ],
            "cache": {"ttl": "5m", "scope": "shared", "context": ["tenant"], "when": "a function"},
            "approval": null, "deny_when": [], "concurrency": {"max": 4, "queue": 8, "wait": "250ms", "per_caller": 2},
            "on_disconnect": "finish", "idempotency": "off", "capture": "digest", "repeatable": true, "strict": true,
            "paging": "model", "enabled": true,
        })
    );
    assert_eq!(shown["name"], "find_notes");
    assert_eq!(
        (&shown["result_as_answer"], &shown["tags"]),
        (&json!(true), &json!(["notes", "search"]))
    );
    assert_eq!(shown["annotations"]["title"], "Notes");
    assert_eq!(shown["annotations"]["openWorldHint"], false);
    assert_eq!(shown["env"][0]["name"], "TOOLCRIB_TEST_NOT_SET");
}

#[tokio::test]
async fn attribute_passes_arguments_defaults_and_services() {
    let app = notes().await;
    let titles = |reply: (_, Value)| reply.1["structured_content"]["titles"].clone();
    assert_eq!(
        titles(app.invoke("find_notes", json!({"word": "PLANT"})).await),
        json!(["Plants", "Eggplant recipe"])
    );
    let newest = json!({"word": "plant", "order": "newest", "most": 2});
    assert_eq!(
        titles(app.invoke("find_notes", newest).await),
        json!(["Eggplant recipe", "Plants"])
    );
    assert_eq!(
        titles(
            app.invoke(
                "find_notes",
                json!({"word": "plant", "exact": true, "order": null})
            )
            .await
        ),
        json!([])
    );
    let (status, problem) = app
        .invoke("find_notes", json!({"word": "plant", "most": 51}))
        .await;
    assert_eq!(
        (status.as_u16(), &problem["violations"][0]["pointer"]),
        (422, &json!("/most"))
    );
}

/// Adds two whole numbers.
#[tool(effect = "read", cache_ttl = "1m")]
pub(crate) fn add(one: i64, #[tool(default = 1)] other: i64) -> i64 {
    one + other
}

#[tokio::test]
async fn attributed_function_can_still_be_called() {
    assert_eq!(add(2, 3), 5);
    // A variable may have the name, too: nothing else stands for a value of it.
    let add = add(2, 3);
    assert_eq!(add, 5);
}

#[tokio::test]
async fn tool_without_context_is_cached_by_arguments() {
    let app = TestApp::new([add::tool()]).await;
    for cache in ["miss", "hit"] {
        let reply = app.invoke("add", json!({"one": 2})).await;
        assert_eq!(
            (first_text(&reply), &reply.1["meta"]["cache"]),
            ("3", &json!(cache))
        );
        assert_eq!(reply.1["structured_content"], Value::Null);
    }
    let (_, shown) = app.get("/tools/add").await;
    assert_eq!(
        (
            &shown["output_schema"],
            &shown["policy"]["cache"]["context"]
        ),
        (&Value::Null, &json!([]))
    );
}

/// Says for whom it was called.
#[tool(effect = "read", cache_ttl = "5m", context = ["tenant"])]
fn for_whom(context: ToolContext) -> String {
    format!("{:?}", context.context.keys().collect::<Vec<_>>())
}

#[tokio::test]
async fn function_gets_only_its_declared_fields() {
    let app = TestApp::new([for_whom::tool()]).await;
    let body = json!({"arguments": {}, "context": {"tenant": "acme", "user": "ann"}});
    assert_eq!(
        first_text(&app.post("/tools/for_whom/invoke", body).await),
        r#"["tenant"]"#
    );
    let (_, shown) = app.get("/tools/for_whom").await;
    assert_eq!(
        (&shown["context"], &shown["policy"]["cache"]["context"]),
        (&json!(["tenant"]), &json!(["tenant"]))
    );
}

type Outcome<T> = Result<T, std::io::Error>;

/// Reads a text, under another name for a result.
#[tool(name = "read-text")]
async fn read_text(r#type: String) -> Outcome<String> {
    match r#type.as_str() {
        "text" => Ok("a text".into()),
        other => Err(std::io::Error::other(format!("there is no {other}"))),
    }
}

/// Has the names that the written code might have, too.
#[tool]
fn joined(context: String, arguments: String, tool: String) -> String {
    [context, arguments, tool].join(" ")
}

#[tokio::test]
async fn parameters_may_have_any_name() {
    let app = TestApp::new([joined::tool()]).await;
    let reply = app
        .invoke(
            "joined",
            json!({"context": "a", "arguments": "b", "tool": "c"}),
        )
        .await;
    assert_eq!(first_text(&reply), "a b c");
}

/// Answers in blocks of its own.
#[tool]
fn refuse() -> ToolResult {
    ToolResult::error("not today")
}

/// Answers nothing.
#[tool]
async fn nothing() {}

/// Says where it runs.
#[tool(effect = "read")]
fn thread() -> String {
    format!("{:?}", std::thread::current().id())
}

/// Stops in the middle.
#[tool]
async fn fall() -> Option<Found> {
    panic!("fell")
}

#[tokio::test]
async fn every_result_type_is_an_answer() {
    let app = TestApp::new([
        read_text::tool(),
        refuse::tool(),
        nothing::tool(),
        fall::tool(),
    ])
    .await;
    let reply = app.invoke("read-text", json!({"type": "text"})).await;
    assert_eq!(
        (first_text(&reply), &reply.1["is_error"]),
        ("a text", &json!(false))
    );
    let reply = app.invoke("read-text", json!({"type": "picture"})).await;
    assert_eq!(
        (first_text(&reply), &reply.1["is_error"]),
        ("there is no picture", &json!(true))
    );
    let reply = app.invoke("refuse", json!({})).await;
    assert_eq!(
        (first_text(&reply), &reply.1["is_error"]),
        ("not today", &json!(true))
    );
    let (status, answer) = app.invoke("nothing", json!({})).await;
    assert_eq!(
        (status.as_u16(), &answer["content"], &answer["is_error"]),
        (200, &json!([]), &json!(false))
    );
    assert_eq!(app.invoke("fall", json!({})).await.1["is_error"], true);
}

#[tokio::test]
async fn blocking_function_leaves_the_async_threads() {
    let app = TestApp::new([thread::tool()]).await;
    let reply = app.invoke("thread", json!({})).await;
    // The tests' runtime has one thread, this one.
    assert!(first_text(&reply).starts_with("ThreadId("), "{}", reply.1);
    assert_ne!(
        first_text(&reply),
        format!("{:?}", std::thread::current().id())
    );
}

#[tokio::test]
async fn builder_extends_the_attribute() {
    let slow = add::tool().timeout(Duration::from_secs(90)).tag("sums");
    let (_, shown) = TestApp::new([slow]).await.get("/tools/add").await;
    assert_eq!(
        (&shown["policy"]["timeout"], &shown["tags"]),
        (&json!("1m 30s"), &json!(["sums"]))
    );
}
