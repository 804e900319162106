//! Counts calls by time: whole hours that are counted come from the table of hours, and all other
//! times from the calls themselves.
//!
//! An hour is counted once it has ended, by a periodic task. A call that is written, changed or
//! deleted afterwards makes its hour uncounted again, in the same transaction. So an answer has the
//! same numbers as one over all calls.

use std::collections::HashSet;
use std::ops::Range;

use jiff::{SignedDuration, Timestamp};

use super::buckets::{Calls, ID_DELAY, Tally};
use super::counted_hour::{CountedHour, HOUR_MS};
use super::sql::Fetch;
use super::{BucketQuery, BucketRow, UsageBy};
use crate::call::InvocationId;

/// How long after its end an hour is counted. Calls that begin in an hour mostly end by then.
const COUNT_DELAY: SignedDuration = SignedDuration::from_hours(1);
/// Counted hours that are in memory at a time.
const HOURS_OF_A_PAGE: u32 = 200;
/// The longest time that an answer may be about, in hours: 1500 days.
const MAX_HOURS: i64 = 1500 * 24;

/// Counts the calls of a query.
pub(super) async fn count_by_time(
    connection: &mut dyn Fetch,
    query: &BucketQuery,
) -> sqlx::Result<Vec<BucketRow>> {
    let mut calls = Calls { connection, query };
    let mut tally = Tally::new(query);
    let (mut next, until) = (query.since.as_millisecond(), query.until.as_millisecond());
    let mut hours = whole_hours(query);
    while !hours.is_empty() && !tally.is_full(next) {
        let page = calls.counted_hours(hours.clone(), HOURS_OF_A_PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        hours.start = last + 1;
        for (hour, text) in &page {
            let start = hour * HOUR_MS;
            let Some(counted) = CountedHour::from_text(text) else {
                continue;
            };
            if next < start {
                calls.scan(next..start, &mut tally).await?;
            }
            if tally.is_full(start) {
                return Ok(tally.into_rows());
            }
            tally.add_hour(*hour, &counted);
            next = start + HOUR_MS;
        }
    }
    if next < until && !tally.is_full(next) {
        calls.scan(next..until, &mut tally).await?;
    }
    Ok(tally.into_rows())
}

/// The hours of a query that need no other answer than their sums.
fn whole_hours(query: &BucketQuery) -> Range<i64> {
    if query.by == Some(UsageBy::Run) || query.width_ms % HOUR_MS != 0 {
        return 0..0;
    }
    let first = (query.since.as_millisecond() - 1).div_euclid(HOUR_MS) + 1;
    first..query.until.as_millisecond().div_euclid(HOUR_MS)
}

/// The hours that may be counted. `oldest_call` has the smallest id of all.
pub(super) fn countable_hours(
    oldest_call: InvocationId,
    oldest: Timestamp,
    now: Timestamp,
) -> Range<i64> {
    let hour = |at: Timestamp| at.as_millisecond().div_euclid(HOUR_MS);
    let first_id = time_of(oldest_call);
    let first = first_id
        .checked_sub(ID_DELAY)
        .unwrap_or(first_id)
        .max(oldest);
    let end = hour(
        now.checked_sub(COUNT_DELAY)
            .unwrap_or(Timestamp::UNIX_EPOCH),
    );
    hour(first).max(end - MAX_HOURS)..end
}

/// The time in an id, which an import may have made without a version.
fn time_of(id: InvocationId) -> Timestamp {
    let bytes = id.as_bytes().iter().take(6);
    let ms = bytes.fold(0_i64, |ms, byte| ms << 8 | i64::from(*byte));
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

/// The newest hours of `hours` that are not counted, in one piece.
pub(super) fn next_uncounted(
    hours: Range<i64>,
    counted: impl IntoIterator<Item = i64>,
    at_most: u32,
) -> Option<Range<i64>> {
    let counted: HashSet<i64> = counted.into_iter().collect();
    let is_missing = |hour: &i64| !counted.contains(hour);
    let last = hours.clone().rev().find(is_missing)?;
    let at_most = usize::try_from(at_most.max(1)).unwrap_or(usize::MAX);
    let older = (hours.start..=last)
        .rev()
        .take_while(is_missing)
        .take(at_most);
    Some(older.last()?..last + 1)
}

/// Selects what the table of hours keeps.
fn hours_query(hours: &Range<i64>) -> BucketQuery {
    let at =
        |hour: i64| Timestamp::from_millisecond(hour * HOUR_MS).unwrap_or(Timestamp::UNIX_EPOCH);
    BucketQuery {
        since: at(hours.start),
        until: at(hours.end),
        width_ms: HOUR_MS,
        by: None,
        caller: None,
        limit: u32::MAX,
    }
}

/// Counts hours. Each gets a text, also one without calls.
pub(super) async fn count_hours(
    connection: &mut dyn Fetch,
    hours: Range<i64>,
) -> sqlx::Result<Vec<(i64, String)>> {
    let query = &hours_query(&hours);
    let mut calls = Calls { connection, query };
    let mut tally = Tally::new(query);
    let times = hours.start * HOUR_MS..hours.end * HOUR_MS;
    calls.scan(times, &mut tally).await?;
    let mut counted = tally.into_hours();
    let mut text = |hour: i64| counted.remove(&hour).unwrap_or_default().to_text();
    Ok(hours.map(|hour| (hour, text(hour))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_uncounted_hours_come_first() {
        let next = |counted: &[i64], at_most| next_uncounted(10..20, counted.to_vec(), at_most);
        assert_eq!(next(&[], 4), Some(16..20));
        assert_eq!(next(&[19, 18], 4), Some(14..18));
        assert_eq!(next(&[19, 17], 4), Some(18..19));
        assert_eq!(next(&[12, 13, 14, 15, 16, 17, 18, 19], 4), Some(10..12));
        assert_eq!(next(&(10..20).collect::<Vec<_>>(), 4), None);
        assert_eq!(next_uncounted(20..20, [], 4), None);
    }

    #[test]
    fn hours_are_counted_an_hour_after_their_end() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let hours = |oldest: &str, now: &str| {
            let call = InvocationId::lower_bound(at("2026-06-15T10:20:00Z"));
            let zero = at("2026-06-15T00:00:00Z").as_millisecond() / HOUR_MS;
            let range = countable_hours(call, at(oldest), at(now));
            (range.start - zero, range.end - zero)
        };
        assert_eq!(
            hours("1970-01-01T00:00:00Z", "2026-06-15T12:59:59Z"),
            (10, 11)
        );
        assert_eq!(
            hours("1970-01-01T00:00:00Z", "2026-06-15T13:00:00Z"),
            (10, 12)
        );
        assert_eq!(
            hours("2026-06-15T12:30:00Z", "2026-06-15T15:00:00Z"),
            (12, 14)
        );
    }

    #[test]
    fn only_whole_hours_of_a_range_are_taken() {
        let hours = |since: &str, until: &str, width_ms, by| {
            let query = BucketQuery {
                since: since.parse().unwrap(),
                until: until.parse().unwrap(),
                width_ms,
                by,
                caller: None,
                limit: 1,
            };
            whole_hours(&query)
        };
        let (from, to) = ("1970-01-01T02:00:00Z", "1970-01-01T05:00:00Z");
        assert_eq!(hours(from, to, HOUR_MS, None), 2..5);
        assert_eq!(hours(from, to, 24 * HOUR_MS, Some(UsageBy::Tool)), 2..5);
        let (late, early) = ("1970-01-01T02:00:00.001Z", "1970-01-01T04:59:59.999Z");
        assert_eq!(hours(late, early, HOUR_MS, None), 3..4);
        assert_eq!(hours(from, to, 60_000, None), 0..0);
        assert_eq!(hours(from, to, HOUR_MS, Some(UsageBy::Run)), 0..0);
    }
}
