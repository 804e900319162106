//! The operations of the writer.

use super::super::writer_queue::{Reply, ReserveReply, Write, WriterOperation, WriterQueue};
use super::batch::{End, StartingCall, UnitRequest};
use crate::call::InvocationId;

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<Operation>;

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
    Settle {
        end: End,
        reply: Reply<()>,
    },
    Write(Write),
}

impl From<Write> for Operation {
    fn from(write: Write) -> Self {
        Self::Write(write)
    }
}

impl WriterOperation for Operation {
    fn is_awaited(&self) -> bool {
        !matches!(self, Self::Undo(_)) && self.as_write().is_none_or(Write::is_awaited)
    }

    fn as_write(&self) -> Option<&Write> {
        match self {
            Self::Write(write) => Some(write),
            _ => None,
        }
    }
}
