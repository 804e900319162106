//! Totals per caller and tool, maintained with the rows that they count.
//!
//! Counts are written in the commit of their rows.

use std::collections::HashMap;
use std::sync::Arc;

use super::Row;
use super::counts::Counts;
use super::sql::SqlValue;

/// What calls add to the totals.
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
