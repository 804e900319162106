//! Why a call failed, in lists of calls: a sentence of the service, or the beginning of the text of a
//! tool's own error.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolcrib::{Effect, Limit, LimitScope, Per, Tool, ToolError};

use crate::support::TestApp;

const QUOTED: &str = "quoted-by-the-tool";

async fn newest_detail(app: &TestApp) -> Value {
    let row = app.newest_invocation().await;
    let (_, one) = app
        .get(&format!(
            "/invocations/{}",
            row["invocation_id"].as_str().unwrap()
        ))
        .await;
    assert_eq!(one["detail"], row["detail"]);
    row["detail"].clone()
}

fn tool(name: &str) -> Tool<()> {
    Tool::new(name, "For tests.")
        .param("word", "string", "A word")
        .effect(Effect::Read)
}

#[tokio::test]
async fn rows_state_why_a_call_failed() {
    let limit = Limit {
        calls: 1,
        per: Per::Day,
        scope: LimitScope::Tool,
    };
    let app = TestApp::new([
        tool("fine").call(|_, _| async { Ok("word") }),
        tool("refuses").call(|_, _| async { Err::<&str, _>(QUOTED.into()) }),
        tool("fails").call(|_, _| async { Err::<&str, _>(ToolError::upstream_permanent(QUOTED)) }),
        tool("garbles").call(|_, _| async { Err::<&str, _>(ToolError::BadOutput(QUOTED.into())) }),
        tool("slow")
            .timeout(Duration::from_millis(20))
            .call(|_, _| async {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Ok("never")
            }),
        tool("limited")
            .limit(limit)
            .call(|_, _| async { Ok("word") }),
    ])
    .await;
    app.invoke("limited", json!({"word": QUOTED})).await;
    for (name, detail) in [
        ("fine", Value::Null),
        ("refuses", json!(QUOTED)),
        ("fails", json!("the tool's backend failed")),
        ("garbles", json!("the tool's output cannot be used")),
        ("slow", json!("the tool did not answer within 20ms")),
        ("limited", json!("the limit of 1 call per day is reached")),
    ] {
        app.invoke(name, json!({"word": QUOTED})).await;
        assert_eq!(newest_detail(&app).await, detail, "{name}");
    }
    app.invoke("fine", json!({"word": 7, QUOTED: QUOTED})).await;
    let detail = newest_detail(&app).await;
    assert!(
        detail.as_str().unwrap().starts_with("the arguments have "),
        "{detail}"
    );
    assert!(!detail.as_str().unwrap().contains(QUOTED), "{detail}");
}

#[tokio::test]
async fn backend_is_named_unless_an_argument_selects_it() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let manifest = format!(
        "defaults: {{effect: read}}\ntools:\n\
         \x20 fixed: {{kind: http, description: A service., request: {{url: \"http://127.0.0.1:{port}/x\", allow_private: true}}}}\n\
         \x20 chosen: {{kind: http, description: A service., parameters: {{host: {{type: string, description: Host}}}}, \
         request: {{url: \"http://{{{{ host }}}}:{port}/x\", allow_hosts: [\"127.0.0.1\", \"127.0.0.2\"], allow_private: true}}}}\n"
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    let (_, problem) = app.invoke("fixed", json!({})).await;
    let (for_model, for_operators) = (
        problem["content"].to_string(),
        problem["detail"].to_string(),
    );
    assert!(
        for_model.contains("The tool failed: its server refused the connection.")
            && !for_model.contains("127.0.0.1")
            && for_operators.contains("127.0.0.1"),
        "{problem}"
    );
    assert_eq!(
        newest_detail(&app).await,
        format!("127.0.0.1:{port} refused the connection")
    );
    app.invoke("chosen", json!({"host": "127.0.0.1"})).await;
    assert_eq!(
        newest_detail(&app).await,
        "the tool's backend refused the connection"
    );
}
