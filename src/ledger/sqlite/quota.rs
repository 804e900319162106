//! The counters of usage limits: cached or read, increased, and compared with the rows that they
//! count.
//!
//! A row names the counters to which it was charged (`,3,7,`), until its units are refunded. So the
//! correct value of a counter can be computed from the rows at any time, and [`SUM_DRIFT`] does
//! that. A difference is a fault of this program, or another program changed the file. Counters of
//! runs have no number, because callers choose the names of runs and there can be millions.
//!
//! No index has the counters of rows, because it would change one more page for almost every call. A
//! comparison reads the newest rows. Older ones count as `carried`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::counts::{CounterKey, counter_key};
use super::super::sql::{Sql, SqlRow, Store};
use super::super::{Error, Reservation, ReserveError, Row};
use super::batch_counters::BatchCounters;
use super::script::Script;
use super::set_aside::{Counter, HeldUnit};
use crate::call::{Charged, Per};

/// The counters of these keys. The first row holds the highest number of a counter so far.
const READ_COUNTERS: &str = "select '', '', '', '', 0, 0, coalesce(max(id), 0), 0, 0, 0 from quota union all \
    select tool, caller, run, per, window_start, used, id, set_aside, calls, instance from quota where (tool, caller, run, per) \
    in (select value->>0, value->>1, value->>2, value->>3 from json_each(?))";
/// Units that an ended process had set aside stay used, and no row has them.
pub(super) const LOSE_UNITS: &str =
    "update quota set lost_units = lost_units + set_aside, set_aside = 0 where set_aside > 0";
/// The units that [`LOSE_UNITS`] will move.
pub(super) const FIND_LOST_UNITS: &str =
    "select tool, caller, per, set_aside from quota where set_aside > 0";
/// Refunds each unit once: only for calls that are still reserved, and whose unit is part of the
/// counter's current value.
const REFUND_UNITS: &str = "update quota set used = quota.used - back.units from \
    (select q.tool, q.caller, q.run, q.per, count(distinct i.id) as units from json_each(?) as one \
    join invocation as i on i.id = unhex(one.value->>5) and i.state = 'reserved' \
    join quota as q on q.tool = one.value->>0 and q.caller = one.value->>1 and q.run = one.value->>2 \
    and q.per = one.value->>3 and q.window_start = one.value->>4 and q.from_seq <= i.seq group by 1, 2, 3, 4) as back \
    where (quota.tool, quota.caller, quota.run, quota.per) = (back.tool, back.caller, back.run, back.per)";
/// Counts the rows that are charged to each counter, from the lowest `from_seq` on, and at most a million.
/// Rows before `upto` have ended, so their counters stay the same.
macro_rules! with_counted_rows {
    ($select:literal) => {
        concat!(
            "with part (first, stop, newest) as (select min(from_seq), \
             min(min(from_seq) + 1000000, (select coalesce(max(seq), 0) + 1 from invocation)), \
             (select coalesce(max(seq), 0) from invocation) from quota where id is not null), \
             ended (upto) as (select min(stop, coalesce((select min(seq) from invocation where state = 'reserved'), stop)) from part), \
             counted (id, calls, ended) as (select q.id, count(*), sum(i.seq < ended.upto) from part cross join ended \
             cross join invocation as i cross join json_each('[' || trim(i.charged, ',') || ']') as one \
             join quota as q on q.id = one.value and i.seq >= q.from_seq \
             where i.seq >= part.first and i.seq < part.stop and i.charged is not null group by q.id) ",
            $select,
            " from part cross join ended cross join quota as q left join counted on counted.id = q.id where q.id is not null"
        )
    };
}
/// By how many units the counters differ from the rows charged to them, the number of compared rows, and
/// whether these are all rows.
pub(super) const SUM_DRIFT: &str = with_counted_rows!(
    "select coalesce(sum(abs(q.used - q.carried - q.set_aside - q.lost_units - coalesce(counted.calls, 0))), 0), \
     coalesce(max(ended.upto - part.first), 0), coalesce(max(part.stop > part.newest), 1)"
);
const COUNT_ENDED_ROWS: &str = with_counted_rows!(
    "select q.id, q.from_seq, q.carried, coalesce(counted.ended, 0), ended.upto"
);
/// Rows that were compared are counted for good as soon as there are as many.
pub(super) const MIN_CARRIED_ROWS: i64 = 100_000;

/// Maximum number of cached counters. Above it all are dropped, and each costs one more read.
const MAX_CACHED_COUNTERS: usize = 4096;

/// The outcome of a reservation.
pub(super) type ReserveResult = Result<Reservation, ReserveError>;

/// The end of a call whose units were counted before.
pub(super) struct Settlement {
    pub(super) row: Arc<Row>,
    pub(super) refunds: Vec<Charged>,
    /// The units of a call that was not reserved: its row is new. `None`: the row is reserved.
    pub(super) held: Option<Vec<HeldUnit>>,
}

/// What this process has last written or read of the file. It saves a read before each commit. A commit
/// uses it only if no other connection has changed the file since.
#[derive(Default)]
pub(super) struct CounterCache {
    counters: HashMap<CounterKey, Counter>,
    /// Until when hours may be counted, in Unix milliseconds.
    pub(super) counted_until: Option<i64>,
}

impl CounterCache {
    /// Drops everything, because another writer may have changed it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.counted_until.is_none()
    }

    /// The cached counters of a batch, if all are in the cache.
    pub(super) fn cached_counters(&self, keys: &HashSet<CounterKey>) -> Option<BatchCounters> {
        let known = |key: &CounterKey| Some((key.clone(), *self.counters.get(key)?));
        let counters = keys.iter().map(known).collect::<Option<_>>()?;
        Some(BatchCounters::new(counters, 0))
    }

    /// Stores the counters of a batch that was committed.
    pub(super) fn cache_counters(&mut self, batch: BatchCounters) {
        if self.counters.len() > MAX_CACHED_COUNTERS {
            self.counters.clear();
        }
        self.counters.extend(batch.counters);
    }
}

/// Makes the statement that counts all rows that have ended for good, so that no comparison reads them
/// again.
pub(super) async fn carry_ended_rows(store: &dyn Store) -> Result<Sql, Error> {
    let rows = store.fetch(Sql::new(COUNT_ENDED_ROWS)).await?;
    let upto: i64 = rows.first().map_or(Ok(0), |row| row.get(4))?;
    let counted = |row: &SqlRow| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]);
    let counted = rows
        .iter()
        .map(counted)
        .collect::<Result<Vec<[i64; 4]>, Error>>()?;
    let mut sql = Sql::new("update quota set carried = carried + (one.value->>3), from_seq = ");
    sql.bind(upto).push(" from json_each(");
    sql.bind(serde_json::to_string(&counted).unwrap_or_default());
    // Meanwhile, a window may have begun, or retention may have deleted rows and changed `carried`.
    sql.push(
        ") as one where quota.id = one.value->>0 and quota.from_seq = one.value->>1 \
         and quota.carried = one.value->>2 and from_seq < ",
    );
    sql.bind(upto);
    Ok(sql)
}

/// Adds the query for these counters.
pub(super) fn add_counter_query(keys: &HashSet<CounterKey>, script: &mut Script) {
    let values = |(tool, caller, run, per): &CounterKey| {
        (tool.clone(), caller.clone(), run.clone(), per.as_str())
    };
    script.add_with_rows(READ_COUNTERS, &keys.iter().map(values).collect::<Vec<_>>());
}

/// Refunds the units of reserved calls, before their ends are written. Returns whether there are any.
pub(super) fn add_refunds(settlements: &[Settlement], script: &mut Script) -> bool {
    let values = |(row, charged): (&Arc<Row>, &Charged)| {
        let Charged {
            charge,
            window_start,
            ..
        } = charged.clone();
        let (tool, caller, run, per) = counter_key(&charge);
        let id = hex::encode(row.id.as_bytes());
        (tool, caller, run, per.as_str(), window_start, id)
    };
    let reserved = settlements.iter().filter(|one| one.held.is_none());
    let units = reserved.flat_map(|one| one.refunds.iter().map(move |charged| (&one.row, charged)));
    let rows: Vec<_> = units.map(values).collect();
    script.add_with_rows(REFUND_UNITS, &rows);
    !rows.is_empty()
}

/// Reads the counters from the result of [`add_counter_query`].
pub(super) fn read_counters(rows: &[SqlRow]) -> Result<BatchCounters, sqlx::Error> {
    let highest_id = rows.first().map(|row| row.get(6)).transpose()?.unwrap_or(0);
    let read = |row: &SqlRow| {
        let key = (
            row.get(0)?,
            row.get(1)?,
            row.get(2)?,
            row.get::<Arc<str>>(3)?.parse().unwrap_or(Per::Lifetime),
        );
        let counter = Counter {
            id: row.get(6)?,
            window_start: row.get(4)?,
            used: row.get(5)?,
            set_aside: row.get(7)?,
            limit: row.get(8)?,
            instance: row.get(9)?,
        };
        Ok((key, counter))
    };
    let counters = rows
        .iter()
        .skip(1)
        .map(read)
        .collect::<Result<_, sqlx::Error>>()?;
    Ok(BatchCounters::new(counters, highest_id))
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{charge, ended_row, now, row};
    use super::*;
    use crate::ledger::State;

    fn batch_counters(names: impl Iterator<Item = usize>) -> BatchCounters {
        let counter = Counter {
            id: Some(1),
            instance: 1,
            window_start: 0,
            used: 1,
            set_aside: 0,
            limit: None,
        };
        let key = |name: usize| (name.to_string(), String::new(), String::new(), Per::Day);
        BatchCounters::new(names.map(|name| (key(name), counter)).collect(), 0)
    }

    #[test]
    fn counter_cache_is_bounded() {
        let mut counters = CounterCache::default();
        counters.cache_counters(batch_counters(0..MAX_CACHED_COUNTERS));
        counters.cache_counters(batch_counters(MAX_CACHED_COUNTERS..MAX_CACHED_COUNTERS + 1));
        assert_eq!(counters.counters.len(), MAX_CACHED_COUNTERS + 1);
        counters.cache_counters(batch_counters(0..3));
        assert_eq!(counters.counters.len(), 3);
    }

    #[test]
    fn counter_cache_returns_known_counters() {
        let mut counters = CounterCache::default();
        let charges = |limits: &[Per]| limits.iter().map(|per| charge(9, *per)).collect::<Vec<_>>();
        let keys = |limits: &[Per]| charges(limits).iter().map(counter_key).collect();
        assert!(counters.cached_counters(&keys(&[Per::Day])).is_none());
        let mut decided = batch_counters(0..0);
        assert!(decided.admit(now(), &charges(&[Per::Day])).0.is_ok());
        counters.cache_counters(decided);
        let known = counters
            .cached_counters(&keys(&[Per::Day]))
            .map(|open| open.counters.len());
        assert_eq!(known, Some(1));
        assert!(
            counters
                .cached_counters(&keys(&[Per::Day, Per::Minute]))
                .is_none(),
            "one is not known"
        );
    }

    #[test]
    fn calls_without_units_have_no_refunds() {
        let mut script = Script::default();
        let end = ended_row(&row("t", "a", now()), State::Cancelled);
        let settlement = |refunds| Settlement {
            row: end.clone(),
            refunds,
            held: None,
        };
        assert!(!add_refunds(&[settlement(vec![])], &mut script));
        let charged = Charged::from_counter(charge(9, Per::Day), None, now());
        assert!(add_refunds(&[settlement(vec![charged])], &mut script));
    }
}
