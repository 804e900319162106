//! The worker for coroutines: one process, one event loop, many calls at once.
//!
//! A task owns the process. It writes the queued requests, and passes each message of the worker to
//! the call that waits for it. It also checks that a call ends after its caller has disconnected.
//! If such a call does not end, the loop is blocked, and the task replaces the process.
//!
//! A shared worker also takes calls of blocking functions, one at a time, on a thread beside its
//! loop. Only the end of the process can stop a thread. So the same rule holds: a call that does
//! not end in time after its cancellation ends the worker.

use std::collections::{HashMap, HashSet};
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::call_message::CallMessage;
use super::language::{Language, log_as};
use super::protocol::{self, Function, Mode, Role, WorkerMessage, WorkerQuestion, warn_of_changes};
use super::worker::{Launcher, Worker, WorkerEvent};
use crate::call::{JsonObject, ToolContext, ToolError, ToolResult};
use crate::sources::SourceStatus;
use crate::sources::kept::Kept;

/// Requests that may wait while the worker reads slowly.
const QUEUE_SIZE: usize = 64;
/// A cancelled call must end within this time. Otherwise the loop is blocked.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The `retry_after` of a call that the worker did not take in time.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);
/// After this many messages of the worker in a row, the loop looks for other work first.
const MAX_MESSAGES_IN_A_ROW: u32 = 64;
/// Starts of one call. A call is started again only if another call caused the end of its worker.
const MAX_STARTS: usize = 3;

pub(super) struct AsyncWorkerSupervisor {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    launcher: Arc<Launcher>,
    role: Role,
    /// One permit, for the one thread of a shared worker. A call holds it until the worker reports
    /// its end, or until the worker has ended.
    thread: Arc<Semaphore>,
    worker: Kept<AsyncWorker>,
}

/// One worker, as its calls see it.
struct AsyncWorker {
    requests: mpsc::Sender<Vec<u8>>,
    calls: Mutex<Calls>,
    /// Wakes [`AsyncWorker::cancel_disconnected`] when a caller disconnects.
    caller_disconnected: Notify,
}

#[derive(Default)]
struct Calls {
    /// The worker has ended and takes no more calls.
    closed: bool,
    /// At least one call has had an answer, so a later death is not an early one.
    has_answered: bool,
    last_id: u64,
    open_calls: HashMap<u64, OpenCall>,
}

/// A call that has not ended yet.
struct OpenCall {
    context: ToolContext,
    end: oneshot::Sender<End>,
    /// Takes the questions of a call that may ask.
    questions: Option<mpsc::Sender<WorkerQuestion>>,
    /// When its caller disconnected.
    disconnected_at: Option<Instant>,
    cancel_sent: bool,
    /// The permit for the thread, if the function blocks. It is released when this entry is
    /// removed.
    _thread: Option<OwnedSemaphorePermit>,
}

enum End {
    Completed(Result<ToolResult, ToolError>),
    /// The worker has ended. `is_caused_by_other`: another call was the cause.
    WorkerLost {
        reason: String,
        is_caused_by_other: bool,
    },
}

/// Why a worker has ended.
enum WorkerEnd {
    Died(String),
    /// A call did not end after its cancellation.
    Blocked,
}

impl AsyncWorkerSupervisor {
    /// A pool with this worker in this role; starts a worker if there is no `first`. Call it within
    /// the runtime.
    pub(super) fn new(launcher: &Arc<Launcher>, role: Role, first: Option<Worker>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            launcher: launcher.clone(),
            role,
            thread: Arc::new(Semaphore::new(1)),
            worker: Kept::new(None),
        });
        let task = tokio::spawn(shared.clone().keep_worker(first).boxed());
        Arc::new(Self {
            shared,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// Runs a function, if a worker takes the call before `begin_by`. Dropping the future makes the
    /// worker cancel the call.
    pub(super) async fn call(
        &self,
        function: &Function,
        arguments: &JsonObject,
        context: &ToolContext,
        begin_by: Instant,
    ) -> Result<ToolResult, ToolError> {
        let language = self.shared.launcher.settings.language.name();
        let (mut last_loss, mut previous) = (String::new(), None);
        for _ in 0..MAX_STARTS {
            // `context.wait_for` marks a wait during which nothing has run. It fits the first round
            // only. In a later round the function has already started once, so a cancellation then
            // is not "not started".
            let thread = match (function.mode, &previous) {
                (Mode::Async, _) => None,
                (Mode::Sync, None) => Some(
                    context
                        .wait_for(timeout_at(begin_by, self.shared.acquire_thread()))
                        .await,
                ),
                (Mode::Sync, Some(_)) => {
                    Some(timeout_at(begin_by, self.shared.acquire_thread()).await)
                }
            };
            let thread = match thread.transpose() {
                Ok(thread) => thread.flatten(),
                Err(_) => return Err(self.shared.busy_error()),
            };
            let next = timeout_at(begin_by, self.shared.worker.next(previous.as_ref()));
            let worker = match &previous {
                None => context.wait_for(next).await,
                Some(_) => next.await,
            };
            let Ok(Some(worker)) = worker else {
                return Err(self.shared.unavailable_error());
            };
            previous = Some(worker.clone());
            // Reserve the slot in the queue before the call gets its entry. There is no await
            // between the entry and the send. So every entry belongs to a call that is sent to the
            // worker. If the caller disconnects, the cancel request has a call to cancel, and
            // waiting for the end of the call makes sense.
            let slot = match timeout_at(begin_by, worker.requests.reserve()).await {
                Ok(Ok(slot)) => slot,
                Ok(Err(_)) => continue,
                Err(_) => return Err(self.shared.busy_error()),
            };
            let may_ask = function.may_ask() && context.can_ask();
            let (questions, asked) = may_ask.then(|| mpsc::channel(MAX_WAITING)).unzip();
            let Some((id, end)) = worker.register_call(context, thread, questions) else {
                continue;
            };
            let pending = PendingCall {
                worker: &worker,
                id,
            };
            slot.send(CallMessage::new(function, arguments, context).into_line(id));
            let end = match asked {
                Some(asked) => answer_until(end, (id, asked), context, &worker.requests).await,
                None => end.await,
            };
            drop(pending);
            match end {
                Ok(End::Completed(result)) => return result,
                // The function may have run in part. So start it again only if another call ended
                // the worker, and if the effect of the tool permits a repetition.
                Ok(End::WorkerLost {
                    reason,
                    is_caused_by_other,
                }) if is_caused_by_other && context.may_repeat() => {
                    last_loss = reason;
                }
                Ok(End::WorkerLost { reason, .. }) => {
                    return Err(ToolError::unavailable(format!(
                        "the function did not end: {reason}"
                    )));
                }
                Err(_) => {
                    return Err(ToolError::unavailable(format!(
                        "the {language} module has ended"
                    )));
                }
            }
        }
        Err(match last_loss.as_str() {
            "" => self.shared.unavailable_error(),
            reason => ToolError::unavailable(format!("the function did not end: {reason}")),
        })
    }

    /// How busy it is: whether calls would have to wait for a worker, and the number of open calls.
    pub(super) fn load(&self) -> (bool, usize) {
        match self.shared.worker.current() {
            None => (true, 0),
            Some(worker) => (false, worker.calls.lock().open_calls.len()),
        }
    }

    pub(super) fn is_unavailable(&self) -> bool {
        self.shared.worker.is_unavailable()
    }

    pub(super) fn status(&self) -> SourceStatus {
        let workers = usize::from(self.shared.worker.current().is_some());
        self.shared.worker.status(workers)
    }
}

/// A caller that waits. Dropping this before the call has ended marks the caller as disconnected.
struct PendingCall<'a> {
    worker: &'a AsyncWorker,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.worker.calls.lock().open_calls.get_mut(&self.id) {
            open.disconnected_at = Some(Instant::now());
            self.worker.caller_disconnected.notify_one();
        }
    }
}

impl Shared {
    fn unavailable_error(&self) -> ToolError {
        let module = self.launcher.describe_module();
        let history = self.worker.history.lock();
        history.unavailable_error(&module, "its worker process is gone")
    }

    /// The permit for the thread. It is never `None`, because the semaphore is never closed.
    async fn acquire_thread(&self) -> Option<OwnedSemaphorePermit> {
        self.thread.clone().acquire_owned().await.ok()
    }

    fn busy_error(&self) -> ToolError {
        let message = format!(
            "the async worker process of {} took no calls",
            self.launcher.describe_module()
        );
        ToolError::unavailable_before_start(message, Some(BUSY_RETRY_AFTER))
    }

    /// Keeps a worker running, forever.
    async fn keep_worker(self: Arc<Self>, mut first: Option<Worker>) {
        let module = &*self.launcher.name;
        let language = self.launcher.settings.language;
        loop {
            let worker = match first.take() {
                Some(worker) => worker,
                None => {
                    let start = || async { Ok(self.launcher.start(self.role).await?.0) };
                    let log = |fault: &str| {
                        log_as!(
                            language,
                            warn,
                            module,
                            "the async worker could not be started: {fault}"
                        );
                    };
                    self.worker.start_until_up(start, log).await
                }
            };
            let started_at = worker.started_at;
            let (request_sender, requests) = mpsc::channel(QUEUE_SIZE);
            let async_worker = Arc::new(AsyncWorker {
                requests: request_sender,
                calls: Mutex::default(),
                caller_disconnected: Notify::new(),
            });
            self.worker.set_ready(async_worker.clone());
            // The end is noted before `fail_open_calls` wakes the open calls. Then all calls wait
            // for the next worker, or fail at once if workers keep dying.
            match async_worker.serve(worker, requests).await {
                WorkerEnd::Died(reason) => {
                    log_as!(
                        language,
                        warn,
                        module,
                        "the async worker is replaced: {reason}"
                    );
                    let has_answered = async_worker.calls.lock().has_answered;
                    self.worker.record_death(started_at, has_answered, &reason);
                    async_worker.fail_open_calls(&reason, false);
                }
                WorkerEnd::Blocked => {
                    let reason = "its worker process was stopped because another call blocked it";
                    log_as!(
                        language,
                        warn,
                        module,
                        "the async worker is replaced: a call did not end when it was cancelled"
                    );
                    self.worker.record_end();
                    async_worker.fail_open_calls(reason, true);
                }
            }
        }
    }
}

impl AsyncWorker {
    /// Registers a call. `None` if this worker takes no more calls.
    fn register_call(
        &self,
        context: &ToolContext,
        thread: Option<OwnedSemaphorePermit>,
        questions: Option<mpsc::Sender<WorkerQuestion>>,
    ) -> Option<(u64, oneshot::Receiver<End>)> {
        let mut calls = self.calls.lock();
        if calls.closed {
            return None;
        }
        calls.last_id += 1;
        let id = calls.last_id;
        let (end, ended) = oneshot::channel();
        calls.open_calls.insert(
            id,
            OpenCall {
                context: context.clone(),
                end,
                questions,
                disconnected_at: None,
                cancel_sent: false,
                _thread: thread,
            },
        );
        Some((id, ended))
    }

    /// Closes the worker to new calls, and reports the loss to all open calls.
    fn fail_open_calls(&self, reason: &str, is_caused_by_other: bool) {
        let mut calls = self.calls.lock();
        calls.closed = true;
        // A worker's death counts once per tool toward its circuit breaker, and not at all for
        // tools whose calls merely shared the worker. So only the first open call of each tool
        // reports a failure of its own. All others are marked as failed together with another call,
        // and so are calls whose caller has disconnected.
        let mut tools = HashSet::new();
        for (_, open) in calls.open_calls.drain() {
            let reports = !is_caused_by_other
                && open.disconnected_at.is_none()
                && tools.insert(open.context.tool.clone());
            open.context.set_shared_failure(!reports);
            let _ = open.end.send(End::WorkerLost {
                reason: reason.to_owned(),
                is_caused_by_other,
            });
        }
    }

    /// Serves the worker until it ends or is blocked.
    async fn serve(&self, mut worker: Worker, requests: mpsc::Receiver<Vec<u8>>) -> WorkerEnd {
        let Some(stdin) = worker.stdin.take() else {
            return WorkerEnd::Died("its pipe is gone".into());
        };
        let mut other_work = pin!(async {
            tokio::select! {
                () = write_requests(stdin, requests) => {}
                () = self.cancel_disconnected() => {}
            }
        });
        let mut message_count = 0_u32;
        loop {
            message_count = message_count.wrapping_add(1);
            // Read before checking the clock: an end that the worker wrote in time counts, even if
            // it is read late. Otherwise a busy service could take a healthy worker for a blocked
            // one. But a worker that writes without pause would then keep all requests waiting. So
            // every `MAX_MESSAGES_IN_A_ROW` messages the order is reversed.
            let next = if message_count.is_multiple_of(MAX_MESSAGES_IN_A_ROW) {
                tokio::select! {
                    biased;
                    () = &mut other_work => return WorkerEnd::Blocked,
                    next = worker.next_event() => next,
                }
            } else {
                tokio::select! {
                    biased;
                    next = worker.next_event() => next,
                    () = &mut other_work => return WorkerEnd::Blocked,
                }
            };
            match next {
                WorkerEvent::Line => {
                    match protocol::read_message(worker.language, worker.stdout.line()) {
                        Ok((id, message)) => self.dispatch(worker.language, id, message),
                        Err(reason) => {
                            return WorkerEnd::Died(format!(
                                "it wrote a line that cannot be used: {reason}"
                            ));
                        }
                    }
                }
                WorkerEvent::TooLong => {
                    return WorkerEnd::Died(
                        "it wrote a line that is longer than any result".into(),
                    );
                }
                WorkerEvent::Ended(reason) => return WorkerEnd::Died(reason),
            }
        }
    }

    fn dispatch(&self, language: Language, id: u64, message: WorkerMessage) {
        match message {
            WorkerMessage::Ask(question) => {
                let calls = self.calls.lock();
                let open = calls.open_calls.get(&id);
                if let Some(questions) = open.and_then(|open| open.questions.as_ref()) {
                    // A function with more open questions than that waits until its deadline.
                    let _ = questions.try_send(question);
                }
            }
            WorkerMessage::Note(note) => {
                let calls = self.calls.lock();
                let context = calls.open_calls.get(&id).map(|open| open.context.clone());
                drop(calls);
                if let Some(context) = context {
                    note.pass_on(language, &context);
                }
            }
            WorkerMessage::End(end, changes) => {
                let mut calls = self.calls.lock();
                calls.has_answered = true;
                if let Some(open) = calls.open_calls.remove(&id) {
                    warn_of_changes(changes, &open.context);
                    let _ = open.end.send(End::Completed(end));
                }
            }
        }
    }

    /// Sends cancel requests for the calls whose callers have disconnected. Returns when such a
    /// call has not ended in time.
    async fn cancel_disconnected(&self) {
        loop {
            // The clock starts when the caller disconnects, not when the cancel request is sent. A
            // blocked loop may not read at all, so the queue may be full and the request may never
            // be sent. The worker must still be found blocked.
            let (first, unsent) = {
                let calls = self.calls.lock();
                let disconnected_at = calls
                    .open_calls
                    .values()
                    .filter_map(|open| open.disconnected_at);
                let mut unsent = calls
                    .open_calls
                    .iter()
                    .filter(|(_, open)| open.disconnected_at.is_some() && !open.cancel_sent);
                (disconnected_at.min(), unsent.next().map(|(id, _)| *id))
            };
            let Some(first) = first else {
                self.caller_disconnected.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                Ok(slot) = self.requests.reserve(), if unsent.is_some() => {
                    let id = unsent.unwrap_or_default();
                    // No entry: the call has ended meanwhile, so there is nothing to cancel.
                    if let Some(open) = self.calls.lock().open_calls.get_mut(&id) {
                        open.cancel_sent = true;
                        slot.send(protocol::cancel_message(id));
                    }
                }
                () = self.caller_disconnected.notified() => {}
                () = sleep_until(first + CANCEL_TIMEOUT) => {
                    let is_late = |open: &OpenCall| open.disconnected_at.is_some_and(|disconnected_at| disconnected_at.elapsed() >= CANCEL_TIMEOUT);
                    if self.calls.lock().open_calls.values().any(is_late) {
                        return;
                    }
                }
            }
        }
    }
}

/// Writes the queued requests. Never returns: if the worker does not read any more, its end is
/// noticed where its messages are read, with the better reason.
async fn write_requests(mut stdin: ChildStdin, mut requests: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = requests.recv().await {
        if stdin.write_all(&line).await.is_err() {
            break;
        }
    }
    pending::<()>().await;
}

/// Questions of one call that may wait for their turn.
const MAX_WAITING: usize = 64;

/// Waits for the end of the call with this id in its worker, and answers its questions meanwhile.
async fn answer_until<T>(
    end: impl Future<Output = T>,
    (id, mut asked): (u64, mpsc::Receiver<WorkerQuestion>),
    context: &ToolContext,
    requests: &mpsc::Sender<Vec<u8>>,
) -> T {
    let ask = async |asked: WorkerQuestion| {
        let (schema, name) = (asked.schema, asked.name.as_deref());
        let answer = context.ask(&asked.message, schema, name).await;
        protocol::answer_message(id, asked.question, &answer)
    };
    let (mut end, mut answers) = (pin!(end), FuturesUnordered::new());
    loop {
        tokio::select! {
            biased;
            end = &mut end => return end,
            Some(question) = asked.recv() => answers.push(ask(question)),
            Some(line) = answers.next() => {
                // If the worker has ended, the call learns that from its end.
                let _ = requests.send(line).await;
            }
        }
    }
}
