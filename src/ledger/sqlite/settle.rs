//! Settles the calls that ended processes have left.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::super::Row;
use crate::call::KEY_RETENTION;

/// Without a process: the calls of all processes.
const COUNT_FAILED: &str = "update usage_total set failed = failed + open.calls from \
    (select caller, tool, count(*) as calls from invocation where state = 'reserved' and (?1 is null or reserved = ?1) \
    group by caller, tool) as open where usage_total.caller = open.caller and usage_total.tool = open.tool";
const SETTLE: &str = "update invocation set state = 'unknown', \
    key_until = iif(effect = 'write' and key_until is not null, ?2, null) \
    where state = 'reserved' and (?1 is null or reserved = ?1)";

/// Makes the open calls of a process `unknown`; without a process, those of all. A write keeps its
/// key for a while, as it may have had its effect. Returns the number of calls.
pub(super) async fn settle_calls(
    connection: &mut SqliteConnection,
    process: Option<i64>,
    now: Timestamp,
) -> Result<u64, sqlx::Error> {
    let key_until = now
        .checked_add(KEY_RETENTION)
        .unwrap_or(Row::FOREVER)
        .as_millisecond();
    sqlx::query(COUNT_FAILED)
        .bind(process)
        .execute(&mut *connection)
        .await?;
    let settled = sqlx::query(SETTLE)
        .bind(process)
        .bind(key_until)
        .execute(connection)
        .await?;
    Ok(settled.rows_affected())
}
