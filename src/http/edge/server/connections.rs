//! The table of open connections: the state of each, how long it has lasted, and which one is
//! closed for a new one.
//!
//! This module knows no sockets. A connection is protected while a request is in flight on it: from
//! the last byte of the request to the last byte of the answer. When no slot is free, any other
//! connection may be closed for a new one; `State::closing_order` has the order. No connection has
//! a timer: one task closes overdue connections every half second. It also has
//! connections free their buffers that have been idle for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::http::edge::limits::{
    CLOSING_TIME, HEADER_TIME, IDLE_BUFFERS_TIME, IDLE_TIME, WRITE_TIME,
};

/// How often the table is searched for overdue connections.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// How often a service that is stopping checks whether its connections are done.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Extra slots, used when all normal connections have requests in flight. On them, probes are
/// answered and other requests are refused with a 503.
const EXTRA_SLOTS: usize = 32;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has looked for its bytes yet, so a request may be there already.
    Accepted,
    /// No byte of the next request has arrived.
    Idle,
    /// Idle for a while, so the connection has freed its buffers.
    Unbuffered,
    /// The header block has started.
    ReadingHeader,
    /// The header block is complete, the body is not.
    ReadingBody,
    /// A complete request is being answered.
    Answering,
    /// The answer is complete, but its last bytes are not in the kernel yet.
    Flushing,
    /// Our side is closed, the client's side is not.
    Closing,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The start of the time that the phase may take.
    since: Instant,
    /// The connection has had an answer, so it is not part of a flood.
    was_answered: bool,
    /// Since when the client has read nothing, although bytes wait to be written.
    blocked_since: Option<Instant>,
    /// The handler has read the last request to its end. Otherwise hyper may still skip the rest of
    /// the body, and must be kept.
    was_read: bool,
    /// The connection was chosen to be closed.
    is_closed: bool,
}

impl State {
    fn is_overdue(&self, now: Instant) -> bool {
        let limit = match self.phase {
            Phase::Idle | Phase::Unbuffered if self.was_answered => Some(IDLE_TIME),
            Phase::Accepted | Phase::Idle | Phase::Unbuffered | Phase::ReadingHeader => {
                Some(HEADER_TIME)
            }
            Phase::Closing => Some(CLOSING_TIME),
            // `body.rs` and the deadlines of calls bound these, with answers that state the reason.
            Phase::ReadingBody | Phase::Answering | Phase::Flushing => None,
        };
        limit.is_some_and(|limit| now.duration_since(self.since) >= limit)
            || self
                .blocked_since
                .is_some_and(|since| now.duration_since(since) >= WRITE_TIME)
    }

    /// The position in the order in which connections are closed for new ones: the smallest goes
    /// first, among equals the oldest. `None`: the connection is protected.
    ///
    /// Connections without an answer yet go before those of known clients. The newest ones go last:
    /// their request may be there already.
    fn closing_order(&self) -> Option<(u8, Instant)> {
        match self.phase {
            Phase::Answering | Phase::Flushing => None,
            Phase::Closing => Some((0, self.since)),
            Phase::Accepted => Some((2, self.since)),
            _ => Some((u8::from(self.was_answered), self.since)),
        }
    }
}

/// One connection. Its socket, its requests and the table share it.
#[derive(Debug)]
pub(super) struct Connection {
    /// The choice to close a connection is made while this is locked. So a request either starts
    /// first and is kept, or starts later and is refused.
    state: Mutex<State>,
    /// Wakes the task of the connection when there is an order for it.
    signal: Notify,
}

/// What the table wants of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Free the buffers, until bytes arrive.
    FreeBuffers,
    /// Close at once.
    Close,
}

impl Connection {
    fn new() -> Self {
        let state = State {
            phase: Phase::Accepted,
            since: Instant::now(),
            was_answered: false,
            blocked_since: None,
            was_read: true,
            is_closed: false,
        };
        Self {
            state: Mutex::new(state),
            signal: Notify::new(),
        }
    }

    /// Records a complete header block; `has_whole_body` states whether the body is complete too.
    /// Returns `false` if this connection was chosen to make room: the request must not start.
    pub(super) fn begin_request(&self, has_whole_body: bool) -> bool {
        let mut state = self.state.lock();
        state.was_read = has_whole_body;
        match has_whole_body {
            true => state.phase = Phase::Answering,
            false => (state.phase, state.since) = (Phase::ReadingBody, Instant::now()),
        }
        !state.is_closed
    }

    /// Records that the body is complete. Returns `false` in the same case as
    /// [`begin_request`](Self::begin_request).
    pub(super) fn complete_request(&self) -> bool {
        let mut state = self.state.lock();
        state.was_read = true;
        if state.phase == Phase::ReadingBody {
            state.phase = Phase::Answering;
        }
        !state.is_closed
    }

    /// Records that the answer's body was produced completely, or was dropped.
    pub(super) fn record_answer(&self) {
        let mut state = self.state.lock();
        (state.phase, state.was_answered) = (Phase::Flushing, true);
    }

    /// Records that the kernel has taken all bytes that were written so far.
    pub(super) fn record_flush(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Flushing {
            (state.phase, state.since) = (Phase::Idle, Instant::now());
        }
    }

    /// Records that bytes came from the client. The time for the first header block has run since
    /// the connection was accepted.
    pub(super) fn record_bytes(&self) {
        let mut state = self.state.lock();
        if matches!(
            state.phase,
            Phase::Accepted | Phase::Idle | Phase::Unbuffered
        ) {
            state.phase = Phase::ReadingHeader;
            if state.was_answered {
                state.since = Instant::now();
            }
        }
    }

    /// Records that a read found no bytes.
    pub(super) fn record_empty_read(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Accepted {
            state.phase = Phase::Idle;
        }
    }

    /// Records whether the client takes no bytes (`true`) or takes bytes again (`false`).
    pub(super) fn set_blocked(&self, blocked: bool) {
        let mut state = self.state.lock();
        match blocked {
            true => _ = state.blocked_since.get_or_insert_with(Instant::now),
            false => state.blocked_since = None,
        }
    }

    /// Records that our side is closed.
    pub(super) fn record_closing(&self) {
        let mut state = self.state.lock();
        if state.phase != Phase::Closing {
            (state.phase, state.since) = (Phase::Closing, Instant::now());
        }
    }

    /// Waits for an order to the connection. Only its own task may wait.
    pub(super) async fn next_order(&self) -> Order {
        loop {
            self.signal.notified().await;
            let state = self.state.lock();
            match state.phase {
                _ if state.is_closed => return Order::Close,
                Phase::Unbuffered => return Order::FreeBuffers,
                // A request came first.
                _ => {}
            }
        }
    }

    /// Closes the connection if `condition` holds.
    fn close_if(&self, condition: impl FnOnce(&State) -> bool) -> bool {
        let mut state = self.state.lock();
        let closes = condition(&state);
        if closes {
            state.is_closed = true;
            self.signal.notify_one();
        }
        closes
    }

    /// Has the connection free its buffers if it has been idle for long enough.
    fn free_buffers_if_idle(&self, now: Instant) {
        let mut state = self.state.lock();
        let is_idle = state.phase == Phase::Idle && state.was_read;
        if is_idle && now.duration_since(state.since) >= IDLE_BUFFERS_TIME {
            state.phase = Phase::Unbuffered;
            self.signal.notify_one();
        }
    }
}

/// The table of connections. Clones share it.
#[derive(Clone)]
pub(super) struct Connections(Arc<ConnectionTable>);

struct ConnectionTable {
    /// Number of normal slots.
    slots: usize,
    open: Mutex<OpenConnections>,
    draining: AtomicBool,
}

#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    by_id: HashMap<u64, Arc<Connection>>,
}

impl Connections {
    pub(super) fn new(slots: usize) -> Self {
        Self(Arc::new(ConnectionTable {
            slots,
            open: Mutex::default(),
            draining: AtomicBool::new(false),
        }))
    }

    /// Takes a slot for a new connection, and closes another connection for it if necessary.
    /// `None`: all slots, the extra ones included, have requests in flight.
    pub(super) fn admit(&self) -> Option<Slot> {
        let mut open = self.0.open.lock();
        let slots = self.0.slots;
        let is_full = open.by_id.len() >= slots;
        let at_capacity = is_full && open.count_requests() >= slots;
        let has_extra_slot = at_capacity && open.by_id.len() < slots + EXTRA_SLOTS;
        if is_full && !has_extra_slot && !open.make_room() {
            return None;
        }
        let (id, connection) = (open.next_id, Arc::new(Connection::new()));
        open.next_id += 1;
        open.by_id.insert(id, connection.clone());
        Some(Slot {
            id,
            at_capacity,
            connection,
            connections: self.clone(),
        })
    }

    /// Closes the first connection in the order of `State::closing_order`. Returns `false` if all
    /// connections are protected.
    pub(super) fn make_room(&self) -> bool {
        self.0.open.lock().make_room()
    }

    /// Closes overdue connections, and has idle ones free their buffers. It never returns.
    pub(super) async fn sweep(self) {
        let mut ticks = interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.0.open.lock().by_id.retain(|_, connection| {
                let closes = connection.close_if(|state| state.is_overdue(now));
                if !closes {
                    connection.free_buffers_if_idle(now);
                }
                !closes
            });
        }
    }

    /// From now on, each connection closes after its next answer.
    pub(super) fn start_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Whether each connection closes after its next answer.
    pub(super) fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    /// Waits until no client may expect an answer any more.
    pub(super) async fn wait_until_answered(&self) {
        let expects_answer = |connection: &Arc<Connection>| {
            let phase = connection.state.lock().phase;
            !matches!(phase, Phase::Idle | Phase::Unbuffered | Phase::Closing)
        };
        while self.0.open.lock().by_id.values().any(expects_answer) {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until all connections are closed, at least for the time of a handshake.
    pub(super) async fn wait_until_closed(&self) {
        sleep(POLL_INTERVAL).await;
        while !self.0.open.lock().by_id.is_empty() {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Closes all connections at once.
    pub(super) fn close_all(&self) {
        for connection in self.0.open.lock().by_id.values() {
            connection.close_if(|_| true);
        }
    }
}

impl OpenConnections {
    /// The number of connections with a request in flight.
    fn count_requests(&self) -> usize {
        let has_request = |open: &&Arc<Connection>| open.state.lock().closing_order().is_none();
        self.by_id.values().filter(has_request).count()
    }

    fn make_room(&mut self) -> bool {
        // The states are read one after the other. A request may start between the choice and the
        // closing. `close_if` then declines, and the loop chooses again.
        loop {
            let candidates = self
                .by_id
                .iter()
                .filter_map(|(id, open)| Some((open.state.lock().closing_order()?, *id)));
            let Some((_, first)) = candidates.min() else {
                return false;
            };
            if self.by_id[&first].close_if(|state| state.closing_order().is_some()) {
                self.by_id.remove(&first);
                return true;
            }
        }
    }
}

/// The slot of a connection in the table. Dropping it frees the slot.
pub(super) struct Slot {
    id: u64,
    /// The slot is an extra one: all normal slots have requests in flight.
    pub(super) at_capacity: bool,
    pub(super) connection: Arc<Connection>,
    pub(super) connections: Connections,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.0.open.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn is_closed(slot: &Slot) -> bool {
        slot.connection.state.lock().is_closed
    }

    /// A connection from which a read found no bytes.
    fn new_connection(connections: &Connections) -> Slot {
        let slot = connections.admit().unwrap();
        slot.connection.record_empty_read();
        slot
    }

    /// A connection between two requests.
    fn idle_connection(connections: &Connections) -> Slot {
        let slot = connections.admit().unwrap();
        assert!(slot.connection.begin_request(true));
        slot.connection.record_answer();
        slot.connection.record_flush();
        slot
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_is_closed_before_idle_one() {
        let connections = Connections::new(8);
        let first_idle = idle_connection(&connections);
        advance(Duration::from_secs(1)).await;
        let new = new_connection(&connections);
        let others: Vec<Slot> = (0..6).map(|_| idle_connection(&connections)).collect();
        let _ninth = connections.admit().unwrap();
        assert!(is_closed(&new));
        assert!(!is_closed(&first_idle));
        let _tenth = idle_connection(&connections);
        assert!(
            is_closed(&first_idle),
            "then the one that has been idle for longest"
        );
        assert!(!is_closed(&others[0]));
    }

    #[tokio::test(start_paused = true)]
    async fn unread_connection_is_closed_last() {
        let connections = Connections::new(2);
        let unread = connections.admit().unwrap();
        advance(Duration::from_secs(1)).await;
        let idle = idle_connection(&connections);
        let _third = connections.admit().unwrap();
        assert!(is_closed(&idle));
        assert!(!is_closed(&unread), "its request may have arrived");
    }

    #[tokio::test]
    async fn running_request_is_never_closed_for_another() {
        let connections = Connections::new(2);
        let held: Vec<Slot> = (0..2).map(|_| idle_connection(&connections)).collect();
        assert!(held.iter().all(|slot| slot.connection.begin_request(true)));
        let extra = connections.admit().unwrap();
        assert!(extra.at_capacity && !held[1].at_capacity);
        drop(extra);
        held[0].connection.record_answer();
        assert!(
            connections.admit().unwrap().at_capacity,
            "its answer is not with the kernel yet"
        );
        held[0].connection.record_flush();
        assert!(!connections.admit().unwrap().at_capacity);
        assert!(
            !held[0].connection.begin_request(true),
            "closed: no request may start"
        );
        assert!(!is_closed(&held[1]));
    }

    #[tokio::test]
    async fn extra_slots_are_limited() {
        let connections = Connections::new(1);
        let busy = |slot: Option<Slot>| slot.filter(|slot| slot.connection.begin_request(true));
        let _held: Vec<_> = (0..1 + EXTRA_SLOTS)
            .map(|_| busy(connections.admit()).unwrap())
            .collect();
        assert!(connections.admit().is_none());
    }

    #[tokio::test]
    async fn incomplete_body_does_not_protect_a_connection() {
        let connections = Connections::new(1);
        let stalled = idle_connection(&connections);
        assert!(stalled.connection.begin_request(false));
        assert!(!connections.admit().unwrap().at_capacity);
        assert!(is_closed(&stalled));
        assert!(!stalled.connection.complete_request(), "too late");
    }

    #[tokio::test]
    async fn dropped_slot_is_free_again() {
        let connections = Connections::new(1);
        let slot = idle_connection(&connections);
        assert!(slot.connection.begin_request(false) && slot.connection.complete_request());
        assert!(connections.admit().unwrap().at_capacity);
        drop(slot);
        assert!(!connections.admit().unwrap().at_capacity);
    }

    /// Whether the sweep closes a connection after `action`: shortly before `time`, and shortly
    /// after.
    async fn is_closed_by_sweep(action: impl Fn(&Connection), time: Duration) -> (bool, bool) {
        let connections = Connections::new(8);
        let slot = idle_connection(&connections);
        action(&slot.connection);
        let sweep = tokio::spawn(connections.clone().sweep());
        tokio::time::sleep(time - Duration::from_millis(10)).await;
        let early = is_closed(&slot);
        tokio::time::sleep(Duration::from_millis(10) + SWEEP_INTERVAL).await;
        let late = is_closed(&slot);
        sweep.abort();
        (early, late)
    }

    #[tokio::test(start_paused = true)]
    async fn overdue_connections_are_closed() {
        let cut = (false, true);
        assert_eq!(is_closed_by_sweep(|_| {}, IDLE_TIME).await, cut, "idle");
        assert_eq!(
            is_closed_by_sweep(Connection::record_bytes, HEADER_TIME).await,
            cut,
            "a header that does not end"
        );
        assert_eq!(
            is_closed_by_sweep(Connection::record_closing, CLOSING_TIME).await,
            cut,
            "a client that does not close"
        );
        let unread = |connection: &Connection| {
            assert!(connection.begin_request(true));
            connection.set_blocked(true);
        };
        assert_eq!(
            is_closed_by_sweep(unread, WRITE_TIME).await,
            cut,
            "an answer that is not read"
        );
        let slow = |connection: &Connection| {
            unread(connection);
            connection.set_blocked(false);
        };
        assert_eq!(
            is_closed_by_sweep(slow, Duration::from_secs(3600)).await,
            (false, false),
            "a request may take its time"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bytes_do_not_extend_header_time() {
        let connections = Connections::new(8);
        let slot = connections.admit().unwrap();
        let sweep = tokio::spawn(connections.clone().sweep());
        for _ in 0..22 {
            slot.connection.record_bytes();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(is_closed(&slot));
        sweep.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_has_no_buffers_until_bytes_arrive() {
        let connections = Connections::new(8);
        let (idle, busy) = (idle_connection(&connections), idle_connection(&connections));
        let sweep = tokio::spawn(connections.clone().sweep());
        tokio::time::sleep(IDLE_BUFFERS_TIME / 2).await;
        busy.connection.record_bytes();
        assert_eq!(idle.connection.next_order().await, Order::FreeBuffers);
        assert_eq!(busy.connection.state.lock().phase, Phase::ReadingHeader);
        idle.connection.record_bytes();
        assert_eq!(idle.connection.state.lock().phase, Phase::ReadingHeader);
        sweep.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn connection_with_an_unread_body_keeps_its_buffers() {
        let connections = Connections::new(8);
        let slot = connections.admit().unwrap();
        assert!(slot.connection.begin_request(false));
        slot.connection.record_answer();
        slot.connection.record_flush();
        advance(IDLE_BUFFERS_TIME).await;
        slot.connection.free_buffers_if_idle(Instant::now());
        assert_eq!(slot.connection.state.lock().phase, Phase::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_comes_before_the_order_is_served() {
        let connections = Connections::new(8);
        let slot = idle_connection(&connections);
        advance(IDLE_BUFFERS_TIME).await;
        slot.connection.free_buffers_if_idle(Instant::now());
        slot.connection.record_bytes();
        assert!(slot.connection.begin_request(true));
        let order = tokio::time::timeout(IDLE_BUFFERS_TIME, slot.connection.next_order());
        assert!(order.await.is_err(), "no order for a connection in use");
        assert!(slot.connection.close_if(|_| true));
        assert_eq!(slot.connection.next_order().await, Order::Close);
    }
}
