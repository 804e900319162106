//! Why a change of the tools was not made.

use crate::ledger;
use crate::manifest::Finding;
use crate::registry::ChangeError;
use crate::tools::BuildError;

/// Why a manifest was not taken; the one before stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifest(Vec<Finding>),
    /// A tool cannot be built.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// The ledger, which has the switches and the registered tools, failed.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// Keys are asked for now, and would not be any more.
    #[error("it has no callers, so everybody who reaches the service would be trusted; start it anew if that is meant")]
    Unguarded,
}

impl From<ChangeError> for Error {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Tool(error) => Self::Tool(error),
            ChangeError::Ledger(error) => Self::Ledger(error),
            ChangeError::Taken { name, .. } | ChangeError::Unknown(name) | ChangeError::TooMany(name) => {
                Self::Tool(BuildError::Duplicate(name))
            }
        }
    }
}
