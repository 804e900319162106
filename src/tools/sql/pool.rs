//! Connections to one database, shared by its tools: opened when they are needed, bounded in number, closed when nobody
//! has used them for a while.
//!
//! sqlx has a pool too. It waits for a server that refuses connections as if that were starting up, so a call would
//! learn only at its timeout that the database is down; and what belongs to a connection (how to stop its statement)
//! finds no place in it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::ToolError;

/// Connections at once to one database: a database server counts in dozens, and SQLite has one writer anyway.
const MOST: usize = 8;
/// How long one may lie idle.
const IDLE: Duration = Duration::from_secs(60);
/// How long a call waits for a connection that is being put in order. That is one round trip; with a server that takes longer,
/// opening another connection is no better.
const COMING_BACK: Duration = Duration::from_secs(1);

/// See the module. `S` is a connection and what belongs to it.
pub(super) struct Pool<S> {
    places: Arc<Semaphore>,
    idle: Arc<Idle<S>>,
}

struct Idle<S> {
    state: Mutex<State<S>>,
    /// One has come back, or will not.
    back: Notify,
}

struct State<S> {
    idle: Vec<(S, Instant)>,
    /// Connections that are being put in order after a call.
    coming: usize,
    /// Calls that wait for these.
    waiting: usize,
}

/// A connection on its way back.
struct Coming<S>(Arc<Idle<S>>);

impl<S> Drop for Coming<S> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
        self.0.back.notify_waiters();
    }
}

/// A call that waits.
struct Waiting<'i, S>(&'i Idle<S>);

impl<S> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// The right to one connection.
pub(super) struct Place<S> {
    _permit: OwnedSemaphorePermit,
    idle: Arc<Idle<S>>,
}

impl<S: Send + 'static> Pool<S> {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), idle: Arc::new(Idle::new()) }
    }

    /// Waits for a place; how long is for the caller to bound.
    pub(super) async fn place(&self) -> Result<Place<S>, ToolError> {
        match self.places.clone().acquire_owned().await {
            Ok(permit) => Ok(Place { _permit: permit, idle: self.idle.clone() }),
            // It is never closed.
            Err(_) => Err(ToolError::unavailable_before("the database's connections are closed", None)),
        }
    }
}

impl<S: Send + 'static> Place<S> {
    /// A connection that was used before, the last one first: the others may rest until they are closed. One that is on its
    /// way back is waited for, unless another call does that already.
    pub(super) async fn idle(&self) -> Option<S> {
        let end = Instant::now() + COMING_BACK;
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

    /// Closes those that are idle.
    pub(super) fn forget(&self) {
        let forgotten = std::mem::take(&mut self.idle.lock().idle);
        drop(forgotten);
    }

    /// Keeps a connection that is in order; one that is not is dropped, which closes it.
    pub(super) fn keep(self, session: S) {
        let mut state = self.idle.lock();
        state.idle.push((session, Instant::now() + IDLE));
        if state.idle.len() == 1 {
            tokio::spawn(close_idle(Arc::downgrade(&self.idle)));
        }
    }

    /// Keeps a connection once `order` has put it in order, for which nobody waits. `None`: that was not possible.
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

/// Closes what lies idle, as long as anything does. The oldest lie at the bottom.
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

    /// Counts those that are open.
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
