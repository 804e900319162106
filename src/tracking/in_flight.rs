//! The table of running calls. `GET /invocations` shows them at once, and a shutdown waits for
//! them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::events::EventFeed;
use crate::call::{ApprovalStage, Clock, Effect, Invocation, InvocationId, QuestionSink};
use crate::ledger::{Row, State};

/// The table of running calls. Clones share it.
#[derive(Clone)]
pub struct InFlightCalls {
    calls: Arc<Mutex<Calls>>,
    tasks: TaskTracker,
    /// Tells subscribers which calls start and end.
    events: EventFeed,
    /// Memory for rows that wait for their commit after their answers left, in KiB.
    uncommitted_memory: Arc<Semaphore>,
}

/// Time for cancelled calls to stop their tools and write their rows.
const CANCEL_TIME: Duration = Duration::from_secs(3);

/// Maximum memory of rows that wait for their commit after their answers left, in KiB.
const MAX_UNCOMMITTED_KIB: usize = 32 << 10;

impl Default for InFlightCalls {
    fn default() -> Self {
        Self::new(Clock::system())
    }
}

#[derive(Default)]
struct Calls {
    by_id: HashMap<InvocationId, Call>,
    draining: bool,
    closed: bool,
}

struct Call {
    stage: CallStage,
    /// Cancelled when the call leaves this table. It exists once a task waits for that.
    removed: Option<CancellationToken>,
}

#[derive(Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most calls are running; a box would cost each of them an allocation"
)]
enum CallStage {
    /// The tool runs, or the call waits for it.
    Running(Invocation, Effect),
    /// The call has ended, and its row is not committed yet. Until then, this row stands in for the
    /// ledger's, so a caller with an answer always finds its call. It keeps no second copy of the
    /// arguments: memory is bounded by the size of the rows.
    Ended(Arc<Row>),
}

impl CallStage {
    fn row(&self) -> Arc<Row> {
        match self {
            Self::Ended(row) => row.clone(),
            Self::Running(invocation, effect) => Arc::new(running_row(invocation, *effect)),
        }
    }

    fn cancel_token(&self) -> Option<CancellationToken> {
        match self {
            Self::Running(invocation, _) => Some(invocation.signals.call_cancelled.clone()),
            Self::Ended(_) => None,
        }
    }
}

impl InFlightCalls {
    /// Makes an empty table. The events of its calls have times of this clock.
    pub fn new(clock: Clock) -> Self {
        let calls = Arc::<Mutex<Calls>>::default();
        let listed = calls.clone();
        let oldest = move || listed.lock().by_id.keys().min().copied();
        Self {
            calls,
            tasks: TaskTracker::new(),
            events: EventFeed::new(clock, oldest),
            uncommitted_memory: Arc::new(Semaphore::new(MAX_UNCOMMITTED_KIB)),
        }
    }

    /// The events of calls and approvals.
    pub fn events(&self) -> &EventFeed {
        &self.events
    }

    /// Enters a call; `None` once the service is stopping.
    pub fn start_call(&self, invocation: &Invocation, effect: Effect) -> Option<InFlightGuard> {
        let mut calls = self.lock();
        // A nested call is part of a call that was admitted before the stop.
        if calls.closed && invocation.call_chain.parent.is_none() {
            return None;
        }
        let stage = CallStage::Running(invocation.clone(), effect);
        calls.by_id.insert(
            invocation.id,
            Call {
                stage,
                removed: None,
            },
        );
        // The token is taken under the lock that `close` takes, too. So a call either sees
        // `closed`, or `wait_until_empty` waits for it.
        let task = self.tasks.token();
        drop(calls);
        // A refused call only gets its row.
        let is_refused = matches!(
            invocation.approval.as_deref(),
            Some(ApprovalStage::Refused(_))
        );
        if self.events.has_subscribers() && !is_refused {
            self.events
                .publish_started(&running_row(invocation, effect));
        }
        Some(InFlightGuard {
            id: invocation.id,
            table: self.clone(),
            _task: task,
        })
    }

    /// Reserves memory for a row that is written after its answer; `None` if too many rows wait
    /// already.
    pub fn reserve_uncommitted(&self, row: &Row) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(row.memory_bytes().div_ceil(1024)).unwrap_or(u32::MAX);
        self.uncommitted_memory
            .clone()
            .try_acquire_many_owned(kib)
            .ok()
    }

    /// All running calls as rows, and the calls that have ended and are not committed yet.
    pub fn list(&self) -> Vec<Arc<Row>> {
        let stages: Vec<CallStage> = self
            .lock()
            .by_id
            .values()
            .map(|call| call.stage.clone())
            .collect();
        stages.iter().map(CallStage::row).collect()
    }

    /// The ids of calls that started before this time and still run: the oldest, at most this many.
    pub fn started_before(&self, at: Timestamp, at_most: usize) -> Vec<InvocationId> {
        let bound = InvocationId::lower_bound(at);
        let calls = self.lock();
        let is_older = |(id, call): &(&InvocationId, &Call)| {
            **id < bound && matches!(call.stage, CallStage::Running(..))
        };
        let older = calls.by_id.iter().filter(is_older);
        let mut ids: Vec<InvocationId> = older.map(|(id, _)| *id).collect();
        drop(calls);
        ids.sort_unstable();
        ids.truncate(at_most);
        ids
    }

    /// A running call as a row.
    pub fn get(&self, id: InvocationId) -> Option<Arc<Row>> {
        let found = self.lock().by_id.get(&id).map(|call| call.stage.clone());
        found.map(|stage| stage.row())
    }

    /// Cancels a call that has not ended, whatever its `on_disconnect` says. The returned token is
    /// cancelled when the call's row is committed. `None` if there is no such call any more.
    pub fn cancel(&self, id: InvocationId) -> Option<CancellationToken> {
        let mut calls = self.lock();
        let call = calls.by_id.get_mut(&id)?;
        let removed = call.removed.get_or_insert_default().clone();
        let cancel_token = call.stage.cancel_token();
        drop(calls);
        cancel_token.iter().for_each(CancellationToken::cancel);
        Some(removed)
    }

    /// Number of calls in the table.
    pub fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Marks that the service will stop soon. It still admits calls until [`InFlightCalls::close`].
    pub fn start_draining(&self) {
        self.lock().draining = true;
    }

    /// Whether the service will stop soon, or refuses new calls already.
    pub fn is_draining(&self) -> bool {
        let calls = self.lock();
        calls.draining || calls.closed
    }

    /// Refuses new calls from now on.
    pub fn close(&self) {
        self.lock().closed = true;
        self.tasks.close();
    }

    /// Whether new calls are refused.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// After [`InFlightCalls::close`]: waits until the ledger has every call's row.
    pub async fn wait_until_empty(&self) {
        self.tasks.wait().await;
    }

    /// Ends the running calls at a shutdown. New calls are admitted during `linger`. Then the
    /// running calls have `drain` to end, or until `hurry` completes. After that they are
    /// cancelled.
    pub async fn shut_down(
        &self,
        linger: Duration,
        drain: Duration,
        hurry: impl Future<Output = ()>,
    ) {
        let wait = async {
            if !linger.is_zero() {
                tracing::info!(
                    calls = self.len(),
                    "stopping: not ready any more, still serving"
                );
                sleep(linger).await;
            }
            self.close();
            tracing::info!(
                calls = self.len(),
                "stopping: no new calls, waiting for running ones"
            );
            if timeout(drain, self.wait_until_empty()).await.is_err() {
                tracing::warn!(
                    calls = self.len(),
                    "the drain time is over: running calls are cancelled"
                );
            }
        };
        tokio::select! {
            () = wait => {}
            () = hurry => {
                self.close();
                tracing::warn!(calls = self.len(), "second stop signal: running calls are cancelled");
            }
        }
        self.cancel_all();
        if timeout(CANCEL_TIME, self.wait_until_empty()).await.is_err() {
            tracing::error!(
                calls = self.len(),
                "calls did not stop in time; the next start finds them `unknown`"
            );
        }
    }

    /// Cancels every running call.
    pub fn cancel_all(&self) {
        let tokens: Vec<CancellationToken> = self
            .lock()
            .by_id
            .values()
            .filter_map(|call| call.stage.cancel_token())
            .collect();
        tokens.iter().for_each(CancellationToken::cancel);
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }
}

fn running_row(invocation: &Invocation, effect: Effect) -> Row {
    let questions = invocation.delivery.questions.as_ref();
    let state = match questions.is_some_and(QuestionSink::is_open) {
        true => State::Waiting,
        false => State::Running,
    };
    let mut row = Row::from_invocation(invocation, effect, state);
    row.cache = invocation.report.cache.lock().status;
    row.attempts = invocation.report.attempt.lock().all().0;
    row
}

/// A call's entry in the table. Dropping it removes the entry.
pub struct InFlightGuard {
    id: InvocationId,
    table: InFlightCalls,
    _task: TaskTrackerToken,
}

impl InFlightGuard {
    /// Replaces the running call by its row.
    pub fn set_ended(&self, row: &Arc<Row>) {
        let mut calls = self.table.lock();
        let call = calls.by_id.get_mut(&self.id);
        let stage = CallStage::Ended(row.clone());
        let before = call.map(|call| std::mem::replace(&mut call.stage, stage));
        drop(calls);
        // Dropping long arguments takes a while, so it happens without the lock.
        drop(before);
        if self.table.events.has_subscribers() {
            self.table.events.publish_ended(row, None);
        }
    }

    /// Removes a call that repeats the answer of an earlier call. The ledger gets no such row; it is
    /// for the subscribers of events.
    pub fn end_replay(self, replayed_from: InvocationId, row: &Row) {
        if self.table.events.has_subscribers() {
            self.table.events.publish_ended(row, Some(replayed_from));
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let call = self.table.lock().by_id.remove(&self.id);
        call.and_then(|call| call.removed)
            .iter()
            .for_each(CancellationToken::cancel);
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;
    use crate::call::{Caller, JsonObject, ToolName};

    fn invocation() -> Invocation {
        let tool = ToolName::parse("t").unwrap();
        let caller = Arc::new(Caller::anonymous());
        Invocation::new(tool, JsonObject::new(), caller, Timestamp::now())
    }

    #[test]
    fn oldest_running_calls_come_first() {
        let calls = InFlightCalls::default();
        let started: Vec<_> = (0..4)
            .map(|_| {
                let call = invocation();
                (call.id, calls.start_call(&call, Effect::Read).unwrap())
            })
            .collect();
        let row = Row::from_invocation(&invocation(), Effect::Read, State::Succeeded);
        started[3].1.set_ended(&Arc::new(row));
        let ids: Vec<InvocationId> = started[..3].iter().map(|(id, _)| *id).collect();
        let later = Timestamp::now() + 1.second();
        assert_eq!(calls.started_before(later, 9), ids);
        assert_eq!(calls.started_before(later, 2), ids[..2]);
        let earlier = Timestamp::now() - 60.seconds();
        assert!(calls.started_before(earlier, 9).is_empty());
    }
}
