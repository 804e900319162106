//! One commit: all operations that the writer collected during the last one.

use std::sync::Arc;

use serde::Serialize;
use sqlx::SqliteConnection;

use super::super::{AttemptRow, Reservation, ReserveError, Row, StoredResult};
use super::checksum;
use super::commit_marker;
use super::keys::{self, Keys};
use super::quota::{self, Counters, Open};
use super::script::Script;
use super::totals::Totals;
use crate::call::{Charge, Charged, InvocationId};

const WRITE_ATTEMPTS: &str = "insert or ignore into attempt (invocation, attempt, kind, message, duration_us) \
    select unhex(value->>0), value->>1, value->>2, value->>3, value->>4 from json_each(?)";
const WRITE_RESULTS: &str = "insert into stored_result (key, tool, origin, result, stored_at, expires_at, sum) \
    select unhex(value->>0), value->>1, unhex(value->>2), value->>3, value->>4, value->>5, value->>6 from json_each(?) \
    where true on conflict (key) do update set tool = excluded.tool, origin = excluded.origin, \
    result = excluded.result, stored_at = excluded.stored_at, expires_at = excluded.expires_at, \
    sum = excluded.sum";
/// Each batch with new results also deletes some expired ones, so that they do not accumulate.
const DROP_EXPIRED: &str = "delete from stored_result where key in (select key from stored_result \
    where expires_at <= (select max(value->>4) from json_each(?)) limit 64)";
const WRITE_TOTALS: &str = "insert into usage_total (caller, tool, calls, succeeded, failed, refused, cache_hits) \
    select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6 from json_each(?) where true \
    on conflict do update set calls = calls + excluded.calls, succeeded = succeeded + excluded.succeeded, \
    failed = failed + excluded.failed, refused = refused + excluded.refused, \
    cache_hits = cache_hits + excluded.cache_hits";
const WRITE_LATENCIES: &str = "insert into usage_latency (caller, tool, bucket, calls) \
    select value->>0, value->>1, value->>2, value->>3 from json_each(?) where true \
    on conflict do update set calls = calls + excluded.calls";

/// The backlog may hold several counts for one row after a failed commit. The highest count is the correct one.
const SHARE_ROWS: &str = "update invocation set count = one.value->>1, sum = one.value->>2 from json_each(?) as one \
    where invocation.id = unhex(one.value->>0) and invocation.count < one.value->>1";

/// The content of one commit.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) reserves: Vec<(Row, Vec<Charge>)>,
    pub(super) records: Vec<Arc<Row>>,
    pub(super) settles: Vec<(Arc<Row>, Vec<Charged>)>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) results: Vec<StoredResult>,
    pub(super) shares: Vec<Share>,
}

/// Refused calls that are counted in an existing row.
pub(super) struct Share {
    pub(super) row: InvocationId,
    pub(super) caller: Arc<str>,
    pub(super) tool: Arc<str>,
    /// Number of calls that the row counts, including these.
    pub(super) count: u64,
    /// Number of calls that this entry adds.
    pub(super) added: u64,
    /// The row's checksum with a count of one.
    pub(super) sum: u32,
}

/// The outcome of a reservation.
pub(super) type Reserved = Result<Reservation, ReserveError>;

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.reserves.is_empty()
            && self.records.is_empty()
            && self.settles.is_empty()
            && self.attempts.is_empty()
            && self.results.is_empty()
            && self.shares.is_empty()
    }

    /// Number of rows of ended calls.
    pub(super) fn ends(&self) -> usize {
        self.records.len() + self.settles.len() + self.shares.len()
    }

    /// Counts a refused call in an existing row. All calls of the batch for one row become one update.
    pub(super) fn share(&mut self, share: Share) {
        match self.shares.iter_mut().rev().find(|other| other.row == share.row) {
            Some(other) => {
                other.added += share.added;
                other.count = other.count.max(share.count);
            }
            None => self.shares.push(share),
        }
    }

    /// Takes out the oldest ends and attempts, at most `at_most`.
    pub(super) fn first(&mut self, mut at_most: usize) -> Self {
        let mut first = Self::default();
        move_first(&mut self.settles, &mut first.settles, &mut at_most);
        move_first(&mut self.records, &mut first.records, &mut at_most);
        // After the rows in which they count.
        move_first(&mut self.shares, &mut first.shares, &mut at_most);
        move_first(&mut self.attempts, &mut first.attempts, &mut at_most);
        first
    }

    /// Undoes [`Batch::first`].
    pub(super) fn put_back(&mut self, mut first: Self) {
        first.settles.append(&mut self.settles);
        first.records.append(&mut self.records);
        first.shares.append(&mut self.shares);
        first.attempts.append(&mut self.attempts);
        *self = first;
    }

    /// Approximate size of the rows, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let begun = self.reserves.iter().map(|(row, _)| row.weight());
        let results = self.results.iter().map(|result| result.result.len());
        begun.chain(self.ended().map(Row::weight)).chain(results).sum()
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.reserves.len() + self.ends() + self.attempts.len() + self.results.len()
    }

    /// Writes the whole batch with `durations`, or nothing. Returns the outcome of each reservation, in order, and the
    /// number of the commit. After an error the caller rolls back and drops the cached counters.
    pub(super) async fn commit(
        &self,
        connection: &mut SqliteConnection,
        counters: &mut Counters,
        durations: &[impl Serialize],
    ) -> Result<(Vec<Reserved>, u64), sqlx::Error> {
        // Refunds come first, so that units given back in this batch are free for its reservations. Reservations are
        // then decided with the counters as they are inside this transaction. `begin immediate` takes the write lock
        // before the counters are read or checked, so no other process can change them until the commit.
        let mut script = Script::default();
        script.add("begin immediate");
        if quota::refund(&self.settles, &mut script) {
            counters.forget();
        }
        let mut taken = Keys::default();
        if keys::ask(&self.reserves, &mut script) {
            taken = Keys::read(&std::mem::take(&mut script).fetch(connection).await?)?;
        }
        let mut quota = match counters.recall(&self.reserves, &mut script) {
            Some(known) => known,
            None => {
                quota::ask(&self.reserves, &mut script);
                Open::read(&std::mem::take(&mut script).fetch(connection).await?)?
            }
        };
        let (answers, sets): (Vec<Reserved>, Vec<_>) =
            self.reserves.iter().map(|(row, charges)| taken.claim(row, || quota.admit(row, charges))).unzip();
        taken.release(&mut script);
        quota.write(&mut script);

        let admitted = self.reserves.iter().zip(&answers).zip(sets).filter(|((_, answer), _)| answer.is_ok());
        let begun: Vec<(&Row, Option<String>)> = admitted.map(|(((row, _), _), set)| (row, set)).collect();
        let records = self.records.iter().map(|row| &**row);
        let settles = self.settles.iter().map(|(row, _)| &**row);
        let mut totals = Totals::default();
        begun.iter().map(|(row, _)| *row).chain(records.clone()).for_each(|row| totals.begun(row));
        let given_back = |refunds: &Vec<Charged>| (!refunds.is_empty()).then(String::new);
        let settled = self.settles.iter().map(|(row, refunds)| (&**row, given_back(refunds)));
        script.add_rows(begun.into_iter().chain(records.clone().map(|row| (row, None))).chain(settled));
        records.chain(settles).for_each(|row| totals.ended(row));
        self.shares.iter().for_each(|share| totals.shared(&share.caller, &share.tool, share.added));
        let rows: Vec<_> = self.shares.iter().map(share_line).collect();
        script.add_with(SHARE_ROWS, &rows);
        script.add_with(WRITE_TOTALS, &totals.lines());
        script.add_with(WRITE_LATENCIES, durations);
        let rows: Vec<_> = self.attempts.iter().map(attempt_line).collect();
        script.add_with(WRITE_ATTEMPTS, &rows);
        let rows: Vec<_> = self.results.iter().map(result_line).collect();
        script.add_with(DROP_EXPIRED, &rows);
        script.add_with(WRITE_RESULTS, &rows);
        script.add(commit_marker::COUNT);
        script.add("commit");
        let commits = commit_marker::counted(&script.fetch(connection).await?)?;
        counters.remember(quota);
        Ok((answers, commits))
    }

    /// The calls that have ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Row> {
        let settles = self.settles.iter().map(|(row, _)| row);
        self.records.iter().chain(settles).map(|row| &**row)
    }
}

fn move_first<T>(from: &mut Vec<T>, to: &mut Vec<T>, at_most: &mut usize) {
    let count = from.len().min(*at_most);
    *at_most -= count;
    to.extend(from.drain(..count));
}

fn share_line(share: &Share) -> impl Serialize + use<> {
    (hex::encode(share.row.as_bytes()), share.count, checksum::of_shared(share.sum, share.count))
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
        checksum::of_result(row),
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::State;
    use super::super::super::contract::{ended, now, row};
    use super::*;
    use crate::call::ErrorKind;

    fn share(row: InvocationId, count: u64) -> Share {
        Share { row, caller: "a".into(), tool: "t".into(), count, added: 1, sum: 7 }
    }

    fn full() -> Batch {
        let mut batch = Batch::default();
        let call = row("t", "a", now());
        batch.reserves.push((call.clone(), Vec::new()));
        (0..2).for_each(|_| batch.records.push(ended(&row("t", "a", now()), State::Failed)));
        (0..3).for_each(|_| batch.settles.push((ended(&row("t", "a", now()), State::Succeeded), Vec::new())));
        (0..4).for_each(|n| batch.share(share(InvocationId::new(), n)));
        (0..5).for_each(|attempt| {
            let (kind, message) = (ErrorKind::UpstreamFailed, "no".into());
            batch.attempts.push(AttemptRow { invocation: call.id, attempt, kind, message, duration_us: 1 });
        });
        batch
    }

    #[test]
    fn rows_and_bytes_are_counted() {
        let mut batch = full();
        assert_eq!((batch.ends(), batch.len(), batch.ended().count()), (9, 15, 5));
        let weights: usize = batch.ended().map(Row::weight).sum();
        let begun = batch.reserves[0].0.weight();
        assert_eq!(batch.bytes(), begun + weights);
        let row = &batch.records[0];
        let texts = [&*row.arguments, row.result.as_deref().unwrap(), row.meta.as_deref().unwrap()];
        assert_eq!(row.weight(), 512 + texts.iter().map(|text| text.len()).sum::<usize>());
        batch.results.push(StoredResult {
            key: [0; 32],
            tool: "t".into(),
            origin: InvocationId::new(),
            result: "x".repeat(1000),
            stored_at: now(),
            expires_at: now(),
        });
        assert_eq!((batch.len(), batch.bytes()), (16, begun + weights + 1000));
    }

    #[test]
    fn calls_of_one_row_are_shared_once() {
        let mut batch = Batch::default();
        let (one, other) = (InvocationId::new(), InvocationId::new());
        for (row, count) in [(one, 2), (other, 2), (one, 4), (one, 3)] {
            batch.share(share(row, count));
        }
        let shares: Vec<_> = batch.shares.iter().map(|share| (share.row, share.count, share.added)).collect();
        assert_eq!(shares, [(one, 4, 3), (other, 2, 1)]);
    }

    #[test]
    fn first_ends_come_out_in_order() {
        let mut batch = full();
        let lengths =
            |batch: &Batch| [batch.settles.len(), batch.records.len(), batch.shares.len(), batch.attempts.len()];
        let first = batch.first(7);
        assert_eq!((lengths(&first), lengths(&batch)), ([3, 2, 2, 0], [0, 0, 2, 5]));
        batch.put_back(first);
        assert_eq!(lengths(&batch), [3, 2, 4, 5]);
        assert_eq!(lengths(&batch.first(99)), [3, 2, 4, 5]);
    }
}
