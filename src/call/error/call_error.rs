//! The failures of a call, without HTTP.
//!
//! A tool fails with a [`ToolError`](crate::call::ToolError), the stack with a [`CallError`]. Both have
//! messages on which a model can act. Only `http/problem.rs` maps failures to HTTP statuses.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolcrib_dialect::UnreadableArguments;

use super::kind::ErrorKind;
use super::messages::{
    format_duration, limit_reached_detail, limit_reached_message, note_suffix, overloaded_message,
    too_many_waiting_message, violations_message,
};
use super::upstream_cause::UpstreamFailure;
use super::violation::Violation;
use crate::call::capture::Digest;
use crate::call::invocation_id::InvocationId;
use crate::call::meta::LimitUsage;
use crate::call::policy::Effect;

/// Follows the message to the model when a failed call may have changed something.
const MAY_HAVE_EFFECT: &str = " It may have had an effect; check before you try again.";

/// Why a call failed. `Display` is the problem's `detail`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The caller has no grant for this tool.
    #[error("caller `{caller}` may not use tool `{tool}`")]
    Forbidden {
        /// Name of the caller.
        caller: String,
        /// Name of the tool.
        tool: String,
    },
    /// The request itself denies this tool.
    #[error("the request denies tool `{tool}`")]
    Denied {
        /// Name of the tool.
        tool: String,
    },
    /// The tool sends a credential of its caller, and this caller has none of that name.
    #[error(
        "caller `{caller}` has no credential `{credential}`, which tool `{tool}` sends for its caller"
    )]
    CredentialMissing {
        /// Name of the caller.
        caller: String,
        /// Name of the tool.
        tool: String,
        /// Name of the credential.
        credential: String,
    },
    /// The manifest or an admin has disabled the tool.
    #[error("tool `{tool}` is disabled")]
    ToolDisabled {
        /// Name of the tool.
        tool: String,
    },
    /// The tool's definition differs from the one that was pinned.
    #[error(
        "tool `{tool}` is quarantined: its definition differs from its pin; approve it with `toolcrib pin`"
    )]
    DefinitionChanged {
        /// Name of the tool.
        tool: String,
    },
    /// The tool requires an idempotency key, and the call has none.
    #[error(
        "tool `{tool}` requires an Idempotency-Key header: the same key for each repetition of a call, and a new key for each new call"
    )]
    IdempotencyKeyMissing {
        /// Name of the tool.
        tool: String,
    },
    /// The first call with this key still runs.
    #[error("the call with this Idempotency-Key still runs")]
    IdempotencyInProgress {
        /// The first call with the key.
        invocation: InvocationId,
    },
    /// The key belongs to a call with another payload.
    #[error(
        "this Idempotency-Key was used for a call with other arguments or context, or the tool has changed since"
    )]
    IdempotencyMismatch {
        /// The call that holds the key.
        invocation: InvocationId,
    },
    /// The first call with this key was a write that was interrupted.
    #[error(
        "the call with this Idempotency-Key was interrupted, and it is not known whether it had its effect"
    )]
    OutcomeUnknown {
        /// The first call with the key.
        invocation: InvocationId,
    },
    /// The call requests a page after the first one, and no stored result has it.
    #[error(
        "no stored result has the page at offset {offset}, and a request for a later page never runs the tool: use \
         GET /invocations/{{id}}/result?offset={offset} with the invocation_id of the answer that had the first page"
    )]
    NoStoredResult {
        /// Offset of the page, in items or characters.
        offset: usize,
    },
    /// The call with this key failed, and each repetition gets the same failure.
    #[error("{}", failure.detail)]
    StoredFailure {
        /// The failure as stored in the row.
        failure: Box<Failure>,
        /// The call that holds the key.
        invocation: InvocationId,
        /// Whether this is a repetition, and not the call itself.
        replayed: bool,
    },
    /// A rule of the operator denies this call.
    #[error("a rule denies this call of tool `{tool}`: {say}")]
    DeniedByRule {
        /// Name of the tool.
        tool: String,
        /// The rule's text for the model.
        say: String,
    },
    /// A person has denied the call.
    #[error("`{by}` has denied this call of tool `{tool}`{}", note_suffix(note.as_deref()))]
    ApprovalDenied {
        /// Name of the tool.
        tool: String,
        /// The caller that decided.
        by: String,
        /// The reason that the person gave.
        note: Option<String>,
    },
    /// The call has no valid approval.
    #[error("this call of tool `{tool}` is not approved: {reason}")]
    ApprovalExpired {
        /// Name of the tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The call repeats the last answered call of its run.
    #[error(
        "tool `{tool}` was called with the same arguments just before in this run, and answered (invocation {earlier})"
    )]
    RepeatedCall {
        /// Name of the tool.
        tool: String,
        /// The answered call.
        earlier: InvocationId,
    },
    /// The model's text for the arguments is not a JSON object that can be validated.
    #[error("the arguments cannot be read: {}", .0.detail)]
    UnreadableArguments(UnreadableArguments),
    /// The arguments violate the schema. All violations are listed.
    #[error("{}", violations_message(.0))]
    InvalidArguments(Vec<Violation>),
    /// A field of the request's `context` is invalid for this tool.
    #[error("{0}")]
    InvalidContext(String),
    /// One of the limits is reached.
    #[error("{}", limit_reached_detail(usage, caller))]
    UsageLimitReached {
        /// The limit.
        usage: Box<LimitUsage>,
        /// The caller whose call it refuses.
        caller: Arc<str>,
        /// Time until the end of the window.
        retry_after: Option<Duration>,
    },
    /// The tool or the service has no free permit and no free slot in its queue.
    #[error("{}", overloaded_message(*per_caller))]
    Overloaded {
        /// How long the caller should wait.
        retry_after: Duration,
        /// The caller's share of permits, if it is the share that is full.
        per_caller: Option<usize>,
    },
    /// Too many calls wait for a person.
    #[error("{}", too_many_waiting_message(*most, *of_caller))]
    TooManyWaiting {
        /// How many may wait.
        most: u64,
        /// Whether this is the number for each caller.
        of_caller: bool,
    },
    /// The service is shutting down.
    #[error("the service is shutting down")]
    Draining,
    /// The ledger cannot write, so no tool may run.
    #[error("{}: {reason}", if *started { "the tool ran, but its end is not in the ledger" } else { "the ledger cannot write" })]
    LedgerUnavailable {
        /// The reason.
        reason: String,
        /// Whether the tool ran, and only its record is missing yet.
        started: bool,
        /// Whether the call has a row, now or once the ledger can write again.
        has_row: bool,
    },
    /// The runner of the tool is unavailable.
    #[error("the tool is unavailable: {message}")]
    ToolUnavailable {
        /// The reason.
        message: String,
        /// Whether an attempt was started.
        started: bool,
        /// When the next call may pass, if known.
        retry_after: Option<Duration>,
    },
    /// The whole call took longer than its deadline.
    #[error("the call did not end within its deadline of {}", format_duration(*after))]
    DeadlineExceeded {
        /// The time that the call had.
        after: Duration,
        /// Whether an attempt was started.
        started: bool,
    },
    /// The last attempt timed out.
    #[error("the tool did not answer within {}", format_duration(*after))]
    AttemptTimedOut {
        /// The time that the attempt had.
        after: Duration,
    },
    /// The caller, an admin or the shutdown cancelled the call.
    #[error("the call was cancelled {}", if *started { "while the tool ran" } else { "before the tool ran" })]
    Cancelled {
        /// Whether an attempt was started.
        started: bool,
    },
    /// The backend of the tool failed.
    #[error("{}", .0.message)]
    UpstreamFailed(UpstreamFailure),
    /// The output violates the tool's output schema or format.
    #[error("{0}")]
    BadOutput(String),
    /// A fault of the service. Its details are in the log only.
    #[error("the service failed; its log has the cause")]
    Internal,
}

impl CallError {
    /// The ledger failed before the tool ran.
    pub fn ledger_unavailable(error: &impl std::fmt::Display) -> Self {
        Self::LedgerUnavailable {
            reason: error.to_string(),
            started: false,
            has_row: true,
        }
    }

    /// The kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Forbidden { .. } | Self::Denied { .. } | Self::CredentialMissing { .. } => {
                ErrorKind::Forbidden
            }
            Self::DeniedByRule { .. } => ErrorKind::Forbidden,
            Self::ApprovalDenied { .. } => ErrorKind::ApprovalDenied,
            Self::ApprovalExpired { .. } => ErrorKind::ApprovalExpired,
            Self::ToolDisabled { .. } => ErrorKind::ToolDisabled,
            Self::DefinitionChanged { .. } => ErrorKind::DefinitionChanged,
            Self::IdempotencyKeyMissing { .. }
            | Self::NoStoredResult { .. }
            | Self::InvalidContext(_) => ErrorKind::InvalidRequest,
            Self::IdempotencyInProgress { .. } => ErrorKind::IdempotencyInProgress,
            Self::IdempotencyMismatch { .. } => ErrorKind::IdempotencyMismatch,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
            Self::StoredFailure { failure, .. } => failure.kind,
            Self::RepeatedCall { .. } => ErrorKind::RepeatedCall,
            Self::InvalidArguments(_) | Self::UnreadableArguments(_) => ErrorKind::InvalidArguments,
            Self::UsageLimitReached { .. } => ErrorKind::UsageLimitReached,
            Self::Overloaded { .. } | Self::TooManyWaiting { .. } => ErrorKind::Overloaded,
            Self::Draining => ErrorKind::Draining,
            Self::LedgerUnavailable { .. } => ErrorKind::LedgerUnavailable,
            Self::ToolUnavailable { .. } => ErrorKind::ToolUnavailable,
            Self::DeadlineExceeded { .. } => ErrorKind::DeadlineExceeded,
            Self::AttemptTimedOut { .. } => ErrorKind::AttemptTimedOut,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::UpstreamFailed(_) => ErrorKind::UpstreamFailed,
            Self::BadOutput(_) => ErrorKind::BadOutput,
            Self::Internal => ErrorKind::Internal,
        }
    }

    /// Whether a further attempt of the same call may succeed, if the tool's effect permits one.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::UpstreamFailed(failure) => failure.retryable,
            Self::AttemptTimedOut { .. } | Self::ToolUnavailable { .. } => true,
            _ => false,
        }
    }

    /// Whether the caller may send the same call again: nothing ran, or the failure may be
    /// temporary.
    pub fn is_retryable_by_caller(&self) -> bool {
        match self {
            Self::Overloaded { .. }
            | Self::TooManyWaiting { .. }
            | Self::Draining
            | Self::IdempotencyInProgress { .. }
            | Self::LedgerUnavailable { started: false, .. } => true,
            Self::StoredFailure { failure, .. } => failure.retryable,
            Self::UsageLimitReached { usage, .. } => usage.resets_at.is_some(),
            other => other.is_transient(),
        }
    }

    /// How long the caller should wait before that, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::UsageLimitReached { retry_after, .. } => *retry_after,
            Self::UpstreamFailed(failure) => failure.retry_after,
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            Self::TooManyWaiting { .. } => Some(Duration::from_secs(60)),
            Self::ToolUnavailable {
                started: false,
                retry_after,
                ..
            } => Some(retry_after.unwrap_or(Duration::from_secs(1))),
            Self::Draining
            | Self::IdempotencyInProgress { .. }
            | Self::LedgerUnavailable { started: false, .. } => Some(Duration::from_secs(1)),
            Self::StoredFailure { failure, .. } => {
                failure.retry_after_ms.map(Duration::from_millis)
            }
            _ => None,
        }
    }

    /// Whether the call was refused before any code of the tool ran.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::StoredFailure { failure, .. } => !failure.started,
            Self::ToolUnavailable { started, .. } | Self::LedgerUnavailable { started, .. } => {
                !started
            }
            _ => self.kind().facts().is_refusal,
        }
    }

    /// The texts that a tool, its backend, a model or a caller may have written.
    pub fn foreign_texts(&mut self) -> Vec<&mut String> {
        match self {
            Self::UpstreamFailed(UpstreamFailure { message, cause, .. }) => {
                let cause = cause
                    .as_mut()
                    .map(|cause| [&mut cause.host, &mut cause.body]);
                let mut texts = vec![message];
                texts.extend(cause.into_iter().flatten().flatten());
                texts
            }
            Self::ToolUnavailable { message, .. }
            | Self::BadOutput(message)
            | Self::InvalidContext(message) => vec![message],
            Self::UnreadableArguments(unreadable) => {
                vec![&mut unreadable.detail, &mut unreadable.correction]
            }
            Self::InvalidArguments(violations) => violations
                .iter_mut()
                .flat_map(Violation::texts_mut)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the call did not reach the backend, so it cannot have had an effect.
    pub fn is_not_delivered(&self) -> bool {
        matches!(
            self,
            Self::UpstreamFailed(UpstreamFailure {
                not_delivered: true,
                ..
            })
        )
    }

    /// The call that the error is about, if that is another call than the failed one.
    pub fn related_invocation(&self) -> Option<InvocationId> {
        match self {
            Self::IdempotencyInProgress { invocation }
            | Self::IdempotencyMismatch { invocation }
            | Self::OutcomeUnknown { invocation }
            | Self::StoredFailure { invocation, .. } => Some(*invocation),
            _ => None,
        }
    }

    /// The message for a model, in one or two sentences. Addresses and advice for operators are in the
    /// details only.
    pub fn for_model(&self) -> String {
        match self {
            Self::Forbidden { tool, .. } | Self::Denied { tool } => format!("You are not allowed to use `{tool}`. Try another tool."),
            Self::CredentialMissing { tool, credential, .. } => format!(
                "The tool `{tool}` did not run: it needs the credential `{credential}`, which the operator has not set up \
                 for this caller. Continue without it."
            ),
            Self::ToolDisabled { tool } => format!("The tool `{tool}` is disabled. Try another tool."),
            Self::DefinitionChanged { tool } => format!(
                "The tool `{tool}` has changed and did not run: an operator must approve it first. Continue without it."
            ),
            Self::IdempotencyKeyMissing { .. } => {
                "The tool did not run: the program that calls it must send an Idempotency-Key with this tool.".into()
            }
            Self::NoStoredResult { .. } => {
                "The tool did not run: its earlier result is not stored, so there is no further page of it. Call the tool \
                 again from the beginning if you need it."
                    .into()
            }
            Self::IdempotencyInProgress { .. } => {
                "The same call is running already. Wait a moment, then ask for its result.".into()
            }
            Self::IdempotencyMismatch { .. } => {
                "The tool did not run: its key belongs to an earlier call with other arguments or context, or the tool has changed since. \
                 Check what that call did before you make a new one."
                    .into()
            }
            Self::OutcomeUnknown { .. } => {
                "The same call was interrupted before. It may have had its effect; check before you call the tool again."
                    .into()
            }
            Self::StoredFailure { failure, .. } => failure.for_model.clone(),
            Self::RepeatedCall { tool, .. } => format!(
                "You have called `{tool}` with the same arguments just before, and have its answer: use that. To \
                 continue, change the arguments or try something else."
            ),
            Self::DeniedByRule { say, .. } => say.clone(),
            Self::ApprovalDenied { tool, note, .. } => format!(
                "The tool `{tool}` did not run: a person has denied this call{}. Do not call the tool again with these arguments.",
                note_suffix(note.as_deref())
            ),
            Self::ApprovalExpired { tool, reason } => format!(
                "The tool `{tool}` did not run: {reason}. Continue without it, or ask the user."
            ),
            Self::UnreadableArguments(unreadable) => unreadable.correction.clone(),
            Self::InvalidArguments(violations) => {
                let messages: Vec<&str> = violations.iter().take(10).map(|v| v.message.as_str()).collect();
                format!("The arguments are invalid. {} Correct them and call the tool again.", messages.join(" "))
            }
            Self::InvalidContext(what) => {
                format!("The tool did not run: the program that calls it must send a valid context. {what}")
            }
            Self::UsageLimitReached { usage, .. } => limit_reached_message(usage),
            Self::Overloaded { per_caller: None, .. } => {
                "The tool is busy and did not run. Try again in a moment.".into()
            }
            Self::Overloaded { per_caller: Some(_), .. } => {
                "The tool is busy with other calls of yours and did not run. Wait until one of them ends, then try again."
                    .into()
            }
            Self::TooManyWaiting { .. } => {
                format!("The tool did not run: {self}. Continue without it, and try again when a person has decided.")
            }
            Self::LedgerUnavailable { started: true, .. } => {
                "There is no answer to show: the tool ran, but the service could not record its end. Do not call the tool \
                 again; look for the result later."
                    .into()
            }
            Self::LedgerUnavailable { .. } => {
                "The tool did not run: the service cannot record calls now. Try again in a moment.".into()
            }
            Self::Draining => format!("The tool did not run: {self}. Try again in a moment."),
            Self::DeadlineExceeded { started: false, .. } => format!("The tool did not run: {self}."),
            Self::DeadlineExceeded { .. } | Self::AttemptTimedOut { .. } => {
                format!("There is no result: {self}.{MAY_HAVE_EFFECT}")
            }
            Self::Cancelled { started: false } => "The call was cancelled and the tool did not run.".into(),
            Self::Cancelled { started: true } => "The call was cancelled before it ended.".into(),
            Self::ToolUnavailable { started: false, .. } => {
                "The tool is unavailable and did not run. Try again later, or continue without it.".into()
            }
            Self::ToolUnavailable { .. } => "The tool failed: it became unavailable.".into(),
            Self::UpstreamFailed(UpstreamFailure { cause: Some(cause), .. }) => format!("The tool failed: {}.", cause.for_model()),
            Self::UpstreamFailed(_) | Self::BadOutput(_) => {
                format!("The tool failed: {self}.")
            }
            Self::Internal => "The tool could not be run because of a fault in the service.".into(),
        }
    }
}

/// A failure as data, for the ledger and for problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// What happened.
    pub detail: String,
    /// Whether the caller may send the same call again.
    pub retryable: bool,
    /// How long the caller should wait before that, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The usage limit that refused the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<LimitUsage>>,
    /// Where the arguments violate the schema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// The message for a model.
    pub for_model: String,
    /// Whether an attempt was started.
    #[serde(default)]
    pub started: bool,
    /// Whether the request is valid and only the current state does not permit it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Replaces the messages, for a tool with `capture: digest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Box<Digest>>,
}

impl Failure {
    /// The failure of a call of a tool with this effect. If the tool was started and may have had
    /// an effect, the call is not retryable: the caller should check first.
    pub fn from_error(error: &CallError, effect: Effect) -> Self {
        if let CallError::StoredFailure { failure, .. } = error {
            return Self::clone(failure);
        }
        let mut failure = Self::from(error);
        if effect == Effect::Read {
            failure.for_model = failure.for_model.replace(MAY_HAVE_EFFECT, "");
        }
        if failure.started && !effect.may_repeat() && !error.is_not_delivered() {
            failure.retryable = false;
            if matches!(
                error,
                CallError::UpstreamFailed(_)
                    | CallError::BadOutput(_)
                    | CallError::ToolUnavailable { .. }
                    | CallError::Cancelled { started: true }
            ) {
                failure.for_model.push_str(MAY_HAVE_EFFECT);
            }
        }
        failure
    }
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        let violations = match error {
            CallError::InvalidArguments(violations) => violations.clone(),
            _ => Vec::new(),
        };
        let wait = error
            .retry_after()
            .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Self {
            kind: error.kind(),
            detail: error.to_string(),
            retryable: error.is_retryable_by_caller(),
            retry_after_ms: wait,
            limit: match error {
                CallError::UsageLimitReached { usage, .. } => Some(usage.clone()),
                _ => None,
            },
            violations,
            for_model: error.for_model(),
            started: !error.is_refusal(),
            conflict: matches!(error, CallError::NoStoredResult { .. }),
            digest: None,
        }
    }
}
