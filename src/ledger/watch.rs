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

/// Gets events of the writer and of `upkeep.rs`. No method may block.
pub trait Watch: Send + Sync + 'static {
    /// A commit with this number of rows has succeeded.
    fn committed(&self, rows: usize, took: Duration);

    /// A commit has failed.
    fn failed(&self);

    /// Number of rows of ended calls that wait for a retry of their commit.
    fn backlog(&self, rows: usize);

    /// By how many units the counters of limits differ from the rows.
    fn drift(&self, units: u64);

    /// The wall clock jumped by minutes.
    fn clock_jumped(&self);

    /// The size of the ledger.
    fn size(&self, _: Size) {}

    /// Number of calls or stored results that were deleted to stay below the bound.
    fn trimmed(&self, _: u64) {}
}

/// Ignores all events.
impl Watch for () {
    fn committed(&self, _: usize, _: Duration) {}

    fn failed(&self) {}

    fn backlog(&self, _: usize) {}

    fn drift(&self, _: u64) {}

    fn clock_jumped(&self) {}
}
