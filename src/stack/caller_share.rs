//! Counts what each caller holds of one tool: permits and waiting calls, both bounded.
//!
//! A caller has an entry only while one of its calls runs or waits, so the table is never larger
//! than the number of calls. A tool's semaphore is first in, first out. A call that waits for its
//! caller's share must not stand in that queue, or it would block other callers' calls behind it.
//! So a call takes its share first.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The calls of each caller of one tool.
pub(super) struct CallerShares {
    max_permits: usize,
    entries: Mutex<HashMap<Arc<str>, Share>>,
}

/// The calls of one caller.
struct Share {
    permits: Arc<Semaphore>,
    /// Calls that run or wait.
    members: usize,
    /// Calls that wait for a permit of any type.
    waiting: usize,
}

impl CallerShares {
    /// Makes an empty table. Each caller may hold `per_caller` permits.
    pub(super) fn new(per_caller: usize) -> Self {
        Self {
            max_permits: per_caller,
            entries: Mutex::default(),
        }
    }

    /// Maximum number of permits of one caller.
    pub(super) fn max_permits(&self) -> usize {
        self.max_permits
    }

    /// Counts a call of this caller.
    pub(super) fn join(self: &Arc<Self>, caller: &Arc<str>) -> Membership {
        let mut table = self.lock_entries();
        let share = table.entry(caller.clone()).or_insert_with(|| Share {
            permits: Arc::new(Semaphore::new(self.max_permits.min(Semaphore::MAX_PERMITS))),
            members: 0,
            waiting: 0,
        });
        share.members += 1;
        Membership {
            permit: None,
            permits: share.permits.clone(),
            is_waiting: false,
            caller: caller.clone(),
            shares: self.clone(),
        }
    }

    fn lock_entries(&self) -> MutexGuard<'_, HashMap<Arc<str>, Share>> {
        self.entries.lock()
    }

    #[cfg(test)]
    pub(super) fn caller_count(&self) -> usize {
        self.lock_entries().len()
    }
}

/// One call's part of its caller's share. Dropping it releases all that the call holds.
pub(super) struct Membership {
    permit: Option<OwnedSemaphorePermit>,
    permits: Arc<Semaphore>,
    is_waiting: bool,
    caller: Arc<str>,
    shares: Arc<CallerShares>,
}

impl Membership {
    /// Whether the call holds one of its caller's permits.
    pub(super) fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    /// Takes one of the caller's permits if one is free.
    pub(super) fn try_acquire(&mut self) -> bool {
        if self.permit.is_none() {
            self.permit = self.permits.clone().try_acquire_owned().ok();
        }
        self.has_permit()
    }

    /// Waits for one of the caller's permits, unless the call holds one.
    pub(super) async fn acquire(&mut self) -> Result<(), AcquireError> {
        if self.permit.is_none() {
            self.permit = Some(self.permits.clone().acquire_owned().await?);
        }
        Ok(())
    }

    /// Counts the call as waiting, unless `max_waiting` calls of its caller wait already. Returns
    /// whether the call may wait.
    pub(super) fn begin_waiting(&mut self, max_waiting: usize) -> bool {
        let mut table = self.shares.lock_entries();
        if let Some(share) = table
            .get_mut(&self.caller)
            .filter(|share| share.waiting < max_waiting)
        {
            share.waiting += 1;
            self.is_waiting = true;
        }
        self.is_waiting
    }

    /// Stops counting the call as waiting, because it has all its permits.
    pub(super) fn end_waiting(&mut self) {
        if std::mem::take(&mut self.is_waiting)
            && let Some(share) = self.shares.lock_entries().get_mut(&self.caller)
        {
            share.waiting -= 1;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // The permit is released before the entry is removed. In the opposite order, the caller's
        // next call could create a new entry with all permits free while this permit is still held.
        self.permit = None;
        let mut table = self.shares.lock_entries();
        if let Some(share) = table.get_mut(&self.caller) {
            share.waiting -= usize::from(self.is_waiting);
            share.members -= 1;
            if share.members == 0 {
                table.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn share_entry_ends_with_its_last_call() {
        let shares = Arc::new(CallerShares::new(1));
        let ann: Arc<str> = "ann".into();
        let (mut first, mut second) = (shares.join(&ann), shares.join(&ann));
        assert!(first.try_acquire() && !second.try_acquire());
        assert!(
            shares.join(&"bob".into()).try_acquire(),
            "another caller has permits of its own"
        );
        assert_eq!(shares.caller_count(), 1);
        drop(first);
        assert!(second.try_acquire());
        drop(second);
        assert_eq!(shares.caller_count(), 0);
    }

    #[tokio::test]
    async fn ended_waits_free_queue_slots() {
        let shares = Arc::new(CallerShares::new(3));
        assert_eq!(shares.max_permits(), 3);
        let ann: Arc<str> = "ann".into();
        let mut calls: Vec<Membership> = (0..4).map(|_| shares.join(&ann)).collect();
        for (call, may_wait) in calls.iter_mut().zip([true, true, false]) {
            assert_eq!(call.begin_waiting(2), may_wait);
        }
        calls[0].end_waiting();
        calls[0].end_waiting();
        assert!(calls[2].begin_waiting(2) && !calls[3].begin_waiting(2));
    }

    #[tokio::test]
    async fn dropped_waiting_calls_release_everything() {
        let shares = Arc::new(CallerShares::new(1));
        let ann: Arc<str> = "ann".into();
        let mut first = shares.join(&ann);
        assert!(first.try_acquire());
        let mut second = shares.join(&ann);
        assert!(second.begin_waiting(1) && !shares.join(&ann).begin_waiting(1));
        let waiting = tokio::spawn(async move { second.acquire().await });
        tokio::task::yield_now().await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert!(
            shares.join(&ann).begin_waiting(1),
            "a call that gave up is not counted"
        );
        drop(first);
        assert_eq!(shares.caller_count(), 0);
        assert!(shares.join(&ann).try_acquire());
    }
}
