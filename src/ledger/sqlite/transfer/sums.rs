//! Counts what a file has.

use sqlx::{Row as _, SqliteConnection};

use crate::ledger::transfer::TableSums;

/// The numbers that [`TableSums`] takes. `?1` is the time of the move: what has expired then is not moved.
const SELECTS: [&str; 10] = [
    "select count(*), coalesce(sum(count), 0), coalesce(sum(duration_us), 0), \
     coalesce(sum(octet_length(arguments) + coalesce(octet_length(result), 0) + coalesce(octet_length(meta), 0)), 0), \
     coalesce(sum(charged is not null or iif(reserved is null, idempotency_key is not null, reserved != 0)), 0) \
     from invocation where ?1 is not null",
    "select count(*) from invocation where key_until > ?1",
    "select count(*), coalesce(sum(duration_us), 0) from attempt where ?1 is not null",
    "select count(*), coalesce(sum(used), 0), coalesce(sum(lost_units), 0) from quota where ?1 is not null",
    "select count(*), coalesce(sum(octet_length(result)), 0) from stored_result where expires_at > ?1",
    "select count(*), coalesce(sum(enabled), 0) from tool_switch where tool != '' and ?1 is not null",
    "select count(*), coalesce(sum(octet_length(definition)), 0) from registered_tool where ?1 is not null",
    "select count(*), coalesce(sum(calls), 0), coalesce(sum(succeeded), 0), coalesce(sum(failed), 0), coalesce(sum(refused), 0), \
     coalesce(sum(cache_hits), 0) from usage_total where ?1 is not null",
    "select count(*), coalesce(sum(calls), 0) from usage_latency where ?1 is not null",
    "select count(*), coalesce(sum(state = 'waiting' and not done), 0), coalesce(sum(done), 0) from approval where ?1 is not null",
];
pub(super) async fn count(
    connection: &mut SqliteConnection,
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
