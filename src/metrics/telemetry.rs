//! Metrics of what is sent to a collector of OpenTelemetry.

/// A family with its series, as gathered for an export.
pub use prometheus::proto::{Metric as MetricSeries, MetricFamily, MetricType};
use prometheus::{Error, IntCounterVec};

use super::families::Families;

/// What became of a record that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ExportOutcome {
    /// The collector has accepted it.
    Exported,
    /// The collector has refused it in an answer that accepts the others.
    Rejected,
    /// The collector could not be reached, or refused the whole request.
    Failed,
    /// The queue was full.
    Dropped,
}

/// Metrics of what is sent. There are no series without telemetry.
pub struct TelemetryMetrics {
    records: IntCounterVec,
}

impl TelemetryMetrics {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        Ok(Self {
            records: families.counter_vec(
                "toolcrib_telemetry_records_total",
                "Spans, log records and metric points for the OpenTelemetry collector, by signal. Outcome: `exported`, `rejected`, \
                 `failed` (not delivered) or `dropped` (the queue was full).",
                &["signal", "outcome"],
            )?,
        })
    }

    /// Counts records of a signal.
    pub fn count(&self, signal: &str, outcome: ExportOutcome, records: u64) {
        if records > 0 {
            self.records
                .with_label_values(&[signal, outcome.into()])
                .inc_by(records);
        }
    }
}
