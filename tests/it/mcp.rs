//! MCP without sessions: version 2026-07-28 over `POST /mcp`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib::call::{Content, Resource};
use toolcrib::{Effect, Idempotency, Limit, LimitScope, Per, Tool, ToolResult};

use crate::support::mcp::{
    STATELESS_VERSION, client_meta, last_message, mcp_request, merge, messages, modern_request,
    next_message, rpc_message,
};
use crate::support::{TestApp, request};

fn add_tool() -> Tool {
    Tool::new("add", "Adds two numbers.")
        .param("a", "integer", "One")
        .param("b", "integer", "Another")
        .effect(Effect::Read)
        .call(|args, _| async move {
            let sum =
                args["a"].as_i64().unwrap_or_default() + args["b"].as_i64().unwrap_or_default();
            Ok(json!({"sum": sum}))
        })
}

#[tokio::test]
async fn discover_lists_versions_and_server_info() {
    let app = TestApp::new([add_tool()]).await;
    let (status, answer) = app.mcp("server/discover", json!({})).await;
    let result = &answer["result"];
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        result["supportedVersions"],
        json!(["2025-03-26", "2025-06-18", "2025-11-25", STATELESS_VERSION])
    );
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}})
    );
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "toolcrib"
    );
}

#[tokio::test]
async fn tools_are_listed_in_order_and_pages() {
    let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}}}},
        "properties": {"address": {"$ref": "#/$defs/address"}}, "additionalProperties": false});
    // Each definition has a little more than 10,000 bytes, and a page 2 MiB.
    let long = "x".repeat(10_000);
    let many =
        (0..230).map(|n| Tool::new(format!("t{n:03}"), &*long).call(|_, _| async { Ok("") }));
    let written = Tool::new("a_schema", "…")
        .input_schema(schema.clone())
        .call(|_, _| async { Ok("") });
    let app = TestApp::new(many.chain([written])).await;
    let (mut names, mut pages, mut cursor) = (Vec::new(), 0, json!({}));
    loop {
        let (status, answer) = app.mcp("tools/list", cursor).await;
        let result = &answer["result"];
        assert_eq!(
            (status.as_u16(), &result["resultType"]),
            (200, &json!("complete")),
            "{answer}"
        );
        assert_eq!(
            (result["ttlMs"].is_u64(), &result["cacheScope"]),
            (true, &json!("public"))
        );
        pages += 1;
        if names.is_empty() {
            assert_eq!(result["tools"][0]["inputSchema"], schema);
            let hints =
                json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false});
            assert_eq!(result["tools"][0]["annotations"], hints);
        }
        names.extend(
            result["tools"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_owned()),
        );
        match result.get("nextCursor") {
            Some(next) => cursor = json!({"cursor": next}),
            None => break,
        }
    }
    assert_eq!((pages, names.len(), names.is_sorted()), (2, 231, true));
    let (status, answer) = app
        .mcp("tools/list", json!({"cursor": "bm9uc2Vuc2U"}))
        .await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (200, &json!(-32602)),
        "{answer}"
    );
}

#[tokio::test]
async fn callers_see_and_call_their_own_tools() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, admin: true}\n  - {name: bob, key: key-of-bob, deny: [add]}\n";
    let app = TestApp::with_manifest(
        manifest,
        [
            add_tool(),
            Tool::new("other", "…").call(|_, _| async { Ok("x") }),
        ],
    )
    .await;
    let names = async |key| {
        let (_, answer) = last_message(
            app.respond(modern_request("tools/list", json!({}), Some(key)))
                .await,
        )
        .await;
        assert_eq!(answer["result"]["cacheScope"], "private");
        answer["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names("key-of-ann").await, names("key-of-bob").await),
        (vec![json!("add"), json!("other")], vec![json!("other")])
    );
    for request in [
        modern_request("tools/list", json!({}), None),
        modern_request("tools/list", json!({}), Some("no key")),
    ] {
        let response = app.respond(request).await;
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let (status, problem) = last_message(response).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (401, &json!("unauthenticated"))
        );
    }
    // A tool without a grant is refused as over REST, and the call is recorded.
    for meta_fields in [json!({}), json!({"progressToken": 1})] {
        let params = json!({"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta_fields});
        let (status, answer) = last_message(
            app.respond(modern_request("tools/call", params, Some("key-of-bob")))
                .await,
        )
        .await;
        let (error, (_, page)) = (
            &answer["error"],
            app.get_as("key-of-ann", "/invocations?limit=1").await,
        );
        let row = &page["invocations"][0];
        assert_eq!(
            (status.as_u16(), &error["code"], &answer["id"]),
            (403, &json!(-32010), &json!(1)),
            "{answer}"
        );
        assert_eq!(
            error["message"],
            "You are not allowed to use `add`. Try another tool."
        );
        assert_eq!(
            (&error["data"]["kind"], &error["data"]["retryable"]),
            (&json!("forbidden"), &json!(false))
        );
        assert_eq!(
            (&row["state"], &row["invocation_id"]),
            (&json!("refused"), &error["data"]["invocation_id"])
        );
    }
}

#[tokio::test]
async fn foreign_idempotency_key_has_rest_status() {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (started.clone(), go.clone());
    let slow = Tool::new("slow", "…")
        .param("n", "integer", "N")
        .effect(Effect::Write)
        .call(move |_, _| {
            let (tell, wait) = (tell.clone(), wait.clone());
            async move {
                tell.notify_one();
                wait.notified().await;
                Ok("done")
            }
        });
    let app = Arc::new(TestApp::new([slow]).await);
    let call = |n: u32, token: Value| {
        let meta_fields = merge(json!({"toolcrib/idempotencyKey": "k-1"}), token);
        json!({"name": "slow", "arguments": {"n": n}, "_meta": meta_fields})
    };
    let first = tokio::spawn({
        let (app, call) = (app.clone(), call(1, json!({})));
        async move { app.mcp("tools/call", call).await }
    });
    started.notified().await;
    let session = app.session("2025-11-25", None).await;
    let refused = async |n, status, kind: &str, replayed: Option<&str>| {
        for token in [json!({}), json!({"progressToken": 1})] {
            let response = app
                .respond(modern_request("tools/call", call(n, token), None))
                .await;
            let waits = response
                .headers()
                .get("retry-after")
                .map(|seconds| seconds.to_str().unwrap().to_owned());
            let (code, answer) = last_message(response).await;
            assert_eq!(
                (code.as_u16(), waits.as_deref()),
                (status, replayed),
                "{answer}"
            );
            assert_eq!(
                (&answer["error"]["code"], &answer["error"]["data"]["kind"]),
                (&json!(-32010), &json!(kind))
            );
        }
        let answer = session.result_of("tools/call", call(n, json!({}))).await;
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["kind"]),
            (&json!(-32010), &json!(kind))
        );
        answer["error"]["data"].clone()
    };
    let problem = refused(1, 409, "idempotency_in_progress", Some("1")).await;
    assert_eq!(
        (&problem["retryable"], &problem["retry_after_ms"]),
        (&json!(true), &json!(1000))
    );
    go.notify_one();
    let (_, answer) = first.await.unwrap();
    assert_eq!(
        answer["result"]["_meta"]["toolcrib/invocationId"], problem["invocation_id"],
        "the call that it speaks of"
    );
    refused(2, 422, "idempotency_mismatch", None).await;
}

#[tokio::test]
async fn call_passes_the_whole_stack() {
    let app = TestApp::new([add_tool()]).await;
    let result = app
        .mcp_call(
            "add",
            json!({"a": 2, "b": "3"}),
            json!({"toolcrib/runId": "r-1", "toolcrib/toolUseId": "u"}),
        )
        .await;
    assert_eq!(
        (&result["structuredContent"], &result["isError"]),
        (&json!({"sum": 5}), &json!(false))
    );
    assert_eq!(
        result["content"],
        json!([{"type": "text", "text": "{\"sum\":5}"}])
    );
    assert_eq!(
        (
            &result["resultType"],
            &result["_meta"]["toolcrib/coercions"][0]["pointer"]
        ),
        (&json!("complete"), &json!("/b"))
    );
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "toolcrib"
    );
    let row = app.wait_for_newest_state("succeeded").await;
    assert_eq!(
        result["_meta"]["toolcrib/invocationId"],
        row["invocation_id"]
    );
    assert_eq!(
        (&row["run_id"], &row["tool_use_id"]),
        (&json!("r-1"), &json!("u"))
    );
}

#[tokio::test]
async fn content_blocks_keep_their_mcp_form() {
    let tool = Tool::new("all", "…")
        .effect(Effect::Read)
        .call(|_, _| async {
            let resource = Resource {
                uri: "test://r".into(),
                mime_type: Some("text/plain".into()),
                ..Resource::default()
            };
            let blob = Resource {
                uri: "test://b".into(),
                blob: Some("aGk=".into()),
                ..Resource::default()
            };
            let both = Resource {
                text: Some("hi".into()),
                ..blob.clone()
            };
            Ok(ToolResult {
                content: vec![
                    Content::text("x"),
                    Content::Image {
                        data: "aGk=".into(),
                        mime_type: "image/png".into(),
                    },
                    Content::Audio {
                        data: "aGk=".into(),
                        mime_type: "audio/wav".into(),
                    },
                    Content::Resource { resource },
                    Content::Resource { resource: blob },
                    Content::Resource { resource: both },
                ],
                structured_content: Some(json!([1, 2])),
                ..ToolResult::default()
            })
        });
    let app = TestApp::new([tool]).await;
    let short = app.mcp_call("all", json!({}), json!({})).await;
    let long = app
        .mcp_call("all", json!({}), json!({"progressToken": 1}))
        .await;
    assert_eq!(
        short["content"],
        json!([{"type": "text", "text": "x"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "test://r", "mimeType": "text/plain", "text": ""}},
            {"type": "resource", "resource": {"uri": "test://b", "blob": "aGk="}},
            {"type": "resource", "resource": {"uri": "test://b", "text": "hi"}}])
    );
    assert_eq!(
        short["structuredContent"],
        json!([1, 2]),
        "any data since this version"
    );
    let fields = |result: &Value| {
        result
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (&short["content"], &short["structuredContent"]),
        (&long["content"], &long["structuredContent"])
    );
    assert_eq!(
        (fields(&short), fields(&short["_meta"])),
        (fields(&long), fields(&long["_meta"]))
    );
}

#[tokio::test]
async fn names_resolve_as_over_rest() {
    let app = TestApp::new([add_tool()]).await;
    let result = app
        .mcp_call("functions.Add", json!({"a": 1, "b": 1}), json!({}))
        .await;
    assert_eq!(result["structuredContent"]["sum"], 2);
    assert_eq!(
        result["_meta"]["toolcrib/warnings"][0],
        "called as `functions.Add`; the tool's name is `add`"
    );
    for meta_fields in [json!({}), json!({"progressToken": 1})] {
        let (status, answer) = app
            .mcp("tools/call", json!({"name": "addd", "_meta": meta_fields}))
            .await;
        assert_eq!(
            (status.as_u16(), &answer["error"]["code"]),
            (200, &json!(-32602)),
            "{answer}"
        );
        assert_eq!(
            answer["error"]["data"],
            json!({"kind": "unknown_tool", "did_you_mean": ["add"]})
        );
    }
}

#[tokio::test]
async fn failures_are_results_with_advice() {
    let no = Tool::new("no", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok(ToolResult::error("no such city")) });
    let limit = Limit {
        calls: 1,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let once = Tool::new("once", "…")
        .effect(Effect::Read)
        .limit(limit)
        .call(|_, _| async { Ok("x") });
    let app = TestApp::new([add_tool(), no, once]).await;
    let wrong = app.mcp_call("add", json!({"a": "x"}), json!({})).await;
    let problem = &wrong["_meta"]["toolcrib/problem"];
    assert_eq!(
        (&wrong["isError"], &problem["kind"]),
        (&json!(true), &json!("invalid_arguments"))
    );
    assert_eq!(problem["violations"].as_array().unwrap().len(), 2);
    assert_eq!(
        problem["invocation_id"],
        wrong["_meta"]["toolcrib/invocationId"]
    );
    assert!(
        wrong["content"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("Correct them and call the tool again."),
        "{wrong}"
    );
    let no = app.mcp_call("no", json!({}), json!({})).await;
    assert_eq!(
        (&no["isError"], &no["content"][0]["text"]),
        (&json!(true), &json!("no such city"))
    );
    assert_eq!(no["_meta"].get("toolcrib/problem"), None, "the tool ran");
    let first = app.mcp_call("once", json!({}), json!({})).await;
    assert_eq!(first["_meta"]["toolcrib/usage"][0]["remaining"], 0);
    let second = app.mcp_call("once", json!({}), json!({})).await;
    assert_eq!(
        second["_meta"]["toolcrib/problem"]["kind"],
        "usage_limit_reached"
    );
    assert_eq!(second["_meta"]["toolcrib/problem"]["retryable"], false);
}

#[tokio::test]
async fn meta_carries_the_rest_parameters() {
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let keyed = Tool::new("keyed", "…")
        .effect(Effect::Write)
        .idempotency(Idempotency::Required)
        .call(move |_, _| {
            let n = count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(format!("run {n}")) }
        });
    let cached = Tool::new("cached", "…")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[])
        .call(|_, _| async { Ok(json!([1, 2, 3])) });
    let app = TestApp::new([keyed, cached]).await;
    let meta_fields = json!({"toolcrib/idempotencyKey": "k-1"});
    let first = app.mcp_call("keyed", json!({}), meta_fields.clone()).await;
    let replayed = app.mcp_call("keyed", json!({}), meta_fields).await;
    assert_eq!(
        (&first["content"], runs.load(Ordering::SeqCst)),
        (&replayed["content"], 1)
    );
    assert_eq!(
        (
            &replayed["_meta"]["toolcrib/replayed"],
            &replayed["_meta"]["toolcrib/invocationId"]
        ),
        (&json!(true), &first["_meta"]["toolcrib/invocationId"])
    );
    app.mcp_call("cached", json!({}), json!({})).await;
    let hit = app
        .mcp_call(
            "cached",
            json!({}),
            json!({"toolcrib/page": {"detail": "full", "limit": 1, "offset": 1}}),
        )
        .await;
    assert_eq!(
        (&hit["_meta"]["toolcrib/cache"], &hit["structuredContent"]),
        (&json!("hit"), &json!([2]))
    );
    assert_eq!(hit["_meta"]["toolcrib/overflow"]["next_offset"], 2);
    let bypass = app
        .mcp_call("cached", json!({}), json!({"toolcrib/cache": "bypass"}))
        .await;
    assert_eq!(bypass["_meta"]["toolcrib/cache"], "bypass");
    for (meta_fields, right) in [
        (
            json!({"toolcrib/cache": "maybe"}),
            "_meta, toolcrib/cache: cache is one of",
        ),
        (
            json!({"toolcrib/timeout": 5}),
            "timeout is a text with a unit",
        ),
        (
            json!({"toolcrib/page": {"limit": "x"}}),
            "_meta, toolcrib/page",
        ),
        (json!({"toolcrib/idempotencyKey": 5}), "the key is a text"),
        (
            json!({"toolcrib/run_id": "r"}),
            "unknown key; the keys are idempotencyKey, runId",
        ),
    ] {
        for token in [json!({}), json!({"progressToken": 1})] {
            let params = json!({"name": "cached", "_meta": merge(meta_fields.clone(), token)});
            let (status, answer) = app.mcp("tools/call", params).await;
            assert_eq!(
                (status.as_u16(), &answer["error"]["code"]),
                (200, &json!(-32602)),
                "{answer}"
            );
            assert!(
                answer["error"]["message"].as_str().unwrap().contains(right),
                "{answer}"
            );
        }
    }
    let (_, answer) = app.mcp("tools/call", json!({"name": "keyed"})).await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("toolcrib/idempotencyKey"),
        "{answer}"
    );
}

#[tokio::test]
async fn tool_with_progress_streams() {
    let tool = Tool::new("steps", "…")
        .effect(Effect::Read)
        .call(|_, context| async move {
            for progress in [0, 50, 50, 100] {
                context.progress(json!({"progress": progress, "total": 100}));
            }
            context.progress("nearly");
            Ok("done")
        });
    let words = Tool::new("words", "…")
        .effect(Effect::Read)
        .call(|_, context| async move {
            context.progress("one");
            context.progress(json!({"at": 2}));
            Ok("done")
        });
    let app = TestApp::new([tool, words]).await;
    let call = |name: &str, token: Value| {
        modern_request(
            "tools/call",
            json!({"name": name, "_meta": {"progressToken": token}}),
            None,
        )
    };
    let (_, events) = messages(app.respond(call("steps", json!("p-1"))).await).await;
    let numbers: Vec<f64> = events
        .iter()
        .filter_map(|message| message["params"]["progress"].as_f64())
        .collect();
    assert_eq!(
        (numbers.len(), numbers[0], numbers[1], numbers[3]),
        (5, 0.0, 50.0, 100.0),
        "{events:?}"
    );
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    assert_eq!(
        (&events[0]["method"], &events[0]["params"]["total"]),
        (&json!("notifications/progress"), &json!(100.0))
    );
    assert_eq!(
        (
            &events[0]["params"]["progressToken"],
            &events[4]["params"]["message"]
        ),
        (&json!("p-1"), &json!("nearly"))
    );
    assert_eq!(
        events.last().unwrap()["result"]["content"][0]["text"],
        "done"
    );
    let (_, events) = messages(app.respond(call("words", json!(7))).await).await;
    let progress_at = |n: usize| {
        (
            events[n]["params"]["progress"].clone(),
            events[n]["params"]["message"].clone(),
        )
    };
    assert_eq!(
        (progress_at(0), progress_at(1)),
        (
            (json!(1.0), json!("one")),
            (json!(2.0), json!("{\"at\":2}"))
        )
    );
}

#[tokio::test]
async fn unread_progress_is_counted() {
    let tool = Tool::new("fast", "…")
        .effect(Effect::Read)
        .call(|_, context| async move {
            (0..1000).for_each(|n| context.progress(n));
            Ok("done")
        });
    let app = TestApp::new([tool]).await;
    let request = modern_request(
        "tools/call",
        json!({"name": "fast", "_meta": {"progressToken": 1}}),
        None,
    );
    let (_, events) = messages(app.respond(request).await).await;
    let events = &events[..events.len() - 1];
    let missed: u64 = events
        .iter()
        .filter_map(|message| message["params"]["_meta"]["toolcrib/missed"].as_u64())
        .sum();
    assert_eq!(events.len() as u64 + missed, 1000);
    assert_eq!(events.last().unwrap()["params"]["message"], "999");
}

/// A tool that signals its start, then waits.
fn waiting_tool(effect: Effect) -> (Tool, Arc<Notify>, Arc<Notify>) {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (started.clone(), go.clone());
    let tool = Tool::new("wait", "…")
        .effect(effect)
        .call(move |_, context| {
            let (tell, wait) = (tell.clone(), wait.clone());
            async move {
                context.progress("begun");
                tell.notify_one();
                wait.notified().await;
                Ok("done")
            }
        });
    (tool, started, go)
}

#[tokio::test]
async fn closing_the_stream_is_a_disconnect() {
    for meta_fields in [json!({}), json!({"progressToken": 1})] {
        for (effect, end) in [(Effect::Read, "cancelled"), (Effect::Write, "succeeded")] {
            let (tool, started, go) = waiting_tool(effect);
            let app = Arc::new(TestApp::new([tool]).await);
            let call = tokio::spawn({
                let (app, meta_fields) = (app.clone(), meta_fields.clone());
                async move {
                    let params = json!({"name": "wait", "_meta": meta_fields});
                    messages(
                        app.respond(modern_request("tools/call", params, None))
                            .await,
                    )
                    .await
                }
            });
            started.notified().await;
            call.abort();
            let _ = call.await;
            if effect == Effect::Write {
                go.notify_one();
            }
            app.wait_for_newest_state(end).await;
        }
    }
}

#[tokio::test]
async fn listener_is_notified_of_list_changes() {
    let tool = |description: &str| {
        format!("tools:\n  calculator: {{kind: native, description: {description}}}\n")
    };
    let callers = "callers:\n  - {name: ann, key: key-of-ann, admin: true}\n  - {name: bob, key: key-of-bob, deny: [calculator]}\n";
    let manifest = |description: &str| format!("{callers}{}", tool(description));
    let app = TestApp::with_manifest(&manifest("one"), []).await;
    let listen = |key| {
        modern_request(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
            Some(key),
        )
    };
    let (mut ann, mut bob) = (
        app.respond(listen("key-of-ann")).await.into_body(),
        app.respond(listen("key-of-bob")).await.into_body(),
    );
    for stream in [&mut ann, &mut bob] {
        let acknowledged = next_message(stream).await.unwrap();
        assert_eq!(
            acknowledged["method"],
            "notifications/subscriptions/acknowledged"
        );
        assert_eq!(
            acknowledged["params"]["notifications"],
            json!({"toolsListChanged": true})
        );
    }
    app.write("toolcrib.yaml", &manifest("two"));
    assert_eq!(app.reload().await, None);
    let changed = next_message(&mut ann).await.unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(
        changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        json!(1)
    );
    // Switched off it is not shown either.
    app.post_as("key-of-ann", "/tools/calculator/disable", json!({}))
        .await;
    assert_eq!(
        next_message(&mut ann).await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    let nothing = tokio::time::timeout(Duration::from_millis(100), next_message(&mut bob)).await;
    assert!(nothing.is_err(), "bob's list is what it was: {nothing:?}");
}

/// A subscription to the list of tools only is answered by `http/mcp/listen.rs`, all others by rmcp.
#[tokio::test]
async fn both_kinds_of_subscriptions_have_the_same_form() {
    let app = TestApp::new([add_tool()]).await;
    let listen = |notifications: Value| {
        let params = json!({"notifications": notifications});
        app.respond(modern_request("subscriptions/listen", params, None))
    };
    let (plain, wider) = (
        listen(json!({"toolsListChanged": true})).await,
        listen(json!({"toolsListChanged": true, "promptsListChanged": false})).await,
    );
    let headers = |response: &Response| {
        let mut headers = response.headers().clone();
        headers.remove("x-request-id");
        headers
    };
    assert_eq!(headers(&plain), headers(&wider));
    let (mut plain, mut wider) = (plain.into_body(), wider.into_body());
    let mut first = next_message(&mut wider).await.unwrap();
    first["params"]["notifications"] = json!({"toolsListChanged": true});
    assert_eq!(next_message(&mut plain).await, Some(first));
    app.post("/tools/add/disable", json!({})).await;
    let frame = async |body: &mut Body| body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame(&mut plain).await, frame(&mut wider).await);
}

#[tokio::test]
async fn streams_end_with_the_service() {
    let app = TestApp::new([add_tool()]).await;
    let listen = modern_request(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
        None,
    );
    let mut stream = app.respond(listen).await.into_body();
    next_message(&mut stream).await.unwrap();
    app.close().await;
    while next_message(&mut stream).await.is_some() {}
}

#[tokio::test]
async fn invalid_requests_get_their_status_and_code() {
    let app = TestApp::new([add_tool()]).await;
    let call = || {
        merge(
            rpc_message(
                "tools/call",
                json!({"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": client_meta()}),
            ),
            json!({}),
        )
    };
    let headers = [
        ("mcp-protocol-version", STATELESS_VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", "add"),
    ];
    let but = |name: &str, value: Option<&'static str>| {
        let mut headers: Vec<(&str, &str)> = headers.to_vec();
        headers.retain(|(other, _)| *other != name);
        headers.extend(value.map(|value| (name.to_owned().leak() as &str, value)));
        headers
    };
    let without = |key: &str| {
        let mut body = call();
        body["params"]["_meta"]
            .as_object_mut()
            .unwrap()
            .remove(&format!("io.modelcontextprotocol/{key}"));
        body
    };
    let old = |version: &str| {
        let mut body = call();
        body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version.into();
        body
    };
    type Case<'a> = (&'a str, Value, Vec<(&'a str, &'a str)>, u16, i64);
    let cases: Vec<Case<'_>> = vec![
        (
            "another method in the header",
            call(),
            but("mcp-method", Some("tools/list")),
            400,
            -32020,
        ),
        (
            "a method in other letters",
            call(),
            but("mcp-method", Some("Tools/Call")),
            400,
            -32020,
        ),
        (
            "no method in the header",
            call(),
            but("mcp-method", None),
            400,
            -32020,
        ),
        (
            "another name in the header",
            call(),
            but("mcp-name", Some("other")),
            400,
            -32020,
        ),
        (
            "no name in the header",
            call(),
            but("mcp-name", None),
            400,
            -32020,
        ),
        (
            "another version in the header",
            call(),
            but("mcp-protocol-version", Some("2025-11-25")),
            400,
            -32020,
        ),
        (
            "no version in the header",
            call(),
            but("mcp-protocol-version", None),
            400,
            -32020,
        ),
        (
            "no version in _meta",
            without("protocolVersion"),
            headers.to_vec(),
            400,
            -32602,
        ),
        (
            "no capabilities in _meta",
            without("clientCapabilities"),
            headers.to_vec(),
            400,
            -32602,
        ),
        (
            "a version that is not spoken",
            old("2099-01-01"),
            but("mcp-protocol-version", Some("2099-01-01")),
            400,
            -32022,
        ),
        (
            "a method that was taken out",
            merge(call(), json!({"method": "ping"})),
            but("mcp-method", Some("ping")),
            404,
            -32601,
        ),
        (
            "a method that never was",
            merge(call(), json!({"method": "x/y"})),
            but("mcp-method", Some("x/y")),
            404,
            -32601,
        ),
        (
            "arguments that are none",
            merge(
                call(),
                json!({"params": {"name": "add", "arguments": "x", "_meta": client_meta()}}),
            ),
            headers.to_vec(),
            200,
            -32602,
        ),
        (
            "no JSON-RPC",
            merge(call(), json!({"jsonrpc": "1.0"})),
            headers.to_vec(),
            400,
            -32600,
        ),
        (
            "an id that is none",
            merge(call(), json!({"id": {}})),
            headers.to_vec(),
            400,
            -32600,
        ),
        ("a batch", json!([call()]), headers.to_vec(), 400, -32600),
    ];
    for (what, body, headers, status, code) in cases {
        let response = app.respond(mcp_request(&body, None, &headers)).await;
        let (answered, answer) = last_message(response).await;
        assert_eq!(
            (answered.as_u16(), answer["error"]["code"].as_i64()),
            (status, Some(code)),
            "{what}: {answer}"
        );
        if code == -32022 {
            assert_eq!(answer["error"]["data"]["requested"], "2099-01-01");
            assert!(
                answer["error"]["data"]["supported"]
                    .as_array()
                    .unwrap()
                    .contains(&json!(STATELESS_VERSION)),
                "{answer}"
            );
        }
    }
    let (_, answer) = app.mcp("nope/x", json!({})).await;
    assert_eq!(
        answer["error"],
        json!({"code": -32601, "message": "there is no method `nope/x`"})
    );
    // OWS around a value and other letters in a header's name are all the same.
    let headers = [
        ("MCP-Protocol-Version", STATELESS_VERSION),
        ("MCP-METHOD", "tools/call"),
        ("mcp-name", "add"),
    ];
    assert_eq!(
        last_message(app.respond(mcp_request(&call(), None, &headers)).await)
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn unreadable_bodies_are_refused() {
    let app = TestApp::with_manifest("server: {max_body: 1KiB}\n", [add_tool()]).await;
    let sent = async |body: &str, kind: &str| {
        let mut request = mcp_request(&json!({}), None, &[]);
        request
            .headers_mut()
            .insert("content-type", kind.parse().unwrap());
        *request.body_mut() = Body::from(body.to_owned());
        last_message(app.respond(request).await).await
    };
    let (status, answer) = sent("{\"jsonrpc\"", "application/json").await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"], &answer["id"]),
        (400, &json!(-32700), &Value::Null)
    );
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}"#;
    let (status, answer) = sent(twice, "application/json").await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!(-32700)),
        "a key that stands there twice"
    );
    assert_eq!(sent("{}", "text/plain").await.0, 415);
    assert_eq!(sent(&" ".repeat(2000), "application/json").await.0, 413);
    let mut foreign = modern_request("tools/list", json!({}), None);
    foreign
        .headers_mut()
        .insert("origin", "http://evil.example".parse().unwrap());
    assert_eq!(
        last_message(app.respond(foreign).await).await.0,
        StatusCode::FORBIDDEN
    );
    let mut foreign = modern_request("tools/list", json!({}), None);
    foreign
        .headers_mut()
        .insert("host", "evil.example".parse().unwrap());
    assert_eq!(
        last_message(app.respond(foreign).await).await.0,
        StatusCode::FORBIDDEN
    );
    for (accepted, method) in [
        ("text/event-stream", "tools/list"),
        ("application/json;q=0, text/event-stream", "tools/list"),
        ("application/json", "subscriptions/listen"),
    ] {
        let mut request = modern_request(method, json!({"notifications": {}}), None);
        let header = accepted.parse().unwrap();
        request.headers_mut().insert("accept", header);
        let (status, answer) = last_message(app.respond(request).await).await;
        assert_eq!(
            (status.as_u16(), &answer["error"]["code"]),
            (406, &json!(-32600)),
            "{accepted}: {answer}"
        );
    }
}

#[tokio::test]
async fn get_and_delete_are_refused() {
    let app = TestApp::new([add_tool()]).await;
    for method in ["GET", "DELETE"] {
        let mut request = request(method, "/mcp", None, None);
        request
            .headers_mut()
            .insert("mcp-protocol-version", STATELESS_VERSION.parse().unwrap());
        request
            .headers_mut()
            .insert("accept", "text/event-stream".parse().unwrap());
        let response = app.respond(request).await;
        assert_eq!(response.headers()["allow"], "POST");
        assert_eq!(
            last_message(response).await.0,
            StatusCode::METHOD_NOT_ALLOWED
        );
    }
}

#[tokio::test]
async fn header_parameters_must_match_the_arguments() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let tool = Tool::new("run", "…")
        .effect(Effect::Read)
        .input_schema(schema)
        .call(|_, _| async { Ok("ran") });
    let app = TestApp::new([tool]).await;
    let call = |header: Option<&str>| {
        let mut request = modern_request(
            "tools/call",
            json!({"name": "run", "arguments": {"region": "eu"}}),
            None,
        );
        if let Some(value) = header {
            request
                .headers_mut()
                .insert("mcp-param-region", value.parse().unwrap());
        }
        request
    };
    let (status, answer) = last_message(app.respond(call(Some("eu"))).await).await;
    assert_eq!(
        (status.as_u16(), &answer["result"]["content"][0]["text"]),
        (200, &json!("ran")),
        "{answer}"
    );
    for header in [None, Some("us")] {
        let (status, answer) = last_message(app.respond(call(header)).await).await;
        assert_eq!(
            (status.as_u16(), &answer["error"]["code"]),
            (400, &json!(-32020)),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn header_parameters_belong_to_the_granted_tool() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, deny: [RUN-IT]}\n";
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let tool = |name: &str| {
        Tool::new(name, "…")
            .effect(Effect::Read)
            .input_schema(schema.clone())
            .call(|_, _| async { Ok("ran") })
    };
    // For a caller with both tools, `Run_It` is ambiguous.
    let app = TestApp::with_manifest(manifest, [tool("run_it"), tool("RUN-IT")]).await;
    for meta_fields in [json!({}), json!({"progressToken": 1})] {
        let call = |region: &str| {
            let params =
                json!({"name": "Run_It", "arguments": {"region": "eu"}, "_meta": meta_fields});
            let mut request = modern_request("tools/call", params, Some("key-of-ann"));
            request
                .headers_mut()
                .insert("mcp-param-region", region.parse().unwrap());
            request
        };
        let (status, answer) = last_message(app.respond(call("us")).await).await;
        assert_eq!(
            (status.as_u16(), &answer["error"]["code"]),
            (400, &json!(-32020)),
            "{answer}"
        );
        let (status, answer) = last_message(app.respond(call("eu")).await).await;
        assert_eq!(
            (status.as_u16(), &answer["result"]["content"][0]["text"]),
            (200, &json!("ran")),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn protocol_errors_are_equal_on_fast_path() {
    let app = TestApp::new([add_tool()]).await;
    let call = || {
        modern_request(
            "tools/call",
            json!({"name": "add", "arguments": {"a": 1, "b": 2}}),
            None,
        )
    };
    for (header, value, refused) in [
        ("content-type", "application/foo+json", 415),
        ("accept", "application/json-seq, text/event-stream", 406),
    ] {
        let mut request = call();
        request.headers_mut().insert(header, value.parse().unwrap());
        assert_eq!(
            app.respond(request).await.status(),
            refused,
            "{header}: {value}"
        );
    }
    for anything in [
        "*/*",
        "application/*",
        "application/json",
        "text/html, */*; q=0.8",
    ] {
        for mut request in [call(), modern_request("tools/list", json!({}), None)] {
            request
                .headers_mut()
                .insert("accept", anything.parse().unwrap());
            assert_eq!(app.respond(request).await.status(), 200, "{anything}");
        }
    }
    let mut request = call();
    request.headers_mut().insert(
        "content-type",
        "application/json; charset=utf-8".parse().unwrap(),
    );
    assert_eq!(
        last_message(app.respond(request).await).await.1["result"]["structuredContent"]["sum"],
        3
    );
    for odd in [json!({"requestState": 5}), json!({"inputResponses": "x"})] {
        let params = merge(
            json!({"name": "add", "arguments": {"a": 1, "b": 2}}),
            odd.clone(),
        );
        let (_, answer) = app.mcp("tools/call", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{odd}: {answer}");
    }
}

#[tokio::test]
async fn revoked_key_loses_its_stream() {
    let manifest = |key: &str| {
        format!(
            "callers:\n  - {{name: ann, key: {key}}}\n  - {{name: bob, key: key-of-bob, deny: [nothing]}}\n"
        )
    };
    let app = TestApp::with_manifest(&manifest("key-of-ann"), [add_tool()]).await;
    let listen = |key| {
        modern_request(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
            Some(key),
        )
    };
    let mut streams = Vec::new();
    for key in ["key-of-ann", "key-of-bob"] {
        let session = app.session("2025-11-25", Some(key)).await;
        streams.push(session.send("GET").await.into_body());
        let mut listens = app.respond(listen(key)).await.into_body();
        assert_eq!(
            next_message(&mut listens).await.unwrap()["method"],
            "notifications/subscriptions/acknowledged"
        );
        streams.push(listens);
    }
    // The same callers; ann's key is another, and bob may not use `add` any more.
    app.write(
        "toolcrib.yaml",
        &manifest("key-of-ann-2").replace("nothing", "add"),
    );
    assert_eq!(app.reload().await, None);
    for stream in &mut streams[..2] {
        assert_eq!(next_message(stream).await, None);
    }
    for stream in &mut streams[2..] {
        assert_eq!(
            next_message(stream).await.unwrap()["method"],
            "notifications/tools/list_changed"
        );
    }
}
