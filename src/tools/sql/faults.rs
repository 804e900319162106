//! Words for what goes wrong, the same for both databases.

use crate::tools::{Fault, Placeholder};

/// What is wrong with a statement, found when it was held against its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What, and what would be right.
    pub(super) message: String,
    /// It may come right without a change of the manifest: the database is down, a table not there yet.
    pub(super) may_pass: bool,
}

impl Finding {
    /// The manifest must change.
    pub(super) fn fault(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false }
    }

    /// It may pass.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true }
    }
}

/// Said of a statement that writes where only reading was declared.
pub(super) const WRITES: &str = "the statement changes the database and the tool only reads: declare effect: write \
                                 (idempotent, if twice is as good as once), or write a statement that only asks";

/// A value that the statement cannot take. The message quotes no value: that of a context is on no record.
pub(super) fn misfit(name: &Placeholder, message: impl Into<String>) -> Fault {
    match name {
        Placeholder::Argument(_) => name.fault("type", message),
        Placeholder::Context(_) => name.fault("type", format!("`{name}`: {}.", message.into())),
    }
}
