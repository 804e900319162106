//! Tests: when a circuit opens, and when it closes again.

use super::*;

async fn open_circuit(registry: &Registry, script: &Mutex<Vec<ToolOutput>>) {
    script.lock().extend((0..5).map(|_| backend_down()));
    for _ in 0..5 {
        assert_eq!(
            error_kind(registry, "t", None).await,
            Some(ErrorKind::UpstreamFailed)
        );
    }
    assert_eq!(breaker(registry), ("open", 5));
}

#[tokio::test(start_paused = true)]
async fn circuit_opens_after_five_failures() {
    let limit = Limit {
        calls: 100,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let (registry, script, ran) = scripted_registry(|tool| tool.limit(limit).effect(Effect::Write));
    open_circuit(&registry, &script).await;
    tokio::time::advance(2 * SECOND).await;
    let error = call(&registry, "t", None).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_refusal()),
        (ErrorKind::ToolUnavailable, true)
    );
    assert_eq!(
        (error.retry_after(), error.is_retryable_by_caller()),
        (Some(3 * SECOND), true)
    );
    assert!(
        error.for_model().contains("did not run"),
        "{}",
        error.for_model()
    );
    tokio::time::advance(3 * SECOND - PART).await;
    assert_eq!(
        call(&registry, "t", None).await.unwrap_err().retry_after(),
        Some(PART)
    );
    assert_eq!(
        (ran.load(Ordering::SeqCst), breaker(&registry)),
        (5, ("open", 5))
    );
    // The probe fails, and the circuit opens again.
    tokio::time::advance(PART).await;
    assert_eq!(breaker(&registry), ("half_open", 5));
    script.lock().push(backend_down());
    assert_eq!(
        error_kind(&registry, "t", None).await,
        Some(ErrorKind::UpstreamFailed)
    );
    assert_eq!(breaker(&registry), ("open", 6));
    tokio::time::advance(5 * SECOND - PART).await;
    assert_eq!(
        error_kind(&registry, "t", None).await,
        Some(ErrorKind::ToolUnavailable)
    );
    tokio::time::advance(PART).await;
    assert_eq!(
        (error_kind(&registry, "t", None).await, breaker(&registry)),
        (None, ("closed", 0))
    );
    // A closed circuit starts from zero: it takes five failures to open again.
    script.lock().extend((0..4).map(|_| backend_down()));
    for _ in 0..4 {
        assert_eq!(
            error_kind(&registry, "t", None).await,
            Some(ErrorKind::UpstreamFailed)
        );
    }
    assert_eq!(
        (error_kind(&registry, "t", None).await, breaker(&registry)),
        (None, ("closed", 0))
    );
    let units_used = registry
        .limit_usage(&registry.get("t").unwrap(), &Caller::anonymous())
        .await
        .unwrap();
    assert_eq!(
        units_used[0].used as usize,
        ran.load(Ordering::SeqCst),
        "refused calls cost nothing"
    );
    let final_states = final_states(&registry).await;
    assert_eq!(
        final_states
            .iter()
            .filter(|state| **state == State::Refused)
            .count(),
        3,
        "refused calls have a row"
    );
}

#[tokio::test(start_paused = true)]
async fn circuit_counts_only_unavailable_runners() {
    let invalid = || ToolOutput::Fails(ToolError::InvalidArguments(Vec::new()));
    let (registry, script, ran) = scripted_registry(|tool| tool.timeout(10 * SECOND));
    let after = async |output: ToolOutput, within: Option<Duration>| {
        // Four failures, then this outcome.
        let mut next = vec![output];
        next.extend((0..4).map(|_| backend_down()));
        script.lock().extend(next);
        for _ in 0..4 {
            error_kind(&registry, "t", None).await;
        }
        assert_eq!(breaker(&registry), ("closed", 4));
        let error_kind = error_kind(&registry, "t", within).await;
        let now = breaker(&registry);
        // A success resets the breaker for the next case.
        tokio::time::advance(5 * SECOND).await;
        assert!(call(&registry, "t", None).await.is_ok());
        (error_kind, now)
    };
    use ErrorKind::{
        AttemptTimedOut, BadOutput, DeadlineExceeded, InvalidArguments, ToolUnavailable,
        UpstreamFailed,
    };
    let unavailable = ToolOutput::Fails(ToolError::unavailable("gone"));
    assert_eq!(
        after(unavailable, None).await,
        (Some(ToolUnavailable), ("open", 5))
    );
    assert_eq!(
        after(ToolOutput::Hangs, None).await,
        (Some(AttemptTimedOut), ("open", 5))
    );
    // These outcomes show that the runner is alive.
    assert_eq!(
        after(rate_limited(true), None).await,
        (Some(UpstreamFailed), ("closed", 0))
    );
    assert_eq!(
        after(rate_limited(false), None).await,
        (Some(UpstreamFailed), ("closed", 0))
    );
    assert_eq!(
        after(
            ToolOutput::Fails(ToolError::upstream_permanent("500")),
            None
        )
        .await
        .1,
        ("closed", 0)
    );
    assert_eq!(
        after(ToolOutput::Fails("no".into()), None).await,
        (None, ("closed", 0))
    );
    assert_eq!(after(ToolOutput::Panics, None).await, (None, ("closed", 0)));
    assert_eq!(
        after(invalid(), None).await,
        (Some(InvalidArguments), ("closed", 0))
    );
    assert_eq!(
        after(ToolOutput::Fails(ToolError::BadOutput("half".into())), None).await,
        (Some(BadOutput), ("closed", 0))
    );
    // This outcome shows nothing about the runner.
    assert_eq!(
        after(ToolOutput::Hangs, Some(SECOND)).await,
        (Some(DeadlineExceeded), ("closed", 4))
    );
    assert_eq!(ran.load(Ordering::SeqCst), 10 * 6);
}

#[tokio::test(start_paused = true)]
async fn unjudged_probe_lets_next_call_probe() {
    let one = Concurrency {
        max: 1,
        queue: 0,
        wait: SECOND,
        per_caller: None,
    };
    let (registry, script, ran) =
        scripted_registry(|tool| tool.timeout(10 * SECOND).concurrency(one));
    open_circuit(&registry, &script).await;
    tokio::time::advance(5 * SECOND).await;
    // While a probe is in flight, all other calls are refused.
    script.lock().push(ToolOutput::Hangs);
    let probe = tokio::spawn({
        let registry = registry.clone();
        async move { error_kind(&registry, "t", None).await }
    });
    while ran.load(Ordering::SeqCst) < 6 {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        let error = call(&registry, "t", None).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.retry_after()),
            (ErrorKind::ToolUnavailable, Some(SECOND))
        );
    }
    assert_eq!(
        (ran.load(Ordering::SeqCst), breaker(&registry)),
        (6, ("half_open", 5))
    );
    // The probe was cancelled, so the next call is the probe at once.
    registry.shared().in_flight_calls.cancel_all();
    assert_eq!(probe.await.unwrap(), Some(ErrorKind::Cancelled));
    assert_eq!(breaker(&registry), ("half_open", 5));
    // The same holds for a probe that a lower layer refused, or that ended at its caller's
    // deadline.
    let all_permits = registry
        .shared()
        .global_permits
        .clone()
        .acquire_many_owned(100)
        .await
        .unwrap();
    assert_eq!(
        error_kind(&registry, "t", None).await,
        Some(ErrorKind::Overloaded)
    );
    drop(all_permits);
    script.lock().push(ToolOutput::Hangs);
    assert_eq!(
        error_kind(&registry, "t", Some(SECOND)).await,
        Some(ErrorKind::DeadlineExceeded)
    );
    assert_eq!(
        (ran.load(Ordering::SeqCst), breaker(&registry)),
        (7, ("half_open", 5))
    );
    assert!(call(&registry, "t", None).await.is_ok());
    assert_eq!(breaker(&registry), ("closed", 0));
}

#[tokio::test(start_paused = true)]
async fn stored_result_is_served_while_circuit_open() {
    let (registry, script, ran) = scripted_registry(|tool| {
        tool.param_opt("n", "integer", "…")
            .cache(Duration::from_secs(3600), &[])
    });
    assert!(call(&registry, "t", None).await.is_ok());
    let entry = registry.get("t").unwrap();
    let other = async || {
        let arguments = JsonObject::from_iter([("n".to_owned(), json!(1))]);
        let name = entry.definition.name.clone();
        let invocation = Invocation::new(
            name,
            arguments,
            Arc::new(Caller::anonymous()),
            Timestamp::now(),
        );
        registry.invoke(&entry, invocation).await
    };
    script.lock().extend((0..5).map(|_| backend_down()));
    for _ in 0..5 {
        assert!(other().await.is_err());
    }
    assert_eq!(
        other().await.unwrap_err().kind(),
        ErrorKind::ToolUnavailable
    );
    assert!(call(&registry, "t", None).await.is_ok(), "from the cache");
    assert_eq!(ran.load(Ordering::SeqCst), 6);
}
