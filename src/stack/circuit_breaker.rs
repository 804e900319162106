//! Refuses calls of a tool for some seconds while its runner is unavailable.
//!
//! After five failures of the runner in a row, the circuit opens and calls are refused for five
//! seconds. Then one call passes as the probe, and its end closes the circuit or opens it again.
//! This layer is below the cache, so stored results are still served. It is above the bulkhead, so
//! a refused call takes no permit and no unit.
//!
//! Only a failure counts that predicts that the next call fails too: the runner could not be
//! reached, or did not answer in time. Failures that certain arguments cause, and an upstream that
//! asks for fewer calls, show that the runner is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Outcome;
use super::interceptor::{Inner, Interceptor, InterceptorLayer};
use crate::call::{CallError, Invocation, Policy, ToolName, UpstreamFailure};
use crate::metrics::ToolMetrics;

/// Failures in a row that open the circuit.
const FAILURE_THRESHOLD: u32 = 5;
/// How long the circuit stays open before a probe.
const OPEN_TIME: Duration = Duration::from_secs(5);
/// `retry_after` for a call that is refused while the probe is in flight.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// The state of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BreakerState {
    /// All calls pass.
    Closed,
    /// One call passes as the probe. It is in flight, or the next call becomes it.
    HalfOpen,
    /// No call passes.
    Open,
}

impl BreakerState {
    /// The name in answers: `closed`, `half_open` or `open`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The value in metrics: 0 closed, 1 half open, 2 open.
    pub fn metric_value(self) -> i64 {
        self as i64
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
    /// Whether the circuit is not closed, or there were failures. A call of a healthy tool reads
    /// only this flag, without a lock.
    has_failures: AtomicBool,
    data: Mutex<CircuitData>,
}

#[derive(Debug, Default)]
struct CircuitData {
    state: CircuitState,
    /// Failures of the runner in a row.
    failures: u32,
    /// When a probe closed the circuit. Ends of calls that started earlier are ignored: they say
    /// how the runner was before it recovered.
    closed_at: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
enum CircuitState {
    #[default]
    Closed,
    Open {
        until: Instant,
    },
    /// The probe is in flight.
    HalfOpen,
}

/// What the end of a call shows about the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Available,
    Unavailable,
    /// The call did not reach the runner, or not to the end.
    Unknown,
}

/// Judges the end of a call. `is_operator_deadline`: the deadline that may have ended the call was
/// the operator's, and not an earlier one of the caller.
fn judge_outcome(outcome: &Outcome, is_operator_deadline: bool) -> Verdict {
    match outcome {
        Err(CallError::DeadlineExceeded { started: true, .. }) if is_operator_deadline => {
            Verdict::Unavailable
        }
        Err(
            CallError::ToolUnavailable { started: true, .. }
            | CallError::AttemptTimedOut { .. }
            | CallError::UpstreamFailed(UpstreamFailure {
                unavailable: true, ..
            }),
        ) => Verdict::Unavailable,
        Ok(_)
        | Err(
            CallError::UpstreamFailed(_)
            | CallError::BadOutput(_)
            | CallError::InvalidArguments(_)
            | CallError::InvalidContext(_),
        ) => Verdict::Available,
        // It did not reach the runner, or not to the end.
        Err(_) => Verdict::Unknown,
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
    /// The state now.
    pub fn status(&self) -> BreakerStatus {
        let data = self.data.lock();
        let (state, retry_after) = match data.state {
            CircuitState::Closed => (BreakerState::Closed, None),
            CircuitState::HalfOpen => (BreakerState::HalfOpen, None),
            CircuitState::Open { until } => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => (BreakerState::HalfOpen, None),
                remaining => (BreakerState::Open, Some(remaining)),
            },
        };
        BreakerStatus {
            state,
            failures: data.failures,
            retry_after,
        }
    }

    /// Lets a call pass, perhaps as the probe. The error is the time to wait.
    fn admit(&self) -> Result<Option<Probe<'_>>, Duration> {
        if !self.has_failures.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut data = self.data.lock();
        match data.state {
            CircuitState::Closed => Ok(None),
            CircuitState::HalfOpen => Err(PROBE_WAIT),
            CircuitState::Open { until } => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => {
                    data.state = CircuitState::HalfOpen;
                    Ok(Some(Probe {
                        breaker: self,
                        is_finished: false,
                    }))
                }
                remaining => Err(remaining),
            },
        }
    }

    /// Counts the end of a call that started at `started` and was not the probe.
    fn count_outcome(&self, verdict: Verdict, started: Instant) -> Option<Change> {
        let is_news = match verdict {
            Verdict::Unknown => false,
            Verdict::Available => self.has_failures.load(Ordering::Acquire),
            Verdict::Unavailable => true,
        };
        if !is_news {
            return None;
        }
        let mut data = self.data.lock();
        // While the circuit is not closed, only the end of the probe counts. Other calls started
        // before it opened. Without this check, they would delay the probe or close the circuit
        // with old information.
        if !matches!(data.state, CircuitState::Closed)
            || data.closed_at.is_some_and(|at| started < at)
        {
            return None;
        }
        if verdict == Verdict::Available {
            data.failures = 0;
            self.has_failures.store(false, Ordering::Release);
            return None;
        }
        data.failures += 1;
        self.has_failures.store(true, Ordering::Release);
        (data.failures >= FAILURE_THRESHOLD).then(|| {
            data.state = CircuitState::Open {
                until: Instant::now() + OPEN_TIME,
            };
            Change::Opened {
                failures: data.failures,
            }
        })
    }
}

/// The one call that passes a half-open circuit. If it is dropped without a verdict, the next call
/// becomes the probe. Otherwise the circuit would stay half open for good and refuse all calls.
struct Probe<'a> {
    breaker: &'a Breaker,
    is_finished: bool,
}

impl Probe<'_> {
    /// Opens or closes the circuit, as this verdict says.
    fn finish(mut self, verdict: Verdict) -> Option<Change> {
        if verdict == Verdict::Unknown {
            return None;
        }
        self.is_finished = true;
        let now = Instant::now();
        let mut data = self.breaker.data.lock();
        if verdict == Verdict::Unavailable {
            data.state = CircuitState::Open {
                until: now + OPEN_TIME,
            };
            data.failures = data.failures.saturating_add(1);
            return Some(Change::Reopened);
        }
        *data = CircuitData {
            closed_at: Some(now),
            ..CircuitData::default()
        };
        self.breaker.has_failures.store(false, Ordering::Release);
        Some(Change::Closed)
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.breaker.data.lock().state = CircuitState::Open {
                until: Instant::now(),
            };
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
    ) -> Option<InterceptorLayer<Self>> {
        Some(InterceptorLayer::new(Self {
            breaker: breaker?,
            tool: tool.clone(),
            deadline: policy.deadline,
            metrics: metrics.clone(),
        }))
    }

    fn report_change(&self, change: Change) {
        let (tool, rest_ms) = (self.tool.as_str(), OPEN_TIME.as_millis());
        match change {
            Change::Opened { failures } => {
                self.metrics.record_breaker_opening();
                tracing::warn!(
                    tool,
                    failures,
                    rest_ms,
                    "the circuit of a tool opened: its calls are refused for some seconds"
                );
            }
            // Logged at `debug`, because a tool that stays unavailable would fill the log.
            Change::Reopened => {
                self.metrics.record_breaker_opening();
                tracing::debug!(
                    tool,
                    rest_ms,
                    "the probe of a tool failed: its circuit stays open"
                );
            }
            Change::Closed => {
                tracing::info!(tool, "the circuit of a tool closed: its calls run again");
            }
        }
    }
}

impl Interceptor for CircuitBreaker {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let started = invocation.timing.started;
        let probe = match self.breaker.admit() {
            // A refusal would use up the decision of a person. One call more does no harm.
            Err(_) if invocation.is_approved() => None,
            admitted => admitted.map_err(circuit_open_error)?,
        };
        let is_operator_deadline = self
            .deadline
            .is_some_and(|deadline| invocation.timing.deadline == Some(started + deadline));
        let report = invocation.report.clone();
        let outcome = inner.call(invocation).await;
        let verdict = match judge_outcome(&outcome, is_operator_deadline) {
            Verdict::Unavailable if report.attempt.lock().shared_failure => Verdict::Unknown,
            verdict => verdict,
        };
        let change = match probe {
            Some(probe) => probe.finish(verdict),
            None => self.breaker.count_outcome(verdict, started),
        };
        if let Some(change) = change {
            self.report_change(change);
        }
        outcome
    }
}

fn circuit_open_error(wait: Duration) -> CallError {
    let message = format!("it failed {FAILURE_THRESHOLD} times in a row, so its circuit is open");
    CallError::ToolUnavailable {
        message,
        started: false,
        retry_after: Some(wait),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn open(until: Instant) -> Breaker {
        let data = CircuitData {
            state: CircuitState::Open { until },
            failures: FAILURE_THRESHOLD,
            closed_at: None,
        };
        Breaker {
            has_failures: AtomicBool::new(true),
            data: Mutex::new(data),
        }
    }

    #[test]
    fn only_one_concurrent_call_is_the_probe() {
        for _ in 0..200 {
            let (breaker, barrier) = (open(Instant::now()), Barrier::new(8));
            let enter = || {
                barrier.wait();
                let entered = breaker.admit();
                let (is_probe, is_refused) = (matches!(entered, Ok(Some(_))), entered.is_err());
                // No probe is dropped before all threads have entered.
                barrier.wait();
                (is_probe, is_refused)
            };
            let all: Vec<(bool, bool)> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(enter)).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(all.iter().filter(|(is_probe, _)| *is_probe).count(), 1);
            assert_eq!(all.iter().filter(|(_, is_refused)| *is_refused).count(), 7);
        }
    }

    #[test]
    fn panicking_probe_frees_the_probe_slot() {
        let breaker = open(Instant::now());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _probe = breaker.admit().unwrap().unwrap();
            panic!("a layer's fault");
        }));
        assert!(panicked.is_err());
        assert!(matches!(breaker.admit(), Ok(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn outcomes_from_before_closing_are_ignored() {
        let (breaker, before) = (open(Instant::now()), Instant::now());
        // While the circuit is open or half open, only the end of the probe counts.
        assert_eq!(breaker.count_outcome(Verdict::Available, before), None);
        let probe = breaker.admit().unwrap().unwrap();
        assert_eq!(
            (
                breaker.count_outcome(Verdict::Available, before),
                breaker.count_outcome(Verdict::Unavailable, before)
            ),
            (None, None)
        );
        assert_eq!(breaker.status().failures, FAILURE_THRESHOLD);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(probe.finish(Verdict::Available), Some(Change::Closed));
        for _ in 0..FAILURE_THRESHOLD {
            assert_eq!(breaker.count_outcome(Verdict::Unavailable, before), None);
        }
        assert_eq!(breaker.status().state, BreakerState::Closed);
        let now = Instant::now();
        for _ in 1..FAILURE_THRESHOLD {
            assert_eq!(breaker.count_outcome(Verdict::Unavailable, now), None);
        }
        assert_eq!(
            breaker.count_outcome(Verdict::Unavailable, now),
            Some(Change::Opened {
                failures: FAILURE_THRESHOLD
            })
        );
    }
}
