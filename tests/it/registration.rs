use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

/// A definition that can be registered. The name is reserved never to resolve (RFC 6761), so a call
/// fails at once.
fn definition() -> Value {
    json!({"kind": "http", "description": "Weather now.", "effect": "read", "parameters": {"city": {"type": "string"}},
        "request": {"url": "http://nowhere.invalid/{{ city }}"}, "limits": [{"calls": 2, "per": "lifetime"}]})
}

fn definition_with(key: &str, value: Value) -> Value {
    let mut changed = definition();
    changed[key] = value;
    changed
}

fn plain_tool(name: &str) -> Tool {
    Tool::new(name, "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("plain") })
}

#[tokio::test]
async fn tool_is_registered_replaced_and_removed() {
    let app = TestApp::with_manifest("tools: {calculator: {kind: native}}\n", []).await;
    let (status, tool) = app.put("/tools/weather", definition()).await;
    assert_eq!(status, 201, "{tool}");
    assert_eq!(
        (&tool["name"], &tool["origin"], &tool["kind"]),
        (&json!("weather"), &json!("registered"), &json!("http"))
    );
    assert_eq!(
        (&tool["usage"][0]["remaining"], &tool["policy"]["effect"]),
        (&json!(2), &json!("read"))
    );
    assert_eq!(app.get("/tools/weather").await.1, tool);
    // An equal definition changes nothing, and another replaces it.
    let (status, repeated) = app.put("/tools/weather", definition()).await;
    assert_eq!((status.as_u16(), &repeated), (200, &tool));
    let (status, changed) = app
        .put(
            "/tools/weather",
            definition_with("aliases", json!(["forecast"])),
        )
        .await;
    assert_eq!(
        (status.as_u16(), &changed["aliases"]),
        (200, &json!(["forecast"]))
    );
    assert_eq!(app.get("/tools/forecast").await.1["name"], "weather");
    let listed = app.get("/tools?origin=registered").await.1;
    assert_eq!(
        (
            &listed["tools"][0]["name"],
            listed["tools"].as_array().unwrap().len()
        ),
        (&json!("weather"), 1)
    );
    let openai = app.get("/tools?format=openai&origin=registered").await.1;
    assert_eq!(openai[0]["function"]["name"], "weather");

    let (status, answer) = app.delete("/tools/weather").await;
    assert_eq!(
        (status.as_u16(), answer),
        (200, json!({"tool": "weather", "deleted": true}))
    );
    assert_eq!(app.delete("/tools/weather").await.1["kind"], "unknown_tool");
    assert_eq!(app.get("/tools/forecast").await.0, 404);
}

#[tokio::test]
async fn registered_tool_has_the_whole_stack() {
    let app = TestApp::new([]).await;
    assert_eq!(app.put("/tools/weather", definition()).await.0, 201);
    assert_eq!(
        app.invoke("weather", json!({})).await.1["kind"],
        "invalid_arguments"
    );
    let (_, unknown) = app.invoke("wether", json!({})).await;
    assert_eq!(unknown["did_you_mean"], json!(["weather"]));
    for _ in 0..2 {
        let (status, problem) = app.invoke("weather", json!({"city": "Oslo"})).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (502, &json!("upstream_failed"))
        );
    }
    assert_eq!(
        app.invoke("weather", json!({"city": "Oslo"})).await.1["kind"],
        "usage_limit_reached"
    );
    assert_eq!(app.newest_invocation().await["tool"], "weather");
    assert_eq!(app.post("/tools/weather/disable", json!({})).await.0, 200);
    assert_eq!(
        app.invoke("weather", json!({"city": "Oslo"})).await.1["kind"],
        "tool_disabled"
    );
    // Usage and switches survive a new registration.
    app.delete("/tools/weather").await;
    let (status, tool) = app.put("/tools/weather", definition()).await;
    assert_eq!(
        (
            status.as_u16(),
            &tool["available"],
            &tool["usage"][0]["used"]
        ),
        (201, &json!(false), &json!(2))
    );
}

#[tokio::test]
async fn invalid_definition_is_refused_with_every_pointer() {
    let app = TestApp::new([]).await;
    let mut faulty = definition_with("timeout", json!("soon"));
    faulty["descripton"] = json!("x");
    faulty["request"]["headers"] = json!({"authorization": "Bearer ${env:HOME}"});
    faulty["request"]["allow_private"] = json!(true);
    faulty["env"] = json!([{"name": "HOME"}]);
    let (status, problem) = app.put("/tools/t", faulty).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (400, &json!("invalid_request"))
    );
    let pointers: Vec<&str> = problem["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["pointer"].as_str().unwrap())
        .collect();
    for pointer in [
        "/descripton",
        "/timeout",
        "/env",
        "/request/allow_private",
        "/request/headers/authorization",
    ] {
        assert!(pointers.contains(&pointer), "{pointer} in {pointers:?}");
    }
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("did you mean description") && detail.contains("more"),
        "{detail}"
    );

    for (value, says) in [
        (
            json!({"kind": "command", "command": ["/bin/id"]}),
            "only tools of kind http",
        ),
        (
            json!({"kind": "native", "use": "read_file"}),
            "only tools of kind http",
        ),
        (json!({}), "kind is missing"),
        (json!("x"), "a map is expected"),
        (
            definition_with("command", json!(["/bin/id"])),
            "unknown key",
        ),
        (definition_with("name", json!("t")), "unknown key"),
        (
            definition_with("request", json!({"url": "http://127.0.0.1:1/"})),
            "may not reach",
        ),
        (
            definition_with("request", json!({"url": "http://[fd00:ec2::254]/"})),
            "may not reach",
        ),
        (
            definition_with("request", json!({"url": "ftp://example.com/"})),
            "http:// or https://",
        ),
        (definition_with("aliases", json!(["t"])), "declared twice"),
        (
            definition_with("aliases", json!(["a", "a"])),
            "declared twice",
        ),
        (definition_with("aliases", json!(["no name!"])), "1 to 128"),
        (
            definition_with("cache", json!({"ttl": "1m", "when": "x"})),
            "there is no `x`",
        ),
    ] {
        let (status, problem) = app.put("/tools/t", value.clone()).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (400, &json!("invalid_request")),
            "{value}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{value}: {problem}"
        );
    }
    assert_eq!(app.put("/tools/no%20name", definition()).await.0, 400);
    assert_eq!(app.registry().len(), 0);
    assert_eq!(
        app.registry()
            .shared()
            .ledger
            .registered_tools()
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn declared_tools_are_never_shadowed() {
    let manifest = "tools: {calculator: {kind: native, aliases: [calc]}}\n";
    let app = TestApp::with_manifest(manifest, [plain_tool("own")]).await;
    assert_eq!(
        app.put("/tools/free", definition_with("aliases", json!(["libre"])))
            .await
            .0,
        201
    );
    for (name, body, says) in [
        ("calculator", definition(), "is a tool of the manifest"),
        (
            "calc",
            definition(),
            "is an alias of `calculator`, a tool of the manifest",
        ),
        ("own", definition(), "is a tool of the program"),
        (
            "x",
            definition_with("aliases", json!(["own"])),
            "is a tool of the program",
        ),
        (
            "libre",
            definition(),
            "is an alias of `free`, a tool that is registered already",
        ),
        (
            "x",
            definition_with("aliases", json!(["free"])),
            "registered already",
        ),
    ] {
        let (status, problem) = app.put(&format!("/tools/{name}"), body).await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (409, &json!("invalid_request")),
            "{name}"
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(says),
            "{problem}"
        );
    }
    for name in ["calculator", "calc", "own"] {
        assert_eq!(app.delete(&format!("/tools/{name}")).await.0, 409, "{name}");
    }
    let (status, problem) = app.delete("/tools/libre").await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (404, &json!("unknown_tool"))
    );
    assert_eq!(app.invoke("calc", json!({"expression": "1"})).await.0, 200);
}

#[tokio::test]
async fn registered_tools_survive_restarts() {
    let app = TestApp::with_manifest("tools: {}\n# nothing\n", []).await;
    assert_eq!(app.put("/tools/weather", definition()).await.0, 201);
    assert_eq!(app.put("/tools/other", definition()).await.0, 201);
    app.post("/tools/other/disable", json!({})).await;
    let app = app.restart([]).await;
    assert_eq!(app.get("/tools/weather").await.1["origin"], "registered");
    assert_eq!(app.get("/tools/other").await.1["available"], false);

    // The manifest takes the name, at a reload and at a start; the registered one waits.
    app.write(
        "toolcrib.yaml",
        "tools: {weather: {kind: native, use: calculator}}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools/weather").await.1["origin"], "manifest");
    assert_eq!(app.put("/tools/weather", definition()).await.0, 409);
    let app = app.restart([]).await;
    assert_eq!(app.get("/tools/weather").await.1["origin"], "manifest");
    app.write(
        "toolcrib.yaml",
        "tools: {x: {kind: native, use: calculator, aliases: [other]}}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools/weather").await.1["origin"], "registered");
    assert_eq!(app.get("/tools/other").await.1["name"], "x");

    // Defaults of the manifest are theirs too.
    app.write("toolcrib.yaml", "defaults: {timeout: 7s}\n");
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools/weather").await.1["policy"]["timeout"], "7s");
    assert_eq!(app.get("/tools/other").await.1["origin"], "registered");

    // One that waits can be removed all the same; the manifest's own cannot.
    app.write(
        "toolcrib.yaml",
        "tools: {weather: {kind: native, use: calculator}}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(app.delete("/tools/weather").await.0, 200);
    assert_eq!(app.delete("/tools/weather").await.0, 409);
    assert_eq!(app.get("/tools/weather").await.1["origin"], "manifest");
    app.write(
        "toolcrib.yaml",
        "tools: {x: {kind: native, use: calculator}}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools/weather").await.0, 404);
}

#[tokio::test]
async fn unreadable_registration_is_left_in_place() {
    let app = TestApp::new([]).await;
    assert_eq!(app.put("/tools/weather", definition()).await.0, 201);
    let mut stored = app
        .registry()
        .shared()
        .ledger
        .registered_tools()
        .await
        .unwrap()
        .remove(0);
    stored.definition =
        json!({"kind": "http", "request": {"uri": "http://of.an.older/version"}}).to_string();
    app.registry()
        .shared()
        .ledger
        .register_tool(stored.clone())
        .await
        .unwrap();
    let app = app.restart([]).await;
    assert_eq!(app.get("/tools/weather").await.0, 404);
    assert_eq!(
        app.registry()
            .shared()
            .ledger
            .registered_tools()
            .await
            .unwrap(),
        [stored]
    );
    assert_eq!(app.delete("/tools/weather").await.0, 200);
    assert_eq!(
        app.registry()
            .shared()
            .ledger
            .registered_tools()
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn registration_needs_an_admin_and_obeys_grants() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann, admin: true}\n  - {name: bob, key: key-of-bob, allow: [\"get_*\"]}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    let put = async |key: Option<&str>, name: &str| {
        app.send(request(
            "PUT",
            &format!("/tools/{name}"),
            key,
            Some(definition()),
        ))
        .await
        .0
        .as_u16()
    };
    assert_eq!(
        (
            put(None, "get_x").await,
            put(Some("key-of-bob"), "get_x").await
        ),
        (401, 403)
    );
    assert_eq!(
        (
            put(Some("key-of-ann"), "get_x").await,
            put(Some("key-of-ann"), "other").await
        ),
        (201, 201)
    );
    let (_, list) = app.get_as("key-of-bob", "/tools").await;
    assert_eq!(
        (
            &list["tools"][0]["name"],
            list["tools"].as_array().unwrap().len()
        ),
        (&json!("get_x"), 1)
    );
    assert_eq!(
        app.send(request("DELETE", "/tools/get_x", Some("key-of-bob"), None))
            .await
            .0,
        403
    );
    let arguments = json!({"arguments": {"city": "x"}});
    assert_eq!(
        app.post_as("key-of-bob", "/tools/other/invoke", arguments)
            .await
            .0,
        403
    );
}

#[tokio::test]
async fn failed_ledger_write_changes_nothing() {
    let app = TestApp::new([]).await;
    assert_eq!(app.put("/tools/weather", definition()).await.0, 201);
    app.registry().shared().ledger.close().await;
    for reply in [
        app.put("/tools/new", definition()).await,
        app.delete("/tools/weather").await,
    ] {
        assert_eq!(
            (reply.0.as_u16(), &reply.1["kind"]),
            (503, &json!("ledger_unavailable"))
        );
    }
    assert!(app.registry().has_tool("weather") && !app.registry().has_tool("new"));
}

#[tokio::test]
async fn registrations_are_bounded_to_a_thousand() {
    let app = TestApp::new([]).await;
    let ledger = &app.registry().shared().ledger;
    let stored = |at: usize| toolcrib::ledger::RegisteredTool {
        name: format!("t{at}"),
        definition: definition().to_string(),
        registered_by: "ann".into(),
        registered_at: "2026-06-15T12:00:00Z".parse().unwrap(),
    };
    for at in 0..toolcrib::MAX_REGISTERED {
        ledger.register_tool(stored(at)).await.unwrap();
    }
    let (status, problem) = app.put("/tools/another", definition()).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (409, &json!("invalid_request"))
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("`another`") && detail.contains("1000"),
        "{detail}"
    );
    assert_eq!(app.get("/tools/another").await.0, 404);
    // A registered tool may be replaced, and a removed one makes room.
    assert_eq!(
        app.put("/tools/t7", definition_with("aliases", json!(["seven"])))
            .await
            .0,
        201
    );
    assert_eq!(app.put("/tools/t7", definition()).await.0, 200);
    assert_eq!(app.put("/tools/another", definition()).await.0, 409);
    assert_eq!(app.delete("/tools/t7").await.0, 200);
    assert_eq!(app.put("/tools/another", definition()).await.0, 201);
}

#[tokio::test]
async fn long_definitions_are_refused() {
    let app = TestApp::new([]).await;
    let described = |length: usize| definition_with("description", json!("x".repeat(length)));
    let (status, problem) = app.put("/tools/long", described(256 << 10)).await;
    assert_eq!(
        (status.as_u16(), &problem["kind"]),
        (413, &json!("invalid_request"))
    );
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("larger than 256"),
        "{problem}"
    );
    assert_eq!(app.put("/tools/long", described(200 << 10)).await.0, 201);
}

#[tokio::test]
async fn names_that_differ_in_case_conflict() {
    let manifest = "calls: {name_matching: exact}\n\
                    tools: {get_weather: {kind: native, use: calculator, aliases: [Forecast-Now], enabled: false}}\n";
    let app = TestApp::with_manifest(manifest, []).await;
    for (name, aliases) in [
        ("GET_WEATHER", json!([])),
        ("Get-Weather", json!([])),
        ("get.weather", json!([])),
        ("Functions.Get_Weather", json!([])),
        ("forecast_now", json!([])),
        ("free", json!(["Get_weather"])),
        ("free", json!(["FORECAST.NOW"])),
    ] {
        let (status, problem) = app
            .put(
                &format!("/tools/{name}"),
                definition_with("aliases", aliases),
            )
            .await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (409, &json!("invalid_request")),
            "{name}"
        );
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("another spelling of `get_weather`"),
            "{problem}"
        );
    }
    assert_eq!(
        app.get("/tools?origin=registered").await.1["tools"],
        json!([])
    );
    assert_eq!(
        app.registry()
            .shared()
            .ledger
            .registered_tools()
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn registered_names_must_differ_beyond_spelling() {
    let app = TestApp::new([]).await;
    assert_eq!(
        app.put(
            "/tools/r_a",
            definition_with("aliases", json!(["forecast"]))
        )
        .await
        .0,
        201
    );
    for (name, aliases, like) in [
        ("R_a", json!([]), "is another spelling of `r_a`"),
        ("r-a", json!([]), "is another spelling of `r_a`"),
        ("functions.r_a", json!([]), "is another spelling of `r_a`"),
        ("Forecast", json!([]), "is another spelling of `r_a`"),
        ("free", json!(["R.A"]), "is another spelling of `r_a`"),
    ] {
        let (status, problem) = app
            .put(
                &format!("/tools/{name}"),
                definition_with("aliases", aliases),
            )
            .await;
        assert_eq!(
            (status.as_u16(), &problem["kind"]),
            (409, &json!("invalid_request")),
            "{name}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains(like) && detail.contains("registered already"),
            "{detail}"
        );
    }
    // A tool may have other spellings of its own name, and be replaced.
    assert_eq!(
        app.put("/tools/r_a", definition_with("aliases", json!(["R-A"])))
            .await
            .0,
        200
    );
    assert_eq!(app.delete("/tools/r_a").await.0, 200);
    assert_eq!(app.put("/tools/r-a", definition()).await.0, 201);
}
