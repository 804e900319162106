//! An attempt that waits for something to run on.

use std::future::pending;
use std::sync::Arc;

use super::invocation::CallSignals;
use super::report::CallReport;

/// A wait during which no code of the tool runs. If the call is cancelled meanwhile, the attempt
/// does not count. If the caller disconnects meanwhile, the tool does not start.
///
/// The task that has what the attempt waits for may be another one than that of the call. It starts
/// the attempt with [`start`](Self::start).
pub(crate) struct QueuedAttempt {
    report: Arc<CallReport>,
    signals: Arc<CallSignals>,
}

impl QueuedAttempt {
    /// The current attempt waits from now on.
    pub(super) fn new(report: &Arc<CallReport>, signals: &Arc<CallSignals>) -> Self {
        report.attempt.lock().queued = true;
        Self {
            report: report.clone(),
            signals: signals.clone(),
        }
    }

    /// Another handle of the same wait, for another task.
    pub(crate) fn share(&self) -> Self {
        Self {
            report: self.report.clone(),
            signals: self.signals.clone(),
        }
    }

    /// Notes that the tool starts. Returns false if it must not, because the call is cancelled or
    /// its caller has disconnected.
    pub(crate) fn start(&self) -> bool {
        let signals = &self.signals;
        if signals.cancelled.is_cancelled() || signals.disconnected.is_cancelled() {
            return false;
        }
        self.end();
        true
    }

    /// Notes that the tool has not started after all, and that the attempt waits on.
    pub(crate) fn undo_start(&self) {
        self.report.attempt.lock().queued = true;
    }

    /// Notes that the attempt does not wait any more.
    pub(crate) fn end(&self) {
        self.report.attempt.lock().queued = false;
    }

    /// Completes when the caller has disconnected.
    pub(crate) async fn disconnected(&self) {
        self.signals.disconnected.cancelled().await;
    }

    /// Cancels a call that has not started. `record` drops the future of the call then. Until that
    /// it must not return, or the tool would start.
    pub(crate) async fn cancel<T>(&self) -> T {
        self.signals.cancelled.cancel();
        pending().await
    }
}
