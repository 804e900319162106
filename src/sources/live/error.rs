//! Why the set of tools was not changed.

use crate::catalog::registry::{ChangeError, NameTaken};
use crate::kinds::BuildError;
use crate::ledger;
use crate::manifest::Finding;

/// Why a manifest was refused. The one before stays in use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest has errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifest(Vec<Finding>),
    /// A tool cannot be built.
    #[error(transparent)]
    Tool(#[from] BuildError),
    /// The ledger failed. It stores the switches and the registered tools.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// The manifest has no callers, but the current one has. Taking it would let every client in
    /// without a key.
    #[error(
        "it has no callers, so every client would be trusted; restart the service if this is intended"
    )]
    CallersRemoved,
}

impl From<ChangeError> for Error {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Tool(error) => Self::Tool(error),
            ChangeError::Ledger(error) => Self::Ledger(error),
            ChangeError::Taken(NameTaken { name, .. })
            | ChangeError::Unknown(name)
            | ChangeError::TooMany(name) => Self::Tool(BuildError::DuplicateTool(name)),
        }
    }
}
