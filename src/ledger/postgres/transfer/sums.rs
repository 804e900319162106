//! Counts what a database has.

use sqlx::{PgConnection, Row as _};

use crate::ledger::transfer::TableSums;

/// The numbers that [`TableSums`] takes. `$1` is the time of the move: what has expired then is not moved.
const SELECTS: [&str; 10] = [
    "select count(*), coalesce(sum(count), 0)::bigint, coalesce(sum(duration_us), 0)::bigint, \
     coalesce(sum(octet_length(arguments) + coalesce(octet_length(result), 0) + coalesce(octet_length(meta), 0)), 0)::bigint, \
     count(*) filter (where reserved or charged is not null) from invocation where $1::bigint is not null",
    "select count(*) from invocation where key_until > $1",
    "select count(*), coalesce(sum(duration_us), 0)::bigint from attempt where $1::bigint is not null",
    "select count(*), coalesce(sum(used), 0)::bigint, coalesce(sum(lost_units), 0)::bigint from quota where $1::bigint is not null",
    "select count(*), coalesce(sum(octet_length(result)), 0)::bigint from stored_result where expires_at > $1",
    "select count(*), count(*) filter (where enabled) from tool_switch where $1::bigint is not null",
    "select count(*), coalesce(sum(octet_length(definition)), 0)::bigint from registered_tool where $1::bigint is not null",
    "select count(distinct (caller, tool)), coalesce(sum(calls), 0)::bigint, coalesce(sum(succeeded), 0)::bigint, \
     coalesce(sum(failed), 0)::bigint, coalesce(sum(refused), 0)::bigint, coalesce(sum(cache_hits), 0)::bigint from usage_total \
     where $1::bigint is not null",
    "select count(distinct (caller, tool, bucket)), coalesce(sum(calls), 0)::bigint from usage_latency where $1::bigint is not null",
    "select count(*), count(*) filter (where state = 'waiting' and not done), count(*) filter (where done) from approval \
     where $1::bigint is not null",
];

pub(super) async fn count(
    connection: &mut PgConnection,
    now: i64,
) -> Result<Vec<TableSums>, sqlx::Error> {
    let mut numbers = Vec::with_capacity(SELECTS.len());
    for sql in SELECTS {
        let row = sqlx::query(sql)
            .bind(now)
            .fetch_one(&mut *connection)
            .await?;
        let sums = (0..row.len()).map(|column| row.try_get::<i64, _>(column));
        numbers.push(sums.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(TableSums::from_numbers(numbers))
}
