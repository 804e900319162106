//! Totals per caller and tool, maintained with the rows that they count.
//!
//! Counts are written in the commit of their rows.

use std::collections::HashMap;

use serde::Serialize;

use super::super::{Row, State};
use crate::call::CacheStatus;

/// The additions of a batch to the totals.
#[derive(Default)]
pub(super) struct Totals<'a>(HashMap<(&'a str, &'a str), Counts>);

#[derive(Default)]
struct Counts {
    calls: u64,
    succeeded: u64,
    failed: u64,
    refused: u64,
    cache_hits: u64,
}

impl<'a> Totals<'a> {
    fn counts_mut(&mut self, row: &'a Row) -> &mut Counts {
        self.0.entry((&row.caller, &row.tool)).or_default()
    }

    /// Counts a started call.
    pub(super) fn count_start(&mut self, row: &'a Row) {
        self.counts_mut(row).calls += 1;
    }

    /// Counts an ended call.
    pub(super) fn count_end(&mut self, row: &'a Row) {
        let counts = self.counts_mut(row);
        match row.state {
            State::Succeeded => counts.succeeded += 1,
            State::Refused => counts.refused += 1,
            State::Failed | State::TimedOut | State::Cancelled | State::Unknown => {
                counts.failed += 1;
            }
            State::Waiting | State::Reserved | State::Running => {}
        }
        let stored = matches!(row.cache, CacheStatus::Hit | CacheStatus::Joined);
        counts.cache_hits += u64::from(stored && row.state != State::Refused);
    }

    /// Counts refused calls that share an existing row.
    pub(super) fn count_shared(&mut self, caller: &'a str, tool: &'a str, calls: u64) {
        let counts = self.0.entry((caller, tool)).or_default();
        counts.calls += calls;
        counts.refused += calls;
    }

    /// The lines for the table `usage_total`.
    pub(super) fn to_rows(&self) -> Vec<impl Serialize + 'a> {
        let line = |(of, counts): (&(&'a str, &'a str), &Counts)| {
            (
                of.0,
                of.1,
                counts.calls,
                counts.succeeded,
                counts.failed,
                counts.refused,
                counts.cache_hits,
            )
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{ended_row, now, row};
    use super::*;

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
            ended_call(State::Refused, CacheStatus::Hit),
        ];
        let mut totals = Totals::default();
        for row in &rows {
            totals.count_start(row);
            totals.count_end(row);
        }
        totals.count_shared("a", "t", 5);
        let counts = &totals.0[&("a", "t")];
        let ends = [
            counts.calls,
            counts.succeeded,
            counts.failed,
            counts.refused,
        ];
        assert_eq!(
            (ends, counts.cache_hits),
            ([11, 3, 2, 6], 2),
            "a refused call is no hit"
        );
    }
}
