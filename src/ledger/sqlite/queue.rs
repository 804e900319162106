//! The operations of the writer, and the queue that leads to it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::{
    AttemptRow, Error, HeldUntilCommit, Reservation, ReserveError, Row, StoredResult,
};
use super::change::Change;
use super::quota::Settlement;
use super::set_aside::UnitRequest;
use crate::call::Charge;

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// An operation of the writer.
pub(super) enum Operation {
    Reserve {
        row: Row,
        charges: Vec<Charge>,
        reply: oneshot::Sender<Result<Reservation, ReserveError>>,
    },
    TakeUnits {
        request: UnitRequest,
        reply: oneshot::Sender<Result<Reservation, ReserveError>>,
    },
    Record {
        row: Arc<Row>,
        on_commit: OnCommit,
    },
    Settle {
        settlement: Settlement,
        reply: Reply<()>,
    },
    Flush {
        reply: Reply<()>,
    },
    Attempt(AttemptRow),
    Store(StoredResult),
    Change {
        change: Change,
        reply: Reply<u64>,
    },
    Trim {
        now: Timestamp,
        at_most: u32,
        reply: Reply<u64>,
    },
    Close {
        reply: Reply<()>,
    },
}

impl Operation {
    /// Whether a caller waits for the commit.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(
            self,
            Self::Attempt(_)
                | Self::Store(_)
                | Self::Record {
                    on_commit: OnCommit::Drop(_),
                    ..
                }
        )
    }
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
    queue: mpsc::Sender<Operation>,
    health: Arc<WriterHealth>,
}

/// The state of the writer.
#[derive(Default)]
pub(super) struct WriterHealth {
    /// Why nothing can be written now; `None` if the writer works.
    pub(super) failure: ArcSwapOption<String>,
    /// Cancelled when the writer has stopped for good.
    pub(super) stopped: CancellationToken,
    /// Notified when an operation is in the queue for which a caller waits.
    pub(super) awaited: Notify,
}

impl WriterHealth {
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.failure.load_full() {
            None => Ok(()),
            Some(reason) if self.stopped.is_cancelled() => Err(Error::Stopped(reason.to_string())),
            Some(reason) => Err(Error::Failed(reason.to_string())),
        }
    }
}

impl Writer {
    pub(super) fn new(queue: mpsc::Sender<Operation>, health: Arc<WriterHealth>) -> Self {
        Self { queue, health }
    }

    /// A writer that accepts no operation.
    pub(super) fn new_closed() -> Self {
        Self {
            queue: mpsc::channel(1).0,
            health: Arc::default(),
        }
    }

    pub(super) async fn send(&self, op: Operation) -> Result<(), Error> {
        let is_awaited = op.is_awaited();
        let sent = self.queue.send(op).await;
        if is_awaited {
            self.health.awaited.notify_one();
        }
        sent.map_err(|_| self.closed_error())
    }

    /// Sends without waiting for a free slot. The memory of such rows is bounded by `in_flight.rs`.
    pub(super) fn send_without_waiting(&self, op: Operation) {
        match self.queue.try_send(op) {
            Ok(()) => {}
            Err(TrySendError::Full(op)) => {
                let queue = self.queue.clone();
                tokio::spawn(async move {
                    queue
                        .send(op)
                        .await
                        .inspect_err(|unsent| log_lost_row(&unsent.0))
                });
            }
            Err(TrySendError::Closed(op)) => log_lost_row(&op),
        }
    }

    pub(super) fn health(&self) -> Result<(), String> {
        self.health.check().map_err(|error| match error {
            Error::Failed(reason) => reason,
            stopped => stopped.to_string(),
        })
    }

    /// Why the writer accepts no operation any more.
    pub(super) fn closed_error(&self) -> Error {
        self.health.check().err().unwrap_or(Error::Closed)
    }

    /// Stops the writer for good.
    pub(super) fn stop(&self, reason: String) {
        if !self.health.stopped.is_cancelled() {
            tracing::error!(%reason, "the ledger stops, and the service must stop too: its file cannot be read");
            self.health.failure.store(Some(Arc::new(reason)));
            self.health.stopped.cancel();
        }
    }

    /// Waits until the writer has stopped for good. Returns the reason.
    pub(super) async fn wait_for_stop(&self) -> Error {
        self.health.stopped.cancelled().await;
        self.closed_error()
    }

    pub(super) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.send(Operation::Close { reply }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

pub(super) fn log_lost_row(op: &Operation) {
    if let Operation::Record { row, .. } = op {
        tracing::error!(id = %row.id, tool = %row.tool, "a call ended after the ledger was closed or stopped: the call is not recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::State;
    use super::super::super::contract::{ended_row, now, row};
    use super::*;
    use crate::log::captured_log::capture_log;

    #[test]
    fn health_distinguishes_failed_from_stopped() {
        let health = WriterHealth::default();
        assert!(health.check().is_ok());
        health.failure.store(Some(Arc::new("full".into())));
        assert!(matches!(health.check(), Err(Error::Failed(reason)) if reason == "full"));
        health.stopped.cancel();
        assert!(matches!(health.check(), Err(Error::Stopped(reason)) if reason == "full"));
    }

    #[test]
    fn unsent_row_is_logged() {
        let end = ended_row(&row("t", "a", now()), State::Succeeded);
        let log = capture_log();
        let then = OnCommit::Reply(oneshot::channel().0);
        Writer::new_closed().send_without_waiting(Operation::Record {
            row: end.clone(),
            on_commit: then,
        });
        assert_eq!(
            (
                log.count_lines("the call is not recorded"),
                log.count_lines(&end.id.to_string())
            ),
            (1, 1)
        );
    }
}
