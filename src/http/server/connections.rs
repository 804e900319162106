//! The table of open connections: the state of each, how long it has lasted, and which one is
//! closed for a new one.
//!
//! This module knows no sockets. A connection is protected while a request is in flight on it: from
//! the last byte of the request to the last byte of the answer. When no slot is free, any other
//! connection may be closed for a new one; `ConnectionState::closing_order` has the order. No
//! connection has a timer: one task closes overdue connections every half second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::http::limits::{CLOSING_TIME, HEADER_TIME, IDLE_TIME, WRITE_TIME};

/// How often the table is searched for overdue connections.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// How often a service that is stopping checks whether its connections are done.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A new connection may be silent this long before the share of connections without a request is
/// enforced against it. Not used when all slots are taken.
const FIRST_BYTES_GRACE: Duration = Duration::from_secs(1);

/// Extra slots, used when all normal connections have requests in flight. On them, probes are
/// answered and other requests are refused with a 503.
const EXTRA_SLOTS: usize = 32;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client has not sent a complete header block yet.
    AwaitingFirstRequest,
    /// Between two requests.
    Idle,
    /// The header block of the next request has started.
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

/// A command to the task of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseCommand {
    /// Answer the current request, then close.
    AfterAnswer,
    /// Close now.
    Now,
}

#[derive(Debug)]
struct ConnectionState {
    phase: Phase,
    since: Instant,
    /// A read found no bytes at least once. Before that, the client may have sent bytes that
    /// nothing has read yet.
    read_found_nothing: bool,
    /// The connection has had an answer, so it is not part of a flood.
    was_answered: bool,
    /// Since when the client has read nothing, although bytes wait to be written.
    blocked_since: Option<Instant>,
    /// [`CloseCommand::Now`] was given: no request may start any more.
    close_ordered: bool,
}

impl ConnectionState {
    fn has_request(&self) -> bool {
        matches!(self.phase, Phase::Answering | Phase::Flushing)
    }

    /// Whether the client may expect an answer: bytes of a request have arrived, or may have
    /// arrived unread.
    fn expects_answer(&self) -> bool {
        match self.phase {
            Phase::AwaitingFirstRequest => !self.read_found_nothing,
            Phase::ReadingHeader | Phase::ReadingBody | Phase::Answering | Phase::Flushing => true,
            Phase::Idle | Phase::Closing => false,
        }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let limit = match self.phase {
            Phase::AwaitingFirstRequest | Phase::ReadingHeader => Some(HEADER_TIME),
            Phase::Idle => Some(IDLE_TIME),
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
    /// Clients that were answered before come after those that have not sent a whole request.
    /// Connections that are so new that nothing has looked for their bytes come last: their request
    /// may be there already.
    fn closing_order(&self) -> Option<(u8, Instant)> {
        match self.phase {
            Phase::Answering | Phase::Flushing => None,
            Phase::Closing => Some((0, self.since)),
            Phase::AwaitingFirstRequest if self.read_found_nothing => Some((1, self.since)),
            Phase::ReadingBody if !self.was_answered => Some((1, self.since)),
            Phase::Idle | Phase::ReadingHeader | Phase::ReadingBody => Some((2, self.since)),
            Phase::AwaitingFirstRequest => Some((3, self.since)),
        }
    }
}

/// One connection. Its socket, its requests and the table share it.
#[derive(Debug)]
pub(super) struct Connection {
    state: Mutex<ConnectionState>,
    command_given: Notify,
}

impl Connection {
    fn new() -> Self {
        let state = ConnectionState {
            phase: Phase::AwaitingFirstRequest,
            since: Instant::now(),
            read_found_nothing: false,
            was_answered: false,
            blocked_since: None,
            close_ordered: false,
        };
        Self {
            state: Mutex::new(state),
            command_given: Notify::new(),
        }
    }

    /// Records a complete header block; `has_whole_body` states whether the body is complete too.
    /// Returns `false` if this connection was chosen to make room: the request must not start.
    pub(super) fn begin_request(&self, has_whole_body: bool) -> bool {
        let mut state = self.lock_state();
        match has_whole_body {
            true => state.phase = Phase::Answering,
            false => (state.phase, state.since) = (Phase::ReadingBody, Instant::now()),
        }
        !state.close_ordered
    }

    /// Records that the body is complete. Returns `false` in the same case as
    /// [`begin_request`](Self::begin_request).
    pub(super) fn complete_request(&self) -> bool {
        let mut state = self.lock_state();
        if state.phase == Phase::ReadingBody {
            state.phase = Phase::Answering;
        }
        !state.close_ordered
    }

    /// Records that the answer's body was produced completely, or was dropped.
    pub(super) fn record_answer(&self) {
        let mut state = self.lock_state();
        (state.phase, state.was_answered) = (Phase::Flushing, true);
    }

    /// Records that the kernel has taken all bytes that were written so far.
    pub(super) fn record_flush(&self) {
        let mut state = self.lock_state();
        if state.phase == Phase::Flushing {
            (state.phase, state.since) = (Phase::Idle, Instant::now());
        }
    }

    /// Records that bytes came from the client.
    pub(super) fn record_bytes(&self) {
        let mut state = self.lock_state();
        if state.phase == Phase::Idle {
            (state.phase, state.since) = (Phase::ReadingHeader, Instant::now());
        }
    }

    /// Records that a read found no bytes.
    pub(super) fn record_empty_read(&self) {
        self.lock_state().read_found_nothing = true;
    }

    /// Records whether the client takes no bytes (`true`) or takes bytes again (`false`).
    pub(super) fn set_blocked(&self, blocked: bool) {
        let mut state = self.lock_state();
        match blocked {
            true => _ = state.blocked_since.get_or_insert_with(Instant::now),
            false => state.blocked_since = None,
        }
    }

    /// Records that our side is closed.
    pub(super) fn record_closing(&self) {
        let mut state = self.lock_state();
        (state.phase, state.since) = (Phase::Closing, Instant::now());
    }

    /// Waits for the next command.
    pub(super) async fn next_command(&self) -> CloseCommand {
        self.command_given.notified().await;
        if self.lock_state().close_ordered {
            CloseCommand::Now
        } else {
            CloseCommand::AfterAnswer
        }
    }

    /// Gives [`CloseCommand::Now`] if `condition` holds for the current state. Check and command
    /// happen under one lock. So a request either starts first and is kept, or starts later and is
    /// refused by [`begin_request`](Self::begin_request).
    fn close_if(&self, condition: impl FnOnce(&ConnectionState) -> bool) -> bool {
        let mut state = self.lock_state();
        let closes = condition(&state);
        if closes {
            state.close_ordered = true;
            self.command_given.notify_one();
        }
        closes
    }

    fn lock_state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table of connections. Clones share it.
#[derive(Clone)]
pub(super) struct Connections(Arc<ConnectionTable>);

struct ConnectionTable {
    /// Number of normal slots.
    slots: usize,
    /// Slots for connections without a complete header block, beyond which silent ones are closed.
    first_request_slots: usize,
    table: Mutex<Table>,
    draining: AtomicBool,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    by_id: HashMap<u64, Arc<Connection>>,
}

impl Connections {
    /// Makes a table with `slots` slots. Connections without a first request may use a quarter of
    /// them.
    pub(super) fn new(slots: usize) -> Self {
        let first_request_slots = (slots / 4).max(1);
        Self(Arc::new(ConnectionTable {
            slots,
            first_request_slots,
            table: Mutex::default(),
            draining: AtomicBool::new(false),
        }))
    }

    /// Takes a slot for a new connection, and closes another connection for it if necessary.
    /// `None`: all slots, the extra ones included, have requests in flight.
    pub(super) fn admit(&self) -> Option<ConnectionGuard> {
        let mut table = self.lock_table();
        // Counted anew for each connection, since the states change without the table's lock.
        let (mut without_request, mut requests) = (0, 0);
        for open in table.by_id.values() {
            let state = open.lock_state();
            without_request += usize::from(state.phase == Phase::AwaitingFirstRequest);
            requests += usize::from(state.has_request());
        }
        let at_capacity = requests >= self.0.slots;
        if table.by_id.len() >= self.0.slots + if at_capacity { EXTRA_SLOTS } else { 0 } {
            table.make_room(|_| true)?;
        } else if without_request >= self.0.first_request_slots {
            let now = Instant::now();
            // Waits `FIRST_BYTES_GRACE` before it closes a silent new connection. Requests of a
            // burst of real clients have arrived by then; a flood of idle connections stays silent.
            let stalls = |state: &ConnectionState| {
                state.read_found_nothing && now.duration_since(state.since) >= FIRST_BYTES_GRACE
            };
            let _ = table
                .make_room(|state| state.phase == Phase::AwaitingFirstRequest && stalls(state));
        }
        let (id, connection) = (table.next_id, Arc::new(Connection::new()));
        table.next_id += 1;
        table.by_id.insert(id, connection.clone());
        Some(ConnectionGuard {
            id,
            at_capacity,
            connection,
            connections: self.clone(),
        })
    }

    /// Closes the first connection in the order of `ConnectionState::closing_order`. `None`: all
    /// connections are protected.
    pub(super) fn make_room(&self) -> Option<()> {
        self.lock_table().make_room(|_| true)
    }

    /// Closes overdue connections. It never returns.
    pub(super) async fn close_overdue(self) {
        let mut ticks = interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.lock_table()
                .by_id
                .retain(|_, open| !open.close_if(|state| state.is_overdue(now)));
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

    /// Gives [`CloseCommand::AfterAnswer`] to all connections.
    pub(super) fn finish_all(&self) {
        for open in self.lock_table().by_id.values() {
            open.command_given.notify_one();
        }
    }

    /// Waits until no client may expect an answer any more.
    pub(super) async fn wait_until_answered(&self) {
        while self
            .lock_table()
            .by_id
            .values()
            .any(|open| open.lock_state().expects_answer())
        {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until all connections are closed.
    pub(super) async fn wait_until_closed(&self) {
        while !self.lock_table().by_id.is_empty() {
            sleep(POLL_INTERVAL).await;
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make_room(&mut self, among: impl Fn(&ConnectionState) -> bool) -> Option<()> {
        // `candidates` reads the states one after the other. A request may start between the choice
        // and the command. `close_if` then declines under the connection's own lock, and the loop
        // chooses again.
        loop {
            let candidates = self.by_id.iter().filter_map(|(id, open)| {
                let state = open.lock_state();
                if among(&state) {
                    Some((state.closing_order()?, *id))
                } else {
                    None
                }
            });
            let (_, first) = candidates.min()?;
            if self
                .by_id
                .get(&first)?
                .close_if(|state| !state.has_request())
            {
                self.by_id.remove(&first);
                return Some(());
            }
        }
    }
}

/// The slot of a connection in the table. Dropping it frees the slot.
pub(super) struct ConnectionGuard {
    id: u64,
    /// The slot is an extra one: all normal slots have requests in flight.
    pub(super) at_capacity: bool,
    pub(super) connection: Arc<Connection>,
    connections: Connections,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.lock_table().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    async fn is_ordered_to_close(guard: &ConnectionGuard) -> bool {
        timeout(Duration::ZERO, guard.connection.next_command()).await == Ok(CloseCommand::Now)
    }

    /// A connection from which a read found no bytes.
    fn new_connection(connections: &Connections) -> ConnectionGuard {
        let guard = connections.admit().unwrap();
        guard.connection.record_empty_read();
        guard
    }

    /// A connection between two requests.
    fn idle_connection(connections: &Connections) -> ConnectionGuard {
        let guard = connections.admit().unwrap();
        assert!(guard.connection.begin_request(true));
        guard.connection.record_answer();
        guard.connection.record_flush();
        guard
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_is_closed_before_idle_one() {
        let connections = Connections::new(8);
        let first_idle = idle_connection(&connections);
        advance(Duration::from_secs(1)).await;
        let newcomer = new_connection(&connections);
        let others: Vec<ConnectionGuard> = (0..6).map(|_| idle_connection(&connections)).collect();
        let _ninth = connections.admit().unwrap();
        assert!(is_ordered_to_close(&newcomer).await);
        assert!(!is_ordered_to_close(&first_idle).await);
        let _tenth = idle_connection(&connections);
        assert!(
            is_ordered_to_close(&first_idle).await,
            "then the one that has been idle for longest"
        );
        assert!(!is_ordered_to_close(&others[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_have_a_quarter_of_slots() {
        let connections = Connections::new(8);
        let unread = connections.admit().unwrap();
        let first = new_connection(&connections);
        let second = new_connection(&connections);
        assert!(!is_ordered_to_close(&first).await, "a burst is not a flood");
        advance(FIRST_BYTES_GRACE).await;
        let third = new_connection(&connections);
        assert!(is_ordered_to_close(&first).await);
        assert!(!is_ordered_to_close(&second).await);
        let _fourth = new_connection(&connections);
        assert!(is_ordered_to_close(&second).await);
        assert!(!is_ordered_to_close(&third).await);
        assert!(
            !is_ordered_to_close(&unread).await,
            "its request may have arrived"
        );
    }

    #[tokio::test]
    async fn running_request_is_never_closed_for_another() {
        let connections = Connections::new(2);
        let guards: Vec<ConnectionGuard> = (0..2).map(|_| idle_connection(&connections)).collect();
        assert!(
            guards
                .iter()
                .all(|guard| guard.connection.begin_request(true))
        );
        let extra = connections.admit().unwrap();
        assert!(extra.at_capacity && !guards[1].at_capacity);
        drop(extra);
        guards[0].connection.record_answer();
        assert!(
            connections.admit().unwrap().at_capacity,
            "its answer is not with the kernel yet"
        );
        guards[0].connection.record_flush();
        assert!(!connections.admit().unwrap().at_capacity);
        assert!(
            !guards[0].connection.begin_request(true),
            "ordered to close: no request may start"
        );
        assert!(!is_ordered_to_close(&guards[1]).await);
    }

    #[tokio::test]
    async fn extra_slots_are_limited() {
        let connections = Connections::new(1);
        let busy = |guard: Option<ConnectionGuard>| {
            guard.filter(|guard| guard.connection.begin_request(true))
        };
        let _guards: Vec<_> = (0..1 + EXTRA_SLOTS)
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
        assert!(is_ordered_to_close(&stalled).await);
        assert!(!stalled.connection.complete_request(), "too late");
    }

    #[tokio::test]
    async fn dropped_guard_frees_its_slot() {
        let connections = Connections::new(1);
        let guard = idle_connection(&connections);
        assert!(guard.connection.begin_request(false) && guard.connection.complete_request());
        assert!(connections.admit().unwrap().at_capacity);
        drop(guard);
        assert!(!connections.admit().unwrap().at_capacity);
    }

    /// Whether the sweep closes a connection after `action`: shortly before `time`, and shortly
    /// after.
    async fn is_closed_by_sweep(action: impl Fn(&Connection), time: Duration) -> (bool, bool) {
        let connections = Connections::new(8);
        let guard = idle_connection(&connections);
        action(&guard.connection);
        let sweep = tokio::spawn(connections.clone().close_overdue());
        tokio::time::sleep(time - Duration::from_millis(10)).await;
        let early = is_ordered_to_close(&guard).await;
        tokio::time::sleep(Duration::from_millis(10) + SWEEP_INTERVAL).await;
        let late = is_ordered_to_close(&guard).await;
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
        let guard = connections.admit().unwrap();
        let sweep = tokio::spawn(connections.clone().close_overdue());
        for _ in 0..22 {
            guard.connection.record_bytes();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(is_ordered_to_close(&guard).await);
        sweep.abort();
    }
}
