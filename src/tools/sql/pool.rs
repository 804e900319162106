//! A pool of connections to one database, shared by its tools. Connections are opened on demand,
//! bounded in number, and closed after some idle time.
//!
//! sqlx also has a pool, but it does not fit. It retries a server that refuses connections, as if
//! the server were starting up. So a call would learn only at its timeout that the database is
//! unavailable. And it cannot hold what belongs to a connection, such as the way to cancel its
//! statement.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::ToolError;

/// The most connections to one database. A database server permits some dozens, and SQLite has one
/// writer anyway.
const MAX_CONNECTIONS: usize = 8;
/// How long a connection may stay idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a call waits for a connection that is being reset. A reset is one round trip. If the
/// server takes longer than this, opening another connection would not be faster.
const RESET_WAIT: Duration = Duration::from_secs(1);

/// A pool of sessions. `S` is a connection and what belongs to it.
pub(super) struct Pool<S> {
    permits: Arc<Semaphore>,
    idle: Arc<IdleSessions<S>>,
}

struct IdleSessions<S> {
    state: Mutex<PoolState<S>>,
    /// Notified after every reset, whether the connection came back or not.
    reset_done: Notify,
}

struct PoolState<S> {
    idle: Vec<(S, Instant)>,
    /// Connections that are being reset after a call.
    resetting: usize,
    /// Calls that wait for one of these.
    waiting: usize,
}

/// Counts a connection that is being reset.
struct ResettingGuard<S>(Arc<IdleSessions<S>>);

impl<S> Drop for ResettingGuard<S> {
    fn drop(&mut self) {
        self.0.lock().resetting -= 1;
        self.0.reset_done.notify_waiters();
    }
}

/// Counts a call that waits.
struct WaitingGuard<'i, S>(&'i IdleSessions<S>);

impl<S> Drop for WaitingGuard<'_, S> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// The permit for one connection.
pub(super) struct ConnectionPermit<S> {
    _permit: OwnedSemaphorePermit,
    idle: Arc<IdleSessions<S>>,
}

impl<S: Send + 'static> Pool<S> {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            idle: Arc::new(IdleSessions::new()),
        }
    }

    /// Waits for a permit. The caller bounds the wait.
    pub(super) async fn acquire(&self) -> Result<ConnectionPermit<S>, ToolError> {
        match self.permits.clone().acquire_owned().await {
            Ok(permit) => Ok(ConnectionPermit {
                _permit: permit,
                idle: self.idle.clone(),
            }),
            // The semaphore is never closed.
            Err(_) => Err(ToolError::unavailable_before_start(
                "the database's connections are closed",
                None,
            )),
        }
    }
}

impl<S: Send + 'static> ConnectionPermit<S> {
    /// Takes an idle connection, the most recently used first, so that the others can expire.
    /// `None` means that the caller must open one. If a connection is being reset, the call waits
    /// for it instead, unless enough other calls already wait.
    pub(super) async fn take_idle(&self) -> Option<S> {
        let end = Instant::now() + RESET_WAIT;
        // Each connection that is being reset is reserved for one waiting call (`resetting` against
        // `waiting`). A further call opens a connection of its own at once. `notified` is created
        // before the check: it then receives every later `notify_waiters`, even one that comes
        // between the check and the wait. A connection becomes idle before the notification, so a
        // call that wakes finds it or checks again.
        loop {
            let reset_done = self.idle.reset_done.notified();
            let _waiting = {
                let mut state = self.idle.lock();
                if let Some((session, _)) = state.idle.pop() {
                    return Some(session);
                }
                if state.resetting <= state.waiting {
                    return None;
                }
                state.waiting += 1;
                WaitingGuard(&self.idle)
            };
            timeout(end.saturating_duration_since(Instant::now()), reset_done)
                .await
                .ok()?;
        }
    }

    /// Closes all idle connections.
    pub(super) fn close_all_idle(&self) {
        let forgotten = std::mem::take(&mut self.idle.lock().idle);
        drop(forgotten);
    }

    /// Keeps a connection for the next call. It must be reset; the caller drops any other
    /// connection, which closes it.
    pub(super) fn release(self, session: S) {
        let mut state = self.idle.lock();
        state.idle.push((session, Instant::now() + IDLE_TIMEOUT));
        if state.idle.len() == 1 {
            tokio::spawn(close_expired(Arc::downgrade(&self.idle)));
        }
    }

    /// Keeps a connection after `reset`. The reset runs in a task, so that the call need not wait.
    /// `None` means that the reset failed.
    pub(super) fn release_after_reset(
        self,
        reset: impl Future<Output = Option<S>> + Send + 'static,
    ) {
        self.idle.lock().resetting += 1;
        let guard = ResettingGuard(self.idle.clone());
        tokio::spawn(async move {
            if let Some(session) = reset.await {
                self.release(session);
            }
            drop(guard);
        });
    }
}

impl<S> IdleSessions<S> {
    fn new() -> Self {
        Self {
            state: Mutex::new(PoolState {
                idle: Vec::new(),
                resetting: 0,
                waiting: 0,
            }),
            reset_done: Notify::new(),
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, PoolState<S>> {
        self.state.lock()
    }
}

/// Closes connections whose idle time is over, and ends when none is idle. The oldest are at the
/// start of the list.
async fn close_expired<S>(idle: Weak<IdleSessions<S>>) {
    loop {
        let due = match idle.upgrade() {
            Some(idle) => idle.lock().idle.first().map(|(_, due)| *due),
            None => return,
        };
        let Some(due) = due else { return };
        sleep_until(due).await;
        let Some(idle) = idle.upgrade() else { return };
        let now = Instant::now();
        let closed: Vec<_> = idle
            .lock()
            .idle
            .extract_if(.., |(_, due)| *due <= now)
            .collect();
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the open connections.
    struct Counted(#[expect(dead_code, reason = "its drop is what counts")] Arc<()>);

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_reused_then_closed() {
        let (pool, open) = (Pool::new(), Arc::new(()));
        for _ in 0..3 {
            let permit = pool.acquire().await.unwrap();
            let session = permit
                .take_idle()
                .await
                .unwrap_or_else(|| Counted(open.clone()));
            permit.release(session);
        }
        assert_eq!(Arc::strong_count(&open), 2, "one was enough");
        tokio::time::sleep(IDLE_TIMEOUT + Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&open), 1, "closed");
        pool.acquire().await.unwrap().release(Counted(open.clone()));
        tokio::time::sleep(IDLE_TIMEOUT / 2).await;
        assert_eq!(Arc::strong_count(&open), 2);
        tokio::time::sleep(IDLE_TIMEOUT).await;
        assert_eq!(Arc::strong_count(&open), 1, "and again");
    }

    #[tokio::test(start_paused = true)]
    async fn call_waits_for_a_connection_being_reset() {
        let (pool, open) = (Pool::new(), Arc::new(()));
        let session = Counted(open.clone());
        let order = async move {
            tokio::time::sleep(RESET_WAIT / 2).await;
            Some(session)
        };
        pool.acquire().await.unwrap().release_after_reset(order);
        let (first, second) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        let (reused, opened_own) = tokio::join!(first.take_idle(), second.take_idle());
        assert!(reused.is_some(), "the one that comes back");
        assert!(
            opened_own.is_none(),
            "another call waits for it: this one opens its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_closed_after_a_failed_reset() {
        let (pool, open) = (Pool::new(), Arc::new(()));
        let session = Counted(open.clone());
        pool.acquire()
            .await
            .unwrap()
            .release_after_reset(async move {
                drop(session);
                None
            });
        assert!(pool.acquire().await.unwrap().take_idle().await.is_none());
        assert_eq!(Arc::strong_count(&open), 1, "closed");
        let late = Counted(open.clone());
        pool.acquire()
            .await
            .unwrap()
            .release_after_reset(async move {
                tokio::time::sleep(IDLE_TIMEOUT).await;
                Some(late)
            });
        assert!(
            pool.acquire().await.unwrap().take_idle().await.is_none(),
            "the wait is bounded"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_bounded() {
        let pool = Pool::<()>::new();
        let mut permits = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            permits.push(pool.acquire().await.unwrap());
        }
        let waits = tokio::time::timeout(Duration::from_secs(1), pool.acquire());
        assert!(waits.await.is_err());
        permits.pop();
        assert!(
            tokio::time::timeout(Duration::from_secs(1), pool.acquire())
                .await
                .is_ok()
        );
    }
}
