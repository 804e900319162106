//! Counts of calls, and the names of the counters of limits.

use super::{Row, State};
use crate::call::{CacheStatus, Charge, Per};

/// Counts of calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) refused: u64,
    pub(super) cache_hits: u64,
}

impl Counts {
    /// Counts the end of calls that have this row.
    pub(super) fn count_end(&mut self, row: &Row, calls: u64) {
        match row.state {
            State::Waiting | State::Reserved | State::Running => return,
            State::Refused => {
                self.refused += calls;
                return;
            }
            State::Succeeded => self.succeeded += calls,
            State::Failed | State::TimedOut | State::Cancelled | State::Unknown => {
                self.failed += calls;
            }
        }
        if matches!(row.cache, CacheStatus::Hit | CacheStatus::Joined) {
            self.cache_hits += calls;
        }
    }

    /// The numbers, as the columns of a table have them.
    pub(super) fn numbers(self) -> [u64; 5] {
        let Self {
            calls,
            succeeded,
            failed,
            refused,
            cache_hits,
        } = self;
        [calls, succeeded, failed, refused, cache_hits]
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.refused += other.refused;
        self.cache_hits += other.cache_hits;
    }
}

/// Tool, caller, run and window of a counter.
pub(super) type CounterKey = (String, String, String, Per);

/// The counter of a charge.
pub(super) fn counter_key(charge: &Charge) -> CounterKey {
    (
        charge.tool.clone(),
        charge.caller.clone(),
        charge.run.clone(),
        charge.per,
    )
}
