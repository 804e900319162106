//! Deletes rows that no guarantee covers, the oldest first, so that their space can be used again.
//!
//! No guarantee covers a call that was not committed before its tool ran: a refused call, a call answered from the
//! cache, or a `read` that was charged to no limit. Calls with an effect, a limit, an idempotency key or a `202` answer
//! were committed before, and stay. Counters, totals, switches and registered tools stay as well.

use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};

use super::commit_marker;
use super::script::Script;

/// The columns that exclude most rows come first, because columns after long arguments are slow to read. Rows from
/// before the column `reserved` existed are judged by their other columns.
const OLDEST: &str = "select seq, octet_length(arguments) + coalesce(octet_length(result), 0) from invocation \
    where seq > ?1 and seq <= ?2 and state not in ('reserved', 'unknown') and (state = 'refused' or effect = 'read' or attempts = 0) \
    and (state = 'refused' or iif(reserved is null, idempotency_key is null, reserved = 0)) and charged is null \
    order by seq limit ?3";
/// The first row after the cursor, and the newest row. The newest row is never deleted: otherwise the next row would
/// get the same `seq`.
const ENDS: &str = "select (select seq from invocation where seq > ?1 order by seq limit 1), \
    (select max(seq) from invocation)";
const ATTEMPTS: &str = "delete from attempt where invocation in \
    (select id from invocation where seq in (select value from json_each(?)))";
const CALLS: &str = "delete from invocation where seq in (select value from json_each(?))";
const EXPIRES: &str = "select exists (select 1 from stored_result where expires_at <= ?)";
const RESULTS: &str = "delete from stored_result where key in \
    (select key from stored_result where expires_at <= ? order by expires_at limit ?)";

/// Maximum number of rows that one step reads.
const WINDOW: i64 = 20_000;
/// Approximate maximum of bytes that one step deletes, so that each commit is short.
const STEP_BYTES: i64 = 4 << 20;

/// How far the rows have been read. Rows that were kept once can never be deleted later, so they are not read again.
#[derive(Default)]
pub(super) struct Cursor(i64);

/// The outcome of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Deleted this number of rows or stored results, in the commit with this number.
    Deleted { rows: u64, commits: u64 },
    /// Nothing deleted in this range; further rows are left to read.
    Nothing,
    /// No more rows may be deleted.
    Exhausted,
}

/// Deletes at most `at_most` rows: first results that have expired at `now`, then calls, then other results. One
/// commit.
pub(super) async fn step(
    connection: &mut SqliteConnection,
    cursor: &mut Cursor,
    now: Option<Timestamp>,
    at_most: u32,
) -> Result<Step, sqlx::Error> {
    if let Some(now) = now {
        let deleted = results(connection, now.as_millisecond(), at_most).await?;
        if deleted != Step::Exhausted {
            return Ok(deleted);
        }
    }
    let ends = sqlx::query(ENDS).bind(cursor.0).fetch_one(&mut *connection).await?;
    let (Some(first), Some(newest)) = (ends.try_get::<Option<i64>, _>(0)?, ends.try_get::<Option<i64>, _>(1)?) else {
        return results(connection, i64::MAX, at_most).await;
    };
    if first >= newest {
        return results(connection, i64::MAX, at_most).await;
    }
    let last = newest.saturating_sub(1).min(first.saturating_add(WINDOW));
    let found = sqlx::query(OLDEST).bind(cursor.0).bind(last).bind(at_most).fetch_all(&mut *connection).await?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for row in &found {
        if bytes > STEP_BYTES {
            break;
        }
        rows.push(row.try_get::<i64, _>(0)?);
        bytes += row.try_get::<i64, _>(1)?;
    }
    // If a limit ended the step, continue after the last deleted row. Otherwise the whole range was read, so continue
    // after it.
    cursor.0 = match rows.last() {
        Some(taken) if rows.len() < found.len() || found.len() >= at_most as usize => *taken,
        _ => last,
    };
    if rows.is_empty() {
        return Ok(Step::Nothing);
    }
    let mut script = Script::default();
    script.add("begin immediate");
    script.add_with(ATTEMPTS, &rows);
    script.add_with(CALLS, &rows);
    script.add(commit_marker::COUNT);
    script.add("commit");
    let commits = commit_marker::counted(&script.fetch(connection).await?)?;
    Ok(Step::Deleted { rows: rows.len() as u64, commits })
}

/// Deletes stored results that expire up to `by`, in Unix milliseconds.
async fn results(connection: &mut SqliteConnection, by: i64, at_most: u32) -> Result<Step, sqlx::Error> {
    let there = sqlx::query_scalar::<_, bool>(EXPIRES).bind(by).fetch_one(&mut *connection).await?;
    if !there {
        return Ok(Step::Exhausted);
    }
    sqlx::query("begin immediate").execute(&mut *connection).await?;
    let rows = sqlx::query(RESULTS).bind(by).bind(at_most).execute(&mut *connection).await?.rows_affected();
    let commits = commit_marker::counted(&sqlx::query(commit_marker::COUNT).fetch_all(&mut *connection).await?)?;
    sqlx::query("commit").execute(connection).await?;
    Ok(Step::Deleted { rows, commits })
}
