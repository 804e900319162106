//! Handles failures of the writer: keeps the rows of ended calls and retries them.

use std::sync::Arc;

use super::super::Error;
use super::batch::Batch;
use super::fault::Fault;
use super::writer::{BACKLOG, BATCH, Task};

impl Task {
    /// Retries the backlog. If it is empty, checks with a small write whether writing works again.
    pub(super) async fn probe(&mut self) {
        // After a checkpoint the log restarts, which frees space on a full disk.
        self.checkpoint().await;
        if self.has_stopped() {
            return;
        }
        self.look_for_room().await;
        if self.has_stopped() {
            return;
        }
        let tried = if let Err(gone) = self.present() {
            Err(gone)
        } else if self.backlog.is_empty() {
            let sql = "insert into tool_switch (tool, enabled) values ('', 0) on conflict do nothing";
            let write = sqlx::query(sql).execute(&mut self.connection).await;
            match write {
                Ok(_) => sqlx::query("delete from tool_switch where tool = ''").execute(&mut self.connection).await,
                Err(error) => Err(error),
            }
            .map(|_| ())
        } else {
            self.catch_up().await
        };
        match tried {
            Ok(()) => self.recovered(),
            Err(error) => {
                self.failed(error).await;
            }
        }
        self.watch.backlog(self.backlog.ends());
    }

    /// Writes the backlog, in commits of the usual size. A row that the database itself refuses is given up, so that it
    /// does not block all others.
    async fn catch_up(&mut self) -> Result<(), sqlx::Error> {
        let mut at_most = BATCH;
        while !self.backlog.is_empty() {
            let piece = self.backlog.first(at_most);
            match self.written(&piece).await {
                Ok(_) => {}
                // Rows that do not fit together may fit one by one. And a refused row can only be found one by one.
                Err(error) if at_most > 1 && (Fault::is_of_a_row(&error) || Fault::is_full(&error)) => {
                    sqlx::query("rollback").execute(&mut self.connection).await.ok();
                    self.counters.forget();
                    self.backlog.put_back(piece);
                    at_most = 1;
                }
                Err(error) if Fault::is_of_a_row(&error) => {
                    sqlx::query("rollback").execute(&mut self.connection).await.ok();
                    self.counters.forget();
                    let ids: Vec<String> = piece.ended().map(|row| row.id.to_string()).collect();
                    tracing::error!(?ids, %error, "the end of a call cannot be written, and is given up");
                }
                Err(error) => {
                    self.backlog.put_back(piece);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Moves the rows of calls that have run to the backlog.
    pub(super) fn keep(&mut self, batch: Batch) {
        let kept = &mut self.backlog;
        kept.records.extend(batch.records);
        kept.settles.extend(batch.settles);
        kept.attempts.extend(batch.attempts);
        batch.shares.into_iter().for_each(|share| kept.share(share));
        let over = kept.records.len().saturating_sub(BACKLOG);
        if over > 0 {
            tracing::error!(rows = over, "the ledger has been unable to write for too long: rows are lost");
            kept.records.drain(..over);
        }
        // `settles` needs no bound: no call is reserved after the failure, so there are no more than the calls that ran
        // then.
        kept.attempts.truncate(BACKLOG);
        kept.shares.truncate(BACKLOG);
        self.watch.backlog(kept.ends());
    }

    pub(super) async fn failed(&mut self, error: sqlx::Error) -> Error {
        let Fault { mut reason, is_final } = Fault::of(&error, &self.file);
        if Fault::is_full(&error) && self.room.is_at_its_bound() {
            reason = self.room.reason();
        }
        self.watch.failed();
        if is_final {
            tracing::error!(
                ledger = %self.file.display(),
                %reason,
                "the ledger stops and so must the service: whether its last commit is on disk is not known. Look after \
                 the disk (dmesg), then start again: the write-ahead log says what was committed, and calls that were \
                 interrupted become `unknown`"
            );
            self.health.trouble.store(Some(Arc::new(reason.clone())));
            self.health.stopped.cancel();
            return Error::Stopped(reason);
        }
        // A transaction may still be open. After this, the next statement starts in a clean state in any case.
        let _ = sqlx::query("rollback").execute(&mut self.connection).await;
        self.counters.forget();
        if self.health.trouble.swap(Some(Arc::new(reason.clone()))).is_none() {
            tracing::error!(%reason, "the ledger cannot write; calls are refused until it can");
        }
        Error::Failed(reason)
    }

    pub(super) fn recovered(&self) {
        if self.room.is_full() {
            return;
        }
        if self.health.trouble.swap(None).is_some() {
            tracing::warn!("the ledger can write again");
        }
    }
}
