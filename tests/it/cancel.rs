use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::sync::Notify;
use toolcrib::{Effect, Limit, LimitScope, Per, Tool};

use crate::support::TestApp;

/// A tool that signals its start, waits for the release, and signals when it is dropped.
fn waiting_tool(effect: Effect) -> (Tool, Arc<Notify>, Arc<Notify>, Arc<AtomicBool>) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (started, go, dropped) = (
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
        Arc::new(AtomicBool::new(false)),
    );
    let (tell, wait, drops) = (started.clone(), go.clone(), dropped.clone());
    let limit = Limit {
        calls: 10,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let tool = Tool::new("wait", "Waits.")
        .effect(effect)
        .limit(limit)
        .call(move |_, _| {
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
async fn disconnect_during_call(app: &Arc<TestApp>, started: &Notify) {
    let call = tokio::spawn({
        let app = app.clone();
        async move { app.invoke("wait", json!({})).await }
    });
    started.notified().await;
    call.abort();
    let _ = call.await;
}

#[tokio::test]
async fn read_is_cancelled_and_charged_on_disconnect() {
    let (tool, started, _go, dropped) = waiting_tool(Effect::Read);
    let app = Arc::new(TestApp::new([tool]).await);
    disconnect_during_call(&app, &started).await;
    let row = app.wait_for_newest_state("cancelled").await;
    assert_eq!(
        (&row["kind"], &row["attempts"]),
        (&json!("cancelled"), &json!(1))
    );
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(app.get("/tools/wait").await.1["usage"][0]["used"], 1);
}

#[tokio::test]
async fn started_write_finishes_and_is_recorded() {
    let (tool, started, go, _) = waiting_tool(Effect::Write);
    let app = Arc::new(TestApp::new([tool]).await);
    disconnect_during_call(&app, &started).await;
    assert_eq!(app.newest_invocation().await["state"], "running");
    go.notify_one();
    let row = app.wait_for_newest_state("succeeded").await;
    assert_eq!(row["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn only_the_list_truncates_arguments() {
    let tool = Tool::new("t", "…")
        .param("text", "string", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("x") });
    let app = TestApp::new([tool]).await;
    let text = "x".repeat(20_000);
    app.invoke("t", json!({"text": text})).await;
    app.registry().shared().ledger.flush().await.unwrap();
    let (_, page) = app.get("/invocations").await;
    assert_eq!(page["invocations"][0]["arguments"], json!(null));
    assert_eq!(
        app.newest_invocation().await["arguments"]["text"],
        text.as_str()
    );
}

type RunningCall = tokio::task::JoinHandle<crate::support::Reply>;

/// Starts a call and waits until the tool runs; its id and what its caller will get.
async fn start_call(
    app: &Arc<TestApp>,
    started: &Notify,
    key: Option<&'static str>,
) -> (String, RunningCall) {
    let call = tokio::spawn({
        let app = app.clone();
        let body = json!({"arguments": {}});
        async move {
            match key {
                Some(key) => app.post_as(key, "/tools/wait/invoke", body).await,
                None => app.post("/tools/wait/invoke", body).await,
            }
        }
    });
    started.notified().await;
    (newest_id(app), call)
}

fn newest_id(app: &TestApp) -> String {
    app.registry()
        .shared()
        .in_flight_calls
        .list()
        .iter()
        .map(|row| row.id)
        .max()
        .unwrap()
        .to_string()
}

#[tokio::test]
async fn cancelled_call_is_answered_and_recorded() {
    for (effect, state) in [
        (Effect::Read, "cancelled"),
        (Effect::Idempotent, "cancelled"),
        (Effect::Write, "unknown"),
    ] {
        let (tool, started, _go, dropped) = waiting_tool(effect);
        let app = Arc::new(TestApp::new([tool]).await);
        let (id, call) = start_call(&app, &started, None).await;
        let path = format!("/invocations/{id}");
        let (status, cancelled) = app.delete(&path).await;
        assert_eq!(
            (status.as_u16(), &cancelled["state"], &cancelled["kind"]),
            (200, &json!(state), &json!("cancelled"))
        );
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!(cancelled, app.get(&path).await.1, "the same object as GET");
        assert!(cancelled["duration_ms"].is_f64(), "{cancelled}");
        assert_eq!(cancelled["attempt_errors"][0]["kind"], "cancelled");
        let (status, problem) = call.await.unwrap();
        assert_eq!(
            (status.as_u16(), &problem["kind"], &problem["retryable"]),
            (499, &json!("cancelled"), &json!(false))
        );
        assert_eq!(problem["invocation_id"], id.as_str());
        let error_text = problem["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            error_text.contains("may have had an effect"),
            effect == Effect::Write,
            "{error_text}"
        );
        assert_eq!(cancelled["result"], problem);
        // Tried, so charged.
        assert_eq!(app.get("/tools/wait").await.1["usage"][0]["used"], 1);
        // A second request gets the same answer.
        assert_eq!(
            app.delete(&path).await,
            (axum::http::StatusCode::OK, cancelled)
        );
    }
}

#[tokio::test]
async fn disconnected_call_can_still_be_cancelled() {
    let (tool, started, _go, dropped) = waiting_tool(Effect::Write);
    let app = Arc::new(TestApp::new([tool]).await);
    disconnect_during_call(&app, &started).await;
    assert!(!dropped.load(Ordering::SeqCst));
    let (status, cancelled) = app
        .delete(&format!("/invocations/{}", newest_id(&app)))
        .await;
    assert_eq!(
        (status.as_u16(), &cancelled["state"]),
        (200, &json!("unknown"))
    );
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn followers_and_leaders_are_cancelled_alone() {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (started.clone(), go.clone());
    let tool = Tool::new("wait", "…")
        .effect(Effect::Read)
        .cache(std::time::Duration::from_secs(60), &[])
        .call(move |_, _| {
            let (tell, wait) = (tell.clone(), wait.clone());
            async move {
                tell.notify_one();
                wait.notified().await;
                Ok("done")
            }
        });
    let app = Arc::new(TestApp::new([tool]).await);
    let (leads, leader) = start_call(&app, &started, None).await;
    let join = async || {
        let known = app.registry().shared().in_flight_calls.list().len();
        let app = app.clone();
        let joined = tokio::spawn({
            let app = app.clone();
            async move { app.invoke("wait", json!({})).await }
        });
        let joins = || {
            app.registry()
                .shared()
                .in_flight_calls
                .list()
                .iter()
                .any(|row| row.cache.as_str() == "joined")
        };
        while app.registry().shared().in_flight_calls.list().len() == known || !joins() {
            tokio::task::yield_now().await;
        }
        (newest_id(&app), joined)
    };
    let (id, joined) = join().await;
    assert_eq!(
        app.delete(&format!("/invocations/{id}")).await.1["state"],
        "cancelled"
    );
    assert_eq!(joined.await.unwrap().0.as_u16(), 499);
    assert!(!leader.is_finished(), "the one that leads goes on");
    // Now the leader: the next follower runs instead.
    let (_, next) = join().await;
    assert_eq!(
        app.delete(&format!("/invocations/{leads}")).await.1["state"],
        "cancelled"
    );
    assert_eq!(leader.await.unwrap().0.as_u16(), 499);
    started.notified().await;
    go.notify_one();
    let (status, answer) = next.await.unwrap();
    assert_eq!(
        (status.as_u16(), &answer["content"][0]["text"]),
        (200, &json!("done"))
    );
}
