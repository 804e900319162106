//! The channel from the calls to the subscribers.
//!
//! A call never waits for a subscriber. The channel is a ring that all subscribers share, so its
//! memory does not grow with their number. A slow subscriber misses the oldest events, and learns
//! how many. Without subscribers, a call pays one relaxed load where it would publish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::time::Instant;

use super::cursor::Cursor;
use super::event::{ApprovalNotice, ServiceEvent, without_long_values};
use crate::call::{Clock, InvocationId, Progress, ProgressObserver};
use crate::ledger::Row;

/// Maximum number of events that wait for the slowest subscriber.
const CAPACITY: usize = 1024;
/// Maximum number of subscribers.
pub const MAX_SUBSCRIBERS: usize = 64;
/// How long a cursor is used for further events. An older cursor is still correct. It only makes a
/// subscriber that continues from it get more calls again.
const CURSOR_AGE: Duration = Duration::from_millis(250);

/// The sending side. Clones share it.
#[derive(Clone)]
pub struct EventFeed(Arc<Inner>);

struct Inner {
    subscribers: AtomicUsize,
    sender: Sender<Published>,
    clock: Clock,
    oldest: Box<dyn Fn() -> Option<InvocationId> + Send + Sync>,
    latest: Mutex<Option<(Instant, Cursor)>>,
}

/// An event with its position.
#[derive(Debug, Clone)]
pub struct Published {
    /// The event.
    pub event: ServiceEvent,
    /// From where a subscriber that has this event continues.
    pub cursor: Cursor,
}

/// What a subscription gets.
#[derive(Debug)]
pub enum Received {
    /// The next event.
    Event(Published),
    /// This number of events was dropped, because the subscriber was too slow.
    Missed(u64),
    /// No event waits.
    Nothing,
}

/// The receiving side of one subscriber. Dropping it ends the subscription.
pub struct Subscription {
    events: Receiver<Published>,
    feed: EventFeed,
}

impl EventFeed {
    /// Makes the feed. `oldest` finds the oldest running call.
    pub(in crate::tracking) fn new(
        clock: Clock,
        oldest: impl Fn() -> Option<InvocationId> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            subscribers: AtomicUsize::new(0),
            sender: broadcast::channel(CAPACITY).0,
            clock,
            oldest: Box::new(oldest),
            latest: Mutex::default(),
        }))
    }

    /// Whether anybody subscribes. Relaxed is enough: a subscriber is counted before it reads the
    /// table of running calls, and a call enters its end in that table before it asks. The lock of
    /// the table orders the two. So a subscriber finds each call that does not see the subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.0.subscribers.load(Ordering::Relaxed) > 0
    }

    /// Subscribes to the events from now on; `None` if there are [`MAX_SUBSCRIBERS`].
    pub fn subscribe(&self) -> Option<Subscription> {
        let add = |count: usize| (count < MAX_SUBSCRIBERS).then_some(count + 1);
        let events = self.0.sender.subscribe();
        let counted = self
            .0
            .subscribers
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        counted.ok().map(|_| Subscription {
            events,
            feed: self.clone(),
        })
    }

    /// Publishes that a call waits for a decision (`approval.waiting`), or was decided
    /// (`approval.decided`). It never waits.
    pub fn publish_approval(&self, notice: ApprovalNotice) {
        if self.has_subscribers() {
            self.publish(ServiceEvent::Approval(Arc::new(notice)));
        }
    }

    /// Tells all subscribers that ends of calls of other processes since this time may be missing.
    pub fn publish_gap(&self, since: Timestamp) {
        self.publish(ServiceEvent::Gap { since });
    }

    /// Publishes the start of a call.
    pub(in crate::tracking) fn publish_started(&self, row: &Row) {
        self.publish(ServiceEvent::Started(Arc::new(without_long_values(row))));
    }

    /// Publishes the end of a call. A call of this process must still be in the table of running
    /// calls. Otherwise an event that is published before could have a cursor behind this call.
    pub fn publish_ended(&self, row: &Row, replayed_from: Option<InvocationId>) {
        let row = Arc::new(without_long_values(row));
        self.publish(ServiceEvent::Ended { row, replayed_from });
    }

    fn publish(&self, event: ServiceEvent) {
        let cursor = self.cursor();
        // An error means that the last subscriber has just left.
        let _ = self.0.sender.send(Published { event, cursor });
    }

    /// The position of events that are published from now on.
    fn cursor(&self) -> Cursor {
        let mut latest = self.0.latest.lock();
        let now = Instant::now();
        match *latest {
            Some((made, cursor)) if now.duration_since(made) < CURSOR_AGE => cursor,
            _ => {
                let cursor = Cursor::new((self.0.oldest)(), self.0.clock.now());
                *latest = Some((now, cursor));
                cursor
            }
        }
    }
}

impl ProgressObserver for EventFeed {
    fn is_listening(&self) -> bool {
        self.has_subscribers()
    }

    fn observe_progress(&self, caller: &Arc<str>, progress: Progress) {
        let caller = caller.clone();
        self.publish(ServiceEvent::Progress { caller, progress });
    }
}

impl Subscription {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Received {
        match self.events.recv().await {
            Ok(event) => Received::Event(event),
            Err(RecvError::Lagged(missed)) => Received::Missed(missed),
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next event, if one waits.
    pub fn try_next(&mut self) -> Received {
        match self.events.try_recv() {
            Ok(event) => Received::Event(event),
            Err(TryRecvError::Lagged(missed)) => Received::Missed(missed),
            Err(TryRecvError::Empty | TryRecvError::Closed) => Received::Nothing,
        }
    }

    /// The position of events that are published from now on. It is the position of this
    /// subscription if no event waits afterwards.
    pub fn cursor(&self) -> Cursor {
        self.feed.cursor()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.0.subscribers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Caller, Effect, Invocation, JsonObject, ToolName};
    use crate::ledger::State;
    use crate::tracking::in_flight::InFlightCalls;

    fn invocation() -> Invocation {
        let tool = ToolName::parse("t").unwrap();
        let caller = Arc::new(Caller::new("a", false));
        Invocation::new(tool, JsonObject::new(), caller, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn slow_subscriber_misses_the_oldest_events() {
        let calls = InFlightCalls::default();
        let mut subscription = calls.events().subscribe().unwrap();
        for _ in 0..CAPACITY + 7 {
            drop(calls.start_call(&invocation(), Effect::Read));
        }
        assert!(matches!(subscription.try_next(), Received::Missed(7)));
        assert!(matches!(subscription.try_next(), Received::Event(_)));
    }

    #[test]
    fn subscribers_are_bounded() {
        let calls = InFlightCalls::default();
        let subscribe = || calls.events().subscribe();
        let mut all: Vec<_> = (0..MAX_SUBSCRIBERS).map_while(|_| subscribe()).collect();
        assert!(all.len() == MAX_SUBSCRIBERS && subscribe().is_none());
        all.pop();
        assert!(subscribe().is_some());
        all.clear();
        assert!(!calls.events().has_subscribers());
    }

    #[tokio::test(start_paused = true)]
    async fn cursor_is_renewed_when_it_is_old() {
        let calls = InFlightCalls::default();
        let subscription = calls.events().subscribe().unwrap();
        let first = subscription.cursor();
        // The position has the time of the machine.
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(subscription.cursor(), first);
        tokio::time::advance(CURSOR_AGE).await;
        assert_ne!(subscription.cursor(), first);
    }

    #[test]
    fn gap_is_published() {
        let calls = InFlightCalls::default();
        let mut subscription = calls.events().subscribe().unwrap();
        calls.events().publish_gap(Timestamp::UNIX_EPOCH);
        let Received::Event(published) = subscription.try_next() else {
            panic!("no event");
        };
        let ServiceEvent::Gap { since } = published.event else {
            panic!("{:?}", published.event);
        };
        assert_eq!(since, Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn cursor_of_an_event_is_not_behind_a_running_call() {
        let calls = InFlightCalls::default();
        let slow = invocation();
        let _slow = calls.start_call(&slow, Effect::Read);
        let mut subscription = calls.events().subscribe().unwrap();
        let short = calls.start_call(&invocation(), Effect::Read).unwrap();
        let row = Row::from_invocation(&invocation(), Effect::Read, State::Succeeded);
        short.set_ended(&Arc::new(row));
        for name in ["invocation.started", "invocation.ended"] {
            let Received::Event(published) = subscription.try_next() else {
                panic!("no {name}");
            };
            assert_eq!(published.event.name(), name);
            assert!(published.cursor.from <= slow.id);
        }
    }
}
