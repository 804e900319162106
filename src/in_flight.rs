//! The table of running calls. `GET /invocations` shows them at once, and a shutdown waits for them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::call::{Effect, Invocation, InvocationId};
use crate::ledger::{Row, State};

/// The table of running calls. Clones share it.
#[derive(Clone)]
pub struct InFlightCalls {
    calls: Arc<Mutex<Calls>>,
    tasks: TaskTracker,
    /// Memory for rows that wait for their commit after their answers left, in KiB.
    behind: Arc<Semaphore>,
}

/// Time for canceled calls to stop their tools and write their rows.
const CANCEL_TIME: Duration = Duration::from_secs(3);

/// Maximum memory of rows that wait for their commit after their answers left, in KiB.
const BEHIND_KIB: usize = 32 << 10;

impl Default for InFlightCalls {
    fn default() -> Self {
        let behind = Arc::new(Semaphore::new(BEHIND_KIB));
        Self { calls: Arc::default(), tasks: TaskTracker::new(), behind }
    }
}

#[derive(Default)]
struct Calls {
    by_id: HashMap<InvocationId, Call>,
    leaving: bool,
    closed: bool,
}

struct Call {
    stage: Stage,
    /// Canceled when the call leaves this table. It exists once a task waits for that.
    gone: Option<CancellationToken>,
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "most are running; a box would cost each call an allocation")]
enum Stage {
    /// The tool runs, or the call waits for it.
    Running(Invocation, Effect),
    /// The call has ended, and its row is not committed yet. Until then, this row stands in for the ledger's, so a
    /// caller with an answer always finds its call. It keeps no second copy of the arguments: memory is bounded by the
    /// size of the rows.
    Ended(Arc<Row>),
}

impl Stage {
    fn row(&self) -> Arc<Row> {
        match self {
            Self::Ended(row) => row.clone(),
            Self::Running(invocation, effect) => Arc::new(row(invocation, *effect)),
        }
    }

    fn cancel(&self) -> Option<CancellationToken> {
        match self {
            Self::Running(invocation, _) => Some(invocation.cancel.clone()),
            Self::Ended(_) => None,
        }
    }
}

impl InFlightCalls {
    /// Enters a call; `None` once the service is stopping.
    pub fn begin(&self, invocation: &Invocation, effect: Effect) -> Option<InFlightGuard> {
        let mut calls = self.lock();
        // A nested call is part of a call that was admitted before the stop.
        if calls.closed && invocation.lineage.parent.is_none() {
            return None;
        }
        let stage = Stage::Running(invocation.clone(), effect);
        calls.by_id.insert(invocation.id, Call { stage, gone: None });
        // The token is taken under the lock that `close` takes, too. So a call either sees `closed`, or `drained` waits
        // for it.
        Some(InFlightGuard { id: invocation.id, running: self.clone(), _task: self.tasks.token() })
    }

    /// Reserves memory for a row that is written after its answer; `None` if too many rows wait already.
    pub fn place_behind(&self, row: &Row) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(row.weight().div_ceil(1024)).unwrap_or(u32::MAX);
        self.behind.clone().try_acquire_many_owned(kib).ok()
    }

    /// All running calls as rows, and the calls that have ended and are not committed yet.
    pub fn list(&self) -> Vec<Arc<Row>> {
        let stages: Vec<Stage> = self.lock().by_id.values().map(|call| call.stage.clone()).collect();
        stages.iter().map(Stage::row).collect()
    }

    /// A running call as a row.
    pub fn get(&self, id: InvocationId) -> Option<Arc<Row>> {
        let found = self.lock().by_id.get(&id).map(|call| call.stage.clone());
        found.map(|stage| stage.row())
    }

    /// Cancels a call that has not ended, whatever its `on_disconnect` says. The returned token is canceled when the
    /// call's row is committed. `None` if there is no such call any more.
    pub fn cancel(&self, id: InvocationId) -> Option<CancellationToken> {
        let mut calls = self.lock();
        let call = calls.by_id.get_mut(&id)?;
        let gone = call.gone.get_or_insert_default().clone();
        let cancel = call.stage.cancel();
        drop(calls);
        cancel.iter().for_each(CancellationToken::cancel);
        Some(gone)
    }

    /// Number of calls in the table.
    pub fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Marks that the service will stop soon. It still admits calls until [`Running::close`].
    pub fn leave(&self) {
        self.lock().leaving = true;
    }

    /// Whether the service will stop soon, or refuses new calls already.
    pub fn is_leaving(&self) -> bool {
        let calls = self.lock();
        calls.leaving || calls.closed
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

    /// After [`Running::close`]: waits until the ledger has every call's row.
    pub async fn drained(&self) {
        self.tasks.wait().await;
    }

    /// Ends the running calls at a shutdown. New calls are admitted during `linger`. Then the running calls have
    /// `drain` to end, or until `hurry` completes. After that they are canceled.
    pub async fn end(&self, linger: Duration, drain: Duration, hurry: impl Future<Output = ()>) {
        let wait = async {
            if !linger.is_zero() {
                tracing::info!(calls = self.len(), "stopping: not ready any more, still serving");
                sleep(linger).await;
            }
            self.close();
            tracing::info!(calls = self.len(), "stopping: no new calls, waiting for running ones");
            if timeout(drain, self.drained()).await.is_err() {
                tracing::warn!(calls = self.len(), "the drain time is over: running calls are cancelled");
            }
        };
        tokio::select! {
            () = wait => {}
            () = hurry => {
                self.close();
                tracing::warn!(calls = self.len(), "told to hurry: running calls are cancelled");
            }
        }
        self.cancel_all();
        if timeout(CANCEL_TIME, self.drained()).await.is_err() {
            tracing::error!(calls = self.len(), "calls did not stop in time; the next start finds them `unknown`");
        }
    }

    /// Cancels every running call.
    pub fn cancel_all(&self) {
        let tokens: Vec<CancellationToken> =
            self.lock().by_id.values().filter_map(|call| call.stage.cancel()).collect();
        tokens.iter().for_each(CancellationToken::cancel);
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn row(invocation: &Invocation, effect: Effect) -> Row {
    let mut row = Row::begun(invocation, effect, State::Running);
    let notes = invocation.notes.lock();
    row.cache = notes.meta.cache;
    row.attempts = notes.meta.attempts;
    row
}

/// A call's entry in the table. Dropping it removes the entry.
pub struct InFlightGuard {
    id: InvocationId,
    running: InFlightCalls,
    _task: TaskTrackerToken,
}

impl InFlightGuard {
    /// Replaces the running call by its row.
    pub fn ended(&self, row: Arc<Row>) {
        let mut calls = self.running.lock();
        let call = calls.by_id.get_mut(&self.id);
        let before = call.map(|call| std::mem::replace(&mut call.stage, Stage::Ended(row)));
        drop(calls);
        // Dropping long arguments takes a while, so it happens without the lock.
        drop(before);
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let call = self.running.lock().by_id.remove(&self.id);
        call.and_then(|call| call.gone).iter().for_each(CancellationToken::cancel);
    }
}
