//! Results and failures in the form in which the ledger keeps them.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::call_error::{CallError, Failure};
use super::upstream_cause::{UpstreamCause, UpstreamFailure};
use super::violation::Violation;
use crate::call::canonical::Sorted;
use crate::call::capture::{DigestKey, NOT_RECORDED};
use crate::call::invocation_id::InvocationId;
use crate::call::result::ToolResult;

/// Maximum length of a text in the record of a refusal, in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum size of all violations in that record, in bytes. Further violations are left out.
const MAX_VIOLATION_BYTES: usize = 4 << 10;

fn truncate_text(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
}

impl Serialize for Sorted<'_, ToolResult> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Whether a result may be cached is not part of the record.
        let ToolResult {
            content,
            structured_content,
            is_error,
            result_as_answer,
            hint,
            incomplete,
            warnings,
            not_cached: _,
        } = self.0;
        let mut fields = serializer.serialize_struct("ToolResult", 7)?;
        fields.serialize_field("content", content)?;
        if let Some(value) = structured_content {
            fields.serialize_field("structured_content", &Sorted(value))?;
        }
        fields.serialize_field("is_error", is_error)?;
        if let Some(flag) = result_as_answer {
            fields.serialize_field("result_as_answer", flag)?;
        }
        if let Some(hint) = hint {
            fields.serialize_field("hint", hint)?;
        }
        if let Some(incomplete) = incomplete {
            fields.serialize_field("incomplete", incomplete)?;
        }
        if !warnings.is_empty() {
            fields.serialize_field("warnings", warnings)?;
        }
        fields.end()
    }
}

impl Serialize for Sorted<'_, Failure> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A failure holds no object with foreign keys, so its keys need no sorting.
        self.0.serialize(serializer)
    }
}

impl Failure {
    /// The failure as stored for a tool with `capture: digest`: its kind and the advice for the
    /// caller stay. A digest replaces messages that may quote the call.
    #[must_use]
    pub fn with_digest(mut self, key: &DigestKey) -> Self {
        if self.kind.facts().may_quote_call {
            self.digest = Some(Box::new(key.digest::<Self>(&self)));
            self.violations.clear();
            (self.detail, self.for_model) = (NOT_RECORDED.into(), NOT_RECORDED.into());
        }
        self
    }

    /// The failure as stored for a refused call. Its texts are cut, because they may quote
    /// arguments of any length.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        let mut room = MAX_VIOLATION_BYTES;
        self.violations.retain_mut(|violation| {
            let Violation {
                pointer,
                keyword,
                message,
                schema_pointer,
            } = violation;
            [&mut *pointer, &mut *message, &mut *schema_pointer]
                .into_iter()
                .for_each(truncate_text);
            let bytes = pointer.len() + keyword.len() + message.len() + schema_pointer.len();
            room = room.saturating_sub(bytes);
            room > 0
        });
        truncate_text(&mut self.detail);
        truncate_text(&mut self.for_model);
        self
    }
}

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
            Self::UpstreamFailed(UpstreamFailure {
                cause:
                    Some(UpstreamCause {
                        body: Some(body), ..
                    }),
                ..
            }) => format!("{self}{RESPONSE_MARK}{body}"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallError, Effect, ErrorKind};

    #[test]
    fn refusal_records_are_bounded() {
        let long = "☃".repeat(100_000);
        let violation = |at: usize| Violation {
            pointer: format!("/{at}/{long}"),
            keyword: "type".into(),
            message: long.clone(),
            schema_pointer: "/type".into(),
        };
        let error = CallError::InvalidArguments((0..50).map(violation).collect());
        let recorded = Failure::from_error(&error, Effect::Read).shortened();
        let json = serde_json::to_string(&recorded).unwrap();
        assert!(json.len() < 8 << 10, "{}", json.len());
        assert!(
            recorded.violations.len() > 2 && recorded.violations[0].pointer.starts_with("/0/☃")
        );
        let short = Failure::from_error(&CallError::Cancelled { started: true }, Effect::Read);
        assert_eq!(short.clone().shortened(), short);
    }

    #[test]
    fn only_quoting_messages_are_replaced() {
        let key = DigestKey::random().unwrap();
        let message = "no user Ann".into();
        let error = CallError::UpstreamFailed(UpstreamFailure {
            message,
            retryable: true,
            unavailable: true,
            not_delivered: false,
            retry_after: None,
            cause: None,
        });
        let recorded = Failure::from_error(&error, Effect::Read).with_digest(&key);
        assert!(!serde_json::to_string(&recorded).unwrap().contains("Ann"));
        assert_eq!(
            (recorded.kind, recorded.retryable),
            (ErrorKind::UpstreamFailed, true)
        );
        assert!(recorded.digest.is_some());
        let own = Failure::from_error(&CallError::Cancelled { started: true }, Effect::Read);
        assert_eq!(own.clone().with_digest(&key), own);
    }
}
