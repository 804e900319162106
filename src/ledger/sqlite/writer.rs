//! The one task that writes. While one batch commits the next collects in a bounded queue, so there is no timer and
//! nobody waits longer than for the batch before.
//!
//! When a commit fails nothing of it is written. Reservations are refused, so nothing runs without its row; rows of
//! calls that have already run are kept and tried again, first thing with every batch and once a second.
//!
//! That is so while it is certain that nothing was written. When it is not (`fault.rs`) the writer stops for good and
//! says so: what waits is answered as not recorded, nothing is tried again, the files are left to the next start.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::super::{Error, Held, Reservation, ReserveError, Row, State, Watch};
use super::batch::{Batch, Reserved, Share};
use super::fault::Fault;
use super::head::Head;
use super::queue::{Health, Op, Reply, Then, Writer, lost};
use super::quota::{Counters, moved};
use super::room::Room;
use super::sum;
use super::totals::Durations;
use super::wal;
use crate::ledger::refusals::{Place, Refusals};

/// Operations that may wait. Senders wait for room: the queue bounds memory, not correctness.
const QUEUE: usize = 1024;
/// Operations in one batch: enough that the cost of a commit does not show, few enough that nobody waits long for one.
pub(super) const BATCH: usize = 256;
/// A batch is cut at about this many bytes of row text, so that one statement stays small.
const BATCH_BYTES: usize = 4 << 20;
/// Rows kept for a later try while the disk is full.
pub(super) const BACKLOG: usize = 10_000;
/// Commits between two looks at the log's length: a look costs a hop to SQLite's thread.
pub(super) const LOOK: u32 = 8;
/// Bytes of rows that count as one commit more for that: long rows make the log long soon.
const LOG_BYTES: usize = 512 << 10;
/// Pause between tries while nothing can be written.
const PROBE: Duration = Duration::from_secs(1);

/// Who waits for which part of a batch.
#[derive(Default)]
struct Waiting {
    reserves: Vec<oneshot::Sender<Result<Reservation, ReserveError>>>,
    ends: Vec<Reply<()>>,
    held: Vec<Held>,
    bytes: usize,
    /// When the newest of its calls began.
    now: Option<Timestamp>,
}

pub(super) struct Task {
    pub(super) connection: SqliteConnection,
    pub(super) head: Head,
    /// Commits since the log's length was looked at.
    pub(super) unseen: u32,
    pub(super) health: Arc<Health>,
    /// Rows of calls that ran and could not be written yet.
    pub(super) backlog: Batch,
    pub(super) durations: Durations,
    pub(super) counters: Counters,
    pub(super) refusals: Refusals<u32>,
    pub(super) room: Room,
    pub(super) file: PathBuf,
    /// Which file it was when it was opened.
    pub(super) inode: Option<u64>,
    /// The write-ahead log; and which it was, once it is there.
    pub(super) log: PathBuf,
    pub(super) log_inode: Option<u64>,
    pub(super) watch: Arc<dyn Watch>,
}

/// Starts the task.
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
    // The log may be long from the process before: it is looked at after the first commit.
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

/// What tells a file from another of the same name.
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
                // However much is asked meanwhile, it is looked once a second whether it works again.
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

    /// Leaves the files as they are. Who waits learns of it when the queue is dropped.
    fn leave(self, mut asked: mpsc::Receiver<Op>) {
        asked.close();
        while let Ok(op) = asked.try_recv() {
            lost(&op);
        }
        for row in self.backlog.ended() {
            tracing::error!(id = %row.id, tool = %row.tool, "the end of a call is not on record");
        }
        // Closing the connection would have SQLite copy the write-ahead log into the database, and delete it. The
        // process ends soon; until then this keeps one thread.
        std::mem::forget(self.connection);
    }

    /// Carries out what was asked, in order; rows are grouped, anything else stands between groups.
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
                        Then::Reply(reply) => waiting.ends.push(reply),
                        Then::Drop(held) => waiting.held.push(held),
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

    /// In which row a refused call is counted, if not in one of its own.
    fn share_of(&mut self, row: &Row) -> Option<Share> {
        match self.refusals.place(row, sum::of_row) {
            Place::Own => None,
            Place::Shared { row: shared, count, kept } => Some(Share {
                row: shared,
                caller: row.caller.clone(),
                tool: row.tool.clone(),
                count,
                added: 1,
                sum: kept,
            }),
        }
    }

    /// Commits a batch, the backlog first, and answers who waits.
    async fn flush(&mut self, batch: Batch, waiting: Waiting) {
        if batch.is_empty() {
            return;
        }
        if !self.backlog.is_empty() && !self.has_stopped() {
            self.probe().await;
        }
        let committed = match self.health.check() {
            // It has just been tried: another try would only wait once more.
            Err(error) if !self.backlog.is_empty() || self.has_stopped() => Err(error),
            _ => match self.written(&batch).await {
                Ok(answers) => Ok(answers),
                Err(error) => Err(self.failed(error).await),
            },
        };
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

    /// Whether file and log are still those that were opened: SQLite would go on writing into one that nobody can find.
    pub(super) fn present(&mut self) -> Result<(), sqlx::Error> {
        let log = inode(&self.log);
        // It is made by the first who reads or writes, and then stays until the last closes.
        self.log_inode = self.log_inode.or(log);
        if inode(&self.file) == self.inode && self.log_inode == log {
            return Ok(());
        }
        Err(sqlx::Error::Configuration(
            "the ledger's file or its log was removed or replaced; restart the service".into(),
        ))
    }

    /// Writes a batch; on a full disk once more, when the log was copied: it then begins anew and needs no more room.
    pub(super) async fn written(&mut self, batch: &Batch) -> Result<Vec<Reserved>, sqlx::Error> {
        match self.timed(batch).await {
            Err(error) if Fault::is_full(&error) => {
                // Nothing of it is written.
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
            // Another process has counted: once more, from what the file says.
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

    /// Now and then, when everybody has been answered: copies the log into the database if it has grown long.
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

    /// What is in the log only is committed all the same: as long as the disk is only full, it can stay there.
    async fn not_copied(&mut self, error: sqlx::Error) {
        let fault = Fault::of(&error, &self.file);
        if fault.is_final {
            self.failed(error).await;
        } else {
            tracing::debug!(reason = fault.reason, "the write-ahead log could not be copied");
        }
    }

    /// Writes the durations that wait, by themselves.
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

    /// Operations that are rare and stand by themselves.
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
                // Some of them move counters of limits. They are rare, so the next call reads its counters again.
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
