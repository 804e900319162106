//! Durations as a sketch: a bounded set of counters from which quantiles can be computed.
//!
//! This is a DDSketch (Masson, Rim and Lee, "DDSketch", VLDB 2019): bucket `i` counts durations
//! above `g^(i-1)` up to `g^i`. So every quantile is within [`RELATIVE_ERROR`] of the true one,
//! however many durations were counted. Two sketches are merged by adding the counters of their
//! buckets, which suits a database table.

use std::collections::BTreeMap;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
}
