//! Lists calls, newest first. Partitions are in the order of the ids, so a page comes from the
//! newest partitions.

use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::super::{EndedQuery, LISTED_ARGUMENTS, Query, Row, State};
use super::commit::{storable, to_uuid};
use super::read::{Result, decode_row, first_columns};
use crate::call::InvocationId;

/// A list has no results, and only short arguments: a page of whole calls could be gigabytes.
const LIST: [&str; 2] = [
    concat!(
        first_columns!(),
        "null::text as result, null::text as meta, case when octet_length(arguments) <= "
    ),
    " then arguments else 'null' end as arguments from invocation where true",
];

pub(super) async fn list_calls(pool: &PgPool, filter: &Query) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Postgres>::new(LIST[0]);
    query.push_bind(LISTED_ARGUMENTS as i64).push(LIST[1]);
    push_filters(&mut query, filter);
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(decode_row).collect()
}

/// Adds the conditions of a list, its order and its limit.
pub(super) fn push_filters(query: &mut QueryBuilder<Postgres>, filter: &Query) {
    let mut equals = |column: &str, value: Option<&str>| {
        if let Some(value) = value {
            query
                .push(" and ")
                .push(column)
                .push(" = ")
                .push_bind(storable(value).into_owned());
        }
    };
    equals("tool", filter.tool.as_deref());
    equals("caller", filter.caller.as_deref());
    equals("run_id", filter.run_id.as_deref());
    equals("idempotency_key", filter.idempotency_key.as_deref());
    equals("state", filter.state.map(State::as_str));
    if let Some(parent) = &filter.parent {
        query.push(" and parent = ").push_bind(to_uuid(parent));
    }
    if let Some(since) = filter.since {
        let first = InvocationId::lower_bound(since);
        query.push(" and id >= ").push_bind(to_uuid(&first));
    }
    if let Some(before) = &filter.before {
        query.push(" and id < ").push_bind(to_uuid(before));
    }
    query
        .push(" order by id desc limit ")
        .push_bind(i64::from(filter.limit));
}

/// Calls that ended lately, of all replicas or of the others.
pub(super) async fn list_ended(pool: &PgPool, filter: &EndedQuery) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Postgres>::new(LIST[0]);
    query
        .push_bind(i64::from(filter.max_arguments))
        .push(LIST[1]);
    query
        .push(" and state != 'reserved' and id >= ")
        .push_bind(to_uuid(&filter.from));
    query
        .push(" and (duration_us is null or started_at + duration_us / 1000 >= ")
        .push_bind(filter.ended_since.as_millisecond())
        .push(")");
    if let Some(caller) = &filter.caller {
        query
            .push(" and caller = ")
            .push_bind(storable(caller).into_owned());
    }
    if let Some(replica) = filter
        .not_of_replica
        .as_deref()
        .and_then(|id| id.parse::<Uuid>().ok())
    {
        query.push(" and replica != ").push_bind(replica);
    }
    query
        .push(" order by id desc limit ")
        .push_bind(i64::from(filter.limit));
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(decode_row).collect()
}
