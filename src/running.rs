//! The calls under way: seen by `GET /invocations` at once, waited for when the service stops.

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
pub struct Running {
    calls: Arc<Mutex<Calls>>,
    tasks: TaskTracker,
    /// Memory for rows that wait behind their answers, in KiB.
    behind: Arc<Semaphore>,
}

/// For cancelled calls to stop what they run and write their rows.
const CANCEL_TIME: Duration = Duration::from_secs(3);

/// Rows that wait for their commit behind their answers take at most this much memory, in KiB.
const BEHIND_KIB: usize = 32 << 10;

impl Default for Running {
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
    /// Tripped when it leaves this table; there once somebody waits for that.
    gone: Option<CancellationToken>,
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "most are running; a box would cost each call an allocation")]
enum Stage {
    /// It runs.
    Running(Invocation, Effect),
    /// It has ended, and its row is not committed yet: who has an answer finds it in the ledger's lists. Its arguments
    /// are not kept here: what waits is bounded by the size of the rows.
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

impl Running {
    /// Enters a call; `None` once the service is stopping.
    pub fn begin(&self, invocation: &Invocation, effect: Effect) -> Option<Entered> {
        let mut calls = self.lock();
        // A call that a tool makes is part of one that was let in.
        if calls.closed && invocation.lineage.parent.is_none() {
            return None;
        }
        let stage = Stage::Running(invocation.clone(), effect);
        calls.by_id.insert(invocation.id, Call { stage, gone: None });
        // Counted from here on: whoever waits for the calls to end waits for this one too.
        Some(Entered { id: invocation.id, running: self.clone(), _task: self.tasks.token() })
    }

    /// A place for a row that is written behind its answer; `None` while too much waits already.
    pub fn place_behind(&self, row: &Row) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(row.weight().div_ceil(1024)).unwrap_or(u32::MAX);
        self.behind.clone().try_acquire_many_owned(kib).ok()
    }

    /// Running calls as rows, and those that have ended and are not committed yet.
    pub fn list(&self) -> Vec<Arc<Row>> {
        let stages: Vec<Stage> = self.lock().by_id.values().map(|call| call.stage.clone()).collect();
        stages.iter().map(Stage::row).collect()
    }

    /// A running call as a row.
    pub fn get(&self, id: InvocationId) -> Option<Arc<Row>> {
        let found = self.lock().by_id.get(&id).map(|call| call.stage.clone());
        found.map(|stage| stage.row())
    }

    /// Cancels a call that has not ended, whatever happens to it when its caller leaves. What is returned is tripped
    /// when the call's row is committed. `None`: there is no such call any more.
    pub fn cancel(&self, id: InvocationId) -> Option<CancellationToken> {
        let mut calls = self.lock();
        let call = calls.by_id.get_mut(&id)?;
        let gone = call.gone.get_or_insert_default().clone();
        let cancel = call.stage.cancel();
        drop(calls);
        cancel.iter().for_each(CancellationToken::cancel);
        Some(gone)
    }

    /// How many run now.
    pub fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The service is about to stop; until [`Running::close`] it takes calls all the same.
    pub fn leave(&self) {
        self.lock().leaving = true;
    }

    /// Whether the service is about to stop, or takes no more calls.
    pub fn is_leaving(&self) -> bool {
        let calls = self.lock();
        calls.leaving || calls.closed
    }

    /// Takes no more calls.
    pub fn close(&self) {
        self.lock().closed = true;
        self.tasks.close();
    }

    /// Whether it takes no more calls.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// After [`Running::close`]: waits until every call's row is handed to the ledger.
    pub async fn drained(&self) {
        self.tasks.wait().await;
    }

    /// Lets the running calls end, and ends them when their time is over: calls still begin for `linger`, and go on for
    /// `drain` after that, or until `hurry` ends.
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

/// A call's place in the table; given up when dropped.
pub struct Entered {
    id: InvocationId,
    running: Running,
    _task: TaskTrackerToken,
}

impl Entered {
    /// The call has ended with this row.
    pub fn ended(&self, row: Arc<Row>) {
        let mut calls = self.running.lock();
        let call = calls.by_id.get_mut(&self.id);
        let before = call.map(|call| std::mem::replace(&mut call.stage, Stage::Ended(row)));
        drop(calls);
        // Long arguments take a while to drop: not under the lock.
        drop(before);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let call = self.running.lock().by_id.remove(&self.id);
        call.and_then(|call| call.gone).iter().for_each(CancellationToken::cancel);
    }
}
