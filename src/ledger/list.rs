//! What the lists of both engines have in common: filters, and the list of calls that ended lately.

use super::buckets::late_expiry;
use super::read::{decode_row, select_listed};
use super::sql::{Dialect, Sql, Store};
use super::{EndedQuery, Error, Query, Row};
use crate::call::{ErrorKind, InvocationId};

/// The text of an error. SQLite ends a JSON string at a NUL, and PostgreSQL cannot decode one.
fn error_text(dialect: Dialect) -> &'static str {
    dialect.pick(
        "case when state not in ('succeeded', 'reserved') and json_valid(result) then coalesce(\
         replace(result, '\\u0000', '\\ufffd') ->> '$.detail', \
         replace(result, '\\u0000', '\\ufffd') ->> '$.content[0].text') end",
        "case when state not in ('succeeded', 'reserved') then coalesce(\
         replace(result, '\\u0000', '\\ufffd')::json ->> 'detail', \
         replace(result, '\\u0000', '\\ufffd')::json -> 'content' -> 0 ->> 'text') end",
    )
}

/// Adds all conditions of a list.
pub(super) fn push_filters(sql: &mut Sql, filter: &Query, dialect: Dialect) {
    sql.and("tool =", filter.tool.as_deref())
        .and("caller =", filter.caller.as_deref())
        .and("run_id =", filter.run_id.as_deref())
        .and("idempotency_key =", filter.idempotency_key.as_deref())
        .and("parent =", filter.parent);
    if !filter.states.is_empty() {
        sql.push(" and state in ")
            .bind_list(filter.states.iter().map(|state| state.as_str()));
    }
    push_texts(sql, filter, dialect);
    push_id_range(sql, filter);
}

/// Adds kind and text.
pub(super) fn push_texts(sql: &mut Sql, filter: &Query, dialect: Dialect) {
    sql.and("kind =", filter.kind.map(ErrorKind::as_str));
    if let Some(text) = &filter.text {
        let position = dialect.pick("instr", "strpos");
        for (before, column) in [
            (" and (", "tool"),
            (" or ", "detail"),
            (" or ", error_text(dialect)),
        ] {
            sql.push(before).push(position).push("(lower(");
            sql.push(column).push("), ").bind(text.to_ascii_lowercase());
            sql.push(") > 0");
        }
        sql.push(")");
    }
}

/// Ids start with the time, so a time is a bound of the id.
pub(super) fn push_id_range(sql: &mut Sql, filter: &Query) {
    sql.and("id >=", filter.since.map(InvocationId::lower_bound))
        .and("id <", filter.until.map(InvocationId::lower_bound))
        .and("id <", filter.before);
}

/// The calls of a list.
pub(super) async fn fetch_listed(store: &dyn Store, sql: Sql) -> Result<Vec<Row>, Error> {
    let rows = store.fetch(sql).await?;
    Ok(rows.iter().map(decode_row).collect::<Result<_, _>>()?)
}

/// Calls that ended lately: a range of ids, of which the index has the newest first.
pub(super) async fn list_ended(store: &dyn Store, filter: &EndedQuery) -> Result<Vec<Row>, Error> {
    let recent = |sql: &mut Sql| {
        sql.and("id >=", Some(filter.from));
    };
    let mut rows = ended_calls(store, filter, recent).await?;
    if filter.late_starts {
        let late = |sql: &mut Sql| {
            sql.push(" and id in (select id from approval where id < ");
            sql.bind(filter.from)
                .push(" and expires_at >= ")
                .bind(late_expiry(filter.ended_since.as_millisecond()))
                .push(")");
        };
        rows.extend(ended_calls(store, filter, late).await?);
        rows.truncate(filter.limit as usize);
    }
    Ok(rows)
}

/// The calls among those with some ids.
async fn ended_calls(
    store: &dyn Store,
    filter: &EndedQuery,
    push_ids: impl FnOnce(&mut Sql) + Send,
) -> Result<Vec<Row>, Error> {
    let mut sql = select_listed(store.dialect(), filter.max_arguments);
    push_ids(&mut sql);
    sql.push(
        " and state <> 'reserved' and (duration_us is null or started_at + duration_us / 1000 >= ",
    );
    sql.bind(filter.ended_since)
        .push(")")
        .and("caller =", filter.caller.as_deref());
    // A file of one machine has no replicas.
    let replica = filter.not_of_replica.as_deref();
    let replica = replica.and_then(|id| id.parse::<InvocationId>().ok());
    sql.and("replica <>", replica).newest(filter.limit);
    fetch_listed(store, sql).await
}
