//! A ledger in memory for tests with a paused clock. SQLite's thread would not follow a paused clock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use jiff::Timestamp;

use super::latency::Latencies;
use super::refusals::{RefusalRow, Refusals};
use super::*;
use crate::call::{Charge, Charged, InvocationId};

/// A ledger in memory, for tests.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Tables>);

type QuotaKey = (String, String, String, crate::call::Per);

#[derive(Default)]
struct Tables {
    rows: BTreeMap<InvocationId, Row>,
    attempts: Vec<AttemptRow>,
    quota: HashMap<QuotaKey, (i64, u64)>,
    results: HashMap<[u8; 32], StoredResult>,
    switches: BTreeMap<String, bool>,
    totals: BTreeMap<(Arc<str>, Arc<str>), (UsageRow, Latencies)>,
    registered: BTreeMap<String, Registered>,
    /// Calls that were committed before their tool ran. `trim` must keep them.
    promised: HashSet<InvocationId>,
    refusals: Refusals<()>,
    drift: u64,
    closed: bool,
}

impl Tables {
    fn total(&mut self, row: &Row) -> &mut (UsageRow, Latencies) {
        let total = self.totals.entry((row.tool.clone(), row.caller.clone())).or_default();
        (total.0.tool, total.0.caller) = (row.tool.to_string(), row.caller.to_string());
        total
    }

    fn begun(&mut self, row: &Row) {
        self.total(row).0.calls += 1;
    }

    fn record(&mut self, row: &Row) {
        if !self.rows.contains_key(&row.id) {
            if row.state == State::Refused
                && let RefusalRow::Shared { row: shared, count, .. } = self.refusals.place(row, |_| ())
            {
                self.begun(row);
                self.ended(row);
                self.rows.entry(shared).and_modify(|shared| shared.count = count);
                return;
            }
            self.begun(row);
            self.ended(row);
            self.rows.insert(row.id, row.clone());
        }
    }

    fn holder(&self, caller: &str, tool: &str, key: &str, now: Timestamp) -> Option<&Row> {
        let held = |row: &&Row| row.key_until.is_some_and(|until| until > now);
        let same = |row: &&Row| (&*row.caller, &*row.tool, row.idempotency_key.as_deref()) == (caller, tool, Some(key));
        self.rows.values().filter(held).find(same)
    }

    fn ended(&mut self, row: &Row) {
        let (total, latencies) = self.total(row);
        match row.state {
            State::Succeeded => total.succeeded += 1,
            State::Refused => total.refused += 1,
            State::Reserved | State::Running => {}
            State::Failed | State::TimedOut | State::Cancelled | State::Unknown => total.failed += 1,
        }
        if row.state != State::Refused {
            row.duration_us.iter().for_each(|us| latencies.add(*us));
        }
    }
}

impl Memory {
    /// Sets the number that `drift` returns.
    pub(super) fn set_drift(&self, units: u64) {
        self.tables().drift = units;
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap()
    }

    fn open_tables(&self) -> Result<MutexGuard<'_, Tables>, Error> {
        let tables = self.tables();
        if tables.closed { Err(Error::Closed) } else { Ok(tables) }
    }
}

fn key(charge: &Charge) -> QuotaKey {
    (charge.tool.clone(), charge.caller.clone(), charge.run.clone(), charge.per)
}

#[async_trait]
impl Ledger for Memory {
    async fn reserve(&self, row: Row, charges: Vec<Charge>) -> Result<Reservation, ReserveError> {
        let mut tables = self.open_tables()?;
        if let Some(holder) =
            row.idempotency_key.as_ref().and_then(|key| tables.holder(&row.caller, &row.tool, key, row.started_at))
        {
            return Err(ReserveError::Claimed(holder.id));
        }
        let at = |charge: &Charge| Charged::at(charge.clone(), tables.quota.get(&key(charge)).copied(), row.started_at);
        let mut charged: Vec<Charged> = charges.iter().map(at).collect();
        if let Some(full) = charged.iter().find(|charged| charged.used >= charged.charge.limit) {
            return Err(ReserveError::LimitReached(full.clone()));
        }
        for one in &mut charged {
            one.used += 1;
            tables.quota.insert(key(&one.charge), (one.window_start, one.used));
        }
        tables.begun(&row);
        tables.promised.insert(row.id);
        tables.rows.insert(row.id, row);
        Ok(Reservation { charged })
    }

    async fn record(&self, row: Arc<Row>) -> Result<(), Error> {
        self.open_tables()?.record(&row);
        Ok(())
    }

    fn record_behind(&self, row: Arc<Row>, held: HeldUntilCommit) {
        if let Ok(mut tables) = self.open_tables() {
            tables.record(&row);
        }
        drop(held);
    }

    async fn settle(&self, row: Arc<Row>, refunds: Vec<Charged>) -> Result<(), Error> {
        let mut tables = self.open_tables()?;
        for refund in refunds {
            if let Some((start, used)) = tables.quota.get_mut(&key(&refund.charge))
                && *start == refund.window_start
            {
                *used = used.saturating_sub(1);
            }
        }
        if tables.rows.get(&row.id).is_some_and(|there| there.state == State::Reserved) {
            tables.ended(&row);
            tables.rows.insert(row.id, Row::clone(&row));
        }
        Ok(())
    }

    fn is_strict(&self) -> bool {
        false
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn attempt(&self, row: AttemptRow) -> Result<(), Error> {
        self.open_tables()?.attempts.push(row);
        Ok(())
    }

    async fn get(&self, id: InvocationId) -> Result<Option<RecordedCall>, Error> {
        let tables = self.tables();
        let Some(row) = tables.rows.get(&id).cloned() else { return Ok(None) };
        let attempts = tables.attempts.iter().filter(|attempt| attempt.invocation == id).cloned().collect();
        let origin = row.origin.and_then(|origin| tables.rows.get(&origin));
        Ok(Some(RecordedCall { origin_result: origin.and_then(|row| row.result.clone()), row, attempts }))
    }

    async fn claimed(&self, caller: &str, tool: &str, key: &str, now: Timestamp) -> Result<Option<Row>, Error> {
        Ok(self.tables().holder(caller, tool, key, now).cloned())
    }

    async fn list(&self, query: &Query) -> Result<Vec<Row>, Error> {
        let tables = self.tables();
        let matching = tables.rows.values().rev().filter(|row| query.matches(row));
        Ok(matching.take(query.limit as usize).cloned().collect())
    }

    async fn usage(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error> {
        let tables = self.tables();
        let of = tables.totals.values().filter(|(total, _)| caller.is_none_or(|caller| caller == total.caller));
        let row = |(total, latencies): &(UsageRow, Latencies)| {
            let (p50_ms, p99_ms) = (latencies.quantile_ms(50), latencies.quantile_ms(99));
            UsageRow { p50_ms, p99_ms, ..total.clone() }
        };
        Ok(of.map(row).collect())
    }

    async fn used(&self, charges: &[Charge], now: Timestamp) -> Result<Vec<Charged>, Error> {
        let tables = self.tables();
        let at = |charge: &Charge| Charged::at(charge.clone(), tables.quota.get(&key(charge)).copied(), now);
        Ok(charges.iter().map(at).collect())
    }

    async fn reset(&self, tool: &str, caller: Option<&str>) -> Result<(), Error> {
        let named = |key: &QuotaKey| caller.is_some_and(|caller| key.1 == caller);
        self.tables()
            .quota
            .retain(|key, _| !(key.0 == tool && (caller.is_none() || named(key)) || key.0.is_empty() && named(key)));
        Ok(())
    }

    async fn stored(&self, key: &[u8; 32], now: Timestamp) -> Result<Option<StoredResult>, Error> {
        Ok(self.tables().results.get(key).filter(|result| result.expires_at > now).cloned())
    }

    async fn store(&self, result: StoredResult) -> Result<(), Error> {
        self.open_tables()?.results.insert(result.key, result);
        Ok(())
    }

    async fn purge(&self, tool: Option<&str>) -> Result<u64, Error> {
        let mut tables = self.tables();
        let before = tables.results.len();
        tables.results.retain(|_, result| tool.is_some_and(|tool| tool != result.tool));
        Ok((before - tables.results.len()) as u64)
    }

    async fn switches(&self) -> Result<Vec<Switch>, Error> {
        let switch = |(tool, enabled): (&String, &bool)| Switch { tool: tool.clone(), enabled: *enabled };
        Ok(self.tables().switches.iter().map(switch).collect())
    }

    async fn switch(&self, switch: Switch) -> Result<(), Error> {
        self.open_tables()?.switches.insert(switch.tool, switch.enabled);
        Ok(())
    }

    async fn prune(&self, before: Timestamp, now: Timestamp, at_most: u32) -> Result<u64, Error> {
        let mut tables = self.open_tables()?;
        let old =
            tables.rows.values().filter(|row| row.id < InvocationId::floor(before) && row.state != State::Reserved);
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
        let is_free = |row: &&Row| {
            let ended = !matches!(row.state, State::Reserved | State::Unknown);
            ended && (row.state == State::Refused || !tables.promised.contains(&row.id))
        };
        let newest = tables.rows.keys().next_back().copied();
        let free = tables.rows.values().filter(is_free).map(|row| row.id).filter(|id| Some(*id) != newest);
        let mut free: Vec<InvocationId> = free.collect();
        let results = |tables: &Tables, expired: bool| -> Vec<[u8; 32]> {
            let there = tables.results.values().filter(|result| !expired || result.expires_at <= now);
            there.take(at_most as usize).map(|result| result.key).collect()
        };
        let expired = results(&tables, true);
        let gone = if expired.is_empty() && free.is_empty() { results(&tables, false) } else { expired };
        if !gone.is_empty() {
            gone.iter().for_each(|key| drop(tables.results.remove(key)));
            return Ok(gone.len() as u64);
        }
        free.truncate(at_most as usize);
        for id in &free {
            tables.rows.remove(id);
            tables.attempts.retain(|attempt| attempt.invocation != *id);
        }
        Ok(free.len() as u64)
    }

    async fn drift(&self) -> Result<u64, Error> {
        Ok(self.tables().drift)
    }

    async fn registered(&self) -> Result<Vec<Registered>, Error> {
        Ok(self.tables().registered.values().cloned().collect())
    }

    async fn register(&self, tool: Registered) -> Result<(), Error> {
        self.open_tables()?.registered.insert(tool.name.clone(), tool);
        Ok(())
    }

    async fn unregister(&self, name: &str) -> Result<bool, Error> {
        Ok(self.open_tables()?.registered.remove(name).is_some())
    }

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        let reason = "a ledger in memory cannot be copied".into();
        Err(Error::Backup { place: to.display().to_string(), reason })
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    async fn failed(&self) -> Error {
        std::future::pending().await
    }

    async fn close(&self) {
        self.tables().closed = true;
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}
