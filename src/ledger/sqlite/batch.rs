//! One commit: all operations that the writer collected during the last one.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::super::counts::{CounterKey, Totals, counter_key};
use super::super::operation::{ReservedCall, Starting, UnitRequest};
use super::super::refusals::{SharedRefusal, move_first};
use super::super::{AttemptRow, Error, Row, StoredResult, checksum};
use super::batch_connection::{BatchConnection, Start};
use super::batch_counters::BatchCounters;
use super::keys::{self, KeyClaims};
use super::quota::{self, CounterCache, ReserveResult, Settlement};
use super::script::Script;
use super::set_aside::SetAside;
use super::{commit_marker, hours};

const WRITE_ATTEMPTS: &str = "insert or ignore into attempt (invocation, attempt, kind, message, duration_us) \
    select unhex(value->>0), value->>1, value->>2, value->>3, value->>4 from json_each(?)";
const WRITE_RESULTS: &str = "insert into stored_result (key, tool, origin, result, stored_at, expires_at, sum) \
    select unhex(value->>0), value->>1, unhex(value->>2), value->>3, value->>4, value->>5, value->>6 from json_each(?) \
    where true on conflict (key) do update set tool = excluded.tool, origin = excluded.origin, \
    result = excluded.result, stored_at = excluded.stored_at, expires_at = excluded.expires_at, \
    sum = excluded.sum";
/// Each batch with new results also deletes some expired ones, so that they do not accumulate.
const DELETE_EXPIRED: &str = "delete from stored_result where key in (select key from stored_result \
    where expires_at <= (select max(value->>4) from json_each(?)) limit 64)";
const WRITE_TOTALS: [&str; 2] = [
    "insert into usage_total (caller, tool, calls, succeeded, failed, refused, cache_hits) select * from (values ",
    ") where column1 is not null \
     on conflict do update set calls = calls + excluded.calls, succeeded = succeeded + excluded.succeeded, \
     failed = failed + excluded.failed, refused = refused + excluded.refused, \
     cache_hits = cache_hits + excluded.cache_hits",
];
const WRITE_LATENCIES: &str = "insert into usage_latency (caller, tool, bucket, calls) \
    select value->>'caller', value->>'tool', value->>'bucket', value->>'calls' from json_each(?) where true \
    on conflict do update set calls = calls + excluded.calls";

/// The backlog may hold several counts for one row after a failed commit. The highest count is the
/// correct one.
const UPDATE_SHARED_ROWS: &str = "update invocation set count = one.value->>1, sum = one.value->>2 from json_each(?) as one \
    where invocation.id = unhex(one.value->>0) and invocation.count < one.value->>1";

/// The content of one commit.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) reservations: Vec<Starting<ReservedCall>>,
    pub(super) unit_requests: Vec<Starting<UnitRequest>>,
    /// Counters that give free units back, and how many of these stay.
    pub(super) idle_counters: Vec<(CounterKey, u64)>,
    pub(super) records: Vec<Arc<Row>>,
    pub(super) settlements: Vec<Settlement>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) results: Vec<StoredResult>,
    pub(super) shared_refusals: Vec<SharedRefusal>,
}

/// What a commit decided, in the order of the batch, with the counters that its rows are charged to.
pub(super) struct Decisions {
    pub(super) reservations: Vec<ReserveResult>,
    reserved_counters: Vec<Option<String>>,
    pub(super) unit_requests: Vec<ReserveResult>,
    settled_counters: Vec<Option<String>>,
    /// Until when hours may be counted.
    counted_until: i64,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.reservations.is_empty()
            && self.unit_requests.is_empty()
            && self.records.is_empty()
            && self.settlements.is_empty()
            && self.attempts.is_empty()
            && self.results.is_empty()
            && self.shared_refusals.is_empty()
    }

    /// When the newest call of the batch started that has a row.
    pub(super) fn newest_start(&self) -> Option<Timestamp> {
        let reserved = self.reservations.last().map(|one| one.call.row.started_at);
        let recorded = self.records.last().map(|row| row.started_at);
        reserved.max(recorded)
    }

    /// Answers the starting calls of a batch that was not committed.
    pub(super) fn fail_starting(&mut self, error: &Error) {
        self.reservations.drain(..).for_each(|one| one.fail(error));
        let requests = self.unit_requests.drain(..);
        requests.for_each(|one| one.fail(error));
    }

    /// Number of rows of ended calls.
    pub(super) fn ended_count(&self) -> usize {
        self.records.len() + self.settlements.len() + self.shared_refusals.len()
    }

    /// Takes out the oldest ends and attempts, at most `at_most`.
    pub(super) fn take_oldest(&mut self, mut at_most: usize) -> Self {
        let mut first = Self::default();
        move_first(&mut self.settlements, &mut first.settlements, &mut at_most);
        move_first(&mut self.records, &mut first.records, &mut at_most);
        // After the rows in which they count.
        move_first(
            &mut self.shared_refusals,
            &mut first.shared_refusals,
            &mut at_most,
        );
        move_first(&mut self.attempts, &mut first.attempts, &mut at_most);
        first
    }

    /// Undoes [`Batch::take_oldest`].
    pub(super) fn put_back(&mut self, mut first: Self) {
        first.settlements.append(&mut self.settlements);
        first.records.append(&mut self.records);
        first.shared_refusals.append(&mut self.shared_refusals);
        first.attempts.append(&mut self.attempts);
        *self = first;
    }

    /// Approximate size of the rows, in bytes.
    pub(super) fn approximate_bytes(&self) -> usize {
        let reserved = self.reservations.iter();
        let reserved = reserved.map(|one| one.call.row.memory_bytes());
        let results = self.results.iter().map(|result| result.result.len());
        reserved
            .chain(self.ended_rows().map(Row::memory_bytes))
            .chain(results)
            .sum()
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.reservations.len() + self.ended_count() + self.attempts.len() + self.results.len()
    }

    /// The counters that the batch reads or changes.
    fn counter_keys(&self) -> HashSet<CounterKey> {
        let reserved = self.reservations.iter();
        let reserved = reserved.flat_map(|one| &one.call.charges);
        let requested = self.unit_requests.iter();
        let requested = requested.flat_map(|one| &one.call.charges);
        let held = self.settlements.iter().flat_map(|end| &end.held).flatten();
        reserved
            .chain(requested)
            .map(counter_key)
            .chain(held.map(|unit| unit.key.clone()))
            .chain(self.idle_counters.iter().map(|(key, _)| key.clone()))
            .collect()
    }

    /// Writes the whole batch with `durations`, or nothing. Returns the decisions and the number of
    /// the commit. After an error the caller rolls back and drops the cached counters, except after
    /// `ChangedFile`: the transaction is open then, and the caller continues in it.
    pub(super) async fn commit(
        &self,
        mut start: Start,
        connection: &BatchConnection,
        counters: &mut CounterCache,
        set_aside: &SetAside,
        durations: &[impl Serialize],
    ) -> Result<(Decisions, u64), sqlx::Error> {
        // Refunds of reserved calls come first, so that their units are free for the reservations.
        // Reservations are then decided with the counters as they are inside this transaction.
        // `begin immediate` takes the write lock before the counters are read or checked, so no
        // other process can change them until the commit.
        let mut script = Script::default();
        let mut run = |script: &mut Script| {
            connection.run(std::mem::take(&mut start), std::mem::take(script))
        };
        let counted_until = match counters.counted_until {
            Some(known) => known,
            None => {
                script.add_statement(hours::READ_COUNTED_UNTIL);
                hours::read_counted_until(&run(&mut script).await?)?
            }
        };
        if quota::add_refunds(&self.settlements, &mut script) {
            counters.clear();
        }
        let mut key_claims = KeyClaims::default();
        let reserved = self.reservations.iter().map(|one| &one.call.row);
        if keys::add_holder_query(reserved, &mut script) {
            key_claims = KeyClaims::from_rows(&run(&mut script).await?)?;
        }
        let counter_keys = self.counter_keys();
        let mut quota = match counters.cached_counters(&counter_keys) {
            Some(known) => known,
            None => {
                quota::add_counter_query(&counter_keys, &mut script);
                quota::read_counters(&run(&mut script).await?)?
            }
        };
        let mut decisions = self.decide(&mut quota, &mut key_claims, set_aside);
        decisions.counted_until = counted_until;
        self.add_writes(
            &mut script,
            connection.process,
            &quota,
            &key_claims,
            &decisions,
            durations,
        );
        let written = run(&mut script).await.and_then(|rows| {
            let number = rows.last().and_then(|row| row.get::<i64>(0).ok());
            // The batch is committed already, so an error must not let it be written again.
            number
                .map(i64::unsigned_abs)
                .ok_or(sqlx::Error::WorkerCrashed)
        });
        match written {
            Ok(commits) => {
                let held = self.settlements.iter().flat_map(|end| &end.held);
                held.for_each(|held| set_aside.end(held));
                set_aside.update(quota.committed());
                let requests = self.unit_requests.iter().zip(&decisions.unit_requests);
                for (request, decision) in requests {
                    if let Ok(reservation) = decision {
                        set_aside.hold(request.call.invocation, &reservation.charged);
                    }
                }
                counters.cache_counters(quota);
                counters.counted_until = Some(counted_until);
                Ok((decisions, commits))
            }
            Err(error) => {
                set_aside.withhold(quota.taken_free);
                Err(error)
            }
        }
    }

    /// Decides the calls of the batch, and the counters after them.
    fn decide(
        &self,
        quota: &mut BatchCounters,
        key_claims: &mut KeyClaims,
        set_aside: &SetAside,
    ) -> Decisions {
        let reserved = self.reservations.iter().map(|one| &*one.call.charges);
        let requested = self.unit_requests.iter().map(|one| &*one.call.charges);
        quota.reclaim_for(reserved.chain(requested), set_aside);
        for (key, kept) in &self.idle_counters {
            quota.give_back(key.clone(), set_aside, *kept);
        }
        let admit = |one: &Starting<ReservedCall>| {
            let ReservedCall { row, charges } = &one.call;
            key_claims.claim(row, || quota.admit(row.started_at, charges))
        };
        let (mut reservations, reserved_counters): (Vec<_>, _) =
            self.reservations.iter().map(admit).unzip();
        let mut unit_requests: Vec<_> = self
            .unit_requests
            .iter()
            .map(|one| quota.admit_without_row(&one.call))
            .collect();
        let admitted = reservations.iter_mut().chain(&mut unit_requests);
        set_aside.hide_free(admitted.flatten());
        let settled_counters = self
            .settlements
            .iter()
            .map(|end| match &end.held {
                Some(held) => quota.charge_row(held, &end.refunds, set_aside),
                // An empty list refunds the units of a reserved row.
                None => (!end.refunds.is_empty()).then(String::new),
            })
            .collect();
        quota.add_free_units(set_aside);
        Decisions {
            reservations,
            reserved_counters,
            unit_requests,
            settled_counters,
            counted_until: i64::MAX,
        }
    }

    /// Adds the statements that write the batch in the open transaction, and commit. The last row that
    /// they return is the number of the commit.
    fn add_writes(
        &self,
        script: &mut Script,
        process: i64,
        quota: &BatchCounters,
        key_claims: &KeyClaims,
        decisions: &Decisions,
        durations: &[impl Serialize],
    ) {
        key_claims.add_release(script);
        quota.add_counter_updates(script);
        let admitted = self
            .reservations
            .iter()
            .zip(&decisions.reservations)
            .zip(&decisions.reserved_counters)
            .filter(|((_, answer), _)| answer.is_ok());
        let started: Vec<(&Row, Option<String>)> = admitted
            .map(|((one, _), counters)| (&one.call.row, counters.clone()))
            .collect();
        let records = self.records.iter().map(|row| &**row);
        let settles = self.settlements.iter().map(|end| &*end.row);
        let unreserved = self.settlements.iter().filter(|end| end.held.is_some());
        let mut totals = Totals::default();
        started
            .iter()
            .map(|(row, _)| *row)
            .chain(records.clone())
            .chain(unreserved.map(|end| &*end.row))
            .for_each(|row| totals.count_start(row));
        let written = started.iter().map(|(row, _)| *row);
        hours::forget_hours(
            written.chain(records.clone()).chain(settles.clone()),
            decisions.counted_until,
            script,
        );
        let settled = settles
            .clone()
            .zip(decisions.settled_counters.iter().cloned());
        script.add_call_rows(
            process,
            started
                .into_iter()
                .chain(records.clone().map(|row| (row, None)))
                .chain(settled),
        );
        records.chain(settles).for_each(|row| totals.count_end(row));
        self.shared_refusals
            .iter()
            .for_each(|share| totals.count_shared(&share.caller, &share.tool, share.added));
        let rows: Vec<_> = self
            .shared_refusals
            .iter()
            .map(shared_refusal_values)
            .collect();
        script.add_with_rows(UPDATE_SHARED_ROWS, &rows);
        script.add_with_values::<7>(WRITE_TOTALS, totals.rows());
        script.add_with_rows(WRITE_LATENCIES, durations);
        let rows: Vec<_> = self.attempts.iter().map(attempt_values).collect();
        script.add_with_rows(WRITE_ATTEMPTS, &rows);
        let rows: Vec<_> = self.results.iter().map(result_values).collect();
        script.add_with_rows(DELETE_EXPIRED, &rows);
        script.add_with_rows(WRITE_RESULTS, &rows);
        script.add_statement(commit_marker::COUNT_COMMIT);
        script.add_statement(commit_marker::READ_COMMITS);
        script.add_statement("commit");
    }

    /// The calls that have ended.
    pub(super) fn ended_rows(&self) -> impl Iterator<Item = &Row> {
        let settles = self.settlements.iter().map(|end| &end.row);
        self.records.iter().chain(settles).map(|row| &**row)
    }
}

fn shared_refusal_values(refusal: &SharedRefusal) -> impl Serialize + use<> {
    (
        hex::encode(refusal.row.as_bytes()),
        refusal.count,
        checksum::shared_row_checksum(refusal.checksum, refusal.count),
    )
}

fn attempt_values(row: &AttemptRow) -> impl Serialize + '_ {
    (
        hex::encode(row.invocation.as_bytes()),
        row.attempt,
        row.kind.as_str(),
        &row.message,
        row.duration_us,
    )
}

fn result_values(row: &StoredResult) -> impl Serialize + '_ {
    (
        hex::encode(row.key),
        &row.tool,
        hex::encode(row.origin.as_bytes()),
        &row.result,
        row.stored_at.as_millisecond(),
        row.expires_at.as_millisecond(),
        checksum::result_checksum(row),
    )
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::super::State;
    use super::super::super::contract::{ended_row, now, row};
    use super::*;
    use crate::call::{ErrorKind, InvocationId};

    fn shared_refusal(row: InvocationId, count: u64) -> SharedRefusal {
        SharedRefusal {
            row,
            caller: "a".into(),
            tool: "t".into(),
            count,
            added: 1,
            checksum: 7,
        }
    }

    fn filled_batch() -> Batch {
        let mut batch = Batch::default();
        let call = row("t", "a", now());
        batch.reservations.push(Starting::new(
            ReservedCall {
                row: call.clone(),
                charges: Vec::new(),
            },
            oneshot::channel().0,
        ));
        (0..2).for_each(|_| {
            batch
                .records
                .push(ended_row(&row("t", "a", now()), State::Failed));
        });
        (0..3).for_each(|_| {
            batch.settlements.push(Settlement {
                row: ended_row(&row("t", "a", now()), State::Succeeded),
                refunds: Vec::new(),
                held: None,
            });
        });
        (0..4).for_each(|n| {
            shared_refusal(InvocationId::new(), n).add_to(&mut batch.shared_refusals);
        });
        (0..5).for_each(|attempt| {
            let (kind, message) = (ErrorKind::UpstreamFailed, "no".into());
            batch.attempts.push(AttemptRow {
                invocation: call.id,
                attempt,
                kind,
                message,
                duration_us: 1,
            });
        });
        batch
    }

    #[test]
    fn batch_counts_rows_and_bytes() {
        let mut batch = filled_batch();
        assert_eq!(
            (batch.ended_count(), batch.len(), batch.ended_rows().count()),
            (9, 15, 5)
        );
        let weights: usize = batch.ended_rows().map(Row::memory_bytes).sum();
        let begun = batch.reservations[0].call.row.memory_bytes();
        assert_eq!(batch.approximate_bytes(), begun + weights);
        let row = &batch.records[0];
        let texts = [
            &*row.arguments,
            row.result.as_deref().unwrap(),
            row.meta.as_deref().unwrap(),
        ];
        assert_eq!(
            row.memory_bytes(),
            512 + texts.iter().map(|text| text.len()).sum::<usize>()
        );
        batch.results.push(StoredResult {
            key: [0; 32],
            tool: "t".into(),
            origin: InvocationId::new(),
            result: "x".repeat(1000),
            stored_at: now(),
            expires_at: now(),
        });
        assert_eq!(
            (batch.len(), batch.approximate_bytes()),
            (16, begun + weights + 1000)
        );
    }

    #[test]
    fn refusals_of_one_row_are_merged() {
        let mut batch = Batch::default();
        let (one, other) = (InvocationId::new(), InvocationId::new());
        for (row, count) in [(one, 2), (other, 2), (one, 4), (one, 3)] {
            shared_refusal(row, count).add_to(&mut batch.shared_refusals);
        }
        let shares: Vec<_> = batch
            .shared_refusals
            .iter()
            .map(|share| (share.row, share.count, share.added))
            .collect();
        assert_eq!(shares, [(one, 4, 3), (other, 2, 1)]);
    }

    #[test]
    fn take_oldest_keeps_the_order() {
        let mut batch = filled_batch();
        let lengths = |batch: &Batch| {
            [
                batch.settlements.len(),
                batch.records.len(),
                batch.shared_refusals.len(),
                batch.attempts.len(),
            ]
        };
        let first = batch.take_oldest(7);
        assert_eq!(
            (lengths(&first), lengths(&batch)),
            ([3, 2, 2, 0], [0, 0, 2, 5])
        );
        batch.put_back(first);
        assert_eq!(lengths(&batch), [3, 2, 4, 5]);
        assert_eq!(lengths(&batch.take_oldest(99)), [3, 2, 4, 5]);
    }
}
