//! The part of a tool's stack that reports calls.

use std::sync::Arc;

use super::ended_span::{Content, EndedCall, EndedSpan, Subject, Times};
use super::pipeline::Telemetry;
use crate::call::{CallSpan, Correlation, Invocation, Kind, ModelUsage, ToolResult};
use crate::ledger::Row;
use crate::log;

/// Longest arguments and longest result in a span, in bytes of JSON.
const MAX_CONTENT_BYTES: usize = 8 << 10;

/// Makes the spans of one tool's calls.
#[derive(Clone)]
pub struct ToolSpans {
    telemetry: Arc<Telemetry>,
    kind: Kind,
    captures: bool,
    captures_results: bool,
}

/// What is not in the row of a call.
#[derive(Default)]
pub struct EndedParts<'a> {
    /// The result, if the tool returned one.
    pub result: Option<&'a ToolResult>,
    /// The use of an agent's model.
    pub model: Option<ModelUsage>,
    /// Whether the answer of an earlier call was given again.
    pub is_replayed: bool,
}

impl ToolSpans {
    /// The spans of a tool of this kind. `may_capture`: the ledger records the tool's calls in
    /// full, so spans may hold them too. `has_write_only`: some arguments must not be recorded. The
    /// result may repeat them, so spans do not hold it.
    pub fn new(
        telemetry: &Arc<Telemetry>,
        kind: Kind,
        may_capture: bool,
        has_write_only: bool,
    ) -> Self {
        let captures = telemetry.captures && may_capture;
        Self {
            captures,
            captures_results: captures && !has_write_only,
            telemetry: telemetry.clone(),
            kind,
        }
    }

    /// Decides whether a call that starts is recorded.
    pub fn start(&self, correlation: &mut Correlation) {
        self.telemetry.trace_call(correlation);
    }

    /// Records a call that has ended with this row.
    pub fn end(&self, invocation: &Invocation, row: &Row, parts: EndedParts<'_>) {
        if let Some(span) = invocation.correlation.span.recorded() {
            self.record(span, invocation, row, parts);
        }
    }

    fn record(
        &self,
        span: &Arc<CallSpan>,
        invocation: &Invocation,
        row: &Row,
        parts: EndedParts<'_>,
    ) {
        let call = EndedCall {
            ended: log::EndedCall {
                replayed: parts.is_replayed,
                ..log::EndedCall::new(invocation, row)
            },
            parent: invocation.call_chain.parent,
            kind: self.kind,
            agent: invocation.call_chain.agent.clone(),
            model: parts.model,
            content: self.captures.then(|| Content {
                arguments: Some(cut(&row.arguments).to_owned()),
                result: parts
                    .result
                    .filter(|_| self.captures_results)
                    .and_then(result_json),
            }),
        };
        self.telemetry.record_span(EndedSpan {
            span: span.clone(),
            caller_trace: invocation.correlation.trace.clone(),
            times: Times::until_now(invocation.timing.started),
            subject: Subject::Call(Box::new(call)),
        });
    }
}

fn result_json(result: &ToolResult) -> Option<String> {
    let text = serde_json::to_string(result).ok()?;
    Some(cut(&text).to_owned())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_CONTENT_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_cut_between_characters() {
        let text = "é".repeat(MAX_CONTENT_BYTES);
        assert_eq!(cut(&text).len(), MAX_CONTENT_BYTES);
        let shifted = format!("a{text}");
        assert_eq!(cut(&shifted).len(), MAX_CONTENT_BYTES - 1);
        assert_eq!(cut("{}"), "{}");
    }
}
