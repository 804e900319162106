use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, first_text, request};

/// A native tool that waits for `gate` and counts how many of its calls ran at once.
fn gated_tool(gate: &Arc<Semaphore>, most: &Arc<AtomicUsize>) -> Tool {
    let (gate, most, now) = (gate.clone(), most.clone(), Arc::new(AtomicUsize::new(0)));
    Tool::new("gated", "…")
        .param_opt("n", "integer", "…")
        .effect(Effect::Read)
        .call(move |_, context| {
            let (gate, most, now) = (gate.clone(), most.clone(), now.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(context.setting("said").cloned().unwrap_or(json!("nothing")))
            }
        })
}

fn plain_tool(name: &str) -> Tool {
    Tool::new(name, "…")
        .param_opt("n", "integer", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("plain") })
}

async fn tool_names(app: &TestApp) -> Vec<String> {
    let tools = app.get("/tools").await.1["tools"].clone();
    tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn wait_for_running(app: &TestApp, calls: usize) {
    while app.registry().shared().in_flight_calls.len() < calls {
        tokio::task::yield_now().await;
    }
}

const CALCULATOR: &str = "  calculator: {kind: native}\n";

#[tokio::test]
async fn running_call_keeps_its_stack() {
    let (gate, most) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let manifest = |said: &str| {
        format!(
            "tools: {{gated: {{kind: native, concurrency: {{max: 2}}, with: {{said: {said}}}}}}}\n"
        )
    };
    let app =
        Arc::new(TestApp::with_manifest(&manifest("before"), [gated_tool(&gate, &most)]).await);
    let call = |n: u32| {
        let app = app.clone();
        tokio::spawn(async move { app.invoke("gated", json!({"n": n})).await })
    };
    let old = call(1);
    wait_for_running(&app, 1).await;
    app.write("toolcrib.yaml", &manifest("after"));
    assert_eq!(app.reload().await, None);
    // Old and new stack share the tool's permits: one of three new calls runs beside the old one.
    let new: Vec<_> = (2..5).map(call).collect();
    wait_for_running(&app, 4).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    gate.add_permits(4);
    assert_eq!(first_text(&old.await.unwrap()), "before");
    for call in new {
        assert_eq!(first_text(&call.await.unwrap()), "after");
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn removed_tool_answers_its_running_call() {
    let (gate, most) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let app = TestApp::with_manifest(
        "tools: {twin: {kind: native, use: gated}}\n",
        [gated_tool(&gate, &most)],
    )
    .await;
    let app = Arc::new(app);
    let running = {
        let app = app.clone();
        tokio::spawn(async move { app.invoke("twin", json!({})).await })
    };
    wait_for_running(&app, 1).await;
    app.write("toolcrib.yaml", "tools: {}\n");
    assert_eq!(app.reload().await, None);
    assert_eq!(app.invoke("twin", json!({})).await.0, 404);
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().0, 200);
    assert_eq!(app.wait_for_newest_state("succeeded").await["tool"], "twin");
}

#[tokio::test]
async fn secret_rotated_beside_another_is_redacted() {
    let echo = "tools: {leak: {kind: command, effect: read, description: d, environment: {A: \"${file:a}\", B: \"${file:b}\"}, \
                command: [/bin/echo, staying-secret, first-secret, second-secret]}}\n";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a"), "staying-secret\n").unwrap();
    std::fs::write(path("b"), "first-secret\n").unwrap();
    let manifest = echo.replace("file:a", &format!("file:{}", path("a").display()));
    let app = TestApp::with_manifest(
        &manifest.replace("file:b", &format!("file:{}", path("b").display())),
        [],
    )
    .await;
    assert_eq!(
        first_text(&app.invoke("leak", json!({})).await).trim(),
        "[redacted] [redacted] second-secret"
    );
    std::fs::write(path("b"), "second-secret\n").unwrap();
    assert_eq!(app.reload().await, None);
    assert_eq!(
        first_text(&app.invoke("leak", json!({})).await).trim(),
        "[redacted] [redacted] [redacted]"
    );
}

#[tokio::test]
async fn added_tools_survive_a_reload() {
    let app = TestApp::with_manifest(&format!("tools:\n{CALCULATOR}"), []).await;
    app.registry().register(plain_tool("late")).unwrap();
    app.write(
        "toolcrib.yaml",
        "tools: {a: {kind: native, use: calculator}}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(tool_names(&app).await, ["a", "late"]);
    app.write(
        "toolcrib.yaml",
        "tools: {late: {kind: native, use: calculator}}\n",
    );
    assert!(
        app.reload()
            .await
            .unwrap()
            .contains("`late` is declared twice")
    );
    assert_eq!(tool_names(&app).await, ["a", "late"]);
}

#[tokio::test]
async fn origins_are_listed_and_filtered() {
    let app = TestApp::with_manifest(&format!("tools:\n{CALCULATOR}"), [plain_tool("own")]).await;
    let of = async |origin: &str| -> Vec<Value> {
        let (_, list) = app.get(&format!("/tools?origin={origin}")).await;
        list["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].clone())
            .collect()
    };
    assert_eq!(
        (of("manifest").await, of("program").await),
        (vec![json!("calculator")], vec![json!("own")])
    );
    assert_eq!(of("registered").await, [Value::Null; 0]);
    assert_eq!(app.get("/tools/own").await.1["origin"], "program");
    assert_eq!(
        app.send(request("GET", "/tools?origin=elsewhere", None, None))
            .await
            .0,
        400
    );
}
