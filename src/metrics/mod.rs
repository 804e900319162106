//! The metrics of `GET /metrics`, counted where events happen.
//!
//! Each service has its own registry; nothing is global. Code that counts gets its handles once at
//! the start ([`ToolMetrics`], [`CommitMetrics`]). Label values come from closed sets: registered
//! tools, the enums of `call`, the routes. Callers, runs and unknown names never become a label.

mod commits;
mod families;
mod process;
mod service_counters;
mod state_gauges;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{IntGauge, Opts, Registry, TextEncoder};

pub use commits::CommitMetrics;
use families::Families;
use process::ProcessMetrics;
pub use service_counters::{ExportOutcome, ServiceCounters, TelemetryMetrics};
use state_gauges::StateGauges;
pub use state_gauges::{ServiceState, SourceSample};
use tool::ToolFamilies;
pub use tool::{GaugeGuard, OutcomeLabel, ToolMetrics};

use crate::call::ToolName;

/// The metrics cannot be set up, because two families have the same name. This is a bug of this
/// module.
pub use prometheus::Error;
/// The media type of [`Metrics::render`]: the text format that every scraper reads.
pub use prometheus::TEXT_FORMAT;
/// A family with its series, as gathered for an export.
pub use prometheus::proto::{Metric as MetricSeries, MetricFamily, MetricType};

/// All families. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    tools: ToolFamilies,
    /// The tools with series. Each value is shared with the tool's stacks, so its count shows
    /// whether one exists.
    registered: Mutex<BTreeMap<ToolName, Arc<()>>>,
    counters: ServiceCounters,
    commits: Arc<CommitMetrics>,
    telemetry: Arc<TelemetryMetrics>,
    state_gauges: StateGauges,
    process: ProcessMetrics,
}

impl Metrics {
    /// Makes the families, without series of tools.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new() -> Result<Self, Error> {
        let families = Families::default();
        let build = Opts::new(
            "toolcrib_build_info",
            "Always 1. The label has the version.",
        );
        families
            .register(IntGauge::with_opts(
                build.const_label("version", env!("CARGO_PKG_VERSION")),
            )?)?
            .set(1);
        Ok(Self(Arc::new(Inner {
            tools: ToolFamilies::new(&families)?,
            registered: Mutex::default(),
            counters: ServiceCounters::new(&families)?,
            commits: Arc::new(CommitMetrics::new(&families)?),
            telemetry: Arc::new(TelemetryMetrics::new(&families)?),
            state_gauges: StateGauges::new(&families)?,
            process: ProcessMetrics::new(&families)?,
            registry: families.registry,
        })))
    }

    /// The handles for a tool's stack. `cached`: the stack has a cache. The tool's series exist as
    /// long as one of its stacks. After that they are shown once more with their last numbers.
    pub fn tool_metrics(&self, name: &ToolName, cached: bool) -> ToolMetrics {
        let mut registered = self.0.registered.lock();
        let alive = registered.entry(name.clone()).or_default().clone();
        self.0.tools.for_tool(name, cached, alive)
    }

    /// Sets the state of a registered tool's circuit breaker: 0 closed, 1 half open, 2 open.
    pub fn set_breaker_state(&self, tool: &ToolName, level: i64) {
        self.0.tools.set_breaker_state(tool, level);
    }

    /// The metrics for the ledger's writer.
    pub fn commit_metrics(&self) -> Arc<CommitMetrics> {
        self.0.commits.clone()
    }

    /// The metrics for what is sent to a collector.
    pub fn telemetry_metrics(&self) -> Arc<TelemetryMetrics> {
        self.0.telemetry.clone()
    }

    /// The counters of the service as a whole.
    pub fn service_counters(&self) -> &ServiceCounters {
        &self.0.counters
    }

    /// All metrics in the text format.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn render(&self, now: ServiceState) -> Result<String, Error> {
        TextEncoder::new().encode_to_string(&self.gather(now))
    }

    /// All metrics as data.
    pub fn gather(&self, now: ServiceState) -> Vec<MetricFamily> {
        let inner = &*self.0;
        // Held to the end, so that no tool returns while its series are removed.
        let mut registered = inner.registered.lock();
        inner.state_gauges.set(now);
        inner.process.update();
        let families = inner.registry.gather();
        registered.retain(|name, alive| {
            // Only this table holds it, so no stack of the tool exists.
            let is_unused = Arc::strong_count(alive) == 1;
            if is_unused {
                inner.tools.remove_tool(name);
            }
            !is_unused
        });
        families
    }
}

#[cfg(test)]
mod tests;
