//! Declared fields of a request's context, for native functions, keys, repeats and nested calls. Each
//! other kind is in `tests/outside/test_context.py`.

use serde_json::{Value, json};
use toolcrib::call::{Definition, NestedCall, ToolInvoker};
use toolcrib::{Effect, Tool, ToolContext};

use crate::support::{Reply, TestApp, request};

async fn invoke_with_context(app: &TestApp, tool: &str, arguments: Value, context: Value) -> Reply {
    app.post(
        &format!("/tools/{tool}/invoke"),
        json!({"arguments": arguments, "context": context}),
    )
    .await
}

fn warnings(reply: &Reply) -> Vec<&str> {
    let warnings = reply.1["meta"]["warnings"]
        .as_array()
        .unwrap_or_else(|| panic!("{}", reply.1));
    warnings
        .iter()
        .map(|warning| warning.as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn native_functions_get_only_declared_fields() {
    let show = |name: &str| {
        Tool::new(name, "…")
            .effect(Effect::Read)
            .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) })
    };
    let app = TestApp::new([show("all"), show("some").context(&["tenant"])]).await;
    let context = json!({"tenant": "acme", "user": "ann"});
    assert_eq!(
        invoke_with_context(&app, "all", json!({}), context.clone())
            .await
            .1["structured_content"],
        context
    );
    assert_eq!(
        invoke_with_context(&app, "some", json!({}), context)
            .await
            .1["structured_content"],
        json!({"tenant": "acme"})
    );
    let bad = toolcrib::Registry::builder()
        .tool(show("bad").context(&["a.b"]))
        .build()
        .await;
    assert!(
        bad.err()
            .unwrap()
            .to_string()
            .contains("tool `bad`: context: the name of a context field has")
    );
}

#[tokio::test]
async fn idempotency_key_belongs_to_its_context() {
    let tool = Tool::new("pay", "…")
        .context(&["tenant"])
        .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) });
    let app = TestApp::new([tool]).await;
    let pay = async |tenant: &str| {
        let body = json!({"arguments": {}, "context": {"tenant": tenant}});
        let mut request = request("POST", "/tools/pay/invoke", None, Some(body));
        request
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        app.send(request).await
    };
    assert_eq!(
        pay("acme").await.1["structured_content"],
        json!({"tenant": "acme"})
    );
    assert_eq!(
        pay("acme").await.1["structured_content"],
        json!({"tenant": "acme"})
    );
    let (status, problem) = pay("other").await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (422, &json!("idempotency_mismatch"))
    );
}

#[tokio::test]
async fn other_context_is_no_repeat() {
    let tool = Tool::new("look", "…")
        .effect(Effect::Read)
        .context(&["tenant"])
        .call(|_, _| async { Ok("x") });
    let app = TestApp::new([tool]).await;
    let look = async |tenant: &str| {
        let body = json!({"arguments": {}, "context": {"tenant": tenant}, "run_id": "r"});
        app.post("/tools/look/invoke", body).await.0.as_u16()
    };
    assert_eq!(
        [look("acme").await, look("other").await, look("other").await],
        [200, 200, 409]
    );
}

/// Calls `inner`.
fn nesting_tool() -> Tool {
    Tool::new("outer", "…").call(|_, context: ToolContext| async move {
        let others = context
            .service::<std::sync::Arc<dyn ToolInvoker>>()
            .unwrap()
            .clone();
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        let (name, arguments) = ("inner".to_owned(), json!({}));
        let call = NestedCall {
            name,
            arguments,
            cut_off: false,
            tool_use_id: None,
            deadline,
            max_depth: None,
            script_position: None,
        };
        let answer = others
            .call(&context, &|_: &Definition| true, call)
            .await
            .map_err(|error| format!("{error:?}"))?;
        Ok(json!(answer.result.structured_content))
    })
}

#[tokio::test]
async fn nested_calls_inherit_the_fields() {
    let inner = Tool::new("inner", "…")
        .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) });
    let app = TestApp::new([
        nesting_tool().context(&["tenant"]),
        inner.context(&["tenant", "user"]),
    ])
    .await;
    let reply = invoke_with_context(
        &app,
        "outer",
        json!({}),
        json!({"tenant": "acme", "user": "ann"}),
    )
    .await;
    assert_eq!(
        reply.1["structured_content"],
        json!({"tenant": "acme"}),
        "{}",
        reply.1
    );
    let quiet = Tool::new("inner", "…")
        .context(&[])
        .call(|_, context: ToolContext| async move { Ok(json!(*context.context)) });
    let app = TestApp::new([nesting_tool(), quiet]).await;
    let reply = invoke_with_context(&app, "outer", json!({}), json!({"tenant": "acme"})).await;
    assert_eq!(
        (&reply.1["structured_content"], warnings(&reply).len()),
        (&json!({}), 0)
    );
    let (_, rows) = app.get("/invocations?tool=inner").await;
    let id = rows["invocations"][0]["invocation_id"].as_str().unwrap();
    let row = app.get(&format!("/invocations/{id}")).await.1;
    assert_eq!(
        row["result"]["meta"]["warnings"],
        json!([]),
        "nobody sent it with that call"
    );
}
