//! A rest for a tool whose runner is down.
//!
//! After five failures of the runner in a row its calls are refused for five seconds; then one is let through as the
//! probe, and how that ends decides. Below the cache, so that stored results are still served; above the bulkhead, so
//! that a refused call takes no place and no unit.
//!
//! A failure counts when it says that the next call will fail too: nobody could be reached, or nothing came in time.
//! What arguments can bring about, and an upstream that asks for fewer calls, says that the runner is alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation, Policy, ToolName};
use crate::metrics::ToolMetrics;

/// Failures in a row that open it.
const FAILURES: u32 = 5;
/// How long it stays open before a probe.
const REST: Duration = Duration::from_secs(5);
/// Told to who comes while the probe is under way.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// Whether calls go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// They do.
    Closed,
    /// One does, to see whether others may; it is under way, or the next to come.
    HalfOpen,
    /// None does.
    Open,
}

impl BreakerState {
    /// The word used in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }

    /// The number used in metrics.
    pub fn level(self) -> i64 {
        match self {
            Self::Closed => 0,
            Self::HalfOpen => 1,
            Self::Open => 2,
        }
    }
}

/// How a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerStatus {
    /// Whether calls go through.
    pub state: BreakerState,
    /// The runner's failures in a row.
    pub failures: u32,
    /// Until the next call goes through; `None` unless it is open.
    pub retry_after: Option<Duration>,
}

/// The breaker of one tool; outlives a stack that is built anew around the same runner.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Not closed, or closed with failures. All that the calls of a sound tool look at.
    troubled: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    position: Position,
    /// In a row.
    failures: u32,
    /// When a probe closed it: how calls end that began before is old news.
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

/// What the end of a call says about the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Alive,
    Down,
    /// It was not asked, or not to the end.
    Unknown,
}

/// `own`: the deadline that may have ended the call was the operator's, not a nearer one of the caller's.
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

/// What the end of a call changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Open after so many failures.
    Opened { failures: u32 },
    /// Open still: the probe failed.
    Reopened,
    /// Closed: the probe succeeded.
    Closed,
}

impl Breaker {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands now.
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

    /// Lets a call through, perhaps as the probe, or says how long to wait.
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

    /// A call has ended that began then and was no probe.
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
        // While it is not closed only the probe is listened to.
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

/// The one call that is let through. Dropped before it has ended, it gives its place to the next.
struct Probe<'a> {
    breaker: &'a Breaker,
    has_ended: bool,
}

impl Probe<'_> {
    /// What its end says.
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

/// See the module.
pub struct CircuitBreaker {
    breaker: Arc<Breaker>,
    tool: ToolName,
    /// The operator's, over all tries.
    deadline: Option<Duration>,
    metrics: ToolMetrics,
}

impl CircuitBreaker {
    /// The layer with this breaker; `None` for a tool that has none.
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
            // A tool that stays down would fill the log.
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
                // Nobody leaves before all have come.
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
        // While it is open or half open only the probe is listened to.
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
