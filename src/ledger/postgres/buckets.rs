//! Counts calls by the time of their start. Partitions outside of the time range are not read.

use sqlx::postgres::PgRow;
use sqlx::{PgPool, Postgres, QueryBuilder, Row as _};

use super::super::latency::Latencies;
use super::super::{BucketQuery, BucketRow, UsageBy, UsageRow};
use super::commit::{storable, to_uuid};
use super::read::Result;

const COUNTS: &str = "sum(count)::bigint, count(*) filter (where state = 'succeeded'), \
    count(*) filter (where state in ('failed', 'timed_out', 'cancelled', 'unknown')), \
    coalesce(sum(count) filter (where state = 'refused'), 0)::bigint, \
    count(*) filter (where cache in ('hit', 'joined') and state <> 'refused'), \
    array_agg(duration_us) filter (where state <> 'refused' and duration_us is not null)";

pub(super) async fn usage_buckets(pool: &PgPool, filter: &BucketQuery) -> Result<Vec<BucketRow>> {
    let groups = match filter.by {
        None => "tool, caller, null::text",
        Some(UsageBy::Tool) => "tool, null::text, null::text",
        Some(UsageBy::Caller) => "null::text, caller, null::text",
        Some(UsageBy::Run) => "null::text, caller, run_id",
    };
    let (first, end) = filter.id_range();
    let mut query = QueryBuilder::<Postgres>::new("select started_at / ");
    query
        .push_bind(filter.width_ms)
        .push(format!(" as bucket, {groups}, {COUNTS}"))
        .push(" from invocation where id >= ")
        .push_bind(to_uuid(&first))
        .push(" and id < ")
        .push_bind(to_uuid(&end));
    query
        .push(" and started_at >= ")
        .push_bind(filter.since.as_millisecond())
        .push(" and started_at < ")
        .push_bind(filter.until.as_millisecond());
    if let Some(caller) = &filter.caller {
        query
            .push(" and caller = ")
            .push_bind(storable(caller).into_owned());
    }
    query
        .push(" group by 1, 2, 3, 4 order by 1 limit ")
        .push_bind(i64::from(filter.limit));
    let rows = query.build().fetch_all(pool).await?;
    let rows = rows.iter().map(|row| decode(row, filter.width_ms));
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    // The collation of the database may differ from the order of bytes.
    rows.sort_by_cached_key(|row| {
        let BucketRow {
            start_ms,
            run_id,
            counts,
        } = row;
        (
            *start_ms,
            counts.tool.clone(),
            counts.caller.clone(),
            run_id.clone(),
        )
    });
    Ok(rows)
}

fn decode(row: &PgRow, width_ms: i64) -> Result<BucketRow> {
    let count = |at: usize| row.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let name = |at: usize| row.try_get::<Option<String>, _>(at);
    let durations = row.try_get::<Option<Vec<i64>>, _>(9)?.unwrap_or_default();
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
