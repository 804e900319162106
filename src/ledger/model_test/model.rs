//! The guarantees of the ledger, implemented in a few lines.

use std::collections::HashMap;

use jiff::{Timestamp, ToSpan};

use super::super::refusals::Refusals;
use super::super::{Row, State};
use super::harness::Rules;
use crate::call::{Charge, Charged, Effect, InvocationId, Per};

pub(super) type CounterKey = (String, String, String, Per);

/// The value of a counter. After a reset it has another `instance`, which does not count earlier
/// units.
#[derive(Clone, Copy)]
pub(super) struct CounterValue {
    pub(super) window_start: i64,
    pub(super) used: u64,
    pub(super) counted_at: i64,
    pub(super) instance: u64,
}

#[derive(Clone)]
pub(super) struct ModelCall {
    pub(super) row: Row,
    pub(super) charged: Vec<Charged>,
    /// The counters that count this call, each with its instance.
    pub(super) counters: Vec<(CounterKey, u64)>,
    /// Whether the call was committed before its tool ran.
    pub(super) committed_before_run: bool,
    /// The process that runs the call.
    pub(super) replica: usize,
    /// Whether that process has crashed during the call.
    pub(super) is_interrupted: bool,
    /// Whether the row is in the ledger.
    pub(super) has_row: bool,
}

/// The model of one ledger.
pub(super) struct Model {
    pub(super) rules: Rules,
    pub(super) calls: HashMap<InvocationId, ModelCall>,
    /// Ids of the calls in the order of their rows.
    pub(super) ids: Vec<InvocationId>,
    pub(super) counters: HashMap<CounterKey, CounterValue>,
    pub(super) instances: u64,
    /// The refused calls of each replica.
    pub(super) refusals: Vec<Refusals>,
    /// Number of calls by tool and caller: all, succeeded, failed, refused.
    pub(super) totals: HashMap<(String, String), [u64; 4]>,
}

impl Model {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            calls: HashMap::new(),
            ids: Vec::new(),
            counters: HashMap::new(),
            instances: 0,
            refusals: (0..rules.replicas).map(|_| Refusals::default()).collect(),
            totals: HashMap::new(),
        }
    }

    fn totals_mut(&mut self, row: &Row) -> &mut [u64; 4] {
        self.totals
            .entry((row.tool.to_string(), row.caller.to_string()))
            .or_default()
    }

    fn count_end(&mut self, row: &Row) {
        let column = match row.state {
            State::Succeeded => 1,
            State::Refused => 3,
            _ => 2,
        };
        self.totals_mut(row)[column] += 1;
    }

    pub(super) fn refuse(&mut self, replica: usize, row: &Row) {
        self.totals_mut(row)[0] += 1;
        self.count_end(row);
        self.ids.push(row.id);
        match self.refusals[replica].find_shared_row(row) {
            Some(shared) => {
                // The shared row may have been deleted meanwhile.
                self.calls
                    .entry(shared.row)
                    .and_modify(|call| call.row.count += 1);
            }
            None => {
                let (charged, counted) = (Vec::new(), Vec::new());
                self.calls.insert(
                    row.id,
                    ModelCall {
                        row: row.clone(),
                        charged,
                        counters: counted,
                        committed_before_run: false,
                        replica,
                        is_interrupted: false,
                        has_row: true,
                    },
                );
            }
        }
    }

    pub(super) fn trim(&mut self, at_most: usize) {
        let newest = self.newest_row();
        let is_counted = |call: &ModelCall| {
            let names = |per| per != Per::Run || self.rules.names_run_counters;
            call.counters.iter().any(|(key, _)| names(key.3))
        };
        let is_deletable = |id: &&InvocationId| {
            self.calls.get(id).is_some_and(|call| match call.row.state {
                State::Reserved | State::Unknown => false,
                State::Refused => !is_counted(call),
                _ => !call.committed_before_run && !is_counted(call),
            })
        };
        let mut ids = self.ids.clone();
        if self.rules.trims_by_id {
            ids.sort_unstable();
        }
        let deletable = ids
            .iter()
            .filter(is_deletable)
            .filter(|id| Some(**id) != newest)
            .take(at_most);
        for id in deletable.copied().collect::<Vec<_>>() {
            self.calls.remove(&id);
        }
    }

    fn newest_row(&self) -> Option<InvocationId> {
        let has_row = |id: &&InvocationId| self.calls.get(id).is_some_and(|call| call.has_row);
        let mut rows = self.ids.iter().filter(has_row);
        if self.rules.trims_by_id {
            rows.max().copied()
        } else {
            rows.next_back().copied()
        }
    }

    pub(super) fn key_holder(&self, row: &Row, at: Timestamp) -> Option<InvocationId> {
        let has_same_key = |call: &&ModelCall| {
            (&call.row.caller, &call.row.tool, &call.row.idempotency_key)
                == (&row.caller, &row.tool, &row.idempotency_key)
        };
        let holds_key = |call: &&ModelCall| call.row.key_until.is_some_and(|until| until > at);
        self.calls
            .values()
            .filter(holds_key)
            .find(has_same_key)
            .map(|call| call.row.id)
    }

    pub(super) fn counter_value(&self, charge: &Charge, at: Timestamp) -> (i64, u64) {
        let current = charge.per.window_start(at);
        match self.counters.get(&counter_key(charge)) {
            Some(count) if count.window_start >= current => (count.window_start, count.used),
            _ => (current, 0),
        }
    }

    /// The counter of a charge. A new one has the window of the ledger, and no used units.
    pub(super) fn new_or_existing_counter(
        &mut self,
        charge: &Charge,
        found: &Charged,
    ) -> &mut CounterValue {
        let instances = &mut self.instances;
        self.counters.entry(counter_key(charge)).or_insert_with(|| {
            *instances += 1;
            CounterValue {
                window_start: found.window_start,
                used: 0,
                counted_at: i64::MAX,
                instance: *instances,
            }
        })
    }

    /// Whether the reservation succeeds. The error is the call that holds the key, or `None` for a
    /// full limit.
    pub(super) fn reserve(
        &mut self,
        replica: usize,
        row: &Row,
        charges: &[Charge],
    ) -> Result<(), Option<InvocationId>> {
        if let Some(holder) = row
            .key_until
            .and_then(|_| self.key_holder(row, row.started_at))
        {
            return Err(Some(holder));
        }
        if charges
            .iter()
            .any(|charge| self.counter_value(charge, row.started_at).1 >= charge.limit)
        {
            return Err(None);
        }
        let is_read = row.effect == Effect::Read;
        let mut call = ModelCall {
            row: row.clone(),
            charged: Vec::new(),
            counters: Vec::new(),
            committed_before_run: !is_read,
            replica,
            is_interrupted: false,
            has_row: !is_read,
        };
        if !is_read {
            self.totals_mut(row)[0] += 1;
        }
        for charge in charges {
            let (window, used) = self.counter_value(charge, row.started_at);
            let before = self
                .counters
                .get(&counter_key(charge))
                .filter(|before| before.window_start == window);
            self.instances += 1;
            let instance = before.map_or(self.instances, |before| before.instance);
            let counted_at = row.started_at.as_millisecond();
            self.counters.insert(
                counter_key(charge),
                CounterValue {
                    window_start: window,
                    used: used + 1,
                    counted_at,
                    instance,
                },
            );
            call.counters.push((counter_key(charge), instance));
        }
        if row.key_until.is_some() {
            // The call that held the key before loses it.
            for other in self.calls.values_mut().filter(|other| {
                (
                    &other.row.caller,
                    &other.row.tool,
                    &other.row.idempotency_key,
                ) == (&row.caller, &row.tool, &row.idempotency_key)
            }) {
                other.row.key_until = None;
            }
        }
        self.ids.push(row.id);
        self.calls.insert(row.id, call);
        Ok(())
    }

    pub(super) fn settle(&mut self, row: &Row, refunds: bool) {
        let is_first = self
            .calls
            .get(&row.id)
            .is_some_and(|call| call.row.state == State::Reserved);
        if is_first || self.rules.counts_later_ends {
            self.count_end(row);
        }
        let refunds = refunds || self.rules.undoes_unknown && row.state == State::Refused;
        let Some(call) = self
            .calls
            .get_mut(&row.id)
            .filter(|call| call.row.state == State::Reserved)
        else {
            return;
        };
        if !call.has_row {
            call.has_row = true;
            // Rows are in the order in which they are written.
            self.ids.retain(|id| *id != row.id);
            self.ids.push(row.id);
            // A row names only counters that still count its unit.
            call.counters.retain(|(key, instance)| {
                let counter = self.counters.get(key);
                counter.is_some_and(|counter| counter.instance == *instance)
            });
            self.totals
                .entry((row.tool.to_string(), row.caller.to_string()))
                .or_default()[0] += 1;
        }
        if refunds {
            for (key, instance) in call.counters.drain(..) {
                if let Some(count) = self
                    .counters
                    .get_mut(&key)
                    .filter(|count| count.instance == instance)
                {
                    count.used -= 1;
                }
            }
        }
        call.row.state = row.state;
        call.row.key_until = row.key_until;
    }

    pub(super) fn crash(&mut self, replica: usize, at: Timestamp) {
        self.refusals[replica] = Refusals::default();
        self.calls
            .retain(|_, call| call.has_row || call.replica != replica);
        let mut failed = Vec::new();
        for call in self
            .calls
            .values_mut()
            .filter(|call| call.row.state == State::Reserved && call.replica == replica)
        {
            call.row.state = State::Unknown;
            call.is_interrupted = true;
            failed.push(call.row.clone());
            let keeps = call.row.effect == Effect::Write && call.row.key_until.is_some();
            call.row.key_until = keeps.then(|| at + 24.hours());
        }
        failed.iter().for_each(|row| self.count_end(row));
    }

    pub(super) fn reset_counters(&mut self, tool: &str, caller: Option<&str>) {
        let named = |key: &CounterKey| caller.is_some_and(|caller| key.1 == caller);
        self.counters.retain(|key, _| {
            !(key.0 == tool && (caller.is_none() || named(key)) || key.0.is_empty() && named(key))
        });
    }

    pub(super) fn prune(&mut self, before: Timestamp, at: Timestamp) {
        let oldest = InvocationId::lower_bound(before);
        let newest = self.newest_row().filter(|_| self.rules.prune_keeps_newest);
        self.calls.retain(|id, call| {
            let is_held = call.row.key_until.is_some_and(|until| until > at);
            *id >= oldest || call.row.state == State::Reserved || is_held || Some(*id) == newest
        });
        let before = before.as_millisecond();
        self.counters
            .retain(|key, count| key.3 != Per::Run || count.counted_at >= before);
    }
}

pub(super) fn counter_key(charge: &Charge) -> CounterKey {
    (
        charge.tool.clone(),
        charge.caller.clone(),
        charge.run.clone(),
        charge.per,
    )
}
