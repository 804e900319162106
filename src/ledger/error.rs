//! Why the ledger failed.

use std::fmt;

use crate::call::InvocationId;

/// A failure of the ledger. Each is a sentence for the operator.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The URL names no ledger.
    #[error("ledger {place}: {reason}")]
    InvalidUrl {
        /// The URL, without a password.
        place: String,
        /// The reason, and what would be right.
        reason: String,
    },
    /// The URL names a database in memory.
    #[error(
        "ledger {0}: a ledger in memory is not supported; name a file, sqlite://FILE, for example in a temporary folder, or omit the URL"
    )]
    InMemory(String),
    /// A newer Toolcrib has written the file.
    #[error(
        "ledger {place}: written by a newer Toolcrib (schema {found}, this one supports up to {known}); upgrade, or name another file"
    )]
    NewerSchema {
        /// The ledger's file.
        place: String,
        /// Schema version of the file.
        found: i64,
        /// Newest schema version that this program knows.
        known: i64,
    },
    /// Acknowledged commits are missing in the file.
    #[error(
        "ledger {place}: {commits} acknowledged commits are missing. The file or its write-ahead log is damaged, or an \
         older copy was put in its place; all files were left as they are. Restore a backup, or start once with \
         --accept-loss to go on without them"
    )]
    MissingCommits {
        /// The ledger's file.
        place: String,
        /// Number of missing commits.
        commits: u64,
    },
    /// The file cannot be used.
    #[error("ledger {place}: {reason}")]
    Unusable {
        /// The ledger's file.
        place: String,
        /// The reason, and what would help.
        reason: String,
    },
    /// A process uses the ledger, which must be used by none.
    #[error("ledger {place}: {by} uses it; stop all services on it, and begin again")]
    InUse {
        /// The ledger's file or database.
        place: String,
        /// The process.
        by: String,
    },
    /// The ledger that should be new has content.
    #[error(
        "ledger {0}: it is not empty, and nothing was changed; name a new file or an empty database"
    )]
    NotEmpty(String),
    /// No backup was made.
    #[error("backup {place}: {reason}")]
    BackupFailed {
        /// The file that the backup should have had.
        place: String,
        /// The reason, and what would help.
        reason: String,
    },
    /// The row's content does not match its checksum, so what was written is unknown.
    #[error("the row of call {0} is damaged")]
    DamagedRow(InvocationId),
    /// A statement failed.
    #[error("{0}")]
    Failed(String),
    /// A write failed in a way that leaves the content of the file uncertain. Nothing is written
    /// from now on.
    #[error("the ledger has stopped: {0}")]
    Stopped(String),
    /// The ledger was closed.
    #[error("closed")]
    Closed,
}

impl Error {
    /// The ledger at this place cannot be used.
    pub(super) fn unusable(place: impl fmt::Display, reason: impl fmt::Display) -> Self {
        let (place, reason) = (place.to_string(), reason.to_string());
        Self::Unusable { place, reason }
    }

    /// A reservation whose call has a row already.
    pub(super) fn known_call() -> Self {
        Self::Failed("the call has a row already".into())
    }
}
