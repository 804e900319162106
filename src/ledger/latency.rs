//! Durations as a sketch: a bounded set of counters from which quantiles can be computed.
//!
//! This is a DDSketch (Masson, Rim and Lee, "DDSketch", VLDB 2019): bucket `i` counts durations
//! above `g^(i-1)` up to `g^i`. So every quantile is within [`RELATIVE_ERROR`] of the true one,
//! however many durations were counted. Two sketches are merged by adding the counters of their
//! buckets, which suits a database table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::{Row, State};

/// Relative error of a quantile.
const RELATIVE_ERROR: f64 = 0.02;
/// How much wider each bucket is than the one before.
const GROWTH: f64 = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR);

/// The bucket that counts this duration, in microseconds.
fn bucket_index(us: i64) -> i64 {
    if us <= 1 {
        0
    } else {
        ((us as f64).ln() / GROWTH.ln()).ceil() as i64
    }
}

/// The duration that represents all durations of a bucket, in microseconds.
fn bucket_midpoint(bucket: i64) -> f64 {
    2.0 * GROWTH.powf(bucket as f64) / (GROWTH + 1.0)
}

/// The sketch: the number of calls in each bucket.
#[derive(Default, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Latencies(BTreeMap<i64, u64>);

impl FromIterator<i64> for Latencies {
    fn from_iter<I: IntoIterator<Item = i64>>(durations: I) -> Self {
        let mut all = Self::default();
        durations.into_iter().for_each(|us| all.add(us));
        all
    }
}

impl Latencies {
    /// Counts a duration, in microseconds.
    pub(super) fn add(&mut self, us: i64) {
        *self.0.entry(bucket_index(us)).or_default() += 1;
    }

    /// Adds the calls of a bucket of another sketch.
    pub(super) fn add_calls(&mut self, bucket: i64, calls: u64) {
        *self.0.entry(bucket).or_default() += calls;
    }

    /// The buckets, with the number of calls in each.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (i64, u64)> {
        self.0.iter().map(|(bucket, calls)| (*bucket, *calls))
    }

    /// The duration that `percent` of the calls did not exceed (nearest rank), in milliseconds.
    pub(super) fn quantile_ms(&self, percent: u64) -> Option<f64> {
        let calls: u64 = self.0.values().sum();
        let rank = (calls * percent).div_ceil(100).max(1);
        let mut counted = 0;
        let found = self.0.iter().find(|(_, calls)| {
            counted += **calls;
            counted >= rank
        });
        found.map(|(bucket, _)| bucket_midpoint(*bucket).round() / 1000.0)
    }
}

/// Collected durations are written with the first commit after this time.
const LATENCY_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Caller and tool.
type CallerAndTool = (Arc<str>, Arc<str>);

/// A line for the table `usage_latency`.
#[derive(Serialize)]
pub(super) struct LatencyRow {
    pub(super) caller: Arc<str>,
    pub(super) tool: Arc<str>,
    pub(super) bucket: i64,
    pub(super) calls: u64,
}

/// Durations that are not written yet. They are written within a second, because they only serve
/// quantiles. A crash loses at most one second of durations.
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
    /// Adds the durations of ended calls. Refused calls have none.
    pub(super) fn add<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>) {
        for row in rows {
            if let Some(us) = row.duration_us.filter(|_| row.state != State::Refused) {
                let of = (row.caller.clone(), row.tool.clone());
                self.pending.entry(of).or_default().add(us);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn is_due(&self) -> bool {
        !self.is_empty() && self.last_written.elapsed() >= LATENCY_WRITE_INTERVAL
    }

    /// The lines for the table `usage_latency`.
    pub(super) fn to_rows(&self) -> Vec<LatencyRow> {
        let all = self
            .pending
            .iter()
            .flat_map(|(of, all)| all.buckets().map(move |counted| (of, counted)));
        let row = |((caller, tool), (bucket, calls)): (&CallerAndTool, _)| LatencyRow {
            caller: caller.clone(),
            tool: tool.clone(),
            bucket,
            calls,
        };
        all.map(row).collect()
    }

    /// Forgets the durations, because they are written.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.last_written = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::contract::{ended_row, now, row};
    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_within_two_percent(mut all in prop::collection::vec(1_i64..3_600_000_000, 1..200)) {
            let mut sketch = Latencies::default();
            all.iter().for_each(|us| sketch.add(*us));
            all.sort_unstable();
            for percent in [50, 99] {
                let exact = all[(all.len() * percent).div_ceil(100) - 1] as f64 / 1000.0;
                let found = sketch.quantile_ms(percent as u64).unwrap();
                // The result is rounded to microseconds, so it may be off by half of one.
                prop_assert!((found - exact).abs() <= exact * RELATIVE_ERROR + 0.0006, "{found} for {exact}");
            }
        }
    }

    #[test]
    fn empty_sketch_has_no_quantile() {
        assert_eq!(Latencies::default().quantile_ms(50), None);
        assert_eq!(
            (bucket_index(0), bucket_index(1), bucket_index(2)),
            (0, 0, 18)
        );
    }

    fn ended_call(state: State) -> Row {
        Row::clone(&ended_row(&row("t", "a", now()), state))
    }

    #[tokio::test(start_paused = true)]
    async fn durations_are_due_after_one_second() {
        let mut durations = PendingDurations::default();
        durations.add([&ended_call(State::Refused)]);
        tokio::time::advance(LATENCY_WRITE_INTERVAL).await;
        assert!(
            durations.is_empty() && !durations.is_due(),
            "a refused call took no time"
        );
        for turn in 0..2 {
            durations.add([&ended_call(State::Succeeded)]);
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
