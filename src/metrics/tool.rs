//! Metrics of one tool's calls.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{
    Error, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};

use super::families::Families;
use crate::call::{CacheStatus, ErrorKind, ToolName};

/// How a call ended. It is the label `outcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeLabel {
    /// The tool returned a result without an error.
    Ok,
    /// The tool ran and returned an error result.
    ToolError,
    /// The call was refused or failed.
    Failed(ErrorKind),
}

impl OutcomeLabel {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Failed(kind) => kind.as_str(),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        [Self::Ok, Self::ToolError]
            .into_iter()
            .chain(ErrorKind::ALL.iter().copied().map(Self::Failed))
    }
}

/// Buckets in seconds, from a cached answer to a slow agent.
const SECONDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// The metric families with a label `tool`.
pub(super) struct ToolFamilies {
    calls: IntCounterVec,
    seconds: HistogramVec,
    retries: IntCounterVec,
    replays: IntCounterVec,
    in_flight: IntGaugeVec,
    queued: IntGaugeVec,
    breaker_state: IntGaugeVec,
    breaker_openings: IntCounterVec,
}

impl ToolFamilies {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        Ok(Self {
            calls: families.counter_vec(
                "toolcrib_calls_total",
                "Calls that have ended. Outcome: `ok`, `tool_error` (the tool returned an error result) or the problem's kind.",
                &["tool", "outcome", "cache"],
            )?,
            seconds: families.histogram_vec(
                "toolcrib_call_duration_seconds",
                "Time from a call's acceptance to its end, cached answers included, refusals not.",
                &["tool"],
                &SECONDS,
            )?,
            retries: families.counter_vec("toolcrib_retries_total", "Attempts after the first attempt of a call.", &["tool"])?,
            replays: families.counter_vec(
                "toolcrib_replays_total",
                "Answers replayed for an idempotency key. They are not counted as calls.",
                &["tool"],
            )?,
            in_flight: families.gauge_vec("toolcrib_in_flight", "Calls that hold a permit of the tool.", &["tool"])?,
            queued: families.gauge_vec("toolcrib_queued", "Calls that wait for a permit.", &["tool"])?,
            breaker_state: families.gauge_vec(
                "toolcrib_circuit_breaker_state",
                "0 closed, 1 half open (one call may probe), 2 open (calls are refused).",
                &["tool"],
            )?,
            breaker_openings: families.counter_vec(
                "toolcrib_circuit_breaker_openings_total",
                "Times a breaker opened: after failures in a row, and again after a probe that failed.",
                &["tool"],
            )?,
        })
    }

    pub(super) fn for_tool(&self, tool: &ToolName, cached: bool, alive: Arc<()>) -> ToolMetrics {
        let name = tool.as_str();
        // Without a cache, `off` is the only status. With one, only calls that were refused before
        // the cache layer have `off`.
        let can_occur = |status| cached != (status == CacheStatus::Off);
        let ok = CacheStatus::ALL.map(|status| {
            can_occur(status).then(|| {
                self.calls
                    .with_label_values(&[name, OutcomeLabel::Ok.as_str(), status.as_str()])
            })
        });
        ToolMetrics {
            tool: tool.clone(),
            ok,
            others: self.calls.clone(),
            seconds: self.seconds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            replays: self.replays.with_label_values(&[name]),
            in_flight: self.in_flight.with_label_values(&[name]),
            queued: self.queued.with_label_values(&[name]),
            breaker_openings: self.breaker_openings.with_label_values(&[name]),
            _alive: alive,
        }
    }

    /// Removes a tool's series.
    pub(super) fn remove_tool(&self, tool: &ToolName) {
        let name = tool.as_str();
        // An error only means that the series did not exist.
        for outcome in OutcomeLabel::all() {
            for status in CacheStatus::ALL {
                let _ = self
                    .calls
                    .remove_label_values(&[name, outcome.as_str(), status.as_str()]);
            }
        }
        let _ = self.seconds.remove_label_values(&[name]);
        let _ = self.retries.remove_label_values(&[name]);
        let _ = self.replays.remove_label_values(&[name]);
        let _ = self.in_flight.remove_label_values(&[name]);
        let _ = self.queued.remove_label_values(&[name]);
        let _ = self.breaker_state.remove_label_values(&[name]);
        let _ = self.breaker_openings.remove_label_values(&[name]);
    }

    /// Sets the state of a tool's circuit breaker.
    pub(super) fn set_breaker_state(&self, tool: &ToolName, level: i64) {
        self.breaker_state
            .with_label_values(&[tool.as_str()])
            .set(level);
    }
}

/// The handles of one tool.
#[derive(Clone)]
pub struct ToolMetrics {
    tool: ToolName,
    /// Counters of successful calls by cache status, because most calls end so.
    ok: [Option<IntCounter>; 6],
    /// The series of other outcomes are created when they first occur. Otherwise an idle tool would
    /// show a hundred zeros.
    others: IntCounterVec,
    seconds: Histogram,
    retries: IntCounter,
    replays: IntCounter,
    in_flight: IntGauge,
    queued: IntGauge,
    breaker_openings: IntCounter,
    _alive: Arc<()>,
}

impl ToolMetrics {
    /// Counts the end of a call. `took` is its duration, or `None` if it was refused. `attempts` is
    /// the number of its attempts.
    pub fn record_end(
        &self,
        outcome: OutcomeLabel,
        cache: CacheStatus,
        took: Option<Duration>,
        attempts: u32,
    ) {
        match (outcome, &self.ok[cache as usize]) {
            (OutcomeLabel::Ok, Some(counter)) => counter.inc(),
            _ => self
                .others
                .with_label_values(&[self.tool.as_str(), outcome.as_str(), cache.as_str()])
                .inc(),
        }
        if let Some(took) = took {
            self.seconds.observe(took.as_secs_f64());
        }
        if attempts > 1 {
            self.retries.inc_by(u64::from(attempts - 1));
        }
    }

    /// Counts an answer that was replayed.
    pub fn record_replay(&self) {
        self.replays.inc();
    }

    /// Counts an opening of the tool's circuit breaker.
    pub fn record_breaker_opening(&self) {
        self.breaker_openings.inc();
    }

    /// Counts a call that holds a permit, until dropped.
    pub fn count_running(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    /// Counts a call that waits for a permit, until dropped.
    pub fn count_queued(&self) -> GaugeGuard {
        GaugeGuard::new(&self.queued)
    }
}

/// Adds one to a gauge as long as it lives.
#[must_use]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
