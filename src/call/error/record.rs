//! What the ledger keeps of a failed call: its row, and the messages of its attempts.

use super::call_error::CallError;
use super::upstream_cause::UpstreamCause;
use crate::call::invocation_id::InvocationId;

/// Precedes the beginning of a response's body in the message of an attempt.
const RESPONSE_MARK: &str = "\nThe response began: ";

/// The part of an attempt's message that the caller may read.
pub fn caller_attempt_message(message: &str) -> &str {
    message
        .split_once(RESPONSE_MARK)
        .map_or(message, |(for_caller, _)| for_caller)
}

impl CallError {
    /// The message in the row of a failed attempt. What follows its mark is for operators.
    pub fn attempt_message(&self) -> String {
        match self {
            Self::UpstreamFailed {
                cause:
                    Some(UpstreamCause {
                        body: Some(body), ..
                    }),
                ..
            } => format!("{self}{RESPONSE_MARK}{body}"),
            _ => self.to_string(),
        }
    }

    /// The call whose row records this failure. `None` if the call was refused before it got a row.
    pub fn recorded_invocation(&self, id: InvocationId) -> Option<InvocationId> {
        let has_no_row = matches!(
            self,
            Self::Draining | Self::LedgerUnavailable { has_row: false, .. }
        );
        (!has_no_row).then(|| self.related_invocation().unwrap_or(id))
    }
}
