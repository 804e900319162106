//! The content of one commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::super::refusals::{SharedRefusal, move_first};
use super::super::{AttemptRow, Row, StoredResult};
use super::blocks::HeldUnit;
use crate::call::{Charge, InvocationId};

/// The content of one commit.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) reservations: Vec<StartingCall>,
    pub(super) unit_requests: Vec<UnitRequest>,
    pub(super) ends: Vec<End>,
    /// Calls whose reservation was not acknowledged. The commit undoes those that exist.
    pub(super) voids: Vec<InvocationId>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) results: Vec<StoredResult>,
    pub(super) shared_refusals: Vec<SharedRefusal>,
}

/// A call whose row is committed before its tool runs.
pub(super) struct StartingCall {
    pub(super) row: Row,
    pub(super) charges: Vec<Charge>,
    /// Since when it waits for free units of other replicas.
    pub(super) waits_since: Option<Instant>,
}

/// A request for the units of a call whose row is written with its end.
pub(super) struct UnitRequest {
    pub(super) invocation: InvocationId,
    pub(super) started_at: Timestamp,
    pub(super) charges: Vec<Charge>,
    /// Since when it waits for free units of other replicas.
    pub(super) waits_since: Option<Instant>,
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

    /// The calls of the batch that got a row or units.
    pub(super) fn started_calls(&self) -> impl Iterator<Item = InvocationId> {
        let reserved = self.reservations.iter().map(|call| call.row.id);
        reserved.chain(self.unit_requests.iter().map(|request| request.invocation))
    }

    /// Drops the oldest rows of calls that were not reserved, so that at most `rows` with `bytes`
    /// stay. Returns their number. There are no more reserved calls than ran at the failure.
    pub(super) fn drop_excess(&mut self, rows: usize, bytes: usize) -> usize {
        let mut memory: usize = self.ends.iter().map(|end| end.row.memory_bytes()).sum();
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

#[cfg(test)]
mod tests {
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
}
