//! Counts calls by the time of their start.
//!
//! The rows of the time range are read once, in the order of their ids. Nothing is maintained for
//! that with each call.

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqlitePool};

use super::super::latency::Latencies;
use super::super::{BucketQuery, BucketRow, UsageBy, UsageRow};
use super::read::Result;

/// Only refused calls share a row. Of the others, the column is not read: it is behind the
/// arguments and the result, which may be long. One array for each group has all durations, because
/// every row costs a change of threads.
const COUNTS: &str = "sum(case when state = 'refused' then count else 1 end), sum(state = 'succeeded'), \
    sum(state in ('failed', 'timed_out', 'cancelled', 'unknown')), sum(case when state = 'refused' then count else 0 end), \
    sum(cache in ('hit', 'joined') and state != 'refused'), \
    json_group_array(duration_us) filter (where state != 'refused' and duration_us is not null)";

pub(super) async fn usage_buckets(
    pool: &SqlitePool,
    filter: &BucketQuery,
) -> Result<Vec<BucketRow>> {
    let groups = match filter.by {
        None => "tool, caller, null",
        Some(UsageBy::Tool) => "tool, null, null",
        Some(UsageBy::Caller) => "null, caller, null",
        Some(UsageBy::Run) => "null, caller, run_id",
    };
    let (first, end) = filter.id_range();
    let mut query = QueryBuilder::<Sqlite>::new("select started_at / ");
    query
        .push_bind(filter.width_ms)
        .push(format!(" as bucket, {groups}, {COUNTS}"))
        .push(" from invocation where id >= ")
        .push_bind(first.as_bytes().to_vec())
        .push(" and id < ")
        .push_bind(end.as_bytes().to_vec());
    query
        .push(" and started_at >= ")
        .push_bind(filter.since.as_millisecond())
        .push(" and started_at < ")
        .push_bind(filter.until.as_millisecond());
    if let Some(caller) = &filter.caller {
        query.push(" and caller = ").push_bind(caller);
    }
    query
        .push(" group by 1, 2, 3, 4 order by 1, 2, 3, 4 limit ")
        .push_bind(filter.limit);
    let rows = query.build().fetch_all(pool).await?;
    rows.iter()
        .map(|row| decode(row, filter.width_ms))
        .collect()
}

fn decode(row: &SqliteRow, width_ms: i64) -> Result<BucketRow> {
    let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let name = |at: usize| row.try_get::<Option<String>, _>(at);
    let durations: Vec<i64> =
        serde_json::from_str(row.try_get(9)?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let latencies: Latencies = durations.into_iter().collect();
    Ok(BucketRow {
        start_ms: row.try_get::<i64, _>(0)? * width_ms,
        run_id: name(3)?,
        counts: UsageRow {
            tool: name(1)?.unwrap_or_default(),
            caller: name(2)?.unwrap_or_default(),
            calls: count(4)?,
            succeeded: count(5)?,
            failed: count(6)?,
            refused: count(7)?,
            cache_hits: count(8)?,
            p50_ms: latencies.quantile_ms(50),
            p99_ms: latencies.quantile_ms(99),
        },
    })
}
