//! The one task that writes. While one batch commits, the next one collects in a bounded queue. So there is no timer,
//! and an operation waits at most for the batch before its own.
//!
//! If a commit fails, SQLite has written nothing of it. Reservations are then refused, so no tool runs without its row.
//! Rows of calls that have run already are kept in the backlog. They are retried before every batch, and once a second.
//!
//! All this holds only while it is certain that the failed commit is not in the file. If that is uncertain
//! (`fault.rs`), the writer stops for good and reports it. Waiting operations fail, nothing is retried, and the files
//! stay as they are for the next start.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::super::{Error, HeldUntilCommit, Reservation, ReserveError, Row, State, Watch};
use super::batch::{Batch, Reserved, Share};
use super::checksum;
use super::commit_marker::Head;
use super::fault::Fault;
use super::queue::{Health, OnCommit, Op, Reply, Writer, lost};
use super::quota::{Counters, moved};
use super::room::Room;
use super::totals::Durations;
use super::wal;
use crate::ledger::refusals::{RefusalRow, Refusals};

/// Maximum number of waiting operations. Senders wait for a free slot, so the queue bounds memory.
const QUEUE: usize = 1024;
/// Maximum number of operations in one batch. It is large enough to make the cost of a commit small for each row, and
/// small enough to keep a commit short.
pub(super) const BATCH: usize = 256;
/// A batch ends at about this many bytes of row text, so that one statement stays small.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of rows that wait for a retry while the disk is full.
pub(super) const BACKLOG: usize = 10_000;
/// Commits between two checks of the log's length. A check costs a switch to SQLite's thread.
pub(super) const LOOK: u32 = 8;
/// For [`LOOK`], each amount of this many bytes counts as one more commit, because long rows make the log long.
const LOG_BYTES: usize = 512 << 10;
/// Pause between retries while nothing can be written.
const PROBE: Duration = Duration::from_secs(1);

/// The callers that wait for the parts of a batch.
#[derive(Default)]
struct Waiting {
    reserves: Vec<oneshot::Sender<Result<Reservation, ReserveError>>>,
    ends: Vec<Reply<()>>,
    held: Vec<HeldUntilCommit>,
    bytes: usize,
    /// When the newest call of the batch started.
    now: Option<Timestamp>,
}

pub(super) struct Task {
    pub(super) connection: SqliteConnection,
    pub(super) head: Head,
    /// Commits since the last check of the log's length.
    pub(super) unseen: u32,
    pub(super) health: Arc<Health>,
    /// Rows of calls that ran and could not be written yet.
    pub(super) backlog: Batch,
    pub(super) durations: Durations,
    pub(super) counters: Counters,
    pub(super) refusals: Refusals<u32>,
    pub(super) room: Room,
    pub(super) file: PathBuf,
    /// The inode of the file when it was opened.
    pub(super) inode: Option<u64>,
    /// The write-ahead log, and its inode once it exists.
    pub(super) log: PathBuf,
    pub(super) log_inode: Option<u64>,
    pub(super) watch: Arc<dyn Watch>,
}

/// Starts the writer's task.
pub(super) fn spawn(
    connection: SqliteConnection,
    head: Head,
    file: &Path,
    max_bytes: Option<u64>,
    watch: Arc<dyn Watch>,
) -> Writer {
    let (queue, asked) = mpsc::channel(QUEUE);
    let health = Arc::<Health>::default();
    let (file, inode) = (file.to_owned(), inode(file));
    let mut log = file.clone().into_os_string();
    log.push("-wal");
    let (log, log_inode) = (log.into(), None);
    let (backlog, durations, counters) = (Batch::default(), Durations::default(), Counters::default());
    // The log may be long from the last process, so it is checked after the first commit.
    let unseen = LOOK;
    let task = Task {
        connection,
        head,
        unseen,
        health: health.clone(),
        backlog,
        durations,
        counters,
        refusals: Refusals::default(),
        room: Room::new(max_bytes),
        file,
        inode,
        log,
        log_inode,
        watch,
    };
    tokio::spawn(task.run(asked));
    Writer::new(queue, health)
}

/// The inode of a file. It distinguishes the file from another one with the same name.
fn inode(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().map(|found| found.ino())
}

impl Task {
    async fn run(mut self, mut asked: mpsc::Receiver<Op>) {
        let mut buffer = Vec::with_capacity(BATCH);
        let mut probe_at = Instant::now() + PROBE;
        self.look_for_room().await;
        loop {
            if self.has_stopped() {
                return self.leave(asked);
            }
            let well = self.backlog.is_empty() && self.health.trouble.load().is_none();
            let received = if well && self.durations.is_empty() {
                let received = asked.recv_many(&mut buffer, BATCH).await;
                probe_at = Instant::now() + PROBE;
                received
            } else {
                // After `PROBE` at the latest, the writer checks whether it can write again, however many operations
                // arrive meanwhile. `biased` with the time condition ensures that.
                tokio::select! {
                    biased;
                    received = asked.recv_many(&mut buffer, BATCH), if Instant::now() < probe_at => received,
                    () = tokio::time::sleep_until(probe_at) => {
                        probe_at = Instant::now() + PROBE;
                        if well { self.write_durations().await } else { self.probe().await }
                        continue
                    }
                }
            };
            if received == 0 {
                break;
            }
            if let Some(reply) = self.work(&mut buffer).await {
                if self.has_stopped() {
                    return self.leave(asked);
                }
                if !self.backlog.is_empty() {
                    tracing::error!(
                        rows = self.backlog.records.len() + self.backlog.settles.len(),
                        "rows of finished calls could not be written"
                    );
                }
                self.checkpoint().await;
                if self.has_stopped() {
                    return self.leave(asked);
                }
                let _ = self.connection.close().await;
                let _ = reply.send(Ok(()));
                break;
            }
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.health.stopped.is_cancelled()
    }

    /// Ends the task and leaves the files as they are. Waiting callers get an error when the queue is dropped.
    fn leave(self, mut asked: mpsc::Receiver<Op>) {
        asked.close();
        while let Ok(op) = asked.try_recv() {
            lost(&op);
        }
        for row in self.backlog.ended() {
            tracing::error!(id = %row.id, tool = %row.tool, "the end of a call is not on record");
        }
        // Closing the connection would make SQLite copy the write-ahead log into the database and delete it. A log of
        // uncertain content must not overwrite the database. The forgotten connection keeps one thread until the
        // process ends soon.
        std::mem::forget(self.connection);
    }

    /// Executes the operations in order. Rows are grouped; every other operation runs between two groups.
    async fn work(&mut self, asked: &mut Vec<Op>) -> Option<Reply<()>> {
        let (mut batch, mut waiting) = (Batch::default(), Waiting::default());
        for op in asked.drain(..) {
            match op {
                Op::Reserve { reply, .. } if self.room.is_full() => {
                    let _ = reply.send(Err(Error::Failed(self.room.reason()).into()));
                }
                Op::Reserve { row, charges, reply } => {
                    waiting.bytes += row.arguments.len();
                    waiting.now = Some(row.started_at);
                    batch.reserves.push((row, charges));
                    waiting.reserves.push(reply);
                }
                Op::Record { row, then } => {
                    waiting.bytes += row.arguments.len() + row.result.as_ref().map_or(0, |text| text.len());
                    waiting.now = Some(row.started_at);
                    match (row.state == State::Refused).then(|| self.share_of(&row)).flatten() {
                        Some(share) => batch.share(share),
                        None => batch.records.push(row),
                    }
                    match then {
                        OnCommit::Reply(reply) => waiting.ends.push(reply),
                        OnCommit::Drop(held) => waiting.held.push(held),
                    }
                }
                Op::Settle { row, refunds, reply } => {
                    waiting.bytes += row.arguments.len() + row.result.as_ref().map_or(0, |text| text.len());
                    batch.settles.push((row, refunds));
                    waiting.ends.push(reply);
                }
                Op::Attempt(row) => batch.attempts.push(row),
                Op::Store(result) => {
                    waiting.bytes += result.result.len();
                    batch.results.push(result);
                }
                Op::Close { reply } => {
                    self.flush(std::mem::take(&mut batch), std::mem::take(&mut waiting)).await;
                    self.write_durations().await;
                    return Some(reply);
                }
                other => {
                    self.flush(std::mem::take(&mut batch), std::mem::take(&mut waiting)).await;
                    self.single(other).await;
                }
            }
            if waiting.bytes > BATCH_BYTES {
                self.flush(std::mem::take(&mut batch), std::mem::take(&mut waiting)).await;
            }
        }
        self.flush(batch, waiting).await;
        None
    }

    /// The existing row in which a refused call is counted, if it gets no row of its own.
    fn share_of(&mut self, row: &Row) -> Option<Share> {
        match self.refusals.place(row, checksum::of_row) {
            RefusalRow::Own => None,
            RefusalRow::Shared { row: shared, count, kept } => Some(Share {
                row: shared,
                caller: row.caller.clone(),
                tool: row.tool.clone(),
                count,
                added: 1,
                sum: kept,
            }),
        }
    }

    /// Commits a batch, after the backlog, and sends the replies.
    async fn flush(&mut self, batch: Batch, waiting: Waiting) {
        if batch.is_empty() {
            return;
        }
        // The backlog comes first. Its ends may release keys and refund units, on which the reservations of this batch
        // depend.
        if !self.backlog.is_empty() && !self.has_stopped() {
            self.probe().await;
        }
        let committed = match self.health.check() {
            // `probe` has just failed on the backlog. Another attempt would only delay the replies.
            Err(error) if !self.backlog.is_empty() || self.has_stopped() => Err(error),
            _ => match self.written(&batch).await {
                Ok(answers) => Ok(answers),
                Err(error) => Err(self.failed(error).await),
            },
        };
        // Replies are sent only after the commit, and after `timed` has written its number to the head file. So each
        // acknowledged commit is in both. The checks of log and file size come after the replies, because they must not
        // delay them.
        match committed {
            Ok(answers) => {
                self.recovered();
                for (reply, answer) in waiting.reserves.into_iter().zip(answers) {
                    let _ = reply.send(answer);
                }
                for reply in waiting.ends {
                    let _ = reply.send(Ok(()));
                }
                drop(waiting.held);
                self.shorten_log(waiting.bytes).await;
                self.keep_room(waiting.bytes, waiting.now).await;
            }
            Err(error) => {
                for reply in waiting.reserves {
                    let _ = reply.send(Err(error.clone().into()));
                }
                for reply in waiting.ends {
                    let _ = reply.send(Err(error.clone()));
                }
                self.keep(batch);
            }
        }
    }

    /// Whether file and log are still those that were opened. SQLite would continue to write into a file that was
    /// removed or replaced, and all rows would be lost.
    pub(super) fn present(&mut self) -> Result<(), sqlx::Error> {
        let log = inode(&self.log);
        // The first connection that reads or writes creates the log. It stays until the last connection closes.
        self.log_inode = self.log_inode.or(log);
        if inode(&self.file) == self.inode && self.log_inode == log {
            return Ok(());
        }
        Err(sqlx::Error::Configuration(
            "the ledger's file or its log was removed or replaced; restart the service".into(),
        ))
    }

    /// Writes a batch. If the disk is full, it copies the log into the database and retries once: the log then restarts
    /// at its beginning and needs no more space.
    pub(super) async fn written(&mut self, batch: &Batch) -> Result<Vec<Reserved>, sqlx::Error> {
        match self.timed(batch).await {
            Err(error) if Fault::is_full(&error) => {
                // The commit has failed as a whole, so nothing of it is in the file.
                let _ = sqlx::query("rollback").execute(&mut self.connection).await;
                self.counters.forget();
                self.checkpoint().await;
                if self.has_stopped() {
                    return Err(error);
                }
                self.make_room_for(batch.bytes()).await?;
                self.timed(batch).await
            }
            done => done,
        }
    }

    async fn timed(&mut self, batch: &Batch) -> Result<Vec<Reserved>, sqlx::Error> {
        self.present()?;
        let began = Instant::now();
        let lines = if self.durations.is_due() { self.durations.lines() } else { Vec::new() };
        let mut done = batch.commit(&mut self.connection, &mut self.counters, &lines).await;
        if done.as_ref().is_err_and(moved) {
            // Another process has changed a counter. The retry reads the counters from the file.
            sqlx::query("rollback").execute(&mut self.connection).await?;
            self.counters.forget();
            done = batch.commit(&mut self.connection, &mut self.counters, &lines).await;
        }
        if let Ok((_, commits)) = done {
            self.head.acknowledge(commits);
            if !lines.is_empty() {
                self.durations.clear();
            }
            batch.ended().for_each(|row| self.durations.add(row));
        }
        let took = began.elapsed();
        let (reserved, settled, recorded) = (batch.reserves.len(), batch.settles.len(), batch.records.len());
        tracing::trace!(reserved, settled, recorded, us = took.as_micros(), "commit");
        if done.is_ok() {
            self.watch.committed(batch.len(), took);
        }
        done.map(|(answers, _)| answers)
    }

    /// Every few commits, after the replies: copies the log into the database if it is long.
    async fn shorten_log(&mut self, written: usize) {
        self.unseen += 1 + u32::try_from(written / LOG_BYTES).unwrap_or(LOOK);
        if self.unseen < LOOK {
            return;
        }
        self.unseen = 0;
        match wal::pages(&mut self.connection).await {
            Ok(pages) if pages < wal::LONG => {}
            Ok(_) => self.checkpoint().await,
            Err(error) => self.not_copied(error).await,
        }
    }

    pub(super) async fn checkpoint(&mut self) {
        let copied = match wal::checkpoint(&mut self.connection).await {
            Ok(()) => self.head.sync().await.map_err(sqlx::Error::Io),
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            self.not_copied(error).await;
        }
    }

    /// Reports that the log could not be copied. Commits that are only in the log are still valid, so a full disk is no
    /// reason to stop.
    async fn not_copied(&mut self, error: sqlx::Error) {
        let fault = Fault::of(&error, &self.file);
        if fault.is_final {
            self.failed(error).await;
        } else {
            tracing::debug!(reason = fault.reason, "the write-ahead log could not be copied");
        }
    }

    /// Writes the collected durations in a commit of their own.
    async fn write_durations(&mut self) {
        if self.durations.is_empty() || self.has_stopped() {
            return;
        }
        let lines = self.durations.lines();
        match Batch::default().commit(&mut self.connection, &mut self.counters, &lines).await {
            Ok((_, commits)) => {
                self.head.acknowledge(commits);
                self.durations.clear();
            }
            Err(error) => drop(self.failed(error).await),
        }
    }

    /// Runs a rare operation in a commit of its own.
    async fn single(&mut self, op: Op) {
        if self.has_stopped() {
            return;
        }
        match op {
            Op::Flush { reply } => {
                self.write_durations().await;
                let _ = reply.send(self.health.check());
            }
            Op::Change { change, reply } => {
                // Some changes modify counters of limits. They are rare, so the cached counters are simply dropped.
                self.counters.forget();
                let done = change.commit(&mut self.connection).await;
                let _ = reply.send(self.answer(done).await);
            }
            Op::Trim { now, at_most, reply } => {
                let done = self.trim(now, at_most).await;
                let _ = reply.send(done);
            }
            Op::Reserve { .. }
            | Op::Record { .. }
            | Op::Settle { .. }
            | Op::Attempt(_)
            | Op::Store(_)
            | Op::Close { .. } => {}
        }
    }

    async fn answer(&mut self, done: Result<(u64, u64), sqlx::Error>) -> Result<u64, Error> {
        match self.present().and(done) {
            Ok((rows, commits)) => {
                self.head.acknowledge(commits);
                Ok(rows)
            }
            Err(error) => Err(self.failed(error).await),
        }
    }
}
