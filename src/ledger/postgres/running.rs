//! Running calls without a row, as the replicas show them to each other.

use std::sync::Arc;

use sqlx::PgPool;
use uuid::Uuid;

use super::super::list::{fetch_listed, push_filters};
use super::super::sql::{Dialect, Fetch as _, Sql, SqlValue, Store};
use super::super::{Error, LISTED_ARGUMENTS, Query, Row, State};
use super::commit::{from_uuid, to_uuid};
use crate::call::InvocationId;

/// Deletes the calls that the replica runs no longer, and those of replicas that have ended.
const DELETE_ENDED: &str = "delete from running_call where (replica = $1 and id <> all ($2)) \
    or replica in (select boot from replica where ended_at is not null)";
const INSERT: &str = "insert into running_call (id, replica, tool, caller, run_id, tool_use_id, effect, cache, attempts, \
    started_at, arguments, idempotency_key, parent) values ";
/// Another replica may have settled this one, which goes on under a new id.
const UPDATE_REPLICA: &str = " on conflict (id) do update set replica = excluded.replica";
/// The columns of `decode_row`. A call with a row is in that table only.
const LIST: &str = "select id, tool, caller, run_id, tool_use_id, 'running', null, effect, cache, attempts, started_at, null, null, \
    idempotency_key, null, null, parent, null, 1::bigint, replica, null, arguments, null, null from running_call \
    where replica in (select boot from replica where ended_at is null) \
    and not exists (select 1 from invocation where invocation.id = running_call.id)";

/// Shows these calls of a replica, `running`, of which `new` were not shown before.
pub(super) async fn show(
    pool: &PgPool,
    replica: Uuid,
    running: &[InvocationId],
    new: &[Arc<Row>],
) -> sqlx::Result<()> {
    let running: Vec<Uuid> = running.iter().map(to_uuid).collect();
    let mut transaction = pool.begin().await?;
    sqlx::query(DELETE_ENDED)
        .bind(replica)
        .bind(running)
        .execute(&mut *transaction)
        .await?;
    if !new.is_empty() {
        transaction.execute(insert(replica, new)).await?;
    }
    transaction.commit().await
}

fn insert(replica: Uuid, calls: &[Arc<Row>]) -> Sql {
    let mut sql = Sql::new(INSERT);
    let line = |row: &Arc<Row>| {
        let arguments = match row.arguments.len() {
            0..=LISTED_ARGUMENTS => row.arguments.clone(),
            _ => "null".into(),
        };
        [
            row.id.into(),
            SqlValue::Id(from_uuid(replica)),
            row.tool.clone().into(),
            row.caller.clone().into(),
            row.run_id.clone().into(),
            row.tool_use_id.clone().into(),
            SqlValue::Word(row.effect.as_str()),
            SqlValue::Word(row.cache.as_str()),
            row.attempts.into(),
            row.started_at.into(),
            arguments.into(),
            row.idempotency_key.clone().into(),
            row.parent.into(),
        ]
    };
    sql.bind_rows(calls.iter().map(line)).push(UPDATE_REPLICA);
    // The statement differs with the number of calls.
    sql.is_planned_anew = true;
    sql
}

/// The shown calls of other replicas that match, newest first.
pub(super) async fn list(store: &dyn Store, own: Uuid, filter: &Query) -> Result<Vec<Row>, Error> {
    if !filter.may_have(State::Running) || filter.kind.is_some() {
        return Ok(Vec::new());
    }
    let mut sql = Sql::new(LIST);
    sql.and("replica <>", Some(from_uuid(own)));
    // The table has no state and no texts.
    let stored = Query {
        states: Vec::new(),
        text: None,
        ..filter.clone()
    };
    push_filters(&mut sql, &stored, Dialect::Postgres);
    sql.newest(filter.limit);
    let mut rows = fetch_listed(store, sql).await?;
    rows.retain(|row| filter.matches(row));
    Ok(rows)
}

/// A shown call of another replica.
pub(super) async fn find(store: &dyn Store, id: InvocationId) -> Result<Option<Row>, Error> {
    let mut sql = Sql::new(LIST);
    sql.and("id =", Some(id));
    Ok(fetch_listed(store, sql).await?.pop())
}
