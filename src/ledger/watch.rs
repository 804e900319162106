//! Who wants to know how the writing goes: metrics, in the service.

use std::time::Duration;

/// How large a ledger is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// The database file.
    pub file: u64,
    /// Its write-ahead log.
    pub log: u64,
    /// What is in use in the file; the rest of it is used again.
    pub used: u64,
    /// The bound on the file (`ledger.max_bytes`); `None`: there is none.
    pub max: Option<u64>,
}

/// Told by the writer, and by `upkeep.rs`. Must not block.
pub trait Watch: Send + Sync + 'static {
    /// A commit of so many rows is done.
    fn committed(&self, rows: usize, took: Duration);

    /// A commit failed.
    fn failed(&self);

    /// So many rows of calls that have ended wait to be tried again.
    fn backlog(&self, rows: usize);

    /// Counters of limits differ from the rows by so many units.
    fn drift(&self, units: u64);

    /// The wall clock was moved by minutes at once.
    fn clock_jumped(&self);

    /// The ledger is this large.
    fn size(&self, _: Size) {}

    /// So many calls or stored results were deleted to keep below the bound.
    fn trimmed(&self, _: u64) {}
}

/// Nobody does.
impl Watch for () {
    fn committed(&self, _: usize, _: Duration) {}

    fn failed(&self) {}

    fn backlog(&self, _: usize) {}

    fn drift(&self, _: u64) {}

    fn clock_jumped(&self) {}
}
