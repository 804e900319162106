//! Remembers recent events of each run: enough to tell a model that it repeats itself.
//!
//! The history is in memory only, and covers recent runs only. A forgotten run costs a reminder or lets a repeated call
//! pass; it never refuses a call. Callers choose the ids of runs, so a caller that invents many ids evicts the runs of
//! others. This module guards against loops, not against malicious callers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::call::json::digest;
use crate::call::{Clock, InvocationId};

/// Maximum number of runs, about 300 bytes each. Beyond it, the run that was idle for the longest time is forgotten.
const MOST: u64 = 100_000;
/// A run without events for this long is forgotten.
const IDLE: SignedDuration = SignedDuration::from_hours(1);

/// Identifies equal calls: a digest of the tool and of everything on which its answer depends.
pub type CallDigest = [u8; 32];

/// The history of all runs. Clones share it.
#[derive(Clone)]
pub struct Runs {
    memory: Cache<[u8; 32], Arc<Mutex<Run>>>,
    clock: Clock,
}

#[derive(Default)]
struct Run {
    /// Time of the last event in the run.
    seen_at: Timestamp,
    last: Option<(CallDigest, InvocationId)>,
    misread: u32,
    used: u32,
}

impl Runs {
    /// Makes an empty history. `clock` decides which runs are idle.
    pub fn new(clock: Clock) -> Self {
        Self::with_room(MOST, clock)
    }

    fn with_room(most: u64, clock: Clock) -> Self {
        // The newest runs matter. A policy by frequency of use, moka's default, would not admit them.
        let memory = Cache::builder()
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(most)
            .time_to_idle(IDLE.unsigned_abs());
        Self { memory: memory.build(), clock }
    }

    /// Counts a malformed message of this caller. Returns the number of malformed messages in a row in this run,
    /// including this one. Without a run it is always 1, because different conversations must not be counted together.
    pub fn misread(&self, caller: &str, run_id: Option<&str>) -> u32 {
        run_id.map_or(1, |_| {
            self.change(caller, run_id, |run| {
                run.misread = run.misread.saturating_add(1);
                run.misread
            })
        })
    }

    /// Notes a valid message of this caller, so the count of malformed messages starts again.
    pub fn understood(&self, caller: &str, run_id: Option<&str>) {
        if let Some(run) = run_id.and_then(|_| self.memory.get(&key(caller, run_id))) {
            lock(&run).misread = 0;
        }
    }

    /// Counts a use of a tool in a text dialect. Returns the number of uses in this run, including this one. Without a
    /// run, it counts in the caller's unnamed run.
    pub fn used(&self, caller: &str, run_id: Option<&str>) -> u32 {
        self.change(caller, run_id, |run| {
            run.used = run.used.saturating_add(1);
            run.used
        })
    }

    /// The invocation that this call repeats, if the call was the last one answered in the run.
    pub fn last_was(&self, caller: &str, run_id: &str, call: &CallDigest) -> Option<InvocationId> {
        let run = self.memory.get(&key(caller, Some(run_id)))?;
        let run = lock(&run);
        run.last.filter(|(last, _)| last == call && !run.is_idle(self.clock.now())).map(|(_, invocation)| invocation)
    }

    /// Notes that this call was answered. It is now the last call of the run.
    pub fn answered(&self, caller: &str, run_id: &str, call: CallDigest, invocation: InvocationId) {
        self.change(caller, Some(run_id), |run| run.last = Some((call, invocation)));
    }

    fn change<T>(&self, caller: &str, run_id: Option<&str>, change: impl FnOnce(&mut Run) -> T) -> T {
        let now = self.clock.now();
        let run = self.memory.get_with(key(caller, run_id), Arc::default);
        let mut run = lock(&run);
        // moka removes idle runs late, and by its own clock. So the run is checked against our clock here.
        if run.is_idle(now) {
            *run = Run::default();
        }
        run.seen_at = now;
        change(&mut run)
    }
}

impl Run {
    fn is_idle(&self, now: Timestamp) -> bool {
        now.duration_since(self.seen_at) > IDLE
    }
}

/// Locked only briefly, never across an await.
fn lock(run: &Mutex<Run>) -> std::sync::MutexGuard<'_, Run> {
    run.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of a caller's run. The unnamed run differs from every named run, even from an empty name.
fn key(caller: &str, run_id: Option<&str>) -> [u8; 32] {
    digest(std::iter::once(caller).chain(run_id).map(str::as_bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn misreadings_are_counted_in_a_row_and_by_run() {
        let runs = Runs::new(Clock::system());
        assert_eq!([1, 2, 3].map(|_| runs.misread("ann", Some("r"))), [1, 2, 3]);
        assert_eq!(runs.misread("ann", Some("s")), 1);
        assert_eq!(runs.misread("bob", Some("r")), 1);
        runs.understood("ann", Some("r"));
        assert_eq!(runs.misread("ann", Some("r")), 1);
        assert_eq!(runs.misread("bob", Some("r")), 2, "that was another's");
        assert_eq!([1, 2].map(|_| runs.misread("ann", None)), [1, 1]);
        runs.understood("ann", None);
    }

    #[test]
    fn uses_are_counted_by_run_and_the_unnamed_one_is_a_run() {
        let runs = Runs::new(Clock::system());
        assert_eq!([1, 2].map(|_| runs.used("ann", Some("r"))), [1, 2]);
        assert_eq!([1, 2].map(|_| runs.used("ann", None)), [1, 2]);
        assert_eq!(runs.used("ann", Some("")), 1, "an empty name is a name");
        assert_eq!(runs.used("bob", None), 1);
        runs.understood("ann", Some("r"));
        assert_eq!(runs.used("ann", Some("r")), 3, "understanding is no use");
    }

    #[test]
    fn only_the_last_call_of_a_run_is_remembered() {
        let runs = Runs::new(Clock::system());
        let (one, other) = (InvocationId::new(), InvocationId::new());
        assert_eq!(runs.last_was("ann", "r", &[1; 32]), None);
        runs.answered("ann", "r", [1; 32], one);
        assert_eq!(runs.last_was("ann", "r", &[1; 32]), Some(one));
        assert_eq!(runs.last_was("ann", "s", &[1; 32]), None);
        assert_eq!(runs.last_was("bob", "r", &[1; 32]), None);
        runs.answered("ann", "r", [2; 32], other);
        assert_eq!(runs.last_was("ann", "r", &[1; 32]), None);
        assert_eq!(runs.last_was("ann", "r", &[2; 32]), Some(other));
    }

    #[test]
    fn a_quiet_run_is_forgotten() {
        let (clock, hand) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        let runs = Runs::new(clock);
        let id = InvocationId::new();
        let pass = |time: SignedDuration| hand.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        runs.answered("ann", "r", [1; 32], id);
        assert_eq!((runs.misread("ann", Some("r")), runs.used("ann", Some("r"))), (1, 1));
        pass(IDLE);
        assert_eq!(runs.last_was("ann", "r", &[1; 32]), Some(id));
        assert_eq!(runs.used("ann", Some("r")), 2, "and now it is not quiet");
        pass(IDLE);
        assert_eq!(runs.misread("ann", Some("r")), 2);
        pass(IDLE + SignedDuration::from_millis(1));
        assert_eq!(runs.last_was("ann", "r", &[1; 32]), None);
        assert_eq!((runs.misread("ann", Some("r")), runs.used("ann", Some("r"))), (1, 1));
        // A clock that goes back makes no run older.
        pass(-IDLE - IDLE);
        assert_eq!(runs.used("ann", Some("r")), 2);
    }

    #[test]
    fn there_is_room_for_so_many_and_the_newest_have_it() {
        let runs = Runs::with_room(10, Clock::system());
        for n in 0..1000 {
            runs.used("ann", Some(&n.to_string()));
        }
        runs.memory.run_pending_tasks();
        assert_eq!(runs.memory.entry_count(), 10);
        assert_eq!(runs.used("ann", Some("999")), 2);
        assert_eq!(runs.used("ann", Some("0")), 1);
    }
}
