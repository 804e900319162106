//! Counts calls by the time of their start.

use std::ops::Range;

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqliteConnection, SqlitePool};

use super::super::count_by_time::{CallSource, IdRange, count_by_time};
use super::super::counted_hour::Counts;
use super::super::tally::{GroupNames, Tally};
use super::super::{BucketQuery, BucketRow, TokenRow, TokenSums, group_columns};
use super::read::Result;

/// Only refused calls share a row. Of the others, the column is not read: it is behind the
/// arguments and the result, which may be long. One array for each group has all durations, because
/// every row costs a change of threads.
const COUNTS: &str = "sum(case when state = 'refused' then count else 1 end), sum(state = 'succeeded'), \
    sum(state in ('failed', 'timed_out', 'cancelled', 'unknown')), sum(case when state = 'refused' then count else 0 end), \
    sum(cache in ('hit', 'joined') and state != 'refused'), \
    json_group_array(duration_us) filter (where state != 'refused' and duration_us is not null)";
const COUNTED_HOURS: &str = "select hour, counts from usage_hour where hour >= ? and hour < ? and counts is not null \
    order by hour limit ?";

pub(super) async fn usage_buckets(
    pool: &SqlitePool,
    query: &BucketQuery,
) -> Result<Vec<BucketRow>> {
    // All reads see the ledger at one moment.
    let mut transaction = pool.begin().await?;
    let mut calls = Calls {
        connection: &mut transaction,
        query,
    };
    count_by_time(&mut calls, query).await
}

/// Sums tokens of the calls of these tools. One index has the calls of each caller and tool.
pub(super) async fn token_sums(
    pool: &SqlitePool,
    query: &BucketQuery,
    tools: &[String],
) -> Result<Vec<TokenRow>> {
    let [tool, caller, run] = group_columns(query.by).map(|name| match name {
        Some(name) => format!("i.{name}"),
        None => "null".into(),
    });
    let mut sql = QueryBuilder::<Sqlite>::new("select i.started_at / ");
    sql.push_bind(query.width_ms).push(format!(
        " as bucket, {tool}, {caller}, {run}, sum(i.meta ->> '$.model.requests'), sum(i.meta ->> '$.model.input_tokens'), \
         sum(i.meta ->> '$.model.output_tokens') from usage_total as made cross join invocation as i \
         where i.caller = made.caller and i.tool = made.tool and i.state in ('succeeded', 'failed', 'timed_out', 'cancelled', \
         'unknown') and i.meta ->> '$.model' is not null and made.tool in (select value from json_each("
    ));
    sql.push_bind(serde_json::json!(tools).to_string());
    sql.push(")) and i.started_at >= ");
    sql.push_bind(query.since.as_millisecond());
    sql.push(" and i.started_at < ");
    sql.push_bind(query.until.as_millisecond());
    if let Some(caller) = &query.caller {
        sql.push(" and made.caller = ").push_bind(caller.clone());
    }
    sql.push(" group by 1, 2, 3, 4 order by 1, 2, 3, 4 limit ")
        .push_bind(query.limit);
    let rows = sql.build().fetch_all(pool).await?;
    let name = |row: &SqliteRow, at: usize| row.try_get::<Option<String>, _>(at);
    let sum = |row: &SqliteRow, at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let token_row = |row: &SqliteRow| {
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
    pub(super) connection: &'a mut SqliteConnection,
    pub(super) query: &'a BucketQuery,
}

impl Calls<'_> {
    /// Counts the calls that `found` finds.
    async fn add(
        &mut self,
        times: &Range<i64>,
        tally: &mut Tally<'_>,
        found: impl FnOnce(&mut QueryBuilder<Sqlite>),
    ) -> Result<()> {
        let groups = group_columns(self.query.by)
            .map(|name| name.unwrap_or("null"))
            .join(", ");
        let mut query = QueryBuilder::<Sqlite>::new("select started_at / ");
        query.push_bind(self.query.width_ms).push(format!(
            " as bucket, {groups}, {COUNTS} from invocation where "
        ));
        found(&mut query);
        query.push(" and started_at >= ").push_bind(times.start);
        query.push(" and started_at < ").push_bind(times.end);
        if let Some(caller) = &self.query.caller {
            query.push(" and caller = ").push_bind(caller.clone());
        }
        query
            .push(" group by 1, 2, 3, 4 order by 1, 2, 3, 4 limit ")
            .push_bind(self.query.limit);
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
        let (first, end) = (first.as_bytes().to_vec(), end.as_bytes().to_vec());
        let smallest = first.clone();
        self.add(&times, tally, |query| {
            query.push("id >= ").push_bind(smallest);
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
        sqlx::query_as(COUNTED_HOURS)
            .bind(hours.start)
            .bind(hours.end)
            .bind(at_most)
            .fetch_all(&mut *self.connection)
            .await
    }
}

fn add_row(row: &SqliteRow, tally: &mut Tally<'_>) -> Result<()> {
    let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let durations: Vec<i64> =
        serde_json::from_str(row.try_get(9)?).map_err(|error| sqlx::Error::Decode(error.into()))?;
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
