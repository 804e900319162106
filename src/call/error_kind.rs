//! The closed list of failure kinds.

use serde::{Deserialize, Serialize};

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
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request has the wrong shape.
    InvalidRequest,
    /// No key, or a bad one.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// No tool has this name.
    UnknownTool,
    /// The tool is disabled.
    ToolDisabled,
    /// The tool's definition differs from the approved one.
    DefinitionChanged,
    /// The arguments violate the tool's schema.
    InvalidArguments,
    /// The first call with this idempotency key still runs.
    IdempotencyInProgress,
    /// The idempotency key was used for another payload.
    IdempotencyMismatch,
    /// A person has denied the call.
    ApprovalDenied,
    /// No person has approved the call in time.
    ApprovalExpired,
    /// The same call twice in a row within a run.
    RepeatedCall,
    /// A usage limit is reached.
    UsageLimitReached,
    /// Too many calls are running and waiting.
    Overloaded,
    /// The service is shutting down.
    Draining,
    /// The ledger cannot write.
    LedgerUnavailable,
    /// The tool's runner is unavailable.
    ToolUnavailable,
    /// The whole call took too long.
    DeadlineExceeded,
    /// The last attempt took too long.
    AttemptTimedOut,
    /// The call was cancelled.
    Cancelled,
    /// The backend of the tool failed.
    UpstreamFailed,
    /// The tool's output is not what it should be.
    BadOutput,
    /// The first call with this idempotency key was a write that was interrupted: its outcome is
    /// unknown.
    OutcomeUnknown,
    /// A fault of the service.
    Internal,
}

impl ErrorKind {
    /// Every kind, in the order of the table in docs/reference/errors.md.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name used in problems, ledger and docs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Which side failed: the service, or the tool that it called.
    pub fn source(self) -> FailureSource {
        match self {
            Self::ToolUnavailable
            | Self::AttemptTimedOut
            | Self::UpstreamFailed
            | Self::BadOutput => FailureSource::Tool,
            Self::InvalidRequest
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::UnknownTool
            | Self::ToolDisabled
            | Self::DefinitionChanged
            | Self::InvalidArguments
            | Self::IdempotencyInProgress
            | Self::IdempotencyMismatch
            | Self::OutcomeUnknown
            | Self::ApprovalDenied
            | Self::ApprovalExpired
            | Self::RepeatedCall
            | Self::UsageLimitReached
            | Self::Overloaded
            | Self::Draining
            | Self::LedgerUnavailable
            | Self::DeadlineExceeded
            | Self::Cancelled
            | Self::Internal => FailureSource::Service,
        }
    }
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
