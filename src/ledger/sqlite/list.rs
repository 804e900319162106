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

use super::super::list::{fetch_listed, push_filters, push_id_range, push_texts};
use super::super::read::select_listed;
use super::super::sql::{Dialect, Sql, Store};
use super::super::{Error, LISTED_ARGUMENTS, Query, Row, State};
use crate::call::InvocationId;

pub(super) async fn list_calls(store: &dyn Store, filter: &Query) -> Result<Vec<Row>, Error> {
    let mut sql = select_listed(Dialect::Sqlite, LISTED_ARGUMENTS as u32);
    sql.push(" and id in (with recursive page (id, caller, tool, state) as (");
    if !push_page(&mut sql, filter) {
        return Ok(Vec::new());
    }
    sql.push(") select id from page)").newest(filter.limit);
    fetch_listed(store, sql).await
}

/// Adds a query for the ids of a page. Returns whether a row can have such a state.
fn push_page(sql: &mut Sql, filter: &Query) -> bool {
    let is_unfiltered = filter.run_id.is_none()
        && filter.tool.is_none()
        && filter.caller.is_none()
        && filter.states.is_empty()
        && filter.kind.is_none()
        && filter.text.is_none();
    let has_running = filter.may_have(State::Reserved);
    let has_ended = State::ENDS.iter().any(|state| filter.may_have(*state));
    if filter.parent.is_some() {
        push_range(sql, "indexed by invocation_parent where true", filter);
    } else if filter.idempotency_key.is_some() {
        push_range(sql, "indexed by invocation_keyed where true", filter);
    } else if is_unfiltered {
        push_range(sql, "where true", filter);
    } else {
        if has_running {
            // There are always few.
            push_range(sql, "where state = 'reserved'", filter);
        }
        if has_running && has_ended {
            sql.push(" union all ");
        }
        match filter.run_id {
            _ if !has_ended => {}
            // This index has all columns of the filters.
            Some(_) => push_range(
                sql,
                "indexed by invocation_run where state != 'reserved'",
                filter,
            ),
            None => push_merged_ranges(sql, filter),
        }
        return has_running || has_ended;
    }
    true
}

/// Adds the newest calls of a range of an index.
fn push_range(sql: &mut Sql, range: &str, filter: &Query) {
    sql.push("select * from (select id, null, null, null from invocation ")
        .push(range);
    push_filters(sql, filter, Dialect::Sqlite);
    sql.newest(filter.limit).push(")");
}

/// Adds ended calls, merged from their ranges.
fn push_merged_ranges(sql: &mut Sql, filter: &Query) {
    let states = State::ENDS.into_iter();
    let states: Vec<&str> = states
        .filter(|state| filter.may_have(*state))
        .map(State::as_str)
        .collect();
    sql.push(
        "select * from (select (select id from invocation as i where i.state != 'reserved' \
         and i.caller = made.caller and i.tool = made.tool and i.state = state.value",
    );
    push_texts(sql, filter, Dialect::Sqlite);
    push_id_range(sql, filter);
    sql.push(" order by id desc limit 1) as id, made.caller, made.tool, state.value from usage_total as made cross join json_each(")
        .bind(serde_json::json!(states).to_string())
        .push(") as state where true")
        .and("made.tool =", filter.tool.as_deref())
        .and("made.caller =", filter.caller.as_deref());
    if let Some(text) = &filter.text {
        // A call that succeeded has no text but the name of its tool. So its range is read only if
        // that name matches.
        sql.push(" and (state.value != 'succeeded' or instr(lower(made.tool), ")
            .bind(text.to_ascii_lowercase())
            .push(") > 0)");
    }
    sql.push(
        ") where id is not null union all select (select id from invocation as i where i.state != 'reserved' \
         and i.caller = page.caller and i.tool = page.tool and i.state = page.state and i.id < page.id",
    );
    push_texts(sql, filter, Dialect::Sqlite);
    sql.and("id >=", filter.since.map(InvocationId::lower_bound));
    sql.push(
        " order by id desc limit 1), caller, tool, state from page where id is not null order by 1 desc limit ",
    )
    .bind(filter.limit);
}
