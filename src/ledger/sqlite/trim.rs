//! Deletes rows that no guarantee covers, the oldest first, so that their space can be used again.
//!
//! No guarantee covers a call that was not committed before its tool ran: a refused call, a call
//! answered from the cache, or a `read` that was charged to no limit. Calls with an effect, a
//! limit, an idempotency key or a `202` answer were committed before, and stay. Counters, totals,
//! switches and registered tools stay as well.

use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};

use super::commit_marker;
use super::script::Script;

/// The columns that exclude most rows come first, because columns after long arguments are slow to
/// read. Rows from before the column `reserved` existed are judged by their other columns.
const SELECT_DELETABLE: &str = "select seq, octet_length(arguments) + coalesce(octet_length(result), 0) from invocation \
    where seq > ?1 and seq <= ?2 and state not in ('reserved', 'unknown') and (state = 'refused' or effect = 'read' or attempts = 0) \
    and (state = 'refused' or iif(reserved is null, idempotency_key is null, reserved = 0)) and charged is null \
    order by seq limit ?3";
/// The first row after the cursor, and the newest row. The newest row is never deleted: otherwise
/// the next row would get the same `seq`.
const SELECT_BOUNDS: &str = "select (select seq from invocation where seq > ?1 order by seq limit 1), \
    (select max(seq) from invocation)";
const DELETE_ATTEMPTS: &str = "delete from attempt where invocation in \
    (select id from invocation where seq in (select value from json_each(?)))";
const DELETE_CALLS: &str = "delete from invocation where seq in (select value from json_each(?))";
const HAS_RESULTS_EXPIRING: &str =
    "select exists (select 1 from stored_result where expires_at <= ?)";
const DELETE_RESULTS: &str = "delete from stored_result where key in \
    (select key from stored_result where expires_at <= ? order by expires_at limit ?)";

/// Maximum number of rows that one step reads.
const MAX_ROWS_READ: i64 = 20_000;
/// Approximate maximum of bytes that one step deletes, so that each commit is short.
const STEP_BYTES: i64 = 4 << 20;

/// How far the rows have been read. Rows that were kept once can never be deleted later, so they
/// are not read again.
#[derive(Default)]
pub(super) struct Cursor(i64);

/// The outcome of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrimStep {
    /// Deleted this number of rows or stored results, in the commit with this number.
    Deleted { rows: u64, commits: u64 },
    /// Nothing deleted in this range; further rows are left to read.
    Nothing,
    /// No more rows may be deleted.
    Exhausted,
}

/// Deletes at most `at_most` rows: first results that have expired at `now`, then calls, then other
/// results. One commit.
pub(super) async fn trim_step(
    connection: &mut SqliteConnection,
    cursor: &mut Cursor,
    now: Option<Timestamp>,
    at_most: u32,
) -> Result<TrimStep, sqlx::Error> {
    if let Some(now) = now {
        let deleted = delete_results(connection, now.as_millisecond(), at_most).await?;
        if deleted != TrimStep::Exhausted {
            return Ok(deleted);
        }
    }
    let bounds = sqlx::query(SELECT_BOUNDS)
        .bind(cursor.0)
        .fetch_one(&mut *connection)
        .await?;
    let (Some(first), Some(newest)) = (
        bounds.try_get::<Option<i64>, _>(0)?,
        bounds.try_get::<Option<i64>, _>(1)?,
    ) else {
        return delete_results(connection, i64::MAX, at_most).await;
    };
    if first >= newest {
        return delete_results(connection, i64::MAX, at_most).await;
    }
    let last = newest
        .saturating_sub(1)
        .min(first.saturating_add(MAX_ROWS_READ));
    let found = sqlx::query(SELECT_DELETABLE)
        .bind(cursor.0)
        .bind(last)
        .bind(at_most)
        .fetch_all(&mut *connection)
        .await?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for row in &found {
        if bytes > STEP_BYTES {
            break;
        }
        rows.push(row.try_get::<i64, _>(0)?);
        bytes += row.try_get::<i64, _>(1)?;
    }
    // If a limit ended the step, continue after the last deleted row. Otherwise the whole range was
    // read, so continue after it.
    cursor.0 = match rows.last() {
        Some(seq) if rows.len() < found.len() || found.len() >= at_most as usize => *seq,
        _ => last,
    };
    if rows.is_empty() {
        return Ok(TrimStep::Nothing);
    }
    let mut script = Script::default();
    script.add_statement("begin immediate");
    script.add_with_rows(DELETE_ATTEMPTS, &rows);
    script.add_with_rows(DELETE_CALLS, &rows);
    script.run(connection).await?;
    let commits = commit_marker::commit(connection).await?;
    Ok(TrimStep::Deleted {
        rows: rows.len() as u64,
        commits,
    })
}

/// Deletes stored results that expire up to `expires_by`, in Unix milliseconds.
async fn delete_results(
    connection: &mut SqliteConnection,
    expires_by: i64,
    at_most: u32,
) -> Result<TrimStep, sqlx::Error> {
    let exists = sqlx::query_scalar::<_, bool>(HAS_RESULTS_EXPIRING)
        .bind(expires_by)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(TrimStep::Exhausted);
    }
    sqlx::query("begin immediate")
        .execute(&mut *connection)
        .await?;
    let rows = sqlx::query(DELETE_RESULTS)
        .bind(expires_by)
        .bind(at_most)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    let commits = commit_marker::commit(connection).await?;
    Ok(TrimStep::Deleted { rows, commits })
}
