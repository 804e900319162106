//! Running calls without a row, as the replicas show them to each other.

use std::sync::Arc;

use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::super::{LISTED_ARGUMENTS, Query, Row, State};
use super::commit::{storable, to_uuid};
use super::list::push_filters;
use super::read::{Result, decode_row};
use crate::call::InvocationId;

/// Deletes the calls that the replica runs no longer, and those of replicas that have ended.
const DELETE_ENDED: &str = "delete from running_call where (replica = $1 and id <> all ($2)) \
    or replica in (select boot from replica where ended_at is not null)";
const INSERT: &str = "insert into running_call (id, replica, tool, caller, run_id, tool_use_id, effect, cache, attempts, \
    started_at, arguments, idempotency_key, parent) ";
/// Another replica may have settled this one, which goes on under a new id.
const UPDATE_REPLICA: &str = " on conflict (id) do update set replica = excluded.replica";
/// The columns of `decode_row`. A call with a row is in that table only.
const LIST: &str = "select id, tool, caller, run_id, tool_use_id, 'running' as state, null::text as kind, effect, cache, attempts, \
    started_at, null::bigint as duration_us, null::uuid as origin, idempotency_key, null::text as fingerprint, \
    null::bigint as key_until, parent, 1::bigint as count, null::text as detail, replica, null::text as result, \
    null::text as meta, arguments from running_call where replica in (select boot from replica where ended_at is null) \
    and not exists (select 1 from invocation where invocation.id = running_call.id)";

/// Shows these calls of a replica, `running`, of which `new` were not shown before.
pub(super) async fn show(
    pool: &PgPool,
    replica: Uuid,
    running: &[InvocationId],
    new: &[Arc<Row>],
) -> Result<()> {
    let running: Vec<Uuid> = running.iter().map(to_uuid).collect();
    let mut transaction = pool.begin().await?;
    sqlx::query(DELETE_ENDED)
        .bind(replica)
        .bind(running)
        .execute(&mut *transaction)
        .await?;
    if !new.is_empty() {
        insert(replica, new)
            .build()
            // The statement differs with the number of calls.
            .persistent(false)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

fn insert(replica: Uuid, calls: &[Arc<Row>]) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(INSERT);
    let text = |text: &str| storable(text).into_owned();
    query.push_values(calls, |mut columns, row| {
        let arguments = match row.arguments.len() {
            0..=LISTED_ARGUMENTS => text(&row.arguments),
            _ => "null".to_owned(),
        };
        columns
            .push_bind(to_uuid(&row.id))
            .push_bind(replica)
            .push_bind(text(&row.tool))
            .push_bind(text(&row.caller))
            .push_bind(row.run_id.as_deref().map(text))
            .push_bind(row.tool_use_id.as_deref().map(text))
            .push_bind(row.effect.as_str())
            .push_bind(row.cache.as_str())
            .push_bind(i32::try_from(row.attempts).unwrap_or(i32::MAX))
            .push_bind(row.started_at.as_millisecond())
            .push_bind(arguments)
            .push_bind(row.idempotency_key.as_deref().map(text))
            .push_bind(row.parent.as_ref().map(to_uuid));
    });
    query.push(UPDATE_REPLICA);
    query
}

/// The shown calls of other replicas that match, newest first.
pub(super) async fn list(pool: &PgPool, own: Uuid, filter: &Query) -> Result<Vec<Row>> {
    if !filter.may_have(State::Running) || filter.kind.is_some() {
        return Ok(Vec::new());
    }
    let mut query = QueryBuilder::<Postgres>::new(LIST);
    query.push(" and replica <> ").push_bind(own);
    // The table has no state and no texts.
    let stored = Query {
        states: Vec::new(),
        text: None,
        ..filter.clone()
    };
    push_filters(&mut query, &stored);
    let rows = query.build().fetch_all(pool).await?;
    let rows = rows.iter().map(decode_row);
    rows.filter(|row| row.as_ref().map_or(true, |row| filter.matches(row)))
        .collect()
}

/// A shown call of another replica.
pub(super) async fn find(pool: &PgPool, id: InvocationId) -> Result<Option<Row>> {
    let mut query = QueryBuilder::<Postgres>::new(LIST);
    query.push(" and id = ").push_bind(to_uuid(&id));
    let found = query.build().fetch_optional(pool).await?;
    found.as_ref().map(decode_row).transpose()
}
