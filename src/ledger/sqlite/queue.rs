//! The operations of the writer.

use jiff::Timestamp;

use super::super::operation::{self, Reply};
use super::super::writer_queue::WriterQueue;
use super::change::Change;
use super::quota::Settlement;

/// The handle of the writer's task.
pub(super) type Writer = WriterQueue<Settlement, Rare>;

/// An operation of the writer.
pub(super) type Operation = operation::Operation<Settlement, Rare>;

/// An operation in a commit of its own.
pub(super) enum Rare {
    Change {
        change: Change,
        reply: Reply<u64>,
    },
    Trim {
        now: Timestamp,
        at_most: u32,
        reply: Reply<u64>,
    },
}

#[cfg(test)]
mod tests {
    use super::super::super::State;
    use tokio::sync::oneshot;

    use super::super::super::contract::{ended_row, now, row};
    use super::super::super::operation::{OnCommit, Write};
    use super::super::super::writer_queue::WriterHandle as _;
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
