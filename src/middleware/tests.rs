//! Tests of the stack with a ledger in memory. The clock moves whenever all tasks wait.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::call::{
    Answer, CallError, Caller, Capture, Clock, Concurrency, DigestKey, Effect, ErrorKind, IdempotencyKey, Invocation,
    JsonObject, Limit, LimitScope, Per, Services, ToolContext, ToolError, ToolResult, Violation,
};
use crate::callers::Callers;
use crate::in_flight::InFlightCalls;
use crate::ledger::memory::Memory;
use crate::ledger::{AttemptRow, Ledger, Query, State};
use crate::log::CallLog;
use crate::metrics::Metrics;
use crate::middleware::cache::ResultCache;
use crate::middleware::replay::Replays;
use crate::middleware::validation::ValidationPool;
use crate::registry::Registry;
use crate::runs::Runs;
use crate::secrets::Redactor;
use crate::stack::Shared;
use crate::tools::{Runner, Tool};

#[path = "bound_tests.rs"]
mod bounds;
#[path = "end_tests.rs"]
mod ends;

fn registry(tools: impl IntoIterator<Item = Tool>, in_flight: usize) -> Arc<Registry> {
    registry_over(tools, in_flight, |shared| shared)
}

fn registry_over(
    tools: impl IntoIterator<Item = Tool>,
    in_flight: usize,
    change: impl FnOnce(Shared) -> Shared,
) -> Arc<Registry> {
    let ledger: Arc<dyn Ledger> = Arc::new(Memory::default());
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    let shared = Shared {
        cache: ResultCache::new(1 << 20, ledger.clone(), clock.clone()),
        replays: Replays::default(),
        ledger,
        running: InFlightCalls::default(),
        runs: Runs::new(clock.clone()),
        in_flight: Arc::new(Semaphore::new(in_flight)),
        validations: ValidationPool::default(),
        redactor: Arc::new(Redactor::new(["top-secret-value"])),
        clock,
        capture: Capture::Full,
        digest_key: DigestKey::random().unwrap(),
        call_log: CallLog::off(),
        metrics: Metrics::new().unwrap(),
    };
    let registry = Registry::new(change(shared), Arc::new(Callers::default()), Services::default());
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
                let (message, retryable, down) = ("busy".to_owned(), true, false);
                let busy = ToolError::Upstream { message, retryable, down, untouched: false, retry_after: Some(wait) };
                if first { Err(busy) } else { Ok("yes") }
            }
        })
    };
    let (waits, cannot, patient) =
        (busy("waits", 7 * SECOND), busy("cannot", 7 * SECOND), busy("patient", 30 * SECOND));
    let greedy = [busy("greedy", Duration::MAX), busy("greedier", Duration::MAX)];
    let registry = registry([waits, cannot, patient].into_iter().chain(greedy), 100);
    let began = Instant::now();
    assert_eq!(call(&registry, "waits", None).await.unwrap().meta.attempts, 2);
    assert_eq!(began.elapsed().as_secs(), 7);
    // A longer wait than a call without a deadline accepts.
    assert_eq!(kind(&registry, "greedy", None).await, Some(ErrorKind::UpstreamFailed));
    assert_eq!(kind(&registry, "greedier", Some(5 * SECOND)).await, Some(ErrorKind::UpstreamFailed));
    // A call with a deadline waits as long as the deadline permits.
    let began = Instant::now();
    assert_eq!(call(&registry, "patient", Some(60 * SECOND)).await.unwrap().meta.attempts, 2);
    assert_eq!(began.elapsed().as_secs(), 30);
    // The wait would exceed the deadline, so the failure is returned at once, with the upstream's wait.
    let began = Instant::now();
    let error = call(&registry, "cannot", Some(5 * SECOND)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::UpstreamFailed, Some(7 * SECOND)));
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_bulkhead_refuses_on_arrival_and_a_waiting_place_has_its_time() {
    let bulkhead = Concurrency { max: 1, queue: 1, wait: 2 * SECOND, per_caller: None };
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
    // The call's own deadline also applies in the queue. Another tool does not wait.
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
        Tool::new("objects", "…").call(|_, _| async {
            let text = || "top-secret-value".to_owned();
            let quoted = Violation { pointer: text(), keyword: text(), message: text(), schema_pointer: text() };
            Err::<String, _>(ToolError::InvalidArguments(vec![quoted]))
        }),
    ];
    let registry = registry(tools, 100);
    for tool in ["says", "refuses", "fails", "panics", "objects"] {
        let said = match call(&registry, tool, None).await {
            Ok(answer) => serde_json::to_string(&*answer.result).unwrap(),
            Err(error) => format!("{error} {} {error:?}", error.for_model()),
        };
        assert!(said.contains("[redacted]") && !said.contains("secret-value"), "{tool}: {said}");
    }
    let rows = registry.shared().ledger.list(&Query { limit: 10, ..Query::default() }).await.unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| !row.result.as_deref().unwrap_or_default().contains("secret-value")));
}

enum ToolOutput {
    Yes,
    Fails(ToolError),
    Hangs,
    Panics,
}

fn down() -> ToolOutput {
    ToolOutput::Fails(ToolError::upstream("down"))
}

fn limited(retryable: bool) -> ToolOutput {
    ToolOutput::Fails(ToolError::Upstream {
        message: "429".into(),
        retryable,
        down: false,
        untouched: false,
        retry_after: None,
    })
}

type Script = Arc<Mutex<Vec<ToolOutput>>>;

/// A registry with one tool `t` that follows the script, last line first, and then returns "yes". Also the counter of
/// its runs.
fn with_script(build: impl FnOnce(Tool<()>) -> Tool<()>) -> (Arc<Registry>, Script, Arc<AtomicUsize>) {
    let (script, ran) = (Script::default(), Arc::new(AtomicUsize::new(0)));
    let (lines, runs) = (script.clone(), ran.clone());
    let tool = build(Tool::new("t", "…").effect(Effect::Read)).call(move |_, _| {
        runs.fetch_add(1, Ordering::SeqCst);
        let next = lines.lock().unwrap().pop().unwrap_or(ToolOutput::Yes);
        async move {
            match next {
                ToolOutput::Yes => Ok("yes"),
                ToolOutput::Fails(error) => Err(error),
                ToolOutput::Hangs => std::future::pending().await,
                ToolOutput::Panics => panic!("at it"),
            }
        }
    });
    (registry([tool], 100), script, ran)
}

async fn open_it(registry: &Registry, script: &Mutex<Vec<ToolOutput>>) {
    script.lock().unwrap().extend((0..5).map(|_| down()));
    for _ in 0..5 {
        assert_eq!(kind(registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
    }
    assert_eq!(breaker(registry), ("open", 5));
}

fn breaker(registry: &Registry) -> (&'static str, u32) {
    let status = registry.get("t").unwrap().breaker().unwrap();
    (status.state.as_str(), status.failures)
}

const PART: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_are_a_rest_of_five_seconds_and_then_one_call_decides() {
    let limit = Limit { calls: 100, per: Per::Lifetime, scope: LimitScope::Tool };
    let (registry, script, ran) = with_script(|tool| tool.limit(limit).effect(Effect::Write));
    open_it(&registry, &script).await;
    tokio::time::advance(2 * SECOND).await;
    let error = call(&registry, "t", None).await.unwrap_err();
    assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::ToolUnavailable, true));
    assert_eq!((error.retry_after(), error.is_retryable_by_caller()), (Some(3 * SECOND), true));
    assert!(error.for_model().contains("did not run"), "{}", error.for_model());
    tokio::time::advance(3 * SECOND - PART).await;
    assert_eq!(call(&registry, "t", None).await.unwrap_err().retry_after(), Some(PART));
    assert_eq!((ran.load(Ordering::SeqCst), breaker(&registry)), (5, ("open", 5)));
    // The probe fails, and the circuit opens again.
    tokio::time::advance(PART).await;
    assert_eq!(breaker(&registry), ("half_open", 5));
    script.lock().unwrap().push(down());
    assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
    assert_eq!(breaker(&registry), ("open", 6));
    tokio::time::advance(5 * SECOND - PART).await;
    assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::ToolUnavailable));
    tokio::time::advance(PART).await;
    assert_eq!((kind(&registry, "t", None).await, breaker(&registry)), (None, ("closed", 0)));
    // A closed circuit starts from zero: it takes five failures to open again.
    script.lock().unwrap().extend((0..4).map(|_| down()));
    for _ in 0..4 {
        assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
    }
    assert_eq!((kind(&registry, "t", None).await, breaker(&registry)), (None, ("closed", 0)));
    let used = registry.used(&registry.get("t").unwrap(), &Caller::anonymous()).await.unwrap();
    assert_eq!(used[0].used as usize, ran.load(Ordering::SeqCst), "refused calls cost nothing");
    let states = states(&registry).await;
    assert_eq!(states.iter().filter(|state| **state == State::Refused).count(), 3, "and have their own row");
}

#[tokio::test(start_paused = true)]
async fn what_counts_is_that_the_runner_is_down_and_nothing_else() {
    let invalid = || ToolOutput::Fails(ToolError::InvalidArguments(Vec::new()));
    let (registry, script, ran) = with_script(|tool| tool.timeout(10 * SECOND));
    let after = async |said: ToolOutput, within: Option<Duration>| {
        // Four failures, then this outcome.
        let mut next = vec![said];
        next.extend((0..4).map(|_| down()));
        script.lock().unwrap().extend(next);
        for _ in 0..4 {
            kind(&registry, "t", None).await;
        }
        assert_eq!(breaker(&registry), ("closed", 4));
        let kind = kind(&registry, "t", within).await;
        let now = breaker(&registry);
        // A success resets the breaker for the next case.
        tokio::time::advance(5 * SECOND).await;
        assert!(call(&registry, "t", None).await.is_ok());
        (kind, now)
    };
    use ErrorKind::{AttemptTimedOut, BadOutput, DeadlineExceeded, InvalidArguments, ToolUnavailable, UpstreamFailed};
    let unavailable = ToolOutput::Fails(ToolError::unavailable("gone"));
    assert_eq!(after(unavailable, None).await, (Some(ToolUnavailable), ("open", 5)));
    assert_eq!(after(ToolOutput::Hangs, None).await, (Some(AttemptTimedOut), ("open", 5)));
    // These outcomes show that the runner is alive.
    assert_eq!(after(limited(true), None).await, (Some(UpstreamFailed), ("closed", 0)));
    assert_eq!(after(limited(false), None).await, (Some(UpstreamFailed), ("closed", 0)));
    assert_eq!(after(ToolOutput::Fails(ToolError::upstream_final("500")), None).await.1, ("closed", 0));
    assert_eq!(after(ToolOutput::Fails("no".into()), None).await, (None, ("closed", 0)));
    assert_eq!(after(ToolOutput::Panics, None).await, (None, ("closed", 0)));
    assert_eq!(after(invalid(), None).await, (Some(InvalidArguments), ("closed", 0)));
    assert_eq!(
        after(ToolOutput::Fails(ToolError::BadOutput("half".into())), None).await,
        (Some(BadOutput), ("closed", 0))
    );
    // This outcome shows nothing about the runner.
    assert_eq!(after(ToolOutput::Hangs, Some(SECOND)).await, (Some(DeadlineExceeded), ("closed", 4)));
    assert_eq!(ran.load(Ordering::SeqCst), 10 * 6);
}

#[tokio::test(start_paused = true)]
async fn one_probe_at_a_time_and_one_that_says_nothing_leaves_its_place() {
    let one = Concurrency { max: 1, queue: 0, wait: SECOND, per_caller: None };
    let (registry, script, ran) = with_script(|tool| tool.timeout(10 * SECOND).concurrency(one));
    open_it(&registry, &script).await;
    tokio::time::advance(5 * SECOND).await;
    // While a probe is under way, all other calls are refused.
    script.lock().unwrap().push(ToolOutput::Hangs);
    let probe = tokio::spawn({
        let registry = registry.clone();
        async move { kind(&registry, "t", None).await }
    });
    while ran.load(Ordering::SeqCst) < 6 {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        let error = call(&registry, "t", None).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::ToolUnavailable, Some(SECOND)));
    }
    assert_eq!((ran.load(Ordering::SeqCst), breaker(&registry)), (6, ("half_open", 5)));
    // The probe was canceled, so the next call is the probe at once.
    registry.shared().running.cancel_all();
    assert_eq!(probe.await.unwrap(), Some(ErrorKind::Cancelled));
    assert_eq!(breaker(&registry), ("half_open", 5));
    // The same holds for a probe that a lower layer refused, or that ended at its caller's deadline.
    let place = registry.shared().in_flight.clone().acquire_many_owned(100).await.unwrap();
    assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::Overloaded));
    drop(place);
    script.lock().unwrap().push(ToolOutput::Hangs);
    assert_eq!(kind(&registry, "t", Some(SECOND)).await, Some(ErrorKind::DeadlineExceeded));
    assert_eq!((ran.load(Ordering::SeqCst), breaker(&registry)), (7, ("half_open", 5)));
    assert!(call(&registry, "t", None).await.is_ok());
    assert_eq!(breaker(&registry), ("closed", 0));
}

#[tokio::test(start_paused = true)]
async fn a_stored_answer_is_served_while_the_breaker_is_open() {
    let (registry, script, ran) =
        with_script(|tool| tool.param_opt("n", "integer", "…").cache(Duration::from_secs(3600), &[]));
    assert!(call(&registry, "t", None).await.is_ok());
    let entry = registry.get("t").unwrap();
    let other = async || {
        let arguments = JsonObject::from_iter([("n".to_owned(), json!(1))]);
        let name = entry.definition.name.clone();
        let invocation = Invocation::new(name, arguments, Arc::new(Caller::anonymous()), Timestamp::now());
        registry.invoke(&entry, invocation).await
    };
    script.lock().unwrap().extend((0..5).map(|_| down()));
    for _ in 0..5 {
        assert!(other().await.is_err());
    }
    assert_eq!(other().await.unwrap_err().kind(), ErrorKind::ToolUnavailable);
    assert!(call(&registry, "t", None).await.is_ok(), "from the cache");
    assert_eq!(ran.load(Ordering::SeqCst), 6);
}

/// Claims to call other tools, and counts its runs.
struct Boss(Arc<AtomicUsize>);

#[async_trait]
impl Runner for Boss {
    async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::text(self.0.fetch_add(1, Ordering::SeqCst).to_string()))
    }

    fn calls_tools(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_about_with_fewer_levels_below_is_no_answer_further_up() {
    let ran = Arc::new(AtomicUsize::new(0));
    let tool = Tool::new("t", "…").effect(Effect::Read).cache(Duration::from_secs(60), &[]);
    let registry = registry([tool.with_runner(Arc::new(Boss(ran.clone())))], 100);
    let entry = registry.get("t").unwrap();
    let with = async |levels: Option<u32>| {
        let name = entry.definition.name.clone();
        let caller = Arc::new(Caller::anonymous());
        let mut invocation = Invocation::new(name, JsonObject::new(), caller, Timestamp::now());
        invocation.lineage.levels = levels;
        registry.invoke(&entry, invocation).await.unwrap().result
    };
    for levels in [Some(1), None, Some(2), Some(1), None] {
        with(levels).await;
    }
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    assert_eq!(with(None).await, with(None).await);
}

#[tokio::test]
async fn arguments_reach_the_tool_uncopied() {
    let tool = Tool::new("t", "…").effect(Effect::Read).param("text", "string", "Any.");
    let registry = registry(
        [tool.call(|arguments, _| async move {
            let text = arguments["text"].as_str().unwrap_or_default();
            Ok(text.as_ptr().addr().to_string())
        })],
        100,
    );
    let entry = registry.get("t").unwrap();
    // The first text is validated in place, the other one on a thread of the pool.
    for length in [10, 100_000] {
        let text = "x".repeat(length);
        let at = text.as_ptr().addr().to_string();
        let arguments = JsonObject::from_iter([("text".to_owned(), text.into())]);
        let (name, caller) = (entry.definition.name.clone(), Arc::new(Caller::anonymous()));
        let invocation = Invocation::new(name, arguments, caller, Timestamp::now());
        let answer = registry.invoke(&entry, invocation).await.unwrap();
        assert_eq!(*answer.result, ToolResult::text(at), "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_call_is_one_failure_however_often_it_was_tried() {
    let (registry, script, ran) = with_script(|tool| tool.attempts(3));
    script.lock().unwrap().extend((0..12).map(|_| down()));
    for _ in 0..4 {
        assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
    }
    assert_eq!((ran.load(Ordering::SeqCst), breaker(&registry)), (12, ("closed", 4)));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_stays_down_is_asked_once_a_call_when_its_budget_is_used_up() {
    // The budget is enough for a hundred retries if no tokens return.
    let (registry, script, ran) = with_script(|tool| tool.attempts(3));
    for _ in 0..60 {
        script.lock().unwrap().extend((0..3).map(|_| limited(true)));
        assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
    }
    assert_eq!(ran.load(Ordering::SeqCst), 50 * 3 + 10);
}

#[tokio::test(start_paused = true)]
async fn a_try_that_is_cut_off_is_on_record_too() {
    let tools = [
        pends(endless("late").timeout(10 * SECOND).attempts(3).deadline(15 * SECOND)),
        pends(endless("stopped").timeout(10 * SECOND)),
    ];
    let registry = registry(tools, 100);
    let tries = async |state: State| {
        let ledger = &registry.shared().ledger;
        let rows = ledger.list(&Query { limit: 1, state: Some(state), ..Query::default() }).await.unwrap();
        let found = ledger.get(rows[0].id).await.unwrap().unwrap();
        let of = |row: &AttemptRow| (row.attempt, row.kind, row.duration_us / 1_000_000);
        (rows[0].attempts, found.attempts.iter().map(of).collect::<Vec<_>>())
    };
    assert_eq!(kind(&registry, "late", None).await, Some(ErrorKind::DeadlineExceeded));
    let (attempts, failed) = tries(State::TimedOut).await;
    assert_eq!((attempts, failed[0]), (2, (1, ErrorKind::AttemptTimedOut, 10)));
    assert_eq!((failed[1].0, failed[1].1, failed.len()), (2, ErrorKind::DeadlineExceeded, 2));
    let stopped = tokio::spawn({
        let registry = registry.clone();
        async move { kind(&registry, "stopped", None).await }
    });
    tokio::time::sleep(2 * SECOND).await;
    registry.shared().running.cancel_all();
    assert_eq!(stopped.await.unwrap(), Some(ErrorKind::Cancelled));
    assert_eq!(tries(State::Cancelled).await, (1, vec![(1, ErrorKind::Cancelled, 2)]));
}

async fn used(registry: &Registry, tool: &str) -> u64 {
    let entry = registry.get(tool).unwrap();
    registry.used(&entry, &Caller::anonymous()).await.unwrap()[0].used
}

/// A write that has a limit, and that waits for a permit before it runs.
fn write_that_waits() -> (Arc<Registry>, Arc<Semaphore>) {
    let free = Arc::new(Semaphore::new(0));
    let wanted = free.clone();
    let limit = Limit { calls: 10, per: Per::Lifetime, scope: LimitScope::Tool };
    let tool = Tool::new("writes", "…").limit(limit).call(move |_, context| {
        let wanted = wanted.clone();
        async move {
            context.waiting(wanted.acquire()).await.map_err(|_| ToolError::unavailable("closed"))?.forget();
            std::future::pending::<()>().await;
            Ok("never")
        }
    });
    (registry([tool], 10), free)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_cancelled_while_it_waits_for_something_to_run_on_was_not_tried() {
    for (has_begun, state, attempts, units) in [(false, State::Cancelled, 0, 0), (true, State::Unknown, 1, 1)] {
        let (registry, free) = write_that_waits();
        let call = tokio::spawn({
            let registry = registry.clone();
            async move { call(&registry, "writes", None).await }
        });
        free.add_permits(usize::from(has_begun));
        tokio::time::sleep(SECOND).await;
        registry.shared().running.cancel_all();
        match call.await.unwrap() {
            Err(CallError::Cancelled { started }) => assert_eq!(started, has_begun),
            other => panic!("{other:?}"),
        }
        let ledger = &registry.shared().ledger;
        let row = ledger.list(&Query { limit: 1, ..Query::default() }).await.unwrap().remove(0);
        assert_eq!((row.state, row.attempts), (state, attempts));
        let tries = ledger.get(row.id).await.unwrap().unwrap().attempts;
        assert_eq!(tries.len(), usize::from(has_begun));
        assert_eq!(used(&registry, "writes").await, units);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_leaves_while_it_waits_for_something_to_run_on_never_runs() {
    let (registry, free) = write_that_waits();
    let left = tokio::time::timeout(SECOND, call(&registry, "writes", None)).await;
    assert!(left.is_err());
    assert_eq!(states(&registry).await, [State::Cancelled], "though a write that has begun is let finish");
    free.add_permits(1);
    tokio::time::sleep(SECOND).await;
    assert_eq!((free.available_permits(), used(&registry, "writes").await), (1, 0));
}

#[tokio::test]
async fn an_escape_sequence_does_not_hide_a_secret() {
    let tool = Tool::new("leaks", "…").effect(Effect::Read);
    let registry = registry([tool.call(|_, _| async { Ok("top-\u{1b}[1msecret\u{1b}[0m-value\u{8}") })], 10);
    assert_eq!(call(&registry, "leaks", None).await.unwrap().result.as_text(), "[redacted]");
}

#[tokio::test(start_paused = true)]
async fn successes_fill_the_retry_budget() {
    let (registry, script, ran) = with_script(|tool| tool.attempts(2));
    let fails_twice = async || {
        script.lock().unwrap().extend([limited(true), limited(true)]);
        assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
        script.lock().unwrap().clear();
    };
    for _ in 0..100 {
        fails_twice().await;
    }
    let attempts_of_the_next = async || {
        let before = ran.load(Ordering::SeqCst);
        fails_twice().await;
        ran.load(Ordering::SeqCst) - before
    };
    assert_eq!(attempts_of_the_next().await, 1, "the budget is used up");
    // A retry costs five tokens; a call that succeeds at its first attempt returns one.
    for _ in 0..4 {
        assert!(call(&registry, "t", None).await.is_ok());
    }
    assert_eq!(attempts_of_the_next().await, 1);
    for _ in 0..5 {
        assert!(call(&registry, "t", None).await.is_ok());
    }
    assert_eq!(attempts_of_the_next().await, 2);
}

fn invocation_of(registry: &Registry, tool: &str) -> Invocation {
    let name = registry.get(tool).unwrap().definition.name.clone();
    Invocation::new(name, JsonObject::new(), Arc::new(Caller::anonymous()), Timestamp::now())
}

#[tokio::test(start_paused = true)]
async fn write_without_caller_is_not_started() {
    let ran = Arc::new(AtomicUsize::new(0));
    let runs = ran.clone();
    let limit = Limit { calls: 10, per: Per::Lifetime, scope: LimitScope::Tool };
    let tool = Tool::new("writes", "…").effect(Effect::Write).limit(limit).call(move |_, _| {
        runs.fetch_add(1, Ordering::SeqCst);
        async { Ok("done") }
    });
    let registry = registry([tool], 10);
    let invocation = invocation_of(&registry, "writes");
    let notes = invocation.notes.clone();
    // The reservation must wait for this lock. Meanwhile the caller disconnects.
    let held = notes.reserving.lock().await;
    let entry = registry.get("writes").unwrap();
    assert!(tokio::time::timeout(SECOND, registry.invoke(&entry, invocation)).await.is_err());
    drop(held);
    assert_eq!(states(&registry).await, [State::Cancelled]);
    assert_eq!((ran.load(Ordering::SeqCst), used(&registry, "writes").await), (0, 0));
}

async fn keyed(registry: &Registry, key: &str) -> Result<Answer, CallError> {
    let mut invocation = invocation_of(registry, "t");
    invocation.key = Some(IdempotencyKey::parse(key.as_bytes()).unwrap());
    registry.invoke(&registry.get("t").unwrap(), invocation).await
}

#[tokio::test(start_paused = true)]
async fn cancelled_read_gives_its_key_back() {
    let (registry, script, ran) = with_script(|tool| tool);
    script.lock().unwrap().push(ToolOutput::Hangs);
    let running = tokio::spawn({
        let registry = registry.clone();
        async move { keyed(&registry, "k").await.map(|answer| answer.replayed) }
    });
    tokio::time::sleep(SECOND).await;
    registry.shared().running.cancel_all();
    assert_eq!(running.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    let answer = keyed(&registry, "k").await.unwrap();
    assert!(!answer.replayed && ran.load(Ordering::SeqCst) == 2, "the same key runs the read again");
    assert!(keyed(&registry, "k").await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn key_stays_when_an_attempt_had_effect() {
    let refused = || ToolOutput::Fails(ToolError::upstream("connection refused").before_anything());
    // The last line runs first: one attempt reached the upstream, the next one did not.
    for (script_lines, keeps) in [(vec![refused(), down()], true), (vec![refused()], false)] {
        let attempts = u32::try_from(script_lines.len()).unwrap();
        let (registry, script, ran) = with_script(|tool| tool.effect(Effect::Idempotent).attempts(attempts));
        script.lock().unwrap().extend(script_lines);
        let first = keyed(&registry, "k").await.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::UpstreamFailed);
        let runs = ran.load(Ordering::SeqCst);
        let again = keyed(&registry, "k").await;
        let ran_again = ran.load(Ordering::SeqCst) > runs;
        assert_eq!((again.is_err(), ran_again), (keeps, !keeps), "{attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_and_rows_tell_the_duration() {
    let limit = Limit { calls: 9, per: Per::Lifetime, scope: LimitScope::Tool };
    let tool = Tool::new("slow", "…").effect(Effect::Read).limit(limit).call(|_, _| async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        Ok("done")
    });
    let registry = registry([tool], 10);
    let answer = call(&registry, "slow", None).await.unwrap();
    assert!((250.0..260.0).contains(&answer.meta.duration_ms), "{}", answer.meta.duration_ms);
    assert_eq!(answer.meta.usage.len(), 1);
    let rows = registry.shared().ledger.list(&Query { limit: 9, ..Query::default() }).await.unwrap();
    assert_eq!(rows[0].duration_us, Some((answer.meta.duration_ms * 1e3) as i64));
    assert_eq!(rows[0].attempts, 1);
    assert!(rows[0].result.is_some() && rows[0].meta.is_some());
}

#[tokio::test(start_paused = true)]
async fn writes_are_reserved_and_reads_are_not() {
    for (effect, states) in [(Effect::Write, vec![State::Reserved]), (Effect::Read, vec![])] {
        let (registry, script, _) = with_script(|tool| tool.effect(effect));
        script.lock().unwrap().push(ToolOutput::Hangs);
        let running = tokio::spawn({
            let registry = registry.clone();
            async move { call(&registry, "t", None).await.map(drop) }
        });
        tokio::time::sleep(SECOND).await;
        let rows = registry.shared().ledger.list(&Query { limit: 9, ..Query::default() }).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.state).collect::<Vec<_>>(), states);
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn final_failures_are_not_tried_again() {
    let (registry, script, ran) = with_script(|tool| tool.attempts(3));
    script.lock().unwrap().push(ToolOutput::Fails(ToolError::upstream_final("no")));
    assert_eq!(kind(&registry, "t", None).await, Some(ErrorKind::UpstreamFailed));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let (registry, script, ran) = with_script(|tool| tool.attempts(2));
    script.lock().unwrap().push(down());
    assert!(call(&registry, "t", None).await.is_ok());
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn tools_that_say_no_have_failed() {
    let (registry, script, _) = with_script(|tool| tool);
    script.lock().unwrap().push(ToolOutput::Fails(ToolError::Said("no".into())));
    assert!(call(&registry, "t", None).await.unwrap().result.is_error);
    assert!(!call(&registry, "t", None).await.unwrap().result.is_error);
    assert_eq!(states(&registry).await, [State::Succeeded, State::Failed]);
}

#[tokio::test(start_paused = true)]
async fn failures_that_a_key_repeats_are_no_reason_to_try_again() {
    let (registry, script, _) = with_script(|tool| tool.effect(Effect::Write));
    script.lock().unwrap().push(down());
    let error = keyed(&registry, "k").await.unwrap_err();
    assert!(matches!(error, CallError::Kept { again: false, .. }), "{error:?}");
    assert!(!error.is_retryable_by_caller());
    assert!(matches!(keyed(&registry, "k").await, Err(CallError::Kept { again: true, .. })));
}
