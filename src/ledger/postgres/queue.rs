//! The operations of the writer.

use super::super::operation;
use super::super::writer_queue::WriterQueue;
use super::batch::End;
use crate::call::InvocationId;

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<End, Undo>;

/// An operation of the writer.
pub(super) type Operation = operation::Operation<End, Undo>;

/// Undoes a reservation.
pub(super) struct Undo(pub(super) InvocationId);

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
