//! Units of limits that are set aside: the file counts them as used already, and calls take them
//! from memory. So a limited read waits for no commit before its tool runs.
//!
//! The row of such a call is written with its end, and names the counters then. Units that no call
//! has taken are given back when the load ends, and before a limit refuses a call. After a crash
//! they stay used: the next start moves them to `lost_units`. So a limit never allows more calls
//! than its units, and without a crash exactly as many.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::super::Reservation;
use super::super::counts::CounterKey;
use super::super::operation::UnitRequest;
use super::super::units::{self, CounterUnits, Units};
use crate::call::{Charged, InvocationId, Per};

/// Maximum number of units of one counter that are set aside beyond those in use.
const MAX_FREE_UNITS: u64 = 256;
/// At most this share of the units that a limit has left is set aside.
const SHARE_OF_REMAINING: u64 = 4;
/// Maximum number of counters with free units.
const MAX_COUNTERS: usize = 4096;

/// The units that this process has set aside, and the calls that hold some of them.
#[derive(Clone, Default)]
pub(super) struct SetAside(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The state of each counter is the start of the last counted call that a commit has written,
    /// in Unix milliseconds.
    units: Units<Window, i64>,
    /// Free units that a failed commit was to give back. It may be in the file nevertheless.
    withheld: Vec<(CounterKey, Window, u64)>,
}

/// The unit of a call.
pub(super) type HeldUnit = units::HeldUnit<Window>;

/// The state of a counter after a commit.
pub(super) struct CommittedCounter {
    pub(super) key: CounterKey,
    pub(super) window: Window,
    pub(super) used: u64,
    /// Start of the last call that the commit has counted, in Unix milliseconds.
    pub(super) counted_at: Option<i64>,
    /// Free units that the commit has set aside.
    pub(super) added: u64,
    /// Whether the commit has given units to calls or set some aside.
    pub(super) has_units: bool,
}

impl SetAside {
    /// Takes a unit of each counter from memory, or none.
    pub(super) fn take(&self, request: &UnitRequest) -> Option<Reservation> {
        self.0.lock().units.take(request, |_, _| true)
    }

    /// Notes that a commit has given these units to a call.
    pub(super) fn hold(&self, invocation: InvocationId, charged: &[Charged]) {
        self.0.lock().units.hold(invocation, charged);
    }

    /// Takes the units of a call that has ended. They stay in use until [`SetAside::end`]. `None`:
    /// the call holds no unit here.
    pub(super) fn release(&self, invocation: InvocationId) -> Option<Vec<HeldUnit>> {
        self.0.lock().units.release(invocation)
    }

    /// Frees the units of a call that does not use them.
    pub(super) fn cancel(&self, invocation: InvocationId) {
        self.0.lock().units.cancel(invocation);
    }

    /// Notes that the row of a call with these units is committed.
    pub(super) fn end(&self, held: &[HeldUnit]) {
        let units = &mut self.0.lock().units;
        for unit in held {
            if let Some(counter) = units.current_mut(unit) {
                // The counter may have been forgotten meanwhile, and begun again.
                counter.in_use = counter.in_use.saturating_sub(1);
            }
        }
    }

    /// How many units a commit should set aside: as many as calls use, and few near the limit.
    /// `requests` is the number of calls that the commit gives a unit.
    pub(super) fn units_to_add(
        &self,
        key: &CounterKey,
        window: Window,
        requests: u64,
        remaining: u64,
    ) -> u64 {
        // There may be millions of runs, and each has a counter of its own.
        if key.3 == Per::Run {
            return 0;
        }
        let counters = &self.0.lock().units.counters;
        let counter = counters
            .get(key)
            .filter(|counter| counter.instance == window);
        if counter.is_none() && counters.len() >= MAX_COUNTERS {
            return 0;
        }
        let (free, in_use) = counter.map_or((0, 0), |counter| (counter.free, counter.in_use));
        let wanted = (requests + in_use)
            .min(MAX_FREE_UNITS)
            .min((remaining + free) / SHARE_OF_REMAINING);
        // Below half, so that not every commit changes the counter.
        if free * 2 > wanted { 0 } else { wanted - free }
    }

    /// Takes out the free units of a counter beyond `kept`, to give them back in a commit. Forgets
    /// the counter if the file has another one: another process has reset it.
    pub(super) fn take_free(&self, key: &CounterKey, window: Window, kept: u64) -> u64 {
        let counters = &mut self.0.lock().units.counters;
        match counters.get_mut(key) {
            Some(counter) if counter.instance == window => {
                let taken = counter.free.saturating_sub(kept);
                counter.free -= taken;
                taken
            }
            Some(_) => {
                counters.remove(key);
                0
            }
            None => 0,
        }
    }

    /// Forgets a counter that is no longer in the file.
    pub(super) fn forget(&self, key: &CounterKey) {
        self.0.lock().units.counters.remove(key);
    }

    /// Forgets a counter in this window.
    pub(super) fn forget_window(&self, key: &CounterKey, window: Window) {
        let counters = &mut self.0.lock().units.counters;
        let known = counters.get(key);
        if known.is_some_and(|counter| counter.instance == window) {
            counters.remove(key);
        }
    }

    /// The counters whose free units no call needs, and how many of them stay. Units stay for one
    /// interval after the last call has taken one. With `is_closing`, no unit stays.
    pub(super) fn idle_counters(&self, is_closing: bool) -> Vec<(CounterKey, u64)> {
        let counters = &mut self.0.lock().units.counters;
        counters.retain(|_, counter| counter.free + counter.in_use > 0);
        let mut idle = Vec::new();
        for (key, counter) in counters {
            let is_used = std::mem::take(&mut counter.was_used) && !is_closing;
            let kept = if is_used { counter.in_use } else { 0 };
            if counter.free > kept {
                idle.push((key.clone(), kept));
            }
        }
        idle
    }

    /// Whether some units are free, or withheld.
    pub(super) fn has_free_units(&self) -> bool {
        let state = self.0.lock();
        let mut counters = state.units.counters.values();
        !state.withheld.is_empty() || counters.any(|counter| counter.free > 0)
    }

    /// Keeps free units away from calls after a commit has failed.
    pub(super) fn withhold(&self, taken: Vec<(CounterKey, Window, u64)>) {
        self.0.lock().withheld.extend(taken);
    }

    /// Frees the withheld units, because it is certain that the failed commit is not in the file.
    pub(super) fn restore(&self) {
        let state = &mut *self.0.lock();
        for (key, window, free) in state.withheld.drain(..) {
            if let Some(counter) = state.units.counters.get_mut(&key)
                && counter.instance == window
            {
                counter.free += free;
            }
        }
    }

    /// Takes over the counters as a commit has written them.
    pub(super) fn update(&self, committed: Vec<CommittedCounter>) {
        let counters = &mut self.0.lock().units.counters;
        for counter in committed {
            match counters.get_mut(&counter.key) {
                Some(known) if known.instance == counter.window => {
                    known.used = counter.used;
                    known.free += counter.added;
                    known.state = counter.counted_at.unwrap_or(known.state);
                }
                _ if counter.has_units => {
                    let units = CounterUnits {
                        instance: counter.window,
                        window_start: counter.window.start,
                        used: counter.used,
                        free: counter.added,
                        in_use: 0,
                        was_used: false,
                        state: counter.counted_at.unwrap_or_default(),
                    };
                    counters.insert(counter.key, units);
                }
                // Units of an older window are worth nothing.
                _ => drop(counters.remove(&counter.key)),
            }
        }
    }

    /// Forgets the counters that `Change::Reset` deletes. Units of running
    /// calls belong to no counter then.
    pub(super) fn forget_counters(&self, tool: &str, caller: Option<&str>) {
        let is_reset = |key: &CounterKey| {
            let is_of_caller = caller.is_none_or(|caller| caller == key.1);
            (key.0 == tool || key.0.is_empty() && caller.is_some()) && is_of_caller
        };
        let counters = &mut self.0.lock().units.counters;
        counters.retain(|key, _| !is_reset(key));
    }

    /// Forgets counters of runs that `Change::Prune` deletes.
    pub(super) fn forget_runs(&self, before: Timestamp) {
        let before = before.as_millisecond();
        let counters = &mut self.0.lock().units.counters;
        counters.retain(|key, counter| key.3 != Per::Run || counter.state >= before);
    }

    /// Takes the free units out of the numbers that callers see.
    pub(super) fn hide_free<'r>(&self, reservations: impl Iterator<Item = &'r mut Reservation>) {
        for charged in reservations.flat_map(|reservation| &mut reservation.charged) {
            let free = self.free_units(charged);
            charged.used = charged.used.saturating_sub(free).max(1);
        }
    }

    /// The free units of a counter.
    pub(super) fn free_units(&self, charged: &Charged) -> u64 {
        let state = self.0.lock();
        let counter = state.units.of_charged(charged);
        counter.map_or(0, |counter| counter.free)
    }
}

/// One window of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    /// Distinguishes the counter from one of the same name before a reset.
    instance: i64,
    pub(super) start: i64,
}

/// A row of the table `quota`.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    /// Its number, by which rows name it. Counters of runs have none.
    pub(super) id: Option<i64>,
    /// Distinguishes the counter from one of the same name before a reset.
    pub(super) instance: i64,
    pub(super) window_start: i64,
    pub(super) used: u64,
    /// Units in `used` that no row has yet.
    pub(super) set_aside: u64,
    /// The limit that the counter was last counted on under.
    pub(super) limit: Option<u64>,
}

impl Counter {
    pub(super) fn window(&self) -> Window {
        Window {
            instance: self.instance,
            start: self.window_start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{charge, now};
    use super::super::super::counts::counter_key;
    use super::*;
    use crate::call::Charge;

    const WINDOW: Window = Window {
        instance: 1,
        start: 0,
    };

    fn daily() -> Charge {
        charge(99, Per::Day)
    }

    /// A counter with free units, as a commit has written it.
    fn with_free(free: u64) -> SetAside {
        let units = SetAside::default();
        units.update(vec![CommittedCounter {
            key: counter_key(&daily()),
            window: WINDOW,
            used: free,
            counted_at: None,
            added: free,
            has_units: true,
        }]);
        units
    }

    #[test]
    fn free_and_withheld_units_are_to_be_given_back() {
        assert!(!SetAside::default().has_free_units());
        assert!(!with_free(0).has_free_units());
        let units = with_free(2);
        assert!(units.has_free_units());
        let key = counter_key(&daily());
        assert_eq!(units.take_free(&key, WINDOW, 0), 2);
        assert!(!units.has_free_units());
        units.withhold(vec![(key.clone(), WINDOW, 2)]);
        assert!(units.has_free_units(), "the file may still count them");
        units.restore();
        assert_eq!(units.take_free(&key, WINDOW, 0), 2);
        assert!(!units.has_free_units());
    }

    #[test]
    fn few_units_are_set_aside_near_the_limit() {
        let key = counter_key(&daily());
        let add = |units: &SetAside, requests, remaining| {
            units.units_to_add(&key, WINDOW, requests, remaining)
        };
        let units = SetAside::default();
        assert_eq!(add(&units, 3, 1000), 3);
        assert_eq!(add(&units, 3, 8), 2);
        assert_eq!(add(&units, 3, 3), 0);
        assert_eq!(add(&units, 10_000, 1_000_000), MAX_FREE_UNITS);
        // Those that are free already count, and below half none are added.
        let units = with_free(4);
        assert_eq!(add(&units, 8, 1000), 4);
        assert_eq!(add(&units, 9, 1000), 5);
        assert_eq!(add(&units, 7, 1000), 0);
        assert_eq!(add(&units, 100, 36), 6);
        let run = counter_key(&charge(99, Per::Run));
        assert_eq!(SetAside::default().units_to_add(&run, WINDOW, 3, 1000), 0);
    }

    #[test]
    fn units_stay_for_one_interval_after_the_last_use() {
        let units = with_free(5);
        let key = counter_key(&daily());
        let request = UnitRequest {
            invocation: InvocationId::new(),
            started_at: Timestamp::UNIX_EPOCH,
            charges: vec![daily()],
        };
        assert!(units.take(&request).is_some());
        assert_eq!(units.idle_counters(false), [(key.clone(), 1)]);
        assert_eq!(units.idle_counters(false), [(key.clone(), 0)]);
        units.cancel(request.invocation);
        assert!(units.take(&request).is_some());
        assert_eq!(units.idle_counters(true), [(key.clone(), 0)]);
        assert_eq!(units.take_free(&key, WINDOW, 0), 4);
        assert_eq!(units.idle_counters(true), []);
    }

    #[test]
    fn units_of_another_window_are_worth_nothing() {
        let key = counter_key(&daily());
        let other = Window {
            instance: 2,
            start: 0,
        };
        let units = with_free(2);
        units.forget_window(&key, other);
        assert!(units.has_free_units());
        units.withhold(vec![(key.clone(), other, 7)]);
        units.restore();
        assert_eq!(units.take_free(&key, WINDOW, 1), 1);
        assert_eq!(units.take_free(&key, other, 0), 0, "it is forgotten");
        assert!(!units.has_free_units());
        let units = with_free(2);
        units.forget_window(&key, WINDOW);
        assert!(!units.has_free_units());
    }

    #[test]
    fn reset_forgets_the_counters_that_it_deletes() {
        let at = now();
        let of = |tool: &str, caller: &str| Charge {
            tool: tool.into(),
            caller: caller.into(),
            ..daily()
        };
        let names = [("t", "a"), ("t", "b"), ("u", "a"), ("", "a"), ("", "b")];
        for (caller, kept) in [(None, &[2, 3, 4][..]), (Some("a"), &[1, 2, 4])] {
            let units = SetAside::default();
            let counters = names.iter().map(|(tool, caller)| CommittedCounter {
                key: counter_key(&of(tool, caller)),
                window: WINDOW,
                used: 1,
                counted_at: Some(at.as_millisecond()),
                added: 1,
                has_units: true,
            });
            units.update(counters.collect());
            units.forget_counters("t", caller);
            for (number, (tool, caller)) in names.iter().enumerate() {
                let free = units.take_free(&counter_key(&of(tool, caller)), WINDOW, 0);
                assert_eq!(free == 1, kept.contains(&number), "{tool} {caller}");
            }
        }
    }
}
