//! The bulkhead of a tool: bounds how many of its calls run and how many wait. Further calls are
//! refused on arrival.
//!
//! This layer is below the cache, because a stored result needs no permit. It is above the usage
//! limit, because a refused call costs no unit. One permit covers all attempts. tower's
//! `ConcurrencyLimit` waits without bound and its `LoadShed` never waits; this layer has a short
//! bounded queue instead.
//!
//! A second bound covers all tools together and protects the machine. It is not divided among the
//! tools. Only a tool's own `max` keeps a tool that hangs from taking all permits (by default, 16
//! of 256). `check` warns if a manifest sets it otherwise.
//!
//! With `per_caller`, a caller has a share: it holds at most that many of the tool's permits, and
//! its calls take at most the same fraction of the queue. Without callers in the manifest, all
//! requests belong to one caller. A call that joins another call's flight does not reach this layer
//! and needs no permit. The flight counts for the caller that leads it.
//!
//! A nested call reuses its parent's global permit and, if it targets the same tool, the tool's
//! permit and its caller's share as well. Otherwise an agent would deadlock waiting for permits
//! that it holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::interceptor::{Inner, Interceptor, InterceptorLayer};
use crate::call::{CallError, Concurrency, Invocation};
use crate::metrics::ToolMetrics;

/// `retry_after` for a call that is refused because permits and queue are full.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The permits of one tool. They survive when the tool is changed at run time. Otherwise a change
/// could let twice as many calls run.
#[derive(Clone)]
pub struct ToolPermits {
    tool: Arc<Semaphore>,
    callers: Option<Arc<CallerShares>>,
}

impl ToolPermits {
    /// Makes the permits of a tool with these settings. Permits of `before` are kept if their
    /// number is unchanged.
    pub fn new(settings: Concurrency, before: Option<(Concurrency, &Self)>) -> Self {
        let same_max = before.filter(|(before, _)| before.max == settings.max);
        let tool = same_max.map(|(_, permits)| permits.tool.clone());
        let callers = settings.per_caller.map(|per_caller| {
            let same_shares = before.and_then(|(_, permits)| permits.callers.clone());
            let same_shares = same_shares.filter(|shares| shares.max_permits() == per_caller);
            same_shares.unwrap_or_else(|| Arc::new(CallerShares::new(per_caller)))
        });
        let all_free = || Arc::new(Semaphore::new(settings.max.min(Semaphore::MAX_PERMITS)));
        Self {
            tool: tool.unwrap_or_else(all_free),
            callers,
        }
    }
}

/// The layer that bounds the calls of one tool.
pub struct ConcurrencyLimit {
    permits: ToolPermits,
    global_permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Maximum number of waiting calls of one caller.
    caller_queue: usize,
    settings: Concurrency,
    metrics: ToolMetrics,
}

impl ConcurrencyLimit {
    /// Makes the bulkhead of one tool. `global_permits` is the bound over all tools.
    pub fn layer(
        settings: Concurrency,
        permits: ToolPermits,
        global_permits: Arc<Semaphore>,
        metrics: &ToolMetrics,
    ) -> InterceptorLayer<Self> {
        InterceptorLayer::new(Self {
            permits,
            global_permits,
            waiting: AtomicUsize::new(0),
            caller_queue: settings.queue_per_caller(),
            settings,
            metrics: metrics.clone(),
        })
    }
}

impl Interceptor for ConcurrencyLimit {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        let _permits = self.acquire_permits(&invocation).await?;
        let _counted = self.metrics.count_running();
        inner.call(invocation).await
    }
}

/// The permits that a call holds. A field is `None` if the call needs no permit of that type. The
/// fields are dropped in this order: the tool's permit is free before the caller's share, so the
/// caller's next call finds both.
#[expect(dead_code, reason = "the permits are held until they are dropped")]
struct HeldPermits {
    global: Option<OwnedSemaphorePermit>,
    tool: Option<OwnedSemaphorePermit>,
    share: Option<Membership>,
}

fn try_acquire_permit(
    permits: Option<&Arc<Semaphore>>,
) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
    permits
        .map(|permits| permits.clone().try_acquire_owned())
        .transpose()
}

async fn acquire_permit(
    permits: Option<&Arc<Semaphore>>,
) -> Result<Option<OwnedSemaphorePermit>, AcquireError> {
    match permits {
        Some(permits) => permits.clone().acquire_owned().await.map(Some),
        None => Ok(None),
    }
}

/// Counts a waiting call, and stops counting when it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ConcurrencyLimit {
    async fn acquire_permits(&self, invocation: &Invocation) -> Result<HeldPermits, CallError> {
        // A call whose deadline is over is refused here. It must not take a permit from a call that
        // can still be answered.
        if invocation
            .timing
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
        {
            return Err(invocation.timing.deadline_exceeded(false));
        }
        let is_nested_in_tool = invocation.call_chain.includes_tool(&invocation.tool);
        let tool_semaphore = (!is_nested_in_tool).then_some(&self.permits.tool);
        let is_root = invocation.call_chain.parent.is_none();
        let global_semaphore = is_root.then_some(&self.global_permits);
        let shares = self.permits.callers.as_ref().filter(|_| !is_nested_in_tool);
        let mut share = shares.map(|shares| shares.join(&invocation.caller.name));
        // First the tool's permit, then the global one. A call without a permit of its tool must
        // not hold a global permit, even briefly: another call that looks at that moment would be
        // refused or wait without need.
        let mut tool = None;
        if share.as_mut().is_none_or(Membership::try_acquire)
            && let Ok(permit) = try_acquire_permit(tool_semaphore)
        {
            match try_acquire_permit(global_semaphore) {
                Ok(global) => {
                    return Ok(HeldPermits {
                        global,
                        tool: permit,
                        share,
                    });
                }
                Err(_) => tool = permit,
            }
        }
        self.wait_for_permits(invocation, share, tool, tool_semaphore, global_semaphore)
            .await
    }

    /// Waits for the missing permits, within the limits of the settings and the call's deadline.
    async fn wait_for_permits(
        &self,
        invocation: &Invocation,
        mut share: Option<Membership>,
        tool: Option<OwnedSemaphorePermit>,
        tool_semaphore: Option<&Arc<Semaphore>>,
        global_semaphore: Option<&Arc<Semaphore>>,
    ) -> Result<HeldPermits, CallError> {
        let full = |per_caller| CallError::Overloaded {
            retry_after: RETRY_AFTER,
            per_caller,
        };
        let share_size = self.settings.per_caller;
        if let Some(share) = &mut share
            && !share.begin_waiting(self.caller_queue)
        {
            // If no call may wait, a call that has a permit of its share is refused because the
            // tool is full, not its share.
            let is_tool_full = share.has_permit() && self.caller_queue == 0;
            return Err(full(share_size.filter(|_| !is_tool_full)));
        }
        // Counted before the check: of two calls that arrive at the same time, only one gets the
        // last slot of the queue. `_waiting` takes the count back on every way out, also if this
        // future is dropped.
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = WaitingGuard(&self.waiting);
        if before >= self.settings.queue {
            return Err(full(None));
        }
        let _counted = self.metrics.count_queued();
        let latest_start = Instant::now() + self.settings.wait;
        let until = invocation
            .timing
            .deadline
            .map_or(latest_start, |deadline| deadline.min(latest_start));
        let missing = async {
            if let Some(share) = &mut share {
                share.acquire().await?;
            }
            // The tool's permit first: a call that waits for its own tool takes nothing from other
            // tools.
            let tool = match tool {
                Some(tool) => Some(tool),
                None => acquire_permit(tool_semaphore).await?,
            };
            Ok::<_, AcquireError>((tool, acquire_permit(global_semaphore).await?))
        };
        let entered = tokio::select! {
            entered = timeout_at(until, missing) => entered,
            () = invocation.signals.disconnected.cancelled() => return Err(CallError::Cancelled { started: false }),
        };
        match entered {
            Ok(Ok((tool, global))) => {
                if let Some(share) = &mut share {
                    share.end_waiting();
                }
                Ok(HeldPermits {
                    global,
                    tool,
                    share,
                })
            }
            Ok(Err(_)) => Err(CallError::Draining),
            Err(_)
                if invocation
                    .timing
                    .deadline
                    .is_some_and(|deadline| deadline <= until) =>
            {
                Err(invocation.timing.deadline_exceeded(false))
            }
            Err(_) if share.is_some_and(|share| !share.has_permit()) => Err(full(share_size)),
            Err(_) => Err(full(None)),
        }
    }
}

/// The calls of each caller of one tool: permits and waiting calls, both bounded.
///
/// A caller has an entry only while one of its calls runs or waits, so the table is never larger
/// than the number of calls. A tool's semaphore is first in, first out. A call that waits for its
/// caller's share must not stand in that queue, or it would block other callers' calls behind it.
/// So a call takes its share first.
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
    use std::pin::pin;

    use futures_util::FutureExt;
    use jiff::Timestamp;

    use super::*;
    use crate::call::{CallChain, Caller, InvocationId, JsonObject, ToolName};
    use crate::metrics::Metrics;

    const SECOND: Duration = Duration::from_secs(1);

    fn tool() -> ToolName {
        ToolName::parse("t").unwrap()
    }

    fn limit(settings: Concurrency) -> ConcurrencyLimit {
        ConcurrencyLimit {
            permits: ToolPermits::new(settings, None),
            global_permits: Arc::new(Semaphore::new(100)),
            waiting: AtomicUsize::new(0),
            caller_queue: settings.queue_per_caller(),
            settings,
            metrics: Metrics::new().unwrap().tool_metrics(&tool(), false),
        }
    }

    fn call(caller: &str) -> Invocation {
        let caller = Arc::new(Caller::new(caller, false));
        Invocation::new(tool(), JsonObject::new(), caller, Timestamp::UNIX_EPOCH)
    }

    /// Enters at once, or returns the refusal.
    async fn acquire_now(limit: &ConcurrencyLimit, caller: &str) -> Result<HeldPermits, CallError> {
        limit
            .acquire_permits(&call(caller))
            .now_or_never()
            .unwrap_or_else(|| panic!("{caller} waits"))
    }

    fn refused(error: Result<HeldPermits, CallError>) -> Option<usize> {
        match error.err().unwrap() {
            CallError::Overloaded {
                per_caller,
                retry_after,
            } if retry_after == RETRY_AFTER => per_caller,
            other => panic!("{other}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn caller_share_leaves_permits_to_others() {
        let limit = limit(Concurrency {
            max: 3,
            queue: 3,
            wait: SECOND,
            per_caller: Some(2),
        });
        let anns = [
            acquire_now(&limit, "ann").await.unwrap(),
            acquire_now(&limit, "ann").await.unwrap(),
        ];
        let third = call("ann");
        let mut waits = pin!(limit.acquire_permits(&third));
        assert!(waits.as_mut().now_or_never().is_none());
        let bob = acquire_now(&limit, "bob").await.unwrap();
        assert_eq!(
            refused(waits.await),
            Some(2),
            "after its wait the third call learns its caller's share"
        );
        drop(anns);
        assert!(acquire_now(&limit, "ann").await.is_ok());
        drop(bob);
        assert_eq!(limit.permits.callers.as_ref().unwrap().caller_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn caller_share_leaves_queue_to_others() {
        let limit = limit(Concurrency {
            max: 4,
            queue: 6,
            wait: SECOND,
            per_caller: Some(1),
        });
        let runs = acquire_now(&limit, "ann").await.unwrap();
        let calls = [call("ann"), call("ann")];
        let mut waiting = calls
            .each_ref()
            .map(|call| Box::pin(limit.acquire_permits(call)));
        for call in &mut waiting {
            assert!(call.now_or_never().is_none());
        }
        assert_eq!(
            refused(acquire_now(&limit, "ann").await),
            Some(1),
            "two of six may wait: a quarter, rounded up"
        );
        let bob = acquire_now(&limit, "bob").await.unwrap();
        let second = call("bob");
        assert!(limit.acquire_permits(&second).now_or_never().is_none());
        drop((bob, runs));
        let [first, second] = waiting;
        drop(first.await.unwrap());
        drop(second.await.unwrap());
        assert_eq!(limit.permits.callers.as_ref().unwrap().caller_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_calls_leave_the_queue() {
        let limit = limit(Concurrency {
            max: 2,
            queue: 2,
            wait: SECOND,
            per_caller: Some(1),
        });
        let runs = acquire_now(&limit, "ann").await.unwrap();
        for _ in 0..5 {
            let second = call("ann");
            assert!(
                limit.acquire_permits(&second).now_or_never().is_none(),
                "the call before was dropped while it waited"
            );
        }
        drop(runs);
        assert!(acquire_now(&limit, "ann").await.is_ok());
        assert_eq!(limit.waiting.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn full_tool_error_names_no_share() {
        let limit = limit(Concurrency {
            max: 2,
            queue: 2,
            wait: SECOND,
            per_caller: Some(1),
        });
        let _held = [
            acquire_now(&limit, "ann").await.unwrap(),
            acquire_now(&limit, "bob").await.unwrap(),
        ];
        assert_eq!(refused(limit.acquire_permits(&call("carol")).await), None);
        let calls = [call("carol"), call("dave")];
        let mut waiting = calls
            .each_ref()
            .map(|call| Box::pin(limit.acquire_permits(call)));
        assert!(waiting.iter_mut().all(|call| call.now_or_never().is_none()));
        assert_eq!(
            refused(acquire_now(&limit, "eve").await),
            None,
            "the queue is full with calls of other callers"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nested_calls_need_no_share() {
        let limit = limit(Concurrency {
            max: 2,
            queue: 0,
            wait: SECOND,
            per_caller: Some(1),
        });
        let _runs = acquire_now(&limit, "ann").await.unwrap();
        let mut below = call("ann");
        below.call_chain = CallChain {
            parent: Some(InvocationId::new()),
            tools: [tool()].into(),
            ..CallChain::default()
        };
        assert!(
            limit
                .acquire_permits(&below)
                .now_or_never()
                .unwrap()
                .is_ok()
        );
        below.call_chain.tools = [ToolName::parse("other").unwrap()].into();
        assert_eq!(
            refused(limit.acquire_permits(&below).now_or_never().unwrap()),
            Some(1),
            "below another tool it counts"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn expired_calls_take_no_permit() {
        let limit = limit(Concurrency {
            max: 1,
            queue: 0,
            wait: SECOND,
            per_caller: Some(1),
        });
        let mut late = call("ann");
        late.timing.shorten_deadline(late.timing.started);
        let expired = |outcome: Result<HeldPermits, CallError>| {
            matches!(
                outcome,
                Err(CallError::DeadlineExceeded { started: false, .. })
            )
        };
        assert!(
            expired(limit.acquire_permits(&late).now_or_never().unwrap()),
            "although a permit is free"
        );
        let runs = acquire_now(&limit, "ann").await.unwrap();
        assert!(
            expired(limit.acquire_permits(&late).now_or_never().unwrap()),
            "the deadline is reported, not the full tool"
        );
        drop(runs);
    }

    #[tokio::test]
    async fn changed_tools_keep_their_permits() {
        let before = Concurrency {
            max: 2,
            queue: 2,
            wait: SECOND,
            per_caller: Some(1),
        };
        let permits = ToolPermits::new(before, None);
        let changed = |now: Concurrency| {
            let after = ToolPermits::new(now, Some((before, &permits)));
            let same_share = after
                .callers
                .zip(permits.callers.clone())
                .map(|(now, then)| Arc::ptr_eq(&now, &then));
            (Arc::ptr_eq(&after.tool, &permits.tool), same_share)
        };
        assert_eq!(
            changed(Concurrency { queue: 9, ..before }),
            (true, Some(true))
        );
        assert_eq!(
            changed(Concurrency { max: 3, ..before }),
            (false, Some(true))
        );
        assert_eq!(
            changed(Concurrency {
                per_caller: Some(2),
                ..before
            }),
            (true, Some(false))
        );
        assert_eq!(
            changed(Concurrency {
                per_caller: None,
                ..before
            }),
            (true, None)
        );
    }

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
