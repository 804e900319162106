//! The one task that writes. While one batch commits the next collects in a bounded queue, so there is no timer and
//! nobody waits longer than for the batch before.
//!
//! When a commit fails nothing of it is written. Reservations are refused, so nothing runs without its row; rows of
//! calls that have already run are kept and tried again, first thing with every batch and once a second.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::super::{AttemptRow, Error, Held, Registered, Reservation, ReserveError, Row, StoredResult, Switch, Watch};
use super::batch::{Batch, Reserved};
use super::quota::{Counters, moved};
use super::totals::Durations;
use super::{open, prune};
use crate::call::{Charge, Charged};

/// Operations that may wait. Senders wait for room: the queue bounds memory, not correctness.
const QUEUE: usize = 1024;
/// Operations in one batch: enough that the cost of a commit does not show, few enough that nobody waits long for one.
const BATCH: usize = 256;
/// A batch is cut at about this many bytes of row text, so that one statement stays small.
const BATCH_BYTES: usize = 4 << 20;
/// Rows kept for a later try while the disk is full.
const BACKLOG: usize = 10_000;
/// Pause between tries while nothing can be written.
const PROBE: Duration = Duration::from_secs(1);

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What the writer can be asked.
pub(super) enum Op {
    Reserve { row: Row, charges: Vec<Charge>, reply: oneshot::Sender<Result<Reservation, ReserveError>> },
    Record { row: Arc<Row>, then: Then },
    Settle { row: Arc<Row>, refunds: Vec<Charged>, reply: Reply<()> },
    Flush { reply: Reply<()> },
    Attempt(AttemptRow),
    Store(StoredResult),
    Reset { tool: String, caller: Option<String>, reply: Reply<()> },
    Purge { tool: Option<String>, reply: Reply<u64> },
    Switch { switch: Switch, reply: Reply<()> },
    Prune { before: Timestamp, now: Timestamp, at_most: u32, reply: Reply<u64> },
    Register { tool: Registered, reply: Reply<()> },
    Unregister { name: String, reply: Reply<bool> },
    Close { reply: Reply<()> },
}

/// What a commit is told to.
pub(super) enum Then {
    /// Who waits for it.
    Reply(Reply<()>),
    /// Nobody; this is dropped.
    Drop(Held),
}

/// The handle on the task.
pub(super) struct Writer {
    queue: mpsc::Sender<Op>,
    /// Why nothing can be written, while that is so.
    trouble: Arc<ArcSwapOption<String>>,
}

impl Writer {
    pub(super) fn spawn(connection: SqliteConnection, file: &Path, watch: Arc<dyn Watch>) -> Self {
        let (queue, asked) = mpsc::channel(QUEUE);
        let trouble = Arc::new(ArcSwapOption::empty());
        let (file, inode) = (file.to_owned(), inode(file));
        let (backlog, durations, counters) = (Batch::default(), Durations::default(), Counters::default());
        let task = Task { connection, trouble: trouble.clone(), backlog, durations, counters, file, inode, watch };
        tokio::spawn(task.run(asked));
        Self { queue, trouble }
    }

    /// A writer that takes nothing.
    pub(super) fn closed() -> Self {
        Self { queue: mpsc::channel(1).0, trouble: Arc::default() }
    }

    pub(super) async fn send(&self, op: Op) -> Result<(), Error> {
        self.queue.send(op).await.map_err(|_| Error::Closed)
    }

    /// Sends without waiting for room here. What waits is bounded by whoever hands over (`running.rs`).
    pub(super) fn hand_over(&self, op: Op) {
        match self.queue.try_send(op) {
            Ok(()) => {}
            Err(TrySendError::Full(op)) => {
                let queue = self.queue.clone();
                tokio::spawn(async move { queue.send(op).await.inspect_err(|_| closed()) });
            }
            Err(TrySendError::Closed(_)) => closed(),
        }
    }

    pub(super) fn health(&self) -> Result<(), String> {
        match &*self.trouble.load() {
            Some(reason) => Err(reason.to_string()),
            None => Ok(()),
        }
    }

    pub(super) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.send(Op::Close { reply }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

fn closed() {
    tracing::error!("a call ended after the ledger was closed: its row is lost");
}

/// Who waits for which part of a batch.
#[derive(Default)]
struct Waiting {
    reserves: Vec<oneshot::Sender<Result<Reservation, ReserveError>>>,
    ends: Vec<Reply<()>>,
    held: Vec<Held>,
    bytes: usize,
}

struct Task {
    connection: SqliteConnection,
    trouble: Arc<ArcSwapOption<String>>,
    /// Rows of calls that ran and could not be written yet.
    backlog: Batch,
    durations: Durations,
    counters: Counters,
    file: PathBuf,
    /// Which file it was when it was opened.
    inode: Option<u64>,
    watch: Arc<dyn Watch>,
}

/// What tells a file from another of the same name.
fn inode(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().map(|found| found.ino())
}

impl Task {
    async fn run(mut self, mut asked: mpsc::Receiver<Op>) {
        let mut buffer = Vec::with_capacity(BATCH);
        loop {
            let well = self.backlog.is_empty() && self.trouble.load().is_none();
            let received = if well && self.durations.is_empty() {
                asked.recv_many(&mut buffer, BATCH).await
            } else {
                tokio::select! {
                    received = asked.recv_many(&mut buffer, BATCH) => received,
                    () = tokio::time::sleep(PROBE) => {
                        if well { self.write_durations().await } else { self.probe().await }
                        continue
                    }
                }
            };
            if received == 0 {
                break;
            }
            if let Some(reply) = self.work(&mut buffer).await {
                if !self.backlog.is_empty() {
                    tracing::error!(
                        rows = self.backlog.records.len() + self.backlog.settles.len(),
                        "rows of finished calls could not be written"
                    );
                }
                let _ = self.connection.close().await;
                let _ = reply.send(Ok(()));
                break;
            }
        }
    }

    /// Carries out what was asked, in order; rows are grouped, anything else stands between groups.
    async fn work(&mut self, asked: &mut Vec<Op>) -> Option<Reply<()>> {
        let (mut batch, mut waiting) = (Batch::default(), Waiting::default());
        for op in asked.drain(..) {
            match op {
                Op::Reserve { row, charges, reply } => {
                    waiting.bytes += row.arguments.len();
                    batch.reserves.push((row, charges));
                    waiting.reserves.push(reply);
                }
                Op::Record { row, then } => {
                    waiting.bytes += row.arguments.len() + row.result.as_ref().map_or(0, |text| text.len());
                    batch.records.push(row);
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

    /// Commits a batch, the backlog first, and answers who waits.
    async fn flush(&mut self, batch: Batch, waiting: Waiting) {
        if batch.is_empty() {
            return;
        }
        if !self.backlog.is_empty() {
            self.probe().await;
        }
        let committed = match self.trouble.load_full() {
            // It has just been tried: another try would only wait once more.
            Some(reason) if !self.backlog.is_empty() => Err(Error::Failed(reason.to_string())),
            _ => match self.timed(&batch).await {
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

    /// Whether the file is still the one that was opened: SQLite would go on writing into one that nobody can find.
    fn present(&self) -> Result<(), sqlx::Error> {
        if inode(&self.file) == self.inode {
            return Ok(());
        }
        Err(sqlx::Error::Configuration("the ledger's file was removed or replaced; restart the service".into()))
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
        if done.is_ok() {
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
        done
    }

    /// Writes the durations that wait, by themselves.
    async fn write_durations(&mut self) {
        if self.durations.is_empty() {
            return;
        }
        let lines = self.durations.lines();
        match Batch::default().commit(&mut self.connection, &mut self.counters, &lines).await {
            Ok(_) => self.durations.clear(),
            Err(error) => drop(self.failed(error).await),
        }
    }

    /// Tries the backlog again, or, if there is none, whether anything can be written at all.
    async fn probe(&mut self) {
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
            let backlog = std::mem::take(&mut self.backlog);
            let done = self.timed(&backlog).await.map(|_| ());
            self.backlog = backlog;
            done
        };
        match tried {
            Ok(()) => {
                self.backlog = Batch::default();
                self.watch.backlog(0);
                self.recovered();
            }
            Err(error) => {
                self.failed(error).await;
            }
        }
    }

    /// Keeps the rows of calls that have run.
    fn keep(&mut self, batch: Batch) {
        let kept = &mut self.backlog;
        kept.records.extend(batch.records);
        kept.settles.extend(batch.settles);
        kept.attempts.extend(batch.attempts);
        let over = kept.records.len().saturating_sub(BACKLOG);
        if over > 0 {
            tracing::error!(rows = over, "the ledger has been unable to write for too long: rows are lost");
            kept.records.drain(..over);
        }
        // No more than calls were running when the trouble began: none is reserved since.
        kept.attempts.truncate(BACKLOG);
        self.watch.backlog(kept.records.len() + kept.settles.len());
    }

    async fn failed(&mut self, error: sqlx::Error) -> Error {
        // There may be no transaction to roll back; either way the next statement starts fresh.
        let _ = sqlx::query("rollback").execute(&mut self.connection).await;
        self.counters.forget();
        let reason = open::reason(&error);
        self.watch.failed();
        if self.trouble.swap(Some(Arc::new(reason.clone()))).is_none() {
            tracing::error!(%reason, "the ledger cannot write; calls are refused until it can");
        }
        Error::Failed(reason)
    }

    fn recovered(&self) {
        if self.trouble.swap(None).is_some() {
            tracing::warn!("the ledger can write again");
        }
    }

    /// Operations that are rare and stand by themselves.
    async fn single(&mut self, op: Op) {
        match op {
            Op::Flush { reply } => {
                self.write_durations().await;
                let trouble = self.trouble.load_full();
                let _ = reply.send(trouble.map_or(Ok(()), |reason| Err(Error::Failed(reason.to_string()))));
            }
            Op::Reset { tool, caller, reply } => {
                self.counters.forget();
                let sql = "delete from quota where (tool = ?1 and (?2 is null or caller = ?2)) \
                           or (tool = '' and caller = ?2)";
                let query = sqlx::query(sql).bind(tool).bind(caller);
                let done = query.execute(&mut self.connection).await;
                let _ = reply.send(self.answer(done.map(|_| ())).await);
            }
            Op::Purge { tool, reply } => {
                let query = sqlx::query("delete from stored_result where ?1 is null or tool = ?1").bind(tool);
                let done = query.execute(&mut self.connection).await;
                let _ = reply.send(self.answer(done.map(|done| done.rows_affected())).await);
            }
            Op::Prune { before, now, at_most, reply } => {
                self.counters.forget();
                let done = prune::prune(&mut self.connection, before, now, at_most).await;
                let _ = reply.send(self.answer(done).await);
            }
            Op::Switch { switch, reply } => {
                let sql = "insert into tool_switch (tool, enabled) values (?, ?) \
                           on conflict (tool) do update set enabled = excluded.enabled";
                let query = sqlx::query(sql).bind(switch.tool).bind(switch.enabled);
                let done = query.execute(&mut self.connection).await;
                let _ = reply.send(self.answer(done.map(|_| ())).await);
            }
            Op::Register { tool, reply } => {
                let sql = "insert into registered_tool (name, definition, registered_by, registered_at) \
                           values (?, ?, ?, ?) on conflict (name) do update set definition = excluded.definition, \
                           registered_by = excluded.registered_by, registered_at = excluded.registered_at";
                let query = sqlx::query(sql).bind(tool.name).bind(tool.definition).bind(tool.by);
                let done = query.bind(tool.at.as_millisecond()).execute(&mut self.connection).await;
                let _ = reply.send(self.answer(done.map(|_| ())).await);
            }
            Op::Unregister { name, reply } => {
                let query = sqlx::query("delete from registered_tool where name = ?").bind(name);
                let done = query.execute(&mut self.connection).await;
                let _ = reply.send(self.answer(done.map(|done| done.rows_affected() > 0)).await);
            }
            Op::Reserve { .. }
            | Op::Record { .. }
            | Op::Settle { .. }
            | Op::Attempt(_)
            | Op::Store(_)
            | Op::Close { .. } => {}
        }
    }

    async fn answer<T>(&mut self, done: Result<T, sqlx::Error>) -> Result<T, Error> {
        match self.present().and(done) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.failed(error).await),
        }
    }
}
