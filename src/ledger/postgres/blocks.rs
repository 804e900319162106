//! What a commit says about blocks of units that a replica has set aside.

use uuid::Uuid;

use super::super::counts::CounterKey;
use super::super::units;

/// The unit of a call.
pub(super) type HeldUnit = units::HeldUnit<BlockId>;

/// Distinguishes a counter with a block from others of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BlockId {
    /// The boot id that has the block.
    pub(super) boot: Uuid,
    /// The counter's id in the database.
    pub(super) counter: i64,
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
