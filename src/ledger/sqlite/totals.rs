//! Totals per caller and tool, maintained with the rows that they count.
//!
//! Counts are written in the commit of their rows. Durations are collected in memory and written within a second,
//! because they only serve quantiles. A crash loses at most one second of durations, and never a count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::super::latency::Latencies;
use super::super::{Row, State};
use crate::call::CacheStatus;

/// Collected durations are written with the first commit after this time.
const LATENCIES_EVERY: Duration = Duration::from_secs(1);

/// Caller and tool.
type Of = (Arc<str>, Arc<str>);

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
    fn of(&mut self, row: &'a Row) -> &mut Counts {
        self.0.entry((&row.caller, &row.tool)).or_default()
    }

    /// Counts a started call.
    pub(super) fn begun(&mut self, row: &'a Row) {
        self.of(row).calls += 1;
    }

    /// Counts an ended call.
    pub(super) fn ended(&mut self, row: &'a Row) {
        let counts = self.of(row);
        match row.state {
            State::Succeeded => counts.succeeded += 1,
            State::Refused => counts.refused += 1,
            State::Failed | State::TimedOut | State::Cancelled | State::Unknown => counts.failed += 1,
            State::Reserved | State::Running => {}
        }
        let stored = matches!(row.cache, CacheStatus::Hit | CacheStatus::Joined);
        counts.cache_hits += u64::from(stored && row.state != State::Refused);
    }

    /// Counts refused calls that share an existing row.
    pub(super) fn shared(&mut self, caller: &'a str, tool: &'a str, calls: u64) {
        let counts = self.0.entry((caller, tool)).or_default();
        counts.calls += calls;
        counts.refused += calls;
    }

    /// The lines for the table `usage_total`.
    pub(super) fn lines(&self) -> Vec<impl Serialize + 'a> {
        let line = |(of, counts): (&(&'a str, &'a str), &Counts)| {
            (of.0, of.1, counts.calls, counts.succeeded, counts.failed, counts.refused, counts.cache_hits)
        };
        self.0.iter().map(line).collect()
    }
}

/// Durations that are not written yet.
pub(super) struct Durations {
    waiting: BTreeMap<Of, Latencies>,
    written: Instant,
}

impl Default for Durations {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), written: Instant::now() }
    }
}

impl Durations {
    /// Adds the duration of an ended call.
    pub(super) fn add(&mut self, row: &Row) {
        let Some(us) = row.duration_us.filter(|_| row.state != State::Refused) else { return };
        let of = (row.caller.clone(), row.tool.clone());
        self.waiting.entry(of).or_default().add(us);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_due(&self) -> bool {
        !self.is_empty() && self.written.elapsed() >= LATENCIES_EVERY
    }

    /// The lines for the table `usage_latency`.
    pub(super) fn lines(&self) -> Vec<(Arc<str>, Arc<str>, i64, u64)> {
        let all = self.waiting.iter().flat_map(|(of, all)| all.buckets().map(move |counted| (of, counted)));
        all.map(|((caller, tool), (bucket, calls))| (caller.clone(), tool.clone(), bucket, calls)).collect()
    }

    /// Forgets the durations, because they are written.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.written = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{ended, now, row};
    use super::*;

    fn end(state: State, cache: CacheStatus) -> Row {
        Row { cache, ..(*ended(&row("t", "a", now()), state)).clone() }
    }

    #[test]
    fn ends_and_cache_hits_are_counted() {
        let rows = [
            end(State::Succeeded, CacheStatus::Off),
            end(State::Succeeded, CacheStatus::Hit),
            end(State::Succeeded, CacheStatus::Miss),
            end(State::Failed, CacheStatus::Joined),
            end(State::Unknown, CacheStatus::Off),
            end(State::Refused, CacheStatus::Hit),
        ];
        let mut totals = Totals::default();
        for row in &rows {
            totals.begun(row);
            totals.ended(row);
        }
        totals.shared("a", "t", 5);
        let counts = &totals.0[&("a", "t")];
        let ends = [counts.calls, counts.succeeded, counts.failed, counts.refused];
        assert_eq!((ends, counts.cache_hits), ([11, 3, 2, 6], 2), "a refused call is no hit");
    }

    #[tokio::test(start_paused = true)]
    async fn durations_are_due_after_a_second() {
        let mut durations = Durations::default();
        durations.add(&end(State::Refused, CacheStatus::Off));
        tokio::time::advance(LATENCIES_EVERY).await;
        assert!(durations.is_empty() && !durations.is_due(), "a refused call took no time");
        for turn in 0..2 {
            durations.add(&end(State::Succeeded, CacheStatus::Off));
            assert_eq!((durations.is_empty(), durations.lines().len()), (false, 1));
            assert_eq!(durations.is_due(), turn == 0);
            tokio::time::advance(LATENCIES_EVERY).await;
            assert!(durations.is_due());
            durations.clear();
            assert!(durations.is_empty() && !durations.is_due());
        }
    }
}
