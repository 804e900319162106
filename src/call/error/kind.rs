//! The closed list of failure kinds.

use serde::{Deserialize, Serialize};
use tracing::Level;

/// Declares the kinds, each with its facts, its title and its summary.
macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $kind:ident($source:ident, $level:ident, $is_refusal:literal, $may_quote_call:literal)
            $title:literal $summary:literal,
    )*) => {
        /// The one vocabulary of failure, used by problems, ledger and docs alike.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[derive(strum::IntoStaticStr, strum::EnumString, strum::VariantArray)]
        #[strum(serialize_all = "snake_case")]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            /// The title of a problem of this kind.
            pub fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }

            /// One sentence on such a failure, where only the kind is known.
            pub fn summary(self) -> &'static str {
                match self { $(Self::$kind => $summary,)* }
            }

            /// What is true of every failure of this kind.
            pub const fn facts(self) -> KindFacts {
                match self {
                    $(Self::$kind => KindFacts {
                        source: FailureSource::$source,
                        level: Level::$level,
                        is_refusal: $is_refusal,
                        may_quote_call: $may_quote_call,
                    },)*
                }
            }
        }
    };
}

// In brackets: source, level, is_refusal, may_quote_call.
kinds! {
    /// The request has the wrong shape.
    InvalidRequest(Service, INFO, true, false) "The request cannot be read" "the request was invalid",
    /// No key, or a bad one.
    Unauthenticated(Service, INFO, true, false) "A key is required" "the request had no valid key",
    /// The caller may not do this.
    Forbidden(Service, INFO, true, false) "Not allowed" "the caller may not use this tool",
    /// No tool has this name.
    UnknownTool(Service, INFO, true, false) "No such tool" "there is no such tool",
    /// The tool is disabled.
    ToolDisabled(Service, INFO, true, false) "The tool is disabled" "the tool is disabled",
    /// The tool's definition differs from the approved one.
    DefinitionChanged(Service, WARN, true, false) "The tool is not the one that was approved" "the tool's definition differs from the approved one",
    /// The arguments violate the tool's schema.
    InvalidArguments(Service, INFO, true, true) "The arguments are invalid" "the arguments violate the schema",
    /// The first call with this idempotency key still runs.
    IdempotencyInProgress(Service, INFO, true, false) "The call with this key still runs" "the call with this Idempotency-Key still runs",
    /// The idempotency key was used for another payload.
    IdempotencyMismatch(Service, INFO, true, false) "The key belongs to another call" "this Idempotency-Key belongs to another call",
    /// A person has denied the call.
    ApprovalDenied(Service, INFO, true, false) "A person has denied the call" "a person has denied the call",
    /// No person has approved the call in time.
    ApprovalExpired(Service, INFO, true, false) "The call has no valid approval" "the call has no valid approval",
    /// The same call twice in a row within a run.
    RepeatedCall(Service, INFO, true, false) "The call repeats the previous call" "the call repeats the previous call of its run",
    /// A usage limit is reached.
    UsageLimitReached(Service, INFO, true, false) "A usage limit is reached" "a usage limit is reached",
    /// Too many calls are running and waiting.
    Overloaded(Service, WARN, true, false) "Too many calls" "too many calls ran or waited",
    /// The service is shutting down.
    Draining(Service, INFO, true, false) "Shutting down" "the service is shutting down",
    /// The ledger cannot write.
    LedgerUnavailable(Service, ERROR, true, false) "The ledger cannot write" "the ledger cannot write",
    /// The tool's runner is unavailable.
    ToolUnavailable(Tool, WARN, true, true) "The tool is unavailable" "the tool was unavailable",
    /// The whole call took too long.
    DeadlineExceeded(Service, WARN, false, false) "The deadline has passed" "the call did not end within its deadline",
    /// The last attempt took too long.
    AttemptTimedOut(Tool, WARN, false, false) "The tool took too long" "the tool did not answer in time",
    /// The call was cancelled.
    Cancelled(Service, INFO, false, false) "Cancelled" "the call was cancelled",
    /// The backend of the tool failed.
    UpstreamFailed(Tool, WARN, false, true) "The tool's backend failed" "the tool's backend failed",
    /// The tool's output is not what it should be.
    BadOutput(Tool, WARN, false, true) "The tool's output cannot be used" "the tool's output cannot be used",
    /// The first call with this idempotency key was a write that was interrupted: its outcome is
    /// unknown.
    OutcomeUnknown(Service, WARN, true, false) "It is unknown whether the call had an effect" "it is unknown whether the call had an effect",
    /// A fault of the service.
    Internal(Service, ERROR, false, false) "Internal error" "the service failed; its log has the cause",
}

impl ErrorKind {
    /// Every kind, in the order of the table in docs/reference/errors.md.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name used in problems, ledger and docs.
    pub fn as_str(self) -> &'static str {
        self.into()
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
