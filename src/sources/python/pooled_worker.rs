//! A worker for blocking functions, with what is known of it between two calls.

use tokio_util::task::AbortOnDropHandle;

use super::call_message::CallMessage;
use super::protocol::{self, Note, WorkerMessage, warn_of_changes};
use super::stderr_log::LogOwner;
use super::worker::{Worker, WorkerEvent};
use crate::call::{ToolContext, ToolError, ToolResult};

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
        self.worker.stderr.set_owner(log_owner);
        message.set_head(self.last_id);
        (self.last_id, self.worker.write_now(message.line()))
    }

    /// Reads the worker's messages until the end of the call.
    pub(super) async fn read_end(&mut self, id: u64, context: &ToolContext) -> CallEnd {
        loop {
            let message = match self.worker.next_event().await {
                WorkerEvent::Line => protocol::read_message(self.worker.stdout.line()),
                WorkerEvent::TooLong => Err("it is longer than any result".into()),
                WorkerEvent::Ended(reason) => return CallEnd::Died(reason),
            };
            match message {
                Ok((call_id, WorkerMessage::Note(note))) if call_id == id => note.pass_on(context),
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
