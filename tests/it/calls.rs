use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib::call::JsonObject;
use toolcrib::{App, Effect, Tool, ToolContext, ToolError};

use crate::support::{TestApp, first_text, request};

fn echo_tool(name: &str) -> Tool {
    Tool::new(name, "Says what it was given.")
        .param("text", "string", "What")
        .param_opt("times", "integer", "How often")
        .effect(Effect::Read)
        .call(|arguments, _| async move { Ok(arguments) })
}

#[tokio::test]
async fn arguments_may_be_object_or_text() {
    let app = TestApp::new([echo_tool("echo")]).await;
    for arguments in [json!({"text": "hi"}), json!("{\"text\": \"hi\"}")] {
        let (status, answer) = app.invoke("echo", arguments).await;
        assert_eq!(
            (status.as_u16(), &answer["structured_content"]),
            (200, &json!({"text": "hi"}))
        );
        assert_eq!(
            answer["content"],
            json!([{"type": "text", "text": "{\"text\":\"hi\"}"}])
        );
    }
}

#[derive(Deserialize, JsonSchema)]
struct Numbers {
    /// Numbers to add
    numbers: Vec<f64>,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[tokio::test]
async fn typed_tools_derive_both_schemas() {
    let add = Tool::typed("add", "Adds.", |args: Numbers, _: ToolContext| async move {
        Ok(Sum {
            sum: args.numbers.iter().sum(),
        })
    });
    let app = TestApp::new([add]).await;
    let (_, tool) = app.get("/tools/add").await;
    assert_eq!(
        tool["input_schema"]["properties"]["numbers"]["description"],
        "Numbers to add"
    );
    assert_eq!(tool["input_schema"]["additionalProperties"], false);
    assert_eq!(tool["output_schema"]["properties"]["sum"]["type"], "number");
    let (_, answer) = app.invoke("add", json!({"numbers": "[1, 2.5]"})).await;
    assert_eq!(answer["structured_content"], json!({"sum": 3.5}));
    assert_eq!(answer["meta"]["coercions"][0]["pointer"], "/numbers");
}

#[tokio::test]
async fn tool_gets_context_settings_and_services() {
    struct Greeting(&'static str);
    let look = Tool::new("look", "Looks around.").env_var(toolcrib::call::EnvVar {
        name: "TOOLCRIB_TEST_NOT_SET".into(),
        description: "A place".into(),
        required: true,
        default: Some("here".into()),
    });
    let look = look.call(|_, context: ToolContext| async move {
        Ok(json!({
            "run": context.run_id, "use": context.tool_use_id, "context": *context.context,
            "caller": context.caller.name, "attempt": context.attempt, "env": context.env("TOOLCRIB_TEST_NOT_SET"),
            "undeclared": context.env("HOME"), "shared": context.service::<Greeting>().map(|greeting| greeting.0),
        }))
    });
    let folder = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite://{}", folder.path().join("test.db").display());
    let app = App::builder()
        .tool(look)
        .share(Greeting("hello"))
        .ledger(ledger)
        .build()
        .await
        .unwrap();
    let body =
        json!({"arguments": {}, "run_id": "r", "tool_use_id": "u", "context": {"tenant": "acme"}});
    let response = tower::ServiceExt::oneshot(
        app.router(),
        request("POST", "/tools/look/invoke", None, Some(body)),
    );
    let bytes = http_body_util::BodyExt::collect(response.await.unwrap().into_body())
        .await
        .unwrap()
        .to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        answer["structured_content"],
        json!({"run": "r", "use": "u", "context": {"tenant": "acme"}, "caller": "anonymous", "attempt": 1,
            "env": "here", "undeclared": null, "shared": "hello"})
    );
    assert_eq!(answer["tool_use_id"], "u");
}

#[tokio::test]
async fn panics_and_errors_are_error_results() {
    let tools = [
        Tool::new("panics", "…")
            .call(|_, _| async move { if true { panic!("oh no") } else { Ok("") } }),
        Tool::new("blocks", "…")
            .call_blocking(|_, _| if true { panic!("oh {}", "no") } else { Ok("") }),
        Tool::new("refuses", "…").call(|_, _| async move { Err::<String, _>("oh no".into()) }),
        echo_tool("echo"),
    ];
    let app = TestApp::new(tools).await;
    for tool in ["panics", "blocks", "refuses"] {
        let reply = app.invoke(tool, json!({})).await;
        assert_eq!(
            (reply.0.as_u16(), &reply.1["is_error"]),
            (200, &json!(true)),
            "{tool}"
        );
        assert!(first_text(&reply).contains("oh no"), "{tool}");
        let row = app.newest_invocation().await;
        assert_eq!(
            (&row["state"], &row["kind"]),
            (&json!("failed"), &Value::Null)
        );
    }
    assert_eq!(
        app.invoke("echo", json!({"text": "still here"})).await.0,
        200
    );
}

#[tokio::test]
async fn blocking_tool_delays_no_other_call() {
    let (release, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let blocks = Tool::new("blocks", "…").call_blocking(move |_, _| {
        wait.lock().unwrap().recv().unwrap();
        Ok("done")
    });
    let app = Arc::new(TestApp::new([blocks, echo_tool("echo")]).await);
    let blocked = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("blocks", json!({})).await }
    });
    // One async thread: if it were held up, this would never answer.
    assert_eq!(app.invoke("echo", json!({"text": "hi"})).await.0, 200);
    release.send(()).unwrap();
    assert_eq!(first_text(&blocked.await.unwrap()), "done");
}

#[tokio::test]
async fn safe_attempts_are_retried_and_recorded() {
    let flaky = |name: &str, effect| {
        let tries = AtomicUsize::new(0);
        Tool::new(name, "…")
            .effect(effect)
            .attempts(3)
            .call(move |_, context: ToolContext| {
                let fails = tries.fetch_add(1, Ordering::SeqCst) < 2;
                async move {
                    if fails {
                        Err(ToolError::upstream(format!(
                            "try {} failed",
                            context.attempt
                        )))
                    } else {
                        Ok("yes")
                    }
                }
            })
    };
    let app = TestApp::new([flaky("reads", Effect::Read), flaky("writes", Effect::Write)]).await;
    let (status, answer) = app.invoke("reads", json!({})).await;
    assert_eq!(
        (status.as_u16(), &answer["meta"]["attempts"]),
        (200, &json!(3))
    );
    let row = app.newest_invocation().await;
    let errors = row["attempt_errors"].as_array().unwrap();
    let messages: Vec<_> = errors
        .iter()
        .map(|error| error["message"].as_str().unwrap())
        .collect();
    assert_eq!(messages, ["try 1 failed", "try 2 failed"]);

    let (status, problem) = app.invoke("writes", json!({})).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"], &problem["source"]),
        (502, &json!("upstream_failed"), &json!("tool"))
    );
    // It may have had an effect, so the answer is not retryable.
    assert_eq!(
        (
            &problem["retryable"],
            problem["content"].to_string().contains("check before")
        ),
        (&json!(false), true)
    );
    let row = app.newest_invocation().await;
    assert_eq!(
        (&row["attempts"], &row["result"]["retryable"]),
        (&json!(1), &json!(false))
    );
}

#[tokio::test]
async fn invalid_output_is_bad_output() {
    let schema =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let lies = Tool::new("lies", "…")
        .output_schema(schema)
        .call(|_, _| async move { Ok(json!({"n": "x"})) });
    let app = TestApp::new([lies]).await;
    let (status, problem) = app.invoke("lies", json!({})).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (502, &json!("bad_output"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("`n` must be an integer"),
        "{problem}"
    );
}

#[tokio::test]
async fn deadline_can_only_be_shortened() {
    let slow = Tool::new("slow", "…")
        .effect(Effect::Read)
        // Long enough that on a busy machine the deadline of the first call ends before it.
        .timeout(Duration::from_secs(1))
        .call(|_, _| async move {
            std::future::pending::<()>().await;
            Ok("never")
        });
    let app = TestApp::new([slow]).await;
    for (timeout, kind) in [("10ms", "deadline_exceeded"), ("1h", "attempt_timed_out")] {
        let (status, problem) = app
            .post(
                "/tools/slow/invoke",
                json!({"arguments": {}, "timeout": timeout}),
            )
            .await;
        assert_eq!(
            (status.as_u16(), problem["kind"].as_str().unwrap()),
            (504, kind)
        );
        assert_eq!(app.newest_invocation().await["state"], "timed_out");
    }
}

#[tokio::test]
async fn names_are_unique_and_schemas_valid() {
    let build = async |tools: Vec<Tool>| {
        let folder = tempfile::tempdir().unwrap();
        let ledger = format!("sqlite://{}", folder.path().join("test.db").display());
        let builder = tools
            .into_iter()
            .fold(App::builder(), toolcrib::AppBuilder::tool);
        builder
            .ledger(ledger)
            .build()
            .await
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(
        build(vec![echo_tool("a"), echo_tool("a")])
            .await
            .contains("`a` is declared twice")
    );
    assert!(
        build(vec![echo_tool("no name!")])
            .await
            .contains("1 to 128 characters")
    );
    let bad = Tool::new("bad", "…")
        .input_schema(json!({"type": "object", "properties": {"x": {"type": "strin"}}}));
    assert!(
        build(vec![bad.call(|_, _| async { Ok("") })])
            .await
            .contains("/properties/x/type")
    );
}

#[tokio::test]
async fn registry_works_without_http() {
    let app = TestApp::new([echo_tool("echo")]).await;
    let registry = app.registry();
    registry.register(echo_tool("second")).unwrap();
    assert!(registry.register(echo_tool("second")).is_err());
    assert!(registry.has_tool("second") && !registry.has_tool("third") && registry.len() == 2);
    let arguments: JsonObject = json!({"text": "hi"}).as_object().unwrap().clone();
    let answer = registry
        .execute("second", arguments)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.result.as_text(), "{\"text\":\"hi\"}");
    assert!(registry.execute("third", JsonObject::new()).await.is_none());
    let caller = toolcrib::call::Caller::anonymous();
    let schemas = registry.schemas(toolcrib::formats::Format::Openai, &caller);
    assert_eq!(
        schemas[0]["function"]["parameters"]["required"],
        json!(["text"])
    );
    let schemas = registry.schemas(toolcrib::formats::Format::Anthropic, &caller);
    assert_eq!(
        (&schemas[1]["name"], &schemas[1]["input_schema"]["type"]),
        (&json!("second"), &json!("object"))
    );
}

#[tokio::test]
async fn manifest_sets_policies_of_native_tools() {
    let manifest = "tools:\n  echo: {kind: native, limits: [{calls: 1, per: lifetime}], description: Mine.}\n  \
                    twin: {kind: native, use: echo, enabled: false}\n";
    let app = TestApp::with_manifest(manifest, [echo_tool("echo"), echo_tool("other")]).await;
    let (_, list) = app.get("/tools").await;
    let names: HashMap<_, _> = list["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            (
                tool["name"].as_str().unwrap(),
                tool["available"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        names,
        HashMap::from([("echo", true), ("other", true), ("twin", false)])
    );
    assert_eq!(app.invoke("echo", json!({"text": "a"})).await.0, 200);
    assert_eq!(app.invoke("echo", json!({"text": "a"})).await.0, 429);
    assert_eq!(
        app.invoke("twin", json!({"text": "a"})).await.1["kind"],
        "tool_disabled"
    );
}
