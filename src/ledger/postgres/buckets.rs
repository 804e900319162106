//! Counts calls by the time of their start. Partitions outside of the time range are not read.

use std::ops::Range;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgConnection, PgPool, Postgres, QueryBuilder, Row as _};

use super::super::count_by_time::{CallSource, IdRange, count_by_time};
use super::super::counted_hour::Counts;
use super::super::tally::{GroupNames, Tally};
use super::super::{BucketQuery, BucketRow, TokenRow, TokenSums, group_columns};
use super::commit::{storable, to_uuid};
use super::read::Result;

const COUNTS: &str = "sum(count)::bigint, count(*) filter (where state = 'succeeded'), \
    count(*) filter (where state in ('failed', 'timed_out', 'cancelled', 'unknown')), \
    coalesce(sum(count) filter (where state = 'refused'), 0)::bigint, \
    count(*) filter (where cache in ('hit', 'joined') and state <> 'refused'), \
    array_agg(duration_us) filter (where state <> 'refused' and duration_us is not null)";
/// The notes are only complete while the clock of the server goes on. After it was set back, hours
/// that were counted at a later time are not used, and are counted again.
macro_rules! is_counted {
    () => {
        "counted_at < clock_timestamp() + interval '5 minutes' \
         and not exists (select 1 from usage_late l where l.hour = h.hour)"
    };
}

/// Begins a transaction of which all reads see the ledger at one moment.
const SAME_MOMENT: &str = "set transaction isolation level repeatable read read only";
/// Counted hours, with their counts.
const READ_COUNTED: &str = concat!(
    "select hour, counts from usage_hour h where hour >= $1 and hour < $2 and ",
    is_counted!(),
    " order by hour limit $3"
);
/// Counted hours.
pub(super) const COUNTED: &str = concat!(
    "select hour from usage_hour h where hour >= $1 and hour < $2 and ",
    is_counted!()
);

pub(super) async fn usage_buckets(pool: &PgPool, query: &BucketQuery) -> Result<Vec<BucketRow>> {
    let mut transaction = pool.begin().await?;
    transaction.execute(SAME_MOMENT).await?;
    let mut calls = Calls {
        connection: &mut transaction,
        query,
    };
    count_by_time(&mut calls, query).await
}

/// Sums tokens of the calls of these tools.
pub(super) async fn token_sums(
    pool: &PgPool,
    query: &BucketQuery,
    tools: &[String],
) -> Result<Vec<TokenRow>> {
    let groups = group_columns(query.by).map(|name| name.unwrap_or("null"));
    let groups = groups.map(|name| format!("{name}::text collate \"C\""));
    let sum = |key: &str| {
        format!("coalesce(sum((meta::json -> 'model' ->> '{key}')::bigint), 0)::bigint")
    };
    let sums = ["requests", "input_tokens", "output_tokens"].map(sum);
    let mut sql = QueryBuilder::<Postgres>::new("select started_at / ");
    sql.push_bind(query.width_ms).push(format!(
        " as bucket, {}, {} from invocation where state not in ('reserved', 'refused') and meta::json -> 'model' is not null \
         and tool = any(",
        groups.join(", "),
        sums.join(", ")
    ));
    let tools: Vec<String> = tools
        .iter()
        .map(|tool| storable(tool).into_owned())
        .collect();
    sql.push_bind(tools).push(") and started_at >= ");
    sql.push_bind(query.since.as_millisecond());
    sql.push(" and started_at < ");
    sql.push_bind(query.until.as_millisecond());
    if let Some(caller) = &query.caller {
        sql.push(" and caller = ")
            .push_bind(storable(caller).into_owned());
    }
    sql.push(" group by 1, 2, 3, 4 order by 1, 2 nulls first, 3 nulls first, 4 nulls first limit ")
        .push_bind(i64::from(query.limit));
    let rows = sql.build().persistent(false).fetch_all(pool).await?;
    let name = |row: &PgRow, at: usize| row.try_get::<Option<String>, _>(at);
    let sum = |row: &PgRow, at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let token_row = |row: &PgRow| {
        Ok(TokenRow {
            start_ms: row.try_get::<i64, _>(0)? * query.width_ms,
            tool: name(row, 1)?.unwrap_or_default(),
            caller: name(row, 2)?.unwrap_or_default(),
            run_id: name(row, 3)?,
            tokens: TokenSums {
                requests: sum(row, 4)?,
                input_tokens: sum(row, 5)?,
                output_tokens: sum(row, 6)?,
            },
        })
    };
    rows.iter().map(token_row).collect()
}

/// The calls of a query.
pub(super) struct Calls<'a> {
    pub(super) connection: &'a mut PgConnection,
    pub(super) query: &'a BucketQuery,
}

impl Calls<'_> {
    /// Counts the calls that `found` finds.
    async fn add(
        &mut self,
        times: &Range<i64>,
        tally: &mut Tally<'_>,
        found: impl FnOnce(&mut QueryBuilder<Postgres>),
    ) -> Result<()> {
        // Names are in the order of their bytes, which the collation of the database may not have.
        let groups = group_columns(self.query.by).map(|name| name.unwrap_or("null"));
        let groups = groups.map(|name| format!("{name}::text collate \"C\""));
        let mut query = QueryBuilder::<Postgres>::new("select started_at / ");
        query.push_bind(self.query.width_ms).push(format!(
            " as bucket, {}, {COUNTS} from invocation where ",
            groups.join(", ")
        ));
        found(&mut query);
        query.push(" and started_at >= ").push_bind(times.start);
        query.push(" and started_at < ").push_bind(times.end);
        if let Some(caller) = &self.query.caller {
            query
                .push(" and caller = ")
                .push_bind(storable(caller).into_owned());
        }
        query
            .push(" group by 1, 2, 3, 4 order by 1, 2 nulls first, 3 nulls first, 4 nulls first limit ")
            .push_bind(i64::from(self.query.limit));
        let rows = query.build().fetch_all(&mut *self.connection).await?;
        rows.iter().try_for_each(|row| add_row(row, tally))
    }
}

#[async_trait]
impl CallSource for Calls<'_> {
    type Error = sqlx::Error;

    async fn scan(&mut self, times: Range<i64>, tally: &mut Tally<'_>) -> Result<()> {
        let IdRange {
            first,
            end,
            expires_from,
        } = IdRange::of(&times);
        let (first, end) = (to_uuid(&first), to_uuid(&end));
        self.add(&times, tally, |query| {
            query.push("id >= ").push_bind(first);
            query.push(" and id < ").push_bind(end);
        })
        .await?;
        self.add(&times, tally, |query| {
            query
                .push("id in (select id from approval where expires_at >= ")
                .push_bind(expires_from)
                .push(" and id < ")
                .push_bind(first)
                .push(")");
        })
        .await
    }

    async fn counted_hours(
        &mut self,
        hours: Range<i64>,
        at_most: u32,
    ) -> Result<Vec<(i64, String)>> {
        sqlx::query_as(READ_COUNTED)
            .bind(hours.start)
            .bind(hours.end)
            .bind(i64::from(at_most))
            .fetch_all(&mut *self.connection)
            .await
    }
}

fn add_row(row: &PgRow, tally: &mut Tally<'_>) -> Result<()> {
    let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let durations = row.try_get::<Option<Vec<i64>>, _>(9)?.unwrap_or_default();
    let names = GroupNames {
        tool: row.try_get(1)?,
        caller: row.try_get(2)?,
        run: row.try_get(3)?,
    };
    let counts = Counts {
        calls: count(4)?,
        succeeded: count(5)?,
        failed: count(6)?,
        refused: count(7)?,
        cache_hits: count(8)?,
    };
    let latencies = tally.add(row.try_get(0)?, names, counts);
    durations.into_iter().for_each(|us| latencies.add(us));
    Ok(())
}
