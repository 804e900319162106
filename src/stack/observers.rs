//! The observers that learn how calls ended.

use std::time::Duration;

use crate::call::{Invocation, ToolResult};
use crate::ledger::{Row, State};
use crate::log::CallLog;
use crate::metrics::{OutcomeLabel, ToolMetrics};
use crate::telemetry::{EndedParts, ToolSpans};

/// The observers that learn how each call ended, besides the ledger.
pub struct Observers {
    /// Writes one log line for each call.
    pub log: CallLog,
    /// The metrics of the tool.
    pub metrics: ToolMetrics,
    /// Makes the spans of the tool's calls. `None` if no collector is configured.
    pub spans: Option<ToolSpans>,
}

impl Observers {
    /// Reports a call that has ended with this row.
    pub(super) fn observe_end(&self, invocation: &Invocation, row: &Row, parts: EndedParts<'_>) {
        self.log.log_ended(invocation, row);
        if let Some(spans) = &self.spans {
            spans.end(invocation, row, parts);
        }
        let outcome = match row.kind {
            Some(kind) => OutcomeLabel::Failed(kind),
            None if row.state == State::Failed => OutcomeLabel::ToolError,
            None => OutcomeLabel::Ok,
        };
        let took = row.duration_us.filter(|_| row.state != State::Refused);
        let took = took.map(|us| Duration::from_micros(us.unsigned_abs()));
        self.metrics
            .record_end(outcome, row.cache, took, row.attempts);
    }

    /// Reports that the answer in this row was given again.
    pub(super) fn observe_replay(
        &self,
        invocation: &Invocation,
        row: &Row,
        result: Option<&ToolResult>,
    ) {
        self.log.log_replayed(invocation, row);
        self.metrics.record_replay();
        if let Some(spans) = &self.spans {
            let parts = EndedParts {
                result,
                is_replayed: true,
                ..EndedParts::default()
            };
            spans.end(invocation, row, parts);
        }
    }
}
