//! How many records a queue holds and sends together.

use std::time::Duration;

/// The settings of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batching {
    /// Records that may wait. More are dropped.
    pub(super) waiting: usize,
    /// Records in one request.
    pub(super) together: usize,
    /// How long records collect.
    pub(super) delay: Duration,
}

impl Batching {
    /// The largest queue: its records take about a kilobyte each.
    pub(super) const MAX_WAITING: usize = 65_536;
}
