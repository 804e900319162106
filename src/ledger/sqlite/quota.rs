//! The counters of usage limits: cached or read, increased, and compared with the rows that they
//! count.
//!
//! A row names the counters to which it was charged (`,3,7,`), until its units are refunded. So the
//! correct value of a counter can be computed from the rows at any time, and [`SUM_DRIFT`] does
//! that. A difference is a fault of this program, or another program changed the file. Counters of
//! runs have no number, because callers choose the names of runs and there can be millions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::super::{Reservation, ReserveError, Row};
use super::batch::ReserveResult;
use super::script::Script;
use crate::call::{Charge, Charged, Per};

/// The counters of these keys. The first row holds the highest number of a counter so far.
const READ_COUNTERS: &str = "select '', '', '', '', 0, 0, coalesce(max(id), 0) from quota union all \
    select tool, caller, run, per, window_start, used, id from quota where (tool, caller, run, per) \
    in (select value->>0, value->>1, value->>2, value->>3 from json_each(?))";
/// Fails if a counter is not what the cache says.
const CHECK_COUNTERS: &str = "insert into quota_moved select 1 from json_each(?) as known left join quota as q \
    on q.tool = known.value->>0 and q.caller = known.value->>1 and q.run = known.value->>2 and q.per = known.value->>3 \
    where q.window_start is not known.value->>4 or q.used is not known.value->>5";
/// A counter with a new window counts from the next row on.
const WRITE_COUNTERS: &str = "insert into quota (tool, caller, run, per, window_start, used, counted_at, id, from_seq, calls) \
    select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, \
    (select coalesce(max(seq), 0) + 1 from invocation) + (value->>9), value->>8 from json_each(?) where true \
    on conflict (tool, caller, run, per) do update set used = excluded.used, calls = excluded.calls, counted_at = excluded.counted_at, \
    from_seq = iif(window_start = excluded.window_start, from_seq, excluded.from_seq), \
    carried = iif(window_start = excluded.window_start, carried, 0), window_start = excluded.window_start";
/// Refunds each unit once: only for calls that are still reserved, and whose unit is part of the
/// counter's current value.
const REFUND_UNITS: &str = "update quota set used = quota.used - back.units from \
    (select q.tool, q.caller, q.run, q.per, count(distinct i.id) as units from json_each(?) as one \
    join invocation as i on i.id = unhex(one.value->>5) and i.state = 'reserved' \
    join quota as q on q.tool = one.value->>0 and q.caller = one.value->>1 and q.run = one.value->>2 \
    and q.per = one.value->>3 and q.window_start = one.value->>4 and q.from_seq <= i.seq group by 1, 2, 3, 4) as back \
    where (quota.tool, quota.caller, quota.run, quota.per) = (back.tool, back.caller, back.run, back.per)";
/// By how many units the counters differ from the rows charged to them. Rows have few different
/// sets of counters, and an index finds the rows of each set without reading them.
pub(super) const SUM_DRIFT: &str = "with recursive charged (set_) as (select min(charged) from invocation \
    where charged is not null union all select (select min(charged) from invocation where charged > charged.set_) \
    from charged where set_ is not null), \
    counted (id, calls) as (select q.id, sum((select count(*) from invocation as i \
    where i.charged = charged.set_ and i.seq >= q.from_seq)) from charged \
    cross join json_each('[' || trim(charged.set_, ',') || ']') as one join quota as q on q.id = one.value \
    where charged.set_ is not null group by q.id) \
    select coalesce(sum(abs(q.used - q.carried - coalesce(counted.calls, 0))), 0) \
    from quota as q left join counted on counted.id = q.id where q.id is not null";

/// Maximum number of cached counters. Above it all are dropped, and each costs one more read.
const MAX_CACHED_COUNTERS: usize = 4096;

type CounterKey = (String, String, String, Per);
type KeyParts<'a> = (&'a str, &'a str, &'a str, &'static str);

#[derive(Clone, Copy)]
struct Counter {
    id: Option<i64>,
    window_start: i64,
    used: u64,
}

/// The counters as they were last written or read by this process. The commit that increases them
/// checks them, which saves a read before each commit.
#[derive(Default)]
pub(super) struct CounterCache(HashMap<CounterKey, Counter>);

impl CounterCache {
    /// Drops all counters, because another writer may have changed them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The cached counters for these reservations, if all are in the cache. The commit will check
    /// them.
    pub(super) fn cached_counters(
        &self,
        reservations: &[(Row, Vec<Charge>)],
        script: &mut Script,
    ) -> Option<BatchCounters> {
        let known = |key: KeyParts<'_>| {
            let key = to_key(key);
            self.0.get(&key).copied().map(|counter| (key, counter))
        };
        let counters: HashMap<CounterKey, Counter> = counter_keys(reservations)
            .into_iter()
            .map(known)
            .collect::<Option<_>>()?;
        let values = |(key, counter): (&CounterKey, &Counter)| {
            let (tool, caller, run, per) = key.clone();
            (
                tool,
                caller,
                run,
                per.as_str(),
                counter.window_start,
                counter.used,
            )
        };
        script.add_with_rows(
            CHECK_COUNTERS,
            &counters.iter().map(values).collect::<Vec<_>>(),
        );
        Some(BatchCounters {
            counters,
            highest_id: 0,
            updates: HashMap::new(),
            admitted_count: 0,
        })
    }

    /// Stores the counters of a batch that was committed.
    pub(super) fn cache_counters(&mut self, batch: BatchCounters) {
        if self.0.len() > MAX_CACHED_COUNTERS {
            self.clear();
        }
        self.0.extend(batch.counters);
    }
}

/// Adds the query for the counters of these reservations.
pub(super) fn add_counter_query(reservations: &[(Row, Vec<Charge>)], script: &mut Script) {
    script.add_with_rows(READ_COUNTERS, &counter_keys(reservations));
}

/// Refunds the units of these calls, before their ends are written. Returns whether there are any.
pub(super) fn add_refunds(settlements: &[(Arc<Row>, Vec<Charged>)], script: &mut Script) -> bool {
    let values = |(row, charged): (&Arc<Row>, &Charged)| {
        let Charge {
            tool,
            caller,
            run,
            per,
            ..
        } = charged.charge.clone();
        (
            tool,
            caller,
            run,
            per.as_str(),
            charged.window_start,
            hex::encode(row.id.as_bytes()),
        )
    };
    let units = settlements
        .iter()
        .flat_map(|(row, refunds)| refunds.iter().map(move |charged| (row, charged)));
    let rows: Vec<_> = units.map(values).collect();
    script.add_with_rows(REFUND_UNITS, &rows);
    !rows.is_empty()
}

/// Whether a commit failed because a cached counter was out of date.
pub(super) fn is_counter_conflict(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().contains("quota_moved"))
}

/// A counter that a batch has increased.
struct CounterUpdate {
    /// Start of the last counted call, in Unix milliseconds.
    at: i64,
    /// The limit that the call was checked against.
    limit: u64,
    /// If the counter's window started in this batch: the number of the batch's rows before that.
    rows_before_window: u64,
}

/// The counters of one batch while its reservations are decided.
pub(super) struct BatchCounters {
    counters: HashMap<CounterKey, Counter>,
    /// Highest number of a counter so far.
    highest_id: i64,
    updates: HashMap<CounterKey, CounterUpdate>,
    /// Number of reservations that this batch has admitted.
    admitted_count: u64,
}

impl BatchCounters {
    /// Reads the counters from the result of [`add_counter_query`].
    pub(super) fn from_rows(rows: &[SqliteRow]) -> Result<Self, sqlx::Error> {
        let highest_id = rows
            .first()
            .map(|row| row.try_get(6))
            .transpose()?
            .unwrap_or(0);
        let read = |row: &SqliteRow| {
            let key = (
                row.try_get(0)?,
                row.try_get(1)?,
                row.try_get(2)?,
                parse_per(row.try_get(3)?),
            );
            let used: i64 = row.try_get(5)?;
            Ok((
                key,
                Counter {
                    id: row.try_get(6)?,
                    window_start: row.try_get(4)?,
                    used: used.unsigned_abs(),
                },
            ))
        };
        let counters = rows
            .iter()
            .skip(1)
            .map(read)
            .collect::<Result<_, sqlx::Error>>()?;
        Ok(Self {
            counters,
            highest_id,
            updates: HashMap::new(),
            admitted_count: 0,
        })
    }

    /// Decides a reservation and counts its units. Also returns the numbers of its counters, for
    /// the row.
    pub(super) fn admit(
        &mut self,
        row: &Row,
        charges: &[Charge],
    ) -> (ReserveResult, Option<String>) {
        let charge_now = |charge: &Charge| {
            let stored = self.counters.get(&to_key(key_parts(charge)));
            Charged::from_counter(
                charge.clone(),
                stored.map(|counter| (counter.window_start, counter.used)),
                row.started_at,
            )
        };
        let mut charged: Vec<Charged> = charges.iter().map(charge_now).collect();
        if let Some(full) = charged
            .iter()
            .find(|charged_limit| charged_limit.used >= charged_limit.charge.limit)
        {
            return (Err(ReserveError::LimitReached(full.clone())), None);
        }
        let mut counter_ids = String::new();
        for charged_limit in &mut charged {
            charged_limit.used += 1;
            let key = to_key(key_parts(&charged_limit.charge));
            let id = match self.counters.get(&key) {
                Some(counter) => counter.id,
                None if charged_limit.charge.per == Per::Run => None,
                None => {
                    self.highest_id += 1;
                    Some(self.highest_id)
                }
            };
            if let Some(id) = id {
                counter_ids.push_str(if counter_ids.is_empty() { "," } else { "" });
                counter_ids.push_str(&format!("{id},"));
            }
            let before = self
                .counters
                .get(&key)
                .filter(|before| before.window_start == charged_limit.window_start);
            let rows_before_window = match (before, self.updates.get(&key)) {
                (Some(_), Some(update)) => update.rows_before_window,
                _ => self.admitted_count,
            };
            let (at, limit) = (row.started_at.as_millisecond(), charged_limit.charge.limit);
            self.updates.insert(
                key.clone(),
                CounterUpdate {
                    at,
                    limit,
                    rows_before_window,
                },
            );
            self.counters.insert(
                key,
                Counter {
                    id,
                    window_start: charged_limit.window_start,
                    used: charged_limit.used,
                },
            );
        }
        self.admitted_count += 1;
        (
            Ok(Reservation { charged }),
            (!counter_ids.is_empty()).then_some(counter_ids),
        )
    }

    /// Writes the counters that the batch has increased.
    pub(super) fn add_counter_updates(&self, script: &mut Script) {
        let values = |(key, update): (&CounterKey, &CounterUpdate)| {
            let (tool, caller, run, per) = key.clone();
            let Counter {
                id,
                window_start,
                used,
            } = *self.counters.get(key)?;
            Some((
                tool,
                caller,
                run,
                per.as_str(),
                window_start,
                used,
                update.at,
                id,
                update.limit.min(i64::MAX.unsigned_abs()),
                update.rows_before_window,
            ))
        };
        let rows: Vec<_> = self.updates.iter().filter_map(values).collect();
        script.add_with_rows(WRITE_COUNTERS, &rows);
    }
}

/// The keys of the counters that the reservations need. Calls of one batch mostly share them.
fn counter_keys(reservations: &[(Row, Vec<Charge>)]) -> Vec<KeyParts<'_>> {
    let keys: HashSet<KeyParts<'_>> = reservations
        .iter()
        .flat_map(|(_, charges)| charges)
        .map(key_parts)
        .collect();
    keys.into_iter().collect()
}

fn key_parts(charge: &Charge) -> KeyParts<'_> {
    (
        &charge.tool,
        &charge.caller,
        &charge.run,
        charge.per.as_str(),
    )
}

fn to_key((tool, caller, run, per): (&str, &str, &str, &str)) -> CounterKey {
    (
        tool.to_owned(),
        caller.to_owned(),
        run.to_owned(),
        parse_per(per),
    )
}

fn parse_per(word: &str) -> Per {
    let all = [
        Per::Minute,
        Per::Hour,
        Per::Day,
        Per::Month,
        Per::Run,
        Per::Lifetime,
    ];
    all.into_iter()
        .find(|per| per.as_str() == word)
        .unwrap_or(Per::Lifetime)
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{charge, ended_row, now, row};
    use super::*;
    use crate::ledger::State;

    fn batch_counters(names: impl Iterator<Item = usize>) -> BatchCounters {
        let counter = Counter {
            id: Some(1),
            window_start: 0,
            used: 1,
        };
        let counters = names
            .map(|name| {
                (
                    (name.to_string(), String::new(), String::new(), Per::Day),
                    counter,
                )
            })
            .collect();
        BatchCounters {
            counters,
            highest_id: 0,
            updates: HashMap::new(),
            admitted_count: 0,
        }
    }

    #[test]
    fn counter_cache_is_bounded() {
        let mut counters = CounterCache::default();
        counters.cache_counters(batch_counters(0..MAX_CACHED_COUNTERS));
        counters.cache_counters(batch_counters(MAX_CACHED_COUNTERS..MAX_CACHED_COUNTERS + 1));
        assert_eq!(counters.0.len(), MAX_CACHED_COUNTERS + 1);
        counters.cache_counters(batch_counters(0..3));
        assert_eq!(counters.0.len(), 3);
    }

    #[test]
    fn counter_cache_returns_known_counters() {
        let mut counters = CounterCache::default();
        let mut script = Script::default();
        let calls_with = |limits: &[Per]| {
            vec![(
                row("t", "a", now()),
                limits.iter().map(|per| charge(9, *per)).collect(),
            )]
        };
        let reserves = calls_with(&[Per::Day]);
        assert!(counters.cached_counters(&reserves, &mut script).is_none());
        let mut decided = batch_counters(0..0);
        assert!(decided.admit(&reserves[0].0, &reserves[0].1).0.is_ok());
        counters.cache_counters(decided);
        let known = counters
            .cached_counters(&reserves, &mut script)
            .map(|open| open.counters.len());
        assert_eq!(known, Some(1));
        assert!(
            counters
                .cached_counters(&calls_with(&[Per::Day, Per::Minute]), &mut script)
                .is_none(),
            "one is not known"
        );
    }

    #[test]
    fn calls_without_units_have_no_refunds() {
        let mut script = Script::default();
        let end = ended_row(&row("t", "a", now()), State::Cancelled);
        assert!(!add_refunds(&[(end.clone(), vec![])], &mut script));
        let charged = Charged::from_counter(charge(9, Per::Day), None, now());
        assert!(add_refunds(&[(end, vec![charged])], &mut script));
    }

    #[tokio::test]
    async fn counter_conflict_differs_from_other_failures() {
        let mut connection =
            <sqlx::SqliteConnection as sqlx::Connection>::connect("sqlite::memory:")
                .await
                .unwrap();
        let quota =
            "create table quota_moved (found int, constraint quota_moved check (found is null))";
        sqlx::query(quota).execute(&mut connection).await.unwrap();
        let mut failure =
            async |sql: &'static str| sqlx::query(sql).execute(&mut connection).await.unwrap_err();
        assert!(is_counter_conflict(
            &failure("insert into quota_moved values (1)").await
        ));
        assert!(!is_counter_conflict(
            &failure("select * from nowhere").await
        ));
        assert!(!is_counter_conflict(&sqlx::Error::RowNotFound));
    }
}
