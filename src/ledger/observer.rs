//! The interface for events of the writer. In the service, the metrics implement it.

use std::time::Duration;

/// The size of a ledger, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Size of the database file.
    pub file: u64,
    /// Size of the write-ahead log.
    pub log: u64,
    /// The part of the file that is in use. The remaining pages are free for new rows.
    pub used: u64,
    /// The bound on the file (`ledger.max_bytes`); `None`: no bound.
    pub max: Option<u64>,
}

/// Gets events of the writer and of `maintenance.rs`. No method may block.
pub trait LedgerObserver: Send + Sync + 'static {
    /// A commit with this number of rows has succeeded.
    fn on_commit(&self, _rows: usize, _took: Duration) {}

    /// A commit has failed.
    fn on_commit_failure(&self) {}

    /// Number of rows of ended calls that wait for a retry of their commit.
    fn on_backlog(&self, _rows: usize) {}

    /// By how many units the counters of limits differ from the rows.
    fn on_drift(&self, _units: u64) {}

    /// The wall clock jumped by minutes.
    fn on_clock_jump(&self) {}

    /// The size of the ledger.
    fn on_size(&self, _: Size) {}

    /// Number of calls that are under way, which a shared ledger shows to other replicas.
    fn running_calls(&self) -> u32 {
        0
    }

    /// Number of calls or stored results that were deleted to stay below the bound.
    fn on_trim(&self, _: u64) {}
}

/// Ignores all events.
impl LedgerObserver for () {}
