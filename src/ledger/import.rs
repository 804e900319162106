//! Adds calls that another ledger has recorded, and lines of its other tables.

use std::collections::HashSet;

use uuid::Uuid;

use super::counted_hour::HOUR_MS;
use super::latency::PendingDurations;
use super::read::{CALL_COLUMNS, NO_REPLICA, call_values};
use super::sql::{Dialect, Fetch, Line, Sql, SqlRow, SqlValue};
use super::{RecordedCall, Row, checksum, counts};
use crate::call::InvocationId;

/// The slot of totals that no replica has counted. Slots of replicas start at 0.
const IMPORT_SLOT: i64 = -1;
/// Lines of one statement, which has at most 32,766 values in SQLite.
const MAX_LINES: usize = 1000;

/// A table whose lines are added up.
pub(super) struct Totals {
    table: &'static str,
    keys: &'static str,
    sums: &'static [&'static str],
}

impl Totals {
    /// The columns of a line, without those of a replica.
    pub(super) fn columns(&self) -> String {
        format!("{}, {}", self.keys, self.sums.join(", "))
    }
}

/// The counts of each caller and tool.
pub(super) const TOTALS: Totals = Totals {
    table: "usage_total",
    keys: "caller, tool",
    sums: &["calls", "succeeded", "failed", "refused", "cache_hits"],
};
/// The durations of each caller and tool.
pub(super) const LATENCIES: Totals = Totals {
    table: "usage_latency",
    keys: "caller, tool, bucket",
    sums: &["calls"],
};

/// Adds the calls whose ids are new, inside the transaction of the caller. Returns their number. They are not
/// charged to any counter.
pub(super) async fn import_calls(
    connection: &mut dyn Fetch,
    calls: &[RecordedCall],
) -> sqlx::Result<u64> {
    let rows: Vec<(&Row, bool)> = calls.iter().map(|call| (&call.row, false)).collect();
    let mut added = add_rows(connection, &rows).await?;
    // Of two calls with one id, the first was added.
    let is_new = |call: &&RecordedCall| added.remove(&call.row.id);
    let new: Vec<&RecordedCall> = calls.iter().filter(is_new).collect();
    if connection.dialect() == Dialect::Sqlite {
        // A trigger does that in PostgreSQL.
        let hours = new
            .iter()
            .map(|call| call.row.started_at.as_millisecond() / HOUR_MS);
        let mut sql = Sql::new("delete from usage_hour where hour in ");
        sql.bind_list(hours.collect::<HashSet<i64>>());
        connection.execute(sql).await?;
    }
    let attempts = new.iter().flat_map(|call| &call.attempts).map(|attempt| {
        vec![
            attempt.invocation.into(),
            attempt.attempt.into(),
            SqlValue::Word(attempt.kind.as_str()),
            (&*attempt.message).into(),
            attempt.duration_us.into(),
        ]
    });
    let insert = "insert into attempt (invocation, attempt, kind, message, duration_us) values ";
    let attempts: Vec<Line> = attempts.collect();
    add_lines(connection, insert, &attempts, " on conflict do nothing").await?;
    let (mut totals, mut durations) = (counts::Totals::default(), PendingDurations::default());
    for call in &new {
        totals.count_start(&call.row);
        totals.count_end(&call.row);
    }
    durations.add(new.iter().map(|call| &call.row));
    let lines = totals.rows().map(Line::from).collect();
    add_totals(connection, &TOTALS, lines).await?;
    let lines = durations.to_rows().into_iter().map(|row| {
        let (caller, tool) = (row.caller.into(), row.tool.into());
        vec![caller, tool, row.bucket.into(), row.calls.into()]
    });
    add_totals(connection, &LATENCIES, lines.collect()).await?;
    Ok(new.len() as u64)
}

/// Adds rows of ended calls, each with whether a guarantee covers it. Returns the ids of those that are new.
pub(super) async fn add_rows(
    connection: &mut dyn Fetch,
    rows: &[(&Row, bool)],
) -> sqlx::Result<HashSet<InvocationId>> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let dialect = connection.dialect();
    let own = dialect.pick("sum", "replica");
    let mut sql = Sql::new(format!(
        "insert into invocation ({CALL_COLUMNS}, arguments, result, meta, reserved, {own}) values "
    ));
    let line = |(row, is_protected): &(&Row, bool)| {
        let own = match dialect {
            Dialect::Sqlite => checksum::row_checksum(row).into(),
            Dialect::Postgres => SqlValue::Id(replica_of(row)),
        };
        let whole = [
            row.count.into(),
            row.arguments.clone().into(),
            row.result.clone().into(),
            row.meta.clone().into(),
        ];
        let others = [SqlValue::Bool(*is_protected), own];
        call_values(row).into_iter().chain(whole).chain(others)
    };
    sql.bind_rows(rows.iter().map(line))
        .push(" on conflict (id) do nothing returning id");
    sql.is_planned_anew = true;
    let added = connection.fetch(sql).await?;
    let id = |row: &SqlRow| Ok(row.get(0)?);
    added.iter().map(id).collect()
}

/// A row from a file of one machine has no replica.
fn replica_of(row: &Row) -> InvocationId {
    let replica = row
        .replica
        .as_deref()
        .and_then(|id| id.parse::<Uuid>().ok());
    InvocationId::from_bytes(replica.unwrap_or(NO_REPLICA).into_bytes())
}

/// Adds lines with a statement: its text before and after them.
pub(super) async fn add_lines(
    connection: &mut dyn Fetch,
    before: &str,
    lines: &[Line],
    after: &str,
) -> sqlx::Result<()> {
    for lines in lines.chunks(MAX_LINES) {
        let mut sql = Sql::new(before);
        sql.bind_rows(lines.iter().cloned()).push(after);
        sql.is_planned_anew = true;
        connection.execute(sql).await?;
    }
    Ok(())
}

/// Adds lines to what a table has: their keys, and then their sums.
pub(super) async fn add_totals(
    connection: &mut dyn Fetch,
    to: &Totals,
    mut lines: Vec<Line>,
) -> sqlx::Result<()> {
    let Totals { table, keys, sums } = to;
    // In PostgreSQL, each replica has totals of its own.
    let slot = connection.dialect().pick("", ", slot");
    if !slot.is_empty() {
        lines
            .iter_mut()
            .for_each(|line| line.push(IMPORT_SLOT.into()));
    }
    let before = format!("insert into {table} ({}{slot}) values ", to.columns());
    let sums = sums
        .iter()
        .map(|name| format!("{name} = {table}.{name} + excluded.{name}"));
    let sums = sums.collect::<Vec<_>>().join(", ");
    let after = format!(" on conflict ({keys}{slot}) do update set {sums}");
    add_lines(connection, &before, &lines, &after).await
}
