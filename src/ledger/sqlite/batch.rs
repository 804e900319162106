//! One commit: everything the writer collected while the last one was under way.
//!
//! Each kind of row is one statement over a JSON array (`json_each`), so a batch costs a few hops to SQLite's thread
//! however many rows it has. Row by row is 5 to 8 times slower.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

use super::super::{AttemptRow, Reservation, Row, StoredResult};
use crate::call::{Charge, Charged, Per};

/// Inserts whole rows. One that is there stays as it is: a row of the backlog may have been written before the error.
const WRITE_ROWS: &str = "insert into invocation (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, \
    attempts, started_at, duration_us, arguments, result, origin, meta) \
    select unhex(value->>0), value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8, \
    value->>9, value->>10, value->>11, value->>12, value->>13, unhex(value->>14), value->>15 from json_each(?) \
    where true on conflict (id) do nothing";
/// Ends reserved rows. Any other row stays as it is: a call ends once.
const SETTLE_ROWS: &str = "update invocation set state = end.value->>1, kind = end.value->>2, cache = end.value->>3, \
    attempts = end.value->>4, duration_us = end.value->>5, result = end.value->>6, origin = unhex(end.value->>7), \
    meta = end.value->>8 from json_each(?) as end \
    where invocation.id = unhex(end.value->>0) and invocation.state = 'reserved'";
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
const WRITE_QUOTA: &str = "insert into quota (tool, caller, run, per, window_start, used) \
    select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5 from json_each(?) \
    where true on conflict do update set window_start = excluded.window_start, used = excluded.used";
const REFUND: &str = "update quota set used = max(0, used - (back.value->>5)) from json_each(?) as back \
    where tool = back.value->>0 and caller = back.value->>1 and run = back.value->>2 and per = back.value->>3 \
    and window_start = back.value->>4";

type QuotaKey = (String, String, String, Per);

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

    /// Writes everything or nothing; answers each reservation, in order. After an error the caller rolls back.
    pub(super) async fn commit(&self, connection: &mut SqliteConnection) -> Result<Vec<Reserved>, sqlx::Error> {
        let refunds = self.refunds();
        let mut script = Script::default();
        let mut open = false;
        let mut answers = Vec::new();

        if !refunds.is_empty() || self.reserves.iter().any(|(_, charges)| !charges.is_empty()) {
            open = true;
            script.add("begin immediate");
            script.add_with(REFUND, &refunds);
            // Calls that meet in a batch mostly share their limits.
            let keys: HashSet<_> = self.reserves.iter().flat_map(|(_, charges)| charges).map(key_of).collect();
            script.add_with(READ_QUOTA, &keys.into_iter().collect::<Vec<_>>());
            let rows = std::mem::take(&mut script).fetch(connection).await?;
            let mut quota = read_quota(&rows)?;
            answers = self.admit(&mut quota);
            let charged = answers.iter().flatten().flat_map(|made| &made.charged);
            let touched: HashSet<QuotaKey> = charged.map(|charged| owned(key_of(&charged.charge))).collect();
            let counted = quota.iter().filter(|(key, _)| touched.contains(key));
            let lines = counted.map(|((tool, caller, run, per), now)| (tool, caller, run, per.as_str(), now.0, now.1));
            script.add_with(WRITE_QUOTA, &lines.collect::<Vec<_>>());
        } else {
            answers.extend(self.reserves.iter().map(|_| Ok(Reservation::default())));
        }

        let admitted = self.reserves.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        let rows: Vec<_> = admitted.map(|((row, _), _)| line(row)).collect();
        script.add_with(WRITE_ROWS, &rows);
        let rows: Vec<_> = self.records.iter().map(|row| line(row)).collect();
        script.add_with(WRITE_ROWS, &rows);
        let rows: Vec<_> = self.settles.iter().map(|(row, _)| end_line(row)).collect();
        script.add_with(SETTLE_ROWS, &rows);
        let rows: Vec<_> = self.attempts.iter().map(attempt_line).collect();
        script.add_with(WRITE_ATTEMPTS, &rows);
        let rows: Vec<_> = self.results.iter().map(result_line).collect();
        script.add_with(DROP_EXPIRED, &rows);
        script.add_with(WRITE_RESULTS, &rows);
        script.finish(connection, open).await?;
        Ok(answers)
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

/// A row as the JSON array that [`WRITE_ROWS`] reads.
fn line(row: &Row) -> impl Serialize + '_ {
    (
        hex::encode(row.id.as_bytes()),
        &row.tool,
        &row.caller,
        &row.run_id,
        &row.tool_use_id,
        row.state.as_str(),
        row.kind.map(|kind| kind.as_str()),
        row.effect.as_str(),
        row.cache.as_str(),
        row.attempts,
        row.started_at.as_millisecond(),
        row.duration_us,
        &row.arguments,
        &row.result,
        row.origin.map(|id| hex::encode(id.as_bytes())),
        &row.meta,
    )
}

/// The end of a row as the JSON array that [`SETTLE_ROWS`] reads.
fn end_line(row: &Row) -> impl Serialize + '_ {
    (
        hex::encode(row.id.as_bytes()),
        row.state.as_str(),
        row.kind.map(|kind| kind.as_str()),
        row.cache.as_str(),
        row.attempts,
        row.duration_us,
        &row.result,
        row.origin.map(|id| hex::encode(id.as_bytes())),
        &row.meta,
    )
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

/// Statements that go to SQLite in one hop. The texts are the constants above, so joining them is safe; values are
/// always bound.
#[derive(Default)]
struct Script {
    statements: Vec<&'static str>,
    arguments: Vec<String>,
}

impl Script {
    fn add(&mut self, sql: &'static str) {
        self.statements.push(sql);
    }

    /// Adds a statement over `rows`, unless there are none.
    fn add_with(&mut self, sql: &'static str, rows: &[impl Serialize]) {
        if !rows.is_empty() {
            self.statements.push(sql);
            self.arguments.push(serde_json::to_string(rows).unwrap_or_default());
        }
    }

    async fn fetch(self, connection: &mut SqliteConnection) -> Result<Vec<sqlx::sqlite::SqliteRow>, sqlx::Error> {
        let mut query = sqlx::query(AssertSqlSafe(self.statements.join("; ")));
        for argument in self.arguments {
            query = query.bind(argument);
        }
        query.fetch_all(connection).await
    }

    /// Runs what is left as one transaction. A single statement is one by itself.
    async fn finish(mut self, connection: &mut SqliteConnection, open: bool) -> Result<(), sqlx::Error> {
        if !open && self.statements.len() > 1 {
            self.statements.insert(0, "begin immediate");
        }
        if open || self.statements.len() > 1 {
            self.statements.push("commit");
        }
        if self.statements.is_empty() {
            return Ok(());
        }
        self.fetch(connection).await.map(|_| ())
    }
}
