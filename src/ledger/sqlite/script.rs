//! Several statements with their bound values, as one step.
//!
//! Rows for which every call pays are bound values of one multi-row `values`. Rarer rows are one JSON
//! array (`json_each`), so the text of the statement does not depend on their number. One statement
//! per row would be 5 to 8 times slower.

use std::borrow::Cow;

use serde::Serialize;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::super::read::call_values;
use super::super::sql::SqlValue;
use super::super::{Row, State, checksum};
use super::fetch::arguments;

/// Writes the rows of started and of ended calls. An existing row is updated only if it is still
/// reserved, so a call ends once. A call that starts must have no row: the null fails the commit, and
/// the writer refuses that call. An empty set of counters refunds the row's units.
const WRITE_ROWS: [&str; 2] = [
    "insert into invocation (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, \
     duration_us, origin, idempotency_key, fingerprint, key_until, parent, detail, arguments, result, meta, sum, charged, reserved) \
     select * from (values ",
    ") where column1 is not null on conflict (id) do update set state = iif(excluded.state = 'reserved', null, excluded.state), kind = excluded.kind, \
     cache = excluded.cache, attempts = excluded.attempts, duration_us = excluded.duration_us, \
     arguments = excluded.arguments, result = excluded.result, origin = excluded.origin, meta = excluded.meta, \
     fingerprint = excluded.fingerprint, key_until = excluded.key_until, sum = excluded.sum, detail = excluded.detail, charged = iif(excluded.charged = '', null, charged) \
     where invocation.state = 'reserved' or excluded.state = 'reserved'",
];
/// Maximum number of rows of one statement. A statement has at most 32,766 values
/// (`SQLITE_MAX_VARIABLE_NUMBER`).
const MAX_ROWS: usize = 512;

/// Statements, in order. The texts are constants of this folder, so it is safe to join them. Values
/// are always bound.
#[derive(Default)]
pub(super) struct Script {
    pub(super) statements: Vec<Statement>,
}

/// A statement with its bound values.
pub(super) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<SqlValue>,
}

impl Script {
    pub(super) fn add_statement(&mut self, sql: &'static str) {
        self.add(sql.into(), Vec::new());
    }

    /// Adds a statement over `rows`, unless there are none.
    pub(super) fn add_with_rows(&mut self, sql: &'static str, rows: &[impl Serialize]) {
        if !rows.is_empty() {
            let rows = serde_json::to_string(rows).unwrap_or_default();
            self.add(sql.into(), vec![SqlValue::Owned(rows)]);
        }
    }

    /// Adds a statement over rows of bound values, if there is at least one row. `sql` is the text
    /// before and after the rows. Rows of nulls, which the statement must skip, fill the number up to a
    /// power of two. So there are few different texts, and each is prepared only once.
    pub(super) fn add_with_values<const COLUMNS: usize>(
        &mut self,
        sql: [&'static str; 2],
        rows: impl Iterator<Item = impl IntoIterator<Item = SqlValue>>,
    ) {
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut values: Vec<SqlValue> = Vec::new();
            let part = rows.by_ref().take(MAX_ROWS);
            part.for_each(|row| values.extend(row));
            let rounded = usize::next_power_of_two(values.len() / COLUMNS);
            values.resize(rounded * COLUMNS, SqlValue::Null);
            let mut text = String::with_capacity(rounded * (2 * COLUMNS + 2) + 1024);
            text.push_str(sql[0]);
            for row in 0..rounded {
                text.push_str(if row == 0 { "(?" } else { ",(?" });
                (1..COLUMNS).for_each(|_| text.push_str(",?"));
                text.push(')');
            }
            text.push_str(sql[1]);
            self.add(text.into(), values);
        }
    }

    /// Adds rows of calls, each with the counters that it is charged to. Rows of reserved calls get
    /// the number of this process.
    pub(super) fn add_call_rows<'a>(
        &mut self,
        process: i64,
        rows: impl Iterator<Item = (&'a Row, Option<String>)>,
    ) {
        let values = |(row, charged)| row_values(row, charged, process);
        self.add_with_values::<ROW_COLUMNS>(WRITE_ROWS, rows.map(values));
    }

    fn add(&mut self, sql: Cow<'static, str>, values: Vec<SqlValue>) {
        self.statements.push(Statement { sql, values });
    }

    /// Runs all statements on a connection of sqlx.
    pub(super) async fn run(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let texts: Vec<&str> = self.statements.iter().map(|one| &*one.sql).collect();
        let sql = texts.join("; ");
        let values = self.statements.into_iter().flat_map(|one| one.values);
        let run = sqlx::query_with(AssertSqlSafe(sql), arguments(values));
        run.execute(connection).await.map(drop)
    }
}

const ROW_COLUMNS: usize = 24;

/// The values of a row, in the column order of [`WRITE_ROWS`].
fn row_values(
    row: &Row,
    charged: Option<String>,
    process: i64,
) -> impl Iterator<Item = SqlValue> + use<> {
    let is_reserved = row.state == State::Reserved;
    let sum = (!is_reserved).then(|| checksum::row_checksum(row));
    let others = [
        row.arguments.clone().into(),
        row.result.clone().into(),
        row.meta.clone().into(),
        sum.into(),
        charged.into(),
        SqlValue::Integer(if is_reserved { process } else { 0 }),
    ];
    call_values(row).into_iter().chain(others)
}
