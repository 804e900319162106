use serde_json::{Value, json};

use crate::support::TestApp;

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
