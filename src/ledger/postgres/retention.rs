//! Deletes rows: by age, in whole partitions where that is possible, and those that no guarantee
//! covers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sqlx::{AssertSqlSafe, PgPool, Result, Row as _};
use uuid::Uuid;

use super::commit::to_uuid;
use super::fault;
use crate::call::InvocationId;

/// Rows outside of old partitions are deleted one by one only if the retention is about this short,
/// or if their day has no partition. Otherwise the partition is dropped within a day.
const SHORT_RETENTION: SignedDuration = SignedDuration::from_hours(48);

/// Calls before `$1` that have ended and hold no key at `$3`.
macro_rules! prunable_calls {
    ($table:literal) => {
        concat!(
            "(select id from ",
            $table,
            " where id < $1 and state <> 'reserved' \
             and (key_until is null or key_until <= $3) order by id limit $2)"
        )
    };
}
macro_rules! delete_calls {
    ($table:literal) => {
        concat!(
            "with gone as (delete from ", $table, " where id in ", prunable_calls!($table), " returning charged, seq), \
             carried as (update quota set carried = carried + back.calls from (select q.id, count(*) as calls from gone \
             cross join unnest(gone.charged) as one (counter) join quota q on q.id = one.counter and gone.seq >= q.from_seq \
             where gone.charged is not null group by q.id) as back where quota.id = back.id) select count(*) from gone"
        )
    };
}
const DELETE_CALLS: &str = delete_calls!("invocation");
const DELETE_OTHER_CALLS: &str = delete_calls!("invocation_other");

/// Deletes approvals whose calls are deleted: counts by time find such a call by its approval.
const DELETE_APPROVALS: &str = "delete from approval where id in (select id from approval where id < $1 and done \
    and not exists (select 1 from invocation where invocation.id = approval.id) limit $2)";
// Conditions on values that change are outside of the list of keys, too: another replica may use such a
// row between. PostgreSQL checks only those outside again, after it has waited for that replica.
const DELETE_REST: [&str; 2] = [
    "delete from attempt where (invocation, attempt) in (select invocation, attempt from attempt where invocation < $1 limit $2)",
    "with gone as (delete from quota where counted_at < $1 \
     and id in (select id from quota where per = 'run' and counted_at < $1 order by id limit $2) returning id), \
     blocks as (delete from unit_block where counter in (select id from gone)) select id from gone",
];
const DELETE_KEYS: &str = "delete from key_holder where held_until <= $1 and (idempotency_key, caller, tool) in \
    (select idempotency_key, caller, tool from key_holder where held_until <= $1 limit $2)";
const DELETE_REPLICAS: &str =
    "delete from replica where ended_at < clock_timestamp() - interval '7 days'";

/// Longest wait for a statement over whole partitions. A server that is gone never answers.
const PARTITION_TIMEOUT: Duration = Duration::from_secs(3600);

/// Adds the partitions of the next days.
pub(super) async fn add_partitions(pool: &PgPool) {
    // The scan of a large default partition may take long. Other statements wait for the lock, so
    // it is given up soon.
    let sql = "select set_config('statement_timeout', '0', true), set_config('lock_timeout', '1s', true); \
        select add_partitions_1((now() at time zone 'utc')::date - 1, 5)";
    // The function itself passes over a day whose table is locked. An error tells that other replicas
    // hold the lock of the function, because they add the partitions.
    if let Err(error) = fault::within(PARTITION_TIMEOUT, sqlx::raw_sql(sql).execute(pool)).await
        && !fault::is_locked(&error)
    {
        let reason = fault::reason(&error);
        tracing::warn!(reason, "the partitions of the next days cannot be added");
    }
}

/// Adds the indexes of a newer version to partitions of an older one, one after the other.
pub(super) async fn add_indexes(pool: &PgPool) {
    let sql = "select set_config('statement_timeout', '0', true), set_config('lock_timeout', '1s', true); \
        select index_partition_1() as is_added";
    loop {
        let rows = fault::within(PARTITION_TIMEOUT, sqlx::raw_sql(sql).fetch_all(pool)).await;
        let is_added =
            rows.and_then(|rows| rows.last().map_or(Ok(false), |row| row.try_get("is_added")));
        match is_added {
            Ok(true) => {}
            Ok(false) => return,
            // The next round tries it again. Lists only take longer until then.
            Err(error) => {
                let reason = fault::reason(&error);
                tracing::debug!(reason, "an index cannot be added to a partition");
                return;
            }
        }
    }
}

/// Drops the oldest partition, if retention allows it and nothing locks it. One message to the server: a
/// client that stops in between holds no lock.
async fn drop_partition(pool: &PgPool, before: i64, now: i64) -> Result<bool> {
    let sql = format!(
        "select set_config('statement_timeout', '0', true), set_config('lock_timeout', '1s', true); \
         select drop_partition_1((to_timestamp({before} / 1000.0) at time zone 'utc')::date, {now}) as is_dropped"
    );
    let dropping = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(pool);
    match fault::within(PARTITION_TIMEOUT, dropping).await {
        Ok(rows) => rows
            .last()
            .map_or(Ok(false), |row| row.try_get("is_dropped")),
        // A vacuum, for example. The next round drops it.
        Err(error) if fault::is_locked(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes rows as the trait says.
pub(super) async fn prune(
    pool: &PgPool,
    before: Timestamp,
    now: Timestamp,
    at_most: u32,
) -> Result<u64> {
    let now_ms = now.as_millisecond();
    let is_dropped = drop_partition(pool, before.as_millisecond(), now_ms).await?;
    let mut connection = pool.acquire().await?;
    let oldest: Uuid = to_uuid(&InvocationId::lower_bound(before));
    let limit = i64::from(at_most);
    let is_short = now.duration_since(before) < SHORT_RETENTION;
    let delete = if is_short {
        DELETE_CALLS
    } else {
        DELETE_OTHER_CALLS
    };
    let calls: i64 = sqlx::query_scalar(delete)
        .bind(oldest)
        .bind(limit)
        .bind(now_ms)
        .fetch_one(&mut *connection)
        .await?;
    let mut deleted = calls.unsigned_abs();
    let attempts = sqlx::query(DELETE_REST[0]).bind(oldest).bind(limit);
    deleted += attempts.execute(&mut *connection).await?.rows_affected();
    let runs = sqlx::query(DELETE_REST[1])
        .bind(before.as_millisecond())
        .bind(limit);
    deleted += runs.execute(&mut *connection).await?.rows_affected();
    let approvals = sqlx::query(DELETE_APPROVALS).bind(oldest).bind(limit);
    deleted += approvals.execute(&mut *connection).await?.rows_affected();
    let keys = sqlx::query(DELETE_KEYS).bind(now_ms).bind(limit);
    keys.execute(&mut *connection).await?;
    sqlx::query(DELETE_REPLICAS)
        .execute(&mut *connection)
        .await?;
    // More partitions may be old.
    Ok(if is_dropped {
        deleted.max(u64::from(at_most))
    } else {
        deleted
    })
}

/// Calls that no guarantee covers, without the newest one.
const DELETE_UNPROTECTED: &str = "with gone as (delete from invocation where id in (select id from invocation \
    where state not in ('reserved', 'unknown') and (state = 'refused' or (not reserved and (effect = 'read' or attempts = 0))) \
    and charged is null and id < (select id from invocation order by id desc limit 1) order by id limit $1) returning id), \
    tries as (delete from attempt where invocation in (select id from gone)) select count(*) from gone";
const DELETE_RESULTS: &str = "delete from stored_result where expires_at <= $1 and key in \
    (select key from stored_result where expires_at <= $1 order by expires_at limit $2)";

/// Deletes rows as the trait says.
pub(super) async fn trim(pool: &PgPool, now: Timestamp, at_most: u32) -> Result<u64> {
    let limit = i64::from(at_most);
    let results = async |until: i64| {
        let delete = sqlx::query(DELETE_RESULTS).bind(until).bind(limit);
        Ok::<_, sqlx::Error>(delete.execute(pool).await?.rows_affected())
    };
    let expired = results(now.as_millisecond()).await?;
    if expired > 0 {
        return Ok(expired);
    }
    let calls: i64 = sqlx::query_scalar(DELETE_UNPROTECTED)
        .bind(limit)
        .fetch_one(pool)
        .await?;
    if calls > 0 {
        return Ok(calls.unsigned_abs());
    }
    results(i64::MAX).await
}
