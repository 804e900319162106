//! Handles failures of the writer: keeps the rows of ended calls and retries them.

use super::super::Error;
use super::super::operation::refuse_known;
use super::super::sql::{Fetch as _, Sql};
use super::super::writer_queue::MAX_BATCH;
use super::batch::Batch;
use super::fault::Fault;
use super::writer::{MAX_BACKLOG, WriterTask};
use crate::call::InvocationId;

impl WriterTask {
    /// Takes the reservations whose calls have a row out of a batch that could not be committed.
    /// Returns whether there were some.
    pub(super) async fn refuse_known_calls(&mut self, batch: &mut Batch) -> bool {
        self.roll_back().await;
        let mut sql = Sql::new("select id from invocation where id in ");
        sql.bind_list(batch.reservations.iter().map(|one| one.call.row.id));
        let known = self.connection.fetch(sql).await.unwrap_or_default();
        let known: Vec<InvocationId> = known.iter().filter_map(|row| row.get(0).ok()).collect();
        refuse_known(&mut batch.reservations, &known);
        !known.is_empty()
    }

    /// Retries the backlog. If it is empty, checks with a small write whether writing works again.
    pub(super) async fn retry_writes(&mut self) {
        // After a checkpoint the log restarts, which frees space on a full disk.
        self.checkpoint().await;
        if self.has_stopped() {
            return;
        }
        self.check_space().await;
        if self.has_stopped() {
            return;
        }
        let attempted = if let Err(gone) = self.check_files_present() {
            Err(gone)
        } else if self.backlog.is_empty() {
            // An empty commit writes its number.
            self.write_batch(&Batch::default()).await.map(drop)
        } else {
            self.write_backlog().await
        };
        match attempted {
            Ok(()) => self.mark_recovered(),
            Err(error) => {
                self.handle_failure(error).await;
            }
        }
        self.observer.on_backlog(self.backlog.ended_count());
    }

    /// Writes the backlog, in commits of the usual size. A row that the database itself refuses is
    /// discarded, so that it does not block all others.
    async fn write_backlog(&mut self) -> Result<(), sqlx::Error> {
        let mut at_most = MAX_BATCH;
        while !self.backlog.is_empty() {
            let batch = self.backlog.take_oldest(at_most);
            match self.write_batch(&batch).await {
                Ok(_) => at_most = (at_most * 2).min(MAX_BATCH),
                // Rows that do not fit together may fit one by one. And a refused row can only be
                // found one by one.
                Err(error)
                    if at_most > 1 && (Fault::is_row_error(&error) || Fault::is_full(&error)) =>
                {
                    self.roll_back().await;
                    self.backlog.put_back(batch);
                    at_most = 1;
                }
                Err(error) if Fault::is_row_error(&error) => {
                    self.roll_back().await;
                    // The units of the discarded rows stay used.
                    let held = batch.settlements.iter().flat_map(|end| &end.held);
                    held.for_each(|held| self.set_aside.end(held));
                    let ids: Vec<String> =
                        batch.ended_rows().map(|row| row.id.to_string()).collect();
                    tracing::error!(?ids, %error, "the end of a call cannot be written and is discarded");
                }
                Err(error) => {
                    self.backlog.put_back(batch);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Moves the rows of calls that have run to the backlog.
    pub(super) fn add_to_backlog(&mut self, batch: Batch) {
        let backlog = &mut self.backlog;
        backlog.records.extend(batch.records);
        backlog.settlements.extend(batch.settlements);
        backlog.attempts.extend(batch.attempts);
        batch
            .shared_refusals
            .into_iter()
            .for_each(|refusal| refusal.add_to(&mut backlog.shared_refusals));
        let excess = backlog.records.len().saturating_sub(MAX_BACKLOG);
        if excess > 0 {
            tracing::error!(
                rows = excess,
                "the ledger has been unable to write for too long: rows are lost"
            );
            backlog.records.drain(..excess);
        }
        // `settlements` needs no bound: no call is reserved after the failure, so there are no more
        // than the calls that ran then.
        backlog.attempts.truncate(MAX_BACKLOG);
        backlog.shared_refusals.truncate(MAX_BACKLOG);
        self.observer.on_backlog(backlog.ended_count());
    }

    pub(super) async fn handle_failure(&mut self, error: sqlx::Error) -> Error {
        if let Err(stopped @ Error::Stopped(_)) = self.health.check() {
            return stopped;
        }
        let Fault {
            mut reason,
            is_final,
        } = Fault::classify(&error, &self.file);
        if Fault::is_full(&error) && self.space.is_at_bound() {
            reason = self.space.full_reason();
        }
        self.observer.on_commit_failure();
        if is_final {
            tracing::error!(
                ledger = %self.file.display(),
                %reason,
                "the ledger stops, and the service must stop too: it is unknown whether the last commit is on disk. \
                 Check the disk (dmesg), then start the service again: it recovers all commits from the write-ahead \
                 log, and interrupted calls become `unknown`"
            );
            self.health.stop(reason.clone());
            return Error::Stopped(reason);
        }
        // A transaction may still be open. After this, the next statement starts in a clean state
        // in any case.
        self.roll_back().await;
        if self.health.fail(reason.clone()) {
            tracing::error!(%reason, "the ledger cannot write; calls are refused until it can");
        }
        Error::Failed(reason)
    }

    pub(super) fn mark_recovered(&self) {
        if self.space.is_full() || self.has_stopped() {
            return;
        }
        if self.health.recover() {
            tracing::warn!("the ledger can write again");
        }
    }
}
