//! `POST /calls`: several calls of one message, and what holds for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use toolcrib::{Effect, Idempotency, Tool, ToolError, ToolResult};

use crate::support::{Reply, TestApp, request};

/// An Anthropic message that calls these tools.
fn assistant_message(calls: &[(&str, Value)]) -> Value {
    let uses = calls.iter().enumerate().map(
        |(n, (name, input))| json!({"type": "tool_use", "id": format!("toolu_{n}"), "name": name, "input": input}),
    );
    json!({"role": "assistant", "content": uses.collect::<Vec<_>>()})
}

/// The texts of the results in the answer's one message, in order.
fn result_texts(reply: &Reply) -> Vec<&str> {
    assert_eq!(reply.0, StatusCode::OK, "{}", reply.1);
    let blocks = reply.1["messages"][0]["content"].as_array().unwrap();
    blocks
        .iter()
        .map(|block| block["content"][0]["text"].as_str().unwrap())
        .collect()
}

fn echo_tool(effect: Effect, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    let tool = Tool::new("echo", "…")
        .param("text", "string", "…")
        .effect(effect);
    tool.call(move |args, context| {
        runs.fetch_add(1, Ordering::SeqCst);
        let tenant = context.context.get("tenant").cloned();
        async move {
            let text = args["text"].as_str().unwrap_or_default().to_owned();
            if text == "no" {
                Err(ToolError::ErrorResult("I will not".into()))
            } else {
                Ok(json!({"text": text, "tenant": tenant}))
            }
        }
    })
}

#[tokio::test]
async fn calls_run_in_parallel_up_to_bound() {
    let (most, now, gate) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Semaphore::new(0)),
    );
    let (most_, now_, gate_) = (most.clone(), now.clone(), gate.clone());
    let tool = Tool::new("step", "…")
        .param("n", "integer", "…")
        .effect(Effect::Read)
        .call(move |args, _| {
            let (most, now, gate) = (most_.clone(), now_.clone(), gate_.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let n = args["n"].as_u64().unwrap_or_default();
                if n == 0 {
                    // Ends only after all others have: it must not keep them from beginning.
                    gate.acquire_many(9).await.ok();
                } else {
                    tokio::task::yield_now().await;
                    gate.add_permits(1);
                }
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(n.to_string())
            }
        });
    let app = TestApp::new([tool]).await;
    let calls: Vec<(&str, Value)> = (0..10).map(|n| ("step", json!({"n": n}))).collect();
    let reply = app
        .post("/calls?parallel=3", assistant_message(&calls))
        .await;
    assert_eq!(
        result_texts(&reply),
        (0..10).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn five_calls_take_as_long_as_one() {
    let slow = Tool::new("slow", "…")
        .effect(Effect::Read)
        .call(|_, _| async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            Ok("done")
        });
    let app = TestApp::new([slow]).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    app.post("/calls", assistant_message(&vec![("slow", json!({})); 5]))
        .await;
    assert!(
        began.elapsed() < std::time::Duration::from_millis(130),
        "{:?}",
        began.elapsed()
    );
    let began = tokio::time::Instant::now();
    app.post("/calls", assistant_message(&vec![("slow", json!({})); 6]))
        .await;
    assert!(
        began.elapsed() >= std::time::Duration::from_millis(200),
        "five at a time"
    );
}

#[tokio::test]
async fn failed_call_does_not_affect_the_others() {
    let runs = Arc::new(AtomicUsize::new(0));
    let panics = Tool::new("panics", "…")
        .effect(Effect::Read)
        .call(|args, _| async move {
            match args.get("calm") {
                Some(_) => Ok("fine"),
                None => panic!("oh"),
            }
        });
    let app = TestApp::new([echo_tool(Effect::Read, &runs), panics]).await;
    let calls = [
        ("echo", json!({"text": "a"})),
        ("nothing", json!({})),
        ("panics", json!({})),
        ("echo", json!({"txt": "b"})),
        ("echo", json!({"text": "no"})),
        ("echo", json!({"text": "c"})),
    ];
    let (status, answer) = app.post("/calls", assistant_message(&calls)).await;
    assert_eq!(
        (status, &answer["dialect"]),
        (StatusCode::OK, &json!("anthropic"))
    );
    let of = |result: &Value| {
        result["kind"]
            .as_str()
            .map_or_else(|| result["is_error"].to_string(), str::to_owned)
    };
    let results: Vec<String> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect();
    assert_eq!(
        results,
        [
            "false",
            "unknown_tool",
            "true",
            "invalid_arguments",
            "true",
            "false"
        ]
    );
    let ids = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["tool_use_id"].as_str().unwrap());
    assert_eq!(
        ids.collect::<Vec<_>>(),
        [
            "toolu_0", "toolu_1", "toolu_2", "toolu_3", "toolu_4", "toolu_5"
        ]
    );
    let blocks = answer["messages"][0]["content"].as_array().unwrap();
    let flags: Vec<bool> = blocks
        .iter()
        .map(|block| block["is_error"] == json!(true))
        .collect();
    assert_eq!(flags, [false, true, true, true, true, false]);
}

#[tokio::test]
async fn message_options_reach_every_call() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Read, &runs)]).await;
    let message = assistant_message(&[
        ("echo", json!({"text": "a"})),
        ("echo", json!({"text": "b"})),
    ]);
    let envelope = json!({"message": message, "run_id": "r-1", "context": {"tenant": "acme"}});
    let (_, answer) = app.post("/calls", envelope).await;
    assert_eq!(
        answer["results"][1]["structured_content"],
        json!({"text": "b", "tenant": "acme"})
    );
    let (_, page) = app.get("/invocations?run_id=r-1").await;
    assert_eq!(page["invocations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn denied_tools_are_refused_and_recorded() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Read, &runs)]).await;
    let calls = assistant_message(&[("echo", json!({"text": "a"}))]);
    let (_, answer) = app.post("/calls?deny=other,ec*", calls.clone()).await;
    assert_eq!(answer["results"][0]["kind"], "forbidden");
    let (_, answer) = app
        .post("/calls", json!({"message": calls, "deny": ["echo"]}))
        .await;
    assert_eq!(answer["results"][0]["kind"], "forbidden");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let row = app.wait_for_newest_state("refused").await;
    assert_eq!(row["kind"], "forbidden");
}

#[tokio::test]
async fn incomplete_write_does_not_run() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Write, &runs)]).await;
    let mut cut = assistant_message(&[
        ("echo", json!({"text": "whole"})),
        ("echo", json!({"text": "ha"})),
    ]);
    cut["stop_reason"] = json!("max_tokens");
    let (_, answer) = app.post("/calls", cut).await;
    assert_eq!(answer["results"][0]["is_error"], json!(false), "{answer}");
    assert_eq!(answer["results"][1]["kind"], "invalid_arguments");
    let broken = json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "echo", "arguments": "{\"text\": \"ha\""}}]});
    let (_, answer) = app.post("/calls", broken).await;
    assert_eq!(answer["results"][0]["kind"], "invalid_arguments");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn same_key_runs_the_message_once() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Write, &runs)]).await;
    let calls = assistant_message(&[
        ("echo", json!({"text": "a"})),
        ("echo", json!({"text": "a"})),
    ]);
    let mut answers = Vec::new();
    for again in [false, true] {
        let mut request = request("POST", "/calls", None, Some(calls.clone()));
        request
            .headers_mut()
            .insert("idempotency-key", "turn-1".parse().unwrap());
        let response = app.respond(request).await;
        assert_eq!(
            response.headers().contains_key("idempotent-replayed"),
            again
        );
        answers.push(response.into_body().collect().await.unwrap().to_bytes());
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each of the two calls once");
}

#[tokio::test]
async fn required_key_comes_from_the_message() {
    let tool = Tool::new("pay", "…")
        .idempotency(Idempotency::Required)
        .call(|_, _| async { Ok("paid") });
    let app = TestApp::new([tool]).await;
    let (_, answer) = app
        .post("/calls", assistant_message(&[("pay", json!({}))]))
        .await;
    assert_eq!(answer["results"][0]["kind"], "invalid_request");
    let mut request = request(
        "POST",
        "/calls",
        None,
        Some(assistant_message(&[("pay", json!({}))])),
    );
    request
        .headers_mut()
        .insert("idempotency-key", "turn-1".parse().unwrap());
    let (_, answer) = app.send(request).await;
    assert_eq!(answer["results"][0]["is_error"], json!(false), "{answer}");
}

#[tokio::test]
async fn unstarted_calls_end_on_disconnect() {
    let (started, runs) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (tell, count) = (started.clone(), runs.clone());
    let tool = Tool::new("wait", "…")
        .effect(Effect::Read)
        .call(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            tell.notify_one();
            async { std::future::pending::<Result<String, ToolError>>().await }
        });
    let app = Arc::new(TestApp::new([tool]).await);
    let asking = tokio::spawn({
        let app = app.clone();
        async move {
            app.post(
                "/calls?parallel=1",
                assistant_message(&vec![("wait", json!({})); 3]),
            )
            .await
        }
    });
    started.notified().await;
    asking.abort();
    let _ = asking.await;
    app.wait_for_newest_state("cancelled").await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let (_, page) = app.get("/invocations").await;
    assert_eq!(page["invocations"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn tool_result_may_be_the_answer() {
    let may_end = |name: &str| {
        let open = Tool::new(name, "…")
            .input_schema(json!({"type": "object"}))
            .effect(Effect::Read);
        open.call(|arguments, _| async move {
            let done = arguments["done"].as_bool();
            Ok(ToolResult {
                result_as_answer: done,
                ..ToolResult::text("42")
            })
        })
    };
    let app = TestApp::new([may_end("finish"), may_end("usually").result_as_answer()]).await;
    for (tool, done, is_answer) in [
        ("finish", json!(true), true),
        ("finish", json!(null), false),
        ("usually", json!(false), false),
        ("usually", json!(null), true),
    ] {
        let arguments = json!({"done": done});
        let (_, answer) = app.invoke(tool, arguments.clone()).await;
        assert_eq!(
            answer["result_as_answer"],
            json!(is_answer),
            "{tool} {done}"
        );
        let row = app.wait_for_newest_state("succeeded").await;
        let stored = app
            .get(&format!(
                "/invocations/{}/result",
                row["invocation_id"].as_str().unwrap()
            ))
            .await
            .1;
        assert_eq!(stored["result_as_answer"], json!(is_answer), "{stored}");
        let call =
            json!({"message": {"tool_name": tool, "arguments": arguments, "tool_use_id": "n1"}});
        let (_, answer) = app.post("/calls", call).await;
        assert_eq!(answer["result_as_answer"], json!(is_answer), "{answer}");
        assert_eq!(
            answer["messages"][0].get("result_as_answer").is_some(),
            is_answer,
            "{answer}"
        );
    }
    assert_eq!(
        ToolResult::text("42").as_answer().result_as_answer,
        Some(true)
    );
}

#[tokio::test]
async fn final_answer_is_marked_at_the_top() {
    let tool = Tool::new("finish", "…")
        .effect(Effect::Read)
        .result_as_answer()
        .call(|_, _| async { Ok("42") });
    let app = TestApp::new([
        tool,
        Tool::new("other", "…")
            .effect(Effect::Read)
            .call(|_, _| async { Ok("") }),
    ])
    .await;
    let (_, answer) = app
        .post(
            "/calls",
            assistant_message(&[("finish", json!({})), ("other", json!({}))]),
        )
        .await;
    assert_eq!(
        (
            &answer["result_as_answer"],
            &answer["results"][0]["result_as_answer"]
        ),
        (&json!(true), &json!(true))
    );
    let (_, answer) = app
        .post("/calls", assistant_message(&[("other", json!({}))]))
        .await;
    assert_eq!(answer["result_as_answer"], json!(false));
}

#[tokio::test]
async fn messages_without_calls_and_invalid_bodies() {
    let app = TestApp::new([]).await;
    let (status, answer) = app
        .post("/calls", json!({"role": "assistant", "content": "Hello"}))
        .await;
    assert_eq!(
        (status, &answer["results"], &answer["messages"]),
        (StatusCode::OK, &json!([]), &json!([]))
    );
    assert!(
        answer["warnings"][0]
            .as_str()
            .unwrap()
            .contains("no tool calls"),
        "{answer}"
    );
    for bad in [
        json!({"hello": 1}),
        json!(7),
        json!(null),
        json!({"message": {}, "runid": "x"}),
    ] {
        let (status, problem) = app.post("/calls", bad.clone()).await;
        assert_eq!(
            (status, &problem["kind"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_request")),
            "{bad}: {problem}"
        );
    }
    let (_, problem) = app
        .post("/calls", json!({"message": {"role": "user"}, "runid": "x"}))
        .await;
    assert!(
        problem["detail"].as_str().unwrap().contains("runid"),
        "{problem}"
    );
    let many = assistant_message(&vec![("x", json!({})); 257]);
    assert_eq!(app.post("/calls", many).await.0, StatusCode::BAD_REQUEST);
}

/// A chat message whose call has these arguments.
fn chat_message(arguments: &str) -> Value {
    let function = json!({"name": "echo", "arguments": arguments});
    json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]})
}

#[tokio::test]
async fn unreadable_calls_stop_the_model() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Read, &runs)]).await;
    let result_text = async |run: &str, arguments: &str| {
        let (_, answer) = app
            .post(&format!("/calls?run_id={run}"), chat_message(arguments))
            .await;
        answer["messages"][0]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let broken = r#"{"text": "a "quoted" word"}"#;
    assert!(
        result_text("r", broken)
            .await
            .contains("Send the whole call again")
    );
    assert!(
        result_text("r", broken)
            .await
            .contains("Send the whole call again")
    );
    assert!(
        result_text("r", broken)
            .await
            .contains("3 times in a row. Call no more tools")
    );
    assert!(
        result_text("s", broken)
            .await
            .contains("Send the whole call again"),
        "another run"
    );
    assert!(result_text("r", r#"{"text": "a"}"#).await.contains("\"a\""));
    assert!(
        result_text("r", broken)
            .await
            .contains("Send the whole call again"),
        "it was understood in between"
    );
    let (_, page) = app.get("/invocations?state=refused").await;
    assert_eq!(page["invocations"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn attempts_depend_on_the_model() {
    let manifest = "calls: {max_parse_attempts: {gpt-*: 1, llama: 2}}\ntools: {}\n";
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::with_manifest(manifest, [echo_tool(Effect::Read, &runs)]).await;
    let stops = async |path: &str, body: Value| {
        let (_, answer) = app.post(path, body).await;
        let text = answer["messages"][0]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        text.contains("in a row. Call no more tools")
    };
    let message = chat_message(r#"{"text": "a "quoted" word"}"#);
    let completion =
        json!({"model": "gpt-6", "choices": [{"index": 0, "message": message.clone()}]});
    assert!(
        stops("/calls", completion.clone()).await,
        "the message says the model"
    );
    assert!(
        !stops("/calls?model=claude", completion).await,
        "the query goes before"
    );
    assert!(
        !stops(
            "/calls?run_id=r",
            json!({"model": "llama", "message": message})
        )
        .await
    );
    assert!(stops("/calls?run_id=r&model=llama", message.clone()).await);
    for _ in 0..4 {
        assert!(
            !stops("/calls", message.clone()).await,
            "without a run each counts alone"
        );
    }
}

#[tokio::test]
async fn unreadable_text_with_secrets_is_not_quoted() {
    let schema =
        json!({"type": "object", "properties": {"pin": {"type": "string", "writeOnly": true}}});
    let tool = Tool::new("echo", "…")
        .input_schema(schema)
        .call(|_, _| async { Ok("") });
    let app = TestApp::new([tool]).await;
    let (_, answer) = app
        .post("/calls", chat_message(r#"{"pin": "4711" 4711}"#))
        .await;
    assert_eq!(answer["results"][0]["kind"], "invalid_arguments");
    let row = app.wait_for_newest_state("refused").await;
    assert!(!format!("{answer}{row}").contains("4711"), "{answer}{row}");
}

#[tokio::test]
async fn text_calls_are_reminded_of_the_syntax() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Read, &runs)]).await;
    let mut reminded = Vec::new();
    for n in 0..6 {
        let text = format!(
            "[TOOL_CALL]{{\"name\": \"echo\", \"args\": {{\"text\": \"{n}\"}}}}[/TOOL_CALL]"
        );
        let (_, answer) = app.post("/calls?run_id=r", json!({"text": text})).await;
        let content = answer["messages"][0]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        reminded.push(content.contains("The tools are: echo."));
    }
    assert_eq!(reminded, [false, false, true, false, false, true]);
}

#[tokio::test]
async fn stream_reports_each_call_then_the_answer() {
    let tool = Tool::new("step", "…")
        .param("n", "integer", "…")
        .effect(Effect::Read)
        .call(|args, context| async move {
            context.progress(json!({"half": args["n"]}));
            Ok(args["n"].to_string())
        });
    let app = TestApp::new([tool]).await;
    let calls = assistant_message(&[
        ("step", json!({"n": 1})),
        ("step", json!({"n": 2})),
        ("nothing", json!({})),
    ]);
    let mut asking = request("POST", "/calls?parallel=1", None, Some(calls));
    asking
        .headers_mut()
        .insert("accept", "text/event-stream".parse().unwrap());
    let response = app.respond(asking).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = String::from_utf8(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec(),
    )
    .unwrap();
    let events: Vec<(&str, Value)> = text
        .split_terminator("\n\n")
        .map(|event| {
            event
                .strip_prefix("event: ")
                .unwrap()
                .split_once("\ndata: ")
                .unwrap()
        })
        .map(|(name, data)| (name, serde_json::from_str(data).unwrap()))
        .collect();
    let names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "progress",
            "call_result",
            "progress",
            "call_result",
            "call_result",
            "result"
        ]
    );
    assert_eq!(
        (&events[0].1["tool_use_id"], &events[0].1["data"]),
        (&json!("toolu_0"), &json!({"half": 1}))
    );
    assert_eq!(events[3].1["content"][0]["text"], "2");
    assert_eq!(events[4].1["kind"], "unknown_tool");
    assert_eq!(
        (&events[5].1["dialect"], &events[5].1["results"][1]),
        (&json!("anthropic"), &events[3].1)
    );
}

#[tokio::test]
async fn invalid_message_is_no_stream() {
    let app = TestApp::new([]).await;
    let mut asking = request("POST", "/calls", None, Some(json!({"hello": 1})));
    asking
        .headers_mut()
        .insert("accept", "text/event-stream".parse().unwrap());
    assert_eq!(app.send(asking).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn truncated_list_is_reported_to_the_model() {
    let tool = Tool::new("list", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok(json!((0..1000).collect::<Vec<u32>>())) });
    let app = TestApp::new([tool]).await;
    let (_, answer) = app
        .post("/calls", assistant_message(&[("list", json!({}))]))
        .await;
    assert_eq!(answer["results"][0]["meta"]["overflow"]["total"], 1000);
    let result_text = &answer["messages"][0]["content"][0]["content"][1]["text"];
    assert!(
        result_text
            .as_str()
            .unwrap()
            .contains("Only 200 of 1000 items"),
        "{result_text}"
    );
}

#[tokio::test]
async fn denials_cover_every_spelling() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Write, &runs)]).await;
    let calls = assistant_message(&[("echo", json!({"text": "a"}))]);
    for deny in ["echo", "Echo", "functions.echo", "E*"] {
        let body = json!({"message": calls.clone(), "deny": ["other"]});
        let (_, answer) = app.post(&format!("/calls?deny={deny}"), body).await;
        assert_eq!(answer["results"][0]["kind"], "forbidden", "{deny}");
        assert_eq!(
            answer["warnings"],
            json!(["deny: no tool is called `other`"])
        );
    }
    let denying = json!({"role": "assistant", "content": calls["content"], "deny": ["echo"]});
    assert_eq!(app.post("/calls", denying).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn truncated_text_runs_no_effects() {
    let runs = Arc::new(AtomicUsize::new(0));
    let app = TestApp::new([echo_tool(Effect::Write, &runs)]).await;
    let text = "[TOOL_CALL]{\"name\": \"echo\", \"args\": {\"text\": \"a\"}}";
    let body = |reason| json!({"choices": [{"finish_reason": reason, "message": {"role": "assistant", "content": text}}]});
    let (_, answer) = app.post("/calls?dialect=text", body("length")).await;
    assert_eq!(
        answer["results"][0]["kind"], "invalid_arguments",
        "{answer}"
    );
    let (_, answer) = app.post("/calls?dialect=text", body("stop")).await;
    assert_eq!(answer["results"][0]["is_error"], json!(false), "{answer}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
