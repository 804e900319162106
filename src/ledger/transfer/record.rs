//! The records of a move, in a form that no engine owns.

use serde_json::Value;

use crate::ledger::{Row, StoredResult};

/// The tables of a ledger, in the order in which they are moved.
///
/// Not moved: the processes that have used the ledger, and what they tell each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Table {
    /// [`Record::Call`]. Keys that are still held are part of the rows.
    Calls,
    /// Call, attempt, kind, message, microseconds.
    Attempts,
    /// Tool, caller, run, period, start of the window, used units, limit, time of the last call, lost
    /// units.
    ///
    /// The units of the rows are not moved: what is used counts as carried over. So the drift is 0,
    /// and the limit goes on at the same number.
    Counters,
    /// [`Record::Result`]. Those that have expired stay.
    Results,
    /// Tool, 1 for enabled or 0.
    Switches,
    /// Name, definition, caller, time.
    RegisteredTools,
    /// Caller, tool, calls, succeeded, failed, refused, cache hits.
    Totals,
    /// Caller, tool, bucket, calls.
    Latencies,
    /// Call, tool, caller, state, key, approvers, request, call, time of the request, expiry, time of
    /// the decision, who decided, note, changed arguments, process, 1 for done, 1 for notified,
    /// message.
    Approvals,
}

impl Table {
    /// Every table.
    pub(in crate::ledger) const ALL: [Self; 9] = [
        Self::Calls,
        Self::Attempts,
        Self::Counters,
        Self::Results,
        Self::Switches,
        Self::RegisteredTools,
        Self::Totals,
        Self::Latencies,
        Self::Approvals,
    ];
}

/// One row of a table.
pub(in crate::ledger) enum Record {
    /// A call that has ended.
    Call(Box<MovedCall>),
    /// A stored result.
    Result(StoredResult),
    /// The columns of any other table, as [`Table`] lists them. Ids are hexadecimal, times are Unix
    /// milliseconds.
    Columns(Value),
}

/// A call, and what its row does not say.
pub(in crate::ledger) struct MovedCall {
    pub(in crate::ledger) row: Row,
    /// Whether a guarantee covers the row, so that only retention deletes it.
    pub(in crate::ledger) is_protected: bool,
}
