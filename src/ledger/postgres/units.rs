//! Units of limits that this replica has set aside: the database counts them as used already, and
//! calls take them from memory. So a limited read waits for no commit before its tool runs.
//!
//! A block is the units of one counter in one window: free ones, and those of calls whose end is
//! not committed. Only the writer changes the number of units in a block, with a commit. So a
//! commit can name the number that stays, and is right even if the answer to an earlier one is lost.
//! Before a limit refuses a call, the replicas are asked for their free units.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::super::Reservation;
use super::super::counts::{CounterKey, counter_key};
use super::super::operation::{Starting, UnitRequest};
use super::super::units::{CounterUnits, Units};
use super::batch::{Batch, BlockChanges, BlockId, HeldUnit};
use super::commit::CommittedCounter;
use crate::call::{Charge, Charged, InvocationId, Per};

/// Free units of a block for each unit in use. More than one, so that most commits change no
/// counter, and replicas seldom wait for each other.
const FREE_PER_UNIT_IN_USE: u64 = 8;
/// Maximum number of free units of a block.
const MAX_FREE_UNITS: u64 = 512;
/// The database sets aside at most this share of the units that a limit has left.
const SHARE_OF_REMAINING: u64 = 4;
/// Maximum number of counters with free units.
const MAX_COUNTERS: usize = 4096;

/// The units that this replica has set aside.
#[derive(Clone, Default)]
pub(super) struct SetAside(Arc<Mutex<Blocks>>);

#[derive(Default)]
struct Blocks {
    /// The boot id that has the blocks.
    boot: Uuid,
    units: Units<BlockId, BlockState>,
    /// Whether the database may count more units than these blocks have, because a commit failed.
    is_uncertain: bool,
}

/// The units of one counter in one window.
type Block = CounterUnits<BlockId, BlockState>;

/// What the writer knows of a block.
#[derive(Default)]
struct BlockState {
    /// The limit when the units were set aside.
    limit: u64,
    /// Free units that were free before the last commit.
    free_before: u64,
    /// Whether the database knows that units may be free.
    is_declared: bool,
    /// Whether other calls need the free units.
    is_recalled: bool,
}

impl SetAside {
    /// Begins with no blocks, under this boot id.
    pub(super) fn restart(&self, boot: Uuid) {
        *self.0.lock() = Blocks {
            boot,
            ..Blocks::default()
        };
    }

    /// Takes a unit of each counter from memory, or none.
    pub(super) fn take(&self, request: &UnitRequest) -> Option<Reservation> {
        let fits = |block: &BlockState, charge: &Charge| block.limit == charge.limit;
        self.0.lock().units.take(request, fits)
    }

    /// Answers requests with the free units that have come meanwhile. The others stay.
    pub(super) fn serve(&self, requests: &mut Vec<Starting<UnitRequest>>) {
        for one in std::mem::take(requests) {
            match self.take(&one.call) {
                Some(reservation) => {
                    if one.reply.send(Ok(reservation)).is_err() {
                        self.cancel(one.call.invocation);
                    }
                }
                None => requests.push(one),
            }
        }
    }

    /// Notes that a commit has given these units to a call.
    pub(super) fn hold(&self, invocation: InvocationId, charged: &[Charged]) {
        self.0.lock().units.hold(invocation, charged);
    }

    /// Takes the free units of this replica out of the numbers that a caller sees.
    pub(super) fn hide_free(&self, charged: &mut [Charged]) {
        let state = self.0.lock();
        for charged in charged {
            if let Some(block) = state.units.of_charged(charged) {
                let free = block.state.free_before;
                charged.used = charged.used.saturating_sub(free).max(1);
            }
        }
    }

    /// Takes the units of a call that has ended. They stay in use until [`SetAside::end`].
    pub(super) fn release(&self, invocation: InvocationId) -> Vec<HeldUnit> {
        let mut state = self.0.lock();
        state.units.release(invocation).unwrap_or_default()
    }

    /// Frees the units of a call that does not use them.
    pub(super) fn cancel(&self, invocation: InvocationId) {
        self.0.lock().units.cancel(invocation);
    }

    /// Notes that other calls need the free units of a counter.
    pub(super) fn recall(&self, counter: i64) {
        let mut state = self.0.lock();
        let blocks = state.units.counters.values_mut();
        blocks
            .filter(|block| block.instance.counter == counter)
            .for_each(Block::recall);
    }

    /// Notes that a call of this replica waits for units. Returns whether this replica has some.
    pub(super) fn recall_charged(&self, charges: &[Charge]) -> bool {
        let mut state = self.0.lock();
        let mut has_units = false;
        for charge in charges {
            if let Some(block) = state.units.counters.get_mut(&counter_key(charge)) {
                block.recall();
                has_units |= block.state.is_recalled;
            }
        }
        has_units
    }

    /// Whether a commit is needed even without a batch.
    pub(super) fn has_changes(&self) -> bool {
        let state = self.0.lock();
        let mut blocks = state.units.counters.values();
        state.is_uncertain || blocks.any(|block| block.state.is_recalled || block.is_stray())
    }

    /// Asks for the return of free units that no call has used lately; with `all`, of all.
    pub(super) fn recall_idle(&self, all: bool) {
        let blocks = &mut self.0.lock().units.counters;
        blocks.retain(|_, block| block.free + block.in_use > 0);
        for block in blocks.values_mut() {
            let is_used = std::mem::take(&mut block.was_used) && !all;
            block.state.is_recalled |= !is_used && block.free > 0;
        }
    }

    /// The changes that a commit should make: free units that are given back, and those that are
    /// wanted. The units that are given back are no longer free.
    pub(super) fn plan(&self, batch: &Batch) -> BlockChanges {
        let mut state = self.0.lock();
        let state = &mut *state;
        let mut ending: HashMap<&CounterKey, (u64, bool)> = HashMap::new();
        for end in &batch.ends {
            for unit in &end.held {
                if state.units.current_mut(unit).is_some() {
                    let ending = ending.entry(&unit.key).or_default();
                    ending.0 += 1;
                    ending.1 |= end.refunds;
                }
            }
        }
        let mut requested: HashMap<CounterKey, u64> = HashMap::new();
        for charge in batch.unit_requests.iter().flat_map(|one| &one.call.charges) {
            *requested.entry(counter_key(charge)).or_default() += 1;
        }
        let mut changes = BlockChanges {
            is_complete: state.is_uncertain,
            ..BlockChanges::default()
        };
        let has_room = state.units.counters.len() < MAX_COUNTERS;
        for (key, block) in &mut state.units.counters {
            let (ended, has_refunds) = ending.get(key).copied().unwrap_or_default();
            let asked = requested.remove(key).unwrap_or_default();
            let is_returned = block.state.is_recalled || block.is_stray();
            block.state.is_recalled = false;
            let is_counted_ahead = key.3 != Per::Run && !is_returned && ended + asked > 0;
            let wanted = if is_counted_ahead {
                block.wanted(asked)
            } else {
                0
            };
            changes.want(key, block.window_start, wanted, block.state.limit);
            let is_exhausted =
                block.state.is_declared && block.free == 0 && wanted == 0 && ended > 0;
            if is_returned {
                block.used = block.used.saturating_sub(block.free);
                block.free = 0;
            }
            if is_returned || has_refunds || is_exhausted || state.is_uncertain {
                let stays = block.free + block.in_use.saturating_sub(ended);
                let fewer = is_returned || has_refunds;
                let kept = (
                    block.instance.counter,
                    block.window_start,
                    stays,
                    block.free > 0,
                    fewer,
                );
                changes.kept.push(kept);
                block.state.is_declared = block.free > 0;
            }
        }
        for (key, asked) in requested {
            if key.3 != Per::Run && has_room {
                let wanted = (asked * FREE_PER_UNIT_IN_USE).min(MAX_FREE_UNITS);
                // The call names the window and the limit.
                changes.want(&key, i64::MIN, wanted, u64::MAX);
            }
        }
        changes
    }

    /// Takes over what a commit has done with the counters and the blocks.
    pub(super) fn update(
        &self,
        counters: Vec<(CounterKey, CommittedCounter)>,
        gone: &[(i64, i64)],
    ) {
        let state = &mut *self.0.lock();
        state.is_uncertain = false;
        let blocks = &mut state.units.counters;
        if !gone.is_empty() {
            blocks.retain(|_, block| !gone.contains(&(block.instance.counter, block.window_start)));
        }
        for (key, counter) in counters {
            let known = blocks.get_mut(&key).filter(|block| {
                block.instance.counter == counter.id && block.window_start == counter.window_start
            });
            match known {
                Some(block) => {
                    block.used = counter.used;
                    block.state.free_before = block.free;
                    block.free += counter.added;
                    block.state.is_declared |= counter.added > 0;
                    block.state.limit = counter.limit.unwrap_or(block.state.limit);
                }
                None if counter.has_units => {
                    let block = Block {
                        instance: BlockId {
                            boot: state.boot,
                            counter: counter.id,
                        },
                        window_start: counter.window_start,
                        used: counter.used,
                        free: counter.added,
                        in_use: 0,
                        was_used: false,
                        state: BlockState {
                            limit: counter.limit.unwrap_or_default(),
                            is_declared: counter.added > 0,
                            ..BlockState::default()
                        },
                    };
                    blocks.insert(key, block);
                }
                // Units of an older window are worth nothing.
                None => drop(blocks.remove(&key)),
            }
        }
    }

    /// Notes that the ends of the batch are committed.
    pub(super) fn end(&self, batch: &Batch) {
        let units = &mut self.0.lock().units;
        for unit in batch.ends.iter().flat_map(|end| &end.held) {
            if let Some(block) = units.current_mut(unit) {
                block.in_use -= 1;
                if block.in_use + block.free == 0 {
                    units.counters.remove(&unit.key);
                }
            }
        }
    }

    /// Notes that a commit has failed, or has no answer. The next one names all blocks.
    pub(super) fn mark_uncertain(&self) {
        self.0.lock().is_uncertain = true;
    }

    /// The free units of a counter.
    pub(super) fn free_units(&self, charged: &Charged) -> u64 {
        let state = self.0.lock();
        state
            .units
            .of_charged(charged)
            .map_or(0, |block| block.free)
    }
}

impl Block {
    fn recall(&mut self) {
        self.state.is_recalled = self.state.is_declared || self.free > 0;
    }

    /// Whether it has free units of which the database does not know, as a call did not use them.
    fn is_stray(&self) -> bool {
        self.free > 0 && !self.state.is_declared
    }

    /// How many more free units the calls of this block need.
    fn wanted(&self, asked: u64) -> u64 {
        let remaining = self.state.limit.saturating_sub(self.used) + self.free;
        let target = ((self.in_use + asked) * FREE_PER_UNIT_IN_USE)
            .min(MAX_FREE_UNITS)
            .min(remaining / SHARE_OF_REMAINING);
        // Below half, so that not every commit changes the counter.
        if self.free * 2 > target {
            0
        } else {
            target - self.free
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tokio::sync::oneshot;

    use super::super::batch::End;
    use super::*;
    use crate::ledger::State;
    use crate::ledger::contract::{charge, ended_row, now, row};

    fn block(free: u64, in_use: u64) -> Block {
        let (boot, counter) = (Uuid::nil(), 1);
        Block {
            instance: BlockId { boot, counter },
            window_start: 0,
            used: 0,
            free,
            in_use,
            was_used: false,
            state: BlockState {
                limit: 10_000,
                is_declared: true,
                ..BlockState::default()
            },
        }
    }

    #[test]
    fn free_units_are_wanted_for_the_units_in_use() {
        assert_eq!(block(0, 2).wanted(1), 24);
        assert_eq!(block(12, 2).wanted(1), 12);
        assert_eq!(block(13, 2).wanted(1), 0);
        assert_eq!(block(0, 1_000).wanted(0), MAX_FREE_UNITS);
        let mut near = block(0, 2);
        near.state.limit = 40;
        assert_eq!(near.wanted(1), 10, "other replicas need units too");
    }

    #[test]
    fn units_that_others_need_are_given_back_without_a_batch() {
        let units = |change: fn(&mut Block)| {
            let mut block = block(3, 0);
            change(&mut block);
            let units = SetAside::default();
            let key = counter_key(&charge(9, Per::Lifetime));
            units.0.lock().units.counters.insert(key, block);
            units
        };
        assert!(!units(|_| {}).has_changes());
        assert!(units(Block::recall).has_changes());
        assert!(units(|block| block.state.is_declared = false).has_changes());
        let uncertain = SetAside::default();
        uncertain.0.lock().is_uncertain = true;
        assert!(uncertain.has_changes());
    }

    /// Units of one daily counter.
    fn set_aside(block: Block) -> SetAside {
        let units = SetAside::default();
        let key = counter_key(&charge(9, Per::Day));
        units.0.lock().units.counters.insert(key, block);
        units
    }

    /// A batch with requests for a unit, and with ends that take over units.
    fn batch(requests: usize, ends: usize, refunds: bool) -> Batch {
        let request = |per| UnitRequest {
            invocation: InvocationId::new(),
            started_at: Timestamp::UNIX_EPOCH,
            charges: vec![charge(9, per)],
        };
        let start = |_| Starting::new(request(Per::Day), oneshot::channel().0);
        let end = |_| End {
            row: ended_row(&row("t", "a", now()), State::Succeeded),
            settles: true,
            refunds,
            held: vec![HeldUnit {
                key: counter_key(&charge(9, Per::Day)),
                instance: block(0, 0).instance,
                window_start: 0,
            }],
        };
        Batch {
            unit_requests: (0..requests).map(start).collect(),
            ends: (0..ends).map(end).collect(),
            ..Batch::default()
        }
    }

    fn wanted(changes: &BlockChanges) -> u64 {
        changes.wanted.iter().map(|wanted| wanted.units).sum()
    }

    #[test]
    fn commits_ask_for_units_for_the_calls_that_start_and_end() {
        let planned = |block, batch: Batch| {
            let changes = set_aside(block).plan(&batch);
            assert!(changes.kept.is_empty(), "nothing is given back");
            wanted(&changes)
        };
        assert_eq!(planned(block(3, 0), batch(1, 0, false)), 5);
        assert_eq!(planned(block(3, 1), batch(0, 1, false)), 5);
        assert_eq!(planned(block(3, 1), batch(1, 1, false)), 13);
        assert_eq!(planned(block(3, 1), batch(0, 0, false)), 0);
        // A counter without a block here.
        let other = SetAside::default();
        assert_eq!(wanted(&other.plan(&batch(2, 0, false))), 16);
        assert_eq!(wanted(&other.plan(&batch(100, 0, false))), MAX_FREE_UNITS);
        assert_eq!(wanted(&other.plan(&batch(0, 0, false))), 0);
    }

    #[test]
    fn counters_of_runs_are_not_counted_ahead() {
        let mut batch = batch(2, 0, false);
        for one in &mut batch.unit_requests {
            one.call.charges = vec![charge(9, Per::Run)];
        }
        assert_eq!(wanted(&SetAside::default().plan(&batch)), 0);
        let units = SetAside::default();
        let key = counter_key(&charge(9, Per::Run));
        units.0.lock().units.counters.insert(key, block(0, 1));
        assert_eq!(wanted(&units.plan(&batch)), 0);
    }

    #[test]
    fn commits_give_back_recalled_units_and_name_what_stays() {
        let planned = |change: fn(&mut Block), batch: Batch| {
            let mut block = block(3, 2);
            block.used = 5;
            change(&mut block);
            let units = set_aside(block);
            let changes = units.plan(&batch);
            let key = counter_key(&charge(9, Per::Day));
            let block = units.0.lock().units.counters.remove(&key).unwrap();
            assert!(!block.state.is_recalled);
            (changes, block.free, block.used)
        };
        // Recalled: the free units are returned, and the replica requests no others.
        let (changes, free, used) = planned(Block::recall, batch(4, 1, false));
        assert_eq!(changes.kept, [(1, 0, 1, false, true)]);
        assert_eq!((wanted(&changes), free, used), (0, 0, 2));
        // A call gives its unit back.
        let (changes, free, _) = planned(|_| {}, batch(0, 1, true));
        assert_eq!((&changes.kept[..], free), (&[(1, 0, 4, true, true)][..], 3));
        // The last free unit is taken, and the limit leaves no more.
        let exhausted = |block: &mut Block| {
            block.free = 0;
            block.state.limit = 5;
        };
        let (changes, ..) = planned(exhausted, batch(0, 1, false));
        assert_eq!(changes.kept, [(1, 0, 1, false, false)]);
        let (changes, ..) = planned(exhausted, batch(0, 0, false));
        assert!(changes.kept.is_empty());
        // After a failure, all are named.
        let units = set_aside(block(3, 2));
        units.mark_uncertain();
        let changes = units.plan(&batch(0, 1, false));
        assert!(changes.is_complete);
        assert_eq!(changes.kept, [(1, 0, 4, true, false)]);
        assert!(!set_aside(block(3, 2)).plan(&batch(0, 1, false)).is_complete);
    }

    #[test]
    fn idle_units_are_given_back_after_one_interval() {
        let is_recalled = |change: fn(&mut Block), all| {
            let mut block = block(3, 1);
            change(&mut block);
            let units = set_aside(block);
            units.recall_idle(all);
            units.has_changes()
        };
        assert!(is_recalled(|_| {}, false));
        assert!(!is_recalled(|block| block.was_used = true, false));
        assert!(is_recalled(|block| block.was_used = true, true));
        assert!(!is_recalled(|block| block.free = 0, true));
        let units = set_aside(block(3, 1));
        let key = counter_key(&charge(9, Per::Day));
        let mut counter = units.0.lock().units.counters.remove(&key).unwrap();
        counter.was_used = true;
        let units = set_aside(counter);
        units.recall_idle(false);
        assert!(!units.has_changes());
        units.recall_idle(false);
        assert!(units.has_changes(), "no call has used it since");
    }

    #[test]
    fn counter_that_needs_units_says_whether_this_replica_has_some() {
        let charges = [charge(9, Per::Day)];
        assert!(set_aside(block(3, 0)).recall_charged(&charges));
        assert!(!SetAside::default().recall_charged(&charges));
        let mut used_up = block(0, 1);
        used_up.state.is_declared = false;
        assert!(!set_aside(used_up).recall_charged(&charges));
        let mut undeclared = block(1, 1);
        undeclared.state.is_declared = false;
        assert!(set_aside(undeclared).recall_charged(&charges));
        let units = set_aside(block(3, 0));
        units.recall(2);
        assert!(!units.has_changes(), "another counter");
        units.recall(1);
        assert!(units.has_changes());
    }

    #[test]
    fn blocks_follow_what_a_commit_has_done() {
        let key = || counter_key(&charge(9, Per::Day));
        let committed = |id, window_start, added, has_units| {
            let counter = CommittedCounter {
                id,
                window_start,
                used: 7,
                added,
                limit: Some(40),
                has_units,
            };
            vec![(key(), counter)]
        };
        let numbers = |units: &SetAside| {
            let state = units.0.lock();
            let block = state.units.counters.get(&key());
            block.map(|block| (block.instance.counter, block.free, block.used, block.in_use))
        };
        // The same counter in the same window.
        let units = set_aside(block(3, 2));
        units.update(committed(1, 0, 4, true), &[]);
        assert_eq!(numbers(&units), Some((1, 7, 7, 2)));
        // Another counter of this name, or another window.
        for (id, window_start) in [(2, 0), (1, 5)] {
            let units = set_aside(block(3, 2));
            units.update(committed(id, window_start, 4, true), &[]);
            assert_eq!(numbers(&units), Some((id, 4, 7, 0)));
            let units = set_aside(block(3, 2));
            units.update(committed(id, window_start, 0, false), &[]);
            assert_eq!(numbers(&units), None, "worth nothing");
        }
        // Blocks that no longer exist.
        for (gone, stays) in [((1, 0), false), ((1, 5), true), ((2, 0), true)] {
            let units = set_aside(block(3, 2));
            units.update(Vec::new(), &[gone]);
            assert_eq!(numbers(&units).is_some(), stays);
        }
        // The end of the last call removes a block without free units.
        let units = set_aside(block(0, 2));
        units.end(&batch(0, 1, false));
        assert_eq!(numbers(&units), Some((1, 0, 0, 1)));
        units.end(&batch(0, 1, false));
        assert_eq!(numbers(&units), None);
        let units = set_aside(block(1, 1));
        units.end(&batch(0, 1, false));
        assert_eq!(numbers(&units), Some((1, 1, 0, 0)));
    }
}
