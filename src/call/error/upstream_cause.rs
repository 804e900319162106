//! Why a server that a tool called gave no usable answer.

use std::time::Duration;

use crate::call::units::Count;

/// A failure of the backend of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamFailure {
    /// What happened.
    pub message: String,
    /// Whether a further attempt may succeed.
    pub retryable: bool,
    /// Whether the backend is unavailable for any call. Such failures count for the tool's circuit
    /// breaker.
    pub unavailable: bool,
    /// Whether the call did not reach the backend at all, so it cannot have had an effect.
    pub not_delivered: bool,
    /// The minimum wait before the next attempt, as the response demands (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// What the service itself observed, if it did.
    pub cause: Option<UpstreamCause>,
}

/// Why the backend of a tool failed, as far as the service itself observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCause {
    /// What happened.
    pub reason: UpstreamReason,
    /// Host and port of the backend. `None` if they are unknown, or if an argument selects them.
    pub host: Option<String>,
    /// The beginning of the response's body, for operators.
    pub body: Option<String>,
}

/// The kinds of [`UpstreamCause`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamReason {
    /// The address is private or otherwise not allowed.
    AddressDenied,
    /// The host's name has no address.
    NameUnknown,
    /// Nothing accepted the connection in time.
    ConnectTimeout(u64),
    /// The host refused the connection.
    ConnectionRefused,
    /// There was no connection, for another reason.
    NotConnected,
    /// There was no TLS connection.
    TlsFailed,
    /// The connection ended before the whole response had arrived.
    ConnectionLost,
    /// The response had this HTTP status.
    Status(u16),
}

impl UpstreamCause {
    pub(super) fn summary(&self) -> String {
        self.describe(self.host.as_deref().unwrap_or("the tool's backend"))
    }

    /// The same for a model, which does not get the address.
    pub(super) fn for_model(&self) -> String {
        self.describe("its server")
    }

    fn describe(&self, host: &str) -> String {
        match self.reason {
            UpstreamReason::AddressDenied => format!("the address of {host} is not allowed"),
            UpstreamReason::NameUnknown => format!("the name of {host} does not resolve"),
            UpstreamReason::ConnectTimeout(seconds) => {
                format!(
                    "{host} accepted no connection within {}",
                    Count(seconds, "second")
                )
            }
            UpstreamReason::ConnectionRefused => format!("{host} refused the connection"),
            UpstreamReason::NotConnected => format!("there was no connection to {host}"),
            UpstreamReason::TlsFailed => format!("there was no TLS connection to {host}"),
            UpstreamReason::ConnectionLost => format!("the connection to {host} was lost"),
            UpstreamReason::Status(status) => format!("{host} answered with HTTP status {status}"),
        }
    }
}
