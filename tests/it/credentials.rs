//! Credentials of callers: whose they are in nested calls, and which results are shared.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib::call::{Definition, JsonObject, NestedCall, ToolInvoker, ToolResult};
use toolcrib::kinds::Runner;
use toolcrib::{App, Effect, Tool, ToolContext, ToolError};

use crate::sources::{discovered_tool, scripted_source};
use crate::support::TestApp;

const CALLERS: &str = "callers:\n  - {name: ann, key: key-of-ann, credentials: {TOKEN: \"token of ann\"}}\n  - {name: bob, key: \
     key-of-bob, credentials: {TOKEN: \"token of bob\"}}\n  - {name: root, key: key-of-root, admin: true}\n";

/// Answers the name of the caller, in place of a request with the caller's credential.
struct Whoami([String; 1]);

#[async_trait]
impl Runner for Whoami {
    async fn call(
        &self,
        _: Arc<JsonObject>,
        context: ToolContext,
    ) -> Result<ToolResult, ToolError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let token = context
            .caller
            .credentials
            .get("TOKEN")
            .and_then(Value::as_str);
        Ok(ToolResult::text(
            token.ok_or("no credential")?.replace("token of ", ""),
        ))
    }

    fn caller_credentials(&self) -> &[String] {
        &self.0
    }
}

/// A tool with shared results that calls the tool of `Whoami`.
fn asking_tool() -> Tool {
    let tool = Tool::new("asks", "Asks who calls.")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[])
        .cache_shared();
    tool.call(|_, context| async move {
        let deadline = Instant::now() + Duration::from_secs(20);
        let (name, arguments) = ("whoami".into(), json!({}));
        let call = NestedCall {
            name,
            arguments,
            cut_off: false,
            tool_use_id: None,
            deadline,
            max_depth: None,
            script_position: None,
        };
        let invoker = context
            .service::<Arc<dyn ToolInvoker>>()
            .ok_or("no other tools")?
            .clone();
        match invoker.call(&context, &|_: &Definition| true, call).await {
            Ok(answer) => Ok(json!({"caller": answer.result.as_text()})),
            Err(_) => Ok(json!({"caller": "refused"})),
        }
    })
}

async fn app() -> TestApp {
    let source = scripted_source([Ok(vec![discovered_tool(
        "whoami",
        Arc::new(Whoami(["TOKEN".into()])),
    )])]);
    TestApp::loading(
        App::builder().source("s", source).tool(asking_tool()),
        Some(CALLERS),
    )
    .await
    .with_sources_listed()
    .await
}

async fn ask(app: &TestApp, caller: &str, tool: &str) -> Value {
    app.post_as(
        &format!("key-of-{caller}"),
        &format!("/tools/{tool}/invoke"),
        json!({"arguments": {}}),
    )
    .await
    .1
}

#[tokio::test]
async fn nested_results_stay_with_their_caller() {
    let app = app().await;
    let callers = ["root", "ann", "bob"].repeat(4);
    let answers = join_all(callers.iter().map(|caller| ask(&app, caller, "asks"))).await;
    for (caller, answer) in callers.iter().zip(answers) {
        let expected = if *caller == "root" { "refused" } else { caller };
        assert_eq!(
            answer["structured_content"]["caller"], *expected,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn caller_without_credential_is_refused() {
    let app = app().await;
    let refused = ask(&app, "root", "whoami").await;
    assert_eq!(
        (&refused["kind"], &refused["status"]),
        (&json!("forbidden"), &json!(403))
    );
    assert_eq!(
        refused["detail"],
        "caller `root` has no credential `TOKEN`, which tool `whoami` sends for its caller"
    );
    assert_eq!(
        ask(&app, "ann", "whoami").await["content"][0]["text"],
        "ann"
    );
}
