//! The calls that wait for a worker, in the order in which they came.
//!
//! A waiting call has its message ready. So the task that has a free worker can write the message
//! itself, before the task of the waiting call runs: the worker has work again at once.
//!
//! Two tasks may want to end a wait at the same time: the one with a free worker, and that of the
//! call, which is dropped or has waited too long. The lock of [`WaitingCall`] decides: the task
//! that takes the [`Turn`] out of it ends the wait. The task with the worker holds the lock until the message is
//! written and the worker is sent, so a call that finds no turn has a worker.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::call_message::CallMessage;
use super::stderr_log::LogOwner;
use crate::call::QueuedAttempt;

/// The queue. `W` is what a call gets at the end of its wait.
pub(super) struct WaitingCalls<W>(VecDeque<Arc<WaitingCall<W>>>);

/// A call in the queue. `None`: it does not wait any more.
pub(super) struct WaitingCall<W>(Mutex<Option<Turn<W>>>);

/// What the task with a free worker needs to start the call.
pub(super) struct Turn<W> {
    pub message: CallMessage,
    pub log_owner: LogOwner,
    pub attempt: QueuedAttempt,
    pub worker: oneshot::Sender<W>,
}

impl<W> WaitingCalls<W> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, turn: Turn<W>) -> Arc<WaitingCall<W>> {
        let call = Arc::new(WaitingCall(Mutex::new(Some(turn))));
        self.0.push_back(call.clone());
        call
    }

    /// The call that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Arc<WaitingCall<W>>> {
        self.0.pop_front()
    }

    pub(super) fn remove(&mut self, call: &Arc<WaitingCall<W>>) {
        self.0.retain(|other| !Arc::ptr_eq(other, call));
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Arc<WaitingCall<W>>> {
        std::mem::take(&mut self.0)
    }
}

impl<W> WaitingCall<W> {
    /// The turn. While the guard lives, the call cannot be dropped.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Turn<W>>> {
        self.0.lock()
    }

    /// Ends the wait without a worker. Returns false if the call does not wait any more.
    pub(super) fn withdraw(&self) -> bool {
        self.lock().take().is_some()
    }
}
