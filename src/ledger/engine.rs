//! The trait of all ledger engines. Every engine passes the tests in `contract.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::broadcast;

use super::operation::{HeldUntilCommit, OnCommit, Write};
use super::sql::{Sql, SqlValue, Store};
use super::writer_queue::commit;
use super::{
    AnsweredCall, ApprovalChange, ApprovalMark, ApprovalQuery, ApprovalRow, AttemptRow, AuditQuery,
    BucketQuery, BucketRow, Durability, EndedQuery, Error, ExportQuery, Query, RecordedCall,
    RegisteredTool, ReplicaRow, Reservation, ReserveError, Row, SharedChange, StoredResult, Switch,
    TokenRow, UsageRow, approval, audit, buckets, list, read,
};
use crate::audit::{Action, Entry, NewEntry};
use crate::call::{Charge, Charged, InvocationId};

/// The durable record of calls, as the service uses it.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// The connections for queries that are the same in all engines.
    fn store(&self) -> &dyn Store;

    /// Commits a `reserved` row together with its charges and the claim on its idempotency key, or
    /// nothing at all. The commit is done when this returns.
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError> {
        self.store().writer().reserve(row, charges).await
    }

    /// Counts the units of a call without its row, or nothing at all. [`Ledger::settle`] writes the
    /// row. The units stay counted whatever happens to the process.
    async fn take_units(
        &self,
        invocation: InvocationId,
        started_at: Timestamp,
        charges: Vec<Charge>,
    ) -> Result<Reservation, ReserveError>;

    /// Writes the whole row of a call that has ended and was not reserved. The commit is done when
    /// this returns.
    async fn record(&self, row: Arc<Row>) -> Result<(), Error> {
        let record = |reply| Write::Record {
            row,
            on_commit: OnCommit::Reply(reply),
        };
        commit(self.store().writer(), record).await
    }

    /// Hands over the row of such a call and returns before its commit. `held` is dropped when the
    /// row is committed, or when it cannot be.
    fn record_in_background(&self, row: Arc<Row>, held: HeldUntilCommit) {
        self.store().writer().send_in_background(Write::Record {
            row,
            on_commit: OnCommit::Drop(held),
        });
    }

    /// Writes the end of a reserved call, or the row of a call that has taken units.
    /// Only the first end counts; a later end changes nothing.
    /// `refunds` gives units back. The commit is done when this returns.
    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error>;

    /// Whether every answer waits for its commit.
    fn is_strict(&self) -> bool {
        self.store().modes().0 == Durability::Strict
    }

    /// Returns when all operations that were handed over before are committed.
    async fn flush(&self) -> Result<(), Error> {
        commit(self.store().writer(), Write::Flush).await
    }

    /// Hands over the row of a failed attempt, and returns before its commit.
    async fn record_attempt(&self, row: AttemptRow) -> Result<(), Error> {
        let writer = self.store().writer();
        writer.send_write(Write::Attempt(row)).await
    }

    /// One call with its failed attempts.
    async fn get(&self, id: InvocationId) -> Result<Option<RecordedCall>, Error> {
        read::find_call(self.store(), id).await
    }

    /// The call of this caller and tool that holds the idempotency key at `now`.
    async fn find_key_holder(
        &self,
        caller: &str,
        tool: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Row>, Error>;

    /// Matching calls, newest first, without their results. Arguments over
    /// [`LISTED_ARGUMENTS`](super::LISTED_ARGUMENTS) are `null`.
    async fn list_calls(&self, query: &Query) -> Result<Vec<Row>, Error>;

    /// Matching calls that have ended, without their results, the last started first.
    async fn list_ended(&self, query: &EndedQuery) -> Result<Vec<Row>, Error> {
        list::list_ended(self.store(), query).await
    }

    /// Matching calls that have ended, with their results and failed attempts, the oldest first.
    /// Results of any length are in them, so a page should be short.
    async fn export_calls(&self, query: &ExportQuery) -> Result<Vec<RecordedCall>, Error> {
        read::export_calls(self.store(), query).await
    }

    /// Adds calls that another ledger has recorded, in one commit. A call whose id is known is
    /// skipped. Totals count the others; no limit is charged, and no key is held. Returns the number
    /// of added calls.
    async fn import_calls(&self, calls: Vec<RecordedCall>) -> Result<u64, Error>;

    /// Totals per tool and caller. With `caller`, only the totals of that caller.
    async fn usage_totals(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error> {
        read::usage_totals(self.store(), caller).await
    }

    /// Counts of recorded calls by the time of their start, the oldest first. Rows that retention
    /// has deleted are not counted. Running calls have neither outcome nor duration. A call that waited
    /// for a person started when it was approved.
    async fn usage_buckets(&self, query: &BucketQuery) -> Result<Vec<BucketRow>, Error>;

    /// The tokens that the recorded calls of these tools took, grouped as in
    /// [`Ledger::usage_buckets`]. Groups without tokens are left out.
    async fn token_sums(
        &self,
        query: &BucketQuery,
        tools: &[String],
    ) -> Result<Vec<TokenRow>, Error> {
        buckets::token_sums(self.store(), query, tools).await
    }

    /// Counts the calls of up to `at_most` hours for [`Ledger::usage_buckets`], which then does not
    /// read them again. The hours have ended before `now`, and after `oldest`. Returns the number of
    /// hours; 0 if all are counted, or if another process counts. Answers are the same before and after.
    async fn count_hours(
        &self,
        _now: Timestamp,
        _oldest: Timestamp,
        _at_most: u32,
    ) -> Result<u32, Error> {
        Ok(0)
    }

    /// How many units the counters of these charges have in the window of `now`.
    async fn units_used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error> {
        read::units_used(self.store(), charges, now).await
    }

    /// Deletes the counters of a tool. With `caller`, it deletes only that caller's counters,
    /// including those of the caller's own limits over all tools. `entry` is recorded in the same commit.
    async fn reset_counters(
        &self,
        tool: &str,
        caller: Option<&str>,
        entry: Option<NewEntry>,
    ) -> Result<(), Error>;

    /// A stored result that has not expired at `now`.
    async fn find_result(
        &self,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<StoredResult>, Error> {
        read::find_result(self.store(), key, now).await
    }

    /// Hands over a result to be stored, and returns before its commit.
    async fn store_result(&self, result: StoredResult) -> Result<(), Error> {
        let writer = self.store().writer();
        writer.send_write(Write::Store(result)).await
    }

    /// Deletes the stored results of one tool, or of all. Returns their number. `entry` is recorded in the
    /// same commit.
    async fn purge_results(
        &self,
        tool: Option<&str>,
        entry: Option<NewEntry>,
    ) -> Result<u64, Error> {
        purge_results(self.store(), tool, entry).await
    }

    /// The switches that admins have set.
    async fn list_switches(&self) -> Result<Vec<Switch>, Error> {
        read::list_switches(self.store()).await
    }

    /// Sets a switch, and records `entry`. The commit is done when this returns.
    async fn set_switch(&self, switch: Switch, entry: Option<NewEntry>) -> Result<(), Error> {
        set_switch(self.store(), switch, entry).await
    }

    /// Deletes up to `at_most` calls with their failed attempts: those that started before
    /// `before`, have ended, and hold no idempotency key at `now`. It also deletes counters of runs
    /// that were not used since. Returns the number of deleted rows. Totals and all other counters
    /// stay.
    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error>;

    /// Deletes up to `at_most` calls that no guarantee covers, the oldest first, with their failed
    /// attempts. Such calls were refused, or were not committed before their tool ran. Stored
    /// results that have expired at `now` go first; other stored results go when no such call is
    /// left. Returns the number of deleted rows. Totals and counters stay.
    async fn trim(&self, now: Timestamp, at_most: u32) -> Result<u64, Error>;

    /// The tools that were registered at run time, by name.
    async fn registered_tools(&self) -> Result<Vec<RegisteredTool>, Error> {
        read::registered_tools(self.store()).await
    }

    /// Stores a tool that was registered at run time, replaces one of the same name, and records that. The
    /// commit is done when this returns.
    async fn register_tool(&self, tool: RegisteredTool) -> Result<(), Error> {
        register_tool(self.store(), tool).await
    }

    /// Deletes a registered tool, and records `entry` if there was one. The commit is done when this returns.
    /// Returns whether there was one.
    async fn unregister_tool(&self, name: &str, entry: Option<NewEntry>) -> Result<bool, Error> {
        unregister_tool(self.store(), name, entry).await
    }

    /// Stores a call that needs an approval. The commit is done when this returns. Returns the call
    /// that holds the idempotency key already; then nothing is stored.
    async fn request_approval(&self, row: ApprovalRow) -> Result<Option<InvocationId>, Error> {
        approval::request(self.store(), row).await
    }

    /// Changes an approval, if it is as the change expects. The commit is done when this returns.
    /// Returns whether it has changed.
    async fn change_approval(&self, change: ApprovalChange) -> Result<bool, Error> {
        approval::change(self.store(), change).await
    }

    /// Notes something about a call that needs an approval. The commit is done when this returns.
    async fn mark_approval(&self, id: InvocationId, mark: ApprovalMark) -> Result<(), Error> {
        approval::mark(self.store(), id, mark).await
    }

    /// The noted message of a call; see [`ApprovalMark::Message`].
    async fn approval_message(&self, id: InvocationId) -> Result<Option<Arc<str>>, Error> {
        approval::message(self.store(), id).await
    }

    /// The approval of one call.
    async fn find_approval(&self, id: InvocationId) -> Result<Option<ApprovalRow>, Error> {
        approval::find(self.store(), id).await
    }

    /// How many calls wait for a person: those of this caller, and all.
    async fn count_waiting(&self, caller: &str) -> Result<(u64, u64), Error> {
        approval::count_waiting(self.store(), caller).await
    }

    /// Matching approvals, newest first.
    async fn list_approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRow>, Error> {
        approval::list(self.store(), query).await
    }

    /// Appends an entry to the record of administration. The commit is done when this returns. What is noted
    /// once, such as the first use of a key, is not repeated.
    async fn append_audit(&self, entry: NewEntry) -> Result<(), Error> {
        audit::append(self.store(), entry).await
    }

    /// Appends an entry about an action that has happened. The action stays when this fails.
    async fn record_action(&self, entry: NewEntry) {
        let action = entry.action.as_str();
        let (actor, subject) = (entry.actor.clone(), entry.subject.clone());
        if let Err(error) = self.append_audit(entry).await {
            tracing::error!(action, actor, subject, %error, "an action is missing in the audit");
        }
    }

    /// Matching entries of the record of administration, newest first.
    async fn list_audit(&self, query: &AuditQuery) -> Result<Vec<Entry>, Error> {
        audit::list(self.store(), query).await
    }

    /// Adds entries that another ledger has recorded, in their order. They must continue the record here;
    /// those that it has are skipped. Returns the number of added entries.
    async fn import_audit(&self, entries: Vec<Entry>) -> Result<u64, Error> {
        audit::import(self.store(), entries).await
    }

    /// By how many units the counters of limits differ from the rows that are charged to them. Any
    /// value but 0 is a fault.
    async fn counter_drift(&self) -> Result<u64, Error>;

    /// Copies the current ledger to a new file, which is a ledger too. Returns its size in bytes.
    /// Calls continue meanwhile. If this future is dropped before its end, no file remains.
    async fn backup(&self, to: &Path) -> Result<u64, Error>;

    /// Whether the ledger can write now. The error is the reason.
    fn check_health(&self) -> Result<(), String> {
        self.store().writer().health()
    }

    /// Whether calls are accepted now. With `when_down: serve_reads`, a call that needs no commit is
    /// accepted even if the ledger cannot write. The error is the reason.
    fn accepts_calls(&self) -> Result<(), String> {
        let (_, when_down) = self.store().modes();
        self.store().writer().accepts_calls(when_down)
    }

    /// Undoes the reservation of a call whose tool has not started: row, units and key. It may return
    /// before the commit. An engine whose leases never end does not need it.
    async fn undo_reservation(&self, _: InvocationId) {}

    /// Whether this process may run a reserved call that began at this time. It may not if another
    /// replica has, or may have, settled the call. The error is the reason.
    fn check_lease(&self, _: Instant) -> Result<(), String> {
        Ok(())
    }

    /// The id of this process among the replicas that share the ledger; `None` if the engine has no
    /// replicas.
    fn replica(&self) -> Option<Arc<str>> {
        None
    }

    /// The replicas that share the ledger, the oldest first. Empty if the engine has no replicas.
    async fn replicas(&self) -> Result<Vec<ReplicaRow>, Error> {
        Ok(Vec::new())
    }

    /// The name of this process among those that write to the ledger; `None` if it is the only one.
    fn process(&self) -> Option<Arc<str>> {
        self.replica()
    }

    /// The names of the processes that write to the ledger.
    async fn living_processes(&self) -> Result<Vec<Arc<str>>, Error> {
        let replicas = self.replicas().await?.into_iter();
        Ok(replicas.map(|one| one.replica).collect())
    }

    /// Receives the changes that other replicas make from now on; `None` if the engine has no
    /// replicas.
    fn watch_shared_changes(&self) -> Option<broadcast::Receiver<SharedChange>> {
        None
    }

    /// Asks the other replicas to cancel a call. `caller`: only if it is a call of this caller.
    async fn request_cancel(&self, _: InvocationId, _: Option<&str>) -> Result<(), Error> {
        Ok(())
    }

    /// Shows the other replicas the calls that run here without a row. `running` are all of them,
    /// and `new` those that were not shown before. The others see them until the next time.
    async fn show_running(&self, _: &[InvocationId], _: &[Arc<Row>]) -> Result<(), Error> {
        Ok(())
    }

    /// Matching calls that other replicas have shown, newest first.
    async fn list_running_elsewhere(&self, _: &Query) -> Result<Vec<Row>, Error> {
        Ok(Vec::new())
    }

    /// A call that another replica has shown.
    async fn find_running_elsewhere(&self, _: InvocationId) -> Result<Option<Row>, Error> {
        Ok(None)
    }

    /// Tells the other replicas the last answered calls of runs.
    async fn tell_answered(&self, _: &[AnsweredCall]) -> Result<(), Error> {
        Ok(())
    }

    /// Receives what other replicas tell from now on; `None` if the engine has no replicas.
    fn watch_answered(&self) -> Option<broadcast::Receiver<Vec<AnsweredCall>>> {
        None
    }

    /// Waits until the ledger has stopped for good, because its file can no longer be trusted.
    /// Returns the reason ([`Error::Stopped`]). The process should end then.
    async fn wait_for_failure(&self) -> Error {
        self.store().writer().wait_for_stop().await
    }

    /// Writes all pending operations and closes the files. After a final failure, it leaves the
    /// files as they are.
    async fn close(&self);

    /// Engine and location, for people.
    fn describe(&self) -> String;
}

/// One of an admin's decisions. Each is one statement, and is announced to the other replicas.
async fn purge_results(
    store: &dyn Store,
    tool: Option<&str>,
    entry: Option<NewEntry>,
) -> Result<u64, Error> {
    let mut sql = Sql::new("delete from stored_result where true");
    sql.and("tool =", tool);
    let news = SharedChange::Purged(tool.map(str::to_owned));
    store.change(sql, Some(news), entry).await
}

async fn set_switch(
    store: &dyn Store,
    switch: Switch,
    entry: Option<NewEntry>,
) -> Result<(), Error> {
    let mut sql = Sql::new("insert into tool_switch (tool, enabled) values ");
    sql.bind_list([switch.tool.into(), SqlValue::Bool(switch.enabled)])
        .push(" on conflict (tool) do update set enabled = excluded.enabled");
    let changed = store.change(sql, Some(SharedChange::Tools), entry).await;
    changed.map(drop)
}

async fn register_tool(store: &dyn Store, tool: RegisteredTool) -> Result<(), Error> {
    let (at, by) = (tool.registered_at, &tool.registered_by);
    let entry = NewEntry::new(at, by, Action::ToolRegistered, Some(&tool.name));
    let mut sql = Sql::new(
        "insert into registered_tool (name, definition, registered_by, registered_at) values ",
    );
    sql.bind_list([
        tool.name.into(),
        tool.definition.into(),
        tool.registered_by.into(),
        SqlValue::from(tool.registered_at),
    ])
    .push(
        " on conflict (name) do update set definition = excluded.definition, \
         registered_by = excluded.registered_by, registered_at = excluded.registered_at",
    );
    let changed = store.change(sql, Some(SharedChange::Tools), Some(entry));
    changed.await.map(drop)
}

async fn unregister_tool(
    store: &dyn Store,
    name: &str,
    entry: Option<NewEntry>,
) -> Result<bool, Error> {
    let mut sql = Sql::new("delete from registered_tool where name = ");
    sql.bind(name);
    let (news, entry) = (Some(SharedChange::Tools), entry);
    Ok(store.change(sql, news, entry).await? > 0)
}
