//! The content of one commit.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::super::counts::CounterKey;
use super::super::operation::{ReservedCall, Starting, UnitRequest};
use super::super::refusals::{SharedRefusal, move_first};
use super::super::{AttemptRow, Error, Row, StoredResult, units};
use crate::call::InvocationId;

/// The content of one commit.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) reservations: Vec<Starting<ReservedCall>>,
    pub(super) unit_requests: Vec<Starting<UnitRequest>>,
    /// Starting calls whose callers got an error, because the commit has no answer.
    pub(super) failed: Vec<InvocationId>,
    pub(super) ends: Vec<End>,
    /// Calls whose reservation was not acknowledged. The commit undoes those that exist.
    pub(super) voids: Vec<InvocationId>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) results: Vec<StoredResult>,
    pub(super) shared_refusals: Vec<SharedRefusal>,
}

/// Starting calls that wait for free units of other replicas.
#[derive(Default)]
pub(super) struct Postponed {
    pub(super) batch: Batch,
    /// When to ask again.
    pub(super) retry_at: Option<Instant>,
}

impl Postponed {
    /// Moves the calls to the beginning of a batch.
    pub(super) fn resume(&mut self, batch: &mut Batch) {
        let first = std::mem::take(self).batch;
        batch.reservations.splice(0..0, first.reservations);
        batch.unit_requests.splice(0..0, first.unit_requests);
    }
}

/// The row of an ended call.
#[derive(Clone)]
pub(super) struct End {
    pub(super) row: Arc<Row>,
    /// Whether the call was reserved or has taken units.
    pub(super) settles: bool,
    /// Whether the call gives its units back.
    pub(super) refunds: bool,
    /// Units that were set aside, and that the row takes over.
    pub(super) held: Vec<HeldUnit>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.reservations.len()
            + self.unit_requests.len()
            + self.ended_count()
            + self.voids.len()
            + self.attempts.len()
            + self.results.len()
    }

    /// Number of rows of ended calls.
    pub(super) fn ended_count(&self) -> usize {
        self.ends.len() + self.shared_refusals.len()
    }

    /// The calls that have ended.
    pub(super) fn ended_rows(&self) -> impl Iterator<Item = &Row> {
        self.ends.iter().map(|end| &*end.row)
    }

    /// Removes entries that one statement cannot write twice: the first end of a call counts, and
    /// the last result of a key.
    pub(super) fn remove_duplicates(&mut self) {
        let mut ended = HashSet::new();
        self.ends.retain(|end| ended.insert(end.row.id));
        let mut stored = HashSet::new();
        self.results.reverse();
        self.results.retain(|result| stored.insert(result.key));
    }

    /// Takes over what a commit that did not happen leaves to write. Reservations are not written
    /// later, because their callers know of the failure.
    pub(super) fn take_over(&mut self, failed: Self) {
        self.ends.extend(failed.ends);
        self.voids.extend(failed.voids);
        self.attempts.extend(failed.attempts);
        let refusals = failed.shared_refusals.into_iter();
        refusals.for_each(|refusal| refusal.add_to(&mut self.shared_refusals));
    }

    /// Takes out the starting calls whose callers have gone. Such a caller may have recorded a
    /// refusal in the same batch, which could not give back units that this batch takes.
    pub(super) fn remove_abandoned(&mut self) {
        self.reservations.retain(|one| !one.reply.is_closed());
        self.unit_requests.retain(|one| !one.reply.is_closed());
    }

    /// Answers the starting calls of a commit that failed, or has no answer.
    pub(super) fn fail_starting(&mut self, error: &Error) {
        for one in self.reservations.drain(..) {
            self.failed.push(one.call.row.id);
            one.fail(error);
        }
        for one in self.unit_requests.drain(..) {
            self.failed.push(one.call.invocation);
            one.fail(error);
        }
    }

    /// Drops the oldest rows of calls that were not reserved, so that at most `rows` with `bytes`
    /// stay. Returns their number. There are no more reserved calls than ran at the failure.
    pub(super) fn drop_excess(&mut self, rows: usize, bytes: usize) -> usize {
        let mut memory: usize = self.ended_rows().map(Row::memory_bytes).sum();
        let mut remaining = self.ends.len();
        let before = remaining;
        if remaining > rows || memory > bytes {
            self.ends.retain(|end| {
                let is_lost = !end.settles && (remaining > rows || memory > bytes);
                if is_lost {
                    remaining -= 1;
                    memory -= end.row.memory_bytes();
                }
                !is_lost
            });
        }
        self.attempts.truncate(rows);
        self.shared_refusals.truncate(rows);
        before - remaining
    }

    /// Takes out the oldest entries: at most `at_most`, and ends of about `bytes`.
    pub(super) fn take_oldest(&mut self, mut at_most: usize, bytes: usize) -> Self {
        let mut first = Self::default();
        // Voids come first: a reservation and the refusal after it may have the same id.
        move_first(&mut self.voids, &mut first.voids, &mut at_most);
        let mut memory = 0;
        let fitting = self.ends.iter().take_while(|end| {
            memory += end.row.memory_bytes();
            memory <= bytes
        });
        // One end is written, however large it is.
        let fitting = fitting.count().max(1).min(at_most);
        let mut remaining = fitting;
        move_first(&mut self.ends, &mut first.ends, &mut remaining);
        at_most -= fitting - remaining;
        // After the rows in which they count.
        move_first(
            &mut self.shared_refusals,
            &mut first.shared_refusals,
            &mut at_most,
        );
        move_first(&mut self.attempts, &mut first.attempts, &mut at_most);
        first
    }

    /// Undoes [`Batch::take_oldest`].
    pub(super) fn put_back(&mut self, mut first: Self) {
        first.voids.append(&mut self.voids);
        first.ends.append(&mut self.ends);
        first.shared_refusals.append(&mut self.shared_refusals);
        first.attempts.append(&mut self.attempts);
        *self = first;
    }
}

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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::super::State;
    use super::super::super::contract::{ended_row, now, row};
    use super::*;

    #[test]
    fn first_end_of_a_call_is_written() {
        let started = row("t", "a", now());
        let end = |state| End {
            row: ended_row(&started, state),
            settles: true,
            refunds: false,
            held: Vec::new(),
        };
        let mut batch = Batch {
            ends: vec![end(State::Succeeded), end(State::Failed)],
            ..Batch::default()
        };
        batch.remove_duplicates();
        let states: Vec<State> = batch.ends.iter().map(|end| end.row.state).collect();
        assert_eq!(states, [State::Succeeded]);
    }

    #[test]
    fn backlog_is_bounded_by_rows_and_memory() {
        let end = |settles| End {
            row: ended_row(&row("t", "a", now()), State::Succeeded),
            settles,
            refunds: false,
            held: Vec::new(),
        };
        let bytes = end(false).row.memory_bytes();
        let backlog = || Batch {
            ends: vec![end(true), end(false), end(false), end(false)],
            ..Batch::default()
        };
        for (rows, memory, lost) in [
            (9, 9 * bytes, 0),
            (3, 9 * bytes, 1),
            (9, 2 * bytes, 2),
            (0, 0, 3),
        ] {
            let mut backlog = backlog();
            assert_eq!(backlog.drop_excess(rows, memory), lost);
            assert!(backlog.ends[0].settles);
        }
        assert_eq!(backlog().take_oldest(9, 2 * bytes).ends.len(), 2);
        assert_eq!(backlog().take_oldest(9, 0).ends.len(), 1);
    }

    #[test]
    fn oldest_entries_come_back_to_their_place() {
        let mut backlog = Batch {
            voids: (0..3).map(|_| InvocationId::new()).collect(),
            ..Batch::default()
        };
        let before = backlog.voids.clone();
        let first = backlog.take_oldest(2, usize::MAX);
        assert_eq!((first.voids.len(), backlog.voids.len()), (2, 1));
        backlog.put_back(first);
        assert_eq!(backlog.voids, before);
    }

    #[test]
    fn starting_calls_of_a_failed_commit_get_its_error() {
        let (reserved, taken) = (row("t", "a", now()), InvocationId::new());
        let (reply, mut reservation) = oneshot::channel();
        let (other_reply, mut units) = oneshot::channel();
        let call = ReservedCall {
            row: reserved.clone(),
            charges: Vec::new(),
        };
        let request = UnitRequest {
            invocation: taken,
            started_at: now(),
            charges: Vec::new(),
        };
        let mut batch = Batch {
            reservations: vec![Starting::new(call, reply)],
            unit_requests: vec![Starting::new(request, other_reply)],
            ..Batch::default()
        };
        batch.fail_starting(&Error::Failed("the disk is full".into()));
        for answer in [&mut reservation, &mut units] {
            let error = answer.try_recv().unwrap().unwrap_err();
            assert!(error.to_string().contains("the disk is full"), "{error}");
        }
        assert!(batch.is_empty());
        assert_eq!(
            batch.failed,
            [reserved.id, taken],
            "a later commit undoes them"
        );
    }
}
