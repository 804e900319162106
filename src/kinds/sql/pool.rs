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

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::call::ToolError;
use crate::runtime::blocking::run_blocking;

/// The most connections to one database. A database server permits some dozens, and SQLite has one
/// writer anyway.
const MAX_CONNECTIONS: usize = 8;
/// How long a connection may stay idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a call waits for a connection that is being reset. A reset is one round trip. If the
/// server takes longer than this, opening another connection would not be faster.
const RESET_WAIT: Duration = Duration::from_secs(1);
/// How long a connection may wait for a call that resets it itself. Meanwhile it keeps the locks of
/// its last call.
const UNRESET_TIME: Duration = Duration::from_millis(2);

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
    /// Connections that are ready, and when each is closed.
    idle: Vec<(S, Instant)>,
    /// Whether a task waits to close them.
    is_expiring: bool,
    /// Connections that are not reset yet, and until when each waits for a call.
    unreset: Vec<(S, Instant)>,
    /// Whether a task waits to reset them.
    is_resetting_left: bool,
    /// Connections that are being reset after a call.
    resetting: usize,
    /// Calls that wait for one of these.
    waiting: usize,
}

/// Counts a connection that is being reset.
struct ResettingGuard<S>(Arc<IdleSessions<S>>);

impl<S> Drop for ResettingGuard<S> {
    fn drop(&mut self) {
        self.0.state.lock().resetting -= 1;
        self.0.reset_done.notify_waiters();
    }
}

/// Counts a call that waits.
struct WaitingGuard<'i, S>(&'i IdleSessions<S>);

impl<S> Drop for WaitingGuard<'_, S> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// The permit for one connection.
pub(super) struct ConnectionPermit<S> {
    permit: OwnedSemaphorePermit,
    idle: Arc<IdleSessions<S>>,
}

impl<S: Send + 'static> Pool<S> {
    pub(super) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            idle: Arc::new(IdleSessions {
                state: Mutex::new(PoolState {
                    idle: Vec::new(),
                    is_expiring: false,
                    unreset: Vec::new(),
                    is_resetting_left: false,
                    resetting: 0,
                    waiting: 0,
                }),
                reset_done: Notify::new(),
            }),
        }
    }

    /// Waits for a permit. The caller bounds the wait.
    pub(super) async fn acquire(&self) -> Result<ConnectionPermit<S>, ToolError> {
        match self.permits.clone().acquire_owned().await {
            Ok(permit) => Ok(ConnectionPermit {
                permit,
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
    /// Takes a connection, the most recently used first, so that the others can expire. The caller
    /// resets it, if it came from `release_unreset`.
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
                let mut state = self.idle.state.lock();
                let unreset = state.unreset.pop();
                if let Some((session, _)) = unreset.or_else(|| state.idle.pop()) {
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
        let mut state = self.idle.state.lock();
        let closed = (
            std::mem::take(&mut state.idle),
            std::mem::take(&mut state.unreset),
        );
        drop(state);
        drop(closed);
    }

    /// Keeps a connection for the next call. It must be reset; the caller drops any other
    /// connection, which closes it.
    pub(super) fn release(&self, session: S) {
        self.idle.push(session);
    }

    /// Keeps a connection after `reset`. The reset runs in a task, so that the call need not wait.
    /// `None` means that the reset failed.
    pub(super) fn release_after_reset(
        self,
        reset: impl Future<Output = Option<S>> + Send + 'static,
    ) {
        self.idle.spawn_reset(reset, self.permit);
    }

    /// Keeps a connection that the next call resets together with its own first command, which
    /// saves a round trip. If no call comes soon, `reset` is called.
    pub(super) fn release_unreset<R>(&self, session: S, reset: fn(S) -> R)
    where
        R: Future<Output = Option<S>> + Send + 'static,
    {
        let mut state = self.idle.state.lock();
        state.unreset.push((session, Instant::now() + UNRESET_TIME));
        if !std::mem::replace(&mut state.is_resetting_left, true) {
            let permits = self.permit.semaphore().clone();
            tokio::spawn(reset_left(Arc::downgrade(&self.idle), permits, reset).boxed());
        }
    }
}

impl<S: Send + 'static> IdleSessions<S> {
    fn push(self: &Arc<Self>, session: S) {
        let mut state = self.state.lock();
        state.idle.push((session, Instant::now() + IDLE_TIMEOUT));
        if !std::mem::replace(&mut state.is_expiring, true) {
            tokio::spawn(close_expired(Arc::downgrade(self)).boxed());
        }
    }

    /// Resets a connection in a task, which holds `permit` meanwhile.
    fn spawn_reset(
        self: &Arc<Self>,
        reset: impl Future<Output = Option<S>> + Send + 'static,
        permit: OwnedSemaphorePermit,
    ) {
        self.state.lock().resetting += 1;
        let guard = ResettingGuard(self.clone());
        let task = async move {
            if let Some(session) = reset.await {
                guard.0.push(session);
            }
            drop(permit);
            drop(guard);
        };
        tokio::spawn(task.boxed());
    }
}

/// Closes connections whose idle time is over, and ends when none is idle. The oldest are at the
/// start of the list.
async fn close_expired<S: Send + 'static>(idle: Weak<IdleSessions<S>>) {
    loop {
        let due = {
            let Some(idle) = idle.upgrade() else { return };
            let mut state = idle.state.lock();
            let Some((_, due)) = state.idle.first() else {
                state.is_expiring = false;
                return;
            };
            *due
        };
        sleep_until(due).await;
        let Some(idle) = idle.upgrade() else { return };
        let now = Instant::now();
        let closed: Vec<_> = idle
            .state
            .lock()
            .idle
            .extract_if(.., |(_, due)| *due <= now)
            .collect();
        // Closing a database file can write to the disk.
        run_blocking(move || drop(closed)).await;
    }
}

/// Resets connections for which no call came, and ends when none is left. The oldest are at the
/// start of the list.
async fn reset_left<S, R>(idle: Weak<IdleSessions<S>>, permits: Arc<Semaphore>, reset: fn(S) -> R)
where
    S: Send + 'static,
    R: Future<Output = Option<S>> + Send + 'static,
{
    loop {
        sleep(UNRESET_TIME).await;
        let Some(idle) = idle.upgrade() else { return };
        let now = Instant::now();
        let mut state = idle.state.lock();
        let mut left = Vec::new();
        // Without a permit, there are calls for all connections.
        while state.unreset.first().is_some_and(|(_, due)| *due <= now)
            && let Ok(permit) = permits.clone().try_acquire_owned()
        {
            left.push((state.unreset.remove(0).0, permit));
        }
        state.is_resetting_left = !state.unreset.is_empty();
        let is_last = !state.is_resetting_left;
        drop(state);
        for (session, permit) in left {
            idle.spawn_reset(reset(session), permit);
        }
        if is_last {
            return;
        }
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

    #[tokio::test]
    async fn one_task_closes_idle_connections() {
        let pool = Pool::new();
        for _ in 0..10 {
            let permit = pool.acquire().await.unwrap();
            permit.take_idle().await;
            permit.release(());
        }
        let runtime = tokio::runtime::Handle::current();
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
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

    /// Marks an unreset session as reset.
    async fn reset_flag(_: bool) -> Option<bool> {
        Some(true)
    }

    #[tokio::test(start_paused = true)]
    async fn following_call_takes_an_unreset_connection() {
        let pool = Pool::new();
        pool.acquire()
            .await
            .unwrap()
            .release_unreset(false, reset_flag);
        let permit = pool.acquire().await.unwrap();
        assert_eq!(permit.take_idle().await, Some(false), "the call resets it");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_a_call_is_reset() {
        let pool = Pool::new();
        for _ in 0..2 {
            let permit = pool.acquire().await.unwrap();
            permit.take_idle().await;
            permit.release_unreset(false, reset_flag);
            drop(permit);
            tokio::time::sleep(3 * UNRESET_TIME).await;
            let permit = pool.acquire().await.unwrap();
            assert_eq!(permit.take_idle().await, Some(true));
        }
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
