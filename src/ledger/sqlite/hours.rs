//! Keeps the counts of hours. `buckets.rs` reads them.
//!
//! An hour is claimed in one commit, then its calls are read beside the writer, and a second commit
//! stores their counts. A commit in between that adds or changes a call of the hour deletes the
//! claim, and then nothing is stored.

use std::ops::Range;

use jiff::Timestamp;
use sqlx::{Result, SqliteConnection, SqlitePool, query};

use super::super::Row;
use super::super::buckets::select_counted;
use super::super::count_by_time::{count_hours, countable_hours, next_uncounted};
use super::super::counted_hour::HOUR_MS;
use super::super::sql::{Dialect, Fetch as _, Sql, SqlRow};
use super::script::Script;

const OLDEST_CALL: &str = "select id from invocation order by id limit 1";
const FORGET_OLD: &str = "delete from usage_hour where hour < ?";
const CLAIM: &str = "with recursive one (hour) as (select ?1 union all select hour + 1 from one where hour + 1 < ?2) \
    insert into usage_hour (hour, claim) select hour, ?3 from one where true \
    on conflict (hour) do update set claim = excluded.claim where counts is null";
const RAISE_COUNTED_UNTIL: &str =
    "update ledger_head set counted_until = max(counted_until, ?) where one = 1";
const STORE: &str =
    "update usage_hour set counts = ? where hour = ? and claim = ? and counts is null";
const FORGET: &str = "delete from usage_hour where hour in (select value from json_each(?))";

/// Until when hours may be counted. See [`forget_hours`].
pub(super) const READ_COUNTED_UNTIL: &str = "select counted_until from ledger_head where one = 1";

/// The hours that a process counts.
pub(super) struct Claim {
    pub(super) hours: Range<i64>,
    pub(super) number: i64,
    /// The oldest hour that is kept.
    pub(super) oldest: i64,
}

/// Hours to be counted next, and the oldest one that is kept.
pub(super) async fn find_uncounted(
    pool: &SqlitePool,
    now: Timestamp,
    oldest: Timestamp,
    at_most: u32,
) -> Result<Option<(Range<i64>, i64)>> {
    let mut connection = pool.acquire().await?;
    let call = connection.fetch(Sql::new(OLDEST_CALL)).await?;
    let Some(call) = call.first() else {
        return Ok(None);
    };
    let hours = countable_hours(call.get(0)?, oldest, now);
    let counted = select_counted("hour", hours.clone(), Dialect::Sqlite);
    let counted = connection.fetch(counted).await?;
    let counted = counted.iter().filter_map(|row| row.get(0).ok());
    let first = hours.start;
    Ok(next_uncounted(hours, counted, at_most).map(|next| (next, first)))
}

/// Claims hours, inside the transaction of the caller.
pub(super) async fn claim(connection: &mut SqliteConnection, claim: Claim) -> Result<u64> {
    let forget = query(FORGET_OLD).bind(claim.oldest);
    forget.execute(&mut *connection).await?;
    let raise = query(RAISE_COUNTED_UNTIL).bind(claim.hours.end * HOUR_MS);
    raise.execute(&mut *connection).await?;
    let claim = query(CLAIM)
        .bind(claim.hours.start)
        .bind(claim.hours.end)
        .bind(claim.number);
    Ok(claim.execute(connection).await?.rows_affected())
}

/// Counts the calls of hours, as they are after the claim.
pub(super) async fn count(pool: &SqlitePool, hours: Range<i64>) -> Result<Vec<(i64, String)>> {
    let mut transaction = pool.begin().await?;
    count_hours(&mut *transaction, hours).await
}

/// Stores counts of hours that are still claimed, inside the transaction of the caller. Returns the
/// number of hours.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    claim: i64,
    hours: Vec<(i64, String)>,
) -> Result<u64> {
    let mut stored = 0;
    for (hour, counts) in hours {
        let store = query(STORE).bind(counts).bind(hour).bind(claim);
        stored += store.execute(&mut *connection).await?.rows_affected();
    }
    Ok(stored)
}

/// Makes the hours of rows that a commit adds uncounted. Only calls from before `counted_until` may
/// belong to counted hours, so this is a statement for few commits.
pub(super) fn forget_hours<'a>(
    rows: impl Iterator<Item = &'a Row>,
    counted_until: i64,
    script: &mut Script,
) {
    let starts = rows.map(|row| row.started_at.as_millisecond());
    let mut hours: Vec<i64> = starts
        .filter(|start| *start < counted_until)
        .map(|start| start / HOUR_MS)
        .collect();
    hours.sort_unstable();
    hours.dedup();
    script.add_with_rows(FORGET, &hours);
}

/// The answer to [`READ_COUNTED_UNTIL`].
pub(super) fn read_counted_until(rows: &[SqlRow]) -> Result<i64> {
    Ok(rows.last().ok_or(sqlx::Error::RowNotFound)?.get(0)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{ConnectOptions as _, Connection as _, query_scalar};

    use super::super::super::contract::ended_row;
    use super::super::super::contract::sqlite::{open, settings};
    use super::super::super::contract_hours::{call, compare, minute, record};
    use super::super::super::{BucketQuery, Ledger, Settings, State, UsageBy, count_ended_hours};
    use super::*;
    use crate::call::Clock;

    async fn connect(folder: &tempfile::TempDir) -> SqliteConnection {
        let file = SqliteConnectOptions::new().filename(folder.path().join("test.db"));
        file.connect().await.unwrap()
    }

    async fn count(ledger: &dyn Ledger) -> u32 {
        let (now, oldest) = (minute(300), Timestamp::UNIX_EPOCH);
        ledger.count_hours(now, oldest, 9).await.unwrap()
    }

    #[tokio::test]
    async fn counted_hours_are_not_read_again() {
        let (ledger, folder) = open().await;
        record(&*ledger, "t", minute(5)).await;
        assert_eq!(count(&*ledger).await, 4);
        let mut file = connect(&folder).await;
        // Behind the back of the ledger, so that only the counted hour knows of the call.
        for sql in [
            "drop trigger invocation_uncounts_deleted",
            "delete from invocation",
        ] {
            query(sql).execute(&mut file).await.unwrap();
        }
        let query = BucketQuery {
            since: minute(0),
            until: minute(600),
            width_ms: 24 * HOUR_MS,
            by: Some(UsageBy::Tool),
            caller: None,
            limit: 10,
        };
        let counted = ledger.usage_buckets(&query).await.unwrap();
        assert_eq!(counted[0].counts.calls, 1);
    }

    #[tokio::test]
    async fn claim_is_lost_when_a_call_is_added_meanwhile() {
        let (ledger, folder) = open().await;
        record(&*ledger, "t", minute(5)).await;
        record(&*ledger, "t", minute(65)).await;
        let mut file = connect(&folder).await;
        let first = minute(0).as_millisecond() / HOUR_MS;
        let hours = first..first + 2;
        let claimed = Claim {
            hours: hours.clone(),
            number: 7,
            oldest: 0,
        };
        claim(&mut file, claimed).await.unwrap();
        let pool = SqlitePool::connect_with(
            SqliteConnectOptions::new().filename(folder.path().join("test.db")),
        );
        let counts = super::count(&pool.await.unwrap(), hours).await.unwrap();
        record(&*ledger, "t", minute(66)).await;
        assert_eq!(store(&mut file, 8, counts.clone()).await.unwrap(), 0);
        assert_eq!(store(&mut file, 7, counts).await.unwrap(), 1);
        compare(&*ledger).await;
        file.close().await.unwrap();
    }

    #[tokio::test]
    async fn other_processes_uncount_hours_that_they_did_not_count() {
        let (ledger, folder) = open().await;
        let settings = Settings {
            base: folder.path().to_owned(),
            ..settings()
        };
        let other = super::super::super::open(&settings, minute(0)).await;
        let other = other.unwrap();
        record(&*ledger, "t", minute(5)).await;
        // From here on, the other process believes that nothing is counted.
        record(&*other, "t", minute(6)).await;
        assert_eq!(count(&*ledger).await, 4);
        record(&*other, "t", minute(7)).await;
        compare(&*ledger).await;
        assert_eq!(count(&*other).await, 1);
        compare(&*ledger).await;
    }

    #[tokio::test]
    async fn ended_hours_are_counted_without_a_request() {
        for (retention, expected) in [(None, 4), (Some(Duration::from_secs(3 * 3600)), 1)] {
            let (ledger, folder) = open().await;
            record(&*ledger, "t", minute(5)).await;
            let (clock, _) = Clock::manual(minute(300));
            let counting = tokio::spawn(count_ended_hours(ledger.clone(), clock, retention));
            let mut file = connect(&folder).await;
            let mut counted = 0_i64;
            // Each flush waits for the writer, which stores the counts.
            for _ in 0..5000 {
                ledger.flush().await.unwrap();
                let hours = "select count(*) from usage_hour where counts is not null";
                counted = query_scalar(hours).fetch_one(&mut file).await.unwrap();
                if counted == expected {
                    break;
                }
            }
            assert_eq!(counted, expected, "{retention:?}");
            counting.abort();
            compare(&*ledger).await;
        }
    }

    #[tokio::test]
    async fn interrupted_calls_uncount_their_hour() {
        let (ledger, folder) = open().await;
        let open_call = call("t", "a", minute(5), minute(5));
        ledger.reserve(open_call.clone(), vec![]).await.unwrap();
        record(&*ledger, "t", minute(65)).await;
        assert_eq!(count(&*ledger).await, 4);
        ledger.close().await;
        drop(ledger);
        let settings = Settings {
            base: folder.path().to_owned(),
            ..settings()
        };
        let reopened: Arc<dyn Ledger> = super::super::super::open(&settings, minute(0))
            .await
            .unwrap();
        compare(&*reopened).await;
        assert_eq!(count(&*reopened).await, 1);
        let late = ended_row(&open_call, State::Succeeded);
        reopened.settle(late, vec![]).await.unwrap();
        compare(&*reopened).await;
    }
}
