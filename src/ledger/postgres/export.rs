//! Reads ended calls in the order of their ids, a page at a time.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::{PgPool, Postgres, QueryBuilder, Row as _};
use uuid::Uuid;

use super::super::exported_page::{join, origins};
use super::super::{AttemptRow, ExportQuery, RecordedCall};
use super::commit::{storable, to_uuid};
use super::read::{Result, decode_attempt, decode_row, first_columns, from_uuid};
use crate::call::InvocationId;

const SELECT_CALLS: &str = concat!(
    first_columns!(),
    "arguments, result, meta from invocation where state <> 'reserved' and id >= "
);
const SELECT_ATTEMPTS: &str = "select attempt, kind, message, duration_us, invocation from attempt where invocation = any($1) \
    order by invocation, attempt";
const SELECT_RESULTS: &str = "select id, result from invocation where id = any($1)";

pub(super) async fn export_calls(pool: &PgPool, wanted: &ExportQuery) -> Result<Vec<RecordedCall>> {
    let (first, end) = wanted.id_range();
    let mut query = QueryBuilder::<Postgres>::new(SELECT_CALLS);
    query.push_bind(to_uuid(&first));
    if let Some(end) = end {
        query.push(" and id < ").push_bind(to_uuid(&end));
    }
    if let Some(after) = wanted.after {
        query.push(" and id > ").push_bind(to_uuid(&after));
    }
    if let Some(tool) = &wanted.tool {
        query
            .push(" and tool = ")
            .push_bind(storable(tool).into_owned());
    }
    query
        .push(" order by id limit ")
        .push_bind(i64::from(wanted.limit));
    let rows = query.build().fetch_all(pool).await?;
    let rows = rows.iter().map(decode_row).collect::<Result<Vec<_>>>()?;

    let ids: Vec<Uuid> = rows.iter().map(|row| to_uuid(&row.id)).collect();
    let attempts = sqlx::query(SELECT_ATTEMPTS)
        .bind(ids)
        .fetch_all(pool)
        .await?;
    let attempt = |row: &PgRow| decode_attempt(from_uuid(row.try_get(4)?), row);
    let attempts = attempts
        .iter()
        .map(attempt)
        .collect::<Result<Vec<AttemptRow>>>()?;

    let origins: Vec<Uuid> = origins(&rows).iter().map(to_uuid).collect();
    let mut results: HashMap<InvocationId, Option<Arc<str>>> = HashMap::new();
    if !origins.is_empty() {
        for row in sqlx::query(SELECT_RESULTS)
            .bind(origins)
            .fetch_all(pool)
            .await?
        {
            let result = row.try_get::<Option<&str>, _>(1)?.map(Arc::from);
            results.insert(from_uuid(row.try_get(0)?), result);
        }
    }
    Ok(join(rows, attempts, &results))
}
