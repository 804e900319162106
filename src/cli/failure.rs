//! Why a command ends without success, and with which exit code.

use crate::app::Error;
use crate::ledger;

/// BSD's EX_USAGE (sysexits.h).
pub(super) const USAGE: u8 = 64;

/// Why a command ends without success.
pub(super) enum Failure {
    /// What was said cannot be used: exit 64.
    Usage(String),
    /// It did not work: exit 1.
    Failed(String),
    /// What was said cannot be used, and that has been printed: exit 64.
    Said,
    /// It worked and the answer is no: exit 1, nothing more to say.
    No,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Manifest(_) | Error::Tool(_) => Self::Usage(error.to_string()),
            Error::Ledger(ledger::Error::Url(_) | ledger::Error::NotBuilt(_)) => {
                Self::Usage(format!("toolcrib: {error}"))
            }
            Error::Ledger(_)
            | Error::Listen { .. }
            | Error::Open(_)
            | Error::Unguarded
            | Error::Metrics(_)
            | Error::Signals(_)
            | Error::Random(_) => Self::Failed(format!("toolcrib: {error}")),
        }
    }
}
