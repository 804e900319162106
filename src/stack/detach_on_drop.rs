//! Lets a call run to its end, also without its caller.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use crate::call::{Answer, CallError, CallSignals};

/// A call that runs to its end even if its caller disconnects. It is polled in the task of the
/// caller, which saves a task and a change of thread. If it is dropped before its end, it cancels
/// the call's tokens and continues in a task of its own.
pub(super) struct DetachOnDrop {
    pub(super) call: Option<BoxFuture<'static, Result<Answer, CallError>>>,
    pub(super) signals: Arc<CallSignals>,
    /// Whether the tool stops when the caller has disconnected.
    pub(super) stops: bool,
}

impl Future for DetachOnDrop {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(Err(CallError::Internal));
        };
        let answer = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.signals.disconnect(self.stops);
        // Without a runtime the process is at its end, and so is the ledger.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(call);
        }
    }
}
