//! A ledger in memory for tests with a paused clock. SQLite's thread would not follow a paused
//! clock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::latency::Latencies;
use super::refusals::Refusals;
use super::sql::Store;
use super::*;
use crate::audit::NewEntry;
use crate::call::{CacheStatus, Charge, Charged, InvocationId};

/// A ledger in memory, for tests.
#[derive(Default)]
pub(crate) struct MemoryLedger(Mutex<Tables>);

type QuotaKey = (String, String, String, crate::call::Per);

#[derive(Default)]
struct Tables {
    rows: BTreeMap<InvocationId, Row>,
    attempts: Vec<AttemptRow>,
    quota: HashMap<QuotaKey, (i64, u64)>,
    results: HashMap<[u8; 32], StoredResult>,
    switches: BTreeMap<String, bool>,
    totals: BTreeMap<(Arc<str>, Arc<str>), (UsageRow, Latencies)>,
    registered: BTreeMap<String, RegisteredTool>,
    /// Calls that have taken units and have no row yet.
    unit_holders: HashSet<InvocationId>,
    /// `trim` keeps these calls.
    committed_before_run: HashSet<InvocationId>,
    refusals: Refusals,
    approvals: BTreeMap<InvocationId, ApprovalRow>,
    approval_messages: BTreeMap<InvocationId, Arc<str>>,
    before_change: Option<BeforeChange>,
    request_delay: Option<Duration>,
    living: Vec<Arc<str>>,
    drift: u64,
    fault: ReservationFault,
    closed: bool,
}

/// What another process does with an approval.
type BeforeChange = Box<dyn FnOnce(&mut ApprovalRow) + Send>;

/// What goes wrong with reservations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReservationFault {
    #[default]
    None,
    /// They fail.
    Refused,
    /// They are committed, and then the lease has ended.
    LeaseEnds,
    /// They are committed, and their ends are not.
    EndsFail,
}

impl Tables {
    fn total_mut(&mut self, row: &Row) -> &mut (UsageRow, Latencies) {
        let total = self
            .totals
            .entry((row.tool.clone(), row.caller.clone()))
            .or_default();
        (total.0.tool, total.0.caller) = (row.tool.to_string(), row.caller.to_string());
        total
    }

    fn count_start(&mut self, row: &Row) {
        self.total_mut(row).0.calls += 1;
    }

    fn record(&mut self, row: &Row) {
        if !self.rows.contains_key(&row.id) {
            if let Some(shared) = self.refusals.find_shared_row(row) {
                self.count_start(row);
                self.count_end(row);
                self.rows
                    .entry(shared.row)
                    .and_modify(|row| row.count = shared.count);
                return;
            }
            self.count_start(row);
            self.count_end(row);
            self.rows.insert(row.id, row.clone());
        }
    }

    /// Counts one unit for each charge, or nothing.
    fn charge(&mut self, at: Timestamp, charges: &[Charge]) -> Result<Vec<Charged>, ReserveError> {
        let charge_now = |charge: &Charge| {
            Charged::from_counter(
                charge.clone(),
                self.quota.get(&quota_key(charge)).copied(),
                at,
            )
        };
        let mut charged: Vec<Charged> = charges.iter().map(charge_now).collect();
        if let Some(full) = charged
            .iter()
            .find(|charged| charged.used >= charged.charge.limit)
        {
            return Err(ReserveError::LimitReached(full.clone()));
        }
        for charged_limit in &mut charged {
            charged_limit.used += 1;
            self.quota.insert(
                quota_key(&charged_limit.charge),
                (charged_limit.window_start, charged_limit.used),
            );
        }
        Ok(charged)
    }

    fn key_holder(&self, caller: &str, tool: &str, key: &str, now: Timestamp) -> Option<&Row> {
        let is_held = |row: &&Row| row.key_until.is_some_and(|until| until > now);
        let has_key = |row: &&Row| {
            (&*row.caller, &*row.tool, row.idempotency_key.as_deref()) == (caller, tool, Some(key))
        };
        self.rows.values().filter(is_held).find(has_key)
    }

    fn count_end(&mut self, row: &Row) {
        let (total, latencies) = self.total_mut(row);
        match row.state {
            State::Succeeded => total.succeeded += 1,
            State::Refused => total.refused += 1,
            State::Waiting | State::Reserved | State::Running => {}
            State::Failed | State::TimedOut | State::Cancelled | State::Unknown => {
                total.failed += 1;
            }
        }
        if row.state != State::Refused {
            row.duration_us.iter().for_each(|us| latencies.add(*us));
        }
    }
}

impl MemoryLedger {
    /// Sets the number that `counter_drift` returns.
    pub(super) fn set_drift(&self, units: u64) {
        self.tables().drift = units;
    }

    /// Sets what goes wrong with reservations.
    pub(crate) fn set_fault(&self, fault: ReservationFault) {
        self.tables().fault = fault;
    }

    /// Lets another process be faster: this happens just before the next change of an approval.
    pub(crate) fn before_next_change(
        &self,
        change: impl FnOnce(&mut ApprovalRow) + Send + 'static,
    ) {
        self.tables().before_change = Some(Box::new(change));
    }

    /// Lets each request for an approval take this long after it is stored.
    pub(crate) fn delay_requests(&self, delay: Duration) {
        self.tables().request_delay = Some(delay);
    }

    /// Sets the processes that write to the ledger.
    pub(crate) fn set_living(&self, names: &[&str]) {
        self.tables().living = names.iter().map(|name| Arc::from(*name)).collect();
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock()
    }

    fn open_tables(&self) -> Result<MutexGuard<'_, Tables>, Error> {
        let tables = self.tables();
        if tables.closed {
            Err(Error::Closed)
        } else {
            Ok(tables)
        }
    }
}

/// Counts the rows of a query, one after the other.
pub(super) fn count_rows<'a>(
    rows: impl Iterator<Item = &'a Row>,
    query: &BucketQuery,
) -> Vec<BucketRow> {
    let mut groups: BTreeMap<_, (UsageRow, Latencies)> = BTreeMap::new();
    for row in rows {
        let is_other = |name: &str| name != &*row.caller;
        if query.caller.as_deref().is_some_and(is_other)
            || row.started_at < query.since
            || row.started_at >= query.until
        {
            continue;
        }
        let tool = matches!(query.by, None | Some(UsageBy::Tool)).then(|| row.tool.clone());
        let caller = (query.by != Some(UsageBy::Tool)).then(|| row.caller.clone());
        let run = row
            .run_id
            .clone()
            .filter(|_| query.by == Some(UsageBy::Run));
        let bucket = row.started_at.as_millisecond().div_euclid(query.width_ms);
        let (counts, latencies) = groups.entry((bucket, tool, caller, run)).or_default();
        counts.calls += row.count;
        match row.state {
            State::Refused => counts.refused += row.count,
            State::Succeeded => counts.succeeded += 1,
            State::Reserved | State::Running => {}
            _ => counts.failed += 1,
        }
        if row.state != State::Refused {
            row.duration_us.iter().for_each(|us| latencies.add(*us));
            let is_hit = matches!(row.cache, CacheStatus::Hit | CacheStatus::Joined);
            counts.cache_hits += u64::from(is_hit);
        }
    }
    let name = |text: Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    let rows = groups
        .into_iter()
        .map(|((bucket, tool, caller, run), (counts, all))| BucketRow {
            start_ms: bucket * query.width_ms,
            run_id: run.as_deref().map(str::to_owned),
            counts: UsageRow {
                tool: name(tool),
                caller: name(caller),
                p50_ms: all.quantile_ms(50),
                p99_ms: all.quantile_ms(99),
                ..counts
            },
        });
    rows.take(query.limit as usize).collect()
}

fn quota_key(charge: &Charge) -> QuotaKey {
    (
        charge.tool.clone(),
        charge.caller.clone(),
        charge.run.clone(),
        charge.per,
    )
}

#[async_trait]
impl Ledger for MemoryLedger {
    #[expect(clippy::unimplemented, reason = "a test that needs it fails")]
    fn store(&self) -> &dyn Store {
        unimplemented!("a ledger in memory has no SQL")
    }

    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError> {
        let mut tables = self.open_tables()?;
        if tables.fault == ReservationFault::Refused {
            return Err(Error::Failed("no reservation now".into()).into());
        }
        if let Some(holder) = row
            .idempotency_key
            .as_ref()
            .and_then(|key| tables.key_holder(&row.caller, &row.tool, key, row.started_at))
        {
            return Err(ReserveError::KeyClaimed(holder.id));
        }
        if tables.rows.contains_key(&row.id) {
            return Err(Error::known_call().into());
        }
        let charged = tables.charge(row.started_at, &charges)?;
        tables.count_start(&row);
        tables.committed_before_run.insert(row.id);
        tables.rows.insert(row.id, row);
        Ok(Reservation { charged })
    }

    async fn take_units(
        &self,
        invocation: InvocationId,
        started_at: Timestamp,
        charges: Vec<Charge>,
    ) -> Result<Reservation, ReserveError> {
        let mut tables = self.open_tables()?;
        let charged = tables.charge(started_at, &charges)?;
        tables.unit_holders.insert(invocation);
        Ok(Reservation { charged })
    }

    async fn record(&self, row: Arc<Row>) -> Result<(), Error> {
        self.open_tables()?.record(&row);
        Ok(())
    }

    fn record_in_background(&self, row: Arc<Row>, held: HeldUntilCommit) {
        if let Ok(mut tables) = self.open_tables() {
            tables.record(&row);
        }
        drop(held);
    }

    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error> {
        let mut tables = self.open_tables()?;
        if tables.fault == ReservationFault::EndsFail {
            return Err(Error::Failed("no end now".into()));
        }
        for refund in refunds {
            if let Some((start, used)) = tables.quota.get_mut(&quota_key(&refund.charge))
                && *start == refund.window_start
            {
                *used = used.saturating_sub(1);
            }
        }
        if tables.unit_holders.remove(&row.id) {
            tables.record(&row);
        } else if tables
            .rows
            .get(&row.id)
            .is_some_and(|stored| stored.state == State::Reserved)
        {
            assert!(State::Reserved.next().contains(&row.state), "{row:?}");
            tables.count_end(&row);
            tables.rows.insert(row.id, Row::clone(&row));
        }
        Ok(())
    }

    async fn undo_reservation(&self, id: InvocationId) {
        let mut tables = self.tables();
        if let Some(row) = tables.rows.remove(&id) {
            tables.total_mut(&row).0.calls -= 1;
        }
    }

    fn check_lease(&self, _: std::time::Instant) -> Result<(), String> {
        match self.tables().fault {
            ReservationFault::LeaseEnds => Err("the lease has ended".into()),
            _ => Ok(()),
        }
    }

    fn is_strict(&self) -> bool {
        false
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn record_attempt(&self, row: AttemptRow) -> Result<(), Error> {
        self.open_tables()?.attempts.push(row);
        Ok(())
    }

    async fn get(&self, id: InvocationId) -> Result<Option<RecordedCall>, Error> {
        let tables = self.tables();
        let Some(row) = tables.rows.get(&id).cloned() else {
            return Ok(None);
        };
        let attempts = tables
            .attempts
            .iter()
            .filter(|attempt| attempt.invocation == id)
            .cloned()
            .collect();
        let origin = row.origin.and_then(|origin| tables.rows.get(&origin));
        Ok(Some(RecordedCall {
            origin_result: origin.and_then(|row| row.result.clone()),
            row,
            attempts,
        }))
    }

    async fn find_key_holder(
        &self,
        caller: &str,
        tool: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Row>, Error> {
        Ok(self.tables().key_holder(caller, tool, key, now).cloned())
    }

    async fn list_calls(&self, query: &Query) -> Result<Vec<Row>, Error> {
        let tables = self.tables();
        let matching = tables.rows.values().rev().filter(|row| query.matches(row));
        Ok(matching.take(query.limit as usize).cloned().collect())
    }

    async fn list_ended(&self, query: &EndedQuery) -> Result<Vec<Row>, Error> {
        let tables = self.tables();
        let matches = |row: &&Row| {
            row.state != State::Reserved
                && row.ended_at().is_none_or(|at| at >= query.ended_since)
                && query
                    .caller
                    .as_deref()
                    .is_none_or(|name| name == &*row.caller)
        };
        let is_late = |id| query.late_starts && tables.approvals.contains_key(id);
        let newest = tables.rows.values().rev();
        let newest = newest.filter(|row| row.id >= query.from || is_late(&row.id));
        let short = |row: &Row| Row {
            arguments: match row.arguments.len() <= query.max_arguments as usize {
                true => row.arguments.clone(),
                false => "null".into(),
            },
            result: None,
            meta: None,
            ..row.clone()
        };
        let found = newest.filter(matches).take(query.limit as usize).map(short);
        Ok(found.collect())
    }

    async fn export_calls(&self, query: &ExportQuery) -> Result<Vec<RecordedCall>, Error> {
        let rows = self.tables().rows.clone();
        let mut calls = Vec::new();
        for row in rows.values().filter(|row| query.matches(row)) {
            calls.extend(self.get(row.id).await?);
        }
        calls.truncate(query.limit as usize);
        Ok(calls)
    }

    async fn import_calls(&self, calls: Vec<RecordedCall>) -> Result<u64, Error> {
        let mut tables = self.open_tables()?;
        let mut added = 0;
        for call in calls {
            if tables.rows.contains_key(&call.row.id) {
                continue;
            }
            for _ in 0..call.row.count {
                tables.count_start(&call.row);
                tables.count_end(&call.row);
            }
            tables.attempts.extend(call.attempts);
            tables.rows.insert(call.row.id, call.row);
            added += 1;
        }
        Ok(added)
    }

    async fn usage_totals(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error> {
        let tables = self.tables();
        let matching = tables
            .totals
            .values()
            .filter(|(total, _)| caller.is_none_or(|caller| caller == total.caller));
        let row = |(total, latencies): &(UsageRow, Latencies)| {
            let (p50_ms, p99_ms) = (latencies.quantile_ms(50), latencies.quantile_ms(99));
            UsageRow {
                p50_ms,
                p99_ms,
                ..total.clone()
            }
        };
        Ok(matching.map(row).collect())
    }

    async fn usage_buckets(&self, query: &BucketQuery) -> Result<Vec<BucketRow>, Error> {
        Ok(count_rows(self.tables().rows.values(), query))
    }

    async fn token_sums(
        &self,
        query: &BucketQuery,
        tools: &[String],
    ) -> Result<Vec<TokenRow>, Error> {
        let mut sums: BTreeMap<(i64, String, String, Option<String>), TokenSums> = BTreeMap::new();
        for row in self.tables().rows.values() {
            let model = row.meta.as_deref().and_then(|meta| {
                let meta: serde_json::Value = serde_json::from_str(meta).ok()?;
                meta.get("model").cloned()
            });
            let Some(model) = model.filter(|_| {
                tools.iter().any(|tool| **tool == *row.tool)
                    && (query.since..query.until).contains(&row.started_at)
                    && query
                        .caller
                        .as_deref()
                        .is_none_or(|one| *one == *row.caller)
            }) else {
                continue;
            };
            let of = |is_shown: bool, name: &str| if is_shown { name } else { "" }.to_owned();
            let by = query.by;
            let run = row.run_id.as_deref().map(str::to_owned);
            let key = (
                row.started_at.as_millisecond() / query.width_ms,
                of(matches!(by, None | Some(UsageBy::Tool)), &row.tool),
                of(by != Some(UsageBy::Tool), &row.caller),
                run.filter(|_| by == Some(UsageBy::Run)),
            );
            let sum = sums.entry(key).or_default();
            let number = |key: &str| model[key].as_u64().unwrap_or_default();
            sum.requests += number("requests");
            sum.input_tokens += number("input_tokens");
            sum.output_tokens += number("output_tokens");
        }
        let row = |((bucket, tool, caller, run_id), tokens)| TokenRow {
            start_ms: bucket * query.width_ms,
            tool,
            caller,
            run_id,
            tokens,
        };
        Ok(sums.into_iter().map(row).collect())
    }

    async fn units_used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error> {
        let tables = self.tables();
        let charge_now = |charge: &Charge| {
            Charged::from_counter(
                charge.clone(),
                tables.quota.get(&quota_key(charge)).copied(),
                now,
            )
        };
        Ok(charges.iter().map(charge_now).collect())
    }

    async fn reset_counters(
        &self,
        tool: &str,
        caller: Option<&str>,
        _: Option<NewEntry>,
    ) -> Result<(), Error> {
        let named = |key: &QuotaKey| caller.is_some_and(|caller| key.1 == caller);
        self.tables().quota.retain(|key, _| {
            !(key.0 == tool && (caller.is_none() || named(key)) || key.0.is_empty() && named(key))
        });
        Ok(())
    }

    async fn find_result(
        &self,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<StoredResult>, Error> {
        Ok(self
            .tables()
            .results
            .get(key)
            .filter(|result| result.expires_at > now)
            .cloned())
    }

    async fn store_result(&self, result: StoredResult) -> Result<(), Error> {
        self.open_tables()?.results.insert(result.key, result);
        Ok(())
    }

    async fn purge_results(&self, tool: Option<&str>, _: Option<NewEntry>) -> Result<u64, Error> {
        let mut tables = self.tables();
        let before = tables.results.len();
        tables
            .results
            .retain(|_, result| tool.is_some_and(|tool| tool != result.tool));
        Ok((before - tables.results.len()) as u64)
    }

    async fn list_switches(&self) -> Result<Vec<Switch>, Error> {
        let switch = |(tool, enabled): (&String, &bool)| Switch {
            tool: tool.clone(),
            enabled: *enabled,
        };
        Ok(self.tables().switches.iter().map(switch).collect())
    }

    async fn set_switch(&self, switch: Switch, _: Option<NewEntry>) -> Result<(), Error> {
        self.open_tables()?
            .switches
            .insert(switch.tool, switch.enabled);
        Ok(())
    }

    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        let mut tables = self.open_tables()?;
        let old = tables.rows.values().filter(|row| {
            row.id < InvocationId::lower_bound(before) && row.state != State::Reserved
        });
        let old = old.filter(|row| row.key_until.is_none_or(|until| until <= now));
        let old: Vec<InvocationId> = old.take(at_most as usize).map(|row| row.id).collect();
        for id in &old {
            tables.rows.remove(id);
            tables.attempts.retain(|attempt| attempt.invocation != *id);
        }
        Ok(old.len() as u64)
    }

    async fn trim(&self, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        let mut tables = self.open_tables()?;
        let is_deletable = |row: &&Row| {
            let ended = !matches!(row.state, State::Reserved | State::Unknown);
            ended && (row.state == State::Refused || !tables.committed_before_run.contains(&row.id))
        };
        let newest = tables.rows.keys().next_back().copied();
        let deletable = tables
            .rows
            .values()
            .filter(is_deletable)
            .map(|row| row.id)
            .filter(|id| Some(*id) != newest);
        let mut deletable: Vec<InvocationId> = deletable.collect();
        let results = |tables: &Tables, expired: bool| -> Vec<[u8; 32]> {
            let matching = tables
                .results
                .values()
                .filter(|result| !expired || result.expires_at <= now);
            matching
                .take(at_most as usize)
                .map(|result| result.key)
                .collect()
        };
        let expired = results(&tables, true);
        let deleted_results = if expired.is_empty() && deletable.is_empty() {
            results(&tables, false)
        } else {
            expired
        };
        if !deleted_results.is_empty() {
            deleted_results
                .iter()
                .for_each(|key| drop(tables.results.remove(key)));
            return Ok(deleted_results.len() as u64);
        }
        deletable.truncate(at_most as usize);
        for id in &deletable {
            tables.rows.remove(id);
            tables.attempts.retain(|attempt| attempt.invocation != *id);
        }
        Ok(deletable.len() as u64)
    }

    async fn counter_drift(&self) -> Result<u64, Error> {
        Ok(self.tables().drift)
    }

    async fn registered_tools(&self) -> Result<Vec<RegisteredTool>, Error> {
        Ok(self.tables().registered.values().cloned().collect())
    }

    async fn register_tool(&self, tool: RegisteredTool) -> Result<(), Error> {
        self.open_tables()?
            .registered
            .insert(tool.name.clone(), tool);
        Ok(())
    }

    async fn append_audit(&self, _: NewEntry) -> Result<(), Error> {
        Ok(())
    }

    async fn unregister_tool(&self, name: &str, _: Option<NewEntry>) -> Result<bool, Error> {
        Ok(self.open_tables()?.registered.remove(name).is_some())
    }

    async fn request_approval(&self, row: ApprovalRow) -> Result<Option<InvocationId>, Error> {
        let delay = {
            let mut tables = self.open_tables()?;
            let holder = tables.approvals.values().find(|held| {
                !held.done
                    && row.idempotency_key.is_some()
                    && held.idempotency_key == row.idempotency_key
                    && (&held.caller, &held.tool) == (&row.caller, &row.tool)
            });
            if let Some(holder) = holder {
                return Ok(Some(holder.invocation));
            }
            tables.approvals.insert(row.invocation, row);
            tables.request_delay
        };
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        Ok(None)
    }

    async fn living_processes(&self) -> Result<Vec<Arc<str>>, Error> {
        Ok(self.tables().living.clone())
    }

    async fn change_approval(&self, change: ApprovalChange) -> Result<bool, Error> {
        let mut tables = self.open_tables()?;
        let before = tables.before_change.take();
        if let Some(row) = tables.approvals.get_mut(&change.invocation)
            && let Some(before) = before
        {
            before(row);
        }
        let found = tables.approvals.get_mut(&change.invocation).filter(|row| {
            row.state == change.from
                && !row.done
                && change
                    .from_runner
                    .as_ref()
                    .is_none_or(|runner| *runner == row.runner)
                && change.unexpired_at.is_none_or(|at| row.expires_at > at)
        });
        let Some(row) = found else { return Ok(false) };
        (row.state, row.runner, row.done) = (change.to, change.runner, change.done);
        if change.done {
            row.call = None;
        }
        if let Some(made) = change.decision {
            row.decided_at = Some(made.at);
            row.decided_by = Some(made.by);
            row.note = made.note.or(row.note.take());
            row.changed_arguments = made.changed_arguments.or(row.changed_arguments.take());
        }
        Ok(true)
    }

    async fn mark_approval(&self, id: InvocationId, mark: ApprovalMark) -> Result<(), Error> {
        let mut tables = self.open_tables()?;
        match mark {
            ApprovalMark::Notified => {
                if let Some(row) = tables.approvals.get_mut(&id) {
                    row.notified = true;
                }
            }
            ApprovalMark::Message(message) => {
                tables.approval_messages.insert(id, message);
            }
        }
        Ok(())
    }

    async fn approval_message(&self, id: InvocationId) -> Result<Option<Arc<str>>, Error> {
        Ok(self.tables().approval_messages.get(&id).cloned())
    }

    async fn find_approval(&self, id: InvocationId) -> Result<Option<ApprovalRow>, Error> {
        Ok(self.tables().approvals.get(&id).cloned())
    }

    async fn count_waiting(&self, caller: &str) -> Result<(u64, u64), Error> {
        let tables = self.tables();
        let waiting = tables.approvals.values();
        let waiting = waiting.filter(|row| row.state == crate::ledger::ApprovalState::Waiting);
        let own = waiting.clone().filter(|row| *row.caller == *caller);
        Ok((own.count() as u64, waiting.count() as u64))
    }

    async fn list_approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRow>, Error> {
        let tables = self.tables();
        let matching = tables
            .approvals
            .values()
            .rev()
            .filter(|row| query.matches(row));
        Ok(matching.take(query.limit as usize).cloned().collect())
    }

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        let reason = "a ledger in memory cannot be copied".into();
        Err(Error::BackupFailed {
            place: to.display().to_string(),
            reason,
        })
    }

    fn check_health(&self) -> Result<(), String> {
        Ok(())
    }

    fn accepts_calls(&self) -> Result<(), String> {
        self.check_health()
    }

    async fn wait_for_failure(&self) -> Error {
        std::future::pending().await
    }

    async fn close(&self) {
        self.tables().closed = true;
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

impl ApprovalQuery {
    /// Whether an approval matches.
    fn matches(&self, row: &ApprovalRow) -> bool {
        use ApprovalState::{Approved, Started, Waiting};
        let is_visible = |name: &String| {
            *row.caller == **name || row.approvers().any(|approver| approver == name)
        };
        self.state
            .is_none_or(|state| state == row.state || (state == Approved && row.state == Started))
            && self.tool.as_ref().is_none_or(|tool| *row.tool == **tool)
            && self.visible_to.as_ref().is_none_or(is_visible)
            && self
                .idempotency_key
                .as_deref()
                .is_none_or(|key| !row.done && row.idempotency_key.as_deref() == Some(key))
            && self
                .due_at
                .is_none_or(|now| !row.done && (row.state != Waiting || row.expires_at <= now))
            && !(self.unnotified && row.notified)
            && self.before.is_none_or(|before| row.invocation < before)
    }
}

impl ExportQuery {
    /// Whether a call matches.
    fn matches(&self, row: &Row) -> bool {
        let (first, end) = self.id_range();
        row.state != State::Reserved
            && row.id >= first
            && end.is_none_or(|end| row.id < end)
            && self.after.is_none_or(|after| row.id > after)
            && self.tool.as_deref().is_none_or(|tool| *tool == *row.tool)
    }
}
