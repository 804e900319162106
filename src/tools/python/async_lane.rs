//! The worker for coroutines: one process, one event loop, many calls at once.
//!
//! A task owns the process. It writes the queued orders, and passes each message of the worker to the call that waits
//! for it. It also checks that a call ends after its caller has disconnected. If such a call does not end, the loop is
//! blocked, and the task replaces the process.
//!
//! A shared worker also takes calls of blocking functions, one at a time, on a thread beside its loop. Only the end of
//! the process can stop a thread. So the same rule holds: a call that does not end in time after its cancellation ends
//! the worker.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::protocol::{self, Function, Mode, Role, WorkerMessage};
use super::worker::{Launcher, Next, Worker};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::health::Health;

/// Orders that may wait while the worker reads slowly.
const QUEUE: usize = 64;
/// A cancelled call must end within this time. Otherwise the loop is blocked.
const PATIENCE: Duration = Duration::from_secs(1);
/// The `retry_after` of a call that the worker did not take in time.
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// After this many messages of the worker in a row, the loop looks for other work first.
const AT_ONCE: u32 = 64;
/// Starts of one call. A call is started again only if another call caused the end of its worker.
const TRIES: usize = 3;

pub(super) struct AsyncLane {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    launcher: Arc<Launcher>,
    role: Role,
    /// One permit, for the one thread of a shared worker. A call holds it until the worker reports its end, or until
    /// the worker has ended.
    thread: Arc<Semaphore>,
    health: Mutex<Health>,
    stage: watch::Sender<Stage>,
}

#[derive(Clone)]
enum Stage {
    /// A worker is being started.
    Starting,
    Up(Arc<Loop>),
    /// Workers keep dying, so no call should wait for the next one.
    Down,
}

/// One worker, as its calls see it.
struct Loop {
    queue: mpsc::Sender<Vec<u8>>,
    calls: Mutex<Calls>,
    /// Wakes [`Loop::end_cancelled`] when a caller disconnects.
    left: Notify,
}

#[derive(Default)]
struct Calls {
    /// The worker has ended and takes no more calls.
    closed: bool,
    /// At least one call has had an answer, so a later death is not an early one.
    has_answered: bool,
    last: u64,
    open: HashMap<u64, Open>,
}

/// A call that has not ended yet.
struct Open {
    context: ToolContext,
    end: oneshot::Sender<End>,
    /// When its caller disconnected.
    left: Option<Instant>,
    told: bool,
    /// The permit for the thread, if the function blocks. It is released when this entry is removed.
    _thread: Option<OwnedSemaphorePermit>,
}

enum End {
    Said(Result<ToolResult, ToolError>),
    /// The worker has ended. `innocent`: another call was the cause.
    Lost {
        how: String,
        innocent: bool,
    },
}

/// Why a worker has ended.
enum Ended {
    Died(String),
    /// A call did not end after its cancellation.
    Blocked,
}

impl AsyncLane {
    /// A pool with this worker in this role; starts a worker if there is no `first`. Call it within the runtime.
    pub(super) fn new(launcher: &Arc<Launcher>, role: Role, first: Option<Worker>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            launcher: launcher.clone(),
            role,
            thread: Arc::new(Semaphore::new(1)),
            health: Mutex::default(),
            stage: watch::Sender::new(Stage::Starting),
        });
        let task = tokio::spawn(shared.clone().keep(first));
        Arc::new(Self { shared, _task: AbortOnDropHandle::new(task) })
    }

    /// Runs a function, if a worker takes the call before `begin_by`. Dropping the future makes the worker cancel the
    /// call.
    pub(super) async fn call(
        &self,
        function: &Function,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let (mut why, mut before) = (String::new(), None);
        for _ in 0..TRIES {
            // `context.waiting` marks a wait during which nothing has run. It fits the first round only. In a later
            // round the function has already started once, so a cancellation then is not "not started".
            let thread = match (function.mode, &before) {
                (Mode::Async, _) => None,
                (Mode::Sync, None) => Some(context.waiting(timeout_at(begin_by, self.shared.thread())).await),
                (Mode::Sync, Some(_)) => Some(timeout_at(begin_by, self.shared.thread()).await),
            };
            let thread = match thread.transpose() {
                Ok(thread) => thread.flatten(),
                Err(_) => return Err(self.shared.busy()),
            };
            let worker = match before {
                None => context.waiting(timeout_at(begin_by, self.worker(None))).await,
                before => timeout_at(begin_by, self.worker(before)).await,
            };
            let worker = match worker {
                Ok(worker) => worker?,
                Err(_) => return Err(self.shared.unavailable()),
            };
            before = Some(worker.clone());
            // Reserve the slot in the queue before the call gets its entry. There is no await between the entry and the
            // send. So every entry belongs to a call that is sent to the worker. If the caller disconnects, the cancel
            // order has a call to cancel, and waiting for the end of the call makes sense.
            let room = match timeout_at(begin_by, worker.queue.reserve()).await {
                Ok(Ok(room)) => room,
                Ok(Err(_)) => continue,
                Err(_) => return Err(self.shared.busy()),
            };
            let Some((id, end)) = worker.open(context, thread) else { continue };
            let asked = PendingCall { worker: &worker, id };
            room.send(protocol::call(id, function, arguments, context));
            let end = end.await;
            drop(asked);
            match end {
                Ok(End::Said(said)) => return said,
                // The function may have run in part. So start it again only if another call ended the worker, and if
                // the effect of the tool permits a repetition.
                Ok(End::Lost { how, innocent }) if innocent && context.may_repeat() => why = how,
                Ok(End::Lost { how, .. }) => {
                    return Err(ToolError::unavailable(format!("the function did not end: {how}")));
                }
                Err(_) => return Err(ToolError::unavailable("the Python module has ended")),
            }
        }
        Err(match why.as_str() {
            "" => self.shared.unavailable(),
            why => ToolError::unavailable(format!("the function did not end: {why}")),
        })
    }

    /// The current worker. Skips `before`, which takes no more calls.
    async fn worker(&self, before: Option<Arc<Loop>>) -> Result<Arc<Loop>, ToolError> {
        let mut stage = self.shared.stage.subscribe();
        let is_another = |stage: &Stage| match stage {
            Stage::Starting => false,
            Stage::Up(worker) => before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, worker)),
            Stage::Down => true,
        };
        let stage = stage.wait_for(is_another).await;
        match stage.as_deref() {
            Ok(Stage::Up(worker)) => Ok(worker.clone()),
            Ok(Stage::Down | Stage::Starting) | Err(_) => Err(self.shared.unavailable()),
        }
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(*self.shared.stage.borrow(), Stage::Down)
    }

    pub(super) fn workers(&self) -> usize {
        usize::from(matches!(*self.shared.stage.borrow(), Stage::Up(_)))
    }

    /// The number of workers replaced so far, and the last fault with its time.
    pub(super) fn record(&self) -> (u64, Option<(String, Instant)>) {
        let health = self.shared.health();
        (health.replaced, health.fault.clone().zip(health.fault_at))
    }
}

/// A caller that waits. Dropping this before the call has ended marks the caller as disconnected.
struct PendingCall<'a> {
    worker: &'a Loop,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.worker.calls().open.get_mut(&self.id) {
            open.left = Some(Instant::now());
            self.worker.left.notify_one();
        }
    }
}

impl Shared {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unavailable(&self) -> ToolError {
        let health = self.health();
        let why = health.fault.as_deref().unwrap_or("its worker process is gone");
        let message = format!("the Python module {} is down: {why}", self.launcher.name);
        ToolError::unavailable_before(message, Some(health.retry_after()))
    }

    /// The permit for the thread. It is never `None`, because the semaphore is never closed.
    async fn thread(&self) -> Option<OwnedSemaphorePermit> {
        self.thread.clone().acquire_owned().await.ok()
    }

    fn busy(&self) -> ToolError {
        let message = format!("the async worker process of the Python module {} took no calls", self.launcher.name);
        ToolError::unavailable_before(message, Some(BUSY_WAIT))
    }

    /// Keeps a worker running, forever.
    async fn keep(self: Arc<Self>, mut first: Option<Worker>) {
        loop {
            let worker = match first.take() {
                Some(worker) => worker,
                None => self.start().await,
            };
            self.health().started();
            let born = worker.born;
            let (queue, orders) = mpsc::channel(QUEUE);
            let one = Arc::new(Loop { queue, calls: Mutex::default(), left: Notify::new() });
            self.stage.send_replace(Stage::Up(one.clone()));
            let ended = one.run(worker, orders).await;
            let module = &*self.launcher.name;
            let (how, innocent) = match ended {
                Ended::Died(how) => {
                    tracing::warn!(target: "toolcrib::python", module, "the async worker is replaced: {how}");
                    self.health().died(born, one.calls().has_answered, &how);
                    (how, false)
                }
                Ended::Blocked => {
                    let how = "its worker process was stopped because another call blocked it";
                    tracing::warn!(target: "toolcrib::python", module, "the async worker is replaced: a call did not end when it was cancelled");
                    self.health().lived();
                    (how.into(), true)
                }
            };
            self.health().replaced += 1;
            // Publish the new stage before `close` wakes the open calls. Then all calls wait for the next worker, or
            // fail at once if workers keep dying.
            self.stage.send_replace(if self.health().is_bad() { Stage::Down } else { Stage::Starting });
            one.close(&how, innocent);
        }
    }

    /// Starts workers until one is up.
    async fn start(&self) -> Worker {
        loop {
            let pause = self.health().pause(fastrand::f64());
            sleep(pause).await;
            let began = Instant::now();
            match self.launcher.start(self.role).await {
                Ok((worker, _)) => return worker,
                Err(fault) => {
                    let module = &*self.launcher.name;
                    tracing::warn!(target: "toolcrib::python", module, "the async worker could not be started: {fault}");
                    let is_bad = {
                        let mut health = self.health();
                        health.failed(began, &fault);
                        health.is_bad()
                    };
                    if is_bad {
                        self.stage.send_replace(Stage::Down);
                    }
                }
            }
        }
    }
}

impl Loop {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call. `None` if this worker takes no more calls.
    fn open(
        &self,
        context: &ToolContext,
        thread: Option<OwnedSemaphorePermit>,
    ) -> Option<(u64, oneshot::Receiver<End>)> {
        let mut calls = self.calls();
        if calls.closed {
            return None;
        }
        calls.last += 1;
        let id = calls.last;
        let (end, ended) = oneshot::channel();
        calls.open.insert(id, Open { context: context.clone(), end, left: None, told: false, _thread: thread });
        Some((id, ended))
    }

    /// Closes the worker to new calls, and reports the loss to all open calls.
    fn close(&self, how: &str, innocent: bool) {
        let mut calls = self.calls();
        calls.closed = true;
        // A worker's death counts once per tool toward its circuit breaker, and not at all for tools whose calls merely
        // shared the worker. So only the first open call of each tool reports a failure of its own. All others are
        // marked as failed together with another call, and so are calls whose caller has disconnected.
        let mut tools = HashSet::new();
        for (_, open) in calls.open.drain() {
            let tells = !innocent && open.left.is_none() && tools.insert(open.context.tool.clone());
            open.context.fell_with_another(!tells);
            let _ = open.end.send(End::Lost { how: how.to_owned(), innocent });
        }
    }

    /// Serves the worker until it ends or is blocked.
    async fn run(&self, mut worker: Worker, orders: mpsc::Receiver<Vec<u8>>) -> Ended {
        let Some(to) = worker.to.take() else { return Ended::Died("its pipe is gone".into()) };
        let mut rest = pin!(async {
            tokio::select! {
                () = write(to, orders) => {}
                () = self.end_cancelled() => {}
            }
        });
        let mut heard = 0_u32;
        loop {
            heard = heard.wrapping_add(1);
            // Read before checking the clock: an end that the worker wrote in time counts, even if it is read late.
            // Otherwise a busy service could take a healthy worker for a blocked one. But a worker that writes without
            // pause would then keep all orders waiting. So every `AT_ONCE` messages the order is reversed.
            let next = if heard.is_multiple_of(AT_ONCE) {
                tokio::select! {
                    biased;
                    () = &mut rest => return Ended::Blocked,
                    next = worker.next() => next,
                }
            } else {
                tokio::select! {
                    biased;
                    next = worker.next() => next,
                    () = &mut rest => return Ended::Blocked,
                }
            };
            match next {
                Next::Line => match protocol::read(worker.from.line()) {
                    Ok((id, said)) => self.heard(id, said),
                    Err(why) => return Ended::Died(format!("it wrote a line that cannot be used: {why}")),
                },
                Next::TooLong => return Ended::Died("it wrote a line that is longer than any result".into()),
                Next::Ended(how) => return Ended::Died(how),
            }
        }
    }

    fn heard(&self, id: u64, said: WorkerMessage) {
        match said {
            WorkerMessage::Progress(data) => {
                let context = self.calls().open.get(&id).map(|open| open.context.clone());
                if let Some(context) = context {
                    context.progress(data);
                }
            }
            WorkerMessage::Warning(warning) => {
                if let Some(open) = self.calls().open.get(&id) {
                    open.context.warn(warning);
                }
            }
            WorkerMessage::End(end) => {
                let mut calls = self.calls();
                calls.has_answered = true;
                if let Some(open) = calls.open.remove(&id) {
                    let _ = open.end.send(End::Said(end));
                }
            }
        }
    }

    /// Sends cancel orders for the calls whose callers have disconnected. Returns when such a call has not ended in
    /// time.
    async fn end_cancelled(&self) {
        loop {
            // The clock starts when the caller disconnects, not when the cancel order is sent. A blocked loop may not
            // read at all, so the queue may be full and the order may never be sent. The worker must still be found
            // blocked.
            let (first, untold) = {
                let calls = self.calls();
                let left = calls.open.values().filter_map(|open| open.left);
                let mut untold = calls.open.iter().filter(|(_, open)| open.left.is_some() && !open.told);
                (left.min(), untold.next().map(|(id, _)| *id))
            };
            let Some(first) = first else {
                self.left.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                Ok(room) = self.queue.reserve(), if untold.is_some() => {
                    let id = untold.unwrap_or_default();
                    // No entry: the call has ended meanwhile, so there is nothing to cancel.
                    if let Some(open) = self.calls().open.get_mut(&id) {
                        open.told = true;
                        room.send(protocol::cancel(id));
                    }
                }
                () = self.left.notified() => {}
                () = sleep_until(first + PATIENCE) => {
                    let late = |open: &Open| open.left.is_some_and(|left| left.elapsed() >= PATIENCE);
                    if self.calls().open.values().any(late) {
                        return;
                    }
                }
            }
        }
    }
}

/// Writes the queued orders. Never returns: if the worker does not read any more, its end is noticed where its messages
/// are read, with the better reason.
async fn write(mut to: ChildStdin, mut orders: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = orders.recv().await {
        if to.write_all(&line).await.is_err() {
            break;
        }
    }
    pending::<()>().await;
}
