//! Long results as a model reads them: by arguments of its own, and by `read_result`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use toolcrib::{App, Capture, Effect, Limit, LimitScope, Paging, Per, Tool, ToolResult};

use crate::support::{TestApp, request};

/// A tool that lists `n` rows and returns its arguments; it counts its runs.
fn listing_tool(name: &str, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    Tool::new(name, "Lists rows")
        .param("n", "integer", "How many")
        .call(move |arguments, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            let rows: Value = (0..arguments["n"].as_u64().unwrap_or_default())
                .map(|id| json!({"id": id}))
                .collect();
            async move { Ok(json!({"rows": rows, "had": arguments})) }
        })
}

/// One call in a message of a model. Returns the text for the model.
async fn model_text(
    app: &TestApp,
    key: Option<&str>,
    path: &str,
    tool: &str,
    arguments: Value,
) -> String {
    let call = json!({"id": "c1", "type": "function", "function": {"name": tool, "arguments": arguments.to_string()}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let (status, answer) = app.send(request("POST", path, key, Some(message))).await;
    assert_eq!(status, 200, "{answer}");
    answer["messages"][0]["content"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

/// The words at the end.
fn last_line(answer_text: &str) -> &str {
    answer_text.lines().last().unwrap_or_default()
}

/// The arguments that the words name.
fn arguments_in_hint(words: &str) -> Value {
    let at = words.find("\"").unwrap_or_else(|| panic!("{words}"));
    let end = words.rfind(|c: char| c.is_ascii_digit()).unwrap();
    serde_json::from_str(&format!("{{{}}}", words[at..=end].trim_start_matches('{')))
        .unwrap_or_else(|e| panic!("{e}: {words}"))
}

fn row_ids(answer_text: &str) -> Vec<u64> {
    let value: Value = serde_json::from_str(answer_text.lines().next().unwrap()).unwrap();
    let rows = value.get("rows").unwrap_or(&value).as_array().unwrap();
    rows.iter().map(|row| row["id"].as_u64().unwrap()).collect()
}

fn merge(mut arguments: Value, more: &Value) -> Value {
    arguments
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    arguments
}

#[tokio::test]
async fn every_format_shows_the_page_parameters() {
    let runs = Arc::default();
    let app = TestApp::new([
        listing_tool("paged", &runs).paging(Paging::Model),
        listing_tool("plain", &runs),
    ])
    .await;
    let names = |schema: &Value| {
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    for (format, schema) in [
        ("native", "/tools/0/input_schema"),
        ("openai", "/0/function/parameters"),
        ("openai-responses", "/0/parameters"),
        ("anthropic", "/0/input_schema"),
        ("gemini", "/0/functionDeclarations/0/parametersJsonSchema"),
        ("bedrock", "/tools/0/toolSpec/inputSchema/json"),
        ("mcp", "/tools/0/inputSchema"),
    ] {
        let (_, shown) = app.get(&format!("/tools?format={format}")).await;
        let found = shown
            .pointer(schema)
            .unwrap_or_else(|| panic!("{format}: {shown}"));
        assert_eq!(
            names(found),
            ["n", "detail_level", "offset", "limit"],
            "{format}"
        );
    }
    let (_, listed) = app.mcp("tools/list", json!({})).await;
    assert_eq!(names(&listed["result"]["tools"][0]["inputSchema"]).len(), 4);
    assert_eq!(names(&listed["result"]["tools"][1]["inputSchema"]), ["n"]);
    let (_, paged) = app.get("/tools/paged").await;
    let (_, plain) = app.get("/tools/plain").await;
    assert_eq!(
        (&paged["policy"]["paging"], &plain["policy"]["paging"]),
        (&json!("model"), &json!("caller"))
    );
    assert_eq!(names(&paged["input_schema"]).len(), 4);
    let (_, document) = app.get("/openapi.json").await;
    assert!(document.to_string().contains("detail_level"));
}

#[tokio::test]
async fn hints_lead_model_to_last_row() {
    let runs = Arc::default();
    // Nothing is cached, and a write must not run twice for its own result.
    let limit = Limit {
        calls: 1,
        per: Per::Day,
        scope: LimitScope::Tool,
    };
    let app = TestApp::new([listing_tool("paged", &runs)
        .paging(Paging::Model)
        .limit(limit)])
    .await;
    let (mut arguments, mut all) = (json!({"n": 430}), Vec::new());
    loop {
        let reply = model_text(&app, None, "/calls", "paged", arguments.clone()).await;
        all.extend(row_ids(&reply));
        let words = last_line(&reply);
        if words == "[This is the last page: 30 of 430 items.]" {
            break;
        }
        assert!(
            words.starts_with("[Only ") && words.contains("call this tool again"),
            "{words}"
        );
        let next = arguments_in_hint(words);
        assert_eq!(next["detail_level"], "full");
        arguments = merge(json!({"n": 430}), &next);
    }
    assert_eq!(all, (0..430).collect::<Vec<u64>>());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // Further pages cost nothing.
    let (_, detail) = app.get("/tools/paged").await;
    assert_eq!(detail["usage"][0]["used"], 1);
    let newest = app.newest_invocation().await;
    assert_eq!(
        (
            &newest["cache"],
            &newest["arguments"]["offset"],
            &newest["attempts"]
        ),
        (&json!("hit"), &json!(400), &json!(0))
    );
}

#[tokio::test]
async fn page_parameters_never_reach_the_tool() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool("paged", &runs).paging(Paging::Model)]).await;
    let page_arguments = json!({"n": 120, "detail_level": "full", "limit": "20"});
    let (status, answer) = app.invoke("paged", page_arguments.clone()).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["structured_content"]["had"], json!({"n": 120}));
    let overflow = &answer["meta"]["overflow"];
    assert_eq!(
        (
            &overflow["shown"],
            &overflow["total"],
            &overflow["next_offset"]
        ),
        (&json!(20), &json!(120), &json!(20))
    );
    assert_eq!(
        answer["meta"]["coercions"],
        json!([{"pointer": "/limit", "from": "string", "to": "integer"}])
    );
    let hint = overflow["hint"].as_str().unwrap();
    assert!(
        hint.ends_with("\"detail_level\": \"full\", \"offset\": 20, \"limit\": 20."),
        "{hint}"
    );
    assert_eq!(overflow.as_object().unwrap().len(), 5, "{overflow}");
    assert_eq!(
        app.newest_invocation().await["arguments"],
        page_arguments,
        "the record has what came"
    );
    // The model's arguments take precedence over the request's.
    let body = json!({"arguments": {"n": 120, "offset": 100}, "page": {"limit": 3}});
    let (_, answer) = app.post("/tools/paged/invoke", body).await;
    assert_eq!(answer["structured_content"]["rows"][0]["id"], 100);
    let (_, answer) = app
        .post(
            "/tools/paged/validate",
            json!({"arguments": page_arguments}),
        )
        .await;
    assert_eq!(
        (&answer["valid"], &answer["arguments"]),
        (&json!(true), &json!({"n": 120}))
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn all_argument_errors_are_reported_at_once() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool("paged", &runs).paging(Paging::Model)]).await;
    let wrong = json!({"n": "many", "offset": -1, "limit": 0, "detail_level": 3});
    for path in ["/tools/paged/invoke", "/tools/paged/validate"] {
        let (status, problem) = app.post(path, json!({"arguments": wrong})).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (422, &json!("invalid_arguments")),
            "{problem}"
        );
        let violations = problem["violations"].as_array().unwrap();
        let mut pointers: Vec<&str> = violations
            .iter()
            .map(|one| one["pointer"].as_str().unwrap())
            .collect();
        pointers.sort_unstable();
        assert_eq!(pointers, ["/detail_level", "/limit", "/n", "/offset"]);
    }
    assert_eq!(app.newest_invocation().await["state"], "refused");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn unknown_detail_level_shows_the_beginning() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool("paged", &runs).paging(Paging::Model)]).await;
    let beginning = model_text(
        &app,
        None,
        "/calls",
        "paged",
        json!({"n": 430, "detail_level": "exploring"}),
    )
    .await;
    for word in ["FULL", "zzz", ""] {
        let arguments = json!({"n": 430, "detail_level": word});
        assert_eq!(
            model_text(&app, None, "/calls", "paged", arguments.clone()).await,
            beginning
        );
        let (_, answer) = app
            .post("/tools/paged/validate", json!({"arguments": arguments}))
            .await;
        assert_eq!(answer["page"]["detail"], "exploring", "{answer}");
    }
    for path in ["/tools/paged/invoke", "/tools/paged/validate"] {
        let (status, problem) = app
            .post(path, json!({"arguments": {"n": 1, "detail_level": 5}}))
            .await;
        assert_eq!(status, 422, "{path}: {problem}");
        assert_eq!(problem["violations"][0]["pointer"], "/detail_level");
    }
}

#[tokio::test]
async fn validate_reports_the_page() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool("paged", &runs).paging(Paging::Model)]).await;
    let (_, answer) = app
        .post(
            "/tools/paged/validate",
            json!({"arguments": {"n": 1, "offset": "20"}}),
        )
        .await;
    assert_eq!(answer["arguments"], json!({"n": 1}));
    assert_eq!(
        answer["page"],
        json!({"detail": "full", "offset": 20, "limit": null})
    );
    assert_eq!(answer["coercions"][0]["pointer"], "/offset");
    let (_, answer) = app
        .post("/tools/paged/validate", json!({"arguments": {"n": 1}}))
        .await;
    assert_eq!(answer["page"], Value::Null);
}

/// A tool with a `detail_level` of its own, which takes these words.
fn own_detail_tool(words: &Value, runs: &Arc<AtomicUsize>) -> Tool {
    let runs = runs.clone();
    let detail = json!({"type": "string", "enum": words});
    let schema = json!({"type": "object", "properties": {"detail_level": detail}, "additionalProperties": false});
    Tool::new("own", "Lists rows")
        .input_schema(schema)
        .paging(Paging::Model)
        .call(move |_, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            let rows: Value = (0..430).map(|id| json!({"id": id})).collect();
            async move { Ok(rows) }
        })
}

#[tokio::test]
async fn own_detail_level_is_not_added() {
    let runs = Arc::default();
    let app = TestApp::new([own_detail_tool(&json!(["full", "exploring"]), &runs)]).await;
    let reply = model_text(
        &app,
        None,
        "/calls",
        "own",
        json!({"detail_level": "exploring"}),
    )
    .await;
    let next = arguments_in_hint(last_line(&reply));
    assert_eq!(next, json!({"offset": 200}), "{reply}");
    // The same arguments for the tool, so the stored result answers.
    let reply = model_text(
        &app,
        None,
        "/calls",
        "own",
        merge(json!({"detail_level": "exploring"}), &next),
    )
    .await;
    assert_eq!(row_ids(&reply).first(), Some(&200));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn conflicting_detail_level_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite://{}", folder.path().join("l.db").display());
    let tool = own_detail_tool(&json!(["brief", "full"]), &Arc::default());
    let error = App::builder()
        .tool(tool)
        .ledger(ledger)
        .build()
        .await
        .err()
        .unwrap()
        .to_string();
    for part in ["`own`", "`detail_level`", "with other values: rename"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let app = TestApp::with_manifest("tools: {}\n", []).await;
    let clash = json!({
        "kind": "http", "description": "d", "paging": "model", "request": {"url": "https://api.example.com/"},
        "parameters": {"detail_level": {"type": "string", "required": false}}
    });
    let (status, problem) = app.put("/tools/clash", clash).await;
    assert_eq!(status, 400, "{problem}");
    assert!(
        problem.to_string().contains("rename the tool's own"),
        "{problem}"
    );
}

#[tokio::test]
async fn further_pages_are_of_the_same_run() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool("paged", &runs).paging(Paging::Model)]).await;
    let ask = |run: &str, more: Value| json!({"arguments": merge(json!({"n": 90}), &more), "run_id": run});
    let further = json!({"offset": 50});
    let (status, problem) = app
        .post("/tools/paged/invoke", ask("one", further.clone()))
        .await;
    assert_eq!((status.as_u16(), runs.load(Ordering::SeqCst)), (409, 0));
    let reply = problem["content"][0]["text"].as_str().unwrap();
    assert!(reply.contains("from the beginning"), "{reply}");
    app.post(
        "/tools/paged/invoke",
        ask("one", json!({"detail_level": "full"})),
    )
    .await;
    let (status, page) = app
        .post("/tools/paged/invoke", ask("one", further.clone()))
        .await;
    assert_eq!(
        (
            status.as_u16(),
            &page["structured_content"]["rows"][0]["id"]
        ),
        (200, &json!(50))
    );
    assert_eq!(
        app.post("/tools/paged/invoke", ask("two", further.clone()))
            .await
            .0,
        409
    );
    // A purge takes pages with it.
    assert_eq!(app.delete("/tools/paged/cache").await.0, 200);
    assert_eq!(
        app.post("/tools/paged/invoke", ask("three", further))
            .await
            .0,
        409
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn pages_survive_a_restart() {
    let runs = Arc::default();
    let tool = || listing_tool("paged", &runs).paging(Paging::Model);
    let app = TestApp::new([tool()]).await;
    app.invoke("paged", json!({"n": 90, "detail_level": "full"}))
        .await;
    let app = app.restart([tool()]).await;
    let (status, page) = app.invoke("paged", json!({"n": 90, "offset": 50})).await;
    assert_eq!(
        (
            status.as_u16(),
            &page["structured_content"]["rows"][0]["id"]
        ),
        (200, &json!(50))
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn key_covers_all_pages() {
    let runs = Arc::default();
    let app = TestApp::new([listing_tool("paged", &runs).paging(Paging::Model)]).await;
    let ask = async |arguments: Value| {
        let mut asking = request(
            "POST",
            "/tools/paged/invoke",
            None,
            Some(json!({"arguments": arguments})),
        );
        asking
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        app.send(asking).await
    };
    let (_, first) = ask(json!({"n": 90, "detail_level": "full"})).await;
    let (status, second) = ask(json!({"n": 90, "offset": 50})).await;
    assert_eq!(
        (status.as_u16(), &second["invocation_id"]),
        (200, &first["invocation_id"]),
        "{second}"
    );
    assert_eq!(second["structured_content"]["rows"][0]["id"], 50);
    assert_eq!(ask(json!({"n": 91})).await.0, 422);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn long_texts_are_read_in_parts() {
    let text = |n: u64| {
        (0..n)
            .map(|line| format!("line {line}\n"))
            .collect::<String>()
    };
    let tool = Tool::new("text", "…")
        .effect(Effect::Read)
        .paging(Paging::Model)
        .call(move |_, _| async move { Ok(text(12000)) });
    let app = TestApp::new([tool]).await;
    let (_, shown) = app.invoke("text", json!({})).await;
    let next = arguments_in_hint(shown["meta"]["overflow"]["hint"].as_str().unwrap());
    assert_eq!(next, json!({"detail_level": "full", "offset": 25000}));
    let (_, part) = app.invoke("text", next).await;
    let full_text = text(12000);
    assert_eq!(
        part["content"][0]["text"].as_str().unwrap(),
        &full_text[25000..75000]
    );
    let reply = model_text(&app, None, "/calls", "text", json!({})).await;
    assert!(
        last_line(&reply).contains(&format!("of {} characters are shown", full_text.len()))
            && last_line(&reply).contains("\"offset\": 25000"),
        "{}",
        last_line(&reply)
    );
}

#[tokio::test]
async fn parameter_of_another_type_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tool = Tool::new("clash", "…")
        .param("offset", "string", "…")
        .paging(Paging::Model)
        .call(|_, _| async { Ok("x") });
    let error = App::builder()
        .tool(tool)
        .ledger(format!("sqlite://{}", folder.path().join("l.db").display()))
        .build()
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("`clash`") && error.contains("`offset`") && error.contains("another type"),
        "{error}"
    );
    let own = Tool::new("own", "…")
        .param_opt("limit", "integer", "…")
        .effect(Effect::Read)
        .paging(Paging::Model);
    let own = own.call(|arguments, _| async move { Ok(arguments) });
    let app = TestApp::new([own]).await;
    assert_eq!(
        app.invoke("own", json!({"limit": 3, "detail_level": "full"}))
            .await
            .1["structured_content"],
        json!({"limit": 3})
    );
}

#[tokio::test]
async fn own_hint_is_passed_on() {
    let hinted = |name: &str| {
        Tool::new(name, "…")
            .effect(Effect::Read)
            .call(|_, _| async {
                let rows: Value = (0..300).map(|id| json!({"id": id})).collect();
                Ok(ToolResult::json(rows).with_hint("Narrow with a path filter."))
            })
    };
    let app = TestApp::new([hinted("plain"), hinted("paged").paging(Paging::Model)]).await;
    let reply = model_text(&app, None, "/calls", "plain", json!({})).await;
    assert_eq!(
        last_line(&reply),
        "[Only 200 of 300 items are shown. Narrow with a path filter.]"
    );
    let reply = model_text(&app, None, "/calls", "paged", json!({})).await;
    assert!(
        last_line(&reply).contains("\"offset\": 200")
            && last_line(&reply).ends_with("Narrow with a path filter.]"),
        "{reply}"
    );
    for tool in ["plain", "paged"] {
        let (_, answer) = app.invoke(tool, json!({})).await;
        let hint = answer["meta"]["overflow"]["hint"].as_str().unwrap();
        assert!(hint.ends_with("Narrow with a path filter."), "{hint}");
    }
}

const READER: &str = r#"
tools:
  read_result: {kind: native}
callers:
  - {name: reads, key: a-key-of-the-reader, allow: ["plain", "secret", "read_result"]}
  - {name: other, key: a-key-of-the-other1, allow: ["plain", "read_result"]}
  - {name: barred, key: a-key-of-the-barred, allow: ["plain"]}
"#;

#[tokio::test]
async fn read_result_is_mentioned_where_granted() {
    let runs = Arc::default();
    let secret = listing_tool("secret", &runs).capture(Capture::Digest);
    let app = TestApp::with_manifest(READER, [listing_tool("plain", &runs), secret]).await;
    let narrow = "[Only 200 of 260 items are shown. If the rest matters, narrow the call.]";
    for (key, path, tool) in [
        ("a-key-of-the-barred", "/calls", "plain"),
        ("a-key-of-the-reader", "/calls?deny=read_*", "plain"),
        ("a-key-of-the-reader", "/calls", "secret"),
    ] {
        assert_eq!(
            last_line(&model_text(&app, Some(key), path, tool, json!({"n": 260})).await),
            narrow,
            "{key} {path} {tool}"
        );
    }
    let reply = model_text(
        &app,
        Some("a-key-of-the-reader"),
        "/calls",
        "plain",
        json!({"n": 260}),
    )
    .await;
    assert!(
        last_line(&reply).contains(" To read on call read_result with {\"invocation_id\": \""),
        "{reply}"
    );
    let next = arguments_in_hint(last_line(&reply));
    assert_eq!(next["offset"], 200);
    let before = runs.load(Ordering::SeqCst);
    let rest = model_text(
        &app,
        Some("a-key-of-the-reader"),
        "/calls",
        "read_result",
        next.clone(),
    )
    .await;
    assert_eq!(row_ids(&rest), (200..250).collect::<Vec<u64>>());
    let last = merge(next.clone(), &arguments_in_hint(last_line(&rest)));
    let rest = model_text(
        &app,
        Some("a-key-of-the-reader"),
        "/calls",
        "read_result",
        last,
    )
    .await;
    assert_eq!(
        (row_ids(&rest), last_line(&rest)),
        (
            (250..260).collect(),
            "[This is the last page: 10 of 260 items.]"
        )
    );
    assert_eq!(runs.load(Ordering::SeqCst), before, "nothing ran");
    // Another caller's id is as unknown as one that does not exist.
    let nobody = json!({"invocation_id": "0199a000-0000-7000-8000-000000000000"});
    let unknown = model_text(
        &app,
        Some("a-key-of-the-other1"),
        "/calls",
        "read_result",
        nobody,
    )
    .await;
    assert!(unknown.contains("no recorded call of yours"), "{unknown}");
    assert_eq!(
        model_text(
            &app,
            Some("a-key-of-the-other1"),
            "/calls",
            "read_result",
            next.clone()
        )
        .await,
        unknown
    );
    let denied = model_text(
        &app,
        Some("a-key-of-the-reader"),
        "/calls?deny=plain",
        "read_result",
        next,
    )
    .await;
    assert!(denied.contains("not allowed for this request"), "{denied}");
}

#[tokio::test]
async fn read_result_explains_an_empty_answer() {
    let fails = Tool::new("fails", "…")
        .timeout(std::time::Duration::from_millis(1))
        .call(|_, _| async {
            std::future::pending::<()>().await;
            Ok("never")
        });
    let secret = Tool::new("secret", "…")
        .capture(Capture::Digest)
        .call(|_, _| async { Ok("secret words") });
    let app =
        TestApp::with_manifest("tools: {read_result: {kind: native}}\n", [fails, secret]).await;
    for (tool, why) in [("fails", "that call failed"), ("secret", "is not kept")] {
        app.invoke(tool, json!({})).await;
        let id = app.newest_invocation().await["invocation_id"].clone();
        let (status, answer) = app
            .invoke("read_result", json!({"invocation_id": id}))
            .await;
        assert_eq!((status.as_u16(), &answer["is_error"]), (200, &json!(true)));
        assert!(
            answer["content"][0]["text"].as_str().unwrap().contains(why),
            "{answer}"
        );
    }
    let (status, problem) = app
        .invoke("read_result", json!({"invocation_id": "c1"}))
        .await;
    assert_eq!(
        (status.as_u16(), &problem["violations"][0]["pointer"]),
        (422, &json!("/invocation_id"))
    );
}

#[tokio::test]
async fn read_result_row_refers_to_first_call() {
    let runs = Arc::default();
    let app = TestApp::with_manifest(
        "tools: {read_result: {kind: native}}\n",
        [listing_tool("plain", &runs)],
    )
    .await;
    let (_, first) = app.invoke("plain", json!({"n": 260})).await;
    let id = first["invocation_id"].clone();
    let (_, page) = app
        .invoke(
            "read_result",
            json!({"invocation_id": id, "offset": 100, "limit": 5}),
        )
        .await;
    assert_eq!(
        page["structured_content"]["rows"],
        json!([{"id": 100}, {"id": 101}, {"id": 102}, {"id": 103}, {"id": 104}])
    );
    let path = format!(
        "/invocations/{}/result?offset=258",
        page["invocation_id"].as_str().unwrap()
    );
    let (_, rest) = app.get(&path).await;
    assert_eq!(
        rest["structured_content"]["rows"],
        json!([{"id": 258}, {"id": 259}])
    );
    // Of a page of a page the first call is the origin, too.
    let (_, last_rows) = app
        .invoke(
            "read_result",
            json!({"invocation_id": page["invocation_id"], "offset": 259}),
        )
        .await;
    assert_eq!(
        last_rows["structured_content"]["rows"],
        json!([{"id": 259}])
    );
}

#[tokio::test]
async fn mcp_clients_get_paging_hints() {
    let runs = Arc::default();
    let tools = [
        listing_tool("paged", &runs).paging(Paging::Model),
        listing_tool("plain", &runs),
    ];
    let app = TestApp::with_manifest("tools: {read_result: {kind: native}}\n", tools).await;
    let last = |result: &Value| {
        result["content"].as_array().unwrap().last().unwrap()["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = app.mcp_call("paged", json!({"n": 260}), json!({})).await;
    let rest = app
        .mcp_call(
            "paged",
            merge(json!({"n": 260}), &arguments_in_hint(&last(&first))),
            json!({}),
        )
        .await;
    assert_eq!(rest["structuredContent"]["rows"][0]["id"], 200);
    let first = app.mcp_call("plain", json!({"n": 260}), json!({})).await;
    let rest = app
        .mcp_call("read_result", arguments_in_hint(&last(&first)), json!({}))
        .await;
    assert_eq!(rest["structuredContent"]["rows"][0]["id"], 200);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn manifest_enables_pages_for_any_kind() {
    let manifest = r#"
tools:
  lines:
    kind: command
    description: Lists numbers.
    parameters: {most: {type: integer, description: The last number}}
    command: [/bin/sh, -c, 'n=$(sed s/[^0-9]//g); echo "["; seq -s, 1 $n; echo "]"']
    paging: model
"#;
    let app = TestApp::with_manifest(manifest, []).await;
    let (_, answer) = app
        .invoke(
            "lines",
            json!({"most": 120, "detail_level": "full", "limit": 5}),
        )
        .await;
    assert_eq!(
        answer["structured_content"],
        json!([1, 2, 3, 4, 5]),
        "{answer}"
    );
    let (_, answer) = app
        .invoke("lines", json!({"most": 120, "offset": 118}))
        .await;
    assert_eq!(answer["structured_content"], json!([119, 120]));
    app.write(
        "toolcrib.yaml",
        &manifest.replace("most: {type: integer", "limit: {type: string"),
    );
    let why = app.reload().await.unwrap();
    assert!(
        why.contains("tools.lines.paging") && why.contains("another type"),
        "{why}"
    );
}

/// Orders as JSON: `[{"id": 0, "total": 0, "lines": {"first": "A0"}}, …]`.
fn orders_tool(name: &str) -> Tool {
    Tool::new(name, "Lists orders")
        .param("n", "integer", "How many")
        .effect(Effect::Read)
        .call(|arguments, _| async move {
            let order = |id| json!({"id": id, "total": id * 10, "lines": {"first": format!("A{id}")}, "note": "x".repeat(50)});
            let count = arguments["n"].as_u64().unwrap_or_default();
            Ok(Value::from_iter((0..count).map(order)))
        })
}

#[tokio::test]
async fn long_result_stays_in_the_service_and_is_read_in_parts() {
    let wrapped = Tool::new("wrapped", "…")
        .effect(Effect::Read)
        .call(|_, _| async {
            let rows: Vec<Value> = (0..2340).map(|id| json!({"id": id})).collect();
            Ok(json!({"rows": rows, "next": null}))
        });
    let text = Tool::new("text", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("word ".repeat(2000)) });
    let manifest = "results: {reference_above: 1k tokens}\ntools: {read_result: {kind: native}}\n";
    let app = TestApp::with_manifest(manifest, [orders_tool("orders"), wrapped, text]).await;
    let call = async |tool: &str, arguments: Value| {
        model_text(&app, None, "/calls", tool, arguments).await
    };

    let shown = call("orders", json!({"n": 2340})).await;
    assert_eq!(row_ids(&shown), [0, 1, 2, 3, 4], "{shown}");
    let words = last_line(&shown);
    assert!(
        words.contains("The result is list of 2,340 objects: id, total, lines, note."),
        "{words}"
    );
    let at = words.find("\"invocation_id\": \"").unwrap() + 18;
    let id = &words[at..at + 36];
    let read = async |arguments: Value| {
        let arguments = merge(json!({"invocation_id": id}), &arguments);
        call("read_result", arguments).await
    };
    let found =
        read(json!({"where": "total > 23370 or id == 7", "select": ["id", "/lines/first"]})).await;
    assert_eq!(
        found,
        r#"[{"id":7,"/lines/first":"A7"},{"id":2338,"/lines/first":"A2338"},{"id":2339,"/lines/first":"A2339"}]"#
    );
    let found = read(json!({"path": "/2/lines"})).await;
    assert_eq!(found, r#"{"first":"A2"}"#);
    let found = read(json!({"select": ["id"], "offset": 2338})).await;
    assert!(found.starts_with(r#"[{"id":2338},{"id":2339}]"#), "{found}");
    for (arguments, words) in [
        (json!({"path": "rows"}), "begins with `/`"),
        (json!({"path": "/9999"}), "list of 2,340 objects"),
        (
            json!({"path": "/0", "where": "id == 1"}),
            "name the list with `path`",
        ),
        (json!({"where": "id =="}), "`where`: "),
        (json!({"where": "open('/etc/passwd')"}), "`where`: "),
        (
            json!({"where": "result.total > 10"}),
            "`where` fits no item",
        ),
        (
            json!({"select": ["id", "nothing"]}),
            "no item has `nothing`",
        ),
    ] {
        let text = read(arguments.clone()).await;
        assert!(text.contains(words), "{arguments}: {text}");
    }
    // A short result, and a page that the model asks for, are shown as they are.
    assert_eq!(row_ids(&call("orders", json!({"n": 2})).await), [0, 1]);
    let wrapped = call("wrapped", json!({})).await;
    assert!(
        wrapped.contains("The result is object: rows (list of 2,340), next."),
        "{wrapped}"
    );
    let text = call("text", json!({})).await;
    assert!(
        text.contains("[Only 1000 of 10000 characters are shown."),
        "{text}"
    );
}

#[tokio::test]
async fn condition_on_items_passes_over_items_without_the_field() {
    let mixed = Tool::new("mixed", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok(json!({"rows": [{"a": 1}, {"b": 2}, {"a": "x"}, 7, null]})) });
    let app = TestApp::with_manifest("tools: {read_result: {kind: native}}\n", [mixed]).await;
    let (_, answer) = app.invoke("mixed", json!({})).await;
    for (condition, expected) in [
        ("a == 1", json!([{"a": 1}])),
        ("b is defined", json!([{"b": 2}])),
        ("item == 7", json!([7])),
        ("false", json!([])),
    ] {
        let arguments = json!({"invocation_id": answer["invocation_id"], "where": condition});
        let (_, found) = app.invoke("read_result", arguments).await;
        assert_eq!(
            found["structured_content"], expected,
            "{condition}: {found}"
        );
    }
}
