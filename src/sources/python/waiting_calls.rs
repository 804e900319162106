//! The calls that wait for a worker, in the order in which they came.
//!
//! A waiting call has its message ready. So the task that has a free worker can write the message
//! itself, before the task of the waiting call runs: the worker has work again at once.
//!
//! Two tasks may want to end a wait at the same time: the one with a free worker, and that of the
//! call, which is dropped or has waited too long. The lock of [`WaitingCall`] decides: the task
//! that takes the [`Turn`] out of it ends the wait. The task with the worker holds the lock until the message is
//! written and the worker is sent, so a call that finds no turn has a worker.

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::call_message::CallMessage;
use super::stderr_log::LogOwner;
use crate::call::QueuedAttempt;

/// A call in the queue, which gets a `W` at the end of its wait. `None`: it does not wait any more.
/// While its lock is held, the call cannot be dropped.
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
