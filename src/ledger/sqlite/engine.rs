//! Implements the trait: writes go to the writer, queries to the readers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use sqlx::SqlitePool;
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::super::count_by_time::count_by_time;
use super::super::operation::{Starting, UnitRequest, Write};
use super::super::sql::{Dialect, Fetch as _, Sql, SqlRow, Store};
use super::super::writer_queue::{WriterHandle, commit};
use super::super::{
    BucketQuery, BucketRow, Durability, Error, Ledger, LedgerObserver, Query, RecordedCall,
    Reservation, ReserveError, Row, Settings, SharedChange, WhenDown, read,
};
use super::change::{Change, Operation, Rare, Writer};
use super::fault::{self, Fault};
use super::hours::{self, Claim};
use super::processes::{self, ProcessLock};
use super::quota::{MIN_CARRIED_ROWS, SUM_DRIFT, Settlement, carry_ended_rows};
use super::set_aside::SetAside;
use super::{backup, list, open, writer};
use crate::audit::NewEntry;
use crate::call::{Charge, Charged, Clock, InvocationId};

/// How long `close` waits for running queries.
const READERS_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Text of counted hours that one commit stores, in bytes.
const HOURS_OF_A_COMMIT: usize = 256 << 10;

pub(in crate::ledger) struct SqliteLedger {
    path: PathBuf,
    durability: Durability,
    when_down: WhenDown,
    writer: Writer,
    set_aside: SetAside,
    readers: SqlitePool,
    /// Locked as long as this process may write to the file; see `open.rs`.
    _lock: Option<File>,
    process: Option<ProcessLock>,
    /// Settles the calls of other processes that end.
    settling: Option<AbortOnDropHandle<()>>,
    /// The folder of a temporary ledger. As the last field, it is removed last.
    _folder: Option<TempDir>,
}

impl SqliteLedger {
    pub(in crate::ledger) async fn open(
        path: &Path,
        settings: &Settings,
        now: Timestamp,
        observer: Arc<dyn LedgerObserver>,
    ) -> Result<Self, Error> {
        let opened = open::open_file(path, now, settings).await?;
        let set_aside = SetAside::default();
        let writer = writer::spawn_writer(
            opened.connection,
            opened.batches,
            opened.head,
            set_aside.clone(),
            path,
            settings.max_bytes,
            observer,
        );
        let settling = processes::settle_ended(path.to_owned(), writer.clone(), Clock::system());
        Ok(Self {
            path: path.to_owned(),
            durability: settings.durability,
            when_down: settings.when_down,
            set_aside,
            writer,
            readers: opened.readers,
            _lock: Some(opened.lock),
            process: Some(opened.process),
            settling: Some(AbortOnDropHandle::new(tokio::spawn(settling.boxed()))),
            _folder: None,
        })
    }

    /// Opens the ledger without a writer: every write fails.
    pub(in crate::ledger) async fn open_read_only(path: &Path) -> Result<Self, Error> {
        let readers = open::open_readers(path).await?;
        open::check_readable(&readers, path).await?;
        Ok(Self {
            path: path.to_owned(),
            durability: Durability::default(),
            when_down: WhenDown::default(),
            writer: Writer::new_closed(),
            set_aside: SetAside::default(),
            readers,
            _lock: None,
            process: None,
            settling: None,
            _folder: None,
        })
    }

    /// The ledger, with a folder that is removed together with it.
    pub(in crate::ledger) fn with_temporary_folder(self, folder: TempDir) -> Self {
        Self {
            _folder: Some(folder),
            ..self
        }
    }

    /// Handles a failed query. A damaged file or a failing disk does not recover by itself, so the
    /// writer stops for good.
    fn handle_read_error(&self, error: &sqlx::Error) -> Error {
        if let Some(reason) = Fault::fatal_read_reason(error) {
            self.writer.stop(reason);
        }
        fault::statement_error(error)
    }

    /// Removes the file of this process, unless calls have not ended in time: another process, or
    /// the next start, then finds the file and settles them.
    async fn remove_process(&self) {
        let Some(process) = &self.process else {
            return;
        };
        let open = "select count(*) from invocation where state = 'reserved' and reserved = ?";
        let open = sqlx::query_scalar::<_, i64>(open).bind(process.number());
        if matches!(open.fetch_one(&self.readers).await, Ok(0)) {
            process.remove();
        }
    }

    async fn store_hours(&self, claim: i64, hours: Vec<(i64, String)>) -> Result<(), Error> {
        if hours.is_empty() {
            return Ok(());
        }
        self.commit_change(Change::StoreHours { claim, hours })
            .await?;
        Ok(())
    }

    /// Sends a change and waits for its commit. Returns the number of affected rows.
    async fn commit_change(&self, change: Change) -> Result<u64, Error> {
        self.writer
            .send_and_wait(|reply| Operation::Rare(Rare::Change { change, reply }))
            .await
    }
}

#[async_trait]
impl Store for SqliteLedger {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn fetch(&self, sql: Sql) -> Result<Vec<SqlRow>, Error> {
        let found = async { self.readers.acquire().await?.fetch(sql).await };
        found.await.map_err(|error| self.handle_read_error(&error))
    }

    async fn change(
        &self,
        sql: Sql,
        _: Option<SharedChange>,
        entry: Option<NewEntry>,
    ) -> Result<u64, Error> {
        self.commit_change(Change::Write(sql, entry)).await
    }

    fn writer(&self) -> &dyn WriterHandle {
        &self.writer
    }

    fn modes(&self) -> (Durability, WhenDown) {
        (self.durability, self.when_down)
    }

    fn free_units(&self, charged: &Charged) -> u64 {
        self.set_aside.free_units(charged)
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    fn store(&self) -> &dyn Store {
        self
    }

    async fn take_units(
        &self,
        invocation: InvocationId,
        started_at: Timestamp,
        charges: Vec<Charge>,
    ) -> Result<Reservation, ReserveError> {
        let request = UnitRequest {
            invocation,
            started_at,
            charges,
        };
        // The row of the call could not be written, so the writer refuses the call.
        if self.writer.health().is_ok()
            && let Some(reservation) = self.set_aside.take(&request)
        {
            return Ok(reservation);
        }
        let take = |reply| Operation::TakeUnits(Starting::new(request, reply));
        self.writer.send_and_wait(take).await
    }

    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error> {
        let end = Settlement {
            held: self.set_aside.release(row.id),
            row,
            refunds,
        };
        self.writer
            .send_and_wait(|reply| Operation::Settle { end, reply })
            .await
    }

    async fn find_key_holder(
        &self,
        caller: &str,
        tool: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Row>, Error> {
        let mut sql = read::select_calls(Dialect::Sqlite);
        sql.and("idempotency_key =", Some(key))
            .and("caller =", Some(caller))
            .and("tool =", Some(tool))
            .and("key_until >", Some(now));
        Ok(read::fetch_rows(self, sql).await?.pop())
    }

    async fn list_calls(&self, query: &Query) -> Result<Vec<Row>, Error> {
        list::list_calls(self, query).await
    }

    async fn import_calls(&self, calls: Vec<RecordedCall>) -> Result<u64, Error> {
        self.commit_change(Change::Import(calls)).await
    }

    async fn usage_buckets(&self, query: &BucketQuery) -> Result<Vec<BucketRow>, Error> {
        let counted = async {
            // All reads see the ledger at one moment.
            let mut transaction = self.readers.begin().await?;
            count_by_time(&mut *transaction, query).await
        };
        counted
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn count_hours(
        &self,
        now: Timestamp,
        oldest: Timestamp,
        at_most: u32,
    ) -> Result<u32, Error> {
        let found = hours::find_uncounted(&self.readers, now, oldest, at_most).await;
        let Some((hours, oldest)) = found.map_err(|error| self.handle_read_error(&error))? else {
            return Ok(0);
        };
        // Another process that counts the same hours has another number.
        let number = Uuid::now_v7().as_u64_pair().1.cast_signed();
        let claim = Claim {
            hours: hours.clone(),
            number,
            oldest,
        };
        self.commit_change(Change::ClaimHours(claim)).await?;
        let counted = hours::count(&self.readers, hours).await;
        let counted = counted.map_err(|error| self.handle_read_error(&error))?;
        let count = u32::try_from(counted.len()).unwrap_or(u32::MAX);
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for hour in counted {
            bytes += hour.1.len();
            piece.push(hour);
            if bytes >= HOURS_OF_A_COMMIT {
                bytes = 0;
                self.store_hours(number, std::mem::take(&mut piece)).await?;
            }
        }
        self.store_hours(number, piece).await?;
        Ok(count)
    }

    async fn reset_counters(
        &self,
        tool: &str,
        caller: Option<&str>,
        entry: Option<NewEntry>,
    ) -> Result<(), Error> {
        let (tool, caller) = (tool.to_owned(), caller.map(str::to_owned));
        let reset = Change::Reset {
            tool,
            caller,
            entry,
        };
        self.commit_change(reset).await.map(drop)
    }

    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        self.commit_change(Change::Prune {
            before,
            now,
            at_most,
        })
        .await
    }

    async fn trim(&self, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        self.writer
            .send_and_wait(|reply| {
                Operation::Rare(Rare::Trim {
                    now,
                    at_most,
                    reply,
                })
            })
            .await
    }

    async fn counter_drift(&self) -> Result<u64, Error> {
        loop {
            let compared = self.fetch(Sql::new(SUM_DRIFT)).await?;
            let compared = compared.first().ok_or(Error::Closed)?;
            let (drift, rows, is_complete) =
                (compared.get(0)?, compared.get::<i64>(1)?, compared.get(2)?);
            let mut carried = 0;
            if rows >= MIN_CARRIED_ROWS {
                let carry = Change::Write(carry_ended_rows(self).await?, None);
                // A ledger that is only read stays as it is.
                carried = self.commit_change(carry).await.unwrap_or(0);
            }
            if is_complete || carried == 0 {
                return Ok(if is_complete { drift } else { 0 });
            }
        }
    }

    fn process(&self) -> Option<Arc<str>> {
        self.process.as_ref().map(ProcessLock::name)
    }

    async fn living_processes(&self) -> Result<Vec<Arc<str>>, Error> {
        Ok(processes::find_living(&self.path))
    }

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        // The copy must contain all calls that were answered before. In a ledger opened for
        // reading, `flush` fails and changes nothing.
        let _ = self.flush().await;
        backup::backup(&self.path, to).await
    }

    async fn close(&self) {
        // The writer closes last: the last connection cleans up the write-ahead log, which a reader
        // cannot do.
        let _ = self.flush().await;
        self.settling.iter().for_each(AbortOnDropHandle::abort);
        self.remove_process().await;
        let _ = tokio::time::timeout(READERS_CLOSE_TIMEOUT, self.readers.close()).await;
        let _ = commit(&self.writer, Write::Close).await;
    }

    fn describe(&self) -> String {
        format!("sqlite {}", self.path.display())
    }
}
