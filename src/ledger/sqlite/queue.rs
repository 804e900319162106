//! The operations of the writer.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::super::writer_queue::{OnCommit, Reply, WriterOperation, WriterQueue};
use super::super::{AttemptRow, Reservation, ReserveError, Row, StoredResult};
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

#[cfg(test)]
mod tests {
    use super::super::super::State;
    use super::super::super::contract::{ended_row, now, row};
    use super::*;
    use crate::log::captured_log::capture_log;

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
