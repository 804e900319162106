//! Counters of the service as a whole.

use prometheus::{Error, IntCounterVec, IntGaugeVec};

use super::families::Families;

/// Counters that belong to no tool.
pub struct ServiceCounters {
    requests: IntCounterVec,
    approval_webhooks: IntCounterVec,
    redis_requests: IntCounterVec,
    redis_up: IntGaugeVec,
}

impl ServiceCounters {
    pub(super) fn new(families: &Families) -> Result<Self, Error> {
        Ok(Self {
            requests: families.counter_vec(
                "toolcrib_http_requests_total",
                "Requests answered, by route (`none`: there is no such route) and status.",
                &["route", "status"],
            )?,
            approval_webhooks: families.counter_vec(
                "toolcrib_approval_webhooks_total",
                "Requests to receivers of webhooks about waiting calls. Outcome: `delivered` or `failed` (sent again later).",
                &["outcome"],
            )?,
            redis_requests: families.counter_vec(
                "toolcrib_cache_redis_requests_total",
                "Requests to Redis about cached results. Operation: `read`, `store` or `purge`. Outcome: `hit`, `miss`, `stored`, `done`, `too_large` (not sent), `failed` (no answer in time, or an error) or `skipped` (Redis is away, so nothing was sent).",
                &["operation", "outcome"],
            )?,
            redis_up: families.gauge_vec(
                "toolcrib_cache_redis_up",
                "Whether results are shared through Redis: 1 with a connection, 0 without.",
                &["server"],
            )?,
        })
    }

    /// Counts an answered request.
    pub fn record_request(&self, route: &str, status: &str) {
        let requests = &self.requests;
        requests.with_label_values(&[route, status]).inc();
    }

    /// Counts a request to Redis about cached results.
    pub fn count_redis_request(&self, operation: &str, outcome: &str) {
        let requests = &self.redis_requests;
        requests.with_label_values(&[operation, outcome]).inc();
    }

    /// Sets whether there is a connection to this Redis server.
    pub fn set_redis_up(&self, server: &str, is_up: bool) {
        let up = &self.redis_up;
        up.with_label_values(&[server]).set(is_up.into());
    }

    /// Counts a request to a receiver of webhooks.
    pub fn count_approval_webhook(&self, is_delivered: bool) {
        let outcome = if is_delivered { "delivered" } else { "failed" };
        let webhooks = &self.approval_webhooks;
        webhooks.with_label_values(&[outcome]).inc();
    }
}

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
