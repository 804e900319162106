//! A pool of connections to one database, shared by its tools. Connections are opened on demand, bounded in number,
//! and closed after some idle time.
//!
//! sqlx also has a pool, but it does not fit. It retries a server that refuses connections, as if the server were
//! starting up. So a call would learn only at its timeout that the database is unavailable. And it cannot hold what
//! belongs to a connection, such as the way to cancel its statement.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::ToolError;

/// The most connections to one database. A database server permits some dozens, and SQLite has one writer anyway.
const MOST: usize = 8;
/// How long a connection may stay idle.
const IDLE: Duration = Duration::from_secs(60);
/// How long a call waits for a connection that is being reset. A reset is one round trip. If the server takes longer
/// than this, opening another connection would not be faster.
const COMING_BACK: Duration = Duration::from_secs(1);

/// A pool of sessions. `S` is a connection and what belongs to it.
pub(super) struct Pool<S> {
    places: Arc<Semaphore>,
    idle: Arc<Idle<S>>,
}

struct Idle<S> {
    state: Mutex<State<S>>,
    /// Notified after every reset, whether the connection came back or not.
    back: Notify,
}

struct State<S> {
    idle: Vec<(S, Instant)>,
    /// Connections that are being reset after a call.
    coming: usize,
    /// Calls that wait for one of these.
    waiting: usize,
}

/// Counts a connection that is being reset.
struct Coming<S>(Arc<Idle<S>>);

impl<S> Drop for Coming<S> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
        self.0.back.notify_waiters();
    }
}

/// Counts a call that waits.
struct Waiting<'i, S>(&'i Idle<S>);

impl<S> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// The permit for one connection.
pub(super) struct ConnectionPermit<S> {
    _permit: OwnedSemaphorePermit,
    idle: Arc<Idle<S>>,
}

impl<S: Send + 'static> Pool<S> {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), idle: Arc::new(Idle::new()) }
    }

    /// Waits for a permit. The caller bounds the wait.
    pub(super) async fn place(&self) -> Result<ConnectionPermit<S>, ToolError> {
        match self.places.clone().acquire_owned().await {
            Ok(permit) => Ok(ConnectionPermit { _permit: permit, idle: self.idle.clone() }),
            // The semaphore is never closed.
            Err(_) => Err(ToolError::unavailable_before("the database's connections are closed", None)),
        }
    }
}

impl<S: Send + 'static> ConnectionPermit<S> {
    /// Takes an idle connection, the most recently used first, so that the others can expire. `None` means that the
    /// caller must open one. If a connection is being reset, the call waits for it instead, unless enough other calls
    /// already wait.
    pub(super) async fn idle(&self) -> Option<S> {
        let end = Instant::now() + COMING_BACK;
        // Each connection that is being reset is reserved for one waiting call (`coming` against `waiting`). A
        // further call opens a connection of its own at once. `notified` is created before the check: it then
        // receives every later `notify_waiters`, even one that comes between the check and the wait. A connection
        // becomes idle before the notification, so a call that wakes finds it or checks again.
        loop {
            let back = self.idle.back.notified();
            let _waiting = {
                let mut state = self.idle.lock();
                if let Some((session, _)) = state.idle.pop() {
                    return Some(session);
                }
                if state.coming <= state.waiting {
                    return None;
                }
                state.waiting += 1;
                Waiting(&self.idle)
            };
            timeout(end.saturating_duration_since(Instant::now()), back).await.ok()?;
        }
    }

    /// Closes all idle connections.
    pub(super) fn forget(&self) {
        let forgotten = std::mem::take(&mut self.idle.lock().idle);
        drop(forgotten);
    }

    /// Keeps a connection for the next call. It must be in order; the caller drops any other connection, which closes
    /// it.
    pub(super) fn keep(self, session: S) {
        let mut state = self.idle.lock();
        state.idle.push((session, Instant::now() + IDLE));
        if state.idle.len() == 1 {
            tokio::spawn(close_idle(Arc::downgrade(&self.idle)));
        }
    }

    /// Keeps a connection after `order` has reset it. The reset runs in a task, so that the call need not wait.
    /// `None` means that the reset failed.
    pub(super) fn keep_after(self, order: impl Future<Output = Option<S>> + Send + 'static) {
        self.idle.lock().coming += 1;
        let coming = Coming(self.idle.clone());
        tokio::spawn(async move {
            if let Some(session) = order.await {
                self.keep(session);
            }
            drop(coming);
        });
    }
}

impl<S> Idle<S> {
    fn new() -> Self {
        Self { state: Mutex::new(State { idle: Vec::new(), coming: 0, waiting: 0 }), back: Notify::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections whose idle time is over, and ends when none is idle. The oldest are at the start of the list.
async fn close_idle<S>(idle: Weak<Idle<S>>) {
    loop {
        let due = match idle.upgrade() {
            Some(idle) => idle.lock().idle.first().map(|(_, due)| *due),
            None => return,
        };
        let Some(due) = due else { return };
        sleep_until(due).await;
        let Some(idle) = idle.upgrade() else { return };
        let now = Instant::now();
        let closed: Vec<_> = idle.lock().idle.extract_if(.., |(_, due)| *due <= now).collect();
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the open connections.
    struct Counted(#[expect(dead_code, reason = "its drop is what counts")] Arc<()>);

    #[tokio::test(start_paused = true)]
    async fn connections_are_used_again_and_closed_when_they_lie_idle() {
        let (pool, open) = (Pool::new(), Arc::new(()));
        for _ in 0..3 {
            let place = pool.place().await.unwrap();
            let session = place.idle().await.unwrap_or_else(|| Counted(open.clone()));
            place.keep(session);
        }
        assert_eq!(Arc::strong_count(&open), 2, "one was enough");
        tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&open), 1, "closed");
        pool.place().await.unwrap().keep(Counted(open.clone()));
        tokio::time::sleep(IDLE / 2).await;
        assert_eq!(Arc::strong_count(&open), 2);
        tokio::time::sleep(IDLE).await;
        assert_eq!(Arc::strong_count(&open), 1, "and again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_a_connection_coming_back() {
        let (pool, open) = (Pool::new(), Arc::new(()));
        let session = Counted(open.clone());
        let order = async move {
            tokio::time::sleep(COMING_BACK / 2).await;
            Some(session)
        };
        pool.place().await.unwrap().keep_after(order);
        let (first, second) = (pool.place().await.unwrap(), pool.place().await.unwrap());
        let (waited, did_not) = tokio::join!(first.idle(), second.idle());
        assert!(waited.is_some(), "the one that comes back");
        assert!(did_not.is_none(), "another call waits for it: this one opens its own");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_out_of_order_is_closed() {
        let (pool, open) = (Pool::new(), Arc::new(()));
        let session = Counted(open.clone());
        pool.place().await.unwrap().keep_after(async move {
            drop(session);
            None
        });
        assert!(pool.place().await.unwrap().idle().await.is_none());
        assert_eq!(Arc::strong_count(&open), 1, "closed");
        let late = Counted(open.clone());
        pool.place().await.unwrap().keep_after(async move {
            tokio::time::sleep(IDLE).await;
            Some(late)
        });
        assert!(pool.place().await.unwrap().idle().await.is_none(), "nobody waits so long");
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_only_so_many() {
        let pool = Pool::<()>::new();
        let mut held = Vec::new();
        for _ in 0..MOST {
            held.push(pool.place().await.unwrap());
        }
        let waits = tokio::time::timeout(Duration::from_secs(1), pool.place());
        assert!(waits.await.is_err());
        held.pop();
        assert!(tokio::time::timeout(Duration::from_secs(1), pool.place()).await.is_ok());
    }
}
