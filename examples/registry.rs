//! Tools without a server, for a program that is the agent itself: `cargo run --example registry`.

use serde_json::json;
use toolcrib::call::ErrorKind;
use toolcrib::{Agent, Caller, Format, Registry, Tool, tool};

/// Adds two whole numbers.
#[tool(effect = "read", limits(calls = 2, per = "lifetime"))]
fn add(
    /// The first number
    one: i64,
    /// The second number
    #[tool(default = 1)]
    other: i64,
) -> i64 {
    one + other
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // An agent is a tool like any other, and finds its own tools by name.
    let specialist = Agent::new("http://127.0.0.1:11434/v1", "qwen3").tools(["add"]);
    let specialist = specialist.as_tool(
        "mathematician",
        "Solves a problem of arithmetic step by step.",
    );
    let registry = Registry::builder()
        .tool(add::tool())
        .agent(specialist)
        .build()
        .await?;
    registry
        .register(Tool::new("ping", "Says that it is there.").call(|_, _| async { Ok("pong") }))?;
    assert!(registry.len() == 3 && registry.has_tool("ping"));

    // The schemas in the format of each model API.
    assert_eq!(
        registry.schemas(Format::Openai, &Caller::anonymous())[0]["function"]["name"],
        "add"
    );
    assert_eq!(
        registry.schemas(Format::Anthropic, &Caller::anonymous())[2]["name"],
        "ping"
    );

    // Arguments as an object, or as the text that a model wrote.
    let answer = registry
        .execute("add", json!({"one": 2, "other": 3}))
        .await
        .ok_or("no such tool")??;
    assert_eq!(answer.result.as_text(), "5");
    let answer = registry
        .execute("add", r#"{"one": 2}"#)
        .await
        .ok_or("no such tool")??;
    assert_eq!(answer.result.as_text(), "3");

    // The limit holds until it is reset.
    let refused = registry
        .execute("add", json!({"one": 4}))
        .await
        .ok_or("no such tool")?;
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(ErrorKind::UsageLimitReached)
    );
    let entry = registry.get("add").ok_or("no such tool")?;
    assert_eq!(
        registry.limit_usage(&entry, &Caller::anonymous()).await?[0].used,
        2
    );
    registry.reset_usage(&entry, None).await?;
    assert!(
        registry
            .execute("add", json!({"one": 4}))
            .await
            .is_some_and(|answer| answer.is_ok())
    );
    registry.close().await;
    Ok(())
}
