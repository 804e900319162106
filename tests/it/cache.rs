use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

/// A cached tool that counts its runs and waits for a permit in each.
fn counting_tool(runs: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) -> Tool {
    let (runs, gate) = (runs.clone(), gate.clone());
    Tool::new("count", "Counts its runs.")
        .param_opt("key", "string", "Anything")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &["tenant"])
        .call(move |_, _| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(json!({"run": run}))
            }
        })
}

fn open_gate() -> (Arc<AtomicUsize>, Arc<Semaphore>) {
    (Arc::default(), Arc::new(Semaphore::new(1000)))
}

async fn invoke_cache_status(app: &TestApp, body: Value) -> (String, Value) {
    let (_, answer) = app.post("/tools/count/invoke", body).await;
    (
        answer["meta"]["cache"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        answer["structured_content"]["run"].clone(),
    )
}

#[tokio::test]
async fn stored_result_depends_on_ttl_and_context() {
    let (runs, gate) = open_gate();
    let (app, hand) = TestApp::with_clock([counting_tool(&runs, &gate)]).await;
    let plain = json!({"arguments": {}});
    let acme = json!({"arguments": {}, "context": {"tenant": "acme", "trace": 1}});
    let of = |body: &Value, mode: &str| {
        let mut body = body.clone();
        body["cache"] = mode.into();
        body
    };
    let expect = [
        (plain.clone(), "miss", 1),
        (plain.clone(), "hit", 1),
        (acme.clone(), "miss", 2),
        (
            json!({"arguments": {}, "context": {"tenant": "acme", "trace": 2}}),
            "hit",
            2,
        ),
        (of(&plain, "bypass"), "bypass", 3),
        (plain.clone(), "hit", 1),
        (of(&plain, "refresh"), "refresh", 4),
        (plain.clone(), "hit", 4),
    ];
    for (body, cache, run) in expect {
        assert_eq!(
            invoke_cache_status(&app, body).await,
            (cache.to_owned(), json!(run))
        );
    }
    hand.fetch_add(60_000, Ordering::SeqCst);
    assert_eq!(
        invoke_cache_status(&app, plain).await,
        ("miss".to_owned(), json!(5))
    );
}

#[tokio::test]
async fn follower_keeps_its_own_deadline() {
    let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let app = Arc::new(TestApp::new([counting_tool(&runs, &gate)]).await);
    let call = |body: Value| {
        let app = app.clone();
        tokio::spawn(async move { app.post("/tools/count/invoke", body).await })
    };
    let hasty = call(json!({"arguments": {}, "timeout": "500ms"}));
    while runs.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    let patient = call(json!({"arguments": {}}));
    assert_eq!(hasty.await.unwrap().1["kind"], "deadline_exceeded");
    while runs.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(2);
    assert_eq!(
        patient.await.unwrap().1["structured_content"],
        json!({"run": 2})
    );
}

#[tokio::test]
async fn purge_covers_running_calls() {
    let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let app = Arc::new(TestApp::new([counting_tool(&runs, &gate)]).await);
    let running = tokio::spawn({
        let app = app.clone();
        async move { invoke_cache_status(&app, json!({"arguments": {}})).await }
    });
    while runs.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    let purge = crate::support::request("DELETE", "/tools/count/cache", None, None);
    assert_eq!(app.send(purge).await.0, 200);
    gate.add_permits(2);
    assert_eq!(running.await.unwrap(), ("miss".to_owned(), json!(1)));
    assert_eq!(
        invoke_cache_status(&app, json!({"arguments": {}})).await,
        ("miss".to_owned(), json!(2))
    );
}

#[tokio::test]
async fn context_tools_are_cached_by_named_fields() {
    let manifest = "tools:\n  own: {kind: native, cache: {ttl: 1m}}\n  named: {kind: native, use: own, \
                    cache: {ttl: 1m, context: []}}\n";
    let own = Tool::new("own", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("x") });
    let app = TestApp::with_manifest(manifest, [own]).await;
    for (tool, cache) in [("own", "off"), ("named", "miss")] {
        assert_eq!(app.invoke(tool, json!({})).await.1["meta"]["cache"], cache);
    }
}

/// A read that returns its argument and counts its runs.
fn echo_tools(name: &str, runs: &Arc<AtomicUsize>) -> (Tool<()>, impl Fn(Tool<()>) -> Tool) {
    let runs = runs.clone();
    let tool = Tool::new(name, "Says it again.")
        .param("say", "object", "What")
        .effect(Effect::Read);
    let finish = move |tool: Tool<()>| {
        let runs = runs.clone();
        tool.call(move |mut arguments, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok(arguments["say"].take()) }
        })
    };
    (tool, finish)
}

/// How the cache took part in two equal calls.
async fn invoke_twice(app: &TestApp, tool: &str, say: Value) -> [String; 2] {
    let mut taken = [String::new(), String::new()];
    for status in &mut taken {
        let (code, answer) = app.invoke(tool, json!({"say": say})).await;
        assert_eq!(code, 200, "{answer}");
        *status = answer["meta"]["cache"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
    }
    taken
}

#[tokio::test]
async fn predicate_decides_what_is_stored() {
    let runs = Arc::new(AtomicUsize::new(0));
    let (tool, finish) = echo_tools("own", &runs);
    let keep = |arguments: &toolcrib::call::JsonObject, result: &toolcrib::ToolResult| {
        assert!(arguments["say"] != json!({"panic": true}), "caught");
        result
            .structured_content
            .as_ref()
            .is_some_and(|value| value["temperature"].is_number())
    };
    let own = finish(tool.cache(Duration::from_secs(60), &[]).should_cache(keep));
    let manifest = "tools:\n  own: {kind: native}\n  asked:\n    kind: native\n    use: own\n    \
                    cache: {ttl: 1m, context: [], when: 'result.temperature > 0 and args.say.temperature|abs < 50'}\n  \
                    other: {kind: native, use: own, cache: {ttl: 2m, context: []}}\n";
    let app = TestApp::with_manifest(manifest, [own]).await;
    for (tool, say, taken) in [
        ("own", json!({"temperature": 3}), ["miss", "hit"]),
        ("own", json!({"error": "none"}), ["miss", "miss"]),
        ("own", json!({"panic": true}), ["miss", "miss"]),
        ("asked", json!({"temperature": 3}), ["miss", "hit"]),
        ("asked", json!({"temperature": -3}), ["miss", "miss"]),
        ("asked", json!({"error": "none"}), ["miss", "miss"]),
        // The filter fails: a failing predicate stores nothing, and the call succeeds.
        ("asked", json!({"temperature": "3"}), ["miss", "miss"]),
        // The tool's own predicate applies where the manifest has none.
        ("other", json!({"temperature": 3}), ["miss", "hit"]),
        ("other", json!({"error": "none"}), ["miss", "miss"]),
    ] {
        assert_eq!(
            invoke_twice(&app, tool, say.clone()).await,
            taken,
            "{tool} {say}"
        );
    }
    let shown = app.get("/tools/asked").await.1["policy"]["cache"]["when"].clone();
    assert_eq!(
        shown,
        "result.temperature > 0 and args.say.temperature|abs < 50"
    );
    assert_eq!(
        app.get("/tools/own").await.1["policy"]["cache"]["when"],
        "a function"
    );
}

#[tokio::test]
async fn follower_gets_an_unstored_result() {
    let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let (seen, held): (Arc<AtomicUsize>, _) = (Arc::clone(&runs), gate.clone());
    let own = Tool::new("count", "Counts its runs.")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[])
        .should_cache(|_, _| false)
        .call(move |_, _| {
            let (run, gate) = (seen.fetch_add(1, Ordering::SeqCst) + 1, held.clone());
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(json!({"run": run}))
            }
        });
    let app = Arc::new(TestApp::new([own]).await);
    let spawn = || {
        let app = app.clone();
        tokio::spawn(async move { invoke_cache_status(&app, json!({"arguments": {}})).await })
    };
    let calls = [spawn(), spawn()];
    while app.registry().shared().in_flight_calls.len() < 2 || runs.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(2);
    let mut taken = Vec::new();
    for call in calls {
        taken.push(call.await.unwrap());
    }
    taken.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        taken,
        [
            ("joined".to_owned(), json!(1)),
            ("miss".to_owned(), json!(1))
        ]
    );
    assert_eq!(
        invoke_cache_status(&app, json!({"arguments": {}})).await,
        ("miss".to_owned(), json!(2))
    );
}

#[tokio::test]
async fn answer_from_the_cache_has_the_warnings_of_the_run() {
    let tool = Tool::new("count", "Warns, and then gives a result.")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[])
        .call(|_, context| async move {
            context.warn("one number was too long");
            Ok(json!({"run": 1}))
        });
    let app = TestApp::new([tool]).await;
    for status in ["miss", "hit", "hit"] {
        let (_, answer) = app
            .post("/tools/count/invoke", json!({"arguments": {}}))
            .await;
        let meta = &answer["meta"];
        assert_eq!(
            (&meta["cache"], &meta["warnings"]),
            (&json!(status), &json!(["one number was too long"]))
        );
    }
}
