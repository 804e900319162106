//! The reasons why a command fails, with their exit codes.

use crate::app::Error;
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
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Manifest(_) | Error::Tool(_) => Self::Usage(error.to_string()),
            Error::Ledger(ledger::Error::InvalidUrl(_) | ledger::Error::UnsupportedEngine(_)) => {
                Self::Usage(format!("toolcrib: {error}"))
            }
            Error::Ledger(_)
            | Error::Listen { .. }
            | Error::Unprotected(_)
            | Error::CallersRemoved
            | Error::Metrics(_)
            | Error::Signals(_)
            | Error::Random(_) => Self::Failed(format!("toolcrib: {error}")),
        }
    }
}
