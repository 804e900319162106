//! Counters of the service as a whole.

use prometheus::{Error, IntCounterVec};

use super::families::Families;

/// Counters that belong to no tool.
pub struct ServiceCounters {
    requests: IntCounterVec,
    approval_webhooks: IntCounterVec,
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
        })
    }

    /// Counts an answered request.
    pub fn record_request(&self, route: &str, status: &str) {
        let requests = &self.requests;
        requests.with_label_values(&[route, status]).inc();
    }

    /// Counts a request to a receiver of webhooks.
    pub fn count_approval_webhook(&self, is_delivered: bool) {
        let outcome = if is_delivered { "delivered" } else { "failed" };
        let webhooks = &self.approval_webhooks;
        webhooks.with_label_values(&[outcome]).inc();
    }
}
