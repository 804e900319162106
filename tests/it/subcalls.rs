use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use toolcrib::call::{Definition, NestedCall, NestedCallError, ToolInvoker};
use toolcrib::{App, Effect, Tool, ToolContext};

use crate::sources::{discovered_tool, scripted_source, text_runner};
use crate::support::TestApp;

fn tool_invoker(context: &ToolContext) -> Arc<dyn ToolInvoker> {
    context.service::<Arc<dyn ToolInvoker>>().unwrap().clone()
}

async fn call_tool(
    context: &ToolContext,
    name: &str,
    arguments: Value,
) -> Result<Value, NestedCallError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let call = NestedCall {
        name: name.into(),
        arguments,
        cut_off: false,
        tool_use_id: None,
        deadline,
        max_depth: None,
        script_position: None,
    };
    let answer = tool_invoker(context)
        .call(context, &|_: &Definition| true, call)
        .await?;
    Ok(json!({"said": answer.result.content}))
}

/// Calls the tool `name` and returns its answer.
fn calling_tool(name: &'static str, effect: Effect) -> Tool {
    let tool = Tool::new("asks", "…")
        .param_opt("key", "string", "…")
        .effect(effect);
    tool.call(move |arguments, context| async move {
        call_tool(&context, name, arguments)
            .await
            .map_err(|error| format!("{error:?}").into())
    })
}

#[tokio::test]
async fn unavailable_tool_is_not_offered_or_renamed() {
    let (down, up) = (text_runner("", None), text_runner("", None));
    down.down.store(true, std::sync::atomic::Ordering::SeqCst);
    let source = scripted_source([Ok(vec![
        discovered_tool("a_down", down),
        discovered_tool("b_up", up),
    ])]);
    let shows = Tool::new("shows", "…")
        .effect(Effect::Read)
        .call(|_, context| async move {
            let offers = tool_invoker(&context).available_tools(&context, &|_: &Definition| true);
            let names = offers
                .iter()
                .map(|offer| json!([offer.definition.name, offer.openai["function"]["name"]]));
            Ok(json!({"names": names.collect::<Vec<_>>()}))
        });
    let app = TestApp::loading(App::builder().source("s", source).tool(shows), None)
        .await
        .with_sources_listed()
        .await;
    let names = &app.invoke("shows", json!({})).await.1["structured_content"]["names"];
    assert_eq!(*names, json!([["b_up", "b_up"], ["shows", "shows"]]));
}

#[tokio::test]
async fn denied_tool_is_not_read_from_cache() {
    let manifest = "tools: {now: {kind: native, use: current_time, cache: {ttl: 1h}}, read_cache: {kind: native}}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    assert_eq!(app.invoke("now", json!({})).await.0, 200);
    let message = json!({"tool_name": "read_cache", "arguments": {"key": "tool:now|input:{}"}});
    let (_, reply) = app.post("/calls", message.clone()).await;
    assert_eq!(reply["results"][0]["is_error"], false, "{reply}");
    let (_, reply) = app.post("/calls?deny=no*", message).await;
    assert_eq!(reply["results"][0]["is_error"], true, "{reply}");
    assert_eq!(
        reply["results"][0]["content"][0]["text"],
        "`now` is not allowed for this request"
    );
}

#[tokio::test]
async fn nested_write_finishes_on_disconnect() {
    for (effect, state) in [(Effect::Write, "succeeded"), (Effect::Read, "cancelled")] {
        let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = Tool::new("slow", "…").effect(effect).call({
            let (gate, started) = (gate.clone(), started.clone());
            move |_, _| {
                let (gate, started) = (gate.clone(), started.clone());
                async move {
                    started.add_permits(1);
                    gate.acquire().await.unwrap().forget();
                    Ok("done")
                }
            }
        });
        let app = TestApp::new([calling_tool("slow", Effect::Read), slow]).await;
        tokio::select! {
            reply = app.invoke("asks", json!({})) => panic!("{reply:?}"),
            _ = started.acquire() => {}
        }
        gate.add_permits(1);
        assert_eq!(
            app.wait_for_newest_with(&format!("tool=slow&state={state}"))
                .await["kind"],
            match effect {
                Effect::Write => Value::Null,
                _ => json!("cancelled"),
            }
        );
        app.wait_for_newest_with("tool=asks&state=cancelled").await;
    }
}

#[tokio::test]
async fn cancelled_call_cancels_its_nested_write() {
    let started = Arc::new(Semaphore::new(0));
    let slow = Tool::new("slow", "…").call({
        let started = started.clone();
        move |_, _| {
            started.add_permits(1);
            std::future::pending::<Result<&str, toolcrib::ToolError>>()
        }
    });
    let app = Arc::new(TestApp::new([calling_tool("slow", Effect::Read), slow]).await);
    let reply = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("asks", json!({})).await }
    });
    started.acquire().await.unwrap().forget();
    let asking = app.wait_for_newest_with("tool=asks").await["invocation_id"]
        .as_str()
        .unwrap()
        .to_owned();
    app.delete(&format!("/invocations/{asking}")).await;
    assert_eq!(reply.await.unwrap().0, 499);
    assert_eq!(
        app.wait_for_newest_with("tool=slow&state=unknown").await["parent"],
        json!(asking)
    );
}
