//! One sentence on why a call failed, for the log and for lists of calls.
//!
//! It is made of closed kinds and of facts that the service knows. It never contains an argument, a
//! result, or a text of the tool, its backend, the model or the caller. So it may stand where
//! arguments and results must not.

use super::call_error::CallError;
use super::upstream_cause::UpstreamFailure;
use crate::call::units::Count;
use crate::call::words;

/// The summary of a result with `is_error`. Its own text may quote anything.
pub const ERROR_RESULT_SUMMARY: &str = "the tool reported an error of its own";

/// The longest beginning of a tool's own error text in a list of calls, in characters.
const MAX_ERROR_TEXT_CHARS: usize = 160;

/// The beginning of the text of an error result, on one line. Lists of calls show it to those who
/// may read the result. The log never has it: the text may quote anything.
pub fn error_text_beginning(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() > 4 * MAX_ERROR_TEXT_CHARS {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(MAX_ERROR_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None if line.is_empty() => ERROR_RESULT_SUMMARY.to_owned(),
        None => line,
    }
}

/// The summary of a call that was running when its process ended.
pub const INTERRUPTED_SUMMARY: &str = "the service ended while the call ran";

/// The keywords of JSON Schema that a summary may name.
const KEYWORDS: [&str; 24] = words(
    "additionalProperties allOf anyOf const contains dependentRequired enum
     exclusiveMaximum exclusiveMinimum format maxItems maxLength maxProperties maximum
     minItems minLength minProperties minimum multipleOf oneOf pattern required type
     uniqueItems",
);

impl CallError {
    /// One sentence on why the call failed, without any text of others.
    pub fn summary(&self) -> String {
        match self {
            Self::Denied { .. } => "the request denies this tool".into(),
            Self::IdempotencyKeyMissing { .. } => {
                "the tool requires an Idempotency-Key, and the call had none".into()
            }
            // These texts consist of fixed words, numbers, durations, and the name of the caller.
            Self::IdempotencyInProgress { .. }
            | Self::IdempotencyMismatch { .. }
            | Self::OutcomeUnknown { .. }
            | Self::UsageLimitReached { .. }
            | Self::Overloaded { .. }
            | Self::TooManyWaiting { .. }
            | Self::Draining
            | Self::DeadlineExceeded { .. }
            | Self::AttemptTimedOut { .. }
            | Self::Cancelled { .. }
            | Self::Internal => self.to_string(),
            Self::NoStoredResult { offset } => {
                format!("no stored result has the page at offset {offset}")
            }
            Self::DeniedByRule { .. } => "a rule of the operator denies the call".into(),
            Self::RepeatedCall { earlier, .. } => {
                format!("the call repeats invocation {earlier} of its run")
            }
            Self::UnreadableArguments(_) => {
                "the model's text for the arguments is not a JSON object".into()
            }
            Self::InvalidArguments(violations) => {
                // Pointers and messages may quote arguments, and a tool may invent a keyword.
                let is_broken = |keyword: &&&str| {
                    violations
                        .iter()
                        .any(|violation| violation.keyword == **keyword)
                };
                let keywords: Vec<&str> = KEYWORDS.iter().filter(is_broken).copied().collect();
                let separator = if keywords.is_empty() { "" } else { ": " };
                let count = Count(violations.len() as u64, "violation");
                format!(
                    "the arguments have {count} of the schema{separator}{}",
                    keywords.join(", ")
                )
            }
            Self::CredentialMissing { .. } => {
                "the caller has no credential that the tool needs".into()
            }
            Self::InvalidContext(_) => {
                "a field of the request's context is invalid for this tool".into()
            }
            Self::ApprovalExpired { reason, .. } => reason.clone(),
            Self::LedgerUnavailable { started: true, .. } => {
                "the tool ran, but the ledger does not have its end".into()
            }
            Self::ToolUnavailable { started: true, .. } => {
                "the tool became unavailable during the call".into()
            }
            Self::UpstreamFailed(UpstreamFailure {
                cause: Some(cause), ..
            }) => cause.summary(),
            Self::UpstreamFailed(failure) if failure.not_delivered => {
                "the call did not reach the tool's backend".into()
            }
            _ => self.kind().summary().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{
        Failure, InvocationId, UnreadableArguments, UpstreamCause, UpstreamReason, Violation,
    };

    const SECRET: &str = "quoted-text-of-others";

    fn upstream(cause: Option<UpstreamCause>, not_delivered: bool) -> CallError {
        let message = SECRET.to_owned();
        CallError::UpstreamFailed(UpstreamFailure {
            message,
            retryable: false,
            unavailable: false,
            not_delivered,
            retry_after: None,
            cause,
        })
    }

    #[test]
    fn summary_quotes_nobody() {
        let text = || SECRET.to_owned();
        let violation = Violation {
            pointer: format!("/{SECRET}"),
            keyword: "additionalProperties".into(),
            message: text(),
            schema_pointer: "/additionalProperties".into(),
        };
        let unreadable = UnreadableArguments {
            detail: text(),
            correction: text(),
        };
        for error in [
            CallError::Forbidden {
                caller: text(),
                tool: text(),
            },
            CallError::RepeatedCall {
                tool: text(),
                earlier: InvocationId::from_bytes([7; 16]),
            },
            CallError::UnreadableArguments(unreadable),
            CallError::InvalidArguments(vec![violation.clone(), violation]),
            CallError::InvalidContext(text()),
            CallError::LedgerUnavailable {
                reason: text(),
                started: false,
                has_row: true,
            },
            CallError::LedgerUnavailable {
                reason: text(),
                started: true,
                has_row: true,
            },
            CallError::ToolUnavailable {
                message: text(),
                started: true,
                retry_after: None,
            },
            CallError::ToolUnavailable {
                message: text(),
                started: false,
                retry_after: None,
            },
            upstream(None, false),
            upstream(None, true),
            CallError::BadOutput(text()),
            CallError::StoredFailure {
                failure: Box::new(Failure::from(&CallError::BadOutput(text()))),
                invocation: InvocationId::from_bytes([7; 16]),
                replayed: false,
            },
        ] {
            let summary = error.summary();
            assert!(
                !summary.contains(SECRET) && !summary.is_empty(),
                "{error:?}: {summary}"
            );
        }
    }

    #[test]
    fn error_text_begins_on_one_line() {
        assert_eq!(
            error_text_beginning(" ValueError:\n\tno such city\n"),
            "ValueError: no such city"
        );
        assert_eq!(error_text_beginning(" \n"), ERROR_RESULT_SUMMARY);
        let long = error_text_beginning(&"ä".repeat(1 << 20));
        assert_eq!(long, format!("{}…", "ä".repeat(MAX_ERROR_TEXT_CHARS)));
    }

    #[test]
    fn summary_states_the_facts() {
        let host = || Some("127.0.0.1:9".to_owned());
        let cause = |reason, host| {
            let body = Some(SECRET.to_owned());
            upstream(Some(UpstreamCause { reason, host, body }), true).summary()
        };
        assert_eq!(
            cause(UpstreamReason::ConnectionRefused, host()),
            "127.0.0.1:9 refused the connection"
        );
        assert_eq!(
            cause(UpstreamReason::Status(503), host()),
            "127.0.0.1:9 answered with HTTP status 503"
        );
        assert_eq!(
            cause(UpstreamReason::ConnectTimeout(5), None),
            "the tool's backend accepted no connection within 5 seconds"
        );
        assert_eq!(
            CallError::AttemptTimedOut {
                after: Duration::from_secs(5)
            }
            .summary(),
            "the tool did not answer within 5s"
        );
        let violation = |keyword: &str| Violation {
            pointer: String::new(),
            keyword: keyword.into(),
            message: String::new(),
            schema_pointer: String::new(),
        };
        assert_eq!(
            CallError::InvalidArguments(vec![
                violation("required"),
                violation("minimum"),
                violation("required")
            ])
            .summary(),
            "the arguments have 3 violations of the schema: minimum, required"
        );
    }
}
