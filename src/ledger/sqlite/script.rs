//! Several statements with their bound values, as one step.
//!
//! Rows of calls are bound values of one multi-row `values`, because every call pays for this
//! statement. Rarer rows are one JSON array (`json_each`), so the text of the statement does not
//! depend on their number. One statement per row would be 5 to 8 times slower.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, SqliteConnection};

use super::super::{Row, State};
use super::checksum;
use crate::call::InvocationId;

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

/// A bound value.
#[derive(Debug, Clone)]
pub(super) enum SqlValue {
    Null,
    Integer(i64),
    Text(Arc<str>),
    Json(String),
    Word(&'static str),
    Id(InvocationId),
}

impl Script {
    pub(super) fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    pub(super) fn add_statement(&mut self, sql: &'static str) {
        self.add(sql.into(), Vec::new());
    }

    /// Adds a statement with one bound number.
    pub(super) fn add_with_number(&mut self, sql: &'static str, number: i64) {
        self.add(sql.into(), vec![SqlValue::Integer(number)]);
    }

    /// Adds a statement over `rows`, unless there are none.
    pub(super) fn add_with_rows(&mut self, sql: &'static str, rows: &[impl Serialize]) {
        if !rows.is_empty() {
            let rows = serde_json::to_string(rows).unwrap_or_default();
            self.add(sql.into(), vec![SqlValue::Json(rows)]);
        }
    }

    /// Adds rows of calls, each with the counters that it is charged to. Rows of nulls, which the
    /// statement skips, fill the number up to a power of two. So there are few different texts, and
    /// each is prepared only once.
    pub(super) fn add_call_rows<'a>(
        &mut self,
        rows: impl Iterator<Item = (&'a Row, Option<String>)>,
    ) {
        let mut values = Vec::with_capacity(rows.size_hint().0 * ROW_COLUMNS);
        for (row, charged) in rows {
            values.extend(row_values(row, charged));
        }
        if values.is_empty() {
            return;
        }
        let rounded = usize::next_power_of_two(values.len() / ROW_COLUMNS);
        values.resize(rounded * ROW_COLUMNS, SqlValue::Null);
        let mut sql = String::with_capacity(rounded * (ROW_PLACEHOLDERS.len() + 1) + 1024);
        sql.push_str(WRITE_ROWS[0]);
        for at in 0..rounded {
            sql.push_str(if at == 0 { "" } else { "," });
            sql.push_str(ROW_PLACEHOLDERS);
        }
        sql.push_str(WRITE_ROWS[1]);
        self.add(sql.into(), values);
    }

    fn add(&mut self, sql: Cow<'static, str>, values: Vec<SqlValue>) {
        self.statements.push(Statement { sql, values });
    }

    /// Runs all statements on a connection of sqlx. Returns the rows of all of them, in order.
    pub(super) async fn run(
        self,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let (mut sql, mut arguments) = (String::new(), SqliteArguments::default());
        for statement in self.statements {
            sql.push_str(if sql.is_empty() { "" } else { "; " });
            sql.push_str(&statement.sql);
            for value in statement.values {
                value.add_to(&mut arguments).map_err(sqlx::Error::Encode)?;
            }
        }
        sqlx::query_with(AssertSqlSafe(sql), arguments)
            .fetch_all(connection)
            .await
    }
}

impl SqlValue {
    fn add_to(self, arguments: &mut SqliteArguments) -> Result<(), BoxDynError> {
        match self {
            Self::Null => arguments.add(None::<i64>),
            Self::Integer(number) => arguments.add(number),
            Self::Text(text) => arguments.add(text),
            Self::Json(text) => arguments.add(text),
            Self::Word(word) => arguments.add(word),
            Self::Id(id) => arguments.add(id.as_bytes().to_vec()),
        }
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<Arc<str>> for SqlValue {
    fn from(text: Arc<str>) -> Self {
        Self::Text(text)
    }
}

impl From<InvocationId> for SqlValue {
    fn from(id: InvocationId) -> Self {
        Self::Id(id)
    }
}

const ROW_COLUMNS: usize = 23;

/// The values of a row, in the column order of [`WRITE_ROWS`].
fn row_values(row: &Row, charged: Option<String>) -> [SqlValue; ROW_COLUMNS] {
    let sum = (row.state != State::Reserved).then(|| i64::from(checksum::row_checksum(row)));
    [
        row.id.into(),
        row.tool.clone().into(),
        row.caller.clone().into(),
        row.run_id.clone().into(),
        row.tool_use_id.clone().into(),
        SqlValue::Word(row.state.as_str()),
        row.kind
            .map_or(SqlValue::Null, |kind| SqlValue::Word(kind.as_str())),
        SqlValue::Word(row.effect.as_str()),
        SqlValue::Word(row.cache.as_str()),
        i64::from(row.attempts).into(),
        row.started_at.as_millisecond().into(),
        row.duration_us.into(),
        row.arguments.clone().into(),
        row.result.clone().into(),
        row.origin.into(),
        row.meta.clone().into(),
        row.idempotency_key.clone().into(),
        row.fingerprint.clone().into(),
        row.key_until.map(Timestamp::as_millisecond).into(),
        sum.into(),
        row.parent.into(),
        row.detail.clone().into(),
        charged.map_or(SqlValue::Null, SqlValue::Json),
    ]
}
