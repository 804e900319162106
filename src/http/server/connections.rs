//! The table of open connections: the state of each, how long it has lasted, and which one is closed for a new one.
//!
//! This module knows no sockets. A connection is protected while a request is under way on it: from the last byte of
//! the request to the last byte of the answer. When no slot is free, any other connection may be closed for a new one;
//! `State::turn` has the order. No connection has a timer: one task closes overdue connections every half second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::http::settings::{CLOSING_TIME, HEADER_TIME, IDLE_TIME, WRITE_TIME};

/// How often the table is searched for overdue connections.
const SWEEP: Duration = Duration::from_millis(500);
/// How often a service that is stopping checks whether its connections are done.
const LOOK: Duration = Duration::from_millis(5);

/// A new connection may be silent this long before the share of newcomers is enforced against it. Not used when all
/// slots are taken.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Extra slots, used when all normal connections have requests under way. On them, probes are answered and other
/// requests are refused with a 503.
const EXTRA: usize = 32;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// The client has not sent a complete header block yet.
    Newcomer,
    /// Between two requests.
    Idle,
    /// The header block of the next request has started.
    Header,
    /// The header block is complete, the body is not.
    Body,
    /// A complete request is being answered.
    Request,
    /// The answer is complete, but its last bytes are not in the kernel yet.
    Answer,
    /// Our side is closed, the client's side is not.
    Closing,
}

/// A command to the task of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Answer the current request, then close.
    Finish,
    /// Close now.
    Leave,
}

#[derive(Debug)]
struct State {
    doing: Doing,
    since: Instant,
    /// A read found no bytes at least once. Before that, the client may have sent bytes that nothing has read yet.
    waited: bool,
    /// The connection has had an answer, so it is not part of a flood.
    served: bool,
    /// Since when the client has read nothing, although bytes wait to be written.
    blocked: Option<Instant>,
    /// [`Order::Leave`] was given: no request may start any more.
    left: bool,
}

impl State {
    fn has_request(&self) -> bool {
        matches!(self.doing, Doing::Request | Doing::Answer)
    }

    /// Whether the client may expect an answer: bytes of a request have arrived, or may have arrived unread.
    fn has_begun(&self) -> bool {
        match self.doing {
            Doing::Newcomer => !self.waited,
            Doing::Header | Doing::Body | Doing::Request | Doing::Answer => true,
            Doing::Idle | Doing::Closing => false,
        }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let limit = match self.doing {
            Doing::Newcomer | Doing::Header => Some(HEADER_TIME),
            Doing::Idle => Some(IDLE_TIME),
            Doing::Closing => Some(CLOSING_TIME),
            // `body.rs` and the deadlines of calls bound these, with answers that state the reason.
            Doing::Body | Doing::Request | Doing::Answer => None,
        };
        limit.is_some_and(|limit| now.duration_since(self.since) >= limit)
            || self.blocked.is_some_and(|since| now.duration_since(since) >= WRITE_TIME)
    }

    /// The position in the order in which connections are closed for new ones: the smallest goes first, among equals
    /// the oldest. `None`: the connection is protected.
    ///
    /// Clients that were answered before come after those that have not sent a whole request. Connections that are so
    /// new that nothing has looked for their bytes come last: their request may be there already.
    fn turn(&self) -> Option<(u8, Instant)> {
        match self.doing {
            Doing::Request | Doing::Answer => None,
            Doing::Closing => Some((0, self.since)),
            Doing::Newcomer if self.waited => Some((1, self.since)),
            Doing::Body if !self.served => Some((1, self.since)),
            Doing::Idle | Doing::Header | Doing::Body => Some((2, self.since)),
            Doing::Newcomer => Some((3, self.since)),
        }
    }
}

/// One connection. Its socket, its requests and the table share it.
#[derive(Debug)]
pub(super) struct Connection {
    state: Mutex<State>,
    ordered: Notify,
}

impl Connection {
    fn new() -> Self {
        let state = State {
            doing: Doing::Newcomer,
            since: Instant::now(),
            waited: false,
            served: false,
            blocked: None,
            left: false,
        };
        Self { state: Mutex::new(state), ordered: Notify::new() }
    }

    /// Records a complete header block; `whole` states whether the body is complete too. Returns `false` if this
    /// connection was chosen to make room: the request must not start.
    pub(super) fn begin(&self, whole: bool) -> bool {
        let mut state = self.state();
        match whole {
            true => state.doing = Doing::Request,
            false => (state.doing, state.since) = (Doing::Body, Instant::now()),
        }
        !state.left
    }

    /// Records that the body is complete. Returns `false` in the same case as [`begin`](Self::begin).
    pub(super) fn arrived(&self) -> bool {
        let mut state = self.state();
        if state.doing == Doing::Body {
            state.doing = Doing::Request;
        }
        !state.left
    }

    /// Records that the answer's body was produced completely, or was dropped.
    pub(super) fn answered(&self) {
        let mut state = self.state();
        (state.doing, state.served) = (Doing::Answer, true);
    }

    /// Records that the kernel has taken all bytes that were written so far.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        if state.doing == Doing::Answer {
            (state.doing, state.since) = (Doing::Idle, Instant::now());
        }
    }

    /// Records that bytes came from the client.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.doing == Doing::Idle {
            (state.doing, state.since) = (Doing::Header, Instant::now());
        }
    }

    /// Records that a read found no bytes.
    pub(super) fn waiting(&self) {
        self.state().waited = true;
    }

    /// Records whether the client takes no bytes (`true`) or takes bytes again (`false`).
    pub(super) fn blocked(&self, blocked: bool) {
        let mut state = self.state();
        match blocked {
            true => _ = state.blocked.get_or_insert_with(Instant::now),
            false => state.blocked = None,
        }
    }

    /// Records that our side is closed.
    pub(super) fn closing(&self) {
        let mut state = self.state();
        (state.doing, state.since) = (Doing::Closing, Instant::now());
    }

    /// Waits for the next order.
    pub(super) async fn order(&self) -> Order {
        self.ordered.notified().await;
        if self.state().left { Order::Leave } else { Order::Finish }
    }

    /// Gives [`Order::Leave`] if `right` holds for the current state. Check and order happen under one lock. So a
    /// request either starts first and is kept, or starts later and is refused by [`begin`](Self::begin).
    fn leave_if(&self, right: impl FnOnce(&State) -> bool) -> bool {
        let mut state = self.state();
        let leaves = right(&state);
        if leaves {
            state.left = true;
            self.ordered.notify_one();
        }
        leaves
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table of connections. Clones share it.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    /// Normal slots.
    places: usize,
    /// Slots for connections without a complete header block, beyond which silent ones are closed.
    newcomers: usize,
    table: Mutex<Table>,
    ending: AtomicBool,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Arc<Connection>>,
}

impl Connections {
    /// Makes a table with `places` slots. Newcomers may use a quarter of them.
    pub(super) fn new(places: usize) -> Self {
        let newcomers = (places / 4).max(1);
        Self(Arc::new(Shared { places, newcomers, table: Mutex::default(), ending: AtomicBool::new(false) }))
    }

    /// Takes a slot for a new connection, and closes another connection for it if necessary. `None`: all slots, the
    /// extra ones included, have requests under way.
    pub(super) fn admit(&self) -> Option<ConnectionGuard> {
        let mut table = self.table();
        // Counted anew for each connection, since the states change without the table's lock.
        let (mut newcomers, mut requests) = (0, 0);
        for open in table.open.values() {
            let state = open.state();
            newcomers += usize::from(state.doing == Doing::Newcomer);
            requests += usize::from(state.has_request());
        }
        let crowded = requests >= self.0.places;
        if table.open.len() >= self.0.places + if crowded { EXTRA } else { 0 } {
            table.make_room(|_| true)?;
        } else if newcomers >= self.0.newcomers {
            let now = Instant::now();
            // Waits `ON_ITS_WAY` before it blames a silent newcomer. Requests of a burst of real clients have arrived
            // by then; a flood of idle connections stays silent.
            let stalls = |state: &State| state.waited && now.duration_since(state.since) >= ON_ITS_WAY;
            let _ = table.make_room(|state| state.doing == Doing::Newcomer && stalls(state));
        }
        let (id, connection) = (table.next, Arc::new(Connection::new()));
        table.next += 1;
        table.open.insert(id, connection.clone());
        Some(ConnectionGuard { id, crowded, connection, connections: self.clone() })
    }

    /// Closes the first connection in the order of `State::turn`. `None`: all connections are protected.
    pub(super) fn make_room(&self) -> Option<()> {
        self.table().make_room(|_| true)
    }

    /// Closes overdue connections. It never returns.
    pub(super) async fn sweep(self) {
        let mut ticks = interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.table().open.retain(|_, open| !open.leave_if(|state| state.is_overdue(now)));
        }
    }

    /// From now on, each connection closes after its next answer.
    pub(super) fn end_soon(&self) {
        self.0.ending.store(true, Ordering::Release);
    }

    /// Whether each connection closes after its next answer.
    pub(super) fn are_ending(&self) -> bool {
        self.0.ending.load(Ordering::Acquire)
    }

    /// Gives [`Order::Finish`] to all connections.
    pub(super) fn finish(&self) {
        for open in self.table().open.values() {
            open.ordered.notify_one();
        }
    }

    /// Waits until no client may expect an answer any more.
    pub(super) async fn answered(&self) {
        while self.table().open.values().any(|open| open.state().has_begun()) {
            sleep(LOOK).await;
        }
    }

    /// Waits until all connections are closed.
    pub(super) async fn gone(&self) {
        while !self.table().open.is_empty() {
            sleep(LOOK).await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make_room(&mut self, among: impl Fn(&State) -> bool) -> Option<()> {
        // `turns` reads the states one after the other. A request may start between the choice and the order.
        // `leave_if` then declines under the connection's own lock, and the loop chooses again.
        loop {
            let turns = self.open.iter().filter_map(|(id, open)| {
                let state = open.state();
                if among(&state) { Some((state.turn()?, *id)) } else { None }
            });
            let (_, first) = turns.min()?;
            if self.open.get(&first)?.leave_if(|state| !state.has_request()) {
                self.open.remove(&first);
                return Some(());
            }
        }
    }
}

/// The slot of a connection in the table. Dropping it frees the slot.
pub(super) struct ConnectionGuard {
    id: u64,
    /// The slot is an extra one: all normal slots have requests under way.
    pub(super) crowded: bool,
    pub(super) connection: Arc<Connection>,
    connections: Connections,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    async fn is_told_to_leave(place: &ConnectionGuard) -> bool {
        timeout(Duration::ZERO, place.connection.order()).await == Ok(Order::Leave)
    }

    /// A connection from which a read found no bytes.
    fn newcomer(connections: &Connections) -> ConnectionGuard {
        let place = connections.admit().unwrap();
        place.connection.waiting();
        place
    }

    /// A connection between two requests.
    fn idle(connections: &Connections) -> ConnectionGuard {
        let place = connections.admit().unwrap();
        assert!(place.connection.begin(true));
        place.connection.answered();
        place.connection.flushed();
        place
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_makes_room_before_one_that_has_been_idle_for_longer() {
        let connections = Connections::new(8);
        let first_idle = idle(&connections);
        advance(Duration::from_secs(1)).await;
        let newcomer = newcomer(&connections);
        let others: Vec<ConnectionGuard> = (0..6).map(|_| idle(&connections)).collect();
        let _ninth = connections.admit().unwrap();
        assert!(is_told_to_leave(&newcomer).await);
        assert!(!is_told_to_leave(&first_idle).await);
        let _tenth = idle(&connections);
        assert!(is_told_to_leave(&first_idle).await, "then the one that has been idle for longest");
        assert!(!is_told_to_leave(&others[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn newcomers_have_a_quarter_of_the_places() {
        let connections = Connections::new(8);
        let not_looked_at = connections.admit().unwrap();
        let first = newcomer(&connections);
        let second = newcomer(&connections);
        assert!(!is_told_to_leave(&first).await, "a burst is no flood");
        advance(ON_ITS_WAY).await;
        let third = newcomer(&connections);
        assert!(is_told_to_leave(&first).await);
        assert!(!is_told_to_leave(&second).await);
        let _fourth = newcomer(&connections);
        assert!(is_told_to_leave(&second).await);
        assert!(!is_told_to_leave(&third).await);
        assert!(!is_told_to_leave(&not_looked_at).await, "its request may be there");
    }

    #[tokio::test]
    async fn a_request_under_way_is_never_closed_for_another() {
        let connections = Connections::new(2);
        let places: Vec<ConnectionGuard> = (0..2).map(|_| idle(&connections)).collect();
        assert!(places.iter().all(|place| place.connection.begin(true)));
        let extra = connections.admit().unwrap();
        assert!(extra.crowded && !places[1].crowded);
        drop(extra);
        places[0].connection.answered();
        assert!(connections.admit().unwrap().crowded, "its answer is not with the kernel yet");
        places[0].connection.flushed();
        assert!(!connections.admit().unwrap().crowded);
        assert!(!places[0].connection.begin(true), "told to leave: no request begins any more");
        assert!(!is_told_to_leave(&places[1]).await);
    }

    #[tokio::test]
    async fn extra_places_have_an_end_too() {
        let connections = Connections::new(1);
        let busy = |place: Option<ConnectionGuard>| place.filter(|place| place.connection.begin(true));
        let _places: Vec<_> = (0..1 + EXTRA).map(|_| busy(connections.admit()).unwrap()).collect();
        assert!(connections.admit().is_none());
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_no_request() {
        let connections = Connections::new(1);
        let stalled = idle(&connections);
        assert!(stalled.connection.begin(false));
        assert!(!connections.admit().unwrap().crowded);
        assert!(is_told_to_leave(&stalled).await);
        assert!(!stalled.connection.arrived(), "too late");
    }

    #[tokio::test]
    async fn a_connection_that_ends_leaves_its_place() {
        let connections = Connections::new(1);
        let place = idle(&connections);
        assert!(place.connection.begin(false) && place.connection.arrived());
        assert!(connections.admit().unwrap().crowded);
        drop(place);
        assert!(!connections.admit().unwrap().crowded);
    }

    /// Whether the sweep closes a connection after `doing`: shortly before `time`, and shortly after.
    async fn swept(doing: impl Fn(&Connection), time: Duration) -> (bool, bool) {
        let connections = Connections::new(8);
        let place = idle(&connections);
        doing(&place.connection);
        let sweep = tokio::spawn(connections.clone().sweep());
        tokio::time::sleep(time - Duration::from_millis(10)).await;
        let early = is_told_to_leave(&place).await;
        tokio::time::sleep(Duration::from_millis(10) + SWEEP).await;
        let late = is_told_to_leave(&place).await;
        sweep.abort();
        (early, late)
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_too_long_is_closed() {
        let cut = (false, true);
        assert_eq!(swept(|_| {}, IDLE_TIME).await, cut, "idle");
        assert_eq!(swept(Connection::received, HEADER_TIME).await, cut, "a header that does not end");
        assert_eq!(swept(Connection::closing, CLOSING_TIME).await, cut, "a client that does not close");
        let unread = |connection: &Connection| {
            assert!(connection.begin(true));
            connection.blocked(true);
        };
        assert_eq!(swept(unread, WRITE_TIME).await, cut, "an answer that is not read");
        let slow = |connection: &Connection| {
            unread(connection);
            connection.blocked(false);
        };
        assert_eq!(swept(slow, Duration::from_secs(3600)).await, (false, false), "a request may take its time");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_drip_do_not_lengthen_the_time_for_a_header() {
        let connections = Connections::new(8);
        let place = connections.admit().unwrap();
        let sweep = tokio::spawn(connections.clone().sweep());
        for _ in 0..22 {
            place.connection.received();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(is_told_to_leave(&place).await);
        sweep.abort();
    }
}
