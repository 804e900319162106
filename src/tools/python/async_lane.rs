//! The worker for coroutines: one process, one loop, many calls at once.
//!
//! A task of its own owns the process: it writes what is queued, hands what it reads to who waits for it, and sees to it
//! that a call whose caller has gone ends. When it does not, the loop is blocked, and the process with it.
//!
//! A worker that is shared takes calls of blocking functions too, one at a time, on a thread beside its loop. Nothing stops a thread but
//! the end of its process, so the same holds for them: a call that does not end in time after its cancel ends the worker.

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

use super::protocol::{self, Function, Mode, Role, Said};
use super::worker::{Launcher, Next, Worker};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::health::Health;

/// Lines that wait for a slow worker.
const QUEUE: usize = 64;
/// A call that was cancelled ends in this time, or the loop is blocked.
const PATIENCE: Duration = Duration::from_secs(1);
/// Told to whoever found no room.
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// So many lines are heard before it is seen whether something else is to do.
const AT_ONCE: u32 = 64;
/// A call is begun so often when its worker goes down for another's sake.
const TRIES: usize = 3;

/// The worker and its calls.
pub(super) struct AsyncLane {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    launcher: Arc<Launcher>,
    role: Role,
    /// A permit for the one thread of a shared worker. A call holds it until the worker has said its end, or is no more.
    thread: Arc<Semaphore>,
    health: Mutex<Health>,
    stage: watch::Sender<Stage>,
}

#[derive(Clone)]
enum Stage {
    /// A worker is on its way.
    Starting,
    Up(Arc<Loop>),
    /// Workers keep dying: nobody should wait.
    Down,
}

/// One worker, as its calls see it.
struct Loop {
    queue: mpsc::Sender<Vec<u8>>,
    calls: Mutex<Calls>,
    /// A caller has gone.
    left: Notify,
}

#[derive(Default)]
struct Calls {
    /// It has ended: no more calls.
    closed: bool,
    /// A call has had an answer.
    has_answered: bool,
    last: u64,
    open: HashMap<u64, Open>,
}

/// A call that has no end yet.
struct Open {
    context: ToolContext,
    end: oneshot::Sender<End>,
    /// When its caller had gone.
    left: Option<Instant>,
    told: bool,
    /// Of a blocking function: the thread.
    _thread: Option<OwnedSemaphorePermit>,
}

enum End {
    Said(Result<ToolResult, ToolError>),
    /// The worker went down; `innocent`: because of another call.
    Lost {
        how: String,
        innocent: bool,
    },
}

/// Why a worker is no more.
enum Ended {
    Died(String),
    /// It did not end a call.
    Blocked,
}

impl AsyncLane {
    /// A lane that has this worker of that role, or starts one. Within the runtime.
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

    /// Runs a function, if a worker takes it by then. Dropping the future has the worker cancel it.
    pub(super) async fn call(
        &self,
        function: &Function,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let (mut why, mut before) = (String::new(), None);
        for _ in 0..TRIES {
            // One that is begun again has been tried, whatever becomes of it.
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
            // Room first: a call that is known is on its way, so that whoever cancels it can wait for its end.
            let room = match timeout_at(begin_by, worker.queue.reserve()).await {
                Ok(Ok(room)) => room,
                Ok(Err(_)) => continue,
                Err(_) => return Err(self.shared.busy()),
            };
            let Some((id, end)) = worker.open(context, thread) else { continue };
            let asked = Asked { worker: &worker, id };
            room.send(protocol::call(id, function, arguments, context));
            let end = end.await;
            drop(asked);
            match end {
                Ok(End::Said(said)) => return said,
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

    /// The worker, another than the one `before`, which takes no calls any more.
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

    /// Workers replaced so far, and what went wrong last.
    pub(super) fn record(&self) -> (u64, Option<(String, Instant)>) {
        let health = self.shared.health();
        (health.replaced, health.fault.clone().zip(health.fault_at))
    }
}

/// A caller that waits. Dropped before the call's end, it has left.
struct Asked<'a> {
    worker: &'a Loop,
    id: u64,
}

impl Drop for Asked<'_> {
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

    /// The thread for blocking functions; `None` never comes, since nobody closes it.
    async fn thread(&self) -> Option<OwnedSemaphorePermit> {
        self.thread.clone().acquire_owned().await.ok()
    }

    fn busy(&self) -> ToolError {
        let message = format!("the async worker process of the Python module {} took no calls", self.launcher.name);
        ToolError::unavailable_before(message, Some(BUSY_WAIT))
    }

    /// Has a worker, for ever.
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
            self.stage.send_replace(if self.health().is_bad() { Stage::Down } else { Stage::Starting });
            one.close(&how, innocent);
        }
    }

    /// Starts until a worker is up.
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

    /// Enters a call; `None` when this worker takes none any more.
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

    /// Takes no more calls and tells those that are open.
    fn close(&self, how: &str, innocent: bool) {
        let mut calls = self.calls();
        calls.closed = true;
        // One end is one misfortune of a tool, however many calls it had under way; of none whose calls only suffered it.
        let mut tools = HashSet::new();
        for (_, open) in calls.open.drain() {
            let tells = !innocent && open.left.is_none() && tools.insert(open.context.tool.clone());
            open.context.fell_with_another(!tells);
            let _ = open.end.send(End::Lost { how: how.to_owned(), innocent });
        }
    }

    /// Owns the worker until it ends, and ends it.
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
            // What was said in time counts, even if it is heard late; but a flood of it must not keep orders waiting.
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

    fn heard(&self, id: u64, said: Said) {
        match said {
            Said::Progress(data) => {
                let context = self.calls().open.get(&id).map(|open| open.context.clone());
                if let Some(context) = context {
                    context.progress(data);
                }
            }
            Said::Warning(warning) => {
                if let Some(open) = self.calls().open.get(&id) {
                    open.context.warn(warning);
                }
            }
            Said::End(end) => {
                let mut calls = self.calls();
                calls.has_answered = true;
                if let Some(open) = calls.open.remove(&id) {
                    let _ = open.end.send(End::Said(end));
                }
            }
        }
    }

    /// Cancels the calls whose callers have gone. Ends when one of them does not.
    async fn end_cancelled(&self) {
        loop {
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
                    // Ended meanwhile: nothing to cancel.
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

/// Writes what is queued. That the worker does not read any more, its own end says better.
async fn write(mut to: ChildStdin, mut orders: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = orders.recv().await {
        if to.write_all(&line).await.is_err() {
            break;
        }
    }
    pending::<()>().await;
}
