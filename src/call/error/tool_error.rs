//! How a tool fails, as its runner reports it.

use std::time::Duration;

use super::upstream_cause::{UpstreamCause, UpstreamFailure, UpstreamReason};
use super::violation::{Violation, first_violation_message};

/// Why a tool failed.
///
/// `Err("text".into())` inside a tool function is [`ToolError::ErrorResult`]: an ordinary error
/// result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// The tool ran and reports a failure of its own. It becomes a result with `is_error: true` and
    /// is never retried.
    #[error("{0}")]
    ErrorResult(String),
    /// The tool finds violations that its schema cannot express. Nothing was started.
    #[error("the arguments are invalid: {}", first_violation_message(.0))]
    InvalidArguments(Vec<Violation>),
    /// A field of the caller's `context` is invalid. Nothing was started. The message is a sentence
    /// that names the field.
    #[error("{0}")]
    InvalidContext(String),
    /// The runner is unavailable.
    #[error("{message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// Whether the runner had started the call.
        started: bool,
        /// When the runner may be available again, if known.
        retry_after: Option<Duration>,
    },
    /// The backend of the tool failed.
    #[error("{}", .0.message)]
    Upstream(UpstreamFailure),
    /// The output violates the tool's output schema or format.
    #[error("{0}")]
    BadOutput(String),
    /// The tool that would run is not the approved one. Nothing was started.
    #[error("its definition differs from the approved one")]
    DefinitionChanged,
}

impl ToolError {
    /// The runner became unavailable during the call.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable {
            message: message.into(),
            started: true,
            retry_after: None,
        }
    }

    /// The runner is unavailable, and the call has not reached it.
    pub fn unavailable_before_start(
        message: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        Self::Unavailable {
            message: message.into(),
            started: false,
            retry_after,
        }
    }

    /// The backend is unavailable. The failure may be retried, and counts for the circuit breaker.
    pub fn upstream(message: impl Into<String>) -> Self {
        Self::new_upstream(message.into(), true, true)
    }

    /// The backend is available, and a later attempt may succeed. The failure may be retried, and does
    /// not count for the circuit breaker.
    pub fn upstream_busy(message: impl Into<String>) -> Self {
        Self::new_upstream(message.into(), true, false)
    }

    /// The backend failed in a way that a further attempt would meet again.
    pub fn upstream_permanent(message: impl Into<String>) -> Self {
        Self::new_upstream(message.into(), false, false)
    }

    fn new_upstream(message: String, retryable: bool, unavailable: bool) -> Self {
        Self::Upstream(UpstreamFailure {
            message,
            retryable,
            unavailable,
            not_delivered: false,
            retry_after: None,
            cause: None,
        })
    }

    /// The same failure with the wait that the backend asked for.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        if let Self::Upstream(failure) = &mut self {
            failure.retry_after = wait;
        }
        self
    }

    /// The same failure with what the service observed at this host. The arguments may select the
    /// host: the caller of the runner removes it then.
    #[must_use]
    pub fn with_cause(mut self, reason: UpstreamReason, host: &str) -> Self {
        if let Self::Upstream(failure) = &mut self {
            failure.cause = Some(UpstreamCause {
                reason,
                host: Some(host.to_owned()),
                body: None,
            });
        }
        self
    }

    /// The same failure of the backend with another message. Other failures stay as they are.
    #[must_use]
    pub fn map_upstream_message(mut self, map: impl FnOnce(&str) -> String) -> Self {
        if let Self::Upstream(failure) = &mut self {
            failure.message = map(&failure.message);
        }
        self
    }

    /// The same failure, but the call did not reach the backend.
    #[must_use]
    pub fn not_delivered(mut self) -> Self {
        if let Self::Upstream(failure) = &mut self {
            failure.not_delivered = true;
        }
        self
    }
}

impl From<String> for ToolError {
    fn from(text: String) -> Self {
        Self::ErrorResult(text)
    }
}

impl From<&str> for ToolError {
    fn from(text: &str) -> Self {
        Self::ErrorResult(text.to_owned())
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::ErrorResult(error.to_string())
    }
}

impl From<serde_json::Error> for ToolError {
    fn from(error: serde_json::Error) -> Self {
        Self::ErrorResult(error.to_string())
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for ToolError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::ErrorResult(error.to_string())
    }
}
