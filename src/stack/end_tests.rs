//! Tests: how ends of calls are recorded, logged and replayed.

use super::*;
use crate::call::{Truncated, UpstreamFailure};
use crate::ledger::memory::ReservationFault;
use crate::log::captured_log::{CapturedLog, capture_log};
use crate::metrics::ServiceState;

/// A registry that logs its calls as events.
fn logging(tool: Tool, capture: Capture) -> (Arc<Registry>, CapturedLog) {
    let registry = registry_over([tool], 100, |shared| SharedParts {
        call_log: CallLog::events(),
        capture,
        ..shared
    });
    (registry, capture_log())
}

async fn invoke_after(
    registry: &Registry,
    key: Option<&str>,
    wait: Duration,
) -> Result<Answer, CallError> {
    let mut invocation = invocation_of(registry, "t");
    invocation.idempotency_key = key.map(|key| IdempotencyKey::parse(key.as_bytes()).unwrap());
    tokio::time::advance(wait).await;
    registry
        .invoke(&registry.get("t").unwrap(), invocation)
        .await
}

/// A write that fails once with a retryable failure and a wait.
fn failing_tool() -> Tool {
    Tool::new("t", "…")
        .effect(Effect::Write)
        .call(|_, _| async {
            let (message, retry_after) = ("busy with top-secret-value".to_owned(), Some(SECOND));
            Err::<String, _>(ToolError::Upstream(UpstreamFailure {
                message,
                retryable: true,
                unavailable: false,
                not_delivered: false,
                retry_after,
                cause: None,
            }))
        })
}

fn rejecting_tool() -> Tool {
    Tool::new("t", "…")
        .effect(Effect::Write)
        .call(|_, _| async {
            Err::<String, _>(ToolError::ErrorResult("there is no such file".into()))
        })
}

#[tokio::test(start_paused = true)]
async fn replays_are_logged_with_the_first_id() {
    let (registry, log) = logging(failing_tool(), Capture::Full);
    let first = invoke_after(&registry, Some("k"), Duration::ZERO)
        .await
        .unwrap_err();
    let CallError::StoredFailure { invocation, .. } = &first else {
        panic!("{first:?}")
    };
    assert!(invoke_after(&registry, Some("k"), 5 * PART).await.is_err());
    assert_eq!(log.count_lines("replayed=true"), 1);
    for part in [
        format!("invocation_id={invocation}"),
        "kind=\"upstream_failed\"".into(),
        "duration_ms=5.0".into(),
    ] {
        assert_eq!(
            log.count_lines(&format!("{part} ")),
            if part.starts_with("dur") { 1 } else { 2 },
            "{part}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_row_are_logged() {
    let (registry, log) = logging(failing_tool(), Capture::Full);
    registry.shared().in_flight_calls.close();
    let error = invoke_after(&registry, None, 5 * PART).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Draining);
    assert_eq!(
        (
            log.count_lines("state=\"refused\""),
            log.count_lines("kind=\"draining\"")
        ),
        (1, 1)
    );
    assert_eq!(log.count_lines("duration_ms=5.0"), 1);
}

#[tokio::test(start_paused = true)]
async fn replayed_failure_is_not_retryable() {
    let (registry, _log) = logging(failing_tool(), Capture::Full);
    for replay in [false, true] {
        let error = invoke_after(&registry, Some("k"), Duration::ZERO)
            .await
            .unwrap_err();
        let CallError::StoredFailure {
            failure, replayed, ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(
            (failure.retryable, failure.retry_after_ms, *replayed),
            (false, None, replay)
        );
        assert_eq!(
            (error.retry_after(), error.is_retryable_by_caller()),
            (None, false)
        );
    }
    let other = invoke_after(&registry, None, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(
        (other.retry_after(), other.is_retryable_by_caller()),
        (Some(SECOND), true)
    );
}

#[tokio::test(start_paused = true)]
async fn digest_replay_keeps_is_error() {
    for (tool, is_error) in [(rejecting_tool(), true), (write_returning("yes"), false)] {
        let (registry, _log) = logging(tool, Capture::Digest);
        let first = invoke_after(&registry, Some("k"), Duration::ZERO)
            .await
            .unwrap();
        let rows = registry
            .shared()
            .ledger
            .list_calls(&Query {
                limit: 9,
                ..Query::default()
            })
            .await
            .unwrap();
        assert!(rows[0].meta.is_none(), "the metadata may quote arguments");
        assert_eq!(rows[0].detail.is_some(), is_error, "a result is no reason");
        // As after a restart: the answer is no longer in memory.
        let forgetful = registry_over([write_returning("never")], 100, |shared| SharedParts {
            ledger: registry.shared().ledger.clone(),
            digest_key: registry.shared().digest_key.clone(),
            capture: Capture::Digest,
            ..shared
        });
        let replay = invoke_after(&forgetful, Some("k"), Duration::ZERO)
            .await
            .unwrap();
        assert!(replay.replayed && replay.invocation == first.invocation);
        assert_eq!(
            (replay.result.is_error, replay.meta.attempts),
            (is_error, 1)
        );
        assert!(replay.meta.result_digest.is_some());
    }
}

fn write_returning(words: &'static str) -> Tool {
    Tool::new("t", "…")
        .effect(Effect::Write)
        .call(move |_, _| async move { Ok(words) })
}

#[tokio::test(start_paused = true)]
async fn digest_capture_keeps_failures_in_memory() {
    let (registry, _log) = logging(failing_tool(), Capture::Digest);
    let messages: Vec<String> = [
        invoke_after(&registry, Some("k"), Duration::ZERO)
            .await
            .unwrap_err(),
        invoke_after(&registry, Some("k"), Duration::ZERO)
            .await
            .unwrap_err(),
    ]
    .iter()
    .map(|error| match error {
        CallError::StoredFailure { failure, .. } => failure.detail.clone(),
        error => panic!("{error:?}"),
    })
    .collect();
    assert!(
        messages[0].contains("busy") && messages[0] == messages[1],
        "{messages:?}"
    );
    let rows = registry
        .shared()
        .ledger
        .list_calls(&Query {
            limit: 9,
            ..Query::default()
        })
        .await
        .unwrap();
    let found = registry
        .shared()
        .ledger
        .get(rows[0].id)
        .await
        .unwrap()
        .unwrap();
    assert!(!found.row.result.unwrap().contains("busy"));
}

#[tokio::test(start_paused = true)]
async fn refused_call_keeps_the_beginning_of_long_arguments() {
    let tool = Tool::new("t", "…")
        .param("count", "integer", "…")
        .param("note", "string", "…")
        .call(|_, _| async { Ok("yes") });
    let (registry, _log) = logging(tool, Capture::Full);
    for (count, is_refused) in [(json!("many"), true), (json!(1), false)] {
        let mut invocation = invocation_of(&registry, "t");
        let arguments = json!({"count": count, "note": "x".repeat(2000)});
        invocation.input.arguments = Arc::new(arguments.as_object().unwrap().clone());
        let id = invocation.id;
        let entry = registry.get("t").unwrap();
        let outcome = registry.invoke(&entry, invocation).await;
        assert_eq!(outcome.is_err(), is_refused);
        let ledger = &registry.shared().ledger;
        ledger.flush().await.unwrap();
        let row = ledger.get(id).await.unwrap().unwrap().row;
        assert_eq!(row.state == State::Refused, is_refused);
        let truncated = Truncated::from_column(&row.arguments);
        let bytes = truncated.map(|truncated| truncated.bytes as usize);
        let whole = arguments.to_string().len();
        assert_eq!(bytes, is_refused.then_some(whole));
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_rows_have_no_meta() {
    let tool = Tool::new("t", "…")
        .param("count", "integer", "…")
        .call(|_, _| async { Ok("yes") });
    let (registry, _log) = logging(tool, Capture::Full);
    assert_eq!(
        error_kind(&registry, "t", None).await,
        Some(ErrorKind::InvalidArguments)
    );
    registry.shared().ledger.flush().await.unwrap();
    let rows = registry
        .shared()
        .ledger
        .list_calls(&Query {
            limit: 9,
            ..Query::default()
        })
        .await
        .unwrap();
    let row = registry
        .shared()
        .ledger
        .get(rows[0].id)
        .await
        .unwrap()
        .unwrap()
        .row;
    assert_eq!(
        (row.state, row.meta.is_none(), row.result.is_some()),
        (State::Refused, true, true)
    );
}

#[tokio::test(start_paused = true)]
async fn cache_hits_record_their_origin() {
    let tool = Tool::new("t", "…")
        .effect(Effect::Read)
        .cache(60 * SECOND, &[])
        .call(|_, _| async { Ok("yes") });
    let (registry, _log) = logging(tool, Capture::Full);
    let first = call(&registry, "t", None).await.unwrap();
    let hit = call(&registry, "t", None).await.unwrap();
    registry.shared().ledger.flush().await.unwrap();
    let row = registry
        .shared()
        .ledger
        .get(hit.invocation)
        .await
        .unwrap()
        .unwrap()
        .row;
    assert_eq!(
        (row.origin, row.result.is_none()),
        (Some(first.invocation), true)
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_count_outcomes_separately() {
    for (tool, outcome) in [
        (write_returning("yes"), "ok"),
        (rejecting_tool(), "tool_error"),
        (failing_tool(), "upstream_failed"),
    ] {
        let (registry, _log) = logging(tool, Capture::Full);
        let _ = call(&registry, "t", None).await;
        let now = ServiceState {
            calls: 0,
            cache_entries: 0,
            cache_bytes: 0,
            ledger_up: true,
            lines_lost: 0,
            sources: vec![],
            sandboxes: vec![],
        };
        let text = registry.shared().metrics.render(now).unwrap();
        let counted: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("toolcrib_calls_total") && line.ends_with(" 1"))
            .collect();
        assert_eq!(counted.len(), 1, "{counted:?}");
        assert!(
            counted[0].contains(&format!("outcome=\"{outcome}\"")),
            "{counted:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_no_person_approved_fails_if_it_cannot_be_reserved() {
    let ledger = Arc::new(MemoryLedger::default());
    ledger.set_fault(ReservationFault::Refused);
    let registry = registry_over([write_returning("yes")], 100, |shared| SharedParts {
        ledger: ledger.clone(),
        ..shared
    });
    let error = invoke_after(&registry, None, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LedgerUnavailable);
}
