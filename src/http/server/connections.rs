//! Who is connected, what each connection is doing and since when, and who makes room for whom. Knows no sockets.
//!
//! A connection has earned its place while a request is under way on it, from the last byte of the request to the last
//! byte of the answer. All others may be closed for a new one when places run out, those first that have never had
//! an answer. One task looks every half second who has taken too long; no connection has a timer of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::http::settings::{CLOSING_TIME, HEADER_TIME, IDLE_TIME, WRITE_TIME};

/// How often connections are looked at for having taken too long.
const SWEEP: Duration = Duration::from_millis(500);
/// How often a stopping service looks whether its connections are done.
const LOOK: Duration = Duration::from_millis(5);

/// How long a newcomer is left alone while there are places.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Places beyond the others, for connections that come when all have requests under way: to be told so, and for probes.
const EXTRA: usize = 32;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It has never sent a whole header block.
    Newcomer,
    /// Between two requests.
    Idle,
    /// The header block of its next request has begun.
    Header,
    /// A header block is there, the body behind it is not, or not all of it.
    Body,
    /// A request is under way.
    Request,
    /// The answer is complete; its last bytes are on their way to the kernel.
    Answer,
    /// Our side is closed; the client's is not.
    Closing,
}

/// What a connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Answer what is under way, then close.
    Finish,
    /// Close now.
    Leave,
}

#[derive(Debug)]
struct State {
    doing: Doing,
    since: Instant,
    /// Its client was once waited for: until then, what it has sent may just not have been looked at.
    waited: bool,
    /// It has had an answer: a client, not a flood.
    served: bool,
    /// Since when the client has taken nothing of what is to be written.
    blocked: Option<Instant>,
    /// Told to leave: no request begins any more.
    left: bool,
}

impl State {
    fn has_request(&self) -> bool {
        matches!(self.doing, Doing::Request | Doing::Answer)
    }

    /// Whether an answer is owed: bytes of a request are here, or may be and were not looked for yet.
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
            // Bodies and requests have limits of their own, and answers that say so.
            Doing::Body | Doing::Request | Doing::Answer => None,
        };
        limit.is_some_and(|limit| now.duration_since(self.since) >= limit)
            || self.blocked.is_some_and(|since| now.duration_since(since) >= WRITE_TIME)
    }

    /// Who goes first to make room; `None` for who stays.
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

/// One connection, as its socket, its requests and the table see it.
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

    /// A header block is complete, and `whole` says whether the request is. `false`: this connection was chosen to make
    /// room, and the request must not begin.
    pub(super) fn begin(&self, whole: bool) -> bool {
        let mut state = self.state();
        match whole {
            true => state.doing = Doing::Request,
            false => (state.doing, state.since) = (Doing::Body, Instant::now()),
        }
        !state.left
    }

    /// The body is complete. `false`: the same.
    pub(super) fn arrived(&self) -> bool {
        let mut state = self.state();
        if state.doing == Doing::Body {
            state.doing = Doing::Request;
        }
        !state.left
    }

    /// The answer's body is complete, or given up.
    pub(super) fn answered(&self) {
        let mut state = self.state();
        (state.doing, state.served) = (Doing::Answer, true);
    }

    /// Everything written so far is with the kernel.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        if state.doing == Doing::Answer {
            (state.doing, state.since) = (Doing::Idle, Instant::now());
        }
    }

    /// Bytes came from the client.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.doing == Doing::Idle {
            (state.doing, state.since) = (Doing::Header, Instant::now());
        }
    }

    /// There was nothing to read for the first time.
    pub(super) fn waiting(&self) {
        self.state().waited = true;
    }

    /// The client takes no more bytes (`true`), or some again.
    pub(super) fn blocked(&self, blocked: bool) {
        let mut state = self.state();
        match blocked {
            true => _ = state.blocked.get_or_insert_with(Instant::now),
            false => state.blocked = None,
        }
    }

    /// Our side is closed.
    pub(super) fn closing(&self) {
        let mut state = self.state();
        (state.doing, state.since) = (Doing::Closing, Instant::now());
    }

    /// Waits for the next order.
    pub(super) async fn order(&self) -> Order {
        self.ordered.notified().await;
        if self.state().left { Order::Leave } else { Order::Finish }
    }

    /// Tells it to leave if that is (still) right.
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
    /// Connections at once.
    places: usize,
    /// Of these, such as have never sent a header block.
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
    /// A table with so many places, a quarter of them for newcomers.
    pub(super) fn new(places: usize) -> Self {
        let newcomers = (places / 4).max(1);
        Self(Arc::new(Shared { places, newcomers, table: Mutex::default(), ending: AtomicBool::new(false) }))
    }

    /// A place for a new connection, if need be that of one without a request. `None`: even the extra ones are taken.
    pub(super) fn admit(&self) -> Option<Place> {
        let mut table = self.table();
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
            // A request that is on its way has arrived by then: a burst of clients is not a flood.
            let stalls = |state: &State| state.waited && now.duration_since(state.since) >= ON_ITS_WAY;
            let _ = table.make_room(|state| state.doing == Doing::Newcomer && stalls(state));
        }
        let (id, connection) = (table.next, Arc::new(Connection::new()));
        table.next += 1;
        table.open.insert(id, connection.clone());
        Some(Place { id, crowded, connection, connections: self.clone() })
    }

    /// Closes the connection that can best be missed; `None`: there is none.
    pub(super) fn make_room(&self) -> Option<()> {
        self.table().make_room(|_| true)
    }

    /// Closes those that have taken too long, for as long as it is polled.
    pub(super) async fn sweep(self) {
        let mut ticks = interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.table().open.retain(|_, open| !open.leave_if(|state| state.is_overdue(now)));
        }
    }

    /// From now on every answer is its connection's last.
    pub(super) fn end_soon(&self) {
        self.0.ending.store(true, Ordering::Release);
    }

    /// Whether answers are their connections' last.
    pub(super) fn are_ending(&self) -> bool {
        self.0.ending.load(Ordering::Acquire)
    }

    /// Tells all to close once their requests are answered.
    pub(super) fn finish(&self) {
        for open in self.table().open.values() {
            open.ordered.notify_one();
        }
    }

    /// Waits until no request is under way, and none is on its way.
    pub(super) async fn answered(&self) {
        while self.table().open.values().any(|open| open.state().has_begun()) {
            sleep(LOOK).await;
        }
    }

    /// Waits until nobody is connected.
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
        // A request may begin between the choice and the order: then the next best is asked.
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

/// A connection's place in the table; given up when dropped.
pub(super) struct Place {
    id: u64,
    /// It is one of the extra ones: all others have requests under way.
    pub(super) crowded: bool,
    /// What it is doing.
    pub(super) connection: Arc<Connection>,
    connections: Connections,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    async fn is_told_to_leave(place: &Place) -> bool {
        timeout(Duration::ZERO, place.connection.order()).await == Ok(Order::Leave)
    }

    /// A connection that has sent nothing, and was looked at.
    fn newcomer(connections: &Connections) -> Place {
        let place = connections.admit().unwrap();
        place.connection.waiting();
        place
    }

    /// A connection between two requests.
    fn idle(connections: &Connections) -> Place {
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
        let others: Vec<Place> = (0..6).map(|_| idle(&connections)).collect();
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
        let places: Vec<Place> = (0..2).map(|_| idle(&connections)).collect();
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
        let busy = |place: Option<Place>| place.filter(|place| place.connection.begin(true));
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

    /// Whether the sweep closes a connection that has done this, before and after the time.
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
