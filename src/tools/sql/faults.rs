//! Messages for failures that are the same for both databases.

use crate::tools::{Fault, Placeholder};

/// A problem that was found when a statement was checked against its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What is wrong, and what would be right.
    pub(super) message: String,
    /// Whether the problem may go away without a change of the manifest: the database is unreachable, or a table is
    /// missing.
    pub(super) may_pass: bool,
}

impl Finding {
    /// A problem that only a change of the manifest solves.
    pub(super) fn fault(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false }
    }

    /// A problem that may go away by itself.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true }
    }
}

/// The message for a statement that writes, in a tool that is declared to read.
pub(super) const WRITES: &str = "the statement changes the database and the tool only reads: declare effect: write \
                                 (idempotent, if twice is as good as once), or write a statement that only asks";

/// The fault of a value that the statement cannot take. For a field of the context, `message` must not quote the
/// value, because the context is never recorded.
pub(super) fn misfit(name: &Placeholder, message: impl Into<String>) -> Fault {
    match name {
        Placeholder::Argument(_) => name.fault("type", message),
        Placeholder::Context(_) => name.fault("type", format!("`{name}`: {}.", message.into())),
    }
}
