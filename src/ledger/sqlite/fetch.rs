//! The connections of SQLite, as the queries of both engines use them.

use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments as _, AssertSqlSafe, Row as _, SqliteConnection, TypeInfo as _, ValueRef as _,
};

use super::super::sql::{Dialect, Fetch, Sql, SqlRow, SqlValue};
use async_trait::async_trait;

#[async_trait]
impl Fetch for SqliteConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn stream(&mut self, sql: Sql) -> BoxStream<'_, sqlx::Result<SqlRow>> {
        let rows = sqlx::query_with(AssertSqlSafe(sql.text), arguments(sql.values)).fetch(self);
        rows.map_ok(|row| to_row(&row)).boxed()
    }

    async fn execute(&mut self, sql: Sql) -> sqlx::Result<u64> {
        let query = sqlx::query_with(AssertSqlSafe(sql.text), arguments(sql.values));
        Ok(query.execute(self).await?.rows_affected())
    }
}

/// The values as sqlx binds them.
pub(super) fn arguments(values: impl IntoIterator<Item = SqlValue>) -> SqliteArguments {
    let mut arguments = SqliteArguments::default();
    for value in values {
        // No value of these types fails.
        let _ = match value {
            SqlValue::Null | SqlValue::Unreadable => arguments.add(None::<i64>),
            SqlValue::Bool(flag) => arguments.add(flag),
            SqlValue::Integer(number) => arguments.add(number),
            SqlValue::Text(text) => arguments.add(text),
            SqlValue::Owned(text) => arguments.add(text),
            SqlValue::Word(word) => arguments.add(word),
            SqlValue::Id(id) => arguments.add(id.as_bytes().to_vec()),
            SqlValue::Bytes(bytes) => arguments.add(bytes),
        };
    }
    arguments
}

fn to_row(row: &SqliteRow) -> SqlRow {
    SqlRow((0..row.len()).map(|at| to_value(row, at)).collect())
}

fn to_value(row: &SqliteRow, at: usize) -> SqlValue {
    let read = || {
        let raw = row.try_get_raw(at)?;
        Ok::<_, sqlx::Error>(match raw.type_info().name() {
            _ if raw.is_null() => SqlValue::Null,
            "INTEGER" => SqlValue::Integer(row.try_get(at)?),
            "TEXT" => SqlValue::Text(row.try_get::<&str, _>(at)?.into()),
            "BLOB" => SqlValue::from_bytes(row.try_get(at)?),
            _ => SqlValue::Unreadable,
        })
    };
    read().unwrap_or(SqlValue::Unreadable)
}
