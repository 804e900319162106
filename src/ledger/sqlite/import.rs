//! Adds calls that another ledger has recorded.

use std::collections::HashSet;

use sqlx::SqliteConnection;

use super::super::imported_counts::{ImportedCounts, TotalLine};
use super::super::{RecordedCall, Row};
use super::batch::{WRITE_ATTEMPTS, WRITE_LATENCIES, WRITE_TOTALS, attempt_values};
use super::export::hex_list;
use super::hours;
use super::read::parse_id;
use super::script::{Script, SqlValue};
use crate::call::InvocationId;

const SELECT_KNOWN: &str =
    "select id from invocation where id in (select unhex(value) from json_each(?))";

/// Rows of running calls count one call each, so the statement for all rows writes no count.
const WRITE_COUNTS: &str = "update invocation set count = one.value->>1 from json_each(?) as one \
    where invocation.id = unhex(one.value->>0)";

/// Adds rows of ended calls that are not charged to any counter.
pub(super) fn add_ended_rows<'a>(rows: impl Iterator<Item = &'a Row> + Clone, script: &mut Script) {
    // None of them is reserved, so none needs a process.
    script.add_call_rows(0, rows.clone().map(|row| (row, None)));
    let counts: Vec<(String, u64)> = rows
        .filter(|row| row.count > 1)
        .map(|row| (hex::encode(row.id.as_bytes()), row.count))
        .collect();
    script.add_with_rows(WRITE_COUNTS, &counts);
}

/// Writes the calls whose ids are new, inside the transaction of the caller. Returns their number.
pub(super) async fn import_calls(
    connection: &mut SqliteConnection,
    mut calls: Vec<RecordedCall>,
) -> Result<u64, sqlx::Error> {
    let ids = hex_list(calls.iter().map(|call| call.row.id));
    let known = sqlx::query_scalar::<_, Vec<u8>>(SELECT_KNOWN).bind(ids);
    let known = known.fetch_all(&mut *connection).await?;
    let mut known = known
        .into_iter()
        .map(parse_id)
        .collect::<Result<HashSet<InvocationId>, _>>()?;
    calls.retain(|call| known.insert(call.row.id));
    if calls.is_empty() {
        return Ok(0);
    }
    let counts = ImportedCounts::of(calls.iter().map(|call| &call.row));
    let mut script = Script::default();
    add_ended_rows(calls.iter().map(|call| &call.row), &mut script);
    let attempts = calls.iter().flat_map(|call| &call.attempts);
    let attempts: Vec<_> = attempts.map(attempt_values).collect();
    hours::forget_hours(calls.iter().map(|call| &call.row), i64::MAX, &mut script);
    script.add_with_rows(WRITE_ATTEMPTS, &attempts);
    let totals = counts.totals().into_iter();
    script.add_with_values(WRITE_TOTALS, totals.map(total_values));
    script.add_with_rows(WRITE_LATENCIES, &counts.latencies());
    script.run(connection).await?;
    Ok(calls.len() as u64)
}

fn total_values(
    (caller, tool, calls, succeeded, failed, refused, cache_hits): TotalLine,
) -> [SqlValue; 7] {
    [
        caller.into(),
        tool.into(),
        calls.into(),
        succeeded.into(),
        failed.into(),
        refused.into(),
        cache_hits.into(),
    ]
}
