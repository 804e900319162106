//! Those that wait for a batch, and the starting calls that wait for free units of other replicas.

use tokio::time::Instant;

use super::super::writer_queue::{Reply, ReserveReply};
use super::super::{Error, HeldUntilCommit};
use super::batch::Batch;
use super::units::SetAside;
use crate::call::InvocationId;

/// Why the end of a call is not in the ledger.
const SETTLED_BY_ANOTHER: &str = "this replica did not reach the database in time, and another one has recorded the call as `unknown`";

/// Those that wait for a batch, in its order.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) reservations: Vec<ReserveReply>,
    pub(super) unit_requests: Vec<ReserveReply>,
    pub(super) ended: Vec<(InvocationId, Reply<()>)>,
    pub(super) held_until_commit: Vec<HeldUntilCommit>,
    /// Approximate length of the texts of the batch.
    pub(super) bytes: usize,
}

/// Starting calls that wait for free units, and those that wait for them.
#[derive(Default)]
pub(super) struct Postponed {
    pub(super) batch: Batch,
    pub(super) waiting: Waiting,
    /// When to ask again.
    pub(super) retry_at: Option<Instant>,
}

/// Keeps the requests whose callers wait.
fn retain_awaited<T>(requests: &mut Vec<T>, replies: &mut Vec<ReserveReply>) {
    if replies.iter().any(ReserveReply::is_closed) {
        let all = requests.drain(..).zip(replies.drain(..));
        let awaited: Vec<_> = all.filter(|(_, reply)| !reply.is_closed()).collect();
        (*requests, *replies) = awaited.into_iter().unzip();
    }
}

impl Postponed {
    /// Moves the calls to the beginning of a batch.
    pub(super) fn resume(&mut self, batch: &mut Batch, waiting: &mut Waiting) {
        let Self {
            batch: mut first,
            waiting: mut first_waiting,
            ..
        } = std::mem::take(self);
        first.reservations.append(&mut batch.reservations);
        first.unit_requests.append(&mut batch.unit_requests);
        batch.reservations = first.reservations;
        batch.unit_requests = first.unit_requests;
        first_waiting.reservations.append(&mut waiting.reservations);
        first_waiting
            .unit_requests
            .append(&mut waiting.unit_requests);
        waiting.reservations = first_waiting.reservations;
        waiting.unit_requests = first_waiting.unit_requests;
    }
}

impl Waiting {
    /// Takes out the starting calls whose callers have gone. Such a caller may have recorded a
    /// refusal in the same batch, which could not give back units that this batch takes.
    pub(super) fn remove_abandoned(&mut self, batch: &mut Batch) {
        retain_awaited(&mut batch.reservations, &mut self.reservations);
        retain_awaited(&mut batch.unit_requests, &mut self.unit_requests);
    }

    /// Takes out the starting calls that have a row already.
    pub(super) fn refuse_known(&mut self, batch: &mut Batch, known: &[InvocationId]) {
        let replies = std::mem::take(&mut self.reservations);
        let calls = std::mem::take(&mut batch.reservations);
        for (call, reply) in calls.into_iter().zip(replies) {
            if known.contains(&call.row.id) {
                let _ = reply.send(Err(Error::known_call().into()));
            } else {
                batch.reservations.push(call);
                self.reservations.push(reply);
            }
        }
    }

    /// Gives calls the free units that have come meanwhile.
    pub(super) fn take_units(&mut self, units: &SetAside, batch: &mut Batch) {
        let all = batch
            .unit_requests
            .drain(..)
            .zip(self.unit_requests.drain(..));
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for (request, reply) in all {
            match units.take(&request) {
                Some(reservation) => {
                    if reply.send(Ok(reservation)).is_err() {
                        units.cancel(request.invocation);
                    }
                }
                None => {
                    requests.push(request);
                    replies.push(reply);
                }
            }
        }
        (batch.unit_requests, self.unit_requests) = (requests, replies);
    }

    /// Sends the outcome of ended calls.
    pub(super) fn answer_ends(&mut self, lost: &[InvocationId]) {
        for (call, reply) in self.ended.drain(..) {
            let _ = reply.send(if lost.contains(&call) {
                Err(Error::Failed(SETTLED_BY_ANOTHER.into()))
            } else {
                Ok(())
            });
        }
    }

    /// Sends the error of a commit that failed.
    pub(super) fn send_error(self, error: &Error) {
        for reply in self.reservations.into_iter().chain(self.unit_requests) {
            let _ = reply.send(Err(error.clone().into()));
        }
        for (_, reply) in self.ended {
            let _ = reply.send(Err(error.clone()));
        }
    }
}
