//! Lists calls, newest first. Partitions are in the order of the ids, so a page comes from the
//! newest partitions. A query about a range of time opens and plans only the partitions of that time.
//! So a list asks about the newest days first, and about earlier ones if the page is not full.
//!
//! Each list is planned anew, with its values. A prepared statement gets one plan for all values
//! after five uses. That plan does not know which values are rare, and cannot use indexes of some
//! states: over 40 million rows, it took seconds instead of milliseconds.

use jiff::{SignedDuration, Timestamp};
use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::super::count_by_time::late_expiry;
use super::super::{EndedQuery, LISTED_ARGUMENTS, Query, Row};
use super::commit::{storable, to_uuid};
use super::read::{Result, decode_row, first_columns};
use crate::call::{ErrorKind, InvocationId};

/// A list has no results, and only short arguments: a page of whole calls could be gigabytes.
const LIST: [&str; 2] = [
    concat!(
        first_columns!(),
        "null::text as result, null::text as meta, case when octet_length(arguments) <= "
    ),
    " then arguments else 'null' end as arguments from invocation where true",
];

/// How far before the end of a list its parts reach. The last part has all earlier calls.
const PARTS: [SignedDuration; 2] = [
    SignedDuration::from_hours(48),
    SignedDuration::from_hours(14 * 24),
];

/// The text of an error. PostgreSQL cannot decode a JSON string with a NUL.
const ERROR_TEXT: &str = "case when state not in ('succeeded', 'reserved') then coalesce(\
    replace(result, '\\u0000', '\\ufffd')::json ->> 'detail', \
    replace(result, '\\u0000', '\\ufffd')::json -> 'content' -> 0 ->> 'text') end";

pub(super) async fn list_calls(pool: &PgPool, filter: &Query) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    for mut part in split_by_time(filter, Timestamp::now()) {
        part.limit = filter
            .limit
            .saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if part.limit == 0 {
            break;
        }
        let mut query = QueryBuilder::<Postgres>::new(LIST[0]);
        query.push_bind(LISTED_ARGUMENTS as i64).push(LIST[1]);
        push_filters(&mut query, &part);
        let rows = query.build().persistent(false).fetch_all(pool).await?;
        for row in &rows {
            found.push(decode_row(row)?);
        }
    }
    Ok(found)
}

/// The same list in parts, the newest first. No call is in two of them.
fn split_by_time(filter: &Query, now: Timestamp) -> Vec<Query> {
    let mut parts = Vec::with_capacity(PARTS.len() + 1);
    let mut before = filter.before;
    // Few calls have the same key or parent, so all of time must be searched.
    if filter.idempotency_key.is_none() && filter.parent.is_none() {
        let end = filter.before.and_then(|id| id.created_at()).unwrap_or(now);
        let starts = PARTS
            .iter()
            .filter_map(|reach| end.checked_sub(*reach).ok());
        for start in starts.filter(|start| filter.since.is_none_or(|since| since < *start)) {
            parts.push(Query {
                since: Some(start),
                before,
                ..filter.clone()
            });
            before = Some(InvocationId::lower_bound(start));
        }
    }
    parts.push(Query {
        before,
        ..filter.clone()
    });
    parts
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
    equals("kind", filter.kind.map(ErrorKind::as_str));
    if !filter.states.is_empty() {
        let states = filter.states.iter().map(|state| state.as_str().to_owned());
        query
            .push(" and state = any(")
            .push_bind(states.collect::<Vec<_>>())
            .push(")");
    }
    if let Some(text) = &filter.text {
        let text = storable(&text.to_ascii_lowercase()).into_owned();
        query
            .push(" and (strpos(lower(tool), ")
            .push_bind(text.clone());
        query.push(") > 0 or strpos(lower(detail), ");
        query.push_bind(text.clone());
        query
            .push(") > 0 or strpos(lower(")
            .push(ERROR_TEXT)
            .push("), ");
        query.push_bind(text).push(") > 0)");
    }
    if let Some(parent) = &filter.parent {
        query.push(" and parent = ").push_bind(to_uuid(parent));
    }
    if let Some(since) = filter.since {
        let first = InvocationId::lower_bound(since);
        query.push(" and id >= ").push_bind(to_uuid(&first));
    }
    if let Some(until) = filter.until {
        let end = InvocationId::lower_bound(until);
        query.push(" and id < ").push_bind(to_uuid(&end));
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
    let from = to_uuid(&filter.from);
    let mut rows = ended_calls(pool, filter, |query| {
        query.push(" and id >= ").push_bind(from);
    })
    .await?;
    if filter.late_starts {
        let late = ended_calls(pool, filter, |query| {
            query
                .push(" and id in (select id from approval where id < ")
                .push_bind(from)
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
    pool: &PgPool,
    filter: &EndedQuery,
    push_ids: impl FnOnce(&mut QueryBuilder<Postgres>),
) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::<Postgres>::new(LIST[0]);
    query
        .push_bind(i64::from(filter.max_arguments))
        .push(LIST[1]);
    query.push(" and state != 'reserved'");
    push_ids(&mut query);
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
    let rows = query.build().persistent(false).fetch_all(pool).await?;
    rows.iter().map(decode_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(filter: &Query, now: Timestamp) -> Vec<(Option<Timestamp>, Option<InvocationId>)> {
        let parts = split_by_time(filter, now);
        parts.iter().map(|part| (part.since, part.before)).collect()
    }

    fn end(at: Timestamp) -> Option<InvocationId> {
        Some(InvocationId::lower_bound(at))
    }

    #[test]
    fn parts_follow_each_other() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let [near, far] = PARTS.map(|reach| now - reach);
        assert_eq!(
            ranges(&Query::default(), now),
            [(Some(near), None), (Some(far), end(near)), (None, end(far))]
        );
    }

    #[test]
    fn no_part_is_older_than_the_filter() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let near = now - PARTS[0];
        let since = |at| Query {
            since: Some(at),
            ..Query::default()
        };
        let early = near - SignedDuration::from_hours(1);
        assert_eq!(
            ranges(&since(early), now),
            [(Some(near), None), (Some(early), end(near))]
        );
        assert_eq!(ranges(&since(near), now), [(Some(near), None)]);
    }

    #[test]
    fn parts_begin_at_the_cursor() {
        let cursor = InvocationId::new();
        let at = cursor.created_at().unwrap();
        let filter = Query {
            before: Some(cursor),
            ..Query::default()
        };
        let parts = ranges(&filter, at + SignedDuration::from_hours(1000));
        assert_eq!(parts[0], (Some(at - PARTS[0]), Some(cursor)));
    }
}
