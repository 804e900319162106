//! The operations of a writer, which are the same in both engines but for a few.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{AttemptRow, Error, Reservation, ReserveError, Row, StoredResult};
use crate::call::{Charge, InvocationId};

/// A value that the engine keeps until a row is committed, and then drops.
pub type HeldUntilCommit = Box<dyn Send + Sync>;

/// Answers the caller of an operation.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// An operation of a writer. `End` is the end of a call that was reserved or has taken units, `Rare` is
/// what only this engine does.
#[derive(derive_more::From)]
pub(super) enum Operation<End, Rare> {
    Reserve(Starting<ReservedCall>),
    TakeUnits(Starting<UnitRequest>),
    Settle {
        end: End,
        reply: Reply<()>,
    },
    #[from]
    Write(Write),
    Rare(Rare),
}

/// A starting call, whose caller waits for the decision.
pub(super) struct Starting<T> {
    pub(super) call: T,
    pub(super) reply: oneshot::Sender<Result<Reservation, ReserveError>>,
    /// Since when it waits for free units of other replicas.
    pub(super) waits_since: Option<Instant>,
}

/// A call whose row is committed before its tool runs.
pub(super) struct ReservedCall {
    pub(super) row: Row,
    pub(super) charges: Vec<Charge>,
}

/// A request for the units of a call whose row is written with its end.
pub(super) struct UnitRequest {
    pub(super) invocation: InvocationId,
    pub(super) started_at: Timestamp,
    pub(super) charges: Vec<Charge>,
}

impl<T> Starting<T> {
    /// A call that has just begun.
    pub(super) fn new(call: T, reply: oneshot::Sender<Result<Reservation, ReserveError>>) -> Self {
        Self {
            call,
            reply,
            waits_since: None,
        }
    }

    /// Sends the error of a commit that failed.
    pub(super) fn fail(self, error: &Error) {
        let _ = self.reply.send(Err(error.clone().into()));
    }
}

/// Takes the calls that have a row already out of a batch, and answers them.
pub(super) fn refuse_known(calls: &mut Vec<Starting<ReservedCall>>, known: &[InvocationId]) {
    let refused = calls.extract_if(.., |call| known.contains(&call.call.row.id));
    refused.for_each(|call| call.fail(&Error::known_call()));
}

/// What the writers of both engines write.
pub enum Write {
    /// The row of a call that has ended and was not reserved.
    Record { row: Arc<Row>, on_commit: OnCommit },
    /// A failed attempt.
    Attempt(AttemptRow),
    /// A result for the cache.
    Store(StoredResult),
    /// All that was sent before.
    Flush(Reply<()>),
    /// Everything. Then the writer ends.
    Close(Reply<()>),
}

/// What follows the commit of a row.
pub enum OnCommit {
    /// A reply to the waiting caller.
    Reply(Reply<()>),
    /// No caller waits; the commit drops this value.
    Drop(HeldUntilCommit),
}

impl<End, Rare> Operation<End, Rare> {
    /// Whether a caller waits for the commit.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(
            self,
            Self::Write(
                Write::Attempt(_)
                    | Write::Store(_)
                    | Write::Record {
                        on_commit: OnCommit::Drop(_),
                        ..
                    }
            )
        )
    }

    /// Reports a row that is not written, since the ledger has ended.
    pub(super) fn log_lost_row(&self) {
        if let Self::Write(Write::Record { row, .. }) = self {
            tracing::error!(id = %row.id, tool = %row.tool, "a call ended after the ledger was closed or stopped: the call is not recorded");
        }
    }
}

/// Those that wait for the ends and rows of a batch.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) ended: Vec<(InvocationId, Reply<()>)>,
    pub(super) held_until_commit: Vec<HeldUntilCommit>,
    /// Approximate memory of the batch, in bytes.
    pub(super) bytes: usize,
}

impl Waiting {
    /// Adds those that wait for the row of a call.
    pub(super) fn add(&mut self, row: &Row, on_commit: OnCommit) {
        self.bytes += row.memory_bytes();
        match on_commit {
            OnCommit::Reply(reply) => self.ended.push((row.id, reply)),
            OnCommit::Drop(held) => self.held_until_commit.push(held),
        }
    }

    /// Sends the outcome of each ended call.
    pub(super) fn answer(self, outcome: impl Fn(InvocationId) -> Result<(), Error>) {
        for (call, reply) in self.ended {
            let _ = reply.send(outcome(call));
        }
    }
}
