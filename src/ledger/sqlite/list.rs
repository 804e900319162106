//! Lists calls, newest first, at the same speed for any number of calls.
//!
//! One index serves every filter: `(caller, tool, state, id)`. A list needs the newest calls of several ranges of it:
//! one range for each matching caller, tool and state (`usage_total` has all callers and tools). The ranges are merged
//! with a priority queue. It holds the newest call of each range. When a call is taken out, the next one of its range
//! comes in, until the page is full. In SQL that is a recursive query with `order by` and `limit` (sqlite.org,
//! lang_with.html, "Queue").

use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::super::{LISTED_ARGUMENTS, Query, Row, State};
use super::read::{Result, decode};
use crate::call::InvocationId;

/// A list has no results, and only short arguments: a page of whole calls could be gigabytes.
const LISTED: [&str; 2] = [
    "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
     case when length(arguments) <= ",
    " then arguments else 'null' end, null, origin, null, idempotency_key, null, null, null, parent, count from invocation where id in (select id from page) \
     order by id desc limit ",
];

/// The states of calls that have ended.
const ENDED: [State; 6] =
    [State::Succeeded, State::Failed, State::TimedOut, State::Cancelled, State::Refused, State::Unknown];

pub(super) async fn list(pool: &SqlitePool, asked: &Query) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Sqlite>::new("with recursive page (id, caller, tool, state) as (");
    let everything = asked.run_id.is_none() && asked.tool.is_none() && asked.caller.is_none() && asked.state.is_none();
    if let Some(parent) = asked.parent {
        of_parent(&mut query, asked, parent);
    } else if let Some(key) = &asked.idempotency_key {
        of_key(&mut query, asked, key);
    } else if everything {
        query.push("select id, null, null, null from invocation where true");
        range(&mut query, asked);
        query.push(" order by id desc limit ").push_bind(asked.limit);
    } else {
        if asked.state.is_none_or(|state| state == State::Reserved) {
            under_way(&mut query, asked);
        }
        if asked.state.is_none() {
            query.push(" union all ");
        }
        match (asked.state, &asked.run_id) {
            (Some(State::Reserved), _) => {}
            (_, Some(run)) => of_run(&mut query, asked, run),
            (_, None) => merged(&mut query, asked),
        }
    }
    query.push(") ").push(LISTED[0]).push_bind(LISTED_ARGUMENTS as i64).push(LISTED[1]).push_bind(asked.limit);
    query.build().fetch_all(pool).await?.iter().map(decode).collect()
}

/// Calls with an idempotency key, including running ones: a range of an index of their own.
fn of_key(query: &mut QueryBuilder<Sqlite>, asked: &Query, key: &str) {
    query.push("select id, null, null, null from invocation indexed by invocation_keyed where idempotency_key = ");
    query.push_bind(key.to_owned());
    and(query, "tool", asked.tool.as_deref());
    and(query, "caller", asked.caller.as_deref());
    and(query, "run_id", asked.run_id.as_deref());
    and(query, "state", asked.state.map(State::as_str));
    range(query, asked);
    query.push(" order by id desc limit ").push_bind(asked.limit);
}

/// Nested calls of another call, including running ones: a range of an index of their own.
fn of_parent(query: &mut QueryBuilder<Sqlite>, asked: &Query, parent: InvocationId) {
    query.push("select id, null, null, null from invocation indexed by invocation_parent where parent = ");
    query.push_bind(parent.as_bytes().to_vec());
    and(query, "tool", asked.tool.as_deref());
    and(query, "caller", asked.caller.as_deref());
    and(query, "run_id", asked.run_id.as_deref());
    and(query, "idempotency_key", asked.idempotency_key.as_deref());
    and(query, "state", asked.state.map(State::as_str));
    range(query, asked);
    query.push(" order by id desc limit ").push_bind(asked.limit);
}

/// Calls that have not ended. There are always few.
fn under_way(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    query.push("select * from (select id, null, null, null from invocation where state = 'reserved'");
    and(query, "tool", asked.tool.as_deref());
    and(query, "caller", asked.caller.as_deref());
    and(query, "run_id", asked.run_id.as_deref());
    range(query, asked);
    query.push(" order by id desc limit ").push_bind(asked.limit).push(")");
}

/// Ended calls of a run: a range of its own index, which has all columns of the filters.
fn of_run(query: &mut QueryBuilder<Sqlite>, asked: &Query, run: &str) {
    query.push("select * from (select id, null, null, null from invocation indexed by invocation_run ");
    query.push("where state != 'reserved' and run_id = ").push_bind(run.to_owned());
    and(query, "tool", asked.tool.as_deref());
    and(query, "caller", asked.caller.as_deref());
    and(query, "state", asked.state.map(State::as_str));
    range(query, asked);
    query.push(" order by id desc limit ").push_bind(asked.limit).push(")");
}

/// Ended calls, merged from their ranges.
fn merged(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    let states: Vec<&str> = match asked.state {
        Some(state) => vec![state.as_str()],
        None => ENDED.map(State::as_str).to_vec(),
    };
    query.push("select * from (select (select id from invocation as i where i.state != 'reserved' ");
    query.push("and i.caller = made.caller and i.tool = made.tool and i.state = state.value");
    range(query, asked);
    query.push(" order by id desc limit 1) as id, made.caller, made.tool, state.value from usage_total as made ");
    query.push("cross join json_each(").push_bind(serde_json::json!(states).to_string());
    query.push(") as state where true");
    and(query, "made.tool", asked.tool.as_deref());
    and(query, "made.caller", asked.caller.as_deref());
    query.push(") where id is not null union all select (select id from invocation as i where i.state != 'reserved' ");
    query.push("and i.caller = page.caller and i.tool = page.tool and i.state = page.state and i.id < page.id");
    since(query, asked);
    query.push(" order by id desc limit 1), caller, tool, state from page where id is not null ");
    query.push("order by 1 desc limit ").push_bind(asked.limit);
}

fn and(query: &mut QueryBuilder<Sqlite>, column: &str, wanted: Option<&str>) {
    if let Some(wanted) = wanted {
        query.push(" and ").push(column).push(" = ").push_bind(wanted.to_owned());
    }
}

/// Ids start with the time, so a time is a bound of the id.
fn since(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    if let Some(since) = asked.since {
        query.push(" and id >= ").push_bind(InvocationId::floor(since).as_bytes().to_vec());
    }
}

fn range(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    since(query, asked);
    if let Some(before) = asked.before {
        query.push(" and id < ").push_bind(before.as_bytes().to_vec());
    }
}
