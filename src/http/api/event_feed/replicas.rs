//! Ends of calls of other replicas. They are read from the shared ledger while anybody subscribes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::call::InvocationId;
use crate::ledger::EndedQuery;
use crate::stack::order::SharedParts;
use crate::tracking::events::MAX_ARGUMENTS;

/// How often the ledger is read.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most calls that one read finds. Beyond it, subscribers are told that calls are missing.
const MAX_CALLS: u32 = 1000;
/// Every read finds calls that started this long ago.
const SHORT_CALLS: SignedDuration = SignedDuration::from_secs(30);
/// One in `LONG_EVERY` reads finds calls that started this long ago, and calls that waited for a person.
/// Such reads cost more.
const LONG_CALLS: SignedDuration = SignedDuration::from_hours(1);
/// How many reads there are for each read of long calls.
const LONG_EVERY: u32 = 15;
/// Rows are committed later than their calls end, and the clocks of replicas differ.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);
/// The same for reads of long calls: the time between two of them comes on top.
const LONG_MARGIN: SignedDuration = SignedDuration::from_secs(30);
/// Shortest time between two `missed` events for reads that leave out the same long calls.
const FULL_INTERVAL: Duration = Duration::from_secs(10);
/// How long a call that was published is remembered. It is longer than a call can be found again.
const MEMORY: Duration = Duration::from_secs(120);

/// The task that reads the ledger. All streams share it.
#[derive(Default)]
pub(in crate::http) struct ReplicaPolls(Mutex<Weak<AbortOnDropHandle<()>>>);

impl ReplicaPolls {
    /// Starts the task, unless it runs. It ends when the last handle is dropped. `None` if the
    /// ledger has no replicas.
    pub(super) fn begin(&self, shared: &SharedParts) -> Option<Arc<AbortOnDropHandle<()>>> {
        shared.ledger.replica()?;
        let mut running = self.0.lock();
        if let Some(task) = running.upgrade() {
            return Some(task);
        }
        let began = shared.clock.now();
        let poll = Poll {
            shared: shared.clone(),
            published: HashMap::new(),
            began,
            last_read: began,
            last_full: None,
        };
        let task = Arc::new(AbortOnDropHandle::new(tokio::spawn(poll.run().boxed())));
        *running = Arc::downgrade(&task);
        Some(task)
    }
}

struct Poll {
    shared: SharedParts,
    /// Calls that were published, and when.
    published: HashMap<InvocationId, Instant>,
    began: Timestamp,
    /// When the ledger was last read.
    last_read: Timestamp,
    /// When the last `missed` event for a full read was sent.
    last_full: Option<Instant>,
}

impl Poll {
    async fn run(mut self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0_u32.. {
            ticks.tick().await;
            let is_long = number % LONG_EVERY == LONG_EVERY - 1;
            let (started, ended) = match is_long {
                true => (LONG_CALLS, LONG_MARGIN),
                false => (SHORT_CALLS, MARGIN),
            };
            if let Err(error) = self.read(started, ended, is_long).await {
                tracing::debug!(%error, "calls of other replicas cannot be read for the events");
            }
        }
    }

    /// Publishes the calls that ended within `ended`, of those that started within `started`. With
    /// `late_starts`, also calls that waited for a person.
    async fn read(
        &mut self,
        started: SignedDuration,
        ended: SignedDuration,
        late_starts: bool,
    ) -> Result<(), crate::ledger::Error> {
        let now = self.shared.clock.now();
        let earlier = |by: SignedDuration| now.checked_sub(by).unwrap_or(now);
        let query = EndedQuery {
            caller: None,
            from: InvocationId::lower_bound(earlier(started)),
            late_starts,
            ended_since: earlier(ended).max(self.began),
            not_of_replica: self.shared.ledger.replica(),
            max_arguments: u32::try_from(MAX_ARGUMENTS).unwrap_or(u32::MAX),
            limit: MAX_CALLS,
        };
        let rows = self.shared.ledger.list_ended(&query).await?;
        let feed = self.shared.in_flight_calls.events();
        let is_new = |id| !self.published.contains_key(&id);
        let read_at = Instant::now();
        // A full read may leave out older calls. If its oldest call was published before, it leaves out
        // only long calls, and so does the next read.
        if rows.len() >= MAX_CALLS as usize
            && (rows.last().is_some_and(|row| is_new(row.id))
                || self
                    .last_full
                    .is_none_or(|at| read_at.duration_since(at) >= FULL_INTERVAL))
        {
            feed.publish_gap(query.ended_since);
            self.last_full = Some(read_at);
        }
        // While the ledger could not be read, calls may have ended too early for this read.
        if now.duration_since(self.last_read) > MARGIN {
            let since = self.last_read.checked_sub(MARGIN).unwrap_or(self.last_read);
            feed.publish_gap(since);
        }
        self.last_read = now;
        self.published
            .retain(|_, at| read_at.duration_since(*at) < MEMORY);
        for row in rows.iter().rev() {
            if self.published.insert(row.id, read_at).is_none() {
                feed.publish_ended(row, None);
            }
        }
        Ok(())
    }
}
