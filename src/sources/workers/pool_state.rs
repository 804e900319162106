//! The state of the workers for blocking functions: which are idle, how many are missing.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::call_message::CallMessage;
use super::config::WorkerRange;
use super::protocol::{self, Note, WorkerMessage, warn_of_changes};
use super::stderr_log::LogOwner;
use super::worker::{Worker, WorkerEvent};
use crate::call::{QueuedAttempt, ToolContext, ToolError, ToolResult};
use crate::sources::kept::RestartHistory;

/// What the tasks of a pool share. `C` is what a waiting call gets: a call that has started.
pub(super) struct PoolState<C> {
    pub idle_workers: Vec<PooledWorker>,
    /// The number of workers, idle or at work.
    pub worker_count: usize,
    /// The number of workers that are being started.
    pub starting: usize,
    /// The calls that wait for a worker. While there is one, no worker is idle.
    pub waiting_calls: VecDeque<Arc<WaitingCall<C>>>,
    /// The lowest number of idle workers since the last check for unneeded workers: so many were
    /// not needed. The idle workers are a stack, so these are at its bottom.
    pub least_idle: usize,
    /// Whether a task checks for unneeded workers.
    pub is_shrinking: bool,
    pub restart_history: RestartHistory,
    pub last_number: u64,
}

impl<C> PoolState<C> {
    /// The state of a pool without workers.
    pub(super) fn new() -> Self {
        Self {
            idle_workers: Vec::new(),
            worker_count: 0,
            starting: 0,
            waiting_calls: VecDeque::new(),
            least_idle: 0,
            is_shrinking: false,
            restart_history: RestartHistory::default(),
            last_number: 0,
        }
    }

    /// How many workers to start now: one for each call that runs or waits, within the range. While
    /// workers keep dying, a further one is started only alone, and after a pause.
    pub(super) fn missing_workers(&self, range: WorkerRange) -> usize {
        let present = self.worker_count + self.starting;
        let busy = self.worker_count.saturating_sub(self.idle_workers.len());
        let missing = (busy + self.waiting_calls.len())
            .clamp(range.min, range.max)
            .saturating_sub(present);
        match self.restart_history.is_failing() && present >= range.min && self.starting > 0 {
            true => 0,
            false if self.restart_history.is_failing() && present >= range.min => missing.min(1),
            false => missing,
        }
    }

    /// Whether no call should wait, because workers keep dying.
    pub(super) fn is_unavailable(&self) -> bool {
        self.worker_count == 0 && self.restart_history.is_failing()
    }

    /// An idle worker for a waiting call.
    pub(super) fn pop_wanted(&mut self) -> Option<PooledWorker> {
        match self.waiting_calls.is_empty() {
            true => None,
            false => self.pop_idle(),
        }
    }

    pub(super) fn pop_idle(&mut self) -> Option<PooledWorker> {
        let idle = self.idle_workers.pop();
        self.least_idle = self.least_idle.min(self.idle_workers.len());
        idle
    }
}

pub(super) struct PooledWorker {
    /// A pointer, because a worker goes from task to task.
    pub worker: Box<Worker>,
    pub number: u64,
    /// Whether it has answered a call, so that its death is not an early one.
    pub has_answered: bool,
    last_id: u64,
    /// Notices the worker's end while no call reads from it.
    _watch: AbortOnDropHandle<()>,
}

/// How a call has ended.
pub(super) enum CallEnd {
    Answered(Result<ToolResult, ToolError>),
    /// The worker has ended. The text says how.
    Died(String),
    /// The worker wrote a line that cannot be used. The text says why.
    BadLine(String),
}

impl PooledWorker {
    pub(super) fn new(worker: Box<Worker>, number: u64, watch: AbortOnDropHandle<()>) -> Self {
        Self {
            worker,
            number,
            has_answered: false,
            last_id: 0,
            _watch: watch,
        }
    }

    /// Starts a call: writes as much of its line as the pipe accepts now. Returns the call's id and
    /// the number of bytes.
    pub(super) fn start_call(
        &mut self,
        message: &mut CallMessage,
        log_owner: LogOwner,
    ) -> (u64, usize) {
        self.last_id += 1;
        *self.worker.stderr.owner.lock() = Some(log_owner);
        message.set_head(self.last_id);
        (self.last_id, self.worker.write_now(message.line()))
    }

    /// Reads the worker's messages until the end of the call.
    pub(super) async fn read_end(&mut self, id: u64, context: &ToolContext) -> CallEnd {
        loop {
            let language = self.worker.language;
            let message = match self.worker.next_event().await {
                WorkerEvent::Line => protocol::read_message(language, self.worker.stdout.line()),
                WorkerEvent::TooLong => Err("it is longer than any result".into()),
                WorkerEvent::Ended(reason) => return CallEnd::Died(reason),
            };
            match message {
                Ok((call_id, WorkerMessage::Note(note))) if call_id == id => {
                    note.pass_on(language, context);
                }
                // A thread of an earlier call still reports progress. The earlier call has ended,
                // so ignore it.
                Ok((call_id, WorkerMessage::Note(Note::Progress(_)))) if call_id < id => {}
                Ok((call_id, WorkerMessage::End(end, changes))) if call_id == id => {
                    warn_of_changes(changes, context);
                    self.has_answered = true;
                    self.worker.stdout.release_line();
                    return CallEnd::Answered(end);
                }
                Ok((call_id, _)) => {
                    return CallEnd::BadLine(format!("it is about call {call_id}"));
                }
                Err(reason) => return CallEnd::BadLine(reason),
            }
        }
    }
}

/// Calls `on_exit` when the process has ended, unless the returned task is dropped before. The
/// process must be a child of ours that has not been reaped yet.
pub(super) fn watch_exit(
    runtime: &Handle,
    process: Pid,
    on_exit: impl FnOnce() + Send + 'static,
) -> AbortOnDropHandle<()> {
    let ended = wait_for_exit(process);
    AbortOnDropHandle::new(runtime.spawn(async move {
        if ended.await.is_ok() {
            on_exit();
        }
    }))
}

/// A process id descriptor (Linux 5.3) costs nothing until the end. Without it, the next call
/// notices the end.
#[cfg(target_os = "linux")]
fn wait_for_exit(process: Pid) -> impl Future<Output = io::Result<()>> + Send {
    use rustix::process::{PidfdFlags, pidfd_open};
    use tokio::io::{Interest, unix::AsyncFd};

    let process = pidfd_open(process, PidfdFlags::NONBLOCK);
    async move {
        #[expect(
            deprecated,
            reason = "unsound for descriptors that others close; an OwnedFd is nobody else's"
        )]
        let process = AsyncFd::with_interest(process?, Interest::READABLE)?;
        let _readable = process.readable().await?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
async fn wait_for_exit(_: Pid) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A call in the queue, which gets a `W` at the end of its wait. `None`: it does not wait any more.
/// While its lock is held, the call cannot be dropped.
///
/// A waiting call has its message ready. So the task that has a free worker can write the message
/// itself, before the task of the waiting call runs: the worker has work again at once.
///
/// Two tasks may want to end a wait at the same time: the one with a free worker, and that of the
/// call, which is dropped or has waited too long. The lock decides: the task that takes the
/// [`Turn`] out of it ends the wait. The task with the worker holds the lock until the message is
/// written and the worker is sent, so a call that finds no turn has a worker.
pub(super) struct WaitingCall<W>(pub Mutex<Option<Turn<W>>>);

/// What the task with a free worker needs to start the call.
pub(super) struct Turn<W> {
    pub message: CallMessage,
    pub log_owner: LogOwner,
    pub attempt: QueuedAttempt,
    pub worker: oneshot::Sender<W>,
}

impl<W> WaitingCall<W> {
    /// Ends the wait without a worker. Returns false if the call does not wait any more.
    pub(super) fn withdraw(&self) -> bool {
        self.0.lock().take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;
    use crate::call::JsonObject;
    use crate::kinds::http::tests::test_context;
    use crate::sources::workers::call_message::CallMessage;
    use crate::sources::workers::protocol::Function;

    fn turn() -> Turn<()> {
        let (context, _call) = test_context();
        let function = json!({"name": "f", "description": "", "input_schema": {}, "mode": "sync"});
        let function: Function = serde_json::from_value(function).unwrap();
        Turn {
            message: CallMessage::new(&function, &JsonObject::new(), &context),
            log_owner: (context.invocation_id, context.tool.clone()),
            attempt: context.queue_attempt(),
            worker: oneshot::channel().0,
        }
    }

    fn missing(
        range: WorkerRange,
        worker_count: usize,
        starting: usize,
        waiting: usize,
        early_deaths: usize,
    ) -> usize {
        let mut state = PoolState::new();
        (state.worker_count, state.starting) = (worker_count, starting);
        for _ in 0..waiting {
            let call = WaitingCall(Mutex::new(Some(turn())));
            state.waiting_calls.push_back(Arc::new(call));
        }
        (0..early_deaths).for_each(|_| {
            state
                .restart_history
                .record_failed_start(Instant::now(), "no");
        });
        state.missing_workers(range)
    }

    #[tokio::test]
    async fn missing_workers_follow_the_calls() {
        let on_demand = WorkerRange {
            min: 1,
            max: 4,
            idle_period: Duration::MAX,
        };
        for (range, worker_count, starting, waiting, early_deaths, expected) in [
            (WorkerRange::exactly(3), 1, 0, 0, 0, 2),
            (WorkerRange::exactly(3), 1, 2, 9, 0, 0),
            (WorkerRange::exactly(3), 0, 0, 0, 9, 3),
            (on_demand, 1, 0, 1, 0, 1),
            (on_demand, 1, 1, 2, 0, 1),
            (on_demand, 1, 0, 9, 0, 3),
            (on_demand, 4, 0, 9, 0, 0),
            (on_demand, 0, 0, 0, 0, 1),
            // While workers keep dying: the minimum, and then one at a time.
            (on_demand, 0, 0, 0, 9, 1),
            (on_demand, 1, 0, 9, 9, 1),
            (on_demand, 1, 1, 9, 9, 0),
        ] {
            let found = missing(range, worker_count, starting, waiting, early_deaths);
            assert_eq!(
                found, expected,
                "{worker_count} {starting} {waiting} {early_deaths}"
            );
        }
    }
}
