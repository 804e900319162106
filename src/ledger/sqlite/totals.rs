//! Totals per caller and tool, maintained with the rows that they count.
//!
//! Counts are written in the commit of their rows. Durations are collected in memory and written
//! within a second, because they only serve quantiles. A crash loses at most one second of
//! durations, and never a count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::super::latency::Latencies;
use super::super::{Row, State};
use crate::call::CacheStatus;

/// Collected durations are written with the first commit after this time.
const LATENCY_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Caller and tool.
type CallerAndTool = (Arc<str>, Arc<str>);

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
            State::Reserved | State::Running => {}
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

/// Durations that are not written yet.
pub(super) struct PendingDurations {
    pending: BTreeMap<CallerAndTool, Latencies>,
    last_written: Instant,
}

impl Default for PendingDurations {
    fn default() -> Self {
        Self {
            pending: BTreeMap::new(),
            last_written: Instant::now(),
        }
    }
}

impl PendingDurations {
    /// Adds the duration of an ended call.
    pub(super) fn add(&mut self, row: &Row) {
        let Some(us) = row.duration_us.filter(|_| row.state != State::Refused) else {
            return;
        };
        let of = (row.caller.clone(), row.tool.clone());
        self.pending.entry(of).or_default().add(us);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn is_due(&self) -> bool {
        !self.is_empty() && self.last_written.elapsed() >= LATENCY_WRITE_INTERVAL
    }

    /// The lines for the table `usage_latency`.
    pub(super) fn to_rows(&self) -> Vec<(Arc<str>, Arc<str>, i64, u64)> {
        let all = self
            .pending
            .iter()
            .flat_map(|(of, all)| all.buckets().map(move |counted| (of, counted)));
        all.map(|((caller, tool), (bucket, calls))| (caller.clone(), tool.clone(), bucket, calls))
            .collect()
    }

    /// Forgets the durations, because they are written.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.last_written = Instant::now();
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

    #[tokio::test(start_paused = true)]
    async fn durations_are_due_after_one_second() {
        let mut durations = PendingDurations::default();
        durations.add(&ended_call(State::Refused, CacheStatus::Off));
        tokio::time::advance(LATENCY_WRITE_INTERVAL).await;
        assert!(
            durations.is_empty() && !durations.is_due(),
            "a refused call took no time"
        );
        for turn in 0..2 {
            durations.add(&ended_call(State::Succeeded, CacheStatus::Off));
            assert_eq!(
                (durations.is_empty(), durations.to_rows().len()),
                (false, 1)
            );
            assert_eq!(durations.is_due(), turn == 0);
            tokio::time::advance(LATENCY_WRITE_INTERVAL).await;
            assert!(durations.is_due());
            durations.clear();
            assert!(durations.is_empty() && !durations.is_due());
        }
    }
}
