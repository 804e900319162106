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
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::super::writer_queue::OnCommit;
use super::super::{
    ApprovalChange, ApprovalMark, ApprovalQuery, ApprovalRow, AttemptRow, BucketQuery, BucketRow,
    Durability, EndedQuery, Error, ExportQuery, HeldUntilCommit, Ledger, LedgerObserver, Query,
    RecordedCall, RegisteredTool, Reservation, ReserveError, Row, Settings, StoredResult, Switch,
    TokenRow, UsageRow, WhenDown,
};
use super::change::Change;
use super::fault::{self, Fault};
use super::hours::{self, Claim};
use super::processes::ProcessLock;
use super::queue::{Operation, Writer};
use super::quota::Settlement;
use super::set_aside::{SetAside, UnitRequest};
use super::{approvals, backup, buckets, export, list, open, processes, read, writer};
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
            settling: Some(AbortOnDropHandle::new(tokio::spawn(settling))),
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
            .send_and_wait(|reply| Operation::Change { change, reply })
            .await
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError> {
        let (reply, answer) = oneshot::channel();
        self.writer
            .send(Operation::Reserve {
                row,
                charges,
                reply,
            })
            .await?;
        answer.await.map_err(|_| self.writer.closed_error())?
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
        let (reply, answer) = oneshot::channel();
        self.writer
            .send(Operation::TakeUnits { request, reply })
            .await?;
        answer.await.map_err(|_| self.writer.closed_error())?
    }

    async fn record(&self, row: Arc<Row>) -> Result<(), Error> {
        self.writer
            .send_and_wait(|reply| Operation::Record {
                row,
                on_commit: OnCommit::Reply(reply),
            })
            .await
    }

    fn record_in_background(&self, row: Arc<Row>, held: HeldUntilCommit) {
        self.writer.send_without_waiting(Operation::Record {
            row,
            on_commit: OnCommit::Drop(held),
        });
    }

    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error> {
        let held = self.set_aside.release(row.id, &refunds);
        let settlement = Settlement {
            row,
            refunds: if held.is_some() { Vec::new() } else { refunds },
            held,
        };
        self.writer
            .send_and_wait(|reply| Operation::Settle { settlement, reply })
            .await
    }

    fn is_strict(&self) -> bool {
        self.durability == Durability::Strict
    }

    async fn flush(&self) -> Result<(), Error> {
        self.writer
            .send_and_wait(|reply| Operation::Flush { reply })
            .await
    }

    async fn record_attempt(&self, row: AttemptRow) -> Result<(), Error> {
        self.writer.send(Operation::Attempt(row)).await
    }

    async fn get(&self, id: InvocationId) -> Result<Option<RecordedCall>, Error> {
        read::find_call(&self.readers, id)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn find_key_holder(
        &self,
        caller: &str,
        tool: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Row>, Error> {
        read::find_key_holder(&self.readers, caller, tool, key, now)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn list_calls(&self, query: &Query) -> Result<Vec<Row>, Error> {
        list::list_calls(&self.readers, query)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn list_ended(&self, query: &EndedQuery) -> Result<Vec<Row>, Error> {
        list::list_ended(&self.readers, query)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn export_calls(&self, query: &ExportQuery) -> Result<Vec<RecordedCall>, Error> {
        export::export_calls(&self.readers, query)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn import_calls(&self, calls: Vec<RecordedCall>) -> Result<u64, Error> {
        self.commit_change(Change::Import(calls)).await
    }

    async fn usage_totals(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error> {
        read::usage_totals(&self.readers, caller)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn usage_buckets(&self, query: &BucketQuery) -> Result<Vec<BucketRow>, Error> {
        buckets::usage_buckets(&self.readers, query)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn token_sums(
        &self,
        query: &BucketQuery,
        tools: &[String],
    ) -> Result<Vec<TokenRow>, Error> {
        buckets::token_sums(&self.readers, query, tools)
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

    async fn units_used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error> {
        let mut counted = read::units_used(&self.readers, charges, now)
            .await
            .map_err(|error| self.handle_read_error(&error))?;
        for charged in &mut counted {
            let free = self.set_aside.free_units(charged);
            charged.used = charged.used.saturating_sub(free);
        }
        Ok(counted)
    }

    async fn reset_counters(&self, tool: &str, caller: Option<&str>) -> Result<(), Error> {
        let (tool, caller) = (tool.to_owned(), caller.map(str::to_owned));
        self.commit_change(Change::Reset { tool, caller })
            .await
            .map(drop)
    }

    async fn find_result(
        &self,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<StoredResult>, Error> {
        read::find_result(&self.readers, key, now)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn store_result(&self, result: StoredResult) -> Result<(), Error> {
        self.writer.send(Operation::Store(result)).await
    }

    async fn purge_results(&self, tool: Option<&str>) -> Result<u64, Error> {
        let tool = tool.map(str::to_owned);
        self.commit_change(Change::Purge { tool }).await
    }

    async fn list_switches(&self) -> Result<Vec<Switch>, Error> {
        read::list_switches(&self.readers)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn set_switch(&self, switch: Switch) -> Result<(), Error> {
        self.commit_change(Change::Switch(switch)).await.map(drop)
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
            .send_and_wait(|reply| Operation::Trim {
                now,
                at_most,
                reply,
            })
            .await
    }

    async fn counter_drift(&self) -> Result<u64, Error> {
        read::counter_drift(&self.readers)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn registered_tools(&self) -> Result<Vec<RegisteredTool>, Error> {
        read::registered_tools(&self.readers)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn register_tool(&self, tool: RegisteredTool) -> Result<(), Error> {
        self.commit_change(Change::Register(tool)).await.map(drop)
    }

    async fn unregister_tool(&self, name: &str) -> Result<bool, Error> {
        let name = name.to_owned();
        Ok(self.commit_change(Change::Unregister { name }).await? > 0)
    }

    async fn request_approval(&self, row: ApprovalRow) -> Result<Option<InvocationId>, Error> {
        let taken = row.key_query();
        if self
            .commit_change(Change::RequestApproval(Box::new(row)))
            .await?
            > 0
        {
            return Ok(None);
        }
        let holder = self.list_approvals(&taken).await?;
        Ok(holder.first().map(|row| row.invocation))
    }

    async fn change_approval(&self, change: ApprovalChange) -> Result<bool, Error> {
        let changed = self
            .commit_change(Change::Approval(Box::new(change)))
            .await?;
        Ok(changed > 0)
    }

    fn process(&self) -> Option<Arc<str>> {
        self.process.as_ref().map(ProcessLock::name)
    }

    async fn living_processes(&self) -> Result<Vec<Arc<str>>, Error> {
        Ok(processes::find_living(&self.path))
    }

    async fn mark_approval(&self, id: InvocationId, mark: ApprovalMark) -> Result<(), Error> {
        self.commit_change(Change::MarkApproval(id, mark)).await?;
        Ok(())
    }

    async fn approval_message(&self, id: InvocationId) -> Result<Option<Arc<str>>, Error> {
        approvals::message(&self.readers, id)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn find_approval(&self, id: InvocationId) -> Result<Option<ApprovalRow>, Error> {
        approvals::find(&self.readers, id)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn count_waiting(&self, caller: &str) -> Result<(u64, u64), Error> {
        approvals::count_waiting(&self.readers, caller)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn list_approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRow>, Error> {
        approvals::list(&self.readers, query)
            .await
            .map_err(|error| self.handle_read_error(&error))
    }

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        // The copy must contain all calls that were answered before. In a ledger opened for
        // reading, `flush` fails and changes nothing.
        let _ = self.flush().await;
        backup::backup(&self.path, to).await
    }

    fn check_health(&self) -> Result<(), String> {
        self.writer.health()
    }

    fn accepts_calls(&self) -> Result<(), String> {
        self.writer.accepts_calls(self.when_down)
    }

    async fn wait_for_failure(&self) -> Error {
        self.writer.wait_for_stop().await
    }

    async fn close(&self) {
        // The writer closes last: the last connection cleans up the write-ahead log, which a reader
        // cannot do.
        let _ = self.flush().await;
        self.settling.iter().for_each(AbortOnDropHandle::abort);
        self.remove_process().await;
        let _ = tokio::time::timeout(READERS_CLOSE_TIMEOUT, self.readers.close()).await;
        self.writer.close().await;
    }

    fn describe(&self) -> String {
        format!("sqlite {}", self.path.display())
    }
}
