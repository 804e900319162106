//! Calls over one connection.

use super::*;
use crate::call::UpstreamFailure;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_share_one_process() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let began = Instant::now();
    let sleeps = (0..8).map(|_| fixture.call("slow", json!({"seconds": 0.5, "mark": "x"})));
    let all = futures_util::future::join_all(sleeps).await;
    assert!(
        all.into_iter()
            .all(|result| result.unwrap().as_text() == "slept")
    );
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(fixture.process().await, fixture.process().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn progress_is_ordered_and_needs_a_listener() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let mut invocation = invocation();
    assert_eq!(fixture.text("progress", json!({})).await, "False");
    let (sink, mut listener) = ProgressSink::channel();
    invocation.delivery.progress = Some(sink);
    let context = context(&invocation, Effect::Read, TIMEOUT);
    let result = fixture
        .runner("progress")
        .call(object(json!({})), context)
        .await
        .unwrap();
    assert_eq!(result.as_text(), "True");
    for n in 1..=5 {
        let Some(Event::Progress(progress)) = listener.try_next() else {
            panic!("progress {n}")
        };
        let expected =
            json!({"progress": f64::from(n), "total": 5.0, "message": format!("step {n}")});
        assert_eq!(
            serde_json::from_str::<Value>(progress.data.get()).unwrap(),
            expected
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn aborted_call_is_cancelled_at_the_server() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let (process, mark) = (fixture.process().await, fixture.file("cancelled"));
    let slow = tokio::spawn(fixture.call("slow", json!({"seconds": 600, "mark": mark})));
    fixture
        .text("slow", json!({"seconds": 0.1, "mark": mark}))
        .await;
    slow.abort();
    wait_until("the server gets the cancellation", || mark.exists()).await;
    assert_eq!(fixture.process().await, process);
    assert_eq!(fixture.server.status().replaced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn overlong_response_fails_only_its_call() {
    if is_python_missing() {
        return;
    }
    for quirks in [&[][..], &["backwards"]] {
        let fixture = Fixture::new(quirks).await;
        let process = fixture.process().await;
        let other = tokio::spawn(fixture.call("slow", json!({"seconds": 0.5, "mark": "x"})));
        let before = resident_bytes();
        let error = fixture
            .call("big", json!({"bytes": 50_000_000}))
            .await
            .unwrap_err();
        let expected = "the MCP server probe answered more than 4.0 MiB: ask for less";
        assert_eq!(error, ToolError::BadOutput(expected.into()));
        assert!(
            resident_bytes() < before + (40 << 20),
            "{before} {}",
            resident_bytes()
        );
        assert_eq!(other.await.unwrap().unwrap().as_text(), "slept");
        assert_eq!(
            fixture.text("big", json!({"bytes": 4_000_000})).await.len(),
            4_000_000
        );
        assert_eq!(fixture.process().await, process);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn invalid_lines_are_ignored() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    assert_eq!(fixture.text("chatter", json!({})).await, "said");
    assert_eq!(
        fixture
            .text("shout", json!({"text": "hunter2-hunter2"}))
            .await,
        "shouted"
    );
    assert_eq!(fixture.server.status().replaced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn json_rpc_errors_map_to_tool_errors() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let refuse = async |code: i64| {
        fixture
            .call("refuse", json!({"code": code}))
            .await
            .unwrap_err()
    };
    for code in [-32602, -32603, 17, -31999, -32769] {
        let text = format!("The MCP server probe answered with error {code}: no such luck");
        assert_eq!(
            refuse(code).await,
            ToolError::ErrorResult(text),
            "the model reads it"
        );
    }
    for (code, retryable) in [
        (-32000, true),
        (-32601, false),
        (-32600, false),
        (-32700, false),
        (-32021, false),
    ] {
        let expected = format!("the MCP server probe answered with error {code}: no such luck");
        let ToolError::Upstream(UpstreamFailure {
            message,
            retryable: may,
            unavailable: false,
            ..
        }) = refuse(code).await
        else {
            panic!()
        };
        assert_eq!((message, may), (expected, retryable));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_requests_are_refused() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let answer: Value = serde_json::from_str(&fixture.text("ask", json!({})).await).unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!("a1"), &json!(-32601))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn idempotency_key_is_same_in_all_attempts() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(&[]).await;
    let invocation = invocation();
    for (effect, key) in [
        (Effect::Write, json!(invocation.id)),
        (Effect::Idempotent, json!(invocation.id)),
        (Effect::Read, json!(null)),
    ] {
        let context = context(&invocation, effect, TIMEOUT);
        let meta = fixture
            .runner("meta")
            .call(object(json!({})), context)
            .await
            .unwrap()
            .as_text();
        assert_eq!(
            serde_json::from_str::<Value>(&meta).unwrap()["toolcrib/idempotencyKey"],
            key,
            "{meta}"
        );
    }
}
