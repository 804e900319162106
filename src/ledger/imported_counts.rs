//! What imported calls add to the totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::counts::Counts;
use super::latency::Latencies;
use super::sql::Line;
use super::{Row, State};

/// Caller and tool.
type CallerAndTool = (Arc<str>, Arc<str>);

/// The counts of added rows, for each caller and tool.
#[derive(Default)]
pub(super) struct ImportedCounts(BTreeMap<CallerAndTool, (Counts, Latencies)>);

impl ImportedCounts {
    /// The counts of these rows. All have ended.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut counts = Self::default();
        rows.into_iter().for_each(|row| counts.add(row));
        counts
    }

    fn add(&mut self, row: &Row) {
        let key = (row.caller.clone(), row.tool.clone());
        let (total, latencies) = self.0.entry(key).or_default();
        total.calls += row.count;
        total.count_end(row, row.count);
        if row.state != State::Refused {
            row.duration_us.iter().for_each(|us| latencies.add(*us));
        }
    }

    /// The lines for the table `usage_total`.
    pub(super) fn totals(&self) -> Vec<Line> {
        let line = |((caller, tool), (total, _)): (&CallerAndTool, &(Counts, Latencies))| {
            let mut line: Line = vec![caller.into(), tool.into()];
            line.extend(total.numbers().map(Into::into));
            line
        };
        self.0.iter().map(line).collect()
    }

    /// The lines for the table `usage_latency`: caller, tool, bucket, calls.
    pub(super) fn latencies(&self) -> Vec<Line> {
        let buckets = self.0.iter().flat_map(|((caller, tool), (_, latencies))| {
            latencies.buckets().map(move |(bucket, calls)| {
                let (caller, tool) = (caller.clone(), tool.clone());
                vec![caller.into(), tool.into(), bucket.into(), calls.into()]
            })
        });
        buckets.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::{ended_row, now, row};
    use super::super::sql::SqlRow;
    use super::*;
    use crate::call::CacheStatus;

    #[test]
    fn shared_rows_count_all_their_calls() {
        let ended = |state, count| Row {
            count,
            ..(*ended_row(&row("t", "a", now()), state)).clone()
        };
        let hit = Row {
            cache: CacheStatus::Hit,
            ..ended(State::Succeeded, 1)
        };
        let rows = [ended(State::Refused, 7), ended(State::Unknown, 1), hit];
        let counts = ImportedCounts::of(&rows);
        let totals: Vec<Line> = counts.totals();
        let numbers = totals[0][2..].iter().map(|number| format!("{number:?}"));
        let expected = [9, 1, 1, 7, 1].map(|number| format!("Integer({number})"));
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        let calls = |line| SqlRow(line).get::<u64>(3).unwrap();
        let timed: u64 = counts.latencies().into_iter().map(calls).sum();
        assert_eq!(timed, 2, "refused calls have no part in the durations");
    }
}
