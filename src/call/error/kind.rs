//! The closed list of failure kinds.

use serde::{Deserialize, Serialize};
use strum::EnumMessage;
use tracing::Level;

/// The one vocabulary of failure, used by problems, ledger and docs alike.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
    strum::EnumMessage,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request has the wrong shape.
    #[strum(message = "The request cannot be read")]
    #[strum(detailed_message = "the request was invalid")]
    InvalidRequest,
    /// No key, or a bad one.
    #[strum(message = "A key is required")]
    #[strum(detailed_message = "the request had no valid key")]
    Unauthenticated,
    /// The caller may not do this.
    #[strum(message = "Not allowed")]
    #[strum(detailed_message = "the caller may not use this tool")]
    Forbidden,
    /// No tool has this name.
    #[strum(message = "No such tool")]
    #[strum(detailed_message = "there is no such tool")]
    UnknownTool,
    /// The tool is disabled.
    #[strum(message = "The tool is disabled")]
    #[strum(detailed_message = "the tool is disabled")]
    ToolDisabled,
    /// The tool's definition differs from the approved one.
    #[strum(message = "The tool is not the one that was approved")]
    #[strum(detailed_message = "the tool's definition differs from the approved one")]
    DefinitionChanged,
    /// The arguments violate the tool's schema.
    #[strum(message = "The arguments are invalid")]
    #[strum(detailed_message = "the arguments violate the schema")]
    InvalidArguments,
    /// The first call with this idempotency key still runs.
    #[strum(message = "The call with this key still runs")]
    #[strum(detailed_message = "the call with this Idempotency-Key still runs")]
    IdempotencyInProgress,
    /// The idempotency key was used for another payload.
    #[strum(message = "The key belongs to another call")]
    #[strum(detailed_message = "this Idempotency-Key belongs to another call")]
    IdempotencyMismatch,
    /// A person has denied the call.
    #[strum(message = "A person has denied the call")]
    #[strum(detailed_message = "a person has denied the call")]
    ApprovalDenied,
    /// No person has approved the call in time.
    #[strum(message = "The call has no valid approval")]
    #[strum(detailed_message = "the call has no valid approval")]
    ApprovalExpired,
    /// The same call twice in a row within a run.
    #[strum(message = "The call repeats the previous call")]
    #[strum(detailed_message = "the call repeats the previous call of its run")]
    RepeatedCall,
    /// A usage limit is reached.
    #[strum(message = "A usage limit is reached")]
    #[strum(detailed_message = "a usage limit is reached")]
    UsageLimitReached,
    /// Too many calls are running and waiting.
    #[strum(message = "Too many calls")]
    #[strum(detailed_message = "too many calls ran or waited")]
    Overloaded,
    /// The service is shutting down.
    #[strum(message = "Shutting down")]
    #[strum(detailed_message = "the service is shutting down")]
    Draining,
    /// The ledger cannot write.
    #[strum(message = "The ledger cannot write")]
    #[strum(detailed_message = "the ledger cannot write")]
    LedgerUnavailable,
    /// The tool's runner is unavailable.
    #[strum(message = "The tool is unavailable")]
    #[strum(detailed_message = "the tool was unavailable")]
    ToolUnavailable,
    /// The whole call took too long.
    #[strum(message = "The deadline has passed")]
    #[strum(detailed_message = "the call did not end within its deadline")]
    DeadlineExceeded,
    /// The last attempt took too long.
    #[strum(message = "The tool took too long")]
    #[strum(detailed_message = "the tool did not answer in time")]
    AttemptTimedOut,
    /// The call was cancelled.
    #[strum(message = "Cancelled")]
    #[strum(detailed_message = "the call was cancelled")]
    Cancelled,
    /// The backend of the tool failed.
    #[strum(message = "The tool's backend failed")]
    #[strum(detailed_message = "the tool's backend failed")]
    UpstreamFailed,
    /// The tool's output is not what it should be.
    #[strum(message = "The tool's output cannot be used")]
    #[strum(detailed_message = "the tool's output cannot be used")]
    BadOutput,
    /// The first call with this idempotency key was a write that was interrupted: its outcome is
    /// unknown.
    #[strum(message = "It is unknown whether the call had an effect")]
    #[strum(detailed_message = "it is unknown whether the call had an effect")]
    OutcomeUnknown,
    /// A fault of the service.
    #[strum(message = "Internal error")]
    #[strum(detailed_message = "the service failed; its log has the cause")]
    Internal,
}

impl ErrorKind {
    /// Every kind, in the order of the table in docs/reference/errors.md.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name used in problems, ledger and docs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The title of a problem of this kind.
    pub fn title(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }

    /// One sentence on such a failure, where only the kind is known.
    pub fn summary(self) -> &'static str {
        self.get_detailed_message().unwrap_or_default()
    }

    /// What is true of every failure of this kind.
    pub const fn facts(self) -> KindFacts {
        let refusal = KindFacts {
            source: FailureSource::Service,
            level: Level::INFO,
            is_refusal: true,
            may_quote_call: false,
        };
        let failure = KindFacts {
            is_refusal: false,
            level: Level::WARN,
            ..refusal
        };
        let tool_failure = KindFacts {
            source: FailureSource::Tool,
            may_quote_call: true,
            ..failure
        };
        match self {
            Self::InvalidRequest
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::UnknownTool
            | Self::ToolDisabled
            | Self::IdempotencyInProgress
            | Self::IdempotencyMismatch
            | Self::ApprovalDenied
            | Self::ApprovalExpired
            | Self::RepeatedCall
            | Self::UsageLimitReached
            | Self::Draining => refusal,
            Self::InvalidArguments => KindFacts {
                may_quote_call: true,
                ..refusal
            },
            Self::DefinitionChanged | Self::OutcomeUnknown | Self::Overloaded => KindFacts {
                level: Level::WARN,
                ..refusal
            },
            Self::LedgerUnavailable => KindFacts {
                level: Level::ERROR,
                ..refusal
            },
            Self::ToolUnavailable => KindFacts {
                is_refusal: true,
                ..tool_failure
            },
            Self::UpstreamFailed | Self::BadOutput => tool_failure,
            Self::AttemptTimedOut => KindFacts {
                may_quote_call: false,
                ..tool_failure
            },
            Self::DeadlineExceeded => failure,
            Self::Cancelled => KindFacts {
                level: Level::INFO,
                ..failure
            },
            Self::Internal => KindFacts {
                level: Level::ERROR,
                ..failure
            },
        }
    }
}

/// What is true of every failure of a kind. `http/problem.rs` adds the HTTP status.
#[derive(Debug, Clone, Copy)]
pub struct KindFacts {
    /// Which side failed.
    pub source: FailureSource,
    /// The importance for the operator. A failure of the service itself is an error. A failure of
    /// the tool or its backend, an overload, or an expired time is a warning. Everything else is
    /// information, mistakes of the caller included.
    pub level: Level,
    /// Whether no code of the tool ran. A call whose attempt was started is no refusal in spite of
    /// its kind.
    pub is_refusal: bool,
    /// Whether the message may quote the arguments or the output of the tool.
    pub may_quote_call: bool,
}

/// Whether the service failed the caller, or the tool did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Source)]
pub enum FailureSource {
    /// Toolcrib itself refused or failed.
    Service,
    /// The tool or its backend failed.
    Tool,
}
