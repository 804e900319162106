//! Lists of calls, newest first, at the same speed however many there are.
//!
//! One index serves every filter: `(caller, tool, state, id)`. What is asked for is the newest of a few ranges of it,
//! one for each caller, tool and state that match (`usage_total` knows which callers and tools there are); each range
//! gives at most one page, and the newest of those are the page.

use sqlx::{QueryBuilder, Sqlite, SqlitePool};

use super::super::{LISTED_ARGUMENTS, Query, Row, State};
use super::read::{Result, decode};
use crate::call::InvocationId;

/// A list shows no results, and of the arguments only what is short: a page of whole calls could be gigabytes.
const LISTED: [&str; 2] = [
    "select id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, \
     case when length(arguments) <= ",
    " then arguments else 'null' end, null, origin, null from invocation where id in (",
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
    let mut query = QueryBuilder::<Sqlite>::new(LISTED[0]);
    query.push_bind(LISTED_ARGUMENTS as i64).push(LISTED[1]);
    if let Some(run) = &asked.run_id {
        // A run has few calls beside all there are, and an index of its own.
        query.push("select id from invocation where run_id = ").push_bind(run);
        for (column, wanted) in [
            ("tool", &asked.tool),
            ("caller", &asked.caller),
            ("state", &asked.state.map(|state| state.as_str().into())),
        ] {
            if let Some(wanted) = wanted {
                query.push(" and +").push(column).push(" = ").push_bind(wanted.clone());
            }
        }
        page(&mut query, asked);
    } else if asked.tool.is_none() && asked.caller.is_none() && asked.state.is_none() {
        query.push("select id from invocation where true");
        page(&mut query, asked);
    } else {
        query.push("select i.id from (select caller, tool from usage_total where true");
        for (column, wanted) in [("tool", &asked.tool), ("caller", &asked.caller)] {
            if let Some(wanted) = wanted {
                query.push(" and ").push(column).push(" = ").push_bind(wanted);
            }
        }
        let states: Vec<&str> = match asked.state {
            Some(state) => vec![state.as_str()],
            None => STATES.map(State::as_str).to_vec(),
        };
        query.push(") as made cross join json_each(").push_bind(serde_json::json!(states).to_string());
        query.push(") as state cross join invocation as i on i.id in (select id from invocation as range where ");
        query.push("range.caller = made.caller and range.tool = made.tool and range.state = state.value");
        page(&mut query, asked);
        query.push(") order by i.id desc limit ").push_bind(asked.limit);
    }
    query.push(") order by id desc");
    query.build().fetch_all(pool).await?.iter().map(decode).collect()
}

/// One page of what was asked for so far.
fn page(query: &mut QueryBuilder<Sqlite>, asked: &Query) {
    if let Some(since) = asked.since {
        // Ids begin with the time, so the time filter is a range of the key.
        query.push(" and id >= ").push_bind(InvocationId::floor(since).as_bytes().to_vec());
    }
    if let Some(before) = asked.before {
        query.push(" and id < ").push_bind(before.as_bytes().to_vec());
    }
    query.push(" order by id desc limit ").push_bind(asked.limit);
}
