//! Lists calls, newest first. Partitions are in the order of the ids, so a page comes from the
//! newest partitions. A query about a range of time opens and plans only the partitions of that time.
//! So a list asks about the newest days first, and about earlier ones if the page is not full.
//!
//! Each list is planned anew, with its values. A prepared statement gets one plan for all values
//! after five uses. That plan does not know which values are rare, and cannot use indexes of some
//! states: over 40 million rows, it took seconds instead of milliseconds.

use jiff::{SignedDuration, Timestamp};

use super::super::list::{fetch_listed, push_filters};
use super::super::read::select_listed;
use super::super::sql::{Dialect, Store};
use super::super::{Error, LISTED_ARGUMENTS, Query, Row};
use crate::call::InvocationId;

/// How far before the end of a list its parts reach. The last part has all earlier calls.
const PARTS: [SignedDuration; 2] = [
    SignedDuration::from_hours(48),
    SignedDuration::from_hours(14 * 24),
];

pub(super) async fn list_calls(store: &dyn Store, filter: &Query) -> Result<Vec<Row>, Error> {
    let mut found = Vec::new();
    for part in split_by_time(filter, Timestamp::now()) {
        let missing = filter
            .limit
            .saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if missing == 0 {
            break;
        }
        let mut sql = select_listed(Dialect::Postgres, LISTED_ARGUMENTS as u32);
        push_filters(&mut sql, &part, Dialect::Postgres);
        sql.newest(missing);
        found.extend(fetch_listed(store, sql).await?);
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
