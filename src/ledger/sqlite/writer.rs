//! The one task that writes. While one batch commits, the next one collects in a bounded queue. So
//! an operation waits at most for the batch before its own. Operations without a waiting caller
//! collect for a few milliseconds more, because each commit has a cost of its own. For the same
//! reason, a busy writer waits a moment for the callers that it has just answered.
//!
//! Normally, SQLite has written nothing of a failed commit. Reservations are then refused, so no
//! tool runs without its row. Rows of calls that have run already are kept in the backlog. They are
//! retried before every batch, and once a second.
//!
//! All this holds only while it is certain that the failed commit is not in the file. If that is
//! uncertain (`fault.rs`), the writer stops for good and reports it. Waiting operations fail,
//! nothing is retried, and the files stay as they are for the next start.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant as SystemInstant};

use serde::Serialize;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::latency::PendingDurations;
use super::super::operation::{OnCommit, Reply, Starting, Waiting, Write};
use super::super::refusals::Refusals;
use super::super::writer_queue::{COLLECT_TIME, MAX_BATCH, WriterHealth};
use super::super::{Error, LedgerObserver};
use super::batch::{Batch, Decisions};
use super::batch_connection::{BatchConnection, Start, is_changed_file};
use super::change::{Operation, Rare, Writer};
use super::commit_marker::{HeadFile, with_suffix};
use super::fault::Fault;
use super::file_space::FileSpace;
use super::quota::CounterCache;
use super::set_aside::SetAside;
use super::wal::{self, CHECK_INTERVAL_COMMITS};

/// A batch ends at about this many bytes of row text, so that one statement stays small.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Maximum number of rows that wait for a retry while the disk is full.
pub(super) const MAX_BACKLOG: usize = 10_000;
/// Pause between retries while nothing can be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct WriterTask {
    /// For all work but batches.
    pub(super) connection: SqliteConnection,
    pub(super) batches: BatchConnection,
    pub(super) head: HeadFile,
    /// Commits since the last check of the log's length.
    pub(super) commits_since_check: u32,
    /// How long the last commit took.
    pub(super) commit_time: Duration,
    pub(super) health: Arc<WriterHealth>,
    /// Rows of calls that ran and could not be written yet.
    pub(super) backlog: Batch,
    pub(super) durations: PendingDurations,
    pub(super) counters: CounterCache,
    pub(super) set_aside: SetAside,
    pub(super) refusals: Refusals,
    pub(super) space: FileSpace,
    pub(super) file: PathBuf,
    /// The inode of the file when it was opened.
    pub(super) inode: Option<u64>,
    /// The write-ahead log, and its inode once it exists.
    pub(super) wal_path: PathBuf,
    pub(super) wal_inode: Option<u64>,
    pub(super) observer: Arc<dyn LedgerObserver>,
}

/// Starts the writer's task.
pub(super) fn spawn_writer(
    connection: SqliteConnection,
    batches: BatchConnection,
    head: HeadFile,
    set_aside: SetAside,
    file: &Path,
    max_bytes: Option<u64>,
    observer: Arc<dyn LedgerObserver>,
) -> Writer {
    let health = Arc::<WriterHealth>::default();
    let (writer, operations) = Writer::new(health.clone());
    let task = WriterTask {
        connection,
        batches,
        head,
        // The log may be long from the last process, so it is checked after the first commit.
        commits_since_check: CHECK_INTERVAL_COMMITS,
        commit_time: Duration::ZERO,
        health: health.clone(),
        backlog: Batch::default(),
        durations: PendingDurations::default(),
        counters: CounterCache::default(),
        set_aside,
        refusals: Refusals::default(),
        space: FileSpace::new(max_bytes),
        file: file.to_owned(),
        inode: inode_of(file),
        wal_path: with_suffix(file, "-wal"),
        wal_inode: None,
        observer,
    };
    health.spawn_writer(task.run(operations));
    writer
}

/// The inode of a file. It distinguishes the file from another one with the same name.
fn inode_of(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().map(|found| found.ino())
}

impl WriterTask {
    async fn run(mut self, mut operations: mpsc::Receiver<Operation>) {
        let mut buffer = Vec::with_capacity(MAX_BATCH);
        let mut retry_at = Instant::now() + RETRY_INTERVAL;
        let mut collect_until = Instant::now();
        self.check_space().await;
        loop {
            if self.has_stopped() {
                return self.abandon_files(operations);
            }
            let is_healthy = self.backlog.is_empty() && self.health.is_healthy();
            let is_idle = self.durations.is_empty() && !self.set_aside.has_free_units();
            let received = if is_healthy && is_idle {
                let received = operations.recv_many(&mut buffer, MAX_BATCH).await;
                retry_at = Instant::now() + RETRY_INTERVAL;
                received
            } else {
                // After `RETRY_INTERVAL` at the latest, the writer checks whether it can write
                // again, however many operations arrive meanwhile. `biased` with the time condition
                // ensures that.
                tokio::select! {
                    biased;
                    received = operations.recv_many(&mut buffer, MAX_BATCH), if Instant::now() < retry_at => received,
                    () = tokio::time::sleep_until(retry_at) => {
                        retry_at = Instant::now() + RETRY_INTERVAL;
                        if is_healthy { self.write_durations(false).await } else { self.retry_writes().await }
                        continue
                    }
                }
            };
            if received == 0 {
                break;
            }
            if buffer.len() < MAX_BATCH && !buffer.iter().any(Operation::is_awaited) {
                self.health
                    .collect_until(collect_until, &mut operations, &mut buffer)
                    .await;
            }
            let answered = buffer.iter().filter(|op| op.is_awaited()).count();
            let close = self.process_operations(&mut buffer).await;
            collect_until = Instant::now() + COLLECT_TIME;
            if let Some(reply) = close {
                // The disk may have space again since the last attempt.
                if !self.backlog.is_empty() && !self.has_stopped() {
                    self.retry_writes().await;
                }
                if self.has_stopped() {
                    return self.abandon_files(operations);
                }
                if !self.backlog.is_empty() {
                    tracing::error!(
                        rows = self.backlog.records.len() + self.backlog.settlements.len(),
                        "rows of finished calls could not be written"
                    );
                }
                self.checkpoint().await;
                if self.has_stopped() {
                    return self.abandon_files(operations);
                }
                self.batches.close().await;
                let _ = self.connection.close().await;
                operations.close();
                while let Ok(op) = operations.try_recv() {
                    op.log_lost_row();
                }
                let _ = reply.send(Ok(()));
                break;
            }
            let commit_time = self.commit_time;
            self.health
                .wait_for_callers(answered, commit_time, &operations)
                .await;
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.health.stopped.is_cancelled()
    }

    /// Ends the task and leaves the files as they are. Waiting callers get an error when the queue
    /// is dropped.
    fn abandon_files(self, mut operations: mpsc::Receiver<Operation>) {
        operations.close();
        while let Ok(op) = operations.try_recv() {
            op.log_lost_row();
        }
        for row in self.backlog.ended_rows() {
            tracing::error!(id = %row.id, tool = %row.tool, "the end of a call is not recorded");
        }
        // Closing the connection would make SQLite copy the write-ahead log into the database and
        // delete it. A log of uncertain content must not overwrite the database. The forgotten
        // connections keep their threads until the process ends soon.
        std::mem::forget(self.connection);
        std::mem::forget(self.batches);
    }

    /// Executes the operations in order. Rows are grouped; every other operation runs between two
    /// groups.
    async fn process_operations(&mut self, operations: &mut Vec<Operation>) -> Option<Reply<()>> {
        let (mut batch, mut waiting) = (Batch::default(), Waiting::default());
        let mut close = None;
        for op in operations.drain(..) {
            match op {
                Operation::Reserve(call) if self.space.is_full() => call.fail(&self.full_error()),
                Operation::TakeUnits(call) if self.space.is_full() => call.fail(&self.full_error()),
                Operation::Reserve(call) => {
                    waiting.bytes += call.call.row.memory_bytes();
                    batch.reservations.push(call);
                }
                Operation::TakeUnits(call) => batch.unit_requests.push(call),
                Operation::Write(Write::Record { row, on_commit }) => {
                    waiting.add(&row, on_commit);
                    match self.refusals.find_shared_row(&row) {
                        Some(share) => share.add_to(&mut batch.shared_refusals),
                        None => batch.records.push(row),
                    }
                }
                Operation::Settle { end, reply } => {
                    waiting.add(&end.row, OnCommit::Reply(reply));
                    batch.settlements.push(end);
                }
                Operation::Write(Write::Attempt(row)) => batch.attempts.push(row),
                Operation::Write(Write::Store(result)) => {
                    waiting.bytes += result.result.len();
                    batch.results.push(result);
                }
                // What follows it in the queue is written, too.
                Operation::Write(Write::Close(reply)) => close = Some(reply),
                Operation::Write(Write::Flush(reply)) => {
                    self.commit_batch(std::mem::take(&mut batch), std::mem::take(&mut waiting))
                        .await;
                    if !self.has_stopped() {
                        self.write_durations(false).await;
                        let _ = reply.send(self.health.check());
                    }
                }
                Operation::Rare(rare) => {
                    self.commit_batch(std::mem::take(&mut batch), std::mem::take(&mut waiting))
                        .await;
                    if !self.has_stopped() {
                        self.run_rare(rare).await;
                    }
                }
            }
            if waiting.bytes > MAX_BATCH_BYTES {
                self.commit_batch(std::mem::take(&mut batch), std::mem::take(&mut waiting))
                    .await;
            }
        }
        self.commit_batch(batch, waiting).await;
        if close.is_some() {
            self.write_durations(true).await;
        }
        close
    }

    /// Commits a batch, after the backlog, and sends the replies.
    async fn commit_batch(&mut self, mut batch: Batch, waiting: Waiting) {
        if batch.is_empty() {
            return;
        }
        // The backlog comes first. Its ends may release keys and refund units, on which the
        // reservations of this batch depend.
        if !self.backlog.is_empty() && !self.has_stopped() {
            self.retry_writes().await;
        }
        let committed = match self.health.check() {
            // `retry_writes` has just failed on the backlog. Another attempt would only delay the
            // replies.
            Err(error) if !self.backlog.is_empty() || self.has_stopped() => Err(error),
            _ => match self.write_batch(&batch).await {
                Ok(answers) => Ok(answers),
                Err(error)
                    if Fault::is_row_error(&error) && self.refuse_known_calls(&mut batch).await =>
                {
                    match self.write_batch(&batch).await {
                        Ok(answers) => Ok(answers),
                        Err(error) => Err(self.handle_failure(error).await),
                    }
                }
                Err(error) => Err(self.handle_failure(error).await),
            },
        };
        // Replies are sent only after the commit, and after `commit_timed` has written its number
        // to the head file. So each acknowledged commit is in both. The checks of log and file size
        // come after the replies, because they must not delay them.
        match committed {
            Ok(answers) => {
                self.mark_recovered();
                let (bytes, newest_start) = (waiting.bytes, batch.newest_start());
                self.send_decisions(batch, answers);
                waiting.answer(|_| Ok(()));
                self.checkpoint_long_log(bytes).await;
                self.keep_free_space(bytes, newest_start).await;
            }
            Err(error) => {
                waiting.answer(|_| Err(error.clone()));
                batch.fail_starting(&error);
                self.add_to_backlog(batch);
            }
        }
    }

    /// Sends what the commit decided.
    fn send_decisions(&self, batch: Batch, decisions: Decisions) {
        for (one, decision) in batch.reservations.into_iter().zip(decisions.reservations) {
            let _ = one.reply.send(decision);
        }
        let requests = batch.unit_requests.into_iter();
        for (Starting { call, reply, .. }, decision) in requests.zip(decisions.unit_requests) {
            // A caller that is gone does not use its units.
            if reply.send(decision).is_err() {
                self.set_aside.cancel(call.invocation);
            }
        }
    }

    fn full_error(&self) -> Error {
        Error::Failed(self.space.full_reason())
    }

    /// Whether file and log are still those that were opened. SQLite would continue to write into a
    /// file that was removed or replaced, and all rows would be lost.
    pub(super) fn check_files_present(&mut self) -> Result<(), sqlx::Error> {
        let log = inode_of(&self.wal_path);
        // The first connection that reads or writes creates the log. It stays until the last
        // connection closes.
        self.wal_inode = self.wal_inode.or(log);
        if inode_of(&self.file) == self.inode && self.wal_inode == log {
            return Ok(());
        }
        Err(sqlx::Error::Configuration(
            "the ledger's file or its log was removed or replaced; restart the service".into(),
        ))
    }

    /// Writes a batch. If the disk is full, it copies the log into the database and retries once:
    /// the log then restarts at its beginning and needs no more space.
    pub(super) async fn write_batch(&mut self, batch: &Batch) -> Result<Decisions, sqlx::Error> {
        match self.commit_timed(batch).await {
            Err(error) if Fault::is_full(&error) => {
                // The commit has failed as a whole, so nothing of it is in the file.
                self.roll_back().await;
                self.checkpoint().await;
                if self.has_stopped() {
                    return Err(error);
                }
                self.make_space_for(batch.approximate_bytes()).await?;
                self.commit_timed(batch).await
            }
            result => result,
        }
    }

    /// Commits a batch with durations. Returns the decisions and the number of the commit.
    async fn commit(
        &mut self,
        batch: &Batch,
        durations: &[impl Serialize],
    ) -> Result<(Decisions, u64), sqlx::Error> {
        if self.has_stopped() {
            return Err(sqlx::Error::WorkerCrashed);
        }
        self.check_files_present()?;
        let mut start = match self.counters.is_empty() {
            true => Start::Begin,
            false => Start::BeginUnchanged,
        };
        loop {
            // The writer stops if it is uncertain whether a failed commit is in the file.
            self.set_aside.restore();
            let committed = batch
                .commit(
                    start,
                    &self.batches,
                    &mut self.counters,
                    &self.set_aside,
                    durations,
                )
                .await;
            if !committed.as_ref().is_err_and(is_changed_file) {
                return committed;
            }
            // Another process has written, or a rare change of this one. The transaction is open, so
            // the next turn reads the counters as they stay until the commit.
            self.counters.clear();
            start = Start::Continue;
        }
    }

    /// Ends the transaction that a failure has left open, and forgets what it has read.
    pub(super) async fn roll_back(&mut self) {
        // Without a transaction, SQLite reports an error.
        let _ = sqlx::query("rollback").execute(&mut self.connection).await;
        self.batches.roll_back().await;
        self.counters.clear();
    }

    async fn commit_timed(&mut self, batch: &Batch) -> Result<Decisions, sqlx::Error> {
        let started = SystemInstant::now();
        let lines = if self.durations.is_due() {
            self.durations.to_rows()
        } else {
            Vec::new()
        };
        let committed = self.commit(batch, &lines).await;
        if let Ok((_, commits)) = committed {
            self.head.record_commits(commits);
            if !lines.is_empty() {
                self.durations.clear();
            }
            self.durations.add(batch.ended_rows());
        }
        self.commit_time = started.elapsed();
        tracing::trace!(
            reserved = batch.reservations.len(),
            settled = batch.settlements.len(),
            recorded = batch.records.len(),
            us = self.commit_time.as_micros(),
            "commit"
        );
        if committed.is_ok() {
            self.observer.on_commit(batch.len(), self.commit_time);
        }
        committed.map(|(answers, _)| answers)
    }

    /// Writes the collected durations, and gives back units that no call needs, in a commit of their
    /// own.
    async fn write_durations(&mut self, is_closing: bool) {
        if self.has_stopped() {
            return;
        }
        // No failed commit is in the file, because the writer has not stopped. The counters must be
        // complete before they are listed.
        self.set_aside.restore();
        let batch = Batch {
            idle_counters: self.set_aside.idle_counters(is_closing),
            ..Batch::default()
        };
        if self.durations.is_empty() && batch.idle_counters.is_empty() {
            return;
        }
        let lines = self.durations.to_rows();
        match self.commit(&batch, &lines).await {
            Ok((_, commits)) => {
                self.head.record_commits(commits);
                self.durations.clear();
            }
            Err(error) => drop(self.handle_failure(error).await),
        }
    }

    /// Runs a rare operation in a commit of its own.
    async fn run_rare(&mut self, rare: Rare) {
        match rare {
            Rare::Change { change, reply }
                if change.hours_bytes().is_some() && self.space.is_full() =>
            {
                let _ = reply.send(Err(self.full_error()));
            }
            Rare::Change { change, reply } => {
                let hours_bytes = change.hours_bytes();
                // Some changes modify counters of limits. They are rare, so the cached counters are
                // simply dropped.
                self.counters.clear();
                let forget = change.forgotten_units();
                let result = change.commit(&mut self.connection).await;
                if result.is_ok() {
                    forget(&self.set_aside);
                }
                let _ = reply.send(self.finish_change(result).await);
                if let Some(bytes) = hours_bytes {
                    self.checkpoint_long_log(bytes).await;
                    self.keep_free_space(bytes, None).await;
                }
            }
            Rare::Trim {
                now,
                at_most,
                reply,
            } => {
                let result = self.trim(now, at_most).await;
                let _ = reply.send(result);
            }
        }
    }

    async fn finish_change(
        &mut self,
        result: Result<(u64, u64), sqlx::Error>,
    ) -> Result<u64, Error> {
        match result.and_then(|done| self.check_files_present().map(|()| done)) {
            Ok((rows, commits)) => {
                self.head.record_commits(commits);
                Ok(rows)
            }
            Err(error) => Err(self.handle_failure(error).await),
        }
    }
}

/// For [`CHECK_INTERVAL_COMMITS`], each amount of this many bytes counts as one more commit,
/// because long rows make the log long.
const LOG_BYTES_PER_COMMIT: usize = 512 << 10;

impl WriterTask {
    /// Every few commits, after the replies: copies the log into the database if it is long.
    pub(super) async fn checkpoint_long_log(&mut self, written: usize) {
        self.commits_since_check +=
            1 + u32::try_from(written / LOG_BYTES_PER_COMMIT).unwrap_or(CHECK_INTERVAL_COMMITS);
        if self.commits_since_check < CHECK_INTERVAL_COMMITS {
            return;
        }
        self.commits_since_check = 0;
        match wal::log_pages(&mut self.connection).await {
            Ok(pages) if pages < wal::CHECKPOINT_PAGES => {}
            Ok(_) => self.checkpoint().await,
            Err(error) => self.handle_checkpoint_error(error).await,
        }
    }

    pub(super) async fn checkpoint(&mut self) {
        let copied = match wal::checkpoint(&mut self.connection).await {
            Ok(()) => self.head.sync().await.map_err(sqlx::Error::Io),
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            self.handle_checkpoint_error(error).await;
        }
    }

    /// Reports that the log could not be copied. Commits that are only in the log are still valid,
    /// so a full disk is no reason to stop.
    async fn handle_checkpoint_error(&mut self, error: sqlx::Error) {
        let fault = Fault::classify(&error, &self.file);
        if fault.is_final {
            self.handle_failure(error).await;
        } else {
            tracing::debug!(
                reason = fault.reason,
                "the write-ahead log could not be copied"
            );
        }
    }
}
