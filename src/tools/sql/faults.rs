//! Words for what goes wrong, the same for both databases.

use crate::call::Violation;
use crate::call::json::pointer_token;

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

/// An argument that the statement cannot take.
pub(super) fn misfit(name: &str, message: impl Into<String>) -> Violation {
    let token = pointer_token(name);
    Violation {
        pointer: format!("/{token}"),
        keyword: "type".into(),
        message: message.into(),
        schema_pointer: format!("/properties/{token}"),
    }
}
