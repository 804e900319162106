//! Connections to one database, shared by its tools: opened when they are needed, bounded in number, closed when nobody
//! has used them for a while.
//!
//! sqlx has a pool too. It waits for a server that refuses connections as if that were starting up, so a call would
//! learn only at its timeout that the database is down; and what belongs to a connection (how to stop its statement)
//! finds no place in it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::call::ToolError;

/// Connections at once to one database: a database server counts in dozens, and SQLite has one writer anyway.
const MOST: usize = 8;
/// How long one may lie idle.
const IDLE: Duration = Duration::from_secs(60);

/// See the module. `S` is a connection and what belongs to it.
pub(super) struct Pool<S> {
    places: Arc<Semaphore>,
    idle: Arc<Idle<S>>,
}

struct Idle<S>(Mutex<Vec<(S, Instant)>>);

/// The right to one connection.
pub(super) struct Place<S> {
    _permit: OwnedSemaphorePermit,
    idle: Arc<Idle<S>>,
}

impl<S: Send + 'static> Pool<S> {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), idle: Arc::new(Idle(Mutex::default())) }
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
    /// A connection that was used before, the last one first: the others may rest until they are closed.
    pub(super) fn idle(&self) -> Option<S> {
        self.idle.lock().pop().map(|(session, _)| session)
    }

    /// Keeps a connection that is in order; one that is not is dropped, which closes it.
    pub(super) fn keep(self, session: S) {
        let mut idle = self.idle.lock();
        idle.push((session, Instant::now() + IDLE));
        if idle.len() == 1 {
            tokio::spawn(close_idle(Arc::downgrade(&self.idle)));
        }
    }
}

impl<S> Idle<S> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(S, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what lies idle, as long as anything does. The oldest lie at the bottom.
async fn close_idle<S>(idle: Weak<Idle<S>>) {
    loop {
        let due = match idle.upgrade() {
            Some(idle) => idle.lock().first().map(|(_, due)| *due),
            None => return,
        };
        let Some(due) = due else { return };
        sleep_until(due).await;
        let Some(idle) = idle.upgrade() else { return };
        let now = Instant::now();
        let closed: Vec<_> = idle.lock().extract_if(.., |(_, due)| *due <= now).collect();
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
            let session = place.idle().unwrap_or_else(|| Counted(open.clone()));
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
