use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::call::{CallSettings, NameMatching, ParseAttempts};
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
async fn good_manifest_replaces_the_old_one() {
    let app = TestApp::with_manifest(
        &format!("tools:\n{CALCULATOR}  old: {{kind: native, use: calculator}}\n"),
        [plain_tool("own")],
    )
    .await;
    assert_eq!(tool_names(&app).await, ["calculator", "old", "own"]);
    app.write("toolcrib.yaml", &format!("include: [\"more/*.yaml\"]\ntools:\n{CALCULATOR}  new: {{kind: native, use: calculator, aliases: [other]}}\n"));
    app.write(
        "more/a.yaml",
        "tools: {time: {kind: native, use: current_time}}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(tool_names(&app).await, ["calculator", "new", "own", "time"]);
    assert_eq!(
        app.invoke("other", json!({"expression": "6*7"})).await.1["content"][0]["text"],
        "42"
    );
    assert_eq!(app.invoke("old", json!({"expression": "1"})).await.0, 404);
    let (_, ready) = app.get("/readyz").await;
    assert_eq!(
        ready,
        json!({"status": "ready", "manifest": "current", "reloads": {"taken": 1, "refused": 0}})
    );
}

#[tokio::test]
async fn bad_manifest_changes_nothing_and_is_explained() {
    let app = TestApp::with_manifest(&format!("tools:\n{CALCULATOR}"), [plain_tool("own")]).await;
    for (text, says) in [
        (
            "tools:\n  calculator: {kind: native, timeout: soon}\n",
            "toolcrib.yaml:2:30: tools.calculator.timeout",
        ),
        ("tools: [", "2:1: this is not YAML"),
        (
            "tools: {a: {kind: native, use: calculator, aliases: [own]}}\n",
            "`own` is declared twice",
        ),
        ("", "is empty"),
        ("callers: [{name: ann, key: \"${file:key}\"}]\n", "file key"),
    ] {
        app.write("toolcrib.yaml", text);
        let fault = app.reload().await;
        assert!(
            fault.as_ref().is_some_and(|fault| fault.contains(says)),
            "{text}: {fault:?}"
        );
        assert_eq!(tool_names(&app).await, ["calculator", "own"]);
        let (status, ready) = app.get("/readyz").await;
        let manifest_state = ready["manifest"].as_str().unwrap();
        assert!(
            status == 200
                && manifest_state.starts_with("the previous manifest stays in use")
                && !manifest_state.contains("soon"),
            "{ready}"
        );
    }
    // A file with only a comment is an empty manifest.
    app.write("toolcrib.yaml", "# for now\n");
    assert_eq!(app.reload().await, None);
    assert_eq!(tool_names(&app).await, ["own"]);
    app.write("key", "key-of-ann");
    app.write(
        "toolcrib.yaml",
        "callers: [{name: ann, key: \"${file:key}\"}]\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(app.get("/tools").await.0, 401);
    assert_eq!(app.get("/readyz").await.1["manifest"], "current");
}

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
async fn limits_and_switches_survive_a_reload() {
    let manifest = |with: &str, calls: u32| {
        format!(
            "tools:\n  t: {{kind: native, use: own, with: {{said: {with}}}, limits: [{{calls: {calls}, per: lifetime}}], \
             cache: {{ttl: 1h, context: []}}}}\n  off: {{kind: native, use: calculator}}\n"
        )
    };
    let app = TestApp::with_manifest(&manifest("a", 2), [plain_tool("own")]).await;
    let call = async |n: u32| {
        let (status, answer) = app.invoke("t", json!({"n": n})).await;
        (
            status.as_u16(),
            answer["meta"]["cache"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    assert_eq!(call(1).await, (200, "miss".into()));
    assert_eq!(call(1).await, (200, "hit".into()));
    assert_eq!(app.post("/tools/off/disable", json!({})).await.0, 200);
    let unchanged = app.get("/tools/t").await.1["definition_hash"].clone();

    // Another limit is another policy; the definition is the same, so stored results stay.
    app.write("toolcrib.yaml", &manifest("a", 3));
    assert_eq!(app.reload().await, None);
    assert_eq!(call(1).await, (200, "hit".into()));
    assert_eq!(app.get("/tools/t").await.1["usage"][0]["used"], 1);
    assert_eq!(app.get("/tools/t").await.1["definition_hash"], unchanged);
    assert_eq!(
        app.invoke("off", json!({"expression": "1"})).await.1["kind"],
        "tool_disabled"
    );

    app.write("toolcrib.yaml", &manifest("b", 3));
    assert_eq!(app.reload().await, None);
    assert_eq!(call(1).await, (200, "miss".into()));
    assert_eq!(call(2).await, (200, "miss".into()));
    assert_eq!(call(3).await.0, 429);
    assert_eq!(app.post("/tools/off/enable", json!({})).await.0, 200);
    assert_eq!(app.invoke("off", json!({"expression": "1"})).await.0, 200);
}

#[tokio::test]
async fn caller_settings_change_with_the_manifest() {
    let manifest = |bob: &str| {
        format!(
            "callers:\n  - {{name: ann, key: key-of-ann, admin: true}}\n  - {{name: bob, {bob}}}\ntools:\n{CALCULATOR}"
        )
    };
    let app = TestApp::with_manifest(&manifest("key: first-key"), []).await;
    let body = json!({"arguments": {"expression": "1"}});
    let call = async |key: &str| {
        app.post_as(key, "/tools/calculator/invoke", body.clone())
            .await
            .0
            .as_u16()
    };
    assert_eq!(call("first-key").await, 200);
    app.write("toolcrib.yaml", &manifest("key: second-key"));
    assert_eq!(app.reload().await, None);
    assert_eq!(
        (call("first-key").await, call("second-key").await),
        (401, 200)
    );
    app.write("toolcrib.yaml", &manifest("key: second-key, deny: [calc*]"));
    assert_eq!(app.reload().await, None);
    assert_eq!(call("second-key").await, 403);
    app.write(
        "toolcrib.yaml",
        &manifest("key: second-key, limits: [{calls: 1, per: lifetime}]"),
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(
        (call("second-key").await, call("second-key").await),
        (200, 429)
    );
    app.write("toolcrib.yaml", &manifest("key: second-key, admin: true"));
    assert_eq!(app.reload().await, None);
    assert_eq!(call("second-key").await, 200);
    assert_eq!(
        app.post_as("second-key", "/tools/calculator/disable", json!({}))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn rotated_secrets_old_and_new_are_redacted() {
    let echo = "tools: {leak: {kind: command, effect: read, description: d, \
                command: [/bin/echo, \"${file:secret}\", first-secret, second-secret]}}\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "first-secret\n").unwrap();
    let manifest = echo.replace(
        "file:secret",
        &format!("file:{}", folder.path().join("secret").display()),
    );
    let app = TestApp::with_manifest(&manifest, []).await;
    assert_eq!(
        first_text(&app.invoke("leak", json!({})).await).trim(),
        "[redacted] [redacted] second-secret"
    );
    std::fs::write(folder.path().join("secret"), "second-secret\n").unwrap();
    assert_eq!(app.reload().await, None);
    assert_eq!(
        first_text(&app.invoke("leak", json!({})).await).trim(),
        "[redacted] [redacted] [redacted]"
    );
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
async fn reload_without_a_manifest_does_nothing() {
    let app = TestApp::new([plain_tool("own")]).await;
    assert_eq!(app.reload().await, None);
    assert_eq!(tool_names(&app).await, ["own"]);
    assert_eq!(app.get("/readyz").await.1, json!({"status": "ready"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_never_fail_during_repeated_reloads() {
    let manifest = |n: usize| {
        let other = if n.is_multiple_of(3) {
            "  other: {kind: native, use: own}\n"
        } else {
            ""
        };
        format!(
            "tools:\n  t: {{kind: native, use: own, timeout: {}s, limits: [{{calls: 1000000, per: day}}]}}\n{other}",
            10 + n % 2
        )
    };
    let app = Arc::new(TestApp::with_manifest(&manifest(0), [plain_tool("own")]).await);
    let done = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (app, done) = (app.clone(), done.clone());
            tokio::spawn(async move {
                let mut calls = 0_u64;
                while done.load(Ordering::SeqCst) == 0 {
                    let (status, answer) = app.invoke("t", json!({})).await;
                    assert_eq!(status, 200, "{answer}");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for n in 0..100 {
        app.write("toolcrib.yaml", &manifest(n));
        let (one, other) = tokio::join!(app.reload(), app.reload());
        assert_eq!((one, other), (None, None));
    }
    done.store(1, Ordering::SeqCst);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    assert!(calls > 100, "{calls}");
    assert_eq!(app.get("/tools/t").await.1["usage"][0]["used"], calls);
    let (_, usage) = app.get("/usage").await;
    assert_eq!(
        (&usage["tools"][0]["calls"], &usage["tools"][0]["failed"]),
        (&json!(calls), &json!(0))
    );
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

#[tokio::test]
async fn message_settings_change_with_the_manifest() {
    let app = TestApp::with_manifest("tools: {}\n", []).await;
    let calls = |parallel, name_matching, max_parse_attempts, format_reminder_every| CallSettings {
        parallel,
        name_matching,
        max_parse_attempts: ParseAttempts::Same(max_parse_attempts),
        format_reminder_every,
    };
    assert_eq!(
        *app.registry().catalog().call_settings(),
        calls(5, NameMatching::Normalized, 3, 3)
    );
    app.write(
        "toolcrib.yaml",
        "calls: {parallel: 2, name_matching: similar, format_reminder_every: 0}\n",
    );
    assert_eq!(app.reload().await, None);
    assert_eq!(
        *app.registry().catalog().call_settings(),
        calls(2, NameMatching::Similar, 3, 0)
    );
    for (text, says) in [
        (
            "parallel: 0",
            "calls.parallel: at least one call must be able to run",
        ),
        (
            "max_parse_attempts: {gpt-*: 0}",
            "calls.max_parse_attempts: the first attempt counts too",
        ),
        (
            "name_matching: fuzzy",
            "calls.name_matching: `fuzzy` is not known here; there are exact, normalized",
        ),
        (
            "paralel: 2",
            "calls.paralel: unknown key, did you mean parallel?",
        ),
        (
            "format_reminder_every: -1",
            "calls.format_reminder_every: 0 or more is expected here",
        ),
    ] {
        app.write("toolcrib.yaml", &format!("calls: {{{text}}}\n"));
        let said = app.reload().await.unwrap();
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(
        app.registry().catalog().call_settings().parallel,
        2,
        "the one before is kept"
    );
}
