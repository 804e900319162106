//! The calls that have ended since a subscriber's last event.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::call::{Caller, InvocationId};
use crate::http::problem::ApiError;
use crate::ledger::{EndedQuery, Row, State};
use crate::stack::order::SharedParts;
use crate::tracking::events::{Cursor, MAX_ARGUMENTS};

/// Maximum number of calls that are sent again.
pub(super) const MAX_RESENT: usize = 1000;
/// Calls that started longer ago are not searched for.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);
/// A cursor knows the running calls of its own replica only. So calls of other replicas are
/// searched for this much earlier.
const OTHER_REPLICAS_START: SignedDuration = SignedDuration::from_mins(15);
/// The clocks of replicas may differ by this much.
const OTHER_REPLICAS_END: SignedDuration = SignedDuration::from_secs(10);

/// The calls to send again.
pub(super) struct Resumed {
    /// The calls in the order of their ends.
    pub rows: Vec<Arc<Row>>,
    /// Set if there may be more: the earliest end that may be missing.
    pub gap: Option<Timestamp>,
}

impl Resumed {
    /// Finds the calls that this caller may see and that ended after the event with this cursor.
    ///
    /// The table of running calls is read first. It has the calls that have ended and are not
    /// committed yet. A call that leaves the table afterwards is in the ledger.
    pub(super) async fn read(
        shared: &SharedParts,
        caller: &Caller,
        cursor: Cursor,
    ) -> Result<Self, ApiError> {
        let oldest = shared.clock.now().checked_sub(MAX_AGE);
        let oldest = oldest.map_or(cursor.from, InvocationId::lower_bound);
        let is_too_old = cursor.from < oldest;
        let (mut from, mut ended_since) = (cursor.from.max(oldest), cursor.ended_since);
        if shared.ledger.replica().is_some() {
            from = cursor.earlier(OTHER_REPLICAS_START).from.max(oldest);
            ended_since = cursor.earlier(OTHER_REPLICAS_END).ended_since;
        }
        let query = EndedQuery {
            caller: (!caller.admin).then(|| caller.name.to_string()),
            from,
            late_starts: true,
            ended_since,
            not_of_replica: None,
            max_arguments: u32::try_from(MAX_ARGUMENTS).unwrap_or(u32::MAX),
            limit: u32::try_from(MAX_RESENT + 1).unwrap_or(u32::MAX),
        };
        let mut rows = shared.in_flight_calls.list();
        rows.retain(|row| {
            !matches!(row.state, State::Running | State::Reserved | State::Waiting)
                && row.ended_at().is_none_or(|at| at >= query.ended_since)
                && (caller.admin || row.caller == caller.name)
        });
        let known: HashSet<InvocationId> = rows.iter().map(|row| row.id).collect();
        let stored = shared.ledger.list_ended(&query).await?;
        let stored = stored.into_iter().filter(|row| !known.contains(&row.id));
        rows.extend(stored.map(Arc::new));
        rows.sort_by_key(|row| (row.ended_at(), row.id));
        let left_out = rows.len().saturating_sub(MAX_RESENT);
        rows.drain(..left_out);
        let gap = (left_out > 0 || is_too_old).then_some(query.ended_since);
        Ok(Self { rows, gap })
    }
}
