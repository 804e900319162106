//! Keeps the counts of hours. `buckets.rs` reads them.
//!
//! Triggers note the hours of calls that are written, changed or deleted late. The note becomes visible
//! together with the call. A count first deletes the notes that it sees, and then reads the calls. So a
//! call that it does not see has a note that stays, and the hour counts as not counted.

use jiff::Timestamp;
use sqlx::{PgPool, Result, query, query_scalar};
use uuid::Uuid;

use super::super::buckets::select_counted;
use super::super::count_by_time::{count_hours, countable_hours, next_uncounted};
use super::super::sql::{Dialect, Fetch as _};
use super::commit::from_uuid;

const OLDEST_CALL: &str = "select id from invocation order by id limit 1";
const SERVER_TIME: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
/// One replica counts at a time.
const TRY_LOCK: &str = "select pg_try_advisory_xact_lock(1413698114, 7)";
const FORGET_OLD: [&str; 2] = [
    "delete from usage_hour where hour < $1",
    "delete from usage_late where hour < $1",
];
const FORGET_NOTES: &str = "delete from usage_late where hour >= $1 and hour < $2";
const STORE: &str = "insert into usage_hour (hour, counts) select * from unnest($1::bigint[], $2::text[]) \
    on conflict (hour) do update set counts = excluded.counts, counted_at = excluded.counted_at";

/// Counts hours as the trait says, in one transaction.
pub(super) async fn count(
    pool: &PgPool,
    now: Timestamp,
    oldest: Timestamp,
    at_most: u32,
) -> Result<u32> {
    let mut transaction = pool.begin().await?;
    let is_alone: bool = query_scalar(TRY_LOCK).fetch_one(&mut *transaction).await?;
    let call = query_scalar::<_, Uuid>(OLDEST_CALL);
    let call = call.fetch_optional(&mut *transaction).await?;
    let Some(call) = call.filter(|_| is_alone) else {
        return Ok(0);
    };
    // The clock of this replica may be ahead.
    let server_ms: i64 = query_scalar(SERVER_TIME)
        .fetch_one(&mut *transaction)
        .await?;
    let now = now.min(Timestamp::from_millisecond(server_ms).unwrap_or(now));
    let hours = countable_hours(from_uuid(call), oldest, now);
    for forget in FORGET_OLD {
        let forget = query(forget).bind(hours.start);
        forget.execute(&mut *transaction).await?;
    }
    let counted = select_counted("hour", hours.clone(), Dialect::Postgres);
    let counted = transaction.fetch(counted).await?;
    let counted = counted.iter().filter_map(|row| row.get(0).ok());
    let Some(hours) = next_uncounted(hours, counted, at_most) else {
        transaction.commit().await?;
        return Ok(0);
    };
    let forget = query(FORGET_NOTES).bind(hours.start).bind(hours.end);
    forget.execute(&mut *transaction).await?;
    // Each statement sees what was committed before it, so this one sees the calls of those notes.
    let counted = count_hours(&mut *transaction, hours).await?;
    let count = u32::try_from(counted.len()).unwrap_or(u32::MAX);
    let (hours, texts): (Vec<i64>, Vec<String>) = counted.into_iter().unzip();
    let store = query(STORE).bind(hours).bind(texts);
    store.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sqlx::{Connection as _, PgConnection};

    use super::super::test_server::TestServer;
    use crate::ledger::contract::sqlite::settings;
    use crate::ledger::contract_hours::{compare, minute, record};
    use crate::ledger::{Ledger, Settings, open};
    use jiff::Timestamp;

    /// A copy of a call with another id, as another replica would write it.
    const COPY: &str = "insert into toolcrib.invocation (id, tool, caller, state, effect, cache, attempts, started_at, \
        duration_us, arguments, reserved, replica) select gen_random_uuid(), 'late', caller, state, effect, cache, attempts, \
        started_at, duration_us, arguments, reserved, replica from toolcrib.invocation limit 1";
    /// The copy gets an id of its time.
    const DATE: &str = "update toolcrib.invocation late set id = overlay(late.id::text placing left(call.id::text, 18) from 1)::uuid \
        from toolcrib.invocation call where late.tool = 'late' and call.tool = 't'";

    async fn new_ledger() -> Option<(Arc<dyn Ledger>, PgConnection, Arc<TestServer>)> {
        let server = TestServer::shared()?;
        let url = server.create_ledger_database().await;
        let settings = Settings { url, ..settings() };
        let ledger = open(&settings, minute(0)).await.unwrap();
        let database = PgConnection::connect(&settings.url).await.unwrap();
        Some((ledger, database, server))
    }

    async fn count(ledger: &dyn Ledger) -> u32 {
        let (now, oldest) = (minute(300), Timestamp::UNIX_EPOCH);
        ledger.count_hours(now, oldest, 9).await.unwrap()
    }

    #[tokio::test]
    async fn call_that_is_committed_after_a_count_uncounts_its_hour() {
        let Some((ledger, mut database, _server)) = new_ledger().await else {
            return;
        };
        record(&*ledger, "t", minute(5)).await;
        let mut late = database.begin().await.unwrap();
        for sql in [COPY, DATE] {
            sqlx::raw_sql(sql).execute(&mut *late).await.unwrap();
        }
        assert_eq!(count(&*ledger).await, 4);
        compare(&*ledger).await;
        late.commit().await.unwrap();
        compare(&*ledger).await;
        assert_eq!(count(&*ledger).await, 1);
        compare(&*ledger).await;
        assert_eq!(count(&*ledger).await, 0);
    }

    #[tokio::test]
    async fn hours_counted_at_a_later_time_are_counted_again() {
        let Some((ledger, mut database, _server)) = new_ledger().await else {
            return;
        };
        record(&*ledger, "t", minute(5)).await;
        assert_eq!(count(&*ledger).await, 4);
        let sql = "update toolcrib.usage_hour set counted_at = counted_at + interval '1 hour', counts = '?'";
        sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
        compare(&*ledger).await;
        assert_eq!(count(&*ledger).await, 4);
        compare(&*ledger).await;
    }

    #[tokio::test]
    async fn dropped_partition_uncounts_its_hours() {
        let Some((ledger, mut database, _server)) = new_ledger().await else {
            return;
        };
        let add = "set search_path to toolcrib; select add_partitions_1('2026-06-10', 2)";
        sqlx::raw_sql(add).execute(&mut database).await.unwrap();
        record(&*ledger, "t", minute(5)).await;
        record(&*ledger, "t", minute(125)).await;
        assert_eq!(count(&*ledger).await, 4);
        compare(&*ledger).await;
        // All of the first day is older.
        let before = minute(120);
        ledger.prune(before, before, 100).await.unwrap();
        compare(&*ledger).await;
    }
}
