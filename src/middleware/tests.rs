//! The stack over a ledger in memory, under a clock that the runtime moves when everybody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::call::{
    Answer, CallError, Caller, Capture, Clock, Concurrency, DigestKey, Effect, ErrorKind, Invocation, JsonObject,
    Limit, LimitScope, Per, Services, ToolError,
};
use crate::callers::Callers;
use crate::ledger::memory::Memory;
use crate::ledger::{Ledger, Query, State};
use crate::log::CallLog;
use crate::metrics::Metrics;
use crate::middleware::cache::ResultCache;
use crate::middleware::replay::Replays;
use crate::registry::Registry;
use crate::running::Running;
use crate::secrets::Redactor;
use crate::stack::Shared;
use crate::tools::Tool;

fn registry(tools: impl IntoIterator<Item = Tool>, in_flight: usize) -> Arc<Registry> {
    let ledger: Arc<dyn Ledger> = Arc::new(Memory::default());
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    let shared = Shared {
        cache: ResultCache::new(1 << 20, ledger.clone(), clock.clone()),
        replays: Replays::default(),
        ledger,
        running: Running::default(),
        in_flight: Arc::new(Semaphore::new(in_flight)),
        redactor: Arc::new(Redactor::new(["top-secret-value"])),
        clock,
        capture: Capture::Full,
        digest_key: DigestKey::random().unwrap(),
        call_log: CallLog::off(),
        metrics: Metrics::new().unwrap(),
    };
    let registry = Registry::new(shared, Arc::new(Callers::default()), Services::default());
    for tool in tools {
        registry.register(tool).unwrap();
    }
    Arc::new(registry)
}

async fn call(registry: &Registry, tool: &str, within: Option<Duration>) -> Result<Answer, CallError> {
    let entry = registry.get(tool).unwrap();
    let caller = Arc::new(Caller::anonymous());
    let name = entry.definition.name.clone();
    let mut invocation = Invocation::new(name, JsonObject::new(), caller, Timestamp::now());
    if let Some(within) = within {
        let end = invocation.started + within;
        invocation.shorten_deadline(end);
    }
    registry.invoke(&entry, invocation).await
}

async fn kind(registry: &Registry, tool: &str, within: Option<Duration>) -> Option<ErrorKind> {
    call(registry, tool, within).await.err().map(|error| error.kind())
}

async fn states(registry: &Registry) -> Vec<State> {
    registry.shared().running.close();
    registry.shared().running.drained().await;
    let rows = registry.shared().ledger.list(&Query { limit: 100, ..Query::default() }).await.unwrap();
    rows.into_iter().map(|row| row.state).collect()
}

const SECOND: Duration = Duration::from_secs(1);

fn endless(name: &str) -> Tool<()> {
    Tool::new(name, "Never ends.").effect(Effect::Read)
}

fn pends(tool: Tool<()>) -> Tool {
    tool.call(|_, _| async {
        std::future::pending::<()>().await;
        Ok("never")
    })
}

#[tokio::test(start_paused = true)]
async fn a_try_has_its_time_and_a_call_its_own() {
    let tools = [
        pends(endless("once").timeout(10 * SECOND)),
        pends(endless("thrice").timeout(10 * SECOND).attempts(3)),
        pends(endless("bounded").timeout(10 * SECOND).attempts(3).deadline(15 * SECOND)),
        pends(endless("writes").timeout(10 * SECOND).effect(Effect::Write)),
    ];
    let registry = registry(tools, 100);
    let timed = async |tool: &str, within| {
        let began = Instant::now();
        let kind = kind(&registry, tool, within).await;
        (kind, began.elapsed().as_secs())
    };
    assert_eq!(timed("once", None).await, (Some(ErrorKind::AttemptTimedOut), 10));
    assert_eq!(timed("once", Some(3 * SECOND)).await, (Some(ErrorKind::DeadlineExceeded), 3));
    let (kind, seconds) = timed("thrice", None).await;
    assert!(kind == Some(ErrorKind::AttemptTimedOut) && (30..32).contains(&seconds), "{seconds}");
    assert_eq!(timed("bounded", None).await, (Some(ErrorKind::DeadlineExceeded), 15));
    assert_eq!(timed("writes", None).await, (Some(ErrorKind::AttemptTimedOut), 10));
    use State::{TimedOut, Unknown};
    assert_eq!(states(&registry).await, [Unknown, TimedOut, TimedOut, TimedOut, TimedOut]);
}

#[tokio::test(start_paused = true)]
async fn what_an_upstream_asks_for_is_waited_unless_the_call_ends_first() {
    let busy = |name: &str, wait: Duration| {
        let tries = AtomicUsize::new(0);
        Tool::new(name, "…").effect(Effect::Read).attempts(2).call(move |_, _| {
            let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                let (message, retryable) = ("busy".to_owned(), true);
                let busy = ToolError::Upstream { message, retryable, retry_after: Some(wait) };
                if first { Err(busy) } else { Ok("yes") }
            }
        })
    };
    let registry =
        registry([busy("waits", 7 * SECOND), busy("cannot", 7 * SECOND), busy("greedy", Duration::MAX)], 100);
    let began = Instant::now();
    assert_eq!(call(&registry, "waits", None).await.unwrap().meta.attempts, 2);
    assert_eq!(began.elapsed().as_secs(), 7);
    // More than is worth holding a place for.
    assert_eq!(kind(&registry, "greedy", None).await, Some(ErrorKind::UpstreamFailed));
    // Waiting would outlast the call: the failure is told at once, with the wait it asks for.
    let began = Instant::now();
    let error = call(&registry, "cannot", Some(5 * SECOND)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::UpstreamFailed, Some(7 * SECOND)));
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_bulkhead_refuses_on_arrival_and_a_waiting_place_has_its_time() {
    let bulkhead = Concurrency { max: 1, queue: 1, wait: 2 * SECOND };
    let limit = Limit { calls: 100, per: Per::Lifetime, scope: LimitScope::Tool };
    let tools = [pends(endless("full").concurrency(bulkhead).limit(limit)), pends(endless("other"))];
    let registry = registry(tools, 100);
    let spawn = |within| {
        let registry = registry.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let error = call(&registry, "full", within).await.unwrap_err();
            (error.kind(), began.elapsed().as_secs())
        })
    };
    let running = spawn(Some(60 * SECOND));
    tokio::task::yield_now().await;
    tokio::time::sleep(SECOND / 10).await;
    let waiting = spawn(None);
    tokio::time::sleep(SECOND / 10).await;
    let refused = spawn(None);
    assert_eq!(refused.await.unwrap(), (ErrorKind::Overloaded, 0));
    assert_eq!(waiting.await.unwrap(), (ErrorKind::Overloaded, 2));
    // In the queue the call's own deadline counts too; another tool is not held up.
    assert_eq!(spawn(Some(SECOND)).await.unwrap(), (ErrorKind::DeadlineExceeded, 1));
    assert_eq!(kind(&registry, "other", Some(SECOND)).await, Some(ErrorKind::DeadlineExceeded));
    assert_eq!(running.await.unwrap(), (ErrorKind::AttemptTimedOut, 30));
    let entry = registry.get("full").unwrap();
    let used = registry.used(&entry, &Caller::anonymous()).await.unwrap();
    assert_eq!(used[0].used, 1, "only the call that ran is charged");
}

#[tokio::test(start_paused = true)]
async fn all_tools_together_have_a_bound() {
    let registry = registry([pends(endless("a")), pends(endless("b"))], 1);
    let held = tokio::spawn({
        let registry = registry.clone();
        async move { kind(&registry, "a", Some(60 * SECOND)).await }
    });
    tokio::time::sleep(SECOND).await;
    assert_eq!(kind(&registry, "b", None).await, Some(ErrorKind::Overloaded));
    held.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_when_its_time_is_over_and_nothing_is_charged() {
    let ran = Arc::new(AtomicBool::new(false));
    let seen = ran.clone();
    let limit = Limit { calls: 1, per: Per::Lifetime, scope: LimitScope::Tool };
    let tool = Tool::new("t", "…").limit(limit).call(move |_, _| {
        seen.store(true, Ordering::SeqCst);
        async { Ok("ran") }
    });
    let registry = registry([tool], 100);
    assert_eq!(kind(&registry, "t", Some(Duration::ZERO)).await, Some(ErrorKind::DeadlineExceeded));
    assert!(!ran.load(Ordering::SeqCst));
    assert!(call(&registry, "t", None).await.is_ok(), "the unit was given back");
}

#[tokio::test(start_paused = true)]
async fn a_stopping_service_takes_no_call_and_writes_every_row() {
    let registry = registry([pends(endless("t"))], 100);
    let running = tokio::spawn({
        let registry = registry.clone();
        async move { kind(&registry, "t", None).await }
    });
    tokio::time::sleep(SECOND).await;
    registry.shared().running.close();
    assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::Draining));
    registry.shared().running.cancel_all();
    assert_eq!(running.await.unwrap(), Some(ErrorKind::Cancelled));
    assert_eq!(states(&registry).await, [State::Cancelled]);
}

#[tokio::test]
async fn secrets_leave_a_tools_words_before_anybody_hears_them() {
    let tools = [
        Tool::new("says", "…").call(|_, _| async { Ok(json!({"header": "Bearer top-secret-value"})) }),
        Tool::new("refuses", "…").call(|_, _| async { Err::<String, _>("bad key top-secret-value".into()) }),
        Tool::new("fails", "…").call(|_, _| async { Err::<String, _>(ToolError::upstream("no top-secret-value")) }),
        Tool::new("panics", "…").call(|_, _| async { if true { panic!("at top-secret-value") } else { Ok("") } }),
    ];
    let registry = registry(tools, 100);
    for tool in ["says", "refuses", "fails", "panics"] {
        let said = match call(&registry, tool, None).await {
            Ok(answer) => serde_json::to_string(&*answer.result).unwrap(),
            Err(error) => error.to_string() + &error.for_model(),
        };
        assert!(said.contains("[redacted]") && !said.contains("secret-value"), "{tool}: {said}");
    }
    let rows = registry.shared().ledger.list(&Query { limit: 10, ..Query::default() }).await.unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| !row.result.as_deref().unwrap_or_default().contains("secret-value")));
}
