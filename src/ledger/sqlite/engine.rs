//! Implements the trait: writes go to the writer, queries to the readers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::SqlitePool;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::super::{
    AttemptRow, Durability, Error, HeldUntilCommit, Ledger, Query, RecordedCall, Registered, Reservation, ReserveError,
    Row, Settings, StoredResult, Switch, UsageRow, Watch,
};
use super::change::Change;
use super::fault::{self, Fault};
use super::queue::{OnCommit, Op, Writer};
use super::{backup, list, open, read, writer};
use crate::call::{Charge, Charged, InvocationId};

/// How long `close` waits for running queries.
const READERS_END: Duration = Duration::from_secs(2);

pub(in crate::ledger) struct Sqlite {
    place: PathBuf,
    durability: Durability,
    writer: Writer,
    readers: SqlitePool,
    /// Locked as long as this process may write to the file; see `open.rs`.
    _lock: Option<File>,
    /// The folder of a temporary ledger. As the last field, it is removed last.
    _folder: Option<TempDir>,
}

impl Sqlite {
    pub(in crate::ledger) async fn open(
        path: &Path,
        settings: &Settings,
        now: Timestamp,
        watch: Arc<dyn Watch>,
    ) -> Result<Self, Error> {
        let opened = open::open(path, now, settings).await?;
        Ok(Self {
            place: path.to_owned(),
            durability: settings.durability,
            writer: writer::spawn(opened.connection, opened.head, path, settings.max_bytes, watch),
            readers: opened.readers,
            _lock: Some(opened.lock),
            _folder: None,
        })
    }

    /// Opens the ledger without a writer: every write fails.
    pub(in crate::ledger) async fn open_to_read(path: &Path) -> Result<Self, Error> {
        let readers = open::readers(path).await?;
        open::check_readable(&readers, path).await?;
        let durability = Durability::default();
        Ok(Self { place: path.to_owned(), durability, writer: Writer::closed(), readers, _lock: None, _folder: None })
    }

    /// The ledger, with a folder that is removed together with it.
    pub(in crate::ledger) fn in_folder(self, folder: TempDir) -> Self {
        Self { _folder: Some(folder), ..self }
    }

    /// Handles a failed query. A damaged file or a failing disk does not recover by itself, so the writer stops for
    /// good.
    fn unread(&self, error: &sqlx::Error) -> Error {
        if let Some(reason) = Fault::of_a_reader(error) {
            self.writer.stop(reason);
        }
        fault::failed(error)
    }

    /// Sends an operation and waits for its commit.
    async fn committed<T>(&self, op: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Op) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.writer.send(op(reply)).await?;
        answer.await.map_err(|_| self.writer.gone())?
    }

    /// Sends a change and waits for its commit. Returns the number of affected rows.
    async fn change(&self, change: Change) -> Result<u64, Error> {
        self.committed(|reply| Op::Change { change, reply }).await
    }
}

#[async_trait]
impl Ledger for Sqlite {
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError> {
        let (reply, answer) = oneshot::channel();
        self.writer.send(Op::Reserve { row, charges, reply }).await?;
        answer.await.map_err(|_| self.writer.gone())?
    }

    async fn record(&self, row: Arc<Row>) -> Result<(), Error> {
        self.committed(|reply| Op::Record { row, then: OnCommit::Reply(reply) }).await
    }

    fn record_behind(&self, row: Arc<Row>, held: HeldUntilCommit) {
        self.writer.hand_over(Op::Record { row, then: OnCommit::Drop(held) });
    }

    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error> {
        self.committed(|reply| Op::Settle { row, refunds, reply }).await
    }

    fn is_strict(&self) -> bool {
        self.durability == Durability::Strict
    }

    async fn flush(&self) -> Result<(), Error> {
        self.committed(|reply| Op::Flush { reply }).await
    }

    async fn attempt(&self, row: AttemptRow) -> Result<(), Error> {
        self.writer.send(Op::Attempt(row)).await
    }

    async fn get(&self, id: InvocationId) -> Result<Option<RecordedCall>, Error> {
        read::get(&self.readers, id).await.map_err(|error| self.unread(&error))
    }

    async fn claimed(&self, caller: &str, tool: &str, key: &str, now: Timestamp) -> Result<Option<Row>, Error> {
        read::claimed(&self.readers, caller, tool, key, now).await.map_err(|error| self.unread(&error))
    }

    async fn list(&self, query: &Query) -> Result<Vec<Row>, Error> {
        list::list(&self.readers, query).await.map_err(|error| self.unread(&error))
    }

    async fn usage(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error> {
        read::usage(&self.readers, caller).await.map_err(|error| self.unread(&error))
    }

    async fn used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error> {
        read::used(&self.readers, charges, now).await.map_err(|error| self.unread(&error))
    }

    async fn reset(&self, tool: &str, caller: Option<&str>) -> Result<(), Error> {
        let (tool, caller) = (tool.to_owned(), caller.map(str::to_owned));
        self.change(Change::Reset { tool, caller }).await.map(drop)
    }

    async fn stored(&self, key: &[u8; 32], now: Timestamp) -> Result<Option<StoredResult>, Error> {
        read::stored(&self.readers, key, now).await.map_err(|error| self.unread(&error))
    }

    async fn store(&self, result: StoredResult) -> Result<(), Error> {
        self.writer.send(Op::Store(result)).await
    }

    async fn purge(&self, tool: Option<&str>) -> Result<u64, Error> {
        let tool = tool.map(str::to_owned);
        self.change(Change::Purge { tool }).await
    }

    async fn switches(&self) -> Result<Vec<Switch>, Error> {
        read::switches(&self.readers).await.map_err(|error| self.unread(&error))
    }

    async fn switch(&self, switch: Switch) -> Result<(), Error> {
        self.change(Change::Switch(switch)).await.map(drop)
    }

    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        self.change(Change::Prune { before, now, at_most }).await
    }

    async fn trim(&self, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        self.committed(|reply| Op::Trim { now, at_most, reply }).await
    }

    async fn drift(&self) -> Result<u64, Error> {
        read::drift(&self.readers).await.map_err(|error| self.unread(&error))
    }

    async fn registered(&self) -> Result<Vec<Registered>, Error> {
        read::registered(&self.readers).await.map_err(|error| self.unread(&error))
    }

    async fn register(&self, tool: Registered) -> Result<(), Error> {
        self.change(Change::Register(tool)).await.map(drop)
    }

    async fn unregister(&self, name: &str) -> Result<bool, Error> {
        let name = name.to_owned();
        Ok(self.change(Change::Unregister { name }).await? > 0)
    }

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        // The copy must contain all calls that were answered before. In a ledger opened for reading, `flush` fails and
        // changes nothing.
        let _ = self.flush().await;
        backup::backup(&self.place, to).await
    }

    fn health(&self) -> Result<(), String> {
        self.writer.health()
    }

    async fn failed(&self) -> Error {
        self.writer.failed().await
    }

    async fn close(&self) {
        // The writer closes last: the last connection cleans up the write-ahead log, which a reader cannot do.
        let _ = self.flush().await;
        let _ = tokio::time::timeout(READERS_END, self.readers.close()).await;
        self.writer.close().await;
    }

    fn describe(&self) -> String {
        format!("sqlite {}", self.place.display())
    }
}
