//! The reasons why a command fails, with their exit codes.

use std::io;

use crate::app::{self, Error};
use crate::ledger;

/// BSD's EX_USAGE (sysexits.h).
pub(super) const EXIT_USAGE: u8 = 64;

/// The reason why a command fails.
pub(super) enum Failure {
    /// Invalid arguments or manifest: exit 64.
    Usage(String),
    /// An operation failed: exit 1.
    Failed(String),
    /// Invalid input that was already reported: exit 64.
    Reported,
    /// The command worked, and its output shows a negative outcome: exit 1, no further message.
    NegativeResult,
    /// A command that it ran has ended with this status, and has reported the reason itself.
    Exit(u8),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Manifest(_) | Error::Tool(_) | Error::Toolset(_) => {
                Self::Usage(error.to_string())
            }
            Error::Ledger(ledger::Error::InvalidUrl { .. } | ledger::Error::InMemory(_)) => {
                Self::Usage(format!("toolcrib: {error}"))
            }
            Error::Listen { listen, source } => {
                let why = describe_io_error(&source);
                let advice = match source.kind() {
                    io::ErrorKind::AddrInUse => {
                        ": another program listens there; --listen names another address"
                    }
                    _ => "",
                };
                Self::Failed(format!(
                    "toolcrib: cannot listen on {listen}: {why}{advice}"
                ))
            }
            Error::Ledger(_)
            | Error::Unprotected(_)
            | Error::Sandbox { .. }
            | Error::CallersRemoved
            | Error::Metrics(_)
            | Error::Signals(_)
            | Error::Random(_)
            | Error::Telemetry(_) => Self::Failed(format!("toolcrib: {error}")),
        }
    }
}

impl From<ledger::Error> for Failure {
    fn from(error: ledger::Error) -> Self {
        Error::Ledger(error).into()
    }
}

/// The words of the system for an error, without its number.
pub(super) fn describe_io_error(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error ").next().unwrap_or(&text);
    plain.to_owned()
}

/// The outcome of work, unless a signal stops it. Then the failure says what was not done.
pub(super) async fn unless_stopped<T>(
    work: impl Future<Output = T>,
    when_stopped: &str,
) -> Result<T, Failure> {
    tokio::select! {
        done = work => Ok(done),
        stopped = app::wait_for_stop() => {
            stopped?;
            Err(Failure::Failed(when_stopped.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_have_no_numbers() {
        assert_eq!(
            describe_io_error(&io::Error::from_raw_os_error(2)),
            "No such file or directory"
        );
        assert_eq!(describe_io_error(&io::Error::other("a reason")), "a reason");
    }
}
