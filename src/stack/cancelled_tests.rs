//! Tests: calls whose caller cancels them or disconnects.

use super::*;

#[tokio::test(start_paused = true)]
async fn dropped_attempt_is_recorded() {
    let tools = [
        with_endless_call(
            endless_tool("late")
                .timeout(10 * SECOND)
                .attempts(3)
                .deadline(15 * SECOND),
        ),
        with_endless_call(endless_tool("stopped").timeout(10 * SECOND)),
    ];
    let registry = registry(tools, 100);
    let made_attempts = async |state: State| {
        let ledger = &registry.shared().ledger;
        let rows = ledger
            .list_calls(&Query {
                limit: 1,
                states: vec![state],
                ..Query::default()
            })
            .await
            .unwrap();
        let found = ledger.get(rows[0].id).await.unwrap().unwrap();
        let of = |row: &AttemptRow| (row.attempt, row.kind, row.duration_us / 1_000_000);
        (
            rows[0].attempts,
            found.attempts.iter().map(of).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        error_kind(&registry, "late", None).await,
        Some(ErrorKind::DeadlineExceeded)
    );
    let (attempts, failed) = made_attempts(State::TimedOut).await;
    assert_eq!(
        (attempts, failed[0]),
        (2, (1, ErrorKind::AttemptTimedOut, 10))
    );
    assert_eq!(
        (failed[1].0, failed[1].1, failed.len()),
        (2, ErrorKind::DeadlineExceeded, 2)
    );
    let stopped = tokio::spawn({
        let registry = registry.clone();
        async move { error_kind(&registry, "stopped", None).await }
    });
    tokio::time::sleep(2 * SECOND).await;
    registry.shared().in_flight_calls.cancel_all();
    assert_eq!(stopped.await.unwrap(), Some(ErrorKind::Cancelled));
    assert_eq!(
        made_attempts(State::Cancelled).await,
        (1, vec![(1, ErrorKind::Cancelled, 2)])
    );
}

/// A write that has a limit, and that waits for a permit before it runs.
fn queued_write() -> (Arc<Registry>, Arc<Semaphore>) {
    let free = Arc::new(Semaphore::new(0));
    let permits = free.clone();
    let limit = Limit {
        calls: 10,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let tool = Tool::new("writes", "…")
        .limit(limit)
        .call(move |_, context| {
            let permits = permits.clone();
            async move {
                context
                    .wait_for(permits.acquire())
                    .await
                    .map_err(|_| ToolError::unavailable("closed"))?
                    .forget();
                std::future::pending::<()>().await;
                Ok("never")
            }
        });
    (registry([tool], 10), free)
}

#[tokio::test(start_paused = true)]
async fn write_cancelled_while_queued_has_no_attempt() {
    for (has_begun, state, attempts, units) in [
        (false, State::Cancelled, 0, 0),
        (true, State::Unknown, 1, 1),
    ] {
        let (registry, free) = queued_write();
        let call = tokio::spawn({
            let registry = registry.clone();
            async move { call(&registry, "writes", None).await }
        });
        free.add_permits(usize::from(has_begun));
        tokio::time::sleep(SECOND).await;
        registry.shared().in_flight_calls.cancel_all();
        match call.await.unwrap() {
            Err(CallError::Cancelled { started }) => assert_eq!(started, has_begun),
            other => panic!("{other:?}"),
        }
        let ledger = &registry.shared().ledger;
        let row = ledger
            .list_calls(&Query {
                limit: 1,
                ..Query::default()
            })
            .await
            .unwrap()
            .remove(0);
        assert_eq!((row.state, row.attempts), (state, attempts));
        let made_attempts = ledger.get(row.id).await.unwrap().unwrap().attempts;
        assert_eq!(made_attempts.len(), usize::from(has_begun));
        assert_eq!(units_used(&registry, "writes").await, units);
    }
}

#[tokio::test(start_paused = true)]
async fn write_disconnected_while_queued_never_runs() {
    let (registry, free) = queued_write();
    let outcome = tokio::time::timeout(SECOND, call(&registry, "writes", None)).await;
    assert!(outcome.is_err());
    assert_eq!(
        final_states(&registry).await,
        [State::Cancelled],
        "although a started write may finish"
    );
    free.add_permits(1);
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        (
            free.available_permits(),
            units_used(&registry, "writes").await
        ),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn write_does_not_start_after_disconnect() {
    let ran = Arc::new(AtomicUsize::new(0));
    let runs = ran.clone();
    let limit = Limit {
        calls: 10,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let tool = Tool::new("writes", "…")
        .effect(Effect::Write)
        .limit(limit)
        .call(move |_, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok("done") }
        });
    let registry = registry([tool], 10);
    let invocation = invocation_of(&registry, "writes");
    let report = invocation.report.clone();
    // The reservation must wait for this lock. Meanwhile the caller disconnects.
    let guard = report.reservation_lock.lock().await;
    let entry = registry.get("writes").unwrap();
    assert!(
        tokio::time::timeout(SECOND, registry.invoke(&entry, invocation))
            .await
            .is_err()
    );
    drop(guard);
    assert_eq!(final_states(&registry).await, [State::Cancelled]);
    assert_eq!(
        (
            ran.load(Ordering::SeqCst),
            units_used(&registry, "writes").await
        ),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn cancelled_read_releases_its_key() {
    let (registry, script, ran) = scripted_registry(|tool| tool);
    script.lock().push(ToolOutput::Hangs);
    let running = tokio::spawn({
        let registry = registry.clone();
        async move {
            call_with_key(&registry, "k")
                .await
                .map(|answer| answer.replayed)
        }
    });
    tokio::time::sleep(SECOND).await;
    registry.shared().in_flight_calls.cancel_all();
    assert_eq!(
        running.await.unwrap().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    let answer = call_with_key(&registry, "k").await.unwrap();
    assert!(
        !answer.replayed && ran.load(Ordering::SeqCst) == 2,
        "the same key runs the read again"
    );
    assert!(call_with_key(&registry, "k").await.unwrap().replayed);
}
