//! Sends several statements to SQLite's thread in one step.
//!
//! Rows of calls are bound values of one multi-row `values`, because every call pays for this
//! statement. Rarer rows are one JSON array (`json_each`), so the text of the statement does not
//! depend on their number. In both forms the number of thread switches is independent of the number
//! of rows. One statement per row would be 5 to 8 times slower.

use serde::Serialize;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Sqlite, SqliteConnection, Type};

use super::super::{Row, State};
use super::checksum;

/// Writes the rows of started and of ended calls. An existing row is updated only if it is still
/// reserved, so a call ends once. An empty set of counters refunds the row's units.
const WRITE_ROWS: [&str; 2] = [
    "insert into invocation (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, \
     duration_us, arguments, result, origin, meta, idempotency_key, fingerprint, key_until, sum, parent, detail, charged, reserved) \
     select *, iif(column6 = 'reserved', (select number from temp.this_process), 0) from (values ",
    ") where column1 is not null on conflict (id) do update set state = excluded.state, kind = excluded.kind, \
     cache = excluded.cache, attempts = excluded.attempts, duration_us = excluded.duration_us, \
     arguments = excluded.arguments, result = excluded.result, origin = excluded.origin, meta = excluded.meta, \
     fingerprint = excluded.fingerprint, key_until = excluded.key_until, sum = excluded.sum, detail = excluded.detail, charged = iif(excluded.charged = '', null, charged) \
     where invocation.state = 'reserved' and excluded.state != 'reserved'",
];
const ROW_PLACEHOLDERS: &str = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

/// Statements and their bound values. The texts are constants of this folder, so it is safe to join
/// them. Values are always bound.
#[derive(Default)]
pub(super) struct Script {
    sql: String,
    values: BoundValues,
}

impl Script {
    pub(super) fn add_statement(&mut self, sql: &'static str) {
        self.add_separator();
        self.sql.push_str(sql);
    }

    /// Adds statements with one bound number.
    pub(super) fn add_with_number(&mut self, sql: &'static str, number: i64) {
        self.add_statement(sql);
        self.values.push(number);
    }

    /// Adds a statement over `rows`, unless there are none.
    pub(super) fn add_with_rows(&mut self, sql: &'static str, rows: &[impl Serialize]) {
        if !rows.is_empty() {
            self.add_statement(sql);
            self.values
                .push(serde_json::to_string(rows).unwrap_or_default());
        }
    }

    /// Adds rows of calls, each with the counters that it is charged to. Rows of nulls, which the
    /// statement skips, fill the number up to a power of two. So there are few different texts, and
    /// each is prepared only once.
    pub(super) fn add_call_rows<'a>(
        &mut self,
        rows: impl Iterator<Item = (&'a Row, Option<String>)>,
    ) {
        let before = self.values.inner.len();
        let mut count = 0;
        for (row, charged) in rows {
            self.values.push_row(row);
            self.values.push(charged);
            count += 1;
        }
        if count == 0 {
            return;
        }
        let rounded = usize::next_power_of_two(count);
        for _ in count * ROW_COLUMNS..rounded * ROW_COLUMNS {
            self.values.push(None::<i64>);
        }
        debug_assert_eq!(self.values.inner.len() - before, rounded * ROW_COLUMNS);
        self.add_separator();
        self.sql
            .reserve(rounded * (ROW_PLACEHOLDERS.len() + 1) + 1024);
        self.sql.push_str(WRITE_ROWS[0]);
        for at in 0..rounded {
            self.sql.push_str(if at == 0 { "" } else { "," });
            self.sql.push_str(ROW_PLACEHOLDERS);
        }
        self.sql.push_str(WRITE_ROWS[1]);
    }

    fn add_separator(&mut self) {
        if !self.sql.is_empty() {
            self.sql.push_str("; ");
        }
    }

    /// Runs all statements. Returns the rows of all of them, in order.
    pub(super) async fn run(
        self,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        if self.sql.is_empty() {
            return Ok(Vec::new());
        }
        sqlx::query_with(AssertSqlSafe(self.sql), self.values.inner)
            .fetch_all(connection)
            .await
    }
}

const ROW_COLUMNS: usize = 23;

/// Bound values, in order.
#[derive(Default)]
struct BoundValues {
    inner: SqliteArguments,
}

impl BoundValues {
    fn push<'t>(&mut self, value: impl Encode<'t, Sqlite> + Type<Sqlite>) {
        // Only values with a failing encoder cause an error; texts, numbers and bytes do not.
        let _ = self.inner.add(value);
    }

    /// Adds a row in the column order of [`WRITE_ROWS`], without its counters.
    fn push_row(&mut self, row: &Row) {
        self.push(row.id.as_bytes().to_vec());
        self.push(row.tool.clone());
        self.push(row.caller.clone());
        self.push(row.run_id.clone());
        self.push(row.tool_use_id.clone());
        self.push(row.state.as_str());
        self.push(row.kind.map(|kind| kind.as_str()));
        self.push(row.effect.as_str());
        self.push(row.cache.as_str());
        self.push(row.attempts);
        self.push(row.started_at.as_millisecond());
        self.push(row.duration_us);
        self.push(row.arguments.clone());
        self.push(row.result.clone());
        self.push(row.origin.map(|id| id.as_bytes().to_vec()));
        self.push(row.meta.clone());
        self.push(row.idempotency_key.clone());
        self.push(row.fingerprint.clone());
        self.push(row.key_until.map(|until| until.as_millisecond()));
        self.push((row.state != State::Reserved).then(|| checksum::row_checksum(row)));
        self.push(row.parent.map(|id| id.as_bytes().to_vec()));
        self.push(row.detail.clone());
    }
}
