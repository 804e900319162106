//! Lists calls, newest first, at the same speed for any number of calls.
//!
//! One index serves every filter: `(caller, tool, state, id)`. A list needs the newest calls of
//! several ranges of it: one range for each matching caller, tool and state (`usage_total` has all
//! callers and tools). The ranges are merged with a priority queue. It holds the newest call of
//! each range. When a call is taken out, the next one of its range comes in, until the page is
//! full. In SQL that is a recursive query with `order by` and `limit` (sqlite.org, lang_with.html,
//! "Queue").

use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::super::count_by_time::late_expiry;
use super::super::{EndedQuery, LISTED_ARGUMENTS, Query, Row, State};
use super::read::{Result, decode_row};
use crate::call::InvocationId;

/// A list has no results, and only short arguments: a page of whole calls could be gigabytes.
const LIST_SQL: [&str; 3] = [
    "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
     case when length(arguments) <= ",
    " then arguments else 'null' end, null, origin, null, idempotency_key, null, null, null, parent, count, detail from invocation where ",
    "id in (select id from page) order by id desc limit ",
];

/// The states of calls that have ended.
const ENDED_STATES: [State; 6] = [
    State::Succeeded,
    State::Failed,
    State::TimedOut,
    State::Cancelled,
    State::Refused,
    State::Unknown,
];

pub(super) async fn list_calls(pool: &SqlitePool, filter: &Query) -> Result<Vec<Row>> {
    let mut query =
        QueryBuilder::<Sqlite>::new("with recursive page (id, caller, tool, state) as (");
    let is_unfiltered = filter.run_id.is_none()
        && filter.tool.is_none()
        && filter.caller.is_none()
        && filter.state.is_none();
    if let Some(parent) = filter.parent {
        push_nested_calls(&mut query, filter, parent);
    } else if let Some(key) = &filter.idempotency_key {
        push_calls_with_key(&mut query, filter, key);
    } else if is_unfiltered {
        query.push("select id, null, null, null from invocation where true");
        push_id_range(&mut query, filter);
        query
            .push(" order by id desc limit ")
            .push_bind(filter.limit);
    } else {
        if filter.state.is_none_or(|state| state == State::Reserved) {
            push_running_calls(&mut query, filter);
        }
        if filter.state.is_none() {
            query.push(" union all ");
        }
        match (filter.state, &filter.run_id) {
            (Some(State::Reserved), _) => {}
            (_, Some(run)) => push_calls_of_run(&mut query, filter, run),
            (_, None) => push_merged_ranges(&mut query, filter),
        }
    }
    query
        .push(") ")
        .push(LIST_SQL[0])
        .push_bind(LISTED_ARGUMENTS as i64)
        .push(LIST_SQL[1])
        .push(LIST_SQL[2])
        .push_bind(filter.limit);
    query
        .build()
        .fetch_all(pool)
        .await?
        .iter()
        .map(decode_row)
        .collect()
}

/// Calls that ended lately: a range of ids, of which the index has the newest first.
pub(super) async fn list_ended(pool: &SqlitePool, filter: &EndedQuery) -> Result<Vec<Row>> {
    let from = filter.from.as_bytes().to_vec();
    let mut rows = ended_calls(pool, filter, |query| {
        query.push("id >= ").push_bind(from.clone());
    })
    .await?;
    if filter.late_starts {
        let late = ended_calls(pool, filter, |query| {
            query
                .push("id in (select id from approval where id < ")
                .push_bind(from.clone())
                .push(" and expires_at >= ")
                .push_bind(late_expiry(filter.ended_since.as_millisecond()))
                .push(")");
        });
        rows.extend(late.await?);
        rows.truncate(filter.limit as usize);
    }
    Ok(rows)
}

/// The calls among those with some ids.
async fn ended_calls(
    pool: &SqlitePool,
    filter: &EndedQuery,
    push_ids: impl FnOnce(&mut QueryBuilder<Sqlite>),
) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Sqlite>::new(LIST_SQL[0]);
    query.push_bind(i64::from(filter.max_arguments));
    query.push(LIST_SQL[1]);
    push_ids(&mut query);
    query.push(
        " and state != 'reserved' and (duration_us is null or started_at + duration_us / 1000 >= ",
    );
    query.push_bind(filter.ended_since.as_millisecond());
    query.push(")");
    push_condition(&mut query, "caller", filter.caller.as_deref());
    query
        .push(" order by id desc limit ")
        .push_bind(filter.limit);
    query
        .build()
        .fetch_all(pool)
        .await?
        .iter()
        .map(decode_row)
        .collect()
}

/// Calls with an idempotency key, including running ones: a range of an index of their own.
fn push_calls_with_key(query: &mut QueryBuilder<Sqlite>, filter: &Query, key: &str) {
    query.push("select id, null, null, null from invocation indexed by invocation_keyed where idempotency_key = ");
    query.push_bind(key.to_owned());
    push_condition(query, "tool", filter.tool.as_deref());
    push_condition(query, "caller", filter.caller.as_deref());
    push_condition(query, "run_id", filter.run_id.as_deref());
    push_condition(query, "state", filter.state.map(State::as_str));
    push_id_range(query, filter);
    query
        .push(" order by id desc limit ")
        .push_bind(filter.limit);
}

/// Nested calls of another call, including running ones: a range of an index of their own.
fn push_nested_calls(query: &mut QueryBuilder<Sqlite>, filter: &Query, parent: InvocationId) {
    query.push(
        "select id, null, null, null from invocation indexed by invocation_parent where parent = ",
    );
    query.push_bind(parent.as_bytes().to_vec());
    push_condition(query, "tool", filter.tool.as_deref());
    push_condition(query, "caller", filter.caller.as_deref());
    push_condition(query, "run_id", filter.run_id.as_deref());
    push_condition(query, "idempotency_key", filter.idempotency_key.as_deref());
    push_condition(query, "state", filter.state.map(State::as_str));
    push_id_range(query, filter);
    query
        .push(" order by id desc limit ")
        .push_bind(filter.limit);
}

/// Calls that have not ended. There are always few.
fn push_running_calls(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    query.push(
        "select * from (select id, null, null, null from invocation where state = 'reserved'",
    );
    push_condition(query, "tool", filter.tool.as_deref());
    push_condition(query, "caller", filter.caller.as_deref());
    push_condition(query, "run_id", filter.run_id.as_deref());
    push_id_range(query, filter);
    query
        .push(" order by id desc limit ")
        .push_bind(filter.limit)
        .push(")");
}

/// Ended calls of a run: a range of its own index, which has all columns of the filters.
fn push_calls_of_run(query: &mut QueryBuilder<Sqlite>, filter: &Query, run: &str) {
    query.push(
        "select * from (select id, null, null, null from invocation indexed by invocation_run ",
    );
    query
        .push("where state != 'reserved' and run_id = ")
        .push_bind(run.to_owned());
    push_condition(query, "tool", filter.tool.as_deref());
    push_condition(query, "caller", filter.caller.as_deref());
    push_condition(query, "state", filter.state.map(State::as_str));
    push_id_range(query, filter);
    query
        .push(" order by id desc limit ")
        .push_bind(filter.limit)
        .push(")");
}

/// Ended calls, merged from their ranges.
fn push_merged_ranges(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    let states: Vec<&str> = match filter.state {
        Some(state) => vec![state.as_str()],
        None => ENDED_STATES.map(State::as_str).to_vec(),
    };
    query
        .push("select * from (select (select id from invocation as i where i.state != 'reserved' ");
    query.push("and i.caller = made.caller and i.tool = made.tool and i.state = state.value");
    push_id_range(query, filter);
    query.push(" order by id desc limit 1) as id, made.caller, made.tool, state.value from usage_total as made ");
    query
        .push("cross join json_each(")
        .push_bind(serde_json::json!(states).to_string());
    query.push(") as state where true");
    push_condition(query, "made.tool", filter.tool.as_deref());
    push_condition(query, "made.caller", filter.caller.as_deref());
    query.push(") where id is not null union all select (select id from invocation as i where i.state != 'reserved' ");
    query.push("and i.caller = page.caller and i.tool = page.tool and i.state = page.state and i.id < page.id");
    push_since(query, filter);
    query.push(" order by id desc limit 1), caller, tool, state from page where id is not null ");
    query.push("order by 1 desc limit ").push_bind(filter.limit);
}

fn push_condition(query: &mut QueryBuilder<Sqlite>, column: &str, value: Option<&str>) {
    if let Some(value) = value {
        query
            .push(" and ")
            .push(column)
            .push(" = ")
            .push_bind(value.to_owned());
    }
}

/// Ids start with the time, so a time is a bound of the id.
fn push_since(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    if let Some(since) = filter.since {
        query
            .push(" and id >= ")
            .push_bind(InvocationId::lower_bound(since).as_bytes().to_vec());
    }
}

fn push_id_range(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    push_since(query, filter);
    if let Some(before) = filter.before {
        query
            .push(" and id < ")
            .push_bind(before.as_bytes().to_vec());
    }
}
