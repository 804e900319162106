//! Programs that call tools without a service, and agents that they declare.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};
use toolcrib::call::{CallError, Clock, EnvVar, ErrorKind};
use toolcrib::environment::Environment;
use toolcrib::{Agent, App, Caller, Format, Limit, LimitScope, Per, Registry, Tool, ToolContext};

use crate::attribute::add;
use crate::support::{START, TestApp, first_text};

#[path = "../../examples/registry.rs"]
mod example;

#[test]
fn registry_example_runs() {
    example::main().unwrap();
}

fn limited_tool() -> Tool {
    add::tool().limit(Limit {
        calls: 1,
        per: Per::Day,
        scope: LimitScope::Tool,
    })
}

async fn invoke_text(registry: &Registry, tool: &str, arguments: impl Into<Value>) -> String {
    registry
        .execute(tool, arguments)
        .await
        .unwrap()
        .unwrap()
        .result
        .as_text()
}

#[tokio::test]
async fn registry_needs_no_server() {
    let registry = Registry::builder().tool(add::tool()).build().await.unwrap();
    registry
        .register(Tool::new("ping", "Answers.").call(|_, _| async { Ok("pong") }))
        .unwrap();
    assert_eq!(
        (
            registry.len(),
            registry.has_tool("ping"),
            registry.has_tool("pong")
        ),
        (2, true, false)
    );
    assert_eq!(
        invoke_text(&registry, "add", json!({"one": 2, "other": 3})).await,
        "5"
    );
    assert_eq!(invoke_text(&registry, "ping", json!({})).await, "pong");
    assert!(registry.execute("pong", json!({})).await.is_none());
    let names = |format| -> Vec<Value> {
        let schemas = registry.schemas(format, &Caller::anonymous());
        schemas
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.get("function").unwrap_or(one)["name"].clone())
            .collect()
    };
    assert_eq!(names(Format::Openai), ["add", "ping"]);
    assert_eq!(names(Format::Anthropic), ["add", "ping"]);
    registry.close().await;
    let error = registry
        .execute("ping", json!({}))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Draining);
}

#[tokio::test]
async fn arguments_may_be_model_text() {
    let registry = Registry::builder().tool(add::tool()).build().await.unwrap();
    assert_eq!(
        invoke_text(&registry, "add", "{\"one\": 2, \"other\": 3}").await,
        "5"
    );
    for wrong in [
        json!("{\"one\": 2"),
        json!("{\"one\": 1, \"one\": 2}"),
        json!("[2, 3]"),
        json!([2, 3]),
        json!(5),
    ] {
        let error = registry
            .execute("add", wrong.clone())
            .await
            .unwrap()
            .unwrap_err();
        assert!(
            matches!(error, CallError::UnreadableArguments(_)),
            "{wrong}: {error}"
        );
        assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    }
    let error = registry.execute("add", "").await.unwrap().unwrap_err();
    assert!(
        matches!(error, CallError::InvalidArguments(_)),
        "no arguments: {error}"
    );
}

#[tokio::test]
async fn usage_is_counted_listed_and_reset() {
    let (clock, _) = Clock::manual(START.parse::<Timestamp>().unwrap());
    let registry = Registry::builder()
        .tool(limited_tool())
        .clock(clock)
        .build()
        .await
        .unwrap();
    let (entry, caller) = (registry.get("add").unwrap(), Caller::anonymous());
    let used = async || registry.limit_usage(&entry, &caller).await.unwrap()[0].to_usage();
    assert_eq!((used().await.used, used().await.remaining), (0, 1));
    assert_eq!(invoke_text(&registry, "add", json!({"one": 1})).await, "2");
    assert_eq!((used().await.used, used().await.remaining), (1, 0));
    let error = registry
        .execute("add", json!({"one": 2}))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UsageLimitReached);
    registry.reset_usage(&entry, None).await.unwrap();
    assert_eq!(used().await.used, 0);
    assert_eq!(invoke_text(&registry, "add", json!({"one": 2})).await, "3");
}

#[tokio::test]
async fn ledger_is_kept_at_the_given_path() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("own.db").display());
    let (clock, _) = Clock::manual(START.parse::<Timestamp>().unwrap());
    let build = || {
        Registry::builder()
            .tool(limited_tool())
            .clock(clock.clone())
            .ledger(url.clone())
            .build()
    };
    let registry = build().await.unwrap();
    assert_eq!(invoke_text(&registry, "add", json!({"one": 1})).await, "2");
    registry.close().await;
    let error = build()
        .await
        .unwrap()
        .execute("add", json!({"one": 2}))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::UsageLimitReached,
        "counted by the registry before"
    );
}

#[tokio::test]
async fn temporary_ledger_ends_with_its_registry() {
    let registry = Registry::builder().tool(add::tool()).build().await.unwrap();
    let place = registry.shared().ledger.describe();
    let file = std::path::PathBuf::from(place.strip_prefix("sqlite ").unwrap());
    assert!(file.exists(), "{place}");
    registry.close().await;
    drop(registry);
    assert!(!file.parent().unwrap().exists(), "{place}");
}

#[tokio::test]
async fn duplicate_tool_names_are_an_error() {
    let error = Registry::builder()
        .tool(add::tool())
        .tool(add::tool())
        .build()
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "`add` is declared twice: tool names and aliases are unique"
    );
}

#[tokio::test]
async fn tools_need_a_description() {
    let empty = Tool::new("t", " ").call(|_, _| async { Ok("") });
    let refused = Registry::builder()
        .tool(empty)
        .build()
        .await
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        refused.as_deref(),
        Some("tool `t`: the description is empty: say what the tool does and when to use it")
    );
}

#[tokio::test]
async fn added_tools_get_their_variables() {
    let variable = |name: &str| {
        let declared = EnvVar {
            name: "SHOP_KEY".into(),
            description: String::new(),
            required: true,
            default: None,
        };
        Tool::new(name, "Says its key.").env_var(declared).call(
            |_, context: ToolContext| async move {
                Ok(format!(
                    "the key is {}",
                    context.env("SHOP_KEY").unwrap_or("not there")
                ))
            },
        )
    };
    let environment: Environment = [("SHOP_KEY", "key-of-the-shop")].into_iter().collect();
    let registry = Registry::builder()
        .tool(variable("first"))
        .environment(environment)
        .build()
        .await
        .unwrap();
    registry.register(variable("second")).unwrap();
    for tool in ["first", "second"] {
        assert_eq!(
            invoke_text(&registry, tool, json!({})).await,
            "the key is [redacted]"
        );
    }
    let none = Environment::default();
    let error = Registry::builder()
        .tool(variable("first"))
        .environment(none.clone())
        .build()
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "tool `first`: environment variable SHOP_KEY is not set"
    );
    let empty = Registry::builder().environment(none).build().await.unwrap();
    assert!(empty.register(variable("first")).is_err());
}

/// A model that calls `add` with the user's text, and answers with the result. It records its
/// requests.
async fn start_model() -> (String, Arc<Mutex<Vec<Value>>>) {
    let model_requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let recorded = model_requests.clone();
    let answer = |Json(request): Json<Value>| async move {
        let last = request["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        let message = match last["role"].as_str() {
            Some("tool") => {
                json!({"role": "assistant", "content": format!("It is {}.", last["content"])})
            }
            _ => json!({"role": "assistant", "content": null, "tool_calls": [{
                "id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"one\": 2, \"other\": 3}"},
            }]}),
        };
        recorded.lock().unwrap().push(request);
        Json(json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(
            listener,
            Router::new().route("/v1/chat/completions", post(answer)),
        )
        .await
    });
    (format!("http://{address}/v1"), model_requests)
}

fn math_agent(base_url: &str) -> Tool<Agent> {
    let agent = Agent::new(base_url, "model-1")
        .key("key-of-the-model")
        .system("You add.")
        .tools(["ad*"])
        .max_turns(3);
    agent.as_tool("mathematician", "Solves a problem step by step.")
}

#[tokio::test]
async fn native_agent_uses_its_tools() {
    let (url, model_requests) = start_model().await;
    let registry = Registry::builder()
        .tool(add::tool())
        .agent(math_agent(&url))
        .build()
        .await
        .unwrap();
    let answer = registry
        .execute("mathematician", json!({"task": "2 and 3?"}))
        .await
        .unwrap()
        .unwrap();
    assert!(
        answer.result.as_text().contains('5'),
        "{}",
        answer.result.as_text()
    );
    let model_requests = model_requests.lock().unwrap();
    assert_eq!(model_requests.len(), 2);
    assert_eq!(model_requests[0]["model"], "model-1");
    assert_eq!(
        model_requests[0]["messages"],
        json!([
            {"role": "system", "content": "You add."}, {"role": "user", "content": "2 and 3?"}
        ])
    );
    assert_eq!(model_requests[0]["tools"][0]["function"]["name"], "add");
}

#[tokio::test]
async fn native_agent_is_served() {
    let (url, _) = start_model().await;
    let builder = App::builder().tool(add::tool()).agent(math_agent(&url));
    let app = TestApp::loading(builder, None).await;
    let (_, shown) = app.get("/tools/mathematician").await;
    assert_eq!(
        (&shown["kind"], &shown["origin"]),
        (&json!("agent"), &json!("program"))
    );
    assert_eq!(shown["input_schema"]["required"], json!(["task"]));
    assert!(!shown.to_string().contains("key-of-the-model"), "{shown}");
    let reply = app
        .invoke("mathematician", json!({"task": "2 and 3?"}))
        .await;
    assert!(first_text(&reply).contains('5'), "{}", reply.1);
    assert_eq!(
        app.get("/invocations").await.1["invocations"]
            .as_array()
            .unwrap()
            .len(),
        2,
        "the call below is on record"
    );
}

#[tokio::test]
async fn agent_may_be_registered_later() {
    let (url, _) = start_model().await;
    let registry = Registry::builder().tool(add::tool()).build().await.unwrap();
    registry
        .register(math_agent(&url).build().unwrap())
        .unwrap();
    assert!(
        invoke_text(&registry, "mathematician", json!({"task": "2 and 3?"}))
            .await
            .contains('5')
    );
}

#[tokio::test]
async fn later_agents_are_listed_as_coworkers() {
    let (url, _) = start_model().await;
    let manifest = "tools:\n  delegate_work: {kind: native}\n  ask: {kind: native, use: ask_question, with: {coworkers: [poet]}}\n";
    let app = TestApp::with_manifest(manifest, [add::tool()]).await;
    let described =
        async |tool: &str| app.get(&format!("/tools/{tool}")).await.1["description"].to_string();
    let (before, ask) = (described("delegate_work").await, described("ask").await);
    assert!(!before.contains("mathematician"), "{before}");
    assert_eq!(
        app.post("/tools/delegate_work/disable", json!({})).await.0,
        200
    );
    app.registry()
        .register(math_agent(&url).build().unwrap())
        .unwrap();
    let after = described("delegate_work").await;
    assert!(
        after.contains("Coworkers:\\n- mathematician: Solves a problem step by step."),
        "{after}"
    );
    assert_eq!(
        described("ask").await,
        ask,
        "it hands nothing to this agent"
    );
    assert_eq!(
        app.get("/tools/delegate_work").await.1["available"],
        false,
        "what is off stays off"
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(described("delegate_work").await, after);
    let twice = app
        .registry()
        .register(math_agent(&url).build().unwrap())
        .unwrap_err();
    assert!(
        twice
            .to_string()
            .contains("`mathematician` is declared twice"),
        "{twice}"
    );
    assert_eq!(described("delegate_work").await, after);
}

#[tokio::test]
async fn in_memory_ledgers_are_refused() {
    for builder in [
        App::builder().ledger("sqlite://:memory:"),
        App::builder().ledger("sqlite::memory:"),
    ] {
        let error = builder
            .tool(add::tool())
            .build()
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("a ledger in memory is not supported; name a file, sqlite://FILE"),
            "{error}"
        );
    }
    let error = Registry::builder()
        .tool(add::tool())
        .ledger("sqlite://:memory:")
        .build()
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("or omit the URL"), "{error}");
    assert!(!std::path::Path::new(":memory:").exists());
}

#[tokio::test]
async fn blank_descriptions_are_refused() {
    for blank in ["", " \n", "\u{200b}\u{2060}\u{feff}", "\u{3164}"] {
        let tool = Tool::new("t", blank).call(|_, _| async { Ok("x") });
        let error = Registry::builder()
            .tool(tool)
            .build()
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("tool `t`: the description is empty"),
            "{blank:?}: {error}"
        );
    }
}

#[tokio::test]
async fn agent_errors_are_reported_at_once() {
    let agent = Agent::new("not a url", "")
        .max_turns(0)
        .as_tool("lost", "Does nothing.");
    let error = App::builder()
        .agent(agent)
        .build()
        .await
        .err()
        .unwrap()
        .to_string();
    for part in [
        "tool `lost`",
        "max_turns: a number from 1 to 100",
        "model.base_url:",
        "model.name:",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
