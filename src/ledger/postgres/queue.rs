//! The operations of the writer.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::writer_queue::{OnCommit, Reply, WriterOperation, WriterQueue};
use super::super::{AttemptRow, Reservation, ReserveError, Row, StoredResult};
use super::batch::{End, UnitRequest};
use crate::call::Charge;

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<Operation>;

/// The reply to a call that asks for units.
pub(super) type ReserveReply = oneshot::Sender<Result<Reservation, ReserveError>>;

/// An operation of the writer.
pub(super) enum Operation {
    Reserve {
        row: Row,
        charges: Vec<Charge>,
        reply: ReserveReply,
    },
    TakeUnits {
        request: UnitRequest,
        reply: ReserveReply,
    },
    Record {
        row: Arc<Row>,
        on_commit: OnCommit,
    },
    Settle {
        end: End,
        reply: Reply<()>,
    },
    Attempt(AttemptRow),
    Store(StoredResult),
    Flush {
        reply: Reply<()>,
    },
    Close {
        reply: Reply<()>,
    },
}

impl WriterOperation for Operation {
    fn is_awaited(&self) -> bool {
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

    fn recorded_row(&self) -> Option<&Row> {
        match self {
            Self::Record { row, .. } => Some(row),
            _ => None,
        }
    }

    fn close(reply: Reply<()>) -> Self {
        Self::Close { reply }
    }
}
