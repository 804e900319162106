//! The operations of the writer.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::writer_queue::{OnCommit, Reply, WriterOperation, WriterQueue};
use super::super::{AttemptRow, Reservation, ReserveError, Row, StoredResult};
use super::batch::{End, StartingCall, UnitRequest};
use crate::call::InvocationId;

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<Operation>;

/// The reply to a call that asks for units.
pub(super) type ReserveReply = oneshot::Sender<Result<Reservation, ReserveError>>;

/// What other replicas tell the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitSignal {
    /// Calls need the free units of this counter.
    Recall(i64),
    /// Free units were given back.
    Freed,
}

impl UnitSignal {
    /// Reads the text of a notification.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("recall", counter) => counter.parse().ok().map(Self::Recall),
            ("freed", _) => Some(Self::Freed),
            _ => None,
        }
    }
}

/// An operation of the writer.
pub(super) enum Operation {
    Reserve {
        call: StartingCall,
        reply: ReserveReply,
    },
    TakeUnits {
        request: UnitRequest,
        reply: ReserveReply,
    },
    Undo(InvocationId),
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
            Self::Undo(_)
                | Self::Attempt(_)
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
