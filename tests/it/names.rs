use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

fn tool(name: &str, effect: Effect) -> Tool {
    let tool_name = name.to_owned();
    Tool::new(name, "…")
        .param_opt("n", "integer", "…")
        .effect(effect)
        .call(move |_, _| {
            let tool_name = tool_name.clone();
            async move { Ok(tool_name) }
        })
}

fn read_tools(names: &[&str]) -> Vec<Tool> {
    names.iter().map(|name| tool(name, Effect::Read)).collect()
}

/// The tool that a name runs, or the names that were meant instead.
async fn matched_tool(app: &TestApp, name: &str) -> Value {
    let (status, answer) = app.invoke(name, json!({})).await;
    match status.as_u16() {
        200 => answer["tool"].clone(),
        404 => answer
            .get("did_you_mean")
            .cloned()
            .unwrap_or_else(|| json!([])),
        other => panic!("{other}: {answer}"),
    }
}

#[tokio::test]
async fn other_spelling_is_matched_and_reported() {
    let manifest = "tools: {get_weather: {kind: native, aliases: [forecast_now]}}\n";
    let app = TestApp::with_manifest(manifest, read_tools(&["get_weather"])).await;
    for name in [
        "Get-Weather",
        "GET.WEATHER",
        "functions.get_weather",
        "default_api:get_weather",
        "Forecast-Now",
    ] {
        let (status, answer) = app.invoke(name, json!({})).await;
        assert_eq!(
            (status.as_u16(), &answer["tool"]),
            (200, &json!("get_weather")),
            "{name}"
        );
        let warning = format!("called as `{name}`; the tool's name is `get_weather`");
        assert_eq!(answer["meta"]["warnings"], json!([warning]));
        let row = app.newest_invocation().await;
        assert_eq!(
            (&row["tool"], &row["result"]["meta"]["warnings"][0]),
            (&json!("get_weather"), &json!(warning))
        );
        assert_eq!(
            app.get(&format!("/tools/{name}")).await.1["name"],
            "get_weather"
        );
        assert_eq!(
            app.post(&format!("/tools/{name}/validate"), json!({"arguments": {}}))
                .await
                .0,
            200
        );
    }
    assert_eq!(matched_tool(&app, "get%20weather").await, "get_weather");
    for name in ["get_weather", "forecast_now"] {
        assert_eq!(
            app.invoke(name, json!({})).await.1["meta"]["warnings"],
            json!([]),
            "declared"
        );
    }
    assert_eq!(
        matched_tool(&app, "getWeather").await,
        json!(["get_weather"]),
        "that is no spelling"
    );
}

#[tokio::test]
async fn writes_need_their_exact_name() {
    let app = TestApp::new(read_tools(&["get_weather"])).await;
    for path in ["enable", "disable", "usage/reset"] {
        let (status, problem) = app
            .post(&format!("/tools/Get-Weather/{path}"), json!({}))
            .await;
        assert_eq!(
            (status.as_u16(), &problem["did_you_mean"]),
            (404, &json!(["get_weather"]))
        );
    }
    assert_eq!(app.delete("/tools/Get-Weather/cache").await.0, 404);
    assert_eq!(app.delete("/tools/Get-Weather").await.0, 404);
}

#[tokio::test]
async fn ambiguous_spelling_matches_no_tool() {
    let app = TestApp::new(read_tools(&[
        "get_weather",
        "get-weather",
        "functions.get_weather",
    ]))
    .await;
    assert_eq!(
        matched_tool(&app, "Get.Weather").await,
        json!(["get-weather", "get_weather"])
    );
    assert_eq!(matched_tool(&app, "get-weather").await, "get-weather");
    assert_eq!(
        matched_tool(&app, "functions.get_weather").await,
        "functions.get_weather"
    );
    assert_eq!(
        matched_tool(&app, "FUNCTIONS.GET_WEATHER").await,
        "functions.get_weather"
    );
}

#[tokio::test]
async fn operator_sets_how_far_names_match() {
    let tools = || {
        let mut tools = read_tools(&["get_weather", "list_rows", "list_rowz", "read_mail"]);
        tools.extend([
            tool("delete_row", Effect::Write),
            tool("send_mails", Effect::Idempotent),
        ]);
        tools.push(tool("read_mails_all", Effect::Write));
        tools
    };
    let app = TestApp::with_manifest("calls: {name_matching: exact}\n", tools()).await;
    assert_eq!(
        matched_tool(&app, "Get-Weather").await,
        json!(["get_weather"])
    );

    app.write("toolcrib.yaml", "calls: {name_matching: normalized}\n");
    assert_eq!(app.reload().await, None);
    assert_eq!(matched_tool(&app, "Get-Weather").await, "get_weather");
    assert_eq!(
        matched_tool(&app, "get_wether").await,
        json!(["get_weather"])
    );

    app.write("toolcrib.yaml", "calls: {name_matching: similar}\n");
    assert_eq!(app.reload().await, None);
    assert_eq!(matched_tool(&app, "Get-Weather").await, "get_weather");
    assert_eq!(
        matched_tool(&app, "functions.get_wether").await,
        "get_weather"
    );
    assert_eq!(
        matched_tool(&app, "send_mail").await,
        "send_mails",
        "an idempotent tool may run on a guess"
    );
    let (_, answer) = app.invoke("Get-Wether", json!({})).await;
    assert_eq!(
        answer["meta"]["warnings"],
        json!(["called as `Get-Wether`; the tool's name is `get_weather`"])
    );
    assert_eq!(
        matched_tool(&app, "delete_rows").await,
        json!(["delete_row"]),
        "a write never does"
    );
    assert_eq!(
        matched_tool(&app, "list_row").await,
        json!(["list_rows", "list_rowz"]),
        "as like the one as the other"
    );
    assert_eq!(
        matched_tool(&app, "read_mail_all").await,
        json!(["read_mails_all"]),
        "nor does what is less like it in a write's place"
    );
    assert_eq!(
        matched_tool(&app, "weather").await,
        json!([]),
        "not like enough"
    );
}

#[tokio::test]
async fn tools_of_others_do_not_affect_matching() {
    let manifest = "calls: {name_matching: similar}\ncallers:\n  - {name: ann, key: ann-key-0123456789, deny: [get-weather, secret_rows]}\n  \
                    - {name: root, key: root-key-0123456789, admin: true}\n";
    let app = TestApp::with_manifest(
        manifest,
        read_tools(&["get_weather", "get-weather", "secret_rows"]),
    )
    .await;
    let invoke = async |key: &str, name: &str| {
        let (status, answer) = app
            .post_as(
                key,
                &format!("/tools/{name}/invoke"),
                json!({"arguments": {}}),
            )
            .await;
        (status.as_u16(), answer)
    };
    let (ann, root) = ("ann-key-0123456789", "root-key-0123456789");
    assert_eq!(
        invoke(root, "Get-Weather").await.1["did_you_mean"],
        json!(["get-weather", "get_weather"])
    );
    assert_eq!(invoke(ann, "Get-Weather").await.1["tool"], "get_weather");
    assert_eq!(
        invoke(ann, "get-weather").await.0,
        403,
        "a name that is declared is that tool's"
    );
    for other in ["Secret-Rows", "secret_row"] {
        let (status, problem) = invoke(ann, other).await;
        assert_eq!(
            (status, problem.get("did_you_mean")),
            (404, None),
            "{other}"
        );
    }
}

#[tokio::test]
async fn registered_tool_cannot_take_a_spelling() {
    let manifest = |names: &str| format!("tools: {{{names}}}\n");
    let native = "kind: native, use: calculator";
    let app = TestApp::with_manifest(
        &manifest(&format!("add_up: {{{native}, aliases: [sum]}}")),
        read_tools(&["own"]),
    )
    .await;
    let http = |aliases: Value| {
        json!({"kind": "http", "description": "…", "parameters": {}, "request": {"url": "http://nowhere.invalid/"},
            "aliases": aliases})
    };
    for (name, aliases, says) in [
        (
            "Add-Up",
            json!([]),
            "`Add-Up` is another spelling of `add_up`, a tool of the manifest",
        ),
        (
            "functions.add_up",
            json!([]),
            "another spelling of `add_up`",
        ),
        (
            "free",
            json!(["SUM"]),
            "`SUM` is another spelling of `add_up`, a tool of the manifest",
        ),
        ("Own", json!([]), "a tool of the program"),
    ] {
        let (status, problem) = app.put(&format!("/tools/{name}"), http(aliases)).await;
        assert_eq!(status, 409, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{problem}"
        );
    }
    assert_eq!(app.put("/tools/free_tool", http(json!([]))).await.0, 201);
    assert_eq!(
        app.put("/tools/free-tool", http(json!([]))).await.0,
        409,
        "nor from another registered tool"
    );
    assert_eq!(app.get("/tools/Free.Tool").await.1["name"], "free_tool");

    // A later manifest takes precedence, until it removes the name.
    app.write(
        "toolcrib.yaml",
        &manifest(&format!("Free-Tool: {{{native}}}")),
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools/free_tool").await.1["name"], "Free-Tool");
    app.write("toolcrib.yaml", &manifest(&format!("add_up: {{{native}}}")));
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools/free_tool").await.1["name"], "free_tool");
}
