//! Units of limits in memory: calls take those that a commit has set aside for them. Both engines
//! hand them out in the same way, and each has its own rules for how many there are.

use std::collections::HashMap;

use super::Reservation;
use super::counts::{CounterKey, counter_key};
use super::operation::UnitRequest;
use crate::call::{Charge, Charged, InvocationId};

/// The counters with units in memory, and the calls that hold some of them. `I` distinguishes a
/// counter from another one of the same name, `S` is what the engine keeps beside its numbers.
#[derive(Default)]
pub(super) struct Units<I, S> {
    pub(super) counters: HashMap<CounterKey, CounterUnits<I, S>>,
    holders: HashMap<InvocationId, Vec<HeldUnit<I>>>,
}

/// The units of one counter in one window.
pub(super) struct CounterUnits<I, S> {
    pub(super) instance: I,
    pub(super) window_start: i64,
    /// Units that the ledger counts as used, the free ones included.
    pub(super) used: u64,
    /// Units that no call has taken.
    pub(super) free: u64,
    /// Units of calls whose end is not committed.
    pub(super) in_use: u64,
    /// Whether a call has taken a unit since the last look for idle counters.
    pub(super) was_used: bool,
    pub(super) state: S,
}

/// The unit of a call.
#[derive(Debug, Clone)]
pub(super) struct HeldUnit<I> {
    pub(super) key: CounterKey,
    pub(super) instance: I,
    pub(super) window_start: i64,
}

impl<I: Copy + PartialEq, S> Units<I, S> {
    /// Takes a unit of each counter, or none. `fits`: whether the units are for this limit.
    pub(super) fn take(
        &mut self,
        request: &UnitRequest,
        fits: impl Fn(&S, &Charge) -> bool,
    ) -> Option<Reservation> {
        let keys: Vec<CounterKey> = request.charges.iter().map(counter_key).collect();
        let mut charged = Vec::with_capacity(keys.len());
        for (key, charge) in keys.iter().zip(&request.charges) {
            let counter = self.counters.get(key)?;
            let used = counter.used.saturating_sub(counter.free);
            let is_current = counter.window_start >= charge.per.window_start(request.started_at);
            let has_unit = counter.free > 0 && used < charge.limit;
            if !is_current || !has_unit || !fits(&counter.state, charge) {
                return None;
            }
            charged.push(Charged {
                charge: charge.clone(),
                window_start: counter.window_start,
                used: used + 1,
            });
        }
        for key in &keys {
            if let Some(counter) = self.counters.get_mut(key) {
                counter.free -= 1;
            }
        }
        self.hold_keys(request.invocation, keys, &charged);
        Some(Reservation { charged })
    }

    /// Notes that a commit has given these units to a call.
    pub(super) fn hold(&mut self, invocation: InvocationId, charged: &[Charged]) {
        let keys = charged.iter().map(|charged| counter_key(&charged.charge));
        self.hold_keys(invocation, keys.collect(), charged);
    }

    fn hold_keys(&mut self, invocation: InvocationId, keys: Vec<CounterKey>, charged: &[Charged]) {
        let mut held = Vec::with_capacity(keys.len());
        for (key, Charged { window_start, .. }) in keys.into_iter().zip(charged) {
            let counter = self.counters.get_mut(&key);
            if let Some(counter) = counter.filter(|known| known.window_start == *window_start) {
                counter.in_use += 1;
                counter.was_used = true;
                held.push(HeldUnit {
                    key,
                    instance: counter.instance,
                    window_start: *window_start,
                });
            }
        }
        self.holders.insert(invocation, held);
    }

    /// Takes the units of a call that has ended. They stay in use. `None`: the call holds no unit
    /// here.
    pub(super) fn release(&mut self, invocation: InvocationId) -> Option<Vec<HeldUnit<I>>> {
        self.holders.remove(&invocation)
    }

    /// Frees the units of a call that does not use them.
    pub(super) fn cancel(&mut self, invocation: InvocationId) {
        for unit in self.release(invocation).unwrap_or_default() {
            if let Some(counter) = self.current_mut(&unit) {
                // The counter may have been forgotten meanwhile, and begun again.
                counter.in_use = counter.in_use.saturating_sub(1);
                counter.free += 1;
            }
        }
    }

    /// The counter of a unit, if it still counts in that window.
    pub(super) fn current_mut(&mut self, unit: &HeldUnit<I>) -> Option<&mut CounterUnits<I, S>> {
        let counter = self.counters.get_mut(&unit.key);
        counter.filter(|counter| {
            counter.instance == unit.instance && counter.window_start == unit.window_start
        })
    }

    /// The counter of these units, if it is in their window.
    pub(super) fn of_charged(&self, charged: &Charged) -> Option<&CounterUnits<I, S>> {
        let counter = self.counters.get(&counter_key(&charged.charge));
        counter.filter(|counter| counter.window_start == charged.window_start)
    }
}
