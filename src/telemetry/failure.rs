//! The failure of a request to the collector.

use std::time::Duration;

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// Whether the same message may succeed later.
    pub(super) is_retryable: bool,
    /// When the collector wants the next request.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_retryable: false,
            retry_after: None,
        }
    }

    pub(super) fn retryable(message: impl Into<String>) -> Self {
        Self {
            is_retryable: true,
            ..Self::permanent(message)
        }
    }
}
