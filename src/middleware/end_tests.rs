//! Tests: how ends of calls are recorded, logged and replayed.

use super::*;
use crate::log::captured::{Captured, capture as capture_log};
use crate::metrics::Now;

/// A registry that logs its calls as events.
fn logging(tool: Tool, capture: Capture) -> (Arc<Registry>, Captured) {
    let registry = registry_over([tool], 100, |shared| Shared { call_log: CallLog::events(), capture, ..shared });
    (registry, capture_log())
}

async fn invoke_after(registry: &Registry, key: Option<&str>, wait: Duration) -> Result<Answer, CallError> {
    let mut invocation = invocation_of(registry, "t");
    invocation.key = key.map(|key| IdempotencyKey::parse(key.as_bytes()).unwrap());
    tokio::time::advance(wait).await;
    registry.invoke(&registry.get("t").unwrap(), invocation).await
}

/// A write that fails once with a retryable failure and a wait.
fn fails() -> Tool {
    Tool::new("t", "…").effect(Effect::Write).call(|_, _| async {
        let (message, retry_after) = ("busy with top-secret-value".to_owned(), Some(SECOND));
        Err::<String, _>(ToolError::Upstream { message, retryable: true, down: false, untouched: false, retry_after })
    })
}

fn says_no() -> Tool {
    Tool::new("t", "…")
        .effect(Effect::Write)
        .call(|_, _| async { Err::<String, _>(ToolError::Said("there is no such file".into())) })
}

#[tokio::test(start_paused = true)]
async fn replays_are_logged_under_their_first_call() {
    let (registry, log) = logging(fails(), Capture::Full);
    let first = invoke_after(&registry, Some("k"), Duration::ZERO).await.unwrap_err();
    let CallError::Kept { invocation, .. } = &first else { panic!("{first:?}") };
    assert!(invoke_after(&registry, Some("k"), 5 * PART).await.is_err());
    assert_eq!(log.count("replayed=true"), 1);
    for part in [format!("invocation_id={invocation}"), "kind=\"upstream_failed\"".into(), "duration_ms=5.0".into()] {
        assert_eq!(log.count(&format!("{part} ")), if part.starts_with("dur") { 1 } else { 2 }, "{part}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_row_are_logged() {
    let (registry, log) = logging(fails(), Capture::Full);
    registry.shared().running.close();
    let error = invoke_after(&registry, None, 5 * PART).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Draining);
    assert_eq!((log.count("state=\"refused\""), log.count("kind=\"draining\"")), (1, 1));
    assert_eq!(log.count("duration_ms=5.0"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_failure_asks_for_no_retry() {
    let (registry, _log) = logging(fails(), Capture::Full);
    for again in [false, true] {
        let error = invoke_after(&registry, Some("k"), Duration::ZERO).await.unwrap_err();
        let CallError::Kept { failure, again: said, .. } = &error else { panic!("{error:?}") };
        assert_eq!((failure.retryable, failure.retry_after_ms, *said), (false, None, again));
        assert_eq!((error.retry_after(), error.is_retryable_by_caller()), (None, false));
    }
    let other = invoke_after(&registry, None, Duration::ZERO).await.unwrap_err();
    assert_eq!((other.retry_after(), other.is_retryable_by_caller()), (Some(SECOND), true));
}

#[tokio::test(start_paused = true)]
async fn a_digest_says_that_the_tool_said_no() {
    for (tool, is_error) in [(says_no(), true), (write_that_says("yes"), false)] {
        let (registry, _log) = logging(tool, Capture::Digest);
        let first = invoke_after(&registry, Some("k"), Duration::ZERO).await.unwrap();
        let rows = registry.shared().ledger.list(&Query { limit: 9, ..Query::default() }).await.unwrap();
        assert!(rows[0].meta.is_none(), "it may name what was asked");
        // As after a restart: the answer is no longer in memory.
        let forgetful = registry_over([write_that_says("never")], 100, |shared| Shared {
            ledger: registry.shared().ledger.clone(),
            digest_key: registry.shared().digest_key.clone(),
            capture: Capture::Digest,
            ..shared
        });
        let again = invoke_after(&forgetful, Some("k"), Duration::ZERO).await.unwrap();
        assert!(again.replayed && again.invocation == first.invocation);
        assert_eq!((again.result.is_error, again.meta.attempts), (is_error, 1));
        assert!(again.meta.result_digest.is_some());
    }
}

fn write_that_says(words: &'static str) -> Tool {
    Tool::new("t", "…").effect(Effect::Write).call(move |_, _| async move { Ok(words) })
}

#[tokio::test(start_paused = true)]
async fn failures_are_kept_in_memory_and_their_digest_on_record() {
    let (registry, _log) = logging(fails(), Capture::Digest);
    let messages: Vec<String> = [
        invoke_after(&registry, Some("k"), Duration::ZERO).await.unwrap_err(),
        invoke_after(&registry, Some("k"), Duration::ZERO).await.unwrap_err(),
    ]
    .iter()
    .map(|error| match error {
        CallError::Kept { failure, .. } => failure.detail.clone(),
        error => panic!("{error:?}"),
    })
    .collect();
    assert!(messages[0].contains("busy") && messages[0] == messages[1], "{messages:?}");
    let rows = registry.shared().ledger.list(&Query { limit: 9, ..Query::default() }).await.unwrap();
    let found = registry.shared().ledger.get(rows[0].id).await.unwrap().unwrap();
    assert!(!found.row.result.unwrap().contains("busy"));
}

#[tokio::test(start_paused = true)]
async fn refusals_have_no_meta_on_record() {
    let tool = Tool::new("t", "…").param("count", "integer", "…").call(|_, _| async { Ok("yes") });
    let (registry, _log) = logging(tool, Capture::Full);
    assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::InvalidArguments));
    registry.shared().ledger.flush().await.unwrap();
    let rows = registry.shared().ledger.list(&Query { limit: 9, ..Query::default() }).await.unwrap();
    let row = registry.shared().ledger.get(rows[0].id).await.unwrap().unwrap().row;
    assert_eq!((row.state, row.meta.is_none(), row.result.is_some()), (State::Refused, true, true));
}

#[tokio::test(start_paused = true)]
async fn answers_from_the_cache_name_their_origin() {
    let tool = Tool::new("t", "…").effect(Effect::Read).cache(60 * SECOND, &[]).call(|_, _| async { Ok("yes") });
    let (registry, _log) = logging(tool, Capture::Full);
    let first = call(&registry, "t", None).await.unwrap();
    let hit = call(&registry, "t", None).await.unwrap();
    registry.shared().ledger.flush().await.unwrap();
    let row = registry.shared().ledger.get(hit.invocation).await.unwrap().unwrap().row;
    assert_eq!((row.origin, row.result.is_none()), (Some(first.invocation), true));
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_counted_apart() {
    for (tool, outcome) in [(write_that_says("yes"), "ok"), (says_no(), "tool_error"), (fails(), "upstream_failed")] {
        let (registry, _log) = logging(tool, Capture::Full);
        let _ = call(&registry, "t", None).await;
        let now = Now { calls: 0, cache_entries: 0, cache_bytes: 0, ledger_up: true, lines_lost: 0, sources: vec![] };
        let text = registry.shared().metrics.text(now).unwrap();
        let counted: Vec<&str> =
            text.lines().filter(|line| line.starts_with("toolcrib_calls_total") && line.ends_with(" 1")).collect();
        assert_eq!(counted.len(), 1, "{counted:?}");
        assert!(counted[0].contains(&format!("outcome=\"{outcome}\"")), "{counted:?}");
    }
}
