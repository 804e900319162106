//! Reads ended calls in the order of their ids, a page at a time.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqlitePool};

use super::super::exported_page::{join, origins};
use super::super::{AttemptRow, ExportQuery, RecordedCall};
use super::read::{Result, SELECT_ROW, decode_attempt, decode_verified, parse_id};
use crate::call::InvocationId;

const SELECT_ATTEMPTS: &str = "select attempt, kind, message, duration_us, invocation from attempt \
    where invocation in (select unhex(value) from json_each(?)) order by invocation, attempt";
const SELECT_RESULTS: &str =
    "select id, result from invocation where id in (select unhex(value) from json_each(?))";

pub(super) async fn export_calls(
    pool: &SqlitePool,
    wanted: &ExportQuery,
) -> Result<Vec<RecordedCall>> {
    let (first, end) = wanted.id_range();
    let mut query = QueryBuilder::<Sqlite>::new(SELECT_ROW);
    query.push(" and state != 'reserved' and id >= ");
    query.push_bind(first.as_bytes().to_vec());
    if let Some(end) = end {
        query.push(" and id < ").push_bind(end.as_bytes().to_vec());
    }
    if let Some(after) = wanted.after {
        query
            .push(" and id > ")
            .push_bind(after.as_bytes().to_vec());
    }
    if let Some(tool) = &wanted.tool {
        query.push(" and tool = ").push_bind(tool.clone());
    }
    query.push(" order by id limit ").push_bind(wanted.limit);
    let rows = query.build().fetch_all(pool).await?;
    let rows = rows
        .iter()
        .map(decode_verified)
        .collect::<Result<Vec<_>>>()?;

    let ids = hex_list(rows.iter().map(|row| row.id));
    let attempts = sqlx::query(SELECT_ATTEMPTS)
        .bind(ids)
        .fetch_all(pool)
        .await?;
    let attempt = |row: &SqliteRow| decode_attempt(parse_id(row.try_get(4)?)?, row);
    let attempts = attempts
        .iter()
        .map(attempt)
        .collect::<Result<Vec<AttemptRow>>>()?;

    let origins = origins(&rows);
    let mut results: HashMap<InvocationId, Option<Arc<str>>> = HashMap::new();
    if !origins.is_empty() {
        let select = sqlx::query(SELECT_RESULTS).bind(hex_list(origins.into_iter()));
        for row in select.fetch_all(pool).await? {
            let result = row.try_get::<Option<&str>, _>(1)?.map(Arc::from);
            results.insert(parse_id(row.try_get(0)?)?, result);
        }
    }
    Ok(join(rows, attempts, &results))
}

/// Ids as a JSON array for a statement.
pub(super) fn hex_list(ids: impl Iterator<Item = InvocationId>) -> String {
    let ids: Vec<String> = ids.map(|id| hex::encode(id.as_bytes())).collect();
    serde_json::to_string(&ids).unwrap_or_default()
}
