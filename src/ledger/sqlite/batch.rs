//! One commit: everything the writer collected while the last one was under way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use sqlx::{Row as _, SqliteConnection};

use super::super::{AttemptRow, Reservation, Row, StoredResult};
use super::script::Script;
use super::totals::Totals;
use crate::call::{Charge, Charged, Per};

const WRITE_ATTEMPTS: &str = "insert or ignore into attempt (invocation, attempt, kind, message, duration_us) \
    select unhex(value->>0), value->>1, value->>2, value->>3, value->>4 from json_each(?)";
const WRITE_RESULTS: &str = "insert into stored_result (key, tool, origin, result, stored_at, expires_at) \
    select unhex(value->>0), value->>1, unhex(value->>2), value->>3, value->>4, value->>5 from json_each(?) \
    where true on conflict (key) do update set tool = excluded.tool, origin = excluded.origin, \
    result = excluded.result, stored_at = excluded.stored_at, expires_at = excluded.expires_at";
/// A few results that have expired go with every few that come, so that they never pile up.
const DROP_EXPIRED: &str = "delete from stored_result where key in (select key from stored_result \
    where expires_at <= (select max(value->>4) from json_each(?)) limit 64)";
const READ_QUOTA: &str = "select tool, caller, run, per, window_start, used from quota where (tool, caller, run, per) \
    in (select value->>0, value->>1, value->>2, value->>3 from json_each(?))";
const CHECK_QUOTA: &str = "insert into quota_moved select 1 from json_each(?) as known left join quota as q \
    on q.tool = known.value->>0 and q.caller = known.value->>1 and q.run = known.value->>2 and q.per = known.value->>3 \
    where q.window_start is not known.value->>4 or q.used is not known.value->>5";
const WRITE_QUOTA: &str = "insert into quota (tool, caller, run, per, window_start, used, counted_at) \
    select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6 from json_each(?) where true \
    on conflict do update set window_start = excluded.window_start, used = excluded.used, \
    counted_at = excluded.counted_at";
const REFUND: &str = "update quota set used = max(0, used - (back.value->>5)) from json_each(?) as back \
    where tool = back.value->>0 and caller = back.value->>1 and run = back.value->>2 and per = back.value->>3 \
    and window_start = back.value->>4";

const WRITE_TOTALS: &str = "insert into usage_total (caller, tool, calls, succeeded, failed, refused, cache_hits) \
    select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6 from json_each(?) where true \
    on conflict do update set calls = calls + excluded.calls, succeeded = succeeded + excluded.succeeded, \
    failed = failed + excluded.failed, refused = refused + excluded.refused, \
    cache_hits = cache_hits + excluded.cache_hits";
const WRITE_LATENCIES: &str = "insert into usage_latency (caller, tool, bucket, calls) \
    select value->>0, value->>1, value->>2, value->>3 from json_each(?) where true \
    on conflict do update set calls = calls + excluded.calls";

type QuotaKey = (String, String, String, Per);

/// The counters as they were last written or read here: window start and units. What they say is checked in the commit
/// that counts on from them, which saves a hop for reading them first.
#[derive(Default)]
pub(super) struct Counters(HashMap<QuotaKey, (i64, u64)>);

/// Counters remembered; beyond it all are forgotten, which costs each one hop.
const REMEMBERED: usize = 4096;

impl Counters {
    /// Forgets all: somebody else may have changed them.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// All of these, if every one is known.
    fn known(&self, keys: &[(&str, &str, &str, &'static str)]) -> Option<HashMap<QuotaKey, (i64, u64)>> {
        let known = |key: &(&str, &str, &str, &'static str)| {
            let key = owned(*key);
            self.0.get(&key).copied().map(|counted| (key, counted))
        };
        keys.iter().map(known).collect()
    }

    fn remember(&mut self, counted: HashMap<QuotaKey, (i64, u64)>) {
        if self.0.len() > REMEMBERED {
            self.forget();
        }
        self.0.extend(counted);
    }
}

/// Whether a commit failed because a remembered counter was not what it was.
pub(super) fn moved(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("quota_moved"))
}

/// What one commit holds.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) reserves: Vec<(Row, Vec<Charge>)>,
    pub(super) records: Vec<Arc<Row>>,
    pub(super) settles: Vec<(Arc<Row>, Vec<Charged>)>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) results: Vec<StoredResult>,
}

/// What became of a reservation: made, or stopped by this limit.
pub(super) type Reserved = Result<Reservation, Charged>;

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.reserves.is_empty()
            && self.records.is_empty()
            && self.settles.is_empty()
            && self.attempts.is_empty()
            && self.results.is_empty()
    }

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        let ends = self.records.len() + self.settles.len();
        self.reserves.len() + ends + self.attempts.len() + self.results.len()
    }

    /// Writes everything or nothing, and `durations` with it; answers each reservation, in order. After an error the
    /// caller rolls back and forgets the counters.
    pub(super) async fn commit(
        &self,
        connection: &mut SqliteConnection,
        counters: &mut Counters,
        durations: &[impl Serialize],
    ) -> Result<Vec<Reserved>, sqlx::Error> {
        let mut script = Script::default();
        script.add("begin immediate");
        let refunds = self.refunds();
        if !refunds.is_empty() {
            script.add_with(REFUND, &refunds);
            counters.forget();
        }
        // Calls that meet in a batch mostly share their limits.
        let keys: HashSet<_> = self.reserves.iter().flat_map(|(_, charges)| charges).map(key_of).collect();
        let keys: Vec<_> = keys.into_iter().collect();
        let mut quota = match counters.known(&keys) {
            Some(known) => {
                let line = |(key, counted): (&QuotaKey, &(i64, u64))| {
                    (key.0.clone(), key.1.clone(), key.2.clone(), key.3.as_str(), counted.0, counted.1)
                };
                script.add_with(CHECK_QUOTA, &known.iter().map(line).collect::<Vec<_>>());
                known
            }
            None => {
                script.add_with(READ_QUOTA, &keys);
                read_quota(&std::mem::take(&mut script).fetch(connection).await?)?
            }
        };
        let answers = self.admit(&mut quota);
        script.add_with(WRITE_QUOTA, &self.counted(&answers, &quota));

        let admitted = self.reserves.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        let begun = admitted.map(|((row, _), _)| row);
        let records = self.records.iter().map(|row| &**row);
        let settles = self.settles.iter().map(|(row, _)| &**row);
        script.add_rows(begun.clone().chain(records.clone()).chain(settles.clone()));
        let mut totals = Totals::default();
        begun.chain(records.clone()).for_each(|row| totals.begun(row));
        records.chain(settles).for_each(|row| totals.ended(row));
        script.add_with(WRITE_TOTALS, &totals.lines());
        script.add_with(WRITE_LATENCIES, durations);
        let rows: Vec<_> = self.attempts.iter().map(attempt_line).collect();
        script.add_with(WRITE_ATTEMPTS, &rows);
        let rows: Vec<_> = self.results.iter().map(result_line).collect();
        script.add_with(DROP_EXPIRED, &rows);
        script.add_with(WRITE_RESULTS, &rows);
        script.add("commit");
        script.fetch(connection).await?;
        counters.remember(quota);
        Ok(answers)
    }

    /// The calls that have ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Row> {
        let settles = self.settles.iter().map(|(row, _)| row);
        self.records.iter().chain(settles).map(|row| &**row)
    }

    /// The counters that the admitted reservations have moved, as lines of `quota`.
    fn counted<'a>(
        &'a self,
        answers: &[Reserved],
        quota: &'a HashMap<QuotaKey, (i64, u64)>,
    ) -> Vec<impl Serialize + 'a> {
        let mut touched: HashMap<QuotaKey, i64> = HashMap::new();
        for ((row, _), answer) in self.reserves.iter().zip(answers) {
            for charged in answer.iter().flat_map(|made| &made.charged) {
                touched.insert(owned(key_of(&charged.charge)), row.started_at.as_millisecond());
            }
        }
        let line = |(key, (start, used)): (&'a QuotaKey, &(i64, u64))| {
            let counted_at = *touched.get(key)?;
            let (tool, caller, run, per) = key;
            Some((tool, caller, run, per.as_str(), *start, *used, counted_at))
        };
        quota.iter().filter_map(line).collect()
    }

    /// Decides each reservation against the counted units, in order, counting as it goes.
    fn admit(&self, quota: &mut HashMap<QuotaKey, (i64, u64)>) -> Vec<Reserved> {
        let mut answers = Vec::with_capacity(self.reserves.len());
        for (row, charges) in &self.reserves {
            let now = row.started_at;
            let counted = charges.iter().map(|charge| {
                let stored = quota.get(&owned(key_of(charge))).copied();
                Charged::at(charge.clone(), stored, now)
            });
            let mut counted: Vec<Charged> = counted.collect();
            if let Some(full) = counted.iter().find(|c| c.used >= c.charge.limit) {
                answers.push(Err(full.clone()));
                continue;
            }
            for charged in &mut counted {
                charged.used += 1;
                quota.insert(owned(key_of(&charged.charge)), (charged.window_start, charged.used));
            }
            answers.push(Ok(Reservation { charged: counted }));
        }
        answers
    }

    /// Units to give back, summed by key and window.
    fn refunds(&self) -> Vec<(&str, &str, &str, &str, i64, u64)> {
        let mut sums: HashMap<_, u64> = HashMap::new();
        for charged in self.settles.iter().flat_map(|(_, refunds)| refunds) {
            *sums.entry((key_of(&charged.charge), charged.window_start)).or_default() += 1;
        }
        sums.into_iter().map(|(((tool, caller, run, per), start), n)| (tool, caller, run, per, start, n)).collect()
    }
}

fn key_of(charge: &Charge) -> (&str, &str, &str, &'static str) {
    (&charge.tool, &charge.caller, &charge.run, charge.per.as_str())
}

fn owned((tool, caller, run, per): (&str, &str, &str, &str)) -> QuotaKey {
    (tool.to_owned(), caller.to_owned(), run.to_owned(), per_of(per))
}

pub(super) fn per_of(word: &str) -> Per {
    let all = [Per::Minute, Per::Hour, Per::Day, Per::Month, Per::Run, Per::Lifetime];
    all.into_iter().find(|per| per.as_str() == word).unwrap_or(Per::Lifetime)
}

fn read_quota(rows: &[sqlx::sqlite::SqliteRow]) -> Result<HashMap<QuotaKey, (i64, u64)>, sqlx::Error> {
    let read = |row: &sqlx::sqlite::SqliteRow| {
        let key = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, per_of(row.try_get(3)?));
        let used: i64 = row.try_get(5)?;
        Ok((key, (row.try_get(4)?, used.unsigned_abs())))
    };
    rows.iter().map(read).collect()
}

fn attempt_line(row: &AttemptRow) -> impl Serialize + '_ {
    (hex::encode(row.invocation.as_bytes()), row.attempt, row.kind.as_str(), &row.message, row.duration_us)
}

fn result_line(row: &StoredResult) -> impl Serialize + '_ {
    (
        hex::encode(row.key),
        &row.tool,
        hex::encode(row.origin.as_bytes()),
        &row.result,
        row.stored_at.as_millisecond(),
        row.expires_at.as_millisecond(),
    )
}
