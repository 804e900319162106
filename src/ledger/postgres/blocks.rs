//! What a commit says about blocks of units that a replica has set aside.

use uuid::Uuid;

use super::super::counts::CounterKey;

/// The unit of a call.
#[derive(Debug, Clone)]
pub(super) struct HeldUnit {
    pub(super) key: CounterKey,
    /// The boot id that has the block.
    pub(super) boot: Uuid,
    pub(super) counter: i64,
    pub(super) window_start: i64,
}

impl HeldUnit {
    /// The counter and the start of the window, if the block is one of this replica.
    pub(super) fn block(&self, boot: Uuid) -> Option<(i64, i64)> {
        (self.boot == boot).then_some((self.counter, self.window_start))
    }
}

/// The changes of blocks in a commit.
#[derive(Default)]
pub(super) struct BlockChanges {
    /// Counter, start of the window, units that stay, whether some are free, whether fewer stay.
    pub(super) kept: Vec<(i64, i64, u64, bool, bool)>,
    /// Whether `kept` has all blocks.
    pub(super) is_complete: bool,
    /// Counters of which free units are wanted.
    pub(super) wanted: Vec<Wanted>,
}

/// A wish for free units.
pub(super) struct Wanted {
    pub(super) key: CounterKey,
    pub(super) window_start: i64,
    pub(super) units: u64,
    pub(super) limit: u64,
}

impl BlockChanges {
    /// Adds a wish for free units.
    pub(super) fn want(&mut self, key: &CounterKey, window_start: i64, units: u64, limit: u64) {
        if units > 0 {
            self.wanted.push(Wanted {
                key: key.clone(),
                window_start,
                units,
                limit,
            });
        }
    }
}
