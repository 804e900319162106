//! Lets refused calls share rows above a rate, so that a flood of refused calls does not fill the
//! disk.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Row, State, checksum};
use crate::call::{ErrorKind, InvocationId};

/// How many refused calls of one caller get rows of their own in each second.
pub(super) const ROWS_PER_SECOND: u32 = 100;

/// Tolerance for calls that end out of order, in seconds. A call from before that shows that the
/// clock was set back.
const MAX_DISORDER_SECONDS: i64 = 2;

/// Refused calls that are counted in an existing row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SharedRefusal {
    #[serde(rename = "id")]
    pub(super) row: InvocationId,
    pub(super) caller: Arc<str>,
    pub(super) tool: Arc<str>,
    /// Number of calls that the row counts, including these.
    pub(super) count: u64,
    /// Number of calls that this entry adds.
    pub(super) added: u64,
    /// The row's checksum with a count of one.
    #[serde(skip)]
    pub(super) checksum: u32,
}

impl SharedRefusal {
    /// Adds this entry to those of a batch. All calls of the batch for one row become one update.
    pub(super) fn add_to(self, others: &mut Vec<Self>) {
        let same_row = |other: &&mut Self| other.row == self.row;
        match others.iter_mut().rev().find(same_row) {
            Some(other) => {
                other.added += self.added;
                other.count = other.count.max(self.count);
            }
            None => others.push(self),
        }
    }
}

/// Counts the refused calls of the current second. The first hundred of a caller get rows of their
/// own. Later calls with the same tool and the same kind of refusal share the row of the first of
/// them. The time comes from the rows, so it is the service's clock. Memory is bounded by the calls
/// of one second.
#[derive(Default)]
pub(super) struct Refusals {
    second: i64,
    callers: HashMap<Arc<str>, CallerRefusals>,
}

#[derive(Default)]
struct CallerRefusals {
    rows: u32,
    shared: HashMap<(Arc<str>, Option<ErrorKind>), SharedRefusal>,
}

impl Refusals {
    /// The existing row in which a call is counted. `None`: it gets a row of its own.
    pub(super) fn find_shared_row(&mut self, row: &Row) -> Option<SharedRefusal> {
        if row.state != State::Refused {
            return None;
        }
        let ended_at = row.started_at.as_millisecond() + row.duration_us.unwrap_or_default() / 1000;
        let second = ended_at.div_euclid(1000);
        if second > self.second || second < self.second - MAX_DISORDER_SECONDS {
            self.second = second;
            // A new map instead of `clear`, so that the memory of a busy second is released.
            self.callers = HashMap::new();
        }
        let of_caller = self.callers.entry(row.caller.clone()).or_default();
        if of_caller.rows < ROWS_PER_SECOND {
            of_caller.rows += 1;
            return None;
        }
        let kind = (row.tool.clone(), row.kind);
        if let Some(shared) = of_caller.shared.get_mut(&kind) {
            shared.count += 1;
            return Some(shared.clone());
        }
        let shared = SharedRefusal {
            row: row.id,
            caller: row.caller.clone(),
            tool: row.tool.clone(),
            count: 1,
            added: 1,
            checksum: checksum::row_checksum(row),
        };
        of_caller.shared.insert(kind, shared);
        None
    }
}

/// Moves the first elements, at most `at_most`, which becomes less.
pub(super) fn move_first<T>(from: &mut Vec<T>, to: &mut Vec<T>, at_most: &mut usize) {
    let count = from.len().min(*at_most);
    to.extend(from.drain(..count));
    *at_most -= count;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::contract::{now, row};
    use super::*;

    fn refused_row(caller: &str, tool: &str, at: jiff::Timestamp) -> Row {
        Row {
            state: State::Refused,
            kind: Some(ErrorKind::Forbidden),
            ..row(tool, caller, at)
        }
    }

    fn count_own_rows(refusals: &mut Refusals, row: impl Fn() -> Row, calls: u32) -> u32 {
        (0..calls)
            .map(|_| u32::from(refusals.find_shared_row(&row()).is_none()))
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
            assert_eq!(refusals.find_shared_row(&first), None);
            for count in 2..5 {
                let shared = SharedRefusal {
                    row: first.id,
                    caller: "a".into(),
                    tool: tool.into(),
                    count,
                    added: 1,
                    checksum: checksum::row_checksum(&first),
                };
                let found = refusals.find_shared_row(&other(tool, kind));
                assert_eq!(found, Some(shared));
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
