//! What imported calls add to the totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::latency::Latencies;
use super::{Row, State, UsageRow};
use crate::call::CacheStatus;

/// Caller and tool.
type CallerAndTool = (Arc<str>, Arc<str>);

/// Caller, tool, calls, succeeded, failed, refused, cache hits.
pub(super) type TotalLine = (Arc<str>, Arc<str>, u64, u64, u64, u64, u64);

/// The counts of added rows, for each caller and tool.
#[derive(Default)]
pub(super) struct ImportedCounts(BTreeMap<CallerAndTool, (UsageRow, Latencies)>);

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
        match row.state {
            State::Succeeded => total.succeeded += row.count,
            State::Refused => total.refused += row.count,
            State::Failed | State::TimedOut | State::Cancelled | State::Unknown => {
                total.failed += row.count;
            }
            State::Waiting | State::Reserved | State::Running => {}
        }
        if row.state == State::Refused {
            return;
        }
        if matches!(row.cache, CacheStatus::Hit | CacheStatus::Joined) {
            total.cache_hits += row.count;
        }
        row.duration_us.iter().for_each(|us| latencies.add(*us));
    }

    /// The lines for the table `usage_total`.
    pub(super) fn totals(&self) -> Vec<TotalLine> {
        let line = |((caller, tool), (total, _)): (&CallerAndTool, &(UsageRow, Latencies))| {
            (
                caller.clone(),
                tool.clone(),
                total.calls,
                total.succeeded,
                total.failed,
                total.refused,
                total.cache_hits,
            )
        };
        self.0.iter().map(line).collect()
    }

    /// The lines for the table `usage_latency`: caller, tool, bucket, calls.
    pub(super) fn latencies(&self) -> Vec<(Arc<str>, Arc<str>, i64, u64)> {
        let buckets = self.0.iter().flat_map(|((caller, tool), (_, latencies))| {
            let lines = latencies.buckets();
            lines.map(move |(bucket, calls)| (caller.clone(), tool.clone(), bucket, calls))
        });
        buckets.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::{ended_row, now, row};
    use super::*;

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
        assert_eq!(counts.totals(), [("a".into(), "t".into(), 9, 1, 1, 7, 1)]);
        let timed: u64 = counts.latencies().iter().map(|line| line.3).sum();
        assert_eq!(timed, 2, "refused calls have no part in the durations");
    }
}
