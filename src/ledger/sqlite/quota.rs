//! The counters of usage limits: cached or read, increased, and compared with the rows that they count.
//!
//! A row names the counters to which it was charged (`,3,7,`), until its units are refunded. So the correct value of a
//! counter can be computed from the rows at any time, and [`DRIFT`] does that. A difference is a fault of this program,
//! or another program changed the file. Counters of runs have no number, because callers choose the names of runs and
//! there can be millions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::super::{Reservation, ReserveError, Row};
use super::batch::Reserved;
use super::script::Script;
use crate::call::{Charge, Charged, Per};

/// The counters of these keys. The first row holds the highest number of a counter so far.
const READ: &str = "select '', '', '', '', 0, 0, coalesce(max(id), 0) from quota union all \
    select tool, caller, run, per, window_start, used, id from quota where (tool, caller, run, per) \
    in (select value->>0, value->>1, value->>2, value->>3 from json_each(?))";
/// Fails if a counter is not what the cache says.
const CHECK: &str = "insert into quota_moved select 1 from json_each(?) as known left join quota as q \
    on q.tool = known.value->>0 and q.caller = known.value->>1 and q.run = known.value->>2 and q.per = known.value->>3 \
    where q.window_start is not known.value->>4 or q.used is not known.value->>5";
/// A counter with a new window counts from the next row on.
const WRITE: &str = "insert into quota (tool, caller, run, per, window_start, used, counted_at, id, from_seq, calls) \
    select value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, \
    (select coalesce(max(seq), 0) + 1 from invocation) + (value->>9), value->>8 from json_each(?) where true \
    on conflict (tool, caller, run, per) do update set used = excluded.used, calls = excluded.calls, counted_at = excluded.counted_at, \
    from_seq = iif(window_start = excluded.window_start, from_seq, excluded.from_seq), \
    carried = iif(window_start = excluded.window_start, carried, 0), window_start = excluded.window_start";
/// Refunds each unit once: only for calls that are still reserved, and whose unit is part of the counter's current
/// value.
const REFUND: &str = "update quota set used = quota.used - back.units from \
    (select q.tool, q.caller, q.run, q.per, count(distinct i.id) as units from json_each(?) as one \
    join invocation as i on i.id = unhex(one.value->>5) and i.state = 'reserved' \
    join quota as q on q.tool = one.value->>0 and q.caller = one.value->>1 and q.run = one.value->>2 \
    and q.per = one.value->>3 and q.window_start = one.value->>4 and q.from_seq <= i.seq group by 1, 2, 3, 4) as back \
    where (quota.tool, quota.caller, quota.run, quota.per) = (back.tool, back.caller, back.run, back.per)";
/// By how many units the counters differ from the rows charged to them. Rows have few different sets of counters, and
/// an index finds the rows of each set without reading them.
pub(super) const DRIFT: &str = "with recursive charged (set_) as (select min(charged) from invocation \
    where charged is not null union all select (select min(charged) from invocation where charged > charged.set_) \
    from charged where set_ is not null), \
    counted (id, calls) as (select q.id, sum((select count(*) from invocation as i \
    where i.charged = charged.set_ and i.seq >= q.from_seq)) from charged \
    cross join json_each('[' || trim(charged.set_, ',') || ']') as one join quota as q on q.id = one.value \
    where charged.set_ is not null group by q.id) \
    select coalesce(sum(abs(q.used - q.carried - coalesce(counted.calls, 0))), 0) \
    from quota as q left join counted on counted.id = q.id where q.id is not null";

/// Maximum number of cached counters. Above it all are dropped, and each costs one more read.
const REMEMBERED: usize = 4096;

type Key = (String, String, String, Per);
type Words<'a> = (&'a str, &'a str, &'a str, &'static str);

#[derive(Clone, Copy)]
struct Counter {
    id: Option<i64>,
    window_start: i64,
    used: u64,
}

/// The counters as they were last written or read by this process. The commit that increases them checks them, which
/// saves a read before each commit.
#[derive(Default)]
pub(super) struct Counters(HashMap<Key, Counter>);

impl Counters {
    /// Drops all counters, because another writer may have changed them.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// The cached counters for these reservations, if all are in the cache. The commit will check them.
    pub(super) fn recall(&self, reserves: &[(Row, Vec<Charge>)], script: &mut Script) -> Option<Open> {
        let known = |key: Words<'_>| {
            let key = owned(key);
            self.0.get(&key).copied().map(|counter| (key, counter))
        };
        let counters: HashMap<Key, Counter> = keys(reserves).into_iter().map(known).collect::<Option<_>>()?;
        let line = |(key, counter): (&Key, &Counter)| {
            let (tool, caller, run, per) = key.clone();
            (tool, caller, run, per.as_str(), counter.window_start, counter.used)
        };
        script.add_with(CHECK, &counters.iter().map(line).collect::<Vec<_>>());
        Some(Open { counters, highest: 0, counted: HashMap::new(), admitted: 0 })
    }

    /// Stores the counters of a batch that was committed.
    pub(super) fn remember(&mut self, open: Open) {
        if self.0.len() > REMEMBERED {
            self.forget();
        }
        self.0.extend(open.counters);
    }
}

/// Adds the query for the counters of these reservations.
pub(super) fn ask(reserves: &[(Row, Vec<Charge>)], script: &mut Script) {
    script.add_with(READ, &keys(reserves));
}

/// Refunds the units of these calls, before their ends are written. Returns whether there are any.
pub(super) fn refund(settles: &[(Arc<Row>, Vec<Charged>)], script: &mut Script) -> bool {
    let line = |(row, charged): (&Arc<Row>, &Charged)| {
        let Charge { tool, caller, run, per, .. } = charged.charge.clone();
        (tool, caller, run, per.as_str(), charged.window_start, hex::encode(row.id.as_bytes()))
    };
    let units = settles.iter().flat_map(|(row, refunds)| refunds.iter().map(move |charged| (row, charged)));
    let lines: Vec<_> = units.map(line).collect();
    script.add_with(REFUND, &lines);
    !lines.is_empty()
}

/// Whether a commit failed because a cached counter was out of date.
pub(super) fn moved(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("quota_moved"))
}

/// A counter that a batch has increased.
struct Counted {
    /// Start of the last counted call, in Unix milliseconds.
    at: i64,
    /// The limit that the call was checked against.
    limit: u64,
    /// If the counter's window started in this batch: the number of the batch's rows before that.
    begun_after: u64,
}

/// The counters of one batch while its reservations are decided.
pub(super) struct Open {
    counters: HashMap<Key, Counter>,
    /// Highest number of a counter so far.
    highest: i64,
    counted: HashMap<Key, Counted>,
    /// Number of reservations that this batch has admitted.
    admitted: u64,
}

impl Open {
    /// Reads the counters from the result of [`ask`].
    pub(super) fn read(rows: &[SqliteRow]) -> Result<Self, sqlx::Error> {
        let highest = rows.first().map(|row| row.try_get(6)).transpose()?.unwrap_or(0);
        let read = |row: &SqliteRow| {
            let key = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, per_of(row.try_get(3)?));
            let used: i64 = row.try_get(5)?;
            Ok((key, Counter { id: row.try_get(6)?, window_start: row.try_get(4)?, used: used.unsigned_abs() }))
        };
        let counters = rows.iter().skip(1).map(read).collect::<Result<_, sqlx::Error>>()?;
        Ok(Self { counters, highest, counted: HashMap::new(), admitted: 0 })
    }

    /// Decides a reservation and counts its units. Also returns the numbers of its counters, for the row.
    pub(super) fn admit(&mut self, row: &Row, charges: &[Charge]) -> (Reserved, Option<String>) {
        let at = |charge: &Charge| {
            let stored = self.counters.get(&owned(key_of(charge)));
            Charged::at(charge.clone(), stored.map(|counter| (counter.window_start, counter.used)), row.started_at)
        };
        let mut charged: Vec<Charged> = charges.iter().map(at).collect();
        if let Some(full) = charged.iter().find(|one| one.used >= one.charge.limit) {
            return (Err(ReserveError::LimitReached(full.clone())), None);
        }
        let mut set = String::new();
        for one in &mut charged {
            one.used += 1;
            let key = owned(key_of(&one.charge));
            let id = match self.counters.get(&key) {
                Some(counter) => counter.id,
                None if one.charge.per == Per::Run => None,
                None => {
                    self.highest += 1;
                    Some(self.highest)
                }
            };
            if let Some(id) = id {
                set.push_str(if set.is_empty() { "," } else { "" });
                set.push_str(&format!("{id},"));
            }
            let before = self.counters.get(&key).filter(|before| before.window_start == one.window_start);
            let begun_after = match (before, self.counted.get(&key)) {
                (Some(_), Some(counted)) => counted.begun_after,
                _ => self.admitted,
            };
            let (at, limit) = (row.started_at.as_millisecond(), one.charge.limit);
            self.counted.insert(key.clone(), Counted { at, limit, begun_after });
            self.counters.insert(key, Counter { id, window_start: one.window_start, used: one.used });
        }
        self.admitted += 1;
        (Ok(Reservation { charged }), (!set.is_empty()).then_some(set))
    }

    /// Writes the counters that the batch has increased.
    pub(super) fn write(&self, script: &mut Script) {
        let line = |(key, counted): (&Key, &Counted)| {
            let (tool, caller, run, per) = key.clone();
            let Counter { id, window_start, used } = *self.counters.get(key)?;
            Some((
                tool,
                caller,
                run,
                per.as_str(),
                window_start,
                used,
                counted.at,
                id,
                counted.limit.min(i64::MAX.unsigned_abs()),
                counted.begun_after,
            ))
        };
        let lines: Vec<_> = self.counted.iter().filter_map(line).collect();
        script.add_with(WRITE, &lines);
    }
}

/// The keys of the counters that the reservations need. Calls of one batch mostly share them.
fn keys(reserves: &[(Row, Vec<Charge>)]) -> Vec<Words<'_>> {
    let keys: HashSet<Words<'_>> = reserves.iter().flat_map(|(_, charges)| charges).map(key_of).collect();
    keys.into_iter().collect()
}

fn key_of(charge: &Charge) -> Words<'_> {
    (&charge.tool, &charge.caller, &charge.run, charge.per.as_str())
}

fn owned((tool, caller, run, per): (&str, &str, &str, &str)) -> Key {
    (tool.to_owned(), caller.to_owned(), run.to_owned(), per_of(per))
}

fn per_of(word: &str) -> Per {
    let all = [Per::Minute, Per::Hour, Per::Day, Per::Month, Per::Run, Per::Lifetime];
    all.into_iter().find(|per| per.as_str() == word).unwrap_or(Per::Lifetime)
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{charge, ended, now, row};
    use super::*;
    use crate::ledger::State;

    fn open(names: impl Iterator<Item = usize>) -> Open {
        let counter = Counter { id: Some(1), window_start: 0, used: 1 };
        let counters =
            names.map(|name| ((name.to_string(), String::new(), String::new(), Per::Day), counter)).collect();
        Open { counters, highest: 0, counted: HashMap::new(), admitted: 0 }
    }

    #[test]
    fn remembered_counters_are_bounded() {
        let mut counters = Counters::default();
        counters.remember(open(0..REMEMBERED));
        counters.remember(open(REMEMBERED..REMEMBERED + 1));
        assert_eq!(counters.0.len(), REMEMBERED + 1);
        counters.remember(open(0..3));
        assert_eq!(counters.0.len(), 3);
    }

    #[test]
    fn known_counters_are_recalled() {
        let mut counters = Counters::default();
        let mut script = Script::default();
        let asked = |limits: &[Per]| vec![(row("t", "a", now()), limits.iter().map(|per| charge(9, *per)).collect())];
        let reserves = asked(&[Per::Day]);
        assert!(counters.recall(&reserves, &mut script).is_none());
        let mut decided = open(0..0);
        assert!(decided.admit(&reserves[0].0, &reserves[0].1).0.is_ok());
        counters.remember(decided);
        let known = counters.recall(&reserves, &mut script).map(|open| open.counters.len());
        assert_eq!(known, Some(1));
        assert!(counters.recall(&asked(&[Per::Day, Per::Minute]), &mut script).is_none(), "one is not known");
    }

    #[test]
    fn calls_without_units_give_nothing_back() {
        let mut script = Script::default();
        let end = ended(&row("t", "a", now()), State::Cancelled);
        assert!(!refund(&[(end.clone(), vec![])], &mut script));
        let charged = Charged::at(charge(9, Per::Day), None, now());
        assert!(refund(&[(end, vec![charged])], &mut script));
    }

    #[tokio::test]
    async fn moved_counters_are_told_from_other_failures() {
        let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect("sqlite::memory:").await.unwrap();
        let quota = "create table quota_moved (found int, constraint quota_moved check (found is null))";
        sqlx::query(quota).execute(&mut connection).await.unwrap();
        let mut failure = async |sql: &'static str| sqlx::query(sql).execute(&mut connection).await.unwrap_err();
        assert!(moved(&failure("insert into quota_moved values (1)").await));
        assert!(!moved(&failure("select * from nowhere").await));
        assert!(!moved(&sqlx::Error::RowNotFound));
    }
}
