//! Lets refused calls share rows above a rate, so that a flood of refused calls does not fill the
//! disk.

use std::collections::HashMap;
use std::sync::Arc;

use super::Row;
use crate::call::{ErrorKind, InvocationId};

/// How many refused calls of one caller get rows of their own in each second.
pub(super) const ROWS_PER_SECOND: u32 = 100;

/// Tolerance for calls that end out of order, in seconds. A call from before that shows that the
/// clock was set back.
const MAX_DISORDER_SECONDS: i64 = 2;

/// Where a refused call is recorded. `S` is the data that the engine needs to update a shared row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalRow<S> {
    /// In a row of its own.
    Own,
    /// In this existing row, which then counts `count` calls.
    Shared {
        row: InvocationId,
        count: u64,
        update_data: S,
    },
}

/// Counts the refused calls of the current second. The first hundred of a caller get rows of their
/// own. Later calls with the same tool and the same kind of refusal share the row of the first of
/// them. The time comes from the rows, so it is the service's clock. Memory is bounded by the calls
/// of one second.
pub(super) struct Refusals<S> {
    second: i64,
    callers: HashMap<Arc<str>, CallerRefusals<S>>,
}

struct CallerRefusals<S> {
    rows: u32,
    shared: HashMap<(Arc<str>, Option<ErrorKind>), SharedRow<S>>,
}

struct SharedRow<S> {
    row: InvocationId,
    count: u64,
    kept: S,
}

impl<S> Default for Refusals<S> {
    fn default() -> Self {
        Self {
            second: 0,
            callers: HashMap::new(),
        }
    }
}

impl<S: Copy> Refusals<S> {
    /// Where this refused call is recorded. `make_update_data` makes the data for a row that later
    /// calls may share.
    pub(super) fn assign_row(
        &mut self,
        row: &Row,
        make_update_data: impl FnOnce(&Row) -> S,
    ) -> RefusalRow<S> {
        let ended_at = row.started_at.as_millisecond() + row.duration_us.unwrap_or_default() / 1000;
        let second = ended_at.div_euclid(1000);
        if second > self.second || second < self.second - MAX_DISORDER_SECONDS {
            self.second = second;
            // A new map instead of `clear`, so that the memory of a busy second is released.
            self.callers = HashMap::new();
        }
        let empty = || CallerRefusals {
            rows: 0,
            shared: HashMap::new(),
        };
        let of_caller = self.callers.entry(row.caller.clone()).or_insert_with(empty);
        if of_caller.rows < ROWS_PER_SECOND {
            of_caller.rows += 1;
            return RefusalRow::Own;
        }
        match of_caller.shared.get_mut(&(row.tool.clone(), row.kind)) {
            Some(shared) => {
                shared.count += 1;
                RefusalRow::Shared {
                    row: shared.row,
                    count: shared.count,
                    update_data: shared.kept,
                }
            }
            None => {
                let shared = SharedRow {
                    row: row.id,
                    count: 1,
                    kept: make_update_data(row),
                };
                of_caller
                    .shared
                    .insert((row.tool.clone(), row.kind), shared);
                RefusalRow::Own
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::State;
    use super::super::contract::{now, row};
    use super::*;

    fn refused_row(caller: &str, tool: &str, at: jiff::Timestamp) -> Row {
        Row {
            state: State::Refused,
            kind: Some(ErrorKind::Forbidden),
            ..row(tool, caller, at)
        }
    }

    fn count_own_rows(refusals: &mut Refusals<u32>, row: impl Fn() -> Row, calls: u32) -> u32 {
        (0..calls)
            .map(|_| u32::from(refusals.assign_row(&row(), |_| 7) == RefusalRow::Own))
            .sum()
    }

    #[test]
    fn caller_has_hundred_rows_per_second() {
        let mut refusals = Refusals::default();
        for second in 0..3 {
            let at = now() + Duration::from_secs(second);
            for caller in ["a", "b"] {
                // One row more: the row that the others share.
                assert_eq!(
                    count_own_rows(&mut refusals, || refused_row(caller, "t", at), 500),
                    101
                );
            }
        }
        assert_eq!(refusals.callers.len(), 2);
    }

    #[test]
    fn tools_and_kinds_have_separate_rows() {
        let mut refusals = Refusals::default();
        count_own_rows(
            &mut refusals,
            || refused_row("a", "t", now()),
            ROWS_PER_SECOND,
        );
        let other = |tool: &str, kind| Row {
            kind: Some(kind),
            ..refused_row("a", tool, now())
        };
        for (tool, kind) in [
            ("t", ErrorKind::Forbidden),
            ("u", ErrorKind::Forbidden),
            ("t", ErrorKind::ToolDisabled),
        ] {
            let first = other(tool, kind);
            assert_eq!(refusals.assign_row(&first, |_| 7), RefusalRow::Own);
            for count in 2..5 {
                let shared = RefusalRow::Shared {
                    row: first.id,
                    count,
                    update_data: 7,
                };
                assert_eq!(refusals.assign_row(&other(tool, kind), |_| 8), shared);
            }
        }
    }

    #[test]
    fn calls_count_when_they_end() {
        let mut refusals = Refusals::default();
        let at = "2026-06-15T12:00:30.600Z".parse().unwrap();
        let lasting = |us| Row {
            duration_us: Some(us),
            ..refused_row("a", "t", at)
        };
        assert_eq!(count_own_rows(&mut refusals, || lasting(399_999), 200), 101);
        assert_eq!(
            count_own_rows(&mut refusals, || refused_row("a", "t", at), 200),
            0
        );
        assert_eq!(
            count_own_rows(&mut refusals, || lasting(400_000), 200),
            101,
            "the next second"
        );
        assert_eq!(count_own_rows(&mut refusals, || lasting(1_399_999), 200), 0);
    }

    #[test]
    fn stragglers_have_two_seconds() {
        let mut refusals = Refusals::default();
        count_own_rows(&mut refusals, || refused_row("a", "t", now()), 200);
        let late = |seconds| now() - Duration::from_secs(seconds);
        assert_eq!(
            count_own_rows(&mut refusals, || refused_row("a", "t", late(2)), 200),
            0
        );
        assert_eq!(
            count_own_rows(&mut refusals, || refused_row("a", "t", late(3)), 200),
            101
        );
    }

    #[test]
    fn straggler_starts_no_new_second() {
        let mut refusals = Refusals::default();
        count_own_rows(&mut refusals, || refused_row("a", "t", now()), 200);
        let earlier = now() - Duration::from_secs(1);
        assert_eq!(
            count_own_rows(&mut refusals, || refused_row("a", "t", earlier), 200),
            0
        );
        // A clock that was set back starts a new second.
        let earlier = now() - Duration::from_secs(3600);
        assert_eq!(
            count_own_rows(&mut refusals, || refused_row("a", "t", earlier), 200),
            101
        );
    }
}
