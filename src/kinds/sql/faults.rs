//! Messages for failures that are the same for both databases.

use crate::call::ToolError;
use crate::kinds::{Placeholder, ValueFault};

/// A problem that was found when a statement was checked against its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What is wrong, and what would be right.
    pub(super) message: String,
    /// Whether the problem may go away without a change of the manifest: the database is
    /// unreachable, or a table is missing.
    pub(super) is_temporary: bool,
}

impl Finding {
    /// A problem that only a change of the manifest solves.
    pub(super) fn permanent(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_temporary: false,
        }
    }

    /// A problem that may go away by itself.
    pub(super) fn temporary(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_temporary: true,
        }
    }
}

/// The message for a statement that writes, in a tool that is declared to read.
pub(super) const WRITES_IN_READ_TOOL: &str = "the statement changes the database, but the tool only reads: declare effect: write \
                                 (idempotent, if a repetition changes nothing), or write a statement that only reads";

/// The fault of a value that the statement cannot take. For a field of the context, `message` must
/// not quote the value, because the context is never recorded.
pub(super) fn value_fault(name: &Placeholder, message: impl Into<String>) -> ValueFault {
    match name {
        Placeholder::Argument(_) => name.fault("type", message),
        Placeholder::Context(_) | Placeholder::Caller(_) => {
            name.fault("type", format!("`{name}`: {}.", message.into()))
        }
    }
}

/// The values to bind, or all their faults.
pub(super) fn collect_bound<T>(
    bound: impl Iterator<Item = Result<T, ValueFault>>,
) -> Result<Vec<T>, ToolError> {
    let (mut values, mut faults) = (Vec::new(), Vec::new());
    for value in bound {
        match value {
            Ok(value) => values.push(value),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() {
        Ok(values)
    } else {
        Err(faults.into())
    }
}
