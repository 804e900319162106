//! Keeps what a failed commit leaves to write, and writes it when the database is back.

use super::super::operation::refuse_known;
use super::super::writer_queue::MAX_BATCH;
use super::batch::Batch;
use super::fault;
use super::writer::{MAX_BATCH_BYTES, MAX_REPETITIONS, WriterTask};

/// Maximum number of rows that wait while the database is away.
const MAX_BACKLOG: usize = 10_000;
/// Maximum memory of these rows, approximately.
const MAX_BACKLOG_BYTES: usize = 64 << 20;

impl WriterTask {
    /// Keeps the ended rows of a failed batch. `is_sent`: the database may have got the batch.
    pub(super) fn keep(&mut self, batch: Batch, is_sent: bool) {
        if is_sent && !self.replica.is_connected() {
            self.unanswered = Some(batch);
        } else {
            self.backlog.take_over(batch);
            self.bound_backlog();
        }
        self.report_backlog();
    }

    fn bound_backlog(&mut self) {
        let lost = self.backlog.drop_excess(MAX_BACKLOG, MAX_BACKLOG_BYTES);
        if lost > 0 {
            tracing::error!(
                rows = lost,
                "the ledger has been unable to write for too long: rows are lost"
            );
        }
    }

    pub(super) fn report_backlog(&self) {
        let unanswered = self.unanswered.as_ref().map_or(0, Batch::ended_count);
        self.observer
            .on_backlog(self.backlog.ended_count() + unanswered);
    }

    /// Takes the rows of an unanswered commit into the backlog, or only undoes its reservations,
    /// whose callers got an error.
    pub(super) fn resolve_unanswered(&mut self, is_committed: Option<bool>) {
        let Some(batch) = self.unanswered.take() else {
            return;
        };
        if is_committed == Some(true) {
            self.units.end(&batch);
            self.durations.add(batch.ended_rows());
            self.backlog.voids.extend(batch.failed);
        } else {
            let later = std::mem::take(&mut self.backlog);
            self.backlog.take_over(batch);
            self.backlog.take_over(later);
        }
    }

    /// Writes the oldest part of the backlog. Returns whether that worked. A row that the database
    /// refuses is found by writing one at a time, and discarded.
    pub(super) async fn write_backlog(&mut self) -> bool {
        let (mut at_most, mut repetitions) = (MAX_BATCH, 0);
        loop {
            let mut batch = self.backlog.take_oldest(at_most, MAX_BATCH_BYTES);
            batch.remove_duplicates();
            let running = self.observer.running_calls();
            let blocks = self.units.plan(&batch);
            match self.replica.commit(running, &batch, &blocks, None).await {
                Ok(mut decisions) => {
                    self.take_over_units(&mut decisions);
                    self.units.end(&batch);
                    self.durations.add(batch.ended_rows());
                    return true;
                }
                Err(error) if fault::is_repeatable(&error) && repetitions < MAX_REPETITIONS => {
                    self.units.mark_uncertain();
                    self.backlog.put_back(batch);
                    repetitions += 1;
                }
                Err(error) if fault::is_row_error(&error) && at_most > 1 => {
                    self.units.mark_uncertain();
                    self.backlog.put_back(batch);
                    at_most = 1;
                }
                Err(error) if fault::is_row_error(&error) => {
                    self.units.mark_uncertain();
                    let ids: Vec<_> = batch.ended_rows().map(|row| row.id.to_string()).collect();
                    tracing::error!(
                        ?ids,
                        reason = fault::reason(&error),
                        "the end of a call cannot be written and is discarded"
                    );
                    return true;
                }
                Err(error) if self.replica.is_connected() => {
                    self.backlog.put_back(batch);
                    if fault::is_replica_ended(&error) {
                        self.replica.disconnect();
                    }
                    self.fail(&error);
                    return false;
                }
                Err(error) => {
                    self.unanswered = Some(batch);
                    self.fail(&error);
                    return false;
                }
            }
        }
    }

    /// Takes the reservations whose calls have a row out of a batch that could not be committed.
    /// Returns whether there were some.
    pub(super) async fn refuse_known_calls(&self, batch: &mut Batch) -> bool {
        let ids = batch.reservations.iter().map(|one| one.call.row.id);
        let known = self.replica.known_calls(ids).await.unwrap_or_default();
        refuse_known(&mut batch.reservations, &known);
        !known.is_empty()
    }
}
