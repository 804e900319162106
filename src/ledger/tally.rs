//! Counts of calls by the time of their start and by names, as they are put together from rows and
//! from counted hours.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::counted_hour::{CountedHour, HOUR_MS, HourGroup};
use super::counts::Counts;
use super::latency::Latencies;
use super::{BucketQuery, BucketRow, UsageBy, UsageRow};

/// A bucket, and its tool, caller and run. Buckets are in this order in an answer.
type Group = (i64, [Option<Arc<str>>; 3]);

/// The counts of all groups of a query.
pub(super) struct Tally<'a> {
    query: &'a BucketQuery,
    groups: BTreeMap<Group, (Counts, Latencies)>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(query: &'a BucketQuery) -> Self {
        let groups = BTreeMap::new();
        Self { query, groups }
    }

    fn bucket_of(&self, start_ms: i64) -> i64 {
        start_ms.div_euclid(self.query.width_ms)
    }

    /// Whether the answer is complete although calls from this time on are missing: it is long enough,
    /// and they belong to a later bucket.
    pub(super) fn is_full(&self, start_ms: i64) -> bool {
        let newest = self.groups.last_key_value().map(|((bucket, _), _)| *bucket);
        self.groups.len() >= self.query.limit as usize && Some(self.bucket_of(start_ms)) > newest
    }

    /// Adds calls of one bucket. Returns the sketch of their group, for their durations.
    pub(super) fn add(&mut self, group: Group, counts: Counts) -> &mut Latencies {
        let (sum, latencies) = self.groups.entry(group).or_default();
        *sum += counts;
        latencies
    }

    /// Adds a counted hour.
    pub(super) fn add_hour(&mut self, hour: i64, counted: &CountedHour) {
        let bucket = self.bucket_of(hour * HOUR_MS);
        let shared = |is_grouped: bool, names: &[String]| -> Vec<Option<Arc<str>>> {
            let share = |name: &String| is_grouped.then(|| name.as_str().into());
            names.iter().map(share).collect()
        };
        let tools = shared(self.query.by != Some(UsageBy::Caller), &counted.tools);
        let callers = shared(self.query.by != Some(UsageBy::Tool), &counted.callers);
        let only = self.query.caller.as_deref();
        for HourGroup {
            tool,
            caller,
            counts,
            latencies,
        } in counted.groups()
        {
            if only.is_some_and(|only| only != counted.callers[caller]) {
                continue;
            }
            let names = [tools[tool].clone(), callers[caller].clone(), None];
            let sum = self.add((bucket, names), counts);
            latencies.for_each(|(bucket, calls)| sum.add_calls(bucket, calls));
        }
    }

    /// The rows of the answer, in their order.
    pub(super) fn into_rows(self) -> Vec<BucketRow> {
        let text = |name: Option<Arc<str>>| name.map(|name| name.to_string());
        let row =
            |((bucket, [tool, caller, run]), (counts, latencies)): (Group, (Counts, Latencies))| {
                BucketRow {
                    start_ms: bucket * self.query.width_ms,
                    run_id: text(run),
                    counts: UsageRow {
                        tool: text(tool).unwrap_or_default(),
                        caller: text(caller).unwrap_or_default(),
                        calls: counts.calls,
                        succeeded: counts.succeeded,
                        failed: counts.failed,
                        refused: counts.refused,
                        cache_hits: counts.cache_hits,
                        p50_ms: latencies.quantile_ms(50),
                        p99_ms: latencies.quantile_ms(99),
                    },
                }
            };
        let limit = self.query.limit as usize;
        self.groups.into_iter().take(limit).map(row).collect()
    }

    /// The counted hours of a tally over hours, tools and callers. Hours without calls are absent.
    pub(super) fn into_hours(self) -> HashMap<i64, CountedHour> {
        let mut hours = HashMap::<i64, CountedHour>::new();
        for ((bucket, [tool, caller, _]), (counts, latencies)) in &self.groups {
            let name = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
            let hour = hours.entry(*bucket).or_default();
            hour.add(&name(tool), &name(caller), *counts, latencies);
        }
        hours
    }
}
