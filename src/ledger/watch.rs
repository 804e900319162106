//! Who wants to know how the writing goes: metrics, in the service.

use std::time::Duration;

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
}

/// Nobody does.
impl Watch for () {
    fn committed(&self, _: usize, _: Duration) {}

    fn failed(&self) {}

    fn backlog(&self, _: usize) {}

    fn drift(&self, _: u64) {}

    fn clock_jumped(&self) {}
}
