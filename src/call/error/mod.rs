//! The failures of a call, without HTTP.
//!
//! - `kind.rs`: the closed list of kinds, and what is true of each
//! - `call_error.rs`: why a call failed; `tool_error.rs`: why a tool failed
//! - `messages.rs`: parts of the messages; `summary.rs`: one sentence without texts of others
//! - `recorded.rs`: failures in the ledger
//! - `upstream_cause.rs`, `violation.rs`: parts of failures

mod call_error;
mod kind;
mod messages;
mod recorded;
mod summary;
mod tool_error;
mod upstream_cause;
mod violation;

pub use call_error::{CallError, Failure};
pub use kind::{ErrorKind, FailureSource, KindFacts};
pub use recorded::caller_attempt_message;
pub use summary::{ERROR_RESULT_SUMMARY, INTERRUPTED_SUMMARY, error_text_beginning};
pub use tool_error::ToolError;
pub use upstream_cause::{UpstreamCause, UpstreamFailure, UpstreamReason};
pub use violation::{Coercion, Violation};
