//! The counters of usage limits.

/// One window of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    /// Distinguishes the counter from one of the same name before a reset.
    instance: i64,
    pub(super) start: i64,
}

/// A row of the table `quota`.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    /// Its number, by which rows name it. Counters of runs have none.
    pub(super) id: Option<i64>,
    /// Distinguishes the counter from one of the same name before a reset.
    pub(super) instance: i64,
    pub(super) window_start: i64,
    pub(super) used: u64,
    /// Units in `used` that no row has yet.
    pub(super) set_aside: u64,
    /// The limit that the counter was last counted on under.
    pub(super) limit: Option<u64>,
}

impl Counter {
    pub(super) fn window(&self) -> Window {
        Window {
            instance: self.instance,
            start: self.window_start,
        }
    }
}
