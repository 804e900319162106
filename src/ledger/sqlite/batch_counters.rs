//! The counters of one batch, while its calls are decided.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use super::super::counts::{CounterKey, counter_key};
use super::super::operation::UnitRequest;
use super::super::sql::SqlValue;
use super::super::{Reservation, ReserveError};
use super::script::Script;
use super::set_aside::{CommittedCounter, Counter, HeldUnit, SetAside, Window};
use crate::call::{Charge, Charged, InvocationId, Per};

/// A counter with a new window counts from the next row on.
const WRITE_COUNTERS: [&str; 2] = [
    "insert into quota (tool, caller, run, per, window_start, used, counted_at, id, calls, from_seq, set_aside, instance) \
     select column1, column2, column3, column4, column5, column6, column7, column8, column9, \
     (select coalesce(max(seq), 0) + 1 from invocation) + column10, column11, column12 from (values ",
    ") where column1 is not null \
     on conflict (tool, caller, run, per) do update set used = excluded.used, calls = excluded.calls, counted_at = excluded.counted_at, \
     from_seq = iif(window_start = excluded.window_start, from_seq, excluded.from_seq), \
     carried = iif(window_start = excluded.window_start, carried, 0), set_aside = excluded.set_aside, \
     lost_units = iif(window_start = excluded.window_start, lost_units, 0), window_start = excluded.window_start",
];
/// Counters whose units were set aside, given back, or taken over by rows. All of them exist. An
/// `update` would need two temporary tables for the bound rows.
const WRITE_SET_ASIDE: [&str; 2] = [
    "insert into quota (tool, caller, run, per, window_start, used, set_aside) select * from (values ",
    ") where column1 is not null on conflict (tool, caller, run, per) do update set used = excluded.used, set_aside = excluded.set_aside",
];

/// A counter that a batch has increased.
struct CounterUpdate {
    /// Start of the last counted call, in Unix milliseconds.
    at: i64,
    /// The limit that the call was checked against.
    limit: u64,
    /// If the counter's window started in this batch: the number of the batch's rows before that.
    rows_before_window: u64,
}

/// The counters of one batch.
#[derive(Default)]
pub(super) struct BatchCounters {
    pub(super) counters: HashMap<CounterKey, Counter>,
    /// Highest number of a counter so far.
    highest_id: i64,
    updates: HashMap<CounterKey, CounterUpdate>,
    /// Counters whose units were taken over by rows, given back, or set aside.
    changed: HashSet<CounterKey>,
    /// Free units that were taken out of memory, with their windows.
    pub(super) taken_free: Vec<(CounterKey, Window, u64)>,
    /// Free units to set aside.
    added: HashMap<CounterKey, u64>,
    /// Number of units of each counter that calls without a row got.
    requested: HashMap<CounterKey, u64>,
    /// Number of reservations that this batch has admitted.
    admitted_count: u64,
}

impl BatchCounters {
    pub(super) fn new(counters: HashMap<CounterKey, Counter>, highest_id: i64) -> Self {
        Self {
            counters,
            highest_id,
            ..Self::default()
        }
    }

    /// Gives free units back to the counters that could refuse one of these calls without them.
    pub(super) fn reclaim_for<'a>(
        &mut self,
        calls: impl Iterator<Item = &'a [Charge]>,
        set_aside: &SetAside,
    ) {
        let mut wanted: HashMap<CounterKey, (u64, u64)> = HashMap::new();
        for charges in calls {
            for charge in charges {
                let (calls, limit) = wanted
                    .entry(counter_key(charge))
                    .or_insert((0, charge.limit));
                *calls += 1;
                *limit = charge.limit.min(*limit);
            }
        }
        for (key, (calls, limit)) in wanted {
            let is_near = self
                .counters
                .get(&key)
                .is_some_and(|counter| counter.used + calls > limit);
            if is_near {
                self.give_back(key, set_aside, 0);
            }
        }
    }

    /// Gives the free units of a counter beyond `kept` back.
    pub(super) fn give_back(&mut self, key: CounterKey, set_aside: &SetAside, kept: u64) {
        let Some(counter) = self.counters.get_mut(&key) else {
            return set_aside.forget(&key);
        };
        let window = counter.window();
        let units = set_aside.take_free(&key, window, kept);
        if units > counter.set_aside {
            // Another program has changed the file.
            set_aside.forget(&key);
        } else if units > 0 {
            counter.used = counter.used.saturating_sub(units);
            counter.set_aside -= units;
            self.taken_free.push((key.clone(), window, units));
            self.changed.insert(key);
        }
    }

    /// Decides a reservation and counts its units. Also returns the numbers of its counters, for
    /// the row.
    pub(super) fn admit(
        &mut self,
        at: Timestamp,
        charges: &[Charge],
    ) -> (Result<Reservation, ReserveError>, Option<String>) {
        match self.count(at, charges) {
            Ok(charged) => {
                self.admitted_count += 1;
                let ids = charged
                    .iter()
                    .filter_map(|charged| self.counters.get(&counter_key(&charged.charge))?.id);
                let ids = join_ids(ids);
                (Ok(Reservation { charged }), ids)
            }
            Err(full) => (Err(full), None),
        }
    }

    /// Decides a call whose row is written with its end, and counts its units.
    pub(super) fn admit_without_row(
        &mut self,
        request: &UnitRequest,
    ) -> Result<Reservation, ReserveError> {
        let charged = self.count(request.started_at, &request.charges)?;
        for charged in &charged {
            let key = counter_key(&charged.charge);
            if let Some(counter) = self.counters.get_mut(&key) {
                counter.set_aside += 1;
            }
            *self.requested.entry(key).or_default() += 1;
        }
        Ok(Reservation { charged })
    }

    fn count(&mut self, at: Timestamp, charges: &[Charge]) -> Result<Vec<Charged>, ReserveError> {
        let charge_now = |charge: &Charge| {
            let stored = self.counters.get(&counter_key(charge));
            Charged::from_counter(
                charge.clone(),
                stored.map(|counter| (counter.window_start, counter.used)),
                at,
            )
        };
        let mut charged: Vec<Charged> = charges.iter().map(charge_now).collect();
        if let Some(full) = charged
            .iter()
            .find(|charged_limit| charged_limit.used >= charged_limit.charge.limit)
        {
            return Err(ReserveError::LimitReached(full.clone()));
        }
        for charged_limit in &mut charged {
            charged_limit.used += 1;
            let key = counter_key(&charged_limit.charge);
            let before = self.counters.get(&key);
            let id = match before {
                Some(counter) => counter.id,
                None if charged_limit.charge.per == Per::Run => None,
                None => {
                    self.highest_id += 1;
                    Some(self.highest_id)
                }
            };
            let instance = before.map_or_else(random_instance, |before| before.instance);
            let before = before.filter(|before| before.window_start == charged_limit.window_start);
            let rows_before_window = match (before, self.updates.get(&key)) {
                (Some(_), Some(update)) => update.rows_before_window,
                _ => self.admitted_count,
            };
            // SQLite's integers have a sign.
            let limit = charged_limit.charge.limit.min(i64::MAX.unsigned_abs());
            let counter = Counter {
                id,
                instance,
                window_start: charged_limit.window_start,
                used: charged_limit.used,
                set_aside: before.map_or(0, |before| before.set_aside),
                limit: Some(limit),
            };
            let update = CounterUpdate {
                at: at.as_millisecond(),
                limit,
                rows_before_window,
            };
            self.updates.insert(key.clone(), update);
            self.counters.insert(key, counter);
        }
        Ok(charged)
    }

    /// Moves units that a call held to its row, or gives them back. Returns the numbers of their
    /// counters. A unit of an older window, or of a counter that was reset, belongs to no counter.
    /// Another process may have reset it, so its free units are forgotten.
    pub(super) fn charge_row(
        &mut self,
        held: &[HeldUnit],
        refunds: &[Charged],
        set_aside: &SetAside,
    ) -> Option<String> {
        let mut ids = Vec::with_capacity(held.len());
        for unit in held {
            let counter = self
                .counters
                .get_mut(&unit.key)
                .filter(|counter| counter.window() == unit.instance && counter.set_aside > 0);
            if let Some(counter) = counter {
                counter.set_aside -= 1;
                let is_refunded = refunds.iter().any(|refund| {
                    refund.window_start == unit.window_start
                        && counter_key(&refund.charge) == unit.key
                });
                match is_refunded {
                    true => counter.used = counter.used.saturating_sub(1),
                    false => ids.extend(counter.id),
                }
                self.changed.insert(unit.key.clone());
            } else {
                set_aside.forget_window(&unit.key, unit.instance);
            }
        }
        join_ids(ids.into_iter())
    }

    /// Sets units aside for the load that this batch shows.
    pub(super) fn add_free_units(&mut self, set_aside: &SetAside) {
        let keys = self.changed.iter().chain(self.requested.keys());
        for key in keys.cloned().collect::<HashSet<CounterKey>>() {
            let given_back = self.taken_free.iter().any(|(other, ..)| *other == key);
            let Some(counter) = self.counters.get_mut(&key).filter(|_| !given_back) else {
                continue;
            };
            let remaining = counter.limit.unwrap_or(0).saturating_sub(counter.used);
            let requested = self.requested.get(&key).copied().unwrap_or(0);
            let units = set_aside.units_to_add(&key, counter.window(), requested, remaining);
            if units > 0 {
                counter.used += units;
                counter.set_aside += units;
                self.changed.insert(key.clone());
                self.added.insert(key, units);
            }
        }
    }

    /// Writes the counters that the batch has changed.
    pub(super) fn add_counter_updates(&self, script: &mut Script) {
        let values = |(key, update): (&CounterKey, &CounterUpdate)| {
            let counter = self.counters.get(key)?;
            let [tool, caller, run, per] = key_values(key);
            Some([
                tool,
                caller,
                run,
                per,
                counter.window_start.into(),
                counter.used.into(),
                update.at.into(),
                counter.id.into(),
                update.limit.into(),
                update.rows_before_window.into(),
                counter.set_aside.into(),
                counter.instance.into(),
            ])
        };
        script.add_with_values::<12>(WRITE_COUNTERS, self.updates.iter().filter_map(values));
        let values = |key: &CounterKey| {
            let counter = self.counters.get(key)?;
            let [tool, caller, run, per] = key_values(key);
            let (start, used) = (counter.window_start.into(), counter.used.into());
            Some([
                tool,
                caller,
                run,
                per,
                start,
                used,
                counter.set_aside.into(),
            ])
        };
        let others = self
            .changed
            .iter()
            .filter(|key| !self.updates.contains_key(*key));
        script.add_with_values::<7>(WRITE_SET_ASIDE, others.filter_map(values));
    }

    /// The counters that the batch has written.
    pub(super) fn committed(&self) -> Vec<CommittedCounter> {
        let keys: HashSet<&CounterKey> = self.updates.keys().chain(&self.changed).collect();
        let counter = |key: &CounterKey| {
            let counter = self.counters.get(key)?;
            let added = self.added.get(key).copied().unwrap_or(0);
            Some(CommittedCounter {
                key: key.clone(),
                window: counter.window(),
                used: counter.used,
                counted_at: self.updates.get(key).map(|update| update.at),
                added,
                has_units: added > 0 || self.requested.contains_key(key),
            })
        };
        keys.into_iter().filter_map(counter).collect()
    }
}

fn key_values((tool, caller, run, per): &CounterKey) -> [SqlValue; 4] {
    [
        tool.clone().into(),
        caller.clone().into(),
        run.clone().into(),
        SqlValue::Word(per.as_str()),
    ]
}

/// A number that no other counter has.
fn random_instance() -> i64 {
    // The second half of a UUIDv7 is random but for two bits.
    let id = InvocationId::new();
    let (_, random) = id.as_bytes().split_at(8);
    i64::from_be_bytes(random.try_into().unwrap_or_default())
}

/// The numbers of counters as a column has them: `,3,7,`.
fn join_ids(ids: impl Iterator<Item = i64>) -> Option<String> {
    let mut joined = String::new();
    for id in ids {
        joined.push_str(if joined.is_empty() { "," } else { "" });
        joined.push_str(&format!("{id},"));
    }
    (!joined.is_empty()).then_some(joined)
}
