use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::sync::Notify;
use toolcrib::{Effect, Limit, LimitScope, Per, Tool};

use crate::support::TestApp;

/// A tool that tells when it has started, waits to be let go, and tells when it was dropped.
fn waiting(effect: Effect) -> (Tool, Arc<Notify>, Arc<Notify>, Arc<AtomicBool>) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (started, go, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (tell, wait, drops) = (started.clone(), go.clone(), dropped.clone());
    let limit = Limit { calls: 10, per: Per::Lifetime, scope: LimitScope::Tool };
    let tool = Tool::new("wait", "Waits.").effect(effect).limit(limit).call(move |_, _| {
        let (tell, wait, guard) = (tell.clone(), wait.clone(), Dropped(drops.clone()));
        async move {
            let _guard = guard;
            tell.notify_one();
            wait.notified().await;
            Ok("done")
        }
    });
    (tool, started, go, dropped)
}

/// Starts a call and drops it once the tool runs.
async fn leave(app: &Arc<TestApp>, started: &Notify) {
    let call = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("wait", json!({})).await }
    });
    started.notified().await;
    call.abort();
    let _ = call.await;
}

#[tokio::test]
async fn a_read_stops_when_its_caller_leaves_and_is_charged() {
    let (tool, started, _go, dropped) = waiting(Effect::Read);
    let app = Arc::new(TestApp::new([tool]).await);
    leave(&app, &started).await;
    let row = app.until_newest_is("cancelled").await;
    assert_eq!((&row["kind"], &row["attempts"]), (&json!("cancelled"), &json!(1)));
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(app.get("/tools/wait").await.1["usage"][0]["used"], 1);
}

#[tokio::test]
async fn a_started_write_finishes_and_its_result_is_in_the_ledger() {
    let (tool, started, go, _) = waiting(Effect::Write);
    let app = Arc::new(TestApp::new([tool]).await);
    leave(&app, &started).await;
    assert_eq!(app.newest().await["state"], "running");
    go.notify_one();
    let row = app.until_newest_is("succeeded").await;
    assert_eq!(row["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_list_shows_short_arguments_and_one_call_shows_all() {
    let tool = Tool::new("t", "…").param("text", "string", "…").effect(Effect::Read).call(|_, _| async { Ok("x") });
    let app = TestApp::new([tool]).await;
    let text = "x".repeat(20_000);
    app.invoke("t", json!({"text": text})).await;
    app.registry().shared().ledger.flush().await.unwrap();
    let (_, page) = app.get("/invocations").await;
    assert_eq!(page["invocations"][0]["arguments"], json!(null));
    assert_eq!(app.newest().await["arguments"]["text"], text.as_str());
}

#[tokio::test]
async fn a_running_call_is_in_the_list_at_once() {
    let (tool, started, go, _) = waiting(Effect::Read);
    let app = Arc::new(TestApp::new([tool]).await);
    let call = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("wait", json!({})).await }
    });
    started.notified().await;
    let (_, page) = app.get("/invocations?state=running&tool=wait").await;
    assert_eq!(
        (page["invocations"].as_array().unwrap().len(), &page["invocations"][0]["duration_ms"]),
        (1, &json!(null))
    );
    assert_eq!(app.newest().await["result"], json!(null));
    go.notify_one();
    assert_eq!(call.await.unwrap().0, 200);
    assert_eq!(app.newest().await["state"], "succeeded");
}
