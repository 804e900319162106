use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use toolcrib::call::{Definition, NoAnswer, SubCall, ToolInvoker};
use toolcrib::{App, Effect, Tool, ToolContext};

use crate::sources::{offer, runner, scripted};
use crate::support::TestApp;

fn others(context: &ToolContext) -> Arc<dyn ToolInvoker> {
    context.service::<Arc<dyn ToolInvoker>>().unwrap().clone()
}

async fn call(context: &ToolContext, name: &str, arguments: Value) -> Result<Value, NoAnswer> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let call = SubCall { name: name.into(), arguments, cut_off: false, tool_use_id: None, deadline, levels: None };
    let answer = others(context).call(context, &|_: &Definition| true, call).await?;
    Ok(json!({"said": answer.result.content}))
}

/// Calls the tool `name` and says what it said.
fn asks(name: &'static str, effect: Effect) -> Tool {
    let tool = Tool::new("asks", "…").param_opt("key", "string", "…").effect(effect);
    tool.call(move |arguments, context| async move {
        call(&context, name, arguments).await.map_err(|error| format!("{error:?}").into())
    })
}

#[tokio::test]
async fn a_tool_that_is_down_is_not_offered_and_lends_its_name_to_no_other() {
    let (down, up) = (runner("", None), runner("", None));
    down.down.store(true, std::sync::atomic::Ordering::SeqCst);
    let source = scripted([Ok(vec![offer("a_down", down), offer("b_up", up)])]);
    let shows = Tool::new("shows", "…").effect(Effect::Read).call(|_, context| async move {
        let offers = others(&context).offers(&context, &|_: &Definition| true);
        let names = offers.iter().map(|offer| json!([offer.definition.name, offer.openai["function"]["name"]]));
        Ok(json!({"names": names.collect::<Vec<_>>()}))
    });
    let app = TestApp::loading(App::builder().source("s", source).tool(shows), None).await.loaded().await;
    let names = &app.invoke("shows", json!({})).await.1["structured_content"]["names"];
    assert_eq!(*names, json!([["b_up", "b_up"], ["shows", "shows"]]));
}

#[tokio::test]
async fn what_a_request_denies_is_not_read_out_of_the_cache_either() {
    let manifest = "tools: {now: {kind: native, use: current_time, cache: {ttl: 1h}}, read_cache: {kind: native}}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    assert_eq!(app.invoke("now", json!({})).await.0, 200);
    let message = json!({"tool_name": "read_cache", "arguments": {"key": "tool:now|input:{}"}});
    let (_, reply) = app.post("/calls", message.clone()).await;
    assert_eq!(reply["results"][0]["is_error"], false, "{reply}");
    let (_, reply) = app.post("/calls?deny=no*", message).await;
    assert_eq!(reply["results"][0]["is_error"], true, "{reply}");
    assert_eq!(reply["results"][0]["content"][0]["text"], "`now` is not allowed for this request");
}

#[tokio::test]
async fn a_write_that_a_tool_began_is_finished_when_the_caller_leaves() {
    for (effect, state) in [(Effect::Write, "succeeded"), (Effect::Read, "cancelled")] {
        let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = Tool::new("slow", "…").effect(effect).call({
            let (gate, begun) = (gate.clone(), begun.clone());
            move |_, _| {
                let (gate, begun) = (gate.clone(), begun.clone());
                async move {
                    begun.add_permits(1);
                    gate.acquire().await.unwrap().forget();
                    Ok("done")
                }
            }
        });
        let app = TestApp::new([asks("slow", Effect::Read), slow]).await;
        tokio::select! {
            reply = app.invoke("asks", json!({})) => panic!("{reply:?}"),
            _ = begun.acquire() => {}
        }
        gate.add_permits(1);
        assert_eq!(
            app.until_newest_with(&format!("tool=slow&state={state}")).await["kind"],
            match effect {
                Effect::Write => Value::Null,
                _ => json!("cancelled"),
            }
        );
        app.until_newest_with("tool=asks&state=cancelled").await;
    }
}

#[tokio::test]
async fn a_cancelled_call_takes_the_write_below_it_along() {
    let begun = Arc::new(Semaphore::new(0));
    let slow = Tool::new("slow", "…").call({
        let begun = begun.clone();
        move |_, _| {
            begun.add_permits(1);
            std::future::pending::<Result<&str, toolcrib::ToolError>>()
        }
    });
    let app = Arc::new(TestApp::new([asks("slow", Effect::Read), slow]).await);
    let reply = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("asks", json!({})).await }
    });
    begun.acquire().await.unwrap().forget();
    let asking = app.until_newest_with("tool=asks").await["invocation_id"].as_str().unwrap().to_owned();
    app.delete(&format!("/invocations/{asking}")).await;
    assert_eq!(reply.await.unwrap().0, 499);
    assert_eq!(app.until_newest_with("tool=slow&state=unknown").await["parent"], json!(asking));
}
