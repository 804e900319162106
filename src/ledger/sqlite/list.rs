//! Lists of calls, newest first, at the same speed however many there are.
//!
//! One index serves every filter: `(caller, tool, state, id)`. What is asked for is the newest of some ranges of it, one
//! for each caller, tool and state that match (`usage_total` knows which callers and tools there are). They are merged
//! as with a priority queue: the newest call of each range waits in it; whenever one is taken out, the next of its range
//! comes in, until the page is full. In SQL that is a recursive query with `order by` and `limit` (sqlite.org,
//! lang_with.html, "Queue").

use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::super::{LISTED_ARGUMENTS, Query, Row, State};
use super::read::{Result, decode};
use crate::call::InvocationId;

/// A list shows no results, and of the arguments only what is short: a page of whole calls could be gigabytes.
const LISTED: [&str; 2] = [
    "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
     case when length(arguments) <= ",
    " then arguments else 'null' end, null, origin, null from invocation where id in (select id from page) \
     order by id desc",
];

/// The states that rows have.
const STATES: [State; 7] = [
    State::Reserved,
    State::Succeeded,
    State::Failed,
    State::TimedOut,
    State::Cancelled,
    State::Refused,
    State::Unknown,
];

pub(super) async fn list(pool: &SqlitePool, asked: &Query) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Sqlite>::new("");
    if let Some(run) = &asked.run_id {
        query.push("with page (id) as (select id from invocation indexed by invocation_run where run_id = ");
        query.push_bind(run);
        and(&mut query, "tool", asked.tool.as_deref());
        and(&mut query, "caller", asked.caller.as_deref());
        and(&mut query, "state", asked.state.map(State::as_str));
        since(&mut query, asked);
        before(&mut query, asked);
        query.push(" order by id desc limit ").push_bind(asked.limit);
    } else if asked.tool.is_none() && asked.caller.is_none() && asked.state.is_none() {
        query.push("with page (id) as (select id from invocation where true");
        since(&mut query, asked);
        before(&mut query, asked);
        query.push(" order by id desc limit ").push_bind(asked.limit);
    } else {
        query.push("with recursive page (id, caller, tool, state) as (select * from (select (");
        query.push(
            "select id from invocation as i where i.caller = of.caller and i.tool = of.tool and i.state = state.value",
        );
        since(&mut query, asked);
        before(&mut query, asked);
        query.push(" order by id desc limit 1) as id, of.caller, of.tool, state.value from usage_total as of ");
        let states: Vec<&str> = match asked.state {
            Some(state) => vec![state.as_str()],
            None => STATES.map(State::as_str).to_vec(),
        };
        query.push("cross join json_each(").push_bind(serde_json::json!(states).to_string());
        query.push(") as state where true");
        and(&mut query, "of.tool", asked.tool.as_deref());
        and(&mut query, "of.caller", asked.caller.as_deref());
        query.push(") where id is not null union all select (select id from invocation as i ");
        query.push("where i.caller = page.caller and i.tool = page.tool and i.state = page.state and i.id < page.id");
        since(&mut query, asked);
        query.push(" order by id desc limit 1), caller, tool, state from page where id is not null ");
        query.push("order by 1 desc limit ").push_bind(asked.limit);
    }
    query.push(") ").push(LISTED[0]).push_bind(LISTED_ARGUMENTS as i64).push(LISTED[1]);
    query.build().fetch_all(pool).await?.iter().map(decode).collect()
}

fn and(query: &mut QueryBuilder<Sqlite>, column: &str, wanted: Option<&str>) {
    if let Some(wanted) = wanted {
        query.push(" and ").push(column).push(" = ").push_bind(wanted.to_owned());
    }
}

/// Ids begin with the time, so a time is a bound of the key.
fn since(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    if let Some(since) = asked.since {
        query.push(" and id >= ").push_bind(InvocationId::floor(since).as_bytes().to_vec());
    }
}

fn before(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    if let Some(before) = asked.before {
        query.push(" and id < ").push_bind(before.as_bytes().to_vec());
    }
}
