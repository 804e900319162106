//! The connections of PostgreSQL, as the queries of both engines use them.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, TypeInfo as _, ValueRef as _};
use uuid::Uuid;

use super::super::sql::{Dialect, Fetch, Sql, SqlRow, SqlValue};
use super::commit::{storable, to_uuid};

#[async_trait]
impl Fetch for PgConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn stream(&mut self, sql: Sql) -> BoxStream<'_, sqlx::Result<SqlRow>> {
        let rows = to_query(sql).fetch(self);
        rows.map_ok(|row| to_row(&row)).boxed()
    }

    async fn execute(&mut self, sql: Sql) -> sqlx::Result<u64> {
        Ok(to_query(sql).execute(self).await?.rows_affected())
    }
}

/// The statement as sqlx runs it.
pub(super) fn to_query(sql: Sql) -> Query<'static, Postgres, PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.text));
    for value in sql.values {
        query = match value {
            SqlValue::Null | SqlValue::Unreadable => query.bind(None::<i64>),
            SqlValue::Bool(flag) => query.bind(flag),
            SqlValue::Integer(number) => query.bind(number),
            SqlValue::Text(text) => query.bind(storable(&text).into_owned()),
            SqlValue::Owned(text) => query.bind(storable(&text).into_owned()),
            SqlValue::Word(word) => query.bind(word),
            SqlValue::Id(id) => query.bind(to_uuid(&id)),
            SqlValue::Bytes(bytes) => query.bind(bytes),
        };
    }
    // A prepared statement gets one plan for all values after five uses.
    query.persistent(!sql.is_planned_anew)
}

pub(super) fn to_row(row: &PgRow) -> SqlRow {
    SqlRow((0..row.len()).map(|at| to_value(row, at)).collect())
}

fn to_value(row: &PgRow, at: usize) -> SqlValue {
    let read = || {
        let raw = row.try_get_raw(at)?;
        Ok::<_, sqlx::Error>(match raw.type_info().name() {
            _ if raw.is_null() => SqlValue::Null,
            "INT8" => SqlValue::Integer(row.try_get(at)?),
            "INT4" => SqlValue::Integer(row.try_get::<i32, _>(at)?.into()),
            "BOOL" => SqlValue::Integer(row.try_get::<bool, _>(at)?.into()),
            "UUID" => SqlValue::from_bytes(row.try_get::<Uuid, _>(at)?.as_bytes()),
            "BYTEA" => SqlValue::from_bytes(row.try_get(at)?),
            _ => SqlValue::Text(row.try_get::<&str, _>(at)?.into()),
        })
    };
    read().unwrap_or(SqlValue::Unreadable)
}
