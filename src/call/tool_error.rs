//! How a tool fails, in its own words.

use std::time::Duration;

use super::error::{Violation, first_message};

/// How a tool fails.
///
/// `Err("text".into())` inside a tool function is [`ToolError::Said`]: an ordinary answer that says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToolError {
    /// The tool ran and says no. Becomes a result with `is_error: true`; never repeated.
    #[error("{0}")]
    Said(String),
    /// The tool finds fault with arguments that the schema let pass; nothing was started.
    #[error("the arguments do not fit: {}", first_message(.0))]
    InvalidArguments(Vec<Violation>),
    /// A field of the caller's `context` cannot be used; nothing was started. A sentence that names it.
    #[error("{0}")]
    InvalidContext(String),
    /// What runs the tool is down.
    #[error("{message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// It had begun with the call.
        started: bool,
        /// When it may be back, if anybody knows.
        retry_after: Option<Duration>,
    },
    /// What the tool depends on failed.
    #[error("{message}")]
    Upstream {
        /// What happened.
        message: String,
        /// Another try may succeed.
        retryable: bool,
        /// It is down, for any call: counts for the tool's circuit breaker.
        down: bool,
        /// Nothing of the call reached it: it cannot have had an effect.
        untouched: bool,
        /// Not before this long, if the upstream said so.
        retry_after: Option<Duration>,
    },
    /// The output is not what the tool promised.
    #[error("{0}")]
    BadOutput(String),
    /// What would run is not what was approved; nothing was started.
    #[error("it is not what was approved")]
    Changed,
}

impl ToolError {
    /// What runs the tool went down with the call.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), started: true, retry_after: None }
    }

    /// What runs the tool is down, and the call has not reached it.
    pub fn unavailable_before(message: impl Into<String>, retry_after: Option<Duration>) -> Self {
        Self::Unavailable { message: message.into(), started: false, retry_after }
    }

    /// What the tool depends on is down: worth another try, and with enough of them a rest.
    pub fn upstream(message: impl Into<String>) -> Self {
        Self::Upstream { message: message.into(), retryable: true, down: true, untouched: false, retry_after: None }
    }

    /// A failure of what the tool depends on that another try would meet again.
    pub fn upstream_final(message: impl Into<String>) -> Self {
        Self::Upstream { message: message.into(), retryable: false, down: false, untouched: false, retry_after: None }
    }

    /// The same, and nothing of the call reached what the tool depends on.
    #[must_use]
    pub fn before_anything(mut self) -> Self {
        if let Self::Upstream { untouched, .. } = &mut self {
            *untouched = true;
        }
        self
    }
}

impl From<String> for ToolError {
    fn from(text: String) -> Self {
        Self::Said(text)
    }
}

impl From<&str> for ToolError {
    fn from(text: &str) -> Self {
        Self::Said(text.to_owned())
    }
}

impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<serde_json::Error> for ToolError {
    fn from(error: serde_json::Error) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for ToolError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::Said(error.to_string())
    }
}
