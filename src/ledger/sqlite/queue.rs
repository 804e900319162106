//! The operations of the writer.

use jiff::Timestamp;

use super::super::Row;
use super::super::writer_queue::{Reply, ReserveReply, Write, WriterOperation, WriterQueue};
use super::change::Change;
use super::quota::Settlement;
use super::set_aside::UnitRequest;
use crate::call::Charge;

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<Operation>;

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
    Settle {
        settlement: Settlement,
        reply: Reply<()>,
    },
    Change {
        change: Change,
        reply: Reply<u64>,
    },
    Trim {
        now: Timestamp,
        at_most: u32,
        reply: Reply<u64>,
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
        self.as_write().is_none_or(Write::is_awaited)
    }

    fn as_write(&self) -> Option<&Write> {
        match self {
            Self::Write(write) => Some(write),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::State;
    use tokio::sync::oneshot;

    use super::super::super::contract::{ended_row, now, row};
    use super::super::super::writer_queue::{OnCommit, WriterHandle as _};
    use super::*;
    use crate::log::captured_log::capture_log;

    #[test]
    fn unsent_row_is_logged() {
        let end = ended_row(&row("t", "a", now()), State::Succeeded);
        let log = capture_log();
        Writer::new_closed().send_in_background(Write::Record {
            row: end.clone(),
            on_commit: OnCommit::Reply(oneshot::channel().0),
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
