use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib::{Capture, Effect, Tool, ToolError};

use crate::support::{TestApp, first_text, request};

fn rows_json(n: u64) -> Value {
    (0..n)
        .map(|id| json!({"id": id, "name": format!("row {id}")}))
        .collect()
}

/// A tool that lists `n` rows, counts its runs, and fails from the second run on, if it may not run
/// again.
fn listing_tool(tool: Tool<()>, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    tool.param("n", "integer", "How many").call(move |arguments, _| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!({"rows": rows_json(arguments["n"].as_u64().unwrap_or_default()), "source": "a table"})) }
    })
}

fn cached_listing(runs: &Arc<AtomicUsize>) -> Tool {
    listing_tool(
        Tool::new("cached", "…")
            .effect(Effect::Read)
            .cache(Duration::from_secs(60), &[]),
        runs,
    )
}

fn uncached_listing(runs: &Arc<AtomicUsize>) -> Tool {
    listing_tool(Tool::new("plain", "…").effect(Effect::Read), runs)
}

async fn invoke_page(app: &TestApp, tool: &str, n: u64, page: Value) -> (StatusCode, Value) {
    app.post(
        &format!("/tools/{tool}/invoke"),
        json!({"arguments": {"n": n}, "page": page}),
    )
    .await
}

fn full_page(offset: usize) -> Value {
    json!({"detail": "full", "offset": offset})
}

/// `shown`, `total` and `next_offset` of an answer.
fn overflow_counts(answer: &Value) -> Value {
    let overflow = &answer["meta"]["overflow"];
    json!([
        overflow["shown"],
        overflow["total"],
        overflow["next_offset"]
    ])
}

#[tokio::test]
async fn pages_of_a_stored_result_are_complete() {
    let runs = Arc::default();
    let app = TestApp::new([cached_listing(&runs)]).await;
    let (mut all, mut offset, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(from) = offset {
        let (status, answer) = invoke_page(&app, "cached", 1010, full_page(from as usize)).await;
        assert_eq!(status, 200, "{answer}");
        let text: Value =
            serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, answer["structured_content"]);
        assert_eq!(text["source"], "a table");
        all.extend(text["rows"].as_array().unwrap().clone());
        offset = answer["meta"]["overflow"]["next_offset"].as_u64();
        pages += 1;
    }
    assert_eq!(
        (Value::from(all), pages, runs.load(Ordering::SeqCst)),
        (rows_json(1010), 21, 1)
    );
    let (_, behind) = invoke_page(&app, "cached", 1010, full_page(1010)).await;
    assert_eq!(
        (
            overflow_counts(&behind),
            &behind["structured_content"]["rows"]
        ),
        (json!([0, 1010, null]), &json!([]))
    );
}

#[tokio::test]
async fn exploring_caps_a_list_and_records_all() {
    let runs = Arc::default();
    let app = TestApp::new([cached_listing(&runs), uncached_listing(&runs)]).await;
    let (_, answer) = app.invoke("plain", json!({"n": 300})).await;
    assert_eq!(
        (
            overflow_counts(&answer),
            &answer["meta"]["overflow"]["unit"]
        ),
        (json!([200, 300, null]), &json!("items"))
    );
    let id = answer["invocation_id"].as_str().unwrap();
    let hint = answer["meta"]["overflow"]["hint"].as_str().unwrap();
    assert!(
        hint.contains(&format!("GET /invocations/{id}/result")) && !hint.contains("page"),
        "{hint}"
    );
    let record = app.newest_invocation().await["result"].clone();
    assert_eq!(
        (
            &record["structured_content"]["rows"],
            &record["meta"]["overflow"]
        ),
        (&rows_json(300), &Value::Null)
    );
    let (_, answer) = invoke_page(&app, "cached", 300, json!({"limit": 7})).await;
    assert_eq!(overflow_counts(&answer), json!([7, 300, null]));
    assert!(
        answer["meta"]["overflow"]["hint"]
            .as_str()
            .unwrap()
            .contains("\"page\": {\"detail\": \"full\"}")
    );
    for full in [
        app.invoke("cached", json!({"n": 200})).await,
        invoke_page(&app, "cached", 50, full_page(0)).await,
    ] {
        assert_eq!(full.1["meta"]["overflow"], Value::Null);
    }
}

#[tokio::test]
async fn further_page_never_runs_the_tool() {
    let runs = Arc::default();
    let app = TestApp::new([cached_listing(&runs), uncached_listing(&runs)]).await;
    let (_, first) = invoke_page(&app, "plain", 300, full_page(0)).await;
    assert_eq!(overflow_counts(&first), json!([50, 300, 50]));
    let mut refused = vec![
        invoke_page(&app, "plain", 300, full_page(50)).await,
        invoke_page(&app, "cached", 300, full_page(50)).await,
    ];
    invoke_page(&app, "cached", 300, full_page(0)).await;
    for mode in ["refresh", "bypass"] {
        let body = json!({"arguments": {"n": 300}, "page": full_page(50), "cache": mode});
        refused.push(app.post("/tools/cached/invoke", body).await);
    }
    for (status, problem) in &refused {
        assert_eq!(
            (status.as_u16(), &problem["kind"], &problem["status"]),
            (409, &json!("invalid_request"), &json!(409))
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("GET /invocations/{id}/result?offset=50"),
            "{detail}"
        );
        assert!(
            problem["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("did not run")
        );
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    let row = app.newest_invocation().await;
    assert_eq!(
        (&row["state"], &row["result"]["status"]),
        (&json!("refused"), &json!(409))
    );
    // The hint of the first answer leads to the next page.
    let hint = first["meta"]["overflow"]["hint"].as_str().unwrap();
    let path = &hint[hint.find("/invocations").unwrap()..hint.len() - 1];
    let (status, next) = app.get(path).await;
    assert_eq!(
        (
            status.as_u16(),
            overflow_counts(&next),
            &next["structured_content"]["rows"][0]["id"]
        ),
        (200, json!([50, 300, 100]), &json!(50))
    );
}

#[tokio::test]
async fn keyed_result_can_be_paged_and_replayed() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool(Tool::new("pay", "…"), &runs)]).await;
    let keyed = async |app: &TestApp, page: Value| {
        let body = json!({"arguments": {"n": 120}, "page": page});
        let mut request = request("POST", "/tools/pay/invoke", None, Some(body));
        request
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        let response = app.respond(request).await;
        (
            response.status().as_u16(),
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    };
    assert_eq!(keyed(&app, full_page(50)).await.0, 409, "it claims no key");
    let first = keyed(&app, full_page(0)).await;
    let answer: Value = serde_json::from_slice(&first.1).unwrap();
    assert_eq!(overflow_counts(&answer), json!([50, 120, 50]));
    assert!(
        answer["meta"]["overflow"]["hint"]
            .as_str()
            .unwrap()
            .contains("with its Idempotency-Key")
    );
    assert_eq!(keyed(&app, full_page(0)).await, first);
    let app = app
        .restart([listing_tool(Tool::new("pay", "…"), &runs)])
        .await;
    assert_eq!(keyed(&app, full_page(0)).await, first);
    let last: Value = serde_json::from_slice(&keyed(&app, full_page(100)).await.1).unwrap();
    assert_eq!(
        (
            overflow_counts(&last),
            &last["structured_content"]["rows"][0]["id"]
        ),
        (json!([20, 120, null]), &json!(100))
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn list_with_min_items_is_not_cut() {
    let schema = |least: u64| json!({"type": "object", "properties": {"rows": {"type": "array", "minItems": least}}});
    let (runs, app) = (Arc::default(), |tool| TestApp::new([tool]));
    let tool = |least| {
        listing_tool(
            Tool::new("plain", "…")
                .effect(Effect::Read)
                .output_schema(schema(least)),
            &runs,
        )
    };
    let (_, answer) = app(tool(210))
        .await
        .invoke("plain", json!({"n": 300}))
        .await;
    assert_eq!(
        (
            &answer["meta"]["overflow"],
            &answer["structured_content"]["rows"]
        ),
        (&Value::Null, &rows_json(300))
    );
    let warning = answer["meta"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("output_schema"), "{warning}");
    let (_, answer) = app(tool(200))
        .await
        .invoke("plain", json!({"n": 300}))
        .await;
    assert_eq!(
        (overflow_counts(&answer), &answer["meta"]["warnings"]),
        (json!([200, 300, null]), &json!([]))
    );
}

/// A tool whose text has the requested length and changes with each run.
fn long_text() -> Tool {
    let tool = Tool::new("write", "…")
        .param("n", "integer", "How long")
        .effect(Effect::Read);
    tool.cache(Duration::from_secs(60), &[])
        .call(|arguments, _| async move {
            let n = arguments["n"].as_u64().unwrap_or_default() as usize;
            Ok((0..)
                .flat_map(|line| format!("ø {line}\n").chars().collect::<Vec<_>>())
                .take(n)
                .collect::<String>())
        })
}

#[tokio::test]
async fn long_text_shows_both_ends_and_pages() {
    let app = TestApp::new([long_text()]).await;
    let full = {
        let (_, answer) = invoke_page(
            &app,
            "write",
            120_000,
            json!({"detail": "full", "limit": 100_000}),
        )
        .await;
        let (_, rest) = invoke_page(
            &app,
            "write",
            120_000,
            json!({"detail": "full", "offset": 100_000}),
        )
        .await;
        format!(
            "{}{}",
            answer["content"][0]["text"].as_str().unwrap(),
            rest["content"][0]["text"].as_str().unwrap()
        )
    };
    assert_eq!(full.chars().count(), 120_000);
    let explored = app.invoke("write", json!({"n": 120_000})).await;
    let ends: Vec<&str> = first_text(&explored)
        .split("\n[… 70000 characters left out …]\n")
        .collect();
    assert!(ends.len() == 2 && full.starts_with(ends[0]) && full.ends_with(ends[1]));
    assert_eq!(
        (
            overflow_counts(&explored.1),
            &explored.1["meta"]["overflow"]["unit"]
        ),
        (json!([50_000, 120_000, null]), &json!("characters"))
    );
    let first = invoke_page(&app, "write", 120_000, full_page(0)).await;
    assert_eq!(
        (
            overflow_counts(&first.1),
            first_text(&first).chars().count()
        ),
        (json!([50_000, 120_000, 50_000]), 50_000)
    );
    assert_eq!(
        app.invoke("write", json!({"n": 50_000})).await.1["meta"]["overflow"],
        Value::Null
    );
    // A limit is mostly meant for lists: it does not tear what is short.
    let short = invoke_page(&app, "write", 300, json!({"detail": "full", "limit": 50})).await;
    assert_eq!(
        (
            &short.1["meta"]["overflow"],
            first_text(&short).chars().count()
        ),
        (&Value::Null, 300)
    );
    // The ledger has all of it, and the result route every part of it.
    let id = explored.1["invocation_id"].as_str().unwrap();
    let (_, all) = app.get(&format!("/invocations/{id}/result")).await;
    assert_eq!(
        (all["content"][0]["text"].as_str(), &all["meta"]["overflow"]),
        (Some(full.as_str()), &Value::Null)
    );
    let (mut parts, mut offset) = (String::new(), Some(0));
    while let Some(from) = offset {
        let part = app
            .get(&format!(
                "/invocations/{id}/result?offset={from}&limit=7777"
            ))
            .await;
        parts.push_str(first_text(&part));
        offset = part.1["meta"]["overflow"]["next_offset"].as_u64();
    }
    assert_eq!(parts, full);
}

#[tokio::test]
async fn result_route_repeats_the_result() {
    let go = Arc::new(Notify::new());
    let wait = go.clone();
    let tools = [
        cached_listing(&Arc::default()),
        Tool::new("says_no", "…")
            .call(|_, _| async { Err::<String, _>(ToolError::ErrorResult("no".into())) }),
        Tool::new("fails", "…")
            .effect(Effect::Read)
            .call(|_, _| async { Err::<String, _>(ToolError::upstream("down")) }),
        listing_tool(
            Tool::new("hides", "…").capture(Capture::Digest),
            &Arc::default(),
        ),
        Tool::new("waits", "…").call(move |_, _| {
            let wait = wait.clone();
            async move {
                wait.notified().await;
                Ok("done")
            }
        }),
    ];
    let app = Arc::new(TestApp::new(tools).await);
    let result_of = async |answer: &Value, query: &str| {
        let id = answer["invocation_id"].as_str().unwrap();
        app.get(&format!("/invocations/{id}/result{query}")).await
    };
    let (_, miss) = invoke_page(&app, "cached", 60, full_page(0)).await;
    let (_, hit) = invoke_page(&app, "cached", 60, full_page(50)).await;
    assert_eq!(hit["meta"]["cache"], "hit");
    for (answer, cache) in [(&miss, "miss"), (&hit, "hit")] {
        let (status, full) = result_of(answer, "").await;
        assert_eq!(
            (status.as_u16(), &full["structured_content"]["rows"]),
            (200, &rows_json(60))
        );
        assert_eq!(
            (&full["invocation_id"], &full["meta"]["cache"]),
            (&answer["invocation_id"], &json!(cache))
        );
        let (_, part) = result_of(answer, "?offset=58").await;
        assert_eq!(
            (
                overflow_counts(&part),
                &part["structured_content"]["rows"][0]["id"]
            ),
            (json!([2, 60, null]), &json!(58))
        );
    }
    let (_, no) = app.invoke("says_no", json!({})).await;
    assert_eq!(result_of(&no, "").await, (StatusCode::OK, no));
    let (failed, refused) = (
        app.invoke("fails", json!({})).await,
        app.invoke("cached", json!({"n": "many"})).await,
    );
    assert_eq!((failed.0.as_u16(), refused.0.as_u16()), (502, 422));
    for reply in [failed, refused] {
        assert_eq!(result_of(&reply.1, "?offset=1").await, reply);
    }
    let (_, hidden) = invoke_page(&app, "hides", 60, full_page(0)).await;
    assert_eq!(
        (
            overflow_counts(&hidden),
            &hidden["meta"]["overflow"]["hint"]
        ),
        (
            json!([50, 60, 50]),
            &json!("The rest is not kept: ask for less at once.")
        )
    );
    let (status, problem) = result_of(&hidden, "").await;
    assert_eq!(
        (
            status.as_u16(),
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("capture: digest")
        ),
        (404, true)
    );
    let running = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("waits", json!({})).await }
    });
    let newest = app.wait_for_newest_with("state=running").await;
    let (status, problem) = result_of(&newest, "").await;
    assert_eq!(
        (
            status.as_u16(),
            problem["detail"].as_str().unwrap().contains("still runs")
        ),
        (409, true)
    );
    go.notify_one();
    running.await.unwrap();
    assert_eq!(first_text(&result_of(&newest, "").await), "done");
    for (path, status) in [
        ("nonsense/result", 404),
        ("0199aaaa-0000-7000-8000-000000000000/result", 404),
    ] {
        assert_eq!(
            app.get(&format!("/invocations/{path}")).await.0.as_u16(),
            status
        );
    }
    for query in ["?limit=0", "?offset=-1", "?page=2"] {
        assert_eq!(result_of(&newest, query).await.0.as_u16(), 400, "{query}");
    }
}

#[tokio::test]
async fn result_belongs_to_its_caller() {
    let manifest = "callers: [{name: ann, key: ann-key-0123456789}, {name: bob, key: bob-key-0123456789}, \
                    {name: root, key: root-key-0123456789, admin: true}]\n";
    let app = TestApp::with_manifest(manifest, [uncached_listing(&Arc::default())]).await;
    let body = json!({"arguments": {"n": 3}});
    let (_, answer) = app
        .post_as("ann-key-0123456789", "/tools/plain/invoke", body)
        .await;
    let path = format!(
        "/invocations/{}/result",
        answer["invocation_id"].as_str().unwrap()
    );
    for (key, status) in [("ann", 200), ("root", 200), ("bob", 404)] {
        assert_eq!(
            app.get_as(&format!("{key}-key-0123456789"), &path)
                .await
                .0
                .as_u16(),
            status,
            "{key}"
        );
    }
    assert_eq!(app.get(&path).await.0.as_u16(), 401);
}

#[tokio::test]
async fn control_characters_are_removed_and_reported() {
    let tool = |name: &str| Tool::new(name, "…").effect(Effect::Read);
    let app = TestApp::new([
        tool("red").call(|_, _| async { Ok("\u{1b}[31mred\u{1b}[0m\r\n\u{7}done\u{202e}") }),
        tool("no").call(|_, _| async {
            Err::<String, _>(ToolError::ErrorResult("\u{1b}[31mno\u{1b}[0m".into()))
        }),
        tool("down").call(|_, _| async {
            Err::<String, _>(ToolError::upstream("\u{1b}[31mdown\u{1b}[0m"))
        }),
        tool("panics").call(|_, _| async {
            if true {
                panic!("\u{1b}[31moh\u{1b}[0m")
            } else {
                Ok("")
            }
        }),
        tool("data").call(|_, _| async { Ok(json!({"log": "\u{1b}[31mred"})) }),
    ])
    .await;
    let red = app.invoke("red", json!({})).await;
    assert_eq!(first_text(&red), "red\ndone\u{202e}");
    assert!(
        red.1["meta"]["warnings"][0]
            .as_str()
            .unwrap()
            .contains("bidirectional")
    );
    assert_eq!(first_text(&app.invoke("no", json!({})).await), "no");
    assert_eq!(app.invoke("down", json!({})).await.1["detail"], "down");
    assert!(first_text(&app.invoke("panics", json!({})).await).ends_with("unexpectedly: oh"));
    let data = app.invoke("data", json!({})).await;
    assert_eq!(
        (&data.1["structured_content"]["log"], first_text(&data)),
        (&json!("\u{1b}[31mred"), r#"{"log":"\u001b[31mred"}"#)
    );
}
