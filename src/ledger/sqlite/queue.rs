//! The operations of the writer, and the queue that leads to it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::{AttemptRow, Error, HeldUntilCommit, Reservation, ReserveError, Row, StoredResult};
use super::change::Change;
use crate::call::{Charge, Charged};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// An operation of the writer.
pub(super) enum Op {
    Reserve { row: Row, charges: Vec<Charge>, reply: oneshot::Sender<Result<Reservation, ReserveError>> },
    Record { row: Arc<Row>, then: OnCommit },
    Settle { row: Arc<Row>, refunds: Vec<Charged>, reply: Reply<()> },
    Flush { reply: Reply<()> },
    Attempt(AttemptRow),
    Store(StoredResult),
    Change { change: Change, reply: Reply<u64> },
    Trim { now: Timestamp, at_most: u32, reply: Reply<u64> },
    Close { reply: Reply<()> },
}

/// What follows the commit of a row.
pub(super) enum OnCommit {
    /// A reply to the waiting caller.
    Reply(Reply<()>),
    /// No caller waits; the commit drops this value.
    Drop(HeldUntilCommit),
}

/// The handle of the writer's task.
pub(super) struct Writer {
    queue: mpsc::Sender<Op>,
    health: Arc<Health>,
}

/// The state of the writer.
#[derive(Default)]
pub(super) struct Health {
    /// Why nothing can be written now; `None` if the writer works.
    pub(super) trouble: ArcSwapOption<String>,
    /// Canceled when the writer has stopped for good.
    pub(super) stopped: CancellationToken,
}

impl Health {
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.trouble.load_full() {
            None => Ok(()),
            Some(reason) if self.stopped.is_cancelled() => Err(Error::Stopped(reason.to_string())),
            Some(reason) => Err(Error::Failed(reason.to_string())),
        }
    }
}

impl Writer {
    pub(super) fn new(queue: mpsc::Sender<Op>, health: Arc<Health>) -> Self {
        Self { queue, health }
    }

    /// A writer that accepts no operation.
    pub(super) fn closed() -> Self {
        Self { queue: mpsc::channel(1).0, health: Arc::default() }
    }

    pub(super) async fn send(&self, op: Op) -> Result<(), Error> {
        self.queue.send(op).await.map_err(|_| self.gone())
    }

    /// Sends without waiting for a free slot. The memory of such rows is bounded by `running.rs`.
    pub(super) fn hand_over(&self, op: Op) {
        match self.queue.try_send(op) {
            Ok(()) => {}
            Err(TrySendError::Full(op)) => {
                let queue = self.queue.clone();
                tokio::spawn(async move { queue.send(op).await.inspect_err(|unsent| lost(&unsent.0)) });
            }
            Err(TrySendError::Closed(op)) => lost(&op),
        }
    }

    pub(super) fn health(&self) -> Result<(), String> {
        self.health.check().map_err(|error| match error {
            Error::Failed(reason) => reason,
            stopped => stopped.to_string(),
        })
    }

    /// Why the writer accepts no operation any more.
    pub(super) fn gone(&self) -> Error {
        self.health.check().err().unwrap_or(Error::Closed)
    }

    /// Stops the writer for good.
    pub(super) fn stop(&self, reason: String) {
        if !self.health.stopped.is_cancelled() {
            tracing::error!(%reason, "the ledger stops and so must the service: its file cannot be read");
            self.health.trouble.store(Some(Arc::new(reason)));
            self.health.stopped.cancel();
        }
    }

    /// Waits until the writer has stopped for good. Returns the reason.
    pub(super) async fn failed(&self) -> Error {
        self.health.stopped.cancelled().await;
        self.gone()
    }

    pub(super) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.send(Op::Close { reply }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

pub(super) fn lost(op: &Op) {
    if let Op::Record { row, .. } = op {
        tracing::error!(id = %row.id, tool = %row.tool, "a call ended when nothing could be written any more: it is not on record");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::State;
    use super::super::super::contract::{ended, now, row};
    use super::*;
    use crate::log::captured::capture;

    #[test]
    fn trouble_is_told_from_the_end() {
        let health = Health::default();
        assert!(health.check().is_ok());
        health.trouble.store(Some(Arc::new("full".into())));
        assert!(matches!(health.check(), Err(Error::Failed(reason)) if reason == "full"));
        health.stopped.cancel();
        assert!(matches!(health.check(), Err(Error::Stopped(reason)) if reason == "full"));
    }

    #[test]
    fn ends_that_come_too_late_are_told_of() {
        let end = ended(&row("t", "a", now()), State::Succeeded);
        let log = capture();
        let then = OnCommit::Reply(oneshot::channel().0);
        Writer::closed().hand_over(Op::Record { row: end.clone(), then });
        assert_eq!((log.count("it is not on record"), log.count(&end.id.to_string())), (1, 1));
    }
}
