//! Refuses calls of a tool for some seconds while its runner is unavailable.
//!
//! After five failures of the runner in a row, the circuit opens and calls are refused for five seconds. Then one call
//! passes as the probe, and its end closes the circuit or opens it again. This layer is below the cache, so stored
//! results are still served. It is above the bulkhead, so a refused call takes no permit and no unit.
//!
//! Only a failure counts that predicts that the next call fails too: the runner could not be reached, or did not answer
//! in time. Failures that certain arguments cause, and an upstream that asks for fewer calls, show that the runner is
//! alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation, Policy, ToolName};
use crate::metrics::ToolMetrics;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// How long the circuit stays open before a probe.
const REST: Duration = Duration::from_secs(5);
/// `retry_after` for a call that is refused while the probe is under way.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// The state of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls pass.
    Closed,
    /// One call passes as the probe. It is under way, or the next call becomes it.
    HalfOpen,
    /// No call passes.
    Open,
}

impl BreakerState {
    /// The name in answers: `closed`, `half_open` or `open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }

    /// The value in metrics: 0 closed, 1 half open, 2 open.
    pub fn level(self) -> i64 {
        match self {
            Self::Closed => 0,
            Self::HalfOpen => 1,
            Self::Open => 2,
        }
    }
}

/// State and counters of a breaker at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerStatus {
    /// The state of the circuit.
    pub state: BreakerState,
    /// Failures of the runner in a row.
    pub failures: u32,
    /// Time until the next call passes. `None` unless the circuit is open.
    pub retry_after: Option<Duration>,
}

/// The breaker of one tool. It survives when the tool's stack is rebuilt around the same runner.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Whether the circuit is not closed, or there were failures. A call of a healthy tool reads only this flag,
    /// without a lock.
    troubled: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    position: Position,
    /// Failures of the runner in a row.
    failures: u32,
    /// When a probe closed the circuit. Ends of calls that started earlier are ignored: they say how the runner was
    /// before it recovered.
    closed_at: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Position {
    #[default]
    Closed,
    Open {
        until: Instant,
    },
    /// The probe is under way.
    HalfOpen,
}

/// What the end of a call shows about the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Alive,
    Down,
    /// The call did not reach the runner, or not to the end.
    Unknown,
}

/// Judges the end of a call. `own`: the deadline that may have ended the call was the operator's, and not an earlier
/// one of the caller.
fn verdict(outcome: &Outcome, own: bool) -> Verdict {
    match outcome {
        Ok(_) => Verdict::Alive,
        Err(CallError::DeadlineExceeded { started: true, .. }) if own => Verdict::Down,
        Err(error) => match error {
            CallError::ToolUnavailable { started: true, .. }
            | CallError::AttemptTimedOut { .. }
            | CallError::UpstreamFailed { down: true, .. } => Verdict::Down,
            CallError::UpstreamFailed { down: false, .. }
            | CallError::BadOutput(_)
            | CallError::InvalidArguments(_)
            | CallError::InvalidContext(_) => Verdict::Alive,
            CallError::ToolUnavailable { started: false, .. }
            | CallError::Forbidden { .. }
            | CallError::UnreadableArguments(_)
            | CallError::Denied { .. }
            | CallError::ToolDisabled { .. }
            | CallError::DefinitionChanged { .. }
            | CallError::KeyMissing { .. }
            | CallError::NoStoredResult { .. }
            | CallError::IdempotencyInProgress { .. }
            | CallError::IdempotencyMismatch { .. }
            | CallError::OutcomeUnknown { .. }
            | CallError::Kept { .. }
            | CallError::RepeatedCall { .. }
            | CallError::UsageLimitReached { .. }
            | CallError::Overloaded { .. }
            | CallError::Draining
            | CallError::LedgerUnavailable { .. }
            | CallError::DeadlineExceeded { .. }
            | CallError::Cancelled { .. }
            | CallError::Internal => Verdict::Unknown,
        },
    }
}

/// How the end of a call changed the circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The circuit opened after this many failures.
    Opened { failures: u32 },
    /// The circuit stays open because the probe failed.
    Reopened,
    /// The circuit closed because the probe succeeded.
    Closed,
}

impl Breaker {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state now.
    pub fn status(&self) -> BreakerStatus {
        let record = self.record();
        let (state, retry_after) = match record.position {
            Position::Closed => (BreakerState::Closed, None),
            Position::HalfOpen => (BreakerState::HalfOpen, None),
            Position::Open { until } => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => (BreakerState::HalfOpen, None),
                left => (BreakerState::Open, Some(left)),
            },
        };
        BreakerStatus { state, failures: record.failures, retry_after }
    }

    /// Lets a call pass, perhaps as the probe. The error is the time to wait.
    fn enter(&self) -> Result<Option<Probe<'_>>, Duration> {
        if !self.troubled.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut record = self.record();
        match record.position {
            Position::Closed => Ok(None),
            Position::HalfOpen => Err(PROBE_WAIT),
            Position::Open { until } => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => {
                    record.position = Position::HalfOpen;
                    Ok(Some(Probe { breaker: self, has_ended: false }))
                }
                left => Err(left),
            },
        }
    }

    /// Counts the end of a call that started at `began` and was not the probe.
    fn heard(&self, verdict: Verdict, began: Instant) -> Option<Change> {
        let is_news = match verdict {
            Verdict::Unknown => false,
            Verdict::Alive => self.troubled.load(Ordering::Acquire),
            Verdict::Down => true,
        };
        if !is_news {
            return None;
        }
        let mut record = self.record();
        // While the circuit is not closed, only the end of the probe counts. Other calls started before it opened.
        // Without this check, they would delay the probe or close the circuit with old information.
        if !matches!(record.position, Position::Closed) || record.closed_at.is_some_and(|at| began < at) {
            return None;
        }
        if verdict == Verdict::Alive {
            record.failures = 0;
            self.troubled.store(false, Ordering::Release);
            return None;
        }
        record.failures += 1;
        self.troubled.store(true, Ordering::Release);
        (record.failures >= FAILURES).then(|| {
            record.position = Position::Open { until: Instant::now() + REST };
            Change::Opened { failures: record.failures }
        })
    }
}

/// The one call that passes a half-open circuit. If it is dropped without a verdict, the next call becomes the probe.
/// Otherwise the circuit would stay half open for good and refuse all calls.
struct Probe<'a> {
    breaker: &'a Breaker,
    has_ended: bool,
}

impl Probe<'_> {
    /// Opens or closes the circuit, as this verdict says.
    fn ended(mut self, verdict: Verdict) -> Option<Change> {
        if verdict == Verdict::Unknown {
            return None;
        }
        self.has_ended = true;
        let now = Instant::now();
        let mut record = self.breaker.record();
        if verdict == Verdict::Down {
            record.position = Position::Open { until: now + REST };
            record.failures = record.failures.saturating_add(1);
            return Some(Change::Reopened);
        }
        *record = Record { closed_at: Some(now), ..Record::default() };
        self.breaker.troubled.store(false, Ordering::Release);
        Some(Change::Closed)
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.breaker.record().position = Position::Open { until: Instant::now() };
        }
    }
}

/// The layer for tools with a circuit breaker.
pub struct CircuitBreaker {
    breaker: Arc<Breaker>,
    tool: ToolName,
    /// The operator's deadline over all attempts.
    deadline: Option<Duration>,
    metrics: ToolMetrics,
}

impl CircuitBreaker {
    /// Makes the layer with this breaker; `None` for a tool without one.
    pub fn layer(
        breaker: Option<Arc<Breaker>>,
        tool: &ToolName,
        policy: &Policy,
        metrics: &ToolMetrics,
    ) -> Option<AroundLayer<Self>> {
        let (tool, deadline, metrics) = (tool.clone(), policy.deadline, metrics.clone());
        breaker.map(|breaker| AroundLayer::new(Self { breaker, tool, deadline, metrics }))
    }

    fn tell(&self, change: Change) {
        let (tool, rest_ms) = (self.tool.as_str(), REST.as_millis());
        match change {
            Change::Opened { failures } => {
                self.metrics.breaker_opened();
                tracing::warn!(tool, failures, rest_ms, "what runs a tool is down: its calls are refused for a while");
            }
            // Logged at `debug`, because a tool that stays unavailable would fill the log.
            Change::Reopened => {
                self.metrics.breaker_opened();
                tracing::debug!(tool, rest_ms, "what runs a tool is still down");
            }
            Change::Closed => tracing::info!(tool, "what runs a tool is up again: its calls go through"),
        }
    }
}

impl Around for CircuitBreaker {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let began = invocation.started;
        let probe = self.breaker.enter().map_err(refusal)?;
        let own = self.deadline.is_some_and(|deadline| invocation.deadline == Some(began + deadline));
        let notes = invocation.notes.clone();
        let outcome = inner.call(invocation).await;
        let verdict = match verdict(&outcome, own) {
            Verdict::Down if notes.lock().fell_with_another => Verdict::Unknown,
            verdict => verdict,
        };
        let change = match probe {
            Some(probe) => probe.ended(verdict),
            None => self.breaker.heard(verdict, began),
        };
        if let Some(change) = change {
            self.tell(change);
        }
        outcome
    }
}

fn refusal(wait: Duration) -> CallError {
    let message = format!("it failed {FAILURES} times in a row and is given a rest");
    CallError::ToolUnavailable { message, started: false, retry_after: Some(wait) }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn open(until: Instant) -> Breaker {
        let record = Record { position: Position::Open { until }, failures: FAILURES, closed_at: None };
        Breaker { troubled: AtomicBool::new(true), record: Mutex::new(record) }
    }

    #[test]
    fn of_many_that_come_at_once_one_is_the_probe() {
        for _ in 0..200 {
            let (breaker, gate) = (open(Instant::now()), Barrier::new(8));
            let came = || {
                gate.wait();
                let entered = breaker.enter();
                let (is_probe, is_refused) = (matches!(entered, Ok(Some(_))), entered.is_err());
                // No probe is dropped before all threads have entered.
                gate.wait();
                (is_probe, is_refused)
            };
            let all: Vec<(bool, bool)> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(came)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(all.iter().filter(|(is_probe, _)| *is_probe).count(), 1);
            assert_eq!(all.iter().filter(|(_, is_refused)| *is_refused).count(), 7);
        }
    }

    #[test]
    fn a_probe_that_panics_gives_its_place_back() {
        let breaker = open(Instant::now());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _probe = breaker.enter().unwrap().unwrap();
            panic!("a layer's fault");
        }));
        assert!(panicked.is_err());
        assert!(matches!(breaker.enter(), Ok(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn how_calls_end_that_began_before_it_closed_is_old_news() {
        let (breaker, before) = (open(Instant::now()), Instant::now());
        // While the circuit is open or half open, only the end of the probe counts.
        assert_eq!(breaker.heard(Verdict::Alive, before), None);
        let probe = breaker.enter().unwrap().unwrap();
        assert_eq!((breaker.heard(Verdict::Alive, before), breaker.heard(Verdict::Down, before)), (None, None));
        assert_eq!(breaker.status().failures, FAILURES);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(probe.ended(Verdict::Alive), Some(Change::Closed));
        for _ in 0..FAILURES {
            assert_eq!(breaker.heard(Verdict::Down, before), None);
        }
        assert_eq!(breaker.status().state, BreakerState::Closed);
        let now = Instant::now();
        for _ in 1..FAILURES {
            assert_eq!(breaker.heard(Verdict::Down, now), None);
        }
        assert_eq!(breaker.heard(Verdict::Down, now), Some(Change::Opened { failures: FAILURES }));
    }
}
