//! What is remembered of a run: enough to tell a model that it goes in circles.
//!
//! In memory only, of the runs that something happened in of late. Forgetting costs a reminder or lets a call through;
//! it never refuses one. Ids of runs are the callers' own, so a caller that makes up many pushes others' out: this
//! guards against loops, not against callers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::call::json::digest;
use crate::call::{Clock, InvocationId};

/// So many runs are remembered, about 300 bytes each; then the one that was quiet for longest is forgotten.
const MOST: u64 = 100_000;
/// A run in which nothing happens for so long is forgotten.
const IDLE: SignedDuration = SignedDuration::from_hours(1);

/// Which call, apart from when: a digest of the tool and of all that its answer depends on.
pub type CallDigest = [u8; 32];

/// All runs. Clones share them.
#[derive(Clone)]
pub struct Runs {
    memory: Cache<[u8; 32], Arc<Mutex<Run>>>,
    clock: Clock,
}

#[derive(Default)]
struct Run {
    /// When something last happened in it.
    seen_at: Timestamp,
    last: Option<(CallDigest, InvocationId)>,
    misread: u32,
    used: u32,
}

impl Runs {
    /// No run yet; idle ones are forgotten by this clock.
    pub fn new(clock: Clock) -> Self {
        Self::with_room(MOST, clock)
    }

    fn with_room(most: u64, clock: Clock) -> Self {
        // The newest are needed; what decides by how often something was asked for would not let them in.
        let memory = Cache::builder()
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(most)
            .time_to_idle(IDLE.unsigned_abs());
        Self { memory: memory.build(), clock }
    }

    /// A message of this caller could not be read. Says how many that makes in a row in this run, this one included.
    /// Without a run it is always the first: conversations must not be counted together.
    pub fn misread(&self, caller: &str, run_id: Option<&str>) -> u32 {
        run_id.map_or(1, |_| {
            self.change(caller, run_id, |run| {
                run.misread = run.misread.saturating_add(1);
                run.misread
            })
        })
    }

    /// A message of this caller could be read: the next that cannot is the first again.
    pub fn understood(&self, caller: &str, run_id: Option<&str>) {
        if let Some(run) = run_id.and_then(|_| self.memory.get(&key(caller, run_id))) {
            lock(&run).misread = 0;
        }
    }

    /// This caller used a tool in a text dialect. Says how often in this run, this time included; without a run, in the
    /// caller's unnamed one.
    pub fn used(&self, caller: &str, run_id: Option<&str>) -> u32 {
        self.change(caller, run_id, |run| {
            run.used = run.used.saturating_add(1);
            run.used
        })
    }

    /// The invocation, if this call is the one that was answered last in the run.
    pub fn last_was(&self, caller: &str, run_id: &str, call: &CallDigest) -> Option<InvocationId> {
        let run = self.memory.get(&key(caller, Some(run_id)))?;
        let run = lock(&run);
        run.last.filter(|(last, _)| last == call && !run.is_idle(self.clock.now())).map(|(_, invocation)| invocation)
    }

    /// This call was answered: it is the last one now.
    pub fn answered(&self, caller: &str, run_id: &str, call: CallDigest, invocation: InvocationId) {
        self.change(caller, Some(run_id), |run| run.last = Some((call, invocation)));
    }

    fn change<T>(&self, caller: &str, run_id: Option<&str>, change: impl FnOnce(&mut Run) -> T) -> T {
        let now = self.clock.now();
        let run = self.memory.get_with(key(caller, run_id), Arc::default);
        let mut run = lock(&run);
        // What moka has not swept away yet; it has a clock of its own, and keeps to that when it does.
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

/// Held for moments only, never over an await.
fn lock(run: &Mutex<Run>) -> std::sync::MutexGuard<'_, Run> {
    run.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The unnamed run is none that has a name.
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
        // A clock that goes back makes nothing older.
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
