//! Counts calls by the time of their start.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::counted_hour::{CountedHour, HOUR_MS, HourGroup};
use super::counts::Counts;
use super::latency::Latencies;
use super::sql::{Dialect, Fetch, Sql, SqlRow, Store, Unreadable};
use super::{BucketQuery, BucketRow, Error, TokenRow, TokenSums, UsageBy, UsageRow};
use crate::call::InvocationId;

/// By how much the time of an id and the start of its call differ at most, unless the call waited for a
/// person. The id is made a moment after the start.
pub(super) const ID_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// A call that waited for a person starts long after its id was made: before its approval expires, or when
/// a service is back after at most this time.
const LATE_START: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Only refused calls share a row. Of the others, the column is not read: it is behind the
/// arguments and the result, which may be long. One array for each group has all durations, because
/// every row costs SQLite a change of threads.
const COUNTS: &str = "cast(sum(case when state = 'refused' then count else 1 end) as bigint), \
    count(*) filter (where state = 'succeeded'), \
    count(*) filter (where state in ('failed', 'timed_out', 'cancelled', 'unknown')), \
    cast(sum(case when state = 'refused' then count else 0 end) as bigint), \
    count(*) filter (where cache in ('hit', 'joined') and state <> 'refused')";
const DURATIONS: &str = "filter (where state <> 'refused' and duration_us is not null)";
const ORDER: &str =
    " group by 1, 2, 3, 4 order by 1, 2 nulls first, 3 nulls first, 4 nulls first limit ";

/// The columns for tool, caller and run by which calls are grouped; null for one that is not. Names are in the
/// order of their bytes, which the collation of a database may not have.
fn group_columns(by: Option<UsageBy>, dialect: Dialect, table: &str) -> String {
    let [tool, caller, run] = match by {
        None => [true, true, false],
        Some(UsageBy::Tool) => [true, false, false],
        Some(UsageBy::Caller) => [false, true, false],
        Some(UsageBy::Run) => [false, true, true],
    };
    let column = |(is_grouped, name): (bool, &str)| {
        let name = match is_grouped {
            true => format!("{table}{name}"),
            false => "null".into(),
        };
        dialect.pick(name.clone(), format!("{name}::text collate \"C\""))
    };
    let columns = [(tool, "tool"), (caller, "caller"), (run, "run_id")].map(column);
    columns.join(", ")
}

/// Sums tokens of the calls of these tools. In SQLite, one index has the calls of each caller and tool.
pub(super) async fn token_sums(
    store: &dyn Store,
    query: &BucketQuery,
    tools: &[String],
) -> Result<Vec<TokenRow>, Error> {
    let dialect = store.dialect();
    let groups = group_columns(query.by, dialect, "i.");
    let calls = dialect.pick(
        "usage_total as made cross join invocation as i on i.caller = made.caller and i.tool = made.tool",
        "invocation as i",
    );
    let (meta, of) = dialect.pick(("i.meta", "made"), ("i.meta::json", "i"));
    let sums = ["requests", "input_tokens", "output_tokens"].map(|key| {
        format!("cast(coalesce(sum(cast({meta} -> 'model' ->> '{key}' as bigint)), 0) as bigint)")
    });
    let mut sql = Sql::new("select i.started_at / ");
    sql.bind(query.width_ms).push(&format!(
        " as bucket, {groups}, {} from {calls} where i.state in ('succeeded', 'failed', 'timed_out', 'cancelled', 'unknown') \
         and {meta} -> 'model' is not null and {of}.tool in ",
        sums.join(", ")
    ));
    sql.bind_list(tools.iter().map(String::as_str))
        .and("i.started_at >=", Some(query.since))
        .and("i.started_at <", Some(query.until))
        .and(&format!("{of}.caller ="), query.caller.as_deref())
        .push(ORDER)
        .bind(query.limit);
    sql.is_planned_anew = true;
    let token_row = |row: &SqlRow| {
        Ok(TokenRow {
            start_ms: row.get::<i64>(0)? * query.width_ms,
            tool: row.get::<Option<_>>(1)?.unwrap_or_default(),
            caller: row.get::<Option<_>>(2)?.unwrap_or_default(),
            run_id: row.get(3)?,
            tokens: TokenSums {
                requests: row.get(4)?,
                input_tokens: row.get(5)?,
                output_tokens: row.get(6)?,
            },
        })
    };
    store.fetch(sql).await?.iter().map(token_row).collect()
}

/// How the calls of a time range are found: by their ids, and those that waited for a person by their
/// approvals.
struct IdRange {
    /// The smallest id.
    first: InvocationId,
    /// The first id that is too large.
    end: InvocationId,
    /// Approvals of calls with smaller ids that expire at this time or later, in Unix milliseconds, may
    /// have started in the range.
    expires_from: i64,
}

impl IdRange {
    /// For calls that started in this range, in Unix milliseconds.
    fn of(times: &Range<i64>) -> Self {
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let end = at(times.end).checked_add(ID_DELAY);
        let first = at(times.start).checked_sub(ID_DELAY);
        Self {
            first: InvocationId::lower_bound(first.unwrap_or(Timestamp::MIN)),
            end: InvocationId::lower_bound(end.unwrap_or(Timestamp::MAX)),
            expires_from: late_expiry(times.start),
        }
    }
}

/// Calls that waited for a person and started at this time or later have approvals that expire at this
/// time or later. Both are Unix milliseconds.
pub(super) fn late_expiry(started: i64) -> i64 {
    started - LATE_START.as_millis() as i64
}

/// The calls of a query, in a consistent view of a ledger.
pub(super) struct Calls<'a> {
    pub(super) connection: &'a mut dyn Fetch,
    pub(super) query: &'a BucketQuery,
}

impl Calls<'_> {
    /// Counts the calls that started in a time range, in Unix milliseconds.
    pub(super) async fn scan(
        &mut self,
        times: Range<i64>,
        tally: &mut Tally<'_>,
    ) -> sqlx::Result<()> {
        let IdRange {
            first,
            end,
            expires_from,
        } = IdRange::of(&times);
        let by_id = |sql: &mut Sql| {
            sql.push("id >= ").bind(first).push(" and id < ").bind(end);
        };
        self.add(&times, tally, by_id).await?;
        let by_approval = |sql: &mut Sql| {
            sql.push("id in (select id from approval where expires_at >= ");
            sql.bind(expires_from).push(" and id < ");
            sql.bind(first).push(")");
        };
        self.add(&times, tally, by_approval).await
    }

    /// Counts the calls that `find` finds.
    async fn add(
        &mut self,
        times: &Range<i64>,
        tally: &mut Tally<'_>,
        find: impl FnOnce(&mut Sql) + Send,
    ) -> sqlx::Result<()> {
        let dialect = self.connection.dialect();
        let groups = group_columns(self.query.by, dialect, "");
        let array = dialect.pick("json_group_array", "json_agg");
        let mut sql = Sql::new("select started_at / ");
        sql.bind(self.query.width_ms).push(&format!(
            " as bucket, {groups}, {COUNTS}, cast({array}(duration_us) {DURATIONS} as text) from invocation where "
        ));
        find(&mut sql);
        sql.and("started_at >=", Some(times.start))
            .and("started_at <", Some(times.end))
            .and("caller =", self.query.caller.as_deref())
            .push(ORDER)
            .bind(self.query.limit);
        let rows = self.connection.fetch(sql).await?;
        rows.iter().try_for_each(|row| Ok(add_row(row, tally)?))
    }

    /// The first of the counted hours in a range, in their order.
    pub(super) async fn counted_hours(
        &mut self,
        hours: Range<i64>,
        at_most: u32,
    ) -> sqlx::Result<Vec<(i64, Arc<str>)>> {
        let mut sql = select_counted("hour, counts", hours, self.connection.dialect());
        sql.push(" order by hour limit ").bind(at_most);
        let rows = self.connection.fetch(sql).await?;
        let hour = |row: &SqlRow| Ok((row.get(0)?, row.get(1)?));
        rows.iter().map(hour).collect()
    }
}

/// Selects columns of counted hours.
pub(super) fn select_counted(columns: &str, hours: Range<i64>, dialect: Dialect) -> Sql {
    let mut sql = Sql::new(format!("select {columns} from usage_hour as h where "));
    // The notes of PostgreSQL are only complete while the clock of the server goes on. After it was set back,
    // hours that were counted at a later time are not used, and are counted again.
    sql.push(dialect.pick(
        "counts is not null",
        "counted_at < clock_timestamp() + interval '5 minutes' and not exists (select 1 from usage_late l where l.hour = h.hour)",
    ));
    sql.and("hour >=", Some(hours.start))
        .and("hour <", Some(hours.end));
    sql
}

fn add_row(row: &SqlRow, tally: &mut Tally<'_>) -> Result<(), Unreadable> {
    let group = (row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?]);
    let counts = Counts {
        calls: row.get(4)?,
        succeeded: row.get(5)?,
        failed: row.get(6)?,
        refused: row.get(7)?,
        cache_hits: row.get(8)?,
    };
    let latencies = tally.add(group, counts);
    if let Some(durations) = row.get::<Option<Arc<str>>>(9)? {
        let durations: Vec<i64> = serde_json::from_str(&durations).map_err(|_| Unreadable(9))?;
        durations.into_iter().for_each(|us| latencies.add(us));
    }
    Ok(())
}

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
