//! Tests: which bound ends a call, what that shows about its tool, and which results are stored.

use super::*;
use crate::call::{CacheStatus, CacheWhen, UpstreamFailure};
use crate::log::captured_log::capture_log;

#[tokio::test(start_paused = true)]
async fn operator_deadline_opens_the_circuit() {
    let slow = || with_endless_call(endless_tool("t").timeout(60 * SECOND).deadline(2 * SECOND));
    let registry_of = || registry([slow()], 100);
    for (within, state) in [
        (None, "open"),
        (Some(SECOND), "closed"),
        (Some(5 * SECOND), "open"),
    ] {
        let registry = registry_of();
        for _ in 0..5 {
            assert_eq!(
                error_kind(&registry, "t", within).await,
                Some(ErrorKind::DeadlineExceeded)
            );
        }
        assert_eq!(breaker(&registry).0, state, "{within:?}");
    }
}

/// Fails because another call ended their shared process.
struct Neighbour;

#[async_trait]
impl Runner for Neighbour {
    async fn call(
        &self,
        _: Arc<JsonObject>,
        context: ToolContext,
    ) -> Result<ToolResult, ToolError> {
        context.set_shared_failure(true);
        Err(ToolError::upstream("its process has ended"))
    }
}

#[tokio::test(start_paused = true)]
async fn shared_failure_does_not_open_the_circuit() {
    let registry = registry(
        [Tool::new("t", "…")
            .effect(Effect::Read)
            .with_runner(Arc::new(Neighbour))],
        100,
    );
    for _ in 0..6 {
        assert_eq!(
            error_kind(&registry, "t", None).await,
            Some(ErrorKind::UpstreamFailed)
        );
    }
    assert_eq!(breaker(&registry).0, "closed");
}

#[tokio::test(start_paused = true)]
async fn retry_wait_must_end_before_deadline() {
    let wait = |name: &str| {
        Tool::new(name, "…")
            .effect(Effect::Read)
            .attempts(2)
            .call(|_, _| async {
                let (message, retryable, unavailable) = ("busy".to_owned(), true, false);
                let retry_after = Some(7 * SECOND);
                Err::<String, _>(ToolError::Upstream(UpstreamFailure {
                    message,
                    retryable,
                    unavailable,
                    not_delivered: false,
                    retry_after,
                    cause: None,
                }))
            })
    };
    let registry = registry([wait("t")], 100);
    for (within, seconds) in [(7 * SECOND, 0), (7 * SECOND + PART, 7)] {
        let began = Instant::now();
        assert_eq!(
            error_kind(&registry, "t", Some(within)).await,
            Some(ErrorKind::UpstreamFailed)
        );
        assert_eq!(began.elapsed().as_secs(), seconds, "{within:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deny_list_bypasses_cache_of_nesting_tools() {
    let plain = Tool::new("plain", "…")
        .effect(Effect::Read)
        .cache(60 * SECOND, &[])
        .call(|_, _| async { Ok("yes") });
    let boss = Tool::new("boss", "…")
        .effect(Effect::Read)
        .cache(60 * SECOND, &[]);
    let registry = registry(
        [plain, boss.with_runner(Arc::new(Boss(Arc::default())))],
        100,
    );
    let cached = async |tool: &str, deny: &[&str]| {
        let mut invocation = invocation_of(&registry, tool);
        invocation.call_chain.deny = deny.iter().map(|name| (*name).to_owned()).collect();
        registry
            .invoke(&registry.get(tool).unwrap(), invocation)
            .await
            .unwrap()
            .meta
            .cache
    };
    for (tool, denied) in [("plain", CacheStatus::Hit), ("boss", CacheStatus::Bypass)] {
        assert_eq!(cached(tool, &[]).await, CacheStatus::Miss);
        assert_eq!(
            (cached(tool, &[]).await, cached(tool, &["x"]).await),
            (CacheStatus::Hit, denied),
            "{tool}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failing_cache_predicate_is_logged_once() {
    for (capture, expected) in [
        (Capture::Full, "no such field"),
        (Capture::Digest, "the message is not recorded"),
    ] {
        let mut tool = Tool::new("t", "…")
            .effect(Effect::Read)
            .cache(60 * SECOND, &[])
            .capture(capture);
        tool.policy.cache_when = Some(CacheWhen::from_expression("x.y", |_, _| {
            Err("no such field".into())
        }));
        let registry = registry([tool.call(|_, _| async { Ok("yes") })], 100);
        let log = capture_log();
        for _ in 0..3 {
            assert_eq!(
                call(&registry, "t", None).await.unwrap().meta.cache,
                CacheStatus::Miss
            );
        }
        assert_eq!(
            (
                log.count_lines("cache.when failed"),
                log.count_lines(expected)
            ),
            (1, 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_counts_from_call_start() {
    let tool = Tool::new("t", "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("yes") });
    let registry = registry_over([tool], 100, |shared| SharedParts {
        validation_pool: ValidationPool::with_slots(0),
        ..shared
    });
    let mut invocation = invocation_of(&registry, "t");
    invocation.input.arguments =
        Arc::new(json!({"a": vec![1; 5000]}).as_object().cloned().unwrap());
    let end = invocation.timing.started + 3 * SECOND;
    invocation.timing.shorten_deadline(end);
    tokio::time::advance(SECOND).await;
    let error = registry
        .invoke(&registry.get("t").unwrap(), invocation)
        .await
        .unwrap_err();
    assert!(
        matches!(error, CallError::DeadlineExceeded { after, started: false } if after == 3 * SECOND),
        "{error:?}"
    );
}
