//! Counts of calls by the time of their start and by names, as they are put together from rows and
//! from counted hours.

use std::collections::HashMap;
use std::sync::Arc;

use super::counted_hour::{CountedHour, Counts, HOUR_MS, HourGroup};
use super::latency::Latencies;
use super::{BucketQuery, BucketRow, UsageBy, UsageRow};

/// The names of a group. `None`: the query does not group by this name.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct GroupNames<'a> {
    pub(super) tool: Option<&'a str>,
    pub(super) caller: Option<&'a str>,
    pub(super) run: Option<&'a str>,
}

/// A bucket, and the numbers of its names: tool, caller and run.
type Group = (i64, [u32; 3]);

/// The counts of all groups of a query.
pub(super) struct Tally<'a> {
    query: &'a BucketQuery,
    /// The name of each number. 0 is no name.
    names: Vec<Option<Arc<str>>>,
    numbers: HashMap<Arc<str>, u32>,
    groups: HashMap<Group, (Counts, Latencies)>,
    /// The newest bucket with calls.
    newest: i64,
}

impl<'a> Tally<'a> {
    pub(super) fn new(query: &'a BucketQuery) -> Self {
        Self {
            query,
            names: vec![None],
            numbers: HashMap::new(),
            groups: HashMap::new(),
            newest: i64::MIN,
        }
    }

    fn bucket_of(&self, start_ms: i64) -> i64 {
        start_ms.div_euclid(self.query.width_ms)
    }

    fn number_of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let name: Arc<str> = name.into();
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(Some(name.clone()));
        self.numbers.insert(name, number);
        number
    }

    /// Whether the answer is complete although calls from this time on are missing: it is long enough,
    /// and they belong to a later bucket.
    pub(super) fn is_full(&self, start_ms: i64) -> bool {
        self.groups.len() >= self.query.limit as usize && self.bucket_of(start_ms) > self.newest
    }

    /// Adds calls of one bucket. Returns the sketch of their group, for their durations.
    pub(super) fn add(
        &mut self,
        bucket: i64,
        names: GroupNames<'_>,
        counts: Counts,
    ) -> &mut Latencies {
        let mut number = |name: Option<&str>| name.map_or(0, |name| self.number_of(name));
        let numbers = [number(names.tool), number(names.caller), number(names.run)];
        self.add_group((bucket, numbers), counts)
    }

    fn add_group(&mut self, group: Group, counts: Counts) -> &mut Latencies {
        self.newest = self.newest.max(group.0);
        let (sum, latencies) = self.groups.entry(group).or_default();
        sum.calls += counts.calls;
        sum.succeeded += counts.succeeded;
        sum.failed += counts.failed;
        sum.refused += counts.refused;
        sum.cache_hits += counts.cache_hits;
        latencies
    }

    /// Adds a counted hour.
    pub(super) fn add_hour(&mut self, hour: i64, counted: &CountedHour) {
        let bucket = self.bucket_of(hour * HOUR_MS);
        let (has_tools, has_callers) = (
            self.query.by != Some(UsageBy::Caller),
            self.query.by != Some(UsageBy::Tool),
        );
        let mut numbers = |is_grouped: bool, names: &[String]| -> Vec<u32> {
            let number = |name: &String| match is_grouped {
                true => self.number_of(name),
                false => 0,
            };
            names.iter().map(number).collect()
        };
        let (tools, callers) = (
            numbers(has_tools, &counted.tools),
            numbers(has_callers, &counted.callers),
        );
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
            let group = (bucket, [tools[tool], callers[caller], 0]);
            let sum = self.add_group(group, counts);
            latencies.for_each(|(bucket, calls)| sum.add_calls(bucket, calls));
        }
    }

    /// The rows of the answer, in their order.
    pub(super) fn into_rows(self) -> Vec<BucketRow> {
        let ranks = self.ranks();
        let rank = |number: u32| ranks.get(number as usize).copied().unwrap_or_default();
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_unstable_by_key(|((bucket, numbers), _)| (*bucket, numbers.map(rank)));
        let name = |number: u32| {
            let name = self.names.get(number as usize).cloned().flatten();
            name.map(|name| name.to_string())
        };
        let row = |((bucket, [tool, caller, run]), (counts, latencies)): (
            &Group,
            &(Counts, Latencies),
        )| BucketRow {
            start_ms: bucket * self.query.width_ms,
            run_id: name(*run),
            counts: UsageRow {
                tool: name(*tool).unwrap_or_default(),
                caller: name(*caller).unwrap_or_default(),
                calls: counts.calls,
                succeeded: counts.succeeded,
                failed: counts.failed,
                refused: counts.refused,
                cache_hits: counts.cache_hits,
                p50_ms: latencies.quantile_ms(50),
                p99_ms: latencies.quantile_ms(99),
            },
        };
        let limit = self.query.limit as usize;
        groups.into_iter().take(limit).map(row).collect()
    }

    /// The place of each number in the order of the names.
    fn ranks(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_unstable_by_key(|number| self.names[*number].as_deref());
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number] = rank;
        }
        ranks
    }

    /// The counted hours of a tally over hours, tools and callers. Hours without calls are absent.
    pub(super) fn into_hours(self) -> HashMap<i64, CountedHour> {
        let mut hours = HashMap::<i64, CountedHour>::new();
        let name = |number: u32| {
            let name = self.names.get(number as usize).and_then(Option::as_deref);
            name.unwrap_or_default()
        };
        for ((bucket, [tool, caller, _]), (counts, latencies)) in &self.groups {
            let hour = hours.entry(*bucket).or_default();
            hour.add(name(*tool), name(*caller), *counts, latencies);
        }
        hours
    }
}
