//! Remembers recent events of each run: enough to tell a model that it repeats itself.
//!
//! The history is in memory only, and covers recent runs only. A forgotten run costs a reminder or
//! lets a repeated call pass; it never refuses a call. Callers choose the ids of runs, so a caller
//! that invents many ids evicts the runs of others. This module guards against loops, not against
//! malicious callers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;

use super::run_news::RunNews;
use crate::call::json::hash_parts;
use crate::call::{Clock, InvocationId, ToolName};
use crate::ledger::AnsweredCall;

/// Maximum number of runs, about 300 bytes each. Beyond it, the run that was idle for the longest
/// time is forgotten.
const MAX_RUNS: u64 = 100_000;
/// A run without events for this long is forgotten.
const MAX_IDLE: SignedDuration = SignedDuration::from_hours(1);

/// Most found tools of a run. Later finds are called without being listed.
const MAX_FOUND_TOOLS: usize = 100;

/// Identifies equal calls: a digest of the tool and of everything on which its answer depends.
pub type CallDigest = [u8; 32];

/// The history of all runs. Clones share it.
#[derive(Clone)]
pub struct Runs {
    /// Each run is locked only briefly, never across an await.
    memory: Cache<[u8; 32], Arc<Mutex<Run>>>,
    clock: Clock,
    /// For the other replicas; `None` without replicas.
    news: Option<RunNews>,
}

#[derive(Default)]
struct Run {
    /// Time of the last event in the run.
    last_event_at: Timestamp,
    last_answered: Option<LastAnswered>,
    malformed_messages: u32,
    text_tool_uses: u32,
    found_tools: BTreeSet<ToolName>,
}

/// The last call of a run that was answered.
#[derive(Clone, Copy)]
struct LastAnswered {
    call: CallDigest,
    invocation: InvocationId,
    at: Instant,
    /// The time of the answer by the clock of the history.
    answered_at: Timestamp,
}

impl Runs {
    /// Makes an empty history. `clock` decides which runs are idle.
    pub fn new(clock: Clock) -> Self {
        Self::with_capacity(MAX_RUNS, clock)
    }

    fn with_capacity(most: u64, clock: Clock) -> Self {
        // The newest runs matter. A policy by frequency of use, moka's default, would not admit
        // them.
        let memory = Cache::builder()
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(most)
            .time_to_idle(MAX_IDLE.unsigned_abs());
        Self {
            memory: memory.build(),
            clock,
            news: None,
        }
    }

    /// The same history, whose last answered calls other replicas are told.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.news = Some(RunNews::default());
        self
    }

    /// What other replicas are to be told; `None` without replicas.
    pub fn news(&self) -> Option<&RunNews> {
        self.news.as_ref()
    }

    /// Counts a malformed message of this caller. Returns the number of malformed messages in a row
    /// in this run, including this one. Without a run it is always 1, because different
    /// conversations must not be counted together.
    pub fn count_malformed(&self, caller: &str, run_id: Option<&str>) -> u32 {
        if run_id.is_none() {
            return 1;
        }
        self.update(run_key(caller, run_id), |run| {
            run.malformed_messages = run.malformed_messages.saturating_add(1);
            run.malformed_messages
        })
    }

    /// Notes a valid message of this caller, so the count of malformed messages starts again.
    pub fn reset_malformed(&self, caller: &str, run_id: Option<&str>) {
        if let Some(run) = run_id.and_then(|_| self.memory.get(&run_key(caller, run_id))) {
            run.lock().malformed_messages = 0;
        }
    }

    /// Counts a use of a tool in a text dialect. Returns the number of uses in this run, including
    /// this one. Without a run, it counts in the caller's unnamed run.
    pub fn count_text_use(&self, caller: &str, run_id: Option<&str>) -> u32 {
        self.update(run_key(caller, run_id), |run| {
            run.text_tool_uses = run.text_tool_uses.saturating_add(1);
            run.text_tool_uses
        })
    }

    /// Notes the tools that a search of the run has found. They stay in the lists of the run. Returns
    /// whether one of them is new.
    pub fn add_found_tools<'t>(
        &self,
        caller: &str,
        run_id: Option<&str>,
        tools: impl Iterator<Item = &'t ToolName>,
    ) -> bool {
        self.update(run_key(caller, run_id), |run| {
            let before = run.found_tools.len();
            let room = MAX_FOUND_TOOLS.saturating_sub(before);
            run.found_tools.extend(tools.take(room).cloned());
            run.found_tools.len() > before
        })
    }

    /// The tools that searches of the run have found.
    pub fn found_tools(&self, caller: &str, run_id: Option<&str>) -> BTreeSet<ToolName> {
        let run = self.memory.get(&run_key(caller, run_id));
        let run = run.filter(|run| !run.lock().is_idle(self.clock.now()));
        run.map(|run| run.lock().found_tools.clone())
            .unwrap_or_default()
    }

    /// The invocation that this call repeats, if the call was the last one answered in the run. With
    /// `within`, only if that was less than this time ago.
    pub fn find_repeated(
        &self,
        caller: &str,
        run_id: &str,
        call: &CallDigest,
        within: Option<Duration>,
    ) -> Option<InvocationId> {
        let now = self.clock.now();
        let run = self.memory.get(&run_key(caller, Some(run_id)))?;
        let run = run.lock();
        let is_recent = |last: &LastAnswered| {
            let age = now.duration_since(last.answered_at);
            within.is_none_or(|within| age.is_negative() || age.unsigned_abs() < within)
        };
        run.last_answered
            .filter(|last| last.call == *call && !run.is_idle(now) && is_recent(last))
            .map(|last| last.invocation)
    }

    /// Notes that this call was answered. It is now the last call of the run. `is_shared`: calls of
    /// the run may reach other replicas.
    pub fn set_last_answered(
        &self,
        caller: &str,
        run_id: &str,
        call: CallDigest,
        invocation: InvocationId,
        is_shared: bool,
    ) {
        let last = LastAnswered {
            call,
            invocation,
            at: Instant::now(),
            answered_at: self.clock.now(),
        };
        let key = run_key(caller, Some(run_id));
        self.update(key, |run| run.last_answered = Some(last));
        if is_shared && let Some(news) = &self.news {
            news.add(key, call, invocation, last.at);
        }
    }

    /// Notes that another replica has answered a call, unless this one has answered a later call of
    /// the run.
    pub fn set_answered_elsewhere(&self, answered: &AnsweredCall) {
        let Some(at) = Instant::now().checked_sub(answered.age) else {
            return;
        };
        let now = self.clock.now();
        let answered_at = now.checked_sub(answered.age).unwrap_or(now);
        self.update(answered.run, |run| {
            if run.last_answered.is_none_or(|last| last.at < at) {
                run.last_answered = Some(LastAnswered {
                    call: answered.call,
                    invocation: answered.invocation,
                    at,
                    answered_at,
                });
            }
        });
    }

    fn update<T>(&self, key: [u8; 32], change: impl FnOnce(&mut Run) -> T) -> T {
        let now = self.clock.now();
        let run = self.memory.get_with(key, Arc::default);
        let mut run = run.lock();
        // moka removes idle runs late, and by its own clock. So the run is checked against our
        // clock here.
        if run.is_idle(now) {
            *run = Run::default();
        }
        run.last_event_at = now;
        change(&mut run)
    }
}

impl Run {
    fn is_idle(&self, now: Timestamp) -> bool {
        now.duration_since(self.last_event_at) > MAX_IDLE
    }
}

/// The key of a caller's run. The unnamed run differs from every named run, even from an empty
/// name.
fn run_key(caller: &str, run_id: Option<&str>) -> [u8; 32] {
    hash_parts(std::iter::once(caller).chain(run_id).map(str::as_bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn malformed_messages_are_counted_by_run() {
        let runs = Runs::new(Clock::system());
        assert_eq!(
            [1, 2, 3].map(|_| runs.count_malformed("ann", Some("r"))),
            [1, 2, 3]
        );
        assert_eq!(runs.count_malformed("ann", Some("s")), 1);
        assert_eq!(runs.count_malformed("bob", Some("r")), 1);
        runs.reset_malformed("ann", Some("r"));
        assert_eq!(runs.count_malformed("ann", Some("r")), 1);
        assert_eq!(runs.count_malformed("bob", Some("r")), 2, "another caller");
        assert_eq!([1, 2].map(|_| runs.count_malformed("ann", None)), [1, 1]);
        runs.reset_malformed("ann", None);
    }

    #[test]
    fn text_uses_are_counted_by_run() {
        let runs = Runs::new(Clock::system());
        assert_eq!(
            [1, 2].map(|_| runs.count_text_use("ann", Some("r"))),
            [1, 2]
        );
        assert_eq!([1, 2].map(|_| runs.count_text_use("ann", None)), [1, 2]);
        assert_eq!(
            runs.count_text_use("ann", Some("")),
            1,
            "an empty name is a name"
        );
        assert_eq!(runs.count_text_use("bob", None), 1);
        runs.reset_malformed("ann", Some("r"));
        assert_eq!(
            runs.count_text_use("ann", Some("r")),
            3,
            "a valid message is not a tool use"
        );
    }

    #[test]
    fn found_tools_stay_with_their_run() {
        let runs = Runs::new(Clock::system());
        let tools = ["a", "b"].map(|name| ToolName::parse(name).unwrap());
        assert!(runs.add_found_tools("ann", Some("r"), tools[..1].iter()));
        assert!(!runs.add_found_tools("ann", Some("r"), tools[..1].iter()));
        assert!(runs.add_found_tools("ann", Some("r"), tools.iter()));
        assert_eq!(runs.found_tools("ann", Some("r")), tools.into());
        for (caller, run) in [("ann", None), ("ann", Some("s")), ("bob", Some("r"))] {
            assert!(runs.found_tools(caller, run).is_empty());
        }
    }

    #[test]
    fn only_the_last_call_is_remembered() {
        let runs = Runs::new(Clock::system());
        let (one, other) = (InvocationId::new(), InvocationId::new());
        assert_eq!(runs.find_repeated("ann", "r", &[1; 32], None), None);
        runs.set_last_answered("ann", "r", [1; 32], one, true);
        assert_eq!(runs.find_repeated("ann", "r", &[1; 32], None), Some(one));
        assert_eq!(runs.find_repeated("ann", "s", &[1; 32], None), None);
        assert_eq!(runs.find_repeated("bob", "r", &[1; 32], None), None);
        runs.set_last_answered("ann", "r", [2; 32], other, true);
        assert_eq!(runs.find_repeated("ann", "r", &[1; 32], None), None);
        assert_eq!(runs.find_repeated("ann", "r", &[2; 32], None), Some(other));
    }

    #[test]
    fn replicas_know_the_last_call_of_a_run() {
        let (clock, clock_ms) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        let (here, there) = (Runs::new(clock.clone()).shared(), Runs::new(clock).shared());
        let ids = [(); 3].map(|()| InvocationId::new());
        let told = |runs: &Runs| runs.news().unwrap().take();
        let tell = |from: &Runs, to: &Runs| {
            told(from)
                .iter()
                .for_each(|call| to.set_answered_elsewhere(call));
        };
        here.set_last_answered("ann", "r", [1; 32], ids[0], true);
        tell(&here, &there);
        assert_eq!(
            there.find_repeated("ann", "r", &[1; 32], None),
            Some(ids[0])
        );
        assert_eq!(there.find_repeated("bob", "r", &[1; 32], None), None);
        assert_eq!(told(&here), [], "each call is told once");

        // The older of two calls comes late.
        here.set_last_answered("ann", "r", [2; 32], ids[1], true);
        clock_ms.fetch_add(1, Ordering::SeqCst);
        there.set_last_answered("ann", "r", [3; 32], ids[2], true);
        tell(&here, &there);
        tell(&there, &here);
        for runs in [&here, &there] {
            assert_eq!(runs.find_repeated("ann", "r", &[2; 32], None), None);
            assert_eq!(runs.find_repeated("ann", "r", &[3; 32], None), Some(ids[2]));
        }

        here.set_last_answered("ann", "nested", [1; 32], ids[0], false);
        assert_eq!(told(&here), [], "its calls stay at this replica");
    }

    #[test]
    fn answer_is_too_old_after_the_given_time() {
        let (clock, clock_ms) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        let runs = Runs::new(clock.clone());
        let id = InvocationId::new();
        let find = |within| runs.find_repeated("ann", "r", &[1; 32], within);
        let minute = Some(Duration::from_mins(1));
        runs.set_last_answered("ann", "r", [1; 32], id, true);
        clock_ms.fetch_add(59_999, Ordering::SeqCst);
        assert_eq!(find(minute), Some(id));
        clock_ms.fetch_add(1, Ordering::SeqCst);
        assert_eq!((find(minute), find(None)), (None, Some(id)));
        // A clock that goes back makes no answer old.
        clock_ms.fetch_add(-3_600_000, Ordering::SeqCst);
        assert_eq!(find(minute), Some(id));
        // What another replica tells is as old as it says.
        let answered = AnsweredCall {
            age: Duration::from_secs(50),
            run: run_key("ann", Some("s")),
            call: [1; 32],
            invocation: id,
        };
        let find = || runs.find_repeated("ann", "s", &[1; 32], minute);
        runs.set_answered_elsewhere(&answered);
        assert_eq!(find(), Some(id));
        clock_ms.fetch_add(10_000, Ordering::SeqCst);
        assert_eq!(find(), None);
    }

    #[test]
    fn idle_run_is_forgotten() {
        let (clock, clock_ms) = Clock::manual("2026-06-15T12:00:00Z".parse().unwrap());
        let runs = Runs::new(clock);
        let id = InvocationId::new();
        let pass = |time: SignedDuration| {
            clock_ms.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst)
        };
        runs.set_last_answered("ann", "r", [1; 32], id, true);
        assert_eq!(
            (
                runs.count_malformed("ann", Some("r")),
                runs.count_text_use("ann", Some("r"))
            ),
            (1, 1)
        );
        pass(MAX_IDLE);
        assert_eq!(runs.find_repeated("ann", "r", &[1; 32], None), Some(id));
        assert_eq!(
            runs.count_text_use("ann", Some("r")),
            2,
            "the run is active again"
        );
        pass(MAX_IDLE);
        assert_eq!(runs.count_malformed("ann", Some("r")), 2);
        pass(MAX_IDLE + SignedDuration::from_millis(1));
        assert_eq!(runs.find_repeated("ann", "r", &[1; 32], None), None);
        assert_eq!(
            (
                runs.count_malformed("ann", Some("r")),
                runs.count_text_use("ann", Some("r"))
            ),
            (1, 1)
        );
        // A clock that goes back makes no run older.
        pass(-MAX_IDLE - MAX_IDLE);
        assert_eq!(runs.count_text_use("ann", Some("r")), 2);
    }

    #[test]
    fn oldest_runs_are_evicted() {
        let runs = Runs::with_capacity(10, Clock::system());
        for n in 0..1000 {
            runs.count_text_use("ann", Some(&n.to_string()));
        }
        runs.memory.run_pending_tasks();
        assert_eq!(runs.memory.entry_count(), 10);
        assert_eq!(runs.count_text_use("ann", Some("999")), 2);
        assert_eq!(runs.count_text_use("ann", Some("0")), 1);
    }
}
