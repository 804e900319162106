//! The position of an event, from which a later subscription continues in the ledger.
//!
//! Ids of calls sort by start, but calls end in another order. So one id is not enough. A cursor has
//! two parts:
//!
//! - `from`: no call that ended after the event has a smaller id. It is the id of the oldest call
//!   that was running, or an id of a moment ago.
//! - `ended_since`: no call that ended after the event ended before this time. Without it, one call
//!   that runs for an hour would make a subscriber read an hour of calls again.
//!
//! Both parts are a little early. So a subscriber may get a call again, but misses none.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::call::InvocationId;

/// How much earlier than necessary a cursor is. A call has its id and its duration a moment before
/// the table of running calls and the subscribers learn of them.
const MARGIN: SignedDuration = SignedDuration::from_secs(2);

/// The position of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The smallest id of a call that may have ended after the event.
    pub from: InvocationId,
    /// The earliest end of a call that may have ended after the event.
    pub ended_since: Timestamp,
}

impl Cursor {
    /// The position at `now`, while `oldest` is the oldest running call.
    pub(super) fn new(oldest: Option<InvocationId>, now: Timestamp) -> Self {
        // The time of new ids is that of the machine, which a test may replace in `now`.
        let newest = InvocationId::new().created_at().unwrap_or(now);
        let unlisted = InvocationId::lower_bound(earlier(newest, MARGIN));
        Self {
            from: oldest.map_or(unlisted, |oldest| oldest.min(unlisted)),
            ended_since: earlier(now, MARGIN),
        }
    }

    /// The same position, `by` this much earlier.
    #[must_use]
    pub fn earlier(self, by: SignedDuration) -> Self {
        let from = self.from.bounds().map_or(self.from, |at| {
            InvocationId::lower_bound(earlier(at, by)).min(self.from)
        });
        Self {
            from,
            ended_since: earlier(self.ended_since, by),
        }
    }
}

fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(at)
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.from, self.ended_since.as_millisecond())
    }
}

/// The text is not a cursor.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (from, ended_since) = text.split_once('.').ok_or(InvalidCursor)?;
        let millis: i64 = ended_since.parse().map_err(|_| InvalidCursor)?;
        Ok(Self {
            from: from.parse().map_err(|_| InvalidCursor)?,
            ended_since: Timestamp::from_millisecond(millis).map_err(|_| InvalidCursor)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_begins_before_the_oldest_running_call() {
        let now: Timestamp = "2026-06-15T12:00:30Z".parse().unwrap();
        let old = InvocationId::lower_bound(now);
        assert_eq!(Cursor::new(Some(old), now).from, old);
        let just_started = InvocationId::new();
        let idle = Cursor::new(Some(just_started), now);
        assert!(
            idle.from < just_started,
            "a call that has its id and is not in the table yet"
        );
        assert_eq!(idle.ended_since, now - MARGIN);
    }

    #[test]
    fn both_parts_can_be_earlier_with_and_without_running_calls() {
        let now: Timestamp = "2026-06-15T12:00:30Z".parse().unwrap();
        let by = SignedDuration::from_mins(15);
        let running = InvocationId::new();
        for oldest in [None, Some(running), Some(InvocationId::lower_bound(now))] {
            let cursor = Cursor::new(oldest, now);
            let before = cursor.earlier(by);
            let from = |cursor: Cursor| cursor.from.bounds().unwrap();
            assert_eq!(from(before), from(cursor) - by, "{oldest:?}");
            assert_eq!(before.ended_since, cursor.ended_since - by);
        }
    }

    #[test]
    fn cursor_is_read_from_its_text() {
        let cursor = Cursor::new(None, "2026-06-15T12:00:30.123Z".parse().unwrap());
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for invalid in ["", "7", ".", "x.1", &format!("{}.x", cursor.from)] {
            assert_eq!(invalid.parse::<Cursor>(), Err(InvalidCursor), "{invalid}");
        }
    }
}
