//! A ledger that forgets, for tests under a paused clock: SQLite's thread does not know about paused time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use super::*;

/// See the module.
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
    closed: bool,
}

impl Memory {
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
        let at = |charge: &Charge| Charged::at(charge.clone(), tables.quota.get(&key(charge)).copied(), row.started_at);
        let mut charged: Vec<Charged> = charges.iter().map(at).collect();
        if let Some(full) = charged.iter().find(|charged| charged.used >= charged.charge.limit) {
            return Err(ReserveError::LimitReached(full.clone()));
        }
        for one in &mut charged {
            one.used += 1;
            tables.quota.insert(key(&one.charge), (one.window_start, one.used));
        }
        tables.rows.insert(row.id, row);
        Ok(Reservation { charged })
    }

    async fn record(&self, row: Arc<Row>) -> Result<(), Error> {
        self.open_tables()?.rows.entry(row.id).or_insert_with(|| Row::clone(&row));
        Ok(())
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

    async fn get(&self, id: InvocationId) -> Result<Option<Found>, Error> {
        let tables = self.tables();
        let Some(row) = tables.rows.get(&id).cloned() else { return Ok(None) };
        let attempts = tables.attempts.iter().filter(|attempt| attempt.invocation == id).cloned().collect();
        let origin = row.origin.and_then(|origin| tables.rows.get(&origin));
        Ok(Some(Found { origin_result: origin.and_then(|row| row.result.clone()), row, attempts }))
    }

    async fn list(&self, query: &Query) -> Result<Vec<Row>, Error> {
        let tables = self.tables();
        let matching = tables.rows.values().rev().filter(|row| query.matches(row));
        Ok(matching.take(query.limit as usize).cloned().collect())
    }

    async fn usage(&self, caller: Option<&str>) -> Result<Vec<UsageRow>, Error> {
        let mut totals: BTreeMap<(String, String), (UsageRow, Vec<i64>)> = BTreeMap::new();
        for row in self.tables().rows.values().filter(|row| caller.is_none_or(|caller| caller == row.caller)) {
            let (total, durations) = totals.entry((row.tool.clone(), row.caller.clone())).or_default();
            (total.tool, total.caller) = (row.tool.clone(), row.caller.clone());
            total.calls += 1;
            match row.state {
                State::Succeeded => total.succeeded += 1,
                State::Refused => total.refused += 1,
                State::Reserved | State::Running => {}
                State::Failed | State::TimedOut | State::Cancelled | State::Unknown => total.failed += 1,
            }
            durations.extend(row.duration_us.filter(|_| row.state != State::Refused));
        }
        let with_quantiles = |(mut total, mut durations): (UsageRow, Vec<i64>)| {
            durations.sort_unstable();
            let rank = |percent: usize| (durations.len() * percent).div_ceil(100).max(1) - 1;
            let at = |percent| durations.get(rank(percent)).map(|us| *us as f64 / 1000.0);
            (total.p50_ms, total.p99_ms) = (at(50), at(99));
            total
        };
        Ok(totals.into_values().map(with_quantiles).collect())
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

    async fn backup(&self, to: &Path) -> Result<u64, Error> {
        let reason = "a ledger in memory cannot be copied".into();
        Err(Error::Backup { place: to.display().to_string(), reason })
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    async fn close(&self) {
        self.tables().closed = true;
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}
