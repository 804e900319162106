//! Lists calls, newest first, at the same speed for any number of calls.
//!
//! One index serves every filter: `(caller, tool, state, id)`. A list needs the newest calls of
//! several ranges of it: one range for each matching caller, tool and state (`usage_total` has all
//! callers and tools). The ranges are merged with a priority queue. It holds the newest call of
//! each range. When a call is taken out, the next one of its range comes in, until the page is
//! full. In SQL that is a recursive query with `order by` and `limit` (sqlite.org, lang_with.html,
//! "Queue").
//!
//! No index has kinds and texts. A list with such a filter reads the calls of its ranges one by one.

use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::super::count_by_time::late_expiry;
use super::super::{EndedQuery, LISTED_ARGUMENTS, Query, Row, State};
use super::read::{Result, decode_row};
use crate::call::{ErrorKind, InvocationId};

/// A list has no results, and only short arguments: a page of whole calls could be gigabytes.
const LIST_SQL: [&str; 3] = [
    "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
     case when length(arguments) <= ",
    " then arguments else 'null' end, null, origin, null, idempotency_key, null, null, null, parent, count, detail from invocation where ",
    "id in (select id from page) order by id desc limit ",
];

/// The text of an error. SQLite ends a JSON string at a NUL.
const ERROR_TEXT: &str = "coalesce(replace(result, '\\u0000', '\\ufffd') ->> '$.detail', \
    replace(result, '\\u0000', '\\ufffd') ->> '$.content[0].text')";

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
        && filter.states.is_empty()
        && filter.kind.is_none()
        && filter.text.is_none();
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
        let ended = ENDED_STATES.map(|state| filter.may_have(state));
        let has_running = filter.may_have(State::Reserved);
        if !has_running && !ended.contains(&true) {
            // No row has such a state.
            return Ok(Vec::new());
        }
        if has_running {
            push_running_calls(&mut query, filter);
        }
        if has_running && ended.contains(&true) {
            query.push(" union all ");
        }
        match &filter.run_id {
            _ if !ended.contains(&true) => {}
            Some(run) => push_calls_of_run(&mut query, filter, run),
            None => push_merged_ranges(&mut query, filter),
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
    push_states(query, filter);
    push_texts(query, filter);
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
    push_states(query, filter);
    push_texts(query, filter);
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
    push_texts(query, filter);
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
    push_states(query, filter);
    push_texts(query, filter);
    push_id_range(query, filter);
    query
        .push(" order by id desc limit ")
        .push_bind(filter.limit)
        .push(")");
}

/// Ended calls, merged from their ranges.
fn push_merged_ranges(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    let states = ENDED_STATES.into_iter();
    let states: Vec<&str> = states
        .filter(|state| filter.may_have(*state))
        .map(State::as_str)
        .collect();
    query
        .push("select * from (select (select id from invocation as i where i.state != 'reserved' ");
    query.push("and i.caller = made.caller and i.tool = made.tool and i.state = state.value");
    push_texts(query, filter);
    push_id_range(query, filter);
    query.push(" order by id desc limit 1) as id, made.caller, made.tool, state.value from usage_total as made ");
    query
        .push("cross join json_each(")
        .push_bind(serde_json::json!(states).to_string());
    query.push(") as state where true");
    push_condition(query, "made.tool", filter.tool.as_deref());
    push_condition(query, "made.caller", filter.caller.as_deref());
    if let Some(text) = &filter.text {
        // A call that succeeded has no text but the name of its tool. So its range is read only if
        // that name matches.
        query.push(" and (state.value != 'succeeded' or instr(lower(made.tool), ");
        query.push_bind(text.to_ascii_lowercase()).push(") > 0)");
    }
    query.push(") where id is not null union all select (select id from invocation as i where i.state != 'reserved' ");
    query.push("and i.caller = page.caller and i.tool = page.tool and i.state = page.state and i.id < page.id");
    push_texts(query, filter);
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

fn push_states(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        query
            .push(" and state in (select value from json_each(")
            .push_bind(serde_json::json!(states).to_string())
            .push("))");
    }
}

/// The conditions that no index serves: kind and text.
fn push_texts(query: &mut QueryBuilder<Sqlite>, filter: &Query) {
    push_condition(query, "kind", filter.kind.map(ErrorKind::as_str));
    if let Some(text) = &filter.text {
        let text = text.to_ascii_lowercase();
        query
            .push(" and (instr(lower(tool), ")
            .push_bind(text.clone());
        query.push(") > 0 or instr(lower(detail), ");
        query.push_bind(text.clone());
        query.push(") > 0 or state not in ('succeeded', 'reserved') and json_valid(result) and instr(lower(");
        query.push(ERROR_TEXT).push("), ");
        query.push_bind(text).push(") > 0)");
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
    if let Some(until) = filter.until {
        query
            .push(" and id < ")
            .push_bind(InvocationId::lower_bound(until).as_bytes().to_vec());
    }
    if let Some(before) = filter.before {
        query
            .push(" and id < ")
            .push_bind(before.as_bytes().to_vec());
    }
}
