//! One tool's calls.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Error, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::families::Families;
use crate::call::{CacheStatus, ErrorKind, ToolName};

/// How a call ended: the `outcome` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The tool answered yes.
    Ok,
    /// The tool ran and said no.
    ToolError,
    /// It was refused or failed.
    Failed(ErrorKind),
}

impl Outcome {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Failed(kind) => kind.as_str(),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        [Self::Ok, Self::ToolError].into_iter().chain(ErrorKind::ALL.into_iter().map(Self::Failed))
    }
}

/// From a cached answer to a slow agent, in seconds.
const SECONDS: [f64; 18] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The families with a label `tool`.
pub(super) struct ToolFamilies {
    calls: IntCounterVec,
    seconds: HistogramVec,
    retries: IntCounterVec,
    replays: IntCounterVec,
    in_flight: IntGaugeVec,
    queued: IntGaugeVec,
}

impl ToolFamilies {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        Ok(Self {
            calls: families.counters(
                "toolcrib_calls_total",
                "Calls that have ended. Outcome: `ok`, `tool_error` (the tool ran and said no) or the problem's kind.",
                &["tool", "outcome", "cache"],
            )?,
            seconds: families.histograms(
                "toolcrib_call_duration_seconds",
                "Time from a call's acceptance to its end, cached answers included, refusals not.",
                &["tool"],
                &SECONDS,
            )?,
            retries: families.counters("toolcrib_retries_total", "Tries after a call's first.", &["tool"])?,
            replays: families.counters(
                "toolcrib_replays_total",
                "Answers given again for an idempotency key; not counted as calls.",
                &["tool"],
            )?,
            in_flight: families.gauges("toolcrib_in_flight", "Calls that hold one of the tool's places.", &["tool"])?,
            queued: families.gauges("toolcrib_queued", "Calls that wait for a place.", &["tool"])?,
        })
    }

    pub(super) fn of(&self, tool: &ToolName, cached: bool, alive: Arc<()>) -> ToolMetrics {
        let name = tool.as_str();
        // Without a cache no other status is met; with one, `off` is only what was refused above it.
        let met = |status| cached != (status == CacheStatus::Off);
        let ok = CacheStatus::ALL.map(|status| {
            met(status).then(|| self.calls.with_label_values(&[name, Outcome::Ok.as_str(), status.as_str()]))
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
            _alive: alive,
        }
    }

    /// Drops a tool's series.
    pub(super) fn forget(&self, tool: &ToolName) {
        let name = tool.as_str();
        // An error only says that there was no such series.
        for outcome in Outcome::all() {
            for status in CacheStatus::ALL {
                let _ = self.calls.remove_label_values(&[name, outcome.as_str(), status.as_str()]);
            }
        }
        let _ = self.seconds.remove_label_values(&[name]);
        let _ = self.retries.remove_label_values(&[name]);
        let _ = self.replays.remove_label_values(&[name]);
        let _ = self.in_flight.remove_label_values(&[name]);
        let _ = self.queued.remove_label_values(&[name]);
    }
}

/// One tool's handles.
#[derive(Clone)]
pub struct ToolMetrics {
    tool: ToolName,
    /// Where most calls end, by cache status.
    ok: [Option<IntCounter>; 6],
    /// What fails finds its series when it is met: an idle tool would show a hundred zeros otherwise.
    others: IntCounterVec,
    seconds: Histogram,
    retries: IntCounter,
    replays: IntCounter,
    in_flight: IntGauge,
    queued: IntGauge,
    _alive: Arc<()>,
}

impl ToolMetrics {
    /// A call has ended, after this time (`None`: it was refused) and so many tries.
    pub fn ended(&self, outcome: Outcome, cache: CacheStatus, took: Option<Duration>, attempts: u32) {
        match (outcome, &self.ok[cache as usize]) {
            (Outcome::Ok, Some(counter)) => counter.inc(),
            _ => self.others.with_label_values(&[self.tool.as_str(), outcome.as_str(), cache.as_str()]).inc(),
        }
        if let Some(took) = took {
            self.seconds.observe(took.as_secs_f64());
        }
        if attempts > 1 {
            self.retries.inc_by(u64::from(attempts - 1));
        }
    }

    /// An answer was given again.
    pub fn replayed(&self) {
        self.replays.inc();
    }

    /// Counts a call that holds a place, until dropped.
    pub fn running(&self) -> Counted {
        Counted::new(&self.in_flight)
    }

    /// Counts a call that waits for a place, until dropped.
    pub fn queued(&self) -> Counted {
        Counted::new(&self.queued)
    }
}

/// One in a gauge for as long as it lives.
#[must_use]
pub struct Counted(IntGauge);

impl Counted {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
