//! Counts of calls, their totals, and the names of the counters of limits.

use std::collections::HashMap;
use std::sync::Arc;

use super::sql::SqlValue;
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

/// What calls add to the totals per caller and tool. It is written in the commit of their rows.
#[derive(Default)]
pub(super) struct Totals<'a>(HashMap<(&'a Arc<str>, &'a Arc<str>), Counts>);

impl<'a> Totals<'a> {
    fn counts_mut(&mut self, row: &'a Row) -> &mut Counts {
        self.0.entry((&row.caller, &row.tool)).or_default()
    }

    /// Counts a started call.
    pub(super) fn count_start(&mut self, row: &'a Row) {
        self.counts_mut(row).calls += row.count;
    }

    /// Counts an ended call.
    pub(super) fn count_end(&mut self, row: &'a Row) {
        self.counts_mut(row).count_end(row, row.count);
    }

    /// Counts refused calls that share an existing row.
    pub(super) fn count_shared(&mut self, caller: &'a Arc<str>, tool: &'a Arc<str>, calls: u64) {
        let counts = self.0.entry((caller, tool)).or_default();
        counts.calls += calls;
        counts.refused += calls;
    }

    /// The lines for the table `usage_total`.
    pub(super) fn rows(&self) -> impl Iterator<Item = [SqlValue; 7]> {
        let line = |((caller, tool), counts): (&(&Arc<str>, &Arc<str>), &Counts)| {
            let [calls, succeeded, failed, refused, cache_hits] =
                counts.numbers().map(SqlValue::from);
            let (caller, tool) = ((*caller).into(), (*tool).into());
            [caller, tool, calls, succeeded, failed, refused, cache_hits]
        };
        self.0.iter().map(line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::contract::{ended_row, now, row};
    use super::*;
    use crate::call::CacheStatus;

    fn ended_call(state: State, cache: CacheStatus) -> Row {
        Row {
            cache,
            ..(*ended_row(&row("t", "a", now()), state)).clone()
        }
    }

    #[test]
    fn totals_count_ends_and_cache_hits() {
        let rows = [
            ended_call(State::Succeeded, CacheStatus::Off),
            ended_call(State::Succeeded, CacheStatus::Hit),
            ended_call(State::Succeeded, CacheStatus::Miss),
            ended_call(State::Failed, CacheStatus::Joined),
            ended_call(State::Unknown, CacheStatus::Off),
            Row {
                count: 7,
                ..ended_call(State::Refused, CacheStatus::Hit)
            },
        ];
        let (caller, tool): (Arc<str>, Arc<str>) = ("a".into(), "t".into());
        let mut totals = Totals::default();
        for row in &rows {
            totals.count_start(row);
            totals.count_end(row);
        }
        totals.count_shared(&caller, &tool, 5);
        let counts = &totals.0[&(&caller, &tool)];
        let ends = [
            counts.calls,
            counts.succeeded,
            counts.failed,
            counts.refused,
        ];
        assert_eq!(
            (ends, counts.cache_hits),
            ([17, 3, 2, 12], 2),
            "a refused call is no hit"
        );
    }
}
