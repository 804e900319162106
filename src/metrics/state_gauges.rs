//! Values that are not counted, but read when the metrics are requested.

use std::sync::Arc;

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::families::Families;

/// The current state of the service.
#[derive(Debug, Clone)]
pub struct ServiceState {
    /// Calls in flight, including those that wait for a permit, the tool or the commit of their
    /// row.
    pub calls: usize,
    /// The number of results in memory.
    pub cache_entries: u64,
    /// The size of the results in memory, in bytes.
    pub cache_bytes: u64,
    /// Whether the ledger can write.
    pub ledger_up: bool,
    /// Lines of the log that were lost since the start.
    pub lines_lost: u64,
    /// The sources of tools.
    pub sources: Vec<SourceSample>,
    /// For each tool that starts programs: the strongest means of its sandbox, and whether all of the
    /// sandbox is enforced.
    pub sandboxes: Vec<(&'static str, bool)>,
}

/// The state of a source of tools.
#[derive(Debug, Clone)]
pub struct SourceSample {
    /// The name of the source.
    pub name: Arc<str>,
    /// Whether its tools can be called.
    pub up: bool,
    /// The number of processes that were replaced since the start.
    pub replaced: u64,
    /// The number of quarantined tools, whose definitions differ from their pins.
    pub quarantined: usize,
}

pub(super) struct StateGauges {
    calls: IntGauge,
    cache_entries: IntGauge,
    cache_bytes: IntGauge,
    ledger_up: IntGauge,
    lines_lost: IntCounter,
    source_up: IntGaugeVec,
    source_replaced: IntCounterVec,
    source_quarantined: IntGaugeVec,
    sandboxes: IntGaugeVec,
}

impl StateGauges {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        Ok(Self {
            calls: families.gauge(
                "toolcrib_open_calls",
                "Calls in flight, including those that wait for a permit, the tool or the commit of their row.",
            )?,
            cache_entries: families.gauge("toolcrib_cache_entries", "Stored results in memory.")?,
            cache_bytes: families.gauge("toolcrib_cache_bytes", "Size of the stored results in memory.")?,
            ledger_up: families
                .gauge("toolcrib_ledger_up", "1 while the ledger can write. Otherwise calls are refused.")?,
            lines_lost: families.register(IntCounter::new(
                "toolcrib_log_dropped_total",
                "Lines of the log that were lost because nothing read the output.",
            )?)?,
            source_up: families.gauge_vec(
                "toolcrib_source_up",
                "1 while the tools of a source can be called.",
                &["source"],
            )?,
            source_replaced: families.counter_vec(
                "toolcrib_source_replaced_total",
                "Processes of a source that died or were killed and have been replaced.",
                &["source"],
            )?,
            source_quarantined: families.gauge_vec(
                "toolcrib_source_stopped_tools",
                "Quarantined tools of an MCP server: their definitions differ from the pins.",
                &["source"],
            )?,
            sandboxes: families.gauge_vec(
                "toolcrib_sandboxed_tools",
                "Tools that start programs, by the strongest means of their sandbox and whether all of it is enforced.",
                &["in_force", "complete"],
            )?,
        })
    }

    pub(super) fn set(&self, now: ServiceState) {
        let level = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.calls.set(level(now.calls as u64));
        self.cache_entries.set(level(now.cache_entries));
        self.cache_bytes.set(level(now.cache_bytes));
        self.ledger_up.set(now.ledger_up.into());
        self.lines_lost
            .inc_by(now.lines_lost.saturating_sub(self.lines_lost.get()));
        self.sandboxes.reset();
        for (in_force, is_complete) in now.sandboxes {
            let complete = if is_complete { "true" } else { "false" };
            self.sandboxes
                .with_label_values(&[in_force, complete])
                .inc();
        }
        // Removed sources must have no series.
        self.source_up.reset();
        self.source_replaced.reset();
        self.source_quarantined.reset();
        for source in &now.sources {
            let labels = &[&*source.name];
            self.source_up
                .with_label_values(labels)
                .set(source.up.into());
            self.source_replaced
                .with_label_values(labels)
                .inc_by(source.replaced);
            self.source_quarantined
                .with_label_values(labels)
                .set(level(source.quarantined as u64));
        }
    }
}
