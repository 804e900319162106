//! The replies to the callers of one batch.

use jiff::Timestamp;

use super::super::writer_queue::{Reply, ReserveReply};
use super::super::{Error, HeldUntilCommit};
use super::batch::Decisions;
use super::set_aside::{SetAside, UnitRequest};

/// The callers that wait for the parts of a batch, in the order of the batch.
#[derive(Default)]
pub(super) struct PendingReplies {
    pub(super) reservations: Vec<ReserveReply>,
    pub(super) unit_requests: Vec<ReserveReply>,
    pub(super) ended: Vec<Reply<()>>,
    pub(super) held_until_commit: Vec<HeldUntilCommit>,
    /// Approximate length of the texts of the batch.
    pub(super) bytes: usize,
    /// When the newest call of the batch started.
    pub(super) newest_start: Option<Timestamp>,
}

impl PendingReplies {
    /// Sends what the commit decided.
    pub(super) fn send_decisions(
        self,
        decisions: Decisions,
        unit_requests: &[UnitRequest],
        set_aside: &SetAside,
    ) {
        for (reply, decision) in self.reservations.into_iter().zip(decisions.reservations) {
            let _ = reply.send(decision);
        }
        let replies = self.unit_requests.into_iter().zip(decisions.unit_requests);
        for ((reply, decision), request) in replies.zip(unit_requests) {
            // A caller that is gone does not use its units.
            if reply.send(decision).is_err() {
                set_aside.cancel(request.invocation);
            }
        }
        for reply in self.ended {
            let _ = reply.send(Ok(()));
        }
    }

    /// Sends the error of a commit that failed.
    pub(super) fn send_error(self, error: &Error) {
        for reply in self.reservations.into_iter().chain(self.unit_requests) {
            let _ = reply.send(Err(error.clone().into()));
        }
        for reply in self.ended {
            let _ = reply.send(Err(error.clone()));
        }
    }
}
