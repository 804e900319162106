//! Tests of the stack with a ledger in memory. The clock moves whenever all tasks wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::access::callers::Callers;
use crate::approval::table::WaitingCalls;
use crate::cache::ResultCache;
use crate::call::{
    Answer, CallError, Caller, Capture, Clock, Concurrency, DigestKey, Effect, ErrorKind,
    IdempotencyKey, Invocation, JsonObject, Limit, LimitScope, Per, Services, ToolContext,
    ToolError, ToolResult, UpstreamFailure, Violation,
};
use crate::catalog::registry::Registry;
use crate::kinds::{Runner, RunnerTraits, Tool};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{AttemptRow, Ledger, Query, State};
use crate::log::CallLog;
use crate::metrics::Metrics;
use crate::secrets::Redactor;
use crate::stack::order::SharedParts;
use crate::stack::replay::ReplayCache;
use crate::stack::validation_pool::ValidationPool;
use crate::tracking::in_flight::InFlightCalls;
use crate::tracking::questions::Questions;
use crate::tracking::runs::Runs;

#[path = "../approval/stack_tests.rs"]
mod approvals;
#[path = "bound_tests.rs"]
mod bounds;
#[path = "cancelled_tests.rs"]
mod cancelled;
#[path = "circuit_tests.rs"]
mod circuit;
#[path = "end_tests.rs"]
mod ends;
#[path = "../approval/webhooks/stack_tests.rs"]
mod webhooks;

fn registry(tools: impl IntoIterator<Item = Tool>, in_flight: usize) -> Arc<Registry> {
    registry_over(tools, in_flight, |shared| shared)
}

fn registry_over(
    tools: impl IntoIterator<Item = Tool>,
    in_flight: usize,
    change: impl FnOnce(SharedParts) -> SharedParts,
) -> Arc<Registry> {
    let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::default());
    let clock = Clock::manual(Timestamp::UNIX_EPOCH).0;
    let shared = SharedParts {
        cache: ResultCache::new(1 << 20, ledger.clone(), None, clock.clone()),
        replay_cache: ReplayCache::default(),
        ledger,
        in_flight_calls: InFlightCalls::default(),
        waiting_calls: WaitingCalls::default(),
        questions: Questions::default(),
        approval_notices: None,
        public_url: None,
        runs: Runs::new(clock.clone()),
        global_permits: Arc::new(Semaphore::new(in_flight)),
        validation_pool: ValidationPool::default(),
        redactor: Arc::new(Redactor::new(["top-secret-value"])),
        clock,
        reference_above: None,
        capture: Capture::Full,
        digest_key: DigestKey::random().unwrap(),
        call_log: CallLog::off(),
        metrics: Metrics::new().unwrap(),
        telemetry: None,
    };
    let registry = Registry::new(
        change(shared),
        Arc::new(Callers::default()),
        Services::default(),
    );
    for tool in tools {
        registry.register(tool).unwrap();
    }
    Arc::new(registry)
}

async fn call(
    registry: &Registry,
    tool: &str,
    within: Option<Duration>,
) -> Result<Answer, CallError> {
    let entry = registry.get(tool).unwrap();
    let caller = Arc::new(Caller::anonymous());
    let name = entry.definition.name.clone();
    let mut invocation = Invocation::new(name, JsonObject::new(), caller, Timestamp::now());
    if let Some(within) = within {
        let end = invocation.timing.started + within;
        invocation.timing.shorten_deadline(end);
    }
    registry.invoke(&entry, invocation).await
}

async fn error_kind(
    registry: &Registry,
    tool: &str,
    within: Option<Duration>,
) -> Option<ErrorKind> {
    call(registry, tool, within)
        .await
        .err()
        .map(|error| error.kind())
}

async fn final_states(registry: &Registry) -> Vec<State> {
    registry.shared().in_flight_calls.close();
    registry.shared().in_flight_calls.wait_until_empty().await;
    let rows = registry
        .shared()
        .ledger
        .list_calls(&Query {
            limit: 100,
            ..Query::default()
        })
        .await
        .unwrap();
    rows.into_iter().map(|row| row.state).collect()
}

const SECOND: Duration = Duration::from_secs(1);

fn endless_tool(name: &str) -> Tool<()> {
    Tool::new(name, "Never ends.").effect(Effect::Read)
}

fn with_endless_call(tool: Tool<()>) -> Tool {
    tool.call(|_, _| async {
        std::future::pending::<()>().await;
        Ok("never")
    })
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_and_call_deadline_both_apply() {
    let tools = [
        with_endless_call(endless_tool("once").timeout(10 * SECOND)),
        with_endless_call(endless_tool("thrice").timeout(10 * SECOND).attempts(3)),
        with_endless_call(
            endless_tool("bounded")
                .timeout(10 * SECOND)
                .attempts(3)
                .deadline(15 * SECOND),
        ),
        with_endless_call(
            endless_tool("writes")
                .timeout(10 * SECOND)
                .effect(Effect::Write),
        ),
    ];
    let registry = registry(tools, 100);
    let timed = async |tool: &str, within| {
        let began = Instant::now();
        let error_kind = error_kind(&registry, tool, within).await;
        (error_kind, began.elapsed().as_secs())
    };
    assert_eq!(
        timed("once", None).await,
        (Some(ErrorKind::AttemptTimedOut), 10)
    );
    assert_eq!(
        timed("once", Some(3 * SECOND)).await,
        (Some(ErrorKind::DeadlineExceeded), 3)
    );
    let (error_kind, seconds) = timed("thrice", None).await;
    assert!(
        error_kind == Some(ErrorKind::AttemptTimedOut) && (30..32).contains(&seconds),
        "{seconds}"
    );
    assert_eq!(
        timed("bounded", None).await,
        (Some(ErrorKind::DeadlineExceeded), 15)
    );
    assert_eq!(
        timed("writes", None).await,
        (Some(ErrorKind::AttemptTimedOut), 10)
    );
    use State::{TimedOut, Unknown};
    assert_eq!(
        final_states(&registry).await,
        [Unknown, TimedOut, TimedOut, TimedOut, TimedOut]
    );
}

#[tokio::test(start_paused = true)]
async fn retry_waits_for_the_upstreams_retry_after() {
    let busy = |name: &str, wait: Duration| {
        let made_attempts = AtomicUsize::new(0);
        Tool::new(name, "…")
            .effect(Effect::Read)
            .attempts(2)
            .call(move |_, _| {
                let first = made_attempts.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    let (message, retryable, unavailable) = ("busy".to_owned(), true, false);
                    let busy = ToolError::Upstream(UpstreamFailure {
                        message,
                        retryable,
                        unavailable,
                        not_delivered: false,
                        retry_after: Some(wait),
                        cause: None,
                    });
                    if first { Err(busy) } else { Ok("yes") }
                }
            })
    };
    let (waits, cannot, patient) = (
        busy("waits", 7 * SECOND),
        busy("cannot", 7 * SECOND),
        busy("patient", 30 * SECOND),
    );
    let greedy = [
        busy("greedy", Duration::MAX),
        busy("greedier", Duration::MAX),
    ];
    let registry = registry([waits, cannot, patient].into_iter().chain(greedy), 100);
    let began = Instant::now();
    assert_eq!(
        call(&registry, "waits", None).await.unwrap().meta.attempts,
        2
    );
    assert_eq!(began.elapsed().as_secs(), 7);
    // A longer wait than a call without a deadline accepts.
    assert_eq!(
        error_kind(&registry, "greedy", None).await,
        Some(ErrorKind::UpstreamFailed)
    );
    assert_eq!(
        error_kind(&registry, "greedier", Some(5 * SECOND)).await,
        Some(ErrorKind::UpstreamFailed)
    );
    // A call with a deadline waits as long as the deadline permits.
    let began = Instant::now();
    assert_eq!(
        call(&registry, "patient", Some(60 * SECOND))
            .await
            .unwrap()
            .meta
            .attempts,
        2
    );
    assert_eq!(began.elapsed().as_secs(), 30);
    // The wait would exceed the deadline, so the failure is returned at once, with the upstream's
    // wait.
    let began = Instant::now();
    let error = call(&registry, "cannot", Some(5 * SECOND))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after()),
        (ErrorKind::UpstreamFailed, Some(7 * SECOND))
    );
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn full_bulkhead_refuses_and_queue_times_out() {
    let bulkhead = Concurrency {
        max: 1,
        queue: 1,
        wait: 2 * SECOND,
        per_caller: None,
    };
    let limit = Limit {
        calls: 100,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let tools = [
        with_endless_call(endless_tool("full").concurrency(bulkhead).limit(limit)),
        with_endless_call(endless_tool("other")),
    ];
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
    assert_eq!(
        spawn(Some(SECOND)).await.unwrap(),
        (ErrorKind::DeadlineExceeded, 1)
    );
    assert_eq!(
        error_kind(&registry, "other", Some(SECOND)).await,
        Some(ErrorKind::DeadlineExceeded)
    );
    assert_eq!(running.await.unwrap(), (ErrorKind::AttemptTimedOut, 30));
    let entry = registry.get("full").unwrap();
    let units_used = registry
        .limit_usage(&entry, &Caller::anonymous())
        .await
        .unwrap();
    assert_eq!(units_used[0].used, 1, "only the call that ran is charged");
}

#[tokio::test(start_paused = true)]
async fn global_permits_bound_all_tools() {
    let registry = registry(
        [
            with_endless_call(endless_tool("a")),
            with_endless_call(endless_tool("b")),
        ],
        1,
    );
    let guard = tokio::spawn({
        let registry = registry.clone();
        async move { error_kind(&registry, "a", Some(60 * SECOND)).await }
    });
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        error_kind(&registry, "b", None).await,
        Some(ErrorKind::Overloaded)
    );
    guard.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn expired_call_is_not_run_or_charged() {
    let ran = Arc::new(AtomicBool::new(false));
    let seen = ran.clone();
    let limit = Limit {
        calls: 1,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let tool = Tool::new("t", "…").limit(limit).call(move |_, _| {
        seen.store(true, Ordering::SeqCst);
        async { Ok("ran") }
    });
    let registry = registry([tool], 100);
    assert_eq!(
        error_kind(&registry, "t", Some(Duration::ZERO)).await,
        Some(ErrorKind::DeadlineExceeded)
    );
    assert!(!ran.load(Ordering::SeqCst));
    assert!(
        call(&registry, "t", None).await.is_ok(),
        "the unit was given back"
    );
}

#[tokio::test(start_paused = true)]
async fn draining_service_refuses_and_records_calls() {
    let registry = registry([with_endless_call(endless_tool("t"))], 100);
    let running = tokio::spawn({
        let registry = registry.clone();
        async move { error_kind(&registry, "t", None).await }
    });
    tokio::time::sleep(SECOND).await;
    registry.shared().in_flight_calls.close();
    assert_eq!(
        error_kind(&registry, "t", None).await,
        Some(ErrorKind::Draining)
    );
    registry.shared().in_flight_calls.cancel_all();
    assert_eq!(running.await.unwrap(), Some(ErrorKind::Cancelled));
    assert_eq!(final_states(&registry).await, [State::Cancelled]);
}

#[tokio::test]
async fn secrets_are_redacted_from_tool_output() {
    let tools = [
        Tool::new("says", "…")
            .call(|_, _| async { Ok(json!({"header": "Bearer top-secret-value"})) }),
        Tool::new("refuses", "…")
            .call(|_, _| async { Err::<String, _>("bad key top-secret-value".into()) }),
        Tool::new("fails", "…")
            .call(|_, _| async { Err::<String, _>(ToolError::upstream("no top-secret-value")) }),
        Tool::new("panics", "…").call(|_, _| async {
            if true {
                panic!("at top-secret-value")
            } else {
                Ok("")
            }
        }),
        Tool::new("objects", "…").call(|_, _| async {
            let text = || "top-secret-value".to_owned();
            let quoted = Violation {
                pointer: text(),
                keyword: text(),
                message: text(),
                schema_pointer: text(),
            };
            Err::<String, _>(ToolError::InvalidArguments(vec![quoted]))
        }),
    ];
    let registry = registry(tools, 100);
    for tool in ["says", "refuses", "fails", "panics", "objects"] {
        let output = match call(&registry, tool, None).await {
            Ok(answer) => serde_json::to_string(&*answer.result).unwrap(),
            Err(error) => format!("{error} {} {error:?}", error.for_model()),
        };
        assert!(
            output.contains("[redacted]") && !output.contains("secret-value"),
            "{tool}: {output}"
        );
    }
    let rows = registry
        .shared()
        .ledger
        .list_calls(&Query {
            limit: 10,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| {
        !row.result
            .as_deref()
            .unwrap_or_default()
            .contains("secret-value")
    }));
}

enum ToolOutput {
    Yes,
    Fails(ToolError),
    Hangs,
    Panics,
}

fn backend_down() -> ToolOutput {
    ToolOutput::Fails(ToolError::upstream("down"))
}

fn rate_limited(retryable: bool) -> ToolOutput {
    ToolOutput::Fails(ToolError::Upstream(UpstreamFailure {
        message: "429".into(),
        retryable,
        unavailable: false,
        not_delivered: false,
        retry_after: None,
        cause: None,
    }))
}

const PART: Duration = Duration::from_millis(1);

type Script = Arc<Mutex<Vec<ToolOutput>>>;

fn breaker(registry: &Registry) -> (&'static str, u32) {
    let status = registry.get("t").unwrap().breaker_status().unwrap();
    (status.state.as_str(), status.failures)
}

/// A registry with one tool `t` that follows the script, last line first, and then returns "yes".
/// Also the counter of its runs.
fn scripted_registry(
    build: impl FnOnce(Tool<()>) -> Tool<()>,
) -> (Arc<Registry>, Script, Arc<AtomicUsize>) {
    let (script, ran) = (Script::default(), Arc::new(AtomicUsize::new(0)));
    let (lines, runs) = (script.clone(), ran.clone());
    let tool = build(Tool::new("t", "…").effect(Effect::Read)).call(move |_, _| {
        runs.fetch_add(1, Ordering::SeqCst);
        let next = lines.lock().pop().unwrap_or(ToolOutput::Yes);
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

/// Claims to call other tools, and counts its runs.
struct Boss(Arc<AtomicUsize>);

#[async_trait]
impl Runner for Boss {
    async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::text(
            self.0.fetch_add(1, Ordering::SeqCst).to_string(),
        ))
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            calls_tools: true,
            may_ask: true,
            ..RunnerTraits::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cached_result_depends_on_remaining_depth() {
    let ran = Arc::new(AtomicUsize::new(0));
    let tool = Tool::new("t", "…")
        .effect(Effect::Read)
        .cache(Duration::from_secs(60), &[]);
    let registry = registry([tool.with_runner(Arc::new(Boss(ran.clone())))], 100);
    let entry = registry.get("t").unwrap();
    let with = async |levels: Option<u32>| {
        let name = entry.definition.name.clone();
        let caller = Arc::new(Caller::anonymous());
        let mut invocation = Invocation::new(name, JsonObject::new(), caller, Timestamp::now());
        invocation.call_chain.remaining_depth = levels;
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
    let tool = Tool::new("t", "…")
        .effect(Effect::Read)
        .param("text", "string", "Any.");
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
async fn retried_call_counts_as_one_failure() {
    let (registry, script, ran) = scripted_registry(|tool| tool.attempts(3));
    script.lock().extend((0..12).map(|_| backend_down()));
    for _ in 0..4 {
        assert_eq!(
            error_kind(&registry, "t", None).await,
            Some(ErrorKind::UpstreamFailed)
        );
    }
    assert_eq!(
        (ran.load(Ordering::SeqCst), breaker(&registry)),
        (12, ("closed", 4))
    );
}

#[tokio::test(start_paused = true)]
async fn call_that_ran_once_stays_charged_although_its_last_attempt_did_not_start() {
    let limit = Limit {
        calls: 5,
        per: Per::Day,
        scope: LimitScope::Tool,
    };
    for (first, state, units) in [
        (Some(backend_down()), State::Failed, 1),
        (None, State::Refused, 0),
    ] {
        let (registry, script, ran) =
            scripted_registry(|tool| tool.attempts(2).limit(limit.clone()));
        let not_started =
            || ToolOutput::Fails(ToolError::unavailable_before_start("its worker died", None));
        script.lock().push(not_started());
        script.lock().push(first.unwrap_or_else(not_started));
        match call(&registry, "t", None).await {
            Err(CallError::ToolUnavailable { started, .. }) => assert_eq!(started, units > 0),
            other => panic!("{other:?}"),
        }
        assert_eq!(final_states(&registry).await, [state]);
        assert_eq!(units_used(&registry, "t").await, units);
        assert_eq!(ran.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn empty_retry_budget_stops_retries() {
    // The budget is enough for a hundred retries if no tokens return.
    let (registry, script, ran) = scripted_registry(|tool| tool.attempts(3));
    for _ in 0..60 {
        script.lock().extend((0..3).map(|_| rate_limited(true)));
        assert_eq!(
            error_kind(&registry, "t", None).await,
            Some(ErrorKind::UpstreamFailed)
        );
    }
    assert_eq!(ran.load(Ordering::SeqCst), 50 * 3 + 10);
}

async fn units_used(registry: &Registry, tool: &str) -> u64 {
    let entry = registry.get(tool).unwrap();
    registry
        .limit_usage(&entry, &Caller::anonymous())
        .await
        .unwrap()[0]
        .used
}

#[tokio::test]
async fn escape_sequence_does_not_hide_a_secret() {
    let tool = Tool::new("leaks", "…").effect(Effect::Read);
    let registry = registry(
        [tool.call(|_, _| async { Ok("top-\u{1b}[1msecret\u{1b}[0m-value\u{8}") })],
        10,
    );
    assert_eq!(
        call(&registry, "leaks", None)
            .await
            .unwrap()
            .result
            .as_text(),
        "[redacted]"
    );
}

#[tokio::test(start_paused = true)]
async fn successes_refill_the_retry_budget() {
    let (registry, script, ran) = scripted_registry(|tool| tool.attempts(2));
    let fails_twice = async || {
        script
            .lock()
            .extend([rate_limited(true), rate_limited(true)]);
        assert_eq!(
            error_kind(&registry, "t", None).await,
            Some(ErrorKind::UpstreamFailed)
        );
        script.lock().clear();
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
    Invocation::new(
        name,
        JsonObject::new(),
        Arc::new(Caller::anonymous()),
        Timestamp::now(),
    )
}

async fn call_with_key(registry: &Registry, key: &str) -> Result<Answer, CallError> {
    let mut invocation = invocation_of(registry, "t");
    invocation.idempotency_key = Some(IdempotencyKey::parse(key.as_bytes()).unwrap());
    registry
        .invoke(&registry.get("t").unwrap(), invocation)
        .await
}

#[tokio::test(start_paused = true)]
async fn key_stays_if_an_attempt_had_effect() {
    let refused = || ToolOutput::Fails(ToolError::upstream("connection refused").not_delivered());
    // The last line runs first: one attempt reached the upstream, the next one did not.
    for (script_lines, keeps) in [
        (vec![refused(), backend_down()], true),
        (vec![refused()], false),
    ] {
        let attempts = u32::try_from(script_lines.len()).unwrap();
        let (registry, script, ran) =
            scripted_registry(|tool| tool.effect(Effect::Idempotent).attempts(attempts));
        script.lock().extend(script_lines);
        let first = call_with_key(&registry, "k").await.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::UpstreamFailed);
        let runs = ran.load(Ordering::SeqCst);
        let replay = call_with_key(&registry, "k").await;
        let ran_again = ran.load(Ordering::SeqCst) > runs;
        assert_eq!(
            (replay.is_err(), ran_again),
            (keeps, !keeps),
            "{attempts} attempts"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn answers_and_rows_have_the_duration() {
    let limit = Limit {
        calls: 9,
        per: Per::Lifetime,
        scope: LimitScope::Tool,
    };
    let tool = Tool::new("slow", "…")
        .effect(Effect::Read)
        .limit(limit)
        .call(|_, _| async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            Ok("done")
        });
    let registry = registry([tool], 10);
    let answer = call(&registry, "slow", None).await.unwrap();
    assert!(
        (250.0..260.0).contains(&answer.meta.duration_ms),
        "{}",
        answer.meta.duration_ms
    );
    assert_eq!(answer.meta.usage.len(), 1);
    let rows = registry
        .shared()
        .ledger
        .list_calls(&Query {
            limit: 9,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!(
        rows[0].duration_us,
        Some((answer.meta.duration_ms * 1e3) as i64)
    );
    assert_eq!(rows[0].attempts, 1);
    assert!(rows[0].result.is_some() && rows[0].meta.is_some());
}

#[tokio::test(start_paused = true)]
async fn writes_are_reserved_and_reads_not() {
    for (effect, final_states) in [
        (Effect::Write, vec![State::Reserved]),
        (Effect::Read, vec![]),
    ] {
        let (registry, script, _) = scripted_registry(|tool| tool.effect(effect));
        script.lock().push(ToolOutput::Hangs);
        let running = tokio::spawn({
            let registry = registry.clone();
            async move { call(&registry, "t", None).await.map(drop) }
        });
        tokio::time::sleep(SECOND).await;
        let rows = registry
            .shared()
            .ledger
            .list_calls(&Query {
                limit: 9,
                ..Query::default()
            })
            .await
            .unwrap();
        assert_eq!(
            rows.iter().map(|row| row.state).collect::<Vec<_>>(),
            final_states
        );
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_not_retried() {
    let (registry, script, ran) = scripted_registry(|tool| tool.attempts(3));
    script
        .lock()
        .push(ToolOutput::Fails(ToolError::upstream_permanent("no")));
    assert_eq!(
        error_kind(&registry, "t", None).await,
        Some(ErrorKind::UpstreamFailed)
    );
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let (registry, script, ran) = scripted_registry(|tool| tool.attempts(2));
    script.lock().push(backend_down());
    assert!(call(&registry, "t", None).await.is_ok());
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn rejected_calls_count_as_failed() {
    let (registry, script, _) = scripted_registry(|tool| tool);
    script
        .lock()
        .push(ToolOutput::Fails(ToolError::ErrorResult("no".into())));
    assert!(call(&registry, "t", None).await.unwrap().result.is_error);
    assert!(!call(&registry, "t", None).await.unwrap().result.is_error);
    assert_eq!(
        final_states(&registry).await,
        [State::Succeeded, State::Failed]
    );
}

#[tokio::test(start_paused = true)]
async fn stored_failures_are_not_retryable() {
    let (registry, script, _) = scripted_registry(|tool| tool.effect(Effect::Write));
    script.lock().push(backend_down());
    let error = call_with_key(&registry, "k").await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::StoredFailure {
                replayed: false,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.is_retryable_by_caller());
    assert!(matches!(
        call_with_key(&registry, "k").await,
        Err(CallError::StoredFailure { replayed: true, .. })
    ));
}
